"""What a session has cost so far, kept beside it: agents tell the cost of the whole session, we that of the turn."""

import json
import os
from pathlib import Path

from orchard.agents.acp.updates import dollars

_NAME = "acp-cost.json"
_MOST_BYTES = 64 * 1024


def spent_before(private: Path, session: str) -> float:
    """What the session had cost when the last turn ended; 0.0 where nothing is known."""
    try:
        fd = os.open(private / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            noted = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return 0.0
    if not isinstance(noted, dict) or noted.get("session") != session:
        return 0.0
    return dollars({"cost": noted}) or 0.0


def note_spent(private: Path, session: str, amount: float) -> None:
    """Keep it for the next turn. Where that fails, the next turn is told to have cost too much, not too little."""
    text = json.dumps({"session": session, "amount": amount, "currency": "USD"})
    fresh = private / f"{_NAME}.new"
    try:
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
        fresh.replace(private / _NAME)
    except OSError:
        return
