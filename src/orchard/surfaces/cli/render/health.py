"""How workers are: when something was seen of each, what it does now, and the conditions it is in."""

from collections.abc import Sequence

from orchard.core.views.documents import ActivityView, ConditionView
from orchard.model.health import ALARMS
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Meaning, Piece, safe

DOING = 60


def active(activity: ActivityView | None, now: float, most: int = DOING) -> str:
    """`active 3.0s ago: bash: make test`."""
    at = text.moment(activity.active_at) if activity is not None else None
    if activity is None or at is None:
        return ""
    past = max(0.0, now - at)
    when = "active now" if past < 2 else f"active {text.duration(past)} ago"
    return f"{when}: {safe(activity.doing, most)}" if activity.doing else when


def badges(conditions: Sequence[ConditionView]) -> list[Piece]:
    """The names of conditions, for the end of a row."""
    return [(f"  {safe(one.condition, 20)}", meaning(one.condition)) for one in conditions]


def evidence_lines(conditions: Sequence[ConditionView], indent: str) -> list[Line]:
    return [
        [(indent, ""), (f"{safe(one.condition, 20)}: ", meaning(one.condition)), (safe(one.evidence, 500), "")]
        for one in conditions
    ]


def meaning(condition: str) -> Meaning:
    return "bad" if condition in ALARMS else "wait"
