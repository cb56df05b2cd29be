"""What surfaces show of a run, the same for every surface; `documents` has the types.

`plan_view` is the document of `status PLAN --json`.
"""

from collections.abc import Sequence

from msgspec import UNSET, Struct, convert
from msgspec.structs import asdict, replace

from orchard.core.job_names import failed_words
from orchard.core.records import Attempt, JobRecord
from orchard.core.run import Run
from orchard.core.scheduler import group_statuses
from orchard.core.states import ACTIVE, JobState
from orchard.core.views import documents
from orchard.core.views.attempts import UNDER_WAY, progress_view, subtasks_view
from orchard.core.views.conflicts import conflict_hint, is_open, steps_of_failure
from orchard.core.views.figures import JobUsage, PlanUsage
from orchard.core.views.health import alarms_of, at_work
from orchard.core.views.results import pull_request_of, result_of, warnings_of
from orchard.core.views.usage import used_figures
from orchard.core.views.workers import worker_view
from orchard.errors import Hint, Next, Say, steps_of
from orchard.model.events.plans import CallAsked
from orchard.model.plan import VALIDATION, JobId, PlanId
from orchard.model.statuses import JobStatus, PlanStatus
from orchard.model.usage import Usage

NAMED_JOBS = 8
PERMISSION = "permission"
"""The kind of what waits where an agent asks about a call."""


_ANSWERS = {
    "landing": ("land", "land_plan"),
    "rewritten": ("land", "land_plan"),
    "pr": ("pr", "propose_plan"),
    "budget": ("resume", "resume_plan"),
    "worker": ("complete", "complete_task"),
}
"""The request that answers each kind of hold, and the step; all others are approved."""


class _Question(Struct, frozen=True):
    job: JobId | None
    kind: str
    reason: str
    verb: str
    step: Next
    more: tuple[Next, ...] = ()
    """Other answers."""
    since: float | None = None
    input: str | None = None


def plan_view(
    run: Run, say: Say, *, interrupted: bool = False, changes: documents.Changes | None = None
) -> documents.PlanView:
    """The whole of a run; `interrupted` says that no engine works on it although jobs are under way."""
    return documents.PlanView(
        _whole(run, say, changes, interrupted=interrupted),
        [job_view(run, job, interrupted=interrupted) for job in run.plan.jobs],
        run.seq,
    )


def _whole(run: Run, say: Say, changes: documents.Changes | None, *, interrupted: bool) -> documents.WholePlan:
    summary = asdict(plan_summary(run, say, interrupted=interrupted))
    return documents.WholePlan(**summary, description=run.plan.description, summary=changes)


def plan_changes(
    run: Run, say: Say, since: int, *, interrupted: bool = False, changes: documents.Changes | None = None
) -> documents.PlanChanges:
    """What is another in a run than after event `since`; it costs what changed."""
    whole = _whole(run, say, changes, interrupted=interrupted)
    jobs = [job_view(run, job, interrupted=interrupted) for job in changed_jobs(run, since, interrupted=interrupted)]
    removed: list[str] = [job for job, seq in run.removed.items() if seq > since]
    order = list[str](run.plan.jobs) if run.reshaped > since else UNSET
    return documents.PlanChanges(whole, jobs, removed, run.seq, since, order)


def changed_jobs(run: Run, since: int, *, interrupted: bool = False) -> list[JobId]:
    """In the order of the plan. No event tells that an engine is gone: while it is, its jobs are always among them."""
    changed, stopped = run.changed_after(since), run.active if interrupted else []
    return sorted({*changed, *stopped}, key=run.plan.position.__getitem__) if stopped else changed


def plan_summary(run: Run, say: Say, *, interrupted: bool = False) -> documents.PlanSummary:
    """A plan in a few fields: what `list` shows of it; `say` makes texts of next steps."""
    started, status = run.started, run.status
    if interrupted and run.canceled is not None and run.is_active:
        status = PlanStatus.CANCELED  # the engine died while it stopped the last jobs
    waits = status is PlanStatus.PENDING and run.plan.after is not None
    gone = interrupted and status in (PlanStatus.RUNNING, PlanStatus.PENDING) and not waits
    half = interrupted and run.settled and run.moving is not None
    known = run.views.get
    kept: list[Kept] = [known(job) or _kept(run, job) for job, record in run.records.items() if record.attempts]
    hint = plan_hint(run, interrupted=gone or half)
    return documents.PlanSummary(
        id=run.id,
        name=run.plan.name,
        status=PlanStatus.PAUSED if gone else status,
        base=documents.Branch(started.base_branch, started.base_commit)
        if started
        else documents.Branch(run.plan.base, None),
        target=documents.Branch(
            started.target_branch if started else run.plan.target,
            run.landed.new if run.landed and not run.undone else None,
        ),
        landed=run.landed is not None and run.undone is None,
        sandbox=run.walls[0],
        limits=list(run.walls[1]),
        undone=run.undone is not None,
        reverted=run.undone is not None and run.undone.revert,
        undoing=run.undo is not None,
        landing=gone and run.records[VALIDATION].released in ("landing", "rewritten"),
        result=result_of(run),
        counts=counts(run, interrupted=interrupted),
        validation=_validation(run, interrupted=interrupted),
        usage=_plan_usage(kept),
        created_at=documents.time_text(run.created),
        started_at=documents.time_text(run.started_at),
        ended_at=documents.time_text(run.ended_at) if run.settled else None,
        idle_seconds=round(run.idle_seconds, 3),
        idle_since=documents.time_text(run.alive_at) if gone else None,
        error=half_moved(run) if half else plan_error(run, interrupted=gone),
        paused=run.paused.reason or "by the user" if run.paused is not None and not gone else None,
        hint=say(hint) if hint is not None else None,
        next=steps_of(hint),
        waiting=[documents.WaitingJob(hold.job, hold.kind, hold.reason) for hold in run.waiting_for],
        warnings=warnings_of(run),
        resolutions=[
            documents.Resolution(
                one.job, str(one.phase), one.by, list(one.paths), list(one.ours_jobs), list(one.theirs_jobs)
            )
            for one in run.resolutions
        ],
        healed=[documents.HealedJob(job.id, one.phase, one.agent) for job in kept if job.healed for one in job.healed],
        pushed=None if run.pushed is None else documents.Push(run.pushed.ok, run.pushed.message),
        pull_request=pull_request_of(run),
        groups=dict(group_statuses(run)),
        after=run.plan.after,
        deleted=run.deleted,
        deleted_at=documents.time_text(run.deleted_at),
        key=run.key,
    )


def healed_phases(record: JobRecord) -> list[documents.HealedPhase]:
    passed = {(str(turn.phase), turn.agent): None for turn in record.heals if turn.healed == "passed"}
    return [documents.HealedPhase(phase, agent) for phase, agent in passed]


def counts(run: Run, *, interrupted: bool = False) -> dict[str, int]:
    if _has_no_job(run):
        return {"pending": 1, "total": 1}
    found = {str(status): run.counts[status] for status in JobStatus if run.counts[status]}
    if interrupted:
        stopped = found.pop("running", 0) + found.pop("scheduled", 0)
        if stopped:
            found["failed"] = found.get("failed", 0) + stopped
    return {**found, "total": len(run.plan.jobs)}


def _validation(run: Run, *, interrupted: bool) -> JobStatus:
    """The status that the validation job has in the counts."""
    record = run.records[VALIDATION]
    if _has_no_job(run):
        return JobStatus.PENDING
    return JobStatus.FAILED if interrupted and record.state in ACTIVE else record.status


def _has_no_job(run: Run) -> bool:
    """Whether it is a scaffold without jobs: its validation needs nothing, and is not ready for all that."""
    return run.scaffolding and len(run.plan.jobs) == 1


class Kept(Struct):
    """What is shown of a job, kept until something happens to it."""

    id: JobId
    seconds: float
    used: list[Usage]
    healed: list[documents.HealedPhase]
    view: documents.JobView | None = None


def _kept(run: Run, job: JobId) -> Kept:
    kept: Kept | None = run.views.get(job)
    if kept is None:
        record = run.records[job]
        seconds = sum(attempt_seconds(attempt) for attempt in record.attempts)
        kept = run.views[job] = Kept(job, seconds, list(record.used), healed_phases(record))
    return kept


def _plan_usage(jobs: list[Kept]) -> PlanUsage:
    """What the plan has used so far: minutes in which its jobs ran, and what their agents used."""
    seconds = sum([job.seconds for job in jobs])
    used = used_figures([one for job in jobs if job.used for one in job.used])
    return PlanUsage(job_seconds=round(seconds, 3) if seconds else UNSET, **used)


def attempt_seconds(attempt: Attempt) -> float:
    """How long the phases of an attempt took; one that is under way counts up to its last end."""
    return sum(max(0.0, phase.ended - phase.started) for phase in attempt.phases if phase.ended is not None)


def plan_error(run: Run, *, interrupted: bool) -> str | None:
    status = run.status
    if interrupted:
        why = "it was interrupted." if run.is_active else "it goes on when you resume it."
        return f"No engine is working on this plan: {why}"
    if status is PlanStatus.FAILED:
        failed = run.failed
        first = run.records[failed[0]].failure
        more = f" (and {len(failed) - 1} more failed)" if len(failed) > 1 else ""
        return f"{failed_words(failed[0], first.phase if first else None)}{more}: {first.message if first else ''}"
    if status is PlanStatus.CANCELED:
        return _canceled_words(run)
    if status is PlanStatus.WAITING and run.paused is not None:
        return run.paused.reason or "The plan is paused."
    if status is PlanStatus.WAITING:
        return "; ".join(hold.reason for hold in run.waiting_for) or to_deploy(run)
    return None


def _canceled_words(run: Run) -> str:
    """Who or what was canceled: a plan of which only jobs were is not said to be canceled by anybody."""
    jobs = [job for job, record in run.records.items() if record.state is JobState.CANCELED and job != VALIDATION]
    if run.canceled is not None or not jobs:
        return (run.canceled.reason if run.canceled else "") or "The plan was canceled."
    return f"Its job '{jobs[0]}' was canceled." if len(jobs) == 1 else f"Its jobs {_named(jobs)} were canceled."


def _named(jobs: Sequence[JobId]) -> str:
    return ", ".join(jobs[:NAMED_JOBS]) + (f" and {len(jobs) - NAMED_JOBS} more" if len(jobs) > NAMED_JOBS else "")


def half_moved(run: Run) -> str:
    what = "An undo" if run.landing is None else "A landing"
    return f"{what} of this plan was interrupted: the branch or its checkout may be half-way until you resume it."


def needs_person(run: Run, say: Say, *, engine: bool = True) -> list[documents.Waiting]:
    """What of a plan waits for a person, with the request that answers it, as a step and as `say` writes it.

    Without an `engine` no turn is under way, so none waits for an answer.
    """
    live = (*_calls(run), *_alarms(run)) if engine else ()
    return [_asking(run, say, one) for one in (*_questions(run), *live)]


def job_steps(run: Run, job: JobId, say: Say, *, engine: bool = True) -> list[Next]:
    """What takes a job further: the answer that it waits for, or trying again what failed."""
    asked = [step for one in needs_person(run, say, engine=engine) if one.job == job for step in one.next]
    record = run.records[job]
    if asked or run.deleted:
        return asked
    if record.state in (JobState.FAILED, JobState.CANCELED):
        return steps_of_failure(run, job)
    return [Next("retry_plan", run.id)] if record.status is JobStatus.BLOCKED else []


def _questions(run: Run) -> list[_Question]:
    if run.settled or run.deleted:
        return []
    found = []
    for hold in run.waiting_for:
        verb, operation = _ANSWERS.get(hold.kind, ("approve", "approve_job"))
        if run.records[hold.job].is_paused:
            verb, operation = "resume", "resume_worker"
        step = Next(operation, run.id, None if operation.endswith("_plan") else hold.job)
        more = _steps_about(run, hold.job, step) if operation in ("complete_task", "resume_worker") else ()
        found.append(_Question(hold.job, hold.kind, hold.reason, verb, step, more))
    if run.paused is not None and run.paused.waiting and not any(hold.kind == "budget" for hold in run.waiting_for):
        found.append(_Question(None, "plan", run.paused.reason, *_resume(run)))
    if run.status is PlanStatus.WAITING and run.paused is None and run.to_deploy:
        found.append(_Question(None, "deploy", to_deploy(run), "deploy", _deploy(run)))
    return found


def _steps_about(run: Run, job: JobId, first: Next) -> tuple[Next, ...]:
    """What else can be done about a worker, besides `first`."""
    record = run.records[job]
    at_rest = record.hold is not None
    talk = Next("send_message", run.id, job, {"message": "MESSAGE"})
    names = [
        "complete_task",
        *([] if record.is_paused else ["pause_worker"]),
        *([] if at_rest else ["interrupt_worker"]),
    ]
    steps = (talk, *(Next(name, run.id, job) for name in names), Next("cancel_job", run.id, job))
    return tuple(step for step in steps if step != first)


def _calls(run: Run) -> list[_Question]:
    """Calls that agents at work want to make, and that need a person's word."""
    found = []
    for job in run.active:
        for call, at in run.records[job].questions:
            allow, deny = call_answers(run.id, call)
            found.append(_Question(job, PERMISSION, asked_words(call), "allow", allow, (deny,), at, call.input or None))
    return found


def call_answers(plan: PlanId, call: CallAsked) -> tuple[Next, Next]:
    """What allows a call, and what refuses it."""
    return (
        Next("allow_call", plan, call.job, {"question": call.number}),
        Next("deny_call", plan, call.job, {"question": call.number}),
    )


def asked_words(call: CallAsked) -> str:
    who = f"Agent '{call.agent}'" + (f" of {call.subtask}" if call.subtask is not None else "")
    return f"{who} asks whether it may use {call.call}"


def _alarms(run: Run) -> list[_Question]:
    """Workers with which something is wrong: nothing waits for an answer, and a person may want to end their turns."""
    return [
        _Question(job, "health", sentence, "interrupt", step, _steps_about(run, job, step))
        for job in run.active
        for step in [Next("interrupt_worker", run.id, job)]
        for sentence in alarms_of(run.records[job])
    ]


def stands_still(run: Run, say: Say, *, engine: bool) -> documents.Waiting | None:
    """That a plan goes on only when somebody resumes it: it was paused, or its engine is gone."""
    if run.settled and run.moving is not None and not engine:
        return _asking(run, say, _Question(None, "paused", half_moved(run), *_resume(run)))
    if run.settled or run.deleted or run.scaffolding:
        return None
    if run.paused is not None and not run.paused.waiting:
        reason = run.paused.reason or "The plan is paused."
    elif not engine and run.status in (PlanStatus.RUNNING, PlanStatus.PENDING) and not _waits_for_plan(run):
        reason = plan_error(run, interrupted=True) or ""
    else:
        return None
    return _asking(run, say, _Question(None, "paused", reason, *_resume(run)))


def _resume(run: Run) -> tuple[str, Next]:
    return "resume", Next("resume_plan", run.id)


def _waits_for_plan(run: Run) -> bool:
    return run.status is PlanStatus.PENDING and run.plan.after is not None


def to_deploy(run: Run) -> str:
    jobs = run.to_deploy
    return f"{'1 job waits' if len(jobs) == 1 else f'{len(jobs)} jobs wait'} to be deployed: {_named(jobs)}"


def _deploy(run: Run) -> Next:
    """What lets the first of them run: what it needs has succeeded."""
    jobs = run.to_deploy
    first = next((job for job in jobs if run.records[job].unmet == 0), jobs[0])
    return Next("deploy_task", run.id, first)


def _asking(run: Run, say: Say, asked: _Question) -> documents.Waiting:
    last = None if asked.job is None else run.records[asked.job].last
    ended = last.ended if last is not None else None
    return documents.Waiting(
        plan=run.id,
        name=run.plan.name,
        job=asked.job,
        kind=asked.kind,
        reason=asked.reason,
        answer=asked.verb,
        command=say(asked.step),
        next=[asked.step, *asked.more],
        input=asked.input,
        since=documents.time_text(asked.since or (ended if ended is not None else run.changed_at)),
    )


def plan_hint(run: Run, *, interrupted: bool) -> Hint | None:
    status = run.status
    if run.deleted:
        return Next("list_saved_work", run.id)
    if interrupted or (status in (PlanStatus.PAUSED, PlanStatus.WAITING) and run.paused is not None):
        return Next("resume_plan", run.id)
    if status in (PlanStatus.RUNNING, PlanStatus.WAITING) and (asked := _calls(run)):
        return asked[0].step, "; or: ", *asked[0].more
    if status is PlanStatus.FAILED and (hint := conflict_hint(run)) is not None:
        return hint
    if status is PlanStatus.FAILED or status is PlanStatus.CANCELED:
        return Next("retry_plan", run.id)
    if status is PlanStatus.WAITING:
        for first in _questions(run)[:1]:
            talk = Next("send_message", run.id, first.job, {"message": "MESSAGE"})
            return (talk, "; or: ", first.step) if first.step.operation == "complete_task" else first.step
    return None


def job_view(run: Run, job_id: JobId, *, interrupted: bool = False) -> documents.JobView:
    """One job in a few fields; the view of one to which nothing has happened is not made again."""
    stopped = interrupted and run.records[job_id].state in ACTIVE
    if stopped:
        return _job_view(run, job_id, stopped=True)
    kept = _kept(run, job_id)
    if kept.view is None:
        kept.view = _job_view(run, job_id, stopped=False)
    if interrupted and any(one.status in UNDER_WAY for one in kept.view.subtasks):
        record = run.records[job_id]
        return replace(kept.view, subtasks=subtasks_view(record, record.last, stopped=True))
    return kept.view


def _waits(record: JobRecord) -> documents.Hold | None:
    """What a job waits for: to go on at all, or with a call of its agent."""
    if record.hold is not None:
        return documents.Hold(record.hold.kind, record.hold.reason)
    asked = (call for call, _ in record.questions)
    return next((documents.Hold(PERMISSION, asked_words(call), call.input or None) for call in asked), None)


def _job_view(run: Run, job_id: JobId, *, stopped: bool) -> documents.JobView:
    """A job as it is; `stopped`: its engine is gone."""
    job, record, kept = run.job(job_id), run.records[job_id], _kept(run, job_id)
    failure, last = record.failure, record.last
    committed = record.work_commit
    phase = last.phase if last else None
    return documents.JobView(
        id=job_id,
        name=job.name,
        group=job.group,
        needs=list(job.needs),
        status=JobStatus.FAILED if stopped else JobStatus.PENDING if _has_no_job(run) else record.status,
        phase=None if stopped else phase,
        agent=None if stopped else at_work(last),
        progress=progress_view(last.progress) if last else None,
        subtasks=subtasks_view(record, last, stopped=stopped),
        attempts=len(record.attempts),
        base_commit=record.base,
        commit=record.commit,
        failed_phase=str(phase) if stopped and phase else (str(failure.phase) if failure and failure.phase else None),
        error="interrupted: the engine is gone" if stopped else (failure.message if failure else None),
        reason="interrupted" if stopped else (failure.reason if failure else None),
        exit_code=failure.exit_code if failure else None,
        hint=failure.hint if failure else None,
        worktree=record.worktree.path if record.worktree else None,
        summary=convert(committed.summary, documents.Changes) if committed else documents.Changes(),
        usage=JobUsage(seconds=round(kept.seconds, 3) if kept.seconds else UNSET, **used_figures(kept.used)),
        healed=kept.healed,
        task=job.task,
        leaf=job_id in run.plan.leaf_set,
        merged=job_id in run.snapshot.merged,
        waiting=None if stopped and record.hold is None else _waits(record),
        evidence=committed.evidence if committed else None,
        deployed=not record.undeployed,
        worker=worker_view(run, job_id, stopped=stopped),
        validation=job_id == VALIDATION,
        started_at=documents.time_text(last.started) if last else None,
        ended_at=documents.time_text(run.alive_at if stopped and last.ended is None else last.ended) if last else None,
        idle_seconds=round(last.idle_seconds, 3) if last else 0.0,
        result=record.result if record.called_done else None,
        allowed=failure is not None and failure.stand_in is not None,
        conflict=record.conflict.path if record.conflict is not None and is_open(run, job_id) else None,
    )
