"""Files to their places and back again, one by one, so that no edit is ever lost.

    place       every new file to where it belongs; the old ones are kept aside
    take_back   every old file to where it was
    verify      whether all of it is as it should be, and no program has written to a file that is kept aside

A new file and an old one change places in one step, so that there is no moment without a file. What has come out is
then looked at: if it is not exactly what stood there at the first look, a user edited it in the last instant, and it
goes back. No link on the way to a path is followed: a folder may become a link to where its files went, or a link the
folder that it led to, and a file behind it stands at another path. Both directions can be interrupted anywhere and
called again; each path is judged by what is found there, and a file that is neither the old nor the new one is left
alone and named.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from orchard.git.folders import parents, put, swap, take
from orchard.git.landing.claim import same_file
from orchard.git.landing.intent import Intent, Item, is_same, is_untouched, stand
from orchard.git.objects.reader import GITLINK
from orchard.process.failpoint import failpoint


class Theirs(Exception):
    """Another program has written to this path meanwhile."""

    def __init__(self, path: bytes) -> None:
        super().__init__(path)
        self.path = path


Knows = Callable[[Item, bytes], bool]
"""Whether the file at a place is the new one of this item (or the old one), whatever its inode says."""


# ------------------------------------------------------------------------------------ forth


def place(intent: Intent) -> None:
    """Bring every new file to its place; Theirs names the first path where another program was faster."""
    for item in intent.items:
        if not item.will:
            _forth(intent, item, _take)
    for folder, _ in intent.emptied:
        if intent.hidden(folder):
            continue  # the link that comes for it is there already; any other is found when that one is put
        try:
            os.rmdir(_below(intent, folder))  # noqa: PTH106 (bytes)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise Theirs(folder) from error
    for folder in intent.made:
        if intent.hidden(folder):
            raise Theirs(folder)
        with suppress(FileExistsError):
            os.mkdir(_below(intent, folder))  # noqa: PTH102 (bytes)
    for item in intent.items:
        if item.will:
            _forth(intent, item, _swap if item.was else _put)


def _forth(intent: Intent, item: Item, step: Callable[[Intent, Item], None]) -> None:
    failpoint("checkout.before-rename")
    if not is_placed(intent, item):
        if intent.hidden(item.path):
            raise Theirs(item.path)
        step(intent, item)
    failpoint("checkout.after-rename")


def is_placed(intent: Intent, item: Item) -> bool:
    """Whether the new file is at its place already, or the old one is gone as it should."""
    if item.will:
        return is_same(intent.place(item), item.will) and not intent.hidden(item.path)
    return not item.was or bool(stand(intent.spare(item)))


def _take(intent: Intent, item: Item) -> None:
    where, spare = intent.place(item), intent.spare(item)
    if not is_untouched(where, item.was):
        raise Theirs(item.path)
    take(where, spare)
    if not is_same(spare, item.was):
        put(spare, where)
        raise Theirs(item.path)


def _swap(intent: Intent, item: Item) -> None:
    where, staged = intent.place(item), intent.staged(item)
    if not is_untouched(where, item.was):
        raise Theirs(item.path)
    try:
        swapped = swap(staged, where)
    except FileNotFoundError as error:
        raise Theirs(item.path) from error
    if not swapped:
        _take(intent, item)
        _put(intent, item)
    elif not is_same(staged, item.was):
        swap(staged, where)
        raise Theirs(item.path)


def _put(intent: Intent, item: Item) -> None:
    try:
        put(intent.staged(item), intent.place(item))
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        raise Theirs(item.path) from error


def verify(intent: Intent) -> bytes | None:
    return next((item.path for item in unlike(intent)), None)


def unlike(intent: Intent) -> Iterator[Item]:
    """Every path where the checkout is not as this landing or undo should leave it."""
    for item in intent.items:
        if item.will and not is_placed(intent, item):
            yield item
            continue
        aside = kept_aside(intent, item)
        if item.was and (aside is None or not is_same(aside, item.was)):
            yield item


# ------------------------------------------------------------------------------------ and back


def take_back(intent: Intent, knows: Knows, knew: Knows) -> list[bytes]:
    """Bring every old file back to its place; paths where another program has written are left alone and returned."""
    theirs = [item.path for item in intent.items if item.will and not _back(intent, item, knows, knew)]
    for folder in reversed(intent.made):
        _remove_if_empty(intent, folder)
    for folder, mode in reversed(intent.emptied):
        if intent.hidden(folder):
            continue
        with suppress(OSError):
            os.mkdir(_below(intent, folder))  # noqa: PTH102 (bytes)
            os.chmod(_below(intent, folder), mode)  # noqa: PTH101 (bytes)
    return theirs + [item.path for item in intent.items if not item.will and not _back(intent, item, knows, knew)]


def _back(intent: Intent, item: Item, knows: Knows, knew: Knows) -> bool:
    """Put one path back; False if it is another program's by now."""
    hidden = intent.hidden(item.path)
    if not hidden:
        _end_half_a_put(intent, item)
    where, staged, aside = intent.place(item), intent.staged(item), kept_aside(intent, item)
    if item.will and aside is None and stand(staged):
        return True  # the new file never left
    if hidden:
        return aside is None  # by a link that is not ours: ours have gone back by now
    here = stand(where)
    if here and not _is_ours(item, where, knows):
        # An old file that never left is as it should be; all else is theirs.
        left = aside is not None and not (aside == staged and _is_ours(item, staged, knows))
        return not left and (is_same(where, item.was) or knew(item, where) if item.was else not item.will)
    if here and aside == staged:
        if swap(staged, where):
            return _is_ours(item, staged, knows) or not swap(staged, where)
        aside = intent.spare(item)
        take(staged, aside)
    if here:
        take(where, staged)
        if not _is_ours(item, staged, knows):
            put(staged, where)
            return False
    if aside is None:
        return True
    with suppress(FileExistsError):
        os.makedirs(os.path.dirname(where), exist_ok=True)  # noqa: PTH103, PTH120 (bytes)
    try:
        put(aside, where)
    except (FileExistsError, NotADirectoryError):
        return False
    return True


def _is_ours(item: Item, place: bytes, knows: Knows) -> bool:
    return bool(item.will) and (is_same(place, item.will) or knows(item, place))


def _end_half_a_put(intent: Intent, item: Item) -> None:
    """Where an engine died in a `put` of two steps, the file has two names: the one in our stage goes."""
    where = Path(os.fsdecode(intent.place(item)))
    for own in (intent.staged(item), intent.spare(item)):
        if same_file(Path(os.fsdecode(own)), where):
            os.unlink(own)  # noqa: PTH108 (bytes)


def kept_aside(intent: Intent, item: Item) -> bytes | None:
    """Where the file lies that stood at this path, if it was moved."""
    if not item.was:
        return None
    spare, staged = intent.spare(item), intent.staged(item)
    if stand(spare):
        return spare
    return staged if item.will and stand(staged) and not is_same(staged, item.will) else None


# ------------------------------------------------------------------------------------ afterwards


def remove_empty_folders(intent: Intent) -> None:
    """Folders that held only what has gone, as git removes them."""
    gone = [item for item in intent.items if not item.will and (item.was or _was_submodule(item))]
    folders = {folder for item in gone for folder in (*parents(item.path), *([] if item.was else [item.path]))}
    for folder in sorted(folders, key=lambda one: one.count(b"/"), reverse=True):
        _remove_if_empty(intent, folder)


def _remove_if_empty(intent: Intent, folder: bytes) -> None:
    if not intent.hidden(folder):
        with suppress(OSError):
            os.rmdir(_below(intent, folder))  # noqa: PTH106 (bytes)


def _was_submodule(item: Item) -> bool:
    return item.new is None and item.old is not None and item.old.mode == GITLINK


def edited_aside(intent: Intent) -> Iterator[tuple[Item, bytes]]:
    """Old files that a program has written to after they were moved, through a descriptor that was open before."""
    for item in intent.items:
        aside = kept_aside(intent, item)
        if aside is not None and not is_same(aside, item.was) and stat.S_ISREG(int(stand(aside)[0])):
            yield item, aside


def _below(intent: Intent, folder: bytes) -> bytes:
    return os.fsencode(intent.top) + b"/" + folder
