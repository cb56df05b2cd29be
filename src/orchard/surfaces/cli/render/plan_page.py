"""A plan on a page of its own: its tree, its result, and what a person asks next."""

import sys
import time
from collections.abc import Sequence

from msgspec.structs import replace

from orchard.core.views.documents import JobView, PlanView
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line
from orchard.surfaces.cli.render.tree import Look, counts_line, end_lines, header, result_line, tree
from orchard.surfaces.cli.terminal import speaks_utf8


def status_lines(document: PlanView, jobs: Sequence[JobView]) -> list[Line]:
    """A plan with these of its jobs, and everything that a person asks next."""
    plan, look = document.plan, look_now(details=True)
    lines = [header(plan, look), *tree(plan, jobs, look), counts_line(plan)]
    result = result_line(document)
    told = plan.status == "waiting" and any(job.waiting for job in jobs)  # under the job, above
    return [*lines, *([result] if result else []), *end_lines(replace(plan, error=None) if told else plan)]


def look_now(*, details: bool = False) -> Look:
    """How to draw on this terminal, at this moment."""
    return Look(time.time(), text.MARKS if speaks_utf8(sys.stdout) else text.ASCII_MARKS, details)
