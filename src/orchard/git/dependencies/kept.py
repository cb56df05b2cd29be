"""Worktrees that wait for the next run, with what setting them up has left in them.

A note of ours beside the journal says of each where it stands and how git's index of it looked; whoever takes it over
looks whether that still holds. The note is written when everything else is done, and taking it away is how one process
claims the worktree: a worktree without a note is nobody's, and is saved and removed like any other stray. So a crash
at any moment leaves a worktree that can be trusted, or one that goes.
"""

import hashlib
import os
import stat
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from orchard.errors import OrchardError
from orchard.files import read_own, replace_whole
from orchard.git.folders import parents, plain_content, walk
from orchard.git.refs import wip_ref
from orchard.git.repository import WORKTREE_NAME, Repository, Worktree
from orchard.git.worktree.fitness import Ready
from orchard.git.worktree.save import ensure_saved
from orchard.git.worktree.status import Contents, Left, seen_as, usual_modes
from orchard.git.worktree.worktrees import Worktrees
from orchard.model.plan import STRAYS

FORM = 1
DAYS = 7.0
WORTH = 5_000
"""Files from which a worktree is worth keeping: with fewer, making one takes less than a third of a second."""
LARGEST = 256 << 20
_FOLDER = "kept"
_READY = ".ready"
_CHECKOUT_KEYS = r"^(core\.(autocrlf|eol|filemode|symlinks|sparsecheckout|attributesfile|safecrlf)|filter\..*)$"
WHY = "orchard: found in a worktree that waited for the next run"


class Kept(Struct, frozen=True, kw_only=True):
    form: int = FORM
    name: str
    path: str
    commit: str
    """What is checked out there."""
    index: tuple[int, ...]
    """The stamp of git's index, which no other git has written to since."""
    rules: str
    """What else decides how files are checked out, see `checkout_rules`."""
    attributes: tuple[tuple[bytes, str], ...] = ()
    """The files `.gitattributes` of that commit, which take a fifth of a second to find among 60,000 files."""
    ignored: tuple[bytes, ...] = ()
    """What git ignores there, a folder as a whole as one name."""
    size: int
    at: float

    @property
    def worktree(self) -> Worktree:
        return Worktree(self.name, Path(self.path))

    @property
    def content(self) -> Left:
        """What the worktree held when it was left; who uses it looks first whether it still does."""
        none: tuple[bytes, ...] = ()
        contents = Contents(
            head=self.commit,
            changed=none,
            staged=none,
            untracked=none,
            ignored=self.ignored,
            unmerged=none,
            submodules=none,
            nested=none,
            special=none,
            empty_folders=False,
            hidden=False,
        )
        return seen_as(self.worktree.path, contents, None)

    @property
    def is_old(self) -> bool:
        return not 0 <= time.time() - self.at < DAYS * 86_400


def note_kept(repo: Repository, kept: Kept, ready: Ready | None) -> None:
    folder = repo.state / _FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if ready is not None:
        replace_whole(folder / (kept.name + _READY), msgspec.msgpack.encode(ready))
    replace_whole(folder / kept.name, msgspec.json.encode(kept))


def kept_worktrees(repo: Repository) -> list[Kept]:
    """The newest first; a note that cannot be read is none."""
    found: list[Kept] = []
    for place in (repo.state / _FOLDER).iterdir() if (repo.state / _FOLDER).is_dir() else ():
        with suppress(OSError, msgspec.MsgspecError):
            kept = msgspec.json.decode(read_own(place, LARGEST), type=Kept)
            if kept.form == FORM and kept.name == place.name and Path(kept.path).name == kept.name:
                found.append(kept)
    return sorted((one for one in found if WORKTREE_NAME.fullmatch(one.name)), key=lambda one: -one.at)


def usable_root(repo: Repository, setting: str) -> Path | None:
    """Where worktrees wait; None where that folder cannot be used now, so that none does."""
    try:
        return repo.worktree_root(setting)
    except OrchardError:
        return None


def ready_of(repo: Repository, name: str) -> Ready | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.msgpack.decode(read_own(repo.state / _FOLDER / (name + _READY), LARGEST), type=Ready)
    return None


def claim(repo: Repository, name: str) -> bool:
    """Take a note away, so that the worktree is ours; False: another process was faster."""
    place = repo.state / _FOLDER / name
    try:
        place.unlink()
    except OSError:
        return False
    place.with_name(name + _READY).unlink(missing_ok=True)
    return True


def let_go(repo: Repository, kept: Kept, root: Path) -> bool:
    """Remove a worktree that waits, after saving what somebody may have put there; False: it is not ours to remove.

    Where the repository was moved, it lies below `root` now.
    """
    if not claim(repo, kept.name):
        return False
    worktree = kept.worktree if kept.worktree.path.exists() else Worktree(kept.name, root / kept.name)
    trees = Worktrees(repo, worktree.path.parent)
    saved = ensure_saved(repo, worktree, wip_ref(STRAYS, kept.name, 1), WHY, kept.commit)
    trees.remove(worktree, saved)
    return True


def let_go_of_all(repo: Repository, root: Path, before: float | None = None) -> list[Kept]:
    """Remove the worktrees that wait since before a moment, or all; returns those that went."""
    gone: list[Kept] = []
    for kept in kept_worktrees(repo):
        if before is None or kept.at < before:
            with suppress(OrchardError, OSError):  # it has no note any more: the next engine says what is in the way
                gone += [kept] if let_go(repo, kept, root) else []
    for place in {root, *(Path(kept.path).parent for kept in gone)}:
        trees = Worktrees(repo, place)
        trees.empty_trash()
        trees.drop_empty_root()
    return gone


def checkout_rules(repo: Repository) -> str:
    """What changes with the settings by which git writes files, such as line ends, filters and sparse checkouts."""
    digest = hashlib.sha256(repo.git("config", "-z", "--get-regexp", _CHECKOUT_KEYS, ok=(0, 1)).stdout)
    for name in ("info/attributes", "info/sparse-checkout"):
        with suppress(OSError):
            digest.update(b"\0" + (plain_content(repo.common_dir / name) or b""))
    return digest.hexdigest()


def is_sparse(repo: Repository, name: str) -> bool:
    """Whether a worktree lacks files, as the user's checkout did when it was made."""
    return (repo.state / "sparse" / name).exists()


def weight(folder: Path, set_up: Collection[bytes]) -> int | None:
    """How much of the disk a worktree takes; None where git would have given a file other rights, or no second name.

    What setting it up has left is as that left it.
    """
    top, size, usual = os.fsencode(folder), 0, usual_modes(folder)
    inside = {above for name in set_up for above in parents(name)}
    for place, folders, names in walk(top):
        below = place[len(top) + 1 :] + b"/" if place != top else b""
        for name in names:
            found = os.lstat(place + b"/" + name)
            size += found.st_blocks * 512
            odd = found.st_mode not in usual or found.st_nlink != 1
            if odd and not stat.S_ISLNK(found.st_mode) and below + name not in set_up:
                return None
        for name in folders:
            mode = os.lstat(place + b"/" + name).st_mode
            if mode not in usual and not stat.S_ISLNK(mode) and below + name not in inside:
                return None
    return size
