"""Write the tables of README.md and docs/benchmarks.md from docs/benchmarks.json; `--check` only compares.

The figures come from `python -m bench --save docs/benchmarks.json`, on a machine that does nothing else.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchard.bench.machine import caution, described
from orchard.bench.rounds import Row, table

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "benchmarks.json"
README = ROOT / "README.md"
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"

SHOWN = (
    "60 jobs, 4 at once, 5,000 files: plain git script",
    "60 jobs, 4 at once, 5,000 files: pool script",
    "100 jobs, 2 at once, 100 files: pool script",
    "2,000 layered no-op jobs, per job: ninja",
    "orchard list: python -c pass",
)
"""The rows that the README has; docs/benchmarks.md has all of them."""

Figures = Mapping[str, Any]


def in_short(figures: Figures) -> str:
    """What the README shows of them."""
    return _tabulated(figures, [Row(**row) for row in figures["rows"] if row["what"] in SHOWN])


def _tabulated(figures: Figures, rows: Sequence[Row]) -> str:
    """The table with where and when it was taken."""
    judged = [row for row in rows if row.bar]
    met = sum(row.ok for row in judged)
    verdict = "" if met == len(judged) else f"{met} of {len(judged)} bars are met. "
    warning = caution(figures)
    said = f"{verdict}Medians of {figures['rounds']} rounds. {described(figures)}"
    return "\n\n".join([table(rows, judged=True), said, *([warning] if warning else [])])


def in_full(figures: Figures) -> str:
    """All of them, and how costs grow."""
    rows = [Row(**row) for row in figures["rows"]]
    return "\n\n".join([_tabulated(figures, rows), "\n".join(f"- {line}" for line in figures["scaling"])])


PAGES: dict[Path, Callable[[Figures], str]] = {README: in_short, ROOT / "docs" / "benchmarks.md": in_full}


def between_markers(page: str, text: str) -> str:
    """The page with this text between its markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise SystemExit(f"The page needs {BEGIN} and {END}, once each.")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def main(words: Sequence[str]) -> int:
    """Write the pages, or compare them."""
    figures = json.loads(FIGURES.read_text("utf-8"))
    stale = []
    for page, write in PAGES.items():
        now = page.read_text("utf-8")
        made = between_markers(now, write(figures))
        if "--check" in words:
            stale += [page.name] if now != made else []
        else:
            page.write_text(made, "utf-8")
    if stale:
        print(f"{', '.join(stale)} is out of date: run python tools/bench_table.py", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
