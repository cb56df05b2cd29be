"""Every command beside every other one, on a plan in each state, with the first waiting wherever it waits.

The first is begun and goes on until it has waited so many times; then the second is carried out whole, and the first
goes on. Whatever both are told, the engine lives, nothing that was answered is undone by what was asked before it
(`Orders` in `clients.py`), each does what it said, and the journal tells the same as memory. `purge_plan` is not here:
on paper there is nothing to remove.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from orchard.core.replay import replay
from orchard.core.run import Run
from orchard.errors import OrchardError
from orchard.model.events import plans as e
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, AgentWork, Job, JobId, Plan, PlanId, ShellWork
from orchard.model.plan_codec import plan_json
from orchard.operations.command import Command
from orchard.operations.commands import changes
from orchard.operations.table import OPERATIONS
from tests.core.simulation import known_of
from tests.engine.clients import WHEN, ClientsMachine

WAITS = 4
PLAN = PlanId("pairs-aaaaa")
A, B, W = JobId("a"), JobId("b"), JobId("w")

ARGS: Mapping[str, dict[str, Any]] = {
    "create_plan": {"plan": plan_json(Plan(name="k", jobs={A: Job(id=A, name="a", work=ShellWork(command="true"))})),
                    "key": "k"},
    "finalize_plan": {}, "pause_plan": {}, "resume_plan": {}, "cancel_plan": {}, "delete_plan": {}, "land_plan": {},
    "undo_plan": {}, "propose_plan": {}, "retry_plan": {"fresh": True},
    "reshape_plan": {"changes": [{"op": "add", "job": {"id": "n", "work": "true"}}]},
    "cancel_jobs": {"jobs": ["a"]}, "force_fail_job": {"job": "b"}, "approve_job": {"job": "a"},
    "reject_job": {"job": "a", "reason": "Not so."}, "resolve_conflict": {"job": "b", "step": "continue"},
    "deploy_jobs": {"jobs": ["a"]}, "send_message": {"job": "w", "message": "Go on."}, "interrupt_worker": {"job": "w"},
    "complete_task": {"job": "w", "result": "There."}, "pause_worker": {"job": "w"}, "resume_worker": {"job": "w"},
    "allow_call": {"job": "w"}, "deny_call": {"job": "w"},
}  # fmt: skip
NOT_ON_PAPER = {"purge_plan"}


class Paper(ClientsMachine):
    """A machine in which two requests are carried out in a chosen order."""

    def __init__(self) -> None:
        super().__init__()
        self.engine.live = {}  # type: ignore[attr-defined]
        self.engine.world.agents = SimpleNamespace(find=lambda name: None)
        self.answers: dict[int, dict[str, Any] | OrchardError] = {}

    async def tried(self, number: int, name: str) -> None:
        WHEN.set(self.orders.step)
        args = {"plan": PLAN, **ARGS[name]}
        try:
            answer = await self.requests.handle(name, args)
        except OrchardError as refused:
            self.answers[number] = refused
            return
        self.answers[number] = answer
        self.orders.note(name, args, answer)

    @property
    def run(self) -> Run:
        return self.engine.runs[PLAN]

    def tell(self, *events: e.Event) -> None:
        WHEN.set(-1)
        for event in events:
            self.engine.record(PLAN, event)


# ------------------------------------------------------------------------------------------- states


def _made(paper: Paper, *, scaffolding: bool = False, deploy: str = "auto") -> None:
    shell = ShellWork(command="true")
    jobs = [
        Job(id=A, name="a", work=shell),
        Job(id=B, name="b", work=shell, needs=(A,)),
        Job(id=W, name="w", work=AgentWork(instructions="Work.", interactive=True)),
    ]
    plan = Plan(name="pairs", jobs={job.id: job for job in jobs}, deploy=deploy)  # type: ignore[arg-type]
    paper.engine.runs.add(Run(PLAN), known=False)
    paper.orders.jobs[PLAN] = set()
    paper.tell(e.PlanSubmitted(plan_json(plan), scaffolding, None, None))


def _started(paper: Paper, *jobs: JobId, deploy: str = "auto") -> None:
    _made(paper, deploy=deploy)
    paper.tell(e.PlanStarted("main", "base", "work", "base"))
    for job in jobs:
        paper.tell(e.JobPicked(job, 1), e.JobStarted(job, 1))


def _scaffolding(paper: Paper) -> None:
    _made(paper, scaffolding=True)


def _running(paper: Paper) -> None:
    _started(paper, A, W)


def _paused(paper: Paper) -> None:
    _started(paper, A)
    paper.tell(e.PlanPaused("paused by the user"))


def _failed(paper: Paper) -> None:
    _started(paper, A)
    paper.tell(e.JobFailed(A, 1, None, "exit", "it failed"))


def _asking(paper: Paper) -> None:
    _started(paper, A, W)
    paper.tell(e.JobHeld(A, 1, "approval", "it has to be approved", Phase.MERGE_RI))
    paper.tell(e.PhaseStarted(W, 1, Phase.WORK), e.JobHeld(W, 1, "worker", "its agent is idle", Phase.WORK))


def _manual(paper: Paper) -> None:
    _started(paper, deploy="manual")


def _over(paper: Paper) -> None:
    _started(paper)
    for job in (A, B, W, VALIDATION):
        paper.tell(e.JobPicked(job, 1), e.JobStarted(job, 1))
        if job != VALIDATION:
            paper.tell(e.JobSucceeded(job, 1, f"commit-{job}"))


def _to_land(paper: Paper) -> None:
    _over(paper)
    paper.tell(e.JobHeld(VALIDATION, 1, "landing", "it was asked for", Phase.MERGE_RI))


def _landed(paper: Paper) -> None:
    _over(paper)
    paper.tell(e.Landed("l.1", "work", "base", "new"), e.JobSucceeded(VALIDATION, 1, "new"))


STATES: Mapping[str, Callable[[Paper], None]] = {
    "scaffolding": _scaffolding, "running": _running, "paused": _paused, "failed": _failed, "asking": _asking,
    "manual": _manual, "to-land": _to_land, "landed": _landed,
}  # fmt: skip


# -------------------------------------------------------------------------------------------- the search


async def _undo(engine: Any, run: Run) -> tuple[e.LandingUndone, bool]:
    """A branch that goes back where it was, on paper."""
    if run.undone is not None:
        return run.undone, False
    if run.landed is None:
        raise OrchardError("It has not landed.")
    landing = run.landed
    await engine.gate()
    engine.record(run.id, done := e.LandingUndone(landing.landing, landing.branch, landing.old))
    return done, True


async def _land_again(engine: Any, run: Run) -> e.Landed:
    if run.undone is None:
        raise OrchardError("There is nothing to land.")
    await engine.gate()
    engine.record(run.id, done := e.Landed("l.2", "work", "base", "new"))
    return done


@pytest.fixture(autouse=True)
def landing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "landing", SimpleNamespace(undo=_undo, land_again=_land_again))


def pairs() -> Iterator[tuple[str, str]]:
    yield from product(ARGS, ARGS)


def test_every_command_is_searched() -> None:
    commands = {name for name, one in OPERATIONS.items() if isinstance(one, Command)}
    assert set(ARGS) | NOT_ON_PAPER == commands


@pytest.mark.parametrize("state", STATES)
def test_two_commands_about_one_plan_are_both_kept_or_one_is_refused(state: str) -> None:
    tried = told = 0
    for first, second in pairs():
        for waits in range(WAITS):
            paper = Paper()
            try:
                STATES[state](paper)
                again = go_through(paper, first, second, waits)
                check(paper, first, second)
                told += sum(not isinstance(one, OrchardError) for one in paper.answers.values())
                tried += 1
            except BaseException as error:
                raise AssertionError(f"{state}: {second} while {first} has waited {waits} times: {error!r}") from error
            finally:
                paper.loop.run_until_complete(paper.loop.shutdown_asyncgens())
                paper.loop.close()
            if not again:
                break
    assert tried >= len(ARGS) ** 2 and told > 0


def go_through(paper: Paper, first: str, second: str, waits: int) -> bool:
    """Carry both out; whether the first waited as often as that."""
    paper.begin(paper.tried(0, first))
    for _ in range(waits):
        if 0 in paper.answers:
            return False
        paper.open_one(0)
    waiting = 0 not in paper.answers
    paper.begin(paper.tried(1, second))
    paper.open_all(last=True)
    assert set(paper.answers) == {0, 1}, "a request is never answered"
    return waiting


def check(paper: Paper, first: str, second: str) -> None:
    """Both did what they said, and the journal tells what memory knows."""
    run = paper.run
    assert known_of(replay(one for one in paper.engine.journal if one.plan == PLAN)) == known_of(run)
    done = [name for number, name in enumerate((first, second)) if not isinstance(paper.answers[number], OrchardError)]
    for name in ("approve_job", "complete_task", "finalize_plan", "deploy_jobs"):
        assert done.count(name) <= 1, f"{name} was told twice that it is done"
    if "delete_plan" in done:
        assert run.deleted and not run.active, "a plan that was deleted goes on"
    if done.count("send_message") == 2:
        assert [message.number for message in sent(paper)] == [1, 2], "a message was lost"
    if "reshape_plan" in done:
        assert JobId("n") in run.plan.jobs, "a job that was added is gone"
    if "create_plan" in done:
        made = {one["plan"] for one in paper.answers.values() if isinstance(one, dict) and "known" in one}
        assert len(made) == 1, "one key made two plans"


def sent(paper: Paper) -> list[e.MessageSent]:
    return [one.event for one in paper.engine.journal if isinstance(one.event, e.MessageSent)]
