"""Git's notes on a worktree, put in order after the programs of a job.

A job behind a wall writes to the notes on its own worktree: its git could not work otherwise. The user's git reads them
too. `git gc` looks into the HEAD, the index and the logs of every worktree, and `git worktree list` into more: one that
names an object which does not exist makes them fail, and a pipe makes them wait for ever, until somebody finds out why.
So what the notes were is remembered before programs run, and when the last one is gone, what does not hold is put back
or set aside. Nothing that git itself would write is touched. Where a job left its notes alone, no git is started.
"""

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from orchard.files import read_plain
from orchard.git.command import GitError
from orchard.git.folders import entries, lstat, write_atomically
from orchard.git.objects.lengths import MORE_PATHS
from orchard.git.pipes import remove_blocked_notes, remove_links
from orchard.git.repository import Repository, Worktree
from orchard.patterns import later
from orchard.process.families.occupants import occupants

ASIDE = "orchard-aside"
"""Where things go that are in the way of git, in the notes themselves: so they go with the worktree."""
_SMALL = ("HEAD", "gitdir", "commondir", "locked", "config.worktree")
_SMALL_BYTES = 8192
_LOG_BYTES = 8 * 1024 * 1024
_OID = later(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LINE = later(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) [^\n]*\n")
_BRANCH = later(rb"ref: refs/[A-Za-z0-9_/.@+-]+\n?")
_TIMEOUT = 120.0
_MOST = 20_000
"""Files and folders of logs and refs that are looked at; git makes a handful."""

_TOO_MANY = ""

Stamp = tuple[int, int, int, int]


class Notes(Struct, frozen=True):
    """What the notes on a worktree were before programs ran there."""

    worktree: Worktree
    folder: Path
    small: Mapping[str, bytes]
    stamps: Mapping[str, Stamp]
    """Of the index, and of every file of logs and refs: the time of a change is the kernel's word, not the job's."""


def remember(repo: Repository, worktree: Worktree) -> Notes:
    folder = repo.notes_on(worktree.name)
    small = {}
    for name in _SMALL:
        with suppress(OSError):
            small[name] = read_plain(folder / name, _SMALL_BYTES)
    return Notes(worktree, folder, small, dict(_stamps(folder)))


class Mended(Struct):
    """What became of the notes, by their names."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """With the reason."""

    @contextmanager
    def trying(self, name: str) -> Iterator[None]:
        """One thing that cannot be mended is told, and keeps nothing else from it: a job may have seen to that."""
        try:
            yield
        except (OSError, GitError) as error:
            self.failed.append(f"{name} ({error.message if isinstance(error, GitError) else error.strerror})")

    def replace(self, folder: Path, name: str, content: bytes) -> None:
        with self.trying(name):
            if (folder / name).is_dir():
                _set_aside(folder, name)
            write_atomically(folder / name, content, 0o644, durable=False)
            self.done.append(name)

    def set_aside(self, folder: Path, name: str) -> None:
        with self.trying(name):
            if _set_aside(folder, name):
                self.done.append(name)


def put_in_order(repo: Repository, before: Notes) -> Mended:
    """Mend what programs left that git would stumble over. None of them may still run."""
    told, folder = Mended(), before.folder
    if not folder.is_dir():
        return told  # whoever needs it next is told
    with told.trying("links"):
        remove_links(folder)
    with told.trying("pipes"):
        remove_blocked_notes(folder)
    for name, content in before.small.items():
        if name != "HEAD" and _plain(folder / name) != content:
            told.replace(folder, name, content)
    # Settings that a job made for itself, which only the weaker wall lets it do, name programs; an empty file is ours.
    settings = "config.worktree"
    if settings not in before.small and _plain(folder / settings) != b"":
        told.set_aside(folder, settings)
    now = dict(_stamps(folder))
    if _TOO_MANY in now:
        for name in ("logs", "refs"):
            told.set_aside(folder, name)
        now = {name: stamp for name, stamp in now.items() if name and not name.startswith(("logs/", "refs/"))}
    locks = [name for name in now if name.endswith(".lock") and name not in before.stamps]
    if locks and not occupants(before.worktree.path):  # a person's git may be at work there
        for name in locks:
            told.set_aside(folder, name)
    if not (folder / "reftable").is_dir():  # whose tables git itself checks
        changed = [name for name, stamp in now.items() if before.stamps.get(name) != stamp]
        with told.trying("HEAD, logs and refs"):
            _mend_names(repo, before, changed, told)
        if "index" in changed:
            with told.trying("index"):
                _mend_index(repo, before, told)
    return told


def _mend_names(repo: Repository, before: Notes, changed: list[str], told: Mended) -> None:
    """HEAD, logs and refs that name what does not exist."""
    folder = before.folder
    head, was = _plain(folder / "HEAD"), before.small.get("HEAD")
    texts = _texts(folder, changed, told)
    asked = {oid for text in (head or b"", *texts.values()) for oid in _OID.findall(text)}
    kinds = _kinds(repo, asked) if asked and (texts or head != was) else {}
    missing = frozenset(asked - kinds.keys())
    no_commits = frozenset(oid for oid in asked if kinds.get(oid) != b"commit")
    if head != was and was is not None:
        if not _is_sound(head, no_commits):
            told.replace(folder, "HEAD", was)
        elif head is not None and _BRANCH.fullmatch(head):
            _let_go(repo, folder, head, was)
    for name, text in texts.items():
        if name.startswith("refs/") and not _is_sound(text, missing):
            told.set_aside(folder, name)
        elif name.startswith("logs/") and (kept := _sound_lines(text, missing)) != text:
            told.replace(folder, name, kept)


def _let_go(repo: Repository, folder: Path, head: bytes, was: bytes) -> None:
    """A job that went to a branch stays on its commit and leaves the branch: git would keep the user from it."""
    branch = os.fsdecode(head.removeprefix(b"ref: ").rstrip(b"\n"))
    commit = repo.git("rev-parse", "-q", "--verify", f"{branch}^{{commit}}", ok=range(256), timeout=_TIMEOUT).stdout
    write_atomically(folder / "HEAD", commit or was, 0o644, durable=False)


def _texts(folder: Path, changed: list[str], told: Mended) -> dict[str, bytes]:
    """What changed logs and refs hold. One that cannot be read, or is longer than what is read of all, is set aside."""
    texts, left = {}, _LOG_BYTES
    for name in sorted(name for name in changed if name.startswith(("logs/", "refs/"))):
        text = _plain(folder / name, left + 1)
        if text is None or len(text) > left:
            told.set_aside(folder, name)
        else:
            texts[name] = text
            left -= len(text)
    return texts


def _mend_index(repo: Repository, before: Notes, told: Mended) -> None:
    """An index that names what does not exist, or so much that whatever reads it needs minutes and memory for that."""
    if _is_huge(repo, before):
        for name in ("index", *_shared(before.folder)):  # not set aside: nobody could look through the notes then
            (before.folder / name).unlink(missing_ok=True)
        told.done.append("index")
    elif _can_be_read(repo, before.worktree):
        return
    else:
        told.set_aside(before.folder, "index")
    with suppress(GitError):  # there is no commit yet on the branch that it is on
        repo.worktree_git(before.worktree.name, before.worktree.path)("read-tree", "HEAD", timeout=_TIMEOUT)


def _is_huge(repo: Repository, before: Notes) -> bool:
    """Whether an index has far more paths than HEAD; it may be split in two files."""
    heads = [_plain(before.folder / name, 12) or b"" for name in ("index", *_shared(before.folder))]
    count = max((int.from_bytes(head[8:12], "big") for head in heads if head[:4] == b"DIRC"), default=0)
    if count <= MORE_PATHS:
        return False
    git = repo.worktree_git(before.worktree.name, before.worktree.path)
    listed = git("ls-tree", "-r", "-z", "--name-only", "HEAD", ok=range(256), timeout=_TIMEOUT).stdout
    return count > MORE_PATHS + listed.count(b"\0")


def _shared(folder: Path) -> list[str]:
    return [one.name for one in entries(folder) if one.name.startswith("sharedindex.") and one.is_file()]


def _stamps(folder: Path) -> Iterator[tuple[str, Stamp]]:
    """Of each file that git may stumble over; where there are too many, an entry without a name."""
    waiting = ["index", "HEAD.lock", "index.lock", "logs", "refs"]
    for _ in range(_MOST):
        if not waiting:
            return
        name = waiting.pop()
        try:
            found = os.lstat(folder / name)
        except OSError:
            continue
        if name.startswith(("logs", "refs")) and stat.S_ISDIR(found.st_mode):
            waiting += [f"{name}/{entry.name}" for entry in entries(folder / name)]
        else:
            yield name, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    yield _TOO_MANY, (0, 0, 0, 0)


def _plain(path: Path, most: int = _SMALL_BYTES) -> bytes | None:
    try:
        return read_plain(path, most)
    except OSError:
        return None


def _kinds(repo: Repository, names: set[bytes]) -> dict[bytes, bytes]:
    """Which of these objects exist, and what they are. Zeros stand for none, and are never missed."""
    asked = b"".join(name + b"\n" for name in sorted(names))
    words = ("cat-file", "--batch-check=%(objectname) %(objecttype)")
    rows = [row.split(b" ") for row in repo.git(*words, stdin=asked, timeout=_TIMEOUT).stdout.splitlines()]
    found = {row[0]: row[1] for row in rows if row[1:] != [b"missing"]}
    return found | {name: b"none" for name in names if not name.strip(b"0")}


def _is_sound(text: bytes | None, missing: frozenset[bytes]) -> bool:
    if text is None:
        return False
    if _BRANCH.fullmatch(text):
        return b".." not in text and b"//" not in text and b".lock" not in text
    return bool(_OID.fullmatch(text.rstrip(b"\n"))) and text.rstrip(b"\n") not in missing


def _sound_lines(text: bytes, missing: frozenset[bytes]) -> bytes:
    return b"".join(line[0] for line in _LINE.finditer(text) if missing.isdisjoint(line.groups()))


def _can_be_read(repo: Repository, worktree: Worktree) -> bool:
    """Whether git finds everything that an index names, in the way in which `git gc` looks for it."""
    git = repo.worktree_git(worktree.name, worktree.path)
    words = ("rev-list", "--single-worktree", "--objects", "--indexed-objects", "--quiet")
    return git(*words, ok=range(256), timeout=_TIMEOUT).status == 0


def _set_aside(folder: Path, name: str) -> bool:
    """Whether there was something; what a job put in the place of our folder is moved into it."""
    aside = folder / ASIDE
    taken = lstat(aside)
    if taken is not None and not stat.S_ISDIR(taken.st_mode):
        other = folder / f"{ASIDE}-{secrets.token_hex(4)}"
        aside.rename(other)
        aside.mkdir(mode=0o700)
        other.rename(aside / other.name)
    elif taken is not None:
        aside.chmod(0o700)
    else:
        aside.mkdir(mode=0o700)
    with suppress(FileNotFoundError):
        (folder / name).rename(aside / f"{name.replace('/', '-')[-64:]}-{secrets.token_hex(4)}")
        return True
    return False
