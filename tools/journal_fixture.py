"""Write a journal that tests/core/test_journal_fixture.py reads: plans of every kind, with the documents they make.

    python tools/journal_fixture.py FOLDER [NAME]

FOLDER holds journals of real plans, such as those that a run of the tests leaves with `--basetemp`. Of their plans as
few are taken as have between them every event with every field that any of them has. Run it once per format: whatever
this version writes, later ones must read to the same documents.

With NAME, as few plans are taken as have between them every event and field that no other journal of the fixture has,
and are written to a file of their own: so new events are added while what earlier versions wrote stays as it is.
"""

import gzip
import json
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from orchard.core.replay import replay
from orchard.core.views.attempts import attempt_view
from orchard.core.views.plans import plan_view
from orchard.core.views.usage import usage_report
from orchard.model.events.plans import Recorded, decode
from orchard.model.plan import PlanId
from orchard.surfaces.next_steps import in_commands

FIXTURE = Path(__file__).resolve().parent.parent / "tests" / "core" / "journal.jsonl.gz"


def fixtures() -> list[Path]:
    """Every file of the fixture, the oldest first."""
    return [FIXTURE, *sorted(FIXTURE.parent.glob("journal-*.jsonl.gz"))]


EVENTS = 120
"""A plan with more events shows nothing that shorter ones do not."""

Row = tuple[str, float, str, str]


def documents(rows: Iterable[Row]) -> dict[str, Any]:
    """What readers are shown of a plan that these rows of a journal tell of."""
    recorded = [
        Recorded(seq, at, PlanId(plan), decode(name, body)) for seq, (plan, at, name, body) in enumerate(rows, 1)
    ]
    run = replay(recorded)
    attempts = {job: attempt_view(run, job) for job in run.records}
    found: dict[str, Any] = to_builtins(
        {
            "plan": plan_view(run, in_commands),
            "interrupted": plan_view(run, in_commands, interrupted=True),
            "attempts": attempts,
            "usage": usage_report(run),
        }
    )
    return found


def main(folder: Path, name: str | None = None) -> None:
    """Choose plans, and write them."""
    target = FIXTURE if name is None else FIXTURE.with_name(f"journal-{name}.jsonl.gz")
    plans = [rows for journal in sorted(folder.rglob("journal.db")) for rows in _plans(journal)]
    known = _known([file for file in fixtures() if file != target]) if name is not None else set[str]()
    chosen = _cover([(rows, _features(rows) - known) for rows in plans])
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        for rows in chosen:
            tidy = [(plan, at, name, _elsewhere(body)) for plan, at, name, body in rows]
            file.write(json.dumps({"events": tidy, "documents": documents(tidy)}, ensure_ascii=True).encode() + b"\n")
    print(f"{len(chosen)} of {len(plans)} plans, {target.stat().st_size} bytes")


def _known(files: Iterable[Path]) -> set[str]:
    """What is particular about the plans of these files."""
    found: set[str] = set()
    for file in files:
        with gzip.open(file, "rt") as lines:
            found.update(*(_features(json.loads(line)["events"]) for line in lines))
    return found


def _plans(journal: Path) -> Iterator[list[Row]]:
    try:
        with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as connection:
            rows = connection.execute("SELECT plan, at, name, body FROM events ORDER BY plan, seq").fetchall()
    except sqlite3.Error:
        return  # damaged on purpose
    by_plan: dict[str, list[Row]] = {}
    for row in rows:
        by_plan.setdefault(row[0], []).append(row)
    for found in by_plan.values():
        try:
            documents(found)
        except Exception:  # written by a test that tries what a reader does with nonsense
            continue
        if len(found) <= EVENTS:
            yield found


def _features(rows: list[Row]) -> set[str]:
    """What is particular about a plan: its events with their fields, and how it ended."""
    found: set[str] = set()
    for _, _, name, body in rows:
        found.add(name)
        found.update(f"{name}.{path}" for path in _paths(json.loads(body)))
    shown = documents(rows)["plan"]
    found.add(f"plan {shown['plan']['status']} {shown['plan']['landed']} {shown['plan']['undone']}")
    found.update(f"job {job['status']} {job['failed_phase']}" for job in shown["jobs"])
    found.update(f"worker {job['worker']}" for job in shown["jobs"] if isinstance(job["worker"], str))
    return found


def _paths(value: Any, above: str = "") -> Iterator[str]:
    """Every field that holds something, by its path; names that a user chose do not count."""
    if isinstance(value, dict) and above.rpartition(".")[2] not in ("env", "headers", "groups", "needs"):
        for key, inner in value.items():
            if inner not in (None, [], {}, "", False):
                yield from _paths(inner, f"{above}.{key}")
    elif isinstance(value, list):
        for inner in value[:20]:
            yield from _paths(inner, above)
    elif above.endswith((".type", ".kind", ".purpose", ".land", ".resolver")) and len(str(value)) < 20:
        yield f"{above}={value}"
    else:
        yield above


def _cover(plans: list[tuple[list[Row], set[str]]]) -> list[list[Row]]:
    """Few of these that have all features: always the one that adds most for its length."""
    missing = set().union(*(features for _, features in plans))
    chosen: list[list[Row]] = []
    while missing:
        best = max(plans, key=lambda plan: len(plan[1] & missing) / (4 + sum(len(row[3]) for row in plan[0]) / 300))
        missing -= best[1]
        chosen.append(best[0])
    return chosen


def _elsewhere(body: str) -> str:
    """The same without folders of the machine that made it."""
    return re.sub(
        r"(?:/dev/shm|/tmp)/(?:[\w.\-\[\]=,()' ]+/)*?(?=s/|repo|the repo|\w+\.sh|[^/\"\\ ]*[\"\\ ])",
        "/somewhere/",
        body,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
