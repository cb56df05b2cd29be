"""Workers: the agents that work on jobs, as people see them.

    created     the attempt has begun, its agent has not
    running     it is in a turn, or between two
    idle        its turn is over, and it waits for a message or to be told that it is done
    paused      it has begun, and waits for a budget, for a slot, or for itself or its plan to be resumed
    completed   its work is done
    error       its work failed, or was stopped

Nothing of this is stored: it follows from the records.
"""

from collections.abc import Sequence
from typing import get_args

from orchard.core.records import Attempt, JobRecord, Subtask, Turn
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.documents import WorkerState, WorkerView
from orchard.core.views.health import conditions_view
from orchard.model.phases import Phase, at_or_after
from orchard.model.plan import VALIDATION, AgentWork, JobId

STATES: tuple[WorkerState, ...] = get_args(WorkerState)


def subtask_state(one: Subtask) -> WorkerState:
    """What the agent of a subtask does."""
    if one.over:
        return "completed" if one.status == "completed" else "error"
    if one.status == "waiting":
        return "created" if one.started is None else "paused"
    return "idle" if one.status == "idle" else "paused" if one.status == "paused" else "running"


def worker_state(run: Run, job_id: JobId) -> WorkerState | None:
    """What the agent of a job does; None: no attempt has begun, or it is no work for an agent."""
    record = run.records[job_id]
    if job_id == VALIDATION or not isinstance(run.described(job_id).work, AgentWork):
        return None
    if record.done is not None and record.state not in (JobState.FAILED, JobState.CANCELED):
        return "completed"
    last = record.last
    if last is None:
        return "created" if record.state is JobState.SCHEDULED else None
    if record.state is JobState.SUCCEEDED:
        return "completed"
    if record.state in (JobState.FAILED, JobState.CANCELED):
        return "completed" if _is_done(last) else "error"
    if record.hold is not None and record.hold.kind == "worker":
        return "paused" if record.is_paused else "idle"
    if record.state is JobState.RUNNING and last.where is not Phase.WORK:
        return "completed" if at_or_after(last.where, Phase.COMMIT) else "created"
    if record.state is JobState.RUNNING:
        return "running" if _turns(last) else "created"
    return _going_on(record, last)


def _going_on(record: JobRecord, last: Attempt) -> WorkerState | None:
    if not record.continues:
        return "created" if record.state is JobState.SCHEDULED else None
    if at_or_after(record.resume_from or Phase.MERGE_FI, Phase.COMMIT):
        return "completed"
    return "paused" if _turns(last) else "created"


def _is_done(attempt: Attempt) -> bool:
    """Whether the work of an attempt that is over had been done: what failed is what came after it."""
    return any(phase.phase is Phase.WORK and phase.outcome == "passed" for phase in attempt.phases) or any(
        phase.phase is Phase.COMMIT for phase in attempt.phases
    )


def _turns(attempt: Attempt) -> bool:
    return any(turn.purpose == "work" for turn in attempt.turns)


def last_words(turns: Sequence[Turn]) -> str:
    """What an agent said last; the turn that is under way has told nothing yet."""
    return next((turn.text for turn in reversed(turns) if turn.text), "")


def model_of(turns: Sequence[Turn]) -> str | None:
    """The model that was used last, as the agent tells it, or else as it was asked for."""
    told = (next(reversed(turn.used), None) or turn.model for turn in reversed(turns))
    return next((model for model in told if model), None)


def worker_view(run: Run, job_id: JobId, *, stopped: bool = False) -> WorkerView | None:
    """The agent of a job in a few fields; `stopped`: the engine that ran it is gone."""
    state = worker_state(run, job_id)
    if state is None:
        return None
    record, work = run.records[job_id], run.described(job_id).work
    assert isinstance(work, AgentWork)
    turns = [turn for attempt in record.attempts for turn in attempt.turns if turn.purpose == "work"]
    last = turns[-1] if turns else None
    live = record.last.turn_of(None) if record.last is not None and state in ("running", "idle") else None
    return WorkerView(
        state="error" if stopped else state,
        agent=last.agent if last else work.agent,
        session=(last.session or last.resumed) if last else None,
        interactive=work.interactive,
        turns=len(turns),
        queued=len(record.queued),
        said=record.result or (last.text if last else ""),
        model=model_of(turns),
        definition=last.definition if last else None,
        health=[] if stopped else conditions_view(live),
    )
