"""What agents used: every way of adding it up gives the total, and the total is what was told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from orchard.core.scheduler import StartJob
from orchard.core.views.plans import plan_view
from orchard.core.views.usage import usage_report
from orchard.model.events.plans import (
    AgentEnded,
    AgentStarted,
    AgentUsed,
    JobFailed,
    JobRetried,
    JobSucceeded,
    WorkCommitted,
)
from orchard.model.phases import Phase
from orchard.model.plan import AgentWork, Job, JobId, Plan, with_validation
from orchard.model.usage import Usage
from orchard.surfaces.next_steps import in_commands
from tests.core.simulation import Simulation
from tests.examples import examples

SUMS = ("tokens", "input", "cached", "cache_writes", "output", "requests", "turns", "lines_added", "lines_deleted")
TIMES = ("cost", "api_seconds", "session_seconds")

tokens = st.integers(0, 10**9)
usages = st.builds(
    Usage,
    model=st.sampled_from(["big", "small", ""]),
    input=tokens,
    cached=tokens,
    cache_writes=tokens,
    output=tokens,
    requests=st.integers(0, 50),
    cost=st.none() | st.floats(0, 1000).map(lambda cost: round(cost, 6)),
    api_seconds=st.floats(0, 10_000).map(lambda seconds: round(seconds, 3)),
)
turns = st.lists(
    st.tuples(
        st.sampled_from(["claude", "builtin"]),
        st.sampled_from([(Phase.WORK, "work"), (Phase.POSTCHECKS, "heal")]),
        st.lists(usages, max_size=3),
    ),
    max_size=4,
)


def simulation(*jobs: str) -> Simulation:
    made = {JobId(job): Job(id=JobId(job), name=job, work=AgentWork(instructions="x")) for job in jobs}
    return Simulation(with_validation(Plan(name="Agents", jobs=made))).start()


def begin(run: Simulation, job: str) -> None:
    run.begin(StartJob(run.run.id, JobId(job), takes_slot=True))


def turn(run: Simulation, job: str, agent: str, where: tuple[Phase, str], used: list[Usage]) -> None:
    name, attempt, (phase, purpose) = JobId(job), run.attempt(JobId(job)), where
    run.record(AgentStarted(name, attempt, phase, agent, purpose))
    for usage in used:
        run.record(AgentUsed(name, attempt, phase, agent, purpose, usage.as_json()))
    run.record(AgentEnded(name, attempt, phase, agent, purpose, "done"))


@examples(60)
@given(st.lists(st.tuples(turns, turns), min_size=1, max_size=3))
def test_every_way_of_adding_it_up_gives_the_total(plan: list[tuple[Any, Any]]) -> None:
    run = simulation(*(f"job-{number}" for number in range(len(plan))))
    told: list[Usage] = []
    for number, (first, second) in enumerate(plan):
        job = JobId(f"job-{number}")
        for attempt, found in enumerate((first, second), 1):
            begin(run, job)
            for agent, where, used in found:
                turn(run, job, agent, where, used)
                told += used
            if attempt == 1:
                run.record(JobFailed(job, 1, Phase.WORK, "exit", "it failed"))
                run.record(JobRetried(job, Phase.WORK))
        run.record(WorkCommitted(job, 2, "base", f"c{number}", {"lines_added": 7, "lines_deleted": 2}))
        run.record(JobSucceeded(job, 2, f"c{number}"))

    report = to_builtins(usage_report(run.run))

    whole = report["total"]
    assert whole["tokens"] == sum(usage.tokens for usage in told)
    assert whole["output"] == sum(usage.output for usage in told)
    assert whole["turns"] == sum(len(found) for pair in plan for found in pair)
    costs = [usage.cost for usage in told if usage.cost is not None]
    assert whole["cost"] == (pytest.approx(sum(costs)) if costs else None)
    parts = {"rows": report["rows"], **{by: list(found.values()) for by, found in report["by"].items()}}
    for name, rows in parts.items():
        for key in SUMS:
            assert sum(row[key] for row in rows) == whole[key], (name, key)
        for key in TIMES:
            assert sum(row[key] or 0 for row in rows) == pytest.approx(whole[key] or 0, abs=0.01), (name, key)
    document = to_builtins(plan_view(run.run, in_commands))
    assert document["plan"]["usage"].get("tokens", 0) == whole["tokens"]
    for job_view in document["jobs"]:
        mine = report["by"]["job"].get(job_view["id"], {"tokens": 0})
        assert job_view["usage"].get("tokens", 0) == mine["tokens"]


def test_a_turn_with_two_models_counts_once_where_most_was_used() -> None:
    run = simulation("a")
    begin(run, "a")

    turn(run, "a", "claude", (Phase.WORK, "work"), [Usage("small", input=1), Usage("big", input=9)])

    models = to_builtins(usage_report(run.run))["by"]["model"]
    assert (models["small"]["turns"], models["big"]["turns"]) == (0, 1)
    assert models["small"]["session_seconds"] == 0 and models["big"]["session_seconds"] == 3.0


def test_a_turn_of_which_nothing_is_known_is_still_a_turn() -> None:
    run = simulation("a")
    begin(run, "a")

    turn(run, "a", "mine", (Phase.WORK, "work"), [])

    report = to_builtins(usage_report(run.run))
    assert report["total"]["turns"] == 1 and report["total"]["tokens"] == 0
    assert list(report["by"]["model"]) == ["unknown"]
    assert report["total"]["cost"] is None and report["total"]["cost_complete"]


def test_a_cost_that_not_everybody_told_is_not_complete() -> None:
    run = simulation("a")
    begin(run, "a")
    turn(run, "a", "claude", (Phase.WORK, "work"), [Usage("big", input=9, cost=0.5, cost_source="agent")])
    assert to_builtins(usage_report(run.run))["total"]["cost_complete"]

    turn(run, "a", "mine", (Phase.POSTCHECKS, "heal"), [Usage("other", input=9)])

    whole = to_builtins(usage_report(run.run))["total"]
    assert (whole["cost"], whole["cost_source"], whole["cost_complete"]) == (0.5, "agent", False)
