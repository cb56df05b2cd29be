"""Who goes first, and how plans share."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orchard.core.records import Attempt, JobRecord
from orchard.core.replay import replay
from orchard.core.scheduler import StartJob, group_statuses, next_turns, pick, roll_up
from orchard.model.events.plans import (
    HoldReleased,
    JobCanceled,
    JobContinued,
    JobFailed,
    JobHeld,
    JobPicked,
    JobRetried,
    JobStarted,
    JobSucceeded,
    PhaseEnded,
    PhaseStarted,
    PlanCanceled,
    PlanReshaped,
    PlanStarted,
    PlanSubmitted,
    Recorded,
)
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, Job, JobId, Plan, PlanId, ShellWork, with_validation
from orchard.model.plan_codec import plan_json
from orchard.model.statuses import JobStatus, PlanStatus
from orchard.planfile.reshape import reshape
from tests.core.simulation import Simulation
from tests.examples import examples


def wide(*jobs: Job, **fields: int) -> Plan:
    plan = with_validation(Plan(name="wide", jobs={job.id: job for job in jobs}))
    return replace(plan, max_parallel=fields.get("max_parallel", 0))


def job(name: str, *needs: str, priority: int = 0, group: str | None = None) -> Job:
    ids = tuple(JobId(need) for need in needs)
    return Job(id=JobId(name), name=name, needs=ids, work=ShellWork(command="true"), priority=priority, group=group)


def order(plan: Plan) -> list[str]:
    return [start.job for start in pick([Simulation(plan).start().run], 100, 0)]


def test_priority_comes_before_everything_else() -> None:
    assert order(wide(job("a"), job("b", priority=5), job("c", priority=-1))) == ["b", "a", "c"]


def test_the_longest_remaining_path_goes_first() -> None:
    plan = wide(job("short"), job("long"), job("m", "long"), job("n", "m"))
    assert order(plan) == ["long", "short"]


def test_of_equal_paths_the_one_that_unlocks_most_goes_first() -> None:
    plan = wide(job("one"), job("many"), job("x", "one"), job("y", "many"), job("z", "many"))
    assert order(plan) == ["many", "one"]


def test_otherwise_the_order_of_the_plan_holds() -> None:
    assert order(wide(job("c"), job("a"), job("b"))) == ["c", "a", "b"]


def test_jobs_that_run_nothing_need_no_slot() -> None:
    gather = Job(id=JobId("gather"), name="gather")
    run = Simulation(wide(gather, job("a"))).start().run
    assert [start.job for start in pick([run], 0, 0)] == ["gather"]


def test_plans_take_turns() -> None:
    big = Simulation(wide(*(job(f"j{number}") for number in range(10))), "big").start().run
    small = Simulation(wide(job("only")), "small").start().run

    starts = pick([big, small], 3, 0)

    assert [(start.plan, start.job) for start in starts] == [("big", "j0"), ("small", "only"), ("big", "j1")]


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4)), min_size=1, max_size=4), st.integers(0, 6))
def test_neither_the_plans_nor_the_users_capacity_is_passed(sizes: list[tuple[int, int]], free: int) -> None:
    simulations = [
        Simulation(wide(*(job(f"j{number}") for number in range(size)), max_parallel=limit), f"p{index}").start()
        for index, (size, limit) in enumerate(sizes)
    ]
    starts = pick([one.run for one in simulations], free, default_limit=4)
    assert len(starts) <= free
    for simulation, (size, limit) in zip(simulations, sizes, strict=True):
        own = [start for start in starts if start.plan == simulation.run.id]
        assert len({start.job for start in own}) == len(own) <= min(size, limit or size)
    wanted = sum(min(size, limit or size) for size, limit in sizes)
    assert len(starts) == min(free, wanted)


def test_a_group_shows_the_most_urgent_of_its_direct_children() -> None:
    s = JobStatus
    assert roll_up([s.SUCCEEDED, s.RUNNING, s.FAILED]) is s.RUNNING
    assert roll_up([s.SCHEDULED, s.FAILED]) is s.RUNNING
    assert roll_up([s.SUCCEEDED, s.BLOCKED, s.FAILED]) is s.FAILED
    assert roll_up([s.SUCCEEDED, s.BLOCKED, s.CANCELED]) is s.BLOCKED
    assert roll_up([s.SUCCEEDED, s.SUCCEEDED]) is s.SUCCEEDED
    assert roll_up([s.SUCCEEDED, s.CANCELED, s.READY]) is s.CANCELED
    assert roll_up([s.SUCCEEDED, s.READY]) is s.PENDING


def test_groups_roll_up_through_groups_that_hold_only_groups() -> None:
    plan = wide(job("a/b/x", group="a/b"), job("a/c/y", group="a/c"))
    run = Simulation(plan).start().run
    assert dict(group_statuses(run)) == {"a": JobStatus.PENDING, "a/b": JobStatus.PENDING, "a/c": JobStatus.PENDING}


def test_who_waited_longest_is_next_and_a_round_that_starts_nothing_changes_no_turn() -> None:
    a, b, c = PlanId("a"), PlanId("b"), PlanId("c")

    assert next_turns([a, b, c], []) == [a, b, c]
    assert next_turns([a, b, c], [StartJob(b, JobId("x"), takes_slot=False)]) == [a, b, c]
    assert next_turns([a, b, c], [StartJob(plan, JobId("x"), takes_slot=True) for plan in (a, b, a)]) == [c, b, a]


A = JobId("a")


def begun(*jobs: Job) -> tuple[Simulation, JobRecord]:
    """A plan whose job `a` has begun its first attempt."""
    simulation = Simulation(wide(*jobs)).start()
    simulation.record(JobPicked(A, 1))
    simulation.record(JobStarted(A, 1))
    return simulation, simulation.run.records[A]


def attempt_of(record: JobRecord) -> Attempt:
    assert record.last is not None
    return record.last


def change(simulation: Simulation, *changes: dict[str, Any]) -> None:
    run = simulation.run
    started = {name for name, record in run.records.items() if record.started and name != VALIDATION}
    simulation.record(PlanReshaped(changes, plan_json(reshape(run.plan, started, changes))))


def test_a_retry_that_had_a_slot_when_the_engine_died_is_a_new_attempt() -> None:
    simulation, record = begun(job("a"))
    simulation.record(JobFailed(A, 1, Phase.WORK, "exit", "no"))
    simulation.record(JobRetried(A))
    simulation.record(JobPicked(A, 2))
    simulation.record(JobContinued(A, record.number, Phase.WORK))

    assert (record.number, record.continues, attempt_of(record).outcome) == (2, False, "failed")


def test_force_failing_a_job_before_its_next_attempt_leaves_the_last_one_as_it_was() -> None:
    simulation, record = begun(job("a"))
    simulation.record(JobFailed(A, 1, Phase.WORK, "exit", "no"))
    simulation.record(JobRetried(A))
    simulation.record(JobFailed(A, record.number, None, "forced", "enough"))

    assert [one.failure.reason for one in record.attempts if one.failure] == ["exit", "forced"]


def test_a_job_that_was_retried_before_it_ran_follows_a_reshape() -> None:
    simulation = Simulation(wide(job("a"), job("b"), job("c", "a"))).start()
    simulation.record(JobCanceled(JobId("c")))
    simulation.record(JobRetried(JobId("c")))
    change(simulation, {"op": "set_needs", "id": "c", "needs": ["b"]})

    assert simulation.run.job(JobId("c")).needs == ("b",)


def test_a_new_job_under_an_old_id_has_no_past() -> None:
    simulation = Simulation(wide(job("a"), job("b"))).start()
    simulation.record(JobCanceled(A))
    simulation.record(JobRetried(A, Phase.COMMIT, fresh=True, work={"type": "shell", "command": "old"}))
    change(simulation, {"op": "remove", "id": "a"}, {"op": "add", "job": {"id": "a", "work": "new"}})

    assert simulation.run.job(A).work == ShellWork(command="new")
    assert simulation.run.records[A] == JobRecord()


def test_a_validation_that_waits_to_land_begins_anew_when_the_graph_changes() -> None:
    simulation, _ = begun(job("a"))
    simulation.record(JobSucceeded(A, 1, "x"))
    simulation.record(JobPicked(VALIDATION, 1))
    simulation.record(JobStarted(VALIDATION, 1))
    simulation.record(JobHeld(VALIDATION, 1, "landing", "ask", Phase.MERGE_RI))
    simulation.record(HoldReleased(VALIDATION))
    change(simulation, {"op": "add", "job": {"id": "b", "work": "true"}})
    validation = simulation.run.records[VALIDATION]

    assert (validation.resume_from, validation.released, validation.hold, validation.number) == (None, None, None, 2)


def test_a_plan_that_is_canceled_while_it_is_put_together_is_canceled() -> None:
    simulation = Simulation(wide(job("a")))
    simulation.run.scaffolding = True
    simulation.record(PlanCanceled("no"))

    assert simulation.run.status is PlanStatus.CANCELED


def test_a_plan_that_has_started_has_a_snapshot_even_if_the_crash_came_right_then() -> None:
    events = [PlanSubmitted(plan_json(wide(job("a")))), PlanStarted("main", "base", "work", "tip")]
    run = replay(Recorded(number, 0.0, PlanId("p"), event) for number, event in enumerate(events, 1))

    assert run.snapshot is not None
    assert run.snapshot.start == "tip"


def test_an_attempt_goes_on_where_it_was_to_begin_if_the_engine_dies_while_it_gathers() -> None:
    simulation, record = begun(job("a"))
    simulation.record(PhaseStarted(A, 1, Phase.POSTCHECKS))
    simulation.record(JobHeld(A, 1, "approval", "look", Phase.MERGE_RI))
    simulation.record(HoldReleased(A))
    simulation.record(JobPicked(A, 1))
    simulation.record(JobStarted(A, 1, Phase.MERGE_RI))
    before = attempt_of(record).where
    simulation.record(PhaseStarted(A, 1, Phase.MERGE_FI))

    assert (before, attempt_of(record).where, attempt_of(record).entered) == (Phase.MERGE_RI, Phase.MERGE_RI, False)


def test_an_attempt_does_not_go_on_behind_a_phase_that_failed() -> None:
    simulation, record = begun(job("a"))
    simulation.record(PhaseStarted(A, 1, Phase.WORK))
    simulation.record(PhaseEnded(A, 1, Phase.WORK, "failed"))

    assert (attempt_of(record).where, attempt_of(record).entered) == (Phase.WORK, True)
