"""`python -m bench [NAMES...] [--rounds N] [--quick] [--json]`: our figures beside their floors, from the same run."""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from bench import gitside, jobs, rest
from bench.measuring import Measure, Report, Row, run_rounds
from bench.place import Bench, Broken, git, open_bench

MEASURES: Mapping[str, Callable[[Bench], Measure]] = {
    "medium": jobs.medium,
    "small": jobs.small,
    "layered": jobs.layered,
    "chain": jobs.chain,
    "scaling": jobs.scaling,
    "merge": gitside.merge,
    "lock": gitside.lock,
    "journal": rest.journal,
    "parse": rest.parsing,
    "start": rest.start,
    "idle": rest.idle,
}
PROGRAMS = ("git", "sh", "xargs", "flock", "ninja")
FEWEST_ROUNDS = 3


def main(words: Sequence[str]) -> int:
    """Measure and print; 1 where a bar was missed, 2 where something could not be measured."""
    asked = _arguments(words)
    names = asked.names or list(MEASURES)
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    unknown = [name for name in names if name not in MEASURES]
    if missing or unknown:
        said = f"install {', '.join(missing)}" if missing else f"no measure '{unknown[0]}': {', '.join(MEASURES)}"
        print(f"bench: {said}", file=sys.stderr)
        return 2
    rounds = 1 if asked.quick else max(FEWEST_ROUNDS, asked.rounds)
    before, begin = os.getloadavg(), time.monotonic()
    try:
        reports = {name: _measure(name, rounds, quick=asked.quick) for name in names}
    except Broken as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    about = {**_machine(), "rounds": rounds, "quick": asked.quick, "load_before": round(before[0], 1)}
    about |= {"load_after": round(os.getloadavg()[0], 1), "seconds": round(time.monotonic() - begin, 1)}
    _print_json(about, reports) if asked.json else _print_table(about, reports)
    missed = any(not row.ok for report in reports.values() for row in report.rows)
    return int(missed and not asked.quick)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure orchard beside bare scripts that do the same.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(MEASURES)}")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS, help=f"at least {FEWEST_ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="one round of small sizes: does it work, not how fast")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser.parse_args(words)


def _measure(name: str, rounds: int, *, quick: bool) -> Report:
    """One measure in a folder of its own, which is gone afterwards."""
    print(f"measuring {name} ...", file=sys.stderr, flush=True)
    with open_bench(quick=quick) as bench:
        settle = _nothing if quick else os.sync
        return run_rounds(name, MEASURES[name](bench), rounds, settle)


def _nothing() -> None:
    """In place of waiting for the disk, which can take seconds on a busy machine."""


def _machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
        "git": git(Path.cwd(), "--version").removeprefix("git version "),
        "system": f"{platform.system()} {platform.machine()}",
    }


# ---------------------------------------------------------------------------------------- printing


def _print_json(about: Mapping[str, object], reports: Mapping[str, Report]) -> None:
    rows = [asdict(row) for report in reports.values() for row in report.rows]
    scaling = [line for report in reports.values() for line in report.scaling]
    samples = {name: {key: list(values) for key, values in one.samples.items()} for name, one in reports.items()}
    print(json.dumps({**about, "rows": rows, "scaling": scaling, "samples": samples}, indent=2, ensure_ascii=False))


def _print_table(about: Mapping[str, object], reports: Mapping[str, Report]) -> None:
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print()
    print(table([row for report in reports.values() for row in report.rows], judged=not about["quick"]))
    lines = [line for report in reports.values() for line in report.scaling]
    if lines:
        print("\nScaling:\n" + "\n".join(f"- {line}" for line in lines))
    if about["quick"]:
        print("\nA quick run shows that measuring works; its figures say nothing.")


def table(rows: Sequence[Row], *, judged: bool) -> str:
    """Markdown, so that it can go into a page as it is."""
    lines = ["| what | floor | ours | ratio | bar | |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in rows:
        floor = "" if row.floor is None else _figure(row.floor, row.unit)
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}×"
        verdict = ("ok" if row.ok else "MISS") if judged else ""
        lines.append(f"| {row.what} | {floor} | {_figure(row.ours, row.unit)} | {ratio} | {row.bar} | {verdict} |")
    return "\n".join(lines)


def _figure(value: float, unit: str) -> str:
    shown = f"{value:,.0f}" if value >= 100 or unit == "" else f"{value:.3g}"
    return f"{shown} {unit}".rstrip()


def _end(number: int, _: FrameType | None) -> None:
    """Leave by way of everything that cleans up."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main(sys.argv[1:]))
