"""Pipes and devices in a folder of git's, found by looking and never by opening."""

import os
import stat
from pathlib import Path

OTHERS = frozenset({b"modules", b"worktrees", b"orchard", b"hooks", b"lfs"})
"""Folders of a repository that are not looked into: no git that we start reads them for itself."""
ELSEWHERE = OTHERS | {b"objects"}
"""The same, and what is too large to look into before every git."""


def special_notes(git_dir: Path, skipped: frozenset[bytes] = ELSEWHERE) -> list[bytes]:
    """Pipes and devices in a folder of git's, outside of those that are skipped."""
    found: list[bytes] = []
    waiting = [b""]
    top = os.fsencode(git_dir) + b"/"
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(top + folder))
        except OSError:
            continue
        for entry in entries:
            name = folder + entry.name
            if entry.is_dir(follow_symlinks=False):
                if folder or entry.name not in skipped:
                    waiting.append(name + b"/")
            elif not entry.is_file(follow_symlinks=False) and keeps_waiting(entry.path):
                found.append(name)
    return sorted(found)


def keeps_waiting(path: bytes) -> bool:
    """Whether opening this may take for ever. A socket is refused at once, and git itself puts one there."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 (bytes); git follows links here
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
