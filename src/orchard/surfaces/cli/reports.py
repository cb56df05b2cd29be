"""What `run`, `do` and `wait` leave for other programs: a summary in Markdown and a report in JUnit's XML.

They are written however the plan ends. A report that cannot be written is said on stderr, and changes no exit code.
"""

import os
import time
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from orchard.app import App
from orchard.core.run import Run
from orchard.errors import UsageError
from orchard.store.redact import Redactor
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import safe
from orchard.surfaces.cli.terminal import Terminal

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The file that GitHub shows on the page of a workflow run; every step has its own, and programs append to it."""


class Reports(Struct, frozen=True):
    """Which files are wanted."""

    summary: Path | None = None
    junit: Path | None = None

    def check(self, *, detach: bool = False) -> None:
        """Refuse what cannot be done, before any job has run."""
        for name, path in (("--summary", self.summary), ("--junit", self.junit)):
            if path is None:
                continue
            if detach:
                raise UsageError(
                    f"'{name}' is written when the plan ends, and '--detach' does not wait for that.",
                    f"orchard run --detach, then: orchard wait {name} {safe(path)}",
                )
            if path.is_dir() or not path.parent.is_dir():
                raise UsageError(f"'{name}': '{safe(path)}' cannot be a file: look at its folder.")

    def write(self, terminal: Terminal, app: App, run: Run) -> None:
        """Write what is wanted of a plan as it is now."""
        step = os.environ.get(STEP_SUMMARY)
        if not (self.summary or self.junit or step) or not run.plan.jobs:
            return
        from orchard.core.views.markdown import plan_markdown
        from orchard.surfaces.cli.render.junit import plan_junit

        hide, view = Redactor(app.secrets(run)).text, app.document(run, not app.engine_alive())
        if self.junit:
            _write(terminal, self.junit, plan_junit(view, run, hide))
        if self.summary or step:
            page = plan_markdown(view, run, hide, time.time()).encode(errors="replace")
            if self.summary and not (step and _same(self.summary, Path(step))):
                _write(terminal, self.summary, page)
            if step:
                _write(terminal, Path(step), page, append=True)


NO_REPORTS = Reports()


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _write(terminal: Terminal, path: Path, content: bytes, *, append: bool = False) -> None:
    try:
        with path.open("ab" if append else "wb") as file:
            file.write(content)
    except OSError as error:
        terminal.tell(text.warning(f"'{safe(path)}' cannot be written: {error.strerror}."))


def report_options(function: Any) -> Any:
    """`--summary` and `--junit`."""
    file = click.Path(path_type=Path, dir_okay=False)
    function = click.option(
        "--junit", metavar="FILE", type=file, help="Write JUnit XML when the plan ends, one test case per job."
    )(function)
    return click.option(
        "--summary",
        metavar="FILE",
        type=file,
        help=f"Write a Markdown summary when the plan ends; {STEP_SUMMARY} gets one without this.",
    )(function)
