"""What a wall adds to a job: the same small plan without one, behind Landlock, and behind bubblewrap; and many jobs
behind it, beside a script that has no wall."""

import os
from pathlib import Path

from bench.jobs import run_plan
from bench.repositories import MEDIUM, QUICK, SMALL, copy_repository, make_repository
from orchard.bench import floors
from orchard.bench.place import Bench
from orchard.bench.plans import ONE_FILE, independent, write_plan
from orchard.bench.rounds import Bar, Figures, Measure

JOBS = 40
BARS = {"landlock": 5, "bwrap": 15}
"""Milliseconds that each may add to a job."""
MANY, AT_ONCE = 60, 4


def walls(bench: Bench) -> Measure:
    """One job after the other, so that what is added to each shows in the end."""
    jobs = bench.size(JOBS, 2)
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    plan = write_plan(bench.fresh("plan"), independent(jobs), parallel=1, work=ONE_FILE)

    many, shape = bench.size(MANY, 2), QUICK if bench.quick else MEDIUM
    large = make_repository(bench, shape)
    crowd = write_plan(bench.fresh("crowd"), independent(many), parallel=AT_ONCE, work=ONE_FILE)

    def behind(level: str, where: Path, what: Path) -> float:
        before = os.environ["ORCHARD_SANDBOX"]
        os.environ["ORCHARD_SANDBOX"] = level
        try:
            return run_plan(bench, where, what)[0].wall
        finally:
            os.environ["ORCHARD_SANDBOX"] = before

    def per_job(level: str) -> float:
        return 1000 * behind(level, template, plan) / jobs

    def all_levels() -> Figures:
        off = per_job("off")
        return {"off": off, **{level: per_job(level) - off for level in BARS}}

    def pool() -> Figures:
        return {"pool": floors.pool(copy_repository(bench, large), many, AT_ONCE)}

    def walled() -> Figures:
        return {f"{level}-many": behind(level, large, crowd) for level in BARS}

    crowded = f"{many} jobs, {AT_ONCE} at once, {shape.shown}"
    return Measure(
        (all_levels, pool, walled),
        (
            *(
                Bar(f"what {level} adds to a job", level, most=most, unit="ms", beside="off")
                for level, most in BARS.items()
            ),
            *(Bar(f"{crowded}, behind {level}: pool script", f"{level}-many", "pool", most=1.15) for level in BARS),
        ),
    )
