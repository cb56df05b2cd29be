"""Workers as a tree below their plans, and conversations line by line."""

import time
from collections.abc import Iterator, Sequence

from orchard.core.views.documents import WorkerState
from orchard.core.views.figures import AgentUsage
from orchard.core.views.talk import TalkEntry
from orchard.core.views.worker_list import PlanRow, SubtaskRow, TaskRow, WorkerList, WorkerRow
from orchard.model.phases import shown_phase
from orchard.surfaces.cli.render import health, text
from orchard.surfaces.cli.render.lines import Line, Meaning, Piece, safe, safe_lines
from orchard.surfaces.next_steps import in_commands

SAID = 160
STATES: dict[WorkerState, Meaning] = {
    "created": "dim", "running": "busy", "idle": "wait", "paused": "wait", "completed": "good", "error": "bad",
}  # fmt: skip


def worker_lines(found: WorkerList) -> list[Line]:
    return [line for plan in found.plans for line in _plan(plan, found.workers)]


def _plan(plan: PlanRow, workers: Sequence[WorkerRow]) -> Iterator[Line]:
    where = f"  {safe(plan.repository)}" if plan.repository is not None else ""
    counts = f"  {text.counts(plan.counts, plan.validation)}{_used(plan.usage)}"
    name = f"  {safe(plan.name, 60)}  "
    yield [(safe(plan.plan), "strong"), (name, ""), text.status_piece(plan.status), (counts, "dim"), (where, "dim")]
    own = [one for one in workers if (one.repository, one.plan) == (plan.repository, plan.plan)]
    for worker in own:
        yield _row(safe(worker.job), worker, 1, f" {shown_phase(worker.phase)}" if worker.phase else _not_over(worker))
        yield from _about(worker, 2)
        yield from _below(worker.subtasks, None, 2)
    for task in plan.tasks:
        yield _task(task)


def _not_over(worker: WorkerRow) -> str:
    """Of a worker whose job goes on differently than it: it was called done before it began, or its checks failed."""
    if worker.state != "completed" or worker.status in ("succeeded", "running"):
        return ""
    return ", job failed" if worker.status == "failed" else f", job {worker.status}"


def _below(subtasks: Sequence[SubtaskRow], parent: str | None, depth: int) -> Iterator[Line]:
    """The subtasks that one agent asked for, each with its own below it."""
    for one in subtasks:
        if one.parent == parent:
            name = f" {safe(one.name, 60)}" if one.name != one.subtask else ""
            yield _row(f"{safe(one.subtask)}{name}", one, depth, "")
            yield from _about(one, depth + 1)
            yield from _below(subtasks, one.subtask, depth + 1)


def _row(name: str, one: WorkerRow | SubtaskRow, depth: int, more: str) -> Line:
    role = f" as {safe(one.definition, 60)}" if one.definition else ""
    who = f"  {safe(one.agent or 'agent', 40)}{role}" + (f" {safe(one.model, 60)}" if one.model else "")
    now = health.active(one.activity, time.time())
    queued = f"  {text.many(one.queued, 'message')} to be told" if one.queued else ""
    waits = ", asks you" if one.asks else ""
    state: Piece = (f"  {one.state}{more}{waits}", "wait" if one.asks else STATES[one.state])
    return [
        ("  " * depth, ""),
        (name, "name"),
        state,
        (who, ""),
        (f"  {now}" if now else "", "dim"),
        (f"{queued}{_used(one.usage)}", "dim"),
        *health.badges(one.health),
    ]


def _about(one: WorkerRow | SubtaskRow, depth: int) -> Iterator[Line]:
    indent = "  " * depth
    if one.progress is not None:
        far = f"{one.progress.percent:.0f} %  " if one.progress.percent is not None else ""
        yield [(indent, ""), (f"{far}{safe(one.progress.message, SAID)}", "")]
    for asked in one.asks:
        call = f"{safe(asked.tool, 100)}{f': {safe(asked.about, SAID)}' if asked.about else ''}"
        yield [(indent, ""), ("asks: ", "wait"), (f"may it use {call}?  {in_commands(asked.next[0])}", "")]
    yield from health.evidence_lines(one.health, indent)
    if one.error:
        yield [(indent, ""), ("failed: ", "bad"), (safe(one.error, 2 * SAID), "")]
    if one.said:
        yield [(indent, ""), ("says: ", "dim"), (safe(one.said, SAID), "")]


def _task(task: TaskRow) -> Line:
    who = (task.agent or "agent") if task.is_for_agent else "program"
    waits = "" if task.deployed else "  waits to be deployed"
    needs = f"  after {safe(', '.join(task.waits_for), 200)}" if task.waits_for else ""
    phase = f" {shown_phase(task.phase)}" if task.phase else ""
    return [
        ("  ", ""),
        (safe(task.job), "name"),
        ("  ", ""),
        text.status_piece(task.status),
        (phase, "busy"),
        (f"  {safe(who, 40)}", ""),
        (waits, "wait"),
        (needs, "dim"),
    ]


def _used(usage: AgentUsage) -> str:
    if not usage.tokens:
        return ""
    cost = f", ${usage.cost:.4f}" if isinstance(usage.cost, float) else ""
    return f"  {usage.tokens:,} tokens{cost}"


# -------------------------------------------------------------------------------------- conversations

WORDS: dict[str, str] = {
    "task": "task", "message": "message", "update": "update", "progress": "progress", "words": "says",
    "subtask": "hands out", "result": "result", "interrupted": "interrupted", "paused": "paused",
    "done": "called done", "failed": "failed", "retried": "retried", "asked": "asks", "answered": "answer",
    "unheard": "not heard",
}  # fmt: skip
MEANINGS: dict[str, Meaning] = {
    "failed": "bad", "done": "good", "result": "good", "interrupted": "wait", "paused": "wait", "retried": "wait",
    "unheard": "wait",
}  # fmt: skip


def entry_lines(entry: TalkEntry) -> list[Line]:
    reason = f" ({safe(entry.reason, 40)})" if entry.reason else ""
    first: Line = [
        (f"{(entry.at or '')[:19]}  ", "dim"),
        (safe(entry.sender, 60), "name"),
        (f" to {safe(entry.to, 60)}  ", "dim"),
        (f"{WORDS[entry.kind]}{reason}", MEANINGS.get(entry.kind, "")),
    ]
    rows = safe_lines(entry.text) if entry.text.strip() else []
    rows += [] if entry.whole else ["[a part is left out; 'orchard logs' of the same name has what an agent said]"]
    return [first, *(_indented(row) for row in rows)]


def _indented(row: str) -> Line:
    return [("    ", ""), (row, "")]
