"""`python -m bench [NAMES...] [--rounds N] [--quick] [--json] [--save FILE]`: our figures beside their floors."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bench import agents, daemon, gitside, health, jobs, page, proxy, rest, shapes, subtasks, walls
from bench.floors import ninja_program
from orchard.bench import floors
from orchard.bench.machine import Watch, caution, described
from orchard.bench.place import Bench, open_bench, scratch_parent
from orchard.bench.rounds import Measure, Report, document, run_rounds, table
from orchard.process.stopwatch import Broken

FEWEST_ROUNDS = 3
SCRIPTS = ("git", *floors.PROGRAMS)


@dataclass(frozen=True, slots=True)
class Entry:
    """A measure, and the programs that its floors are made of."""

    make: Callable[[Bench], Measure]
    needs: tuple[str, ...] = ("git",)


MEASURES: Mapping[str, Entry] = {
    # First: the kernel counts our own memory as that of the programs we start, and it only grows.
    "scaling": Entry(jobs.scaling),
    "medium": Entry(jobs.medium, SCRIPTS),
    "small": Entry(jobs.small, SCRIPTS),
    "layered": Entry(jobs.layered, ("git", "ninja")),
    "chain": Entry(jobs.chain, ("git", "ninja")),
    "fan-in": Entry(shapes.fan_in, SCRIPTS),
    "joins": Entry(shapes.joins),
    "writing": Entry(shapes.writing),
    "redaction": Entry(shapes.redaction),
    "listing": Entry(shapes.listing),
    "merge": Entry(gitside.merge, ("git", "sh")),
    "lock": Entry(gitside.lock),
    "journal": Entry(rest.journal),
    "decode": Entry(rest.decoding),
    "parse": Entry(rest.parsing),
    "start": Entry(rest.start),
    "agents": Entry(agents.agents, ("git", "sh")),
    "idle": Entry(rest.idle, ("git", "sleep")),
    "health": Entry(health.health, ("sleep",)),
    "subtasks": Entry(subtasks.subtasks),
    "proxy": Entry(proxy.proxy, ()),
    "walls": Entry(walls.walls, (*SCRIPTS, "bwrap")),
    "mcp": Entry(daemon.mcp),
    "daemon": Entry(daemon.daemon),
    "page": Entry(page.page),
}


def main(words: Sequence[str]) -> int:
    """Measure and print; 1 where a bar was missed, 2 where something could not be measured."""
    asked = _arguments(words)
    names = asked.names or list(MEASURES)
    unknown = [name for name in names if name not in MEASURES]
    missing = _missing([name for name in names if name in MEASURES])
    if missing or unknown:
        said = f"no measure '{unknown[0]}': {', '.join(MEASURES)}" if unknown else f"install {', '.join(missing)}"
        print(f"bench: {said}", file=sys.stderr)
        return 2
    rounds = 1 if asked.quick else max(FEWEST_ROUNDS, asked.rounds)
    watch = Watch(scratch_parent(None), look=0.0) if asked.quick else Watch(scratch_parent(None))
    try:
        reports = {name: _measure(name, rounds, watch, quick=asked.quick) for name in names}
    except Broken as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    facts = {**watch.facts(), "rounds": rounds, "quick": asked.quick}
    found = json.dumps(document(facts, reports), indent=1, ensure_ascii=False)
    if asked.save is not None:
        asked.save.write_text(found + "\n", "utf-8")
    print(found) if asked.json else _print_table(facts, reports)
    missed = any(not row.ok for report in reports.values() for row in report.rows)
    return int(missed and not asked.quick)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure orchard beside bare scripts that do the same.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(MEASURES)}")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS, help=f"at least {FEWEST_ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="one round of small sizes: does it work, not how fast")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the JSON document to this file as well")
    return parser.parse_args(words)


def _missing(names: Sequence[str]) -> list[str]:
    """The programs that these measures need and that are not here."""
    needed = dict.fromkeys(program for name in names for program in MEASURES[name].needs)
    absent = floors.missing(*(program for program in needed if program != "ninja"))
    return [*absent, *(["ninja"] if "ninja" in needed and ninja_program() is None else [])]


def _measure(name: str, rounds: int, watch: Watch, *, quick: bool) -> Report:
    """One measure in a folder of its own, which is gone afterwards."""
    print(f"measuring {name} ...", file=sys.stderr, flush=True)
    watch.glance()
    with open_bench(quick=quick) as bench:
        settle = _nothing if quick else os.sync
        return run_rounds(name, MEASURES[name].make(bench), rounds, settle)


def _nothing() -> None:
    """In place of waiting for the disk, which can take seconds on a busy machine."""


def _print_table(facts: Mapping[str, object], reports: Mapping[str, Report]) -> None:
    print(f"{described(facts)} {facts['rounds']} rounds.\n")
    print(table([row for report in reports.values() for row in report.rows], judged=not facts["quick"]))
    lines = [line for report in reports.values() for line in report.scaling]
    if lines:
        print("\nScaling:\n" + "\n".join(f"- {line}" for line in lines))
    warning = "A quick run shows that measuring works; its figures say nothing." if facts["quick"] else caution(facts)
    if warning:
        print(f"\n{warning}")


def _end(number: int, _: FrameType | None) -> None:
    """Leave by way of everything that cleans up."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main(sys.argv[1:]))
