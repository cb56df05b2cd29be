"""The plan's own line of commits: begun at the target's tip, grown leaf by leaf, rebuilt when the target moves.

The snapshot is derived: leaves and the commit it starts from make it what it is. So nothing is lost
when its refs are not where the journal says (a crash between the two): it is built again.
"""

from msgspec.structs import replace

from orchard.core.run import Run
from orchard.core.states import ACTIVE
from orchard.engine.engine import Engine
from orchard.engine.merges.authorship import NAMED_JOBS, met_by
from orchard.engine.merges.gather import Between, commit_time, conflict, resolve
from orchard.engine.outcome import Outcome, Passed
from orchard.engine.plans.refs import target_of
from orchard.engine.turns.resolve import Met, met, record_pick
from orchard.errors import OrchardError
from orchard.git.merge.conflicts import Merge, Resolution
from orchard.git.merge.integration import Conflicted, LeafMerge, Prepared
from orchard.git.refs import ANY, RefMoved, Update, keep_ref, update_refs
from orchard.model.events.plans import LeafMerged, PlanPaused, PlanStarted, SnapshotStarted
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, Job, JobId
from orchard.process.failpoint import failpoint

HEALED = "Mend what the checks of the merged result found"
"""What the validation job's own work is called, where an agent had to heal something."""

BASE = "__base__"
"""In place of a job's name, for the ref that holds the commit a plan starts from."""


async def start_plan(engine: Engine, run: Run) -> None:
    """Pin base and target to commits and begin the snapshot there; a person is asked where that is impossible."""
    asked = run.plan
    try:
        started = await engine.world.in_thread(_pin, engine, run, engine.runs.targets(run))
    except OrchardError as error:
        said = f"The plan cannot start: {error.message} {engine.world.say(error.hint or '')}".rstrip()
        engine.record(run.id, PlanPaused(said, waiting=True))
        return
    if run.paused is not None or run.canceled is not None or run.deleted:
        return
    taken = started.target_commit is None and asked.target is None and started.target_branch in engine.runs.targets(run)
    if run.plan is not asked or taken:
        return  # it was reshaped, or another plan was first to choose this name, while git was asked: begin anew
    engine.record(run.id, started)
    failpoint("plan.started")
    start = started.target_commit or started.base_commit
    await _begin(engine, run, start, 1)


def _pin(engine: Engine, run: Run, others: list[str]) -> PlanStarted:
    repo = engine.world.repo
    level = engine.sandboxes.level(run)
    started = replace(target_of(repo, run.plan, others), sandbox=level, limits=engine.sandboxes.limits(level))
    hold = keep_ref(run.id, BASE, 0)
    failpoint("plan.before-pin")
    update_refs(repo.git, [Update(hold, started.base_commit, ANY)], f"orchard: base of {run.id}")
    return started


async def _begin(engine: Engine, run: Run, start: str, generation: int, line: str | None = None) -> None:
    engine.record(run.id, SnapshotStarted(generation, start, line))
    failpoint("snapshot.before-start")
    await engine.world.in_thread(engine.world.integration.start, run.id, start, line)
    failpoint("snapshot.after-start")


async def merge_leaf(engine: Engine, run: Run, job_id: JobId, commit: str) -> Outcome:
    async with engine.runs.merging(run.id):
        try:
            return await _merge_surely(engine, run, job_id, commit)
        except RefMoved:
            # The refs are not where the journal says: an engine died between the two.
            built = await _rebuild(engine, run, run.snapshot.start)
        if not isinstance(built, Passed):
            return built
        merged = await _merge_surely(engine, run, job_id, commit)
        return Passed(_joined(built.note, merged.note)) if isinstance(merged, Passed) else merged


async def _merge_surely(engine: Engine, run: Run, job_id: JobId, commit: str) -> Outcome:
    """The same inputs make the same commits, so at another try refs that have moved are where they should be."""
    return await engine.world.again_if_vanished(lambda: _merge(engine, run, job_id, commit))


async def rebuild(engine: Engine, run: Run, start: str, *, rewritten: bool = False) -> Outcome:
    """Begin the snapshot again at another commit and bring every leaf in again, in the same order.

    The note tells which conflicts were resolved, and how.
    `rewritten`: the commit does not build on where the snapshot began; what is missing from it stays out.
    """
    async with engine.runs.merging(run.id):
        return await _rebuild(engine, run, start, rewritten=rewritten)


async def _rebuild(engine: Engine, run: Run, start: str, *, rewritten: bool = False) -> Outcome:
    snapshot, world = run.snapshot, engine.world
    leaves = [(job, leaf.commit) for job, leaf in snapshot.merged.items()]
    line = snapshot.rewritten
    if rewritten or (line is not None and start != snapshot.start):
        when = commit_time(world, start)
        line = await world.in_thread(world.integration.supersede, start, line or snapshot.start, when)
    await _begin(engine, run, start, snapshot.generation + 1, line)
    note = ""
    for job_id, commit in leaves:
        outcome = await _merge_surely(engine, run, job_id, commit)
        if not isinstance(outcome, Passed):
            return outcome
        note = _joined(note, outcome.note)
    return Passed(note)


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


async def _merge(engine: Engine, run: Run, job_id: JobId, commit: str) -> Outcome:
    leaf = _leaf(engine, run, job_id, commit)
    prepared, sides = await engine.world.in_thread(_bring_in, engine, run, leaf)
    if isinstance(prepared, Conflicted):
        between = await engine.world.in_thread(_between, engine, run, job_id, prepared.merge)
        return conflict(prepared.merge, run.plan.resolver or engine.world.config.resolver, between)
    failpoint("snapshot.after-publish")
    # First what was decided: nobody makes this merge again once it is recorded.
    notes = [record_pick(engine, run, job_id, Phase.MERGE_RI, one.pick, one.sides) for one in sides]
    engine.record(run.id, _merged(engine, run, job_id, commit, prepared))
    return Passed(_joined(*notes))


def _between(engine: Engine, run: Run, job_id: JobId, merge: Merge) -> Between:
    """Whom a leaf met: the jobs whose merged work touched the same paths, or what others did on the target."""
    paths = {one.path for one in merge.conflicts}
    jobs = list(met_by(engine.world, run, job_id, paths))[:NAMED_JOBS]
    named = " and ".join(f"job '{job}'" for job in jobs)
    other = named or f"the target branch '{run.pinned.target_branch}'"
    # When the target has moved, all leaves are merged again, and it is the validation job that fails.
    fails = VALIDATION if run.records[VALIDATION].state in ACTIVE else job_id
    return Between(run.id, fails, f"Job '{job_id}' and {other}", other, f"job '{job_id}'", jobs=bool(jobs))


def _bring_in(engine: Engine, run: Run, leaf: LeafMerge) -> tuple[Prepared | Conflicted, list[Met]]:
    integration = engine.world.integration
    prepared, sides = integration.prepare(leaf), list[Met]()
    if isinstance(prepared, Prepared):
        sides = met(engine.world, run, leaf, prepared.resolution) if prepared.resolution is not None else sides
        failpoint("snapshot.before-publish")
        integration.publish(leaf.plan, prepared)
    return prepared, sides


def _leaf(engine: Engine, run: Run, job_id: JobId, commit: str) -> LeafMerge:
    snapshot, job, world = run.snapshot, run.job(job_id), engine.world
    choice = run.plan.resolver or world.config.resolver

    def resolver(merge: Merge) -> Resolution | None:
        return resolve(world, run.id, merge, choice)

    inside = _jobs_inside(run, job_id)
    title, body = _words(run, job, [run.job(name) for name, _ in inside])
    # With its whole history a leaf would bring back what was taken off the target.
    mode = run.plan.merge if snapshot.rewritten is None else "squash"
    return LeafMerge(
        plan=run.id,
        job=job_id,
        commit=commit,
        integration=snapshot.integration,
        snapshot=snapshot.tip,
        title=title if mode == "squash" else f'Merge "{title}"',
        when=commit_time(world, commit),
        mode=mode,
        body=body,
        trailers={
            "Orchard-Plan": run.id,
            "Orchard-Job": job_id,
            "Orchard-Commit": commit,
            "Orchard-Jobs": ", ".join(f"{name} {made:.12}" for name, made in inside),
            **_healed(run, job_id, [name for name, _ in inside]),
            "Orchard-Landing": landing_id(run),
        },
        resolver=resolver,
        sign=world.signs,
    )


def _healed(run: Run, leaf: JobId, inside: list[JobId]) -> dict[str, str]:
    """Who healed what of the work that comes in, as a trailer; none where nobody had to."""
    jobs = dict.fromkeys([*inside, *([leaf] if leaf == VALIDATION else [])])
    rows = {
        f"{turn.phase} by {turn.agent}" + (f" ({job})" if len(jobs) > 1 else ""): None
        for job in jobs
        for turn in run.records[job].heals
    }
    return {"Orchard-Healed": ", ".join(rows)} if rows else {}


def landing_id(run: Run) -> str:
    return f"{run.id}.{run.snapshot.generation}"


def _jobs_inside(run: Run, leaf: JobId) -> list[tuple[JobId, str]]:
    """The jobs whose work comes in with this leaf and came in with no leaf before it."""
    seen: set[JobId] = set()
    found: list[tuple[JobId, str]] = []
    known = run.snapshot.inside
    waiting = [leaf]
    while waiting:
        job_id = waiting.pop()
        if job_id in seen or job_id in known:
            continue
        seen.add(job_id)
        record = run.records[job_id]
        allowed = record.stand_in is not None  # to fail: nothing that it did is in its stand-in
        if not allowed and record.work_commit is not None and record.work_commit.commit != record.work_commit.base:
            found.append((job_id, record.work_commit.commit))
        waiting += run.job(job_id).needs
    return sorted(found)


def _words(run: Run, leaf: Job, inside: list[Job]) -> tuple[str, str]:
    """Title and text of the commit a leaf lands as: named after who did the work, with everybody who took part.

    A leaf that only checks made nothing; what comes in with it is the work of others.
    """
    if leaf.id == VALIDATION:
        return HEALED, ""
    others = [job for job in inside if job.id != leaf.id]
    makers = [leaf] if len(others) < len(inside) or not others else others
    title = makers[0].name
    if len(makers) > 1:
        title = run.plan.name if len(run.plan.leaves) == 1 else f"{run.plan.name}: {title} and {len(makers) - 1} more"
    listed = [f"- {job.name}" for job in inside] if len(inside) > 1 else []
    return title, "\n\n".join(part for part in (makers[0].task, "\n".join(listed)) if part)


def _merged(engine: Engine, run: Run, job_id: JobId, commit: str, prepared: Prepared) -> LeafMerged:
    resolution = prepared.resolution
    paths = tuple(path.decode(errors="replace") for path in resolution.paths) if resolution else ()
    return LeafMerged(
        job_id,
        run.snapshot.generation,
        commit,
        prepared.integration,
        prepared.snapshot,
        paths,
        (run.plan.resolver or engine.world.config.resolver) if paths else None,
    )
