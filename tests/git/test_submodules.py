"""A job that moves a submodule commits that, if a remote has the commit; nothing in a submodule runs or is lost."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from orchard.git import command, pipes
from orchard.git.command import GitError
from orchard.git.repository import Worktree
from orchard.git.worktree.commit import Committed, Refused, commit_work
from orchard.git.worktree.fitness import Unfit
from orchard.git.worktree.save import CannotSave
from orchard.git.worktree.status import fingerprint
from orchard.git.worktree.submodules import Loss, fingerprints, modules_of, settle, submodules_in
from orchard.git.worktree.worktrees import ProofIsOld, Worktrees
from orchard.testing import Repo
from tests.git.test_hazards_worktree import canary, info, ran, save

__all__ = ["canary"]

UPDATE = (
    "-c",
    "protocol.file.allow=always",
    "-c",
    "submodule.active=.",
    "submodule",
    "--quiet",
    "update",
    "--recursive",
)
ME = ("-c", "user.name=x", "-c", "user.email=x@y")
LATER = "v2, which nothing here is at yet\n"


class Place:
    """A repository with the submodule `sub`, which has `deep` in it, and a worktree of it with both."""

    def __init__(self, repo: Repo, trees: Worktrees, folder: Path) -> None:
        self.repo, self.trees = repo, trees
        self.deep = Repo.make(folder / "deep", files={"deep": "1\n"})
        self.library = Repo.make(folder / "library", files={"lib": "1\n"})
        self.add(self.library, self.deep, "deep")
        self.add(repo, self.library, "sub")
        self.first = self.library.head()
        self.base = repo.head()
        self.later = self.library.commit({"lib": LATER})
        self.worktree = self.take()

    @staticmethod
    def add(into: Repo, what: Repo, name: str) -> None:
        into("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(what.path), name)
        into.commit()

    def take(self) -> Worktree:
        worktree = self.trees.add(self.base, "job")
        Repo(worktree.path)(*UPDATE)
        return worktree

    @property
    def job(self) -> Repo:
        return Repo(self.worktree.path)

    @property
    def sub(self) -> Repo:
        return Repo(self.worktree.path / "sub")

    def move(self, to: str | None = None) -> None:
        """As a job would: to what the remote has."""
        self.sub("checkout", "-q", to or self.later)

    def make(self, files: dict[str, str]) -> str:
        """A commit in the submodule that nobody else has."""
        self.sub.write(files)
        self.sub("add", "-A")
        self.sub(*ME, "commit", "-qm", "own")
        return self.sub.head()

    def commit(self, *, submodules: bool = True, number: int = 1) -> Committed | Refused:
        return commit_work(self.trees.repo, self.worktree, self.base, info(number), submodules=submodules)

    def named(self, commit: str) -> str:
        return self.repo("ls-tree", commit, "sub").split()[2]


@pytest.fixture
def place(repo: Repo, trees: Worktrees, tmp_path: Path) -> Place:
    return Place(repo, trees, tmp_path)


@pytest.mark.parametrize("how", ["checked out", "added", "committed"])
def test_a_submodule_that_a_job_moves_is_in_its_commit(place: Place, how: str) -> None:
    place.move()
    place.job.write({"work": "x\n"})
    if how != "checked out":
        place.job("add", "sub")
    if how == "committed":
        place.job(*ME, "commit", "-qm", "own")

    done = place.commit()

    assert isinstance(done, Committed) and done.changed
    assert place.named(done.commit) == place.later
    assert (done.added, done.modified) == (1, 1)
    saved = save(place.trees, place.worktree, done.commit)
    assert saved.commit is None and saved.submodules == ((b"sub", place.later),)


def test_a_submodule_alone_is_work_and_without_the_setting_it_is_refused(place: Place) -> None:
    place.move()

    refused = place.commit(submodules=False)
    done = place.commit()

    assert isinstance(refused, Refused) and "submodules: true" in refused.hint
    assert isinstance(done, Committed) and place.named(done.commit) == place.later


def test_a_job_that_moves_nothing_commits_nothing(place: Place) -> None:
    done = place.commit()

    assert isinstance(done, Committed) and not done.changed


def test_a_submodule_that_is_moved_back_is_no_work(place: Place) -> None:
    place.move()
    place.job("add", "sub")
    place.move(place.first)

    done = place.commit()

    assert isinstance(done, Committed) and not done.changed


def test_a_commit_that_no_remote_has_is_refused_and_never_lost(place: Place) -> None:
    own = place.make({"lib": "own\n"})

    refused = place.commit()

    assert isinstance(refused, Refused) and refused.paths == ("sub",)
    assert own[:12] in refused.message and "ush it" in refused.hint
    with pytest.raises(CannotSave, match=f"another commit, {own[:12]}, which no remote"):
        save(place.trees, place.worktree, place.base)
    place.library("checkout", "-q", "--detach")
    place.sub("push", "-q", "origin", "HEAD:refs/heads/topic")
    done = place.commit()
    assert isinstance(done, Committed) and place.named(done.commit) == own


@pytest.mark.parametrize("where", ["branch", "reflog", "stash", "tag", "folder gone", "inside"])
def test_a_commit_that_only_the_submodule_knows_keeps_the_worktree(place: Place, where: str) -> None:
    if where == "stash":
        place.sub.write({"lib": "edited\n"})
        place.sub(*ME, "stash", "-q")
    elif where == "tag":
        tree = place.sub("rev-parse", "HEAD^{tree}").strip()
        commit = place.sub(*ME, "commit-tree", "-m", "x", tree).strip()
        place.sub("tag", "mine", commit)
    elif where == "inside":
        inner = Repo(place.worktree.path / "sub/deep")
        inner(*ME, "commit", "-q", "--allow-empty", "-m", "x")
        inner("checkout", "-q", "HEAD~1")
    else:
        place.make({"lib": "own\n"})
        place.sub("branch", "mine") if where == "branch" else None
        place.move(place.first)
    if where == "folder gone":
        place.job("rm", "-qf", "sub")

    assert isinstance(place.commit(), Committed), "what lands is whole"
    with pytest.raises(CannotSave, match="which no remote of it has"):
        save(place.trees, place.worktree, place.base)


def test_a_commit_that_was_fetched_by_its_name_is_no_loss(place: Place) -> None:
    """The base names a commit that is on no branch of the remote any more."""
    place.library("checkout", "-q", "--detach")
    lonely = place.library.commit({"lib": "lonely\n"})
    place.library("config", "uploadpack.allowAnySHA1InWant", "true")
    place.repo("update-index", "--cacheinfo", f"160000,{lonely},sub")
    tree = place.repo("write-tree").strip()
    place.base = place.repo(*ME, "commit-tree", "-p", "HEAD", "-m", "x", tree).strip()
    place.library("checkout", "-q", "main")
    place.worktree = place.take()
    assert place.sub.head() == lonely

    place.move()
    done = place.commit()

    assert isinstance(done, Committed) and place.named(done.commit) == place.later
    place.trees.remove(place.worktree, save(place.trees, place.worktree, done.commit))


@pytest.mark.parametrize("change", ["edit", "new file", "inside", "inside moved"])
def test_edits_inside_a_submodule_stay_refused(place: Place, change: str) -> None:
    if change == "inside moved":
        newer = place.deep.commit({"deep": "2\n"})
        inner = Repo(place.worktree.path / "sub/deep")
        inner("fetch", "-q")
        inner("checkout", "-q", newer)
    else:
        place.sub.write({{"edit": "lib", "new file": "new", "inside": "deep/deep"}[change]: "edited\n"})

    refused = place.commit()

    assert isinstance(refused, Refused) and "has changes" in refused.message
    with pytest.raises(CannotSave, match="has changes"):
        save(place.trees, place.worktree, place.base)


@pytest.mark.parametrize("populated", [True, False])
def test_a_pointer_that_nobody_checked_out_is_not_committed(place: Place, populated: bool) -> None:
    if not populated:
        place.worktree = place.trees.add(place.base, "job")
    place.job("update-index", "--cacheinfo", f"160000,{place.base},sub")

    done = place.commit()

    if populated:
        assert isinstance(done, Committed) and not done.changed, "the folder counts, as for files"
    else:
        assert isinstance(done, Refused) and "moved submodules" in done.message


def test_a_new_submodule_stays_refused(place: Place) -> None:
    place.job("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(place.deep.path), "more")

    refused = place.commit()

    assert isinstance(refused, Refused) and "added submodules" in refused.message


# -------------------------------------------------------------------------------------------- hostile


def test_nothing_that_a_submodule_brings_along_runs(place: Place, canary: Path) -> None:
    place.move()
    git_dir = Path(place.sub("rev-parse", "--absolute-git-dir").strip())
    place.sub("config", "core.fsmonitor", str(canary))
    place.sub("config", "core.hooksPath", str(git_dir / "hooks"))
    place.sub("config", "core.pager", str(canary))
    place.sub("config", "core.sshCommand", str(canary))
    place.sub("config", "core.alternateRefsCommand", str(canary))
    place.sub("config", "diff.external", str(canary))
    for key in ("clean", "smudge", "process"):
        place.sub("config", f"filter.evil.{key}", str(canary))
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info/attributes").write_text("unrelated filter=evil\n")
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        (git_dir / "hooks").mkdir(exist_ok=True)
        (git_dir / "hooks" / name).symlink_to(canary)

    repo, worktree = place.trees.repo, place.worktree
    inside = lambda names: fingerprints(repo.filters, worktree.path, modules_of(repo, worktree), names)  # noqa: E731
    fingerprint(repo.worktree_git(worktree.name, worktree.path), worktree.path, inside=inside)
    done = place.commit()
    assert isinstance(done, Committed) and place.named(done.commit) == place.later
    place.trees.remove(worktree, save(place.trees, worktree, done.commit))

    assert not ran(canary)


def test_a_filter_of_the_submodules_own_fails_instead_of_running(place: Place, canary: Path) -> None:
    place.sub("config", "filter.evil.clean", str(canary))
    git_dir = Path(place.sub("rev-parse", "--absolute-git-dir").strip())
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info/attributes").write_text("* filter=evil\n")
    (place.worktree.path / "sub/lib").write_text("1 \n")

    assert isinstance(place.commit(), Refused)
    assert not ran(canary)


def test_a_link_in_the_place_of_a_submodule_is_not_followed(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (place.worktree.path / "sub").rename(outside)
    (place.worktree.path / "sub").symlink_to(outside)

    refused = place.commit()

    assert isinstance(refused, Refused) and "point outside" in refused.message


@pytest.mark.parametrize("where", ["users submodule", "main repository", "another worktree", "through a link"])
def test_a_submodule_whose_notes_are_elsewhere_is_refused_and_nothing_there_is_touched(
    place: Place, tmp_path: Path, where: str
) -> None:
    common = place.trees.repo.common_dir
    if where == "another worktree":
        other = place.take()
        target = modules_of(place.trees.repo, other) / "sub"
    elif where == "through a link":
        target = modules_of(place.trees.repo, place.worktree) / "link"
        target.symlink_to(common / "modules/sub")
    else:
        target = common / "modules/sub" if where == "users submodule" else common
    (place.worktree.path / "sub/.git").write_text(f"gitdir: {target}\n")
    place.repo("update-index", "--assume-unchanged", "README.md")
    before = (common / "index").read_bytes(), (common / "modules/sub/index").read_bytes()

    refused = place.commit()

    assert isinstance(refused, Refused) and "repository of its own" in refused.message
    with pytest.raises(CannotSave, match="repository of its own"):
        save(place.trees, place.worktree, place.base)
    assert before == ((common / "index").read_bytes(), (common / "modules/sub/index").read_bytes())


def test_no_link_says_where_the_repositories_of_submodules_are(place: Place) -> None:
    """While programs of the job run, a link may stand there that leads to the user's own submodules."""
    repo, common = place.trees.repo, place.trees.repo.common_dir
    home = modules_of(repo, place.worktree)
    home.rename(home.with_name("aside"))
    home.symlink_to(common / "modules")
    (place.worktree.path / "sub/.git").write_text(f"gitdir: {home}/sub\n")

    (found,) = submodules_in(repo, place.worktree, [b"sub"], place.base)
    lost = settle(repo, place.worktree, [], place.base)

    assert found.git is None and "repository of its own" in str(found.problem)
    assert isinstance(lost, Loss) and "is a link" in lost.problem
    assert not list(fingerprints(repo.filters, place.worktree.path, home, [b"sub"]))


def test_a_git_that_fetches_what_is_missing_starts_no_program_of_a_submodule(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git before 2.39.4 does: it does not know the variable that forbids it."""
    monkeypatch.delitem(command.FIXED_ENVIRONMENT, "GIT_NO_LAZY_FETCH")
    own = modules_of(place.trees.repo, place.worktree) / "sub"
    started = tmp_path / "started"
    for key, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": f"touch '{started}';",
        "protocol.file.allow": "always",
    }.items():
        place.sub("config", key, value)
    tree = place.sub("rev-parse", "HEAD^{tree}").strip()
    for file in (own / "objects" / tree[:2]).glob(tree[2:]):
        file.unlink()
    shutil.rmtree(own / "objects/pack")

    with suppress(CannotSave, GitError):
        save(place.trees, place.worktree, place.base)
    with suppress(GitError):
        settle(place.trees.repo, place.worktree, [b"sub"], place.base)

    assert not started.exists()


def flagged_index(place: Place) -> tuple[Path, bytes]:
    """The user's own index, with a flag on it that a look would take off."""
    file = next(name for name in place.repo("ls-files").splitlines() if name != "sub")
    place.repo("update-index", "--skip-worktree", file)
    index = place.trees.repo.common_dir / "index"
    return index, index.read_bytes()


@pytest.mark.parametrize("called", ["objects", "other"])
@pytest.mark.parametrize("doing", ["commit", "save", "fingerprint", "settle"])
def test_an_index_of_a_submodule_that_leads_to_the_users_is_not_written_through(
    place: Place, doing: str, called: str
) -> None:
    """A job chooses what the repository of its submodule is called."""
    index, before = flagged_index(place)
    repo, home = place.trees.repo, modules_of(place.trees.repo, place.worktree)
    own = (home / "sub").rename(home / called)
    (place.worktree.path / "sub/.git").write_text(f"gitdir: {own}\n")
    place.sub("config", "core.worktree", str(place.sub.path))
    (own / "index").unlink()
    (own / "index").symlink_to(index)

    if doing == "commit":
        place.commit()
    elif doing == "save":
        with pytest.raises(CannotSave):
            save(place.trees, place.worktree, place.base)
    elif doing == "settle":
        lost = settle(repo, place.worktree, [b"sub"], place.base)
        assert isinstance(lost, Loss) and "'index' is no file of its own" in lost.problem
    else:
        assert not list(fingerprints(repo.filters, place.worktree.path, home, [b"sub"]))

    assert index.read_bytes() == before
    assert doing not in ("commit", "save") or not (own / "index").is_symlink()


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "link") for name in ("config", "HEAD", "logs/HEAD", "refs/heads/main", "packed-refs")]
    + [(name, "second name") for name in ("config", "HEAD", "packed-refs")],
)
def test_a_repository_of_a_submodule_with_files_of_others_is_refused(place: Place, name: str, kind: str) -> None:
    repo, home = place.trees.repo, modules_of(place.trees.repo, place.worktree)
    file = home / "sub" / name
    kept = repo.common_dir / "kept"
    kept.write_bytes(file.read_bytes() if file.exists() else b"")
    file.unlink(missing_ok=True)
    if kind == "link":
        file.symlink_to(kept)
    else:
        file.hardlink_to(kept)

    lost = settle(repo, place.worktree, [b"sub"], place.base)

    assert isinstance(lost, Loss) and f"'{name}' is no file of its own" in lost.problem


@pytest.mark.parametrize("why", ["many", "closed"])
def test_notes_of_git_that_cannot_be_looked_through_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    hidden = modules_of(place.trees.repo, place.worktree) / "sub/logs"
    if why == "closed" and os.geteuid() == 0:
        pytest.skip("root can read everything")
    if why == "many":
        monkeypatch.setattr(pipes, "MOST_NOTES", 20)
    else:
        hidden.chmod(0o300)  # a git still finds a file in it by its name
    try:
        refused = place.commit()
        with pytest.raises(CannotSave, match="cannot be read"):
            save(place.trees, place.worktree, place.base)
        lost = settle(place.trees.repo, place.worktree, [b"sub"], place.base)
    finally:
        hidden.chmod(0o700)

    assert isinstance(refused, Refused) and "cannot be read" in refused.message
    assert isinstance(lost, Loss) and "cannot be looked through" in lost.problem


# ----------------------------------------------------------------------------------- used again, removed


@pytest.mark.parametrize("moved", [True, False])
def test_a_worktree_with_submodules_is_removed_and_not_used_again(place: Place, moved: bool) -> None:
    if moved:
        place.move()
    saved = save(place.trees, place.worktree, place.base)

    with pytest.raises(Unfit, match="has submodules"):
        place.trees.reset(place.worktree, place.base, saved)
    assert (saved.commit is not None) == moved
    if saved.commit is not None:
        assert place.named(saved.commit) == place.later
    place.trees.remove(place.worktree, saved)
    assert not place.worktree.path.exists() and not modules_of(place.trees.repo, place.worktree).exists()


@pytest.mark.parametrize("what", ["commit", "edit", "move"])
def test_what_happens_in_a_submodule_after_it_was_saved_keeps_the_worktree(place: Place, what: str) -> None:
    saved = save(place.trees, place.worktree, place.base)
    if what == "move":
        place.move()
    elif what == "edit":
        place.sub.write({"lib": "edited\n"})
    else:  # which changes no file, so that only the submodule's own notes tell
        tree = place.sub("rev-parse", "HEAD^{tree}").strip()
        place.sub("branch", "mine", place.sub(*ME, "commit-tree", "-m", "x", tree).strip())

    with pytest.raises(ProofIsOld):
        place.trees.remove(place.worktree, saved)


def test_a_fingerprint_tells_what_happened_in_a_submodule(place: Place) -> None:
    repo, worktree = place.trees.repo, place.worktree

    def now() -> str:
        inside = lambda names: fingerprints(repo.filters, worktree.path, modules_of(repo, worktree), names)  # noqa: E731
        return fingerprint(repo.worktree_git(worktree.name, worktree.path), worktree.path, inside=inside)

    states = [now()]
    assert now() == states[0]
    place.move()
    states.append(now())
    for name in ("lib", "deep/deep"):
        place.sub.write({name: "x\n"})
        states.append(now())
    assert len(set(states)) == 4
