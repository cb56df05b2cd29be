"""Tools that read what can be long: logs and diffs, in pieces and without secrets."""

from typing import Annotated, Any
from weakref import WeakKeyDictionary

from msgspec.structs import replace
from pydantic import Field

from orchard.app import App
from orchard.errors import UsageError
from orchard.git.history import LONGEST_DIFF
from orchard.model.events.plans import Json
from orchard.model.phases import Phase
from orchard.operations.queries import jobs as job_queries
from orchard.operations.queries import subtasks as subtask_queries
from orchard.operations.queries.log_pages import Wanted, page
from orchard.store.logs import read
from orchard.store.redact import Redactor
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Output
from orchard.surfaces.mcp.tools.declaration import declared
from orchard.surfaces.mcp.tools.models import TEXT, MaxBytes, Offset, PhaseName, Told, optional
from orchard.surfaces.mcp.tools.names import MeantJob, of_job
from orchard.text import for_screen

TAIL = 100


class PhaseLog(Output, kw_only=True):
    phase: PhaseName
    bytes: int


class Logs(Told, kw_only=True):
    plan: str
    job: str
    text: str
    offset: int
    next_offset: int
    size: int
    ended: bool
    attempt: int | None = None
    phase: PhaseName | None = None
    phases: list[PhaseLog] | None = None


def _logs(app: App, meant: MeantJob, given: Any) -> Json:
    if given.tail is not None and given.offset is not None:
        raise UsageError("'tail' and 'offset' exclude each other.", hint="Give one of them.")
    phase = Phase(given.phase) if given.phase else None
    if meant.subtask is not None and (phase is not None or given.attempt is not None):
        raise UsageError("A subtask has one log: 'attempt' and 'phase' are for jobs.")
    wanted = Wanted(meant.plan, meant.job, given.attempt, phase, given.offset or 0, given.max_bytes, meant.subtask)
    found = page(app, wanted)
    if given.offset is None and (found.phase is not None or meant.subtask is not None):
        wanted = replace(wanted, attempt=found.attempt, phase=found.phase)
        found = page(app, replace(wanted, offset=_beginning(app, wanted, found.size, given)))
    shown = {name: getattr(found, name) for name in ("offset", "next_offset", "size", "ended")}
    written = str(found.phase) if found.phase is not None else None
    head = {"plan": meant.plan, "job": meant.worker, "text": for_screen(found.data)}
    phases = _phases(app, meant, found.attempt) if meant.subtask is None else []
    return {**head, **shown, **compact({"attempt": found.attempt, "phase": written, "phases": phases})}


def _beginning(app: App, wanted: Wanted, size: int, given: Any) -> int:
    """Where the last lines begin, as far as there is room for them."""
    assert wanted.attempt is not None
    start: int = max(0, size - given.max_bytes)
    if wanted.subtask is not None:
        path = app.logs.subtask_path(wanted.plan, wanted.job, wanted.attempt, wanted.subtask)
    else:
        assert wanted.phase is not None
        path = app.logs.path(wanted.plan, wanted.job, wanted.attempt, wanted.phase)
    data = read(path, start, size - start).data
    lines = data.split(b"\n")
    ends = 1 if lines[-1] == b"" else 0
    count = (given.tail or TAIL) + ends
    kept = lines[-count:] if start == 0 or len(lines) > count else lines[1:] or lines
    return start + len(data) - len(b"\n".join(kept))


def _phases(app: App, meant: MeantJob, attempt: int | None) -> list[Json]:
    if attempt is None:
        return []
    parts = app.log_parts(meant.job, meant.plan, attempt=attempt)
    sizes = [(str(part.phase), part.path.stat().st_size) for part in parts if part.path.is_file()]
    return [{"phase": phase, "bytes": size} for phase, size in sizes if size]


class Diff(Told, kw_only=True):
    plan: str
    job: str
    diff: str
    size: int
    next_offset: int | None = None


def _diff(app: App, meant: MeantJob, given: Any) -> Json:
    hidden = _hidden_diff(app, meant, stat=given.stat)
    start = min(given.offset, len(hidden))
    end = min(start + given.max_bytes, len(hidden))
    if end < len(hidden):
        end = hidden.rfind(b"\n", start, end) + 1 or end
    text = for_screen(hidden[start:end].decode(errors="replace"))
    following = end if end < len(hidden) else None
    return {
        "plan": meant.plan,
        "job": meant.worker,
        "diff": text,
        "size": len(hidden),
        **compact({"next_offset": following}),
    }


_LAST: WeakKeyDictionary[App, tuple[object, bytes]] = WeakKeyDictionary()
"""The diff that was asked about last: its next pieces are of the same, and need no git and no search for secrets."""


def _hidden_diff(app: App, meant: MeantJob, *, stat: bool) -> bytes:
    run = app.run_of(meant.plan)
    key = (*app.changed_between(meant.worker, meant.plan), stat, meant.plan, len(run.past_secrets))
    known, hidden = _LAST.get(app, (None, b""))
    if known != key:
        hidden = Redactor(app.secrets(run)).whole(app.diff(meant.worker, meant.plan, stat=stat, most=LONGEST_DIFF))
        _LAST[app] = key, hidden
    return hidden


class SubtaskResult(Told, kw_only=True):
    plan: str
    job: str
    status: str
    result: str
    size: int
    next_offset: int | None = None
    agent: str
    message: str | None = None
    instructions: str
    pulled: bool


def _subtask(app: App, meant: MeantJob, given: Any) -> Json:
    args = subtask_queries.GetSubtask(plan=meant.plan, job=meant.worker, offset=given.offset, limit=given.limit)
    found = subtask_queries.get_subtask.read(app, args)
    one = found.subtask
    following = found.next_offset if found.next_offset < found.size else None
    head = {"plan": found.plan, "job": meant.worker, "status": one.status, "result": for_screen(found.result)}
    return {
        **head,
        "size": found.size,
        "agent": one.agent,
        "instructions": one.instructions,
        "pulled": one.pulled,
        **compact({"next_offset": following, "message": one.message}),
    }


LOGS: dict[str, tuple[Any, Any]] = {
    "tail": (
        Annotated[int, Field(ge=1, le=10_000)] | None,
        optional(f"The last lines; {TAIL} without `offset`."),
    ),
    "offset": (Offset | None, optional("Instead of `tail`: 0, or `next_offset` of the answer before.")),
    "max_bytes": (MaxBytes, TEXT),
    "phase": (PhaseName | None, optional("Left out: the last that printed.")),
}
DIFF: dict[str, tuple[Any, Any]] = {
    "offset": (Offset, Field(default=0, description="`next_offset` of the answer before.")),
    "max_bytes": (MaxBytes, TEXT),
}
TOOLS = (
    declared(
        job_queries.get_job_logs,
        Logs,
        of_job(_logs, or_subtask=True),
        without=("phase", "offset", "limit", "follow", "idle"),
        more=LOGS,
    ),
    declared(
        subtask_queries.get_subtask,
        SubtaskResult,
        of_job(_subtask, or_subtask=True),
        more={"offset": DIFF["offset"], "limit": (MaxBytes, TEXT)},
    ),
    declared(job_queries.get_job_diff, Diff, of_job(_diff, or_subtask=True), more=DIFF),
)
