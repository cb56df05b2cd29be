"""What is about to happen in a checkout of the user's, written down before the first file of it moves.

For every path it says what the old and the new commit hold there, which file stood there when we looked, and which file
git has prepared for it. A file is known again by its inode, size and time (renaming changes none of them); where they
say nothing, by its content. So after a crash the next engine can tell for each path whether the file is the old one,
the new one, or one that another program wrote.

    Item     one path          Intent   all of them, and where everything lies
    stand    what tells a file from another, or from the same one after an edit
"""

import hashlib
import json
import os
import shlex
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.files import open_plain, sync_folder
from orchard.git.folders import behind_link, lstat, plain_content, write_atomically
from orchard.git.objects.reader import Entry

FILE_NAME = "intent.json"
DONE_NAME = "done.json"

RECENT = 0.1
RECENT_COARSE = 2.5
"""Within so many seconds two edits may leave one time; the second figure is for file systems that count in seconds."""

Stand = tuple[int | str, ...]
"""Type and mode, inode, size, time of the last edit, and a digest where that proves nothing; () for no file.

A first look adds the time of the last change of any kind, if it took no digest; it is not written down, because our own
renaming changes it.
"""


class Item(NamedTuple):
    path: bytes
    old: Entry | None
    new: Entry | None
    was: Stand
    """The file that stood there when we looked; () where there was none, or where it is not ours to take."""
    will: Stand
    """The file that was prepared for it; () where there is to be none."""


class Intent(Struct, frozen=True):
    top: Path
    git_dir: Path
    branch: str
    old: str
    new: str
    stage: Path
    index: Stand
    items: tuple[Item, ...]
    emptied: tuple[tuple[bytes, int], ...] = ()
    """Folders that have to make way for a file, with their modes."""
    made: tuple[bytes, ...] = ()
    done: bool = False

    def place(self, item: Item) -> bytes:
        return os.fsencode(self.top) + b"/" + item.path

    def hidden(self, path: bytes) -> bool:
        """Whether a link stands for one of the folders that this path is in: nothing is there, or can be put there."""
        return behind_link(os.fsencode(self.top), path)

    def staged(self, item: Item) -> bytes:
        """Where the new file waits; after the two have changed places, the old one lies here."""
        return os.fsencode(self.stage) + b"/new/" + item.path

    def spare(self, item: Item) -> bytes:
        """Where an old file goes that no new one changes places with."""
        return os.fsencode(self.stage) + b"/old/" + hashlib.sha256(item.path).hexdigest().encode()


def stand(where: bytes) -> Stand:
    try:
        status = os.lstat(where)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return stand_of(status)


def stand_of(status: os.stat_result) -> Stand:
    return status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, ""


def first_look(where: bytes, status: os.stat_result) -> Stand:
    """How a file stands, told so that an edit from now on will show in any case."""
    coarse = status.st_mtime_ns % 1_000_000 == 0
    age = time.time() - max(status.st_mtime, status.st_ctime)
    # The time of the last change tells what hides from all else, until the file is renamed under any of its names.
    if status.st_nlink == 1 and age > (RECENT_COARSE if coarse else RECENT):
        return (*stand_of(status), status.st_ctime_ns)
    return (*stand_of(status)[:4], _digest(where))


def is_same(where: bytes, known: Stand) -> bool:
    now = stand(where)
    if not now or not known or now[:4] != known[:4]:
        return False
    return not known[4] or _digest(where) == known[4]


def is_untouched(where: bytes, known: Stand) -> bool:
    """Whether the file of a first look is as it was, also if an edit has kept its size and time; before it is moved."""
    found = lstat(where)
    return found is not None and known[5:] in ((), (found.st_ctime_ns,)) and is_same(where, known)


def _digest(where: bytes) -> str:
    try:
        if stat.S_ISLNK(os.lstat(where).st_mode):
            return hashlib.sha256(os.readlink(where)).hexdigest()  # noqa: PTH115 (bytes)
        with open_plain(where) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"


# ------------------------------------------------------------------------------------ on disk


def write_intent(claim: Path, intent: Intent) -> None:
    row = {
        "top": str(intent.top), "git_dir": str(intent.git_dir), "branch": intent.branch, "stage": str(intent.stage),
        "old": intent.old, "new": intent.new, "index": intent.index,
        "items": [[os.fsdecode(one.path), one.old, one.new, one.was[:5], one.will] for one in intent.items],
        "emptied": [[os.fsdecode(path), mode] for path, mode in intent.emptied],
        "made": [os.fsdecode(path) for path in intent.made],
    }  # fmt: skip
    write_atomically(claim / FILE_NAME, json.dumps(row).encode(), 0o600)
    sync_folder(claim)


def mark_done(claim: Path) -> None:
    with suppress(FileNotFoundError):
        (claim / FILE_NAME).rename(claim / DONE_NAME)


class DamagedNotes(OrchardError):
    """Something lies where an intent belongs, and is none: a disk failed, or another program put it there."""

    def __init__(self, place: Path) -> None:
        remove = f"{'rm -r' if place.is_dir() else 'rm'} {shlex.quote(str(place))}"
        super().__init__(
            f"{place} is not what Orchard noted there about a landing or an undo: how far that came is not known.",
            hint=f"See with 'git status' that this checkout is as it should be, then: {remove}",
        )


def read_intent(claim: Path) -> Intent | None:
    """What was written down; None if nothing was: then no file has moved yet. It is there as a whole or not at all."""
    for name in (FILE_NAME, DONE_NAME):
        place = claim / name
        content = plain_content(place)
        if content is None and not os.path.lexists(place):
            continue
        try:
            return _intent(json.loads(content or b""), done=name == DONE_NAME)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DamagedNotes(place) from error
    return None


def _intent(row: Any, *, done: bool) -> Intent:
    return Intent(
        Path(_text(row["top"])), Path(_text(row["git_dir"])), _text(row["branch"]), _text(row["old"]),
        _text(row["new"]), Path(_text(row["stage"])), _stand(row["index"]), tuple(_item(one) for one in row["items"]),
        tuple((os.fsencode(_text(path)), int(mode)) for path, mode in row["emptied"]),
        tuple(os.fsencode(_text(path)) for path in row["made"]), done=done,
    )  # fmt: skip


def _item(row: Sequence[Any]) -> Item:
    path, old, new, was, will = row
    return Item(os.fsencode(_text(path)), _entry(old), _entry(new), _stand(was), _stand(will))


def _entry(row: Sequence[Any] | None) -> Entry | None:
    if not row:
        return None
    mode, oid = row
    return Entry(int(mode), _text(oid))


def _stand(row: Sequence[Any]) -> Stand:
    if len(row) not in (0, 5):
        raise ValueError("a file stands otherwise")
    return tuple(row)


def _text(value: Any) -> str:
    if not isinstance(value, str) or b"\0" in os.fsencode(value):
        raise ValueError("no text, or none that a path can have")
    return value
