"""Workspaces: where a job, a subtask, a check or healing works, from a commit to a commit.

    prepare    a worktree at a commit: the one that it had, if it may go on there, else a clean one from the warm pool
    run        a program of the plan's there; agents get the workspace's `launcher` and start their own
    collect    what was left there as one commit under a ref of ours, or a refusal
    save       what no commit holds, under a ref; only then is there a proof that nothing would be lost
    end        the worktree goes back to the pool, with that proof; `end_survivors` is for what a crash left running

One class does all of it. Its kinds differ only in what the journal says of them: that of a job (the validation job is
one, and healing goes on in it), that of a subtask, and one that is only borrowed to look into. Which worktree a
workspace has is read from the journal, so the engine after a crash has the same workspaces as the one before it.

Where saving fails, the worktree stays where it is and a person is told: deleting is the last thing we do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from msgspec import Struct

from orchard.core.records import Subtask
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.engine.enclosure import Enclosure
from orchard.engine.engine import Engine
from orchard.engine.machine.pool import Pool
from orchard.engine.plans.setup import Filled, fill_worktree, setup_key, setup_settings, wants_submodules
from orchard.errors import OrchardError
from orchard.git.history import worktree_diff
from orchard.git.refs import keep_ref, subtask_ref, wip_ref
from orchard.git.repository import Repository, Worktree
from orchard.git.worktree.commit import Changes, CommitInfo, Committed, Refused, commit_work, worktree_changes
from orchard.git.worktree.job_links import link_job, unlink_job
from orchard.git.worktree.save import Saved, ensure_saved
from orchard.git.worktree.status import fingerprint
from orchard.git.worktree.submodules import fingerprints, modules_of
from orchard.git.worktree.transfer import write_changes
from orchard.model.events import plans as events
from orchard.model.limits import Limits
from orchard.model.names import JobId, token_of
from orchard.model.phases import Phase
from orchard.process.failpoint import failpoint
from orchard.process.families.family import end_family_now
from orchard.process.families.identity import Identity
from orchard.process.launcher import Launcher
from orchard.process.program import Ended, run_program


class Held(Struct, frozen=True):
    """A worktree as the journal knows it."""

    worktree: Worktree
    base: str
    result: str | None = None
    """The commit that was collected from it, which `ref` holds."""
    ref: str | None = None
    settings: str = ""


class Workspace:
    """A worktree that somebody works in, and everything that happens to it.

    No journal knows this one, so it is only borrowed: after a crash it is a stray, which is saved and removed.
    """

    def __init__(self, engine: Engine, run: Run, job_id: JobId, attempt: int, whose: str) -> None:
        self._engine, self._world, self._run = engine, engine.world, run
        self._job, self._attempt, self._whose = job_id, attempt, whose
        self.is_new = False
        """Whether the worktree was made or reset for this start, so that it has to be set up."""
        self.is_set_up = False
        """Whether it holds already what setting it up would leave."""
        self.is_outdated = False
        """Whether plan or settings say another thing about setting it up than when that was done."""
        self._settings = ""
        self._setup_key: str | None = None
        self._prepared_at = ""
        self._worktree: Worktree | None = None  # from `prepare` to `end`
        self.enclosure = Enclosure(engine, run, job_id, whose)
        self._borrowed: Held | None = None

    @property
    def held(self) -> Held | None:
        return self._borrowed

    @property
    def _subtask(self) -> str | None:
        return None

    @property
    def _last_program(self) -> tuple[Identity | None, Path | None]:
        return None, None

    def _note_taken(self, worktree: Worktree, commit: str) -> None:
        self._borrowed = Held(worktree, commit)

    def _note_gone(self, name: str) -> None:
        self._borrowed = None

    def _forget(self, worktree: Worktree) -> None:
        self._note_gone(worktree.name)
        unlink_job(worktree.path, self._run.id, self._whose)

    async def _key_of_setup(self, commit: str) -> str | None:
        """What decides how the worktree is set up; None: nothing to set up, or nothing that could be spared."""
        return None

    async def _settings_at(self, commit: str) -> str:
        """A digest of what plan and settings say about setting the worktree up."""
        return ""

    @property
    def is_open(self) -> bool:
        """Whether there is a worktree to work in; one that was only read from the journal is not open."""
        return self._worktree is not None

    @property
    def folder(self) -> Path:
        return self._open.path

    @property
    def _open(self) -> Worktree:
        assert self._worktree is not None
        return self._worktree

    @property
    def _pool(self) -> Pool:
        return self._engine.pool(self._run)

    def _record(self, event: events.Event) -> None:
        self._engine.record(self._run.id, event)

    async def prepare(self, commit: str, *, fresh: bool = False) -> None:
        """Have a worktree at `commit`: the one there is, if it may go on there, else a clean one."""
        held, pool = self.held, self._pool
        self._settings = await self._settings_at(commit)
        if held is not None:
            usable = held.base == commit and not fresh
            if usable and await self._world.in_thread(pool.worktrees.exists, held.worktree):
                pool.keep(held.worktree)
                self._worktree = held.worktree
                self.is_outdated = bool(held.settings) and held.settings != self._settings
                link_job(held.worktree.path, self._run.id, self._whose)
                await self.enclosure.build(self._worktree)
                return
            await self.end("before a new start")
            if self.held is not None:
                self._forget(held.worktree)
        failpoint("worktree.before-take")
        key = await self._key_of_setup(commit)
        self._worktree = worktree = await pool.take(commit, f"{self._run.id} {self._whose}", key)
        self._setup_key, self.is_set_up = key, key is not None and pool.is_ready(worktree, key)
        self._prepared_at = commit
        failpoint("worktree.after-take")
        self.is_new = True
        self._note_taken(worktree, commit)
        link_job(worktree.path, self._run.id, self._whose)
        await self.enclosure.build(self._worktree)

    async def fill(self) -> Filled:
        """Put into a worktree what git does not: copies of ignored files, and links to ignored folders.

        One that is set up again, because the settings changed, keeps what it has.
        """
        world, trees = self._world, self._pool.worktrees
        return await world.in_thread(fill_worktree, world, trees, self._open, again=not self.is_new)

    async def note_set_up(self) -> None:
        """Remember what setting the worktree up has left there, for the next job that would set it up so."""
        if self.is_outdated and (held := self.held) is not None:
            self._note_taken(held.worktree, held.base)
        if self._setup_key is not None and self.is_new:
            await self._pool.note_ready(self._open, self._setup_key, self._prepared_at)

    def note_setup_failed(self) -> None:
        """Whoever mends what failed leaves files there as well: they are for no other job."""
        self._setup_key = None

    @property
    def launcher(self) -> Launcher:
        """Starts every process that works there; those of a subtask can end without those of its attempt."""
        return Launcher(token_of(self._run.id, self._job, self._attempt, self._subtask), self.enclosure.wall)

    def note_start(self, phase: Phase) -> Callable[[Identity], Awaitable[None]]:
        """Hears of a program that was started there, so that whoever comes after us can end it."""

        async def note(who: Identity) -> None:
            about = (self._job, self._attempt, phase)
            self._record(events.ProgramStarted(*about, who.pid, who.started, who.boot, self._subtask))

        return note

    async def run(
        self,
        argv: tuple[str, ...],
        folder: Path,
        env: Mapping[str, str],
        log: Path,
        limits: Limits,
        *,
        phase: Phase,
        hurry: asyncio.Event,
    ) -> Ended:
        """Run a program of the plan's there, to the end of everything that it started."""
        self.repair()
        async with self.opened(phase) as launcher:
            launch = launcher.launch(argv, folder, env, log, limits)
            # At most once per attempt: that it began must outlive us before it begins.
            await self._engine.durable()
            failpoint("program.before-start")
            ended = await run_program(launch, self.note_start(phase), hurry)
            failpoint("program.after-end")
            return ended

    def opened(self, phase: Phase) -> AbstractAsyncContextManager[Launcher]:
        """The launcher, with a way out for programs of the plan."""
        return self.enclosure.opened(self.launcher, self._attempt, phase, self._subtask)

    def repair(self) -> None:
        """Put back what whoever worked there before may have broken, so that git works for the next."""
        self._pool.worktrees.repair(self._open)

    async def end_survivors(self) -> None:
        """End what the programs of an engine that died left running, by identity and token."""
        leader, log = self._last_program
        token, in_thread = self.launcher.token, self._world.in_thread
        await in_thread(end_family_now, token, leader, log)
        if leader is not None:
            # An agent's turn may have started programs before the last one that it told of.
            await in_thread(end_family_now, token, None, log)

    async def changes(self, droppings: Callable[[str], bool]) -> Changes:
        """What differs there from the last commit, without new files that `droppings` names."""
        async with self.enclosure.settled():
            return await self._world.in_thread(worktree_changes, self._world.repo, self._open, droppings)

    async def state(self, droppings: Callable[[str], bool]) -> str:
        """A fingerprint of what lies there, without new files that `droppings` names."""
        held = self.held
        repo, worktree = self._world.repo, self._open if held is None or self.is_open else held.worktree
        git = repo.worktree_git(worktree.name, worktree.path)
        inside = partial(fingerprints, repo.filters_at_home, worktree.path, modules_of(repo, worktree))
        async with self.enclosure.settled():
            return await self._world.in_thread(fingerprint, git, worktree.path, droppings, inside)

    async def diff(self, base: str, most: int) -> str:
        """What differs there from a commit, as people read it, up to so many bytes."""
        async with self.enclosure.settled():
            return await self._world.in_thread(worktree_diff, self._world.repo, self._open, base, most)

    async def write_changes(self, old: str, new: str) -> None:
        """Write what differs between what the worktree holds, `old`, and a tree."""
        git = self._world.repo.worktree_git(self._open.name, self._open.path)
        async with self.enclosure.still():
            await self._world.in_thread(write_changes, self._world.integration.live, git, old, new)

    async def collect(self, info: CommitInfo, base: str, *, stays: bool = True) -> Committed | Refused:
        """Turn what was left there since `base` into a commit; `stays`: somebody goes on in the worktree."""
        async with self.enclosure.settled():
            failpoint("commit.before")
            result = await self._world.in_thread(self._commit, info, base, stays)
            failpoint("commit.after")
        return result

    def _commit(self, info: CommitInfo, base: str, stays: bool) -> Committed | Refused:
        worktree, trees, live = self._open, self._pool.worktrees, self._world.integration.live
        trees.settle_index(worktree)
        made_from = trees.made_from(worktree)
        submodules = wants_submodules(self._run.plan, self._world)
        result = commit_work(
            self._world.repo, worktree, base, info, live, made_from=made_from, stays=stays, submodules=submodules
        )
        if made_from == base:
            trees.note_index(worktree, made_from, result.left if isinstance(result, Committed) else None)
        return result

    async def move_head(self, commit: str) -> None:
        """Go on from a commit that holds what the worktree holds; its files stay as they are."""
        await self._world.in_thread(self._world.integration.live.set_head, self._open.name, commit)
        self._note_taken(self._open, commit)

    async def save(self, why: str, *, to_pool: bool = False) -> Saved | None:
        """Save what lies there beyond what a ref holds; CannotSave leaves everything as it is.

        `to_pool`: the pool gets it, which looks once more before it is used again. So where its work was committed a
        moment ago and nobody was started there since, it is not looked at here as well.
        """
        held = self.held
        if held is None:
            return None
        trees, live = self._pool.worktrees, self._world.integration.live
        made_from, left = trees.made_from(held.worktree), trees.left_by(held.worktree) if to_pool else None
        known = partial(ensure_saved, live=live, made_from=made_from, held_by=held.ref, left=left)
        async with self.enclosure.settled():
            failpoint("wip.before-save")
            saved = await self._world.in_thread(known, *self._to_save(held.worktree, why), held.result or held.base)
            failpoint("wip.after-save")
        self._record_saved(saved, why)
        return saved

    async def clean(self, commit: str, why: str) -> None:
        """Have the worktree hold exactly a commit, and what is ignored; what else lies there is saved first."""
        saved = await self.save(why)
        # A checkout leaves submodules as they are.
        if saved is not None and saved.submodules is None and (saved.dirty or saved.head != commit):
            await self._pool.clean(saved, commit)

    async def try_to_save(self, why: str, then: str = "", *, to_pool: bool = False) -> Saved | None:
        """The same; where it cannot be done a person is told, with `then` to add."""
        try:
            return await self.save(why, to_pool=to_pool)
        except OrchardError as error:
            self._engine.warn(self._run.id, f"{error.message}{then}", self._job)
            return None

    async def picture(self, base: str, why: str) -> str:
        """A commit that holds what the worktree holds now, untouched; what is more than `base` has is held by a ref."""
        async with self.enclosure.settled():
            saved = await self._world.in_thread(ensure_saved, *self._to_save(self._open, why), base)
        if self._record_saved(saved, why):
            await self._engine.durable()
        return saved.commit or saved.head or base

    def _to_save(self, worktree: Worktree, why: str) -> tuple[Repository, Worktree, str, str]:
        number = len(self._run.records[self._job].saved) + 1
        return self._world.repo, worktree, wip_ref(self._run.id, self._job, number), f"orchard: {why}"

    def _record_saved(self, saved: Saved, why: str) -> bool:
        for ref, commit in saved.refs:
            self._record(events.WorkSaved(self._job, ref, commit, why))
        return bool(saved.refs)

    async def end(self, why: str, saved: Saved | None = None) -> Saved | None:
        """Give the worktree back after saving what is in it; kept, with a warning, if that fails (None)."""
        key = (self._run.id, self._whose)
        if self.held is None or key in self._engine.giving_back:
            return None
        self._engine.giving_back.add(key)
        try:
            saved = saved or await self.try_to_save(why, to_pool=True)
            if saved is not None:
                await self._hand_over(saved)
            return saved
        finally:
            self._engine.giving_back.discard(key)

    async def _hand_over(self, saved: Saved) -> None:
        """To the pool, as a whole: a cancellation in the middle would leave a worktree that nobody has."""
        self._forget(saved.worktree)
        self._worktree = None
        canceled: asyncio.CancelledError | None = None
        on_disk = not saved.refs
        while not on_disk:
            try:
                await self._engine.durable()
                on_disk = True
            except asyncio.CancelledError as error:
                canceled = error
        await self.enclosure.remove()
        failpoint("worktree.before-release")
        try:
            await self._pool.give(saved)
            failpoint("worktree.after-release")
        except OrchardError as error:
            self._engine.warn(self._run.id, error.message, self._job)
        if canceled is not None:
            raise canceled

    def leave(self) -> None:
        """Keep the worktree for people to look into: nobody waits for it any more."""
        if (held := self.held) is not None:
            self._pool.leave(held.worktree)


class JobWorkspace(Workspace):
    """That of a job: the next attempt goes on in the worktree of the last one, or begins in another."""

    @property
    def held(self) -> Held | None:
        record = self._run.records[self._job]
        if (taken := record.worktree) is None:
            return None
        worktree, done = Worktree(taken.worktree, Path(taken.path)), record.work_commit
        if done is None or done.base != taken.base:
            return Held(worktree, taken.base, settings=taken.settings)
        ref = keep_ref(self._run.id, self._job, done.attempt)
        return Held(worktree, taken.base, done.commit, ref, taken.settings)

    def _note_taken(self, worktree: Worktree, commit: str) -> None:
        place = (worktree.name, str(worktree.path))
        self._record(events.WorktreeTaken(self._job, self._attempt, *place, commit, self._settings))

    def _note_gone(self, name: str) -> None:
        self._record(events.WorktreeGone(self._job, name))

    async def _settings_at(self, commit: str) -> str:
        return await self._world.in_thread(setup_settings, self._world, self._run, self._run.job(self._job), commit)

    async def _key_of_setup(self, commit: str) -> str | None:
        root = self._pool.worktrees.root
        return await self._world.in_thread(setup_key, self._world, self._run, self._run.job(self._job), commit, root)

    @property
    def _last_program(self) -> tuple[Identity | None, Path | None]:
        attempt = self._run.records[self._job].last
        if attempt is None or attempt.program is None:
            return None, None
        program = attempt.program
        log = self._world.logs.path(self._run.id, self._job, attempt.number, program.phase)
        return Identity(program.pid, program.started, program.boot), log


class SubtaskWorkspace(Workspace):
    """That of a subtask. It begins as a copy of somebody's worktree, so nothing is noted about how it was set up."""

    def __init__(self, engine: Engine, run: Run, job_id: JobId, subtask: Subtask) -> None:
        super().__init__(engine, run, job_id, subtask.attempt, f"{job_id} {subtask.id}")
        self._known = subtask

    @property
    def _subtask(self) -> str:
        return self._known.id

    @property
    def held(self) -> Held | None:
        known = self._known
        if known.worktree is None or known.path is None:
            return None
        worktree = Worktree(known.worktree, Path(known.path))
        if known.commit is None or known.status not in ("completed", "failed"):
            return Held(worktree, known.base)
        ref = subtask_ref(self._run.id, self._job, known.attempt, known.id)
        return Held(worktree, known.base, known.commit, ref)

    def _note_taken(self, worktree: Worktree, commit: str) -> None:
        self._record(events.SubtaskPlaced(self._job, self._subtask, worktree.name, str(worktree.path)))

    def _note_gone(self, name: str) -> None:
        self._record(events.SubtaskFolderGone(self._job, self._subtask, name))

    @property
    def _last_program(self) -> tuple[Identity | None, Path | None]:
        program, logs = self._known.program, self._world.logs
        log = logs.subtask_path(self._run.id, self._job, self._attempt, self._subtask)
        return Identity(*program) if program is not None else None, log


def workspace_of(
    engine: Engine, run: Run, job_id: JobId, subtask: str | None = None, *, attempt: int | None = None
) -> Workspace:
    """The workspace of a job (`attempt` None: of its last one), or of one of its subtasks."""
    record = run.records[job_id]
    if subtask is not None:
        return SubtaskWorkspace(engine, run, job_id, record.subtasks[subtask])
    if attempt is None:
        attempt = record.last.number if record.last is not None else 1
    return JobWorkspace(engine, run, job_id, attempt, job_id)


def folders_of(run: Run) -> list[Worktree]:
    found = list[tuple[str | None, str | None]]()
    for record in run.records.values():
        found += [(record.worktree.worktree, record.worktree.path)] if record.worktree is not None else []
        found += [(one.worktree, one.path) for one in record.subtasks.values()]
        found += [(record.conflict.worktree, record.conflict.path)] if record.conflict is not None else []
    return [Worktree(name, Path(path)) for name, path in found if name is not None and path is not None]


async def end_all(engine: Engine, run: Run, why: str) -> None:
    for job_id, record in run.records.items():
        await workspace_of(engine, run, job_id).end(why)
        for subtask in record.subtasks:
            await workspace_of(engine, run, job_id, subtask).end(why)


async def release_unneeded(engine: Engine, run: Run, jobs: Iterable[JobId]) -> None:
    """Give back the worktrees of those of these jobs that succeeded: their results live in refs.

    Those of the others, and all of them if the plan says so, are kept for people to look into.
    """
    for job_id in jobs:
        record = run.records[job_id]
        if record.worktree is None:
            continue
        workspace = workspace_of(engine, run, job_id)
        if run.plan.cleanup and record.state is JobState.SUCCEEDED:
            await workspace.end("left over after success")
        workspace.leave()
