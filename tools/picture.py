"""Make docs/run.svg: the live tree of `orchard demo`, drawn from the journal of a real run.

The demo is run into a scratch folder. Its events are then replayed up to the busiest moment and to
the end, and both are drawn by the code that draws them on a terminal.
"""

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from orchard.app import App, open_app
from orchard.core.replay import apply, replay
from orchard.core.run import Run
from orchard.core.views.plans import plan_view
from orchard.model.events.plans import Recorded
from orchard.model.statuses import JobStatus
from orchard.store.reader import read
from orchard.surfaces.cli.render.lines import RICH, Line
from orchard.surfaces.cli.render.progress import picture
from orchard.surfaces.cli.render.summary import summary_lines
from orchard.surfaces.cli.render.text import MARKS
from orchard.surfaces.cli.render.tree import Look
from orchard.surfaces.next_steps import in_commands

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "run.svg"
WIDTH, HEIGHT = 100, 40


def main() -> int:
    """Run the demo and draw it."""
    with tempfile.TemporaryDirectory(prefix="orchard-picture-") as place:
        folder = Path(place) / "demo"
        subprocess.run([sys.executable, "-m", "orchard", "demo", "--folder", folder, "--quiet"], check=True)
        app = open_app(folder / "textkit", in_commands)
        with read(app.repo.state / "journal.db") as journal:
            events = list(journal.events())
        PICTURE.write_text(drawn(app, events), encoding="utf-8")
    return 0


def drawn(app: App, events: list[Recorded]) -> str:
    """Two moments of a run as one SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print("$ orchard run plan.yaml", style="bold", markup=False)
    for line in picture(*busiest(events), HEIGHT):
        console.print(styled(line), no_wrap=True, overflow="ellipsis")
    console.print("\n... a moment later, after `orchard retry measures/rare`\n", style="dim", markup=False)
    run = replay(events)
    place = str(app.repo.top)
    for line in summary_lines(app, run, plan_view(run, in_commands)):
        shown = [(text.replace(place, "textkit"), meaning) for text, meaning in line]
        console.print(styled(shown), no_wrap=True, overflow="ellipsis")
    form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="orchard", theme=MONOKAI, code_format=form, unique_id="run")


def busiest(events: list[Recorded]) -> tuple[Run, Look]:
    """The run at the moment when a job has failed and as many others as possible are at work."""
    best, most = 0, -1
    run = Run(events[0].plan)
    for number, recorded in enumerate(events):
        apply(run, recorded)
        busy = run.counts[JobStatus.RUNNING] + (10 if run.counts[JobStatus.FAILED] else 0)
        if busy >= most:
            best, most = number, busy
    return replay(events[: best + 1]), Look(events[best].at, MARKS)


def styled(line: Line) -> Text:
    """A line as rich draws it."""
    text = Text()
    for piece, meaning in line:
        text.append(piece, RICH[meaning] or None)
    return text


if __name__ == "__main__":
    sys.exit(main())
