"""What happened, a line an event: the progress of a plan where no picture can be drawn.

`LINES` is the choice of what is worth a line. An event that is not in it is for machines, which find
it in `--json`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import convert

from orchard.core.run import Run
from orchard.core.sides import kept_version
from orchard.core.states import JobState
from orchard.core.views.documents import Changes, FileCounts
from orchard.core.views.results import push_failed
from orchard.errors import Next
from orchard.model.events import plans as events
from orchard.model.events.plans import Event, Recorded
from orchard.model.phases import Phase, shown_phase
from orchard.model.plan import VALIDATION, JobId
from orchard.surfaces.cli.render import health, text
from orchard.surfaces.cli.render.lines import Line, Meaning, safe, safe_lines
from orchard.surfaces.next_steps import in_commands

TAIL_LINES = 12


def event_lines(run: Run, recorded: Recorded) -> list[Line]:
    """What to print of an event that the run has taken in already; mostly one line, often none."""
    describe = LINES.get(type(recorded.event))
    if describe is None:
        return []
    lines: list[Line] = describe(run, recorded.event)
    if lines:
        lines[0] = [(f"{text.clock(recorded.at)} ", "dim"), *lines[0]]
    return lines


def _line(subject: str, what: str, meaning: Meaning = "", more: str = "") -> Line:
    line: Line = [(subject, "name"), ("  ", ""), (what, meaning)]
    return [*line, (f"  {more}", "")] if more else line


def _job(job: JobId, phase: Phase | None = None) -> str:
    """Who an event is about; the validation job is called `verify` where it runs what the plan says there."""
    if job == VALIDATION:
        return "verify" if phase is Phase.WORK else "validation"
    return safe(job)


def _took(run: Run, job: JobId) -> str:
    attempt = run.records[job].last
    return "" if attempt is None or attempt.ended is None else text.duration(attempt.ended - attempt.started)


def _plan_started(run: Run, event: events.PlanStarted) -> list[Line]:
    where = f"from {safe(event.base_branch or '')} {text.short(event.base_commit)} for {safe(event.target_branch)}"
    line = _line("plan", "started", "busy", " ".join(where.split()))
    return [[*line, (", ", ""), text.wall(event.sandbox)] if event.sandbox is not None else line, *_limits(event)]


def _sandbox_asked(run: Run, event: events.SandboxAsked) -> list[Line]:
    asked = text.wall(event.sandbox)
    return [
        [
            *_line("plan", "goes on", "busy"),
            ("  and who let it go on, or gave it work, asks for another wall: ", ""),
            asked,
        ]
    ]


def _sandbox_set(run: Run, event: events.SandboxSet) -> list[Line]:
    return [[*_line("plan", "goes on", "busy"), ("  with another wall than before: ", ""), text.wall(event.sandbox)]]


def _limits(event: events.PlanStarted) -> list[Line]:
    return [_line("plan", "limit", "dim", safe(one)) for one in event.limits]


def _paused(run: Run, event: events.PlanPaused) -> list[Line]:
    return [_line("plan", "waiting" if event.waiting else "paused", "wait", safe(event.reason))]


def _landed(run: Run, event: events.Landed) -> list[Line]:
    checkout = f"; checkout in {safe(event.checkout)} updated" if event.checkout else ""
    move = f"{text.short(event.old)}..{text.short(event.new)}" if event.old else text.short(event.new)
    return [_line("plan", "landed", "good", f"{safe(event.branch)} {move}{checkout}")]


def _nothing_to_land(run: Run, event: events.NothingToLand) -> list[Line]:
    if event.branch is None or event.commit is None:
        return [_line("plan", "nothing to land", "dim")]
    return [_line("plan", "not landed", "wait", f"the result is on {safe(event.branch)}")]


def _undone(run: Run, event: events.LandingUndone) -> list[Line]:
    if event.revert and event.commit:
        return [_line("plan", "undone", "wait", f"{safe(event.branch)} by commit {text.short(event.commit)}")]
    back = f"is back at {text.short(event.commit)}" if event.commit else "was deleted: the landing had created it"
    return [_line("plan", "undone", "wait", f"{safe(event.branch)} {back}")]


def _pushed(run: Run, event: events.Pushed) -> list[Line]:
    if not event.ok:
        return [_line("plan", "warning", "wait", safe(push_failed(event), 2000))]
    return [_line("plan", "pushed", "good", f"{safe(event.branch)} {safe(event.message)}".strip())]


def _pull_request(run: Run, event: events.PullRequestOpened) -> list[Line]:
    word = "pull request" if event.created else "pull request updated"
    return [_line("plan", word, "good", f"{safe(event.url)} ({safe(event.branch)} into {safe(event.target)})")]


def _warned(run: Run, event: events.Warned) -> list[Line]:
    return [_line(_job(event.job) if event.job else "plan", "warning", "wait", safe(event.message, 2000))]


def _budget(run: Run, event: events.BudgetWarned) -> list[Line]:
    return [_line("plan", "budget", "wait", f"{event.used:g} of {event.limit:g} {safe(event.kind)} are used")]


def _job_started(run: Run, event: events.JobStarted) -> list[Line]:
    if event.attempt == 1 and run.takes_slot(event.job):  # its first phase says so in a moment
        return []
    again = f"attempt {event.attempt}, from {shown_phase(event.first_phase)}" if event.attempt > 1 else ""
    return [_line(_job(event.job), "started", "busy", again)]


def _phase_started(run: Run, event: events.PhaseStarted) -> list[Line]:
    if event.job == VALIDATION and event.phase is Phase.MERGE_RI:
        return [_line("plan", "opening a pull request" if run.proposes else "landing", "busy")]
    if not _runs_program(run, event):
        return []
    if event.job == VALIDATION and event.phase is Phase.WORK:
        return [_line("verify", "started", "busy")]
    return [_line(_job(event.job), shown_phase(event.phase), "busy", "started")]


def _runs_program(run: Run, event: events.PhaseStarted) -> bool:
    """Whether the phase has something to run; one that has not is over at once."""
    job = run.job(event.job)
    works = {
        Phase.SETUP: bool(run.plan.submodules or (run.plan.setup if job.setup is None else job.setup)),
        Phase.PRECHECKS: bool(job.prechecks),
        Phase.WORK: job.work is not None,
        Phase.POSTCHECKS: bool(job.postchecks),
    }
    return works.get(event.phase, False)


def _succeeded(run: Run, event: events.JobSucceeded) -> list[Line]:
    committed = run.records[event.job].work_commit
    changed = text.changes(convert(committed.summary, Changes)) if committed is not None else ""
    return [_line(_job(event.job), "succeeded", "good", "  ".join(filter(None, (_took(run, event.job), changed))))]


class Chronicle:
    """The events of a plan in lines, as they happen.

    Why a job failed is told once: by the last words about the plan, or here where the job is tried again, since those
    know nothing of it then.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._failed: dict[JobId, events.JobFailed] = {}

    def lines(self, recorded: Recorded) -> list[Line]:
        event, lines = recorded.event, event_lines(self._run, recorded)
        if isinstance(event, events.JobFailed):
            self._failed[event.job] = event
        elif isinstance(event, events.JobRetried) and (failed := self._failed.pop(event.job, None)) is not None:
            lines += cause_lines(failed)
        return lines


def _failed(run: Run, event: events.JobFailed) -> list[Line]:
    plain = event.job == VALIDATION and event.phase is Phase.WORK
    where = "failed" if event.phase is None or plain else f"failed in {shown_phase(event.phase)}"
    where += ", which is allowed" if event.stand_in is not None else ""
    return [_line(_job(event.job, event.phase), where, "bad", _took(run, event.job))]


def cause_lines(event: events.JobFailed) -> list[Line]:
    """Why a job failed, and the last lines that it printed."""
    tail = safe_lines(event.tail, 500)[-TAIL_LINES:] if event.tail.strip() else []
    message: Line = [("         it had failed: ", "bad"), (safe(event.message, 2000), "")]
    printed: list[Line] = [[("         | ", "dim"), (row, "")] for row in tail]
    return [message, *printed]


def _canceled(run: Run, event: events.JobCanceled) -> list[Line]:
    if not run.records[event.job].attempts:  # of what never ran, the plan's own line says enough
        return []
    return [_line(_job(event.job), "canceled", "dim", safe(event.reason))]


def _held(run: Run, event: events.JobHeld) -> list[Line]:
    return [_line(_job(event.job), f"waiting: {safe(event.kind)}", "wait", safe(event.reason, 2000))]


def _retried(run: Run, event: events.JobRetried) -> list[Line]:
    start = f"from {shown_phase(event.first_phase)}" if event.first_phase else ""
    where = "with what was edited in its worktree" if event.edited else "in a clean worktree" if event.fresh else ""
    said = ", ".join(filter(None, (" ".join(filter(None, (start, where))), safe(event.why))))
    return [_line(_job(event.job), "retried", "busy", said)]


def _repeated(run: Run, event: events.WorkRepeated) -> list[Line]:
    more = f"run {event.run} of {event.most} starts: {safe(event.why, 2000)}"
    return [_line(_job(event.job), shown_phase(Phase.WORK), "busy", more)]


def _agent_started(run: Run, event: events.AgentStarted) -> list[Line]:
    again = f"try {event.number}" if event.number > 1 else ""
    session = "in its session" if event.session else ""
    more = ", ".join(filter(None, (safe(event.model or ""), again, session)))
    verbs = {"heal": "heals", "resolve": "resolves the conflict", "check": "checks"}
    if event.subtask is not None:
        return [_line(_job(event.job), f"{safe(event.agent)} works on {event.subtask}", "busy", more)]
    return [_line(_job(event.job), f"{safe(event.agent)} {verbs.get(event.purpose, 'works')}", "busy", more)]


def _agent_noted(run: Run, event: events.AgentNoted) -> list[Line]:
    return [_line(_job(event.job), f"{safe(event.agent)}: {safe(event.kind)}", "wait", safe(event.message, 2000))]


def _message(run: Run, event: events.MessageSent) -> list[Line]:
    sender = "a person" if event.by == "person" else "the agent that asked for it"
    whose = f"message to {event.subtask} from {sender}" if event.subtask is not None else "message"
    return [_line(_job(event.job), whose, "busy", safe(event.text, 200))]


def _unheard(run: Run, event: events.MessagesUnheard) -> list[Line]:
    whose = f" to {event.subtask}" if event.subtask is not None else ""
    what = f"{text.many(event.count, 'message')}{whose} not heard"
    return [_line(_job(event.job), what, "wait", "the work was over before")]


def _spawned(run: Run, event: events.SubtaskSpawned) -> list[Line]:
    called = f"{safe(event.name, 200)} " if event.name else ""
    return [_line(_job(event.job), f"hands out {event.subtask}", "busy", f"{called}to {safe(event.agent)}")]


def _subtask_ended(run: Run, event: events.SubtaskEnded) -> list[Line]:
    said = event.message or event.summary.split("\n", 1)[0]
    more = "  ".join(filter(None, (text.changes(convert(event.counts, FileCounts)), safe(said, 200))))
    return [_line(_job(event.job), f"{event.subtask} {safe(event.status)}", _END.get(event.status, "wait"), more)]


_END: Mapping[str, Meaning] = {"completed": "good", "failed": "bad"}


def _pulled(run: Run, event: events.SubtaskPulled) -> list[Line]:
    return [_line(_job(event.job), f"took over {event.subtask}", "good", text.many(len(event.paths), "file"))]


def _progress(run: Run, event: events.ProgressReported) -> list[Line]:
    far = f"{event.percent:.0f} %  " if event.percent is not None else ""
    who = f"{event.subtask}: " if event.subtask else ""
    return [_line(_job(event.job), "progress", "busy", f"{far}{who}{safe(event.message)}")]


def _call_asked(run: Run, event: events.CallAsked) -> list[Line]:
    step = Next("allow_call", run.id, event.job, {"question": event.number})
    shown = f"{safe(event.call, 400)}  {in_commands(step)}"
    return [_line(_job(event.job), "asks", "wait", shown)]


def _call_answered(run: Run, event: events.CallAnswered) -> list[Line]:
    if event.allowed:
        return [_line(_job(event.job), "allowed", "good", "always" if event.always else "")]
    if event.by == "withdrawn":
        return [_line(_job(event.job), "asks no more", "dim", "its agent waits for no answer to the last question")]
    why = "no one answered in time" if event.by == "timeout" else safe(event.why, 300)
    return [_line(_job(event.job), "denied", "bad", why)]


def _health(run: Run, event: events.HealthNoted) -> list[Line]:
    who = f"{event.subtask} " if event.subtask else ""
    done = {"ask": "it is asked: ", "interrupt": "its turn is ended: ", "fail": "its attempt is failed: "}
    shown = f"{done.get(event.action, '')}{safe(event.evidence, 500)}"
    return [_line(_job(event.job), f"{who}{safe(event.condition)}", health.meaning(event.condition), shown)]


def _refused(run: Run, event: events.SandboxRefused) -> list[Line]:
    """Once for each job: whoever tries again is kept from it again, and opens it in the same way."""
    key = (event.kind, event.name, event.reason, event.subtask)
    attempts = run.records[event.job].attempts if event.job in run.records else ()
    if event.count > 1 or any(key in one.refused for one in attempts if one.number < event.attempt):
        return []
    who, program = f"{event.subtask} " if event.subtask else "", f", {safe(event.program, 40)}" if event.program else ""
    opens = f"; to open it: {safe(event.how or event.setting or '', 500)}" if event.how or event.setting else ""
    shown = f"{safe(event.name, 300)} ({safe(event.reason)}{program}){opens}"
    return [_line(_job(event.job), f"{who}kept from", "wait", shown)]


def _well(run: Run, event: events.HealthCleared) -> list[Line]:
    who = f"{event.subtask} " if event.subtask else ""
    return [_line(_job(event.job), f"{who}not {safe(event.condition)} any more", "good")]


def _heal_tried(run: Run, event: events.HealTried) -> list[Line]:
    words: dict[str, tuple[str, Meaning]] = {
        "passed": ("healed", "good"),
        "failed": ("not healed yet", "wait"),
        "unchanged": ("not healed: nothing was changed", "bad"),
    }
    what, meaning = words.get(event.outcome, (safe(event.outcome), ""))
    return [_line(_job(event.job), what, meaning, f"{shown_phase(event.phase)}, try {event.number}")]


def _settled(run: Run, event: events.ConflictSettled) -> list[Line]:
    paths = ", ".join(safe(path) for path in event.paths[:3])
    more = f" and {len(event.paths) - 3} more" if len(event.paths) > 3 else ""
    target = run.started.target_branch if run.started is not None else None
    kept = safe(kept_version(event.by, event.ours_jobs, event.theirs_jobs, target), 500)
    what = f"by {safe(event.by)}: {paths}{more}" + (f", {kept}" if kept else "")
    return [_line(_job(event.job), "conflict resolved", "wait", what)]


def _saved(run: Run, event: events.WorkSaved) -> list[Line]:
    """What lay in a validation job's worktree before it starts anew: somebody may have edited it to mend the result."""
    if event.job != VALIDATION or run.records[event.job].state is not JobState.RUNNING:
        return []
    recover = f"orchard recover {event.ref} DIR"
    kept = f"the merged result is checked as it is; what lay in its worktree is kept: {recover}"
    if event.why == events.MOVED_SINCE:
        pick = f"orchard shell verify --plan {run.id} -- git cherry-pick -n {event.ref}"
        kept = (
            "the target moved meanwhile, so the new merged result is checked without what was edited in the old one's "
            f"worktree. That is kept: {recover}. If verify fails again, this brings it back: {pick}"
        )
    return [_line("verify", "saved", "wait", kept)]


def _released(run: Run, event: events.HoldReleased) -> list[Line]:
    released = run.records[event.job].released
    if released == "worker":  # the message, or that it is complete, says more
        return []
    word = "goes on" if released in ("budget", "pr") else "approved"
    return [_line(_job(event.job), word, "good")]


def _leaf_merged(run: Run, event: events.LeafMerged) -> list[Line]:
    if not event.resolved or any(one.job == event.job for one in run.resolutions):
        return []  # who settled it just now was told then
    how = f"by {safe(event.resolver)}" if event.resolver else ""
    files = text.many(len(event.resolved), "file")
    return [_line(_job(event.job), "conflict resolved", "wait", f"{files} {how}".strip())]


def _marked_done(run: Run, event: events.JobMarkedDone) -> list[Line]:
    said = f": {safe(event.result, 200)}" if event.result else ""
    return [_line(_job(event.job), "called done", "good", f"it runs nothing{said}")]


LINES: Mapping[type[Event], Callable[[Run, Any], list[Line]]] = {
    events.PlanStarted: _plan_started,
    events.PlanPaused: _paused,
    events.PlanResumed: lambda run, event: [_line("plan", "resumed", "busy")],
    events.PlanCanceled: lambda run, event: [_line("plan", "canceled", "dim", safe(event.reason))],
    events.PlanReshaped: lambda run, event: [
        _line("plan", "reshaped", "busy", text.many(len(event.changes), "change"))
    ],
    events.BudgetWarned: _budget,
    events.Landed: _landed,
    events.NothingToLand: _nothing_to_land,
    events.LandingUndone: _undone,
    events.Pushed: _pushed,
    events.PullRequestOpened: _pull_request,
    events.Warned: _warned,
    events.JobStarted: _job_started,
    events.JobSucceeded: _succeeded,
    events.JobFailed: _failed,
    events.JobCanceled: _canceled,
    events.JobHeld: _held,
    events.JobContinued: lambda run, event: [_line(_job(event.job), "continues", "busy", f"from {event.resume_from}")],
    events.JobRetried: _retried,
    events.WorkRepeated: _repeated,
    events.HoldReleased: _released,
    events.WorkSaved: _saved,
    events.JobDeployed: lambda run, event: [_line(_job(event.job), "deployed", "busy")],
    events.MessageSent: _message,
    events.MessagesUnheard: _unheard,
    events.WorkerCompleted: lambda run, event: [
        _line(_job(event.job), "completed", "good", "the work of its agent is done")
    ],
    events.JobMarkedDone: _marked_done,
    events.AgentStarted: _agent_started,
    events.CallAsked: _call_asked,
    events.CallAnswered: _call_answered,
    events.AgentNoted: _agent_noted,
    events.HealTried: _heal_tried,
    events.HealthNoted: _health,
    events.SandboxAsked: _sandbox_asked,
    events.SandboxSet: _sandbox_set,
    events.SandboxRefused: _refused,
    events.HealthCleared: _well,
    events.SubtaskSpawned: _spawned,
    events.SubtaskEnded: _subtask_ended,
    events.SubtaskPulled: _pulled,
    events.ProgressReported: _progress,
    events.ConflictSettled: _settled,
    events.PhaseStarted: _phase_started,
    events.LeafMerged: _leaf_merged,
}
