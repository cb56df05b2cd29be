"""Small files that only the user can read."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader finds the old one or the new one, whole."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    fresh.replace(path)
