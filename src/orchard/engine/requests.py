"""What people can ask of an engine: each request checks, records, and answers when it is durable.

Requests come from the same process or through the control socket; either way the plan and job are
named by their whole ids, and the answer is plain values.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchard.core.config import Config
from orchard.core.events import (
    HoldReleased,
    JobCanceled,
    JobFailed,
    JobRetried,
    Json,
    PlanCanceled,
    PlanDeleted,
    PlanFinalized,
    PlanPaused,
    PlanReshaped,
    PlanResumed,
    PlanSubmitted,
)
from orchard.core.phases import Phase
from orchard.core.plan import VALIDATION, AgentWork, Job, JobId, Plan, PlanId, Work
from orchard.core.plancodec import plan_from_json, plan_json, work_from_json
from orchard.core.reshape import reshape
from orchard.core.run import Run
from orchard.core.states import ACTIVE, JobState, PlanStatus
from orchard.engine import landing, subtasks, workers
from orchard.engine.engine import Engine, Stop
from orchard.engine.idling import WORKER
from orchard.engine.keys import plan_with, remembered_key
from orchard.engine.naming import check_start, find_plan, new_plan_id
from orchard.engine.recovery import recover_plan, remove_folders
from orchard.engine.subfolders import subtask_paths
from orchard.engine.turns import remove_private
from orchard.errors import NotFound, OrchardError, UsageError
from orchard.git.refs import delete_refs, job_ref_part, list_refs
from orchard.process.failpoint import failpoint
from orchard.store.journal import JournalReader


class Requests:
    """The requests an engine answers."""

    def __init__(self, engine: Engine, reader: JournalReader) -> None:
        self.engine, self.reader = engine, reader
        self.came = asyncio.Event()
        """Set whenever somebody asks for something."""

    async def handle(self, verb: str, args: Mapping[str, Any]) -> Json:
        """Carry out one request; what a person did wrong is an OrchardError."""
        self.came.set()
        self.engine.asked += 1
        try:
            return await self._carry_out(verb, args)
        finally:
            self.engine.asked -= 1
            self.engine.wake()

    async def _carry_out(self, verb: str, args: Mapping[str, Any]) -> Json:
        method: Callable[..., Awaitable[Json]] | None = VERBS.get(verb)
        if method is None:
            raise UsageError(f"There is no request '{verb}'.")
        failpoint("request.before")
        answer = await method(self, **args)
        await self.engine.durable()
        failpoint("request.after-durable")
        return answer

    async def _run(self, plan: str) -> Run:
        """The run, also of a plan that was over before this engine began."""
        known = self.engine.runs.get(PlanId(plan))
        if known is not None:
            return known
        if self.reader.plan(PlanId(plan)) is None:
            raise NotFound(f"There is no plan '{plan}'.", hint="orchard list")
        return await recover_plan(self.engine, self.reader, PlanId(plan))

    # ------------------------------------------------------------------------------------- plans

    async def submit(
        self, plan: Json, file: str | None = None, scaffolding: bool = False, key: str | None = None
    ) -> Json:
        """Accept a plan; nothing is made unless all of it can be.

        Who gives a key may ask again after an answer that did not arrive: the same plan is not made twice.
        """
        remembered = remembered_key(plan, key)
        known = plan_with(remembered, self.engine.runs.values(), self.reader.plans())
        if known is not None:
            return {"plan": known, "notes": [], "known": True}
        asked = _settled_by(self.engine.world.config, plan_from_json(plan))
        await self._check_agents(asked)
        asked = await self._able_to_start(asked)
        taken: set[str] = {*self.engine.runs, *(row.id for row in self.reader.plans())}
        run = Run(new_plan_id(asked.name, taken))
        self.engine.add_new(run)
        self.engine.record(run.id, PlanSubmitted(plan_json(asked), scaffolding, file, remembered))
        failpoint("plan.submitted")
        return {"plan": run.id, "notes": list(self.engine.notes), "known": False}

    async def finalize(self, plan: str) -> Json:
        """Declare a scaffolding plan complete."""
        run = await self._run(plan)
        if not run.scaffolding:
            raise UsageError(f"Plan '{plan}' is not being scaffolded.")
        if len(run.plan.jobs) == 1:
            raise UsageError(f"Plan '{plan}' has no job yet.", hint="Add one first.")
        self.engine.record(run.id, PlanFinalized())
        return {}

    async def pause(self, plan: str) -> Json:
        """Let running jobs finish and start nothing new."""
        run = await self._run(plan)
        self._refuse_if_over(run, "paused")
        if run.paused is None:
            self.engine.record(run.id, PlanPaused("paused by the user"))
        return {}

    async def resume(self, plan: str, budget: Json | None = None) -> Json:
        """Let a paused or interrupted plan go on; `budget` is what it may use from now on."""
        run = await self._run(plan)
        if run.scaffolding:
            raise UsageError(f"Plan '{plan}' is still being scaffolded.", hint="Finalize it first.")
        if run.deleted:
            raise UsageError(f"Plan '{plan}' was deleted.", hint=f"orchard recover --plan {plan}")
        if run.paused is not None:
            await self._fetch(run)
            self.engine.record(run.id, PlanResumed(budget))
        elif budget is not None:
            raise UsageError(f"Plan '{plan}' is {run.status}: it does not wait for a budget.")
        for job_id, record in run.records.items():
            if record.hold is not None and record.hold.kind == "budget":
                self.engine.record(run.id, HoldReleased(job_id))
        return {"status": str(run.status)}

    async def cancel(self, plan: str, reason: str = "") -> Json:
        """Stop everything of a plan; its folders are kept."""
        run = await self._run(plan)
        if run.status in (PlanStatus.SUCCEEDED, PlanStatus.CANCELED):
            raise UsageError(f"Plan '{plan}' is {run.status} already; there is nothing to cancel.")
        self._refuse_if_landed(run)
        await self._stop_all(run, reason or "canceled by the user")
        self._refuse_if_landed(run)
        return {}

    async def _stop_all(self, run: Run, why: str) -> None:
        if run.canceled is None:
            self.engine.record(run.id, PlanCanceled(why))
            pending = [job_id for job_id, record in run.records.items() if record.state is JobState.PENDING]
            for job_id in pending:
                self.engine.record(run.id, JobCanceled(job_id, why), listed=job_id == pending[-1])
        failpoint("cancel.before-stop")
        await self.engine.stop(run, run.active, Stop("cancel", why))
        failpoint("cancel.after-stop")

    async def delete(self, plan: str) -> Json:
        """Cancel a plan and take its folders away after saving them; its commits stay until it is purged."""
        run = await self._run(plan)
        if run.status not in (PlanStatus.SUCCEEDED, PlanStatus.CANCELED) and not run.deleted:
            await self._stop_all(run, "the plan was deleted")
        if not run.deleted:
            self.engine.record(run.id, PlanDeleted())
        await self.engine.durable()
        failpoint("delete.recorded")
        await remove_folders(self.engine, run)
        failpoint("delete.after-folders")
        kept = [record.worktree.path for record in run.records.values() if record.worktree is not None]
        return {"kept_folders": [*kept, *subtask_paths(run)]}

    async def purge(self, plan: str) -> Json:
        """Remove what is left of a plan: refs, logs, journal. This is the one request that loses something."""
        run = await self._run(plan)
        answer = await self.delete(plan)
        if answer["kept_folders"]:
            raise UsageError(
                f"Plan '{plan}' still has folders whose content could not be saved.",
                hint=f"Look into {answer['kept_folders'][0]}",
            )
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
        run = await self._run(plan)
        validation = run.records[VALIDATION].state
        if validation in ACTIVE or validation is JobState.SUCCEEDED or run.deleted or run.landed is not None:
            raise UsageError(f"Plan '{plan}' is being landed or over; its graph can no longer be changed.")
        started = {job_id for job_id, record in run.records.items() if record.started and job_id != VALIDATION}
        shaped = reshape(run.plan, started, changes, pinned=run.started is not None)
        await self._check_agents(shaped)
        if any(getattr(shaped, name) != getattr(run.plan, name) for name in WHERE_IT_STARTS):
            shaped = await self._able_to_start(shaped, run.id)
        self.engine.record(run.id, PlanReshaped(tuple(changes), plan_json(shaped)))
        failpoint("reshape.recorded")
        return {"jobs": [job for job in shaped.jobs if job != VALIDATION]}

    # -------------------------------------------------------------------------------------- jobs

    async def retry(
        self,
        plan: str,
        jobs: list[str] | None = None,
        phase: str | None = None,
        fresh: bool = False,
        fresh_session: bool = False,
        work: Json | None = None,
        prechecks: list[Json] | None = None,
        postchecks: list[Json] | None = None,
    ) -> Json:
        """Put failed and canceled jobs back in the queue."""
        run = await self._run(plan)
        if run.deleted:
            raise UsageError(f"Plan '{plan}' was deleted.")
        chosen = [self._known(run, job) for job in jobs] if jobs else _retriable(run)
        for job_id in chosen:
            if run.records[job_id].state not in (JobState.FAILED, JobState.CANCELED):
                state = run.records[job_id].status
                raise UsageError(
                    f"Job '{job_id}' is {state}; only a failed or canceled job can be retried.",
                    hint=f"orchard status {plan}",
                )
        if not chosen:
            raise UsageError(f"Plan '{plan}' has no failed or canceled job.", hint=f"orchard status {plan}")
        given = [work_from_json(one) for one in [work, *(prechecks or ()), *(postchecks or ())] if one is not None]
        workers.refuse_interactive("The retry", given[work is not None :])
        await self.engine.world.in_thread(self._check_works, "The new work", given)
        first = Phase(phase) if phase is not None else None
        if fresh:
            await self._fetch(run)
        if first is None and (fresh or work is not None or prechecks is not None):
            # What ran before says nothing about other work, or about another folder.
            first = Phase.MERGE_FI if fresh else Phase.PRECHECKS
        for job_id in _with_canceled(run, chosen):
            event = JobRetried(job_id)
            if job_id in chosen:
                checks = [tuple(checks) if checks is not None else None for checks in (prechecks, postchecks)]
                event = JobRetried(
                    job_id, first, fresh, work, checks[0], checks[1], fresh_session=fresh or fresh_session
                )
            self.engine.record(run.id, event)
        if run.paused is not None and not run.paused.waiting:
            self.engine.record(run.id, PlanResumed())
        return {"jobs": chosen}

    async def cancel_jobs(self, plan: str, jobs: list[str], reason: str = "") -> Json:
        """Stop some jobs of a plan, or keep them from starting; what needs them is blocked."""
        run = await self._run(plan)
        self._refuse_if_over(run, "changed")
        chosen, why = [self._known(run, job) for job in jobs], reason or "canceled by the user"
        if VALIDATION in chosen:
            raise UsageError("The validation job cannot be canceled by itself.", hint=f"orchard cancel {plan}")
        open_ = [job for job in chosen if run.records[job].state in (*ACTIVE, JobState.PENDING)]
        if not open_:
            raise UsageError("None of these jobs is running or still to come.", hint=f"orchard status {plan}")
        for job in open_:
            if run.records[job].state is JobState.PENDING:
                self.engine.record(run.id, JobCanceled(job, why), listed=True)
        await self.engine.stop(run, [job for job in open_ if run.records[job].state in ACTIVE], Stop("cancel", why))
        return {"jobs": open_}

    async def force_fail(self, plan: str, job: str, reason: str = "") -> Json:
        """Stop a job and fail it; what needs it is blocked."""
        run = await self._run(plan)
        job_id = self._known(run, job)
        record, why = run.records[job_id], reason or "failed by the user"
        if record.state in ACTIVE:
            await self.engine.stop(run, [job_id], Stop("force-fail", why))
            if run.records[job_id].state is JobState.SUCCEEDED:
                self._refuse_if_landed(run)
        elif record.state is JobState.PENDING:
            self.engine.record(run.id, JobFailed(job_id, record.number, None, "forced", why), listed=True)
        else:
            raise UsageError(f"Job '{job}' is {record.status} already.")
        return {}

    async def approve(self, plan: str, job: str) -> Json:
        """Let a job that waits for approval go on."""
        run = await self._run(plan)
        job_id = self._known(run, job)
        hold = run.records[job_id].hold
        if hold is not None and hold.kind == WORKER:
            raise UsageError(
                f"Job '{job_id}' does not wait for approval; {hold.reason}", hint=f"orchard complete {job_id}"
            )
        if hold is None:
            raise UsageError(f"Job '{job_id}' does not wait for approval; it is {run.records[job_id].status}.")
        self.engine.record(run.id, HoldReleased(job_id))
        return {}

    async def land(self, plan: str) -> Json:
        """Land a validated result: one that waits, or one whose landing was undone."""
        run = await self._run(plan)
        hold = run.records[VALIDATION].hold
        if hold is not None:
            self.engine.record(run.id, HoldReleased(VALIDATION))
            return {}
        landed = await landing.land_again(self.engine, run)
        return {"branch": landed.branch, "commit": landed.new}

    async def undo(self, plan: str) -> Json:
        """Take a landing back."""
        run = await self._run(plan)
        undone = await landing.undo(self.engine, run)
        return {"branch": undone.branch, "commit": undone.commit}

    async def ping(self) -> Json:
        """Say that somebody is there."""
        return {"plans": [run.id for run in self.engine.runs.values() if not run.settled]}

    # ----------------------------------------------------------------------------------- helpers

    def _known(self, run: Run, job: str) -> JobId:
        if JobId(job) not in run.records:
            raise NotFound(f"Plan '{run.id}' has no job '{job}'.", hint=f"orchard status {run.id}")
        return JobId(job)

    async def _able_to_start(self, plan: Plan, own: PlanId | None = None) -> Plan:
        """The plan with the one it waits for found; one whose base, target, folder or turn cannot be had is refused."""
        world = self.engine.world
        await world.in_thread(check_start, world.repo, plan)
        world.repo.worktree_root(plan.worktree_root or world.config.worktree_root)
        if plan.after is None:
            return plan
        first = find_plan(self.reader.plans(), plan.after)
        waits: PlanId | None = first
        while waits is not None and self.reader.plan(waits) is not None:
            if waits == own:
                raise UsageError(f"Plan '{own}' cannot wait for '{first}': that one waits for it.")
            after = (await self._run(waits)).plan.after
            waits = PlanId(after) if after is not None else None
        return replace(plan, after=first)

    async def _check_agents(self, plan: Plan) -> None:
        """See that every agent and model that the plan names can be had, before anything is made."""
        works = [(f"Job '{job.id}'", _works(plan, job)) for job in plan.jobs.values()]
        for job in plan.jobs.values():
            talks = job.work if job.id != VALIDATION else None
            workers.refuse_interactive(f"Job '{job.id}'", [one for one in _works(plan, job) if one is not talks])
        asked = [
            (who, agents) for who, found in works if (agents := [one for one in found if isinstance(one, AgentWork)])
        ]
        for who, agents in asked:
            await self.engine.world.in_thread(self._check_works, who, agents)

    def _check_works(self, who: str, works: Sequence[Work]) -> None:
        agents = self.engine.world.agents
        for work in works:
            if not isinstance(work, AgentWork):
                continue
            try:
                found = agents.find(work.agent)
                agents.model_for(found.name, work.model, work.tier)
                agents.servers(work.mcp_servers)
            except OrchardError as error:
                raise type(error)(f"{who} is work for an agent: {error.message}", hint=error.hint) from error

    def _refuse_if_over(self, run: Run, what: str) -> None:
        if run.settled:
            raise UsageError(f"Plan '{run.id}' is {run.status} and cannot be {what}.")

    def _refuse_if_landed(self, run: Run) -> None:
        """Stopping what has landed would be half an undo."""
        if run.landed is not None and run.undone is None:
            raise UsageError(
                f"Plan '{run.id}' has landed on '{run.landed.branch}' already.", hint=f"orchard undo {run.id}"
            )

    async def _fetch(self, run: Run) -> None:
        """Bring remotes up to date before a fresh start; a failed fetch is only a warning."""
        git = self.engine.world.repo.git
        if not (await self.engine.world.in_thread(git, "remote")).stdout.strip():
            return
        done = await self.engine.world.in_thread(
            git, "fetch", "--all", "--quiet", "--no-write-fetch-head", ok=range(256), timeout=120.0
        )
        if done.status != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            self.engine.warn(run.id, f"The remotes could not be fetched: {said[-1] if said else 'no reason given'}")


WHERE_IT_STARTS = ("base", "target", "after", "worktree_root")

VERBS: Mapping[str, Callable[..., Awaitable[Json]]] = {
    name: getattr(Requests, name)
    for name in (
        "submit", "finalize", "pause", "resume", "cancel", "delete", "purge", "reshape", "retry",
        "cancel_jobs", "force_fail", "approve", "land", "undo", "ping",
    )
} | workers.VERBS | subtasks.VERBS  # fmt: skip


def _settled_by(config: Config, plan: Plan) -> Plan:
    """The plan with what it leaves to the configuration filled in: it stays as it was submitted."""
    limit = plan.max_parallel if plan.max_parallel is not None else config.max_parallel
    return replace(plan, max_parallel=limit, resolver=plan.resolver or config.resolver)


def _retriable(run: Run) -> list[JobId]:
    return [job for job, record in run.records.items() if record.state in (JobState.FAILED, JobState.CANCELED)]


def _with_canceled(run: Run, chosen: list[JobId]) -> list[JobId]:
    """These jobs, and every canceled job before or after them: without those they would lead nowhere."""
    needs = {job.id: job.needs for job in run.plan.jobs.values()}
    found = dict.fromkeys([*chosen, *_canceled(run, needs, chosen), *_canceled(run, run.plan.needed_by, chosen)])
    if run.records[VALIDATION].state is JobState.CANCELED:
        found[VALIDATION] = None
    return list(found)


def _canceled(run: Run, edges: Mapping[JobId, tuple[JobId, ...]], chosen: list[JobId]) -> list[JobId]:
    waiting, found = list(chosen), dict.fromkeys(chosen)
    while waiting:
        for other in edges[waiting.pop()]:
            if other not in found and run.records[other].state is JobState.CANCELED:
                found[other] = None
                waiting.append(other)
    return list(found)


def _works(plan: Plan, job: Job) -> list[Work]:
    works = [*job.prechecks, *job.postchecks, *(job.setup or ()), *(plan.setup or ())]
    return [*works, job.work] if job.work is not None else works
