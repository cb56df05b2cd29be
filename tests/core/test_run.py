"""Any plan, any order of ends, any crash point."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orchard.core.replay import APPLY, apply, replay
from orchard.core.run import Run, statuses
from orchard.core.scheduler import StartJob, pick
from orchard.core.states import ACTIVE, TRANSITIONS, IllegalTransition, JobState
from orchard.core.views.attempts import attempt_view
from orchard.core.views.documents import time_text
from orchard.core.views.plans import job_view, plan_summary
from orchard.model.events.plans import (
    Event,
    HoldReleased,
    JobCanceled,
    JobContinued,
    JobEvent,
    JobFailed,
    JobHeld,
    JobPicked,
    JobRetried,
    JobStarted,
    JobSucceeded,
    Landed,
    LandingUndone,
    PhaseStarted,
    PlanCanceled,
    PlanPaused,
    PlanReshaped,
    PlanResumed,
    PlanStarted,
    PlanSubmitted,
    Recorded,
    UndoIntended,
    Warned,
    decode,
    encode,
    event_types,
)
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, Job, JobId, Plan, PlanId, ShellWork, with_validation
from orchard.model.plan_codec import plan_json
from orchard.model.statuses import JobStatus, PlanStatus
from orchard.planfile.parse import parse_value
from orchard.surfaces.next_steps import in_commands
from tests.core.simulation import Simulation
from tests.core.strategies import plans
from tests.examples import examples

SETTLED = {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.BLOCKED, JobStatus.CANCELED}


def runnable(plan: Plan) -> Plan:
    return replace(plan, start_paused=False, after=None)


def chain(*ids: str) -> Plan:
    jobs: dict[JobId, Job] = {}
    before: tuple[JobId, ...] = ()
    for name in ids:
        job = JobId(name)
        jobs[job] = Job(id=job, name=name, needs=before, work=ShellWork(command="true"))
        before = (job,)
    return with_validation(Plan(name="chain", jobs=jobs))


def check_counters(run: Run) -> None:
    held = frozenset(job for job, record in run.records.items() if record.hold is not None)
    allowed = frozenset(job for job, record in run.records.items() if record.stand_in is not None)
    expected = statuses(run.plan, {job: record.state for job, record in run.records.items()}, held, allowed)
    assert {job: record.status for job, record in run.records.items()} == expected
    assert {status: count for status, count in run.counts.items() if count} == dict(Counter(expected.values()))
    active = [job for job, record in run.records.items() if record.state in ACTIVE]
    assert run.slots_used == sum(run.takes_slot(job) for job in active)


def end(simulation: Simulation, job: JobId, luck: str) -> None:
    attempt = simulation.attempt(job)
    if luck == "fail":
        simulation.record(JobFailed(job, attempt, Phase.WORK, "exit", "it failed"))
    elif luck == "hold":
        simulation.record(JobHeld(job, attempt, "approval", "look at it", Phase.MERGE_RI))
        simulation.record(HoldReleased(job))
    elif luck == "crash":
        simulation.record(JobContinued(job, attempt, Phase.MERGE_RI))
    elif luck == "cancel":
        simulation.record(JobCanceled(job, "stopped"))
    else:
        simulation.record(JobSucceeded(job, attempt, f"commit-of-{job}"))


@examples(150)
@given(plans(), st.integers(1, 4), st.data())
def test_every_plan_ends_and_nothing_starts_before_what_it_needs(plan: Plan, slots: int, data: st.DataObject) -> None:
    simulation = Simulation(replace(runnable(plan), max_parallel=slots)).start()
    run, running, steps = simulation.run, list[JobId](), 0
    while True:
        for start in pick([run], 3, default_limit=4):
            needs = run.plan.jobs[start.job].needs
            assert all(run.records[need].state is JobState.SUCCEEDED for need in needs)
            simulation.begin(start)
            running.append(start.job)
        assert sum(run.takes_slot(job) for job in running) <= slots
        check_counters(run)
        if not running:
            break
        job = running.pop(data.draw(st.integers(0, len(running) - 1)))
        steps += 1
        lucks = ["succeed", "succeed", "fail", "cancel"] + (["hold", "crash"] if steps < 40 else [])
        end(simulation, job, data.draw(st.sampled_from(lucks)))
    assert {record.status for record in run.records.values()} <= SETTLED
    assert run.settled


@examples(100)
@given(plans(), st.data())
def test_a_run_is_the_replay_of_its_journal_at_any_crash_point(plan: Plan, data: st.DataObject) -> None:
    simulation = Simulation(runnable(plan)).start()
    for _ in range(data.draw(st.integers(0, 12))):
        for start in pick([simulation.run], 4, default_limit=0):
            simulation.begin(start)
        active = simulation.run.active
        if not active:
            break
        end(simulation, data.draw(st.sampled_from(active)), data.draw(st.sampled_from(["succeed", "fail", "hold"])))
    cut = data.draw(st.integers(1, len(simulation.journal)))

    again = replay(replace(one, event=decode(*encode(one.event))) for one in simulation.journal[:cut])

    check_counters(again)
    for recorded in simulation.journal[cut:]:
        apply(again, recorded)
    assert {job: record.status for job, record in again.records.items()} == {
        job: record.status for job, record in simulation.run.records.items()
    }
    assert again.status is simulation.run.status
    assert again.counts == simulation.run.counts


@examples(100)
@given(plans(), st.data())
def test_a_retry_unblocks_exactly_what_the_failure_blocked(plan: Plan, data: st.DataObject) -> None:
    simulation = Simulation(runnable(plan)).start()
    run = simulation.run
    while starts := pick([run], 4, default_limit=0):
        for start in starts:
            simulation.begin(start)
            luck = data.draw(st.sampled_from(["succeed", "fail"]))
            end(simulation, start.job, luck)
    for job in [job for job, record in run.records.items() if record.state is JobState.FAILED]:
        simulation.record(JobRetried(job))
        check_counters(run)
    assert JobStatus.BLOCKED not in {record.status for record in run.records.values()}
    assert JobStatus.FAILED not in {record.status for record in run.records.values()}


def test_an_illegal_event_changes_nothing_and_tells_the_story() -> None:
    simulation = Simulation(chain("a", "b")).start()
    simulation.begin(pick([simulation.run], 1, 0)[0])
    simulation.record(JobFailed(JobId("a"), 1, Phase.WORK, "exit", "no"))

    with pytest.raises(IllegalTransition, match="attempt 1"):
        apply(simulation.run, replace(simulation.journal[-1], event=JobSucceeded(JobId("a"), 1, "x")))

    assert simulation.run.records[JobId("a")].state is JobState.FAILED
    check_counters(simulation.run)


def test_every_state_but_success_can_be_left_and_every_event_has_a_place() -> None:
    assert {state for state, _ in TRANSITIONS} == set(JobState) - {JobState.SUCCEEDED}
    moving = {event for event in event_types().values() if issubclass(event, JobEvent)}
    assert {event for _, event in TRANSITIONS} == moving


def test_every_event_has_a_meaning_for_a_run() -> None:
    assert set(APPLY) == set(event_types().values())


def test_the_validation_job_comes_last_and_needs_the_leaves() -> None:
    plan = chain("a", "b", "c")
    assert plan.leaves == ("c",)
    assert list(plan.jobs)[-1] == VALIDATION
    assert plan.roots == ("a",)


def test_a_paused_plan_starts_nothing_and_a_resumed_one_goes_on() -> None:
    simulation = Simulation(chain("a", "b")).start()
    simulation.record(PlanPaused("for lunch"))
    assert pick([simulation.run], 4, 0) == []
    assert simulation.run.status is PlanStatus.PAUSED

    simulation.record(PlanResumed())

    assert [start.job for start in pick([simulation.run], 4, 0)] == ["a"]


def test_a_held_job_gives_its_slot_back_and_goes_on_with_the_same_attempt() -> None:
    simulation = Simulation(chain("a")).start()
    run = simulation.run
    simulation.begin(pick([run], 1, 0)[0])
    simulation.record(JobHeld(JobId("a"), 1, "approval", "look", Phase.MERGE_RI))
    assert run.slots_used == 0
    assert run.status is PlanStatus.WAITING
    assert pick([run], 1, 0) == []

    simulation.record(HoldReleased(JobId("a")))
    started = pick([run], 1, 0)[0]
    assert started.job == "a"
    assert run.records[JobId("a")].continues
    assert run.records[JobId("a")].released == "approval"


def test_a_canceled_plan_is_canceled_only_when_its_last_job_has_stopped() -> None:
    simulation = Simulation(chain("a")).start()
    simulation.begin(pick([simulation.run], 1, 0)[0])
    simulation.record(PlanCanceled("no more"))
    before = simulation.run.status

    simulation.record(JobCanceled(JobId("a"), "no more", Phase.WORK))

    assert (before, simulation.run.status) == (PlanStatus.RUNNING, PlanStatus.CANCELED)


def test_active_seconds_count_only_while_a_job_is_worked_on() -> None:
    simulation = Simulation(chain("a")).start()
    simulation.begin(pick([simulation.run], 1, 0)[0])
    begun = simulation.journal[-2].at
    simulation.record(JobFailed(JobId("a"), 1, Phase.WORK, "exit", "no"))
    ended = simulation.journal[-1].at

    assert simulation.run.active_seconds(now=ended + 1000) == ended - begun


def test_a_night_without_an_engine_is_no_time_in_which_jobs_ran() -> None:
    plan = parse_value({"name": "n", "budget": {"minutes": 60}, "jobs": [{"id": "a", "work": "true"}]})
    job, night = JobId("a"), 36_000.0
    told: list[tuple[float, Event]] = [
        (0.0, PlanSubmitted(plan_json(plan))),
        (1.0, PlanStarted("main", "a" * 40, "t", "b" * 40)),
        (2.0, JobPicked(job, 1)),
        (3.0, JobStarted(job, 1)),
        (4.0, PhaseStarted(job, 1, Phase.WORK)),
        (night, Warned("found", job)),
        (night + 1, JobFailed(job, 1, Phase.WORK, "interrupted", "it was")),
        (night + 2, JobRetried(job)),
        (night + 3, JobPicked(job, 2)),
        (night + 4, JobStarted(job, 2)),
    ]
    run = replay(Recorded(seq, at, PlanId("p-abcde"), event) for seq, (at, event) in enumerate(told, 1))

    assert run.active_seconds(night + 10) == 2.0 + 7.0
    assert [attempt.ended for attempt in run.records[job].attempts] == [4.0, None]


JOB, NIGHT = JobId("a"), 36_000.0
EVENING: list[tuple[float, Event]] = [
    (0.0, PlanSubmitted(plan_json(parse_value({"name": "n", "jobs": [{"id": "a", "work": "true"}]})))),
    (1.0, PlanStarted("main", "a" * 40, "t", "b" * 40)),
    (2.0, JobPicked(JOB, 1)),
    (3.0, JobStarted(JOB, 1)),
    (4.0, PhaseStarted(JOB, 1, Phase.WORK)),
]


def after(*told: tuple[float, Event]) -> Run:
    return replay(Recorded(seq, at, PlanId("p-abcde"), event) for seq, (at, event) in enumerate((*EVENING, *told), 1))


@pytest.mark.parametrize(
    "found",
    [
        JobCanceled(JOB, "by the user", Phase.WORK, found=True),
        JobHeld(JOB, 1, "budget", "used up", Phase.WORK, found=True),
        JobContinued(JOB, 1, Phase.WORK),
        JobFailed(JOB, 1, Phase.WORK, "interrupted", "it was"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_an_engine_finds_in_the_morning_happened_in_the_evening(found: Event) -> None:
    run = after((5.0, PlanCanceled("by the user")), (NIGHT, Warned("found", JOB)), (NIGHT + 1, found))

    (attempt,) = run.records[JOB].attempts
    assert (attempt.ended, attempt.phases[0].ended) == (5.0, 5.0)
    assert run.active_seconds(NIGHT + 1) == 3.0
    assert run.ended_at in (5.0, None)


def test_how_long_a_plan_took_leaves_out_when_it_was_over_and_when_there_was_no_engine() -> None:
    failed = JobFailed(JOB, 1, Phase.WORK, "exit", "no")
    over = after((6.0, failed))
    again = after((6.0, failed), (60.0, JobRetried(JOB)), (61.0, JobPicked(JOB, 2)))
    twice = after(
        (NIGHT, JobContinued(JOB, 1, Phase.WORK)),
        (NIGHT + 1, JobPicked(JOB, 1)),
        (NIGHT + 2, JobStarted(JOB, 1, Phase.WORK)),
        (NIGHT + 9, failed),
        (2 * NIGHT, JobRetried(JOB)),
    )

    assert (over.idle_seconds, over.ended_at) == (0.0, 6.0)
    assert (again.idle_seconds, again.ended_at) == (54.0, None)
    assert twice.idle_seconds == (NIGHT + 1 - 4.0) + (2 * NIGHT - NIGHT - 9)
    assert plan_summary(again, in_commands).idle_seconds == 54.0


@pytest.mark.parametrize(
    "found",
    [
        JobCanceled(JOB, "by the user", Phase.WORK, found=True, since=9.0),
        JobHeld(JOB, 1, "budget", "used up", Phase.WORK, found=True, since=9.0),
        JobContinued(JOB, 1, Phase.WORK, since=9.0),
        JobFailed(JOB, 1, Phase.WORK, "interrupted", "it was", since=9.0),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_attempt_that_is_found_interrupted_ended_when_its_engine_was_last_at_work(found: Event) -> None:
    run = after((5.0, PlanCanceled("by the user")), (NIGHT, found))

    (attempt,) = run.records[JOB].attempts
    assert (attempt.ended, attempt.phases[0].ended) == (9.0, 9.0)
    assert run.active_seconds(NIGHT) == 7.0
    assert run.ended_at in (9.0, None)


def test_no_job_took_longer_than_its_plan() -> None:
    other = JobId("b")
    two = parse_value({"name": "n", "jobs": [{"id": "a", "work": "true"}, {"id": "b", "work": "true"}]})
    told: list[tuple[float, Event]] = [
        (0.0, PlanSubmitted(plan_json(two))),
        *EVENING[1:],
        (4.0, JobPicked(other, 1)),
        (4.0, JobStarted(other, 1)),
        (NIGHT, JobFailed(other, 1, Phase.WORK, "interrupted", "it was", since=9.0)),
        (NIGHT + 1, JobRetried(other)),
        (NIGHT + 2, JobContinued(JOB, 1, Phase.COMMIT, since=9.0)),
        (NIGHT + 3, JobPicked(JOB, 1)),
        (NIGHT + 4, JobStarted(JOB, 1, Phase.COMMIT)),
        (NIGHT + 6, JobFailed(JOB, 1, Phase.COMMIT, "exit", "no")),
        (NIGHT + 6, PlanCanceled("enough")),
        (NIGHT + 6, JobCanceled(other)),
        (NIGHT + 6, JobCanceled(VALIDATION)),
    ]

    run = replay(Recorded(seq, at, PlanId("p-abcde"), event) for seq, (at, event) in enumerate(told, 1))

    attempt = run.records[JOB].attempts[0]
    assert (attempt.ended, attempt.idle_seconds) == (NIGHT + 6, NIGHT + 4 - 9.0)
    assert run.records[other].attempts[0].ended == 9.0
    assert (run.ended_at, run.idle_seconds) == (NIGHT + 6, NIGHT + 1 - 9.0 + 2.0), "one night, and 2 s until it went on"
    assert job_view(run, JOB).idle_seconds == attempt_view(run, JOB)[0].idle_seconds == NIGHT - 5.0


def test_a_plan_that_is_over_does_not_become_longer_by_what_is_done_with_it() -> None:
    done = Simulation(parse_value({"name": "n", "jobs": [{"id": "a", "work": "true"}]})).start()
    for job in (JobId("a"), VALIDATION):
        done.begin(StartJob(done.run.id, job, takes_slot=False))
        done.record(JobSucceeded(job, 1, "x" * 40))
    ended = done.run.ended_at
    done.record(Landed("l", "work", "a", "b"))
    done.record(UndoIntended("l", "work", "a", "b"))
    done.record(LandingUndone("l", "work", "a"))

    assert ended is not None and done.run.ended_at == ended
    assert plan_summary(done.run, in_commands).ended_at == time_text(ended)


def test_a_job_that_was_removed_while_it_ran_keeps_no_slot() -> None:
    """Journals of older engines hold such a reshape; the plan goes on when it is replayed."""
    work = ShellWork(command="true")
    jobs = {JobId(name): Job(id=JobId(name), name=name, work=work) for name in "ab"}
    plan = Plan(name="p", jobs=jobs, max_parallel=1)
    simulation = Simulation(plan).start()
    [start] = pick([simulation.run], 1, 1)
    simulation.begin(start)
    left = {job: jobs[job] for job in jobs if job != start.job}
    gone = ({"op": "remove", "id": start.job},)
    simulation.record(PlanReshaped(gone, plan_json(replace(plan, jobs=left))))

    replayed = replay(simulation.journal)

    for run in (simulation.run, replayed):
        assert run.slots_used == 0
        assert not run.is_active
        assert [one.job for one in pick([run], 1, 1)] == list(left)
