"""Plans of thousands of jobs and logs of a gigabyte, through the real program.

What is bounded is memory and processor time: both are the program's own, whatever else the machine does.
"""

import json
import resource
import shlex
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchard.store.logs import read
from tests.acceptance.program import Desk, Done, Running, desks, until

MB = 1_000_000
WIDTH, NEEDS = 100, 3
LONG = 600.0

QUICK_JOBS, MANY_JOBS, MOST_JOBS = 1_000, 5_000, 10_000
SIZES = [QUICK_JOBS, *(pytest.param(jobs, marks=pytest.mark.slow) for jobs in (MANY_JOBS, MOST_JOBS))]
MEMORY = 200 * MB
"""What the engine may take for a plan of five thousand jobs; larger ones in proportion."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


@dataclass(frozen=True)
class Cost:
    """A command that has ended, and what it took."""

    done: Done
    cpu: float
    wall: float


def costs(desk: Desk, *words: str | Path) -> Cost:
    """Run a command, and see how much processor time it and what it started used."""
    began, before = time.monotonic(), _children()
    running = desk.start(*words)
    done = running.end(LONG)
    return Cost(done, _children() - before, time.monotonic() - began)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory(pid: int, field: str = "VmRSS") -> int:
    """What a process holds now, or held at most (`VmHWM`), in bytes; 0 once it is gone."""
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) * 1024 for row in rows if row.startswith(f"{field}:")), 0)


def peak_until_end(running: Running) -> int:
    """The most memory that a process ever held; looked at until it ends."""
    found = [0]

    def ended() -> bool:
        found[0] = max(found[0], memory(running.pid, "VmHWM"))
        return running.process.poll() is not None

    until(ended, "the end of the command", LONG)
    return found[0]


def comes_to(owner: Running, file: Path) -> None:
    """Wait for what a job of a plan that runs makes."""
    until(lambda: file.exists() or owner.process.poll() is not None, file.name, LONG)
    assert file.exists(), owner.talk[-2000:]


# ----------------------------------------------------------------------------------------- many jobs


def layered(jobs: int) -> list[dict[str, Any]]:
    """Layers of jobs that do nothing; each needs three of the layer before it."""
    rows: list[dict[str, Any]] = []
    for number in range(jobs):
        layer, place = divmod(number, WIDTH)
        above = [(layer - 1) * WIDTH + (place + step) % WIDTH for step in range(NEEDS)] if layer else []
        rows.append({"id": f"j{number:05}", "needs": [f"j{one:05}" for one in above]})
    return rows


def write(desk: Desk, jobs: list[dict[str, Any]]) -> Path:
    """A plan in the form that people write, which is the slowest to read."""
    rows = ["name: Many\ntarget: goal\njobs:\n"]
    for job in jobs:
        work = f", work: {json.dumps(job['work'])}, expects_no_changes: true" if "work" in job else ""
        rows.append(f"  - {{id: {job['id']}, needs: [{', '.join(job['needs'])}]{work}}}\n")
    return desk.plan("".join(rows))


LOOKS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("status", "--json"),
    ("list",),
    ("list", "--json"),
    ("job", "j00500"),
)


@pytest.mark.parametrize("jobs", SIZES)
def test_a_plan_of_many_jobs_is_checked_run_and_shown_within_bounds(desk: Desk, jobs: int) -> None:
    plan = write(desk, layered(jobs))
    allowed = 4.0 + jobs / 500
    checked = costs(desk, "validate", plan)
    before = _children()

    owner = desk.start("run", plan, "--quiet")
    peak = peak_until_end(owner)
    ran = owner.end()
    cpu = _children() - before
    shown = {words: costs(desk, *words) for words in (*LOOKS, ("graph", str(plan)))}

    print(f"{jobs} jobs: checked {checked.cpu:.1f} s, run {cpu:.1f} s of processor, {peak / MB:.0f} MB")
    print({" ".join(words): f"{cost.cpu:.2f} s, {cost.wall:.2f} s of clock" for words, cost in shown.items()})
    assert ran.code == 0, ran.talk[-2000:]
    assert json.loads(shown["status", "--json"].done.out)["plan"]["counts"]["succeeded"] == jobs + 1
    assert [words for words, cost in shown.items() if cost.done.code != 0] == []
    assert peak <= MEMORY * max(1, jobs / MANY_JOBS)
    assert max(checked.cpu, cpu, *(cost.cpu for cost in shown.values())) < allowed


@pytest.mark.slow
def test_the_cost_of_a_job_does_not_grow_with_the_plan(desk: Desk) -> None:
    spent = {}
    for jobs in (QUICK_JOBS, MOST_JOBS):
        plan = write(desk, layered(jobs))
        verbs = {"validate": (plan,), "run": (plan, "--quiet"), "status": (), "graph": (plan,)}
        spent[jobs] = {verb: costs(desk, verb, *words).cpu for verb, words in verbs.items()}
    print(spent)

    small, large = spent[QUICK_JOBS], spent[MOST_JOBS]
    worse = {verb for verb in small if large[verb] > 15 * small[verb]}

    assert worse == set(), spent


def gated(desk: Desk, jobs: int) -> list[dict[str, Any]]:
    """Half of the jobs can run at once; the other half waits for one that waits for a file."""
    rows = layered(jobs)
    gate = f"touch {desk.folder}/on; until test -e {desk.folder}/go; do sleep 0.05; done"
    rows[jobs // 2]["work"] = gate
    for row in rows[jobs // 2 + 1 :]:
        row["needs"] = list(dict.fromkeys([*row["needs"], rows[jobs // 2]["id"]]))
    return rows


@pytest.mark.parametrize("jobs", SIZES)
def test_a_plan_of_many_jobs_is_canceled_midway_and_taken_up_again(desk: Desk, jobs: int) -> None:
    half, allowed = jobs // 2, 4.0 + jobs / 500
    owner = desk.start("run", write(desk, gated(desk, jobs)))
    comes_to(owner, desk.folder / "on")
    until(lambda: len(desk.events("JobSucceeded")) >= half, "the first half", LONG)

    canceled = costs(desk, "cancel")
    ended = owner.end()
    counts = desk.status()["plan"]["counts"]
    took = _seconds_of_cancel(desk)
    (desk.folder / "go").touch()
    retried = costs(desk, "retry", "--quiet")

    print(
        f"{jobs} jobs: canceled in {took:.2f} s, {canceled.wall:.2f} s with the command; {retried.cpu:.1f} s to retry"
    )
    assert (canceled.done.code, ended.code) == (0, 130), canceled.done.talk
    assert counts["succeeded"] + counts["canceled"] == jobs + 1 and counts["canceled"] >= half
    assert took < 5.0
    assert canceled.cpu < allowed
    assert retried.done.code == 0, retried.done.talk[-2000:]
    assert retried.cpu < allowed
    desk.check_nothing_runs()


def _seconds_of_cancel(desk: Desk) -> float:
    """From the moment the cancel was taken in to the end of the last job, as the engine wrote it down."""
    with closing(sqlite3.connect(f"{(desk.state / 'journal.db').as_uri()}?mode=ro", uri=True)) as db:
        rows: list[tuple[str, float]] = db.execute("SELECT name, at FROM events").fetchall()
    ends = [at for name, at in rows if name == "JobCanceled"]
    return max(ends) - min(at for name, at in rows if name == "PlanCanceled")


@pytest.mark.slow
def test_what_a_plan_costs_does_not_grow_with_the_plans_before_it(desk: Desk) -> None:
    small = desk.plan("name: Small\ntarget: side\njobs: [{id: one, work: mktemp ./XXXXXXXXXX}]\n", "small.yaml")
    bad = desk.plan("name: Bad\ntarget: goal\njobs: [{id: kept, work: 'false'}]\n")
    assert costs(desk, "run", bad).done.code == 1

    before = [costs(desk, "run", small) for _ in range(3)]
    for _ in range(2):
        assert costs(desk, "run", write(desk, layered(QUICK_JOBS))).done.code == 0
    after = [costs(desk, "run", small) for _ in range(3)]

    first, last = min(cost.cpu for cost in before), min(cost.cpu for cost in after)
    print(f"a small plan: {first:.2f} s of processor, after {2 * QUICK_JOBS:,} other jobs {last:.2f} s")
    assert [cost.done.code for cost in (*before, *after)] == [0] * 6
    assert last <= 1.25 * first


# ------------------------------------------------------------------------------------------ long logs

WRITER = """
import os, sys, time
folder, size = sys.argv[1], int(sys.argv[2])
line = b"0123456789" * 9 + b"%09d\\n"
written = 0
def write(until):
    global written
    while written < until:
        block = b"".join(line % (written // 100 + n) for n in range(min(10_000, (until - written) // 100)))
        os.write(1, block)
        written += len(block)
open(f"{folder}/on", "w").close()
while not os.path.exists(f"{folder}/begin"):
    time.sleep(0.02)
write(size // 2)
open(f"{folder}/half", "w").close()
while not os.path.exists(f"{folder}/go") and written < size - 1_000_000:
    write(written + 100_000)
    time.sleep(0.02)
write(size)
open("done.txt", "w").close()
"""


def writes(desk: Desk, size: int, **limits: int) -> Running:
    """A plan whose job writes a log of this size, half of it at once; it waits for `begin`."""
    script = desk.folder / "writer.py"
    script.write_text(WRITER)
    for name, value in limits.items():
        desk.repo.commit({"orchard.toml": f"[limits]\n{name} = {value}\n"})
    work = shlex.join([sys.executable, "-I", "-S", str(script), str(desk.folder), str(size)])
    owner = desk.start("run", desk.plan(f"name: Long\ntarget: goal\njobs: [{{id: big, work: {json.dumps(work)}}}]\n"))
    comes_to(owner, desk.folder / "on")
    return owner


def log_of(desk: Desk) -> Path:
    (path,) = desk.state.glob("logs/*/big/1/work.log")
    return path


@pytest.mark.parametrize("size", [100 * MB, pytest.param(1000 * MB, marks=pytest.mark.slow)])
def test_a_log_of_any_size_leaves_the_engine_small_and_can_be_read_at_once(desk: Desk, size: int) -> None:
    owner = writes(desk, size)
    before = memory(owner.pid)
    (desk.folder / "begin").touch()
    comes_to(owner, desk.folder / "half")

    during = [costs(desk, "logs", "big", "-n", "3"), _first_line_of_a_follower(desk)]
    middle = read(log_of(desk), size // 4)
    (desk.folder / "go").touch()
    peak = peak_until_end(owner)
    ended = owner.end()
    after = costs(desk, "logs", "big", "--tail", "3", "--json")
    whole = log_of(desk).stat().st_size
    log_of(desk).unlink()

    print(f"{size / MB:.0f} MB: the engine grew by {(peak - before) / MB:.1f} MB; looked for", end=" ")
    print([f"{cost.cpu:.2f} s, {cost.wall:.2f} s of clock" for cost in (*during, after)])
    assert ended.code == 0, ended.talk
    assert whole == size
    assert peak - before <= 50 * MB
    assert middle.data.startswith(b"0123456789") and middle.offset == size // 4
    assert during[0].done.out.count("0123456789" * 9) == 3
    assert f"{size // 100 - 1:09}" in after.done.out
    assert [cost for cost in (*during, after) if cost.cpu > 1.0] == []


def _first_line_of_a_follower(desk: Desk) -> Cost:
    """How soon `logs -f` prints what is written now; it is told to go once it did."""
    began, before = time.monotonic(), _children()
    follower = desk.start("logs", "big", "-f", "-n", "1")
    until(lambda: follower.out.count("\n") > 1, "a line that was written meanwhile")
    wall = time.monotonic() - began
    follower.process.terminate()
    follower.process.wait(10)
    return Cost(Done(0, follower.out, ""), _children() - before, wall)


def test_a_log_past_its_limit_stops_the_work_and_no_more_is_kept_than_can_be_noticed(desk: Desk) -> None:
    limit = 20 * MB
    owner = writes(desk, 100_000 * MB, log_bytes=limit)
    (desk.folder / "begin").touch()

    ended = owner.end()
    job = next(one for one in desk.status()["jobs"] if one["id"] == "big")
    size = log_of(desk).stat().st_size
    log_of(desk).unlink()

    print(f"limit {limit / MB:.0f} MB, kept {size / MB:.0f} MB")
    assert ended.code == 1
    assert job["status"] == "failed" and "20,000,000 bytes" in job["error"]
    assert size < limit + 500 * MB
    desk.check_nothing_runs()


@pytest.mark.parametrize("size", [100 * MB])
def test_a_whole_log_is_printed_in_little_memory(desk: Desk, size: int) -> None:
    owner = writes(desk, size)
    for name in ("begin", "go"):
        (desk.folder / name).touch()
    ended = owner.end(LONG)

    reader = desk.start("logs", "big")
    peak = peak_until_end(reader)
    done = reader.process.wait(10)
    printed = (desk.folder / "out-1").stat().st_size
    (desk.folder / "out-1").unlink()
    log_of(desk).unlink()

    print(f"{size / MB:.0f} MB printed with {peak / MB:.0f} MB")
    assert (ended.code, done, printed) == (0, 0, size)
    assert peak < 100 * MB
