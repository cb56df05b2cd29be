"""What the agents of a plan used, for people."""

from collections.abc import Mapping, Sequence

from orchard.core.views.figures import UsageReport, UsageRow, UsageSum
from orchard.core.views.words import amount, money
from orchard.model.usage import Usage
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Meaning, Piece, cells, safe, table

WAYS = ("job", "attempt", "model", "agent", "phase", "trigger")
HEADS = ("", "in", "cached", "out", "calls", "cost", "api", "session", "lines")
NAME_COLUMNS = 40
SOURCES: Mapping[str | None, str] = {
    "agent": "reported by the agent",
    "prices": "from a table of prices",
    "mixed": "partly told, partly from a table of prices",
    None: "",
}
NOTHING_USED = "No agent has worked on this plan yet."
INCOMPLETE = "+ not every agent tells what it costs, so it is at least so much"
HOW = "in: tokens sent, without those read from a cache; api: time spent waiting for models; session: time of the turns"


def usage_lines(document: UsageReport, by: str | None) -> list[Line]:
    whole = document.total
    head: Line = [(safe(document.plan.name, 80), "name"), (f"  {safe(document.plan.id)}", "dim")]
    if not document.rows:
        return [head, text.done(NOTHING_USED)]
    rows = _by_job(document) if by is None else _added(document.by[by])
    lines = [head, *_columns([*rows, ("total", whole, "strong")])]
    notes = [HOW]
    if whole.cost_source:
        notes.append(f"cost: in US dollars, {SOURCES[whole.cost_source]}")
    if whole.cost is not None and not whole.cost_complete:
        notes.append(INCOMPLETE)
    if whole.premium_requests:
        notes.append(f"premium requests: {whole.premium_requests:g}, taken off a monthly allowance")
    lines += [[(note, "dim")] for note in notes]
    return lines


Figures = tuple[str, UsageSum, Meaning]


def _added(groups: Mapping[str, UsageSum]) -> list[Figures]:
    return [(name, figures, "") for name, figures in groups.items()]


def _by_job(document: UsageReport) -> list[Figures]:
    """Each job, and below it what each attempt used with each model."""
    found: list[Figures] = []
    for job, figures in document.by["job"].items():
        found.append((job, figures, "name"))
        found += [(f"  {_label(row)}", row, "dim") for row in document.rows if row.job == job]
    return found


def _label(row: UsageRow) -> str:
    why = f" {row.trigger}" if row.trigger != "work" else ""
    return f"#{row.attempt}{why} {row.agent} {row.model}"


def _columns(rows: Sequence[Figures]) -> list[Line]:
    cells_of = [_cells(figures) for _, figures, _ in rows]
    widths = [max(cells(one) for one in column) for column in zip(HEADS[1:], *cells_of, strict=True)]

    def line(name: str, values: Sequence[str], meaning: Meaning) -> list[Piece]:
        indent = "  " if name.startswith("  ") else ""
        figures: Meaning = "" if meaning == "name" else meaning
        padded: list[Piece] = [(value.rjust(width), figures) for value, width in zip(values, widths, strict=True)]
        return [(indent + safe(name, 200), meaning), *padded]

    made = [line(HEADS[0], HEADS[1:], "dim")]
    made += [line(name, values, meaning) for (name, _, meaning), values in zip(rows, cells_of, strict=True)]
    return table(made, NAME_COLUMNS)


def _cells(figures: UsageSum) -> tuple[str, ...]:
    return (
        amount(figures.input + figures.cache_writes),
        amount(figures.cached),
        amount(figures.output),
        amount(figures.requests),
        money(figures.cost) + ("" if figures.cost is None or figures.cost_complete else "+"),
        text.duration(figures.api_seconds) if figures.api_seconds else "-",
        text.duration(figures.session_seconds) if figures.session_seconds else "-",
        f"+{figures.lines_added} -{figures.lines_deleted}" if figures.lines_added or figures.lines_deleted else "-",
    )


def brief(one: Usage) -> str:
    parts = [f"{amount(one.input + one.cache_writes + one.cached)} tokens in", f"{amount(one.output)} out"]
    if one.requests:
        parts.append(text.many(one.requests, "request"))
    if one.premium_requests:
        parts.append(f"{one.premium_requests:g} premium requests")
    if one.cost is not None:
        parts.append(f"{money(one.cost)} {SOURCES.get(one.cost_source, '')}".strip())
    return ", ".join(parts)
