"""What each event means for a run: one function an event, and one table that finds it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from orchard.core.conflict_replay import APPLY_CONFLICTS, resolved_again
from orchard.core.health_replay import APPLY_HEALTH
from orchard.core.question_replay import APPLY_QUESTIONS
from orchard.core.records import Attempt, PhaseRecord, Snapshot, Turn
from orchard.core.run import Run
from orchard.core.sandbox_replay import APPLY_SANDBOX
from orchard.core.states import JobState, after
from orchard.core.subtask_replay import APPLY_SUBTASKS, stop_waiting
from orchard.core.worker_replay import APPLY_WORKERS
from orchard.model.events import plans as events
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, Budget, JobId
from orchard.model.plan_codec import plan_from_json, work_from_json
from orchard.model.secrets import secrets_of_job
from orchard.model.usage import add, usage_from_json


def replay(history: Iterable[events.Recorded]) -> Run:
    """The run that these events, all of one plan, make."""
    run: Run | None = None
    for recorded in history:
        run = run or Run(recorded.plan)
        apply(run, recorded)
    if run is None:
        raise ValueError("a run cannot be replayed from no events")
    return run


def apply(run: Run, recorded: events.Recorded) -> None:
    """Take in what happened; what cannot happen raises, and changes nothing."""
    event = recorded.event
    since = found_since(event, run.alive_at)
    works = since is None and not isinstance(event, TIDYING)
    if isinstance(event, events.JobEvent):
        was_active = run.is_active
        run.move(event, recorded.seq)
        if since is not None:
            run.skip(since, recorded.at)
        run.clock_active(was_active, recorded.at)
    run.seq, run.changed_at = recorded.seq, recorded.at
    if since is not None:
        run.rest(since)
    if works:
        run.alive_at = recorded.at
    APPLY[type(event)](run, event, recorded.at if since is None else since)
    if isinstance(event, OF_JOB) and event.job in run.records:
        run.mark(event.job)
    if isinstance(event, ENDING):
        run.note_end(recorded.at)
    if works:
        run.go_on(recorded.at)


OF_JOB = (events.JobEvent, events.JobFact)
ENDING = (
    events.JobEvent,
    events.PlanSubmitted,
    events.PlanCanceled,
    events.PlanReshaped,
    events.PlanResumed,
    events.HoldReleased,
    events.JobDeployed,
    events.PlanFinalized,
)
TIDYING = (
    events.WorkSaved,
    events.Warned,
    events.LandingVoided,
    events.SubtaskEnded,
    events.SubtaskFolderGone,
    events.WorktreeGone,
    events.ConflictClosed,
)
"""What a new engine records before it says what became of a job; none of it shows that the job was worked on."""


FOUND = (events.JobCanceled, events.JobHeld, events.JobContinued, events.JobFailed)
"""What a new engine may find to have happened before it."""


def found_since(event: events.Event, alive_at: float) -> float | None:
    """When this happened, if an engine found it to have happened while there was none, perhaps hours before.

    `alive_at`: of when the plan's last trace is, for journals that do not say how long its engine lived after that.
    """
    if not isinstance(event, FOUND):
        return None
    if isinstance(event, events.JobCanceled | events.JobHeld) and not event.found:
        return None
    if isinstance(event, events.JobFailed) and event.reason != "interrupted":
        return None
    return event.since or alive_at


def foresee(run: Run, happening: Sequence[events.Event]) -> None:
    """Raise where one of these events could not happen, each after those before it; nothing is changed."""
    states: dict[JobId, JobState] = {}
    for event in happening:
        job = getattr(event, "job", None)
        if job is None:
            continue
        known = run.records[job].state  # of an unknown job nothing can happen
        if isinstance(event, events.JobEvent):
            states[job] = after(states.get(job, known), event, partial(run.story, job))


def _submitted(run: Run, event: events.PlanSubmitted, at: float) -> None:
    run.created, run.scaffolding, run.file, run.key = at, event.scaffolding, event.file, event.key
    run.sandbox = event.sandbox
    run.set_plan(plan_from_json(event.plan))
    if run.plan.start_paused:
        run.paused = events.PlanPaused("the plan says start_paused")


def _reshaped(run: Run, event: events.PlanReshaped, at: float) -> None:
    for change in event.changes:
        if change["op"] == "remove":  # if the id is there again, it is another job's
            run.records.pop(JobId(change["id"]), None)
    run.set_plan(plan_from_json(event.plan))
    # What was verified or approved is no longer what would land, so the validation begins anew.
    validation = run.records[VALIDATION]
    validation.continues, validation.resume_from, validation.released = False, None, None
    run.set_hold(VALIDATION, None)


def _finalized(run: Run, event: events.PlanFinalized, at: float) -> None:
    run.scaffolding = False
    run.mark(VALIDATION)  # of a scaffold without jobs it is shown as pending


def _plan_started(run: Run, event: events.PlanStarted, at: float) -> None:
    run.started, run.started_at = event, at
    run.walls = event.sandbox, event.limits
    # The next event says the same; a crash may have come between the two.
    start = event.target_commit or event.base_commit
    if not run.snapshot.generation:
        run.snapshot = Snapshot(1, start, start, start)


def _resumed(run: Run, event: events.PlanResumed, at: float) -> None:
    run.paused, run.begins_alone = None, event.alone
    run.budget_from, run.budget_warned = run.active_seconds(at), set()
    run.used_before = (run.used_tokens, run.used_cost)
    if event.budget is not None:
        run.plan = replace(run.plan, budget=Budget(**event.budget))


def _snapshot_started(run: Run, event: events.SnapshotStarted, at: float) -> None:
    line = event.integration or event.commit
    for job in run.snapshot.merged:
        if job in run.records:
            run.mark(job)
    run.snapshot = Snapshot(event.generation, event.commit, line, event.commit, rewritten=event.integration)
    # What was decided in the snapshot before this one is not in the result; the jobs' own merges are.
    run.superseded += [one for one in run.resolutions if one.phase is not Phase.MERGE_FI]
    run.resolutions = [one for one in run.resolutions if one.phase is Phase.MERGE_FI]


def _moves(name: str) -> Callable[[Run, Any, float], None]:
    def keep(run: Run, event: Any, at: float) -> None:
        setattr(run, name, event)
        run.warnings = [warning for warning in run.warnings if not warning.until_moved]

    return keep


def _landed(run: Run, event: events.Landed, at: float) -> None:
    run.landed, run.landing, run.undone = event, None, None


def _undone(run: Run, event: events.LandingUndone, at: float) -> None:
    run.undone, run.undo = event, None


def _picked(run: Run, event: events.JobPicked, at: float) -> None:
    run.records[event.job].picked = at


def _job_started(run: Run, event: events.JobStarted, at: float) -> None:
    record = run.records[event.job]
    last = record.last
    if record.continues and last is not None and last.number == event.attempt:
        last.idle_seconds += max(0.0, at - last.ended) if last.ended is not None else 0.0
        last.ended, last.outcome = None, "running"
        last.resumed, last.resumed_after = event.first_phase, len(last.phases)
    else:
        attempt = Attempt(event.attempt, at, event.first_phase, run.job(event.job), record.fresh)
        attempt.picked, attempt.base = record.picked, record.base
        attempt.worktree = record.worktree.path if record.worktree is not None else None
        record.attempts.append(attempt)
    record.continues, record.fresh, record.resume_from = False, False, None


def _end(run: Run, job: JobId, at: float, outcome: str) -> Attempt | None:
    attempt = run.records[job].last
    if attempt is None or attempt.ended is not None:
        return attempt
    stop_waiting(run, run.records[job])
    attempt.ended, attempt.outcome = at, outcome
    for phase in attempt.phases:
        if phase.outcome is None:
            phase.outcome, phase.ended = outcome, at
    for turn in attempt.turns:
        if turn.ended is None and (outcome != "held" or turn.subtask is None):
            # Its engine died before it could tell of the end. While a job is held, its subtasks go on.
            turn.ended, turn.reason = at, "interrupted"
    return attempt


def _succeeded(run: Run, event: events.JobSucceeded, at: float) -> None:
    run.records[event.job].commit = event.commit
    _end(run, event.job, at, "succeeded")


def _failed(run: Run, event: events.JobFailed, at: float) -> None:
    record = run.records[event.job]
    if record.last is None or record.last.number != event.attempt:
        record.attempts.append(Attempt(event.attempt, at, event.phase or Phase.MERGE_FI, run.job(event.job)))
    attempt = _end(run, event.job, at, "failed")
    if attempt is not None:
        attempt.outcome, attempt.failure, attempt.left = "failed", event, event.left
    run.set_hold(event.job, None)
    record.continues = False
    record.resume_from = event.resume_from or event.phase


def _canceled(run: Run, event: events.JobCanceled, at: float) -> None:
    record = run.records[event.job]
    attempt = _end(run, event.job, at, "canceled")
    if attempt is not None:
        attempt.left = event.left
    run.set_hold(event.job, None)
    record.continues = False
    record.resume_from = event.phase


def _held(run: Run, event: events.JobHeld, at: float) -> None:
    record = run.records[event.job]
    _end(run, event.job, at, "held")
    record.continues, record.resume_from = True, event.resume_from
    run.set_hold(event.job, event)


def _released(run: Run, event: events.HoldReleased, at: float) -> None:
    record = run.records[event.job]
    record.released = record.hold.kind if record.hold is not None else None
    run.set_hold(event.job, None)


def _continued(run: Run, event: events.JobContinued, at: float) -> None:
    record = run.records[event.job]
    if record.last is not None and record.last.ended is None:  # else it had a slot, and its attempt had not begun
        record.continues = True
    _end(run, event.job, at, "interrupted")
    record.resume_from = event.resume_from


def _retried(run: Run, event: events.JobRetried, at: float) -> None:
    record, job = run.records[event.job], run.described(event.job)
    if event.work is not None:
        job = replace(job, work=work_from_json(event.work))
    if event.prechecks is not None:
        job = replace(job, prechecks=tuple(work_from_json(work) for work in event.prechecks))
    if event.postchecks is not None:
        job = replace(job, postchecks=tuple(work_from_json(work) for work in event.postchecks))
    record.job = job
    run.past_secrets.update(dict.fromkeys(secrets_of_job(job)))
    record.continues, record.fresh, record.edited = False, event.fresh, record.edited or event.edited
    if event.fresh_session:
        record.sessions.clear()
    record.resume_from = event.first_phase or record.resume_from
    record.commit, record.stand_in, record.released = None, None, None
    if event.work is not None or event.first_phase is not None:
        record.done = None
    run.canceled = None


def _phase_started(run: Run, event: events.PhaseStarted, at: float) -> None:
    attempt = run.records[event.job].last
    if attempt is not None:
        attempt.phases.append(PhaseRecord(event.phase, at))


def _phase_ended(run: Run, event: events.PhaseEnded, at: float) -> None:
    attempt = run.records[event.job].last
    if attempt is None:
        return
    if not attempt.phases or attempt.phases[-1].phase is not event.phase or attempt.phases[-1].outcome is not None:
        attempt.phases.append(PhaseRecord(event.phase, at))
    phase = attempt.phases[-1]
    phase.ended, phase.outcome, phase.note = at, event.outcome, event.note


def _worktree_taken(run: Run, event: events.WorktreeTaken, at: float) -> None:
    record = run.records[event.job]
    record.worktree, record.base = event, event.base
    if record.last is not None:
        record.last.worktree, record.last.base = event.path, event.base


def _worktree_gone(run: Run, event: events.WorktreeGone, at: float) -> None:
    record = run.records[event.job]
    if record.worktree is not None and record.worktree.worktree == event.worktree:
        record.worktree, record.edited = None, False


def _program_started(run: Run, event: events.ProgramStarted, at: float) -> None:
    if event.subtask is not None:
        run.records[event.job].subtasks[event.subtask].program = (event.pid, event.started, event.boot)
        return
    attempt = run.records[event.job].last
    if attempt is not None:
        attempt.program = event


def _committed(run: Run, event: events.WorkCommitted, at: float) -> None:
    record = run.records[event.job]
    record.work_commit, record.base = event, event.base
    if record.last is not None:
        record.last.base = event.base
        record.last.commits.append((record.last.phase or Phase.COMMIT, event))


def _agent_started(run: Run, event: events.AgentStarted, at: float) -> None:
    attempt = run.records[event.job].last
    if attempt is not None:
        turn = Turn(event.agent, event.purpose, event.phase, at, event.number, event.model, event.session)
        turn.subtask, turn.messages, turn.updates = event.subtask, event.messages, event.updates
        turn.definition = event.definition
        turn.tools = event.tools
        attempt.turns.append(turn)
        if event.subtask is None:
            attempt.idle = None
        else:
            run.records[event.job].subtasks[event.subtask].idle = None


def _turn(run: Run, job: JobId, subtask: str | None) -> Turn | None:
    """The turn that is under way, or was last, of the job's own agent or of a subtask's."""
    attempt = run.records[job].last
    return attempt.turn_of(subtask) if attempt is not None else None


def _agent_session(run: Run, event: events.AgentSession, at: float) -> None:
    if event.subtask is None:
        run.records[event.job].sessions[f"{event.agent} {event.purpose}"] = event.session
    else:
        run.records[event.job].subtasks[event.subtask].session = event.session
    if (turn := _turn(run, event.job, event.subtask)) is not None:
        turn.session = event.session


def _agent_heard(run: Run, event: events.AgentHeard, at: float) -> None:
    if (turn := _turn(run, event.job, event.subtask)) is not None:
        turn.heard = True


def _agent_used(run: Run, event: events.AgentUsed, at: float) -> None:
    usage = usage_from_json(event.usage)
    run.used_tokens += usage.tokens
    run.used_cost += usage.cost or 0.0
    if (turn := _turn(run, event.job, event.subtask)) is not None:
        known = turn.used.get(usage.model)
        turn.used[usage.model] = usage if known is None else add(known, usage)


def _agent_noted(run: Run, event: events.AgentNoted, at: float) -> None:
    if (turn := _turn(run, event.job, event.subtask)) is not None:
        turn.notes.append((event.kind, event.message))


def _agent_ended(run: Run, event: events.AgentEnded, at: float) -> None:
    if (turn := _turn(run, event.job, event.subtask)) is not None:
        turn.ended, turn.reason, turn.message = at, event.reason, event.message
        turn.text = event.text
        turn.heard = turn.heard or event.reason == "done"


def _heal_tried(run: Run, event: events.HealTried, at: float) -> None:
    attempt = run.records[event.job].last
    tries = [turn for turn in attempt.turns if turn.purpose == "heal"] if attempt is not None else []
    if tries:
        tries[-1].healed = event.outcome
        tries[-1].check = f"{event.message}\n{event.tail}".strip()


def _leaf_merged(run: Run, event: events.LeafMerged, at: float) -> None:
    if run.snapshot.generation == event.generation:
        run.snapshot.integration, run.snapshot.tip = event.integration, event.snapshot
        run.snapshot.merged[event.job] = event
        if event.resolved:
            resolved_again(run, event)
        waiting = [event.job]
        while waiting:
            job = waiting.pop()
            if job not in run.snapshot.inside:
                run.snapshot.inside.add(job)
                waiting += run.plan.jobs[job].needs if job in run.plan.jobs else ()


def _deleted(run: Run, event: events.PlanDeleted, at: float) -> None:
    run.deleted, run.deleted_at = True, at


def _set(name: str, value: Callable[[Any], Any] = lambda event: event) -> Callable[[Run, Any, float], None]:
    """An event that is simply remembered."""

    def remember(run: Run, event: Any, at: float) -> None:
        setattr(run, name, value(event))

    return remember


APPLY: Mapping[type[events.Event], Callable[[Run, Any, float], None]] = {
    events.PlanSubmitted: _submitted,
    events.PlanFinalized: _finalized,
    events.PlanStarted: _plan_started,
    events.PlanPaused: _set("paused"),
    events.PlanResumed: _resumed,
    events.PlanCanceled: _set("canceled"),
    events.PlanReshaped: _reshaped,
    events.BudgetWarned: lambda run, event, at: run.budget_warned.add(event.kind),
    events.SnapshotStarted: _snapshot_started,
    events.LandingIntended: _moves("landing"),
    events.LandingVoided: _set("landing", lambda event: None),
    events.Landed: _landed,
    events.NothingToLand: _set("unlanded"),
    events.UndoIntended: _moves("undo"),
    events.UndoVoided: _set("undo", lambda event: None),
    events.LandingUndone: _undone,
    events.Pushed: _set("pushed"),
    events.PullRequestAsked: _set("pull_asked"),
    events.PullRequestIntended: lambda run, event, at: run.pull_commits.append(event.commit),
    events.PullRequestOpened: _set("pull_request"),
    events.Warned: lambda run, event, at: run.warnings.append(event),
    events.PlanDeleted: _deleted,
    events.PlanPurged: _set("purged", lambda event: True),
    events.JobPicked: _picked,
    events.JobStarted: _job_started,
    events.JobSucceeded: _succeeded,
    events.JobFailed: _failed,
    events.JobCanceled: _canceled,
    events.JobHeld: _held,
    events.JobContinued: _continued,
    events.JobRetried: _retried,
    events.HoldReleased: _released,
    events.PhaseStarted: _phase_started,
    events.PhaseEnded: _phase_ended,
    events.WorktreeTaken: _worktree_taken,
    events.WorktreeGone: _worktree_gone,
    events.NeedsConsumed: lambda run, event, at: setattr(run.records[event.job], "consumed", event.needs),
    events.ProgramStarted: _program_started,
    events.WorkRepeated: lambda run, event, at: None,  # for those who follow; the note of the phase tells it later
    events.WorkCommitted: _committed,
    events.WorkSaved: lambda run, event, at: run.records[event.job].saved.append(event),
    events.LeafMerged: _leaf_merged,
    events.AgentStarted: _agent_started,
    events.AgentSession: _agent_session,
    events.AgentHeard: _agent_heard,
    events.AgentUsed: _agent_used,
    events.AgentNoted: _agent_noted,
    events.AgentEnded: _agent_ended,
    events.HealTried: _heal_tried,
    **APPLY_CONFLICTS,
    **APPLY_SUBTASKS,
    **APPLY_WORKERS,
    **APPLY_HEALTH,
    **APPLY_QUESTIONS,
    **APPLY_SANDBOX,
}
