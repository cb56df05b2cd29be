"""Pipes and devices in a folder of git's, found by looking and never by opening.

A job can leave a pipe called `HEAD` or `.gitignore` where git reads. It means nothing, no git works beside
it, and a pipe holds nothing that could be saved. So it is looked for before git is started, and named, not waited for.
"""

import os
import stat
from pathlib import Path

from orchard.files import read_plain
from orchard.git.folders import entries, remove_special

OTHERS = frozenset({b"modules", b"worktrees", b"orchard", b"hooks", b"lfs"})
"""Folders of a repository that are not looked into: no git that we start reads them for itself."""
ELSEWHERE = OTHERS | {b"objects"}
"""The same, and what is too large to look into before every git."""
ASKED_FIRST = (b"HEAD", b"config", b"config.worktree", b"commondir", b"gitdir")
"""What git reads before it knows in which repository it is."""
_READ_BY_OTHERS = ("HEAD", "gitdir", "locked", "commondir")
"""What a git that makes or lists worktrees reads of every one of them."""


def special_notes(git_dir: Path, skipped: frozenset[bytes] = ELSEWHERE) -> list[bytes]:
    """Pipes and devices in a folder of git's, outside of those that are skipped."""
    found: list[bytes] = []
    waiting = [b""]
    top = os.fsencode(git_dir) + b"/"
    while waiting:
        folder = waiting.pop()
        for entry in entries(top + folder):
            name = folder + entry.name
            if entry.is_dir(follow_symlinks=False):
                if folder or entry.name not in skipped:
                    waiting.append(name + b"/")
            elif not entry.is_file(follow_symlinks=False) and keeps_waiting(entry.path):
                found.append(name)
    return sorted(found)


def remove_blocked_notes(git_dir: Path) -> None:
    """Take those away; git's notes are then damaged as if the files had been deleted, which can be lived with."""
    for name in special_notes(git_dir):
        remove_special(git_dir, name)


def remove_links(notes: Path) -> None:
    """Take every link out of git's notes on a worktree of ours, before a git of ours writes there.

    Git puts none there but a HEAD that stands for a branch. It follows one that a job has put in the place of an index
    or a log, to wherever the job itself may not write.
    """
    waiting = [os.fspath(notes)]
    while waiting:
        for entry in entries(waiting.pop()):
            if entry.is_symlink():
                if entry.name != "HEAD" or not os.readlink(entry.path).startswith("refs/"):  # noqa: PTH115 (an entry)
                    Path(entry.path).unlink(missing_ok=True)
            elif entry.is_dir(follow_symlinks=False) and entry.name != "objects":
                waiting.append(entry.path)


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
