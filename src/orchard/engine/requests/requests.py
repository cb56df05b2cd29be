"""What people can ask of an engine: each request checks, records, and answers when it is durable.

Requests come from the same process or through the control socket; either way the plan and job are
named by their whole ids, and the answer is plain values.

Several clients may ask about one plan in the same moment. What decides about a plan does so in `deciding`: one request
at a time, and what it looked at there still holds when it records, because it awaits nothing in between. Whatever takes
long (looking for agents, fetching remotes, stopping programs) is done outside, so that nobody waits for it, and what
was looked at before is looked at again afterwards.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

from msgspec.structs import replace

from orchard.config.layers import Config
from orchard.core.job_names import find_job
from orchard.core.run import Run
from orchard.core.states import ACTIVE, JobState
from orchard.engine import landing
from orchard.engine.engine import Engine, Stop
from orchard.engine.recovery import recover_plan
from orchard.engine.refs_of_plan import new_plan_id
from orchard.engine.requests import retries, subtasks, workers
from orchard.engine.requests.arguments import check_arguments, check_budget, plan_of
from orchard.engine.requests.idempotency import plan_with, remembered_key
from orchard.engine.requests.plan_locks import PlanLocks
from orchard.engine.requests.preparation import check_agents, check_place, fetch
from orchard.engine.requests.reach import reach_warnings
from orchard.engine.requests.selection import find_plan
from orchard.engine.turns.idle import WORKER
from orchard.engine.turns.turn import remove_private
from orchard.engine.workspace import end_all, folders_of
from orchard.errors import NotFound, UsageError
from orchard.git.refs import delete_refs, job_ref_part, list_refs
from orchard.model.events.plans import (
    HoldReleased,
    JobCanceled,
    JobFailed,
    Json,
    PlanCanceled,
    PlanDeleted,
    PlanFinalized,
    PlanPaused,
    PlanReshaped,
    PlanResumed,
    PlanSubmitted,
)
from orchard.model.plan import VALIDATION, JobId, Plan, PlanId
from orchard.model.plan_codec import plan_json
from orchard.model.statuses import PlanStatus
from orchard.planfile.reshape import reshape
from orchard.planfile.works import named
from orchard.process.failpoint import failpoint
from orchard.store.journal import JournalReader


class Requests:
    """The requests an engine answers."""

    def __init__(self, engine: Engine, reader: JournalReader) -> None:
        self.engine, self.reader = engine, reader
        self.came = asyncio.Event()
        """Set whenever somebody asks for something."""
        self._locks = PlanLocks()
        self._going_on: Counter[PlanId] = Counter()

    async def handle(self, verb: str, args: Mapping[str, Any]) -> Json:
        """Carry out one request; what a person did wrong is an OrchardError."""
        self.came.set()
        self.engine.asked += 1
        plan = args.get("plan")
        try:
            with self.engine.runs.holding(PlanId(plan)) if isinstance(plan, str) else nullcontext():
                return await self._carry_out(verb, args)
        finally:
            self.engine.asked -= 1
            self.engine.wake()

    async def _carry_out(self, verb: str, args: Mapping[str, Any]) -> Json:
        method: Callable[..., Awaitable[Json]] | None = VERBS.get(verb)
        if method is None:
            raise UsageError(f"There is no request '{verb}'.")
        check_arguments(verb, method, args)
        failpoint("request.before")
        answer = await method(self, **args)
        await self.engine.durable()
        failpoint("request.after-durable")
        return answer

    @asynccontextmanager
    async def deciding(self, plan: str) -> AsyncIterator[Run]:
        """The run, for the one request that decides about the plan now; also of a plan that was over long ago."""
        plan_id = PlanId(plan)
        async with self._locks.alone(plan_id):
            run = self.engine.runs.get(plan_id)
            if run is None:
                if self.reader.plan(plan_id) is None:
                    raise NotFound(f"There is no plan '{plan}'.", hint="orchard list")
                run = await recover_plan(self.engine, self.reader, plan_id)
            yield run

    @contextmanager
    def going_on(self, plan: PlanId) -> Iterator[None]:
        """Somebody prepares to let the plan go on: a pause that comes meanwhile is recorded although it is paused."""
        self._going_on[plan] += 1
        try:
            yield
        finally:
            self._going_on[plan] -= 1
            self._going_on += Counter()  # drops what is zero

    # ------------------------------------------------------------------------------------- plans

    async def submit(
        self, plan: Json, file: str | None = None, scaffolding: bool = False, key: str | None = None
    ) -> Json:
        """Accept a plan; nothing is made unless all of it can be.

        Who gives a key may ask again after an answer that did not arrive: the same plan is not made twice.
        """
        remembered = remembered_key(plan, key)
        if (known := self._known_by(remembered)) is not None:
            return known
        asked = _settled_by(self.engine.world.config, plan_of(plan))
        await check_agents(self.engine.world, asked)
        await check_place(self.engine.world, asked)
        world = self.engine.world
        warned = await world.in_thread(reach_warnings, world.repo, asked, named(asked))
        # Somebody may have asked for the same with the same key meanwhile; nothing is awaited from here on.
        if (known := self._known_by(remembered)) is not None:
            return known
        asked = replace(asked, after=self._first(asked))
        run = Run(new_plan_id(asked.name, self._is_taken))
        self.engine.runs.add(run, known=False)
        try:
            self.engine.record(run.id, PlanSubmitted(plan_json(asked), scaffolding, file, remembered))
        except BaseException:
            self.engine.runs.drop(run.id)  # a plan of which nothing is recorded is none
            raise
        failpoint("plan.submitted")
        return {"plan": run.id, "notes": [*self.engine.notes, *warned], "known": False}

    def _known_by(self, key: Json | None) -> Json | None:
        """The answer to who asks again with a key that made a plan."""
        if key is None:
            return None
        known = plan_with(key, self.engine.runs.values(), self.reader.mentioning(key["key"]))
        return None if known is None else {"plan": known, "notes": [], "known": True}

    def _is_taken(self, plan: PlanId) -> bool:
        return plan in self.engine.runs or self.reader.plan(plan) is not None

    async def finalize(self, plan: str) -> Json:
        """Declare a scaffolding plan complete."""
        async with self.deciding(plan) as run:
            if not run.scaffolding:
                raise UsageError(f"Plan '{plan}' is not being scaffolded.")
            if len(run.plan.jobs) == 1:
                raise UsageError(f"Plan '{plan}' has no job yet.", hint="Add one first.")
            self.engine.record(run.id, PlanFinalized())
        return {}

    async def pause(self, plan: str) -> Json:
        """Let running jobs finish and start nothing new."""
        async with self.deciding(plan) as run:
            self.refuse_if_over(run, "paused")
            if run.paused is None or self._going_on[run.id]:
                self.engine.record(run.id, PlanPaused("paused by the user"))
        return {}

    async def resume(self, plan: str, budget: Json | None = None) -> Json:
        """Let a paused or interrupted plan go on; `budget` is what it may use from now on."""
        check_budget(budget)
        with self.going_on(PlanId(plan)):
            async with self.deciding(plan) as run:
                self._refuse_resume(run, budget)
                paused = run.paused
            if paused is not None:
                await fetch(self.engine, run)
            async with self.deciding(plan) as run:
                self._refuse_resume(run, budget if run.paused is not paused else None)
                if run.paused is not paused and run.paused is not None:
                    raise UsageError(
                        f"Plan '{plan}' was paused again while it was about to go on: {run.paused.reason}.",
                        hint=f"orchard resume {plan}",
                    )
                if run.paused is not None:
                    alone = run.started is None and self.engine.chain.is_lost(self.engine.runs, run)
                    self.engine.record(run.id, PlanResumed(budget, alone))
                for job_id, record in run.records.items():
                    if record.hold is not None and record.hold.kind == "budget":
                        self.engine.record(run.id, HoldReleased(job_id))
        return {"status": str(run.status)}

    def _refuse_resume(self, run: Run, budget: Json | None) -> None:
        if run.scaffolding:
            raise UsageError(f"Plan '{run.id}' is still being scaffolded.", hint="Finalize it first.")
        if run.deleted:
            raise UsageError(f"Plan '{run.id}' was deleted.", hint=f"orchard recover --plan {run.id}")
        # What this engine found interrupted goes on by itself, and may be over before anybody asks for that.
        if run.settled and (run.canceled is not None or run.id not in self.engine.found):
            raise UsageError(f"Plan '{run.id}' is {run.status} and cannot be resumed.", hint=instead_of_resume(run))
        if run.paused is None and budget is not None:
            raise UsageError(f"Plan '{run.id}' is {run.status}: it does not wait for a budget.")

    async def cancel(self, plan: str, reason: str = "") -> Json:
        """Stop everything of a plan; its folders are kept."""
        why = reason or "canceled by the user"
        async with self.deciding(plan) as run:
            if run.status in (PlanStatus.SUCCEEDED, PlanStatus.CANCELED):
                raise UsageError(f"Plan '{plan}' is {run.status} already; there is nothing to cancel.")
            self._refuse_if_landed(run)
            self._cancel(run, why)
        await self._stop(run, why)
        self._refuse_if_landed(run)
        return {}

    def _cancel(self, run: Run, why: str) -> None:
        if run.canceled is None:
            self.engine.record(run.id, PlanCanceled(why))
            pending = [job_id for job_id, record in run.records.items() if record.state is JobState.PENDING]
            for job_id in pending:
                self.engine.record(run.id, JobCanceled(job_id, why), listed=job_id == pending[-1])

    async def _stop(self, run: Run, why: str) -> None:
        failpoint("cancel.before-stop")
        await self.engine.stop(run, run.active, Stop("cancel", why))
        failpoint("cancel.after-stop")

    async def delete(self, plan: str) -> Json:
        """Cancel a plan and take its folders away after saving them; its commits stay until it is purged."""
        why = "the plan was deleted"
        while True:
            async with self.deciding(plan) as run:
                stopped = run.status in (PlanStatus.SUCCEEDED, PlanStatus.CANCELED) or run.canceled is not None
                if not run.active and (stopped or run.deleted):
                    return await self._delete(run)
                self._cancel(run, why)
            await self._stop(run, why)  # and then look again: somebody may have retried a job meanwhile

    async def _delete(self, run: Run) -> Json:
        if not run.deleted:
            self.engine.record(run.id, PlanDeleted())
        await self.engine.durable()
        failpoint("delete.recorded")
        await end_all(self.engine, run, "the plan was deleted")
        failpoint("delete.after-folders")
        return {"kept_folders": [str(worktree.path) for worktree in folders_of(run)]}

    async def purge(self, plan: str) -> Json:
        """Remove what is left of a plan: refs, logs, journal. This is the one request that loses something."""
        answer = await self.delete(plan)
        if answer["kept_folders"]:
            raise UsageError(
                f"Plan '{plan}' still has folders whose content could not be saved.",
                hint=f"'orchard status {plan}' says why. Move what you want to keep out of "
                f"{answer['kept_folders'][0]} and remove what is in the way there, then purge again.",
            )
        async with self.deciding(plan) as run:  # NotFound where somebody else has purged it meanwhile
            return await self._purge(run)

    async def _purge(self, run: Run) -> Json:
        repo, part = self.engine.world.repo, job_ref_part(run.id)
        places = ("keep", "wip", "base", "integration", "snapshot", "resolutions")
        refs = await self.engine.world.in_thread(
            list_refs, repo.git, *(f"refs/orchard/{place}/{part}" for place in places)
        )
        failpoint("purge.before-refs")
        await self.engine.world.in_thread(delete_refs, repo.git, refs, f"orchard: purge {run.id}")
        failpoint("purge.after-refs")
        await self.engine.world.in_thread(self.engine.world.logs.remove, run.id)
        await self.engine.world.in_thread(remove_private, repo.state, run.id)
        await self.engine.durable()
        failpoint("purge.before-forget")
        await self.engine.world.in_thread(self.engine.journal.forget, run.id)
        failpoint("purge.after-forget")
        self.engine.drop_run(run.id)
        return {"refs": len(refs)}

    async def reshape(self, plan: str, changes: list[Any]) -> Json:
        """Change the graph: all of the changes or none."""
        while True:
            async with self.deciding(plan) as run:
                seen, shaped = run.plan, self._shaped(run, changes)
            await check_agents(self.engine.world, shaped)
            moved = any(getattr(shaped, name) != getattr(seen, name) for name in WHERE_IT_STARTS)
            if moved:
                await check_place(self.engine.world, shaped)
            async with self.deciding(plan) as run:
                if run.plan is not seen:
                    continue  # somebody else changed it meanwhile: that stays, so all is looked at once more
                shaped = self._shaped(run, changes)  # a job may have started meanwhile
                if moved:
                    shaped = replace(shaped, after=self._first(shaped, run.id))
                self.engine.record(run.id, PlanReshaped(tuple(changes), plan_json(shaped)))
                failpoint("reshape.recorded")
                return {"jobs": [job for job in shaped.jobs if job != VALIDATION]}

    def _shaped(self, run: Run, changes: list[Any]) -> Plan:
        """The plan as these changes would leave it; changes that are not allowed now are refused."""
        validation = run.records[VALIDATION].state
        if validation in ACTIVE or validation is JobState.SUCCEEDED or run.deleted or run.landed is not None:
            raise UsageError(f"Plan '{run.id}' is being landed or over; its graph can no longer be changed.")
        started = {job_id for job_id, record in run.records.items() if record.started and job_id != VALIDATION}
        return reshape(run.plan, started, changes, pinned=run.started is not None)

    # -------------------------------------------------------------------------------------- jobs

    async def cancel_jobs(self, plan: str, jobs: list[str], reason: str = "") -> Json:
        """Stop some jobs of a plan, or keep them from starting; what needs them is blocked."""
        why = reason or "canceled by the user"
        async with self.deciding(plan) as run:
            self.refuse_if_over(run, "changed")
            chosen = list(dict.fromkeys(self.known(run, job) for job in jobs))
            if VALIDATION in chosen:
                raise UsageError("The validation job cannot be canceled by itself.", hint=f"orchard cancel {plan}")
            open_ = [job for job in chosen if run.records[job].state in (*ACTIVE, JobState.PENDING)]
            for job in open_:
                if run.records[job].state is JobState.PENDING:
                    self.engine.record(run.id, JobCanceled(job, why), listed=True)
        await self.engine.stop(run, [job for job in open_ if run.records[job].state in ACTIVE], Stop("cancel", why))
        # One of them may have come to its own end before it could be stopped.
        ended = [job for job in open_ if run.records[job].state not in (JobState.SUCCEEDED, JobState.FAILED)]
        if not ended:
            raise UsageError("None of these jobs is running or still to come.", hint=f"orchard status {plan}")
        return {"jobs": ended}

    async def force_fail(self, plan: str, job: str, reason: str = "") -> Json:
        """Stop a job and fail it; what needs it is blocked."""
        why = reason or "failed by the user"
        async with self.deciding(plan) as run:
            job_id = self.known(run, job)
            record = run.records[job_id]
            if record.state is JobState.PENDING:
                self.engine.record(run.id, JobFailed(job_id, record.number, None, "forced", why), listed=True)
            elif record.state not in ACTIVE:
                raise UsageError(f"Job '{job}' is {record.status} already.")
        await self.engine.stop(run, [job_id], Stop("force-fail", why))
        if record.state is JobState.SUCCEEDED:
            self._refuse_if_landed(run)
            raise UsageError(f"Job '{job}' is {record.status} already.")
        return {}

    async def approve(self, plan: str, job: str) -> Json:
        """Let a job that waits for approval go on."""
        async with self.deciding(plan) as run:
            job_id = self.known(run, job)
            hold = run.records[job_id].hold
            if hold is not None and hold.kind == WORKER:
                raise UsageError(
                    f"Job '{job_id}' does not wait for approval; {hold.reason}",
                    hint=f"orchard complete {job_id} --plan {run.id}",
                )
            if hold is None:
                raise UsageError(f"Job '{job_id}' does not wait for approval; it is {run.records[job_id].status}.")
            self.engine.record(run.id, HoldReleased(job_id))
        return {}

    async def land(self, plan: str) -> Json:
        """Land a validated result: one that waits, or one whose landing was undone."""
        async with self.deciding(plan) as run:
            if run.records[VALIDATION].hold is not None:
                self.engine.record(run.id, HoldReleased(VALIDATION))
                return {}
            if run.records[VALIDATION].released is not None and not run.settled:
                return {}  # somebody asked for it before, and it is under way
            landed = await landing.land_again(self.engine, run)
        return {"branch": landed.branch, "commit": landed.new}

    async def undo(self, plan: str) -> Json:
        """Take a landing back."""
        async with self.deciding(plan) as run:
            undone, now = await landing.undo(self.engine, run)
        return {"branch": undone.branch, "commit": undone.commit, **({} if now else {"undone_before": True})}

    async def ping(self) -> Json:
        """Say that somebody is there."""
        return {"plans": [run.id for run in self.engine.runs.values() if not run.settled]}

    # ----------------------------------------------------------------------------------- helpers

    def known(self, run: Run, job: str) -> JobId:
        """The job of this whole name."""
        return find_job(run.id, run.plan.jobs, job, exact=True)

    def _first(self, plan: Plan, own: PlanId | None = None) -> PlanId | None:
        """The plan that this one waits for, found; one that waits for this one is refused."""
        if plan.after is None:
            return None
        first = find_plan(self.reader.plans(), plan.after)
        waits: str | None = first
        while waits is not None:
            if waits == own:
                raise UsageError(f"Plan '{own}' cannot wait for '{first}': that one waits for it.")
            run, row = self.engine.runs.get(PlanId(waits)), self.reader.plan(PlanId(waits))
            waits = run.plan.after if run is not None else row.summary.after if row is not None else None
        return first

    def refuse_if_over(self, run: Run, what: str) -> None:
        """Refuse what cannot be done to a plan that is over."""
        if run.settled:
            raise UsageError(f"Plan '{run.id}' is {run.status} and cannot be {what}.")

    def _refuse_if_landed(self, run: Run) -> None:
        """Stopping what has landed would be half an undo."""
        if run.landed is not None and run.undone is None:
            raise UsageError(
                f"Plan '{run.id}' has landed on '{run.landed.branch}' already.", hint=f"orchard undo {run.id}"
            )


def instead_of_resume(run: Run) -> str:
    """What takes a plan further that is over."""
    return f"orchard status {run.id}" if run.status is PlanStatus.SUCCEEDED else f"orchard retry {run.id}"


WHERE_IT_STARTS = ("base", "target", "after", "worktree_root")

VERBS: Mapping[str, Callable[..., Awaitable[Json]]] = {
    name: getattr(Requests, name)
    for name in (
        "submit", "finalize", "pause", "resume", "cancel", "delete", "purge", "reshape",
        "cancel_jobs", "force_fail", "approve", "land", "undo", "ping",
    )
} | retries.VERBS | workers.VERBS | subtasks.VERBS  # fmt: skip


def _settled_by(config: Config, plan: Plan) -> Plan:
    """The plan with what it leaves to the configuration filled in: it stays as it was submitted."""
    limit = plan.max_parallel if plan.max_parallel is not None else config.max_parallel
    return replace(plan, max_parallel=limit, resolver=plan.resolver or config.resolver)
