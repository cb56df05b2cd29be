"""What git is told to overlook in every checkout: a line of ours in `info/exclude`."""

import os
import re
from contextlib import suppress
from pathlib import Path

from orchard.errors import OrchardError
from orchard.files import read_plain
from orchard.git.folders import write_atomically
from orchard.git.repository import Repository


def exclude(repo: Repository, pattern: str) -> None:
    """Have git overlook a path in every checkout, by a line in `info/exclude`; the rest of the file stays."""
    escaped = re.sub(r"([\\*?\[])", r"\\\1", pattern).encode(errors="surrogateescape")
    place = Path(os.path.realpath(repo.common_dir / "info" / "exclude"))
    mode, before = 0o644, b""
    try:
        with suppress(FileNotFoundError):
            before, mode = read_plain(place), place.stat().st_mode & 0o777
        if escaped in before.splitlines():
            return
        joint = b"" if not before or before.endswith(b"\n") else b"\n"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, before + joint + escaped + b"\n", mode)
    except OSError as error:
        raise OrchardError(
            f"Git cannot be told to overlook the worktrees: {place} cannot be written ({error.strerror}).",
            hint="Make it a file that you can write, or set 'worktree_root' to a folder outside of the repository.",
        ) from error
