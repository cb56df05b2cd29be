"""Bugs planted into copies of what answers requests, to see whether the search for orders finds them."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.core.planted import Bug, copy_of

MODULES = {
    "plans": "orchard.operations.commands.plans",
    "changes": "orchard.operations.commands.changes",
    "jobs": "orchard.operations.commands.jobs",
    "retry": "orchard.operations.commands.retry",
    "resume": "orchard.operations.commands.resume",
    "table": "orchard.operations.table",
    "handler": "orchard.operations.handler",
    "snapshot": "orchard.engine.snapshot",
}
"""In the order in which they import each other."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The modules that look, wait, look again and record."""

    plans: Any
    changes: Any
    jobs: Any
    retry: Any
    resume: Any
    table: Any
    handler: Any
    snapshot: Any


REAL = Asked(*(importlib.import_module(name) for name in MODULES.values()))


def modules_with(bug: Bug) -> Asked:
    """A copy of the modules that has this bug."""
    assert bug.whole_name in MODULES.values(), f"there is no module {bug.whole_name}: plant the bug anew"
    before = {name: sys.modules[whole] for name, whole in MODULES.items()}
    try:
        made = {}
        for name, module in before.items():
            made[name] = copy_of(module, bug)
            _put(module.__name__, made[name])
        vars(made["handler"])["_operation"] = made["table"].OPERATIONS.get  # which it imports where it needs it
        return Asked(**made)
    finally:
        for module in before.values():
            sys.modules[module.__name__] = module
            _put(module.__name__, module)


def _put(whole: str, module: Any) -> None:
    """`from package import module` looks there first."""
    package, _, name = whole.rpartition(".")
    setattr(sys.modules[package], name, module)


BUGS: Mapping[str, Bug] = {
    "one key makes two plans": Bug(
        "operations.commands.plans",
        "if key is not None and (known := scene.plan_with(key)) is not None:\n        return D",
        "if False and (known := scene.plan_with(key)) is not None:\n        return D",
    ),
    "a reshape records what it saw before it waited": Bug(
        "operations.commands.changes",
        "    if run.plan is not ready.seen:\n"
        "        raise Outdated  # another client changed it meanwhile: that stays\n"
        "    shaped = _shaped(run, args.changes)  # a job may have started meanwhile\n",
        "    started = {job for job, record in run.records.items() if record.started and job != VALIDATION}\n"
        "    shaped = reshape(ready.seen, started, args.changes, pinned=run.started is not None)\n",
    ),
    "a reshape removes a job that started meanwhile": Bug(
        "operations.commands.changes",
        "    shaped = _shaped(run, args.changes)  # a job may have started meanwhile\n",
        "    shaped = reshape(run.plan, set(), args.changes, pinned=run.started is not None)\n",
    ),
    "a retry does not look again at the jobs": Bug(
        "operations.commands.retry",
        "    chosen = _chosen(run, args.jobs)\n    if run.canceled",
        "    chosen = [job_of(run, job) for job in args.jobs] if args.jobs else _retriable(run)\n    if run.canceled",
    ),
    "a retry undoes a cancel that came after it": Bug(
        "operations.commands.retry", "if run.canceled is not None and run.canceled is not ready.canceled:", "if False:"
    ),
    "a retry undoes a pause that came after it": Bug(
        "operations.commands.retry",
        "run.paused is not None and run.paused is ready.paused and",
        "run.paused is not None and",
    ),
    "a resume does not look again at the plan": Bug(
        "operations.commands.resume",
        "    _refuse_resume(run, args.budget if run.paused is not ready.paused else None, scene)\n",
        "",
    ),
    "a resume undoes a pause that came after it": Bug(
        "operations.commands.resume", "if run.paused is not ready.paused and run.paused is not None:", "if False:"
    ),
    "a pause is not recorded while a resume is under way": Bug(
        "operations.commands.plans",
        "if run.paused is not None and not scene.resuming(run.id):",
        "if run.paused is not None:",
    ),
    "a plan starts although it was stopped meanwhile": Bug(
        "engine.snapshot", "if run.paused is not None or run.canceled is not None or run.deleted:", "if False:"
    ),
    "a plan starts where it was to start before a reshape": Bug(
        "engine.snapshot", "if run.plan is not asked or taken:", "if taken:"
    ),
}
