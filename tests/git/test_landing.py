"""Landing against every state a user's checkout can be in: each file is as it was, or fast-forwarded."""

import hashlib
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchard.git.landing import checkout, landing
from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.landing import land, undo, where_is
from orchard.git.landing.obstacles import LandingRefused
from orchard.git.repository import Repository, find_repository
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo

LINES = "".join(f"line {number}\n" for number in range(12))


@dataclass(frozen=True)
class Scene:
    """A repository whose `main` can go from `old` to `new`."""

    repo: Repo
    repository: Repository
    old: str
    new: str

    def land(self) -> BranchMoved | LandingRefused:
        return land(self.repository, "main", self.old, self.new, "orchard: landing")


@pytest.fixture
def scene(repo: Repo) -> Scene:
    return make_scene(repo)


def make_scene(repo: Repo) -> Scene:
    """A landing that edits, removes and adds files, changes a mode and a link."""
    (repo.path / "run.sh").write_text("#!/bin/sh\n")
    (repo.path / "other.sh").write_text("#!/bin/sh\n")
    (repo.path / "link").symlink_to("README.md")
    old = repo.commit({"a.txt": LINES, "gone.txt": "gone\n", "d/b.txt": LINES})
    repo("checkout", "-q", "--detach")
    (repo.path / "run.sh").chmod(0o755)
    (repo.path / "link").unlink()
    (repo.path / "link").symlink_to("a.txt")
    new = repo.commit({"a.txt": LINES + "landed\n", "gone.txt": None, "new.txt": "new\n", "new/deep.txt": "deep\n"})
    repo("checkout", "-q", "main")
    return Scene(repo, find_repository(repo.path), old, new)


def picture(folder: Path) -> dict[str, str]:
    """Every file of a checkout with its mode and a digest of its content."""
    seen = {}
    for place, folders, names in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        for name in [*names, *(one for one in folders if (Path(place) / one).is_symlink())]:
            path = Path(place) / name
            content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
            mode = stat.S_IFMT(path.lstat().st_mode) | (path.lstat().st_mode & 0o100)
            seen[str(path.relative_to(folder))] = f"{mode:o} {hashlib.sha256(content).hexdigest()}"
    return seen


def state(repo: Repo) -> tuple[str, str, str]:
    """What a refusal must not change besides files: refs, HEAD, and what is staged."""
    refs = repo("for-each-ref", "--format=%(refname) %(objectname)")
    return refs, repo("rev-parse", "--symbolic-full-name", "HEAD"), repo.run("ls-files", "-s", "-u").stdout.decode()


State = Callable[[Scene], object]


def write(**files: str) -> State:
    names = {name.replace("__", "/").replace("_", "."): content for name, content in files.items()}
    return lambda scene: scene.repo.write(dict(names))


def git(*words: str) -> State:
    return lambda scene: scene.repo.run(*words)


def both(*states: State) -> State:
    def act(scene: Scene) -> None:
        for one in states:
            one(scene)

    return act


def ignore(name: str) -> State:
    def act(scene: Scene) -> None:
        (scene.repo.path / ".git/info").mkdir(exist_ok=True)
        (scene.repo.path / ".git/info/exclude").write_text(f"{name}\n")

    return act


def in_way_as_folder(scene: Scene) -> None:
    scene.repo.write({"new.txt/mine": "mine"})


def relink(scene: Scene) -> None:
    (scene.repo.path / "link").unlink()
    (scene.repo.path / "link").symlink_to("d")


def mode_of(name: str) -> State:
    return lambda scene: (scene.repo.path / name).chmod(0o755)


def conflicting_branch(scene: Scene) -> None:
    scene.repo("checkout", "-q", "-b", "side")
    scene.repo.commit({"d/b.txt": "side\n" + LINES})
    scene.repo("checkout", "-q", "main")


def mid_merge(scene: Scene) -> None:
    conflicting_branch(scene)
    scene.repo("merge", "-q", "--no-ff", "--no-commit", "side")


def mid_pick(scene: Scene) -> None:
    conflicting_branch(scene)
    scene.repo.write({"d/b.txt": "mine\n" + LINES})
    scene.repo("stash", "-q")
    scene.repo("checkout", "-q", "-b", "tmp", "side")
    scene.repo.commit({"d/b.txt": "other\n"})
    scene.repo("checkout", "-q", "main")
    assert scene.repo.run("cherry-pick", "tmp").status == 1


def mid_revert(scene: Scene) -> None:
    # Going back to the first commit of three changes of one line cannot be done without a conflict.
    assert scene.repo.run("revert", "--no-commit", "HEAD").status == 0
    (scene.repo.path / ".git/REVERT_HEAD").write_text(scene.old + "\n")


def mid_rebase(scene: Scene) -> None:
    conflicting_branch(scene)
    scene.repo("branch", "-f", "keep", "main")
    assert scene.repo.run("rebase", "-q", "--exec", "false", "HEAD~1").status != 0


def linked(scene: Scene) -> None:
    scene.repo("checkout", "-q", "-b", "elsewhere")
    scene.repo("worktree", "add", "-q", str(scene.repo.path.parent / "linked"), "main")


def linked_dirty(scene: Scene) -> None:
    linked(scene)
    (scene.repo.path.parent / "linked" / "a.txt").write_text("my edit\n")


def twice(scene: Scene) -> None:
    scene.repo("worktree", "add", "-q", "-f", str(scene.repo.path.parent / "linked"), "main")


def linked_gone(scene: Scene) -> None:
    linked(scene)
    (scene.repo.path.parent / "linked").rename(scene.repo.path.parent / "moved away")


def linked_unreachable(scene: Scene) -> None:
    linked(scene)
    scene.repo("worktree", "lock", str(scene.repo.path.parent / "linked"))
    (scene.repo.path.parent / "linked").rename(scene.repo.path.parent / "unmounted")


def job_took_the_branch(scene: Scene) -> None:
    scene.repo("checkout", "-q", "-b", "elsewhere")
    folder = str(scene.repo.path.parent / "job")
    scene.repo("worktree", "add", "-q", "--lock", "--reason", "orchard job", folder, "main")


def sparse(scene: Scene) -> None:
    scene.repo("sparse-checkout", "set", "--cone", "d")


def locked(scene: Scene) -> None:
    (scene.repo.path / ".git/index.lock").write_text("")


def submodule(scene: Scene) -> None:
    scene.repo("update-index", "--add", "--cacheinfo", f"160000,{scene.old},sub")


def deleted(scene: Scene) -> None:
    (scene.repo.path / "README.md").unlink()


def hooks(scene: Scene) -> None:
    for name in ("post-merge", "pre-merge-commit", "reference-transaction", "post-checkout"):
        hook = scene.repo.path / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\ntouch hook-ran\nexit 1\n")
        hook.chmod(0o755)


MATRIX: dict[str, tuple[State, str]] = {
    "clean": (git("status"), "lands"),
    "edited elsewhere": (write(README_md="mine\n"), "lands"),
    "edited in the way": (write(a_txt="mine\n"), "checkout"),
    "deleted elsewhere": (deleted, "lands"),
    "edited and deleted by the landing": (write(gone_txt="mine\n"), "checkout"),
    "staged elsewhere": (both(write(README_md="mine\n"), git("add", "README.md")), "lands"),
    "staged and edited again elsewhere": (
        both(write(README_md="mine\n"), git("add", "README.md"), write(README_md="mine twice\n")),
        "lands",
    ),
    "staged in the way": (both(write(a_txt="mine\n"), git("add", "a.txt")), "checkout"),
    "staged new file in the way": (both(write(new_txt="mine\n"), git("add", "new.txt")), "checkout"),
    "untracked elsewhere": (write(mine_txt="mine\n"), "lands"),
    "untracked in the way": (write(new_txt="mine\n"), "checkout"),
    "ignored elsewhere": (both(ignore("*.env"), write(my_env="SECRET\n")), "lands"),
    "ignored in the way": (both(ignore("new.txt"), write(new_txt="SECRET\n")), "checkout"),
    "untracked folder in the way of a file": (in_way_as_folder, "checkout"),
    "untracked file in the way of a folder": (write(new="mine\n"), "checkout"),
    "ignored file in the way of a folder": (both(ignore("new"), write(new="mine\n")), "checkout"),
    "hidden edit, assumed unchanged": (
        both(git("update-index", "--assume-unchanged", "a.txt"), write(a_txt="mine\n")),
        "checkout",
    ),
    "hidden edit, skipped": (both(git("update-index", "--skip-worktree", "a.txt"), write(a_txt="mine\n")), "checkout"),
    "in a merge": (mid_merge, "operation"),
    "in a rebase of the branch": (mid_rebase, "operation"),
    "in a bisect": (both(git("bisect", "start"), git("bisect", "bad", "HEAD")), "operation"),
    "in a cherry-pick": (mid_pick, "operation"),
    "in a revert": (mid_revert, "operation"),
    "detached": (git("checkout", "-q", "--detach"), "lands"),
    "detached and dirty": (both(git("checkout", "-q", "--detach"), write(a_txt="mine\n")), "lands"),
    "on another branch": (git("checkout", "-q", "-b", "elsewhere"), "lands"),
    "in a linked worktree": (linked, "lands"),
    "in a dirty linked worktree": (linked_dirty, "checkout"),
    "in a linked worktree that was deleted": (linked_gone, "lands"),
    "in a linked worktree that cannot be reached": (linked_unreachable, "checkout"),
    "in two worktrees": (twice, "checkout"),
    "in a job's worktree": (job_took_the_branch, "checkout"),
    "sparse": (sparse, "lands"),
    "index locked": (locked, "locked"),
    "submodule staged": (submodule, "lands"),
    "executable bit set in the way": (mode_of("run.sh"), "checkout"),
    "executable bit set elsewhere": (mode_of("other.sh"), "lands"),
    "link changed in the way": (relink, "checkout"),
    "line ends converted": (git("config", "core.autocrlf", "true"), "lands"),
    "hooks that fail": (hooks, "lands"),
    "a stash": (both(write(a_txt="mine\n"), git("stash", "-q")), "lands"),
    "merge options that squash": (git("config", "branch.main.mergeOptions", "--squash"), "lands"),
    "merge options that overwrite": (
        both(
            git("config", "branch.main.mergeOptions", "--overwrite-ignore --autostash"),
            ignore("new.txt"),
            write(new_txt="SECRET\n"),
        ),
        "checkout",
    ),
    "edited in the way, with autostash on": (
        both(git("config", "merge.autoStash", "true"), write(a_txt="mine\n")),
        "checkout",
    ),
    "never fast-forward": (git("config", "merge.ff", "false"), "lands"),
}


@pytest.mark.parametrize("name", MATRIX)
def test_every_file_of_the_user_is_as_it_was_or_fast_forwarded(
    scene: Scene, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "LOCK_WAIT", 0.1)
    prepare, expected = MATRIX[name]
    prepare(scene)
    home = scene.repo.path.parent
    before, state_before = picture(home), state(scene.repo)

    outcome = scene.land()

    after = picture(home)
    if expected == "lands":
        assert isinstance(outcome, BranchMoved), outcome
        assert scene.repo.head("refs/heads/main") == scene.new
        assert _changed(before, after) <= _may_change(scene, outcome)
    else:
        assert isinstance(outcome, LandingRefused)
        assert outcome.kind == expected, outcome
        assert outcome.reason and outcome.hint
        assert (after, state(scene.repo)) == (before, state_before)
    assert "hook-ran" not in " ".join(after)


def _changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _may_change(scene: Scene, outcome: BranchMoved) -> set[str]:
    """The paths that the landing brings, in the checkout that has the branch and nowhere else."""
    if outcome.checkout is None:
        return set()
    names = scene.repo("diff", "--name-only", scene.old, scene.new).split()
    folder = outcome.checkout.relative_to(scene.repo.path.parent)
    return {str(folder / name) for name in names}


def test_a_landing_in_the_checkout_leaves_it_clean_and_keeps_staged_and_unstaged_edits(scene: Scene) -> None:
    scene.repo.write({"README.md": "staged\n"})
    scene.repo("add", "README.md")
    scene.repo.write({"README.md": "edited\n"})

    outcome = scene.land()

    assert outcome == BranchMoved(scene.repo.path)
    assert scene.repo("status", "--porcelain") == "MM README.md\n"
    assert scene.repo("show", ":README.md") == "staged\n"


def test_refusals_name_the_files_and_what_to_do(scene: Scene) -> None:
    scene.repo.write({"a.txt": "mine\n", "new.txt": "mine\n"})

    outcome = scene.land()

    assert isinstance(outcome, LandingRefused)
    assert "a.txt" in outcome.reason or "new.txt" in outcome.reason
    assert "orchard land" in in_commands(outcome.hint)


def test_landing_again_is_success_and_changes_nothing(scene: Scene) -> None:
    scene.land()
    before = state(scene.repo)

    assert isinstance(scene.land(), BranchMoved)
    assert state(scene.repo) == before


def commit_at(scene: Scene, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the user commit in their checkout just when we come through a place."""

    def pass_by(name: str) -> None:
        if name == place:
            scene.repo.commit({"theirs.txt": "theirs\n"})

    monkeypatch.setattr(landing, "failpoint", pass_by)


def test_a_landing_that_the_user_has_built_on_already_is_a_landing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_at(scene, "checkout.after", monkeypatch)

    assert scene.land() == BranchMoved(scene.repo.path)
    assert scene.repo("rev-parse", "main~1").strip() == scene.new
    assert scene.repo("status", "--porcelain") == ""


def test_a_commit_of_the_users_that_came_first_is_no_landing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_at(scene, "checkout.before", monkeypatch)

    refused = scene.land()

    assert isinstance(refused, LandingRefused) and refused.kind == "moved"
    assert scene.repo("rev-parse", "main~1").strip() == scene.old
    assert scene.repo("status", "--porcelain") == ""


def test_an_undo_that_the_user_has_built_on_already_is_an_undo(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.land()
    commit_at(scene, "checkout.after", monkeypatch)

    assert undo(scene.repository, "main", scene.old, scene.new) == BranchMoved(scene.repo.path)
    assert scene.repo("rev-parse", "main~1").strip() == scene.old


def test_an_undo_gives_back_what_the_user_has_just_built_on_the_landing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.land()
    commit_at(scene, "checkout.before", monkeypatch)

    refused = undo(scene.repository, "main", scene.old, scene.new)

    assert isinstance(refused, LandingRefused) and refused.kind == "moved"
    assert scene.repo("rev-parse", "main~1").strip() == scene.new
    assert (scene.repo.path / "theirs.txt").read_text() == "theirs\n"
    assert scene.repo("status", "--porcelain") == ""


def test_a_branch_that_moved_or_is_missing_is_refused(scene: Scene) -> None:
    scene.repo("checkout", "-q", "-b", "elsewhere")
    scene.repo("update-ref", "refs/heads/main", f"{scene.old}~1")
    moved = scene.land()
    scene.repo("update-ref", "-d", "refs/heads/main")
    missing = scene.land()

    assert [one.kind for one in (moved, missing) if isinstance(one, LandingRefused)] == ["moved", "missing"]


def test_a_new_branch_is_made_only_where_none_is(scene: Scene) -> None:
    first = land(scene.repository, "fresh", None, scene.new, "m")
    second = land(scene.repository, "fresh", None, scene.old, "m")

    assert first == BranchMoved()
    assert isinstance(second, LandingRefused) and second.kind == "moved"
    assert scene.repo.head("fresh") == scene.new


def test_a_commit_that_does_not_build_on_the_branch_is_refused(scene: Scene) -> None:
    scene.repo("checkout", "-q", "-b", "elsewhere")
    stranger = scene.repo("commit-tree", "-m", "x", f"{scene.old}^{{tree}}").strip()

    outcome = land(scene.repository, "main", scene.old, stranger, "m")

    assert isinstance(outcome, LandingRefused) and outcome.kind == "moved"
    assert scene.repo.head("main") == scene.old


def test_of_many_landings_at_once_one_wins(scene: Scene) -> None:
    scene.repo("checkout", "-q", "-b", "elsewhere")
    commits = [
        scene.repo("commit-tree", "-p", scene.old, "-m", f"c{number}", f"{scene.new}^{{tree}}").strip()
        for number in range(8)
    ]
    outcomes: dict[str, BranchMoved | LandingRefused] = {}

    def race(commit: str) -> None:
        outcomes[commit] = land(scene.repository, "main", scene.old, commit, "m")

    threads = [threading.Thread(target=race, args=(commit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    winners = [commit for commit, outcome in outcomes.items() if isinstance(outcome, BranchMoved)]
    assert winners == [scene.repo.head("main")]


def test_a_lock_that_goes_away_is_waited_for(scene: Scene) -> None:
    locked(scene)
    timer = threading.Timer(0.3, (scene.repo.path / ".git/index.lock").unlink)
    timer.start()

    outcome = scene.land()

    timer.join(10)
    assert isinstance(outcome, BranchMoved)


def test_a_filter_that_a_job_planted_is_not_run(scene: Scene, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    scene.repo("config", "filter.evil.smudge", f"touch '{canary}'; cat")
    (scene.repo.path / ".git/info").mkdir(exist_ok=True)
    (scene.repo.path / ".git/info/attributes").write_text("* filter=evil\n")
    before = picture(scene.repo.path)

    outcome = scene.land()

    assert isinstance(outcome, LandingRefused)
    assert not canary.exists()
    assert picture(scene.repo.path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_may_not_be_written_is_refused_before_anything_is_written(scene: Scene) -> None:
    scene.repo.path.chmod(0o555)
    try:
        outcome = scene.land()
    finally:
        scene.repo.path.chmod(0o755)

    assert isinstance(outcome, LandingRefused) and outcome.kind == "checkout"
    assert scene.repo("status", "--porcelain") == ""


def test_a_closed_folder_is_found_by_asking_the_system(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not os.fsdecode(path).endswith("repo/"))

    outcome = scene.land()

    assert isinstance(outcome, LandingRefused) and "may not be written" in outcome.reason


def test_recovery_finds_out_from_git_what_became_of_a_landing(scene: Scene) -> None:
    repo, old, new = scene.repo, scene.old, scene.new
    repo("checkout", "-q", "-b", "elsewhere")
    onward = repo("commit-tree", "-p", new, "-m", "next", f"{new}^{{tree}}").strip()
    message = "squashed\n\n* Orchard-Landing: id1\n\nSigned-off-by: x\n"
    rebased = repo("commit-tree", "-p", old, "-F", "-", f"{new}^{{tree}}", stdin=message.encode()).strip()
    foreign = repo("commit-tree", "-p", old, "-m", "Orchard-Landing: id12", f"{new}^{{tree}}").strip()
    seen = {}

    for tip in (new, onward, old, foreign, rebased):
        repo("update-ref", "refs/heads/main", tip)
        seen[tip] = where_is(scene.repository, "main", "id1", old, new)
    repo("update-ref", "-d", "refs/heads/main")

    assert seen == {
        new: "landed", onward: "landed", old: "not-landed", foreign: "moved", rebased: "landed-elsewhere",
    }  # fmt: skip
    assert where_is(scene.repository, "main", "id1", old, new) == "missing"
    assert where_is(scene.repository, "main", "id1", None, new) == "not-landed"


def test_undo_takes_a_landing_back_and_keeps_edits(scene: Scene) -> None:
    before = picture(scene.repo.path)
    scene.land()
    scene.repo.write({"README.md": "mine\n", "mine.txt": "mine\n"})

    outcome = undo(scene.repository, "main", scene.old, scene.new)

    assert outcome == BranchMoved(scene.repo.path)
    assert scene.repo.head("main") == scene.old
    assert scene.repo("status", "--porcelain") == " M README.md\n?? mine.txt\n"
    assert _changed(before, picture(scene.repo.path)) == {"README.md", "mine.txt"}


def test_undo_keeps_what_is_staged_elsewhere(scene: Scene) -> None:
    scene.land()
    scene.repo.write({"README.md": "staged\n", "mine.txt": "mine\n"})
    scene.repo("add", "README.md", "mine.txt")
    scene.repo.write({"README.md": "edited\n"})

    outcome = undo(scene.repository, "main", scene.old, scene.new)

    assert outcome == BranchMoved(scene.repo.path)
    assert scene.repo("status", "--porcelain") == "MM README.md\nA  mine.txt\n"
    assert scene.repo("show", ":README.md") == "staged\n"


def test_undo_moves_a_branch_that_nobody_has_or_removes_one_that_the_landing_made(scene: Scene) -> None:
    scene.repo("checkout", "-q", "-b", "elsewhere")
    scene.land()
    land(scene.repository, "fresh", None, scene.new, "m")

    back = undo(scene.repository, "main", scene.old, scene.new)
    gone = undo(scene.repository, "fresh", None, scene.new)

    assert (back, gone) == (BranchMoved(), BranchMoved())
    assert scene.repo.head("main") == scene.old
    assert not scene.repo.exists("refs/heads/fresh")


UNDO_REFUSED: dict[str, tuple[State, str]] = {
    "a file that landed was edited": (write(a_txt="mine\n"), "checkout"),
    "a new file was edited": (write(new_txt="mine\n"), "checkout"),
    "an untracked file stands where one comes back": (write(gone_txt="mine\n"), "checkout"),
    "an ignored file stands where one comes back": (both(ignore("gone.txt"), write(gone_txt="mine\n")), "checkout"),
    "an untracked folder stands where a file comes back": (write(gone_txt__x="mine\n"), "checkout"),
    "a file that landed was edited and staged": (both(write(a_txt="mine\n"), git("add", "a.txt")), "checkout"),
    "a file that landed was staged and edited again": (
        both(write(a_txt="mine\n"), git("add", "a.txt"), write(a_txt="again\n")),
        "checkout",
    ),
    "a new file was staged away": (git("rm", "-q", "--cached", "new.txt"), "checkout"),
    "a file was staged where one comes back": (both(write(gone_txt="mine\n"), git("add", "gone.txt")), "checkout"),
    "the index is locked": (locked, "locked"),
    "a merge is under way": (mid_merge, "operation"),
    "a bisect is under way": (both(git("bisect", "start"), git("bisect", "bad", "HEAD")), "operation"),
    "the branch went on": (lambda scene: scene.repo.commit({"more": "x"}), "moved"),
    "the branch is gone": (
        both(git("checkout", "-q", "--detach"), git("update-ref", "-d", "refs/heads/main")),
        "missing",
    ),
    "two checkouts": (twice, "checkout"),
}


@pytest.mark.parametrize("name", UNDO_REFUSED)
def test_an_undo_that_would_lose_something_changes_nothing(
    scene: Scene, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "LOCK_WAIT", 0.1)
    scene.land()
    prepare, expected = UNDO_REFUSED[name]
    prepare(scene)
    before, state_before = picture(scene.repo.path.parent), state(scene.repo)

    outcome = undo(scene.repository, "main", scene.old, scene.new)

    assert isinstance(outcome, LandingRefused) and outcome.kind == expected, outcome
    assert (picture(scene.repo.path.parent), state(scene.repo)) == (before, state_before)


def test_undo_of_a_branch_that_the_landing_made_and_someone_has_is_refused(scene: Scene) -> None:
    land(scene.repository, "fresh", None, scene.new, "m")
    scene.repo("checkout", "-q", "fresh")

    outcome = undo(scene.repository, "fresh", None, scene.new)

    assert isinstance(outcome, LandingRefused) and outcome.kind == "checkout"
