"""A user's checkout with a landing that waits for it, and a picture that sees whatever the landing changed.

The plan is run once. Before every test all folders are put back as they were then, at the same place,
so that a test costs one landing.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchard.git.repository import find_repository
from orchard.testing import Repo
from tests.acceptance.conftest import FILE, LINK, PROGRAM, Desk, Tree
from tests.git.test_landing import LINES, Scene

BEFORE: Tree = {
    b"README.md": (FILE, b"# small\n"),
    b".gitattributes": (FILE, b"*.flt filter=turn\n"),
    b"a.txt": (FILE, LINES.encode()),
    b"d/b.txt": (FILE, LINES.encode()),
    b"gone.txt": (FILE, b"gone\n"),
    b"last/only.txt": (FILE, b"only\n"),
    b"link": (LINK, b"README.md"),
    b"other.sh": (FILE, b"#!/bin/sh\n"),
    b"run.sh": (FILE, b"#!/bin/sh\n"),
    b"data.flt": (FILE, b"one two three\n"),
    b"far/in.txt": (FILE, LINES.encode()),
    b"was-file": (FILE, b"file\n"),
    b"was-folder/one.txt": (FILE, b"one\n"),
    b"was-folder/two.txt": (FILE, b"two\n"),
}
GONE = (b"gone.txt", b"last/only.txt", b"was-file", b"was-folder/one.txt", b"was-folder/two.txt")
BROUGHT: Tree = {
    b"a.txt": (FILE, LINES.encode() + b"landed\n"),
    b"data.flt": (FILE, b"four five six\n"),
    b"far/in.txt": (FILE, b"landed\n" + LINES.encode()),
    b"link": (LINK, b"a.txt"),
    b"new.flt": (FILE, b"seven\n"),
    b"new.txt": (FILE, b"new\n"),
    b"new/deep.txt": (FILE, b"deep\n"),
    b"odd/\xff\xfe": (FILE, b"no text\n"),
    b"odd/new\nline": (FILE, b"two lines\n"),
    b"run.sh": (PROGRAM, b"#!/bin/sh\n"),
    b"was-file/in.txt": (FILE, b"in\n"),
    b"was-folder": (FILE, b"a file now\n"),
}
AFTER: Tree = {**{name: what for name, what in BEFORE.items() if name not in GONE}, **BROUGHT}
CHANGED = frozenset([*BROUGHT, *GONE])
"""What the landing brings or takes away; nothing else may change."""

Prepare = Callable[["Place"], object]


@dataclass(frozen=True)
class Place(Scene):
    """What a state is made in; what has to end after the test goes onto the stack."""

    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def top(self) -> Path:
        return self.repo.path

    @property
    def home(self) -> Path:
        return self.repo.path.parent


class Ready:
    """A validated plan that waits for its landing on `main`, which the user has checked out."""

    def __init__(self, folder: Path) -> None:
        self.home, self._saved = folder / "home", folder / "saved"
        repo = Repo.make(self.home / "repo", files={"README.md": "# first\n"})
        write_tree(repo.path, BEFORE)
        self.old = repo.commit()
        self.desk = Desk(repo, self.home)
        work = f"rm -r gone.txt last was-file was-folder; {self.desk.writes(BROUGHT)}"
        ran = self.desk.run(work, base="main", target="main", land="ask")
        assert ran.code == 4, ran.said
        self._copy(self.home, self._saved)

    def again(self, stack: ExitStack) -> Place:
        """Everything as it was when the plan began to wait."""
        shutil.rmtree(self.home)
        self._copy(self._saved, self.home)
        repo = self.desk.repo
        repo("update-index", "-q", "--refresh")
        return Place(repo, find_repository(repo.path), self.old, self.old, stack)

    def _copy(self, source: Path, place: Path) -> None:
        subprocess.run(["cp", "-a", source, place], check=True, timeout=60)


def write_tree(top: Path, tree: Tree) -> None:
    """Make these files and links in a folder."""
    for name, (mode, content) in tree.items():
        place = top / os.fsdecode(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            place.symlink_to(os.fsdecode(content))
        else:
            place.write_bytes(content)
            place.chmod(0o755 if mode == PROGRAM else 0o644)


# ------------------------------------------------------------------------------------- the picture


@dataclass(frozen=True)
class Checkout:
    """A folder of the user's, and where git keeps its index and HEAD."""

    top: Path
    git_dir: Path


@dataclass(frozen=True)
class Seen:
    """All that is the user's: files with their times, git's own files, indexes, refs."""

    files: dict[bytes, tuple[object, ...]]
    folders: dict[bytes, int]
    git: dict[str, str]
    indexes: dict[Path, dict[bytes, tuple[bytes, ...]]]
    refs: dict[str, str]

    def without_times(self) -> "Seen":
        """The same, for where files were written and put back."""
        return replace(self, files={name: (what[0], what[-1]) for name, what in self.files.items()})


# What a fast-forward writes besides the branch, and what is ours or cannot be compared byte by byte.
OURS = ("objects/", "orchard/", "refs/", "logs/refs/orchard/", "info/exclude", "packed-refs", "sharedindex.")
MOVES = ("ORIG_HEAD", "logs/HEAD", "logs/refs/heads/main")


def checkouts(repo: Repo) -> list[Checkout]:
    """Every checkout that is the user's, found without the code that is tested."""
    common = _git_dir(repo)
    elsewhere = repo.run("config", "core.worktree").text
    found = [Checkout(Path(elsewhere) if elsewhere else repo.path, common)]
    for admin in sorted(common.glob("worktrees/*")):
        lock = admin / "locked"
        if not (lock.exists() and lock.read_text().startswith("orchard")):
            found.append(Checkout(Path((admin / "gitdir").read_text().strip()).parent, admin))
    return found


def see(repo: Repo, home: Path) -> Seen:
    """Look at everything; nothing is written, not even the index."""
    common, places = _git_dir(repo), checkouts(repo)
    skipped = {os.fsencode(place) for place in (common, repo.path / ".git", repo.path / ".worktrees", home / "calls")}
    files, folders = _walk(os.fsencode(home), skipped)
    rows = repo("--git-dir", str(common), "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    refs = {name: oid for name, oid in (row.split(" ", 1) for row in rows) if not name.startswith("refs/orchard/")}
    return Seen(files, folders, _git_files(common, places), {place.top: _index(repo, place) for place in places}, refs)


def _git_dir(repo: Repo) -> Path:
    pointer = repo.path / ".git"
    return pointer if pointer.is_dir() else Path(pointer.read_text().removeprefix("gitdir: ").strip())


def _walk(home: bytes, skipped: set[bytes]) -> tuple[dict[bytes, tuple[object, ...]], dict[bytes, int]]:
    files: dict[bytes, tuple[object, ...]] = {}
    folders: dict[bytes, int] = {}
    for folder, inside, names in os.walk(home):
        inside[:] = [one for one in inside if folder + b"/" + one not in skipped]
        for name in [*names, *inside]:
            place = folder + b"/" + name
            status = os.lstat(place)
            if stat.S_ISDIR(status.st_mode):
                folders[place] = stat.S_IMODE(status.st_mode)
            elif place not in skipped:
                files[place] = (status.st_mode, status.st_ino, status.st_mtime_ns, _content(place, status.st_mode))
    return files, folders


def _content(place: bytes, mode: int) -> object:
    if stat.S_ISLNK(mode):
        return os.readlink(place)  # noqa: PTH115 (bytes)
    if not stat.S_ISREG(mode):
        return None
    try:
        return hashlib.sha256(Path(os.fsdecode(place)).read_bytes()).hexdigest()
    except PermissionError:
        return None


def _git_files(common: Path, places: list[Checkout]) -> dict[str, str]:
    """Git's own files in so far as they are the user's: HEADs, stash, settings, notes on what is under way."""
    found = {}
    for place in places:
        for path in sorted(place.git_dir.rglob("*")):
            name = path.relative_to(place.git_dir).as_posix()
            inner = path.relative_to(common).as_posix()
            foreign = place.git_dir == common and name.startswith("worktrees/")
            if name == "index" or name.startswith(OURS) or foreign or not path.is_file():
                continue
            found[inner] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


ENTRY = re.compile(rb"(\S) (\d{6}) ([0-9a-f]+) (\d)\t([^\0]*)\0.*?flags: ([0-9a-f]+)\n", re.DOTALL)
LASTING = 0x60008000
"""The flags of an entry that git keeps on disk: assumed unchanged, intent to add, skipped."""


def _index(repo: Repo, place: Checkout) -> dict[bytes, tuple[bytes, ...]]:
    """What is staged, with every flag; of an index that git cannot read, the bytes."""
    words = ("--git-dir", str(place.git_dir), "--work-tree", str(place.top))
    done = repo.run(*words, "-c", "core.fsmonitor=false", "ls-files", "-s", "-v", "-z", "--debug")
    if done.status != 0:
        return {b"": ((place.git_dir / "index").read_bytes(),)}
    return {
        name + b"\0" + stage: (tag, mode, oid, b"%x" % (int(flags, 16) & LASTING))
        for tag, mode, oid, stage, name, flags in ENTRY.findall(done.stdout)
    }


# ------------------------------------------------------------------------------------- the judgement


def changed_files(before: Seen, after: Seen) -> set[bytes]:
    """Every file that is not exactly the one it was, with the folders that came, went or changed their mode."""
    return _changed(before.files, after.files) | _changed(before.folders, after.folders)


def _changed(before: Mapping[bytes, object], after: Mapping[bytes, object]) -> set[bytes]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def may_change(top: Path) -> set[bytes]:
    """The paths of the landing in a checkout, and the folders above them."""
    start = os.fsencode(top) + b"/"
    found = set()
    for name in CHANGED:
        while name:
            found.add(start + name)
            name = name.rpartition(b"/")[0]
    return found
