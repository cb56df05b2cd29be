"""The journal, the parser, the start of the program, and an engine that only waits."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import floors, plans
from bench.jobs import run_plan
from bench.repositories import QUICK, SMALL, copy_repository, make_repository
from orchard.bench.parts import MILLISECONDS, WAITING, bare_transitions, starts, transitions
from orchard.bench.place import Bench, orchard
from orchard.bench.plans import ONE_FILE, independent, write_plan
from orchard.bench.rounds import Bar, Figures, Measure, Point, Scaling
from orchard.model.events.plans import decode
from orchard.planfile.parse import parse
from orchard.process.stopwatch import Broken, started, timed
from orchard.store.plan_list import JOURNAL_FILE

STARTS = 5

LIBRARIES = "import asyncio, click, msgspec, ruamel.yaml, sqlite3; from pydantic import BaseModel"
"""What of others' a run of the smallest plan imported when its bar was set. It does without pydantic
now; the yardstick stays, so that figures of different days can be compared."""

RUN_BAR = 2.2
"""A run took 2.4 times what its libraries take before events and views became structs; this is 40 ms less."""

DECODE_BAR = 0.35
"""Events took 1.75 times what their JSON alone takes when they were dataclasses; this is five times less."""

DECODED = 5


def journal(bench: Bench) -> Measure:
    """Events with eight jobs waiting for the disk, beside a bare SQLite that commits each on its own."""
    fewer, more = (50, 100) if bench.quick else (1000, 5000)
    runs = {size: write_plan(bench.fresh("plan"), independent(size), parallel=4) for size in (fewer, more)}

    def bare() -> Figures:
        return {"bare": bench.size(500, 50) / bare_transitions(bench.fresh("bare.db"), bench.size(500, 50))}

    def ours() -> Figures:
        done = {size: asyncio.run(transitions(bench.fresh("journal.db"), file)) for size, file in runs.items()}
        costs = {f"cost-{size}": MILLISECONDS * taken / count for size, (count, taken) in done.items()}
        return {**costs, "rate": done[fewer][0] / done[fewer][1]}

    points = tuple(Point(f"{size:,} jobs", f"cost-{size}") for size in runs)
    return Measure(
        (bare, ours),
        (
            Bar(f"durable transitions, {WAITING} waiting", "rate", least=1000, unit="/s", beside="bare"),
            Bar(
                f"per transition: {more:,} jobs against {fewer:,}", f"cost-{more}", f"cost-{fewer}", most=1.3, unit="ms"
            ),
        ),
        (Scaling("durable transition", points),),
    )


def decoding(bench: Bench) -> Measure:
    """All events of a plan of 2,000 jobs, from the text in the journal to values, beside the JSON library alone."""
    jobs = bench.size(2000, 20)
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    repo = run_plan(bench, template, write_plan(bench.fresh("plan"), plans.layered(jobs), parallel=4))[1]
    journal = sqlite3.connect(repo / ".git" / "orchard" / JOURNAL_FILE)
    rows: list[tuple[str, str]] = journal.execute("SELECT name, body FROM events ORDER BY seq").fetchall()
    journal.close()

    def best(read: Callable[[str, str], object]) -> float:
        """Microseconds of processor per event, the best of several times."""
        taken = []
        for _ in range(bench.size(DECODED, 1)):
            begin = time.process_time()
            for name, body in rows:
                read(name, body)
            taken.append(time.process_time() - begin)
        return 1e6 * min(taken) / len(rows)

    def bare() -> Figures:
        return {"json": best(lambda _, body: json.loads(body))}

    def ours() -> Figures:
        return {"event": best(decode)}

    what = f"an event of a plan of {jobs:,} jobs decoded, processor: json.loads"
    return Measure((bare, ours), (Bar(what, "event", "json", most=DECODE_BAR, unit="µs"),))


def parsing(bench: Bench) -> Measure:
    """A plan as large as plans may be, from text to a checked graph."""
    jobs = bench.size(10_000, 100)
    file = write_plan(bench.fresh("plan"), plans.layered(jobs), parallel=4, work="true")
    text = file.read_bytes()

    def bare() -> Figures:
        from ruamel.yaml import YAML

        begin = time.perf_counter()
        YAML(typ="safe", pure=False).load(text)
        return {"bare": time.perf_counter() - begin}

    def ours() -> Figures:
        begin = time.perf_counter()
        found = parse(text).jobs
        taken = time.perf_counter() - begin
        if len(found) < jobs:
            raise Broken(f"the plan has {len(found)} jobs")
        return {"ours": taken}

    return Measure((bare, ours), (Bar(f"parse and check {jobs:,} jobs", "ours", most=2, beside="bare"),))


def start(bench: Bench) -> Measure:
    """How long a person waits for the shortest answers."""
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    plan = write_plan(bench.fresh("plan"), independent(2), parallel=2, work=ONE_FILE)
    repo = run_plan(bench, template, plan)[1]

    def all_by_turns() -> Figures:
        return starts(repo, bench.size(STARTS, 1))

    alone = write_plan(bench.fresh("plan"), independent(1), parallel=1, work=ONE_FILE)

    def one_job() -> Figures:
        """The least that was used of several times: what the rest of the machine does only ever adds to it."""
        pairs = [
            (timed([sys.executable, "-c", LIBRARIES], repo).cpu, run_plan(bench, template, alone)[0].cpu)
            for _ in range(bench.size(STARTS, 1))
        ]
        bare, run = (MILLISECONDS * min(side) for side in zip(*pairs, strict=True))
        return {"libraries": bare, "run": run}

    return Measure(
        (all_by_turns, one_job),
        (
            Bar("orchard --version: python -c pass", "version", "python", most=5, unit="ms"),
            Bar("orchard list: python -c pass", "list", "python", most=12, unit="ms"),
            Bar("orchard run of one job, processor: its libraries", "run", "libraries", most=RUN_BAR, unit="ms"),
        ),
    )


# ---------------------------------------------------------------------------------------- waiting


def idle(bench: Bench) -> Measure:
    """The processor that an engine uses while its only job sleeps, beside a bare program that waits."""
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    settle, watch = (0.3, 0.1) if bench.quick else (3.0, 10.0)
    seconds = settle + watch + bench.size(1, 0) + 0.3
    plan = write_plan(
        bench.fresh("plan"),
        independent(1),
        parallel=1,
        work=f"touch running; sleep {seconds}; echo > orchard-bench-{{job}}",
    )
    waiter = bench.fresh("waiter.py")
    waiter.write_text(floors.WAITER.format(seconds=seconds), "utf-8")

    def bare() -> Figures:
        return {"bare": _share([sys.executable, waiter], bench.folder, settle, watch)}

    def ours() -> Figures:
        return {"ours": _share(orchard("run", plan, "--quiet"), copy_repository(bench, template), settle, watch)}

    return Measure((bare, ours), (Bar("processor of a waiting engine", "ours", most=0.3, unit="%", beside="bare"),))


def _share(words: list[str | Path], cwd: Path, settle: float, watch: float) -> float:
    """Per cent of one core that a program uses, after it has had time to come to rest."""
    with started(words, cwd, subprocess.DEVNULL) as process:
        time.sleep(settle)
        before, begin = processor_seconds(process.pid), time.perf_counter()
        time.sleep(watch)
        used, passed = processor_seconds(process.pid) - before, time.perf_counter() - begin
        if process.poll() is not None:
            raise Broken(f"'{words[-1]}' ended before it was watched")
        process.wait(60)
    return 100 * used / passed


def processor_seconds(pid: int) -> float:
    """What all threads of a process have used, in nanoseconds where the kernel tells (the usual count is in 10 ms)."""
    tasks = Path(f"/proc/{pid}/task")
    if os.access(tasks, os.X_OK):
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
    import psutil

    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)
