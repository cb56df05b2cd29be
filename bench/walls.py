"""What a wall adds to a job: the same small plan without one, behind Landlock, and behind bubblewrap."""

import os

from bench.jobs import run_plan
from bench.repositories import QUICK, SMALL, make_repository
from orchard.bench.place import Bench
from orchard.bench.plans import ONE_FILE, independent, write_plan
from orchard.bench.rounds import Bar, Figures, Measure

JOBS = 40
BARS = {"landlock": 5, "bwrap": 15}
"""Milliseconds that each may add to a job."""


def walls(bench: Bench) -> Measure:
    """One job after the other, so that what is added to each shows in the end."""
    jobs = bench.size(JOBS, 2)
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    plan = write_plan(bench.fresh("plan"), independent(jobs), parallel=1, work=ONE_FILE)

    def per_job(level: str) -> float:
        os.environ["ORCHARD_SANDBOX"] = level
        try:
            return 1000 * run_plan(bench, template, plan)[0].wall / jobs
        finally:
            del os.environ["ORCHARD_SANDBOX"]

    def all_levels() -> Figures:
        off = per_job("off")
        return {"off": off, **{level: per_job(level) - off for level in BARS}}

    return Measure(
        (all_levels,),
        tuple(
            Bar(f"what {level} adds to a job", level, most=most, unit="ms", beside="off")
            for level, most in BARS.items()
        ),
    )
