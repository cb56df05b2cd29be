"""Pipes and devices in a folder of git's, found by looking and never by opening.

A job can leave a pipe called `HEAD` or `.gitignore` where git reads. It means nothing, no git works beside
it, and a pipe holds nothing that could be saved. So it is looked for before git is started, and named, not waited for.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from orchard.files import held, read_plain
from orchard.git.folders import entries, make_ours, remove_special

OTHERS = frozenset({b"modules", b"worktrees", b"orchard", b"hooks", b"lfs"})
"""Folders of a repository that are not looked into: no git that we start reads them for itself."""
ELSEWHERE = OTHERS | {b"objects"}
"""The same, and what is too large to look into before every git."""
ASKED_FIRST = (b"HEAD", b"config", b"config.worktree", b"commondir", b"gitdir")
"""What git reads before it knows in which repository it is."""
MOST_NOTES = 500_000
"""Files and folders of git's notes on a worktree that are looked through; its submodules' loose objects are there."""
_READ_BY_OTHERS = ("HEAD", "gitdir", "locked", "commondir")
"""What a git that makes or lists worktrees reads of every one of them."""


def special_notes(git_dir: Path, skipped: frozenset[bytes] = ELSEWHERE) -> list[bytes]:
    """Pipes and devices in a folder of git's, outside of those that are skipped.

    A folder that cannot be listed is among them if git can still open what it knows by name there: a pipe, maybe.
    """
    found: list[bytes] = []
    waiting = [b""]
    top = os.fsencode(git_dir) + b"/"
    while waiting:
        folder = waiting.pop()
        inside = entries(top + folder)
        if not inside and _is_veiled(top + folder):
            found.append(folder.rstrip(b"/"))
        for entry in inside:
            name = folder + entry.name
            if entry.is_dir(follow_symlinks=False):
                if folder or entry.name not in skipped:
                    waiting.append(name + b"/")
            elif not entry.is_file(follow_symlinks=False) and keeps_waiting(entry.path):
                found.append(name)
    return sorted(found)


def remove_blocked_notes(git_dir: Path) -> None:
    """Take those away; git's notes are then damaged as if the files had been deleted, which can be lived with.

    A folder that cannot be listed is opened again, and looked into.
    """
    for _ in range(_VEILS):
        names = special_notes(git_dir)
        veiled = [name for name in names if _is_veiled(os.fsencode(git_dir) + b"/" + name)]
        for name in veiled:
            *around, last = os.fsdecode(name).split("/")
            with suppress(OSError), held(git_dir, *around) as place:
                make_ours(last or ".", place)
        for name in names:
            remove_special(git_dir, name)
        if not veiled:
            return


_VEILS = 100
"""Folders in each other that cannot be listed and are opened again; only a job that means to has more."""


def _is_veiled(folder: bytes) -> bool:
    """Whether a folder cannot be listed, though files in it can be opened by their names."""
    return os.access(folder, os.X_OK) and not os.access(folder, os.R_OK)


def remove_links(notes: Path) -> None:
    """Take every link out of git's notes on a worktree of ours, before a git of ours writes there.

    Git puts none there but a HEAD that stands for a branch. It follows one that a job has put in the place of an index
    or a log, to wherever the job itself may not write. OSError where not all of the notes can be seen.
    """
    for folder, name in links_in(notes):
        with held(notes, *folder) as place, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place)


def links_in(notes: Path) -> list[tuple[tuple[str, ...], str]]:
    """The links among git's notes but a HEAD that stands for a branch, each with the folders that lead to it.

    A job chooses the names of folders there (`modules/objects`), so none is passed over. OSError where one cannot be
    read, since git may still find a file there by its name, and where there are more than anybody's notes need.
    """
    found: list[tuple[tuple[str, ...], str]] = []
    waiting: list[tuple[str, ...]] = [()]
    seen = 0
    while waiting:
        folder = waiting.pop()
        with suppress(FileNotFoundError), held(notes, *folder) as place, os.scandir(place) as inside:
            for entry in inside:
                seen += 1
                if seen > MOST_NOTES:
                    raise OSError(errno.E2BIG, f"there are more than {MOST_NOTES} files", os.fspath(notes))
                if entry.is_symlink():
                    if entry.name != "HEAD" or not os.readlink(entry.name, dir_fd=place).startswith("refs/"):
                        found.append((folder, entry.name))
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((*folder, entry.name))
    return found


def foreign_notes(git_dir: Path) -> list[str]:
    """What is no file of a repository's own in its folder, though git takes it for one: a link anywhere, or a second
    name of a file (the objects of a clone have some)."""
    with held(git_dir) as place, os.scandir(place) as inside:
        shared = [one.name for one in inside if not one.is_dir(follow_symlinks=False) and _names(one) > 1]
    return sorted(["/".join((*folder, name)) for folder, name in links_in(git_dir)] + shared)


def _names(entry: os.DirEntry[str]) -> int:
    return entry.stat(follow_symlinks=False).st_nlink


def keeps_waiting(path: bytes) -> bool:
    """Whether opening this may take for ever. A socket is refused at once, and git itself puts one there."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 (bytes); git follows links here
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def waiting_worktrees(common_dir: Path) -> list[str]:
    """The notes on worktrees at which a git that makes or lists worktrees would wait, as paths in a repository."""
    folders = [entry.name for entry in entries(common_dir / "worktrees")]
    read = [f"worktrees/{name}/{file}" for name in folders for file in _READ_BY_OTHERS]
    return [name for name in read if keeps_waiting(os.fsencode(common_dir / name))]


def on_the_way(start: Path) -> tuple[Path, list[bytes]] | None:
    """The first folder, and the names in it, at which git would wait while it looks for the repository of a folder."""
    for folder in (start, *start.parents):
        own = folder / ".git"
        if keeps_waiting(os.fsencode(own)):
            return folder, [b".git"]
        looked = [own, *_named_by(own)] if os.path.lexists(own) else [folder] if (folder / "objects").is_dir() else []
        for place in looked:
            if found := [name for name in ASKED_FIRST if keeps_waiting(os.fsencode(place) + b"/" + name)]:
                return place, found
        if looked:
            return None
    return None


def _named_by(file: Path) -> list[Path]:
    """The folders of git's that the `.git` file of a worktree points at."""
    try:
        said = read_plain(os.path.realpath(file), 4096)
    except OSError:
        return []
    if not said.startswith(b"gitdir:"):
        return []
    git_dir = file.parent / os.fsdecode(said.removeprefix(b"gitdir:").strip())
    return [git_dir, git_dir.parent.parent]
