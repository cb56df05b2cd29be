"""What the agents of a plan used, row by row and added up: by job, attempt, model, agent or phase.

A turn with several models has a row for each. Its time and the turn itself are counted in the row of the model that
took the most tokens, and the lines that a job changed in the first row of its last attempt: so every sum of rows,
however they are grouped, is the total.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.core.records import Attempt, JobRecord, Turn
from orchard.core.run import Run
from orchard.core.views.figures import AgentUsage, Figures, PlanName, UsageReport, UsageRow, UsageSum
from orchard.model.phases import Phase
from orchard.model.usage import Usage, by_model, total

By = Literal["job", "attempt", "model", "agent", "phase", "trigger"]
UNKNOWN = "unknown"


class Row(Struct, frozen=True):
    job: str
    attempt: int
    phase: str
    agent: str
    trigger: str
    model: str
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    session_seconds: float = 0.0
    lines_added: int = 0
    lines_deleted: int = 0


_KEYS: Mapping[By, Callable[[Row], str]] = {
    "job": attrgetter("job"),
    "attempt": lambda row: f"{row.job} #{row.attempt}",
    **{name: attrgetter(name) for name in ("model", "agent", "phase", "trigger")},
}


def usage_report(run: Run) -> UsageReport:
    rows = list(usage_rows(run))
    return UsageReport(
        PlanName(run.id, run.plan.name, run.status),
        added(rows),
        {by: {key: added(group) for key, group in grouped(rows, by).items()} for by in _KEYS},
        [UsageRow(**_added([row]), **{name: getattr(row, name) for name in _KEYS}) for row in rows],
    )


def usage_rows(run: Run) -> Iterator[Row]:
    for job, record in run.records.items():
        turns = ((attempt, turn) for attempt in record.attempts for turn in attempt.turns)
        yield from _with_lines([row for attempt, turn in turns for row in _turn_rows(job, attempt, turn)], record)


def grouped(rows: Iterable[Row], by: By) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_KEYS[by](row), []).append(row)
    return found


def added(rows: Iterable[Row]) -> UsageSum:
    return UsageSum(**_added(rows))


def _added(rows: Iterable[Row]) -> dict[str, Any]:
    found = list(rows)
    silent = any(row.usage.cost is None and (row.usage.tokens or row.usage.requests) for row in found)
    return {
        **figures_of(total(row.usage for row in found)),
        "cost_complete": not silent,
        "turns": sum(row.turns for row in found),
        "session_seconds": round(sum(row.session_seconds for row in found), 3),
        "lines_added": sum(row.lines_added for row in found),
        "lines_deleted": sum(row.lines_deleted for row in found),
    }


def _turn_rows(job: str, attempt: Attempt, turn: Turn) -> Iterator[Row]:
    used = turn.used or {turn.model or "": Usage(model=turn.model or "")}
    main = max(used, key=lambda model: used[model].tokens)
    seconds = max(0.0, turn.ended - turn.started) if turn.ended is not None else 0.0
    for model, usage in used.items():
        counts: dict[str, Any] = {"turns": 1, "session_seconds": seconds} if model == main else {}
        yield Row(job, attempt.number, str(turn.phase), turn.agent, turn.purpose, model or UNKNOWN, usage, **counts)


def _with_lines(rows: list[Row], record: JobRecord) -> list[Row]:
    """The rows with the lines that they wrote: what was committed after the work, and what healing added to it.

    Work that was done again takes the place of what was done before. Lines that no agent wrote are nobody's.
    """
    found, known = rows, (0, 0)
    for attempt in record.attempts:
        for phase, commit in attempt.commits:
            counts = commit.summary.get("lines_added", 0), commit.summary.get("lines_deleted", 0)
            if phase is Phase.COMMIT:
                found, known = list(rows), (0, 0)
            wrote = str(Phase.WORK if phase is Phase.COMMIT else phase)
            more = [max(0, now - before) for now, before in zip(counts, known, strict=True)]
            known = counts
            for number, row in enumerate(found):
                if (row.attempt, row.phase) == (attempt.number, wrote):
                    found[number] = replace(
                        row, lines_added=row.lines_added + more[0], lines_deleted=row.lines_deleted + more[1]
                    )
                    break
    return found


def agents_usage(usages: Iterable[Usage]) -> AgentUsage:
    return AgentUsage(**used_figures(usages))


def used_figures(usages: Iterable[Usage]) -> dict[str, Any]:
    models = by_model(usages)
    if not models:
        return {}
    return {
        **figures_of(total(models.values())),
        "models": {name or "unknown": Figures(**figures_of(one)) for name, one in models.items()},
    }


def figures_of(one: Usage) -> dict[str, Any]:
    """The fields of `Figures`; a cost that nobody knows is null."""
    return {
        "tokens": one.tokens,
        "input": one.input,
        "cached": one.cached,
        "cache_writes": one.cache_writes,
        "output": one.output,
        "requests": one.requests,
        "cost": None if one.cost is None else round(one.cost, 8),
        "cost_source": one.cost_source or None,
        "api_seconds": round(one.api_seconds, 3),
        **({"premium_requests": round(one.premium_requests, 3)} if one.premium_requests else {}),
    }
