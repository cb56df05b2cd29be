"""The repositories that a user has worked in: one small file each, so that `serve --all` finds them again.

A file is written whenever an engine opens. Nothing depends on it: a list that cannot be written is not kept. A
repository that is not there is passed over, because its disk may come back; after some weeks it is forgotten.
"""

import json
import os
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from orchard.files import replace_whole

FOLDER = "repositories"
FORGET_SECONDS = 60 * 86400.0
MOST = 1000
"""As many as are read; more repositories than this are not served by one program."""


def note_repository(state: Path, common_dir: Path, top: Path | None) -> None:
    place = state / FOLDER / f"{sha256(os.fsencode(common_dir)).hexdigest()[:16]}.json"
    text = json.dumps({"path": os.fsdecode(top or common_dir)})
    with suppress(OSError):
        if place.is_file() and place.read_text() == text:
            os.utime(place)
            return
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_whole(place, text.encode())


def known_repositories(state: Path) -> list[Path]:
    """The folders of the repositories that are still there, the one that was used last first."""
    found: list[tuple[float, Path]] = []
    with suppress(OSError):
        for place in sorted((state / FOLDER).glob("*.json"))[:MOST]:
            with suppress(OSError, ValueError, KeyError, TypeError):
                used, folder = place.stat().st_mtime, Path(json.loads(place.read_text())["path"])
                if folder.is_absolute() and folder.is_dir():
                    found.append((used, folder))
                elif used < time.time() - FORGET_SECONDS:
                    place.unlink()
    return [folder for _, folder in sorted(found, key=lambda one: -one[0])]
