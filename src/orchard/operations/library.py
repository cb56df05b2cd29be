"""What there is to read of a repository: plans, jobs, logs and saved work, with and without an engine; nothing changes.

Every command imports this module, so what only some of them need is imported where it is used.
"""

import os
import stat
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

from orchard.config.load import Settings
from orchard.config.user_dirs import UserDirs
from orchard.core.run import Run
from orchard.core.views.documents import (
    AttemptView,
    Changes,
    CommitView,
    JobDetails,
    JobView,
    LogView,
    PlanChanges,
    PlanSummary,
    PlanView,
    ProcessView,
    Waiting,
    time_text,
)
from orchard.core.views.figures import UsageReport
from orchard.core.views.saved_work import Restored, SavedRef, SavedWorkView
from orchard.engine.server.address import is_at_work
from orchard.errors import Next, NotFound, OrchardError, Say, UsageError
from orchard.git.repository import Repository, Worktree
from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.phases import PHASES, Phase
from orchard.model.plan import VALIDATION, JobId, Plan, PlanId
from orchard.operations.diffs import diff_of, is_at_rest
from orchard.operations.operation import Operation
from orchard.store.logs import LogFiles
from orchard.store.plan_list import JOURNAL_FILE, listed
from orchard.store.reader import JournalReader, read

# What a program that lives long remembers of plans that it was asked about.
KEPT_RUNS = 64
KEPT_SUMMARIES = 1000
LISTED_COMMITS = 100
KEPT_SAMPLES = 64
OLDEST_SAMPLE = 60.0
BETWEEN_SAMPLES = 0.1
"""Seconds: the share of a core that a process takes is known from two looks at it."""


class LogPart(Struct, frozen=True):
    attempt: int
    phase: Phase
    path: Path


class Library(ABC):
    """One repository, and all that can be read of it."""

    def __init__(self, repo: Repository, settings: Settings, dirs: UserDirs, say: Say) -> None:
        self.repo, self.settings, self.dirs, self.say = repo, settings, dirs, say
        self.logs = LogFiles(repo.state)
        self.reader: JournalReader = read(repo.state / JOURNAL_FILE)
        self.keeps_runs = False
        """Whether runs are remembered and brought up to date in place: for who asks on one thread and keeps none."""
        self._runs: OrderedDict[PlanId, Run] = OrderedDict()
        self._listed: WeakKeyDictionary[Run, tuple[tuple[object, ...], PlanSummary]] = WeakKeyDictionary()
        """What lists showed of plans last, and the state that it was made from."""
        self._summaries: dict[tuple[str, str], Changes] = {}
        self._samples: dict[str, list[Any]] = {}
        """What the processes of attempts used at the last look."""

    def engine_alive(self) -> bool:
        return is_at_work(self.repo.state)

    def plans(self, *, deleted: bool = False) -> list[PlanSummary]:
        """Every plan in a few fields, the newest last."""
        alive = self.engine_alive()
        return listed(self.reader.plans(), lambda plan: self.summary(plan, alive), deleted=deleted)

    def summary(self, plan: PlanId, alive: bool | None = None) -> PlanSummary:
        """One plan in a few fields, as it is now; `alive`: what is known of an engine already."""
        from orchard.core.views.plans import plan_summary

        run, interrupted = self.seen(plan, alive)
        state, known = (run.seq, run.ahead, run.alive_at, interrupted), self._listed.get(run)
        if known is None or known[0] != state:
            self._listed[run] = known = state, plan_summary(run, self.say, interrupted=interrupted)
        return known[1]

    def find_plan(self, name: str | None, operation: str = "") -> PlanId:
        """The plan that is meant: by id, unique name or unique beginning of its id; the newest where none is named.

        An operation that ends, moves or removes something takes whole names only. Without a name it may mean the plan
        that it can be applied to.
        """
        from orchard.operations.selection import find_plan, fitting

        if name is not None and self.reader.has(PlanId(name)):
            return PlanId(name)  # found without looking at the others
        rows = self.reader.plans()
        if name is not None:
            return find_plan(rows, name, exact=self._takes_whole_names(operation))
        if not rows:
            raise NotFound("There is no plan in this repository yet.", hint=("Run one: ", Next("create_plan")))
        if operation and (fit := self._operation(operation).fit) is not None:
            return fitting(self.plans(deleted=True), operation, fit, self.reader.last_of)
        shown = [row for row in rows if not row.summary.deleted]
        if not shown:
            raise NotFound("Every plan in this repository is deleted.", hint=Next("list_plans", args={"deleted": True}))
        return shown[-1].id

    @abstractmethod
    def _operation(self, name: str) -> Operation:
        """A row of the table of operations, whose queries import this module."""

    @abstractmethod
    def others(self) -> "Iterator[Library]":
        """The user's other repositories, as far as they are known and can be read."""

    def _takes_whole_names(self, operation: str) -> bool:
        return bool(operation) and self._operation(operation).whole_names

    def find_job(self, name: str, plan: str | None, operation: str = "") -> tuple[PlanId, JobId]:
        """The job that is meant; see `job_of`, which is for who goes on to look at it."""
        run, job_id = self.job_of(name, plan, operation)
        return run.id, job_id

    def worker_of(self, name: str, plan: str | None, operation: str = "") -> tuple[Run, JobId, str | None]:
        """The same where a subtask can be meant as well: `JOB/subtask-xxxxx`."""
        from orchard.core.job_names import find_worker

        run, name, exact = self._place_of(name, plan, operation)
        return run, *find_worker(run.id, run.plan.jobs, run.records, name, exact=exact)

    def find_worker(self, name: str, plan: str | None, operation: str) -> tuple[PlanId, JobId]:
        """The plan and the whole name of the job, or of the subtask where the operation can be about one."""
        from orchard.core.job_names import worker_name

        if not self._operation(operation).of_subtasks:
            return self.find_job(name, plan, operation)
        run, job, subtask = self.worker_of(name, plan, operation)
        return run.id, worker_name(job, subtask)

    def job_of(self, name: str, plan: str | None, operation: str = "") -> tuple[Run, JobId]:
        """The job that is meant, and its run: by full id, unique bare id or unique name; `PLAN:JOB` names both.

        The beginning of an id is enough, except for an operation that ends or approves something.
        """
        from orchard.core.job_names import find_job

        run, name, exact = self._place_of(name, plan, operation)
        return run, find_job(run.id, run.plan.jobs, name, exact=exact)

    def _place_of(self, name: str, plan: str | None, operation: str) -> tuple[Run, str, bool]:
        """In which run a job is looked for, by which name, and whether only by its whole name."""
        if plan is None and ":" in name:
            plan, name = name.split(":", 1)
        exact = self._takes_whole_names(operation)
        return self.run_of(self.find_plan(plan, operation if exact and plan is not None else "")), name, exact

    def run_of(self, plan: PlanId) -> Run:
        """A run as the journal tells it; one that is remembered is only brought up to date."""
        from orchard.core.replay import apply

        if not self.reader.has(plan):
            self._runs.pop(plan, None)
            raise NotFound(f"There is no plan '{plan}'.", hint=Next("list_plans"))
        run = self._runs.pop(plan, None) or Run(plan)
        for recorded in self.reader.events(plan, run.seq):
            apply(run, recorded)
        if self.keeps_runs:
            self._runs[plan] = run
            while len(self._runs) > KEPT_RUNS:
                self._runs.popitem(last=False)
        return self._with_time(run)

    def seen(self, plan: PlanId, alive: bool | None = None) -> tuple[Run, bool]:
        """A run, and whether no engine works on it although jobs are under way.

        The engine is looked for first: one that brings the plan to its end in this moment has not left it behind.
        """
        interrupted = not (self.engine_alive() if alive is None else alive)
        return self.run_of(plan), interrupted

    def _with_time(self, run: Run) -> Run:
        """The run as it is now: engines live, and the time of an idle worker runs out, while nothing is recorded."""
        if run.is_active:
            from orchard.engine.machine.vigil import last_pulse

            run.alive_at = max(run.alive_at, last_pulse(self.repo.state))
        if not any(hold.kind == "worker" for hold in run.waiting_for):
            return run
        from orchard.core.replay import apply
        from orchard.engine.turns.idle import overdue
        from orchard.model.events.plans import Recorded

        now = time.time()
        ends = overdue(run, self.settings.config.limits.interactive, now, self.say)
        if ends and not self.engine_alive():
            self._runs.pop(run.id, None)
            run.ahead = True
            for event in ends:
                apply(run, Recorded(run.seq, now, run.id, event))
        return run

    def waiting(self) -> list[Waiting]:
        """What needs a person, the oldest first: which plan and job, why, and the command that answers."""
        from orchard.core.views.plans import needs_person, stands_still

        alive = self.engine_alive()
        runs = [self.run_of(row.id) for row in self.reader.plans() if not row.settled]
        found = []
        for run in runs:
            still = stands_still(run, self.say, engine=alive)
            found += [*needs_person(run, self.say, engine=alive), *([still] if still is not None else [])]
        return found

    def copy_of(self, plan: PlanId) -> Plan:
        """The plan with its jobs as they are now, retries with other work included: what a clone is made from."""
        run = self.run_of(plan)
        jobs = {job: run.described(job) if job != VALIDATION else run.plan.jobs[job] for job in run.plan.jobs}
        return replace(run.plan, jobs=jobs)

    def status(self, plan: str | None) -> PlanView:
        """The whole of a plan: what `status --json` prints."""
        return self.document(*self.seen(self.find_plan(plan)))

    def document(self, run: Run, interrupted: bool) -> PlanView:
        """The whole of a plan that was just `seen`."""
        from orchard.core.views.plans import plan_view

        view = plan_view(run, self.say, interrupted=interrupted, changes=self._result_of(run))
        return replace(view, jobs=self.with_activity(run, view.jobs))

    def changes(self, run: Run, interrupted: bool, since: int) -> PlanChanges:
        """What is another in a plan that was just `seen` than after event `since`."""
        from orchard.core.views.plans import plan_changes

        self.check_since(run, since)
        view = plan_changes(run, self.say, since, interrupted=interrupted, changes=self._result_of(run))
        return replace(view, jobs=self.with_activity(run, view.jobs))

    def with_activity(self, run: Run, jobs: list[JobView]) -> list[JobView]:
        """Jobs with what their workers do now, as far as an engine tells it."""
        if not any(job.agent is not None or any(one.ended_at is None for one in job.subtasks) for job in jobs):
            return jobs
        from orchard.core.views.health import with_activity
        from orchard.engine.turns.health import published

        seen = published(self.repo.state) if self.engine_alive() else {}
        return [with_activity(run.id, job, seen) for job in jobs] if seen else jobs

    def check_since(self, run: Run, since: int, name: str = "since") -> None:
        """Refuse the number of an event that is still to come: what changed after it nobody can know."""
        if since > run.seq and since > self.reader.last_seq():
            raise UsageError(f"{name}: there was no event {since} yet; the newest of this plan is {run.seq}.")

    def _result_of(self, run: Run) -> Changes | None:
        """How much the result of a plan changes; None where there is none yet."""
        snapshot = run.snapshot
        return self._changes(snapshot.start, snapshot.tip) if snapshot.tip != snapshot.start else None

    def job(self, job: str, plan: str | None) -> JobDetails:
        from orchard.core.views.attempts import attempt_view, job_permissions
        from orchard.core.views.plans import job_steps, job_view

        alive = self.engine_alive()
        run, job_id = self.job_of(job, plan)
        shown = self.with_activity(run, [job_view(run, job_id, interrupted=not alive)])[0]
        logs = {one.id: self.logs.subtask_path(run.id, job_id, shown.attempts, one.id) for one in shown.subtasks}
        subtasks = [replace(one, log=str(logs[one.id]) if logs[one.id].exists() else None) for one in shown.subtasks]
        return JobDetails(
            **{**asdict(shown), "subtasks": subtasks},
            plan=run.id,
            needed_by=list(run.plan.needed_by[job_id]),
            scheduled_at=time_text(run.records[job_id].scheduled),
            aggregated=self._aggregated(run, job_id),
            commits=self._commits(run, job_id),
            attempts_detail=attempt_view(run, job_id, interrupted=not alive),
            processes=self._processes(run, job_id) if alive else [],
            logs=[
                LogView(attempt=part.attempt, phase=part.phase, path=str(part.path), size=size)
                for part in self._parts(run, job_id)
                if (size := _size(part.path)) is not None
            ],
            configuration=_configuration(run, job_id),
            saved=[SavedRef(saved.ref, saved.commit, saved.why) for saved in run.records[job_id].saved],
            next=job_steps(run, job_id, self.say, engine=alive),
            permissions=job_permissions(run, job_id),
            sandbox=run.walls[0],
            limits=list(run.walls[1]),
        )

    def attempts(self, job: str, plan: str | None) -> list[AttemptView]:
        from orchard.core.views.attempts import attempt_view

        alive = self.engine_alive()
        return attempt_view(*self.job_of(job, plan), interrupted=not alive)

    def usage(self, plan: str | None) -> UsageReport:
        from orchard.core.views.usage import usage_report

        return usage_report(self.run_of(self.find_plan(plan)))

    def log_parts(
        self, job: str, plan: str | None, *, attempt: int | None = None, phase: str | None = None
    ) -> list[LogPart]:
        """The logs of a job, in the order in which they were written; by default those of the last attempt."""
        run, job_id = self.job_of(job, plan)
        numbers = [one.number for one in run.records[job_id].attempts]
        chosen = attempt if attempt is not None else (numbers[-1] if numbers else 1)
        if attempt is not None and attempt not in numbers:
            raise NotFound(f"Job '{job_id}' has no attempt {attempt}.", hint=Next("get_job_attempts", run.id, job_id))
        parts = [part for part in self._parts(run, job_id) if part.attempt == chosen]
        return [part for part in parts if phase is None or part.phase == phase]

    def diff(
        self,
        job: str | None,
        plan: str | None,
        *,
        stat: bool = False,
        names: bool = False,
        paths: Sequence[str] = (),
        most: int | None = None,
    ) -> bytes:
        """What a job changed, or what the whole plan changes of its target; longer than `most` it is cut."""
        from orchard.git.history import diff

        base, commit = self.changed_between(job, plan)
        return diff(self.repo, base, commit, stat=stat, names=names, paths=[*map(os.fsencode, paths)], most=most)

    def changed_between(self, job: str | None, plan: str | None) -> tuple[str, str]:
        """The commits between which a job, or the whole plan, made its changes; a tree, of a worker that is at rest."""
        if job is not None:
            run, job_id, subtask = self.worker_of(job, plan)
            if job_id != VALIDATION or subtask is not None or is_at_rest(run.records[job_id]):
                base, now = diff_of(run, job_id, subtask)
                return base, self._held_in(run, job_id, now, subtask) if isinstance(now, Worktree) else now
        else:
            run = self.run_of(self.find_plan(plan))
        if not run.snapshot.generation:
            raise NotFound(f"Plan '{run.id}' has no result yet; it is {run.status}.")
        return run.snapshot.start, run.snapshot.tip

    @abstractmethod
    def _held_in(self, run: Run, job: JobId, worktree: Worktree, subtask: str | None = None) -> str:
        """The tree of what lies in a worktree in which programs may be at work."""

    def saved_work(self, plan: str | None = None) -> list[SavedWorkView]:
        from orchard.git.worktree.save import saved_work

        found = saved_work(self.repo, self.find_plan(plan) if plan is not None else None)
        return convert(found, list[SavedWorkView], from_attributes=True)

    def restore(self, ref: str, folder: Path) -> Restored:
        from orchard.git.worktree.save import restore

        return Restored(str(folder), restore(self.repo, ref, folder))

    def parse_plan(
        self, path: Path | None, data: bytes | None = None, params: Mapping[str, str] = MappingProxyType({})
    ) -> Plan:
        """A plan from a file or from its text, with values for its parameters."""
        # The parser brings a YAML reader, which no other command needs.
        from orchard.planfile.parse import parse

        if path is None:
            return parse(data or b"", "<stdin>", params=params)
        try:
            with path.open("rb") as file:
                found = file.read(limits.PLAN_BYTES + 1)
        except FileNotFoundError as error:
            raise UsageError(
                f"There is no file {path}", hint=("Write a first plan with: ", Next("init_plan"))
            ) from error
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        return parse(found, str(path), params=params)

    def secrets(self, run: Run | None = None) -> list[str]:
        """The values that must not be shown: what of a log leaves this program goes through a redactor first."""
        from orchard.config.layers import variables_of
        from orchard.model.secrets import secrets_in

        host = {**variables_of(self.settings.config), **os.environ}
        return secrets_in(host, run.plan, run.past_secrets) if run is not None else secrets_in(host, None)

    def _aggregated(self, run: Run, job_id: JobId) -> Changes | None:
        """All that a leaf brings with it: its own work, and that of everything it needs."""
        commit = run.records[job_id].commit
        if job_id not in run.plan.leaf_set or commit is None or run.started is None:
            return None
        return self._changes(run.started.base_commit, commit)

    def _commits(self, run: Run, job_id: JobId) -> list[CommitView]:
        """What a job committed; the validation job stands for the whole plan."""
        from orchard.git.history import commits

        record = run.records[job_id]
        committed = record.work_commit
        ends = (committed.base, committed.commit) if committed is not None else None
        if job_id == VALIDATION and run.started is not None and run.landed is not None:
            ends = (run.landed.old or run.started.base_commit, run.landed.new)
        if ends is None or ends[0] == ends[1]:
            return []
        try:
            found = commits(self.repo, *ends, most=LISTED_COMMITS)
        except OrchardError:
            return []
        return [CommitView(one.id, one.subject, one.author, time_text(float(one.at))) for one in found]

    def _changes(self, base: str, commit: str) -> Changes | None:
        """How much lies between two commits; None where one of them is gone."""
        from orchard.git.history import summary

        if (base, commit) not in self._summaries:
            if len(self._summaries) > KEPT_SUMMARIES:
                self._summaries.clear()
            try:
                self._summaries[base, commit] = Changes(**asdict(summary(self.repo, base, commit)))
            except OrchardError:
                return None
        return self._summaries[base, commit]

    def _parts(self, run: Run, job_id: JobId) -> list[LogPart]:
        numbers = [attempt.number for attempt in run.records[job_id].attempts]
        return [
            LogPart(number, phase, self.logs.path(run.id, job_id, number, phase))
            for number in numbers
            for phase in PHASES
        ]

    def _processes(self, run: Run, job_id: JobId) -> list[ProcessView]:
        from orchard.model.names import token_of
        from orchard.process.families.identity import Identity
        from orchard.process.families.usage import family_usage

        last = run.records[job_id].last
        if last is None or last.program is None or last.ended is not None:
            return []
        program = last.program
        leader = Identity(program.pid, program.started, program.boot)
        log = self.logs.path(run.id, job_id, last.number, program.phase)
        token = token_of(run.id, job_id, last.number)
        earlier = self._samples.pop(token, None)
        if not earlier or time.monotonic() - earlier[0].sampled > OLDEST_SAMPLE:
            earlier = family_usage(token, leader, log)
            time.sleep(BETWEEN_SAMPLES)
        rows = family_usage(token, leader, log, earlier)
        self._samples = {token: rows, **dict(list(self._samples.items())[: KEPT_SAMPLES - 1])}
        return convert(rows, list[ProcessView], from_attributes=True)


def _size(path: Path) -> int | None:
    """How long a log is; None where there is none, or a job put something else in its place."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _configuration(run: Run, job_id: JobId) -> Json:
    """The job as it is to be run now, also after a retry with other works; values that look like secrets are left
    out. What each attempt ran is in `attempts_detail`."""
    from orchard.model.plan_codec import job_json, work_json
    from orchard.model.secrets import masked

    job = run.described(job_id)
    if job_id == VALIDATION:
        return {"work": masked(work_json(job.work))} if job.work is not None else {}
    return masked(job_json(job))
