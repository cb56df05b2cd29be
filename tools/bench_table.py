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

Figures = Mapping[str, Any]


def in_short(figures: Figures) -> str:
    """The table with where and when it was taken."""
    rows = [Row(**row) for row in figures["rows"]]
    judged = [row for row in rows if row.bar]
    met = sum(row.ok for row in judged)
    verdict = "" if met == len(judged) else f"{met} of {len(judged)} bars are met. "
    warning = caution(figures)
    said = f"{verdict}Medians of {figures['rounds']} rounds. {described(figures)}"
    return "\n\n".join([table(rows, judged=True), said, *([warning] if warning else [])])


def in_full(figures: Figures) -> str:
    """The same, and how costs grow."""
    return "\n\n".join([in_short(figures), "\n".join(f"- {line}" for line in figures["scaling"])])


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
