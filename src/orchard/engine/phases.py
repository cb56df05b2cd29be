"""The phases of an ordinary job, each a function from the attempt to an outcome; and running them in their order.

A phase stands between its two events. What fails is healed, where the plan allows that.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from orchard.core.retry import has_worked
from orchard.engine.context import Context, folder_state
from orchard.engine.merges.gather import Between, base_ref, conflict, gather
from orchard.engine.outcome import Failed, Held, Outcome, Passed, Skipped
from orchard.engine.snapshot import merge_leaf
from orchard.engine.turns.heal import edited_since, healed, healed_trailers
from orchard.engine.turns.permissions import read_only
from orchard.engine.turns.resolve import Sides, merge_with_resolver, record_pick
from orchard.engine.turns.subtask import end_subtasks
from orchard.engine.works import run_works, setup
from orchard.errors import Next, SystemRefused
from orchard.files import read_plain
from orchard.git.history import count_commits, files
from orchard.git.merge.conflicts import Merge
from orchard.git.refs import Update, keep_ref, update_refs
from orchard.git.worktree.commit import CommitInfo, Committed, Refused
from orchard.model.events.plans import NeedsConsumed, PhaseEnded, PhaseStarted, WorkCommitted, WorkRepeated
from orchard.model.phases import PHASES, Phase, at_or_after
from orchard.model.plan import VALIDATION, AgentWork, Job, JobId, Resolver, Work

WORDS: Mapping[type[Outcome], str] = {Failed: "failed", Skipped: "skipped", Held: "held"}

PhaseFunction = Callable[[Context], Awaitable[Outcome]]

EVIDENCE_BYTES = 64 * 1024
LISTED_PATHS = 10
WORTH_ANOTHER_RUN = frozenset({"exit", "signal", "timeout", "idle"})
"""How a program can fail that might not fail the next time."""
NOTHING_TO_CHANGE = "no file had to be changed"
TYPES = ("file_changes", "external_effect", "analysis", "validation")


def read_evidence(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The evidence a job left, or what is wrong with it; neither where it left none."""
    try:
        # The job chose what lies here: no link is followed, no pipe waited for.
        data = read_plain(path, EVIDENCE_BYTES + 1)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"the evidence file cannot be read: {error.strerror}"
    if len(data) > EVIDENCE_BYTES:
        return None, f"the evidence file is larger than {EVIDENCE_BYTES // 1024} KiB"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None, "the evidence file is not JSON"
    problem = _problem(value)
    return (None, problem) if problem else (value, None)


def _problem(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "the evidence must be a JSON object"
    unknown = sorted(set(value) - {"summary", "type", "outcome"})
    if unknown:
        return f"the evidence has an unknown field '{unknown[0]}'; known are summary, type and outcome"
    summary = value.get("summary")
    if not isinstance(summary, str) or not summary.strip():
        return "the evidence needs a 'summary' that says what was done"
    if value.get("type") not in TYPES:
        return f"the 'type' of the evidence must be one of {', '.join(TYPES)}"
    if "outcome" in value and not isinstance(value["outcome"], dict):
        return "the 'outcome' of the evidence must be an object"
    return None


async def merge_fi(context: Context) -> Outcome:
    run, record = context.run, context.state
    needs = context.job.needs
    commits = [commit for need in needs if (commit := run.records[need].passed_on) is not None]
    hold = base_ref(run.id, context.job_id, context.number)
    resolver = context.plan.resolver or context.world.config.resolver
    base = run.pinned.base_commit
    if len(set(commits)) == 1:
        base = commits[0]
    elif commits:
        gathered = await merge_with_resolver(context, lambda: _gathered(context, hold, commits, resolver))
        if not isinstance(gathered, Passed):
            return gathered
        base = gathered.note
        await _note_picks(context, base)
    if record.base is not None and record.base != base and context.first_phase is not Phase.MERGE_FI:
        context.notes.append("what the job needs has changed: it starts over")
        context.first_phase, context.fresh, context.starts_over = Phase.MERGE_FI, True, True
    context.base = base
    if needs:
        context.engine.record(run.id, NeedsConsumed(context.job_id, needs))
    return await _take_folder(context, base)


async def _note_picks(context: Context, base: str) -> None:
    """Record where a side was taken between two needs: what one of them did is not in what the job starts from."""
    world, run, needs = context.world, context.run, context.job.needs
    commits = [commit for need in needs if (commit := run.records[need].passed_on) is not None]
    for pick in await world.in_thread(lambda: list(world.picks.inside(world.integration.objects, base, commits))):
        sides = Sides(*_whose(context, pick.ours, pick.theirs))
        if note := record_pick(context.engine, run, context.job_id, Phase.MERGE_FI, pick, sides):
            context.notes.append(note)


async def _gathered(context: Context, hold: str, commits: list[str], resolver: Resolver) -> Outcome:
    """Bring together what the job needs; the commit is the note of `Passed`."""
    world = context.world
    floor = context.run.pinned.base_commit
    step = partial(world.in_thread, gather, world, context.run.id, hold, commits, resolver, floor)
    found = await world.again_if_vanished(step)
    if isinstance(found, str):
        return Passed(found)
    return conflict(found.merge, resolver, _between(context, found.merge)) if found.merge is not None else found


def _between(context: Context, merge: Merge) -> Between:
    """Which of the jobs that this one needs do not fit together."""
    ours, theirs = _whose(context, merge.ours, merge.theirs)
    first, second = (" and ".join(f"job '{one}'" for one in side) or "another need" for side in (ours, theirs))
    who = f"J{first[1:]} and {second}, which job '{context.job_id}' needs,"
    return Between(context.run.id, context.job_id, who, first, second)


def _whose(context: Context, ours: str, theirs: str) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    """The needs whose work is on either side of a merge: one that was merged, and those that were before it."""
    needs = context.job.needs
    made = {context.run.records[need].passed_on: need for need in needs}
    second = made.get(theirs)
    earlier = needs[: needs.index(second)] if second is not None else ()
    return (made[ours],) if ours in made else earlier, (second,) if second is not None else ()


async def _take_folder(context: Context, base: str) -> Outcome:
    committed = context.state.work_commit
    if context.job.runs_nothing:
        context.commit = base
        return Passed()
    done = committed.commit if committed is not None and committed.base == base and not context.fresh else None
    if context.first_phase in (Phase.POSTCHECKS, Phase.MERGE_RI):
        if done is None or _has_worked_since(context, committed):
            if not context.fresh:
                context.notes.append("what the last work left is not committed yet: the job begins with that")
            context.first_phase = Phase.COMMIT
        else:
            context.commit = done
            if context.first_phase is Phase.MERGE_RI:
                return Passed()
    await context.workspace.prepare(base, fresh=context.fresh)
    if context.first_phase is Phase.POSTCHECKS and done is not None:
        await _drop_leftovers(context, done)
    if context.workspace.is_new and context.first_phase not in (Phase.MERGE_FI, Phase.SETUP):
        attempt = context.state.last
        if attempt is not None and attempt.number == context.number and (attempt.program or attempt.turns):
            message = "interrupted: the folder of this attempt is gone, and what its work left there with it."
            return Failed("interrupted", message, hint=Next("retry_job", context.run.id, context.job_id))
        if not context.fresh:
            context.notes.append("the folder of the last attempt is gone: the job starts over")
        context.first_phase, context.commit = Phase.SETUP, None
    return Passed()


def _has_worked_since(context: Context, committed: WorkCommitted | None) -> bool:
    """Whether work ran in a later attempt than the one whose commit this is."""
    made = committed.attempt if committed is not None else 0
    return any(attempt.number > made and has_worked(attempt) for attempt in context.state.attempts)


async def _drop_leftovers(context: Context, done: str) -> None:
    """Take what earlier checks left out of the worktree, unless a person or an agent has edited it: what lands is the
    commit, so that is what has to pass."""
    last = context.state.last
    goes_on = last is not None and any(one.phase is Phase.POSTCHECKS for one in last.phases)
    if not context.workspace.is_new and not await _is_edited(context) and not goes_on:
        await context.workspace.clean(done, "left by checks")


async def prechecks(context: Context) -> Outcome:
    if not context.job.prechecks:
        return Skipped()
    return await run_works(context, context.job.prechecks) or Passed()


async def work(context: Context) -> Outcome:
    if context.job.work is None:
        return Skipped()
    outcome = await run_works(context, [context.job.work])
    most = context.job.retries + 1
    for number in range(2, most + 1):
        if not isinstance(outcome, Failed) or outcome.reason not in WORTH_ANOTHER_RUN:
            break
        context.notes.append(f"{outcome.message} Orchard ran it again, run {number} of {most}.")
        context.record(WorkRepeated(context.job_id, context.number, number, most, outcome.message))
        outcome = await _run_again(context, context.job.work)
    return outcome or Passed()


async def _run_again(context: Context, one: Work) -> Failed | Held | None:
    """Run a work anew, where nothing of the run before it is left; what that one left is saved."""
    await context.workspace.prepare(context.base, fresh=True)
    ready = await setup(context)
    return ready if isinstance(ready, Failed | Held) else await run_works(context, [one])


def _replaced(context: Context) -> str | None:
    """The commit of this attempt in whose place another one comes; work that changed nothing has made none."""
    earlier = context.state.work_commit
    if earlier is None or (earlier.attempt, earlier.base) != (context.number, context.base):
        return None
    return earlier.commit if earlier.commit != earlier.base else None


async def commit(context: Context) -> Outcome:
    """Turn what the work left into one commit that a ref of ours holds, or say why it does not count."""
    if not context.workspace.is_open:
        return Skipped()
    world, job, number = context.world, context.job, context.number
    info = CommitInfo(
        name=job.name,
        ref=keep_ref(context.run.id, context.job_id, number),
        author=world.identity,
        body=job.task,
        trailers=(
            ("Orchard-Plan", context.run.id),
            ("Orchard-Job", context.job_id),
            ("Orchard-Attempt", str(number)),
            *healed_trailers(context),
        ),
        droppings=context.droppings,
        replaces=_replaced(context),
    )
    stays = bool(job.postchecks) or job.approve or not context.plan.cleanup
    result = await context.workspace.collect(info, context.base, stays=stays)
    if isinstance(result, Refused):
        return Failed("refused", result.message, hint=result.hint, may_heal=result.unfinished)
    if result.dropped:
        shown = ", ".join(result.dropped[:LISTED_PATHS]) + (" ..." if len(result.dropped) > LISTED_PATHS else "")
        context.notes.append(f"not in the commit, because the agent left it for itself: {shown}")
    evidence, wrong = read_evidence(context.place.evidence)
    if evidence is None and not result.differs and (said := context.state.result):
        evidence = {"summary": said, "type": "analysis"}  # whoever called it done says why nothing had to change
    proven = evidence is not None or read_only(context.state)
    failed = _proof_is_missing(job, result.differs, proven, wrong)
    if failed is None and job.may_change == "forbidden" and result.differs:
        failed = await _unexpected(context, result.commit)
    if failed is not None:
        return failed
    counts = await _counts(context, result) if result.changed else {}
    context.commit, context.healed = result.commit, False
    context.record(WorkCommitted(context.job_id, number, context.base, result.commit, counts, evidence))
    if result.differs:
        return Passed()
    return Passed(evidence["summary"] if evidence else wrong or ("" if job.work is None else NOTHING_TO_CHANGE))


def _proof_is_missing(job: Job, changed: bool, proven: bool, wrong: str | None) -> Failed | None:
    if changed or job.may_change != "required" or proven or job.work is None:
        return None
    said = f" ({wrong})" if wrong else ""
    return Failed(
        "no-changes",
        f"The work succeeded but changed no file{said}.",
        hint="Set 'changes: optional' if that is right, or have the work write why to $ORCHARD_EVIDENCE.",
        resume_from=Phase.WORK,
    )


async def _unexpected(context: Context, commit_: str) -> Failed:
    changed = await context.world.in_thread(files, context.world.repo, context.base, commit_)
    listed = _listed([one.shown for one in changed], len(changed))
    return Failed(
        "unexpected-changes",
        f"The job must not change files, but it changed {listed}.",
        hint="Remove 'changes: forbidden' if the change is wanted; it is kept below refs/orchard/keep.",
        resume_from=Phase.WORK,
    )


async def _counts(context: Context, result: Committed) -> dict[str, int]:
    commits = 1
    if result.own_commits:
        commits = await context.world.in_thread(count_commits, context.world.repo, context.base, result.commit)
    return {"commits": commits, **result.counts}


async def _is_edited(context: Context) -> bool:
    """Whether a person or an agent edited what was committed; seen before setting up again, which is no edit."""
    if context.edited is None:
        context.edited = await edited_since(context)
    return context.edited


async def postchecks(context: Context) -> Outcome:
    outcome: Outcome = Skipped()
    if context.first_phase is Phase.POSTCHECKS and context.job.postchecks and await _is_edited(context):
        context.healed = True
    if context.healed and context.workspace.is_open:
        # What was healed after the commit is part of the result that is checked now.
        outcome = await commit(context)
        if isinstance(outcome, Failed):
            # A retry must not check in the worktree what no commit has.
            return replace(outcome, resume_from=outcome.resume_from or Phase.COMMIT)
    if context.job.postchecks:
        failed = await run_works(context, context.job.postchecks)
        if failed is not None:
            return failed
        await note_changes(context)
        outcome = Passed()
    if context.job.approve and context.approved != "approval":
        reason = f"Job '{context.job_id}' waits for you to approve its changes."
        return Held("approval", reason, Phase.MERGE_RI, await folder_state(context))
    return outcome


async def note_changes(context: Context) -> None:
    """Report what a check changed; it is not part of the result. Files that the result has are worth a warning."""
    changes = await context.workspace.changes(context.droppings)
    if changes.total:
        context.notes.append(
            f"the checks changed {_listed(changes.paths, changes.total)}; that is not kept in the result"
        )
    if changes.tracked:
        whose = "of the whole plan" if context.job_id == VALIDATION else f"of job '{context.job_id}'"
        said = f"The checks {whose} changed {_listed(changes.tracked, len(changes.tracked))}"
        told = f"{said}: they passed with that, but the result is without it. Let the work make that change."
        context.engine.warn(context.run.id, told, context.job_id)


def _listed(names: Sequence[str], total: int) -> str:
    return ", ".join(names[:LISTED_PATHS]) + (f" and {total - LISTED_PATHS} more" if total > LISTED_PATHS else "")


async def merge_ri(context: Context) -> Outcome:
    """Bring a leaf's result into the snapshot; what others build on is theirs to bring in."""
    assert context.commit is not None
    if context.job.runs_nothing:
        await _hold(context, context.commit)
    if context.job_id not in context.plan.leaf_set:
        return Skipped()
    engine, run, job_id, commit_ = context.engine, context.run, context.job_id, context.commit
    return await merge_with_resolver(context, lambda: merge_leaf(engine, run, job_id, commit_))


async def _hold(context: Context, commit_: str) -> None:
    """Keep the result of a job that made no commit of its own."""
    ref = keep_ref(context.run.id, context.job_id, context.number)
    await context.world.in_thread(update_refs, context.world.repo.git, [Update(ref, commit_, "*")], "orchard: keep")


JOB_PHASES: Mapping[Phase, PhaseFunction] = {
    Phase.MERGE_FI: merge_fi,
    Phase.SETUP: setup,
    Phase.PRECHECKS: prechecks,
    Phase.WORK: work,
    Phase.COMMIT: commit,
    Phase.POSTCHECKS: postchecks,
    Phase.MERGE_RI: merge_ri,
}


# ------------------------------------------------------------------------------- running phases


async def run_phases(context: Context, functions: Mapping[Phase, PhaseFunction]) -> Outcome:
    """Run what has to run, in order; the first phase that does not pass ends it."""
    for phase in PHASES:
        # Gathering is never skipped: what the job needs may have changed since the last attempt.
        if phase is not Phase.MERGE_FI and not at_or_after(phase, context.first_phase) and not _again(context, phase):
            continue
        outcome = await run_phase(context, phase, functions[phase])
        if isinstance(outcome, Failed | Held):
            return outcome
    return Passed()


def _again(context: Context, phase: Phase) -> bool:
    """Whether a worktree is set up once more, although the attempt goes on after that."""
    return phase is Phase.SETUP and context.workspace.is_outdated and context.job_id != VALIDATION


async def run_phase(context: Context, phase: Phase, function: PhaseFunction) -> Outcome:
    context.phase = phase
    context.notes = []
    context.record(PhaseStarted(*context.now))
    if at_or_after(phase, Phase.COMMIT):
        await end_subtasks(context)  # somebody said that the work is done while some still ran
    try:
        outcome = await _tried(context, function)
        if isinstance(outcome, Failed):
            outcome = await healed(context, outcome, lambda: _tried(context, function))
    except BaseException:
        await end_subtasks(context)
        raise
    if isinstance(outcome, Failed) or (at_or_after(phase, Phase.WORK) and not isinstance(outcome, Held)):
        await end_subtasks(context)  # a job that was held goes through the phases before its work once more
    if isinstance(outcome, Failed) and edits_count(context):
        outcome = replace(outcome, left=await folder_state(context))
    notes = [*context.notes, *([outcome.note] if isinstance(outcome, Passed | Skipped) and outcome.note else [])]
    word = WORDS.get(type(outcome), "passed")
    context.record(PhaseEnded(*context.now, word, "; ".join(notes)))
    return outcome


def edits_count(context: Context) -> bool:
    """Whether it makes a difference to a retry that a person has edited the worktree after the phase failed."""
    if context.job_id == VALIDATION:
        return context.phase is Phase.WORK
    return context.phase is Phase.POSTCHECKS or not isinstance(context.job.work, AgentWork)


async def _tried(context: Context, function: PhaseFunction) -> Outcome:
    """Run a phase; what a disk or the system refuses has failed, and is told without a traceback."""
    try:
        return await function(context)
    except OSError as error:
        refused = SystemRefused(error)
        return Failed("error", refused.message, hint=refused.hint)
