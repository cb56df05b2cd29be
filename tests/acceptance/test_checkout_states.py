"""Every state a user's checkout can be in, and a landing by the program: each file is as it was, or fast-forwarded."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchard.git.landing import checkout
from orchard.model.events.plans import Landed
from orchard.testing import Repo
from tests.acceptance.checkouts import (
    AFTER,
    BROUGHT,
    CHANGED,
    MOVES,
    Place,
    Prepare,
    Ready,
    Seen,
    changed_files,
    checkouts,
    may_change,
    see,
)
from tests.acceptance.conftest import is_clear
from tests.git.test_landing import LINES, MATRIX, conflicting_branch, git, ignore, linked, write

LANDS = "lands"
EDIT = write(README_md="mine\n")
TWICE = write(README_md="mine twice\n")

# ------------------------------------------------------------------------------------------ the states


def every(*prepares: Prepare) -> Prepare:
    """One after the other."""
    return lambda place: [prepare(place) for prepare in prepares]


def edit(*names: str, content: str | bytes = "mine\n") -> Prepare:
    """Write into these files, whatever they are called."""
    return lambda place: place.repo.write(dict.fromkeys(names, content))


def remove(*names: str) -> Prepare:
    def act(place: Place) -> None:
        for name in names:
            (place.top / name).unlink()

    return act


def setting(key: str, value: str) -> Prepare:
    return git("config", key, value)


def mode(name: str, bits: int) -> Prepare:
    return lambda place: (place.top / name).chmod(bits)


def to_link(name: str, target: str) -> Prepare:
    """Put a link where something stands, or where nothing does."""

    def act(place: Place) -> None:
        where = place.top / name
        if where.is_dir() and not where.is_symlink():
            shutil.rmtree(where)
        where.unlink(missing_ok=True)
        where.symlink_to(target)

    return act


def to_folder(name: str) -> Prepare:
    """Put a folder with a file in the place of a file."""
    return every(remove(name), edit(f"{name}/mine"))


def to_file(name: str) -> Prepare:
    """Put a file in the place of a folder."""
    return every(lambda place: shutil.rmtree(place.top / name), edit(name))


def folder_behind_link(name: str) -> Prepare:
    """Move a folder away and leave a link to it."""

    def act(place: Place) -> None:
        (place.top / name).rename(place.home / "moved")
        (place.top / name).symlink_to(place.home / "moved")

    return act


def outside(name: str) -> Prepare:
    """A link to a folder of the user's that is no part of the repository."""

    def act(place: Place) -> None:
        (place.home / "private").mkdir()
        (place.home / "private/deep.txt").write_text("mine\n")
        (place.top / name).symlink_to(place.home / "private")

    return act


def nested(name: str) -> Prepare:
    return lambda place: Repo.make(place.top / name, files={"inner.txt": "mine\n"})


def lock(name: str) -> Prepare:
    return lambda place: (place.top / ".git" / name).write_text("")


def pipe(name: str) -> Prepare:
    return lambda place: os.mkfifo(place.top / name)


def listening(name: str) -> Prepare:
    def act(place: Place) -> None:
        one = place.stack.enter_context(socket.socket(socket.AF_UNIX))
        here = os.open(place.top, os.O_RDONLY)
        place.stack.callback(os.close, here)
        one.bind(f"/proc/self/fd/{here}/{name}")

    return act


def held_open(name: str) -> Prepare:
    """Another program has the file open for writing."""

    def act(place: Place) -> None:
        file = place.stack.enter_context((place.top / name).open("r+b"))
        holder = subprocess.Popen(["sleep", "600"], stdin=file)
        place.stack.callback(holder.wait, 10)
        place.stack.callback(holder.kill)

    return act


def stood_in(name: str) -> Prepare:
    """Somebody's terminal stands in that folder."""

    def act(place: Place) -> None:
        holder = subprocess.Popen(["sleep", "600"], cwd=place.top / name)
        place.stack.callback(holder.wait, 10)
        place.stack.callback(holder.kill)

    return act


def hard_link(name: str) -> Prepare:
    return lambda place: (place.home / "second name").hardlink_to(place.top / name)


def unseen_edit(place: Place) -> None:
    """Another content, with the time that the file had before."""
    where = place.top / "a.txt"
    status = where.stat()
    where.write_text("mine\n")
    os.utime(where, ns=(status.st_atime_ns, status.st_mtime_ns))


def conflicted(place: Place) -> None:
    """Three stages of a file, and nothing under way."""
    conflicting_branch(place)
    place.repo.commit({"d/b.txt": "main\n" + LINES})
    assert place.repo.run("merge", "-q", "side").status == 1
    (place.top / ".git/MERGE_HEAD").unlink()
    place.repo("update-ref", "refs/heads/main", place.old)


def patch_fails(place: Place) -> None:
    """`git am` stopped at a patch that does not apply."""
    conflicting_branch(place)
    patch = place.repo("format-patch", "-1", "--stdout", "side").replace("line 0", "other 0")
    assert place.repo.run("am", "-q", stdin=patch.encode()).status != 0


def picking_several(place: Place) -> None:
    """Two picks were asked for; the first of them stopped, and was skipped by hand."""
    conflicting_branch(place)
    place.repo("checkout", "-q", "-b", "tmp", "side")
    place.repo.commit({"d/b.txt": "other\n"})
    place.repo.commit({"d/b.txt": "another\n"})
    place.repo("checkout", "-q", "main")
    assert place.repo.run("cherry-pick", "tmp~1", "tmp").status == 1
    (place.top / ".git/CHERRY_PICK_HEAD").unlink()


def submodule(place: Place) -> None:
    """A submodule that is staged, with a commit, an edit and a file of its own."""
    inner = Repo.make(place.top / "module", files={"inner.txt": "inner\n"})
    place.repo("update-index", "--add", "--cacheinfo", f"160000,{inner.head()},module")
    inner.commit({"more.txt": "more\n"})
    inner.write({"inner.txt": "mine\n", "untracked.txt": "mine\n"})


def separate(place: Place) -> None:
    """The folder `.git` is a file that says where git's files are."""
    (place.top / ".git").rename(place.home / "elsewhere.git")
    (place.top / ".git").write_text(f"gitdir: {place.home / 'elsewhere.git'}\n")
    place.repo("worktree", "repair")


def other_top(place: Place) -> None:
    """`core.worktree` says that the files are in another folder."""
    shutil.copytree(place.top, place.home / "other", symlinks=True, ignore=lambda *_: [".git", ".worktrees"])
    place.repo("config", "core.worktree", str(place.home / "other"))


def linked_and(*more: Prepare) -> Prepare:
    """The branch is in a linked worktree, where these things were done."""

    def act(place: Place) -> None:
        linked(place)
        for one in more:
            one(Place(Repo(place.home / "linked"), place.repository, place.old, place.new, place.stack))

    return act


def linked_inside(place: Place) -> None:
    """The branch is in a linked worktree that lies in the first checkout."""
    place.repo("checkout", "-q", "-b", "elsewhere")
    place.repo("worktree", "add", "-q", str(place.top / "inside"), "main")


def own_hooks(place: Place) -> None:
    folder = place.home / "hooks"
    folder.mkdir()
    for name in ("post-merge", "post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        (folder / name).write_text(f"#!/bin/sh\ntouch '{place.home}/hook-ran'\nexit 1\n")
        (folder / name).chmod(0o755)
    place.repo("config", "core.hooksPath", str(folder))


def watcher(place: Place) -> None:
    """A file system monitor that says nothing ever changes."""
    place.repo.write({"README.md": "mine\n"})
    (place.home / "watch").write_text(f"#!/bin/sh\ntouch '{place.home}/hook-ran'\nprintf 'token\\0'\n")
    (place.home / "watch").chmod(0o755)
    place.repo("config", "core.fsmonitor", str(place.home / "watch"))


def turning(failing: str = "never") -> Prepare:
    """A filter as those for large files are: other bytes in the checkout than in the commit.

    It fails never, always, or at the second file that git writes.
    """
    test = {"never": "true", "always": "false", "second": "test $(wc -l < calls) -ne 2"}[failing]

    def act(place: Place) -> None:
        (place.home / "smudge").write_text(f"#!/bin/sh\ncd '{place.home}'; echo >> calls; {test} && exec rev\n")
        (place.home / "smudge").chmod(0o755)
        place.stack.callback((place.home / "calls").unlink, missing_ok=True)
        place.repo("config", "filter.turn.clean", "rev")
        place.repo("config", "filter.turn.smudge", str(place.home / "smudge"))
        place.repo("config", "filter.turn.required", "true")
        (place.top / "data.flt").write_text("eerht owt eno\n")
        place.repo("update-index", "-q", "--refresh")

    return act


def broken_index(place: Place) -> None:
    (place.top / ".git/index").write_bytes(b"DIRC" + b"\xff" * 60)


def no_index(place: Place) -> None:
    (place.top / ".git/index").unlink()


def everything(place: Place) -> None:
    """On another branch, with one of everything."""
    place.repo("checkout", "-q", "-b", "elsewhere")
    place.repo.write({"a.txt": "stashed\n", "lost.txt": "stashed\n"})
    place.repo("stash", "-q", "-u")
    ignore("*.env")(place)
    place.repo.write({"a.txt": "staged\n", "new.txt": "mine\n", "my.env": "SECRET\n", "new/deep.txt": "mine\n"})
    place.repo("add", "a.txt")
    place.repo.write({"a.txt": "edited\n", "gone.txt": None, "planned.txt": "mine\n"})
    place.repo("add", "-N", "planned.txt")


def stashes(place: Place) -> None:
    for number in range(3):
        place.repo.write({"a.txt": f"stash {number}\n", "untracked.txt": "mine\n"})
        place.repo("add", "a.txt")
        place.repo("stash", "-q", "-u")


def big(place: Place) -> None:
    with (place.top / "new.txt").open("wb") as file:
        file.truncate(64 << 20)


ADD_N = git("add", "-N", ".")
HIDE = git("update-index", "--assume-unchanged", "README.md")
SPARSE = git("sparse-checkout", "set", "--cone", "d")
STATES: dict[str, tuple[Prepare, str]] = {
    **MATRIX,
    # what is staged
    "intent to add elsewhere": (every(edit("mine.txt"), ADD_N), LANDS),
    "intent to add in the way": (every(edit("new.txt"), ADD_N), "new.txt"),
    "intent to add elsewhere, gone again": (every(edit("mine.txt"), ADD_N, remove("mine.txt")), LANDS),
    "rename staged elsewhere": (git("mv", "other.sh", "mine.sh"), LANDS),
    "rename staged in the way": (git("mv", "a.txt", "mine.txt"), "a.txt"),
    "removal staged elsewhere": (git("rm", "-q", "README.md"), LANDS),
    "removal staged of what the landing edits": (git("rm", "-q", "a.txt"), "a.txt"),
    "removal staged of what the landing removes": (git("rm", "-q", "gone.txt"), LANDS),
    "removal of the entry alone": (git("rm", "-q", "--cached", "gone.txt"), "gone.txt"),
    "staged as it will land": (every(edit("new.txt", content="new\n"), git("add", "new.txt")), LANDS),
    "conflicted with nothing under way": (conflicted, "unmerged"),
    "in a bunch of patches": (patch_fails, "am"),
    "in a row of picks": (picking_several, "sequence"),
    "three stashes": (stashes, LANDS),
    # what is edited
    "removed in the way": (remove("a.txt"), LANDS),
    "edited as it will land": (edit("a.txt", content=BROUGHT[b"a.txt"][1]), "a.txt"),
    "untracked as it will land": (edit("new.txt", content="new\n"), "new.txt"),
    "edited with its old time": (unseen_edit, "a.txt"),
    "edited and assumed unchanged elsewhere": (every(HIDE, EDIT), LANDS),
    "edited and skipped elsewhere": (every(git("update-index", "--skip-worktree", "README.md"), EDIT), LANDS),
    "staged, edited and assumed unchanged": (
        every(EDIT, git("add", "."), HIDE, TWICE), LANDS,
    ),
    "assumed unchanged and true": (git("update-index", "--assume-unchanged", "a.txt"), LANDS),
    "a mode that git was told not to look at": (every(setting("core.fileMode", "false"), mode("run.sh", 0o755)), LANDS),
    "read-only in the way": (mode("a.txt", 0o444), LANDS),
    "read-only elsewhere": (every(EDIT, mode("README.md", 0o400)), LANDS),
    "unreadable elsewhere": (every(edit("mine.txt"), mode("mine.txt", 0)), LANDS),
    "open in another program": (held_open("a.txt"), LANDS),
    "open in another program elsewhere": (every(EDIT, held_open("README.md")), LANDS),
    "a terminal in a folder that goes": (stood_in("was-folder"), LANDS),
    "a second name for a file": (hard_link("a.txt"), LANDS),
    # other kinds of things
    "link replaced by a file": (every(remove("link"), edit("link", content="# small\n")), "link"),
    "file replaced by a link": (to_link("a.txt", "README.md"), "a.txt"),
    "file replaced by a link elsewhere": (to_link("README.md", "a.txt"), LANDS),
    "file replaced by a folder": (to_folder("a.txt"), "a.txt"),
    "file replaced by a folder elsewhere": (to_folder("README.md"), LANDS),
    "folder replaced by a file": (to_file("far"), "far"),
    "folder replaced by a file elsewhere": (to_file("d"), LANDS),
    "folder behind a link": (folder_behind_link("far"), "far"),
    "folder behind a link elsewhere": (folder_behind_link("d"), LANDS),
    "link to a folder in the way of a folder": (outside("new"), "new"),
    "ignored link to a folder in the way of a folder": (every(ignore("new"), outside("new")), "new"),
    "link to nothing in the way": (to_link("new.txt", "../nothing"), "new.txt"),
    "edited file that becomes a folder": (edit("was-file"), "was-file"),
    "untracked file in a folder that becomes a file": (edit("was-folder/mine"), "was-folder"),
    "ignored file in a folder that becomes a file": (every(ignore("mine"), edit("was-folder/mine")), "was-folder"),
    "repository in a folder that becomes a file": (nested("was-folder/inner"), "was-folder"),
    "untracked file in a folder that goes": (edit("last/mine"), LANDS),
    "ignored file in a folder that goes": (every(ignore("mine"), edit("last/mine")), LANDS),
    "empty folder in the way": (lambda place: (place.top / "new.txt").mkdir(), LANDS),
    "empty folder elsewhere": (lambda place: (place.top / "mine").mkdir(), LANDS),
    "pipe in the way": (pipe("new.txt"), "new.txt"),
    "pipe elsewhere": (pipe("mine"), LANDS),
    "socket elsewhere": (listening("mine"), LANDS),
    "big file in the way": (big, "new.txt"),
    "name of two lines in the way": (edit("odd/new\nline"), "odd/new"),
    "name that is no text in the way": (edit(os.fsdecode(b"odd/\xff\xfe")), "odd/"),
    "name that is no text elsewhere": (edit(os.fsdecode(b"odd/\xfe")), LANDS),
    "name of other case": (edit("NEW.TXT"), LANDS),
    "name of other case that does not count": (every(setting("core.ignoreCase", "true"), edit("NEW.TXT")), LANDS),
    # repositories in repositories
    "submodule with edits": (submodule, LANDS),
    "submodule with edits, always looked into": (every(submodule, setting("submodule.recurse", "true")), LANDS),
    "repository elsewhere": (nested("inner"), LANDS),
    "repository in the way": (nested("new"), LANDS),
    # where the user stands
    "on a branch without a commit": (git("checkout", "-q", "--orphan", "fresh"), LANDS),
    "on another branch with one of everything": (everything, LANDS),
    "in a linked worktree that is locked": (linked_and(git("worktree", "lock", ".")), LANDS),
    "in a linked worktree with something staged": (linked_and(EDIT, git("add", "."), TWICE), LANDS),
    "in a linked worktree that is sparse": (linked_and(SPARSE), LANDS),
    "in a linked worktree with an untracked file in the way": (linked_and(edit("new.txt")), "new.txt"),
    "in a linked worktree in the middle of a revert": (linked_and(git("revert", "--no-commit", "HEAD")), "revert"),
    "in a linked worktree with a locked index": (
        linked_and(lambda place: (place.home / "repo/.git/worktrees/linked/index.lock").write_text("")), "index.lock",
    ),
    "in a linked worktree inside of the first": (linked_inside, LANDS),
    "sparse by patterns": (git("sparse-checkout", "set", "--no-cone", "/d/", "/new/"), LANDS),
    "sparse with a sparse index": (git("sparse-checkout", "set", "--cone", "--sparse-index", "d"), LANDS),
    "sparse with a file outside of it": (every(SPARSE, edit("far/in.txt")), "far/in.txt"),
    "sparse with an untracked file outside of it": (every(SPARSE, edit("new/deep.txt")), LANDS),
    # locks, and the index itself
    "HEAD locked": (lock("HEAD.lock"), "HEAD.lock"),
    "branch locked": (lock("refs/heads/main.lock"), "main.lock"),
    "packed refs locked": (lock("packed-refs.lock"), LANDS),
    "settings locked": (lock("config.lock"), LANDS),
    "refs packed": (git("pack-refs", "--all", "--prune"), LANDS),
    "index split": (every(git("update-index", "--split-index"), EDIT, git("add", "."), TWICE), LANDS),
    "index with an untracked cache": (every(git("update-index", "--untracked-cache"), edit("new.txt")), "new.txt"),
    "index of version 4": (every(git("update-index", "--index-version=4"), EDIT, git("add", ".")), LANDS),
    "index that is broken": (broken_index, "index"),
    "index that is gone": (no_index, "a.txt"),
    # settings
    "hidden by core.bare": (setting("core.bare", "true"), "core.bare"),
    "files in another folder": (other_top, LANDS),
    "git's files in another folder": (separate, LANDS),
    "hooks in a folder of their own": (own_hooks, LANDS),
    "file system monitor that sees nothing": (watcher, LANDS),
    "line ends converted on the way in": (
        every(setting("core.autocrlf", "input"), edit("mine.txt", content="a\r\n")), LANDS,
    ),
    "line ends converted and edited in the way": (every(setting("core.autocrlf", "true"), edit("a.txt")), "a.txt"),
    "filter that turns files": (turning(), LANDS),
    "filter that turns files, one of them edited": (every(turning(), edit("data.flt")), "data.flt"),
    "filter that fails": (turning("always"), "external filter"),
    "filter that fails half-way": (turning("second"), "smudge"),
    "links as files": (setting("core.symlinks", "false"), LANDS),
    "signatures wanted": (setting("merge.verifySignatures", "true"), "signature"),
    "submodules followed and hooks off": (every(setting("submodule.recurse", "true"), setting("gc.auto", "1")), LANDS),
}  # fmt: skip

# --------------------------------------------------------------------------------------------- the test


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """One plan, run once for all of these tests."""
    folder = tmp_path_factory.mktemp("ready")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
            (folder / name).mkdir(mode=0o700)
            patch.setenv(name, str(folder / name))
        yield Ready(folder)


@pytest.mark.parametrize("name", STATES)
def test_a_landing_fast_forwards_the_checkout_or_leaves_every_file_as_it_is(
    ready: Ready, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "LOCK_WAIT", 0.1)
    prepare, expected = STATES[name]
    with ExitStack() as stack:
        place = ready.again(stack)
        prepare(place)
        before = see(place.repo, place.home)

        ran = ready.desk("land", "--yes")

        after = see(place.repo, place.home)
        assert not (place.home / "hook-ran").exists()
        if expected == LANDS:
            assert ran.code == 0, ran.said
            has_landed(ready, before, after)
        else:
            is_clear(ran, 4, *([expected] if name not in MATRIX else []))
            assert changed_files(before, after) == set()
            assert after == before


def has_landed(ready: Ready, before: Seen, after: Seen) -> None:
    """The branch is at the result; only what the landing brings has changed, and that only where the branch is."""
    repo = ready.desk.repo
    assert ready.desk.tree("main") == AFTER
    said = ready.desk.events(Landed)[-1].checkout
    top = Path(said) if said else None
    assert changed_files(before, after) <= (may_change(top) if top is not None else set())
    place = next((one for one in checkouts(repo) if one.top == top), None)
    inside = place.git_dir.relative_to(checkouts(repo)[0].git_dir) if place is not None else None
    moves = {*MOVES, *((inside / name).as_posix() for name in MOVES if inside is not None)}
    assert {
        name for name in before.git.keys() | after.git.keys() if before.git.get(name) != after.git.get(name)
    } <= moves
    assert {**after.refs, "refs/heads/main": ""} == {**before.refs, "refs/heads/main": ""}
    for one, entries in before.indexes.items():
        rows = {name for name in CHANGED if one == top}
        kept = {key: what for key, what in entries.items() if key.split(b"\0")[0] not in rows}
        now = {key: what for key, what in after.indexes[one].items() if key.split(b"\0")[0] not in rows}
        assert now == kept
    if place is not None and top is not None:
        words = (
            "--git-dir",
            str(place.git_dir),
            "--work-tree",
            str(top),
            "-C",
            str(top),
            "status",
            "--porcelain",
            "-z",
        )
        shown = repo(*words, "--", *(b":(literal)" + name for name in sorted(CHANGED)))
        names = [os.fsencode(top) + b"/" + os.fsencode(row[3:]) for row in shown.split("\0") if row]
        # Outside of a sparse checkout a file of the user's may stand where git writes none; now git tracks it.
        assert [name for name in names if before.files.get(name) != after.files.get(name)] == []
