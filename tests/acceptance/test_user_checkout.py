"""The user's side: odd repositories, odd moments, odd surroundings."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.git import command, refs
from orchard.git.command import run_git
from orchard.git.landing import checkout
from orchard.git.merge import merge
from orchard.git.repository import find_repository
from orchard.testing import Repo
from tests.acceptance.conftest import FILE, Desk, is_clear, make_desk, picture
from tests.git.test_landing import picture as files_of

A = {b"a.txt": (FILE, b"a\n")}
WORK = "echo a > a.txt"


# ------------------------------------------------------------------------------ kinds of repository


@pytest.mark.parametrize(
    "name", ["with space", "new\nline", "ünï🌳", "-dash", "quo'te\"s", "per%cent$HOME", "back\\slash"]
)
def test_the_path_of_the_repository_may_be_odd(tmp_path: Path, name: str) -> None:
    desk = make_desk(tmp_path / name, tmp_path)
    base = desk.tree("work")

    ran = desk.run(WORK, 'test "$PWD" = "$ORCHARD_WORKTREE" && echo b > b.txt', verify="cat a.txt b.txt")

    assert ran.code == 0, ran.said
    assert desk.tree("work") == {**base, **A, b"b.txt": (FILE, b"b\n")}
    assert desk.repo("status", "--porcelain", "--ignored") == ""
    assert desk("doctor").code in (0, 1)


def test_the_path_of_the_repository_may_be_no_text(tmp_path: Path) -> None:
    desk = make_desk(tmp_path / os.fsdecode(b"\xff\xfe"), tmp_path)
    base = desk.tree("work")

    ran = desk.run(WORK, "echo b > b.txt")

    assert ran.code == 0, ran.said
    assert desk.tree("work") == {**base, **A, b"b.txt": (FILE, b"b\n")}


def test_a_repository_with_long_ids_works(tmp_path: Path) -> None:
    desk = make_desk(tmp_path / "repo", tmp_path, object_format="sha256")
    base = desk.tree("work")

    ran = desk.run({"id": "a", "work": WORK}, {"id": "b", "needs": ["a"], "work": "echo b > b.txt"}, "echo c > c.txt")

    assert ran.code == 0, ran.said
    assert desk.tree("work") == {**base, **A, b"b.txt": (FILE, b"b\n"), b"c.txt": (FILE, b"c\n")}
    undone = desk("undo", "--yes")
    assert undone.code == 0 and desk.tree("work") == base


def test_a_repository_with_a_reftable_works(tmp_path: Path) -> None:
    if find_repository(Repo.make(tmp_path / "probe").path).version < (2, 45):
        pytest.skip("this git has no reftable")
    desk = make_desk(tmp_path / "repo", tmp_path, ref_format="reftable")
    base = desk.tree("work")

    ran = desk.run(WORK, "echo b > b.txt")

    assert ran.code == 0, ran.said
    assert desk.tree("work") == {**base, **A, b"b.txt": (FILE, b"b\n")}


def test_a_bare_repository_gets_a_new_branch(desk: Desk, tmp_path: Path) -> None:
    desk.repo("clone", "-q", "--bare", str(desk.repo.path), str(tmp_path / "bare.git"))
    bare = Desk(Repo(tmp_path / "bare.git"), tmp_path)
    before = picture(bare.repo)

    ran = bare.run(WORK, "echo b > b.txt", target="goal", base="work")

    assert ran.code == 0, ran.said
    assert bare.tree("goal") == {**desk.tree("work"), **A, b"b.txt": (FILE, b"b\n")}
    assert picture(bare.repo).without_branch("goal") == before


def test_a_repository_without_a_commit_is_refused_before_anything_is_made(tmp_path: Path, desk: Desk) -> None:
    (tmp_path / "fresh").mkdir()
    fresh = Desk(Repo(tmp_path / "fresh"), tmp_path)
    fresh.repo("init", "-q")

    is_clear(fresh.run(WORK), 2, "no commit yet", "git commit --allow-empty")
    is_clear(fresh.run(WORK, base="main"), 2, "no branch or commit 'main'")
    assert sorted(path.name for path in (tmp_path / "fresh").iterdir()) == [".git"]


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path, desk: Desk) -> None:
    (tmp_path / "none").mkdir()
    is_clear(desk.run(WORK, cwd=tmp_path / "none"), 2, "not in a git repository")


def test_a_shallow_clone_works_as_far_as_its_history_goes(desk: Desk, tmp_path: Path) -> None:
    desk.repo.commit({"second.txt": "2\n"})
    desk.repo("clone", "-q", "--depth=1", "--branch=work", f"file://{desk.repo.path}", str(tmp_path / "clone"))
    clone = Desk(Repo(tmp_path / "clone"), tmp_path)
    clone.repo("config", "user.email", "a@b")

    ran = clone.run(WORK, "echo b > b.txt", target="work")

    assert ran.code == 0, ran.said
    assert clone.tree("work") == {**desk.tree("work"), **A, b"b.txt": (FILE, b"b\n")}


def test_a_shallow_clone_whose_branches_do_not_meet_is_told_to_fetch(desk: Desk, tmp_path: Path) -> None:
    desk.repo("checkout", "-q", "main")
    desk.repo.commit({"main.txt": "m\n"})
    desk.repo("checkout", "-q", "work")
    desk.repo.commit({"work.txt": "w\n"})
    url = f"file://{desk.repo.path}"
    desk.repo("clone", "-q", "--depth=1", "--no-single-branch", "--branch=work", url, str(tmp_path / "clone"))
    clone = Desk(Repo(tmp_path / "clone"), tmp_path)
    clone.repo("branch", "main", "origin/main")
    before = clone.picture()

    ran = clone.run(WORK, base="work", target="main")

    is_clear(ran, 1, "fetch --unshallow")
    assert clone.picture() == before


@pytest.mark.parametrize("gone", [False, True])
def test_a_partial_clone_works_or_says_what_is_missing(desk: Desk, tmp_path: Path, gone: bool) -> None:
    desk.repo("config", "uploadpack.allowFilter", "true")
    desk.repo.commit({"shared.txt": "another\n"})
    url = f"file://{desk.repo.path}"
    words = ("clone", "-q", "--filter=blob:none", "--branch=work", url, str(tmp_path / "clone"))
    assert run_git(words, cwd=tmp_path, env=os.environ).status == 0
    clone = Desk(Repo(tmp_path / "clone"), tmp_path)
    if gone:
        desk.repo.path.rename(tmp_path / "unreachable")
    before = picture(clone.repo)

    ran = clone.run(WORK, base="HEAD~1" if gone else "work", target="goal")

    if gone:
        is_clear(ran, 1, "fetch")
        assert picture(clone.repo) == before
    else:
        assert ran.code == 0, ran.said
        assert clone.tree("goal") == {**desk.tree("work"), **A}


def test_a_sparse_checkout_lands_whole_and_stays_sparse(desk: Desk) -> None:
    base = desk.tree("work")
    desk.repo("sparse-checkout", "set", "--cone", "dir")
    desk.repo("sparse-checkout", "set", "--no-cone", "/dir/")

    ran = desk.run("echo a > dir/a.txt", "mkdir far; echo b > far/b.txt")

    assert ran.code == 0, ran.said
    assert desk.tree("work") == {**base, b"dir/a.txt": (FILE, b"a\n"), b"far/b.txt": (FILE, b"b\n")}
    assert not (desk.repo.path / "shared.txt").exists() and (desk.repo.path / "dir/a.txt").exists()
    assert desk.repo("status", "--porcelain") == ""


# ---------------------------------------------------------------------------------- surroundings


@pytest.mark.parametrize("program", ["exit 2", "sleep 100"])
def test_nothing_lands_unsigned_where_signing_is_wanted(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(merge, "SIGN_TIMEOUT", 0.3)
    (tmp_path / "gpg").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "gpg").chmod(0o755)
    settings = tmp_path / "gitconfig"  # the user's own: a program that the repository names is never run
    settings.write_text(f"[gpg]\n\tprogram = {tmp_path / 'gpg'}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    for key, value in (("commit.gpgSign", "true"), ("user.signingKey", "0xMISSING")):
        desk.repo("config", key, value)
    before = desk.picture()

    ran = desk.run(WORK)

    assert ran.code in (1, 4), ran.said
    is_clear(ran, ran.code, "sign", "commit.gpgSign")
    assert desk.picture() == before

    desk.repo("config", "commit.gpgSign", "false")
    again = desk("retry")
    assert again.code == 0, again.said
    assert desk.tree("work")[b"a.txt"] == (FILE, b"a\n")


@pytest.mark.parametrize("only", ["false", "true"])
def test_a_user_without_a_name_gets_commits_all_the_same(desk: Desk, only: str) -> None:
    desk.repo("config", "--remove-section", "user")
    desk.repo("config", "user.useConfigOnly", only)
    base = desk.tree("work")

    ran = desk.run(WORK, "echo b > b.txt")

    assert ran.code == 0, ran.said
    assert desk.tree("work") == {**base, **A, b"b.txt": (FILE, b"b\n")}
    assert desk.repo("log", "-1", "--format=%an <%ae>", "work").strip() == "Orchard <orchard@localhost>"


# -------------------------------------------------------------------- where the user stands, and in what


def stop_in(operation: str, repo: Repo) -> None:
    """Leave an operation half done on branch `work`."""
    repo("checkout", "-q", "-b", "other")
    repo.commit({"shared.txt": "other\n"})
    repo("checkout", "-q", "work")
    repo.commit({"shared.txt": "mine\n"})
    words = {
        "rebase": ("rebase", "-q", "other"),
        "merge": ("merge", "-q", "other"),
        "cherry-pick": ("cherry-pick", "other"),
        "revert": ("revert", "HEAD~1"),
        "bisect": ("bisect", "start", "HEAD", "HEAD~1"),
    }[operation]
    repo.run(*words)


@pytest.mark.parametrize("operation", ["rebase", "merge", "cherry-pick", "revert", "bisect"])
def test_a_plan_waits_or_is_refused_while_something_is_under_way(desk: Desk, operation: str) -> None:
    stop_in(operation, desk.repo)
    before = desk.picture()
    detached = desk.repo.run("symbolic-ref", "-q", "HEAD").status != 0

    ran = desk.run(WORK)

    is_clear(ran, 2 if detached else 4, operation, "inish")
    assert desk.picture() == before


@pytest.mark.parametrize("operation", ["rebase", "merge", "cherry-pick", "revert", "bisect"])
def test_with_a_base_and_a_target_of_its_own_a_plan_lands_beside_what_is_under_way(desk: Desk, operation: str) -> None:
    stop_in(operation, desk.repo)
    before = desk.picture()

    ran = desk.run(WORK, "echo b > b.txt", base="other", target="goal")

    assert ran.code == 0, ran.said
    assert desk.tree("goal") == {**desk.tree("other"), **A, b"b.txt": (FILE, b"b\n")}
    assert desk.picture().without_branch("goal") == before


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "refs/heads/work.lock", "packed-refs.lock", "config.lock"])
def test_a_lock_that_something_left_is_waited_for_and_never_removed(
    desk: Desk, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "LOCK_WAIT", 0.1)
    base = desk.tree("work")
    place = desk.repo.path / ".git" / lock
    place.write_text("")
    before = desk.picture()

    ran = desk.run(WORK)

    assert place.exists()
    if lock in ("packed-refs.lock", "config.lock"):
        assert ran.code == 0, ran.said
    else:
        is_clear(ran, 4, lock, "rm ")
        assert desk.picture() == before
        place.unlink()
        again = desk("land", "--yes")
        assert again.code == 0, again.said
    assert desk.tree("work") == {**base, **A}
    assert desk.repo("status", "--porcelain") == ""


def test_a_locked_branch_that_nobody_has_checked_out_is_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command.OVERRIDES, "core.filesRefLockTimeout", "100")
    monkeypatch.setattr(refs, "LOCK_TIMEOUT", 0.1)
    desk.repo("branch", "goal")
    lock = desk.repo.path / ".git/refs/heads/goal.lock"
    lock.write_text("")
    before = desk.picture()

    ran = desk.run(WORK, target="goal")

    is_clear(ran, 4, "goal.lock", "rm ")
    assert lock.exists() and desk.picture() == before
    lock.unlink()
    assert desk("land", "--yes").code == 0
    assert desk.repo.files("goal")["a.txt"] == "a\n"


def test_a_checkout_that_core_bare_hides_is_not_landed_under(desk: Desk) -> None:
    files = files_of(desk.repo.path)
    tip = desk.repo.head("work")
    desk.repo("config", "core.bare", "true")

    ran = desk.run(WORK)

    is_clear(ran, 4, "core.bare")
    assert (files_of(desk.repo.path), desk.repo.head("work")) == (files, tip)
    desk.repo("config", "core.bare", "false")
    assert desk("land", "--yes").code == 0
    assert desk.repo("status", "--porcelain") == "" and (desk.repo.path / "a.txt").exists()


def test_a_branch_that_cannot_be_moved_leaves_no_files_behind(desk: Desk) -> None:
    log = desk.repo.path / ".git/logs/refs/heads/work"
    log.unlink()
    log.mkdir()
    (log / "full").write_text("")
    desk.repo.write({"README.md": "mine\n", "dir/in.txt": "staged\n", "own.txt": "own\n"})
    desk.repo("add", "dir")
    before = desk.picture()

    ran = desk.run("echo a > a.txt; rm shared.txt; mkdir -p deep/er; echo b > deep/er/b.txt")

    is_clear(ran, 4, "Git refused to update")
    assert desk.picture() == before
    shutil.rmtree(log)
    assert desk("land", "--yes").code == 0
    assert desk.repo("status", "--porcelain") == " M README.md\nM  dir/in.txt\n?? own.txt\n"


def test_a_detached_head_gets_a_new_branch(desk: Desk) -> None:
    desk.repo("checkout", "-q", "--detach")
    before, base = desk.picture(), desk.tree("work")

    ran = desk.run(WORK)

    assert ran.code == 0, ran.said
    assert desk.tree("orchard/hazard") == {**base, **A}
    assert desk.picture().without_branch("orchard/hazard") == before


def test_a_linked_worktree_is_as_good_a_place_as_any(desk: Desk, tmp_path: Path) -> None:
    desk.repo("worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    before, base = desk.picture(), desk.tree("side")

    ran = desk.run(WORK, cwd=tmp_path / "linked")

    assert ran.code == 0, ran.said
    assert desk.tree("side") == {**base, **A}
    assert (tmp_path / "linked/a.txt").read_text() == "a\n"
    assert Repo(tmp_path / "linked")("status", "--porcelain", "--ignored") == ""
    assert desk.picture().without_branch("side") == before.without_branch("side")


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system where there is one, else just elsewhere."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else tmp_path))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_worktrees_may_lie_on_another_disk(desk: Desk, other_disk: Path) -> None:
    base = desk.tree("work")

    ran = desk.run(WORK, "pwd > b.txt", verify="true", worktree_root=str(other_disk / "deep" / "root"))

    assert ran.code == 0, ran.said
    assert desk.repo.files("work")["b.txt"].startswith(str(other_disk))
    assert {**desk.tree("work"), b"b.txt": (FILE, b"")} == {**base, **A, b"b.txt": (FILE, b"")}
    assert [one for one in other_disk.rglob("*") if one.is_file()] == []


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("..", "holds the repository"),
        ("README.md", "not a folder"),
        (".git/x", "git's own folder"),
        ("dir", "files that git tracks"),
    ],
)
def test_a_worktree_root_that_belongs_to_something_else_is_refused(desk: Desk, root: str, words: str) -> None:
    before = desk.picture()
    is_clear(desk.run(WORK, worktree_root=root), 2, words)
    assert desk.picture() == before and desk.app.plans() == []


@pytest.fixture
def tracked_root(desk: Desk) -> Desk:
    desk.repo.write({".worktrees/mine.txt": "mine\n"})
    desk.repo.commit()
    return desk


def test_a_worktree_root_that_the_repository_tracks_is_refused(tracked_root: Desk) -> None:
    desk = tracked_root
    before = desk.picture()

    ran = desk.program("run", str(desk.plan(WORK)))

    is_clear(ran, 2, "files that git tracks", "worktree_root")
    assert desk.picture() == before
    assert (desk.repo.path / ".worktrees/mine.txt").read_text() == "mine\n"


def test_a_refusal_while_starting_is_a_sentence_and_nothing_else(tracked_root: Desk) -> None:
    ran = tracked_root.program("run", str(tracked_root.plan(WORK)))

    assert "Warning" not in ran.err


def test_a_plan_with_a_root_of_its_own_runs_where_the_usual_one_is_tracked(tracked_root: Desk) -> None:
    ran = tracked_root.program("run", str(tracked_root.plan(WORK, worktree_root=".elsewhere")))

    assert ran.code == 0


def test_where_git_may_not_be_told_to_overlook_our_folders_the_plan_says_so(powerless: Desk) -> None:
    desk = powerless
    info = desk.repo.path / ".git/info"
    info.mkdir(exist_ok=True)
    info.chmod(0o500)
    before = desk.picture()

    ran = desk.run(WORK)

    info.chmod(0o700)
    is_clear(ran, 1, "info")
    assert desk.picture() == before
    assert desk("retry").code == 0


def test_a_worktree_root_that_cannot_be_made_is_told(powerless: Desk) -> None:
    desk = powerless
    before = desk.picture()
    desk.repo.path.chmod(0o500)

    ran = desk.run(WORK, target="goal")

    desk.repo.path.chmod(0o700)
    is_clear(ran, 1, "cannot be made", "worktree_root")
    assert desk.picture() == before


@pytest.mark.parametrize("place", ["dir", "."])
def test_a_checkout_that_may_not_be_written_to_keeps_every_file(powerless: Desk, place: str) -> None:
    desk = powerless
    before = desk.picture()
    assert desk.run("echo a > dir/a.txt; echo b > b.txt; rm README.md", land="ask").code == 4
    (desk.repo.path / place).chmod(0o500)

    ran = desk("land", "--yes")

    (desk.repo.path / place).chmod(0o700)
    is_clear(ran, 4, "may not be written")
    assert desk.picture() == before
    assert desk("land", "--yes").code == 0
    assert desk.repo("status", "--porcelain") == ""


def test_what_the_user_keeps_in_the_worktree_root_is_not_lost(desk: Desk) -> None:
    desk.repo.write({".worktrees/mine/draft.txt": "draft\n", ".worktrees/note.txt": "note\n"})

    assert desk.run(WORK).code == 0
    assert desk.run("echo b > b.txt").code == 0

    kept = {path.name for path in desk.repo.path.rglob("*.txt")}
    saved = " ".join(str(desk.repo.files(ref)) for ref in desk.repo.refs("refs/orchard/wip"))
    assert "draft.txt" in kept or "draft" in saved
    assert "note.txt" in kept or "note" in saved


def test_a_branch_called_orchard_is_no_obstacle(desk: Desk) -> None:
    desk.repo("checkout", "-q", "main")
    desk.repo("branch", "orchard")
    before, base = desk.picture(), desk.tree("main")

    ran = desk.run(WORK)

    assert ran.code == 0, ran.said
    assert desk.tree(ran.plan["target"]["branch"]) == {**base, **A}
    assert desk.picture().without_branch(ran.plan["target"]["branch"]) == before
    is_clear(desk.run(WORK, target="orchard/mine"), 2, "clashes")


@pytest.mark.parametrize("name", ["-x", "a..b", "HEAD", "refs/heads/", "a b", "@{u}", "a\nb", "x.lock", "~1", ""])
def test_a_target_that_git_would_not_allow_is_refused(desk: Desk, name: str) -> None:
    before = desk.picture()
    ran = desk.run(WORK, target=name)
    assert ran.code == 2, ran.said
    assert desk.picture() == before


@pytest.mark.parametrize("name", ["-x", "--all", "HEAD@{99}", "a..b", "nothing", ":/first", "work:dir", "a\nb"])
def test_a_base_that_is_no_commit_is_refused(desk: Desk, name: str) -> None:
    before = desk.picture()
    ran = desk.run(WORK, base=name, target="goal")
    assert ran.code in (2, 3) or (name == ":/first" and ran.code == 0), ran.said
    assert desk.picture().without_branch("goal") == before


@pytest.mark.parametrize("place", ["ahead", "behind", "diverged", "unrelated"])
def test_a_target_that_exists_is_never_reset(desk: Desk, place: str) -> None:
    repo = desk.repo
    repo("branch", "goal")
    if place in ("behind", "diverged"):
        repo.commit({"work.txt": "w\n"})
    if place in ("ahead", "diverged"):
        repo("checkout", "-q", "goal")
        repo.commit({"goal.txt": "g\n"})
        repo("checkout", "-q", "work")
    if place == "unrelated":
        repo("branch", "-f", "goal", repo("commit-tree", "-m", "root", "work^{tree}").strip())
    tip, before = repo.head("goal"), desk.picture()
    expected = {**desk.tree("goal"), **desk.tree("work"), **A}

    ran = desk.run(WORK, base="work", target="goal")

    if place == "unrelated":
        is_clear(ran, 1)
        assert desk.picture() == before
        return
    assert ran.code == 0, ran.said
    assert desk.tree("goal") == expected
    assert repo.run("merge-base", "--is-ancestor", tip, "goal").status == 0
    assert desk.picture().without_branch("goal") == before.without_branch("goal")
