"""`orchard waiting`: everything in this repository that needs a person, and what to type."""

from orchard.core.views.documents import Waiting
from orchard.errors import EXIT_DONE, EXIT_WAITING
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_of
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal

NOTHING = "Nothing waits for a person."


@verb("waiting", examples="orchard waiting\norchard waiting --quiet || echo 'Orchard needs you'")
def waiting(terminal: Terminal) -> int:
    """Show what needs a person, with the command that answers it.

    The exit code is 4 when something waits, in any plan of this repository, and 0 when nothing does.
    """
    found = app_of(terminal).waiting()
    lines = [line for row in found for line in waiting_lines(row)]
    terminal.answer(found, *(lines or ([] if terminal.quiet else [text.done(NOTHING)])))
    return EXIT_WAITING if found else EXIT_DONE


def waiting_lines(row: Waiting) -> list[Line]:
    """One thing that waits: where, why, since when, and what to type."""
    where = f"{row.plan} ({safe(row.name, 60)})"
    job = "" if row.job is None or row.job.startswith("__") else f", job {safe(row.job)}"
    since = f"  since {text.day(row.since)}" if row.since else ""
    return [
        [(safe(where), "strong"), (job, ""), (since, "dim")],
        [("  ", ""), (safe(row.reason, 2000), "wait")],
        [("  next: ", "dim"), (safe(row.command), "strong")],
    ]
