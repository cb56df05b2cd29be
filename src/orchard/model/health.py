"""Conditions in which a worker can be, and what is done about each: the table `[health]` of the configuration."""

from typing import Literal, get_args

from msgspec import Struct

Condition = Literal["idle", "slow", "stuck", "looping", "failing"]
Action = Literal["tell", "ask", "interrupt", "fail"]

CONDITIONS: tuple[Condition, ...] = get_args(Condition)
ACTIONS: tuple[Action, ...] = get_args(Action)
"""From the mildest to the most drastic."""
ALARMS: frozenset[str] = frozenset({"stuck", "looping", "failing"})
"""Conditions that say that something is wrong; the others only say how things are."""
UPDATES = {"idle": "idle_response", "slow": "progress", "stuck": "error", "looping": "error", "failing": "error"}
"""As which kind of update an agent is told of a condition of its subtask."""


class Health(Struct, frozen=True):
    """When a worker is in each condition (None or 0: never), and what is done about it."""

    idle: float | None = 30.0
    """Seconds that an idle worker waits before its parent, or a person, is told."""
    slow: float | None = 300.0
    """Seconds of one turn."""
    stuck: float | None = 300.0
    """Seconds without output, calls of tools, traffic of the model and use of CPU."""
    looping: int = 5
    """Equal calls in a row."""
    failing: int = 10
    """Calls, of which more than half failed."""
    on_idle: Action = "tell"
    on_slow: Action = "tell"
    on_stuck: Action = "tell"
    on_looping: Action = "tell"
    on_failing: Action = "tell"

    def action(self, condition: str) -> Action:
        found: Action = getattr(self, f"on_{condition}")
        return found
