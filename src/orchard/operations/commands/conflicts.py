"""The command by which a person resolves a conflict: open it in a worktree, go on with it, or give it up."""

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.conflicts import is_open
from orchard.engine.merges.by_hand import Opened, end_conflict, open_conflict, take_resolution, words
from orchard.errors import Next, UsageError
from orchard.git.history import show_path
from orchard.git.merge.by_hand import HAND, beside
from orchard.model.events.plans import ConflictSettled, Json
from orchard.model.phases import Phase
from orchard.model.plan import JobId
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.jobs import JOB
from orchard.operations.commands.plans import job_of
from orchard.operations.commands.retry import retrying
from orchard.operations.operation import DoneJob, Fit, OfJob, Route, Tool, Verb, says

Step = Literal["open", "continue", "abort"]


class ResolveConflict(OfJob, frozen=True, kw_only=True):
    step: Annotated[
        Step,
        says(
            "`open` puts both sides into a worktree; `continue` goes on with what you made of it; `abort` gives it up.",
            absent={"verb": "`--continue` and `--abort` say it."},
        ),
    ] = "open"


class InConflict(Struct, frozen=True):
    """A file that is in conflict."""

    path: str
    what: str
    line: Annotated[int | None, says("Where its first conflict marker is.")] = None
    done: Annotated[bool, says("Whether it is decided already.")] = False


class Resolving(DoneJob, frozen=True, kw_only=True):
    """A conflict that is resolved by hand, and how far that is."""

    folder: Annotated[str | None, says("The worktree with both sides in it; null: it is gone.")]
    ours: Annotated[str | UnsetType, says("Who is meant by the first side of each marker.")] = UNSET
    theirs: Annotated[str | UnsetType, says("Who is meant by the other.")] = UNSET
    files: list[InConflict] | UnsetType = UNSET
    beside: Annotated[list[str] | UnsetType, says("What was changed besides, and is part of the resolution.")] = UNSET
    saved: Annotated[list[str] | UnsetType, says("Refs under which the edits were saved.")] = UNSET
    edited: Annotated[
        str | UnsetType | None,
        says("The one of them that holds the files of the worktree; the others hold what git had noted about it."),
    ] = UNSET


def _refuse(run: Run, name: str) -> None:
    """Refuse where a job has no conflict that somebody could resolve."""
    job = job_of(run, name)
    record = run.records[job]
    if run.deleted:
        raise UsageError(
            f"Plan '{run.id}' was deleted; what was edited in worktrees of its conflicts is saved.",
            hint=Next("list_saved_work", run.id),
        )
    if record.state is not JobState.FAILED:
        open_in = f" The worktree with your edits stays: {record.conflict.path}" if record.conflict is not None else ""
        raise UsageError(
            f"Job '{job}' is {record.status}; only the conflict of a failed job can be resolved.{open_in}",
            hint=Next("get_job", run.id, job),
        )
    if record.failure is None or not record.failure.merge:
        raise UsageError(f"Job '{job}' did not fail with a conflict.", hint=Next("get_job", run.id, job))


def _decide(run: Run, args: ResolveConflict, _: object, scene: Scene) -> Decision:
    job = job_of(run, args.job)
    if args.step == "abort":
        if run.records[job].conflict is None:
            _refuse(run, job)
            raise UsageError(
                f"Job '{job}' has no conflict that you are resolving by hand.", Next("get_job", run.id, job)
            )
        return Decision(answer={"job": job})
    _refuse(run, job)
    if args.step == "continue" and not is_open(run, job):
        other = run.records[job].conflict is not None
        said = "met another conflict since its worktree was opened" if other else "has no worktree for its conflict yet"
        raise UsageError(f"Job '{job}' {said}.", hint=Next("resolve_conflict", run.id, job))
    return Decision(answer={"job": job})


async def _perform(scene: Scene, run: Run, args: ResolveConflict, decided: Decision) -> Json:
    job = JobId(decided.answer["job"])
    if args.step == "open":
        return {**decided.answer, **_shown(await open_conflict(scene.engine, run, job))}
    before = len(run.records[job].saved)
    answer = await (_go_on if args.step == "continue" else _give_up)(scene, run, job)
    saved = [one.ref for one in run.records[job].saved[before:]]
    return {**decided.answer, **answer, "saved": saved}


def _shown(opened: Opened) -> Json:
    left = {one.path: one for one in opened.left}
    files = [
        {
            "path": show_path(one.path),
            "what": words(one, opened.names),
            "line": left[one.path].line if one.path in left else None,
            "done": one.path not in left,
        }
        for one in opened.merge.conflicts
    ]
    names = opened.names
    return {"folder": str(opened.folder), "ours": names.ours, "theirs": names.theirs, "files": files}


async def _go_on(scene: Scene, run: Run, job: JobId) -> Json:
    engine, failure = scene.engine, run.records[job].failure
    assert failure is not None
    taken = await take_resolution(engine, run, job)
    _refuse(run, job)
    found = taken.resolution
    paths = tuple(show_path(path) for path in found.paths)
    settled = ConflictSettled(
        job,
        taken.attempt,
        failure.phase or Phase.MERGE_FI,
        HAND,
        paths,
        taken.merge.ours,
        taken.merge.theirs,
        found.tree,
    )
    # As a whole: a retry without the resolution, or the other way round, would be half of it.
    engine.record_together(run.id, settled, *retrying(run, job, scene), listed=True)
    await engine.durable()
    await end_conflict(engine, run, job, "left in the worktree of a conflict", taken.saved)
    files = [{"path": show_path(one.path), "what": "", "done": True} for one in taken.merge.conflicts]
    more = [show_path(path) for path in beside(taken.merge, found)]
    return {**_closed(run, job), "ours": failure.sides[0], "theirs": failure.sides[1], "files": files, "beside": more}


async def _give_up(scene: Scene, run: Run, job: JobId) -> Json:
    saved = await end_conflict(scene.engine, run, job, "a conflict that was not resolved")
    return {**_closed(run, job), "edited": saved.ref if saved is not None else None}


def _closed(run: Run, job: JobId) -> Json:
    kept = run.records[job].conflict
    return {"folder": kept.path if kept is not None else None}


resolve_conflict = Command(
    name="resolve_conflict",
    sentence="Resolve the conflict of a job by hand, in a worktree with both sides in it.",
    details="`open` makes the worktree, with conflict markers as git writes them; edit the files there. `continue` "
    "takes them back, remembers the resolution for the plan and retries the job; it refuses while markers are left. "
    "`abort` gives it up, and saves the edits. The user's own checkout is not touched.",
    args=ResolveConflict,
    answer=Resolving,
    example={"plan": "add-login", "job": "api", "step": "open"},
    route=Route("POST", f"{JOB}/resolve"),
    tool=Tool("jobs", "Resolve a conflict"),
    verb=Verb("resolve", follows=True),
    next=("wait_plan", "retry_job"),
    whole_names=True,
    fit=Fit(lambda plan: bool(plan.counts.get("failed")), "has a failed job", last_first=True),
    refuses=_refuse,
    decide=_decide,
    adds_work=True,
    perform=_perform,
)
