"""What can be read at an address: plans, their jobs, what the jobs printed, and how to write a plan.

    orchard://help/planning                    what `orchard help planning` prints
    orchard://plans                            every plan, the newest first
    orchard://plans/{plan}                     one plan with its jobs
    orchard://plans/{plan}/jobs/{job}          one job
    orchard://plans/{plan}/jobs/{job}/log      the end of what its last attempt printed

A job's id may hold slashes, which are written %2F here. An agent in a job sees its own plan and no other.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from msgspec import Struct, to_builtins

from orchard.agents.prompts.plan import planning_guide
from orchard.app import App
from orchard.core.views.documents import PlanSummary
from orchard.engine.turns.job_tokens import Scope
from orchard.errors import NotFound, OrchardError
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.store.logs import opened
from orchard.store.redact import KEY_LENGTH, Redactor
from orchard.text import for_screen

HELP = "orchard://help/planning"
ROOT = "orchard://plans"
PLAN_TEMPLATE = "orchard://plans/{plan}"
JOB_TEMPLATE = "orchard://plans/{plan}/jobs/{job}"
LOG_TEMPLATE = "orchard://plans/{plan}/jobs/{job}/log"

LISTED = 50
"""Plans that are listed one by one; the others are found by completion, or in the list itself."""
SHOWN = 200
LOG_BYTES = 64 * 1024
COMPLETIONS = 100

Kind = Literal["help", "plans", "plan", "job", "log"]


class Address(Struct, frozen=True):
    """What an address means."""

    kind: Kind
    plan: PlanId | None = None
    job: JobId | None = None


def plan_uri(plan: str) -> str:
    """The address of a plan."""
    return f"{ROOT}/{quote(plan, safe='')}"


def job_uri(plan: str, job: str) -> str:
    """The address of a job."""
    return f"{plan_uri(plan)}/jobs/{quote(job, safe='')}"


def log_uri(plan: str, job: str) -> str:
    """The address of what a job printed."""
    return f"{job_uri(plan, job)}/log"


def parse_uri(uri: str) -> Address | None:
    """What an address means; None where it means nothing."""
    if uri in (HELP, ROOT):
        return Address("help" if uri == HELP else "plans")
    if not uri.startswith(f"{ROOT}/") or "?" in uri or "#" in uri:
        return None
    plan, *rest = uri.removeprefix(f"{ROOT}/").split("/")
    if not plan:
        return None
    if not rest:
        return Address("plan", PlanId(unquote(plan)))
    if rest[0] != "jobs" or len(rest) < 2 or not all(rest):
        return None
    kind: Kind = "log" if rest[-1] == "log" and len(rest) > 2 else "job"
    job = unquote("/".join(rest[1:-1] if kind == "log" else rest[1:]))
    return Address(kind, PlanId(unquote(plan)), JobId(job))


def allowed(address: Address, scope: Scope | None) -> bool:
    """Whether whoever asks may see this."""
    return scope is None or (address.plan is not None and address.plan == scope.plan)


class Content(Struct, frozen=True):
    """What is found at an address."""

    text: str
    mime_type: str


def listed(app: App, scope: Scope | None) -> list[Json]:
    """The resources that are named one by one."""
    if scope is not None:
        plan = app.summary(scope.plan)
        return [_entry(plan), _job_entry(scope.plan, scope.job)]
    plans = app.plans()[::-1]
    first: Json = {"uri": ROOT, "name": "plans", "title": "Plans", "description": "Every plan of this repository."}
    guide: Json = {
        "uri": HELP,
        "name": "planning",
        "title": "How to write a plan",
        "description": "What makes a plan good, all its fields, and examples.",
        "mimeType": "text/markdown",
    }
    return [first, guide, *(_entry(plan) for plan in plans[:LISTED])]


def _entry(plan: PlanSummary) -> Json:
    return {
        "uri": plan_uri(plan.id),
        "name": plan.id,
        "title": plan.name,
        "description": f"A plan that is {plan.status}.",
    }


def _job_entry(plan: str, job: str) -> Json:
    return {"uri": job_uri(plan, job), "name": job, "title": job, "description": "The job that you work on."}


def read_resource(app: App, uri: str, scope: Scope | None) -> Content:
    """What is found at an address; NotFound where there is nothing, or nothing for whoever asks."""
    address = parse_uri(uri)
    if address is None:
        raise NotFound(f"There is no resource '{uri[:200]}'.", f"There is {ROOT}, and what stands below it.")
    if not allowed(address, scope):
        raise NotFound(f"There is no resource '{uri[:200]}'.")
    if address.kind == "help":
        return Content(planning_guide(), "text/markdown")
    if address.plan is None:
        plans = app.plans()[::-1]
        return _document({"plans": plans[:SHOWN], "more": max(0, len(plans) - SHOWN)})
    plan = _exact(app, address.plan)
    if address.job is None:
        return _document(app.status(plan))
    _, job = app.find_job(address.job, plan)
    if address.kind == "log":
        return Content(log_tail(app, plan, job), "text/plain")
    return _document(app.job(job, plan))


def _exact(app: App, plan: PlanId) -> PlanId:
    """An address names a plan by its whole id: what it means must not change when another plan is made."""
    if app.reader.plan(plan) is None:
        raise NotFound(f"There is no plan '{plan[:200]}'.", f"Read {ROOT} for those that there are.")
    return plan


def _document(value: object) -> Content:
    return Content(json.dumps(to_builtins(value), ensure_ascii=False, default=str), "application/json")


def log_tail(app: App, plan: PlanId, job: JobId, most: int = LOG_BYTES) -> str:
    """The end of what the last attempt at a job printed, fit to be shown."""
    secrets = app.secrets(app.run_of(plan))
    shown: list[str] = []
    left = most
    for part in reversed(app.log_parts(job, plan)):
        tail = _tail(part.path, Redactor(secrets), left)
        if tail:
            shown.append(f"== attempt {part.attempt}, {part.phase}\n{tail}")
            left -= len(tail)
        if left <= 0:
            break
    return "\n".join(reversed(shown))


def _tail(path: Path, redactor: Redactor, most: int) -> str:
    try:
        with opened(path) as (file, size):
            if file is None:
                return ""
            start = max(0, size - most)
            unseen = min(start, KEY_LENGTH)
            # What stands before is not shown, but a key that begins there is known by it.
            redactor.feed(os.pread(file, unseen, start - unseen))
            data = redactor.feed(os.pread(file, most, start)) + redactor.close()
    except OSError:
        return ""
    return for_screen(data[-most:].decode(errors="replace"))


def complete_plan(app: App, begun: str, scope: Scope | None) -> list[str]:
    """The ids of plans that begin so, the newest first."""
    if scope is not None:
        return _beginning(begun, [scope.plan])
    return _beginning(begun, [plan.id for plan in app.plans()[::-1]])


def complete_job(app: App, begun: str, plan: str | None, scope: Scope | None) -> list[str]:
    """The ids of jobs of a plan that begin so; without a plan the newest is meant, or the agent's own."""
    try:
        found = scope.plan if scope is not None else app.find_plan(plan or None)
        return _beginning(begun, app.run_of(found).plan.jobs)
    except OrchardError:
        return []


def _beginning(begun: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(begun) or name.rpartition("/")[2].startswith(begun)]
