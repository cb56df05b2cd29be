"""Bugs planted into copies of what answers requests, to see whether the search for orders finds them."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.core.planted import Bug, copy_of

MODULES = {
    "retries": "orchard.engine.requests.retries",
    "requests": "orchard.engine.requests.requests",
    "snapshot": "orchard.engine.snapshot",
}
"""In the order in which they import each other."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The modules that look, wait, look again and record."""

    retries: Any
    requests: Any
    snapshot: Any


REAL = Asked(*(importlib.import_module(name) for name in MODULES.values()))


def modules_with(bug: Bug) -> Asked:
    """A copy of the modules that has this bug."""
    before = {name: sys.modules[whole] for name, whole in MODULES.items()}
    try:
        made = {}
        for name, module in before.items():
            made[name] = copy_of(module, bug)
            _put(module.__name__, made[name])
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
        "engine.requests.requests",
        "nothing is awaited from here on.\n        if (known := self._known_by(remembered)) is not None:",
        "nothing is awaited from here on.\n        if False:",
    ),
    "a reshape records what it saw before it waited": Bug(
        "engine.requests.requests",
        "                if run.plan is not seen:\n"
        "                    continue  # somebody else changed it meanwhile: that stays, "
        "so all is looked at once more\n"
        "                shaped = self._shaped(run, changes)  # a job may have started meanwhile\n",
        "",
    ),
    "a reshape removes a job that started meanwhile": Bug(
        "engine.requests.requests",
        "                shaped = self._shaped(run, changes)  # a job may have started meanwhile\n",
        "",
    ),
    "a retry does not look again at the jobs": Bug(
        "engine.requests.retries",
        "chosen = _chosen(desk, run, jobs)\n",
        "chosen = [desk.known(run, job) for job in jobs] if jobs else _retriable(run)\n",
    ),
    "a retry undoes a cancel that came after it": Bug(
        "engine.requests.retries", "if run.canceled is not None and run.canceled is not canceled:", "if False:"
    ),
    "a retry undoes a pause that came after it": Bug(
        "engine.requests.retries", "run.paused is not None and run.paused is paused and", "run.paused is not None and"
    ),
    "a resume does not look again at the plan": Bug(
        "engine.requests.requests",
        "                self._refuse_resume(run, budget if run.paused is not paused else None)\n",
        "",
    ),
    "a resume undoes a pause that came after it": Bug(
        "engine.requests.requests", "if run.paused is not paused and run.paused is not None:", "if False:"
    ),
    "a pause is not recorded while a resume is under way": Bug(
        "engine.requests.requests", "if run.paused is None or self._going_on[run.id]:", "if run.paused is None:"
    ),
    "a plan starts although it was stopped meanwhile": Bug(
        "engine.snapshot", "if run.paused is not None or run.canceled is not None or run.deleted:", "if False:"
    ),
    "a plan starts where it was to start before a reshape": Bug(
        "engine.snapshot", "if run.plan is not asked or taken:", "if taken:"
    ),
}
