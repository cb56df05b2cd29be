"""`orchard graph`: a plan drawn for a page, for graphviz, or for the eye."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from orchard.core.views.graph import Statuses, dot, edges, mermaid, svg
from orchard.errors import UsageError
from orchard.model.plan import Plan
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal, is_terminal

FORMATS: Mapping[str, Callable[[Plan, Statuses | None], str]] = {"mermaid": mermaid, "dot": dot, "svg": svg}


def show_graph(terminal: Terminal, plan: Plan, statuses: Statuses | None, form: str, output: Path | None = None) -> int:
    """Print a plan in one of the `FORMATS`, or write it to a file."""
    picture = draw(plan, statuses, form)
    if output is not None:
        _write(output, picture)
        terminal.note([(f"Wrote {safe(output)}", "")])
    if terminal.json:
        jobs = [{"id": job.id, "name": job.name, "group": job.group} for job in plan.jobs.values()]
        arrows = [[need, job] for need, job in edges(plan)]
        terminal.data({"format": form, "graph": picture, "jobs": jobs, "edges": arrows})
    elif output is None:
        lines: list[Line] = [[(line, "")] for line in picture.splitlines()]
        terminal.show(*lines)
        _advise(terminal, form)
    return 0


def draw(plan: Plan, statuses: Statuses | None, form: str) -> str:
    if form not in FORMATS:
        raise UsageError(f"There is no format '{safe(form)}'.", f"Choose one of {', '.join(FORMATS)}.")
    return FORMATS[form](plan, statuses)


def _advise(terminal: Terminal, form: str) -> None:
    if form == "svg" and is_terminal(sys.stdout):
        terminal.note([("hint: ", "wait"), ("add '--output plan.svg' and open that file in a browser", "")])


def _write(output: Path, picture: str) -> None:
    try:
        output.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write '{safe(output)}': {error.strerror}.") from error
