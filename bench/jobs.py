"""Whole plans, through the real program: jobs that do something in worktrees, and graphs of jobs that do nothing."""

import itertools
import sqlite3
from pathlib import Path
from statistics import median

from bench import plans
from bench.floors import ninja as run_ninja
from bench.floors import seeds as run_seeds
from bench.repositories import MEDIUM, QUICK, SMALL, copy_repository, make_repository
from orchard.bench import floors
from orchard.bench.parts import MILLISECONDS
from orchard.bench.place import Bench, orchard
from orchard.bench.plans import ONE_FILE, independent, write_plan
from orchard.bench.rounds import Bar, Figures, Measure, Point, Scaling
from orchard.process.stopwatch import Timed, timed

MEGABYTE = 1_000_000


def run_plan(bench: Bench, template: Path, plan: Path) -> tuple[Timed, Path]:
    """Run a plan to its landing in a copy of the repository."""
    repo = copy_repository(bench, template)
    return timed(orchard("run", plan, "--quiet"), repo), repo


def medium(bench: Bench) -> Measure:
    """Many small jobs where a checkout is expensive."""
    jobs, parallel = bench.size(60, 2), 4
    shape = QUICK if bench.quick else MEDIUM
    template = make_repository(bench, shape)
    plan = write_plan(bench.fresh("plan"), independent(jobs), parallel=parallel, work=ONE_FILE)

    def plain() -> Figures:
        return {"plain": floors.plain(copy_repository(bench, template), jobs, parallel)}

    def pool() -> Figures:
        return {"pool": floors.pool(copy_repository(bench, template), jobs, parallel)}

    def ours() -> Figures:
        return {"ours": run_plan(bench, template, plan)[0].wall}

    what = f"{jobs} jobs, {parallel} at once, {shape.shown}"
    return Measure(
        (plain, pool, ours),
        (
            Bar(f"{what}: plain git script", "ours", "plain", most=0.5),
            Bar(f"{what}: pool script", "ours", "pool", most=1.0),
        ),
    )


def small(bench: Bench) -> Measure:
    """Many small jobs where everything is cheap, so that what we add shows most."""
    jobs, parallel = bench.size(100, 2), 2
    shape = QUICK if bench.quick else SMALL
    template = make_repository(bench, shape)
    plan = write_plan(bench.fresh("plan"), independent(jobs), parallel=parallel, work=ONE_FILE)

    def pool() -> Figures:
        return {"pool": floors.pool(copy_repository(bench, template), jobs, parallel)}

    def seeds() -> Figures:
        return {"seeds": run_seeds(copy_repository(bench, template), jobs, parallel)}

    def ours() -> Figures:
        return {"ours": run_plan(bench, template, plan)[0].wall}

    what = f"{jobs} jobs, {parallel} at once, {shape.shown}"
    return Measure(
        (pool, seeds, ours),
        (
            Bar(f"{what}: pool script", "ours", "pool", most=1.4),
            Bar(f"{what}: model of the seeds", "ours", "seeds", most=0.25),
        ),
    )


def layered(bench: Bench) -> Measure:
    """A graph of jobs that do nothing: what is left is the engine, with its journal on disk."""
    jobs, parallel = bench.size(2000, 60), 4
    graph = plans.layered(jobs, width=bench.size(plans.WIDTH, 20))
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    plan = write_plan(bench.fresh("plan"), graph, parallel=parallel)
    build = plans.write_ninja(bench.fresh("build"), graph)

    def ninja() -> Figures:
        return {"ninja": MILLISECONDS * run_ninja(build, parallel) / jobs}

    def ours() -> Figures:
        return {"ours": MILLISECONDS * run_plan(bench, template, plan)[0].wall / jobs}

    bar = Bar(f"{jobs:,} layered no-op jobs, per job: ninja", "ours", "ninja", most=1.8, unit="ms")
    return Measure((ninja, ours), (bar,))


def chain(bench: Bench) -> Measure:
    """One job after the other: how long a job that could start waits until it does."""
    jobs = bench.size(200, 10)
    working = bench.size(50, 3)
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    nothing = write_plan(bench.fresh("plan"), plans.chain(jobs), parallel=4)
    programs = plans.chain(working)
    running = write_plan(bench.fresh("plan"), programs, parallel=4, work="true", changes=False)
    build = plans.write_ninja(bench.fresh("build"), plans.chain(jobs))

    def ninja() -> Figures:
        return {"ninja": MILLISECONDS * run_ninja(build, 4) / jobs}

    def no_op() -> Figures:
        repo = run_plan(bench, template, nothing)[1]
        return {"no-op": hand_over(repo)}

    def program() -> Figures:
        done, repo = run_plan(bench, template, running)
        return {"program": hand_over(repo), "hop": MILLISECONDS * done.wall / working}

    return Measure(
        (ninja, no_op, program),
        (
            Bar(f"chain of {jobs} no-ops, done to next started", "no-op", most=5, unit="ms", beside="ninja"),
            Bar(f"chain of {working} programs, done to next started", "program", most=5, unit="ms", beside="ninja"),
        ),
        (Scaling("one hop of a chain", (Point("no-op (ninja)", "ninja"), Point("with a program (ours)", "hop"))),),
    )


def hand_over(repo: Path) -> float:
    """The median of the milliseconds from the end of a job to the start of the one after it, as the journal tells."""
    with sqlite3.connect(repo / ".git" / "orchard" / "journal.db") as journal:
        query = "SELECT name, at FROM events WHERE name IN ('JobSucceeded', 'JobStarted') ORDER BY seq"
        rows: list[tuple[str, float]] = journal.execute(query).fetchall()
    journal.close()
    gaps = [
        later - earlier
        for (before, earlier), (after, later) in itertools.pairwise(rows)
        if before == "JobSucceeded" and after == "JobStarted"
    ]
    return MILLISECONDS * median(gaps)


def scaling(bench: Bench) -> Measure:
    """The same kind of graph in four sizes; cost per job and memory must not grow with the plan."""
    sizes = (20, 30, 40) if bench.quick else (100, 500, 1000, 5000)
    low, high = (20, 40) if bench.quick else (500, 5000)
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    width = bench.size(plans.WIDTH, 10)
    files = {size: bench.fresh(f"plan-{size}") for size in sizes}
    for size, file in files.items():
        write_plan(file, plans.layered(size, width), parallel=4)

    def ours() -> Figures:
        done = {size: run_plan(bench, template, file)[0] for size, file in files.items()}
        walls = {f"wall-{size}": MILLISECONDS * one.wall / size for size, one in done.items()}
        cpus = {f"cpu-{size}": MILLISECONDS * one.cpu / size for size, one in done.items()}
        more = MILLISECONDS * (done[sizes[-1]].wall - done[sizes[-2]].wall) / (sizes[-1] - sizes[-2])
        fewer = MILLISECONDS * (done[sizes[-2]].wall - done[sizes[0]].wall) / (sizes[-2] - sizes[0])
        memory = {f"memory-{size}": one.peak / MEGABYTE for size, one in done.items()}
        return {**walls, **cpus, **memory, "marginal-low": fewer, "marginal-high": more}

    def line(what: str, kind: str, unit: str) -> Scaling:
        return Scaling(what, tuple(Point(f"{size:,} jobs", f"{kind}-{size}") for size in sizes), unit)

    ends = (
        Point(f"{sizes[0]:,} to {sizes[-2]:,}", "marginal-low"),
        Point(f"{sizes[-2]:,} to {sizes[-1]:,}", "marginal-high"),
    )
    return Measure(
        (ours,),
        (
            Bar(f"no-op jobs, per job: {high:,} against {low:,}", f"wall-{high}", f"wall-{low}", most=1.3, unit="ms"),
            Bar(
                f"no-op jobs, each further one: {ends[1].size} against {ends[0].size}",
                "marginal-high",
                "marginal-low",
                unit="ms",
            ),
            Bar(f"memory, {high:,} jobs", f"memory-{high}", most=200, unit="MB", take=max),
        ),
        (
            line("no-op jobs, wall per job", "wall", "ms"),
            line("no-op jobs, processor per job", "cpu", "ms"),
            line("no-op jobs, memory", "memory", "MB"),
            Scaling("no-op jobs, each further one", ends),
        ),
    )
