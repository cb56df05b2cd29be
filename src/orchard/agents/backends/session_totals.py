"""Programs that tell the sum of a whole session: what was told of it before, so that a later turn tells the rest."""

import json
from collections.abc import Mapping
from pathlib import Path

from orchard.agents.backends.stream import count, part, write_private

MOST_SESSIONS = 100
MOST_BYTES = 256 * 1024

Counts = dict[str, int]


class Totals:
    """What was told of each session, in a file of the job's own; one that is damaged is as good as none."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._sessions = _read(file)

    def told(self, session: str | None) -> Counts | None:
        """What was told of a session in earlier turns; None: it is not known here."""
        return self._sessions.get(session) if session is not None else None

    def remember(self, session: str, counts: Mapping[str, int]) -> None:
        self._sessions.pop(session, None)
        self._sessions[session] = dict(counts)
        newest = dict(list(self._sessions.items())[-MOST_SESSIONS:])
        write_private(self._file, json.dumps(newest))


def _read(file: Path) -> dict[str, Counts]:
    try:
        with file.open("rb") as opened:
            sessions = part(json.loads(opened.read(MOST_BYTES)))
    except (OSError, ValueError, RecursionError):
        return {}
    return {
        name: {key: count(value) for key, value in row.items()}
        for name, row in sessions.items()
        if isinstance(row, dict)
    }
