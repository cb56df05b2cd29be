"""`orchard bench`: how fast it is here, on the repository and the disk of the user."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
from msgspec.structs import asdict

from orchard.bench import floors, own, rounds
from orchard.bench.machine import Watch, caution, described
from orchard.bench.place import open_bench, scratch_parent
from orchard.bench.rounds import Report, Row, document, run_rounds
from orchard.errors import EXIT_DONE, OrchardError
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_of
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.render.lines import table as columns
from orchard.surfaces.cli.terminal import Terminal

NAMES = ("jobs", "worktrees", "merge", "journal", "start")
NEEDS: Mapping[str, Sequence[str]] = {"jobs": floors.PROGRAMS, "merge": ("sh",)}
WIDEST = 70


def _number(name: str, default: int, most: int, help: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(1, most), default=default, show_default=True, metavar="N", help=help)


@verb(
    "bench",
    examples="""
orchard bench
orchard bench jobs --jobs 60 --parallel 4
orchard bench --folder /mnt/fast --rounds 5 --json
""",
)
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(NAMES))
@_number("--jobs", 20, 1000, "How many jobs.")
@_number("--parallel", 4, 16, "Jobs at once.")
@_number("--rounds", 3, 25, "How often everything is measured; medians count.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    metavar="DIR",
    help="Measure in a scratch folder inside this one: on the disk that matters to you.",
)
def bench(
    terminal: Terminal, names: tuple[str, ...], jobs: int, parallel: int, rounds: int, folder: Path | None
) -> int:
    """It works in scratch copies and removes them: your checkout, branches and settings are not touched. Each figure
    stands beside that of a bare script that does the same without any of the promises, measured alternately in the same
    run.

    NAME is what to measure: jobs (whole plans), worktrees, merge, journal or start; without it, everything.
    """
    asked = own.Asked(jobs, parallel, rounds)
    chosen = tuple(dict.fromkeys(names)) or NAMES
    _check_programs(chosen)
    source = own.find_source(app_of(terminal).repo)
    parent = scratch_parent(folder)
    own.check_room(parent, source, asked.parallel)
    terminal.note(
        [("Measuring in scratch copies below ", ""), (safe(parent), "name"), ("; ctrl-c stops and cleans up.", "")]
    )
    watch = Watch(parent)
    with _terminated_like_interrupted():
        try:
            reports = {name: _measure(terminal, name, source, asked, watch, folder) for name in chosen}
        except KeyboardInterrupt:
            terminal.note(text.done("Interrupted; the scratch copies are removed."))
            raise
    facts = {**watch.facts(), **asdict(asked), "files": source.files, "bytes": source.bytes}
    terminal.answer(document(facts, reports), *_lines(facts, reports))
    return EXIT_DONE


def _check_programs(names: Sequence[str]) -> None:
    missing = floors.missing(*dict.fromkeys(program for name in names for program in NEEDS.get(name, ())))
    if missing:
        others = [name for name in own.MEASURES if not floors.missing(*NEEDS.get(name, ()))]
        raise OrchardError(
            f"The scripts to compare with need {', '.join(missing)}, which is not on the PATH.",
            hint=f"Install it, or measure without: orchard bench {' '.join(others)}",
        )


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Whatever asks us to end, the scratch copies are removed first."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    heard = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in heard:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


def _measure(
    terminal: Terminal, name: str, source: own.Source, asked: own.Asked, watch: Watch, folder: Path | None
) -> Report:
    """One measure in a scratch folder of its own, which is gone afterwards."""

    def begin(number: int) -> None:
        terminal.note([(f"{name:<10}", "strong"), (f" round {number} of {asked.rounds}", "dim")])

    watch.glance()
    with open_bench(parent=folder) as bench:
        return run_rounds(name, own.MEASURES[name](bench, source, asked), asked.rounds, begin=begin)


# ---------------------------------------------------------------------------------------- words


def _lines(facts: Mapping[str, object], reports: Mapping[str, Report]) -> list[Line]:
    rows = [row for report in reports.values() for row in report.rows]
    titles: list[tuple[str, ...]] = [("what", "floor", "ours", "ratio")]
    cells = titles + [(row.what, rounds.floor(row), rounds.ours(row), rounds.ratio(row)) for row in rows]
    drawn = columns(
        [[(cell, "dim" if number == 0 else "") for cell in row] for number, row in enumerate(cells)], WIDEST
    )
    said: list[Line] = [[(sentence, "")] for report in reports.values() for sentence in meaning(report.rows)]
    warning = caution(facts)
    return [
        [(f"{facts['files']:,} files, {_megabytes(facts)} MB. {described(facts)}", "dim")],
        [],
        *drawn,
        [],
        *said,
        *([text.warning(warning)] if warning else []),
    ]


def _megabytes(facts: Mapping[str, object]) -> str:
    return f"{float(str(facts['bytes'])) / 1e6:,.1f}"


def meaning(rows: Sequence[Row]) -> list[str]:
    first, second, last = rows[0], rows[min(1, len(rows) - 1)], rows[-1]
    ours, floor = rounds.ours(first), rounds.floor(first)
    match first.measure:
        case "jobs":
            return [
                f"Whole plan: {ours} from the start of the program to the landing, {rounds.ratio(first)} the plain "
                f"script and {rounds.ratio(second)} the pool script. "
                f"A plan of one job takes {rounds.ours(last)}: start and landing, which every plan pays once.",
                "Neither script survives being killed, keeps what a failed job wrote, or waits for the disk.",
            ]
        case "worktrees":
            return [
                f"Worktrees: {ours} for one that is made, saved and removed, and {rounds.ours(last)} in which no other "
                "can be made. Plans keep them warm and reset them, so most jobs pay less."
            ]
        case "merge":
            return [f"Merging: {ours} a leaf, where three git processes take {floor}."]
        case "journal":
            return [
                f"Journal: {first.ours:,.0f} events a second are safe on this disk; one at a time, {first.floor:,.0f}."
            ]
        case _:
            return [f"Start: {ours} for the version, {rounds.ours(last)} for the list of plans."]
