"""What people and agents said to each other about a job, or about a subtask of it, in order.

It is read from the journal: the task, the messages of people and of the agent that asked for a subtask, updates, how
far an agent said it was, its last words after each turn, and what it all came to.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from orchard.core.records import Subtask
from orchard.core.run import Run
from orchard.core.views.documents import Moment, time_text
from orchard.model.events import plans as events
from orchard.model.plan import AgentWork, Job, JobId
from orchard.text import is_cut

TEXT = 256 * 1024
"""Characters of one entry: as long as the longest task or message."""

Kind = Literal[
    "task", "message", "update", "progress", "words", "subtask", "result", "interrupted", "paused", "done", "failed",
    "retried", "asked", "answered", "unheard",
]  # fmt: skip

_JOURNAL_CUTS: frozenset[Kind] = frozenset({"words", "result", "update"})
"""What the journal keeps only a part of where it is long; a log or a file beside it has all."""


class TalkEntry(Struct, frozen=True, kw_only=True):
    """Something that was said, or that ended a turn."""

    seq: Annotated[int, Meta(description="The number of its event.")]
    at: Moment | None
    attempt: int | None
    kind: Kind
    sender: Annotated[str, Meta(description="`person`, `parent`, `orchard`, or the name of an agent or a subtask.")]
    to: Annotated[str, Meta(description="`agent`, `person`, `parent`, or the name of a subtask.")]
    text: str
    reason: Annotated[str | None, Meta(description="How a turn ended that was not done, or why it failed.")] = None
    whole: Annotated[bool, Meta(description="False: a part of a long text is left out.")] = True


class TalkPage(Struct, frozen=True, kw_only=True):
    """A part of a conversation, in its order."""

    plan: str
    job: str
    entries: list[TalkEntry]
    total: Annotated[int, Meta(description="How many entries there are from `since` on.")]
    next: Annotated[int, Meta(description="The `since` for what is said later.")]


class _Said(Struct, frozen=True):
    kind: Kind
    sender: str
    to: str
    text: str
    reason: str | None = None


class Listener:
    """Hears what is said to and by the agent of a job, or of a subtask of it."""

    def __init__(self, run: Run, job: JobId, subtask: str | None, clean: Callable[[str], str]) -> None:
        self._run, self._job, self._subtask, self._clean = run, job, subtask, clean
        self._told: set[int] = set()
        """The attempts whose task was told."""
        self._ended: set[str] = set()
        """Subtasks whose end was told: an update says the same once more."""

    def hear(self, recorded: events.Recorded) -> TalkEntry | None:
        """What an event tells, if it is a part of the conversation."""
        event: Any = recorded.event
        if getattr(event, "job", None) != self._job:
            return None
        heard = _HEARD.get(type(event))
        said = heard(self, event) if heard is not None else None
        if said is None:
            return None
        text = self._clean(said.text)
        return TalkEntry(
            seq=recorded.seq,
            at=time_text(recorded.at),
            attempt=getattr(event, "attempt", None),
            kind=said.kind,
            sender=said.sender,
            to=said.to,
            text=text[:TEXT],
            reason=said.reason,
            whole=len(text) <= TEXT and not (said.kind in _JOURNAL_CUTS and is_cut(text)),
        )

    @property
    def _subtasks(self) -> Mapping[str, Subtask]:
        return self._run.records[self._job].subtasks

    @property
    def _asker(self) -> str:
        return "parent" if self._subtask is not None else "person"

    def _turn_begins(self, event: events.AgentStarted) -> _Said | None:
        if event.subtask is not None or self._subtask is not None or event.purpose != "work":
            return None
        if event.attempt in self._told:
            return None
        self._told.add(event.attempt)
        tried = next((one for one in self._run.records[self._job].attempts if one.number == event.attempt), None)
        return _Said("task", "person", "agent", _task(tried.job if tried is not None else None))

    def _turn_ends(self, event: events.AgentEnded) -> _Said | None:
        if event.subtask != self._subtask or not (event.text or event.message):
            return None
        reason = None if event.reason == "done" else event.reason
        text = event.text or event.message
        return _Said("words", event.agent, self._asker, text, reason if event.text else f"{event.reason}")

    def _message(self, event: events.MessageSent) -> _Said | None:
        if event.subtask == self._subtask:
            return _Said("message", event.by, "agent", event.text)
        one = self._subtasks.get(event.subtask) if event.subtask is not None else None
        if one is None or one.parent != self._subtask or event.by != "parent":
            return None
        return _Said("message", "agent", one.id, event.text)

    def _unheard(self, event: events.MessagesUnheard) -> _Said | None:
        if event.subtask != self._subtask:
            return None
        what = "1 message" if event.count == 1 else f"{event.count} messages"
        them = "it" if event.count == 1 else "them"
        text = f"{what}: its work was over before its agent could hear {them}."
        return _Said("unheard", "orchard", "person", text)

    def _update(self, event: events.UpdateQueued) -> _Said | None:
        if event.to != self._subtask or event.about in self._ended:
            return None
        return _Said("update", event.about or "orchard", "agent", event.text, event.kind)

    def _progress(self, event: events.ProgressReported) -> _Said | None:
        if event.subtask != self._subtask:
            return None
        far = f"{event.percent:.0f} %: " if event.percent is not None else ""
        return _Said("progress", "agent", self._asker, far + event.message)

    def _spawned(self, event: events.SubtaskSpawned) -> _Said | None:
        if event.subtask == self._subtask:
            return _Said("task", "parent", "agent", event.instructions)
        if event.parent == self._subtask:
            return _Said("subtask", "agent", event.subtask, event.instructions)
        return None

    def _subtask_completed(self, event: events.SubtaskCompleted) -> _Said | None:
        if event.subtask != self._subtask:
            return None
        sender = "agent" if event.by == "itself" else event.by
        return _Said("result", sender, "parent", event.result, None if event.succeeded else "failed")

    def _subtask_ended(self, event: events.SubtaskEnded) -> _Said | None:
        one = self._subtasks.get(event.subtask)
        if one is None or one.parent != self._subtask:
            return None
        self._ended.add(event.subtask)
        reason = None if event.status == "completed" else event.status
        return _Said("result", event.subtask, "agent", event.summary or event.message, reason)

    def _rest(self, event: events.WorkerIdle) -> _Said | None:
        return _at_rest(event.why) if self._subtask is None else None

    def _subtask_rests(self, event: events.SubtaskIdle) -> _Said | None:
        return _at_rest(event.why) if event.subtask == self._subtask else None

    def _asked(self, event: events.CallAsked) -> _Said | None:
        if event.subtask != self._subtask:
            return None
        return _Said("asked", event.agent, "person", f"May I use {event.call}?")

    def _answered(self, event: events.CallAnswered) -> _Said | None:
        if event.subtask != self._subtask:
            return None
        if event.by == "withdrawn":
            return _Said("answered", "agent", "person", "", "withdrawn")
        sender = "person" if event.by == "person" else "orchard"
        return _Said("answered", sender, "agent", event.why, "allowed" if event.allowed else "refused")

    def _done(self, event: events.WorkerCompleted | events.JobMarkedDone) -> _Said | None:
        return _Said("done", "person", "agent", event.result) if self._subtask is None else None

    def _failed(self, event: events.JobFailed) -> _Said | None:
        return _Said("failed", "orchard", "person", event.message, event.reason) if self._subtask is None else None

    def _retried(self, event: events.JobRetried) -> _Said | None:
        return _Said("retried", "person", "agent", event.why) if self._subtask is None else None


def _at_rest(why: str) -> _Said | None:
    if why == "interrupted":  # by a person, by the agent that asked for it, or by its health: the engine did it
        return _Said("interrupted", "orchard", "agent", "")
    return _Said("paused", "person", "agent", "") if why == "paused" else None


def _task(job: Job | None) -> str:
    work = job.work if job is not None else None
    if not isinstance(work, AgentWork):
        return job.task if job is not None else ""
    return work.instructions if work.instructions is not None else f"As in the file {work.instructions_file}"


_HEARD: Mapping[type[events.Event], Callable[[Listener, Any], _Said | None]] = {
    events.AgentStarted: Listener._turn_begins,
    events.AgentEnded: Listener._turn_ends,
    events.MessageSent: Listener._message,
    events.MessagesUnheard: Listener._unheard,
    events.UpdateQueued: Listener._update,
    events.ProgressReported: Listener._progress,
    events.SubtaskSpawned: Listener._spawned,
    events.SubtaskCompleted: Listener._subtask_completed,
    events.SubtaskEnded: Listener._subtask_ended,
    events.WorkerIdle: Listener._rest,
    events.SubtaskIdle: Listener._subtask_rests,
    events.WorkerCompleted: Listener._done,
    events.JobMarkedDone: Listener._done,
    events.JobFailed: Listener._failed,
    events.JobRetried: Listener._retried,
    events.CallAsked: Listener._asked,
    events.CallAnswered: Listener._answered,
}
