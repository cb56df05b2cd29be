"""Who goes first, and how plans share."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from orchard.core.plan import Job, JobId, Plan, ShellWork, with_validation
from orchard.core.scheduler import group_statuses, pick, roll_up
from orchard.core.states import JobStatus
from tests.core.simulation import Simulation


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


@settings(max_examples=60, deadline=None)
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
