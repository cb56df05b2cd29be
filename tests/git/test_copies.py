"""Ignored folders come along into worktrees as copies: whole, apart from the user's, and nothing leads out."""

import contextlib
import errno
import os
import socket
import stat
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from orchard.errors import UsageError
from orchard.git.dependencies import copies, inventory
from orchard.git.dependencies.copies import Copies, copied_files, copy_folders
from orchard.git.repository import Worktree
from orchard.git.worktree.commit import CommitInfo, Committed, commit_work
from orchard.git.worktree.worktrees import Worktrees
from orchard.testing import Repo


@pytest.fixture
def worktree(repo: Repo, trees: Worktrees) -> Worktree:
    repo.commit({".gitignore": "node_modules/\n.venv/\n*.key\n!kept.key\n/cache\n", "packages/a/main.js": "x"})
    return trees.add(repo.head(), "job")


def copy(repo: Repo, trees: Worktrees, worktree: Worktree, *names: str) -> Copies:
    return copy_folders(trees.repo, repo.path, worktree, names, (trees.root,))


def test_a_folder_is_copied_with_its_rights_times_and_links(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    repo.write({"node_modules/a/index.js": "a" * 300_000, "node_modules/a/empty": "", "node_modules/.bin/x": ""})
    top = repo.path / "node_modules"
    (top / "a/index.js").chmod(0o4750)
    os.utime(top / "a/index.js", (1000, 1000))
    (top / ".bin/a").symlink_to("../a/index.js")
    (top / "workspace").symlink_to("../packages/a")
    (top / "b").mkdir(mode=0o755)

    done = copy(repo, trees, worktree, "node_modules/")

    copied = worktree.path / "node_modules"
    assert done == Copies(("node_modules",), 3)
    assert (copied / ".bin/a").read_text() == "a" * 300_000
    assert (copied / "workspace/main.js").resolve() == worktree.path / "packages/a/main.js"
    found = (copied / "a/index.js").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime) == (0o750, 1000)
    assert (copied / "b").is_dir() and (copied / "a/empty").stat().st_size == 0
    assert Repo(worktree.path)("status", "--porcelain") == ""


def test_a_file_of_a_copy_that_is_written_in_place_is_not_the_users(
    repo: Repo, trees: Worktrees, worktree: Worktree
) -> None:
    repo.write({"node_modules/a": "mine", "node_modules/b": "x"})
    os.link(repo.path / "node_modules/a", repo.path / "node_modules/c")

    copy(repo, trees, worktree, "node_modules")
    for name in "abc":
        copied = worktree.path / "node_modules" / name
        assert copied.stat().st_nlink == 1
        with copied.open("r+") as file:
            file.write("Y")

    assert (repo.path / "node_modules/a").read_text() == "mine"
    assert (repo.path / "node_modules/b").read_text() == "x"


def test_what_leads_out_of_the_checkout_is_left_out_and_told(
    repo: Repo, trees: Worktrees, worktree: Worktree, tmp_path: Path
) -> None:
    repo.write({"node_modules/a": "a", "node_modules/own/.git/HEAD": "x", "node_modules/own/b": "b"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/program").write_text("x")
    (tmp_path / "elsewhere/program").chmod(0o755)
    top = repo.path / "node_modules"
    links = {
        "absolute": str(top / "a"),
        "far": "../../elsewhere",
        "git": "../.git/config",
        "self": "..",
        "program": str(tmp_path / "elsewhere/program"),
        "python": str(tmp_path / "elsewhere/program"),
        "through": "far/program",
    }
    for name, said in links.items():
        (top / name).symlink_to(said)
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(top):  # its path has to be short
        server.bind("socket")

    done = copy(repo, trees, worktree, "node_modules")

    found = {
        str(path.relative_to(worktree.path / "node_modules")) for path in (worktree.path / "node_modules").rglob("*")
    }
    assert found == {"a", "own", "own/b"}
    ((name, what),) = done.partly
    assert name == "node_modules" and what.endswith("and 7 more")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("packages", "git does not ignore it"),
        ("nothing", "there is no such folder or file in the checkout"),
        ("../outside", "not the name of something inside"),
        (".git/hooks", "not the name of something inside"),
        ("linked/node_modules", "it is a link, or behind one"),
        ("node_modules", "its place is taken"),
        ("cache", "git does not ignore it"),
        ("keys", "git does not ignore it"),
        (".worktrees", "the worktrees themselves are there"),
    ],
)
def test_what_may_not_be_copied_is_not_and_it_is_told_why(
    repo: Repo, trees: Worktrees, worktree: Worktree, name: str, why: str
) -> None:
    repo.write({"node_modules/a": "a", "keys/one.key": "k", "keys/kept.key": "k", "cache/x": "x"})
    repo("add", "-f", "cache/x")
    (repo.path / "linked").symlink_to(".")
    (worktree.path / "node_modules").mkdir()

    ((told, reason),) = copy(repo, trees, worktree, name).skipped

    assert told == name and why in reason
    assert not list((worktree.path / "node_modules").iterdir())
    assert copied_files(trees.repo, repo.path, [name]) == () or name in ("node_modules", ".worktrees")


def test_what_the_worktrees_commit_does_not_ignore_is_not_copied(repo: Repo, trees: Worktrees) -> None:
    """It would be a part of the job's change."""
    old = repo.commit({".gitignore": "other\n"})
    some = repo.commit({".gitignore": "/deps/*\n!/deps/keep\n"})
    repo.commit({".gitignore": "/deps/\n"})
    repo.write({"deps/a": "a", "deps/keep": "k"})

    for commit in (old, some):
        worktree = trees.add(commit, "job")
        ((_, why),) = copy(repo, trees, worktree, "deps").skipped
        assert why == "git does not ignore it in the worktree"
        assert not (worktree.path / "deps").exists()
        done = commit_work(
            trees.repo, worktree, commit, CommitInfo("work", f"refs/orchard/keep/{commit}", ("me", "me@example.org"))
        )
        assert isinstance(done, Committed) and not done.changed


def test_copies_are_bounded(repo: Repo, trees: Worktrees, worktree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.write({f"node_modules/{number}": "xxxx" for number in range(5)})

    monkeypatch.setattr(inventory, "MAX_FILES", 4)
    with pytest.raises(UsageError, match="more than 4 files"):
        copy(repo, trees, worktree, "node_modules")
    monkeypatch.setattr(inventory, "MAX_FILES", 5)
    monkeypatch.setattr(inventory, "MAX_BYTES", 16)
    with pytest.raises(UsageError, match="more than 0 GiB"):
        copy(repo, trees, worktree, "node_modules")
    monkeypatch.setattr(inventory, "MAX_BYTES", 100)
    monkeypatch.setattr(copies, "SPARE", 1 << 60)
    monkeypatch.setattr(copies, "_cloned", lambda original, copy: False)
    with pytest.raises(UsageError, match="are free"):
        copy(repo, trees, worktree, "node_modules")


def test_a_file_system_that_can_shares_its_blocks_and_others_copy(
    repo: Repo, trees: Worktrees, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write({"node_modules/a": "a" * 200_000, ".venv/b": "b"})
    asked: list[int] = []

    def cloned(original: int, copy: int) -> bool:
        asked.append(os.write(copy, os.read(original, 1 << 20)))
        return True

    monkeypatch.setattr(copies, "_cloned", cloned)
    copy(repo, trees, worktree, "node_modules")
    monkeypatch.setattr(copies, "_cloned", lambda original, copy: False)
    monkeypatch.setattr(copies, "_copied_in_kernel", lambda original, copy: False)
    copy(repo, trees, worktree, ".venv")

    assert asked == [200_000]
    assert (worktree.path / "node_modules/a").read_text() == "a" * 200_000
    assert (worktree.path / ".venv/b").read_text() == "b"


def test_a_disk_that_fails_is_not_taken_for_a_file_system_that_cannot(tmp_path: Path) -> None:
    """Whether this one can or not, nothing but its answer decides."""
    (tmp_path / "a").write_text("a")
    with (tmp_path / "a").open("rb") as original, (tmp_path / "b").open("wb") as copy:
        assert copies._cloned(original.fileno(), copy.fileno()) in (True, False)
        with pytest.raises(OSError) as raised:
            copies._cloned(original.fileno(), original.fileno() + 1000)
    assert raised.value.errno == errno.EBADF


def test_the_stamps_of_what_is_copied_change_with_it(repo: Repo, trees: Worktrees) -> None:
    repo.commit({".gitignore": "node_modules/\n"})
    repo.write({"node_modules/a": "a"})

    before = copied_files(trees.repo, repo.path, ["node_modules"])
    (repo.path / "node_modules/a").write_text("b")
    after = copied_files(trees.repo, repo.path, ["node_modules"])
    (repo.path / "node_modules/l").symlink_to("a")

    assert before != after != copied_files(trees.repo, repo.path, ["node_modules"])
    assert copied_files(trees.repo, None, ["node_modules"]) == ()


def test_a_virtual_environment_works_in_the_worktree_and_does_not_lead_to_the_users(
    repo: Repo, trees: Worktrees, worktree: Worktree
) -> None:
    venv.create(repo.path / ".venv", symlinks=True, with_pip=False)
    mine = repo.path / ".venv"
    packages = next(mine.glob("lib/python*/site-packages"))
    (packages / "project.pth").write_text(f"{repo.path}/src\n{repo.path}-other/src\n")
    tool = mine / "bin/tool"
    tool.write_text(f"#!{mine}/bin/python\nimport sys; print(sys.prefix)\nprint(*sys.path, sep='\\n')\n")
    tool.chmod(0o755)
    repo.write({"src/x.py": ""})
    (worktree.path / "src").mkdir()
    before = tool.read_bytes()

    done = copy(repo, trees, worktree, ".venv")

    theirs = worktree.path / ".venv"
    assert done.copied == (".venv",) and not done.partly
    ran = subprocess.run([theirs / "bin/python", theirs / "bin/tool"], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert lines[0] == str(theirs) and str(worktree.path / "src") in lines
    assert f"{repo.path}-other/src" in (theirs / packages.relative_to(mine) / "project.pth").read_text()
    assert (theirs / "bin/tool").read_text().startswith(f"#!{theirs}/bin/python\n")
    assert str(mine) not in (theirs / "bin/activate").read_text()
    assert tool.read_bytes() == before
    assert (theirs / "bin/python").resolve() == Path(sys.executable).resolve()
