"""What changed since an event: whoever puts it into what he knew then knows what is now, whenever both were."""

import gzip
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec import UNSET, Struct
from tools.journal_fixture import FIXTURE

from orchard.core.replay import apply, replay
from orchard.core.run import Run
from orchard.core.views.documents import PlanChanges, PlanView
from orchard.core.views.plans import plan_changes, plan_view
from orchard.model.events import plans as e
from orchard.model.events.plans import Recorded, decode
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, Job, JobId, Plan, PlanId, ShellWork, with_validation
from orchard.model.plan_codec import plan_json
from orchard.surfaces.next_steps import in_commands
from tests.core.machine_workers import WorkerMachine
from tests.examples import EVERYTHING, share_of

STEPS = 25
EXAMPLES = 80
LAST = 3
"""Of what a machine did, each moment is reached from the last few before it and from as many others."""


def patched(old: PlanView | None, news: PlanChanges) -> PlanView:
    """A document brought up to date, as any client does it."""
    jobs = {job.id: job for job in old.jobs} if old is not None else {}
    for job in news.removed:
        jobs.pop(job, None)
    jobs |= {job.id: job for job in news.jobs}
    order = list(jobs) if news.order is UNSET else news.order
    return PlanView(news.plan, [jobs[job] for job in order], news.seq)


class Moment(Struct, frozen=True):
    """What was seen after an event, with an engine and without one."""

    seq: int
    seen: PlanView
    left: PlanView
    active: tuple[JobId, ...]


def check_moments(events: Sequence[Recorded], numbers: Random | None) -> None:
    """Follow a plan; `numbers` chooses from which earlier moments each is reached, without them it is all of them."""
    run, anew = Run(events[0].plan), Run(events[0].plan)
    moments: list[Moment] = []
    for recorded in events:
        apply(run, recorded)
        apply(anew, recorded)
        anew.views.clear()
        moments.append(
            Moment(
                run.seq, plan_view(anew, in_commands), plan_view(anew, in_commands, interrupted=True), tuple(run.active)
            )
        )
        assert plan_view(run, in_commands) == moments[-1].seen
        assert patched(None, plan_changes(run, in_commands, 0)) == moments[-1].seen
        for before in chosen(moments, numbers):
            check_pair(run, before, moments[-1])


def chosen(moments: Sequence[Moment], numbers: Random | None) -> Iterator[Moment]:
    if numbers is None:
        yield from moments
        return
    yield from moments[-LAST:]
    yield from numbers.choices(moments, k=LAST)


def check_pair(run: Run, before: Moment, now: Moment) -> None:
    news, left = (
        plan_changes(run, in_commands, before.seq),
        plan_changes(run, in_commands, before.seq, interrupted=True),
    )
    assert (news.since, news.seq) == (before.seq, run.seq)
    assert patched(before.seen, news) == now.seen
    assert patched(before.seen, left) == patched(before.left, left) == now.left
    if all(run.changed.get(job, run.seq) > before.seq for job in before.active):  # an engine has taken care of each
        assert patched(before.left, news) == now.seen


def stored() -> list[list[Recorded]]:
    with gzip.open(FIXTURE, "rt") as file:
        plans = [json.loads(line)["events"] for line in file]
    return [
        [Recorded(seq, at, PlanId(plan), decode(name, body)) for seq, (plan, at, name, body) in enumerate(rows, 1)]
        for rows in plans
    ]


@pytest.mark.parametrize("events", stored(), ids=lambda events: str(events[0].plan))
def test_what_changed_between_any_two_moments_of_a_real_plan_makes_one_of_the_other(events: list[Recorded]) -> None:
    check_moments(events, None if EVERYTHING else Random(len(events)))


class ChangingMachine(WorkerMachine):
    """Whatever happened in the end, each plan is followed from its beginning."""

    def teardown(self) -> None:
        super().teardown()
        journal = self.engine.journal
        numbers = Random(len(journal))
        for plan in self.engine.runs:
            check_moments([one for one in journal if one.plan == plan], numbers)


def test_what_changed_makes_any_plan_the_one_it_is_now() -> None:
    limits = settings(
        max_examples=share_of(EXAMPLES),
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(ChangingMachine, settings=limits)


# ------------------------------------------------------------------------------------ one by one


class Wide:
    """A plan of many jobs, in pairs: each `b` needs its `a`."""

    def __init__(self, pairs: int = 100) -> None:
        self.plan = plan_of(*(job_of(f"{name}{n}", *needs(name, n)) for n in range(pairs) for name in "ab"))
        self.events: list[Recorded] = []
        self.run = Run(PlanId("p"))
        self.do(e.PlanSubmitted(plan_json(self.plan)), e.PlanStarted("main", "base", "work", "base"))

    def do(self, *events: e.Event) -> int:
        """Let it happen; the number of the last event before."""
        before = self.run.seq
        for event in events:
            self.events.append(Recorded(7 * len(self.events) + 7, 5.0, PlanId("p"), event))
            apply(self.run, self.events[-1])
        return before

    def reshape(self, *changes: dict[str, Any], plan: Plan) -> int:
        return self.do(e.PlanReshaped(changes, plan_json(plan)))

    def changed(self, since: int) -> list[str]:
        return [job.id for job in plan_changes(self.run, in_commands, since).jobs]


def needs(name: str, n: int) -> tuple[str, ...]:
    return (f"a{n}",) if name == "b" else ()


def job_of(name: str, *needs: str) -> Job:
    return Job(id=JobId(name), name=name, needs=tuple(map(JobId, needs)), work=ShellWork(command="true"))


def plan_of(*jobs: Job) -> Plan:
    return with_validation(Plan(name="wide", jobs={job.id: job for job in jobs}))


def test_only_the_job_is_told_to_which_something_happened() -> None:
    wide = Wide()
    wide.do(e.JobPicked(JobId("a7"), 1), e.JobStarted(JobId("a7"), 1))

    before = wide.do(e.PhaseStarted(JobId("a7"), 1, Phase.WORK))

    assert wide.changed(before) == ["a7"]
    assert plan_changes(wide.run, in_commands, before).order is UNSET


def test_jobs_whose_status_follows_are_told_as_well() -> None:
    wide = Wide()
    wide.do(e.JobPicked(JobId("a7"), 1), e.JobStarted(JobId("a7"), 1))

    before = wide.do(e.JobSucceeded(JobId("a7"), 1, "commit"))
    assert wide.changed(before) == ["a7", "b7"], "which is ready now"

    before = wide.do(e.JobCanceled(JobId("a8")))
    assert wide.changed(before) == ["a8", "b8", VALIDATION], "which are blocked"

    before = wide.do(e.JobCanceled(JobId("a9")))
    assert wide.changed(before) == ["a9", "b9"], "nothing of the others is new"


def test_nothing_is_told_of_jobs_when_the_plan_alone_changed() -> None:
    wide = Wide()

    before = wide.do(e.PlanPaused("why"))
    news = plan_changes(wide.run, in_commands, before)

    assert (news.jobs, news.removed, news.plan.paused) == ([], [], "why")
    assert plan_changes(wide.run, in_commands, wide.run.seq).jobs == []
    assert plan_changes(wide.run, in_commands, wide.run.seq + 1000).jobs == []


def test_a_reshape_tells_what_it_took_away_and_what_it_made_otherwise() -> None:
    wide = Wide(3)
    jobs = {job.id: job for job in wide.plan.jobs.values() if job.id not in ("b1", VALIDATION)}
    other = plan_of(job_of("new", "a0"), *jobs.values())

    before = wide.reshape({"op": "remove", "id": "b1"}, {"op": "add", "job": {"id": "new"}}, plan=other)
    news = plan_changes(wide.run, in_commands, before)

    assert news.removed == ["b1"]
    assert [job.id for job in news.jobs] == ["new", "a1", VALIDATION], "a1 is a leaf now"
    assert news.order == ["new", "a0", "b0", "a1", "a2", "b2", VALIDATION]
    assert plan_changes(wide.run, in_commands, wide.run.seq).order is UNSET


def test_a_job_that_comes_back_under_its_id_is_another_one_and_not_removed() -> None:
    wide = Wide(2)
    without = plan_of(*(job for job in wide.plan.jobs.values() if job.id not in ("b1", VALIDATION)))
    first = wide.reshape({"op": "remove", "id": "b1"}, plan=without)

    wide.reshape({"op": "add", "job": {"id": "b1"}}, plan=wide.plan)
    news = plan_changes(wide.run, in_commands, first)

    assert news.removed == []
    assert "b1" in [job.id for job in news.jobs]


def test_a_plan_that_is_read_from_its_journal_tells_the_same_as_one_that_was_followed() -> None:
    wide = Wide(5)
    wide.do(e.JobPicked(JobId("a1"), 1), e.JobStarted(JobId("a1"), 1))
    plan_view(wide.run, in_commands)
    before = wide.do(e.JobFailed(JobId("a1"), 1, None, "exit", "no"))

    assert plan_changes(replay(wide.events), in_commands, before) == plan_changes(wide.run, in_commands, before)


def test_while_no_engine_is_there_what_it_worked_on_is_always_told() -> None:
    wide = Wide(5)
    wide.do(e.JobPicked(JobId("a1"), 1), e.JobStarted(JobId("a1"), 1))

    (job,) = plan_changes(wide.run, in_commands, wide.run.seq, interrupted=True).jobs

    assert (job.id, job.status, job.reason) == ("a1", "failed", "interrupted")
    assert plan_changes(wide.run, in_commands, wide.run.seq).jobs == []


def test_what_nobody_has_recorded_yet_is_told_to_who_knows_the_last_event() -> None:
    wide = Wide(5)
    wide.do(e.JobPicked(JobId("a1"), 1), e.JobStarted(JobId("a1"), 1))
    plan_view(wide.run, in_commands)

    wide.run.ahead = True
    apply(wide.run, Recorded(wide.run.seq, 9.0, PlanId("p"), e.JobFailed(JobId("a1"), 1, None, "idle", "too long")))

    assert "a1" in wide.changed(wide.run.seq)
    assert plan_view(wide.run, in_commands).jobs[2].status == "failed"
