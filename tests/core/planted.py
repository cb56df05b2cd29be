"""Bugs planted into copies of the core, to see whether the model of the scheduler finds them.

A bug is one text of a module's source replaced by another. The modules that decide are then executed
anew, as copies that import each other, so that the real ones stay as they are.
"""

import importlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = {
    "states": "orchard.core.states",
    "records": "orchard.core.records",
    "run": "orchard.core.run",
    "worker_replay": "orchard.core.worker_replay",
    "replay": "orchard.core.replay",
    "reshape": "orchard.planfile.reshape",
    "scheduler": "orchard.core.scheduler",
}
"""In the order in which they import each other."""


@dataclass(frozen=True, slots=True)
class Core:
    """The modules that decide."""

    states: Any
    records: Any
    run: Any
    worker_replay: Any
    replay: Any
    reshape: Any
    scheduler: Any


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake somebody could make."""

    module: str
    right: str
    wrong: str

    @property
    def whole_name(self) -> str:
        """Of the module; one without a package is one of those that decide."""
        return MODULES.get(self.module, f"orchard.{self.module}")


REAL = Core(*(importlib.import_module(name) for name in MODULES.values()))


def core_with(bug: Bug) -> Core:
    """A copy of the core that has this bug."""
    names = list(MODULES.values())
    before: Mapping[str, ModuleType] = {name: sys.modules[name] for name in names}
    try:
        return Core(*(copy_of(before[name], bug) for name in names))
    finally:
        sys.modules.update(before)


def copy_of(module: ModuleType, bug: Bug) -> ModuleType:
    """A module executed anew, with the bug if it is the one that has it; it takes the place of the real one."""
    path = str(module.__file__)
    source = planted(path, bug) if module.__name__ == bug.whole_name else Path(path).read_text("utf-8")
    copied = ModuleType(module.__name__)
    copied.__file__ = path
    sys.modules[module.__name__] = copied
    exec(compile(source, path, "exec"), copied.__dict__)  # our own source, with one text replaced
    return copied


def planted(path: str, bug: Bug) -> str:
    """The source of a module that has the bug."""
    source = Path(path).read_text("utf-8")
    count = source.count(bug.right)
    assert count == 1, f"{bug.right!r} stands {count} times in {path}: plant the bug anew"
    return source.replace(bug.right, bug.wrong)


def assert_fits(bug: Bug) -> None:
    """See that the source has the place for the bug, and that the bug names only what is known there."""
    path = str(importlib.import_module(bug.whole_name).__file__)
    words = [sys.executable, "-m", "ruff", "check", "--isolated", "-q", "--select", "F821", "-"]
    done = subprocess.run(words, input=planted(path, bug), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


BUGS: Mapping[str, Bug] = {
    # -------------------------------------------------------------------------------- capacity
    "a plan runs one job more than it may": Bug(
        "scheduler", "max(0, limit - run.slots_used)", "max(0, limit + 1 - run.slots_used)"
    ),
    "one round passes the user's capacity": Bug("scheduler", "if len(found) == free:", "if len(found) == free + 1:"),
    "a plan's room does not shrink within a round": Bug("scheduler", "room[run.id] -= 1", "room[run.id] -= 0"),
    "a held job keeps its slot": Bug("run", "if with_slot:", "if with_slot and not isinstance(event, events.JobHeld):"),
    "jobs that run nothing wait for a slot": Bug(
        "scheduler", "for job in run.ready_jobs(0)]", "for job in (run.ready_jobs(0) if free else ())]"
    ),
    "a job that was given work by a retry takes no slot": Bug(
        "run", "if (heap is self._ready) != self.takes_slot(job):", "if False:"
    ),
    # ----------------------------------------------------------------------------------- order
    "priority is reversed": Bug("run", "-job.priority,", "job.priority,"),
    "the shortest path goes first": Bug("run", "-plan.remaining_path[job_id],", "plan.remaining_path[job_id],"),
    "the number of dependents is ignored": Bug("run", "-len(plan.needed_by[job_id]),", "0,"),
    "plans do not take turns": Bug(
        "scheduler",
        "return [plan for plan in turns if plan not in served] + list(reversed(served))",
        "return list(turns)",
    ),
    "turns go on although nothing was started": Bug(
        "scheduler",
        "return [plan for plan in turns if plan not in served] + list(reversed(served))",
        "return [*turns[1:], *turns[:1]]",
    ),
    "the first plan takes every slot": Bug("scheduler", "if room[run.id] == 0:", "if room[run.id] == 0 or found:"),
    # ------------------------------------------------------------------------------- readiness
    "one need is ignored": Bug("records", "self.unmet == 0 and", "self.unmet <= 1 and"),
    "a blocked need counts as succeeded in a new graph": Bug(
        "run",
        "sum(not need.is_met for",
        "sum(not need.is_met and not need.is_dead for",
    ),
    "a failure blocks only what needs it directly": Bug(
        "records", "return self.state is JobState.PENDING and self.dead > 0", "return False"
    ),
    "a retry does not unblock grandchildren": Bug(
        "run",
        "if record.is_dead != was_dead:",
        "if record.is_dead != was_dead and (record.is_dead or job == job_id):",
    ),
    "a canceled job is still started from the queue": Bug(
        "run", "or self.records[job].status is not JobStatus.READY:", "or False:"
    ),
    "a job that became ready twice is started twice": Bug(
        "run", "        if job_id in self._queued:\n            return\n", ""
    ),
    "a job that became ready by a reshape is not queued": Bug(
        "run",
        "        for job, record in self.records.items():\n            if record.status is JobStatus.READY:",
        "        for job, record in self.records.items():\n            if record.status is JobStatus.SCHEDULED:",
    ),
    "a job runs before it is deployed": Bug(
        "records", "waits = self.hold is not None or self.undeployed", "waits = self.hold is not None"
    ),
    "a reshape takes back what was deployed": Bug(
        "run", "job_id != VALIDATION and not record.deployed", "job_id != VALIDATION"
    ),
    "a job that was deployed is not queued": Bug(
        "run",
        "record.deployed, record.undeployed = True, False\n        self._recount(job_id, old, record.status)",
        "record.deployed, record.undeployed = True, False",
    ),
    "a plan whose jobs wait to be deployed is over": Bug("run", "if self.held or self.to_deploy:", "if self.held:"),
    # ---------------------------------------------------------------------------------- states
    "success is not final": Bug(
        "states",
        "    (_S.FAILED, events.JobRetried): _S.PENDING,",
        "    (_S.FAILED, events.JobRetried): _S.PENDING,\n    (_S.SUCCEEDED, events.JobRetried): _S.PENDING,",
    ),
    "a canceled job cannot be retried": Bug("states", "    (_S.CANCELED, events.JobRetried): _S.PENDING,\n", ""),
    "a job starts without having been picked": Bug(
        "states",
        "    (_S.PENDING, events.JobPicked): _S.SCHEDULED,",
        "    (_S.PENDING, events.JobPicked): _S.SCHEDULED,\n    (_S.PENDING, events.JobStarted): _S.RUNNING,",
    ),
    # ------------------------------------------------------------------------------ the plan
    "a plan with canceled jobs has succeeded": Bug(
        "run",
        "return PlanStatus.FAILED if self.counts[JobStatus.FAILED] else PlanStatus.CANCELED",
        "return PlanStatus.FAILED if self.counts[JobStatus.FAILED] else PlanStatus.SUCCEEDED",
    ),
    "a canceled plan goes on": Bug("run", "or self.canceled is not None or self.deleted", "or self.deleted"),
    "a paused plan goes on": Bug("run", "self.scaffolding or self.paused is not None or", "self.scaffolding or"),
    "a plan is canceled while jobs still run": Bug(
        "run", "return PlanStatus.RUNNING if active else PlanStatus.CANCELED", "return PlanStatus.CANCELED"
    ),
    "a canceled plan is still shown as scaffolding": Bug(
        "run",
        "        active = self.is_active\n        if self.canceled",
        "        active = self.is_active\n        if self.scaffolding:\n            return PlanStatus.SCAFFOLDING\n"
        "        if self.canceled",
    ),
    "a group shows a failure before what runs": Bug(
        "scheduler", "(JobStatus.RUNNING, JobStatus.FAILED,", "(JobStatus.FAILED, JobStatus.RUNNING,"
    ),
    "a group does not see the groups inside": Bug("scheduler", "if parent:", "if parent in found:"),
    # ------------------------------------------------------------------------------- attempts
    "an attempt that had failed is run again under its number": Bug(
        "replay",
        "    if record.last is not None and record.last.ended is None:",
        "    if record.last is not None:",
    ),
    "a crash while gathering runs the work again": Bug(
        "records", "return self.resumed or self.first_phase", "return Phase.MERGE_FI"
    ),
    "an attempt that goes on is taken for where it was before": Bug(
        "replay", "event.first_phase, len(last.phases)", "event.first_phase, 0"
    ),
    "after a crash a failed phase counts as passed": Bug(
        "records", 'if last.outcome not in ("passed", "skipped"):', "if last.outcome is None:"
    ),
    "a new attempt takes the number of the last one": Bug(
        "records", "else self.last.number + 1", "else self.last.number"
    ),
    "a released job makes a new attempt": Bug(
        "replay", "record.continues, record.resume_from = True,", "record.continues, record.resume_from = False,"
    ),
    "completed work is done once more": Bug("worker_replay", "record.resume_from = Phase.COMMIT", "pass"),
    "a canceled job keeps waiting for a person": Bug(
        "replay",
        "        attempt.left = event.left\n    run.set_hold(event.job, None)\n",
        "        attempt.left = event.left\n",
    ),
    "a retry forgets where the job had failed": Bug(
        "replay", "event.first_phase or record.resume_from", "event.first_phase"
    ),
    "a retry keeps the plan canceled": Bug("replay", "    run.canceled = None\n", ""),
    "a retry forgets the new work": Bug("replay", "    record.job = job\n", ""),
    "a retry keeps what a person had granted": Bug(
        "replay",
        "record.commit, record.stand_in, record.released = None, None, None",
        "record.commit, record.stand_in = None, None",
    ),
    # --------------------------------------------------------------------- reshape and replay
    "a reshape loses attempts": Bug("run", "self.records.get(job.id) or JobRecord()", "JobRecord()"),
    "a reshape leaves a retried job its old needs": Bug(
        "run", "record.job = replace(record.job, needs=job.needs)", "pass"
    ),
    "a job with the id of a removed one inherits its past": Bug(
        "replay", 'run.records.pop(JobId(change["id"]), None)', "pass"
    ),
    "what was verified before a reshape is landed after it": Bug(
        "replay",
        "validation.continues, validation.resume_from, validation.released = False, None, None",
        "validation.continues = False",
    ),
    "a reshape changes jobs that have started": Bug("reshape", "if known in self.started:", "if False:"),
    "removing a job drops the needs behind it": Bug(
        "reshape", "_bridged(other.needs, job.id, job.needs)", "_bridged(other.needs, job.id, ())"
    ),
    "a replay drops the last event": Bug(
        "replay",
        "    for recorded in history:\n",
        "    for recorded in (kept := list(history))[: max(1, len(kept) - 1)]:\n",
    ),
    "a plan that has started has no snapshot": Bug("replay", "run.snapshot = Snapshot(1, start, start, start)", "pass"),
    "an illegal event leaves a trace": Bug(
        "replay",
        "    event = recorded.event\n    since",
        "    event, run.changed_at = recorded.event, recorded.at\n    since",
    ),
    "a replay forgets an intended landing": Bug(
        "replay",
        '    events.LandingIntended: _moves("landing"),',
        '    events.LandingIntended: _set("landing", lambda event: None),',
    ),
}
