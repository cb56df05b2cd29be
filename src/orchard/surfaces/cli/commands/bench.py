"""`orchard bench`: how fast it is here, on the user's own repository and disk."""

from pathlib import Path

import click

from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.terminal import Terminal

NAMES = ("jobs", "worktrees", "merge", "journal", "start")
MOST_JOBS = 1000
MOST_PARALLEL = 16
MOST_ROUNDS = 25


@verb(
    "bench",
    examples="""
orchard bench
orchard bench jobs --jobs 60 --parallel 4
orchard bench --folder /mnt/fast --rounds 5 --json
""",
)
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(NAMES))
@click.option(
    "--jobs", type=click.IntRange(1, MOST_JOBS), default=20, show_default=True, metavar="N", help="How many jobs."
)
@click.option(
    "--parallel",
    type=click.IntRange(1, MOST_PARALLEL),
    default=4,
    show_default=True,
    metavar="N",
    help="Jobs at once.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, MOST_ROUNDS),
    default=3,
    show_default=True,
    metavar="N",
    help="How often everything is measured; medians count.",
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    metavar="DIR",
    help="Measure in a scratch folder inside this one: on the disk that matters to you.",
)
def bench(
    terminal: Terminal, names: tuple[str, ...], jobs: int, parallel: int, rounds: int, folder: Path | None
) -> int:
    """Everything happens in scratch copies, which are removed: your checkout, branches and settings are not touched.
    Each figure stands beside that of a bare script that does the same without any of the promises, taken by turns in
    the same run.

    NAME is what to measure: jobs (whole plans), worktrees, merge, journal or start; without it, everything.
    """
    from orchard.bench.own import Asked
    from orchard.surfaces.cli.render.bench import run_bench

    return run_bench(terminal, tuple(dict.fromkeys(names)) or NAMES, Asked(jobs, parallel, rounds), folder)
