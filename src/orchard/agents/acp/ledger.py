"""What a session has cost so far, kept beside it: agents tell the cost of the whole session, we that of the turn."""

import json
from contextlib import suppress
from pathlib import Path

from orchard.agents.acp.updates import dollars
from orchard.files import read_plain, replace_whole

_NAME = "acp-cost.json"
_MOST_BYTES = 64 * 1024


def spent_before(private: Path, session: str) -> float:
    """What the session had cost when the last turn ended; 0.0 where nothing is known."""
    try:
        noted = json.loads(read_plain(private / _NAME, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return 0.0
    if not isinstance(noted, dict) or noted.get("session") != session:
        return 0.0
    return dollars({"cost": noted}) or 0.0


def note_spent(private: Path, session: str, amount: float) -> None:
    """Keep it for the next turn. Where that fails, the next turn is told to have cost too much, not too little."""
    text = json.dumps({"session": session, "amount": amount, "currency": "USD"})
    with suppress(OSError):
        replace_whole(private / _NAME, text.encode())
