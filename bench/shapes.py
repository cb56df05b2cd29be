"""Shapes whose cost once grew faster than they did: gathering, writing chains, odd text, many plans that wait."""

import subprocess
import time
from pathlib import Path

from bench import plans
from bench.jobs import run_plan
from bench.repositories import MEDIUM, QUICK, SMALL, copy_repository, make_repository
from orchard.bench import floors
from orchard.bench.parts import MILLISECONDS
from orchard.bench.place import Bench, orchard
from orchard.bench.plans import ONE_FILE, independent, write_plan
from orchard.bench.rounds import Bar, Figures, Measure, Point, Scaling
from orchard.process.stopwatch import started, timed
from orchard.store.redact import Redactor


def fan_in(bench: Bench) -> Measure:
    """Many jobs and one that needs them all, where a checkout is expensive."""
    jobs, parallel = bench.size(60, 3), 4
    shape = QUICK if bench.quick else MEDIUM
    template = make_repository(bench, shape)
    leaves = write_plan(bench.fresh("plan"), independent(jobs), parallel=parallel, work=ONE_FILE)
    joined = write_plan(bench.fresh("plan"), plans.joined(jobs, 1), parallel=parallel, work=ONE_FILE)

    def alone() -> Figures:
        return {"alone": run_plan(bench, template, leaves)[0].wall}

    def pool() -> Figures:
        return {"pool": floors.pool(copy_repository(bench, template), jobs, parallel)}

    def ours() -> Figures:
        return {"ours": run_plan(bench, template, joined)[0].wall}

    what = f"{jobs} jobs and one that needs them all, {parallel} at once, {shape.shown}"
    return Measure(
        (alone, pool, ours),
        (
            Bar(f"{what}: the same without it", "ours", "alone", most=1.3),
            Bar(f"{what}: pool script", "ours", "pool", most=1.5),
        ),
    )


def joins(bench: Bench) -> Measure:
    """Jobs that all need the same jobs: what one of them has merged, the others need not merge again."""
    fewer, more = (2, 4) if bench.quick else (40, 80)
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    files = {
        size: write_plan(bench.fresh("plan"), plans.joined(size, size // 2), parallel=4, work=ONE_FILE)
        for size in (fewer, more)
    }

    def ours() -> Figures:
        return {f"joins-{size}": run_plan(bench, template, file)[0].wall for size, file in files.items()}

    points = tuple(Point(f"{size} needs", f"joins-{size}") for size in files)
    what = f"{more} needs of each of {more // 2} jobs: {fewer} of {fewer // 2}"
    return Measure(
        (ours,),
        (Bar(what, f"joins-{more}", f"joins-{fewer}", most=2.5),),
        (Scaling("as many needs of each of half as many jobs", points, "s"),),
    )


def writing(bench: Bench) -> Measure:
    """One job after the other, each of which writes a file that the next one begins with."""
    jobs = bench.size(100, 3)
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    plan = write_plan(bench.fresh("plan"), plans.chain(jobs), parallel=4, work=ONE_FILE)

    def ours() -> Figures:
        return {"hop": MILLISECONDS * run_plan(bench, template, plan)[0].wall / jobs}

    return Measure((ours,), (Bar(f"chain of {jobs} jobs that write, each hop", "hop", most=20, unit="ms"),))


def redaction(bench: Bench) -> Measure:
    """Text in which every place could be the beginning of a secret, beside text as programs print it."""
    size = bench.size(10_000_000, 50_000)
    line = b"src/part0001/file00001.txt: 12 tests passed, 0 failed in 3.1 s\n"
    texts = {"plain": line, "hostile": b"eyJ"}

    def side(name: str) -> Figures:
        text = (texts[name] * (size // len(texts[name]) + 1))[:size]
        begin = time.perf_counter()
        Redactor(("a-secret-of-some-length",)).whole(text)
        return {name: time.perf_counter() - begin}

    what = f"hiding secrets in {size / 1_000_000:g} MB of hostile text: plain text"
    return Measure((lambda: side("plain"), lambda: side("hostile")), (Bar(what, "hostile", "plain", most=3),))


def listing(bench: Bench) -> Measure:
    """`orchard list` where many plans wait to be resumed, beside a repository with one."""
    count, times = bench.size(80, 2), bench.size(5, 1)
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    plan = write_plan(bench.fresh("plan"), independent(1), parallel=1, work=ONE_FILE)
    repos = {name: copy_repository(bench, template) for name in ("one", "many")}
    _submit_paused(repos["one"], plan, 1)
    _submit_paused(repos["many"], plan, count)

    def side(name: str) -> Figures:
        taken = [timed(orchard("list"), repos[name]).wall for _ in range(times)]
        return {name: MILLISECONDS * min(taken)}

    bar = Bar(f"orchard list, {count} paused plans: one", "many", "one", most=3, unit="ms")
    return Measure((lambda: side("one"), lambda: side("many")), (bar,))


def _submit_paused(repo: Path, plan: Path, count: int) -> None:
    for _ in range(count):
        # It ends with a status of its own, for the plan is not over.
        with started(orchard("run", plan, "--start-paused", "--quiet"), repo, subprocess.DEVNULL) as process:
            process.wait(60)
