"""Tools that change a plan that exists: its graph, its jobs, and what it says itself."""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from orchard.app import App
from orchard.errors import InvalidInput, Problem, UsageError
from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.plan import Job, PlanId, topological_order
from orchard.operations.commands import changes, drafts
from orchard.planfile import parse
from orchard.planfile.fields import JobFields, PlanFields
from orchard.planfile.reshape import FIELDS
from orchard.surfaces.mcp.schemas import plan_part
from orchard.surfaces.mcp.tool import Call
from orchard.surfaces.mcp.tools.declaration import declared
from orchard.surfaces.mcp.tools.models import Done, plan_fields
from orchard.surfaces.mcp.tools.names import (
    Meant,
    ask,
    done,
    full_ids,
    id_of,
    meant_job,
    meant_plan,
    names_in,
    with_ids,
)

STARTED = "A job that has started keeps its place; retry_job gives a failed one other work."

Jobs = Annotated[
    Any, WithJsonSchema({"type": "array", "items": plan_part("Job"), "minItems": 1, "maxItems": limits.RESHAPE_CHANGES})
]
Change = {
    "type": "object",
    "properties": {
        "op": {"enum": list(FIELDS)},
        "id": {"type": "string", "description": "The job that is there already; not for `add` and `update_plan`."},
        "job": plan_part("Job", description="The new job; for `add`, `add_before`, `add_after`."),
        "needs": {"type": "array", "items": {"type": "string"}, "description": "For `set_needs`."},
        "set": {"type": "object", "description": "For `update`: fields of a job; for `update_plan`: fields of a plan."},
    },
    "required": ["op"],
    "additionalProperties": False,
}
Changes = Annotated[
    Any, WithJsonSchema({"type": "array", "items": Change, "minItems": 1, "maxItems": limits.RESHAPE_CHANGES})
]


class Shaped(Done, kw_only=True):
    jobs: list[str]
    total: int


async def add_jobs(call: Call, given: Any) -> Json:
    """Add jobs to a plan, all or none."""
    meant = await meant_plan(call, given.plan)
    return await add_jobs_request(call, meant, given.jobs, alone=False)


async def add_jobs_request(call: Call, meant: Meant, jobs: Any, *, alone: bool) -> Json:
    """Add jobs; `alone`: the one job was given as the arguments themselves, so its fields are named like that."""
    if not isinstance(jobs, list) or not jobs:
        raise UsageError("jobs: must be a list of at least one job.")
    if len(jobs) > limits.RESHAPE_CHANGES:
        raise UsageError(
            f"jobs: at most {limits.RESHAPE_CHANGES} at once, not {len(jobs)}.", hint="Call it again for the rest."
        )
    path = "" if alone else "jobs"
    try:
        new, order, notes = await call.served.read(_in_order, call.served.app, meant.plan, jobs)
    except InvalidInput as error:
        raise _renamed(error, _as_arguments if alone else _same) from None
    changes = [{"op": "add", "job": jobs[number]} for number in order]

    def place(found: str) -> str:
        number = re.match(r"changes\[(\d+)\]\.job\.?", found)
        if number is None:
            return found.replace("changes", path or "job", 1)
        inside = found[number.end() :]
        return inside if alone else f"jobs[{order[int(number[1])]}].{inside}"

    answer = await _reshaped(call, meant, changes, place)
    meant.notes += notes
    return await done(call, meant, jobs=[job.id for job in new], total=len(answer["jobs"]))


def _in_order(app: App, plan: PlanId, jobs: list[Any]) -> tuple[list[Job], list[int], list[str]]:
    """New jobs, checked together, and the order in which each comes after what it needs."""
    there = app.run_of(plan).plan.jobs
    value = {"jobs": jobs}
    notes = with_ids(value, {**names_in(there.values()), **full_ids(value)})
    new = parse.parse_jobs(jobs, frozenset(there))
    own = {job.id: number for number, job in enumerate(new)}
    order, _ = topological_order({job.id: [need for need in job.needs if need in own] for job in new})
    return new, [own[job] for job in order], notes


def check_job(value: Json) -> None:
    """Say everything that is wrong with a job; whether there are the jobs that it needs, only its plan can tell."""
    own = {name: inner for name, inner in value.items() if name in JobFields.model_fields and name != "needs"}
    try:
        parse.parse_jobs([own], frozenset())
    except InvalidInput as error:
        raise _renamed(error, _as_arguments) from None


async def reshape_plan(call: Call, given: Any) -> Json:
    """Change the graph of a plan, all or nothing."""
    meant = await meant_plan(call, given.plan)
    notes = await call.served.read(_with_job_ids, call.served.app, meant.plan, given.changes)
    answer = await _reshaped(call, meant, given.changes, _same)
    meant.notes += notes
    return await done(call, meant, jobs=answer["jobs"], total=len(answer["jobs"]))


def _with_job_ids(app: App, plan: PlanId, changes: Any) -> list[str]:
    """Put ids in the place of names that people use, also of jobs that the same list adds."""
    changes = changes if isinstance(changes, list) else []
    rows = [change for change in changes if isinstance(change, dict)]
    new = {"jobs": [change["job"] for change in rows if isinstance(change.get("job"), dict)]}
    known = {**names_in(app.run_of(plan).plan.jobs.values()), **full_ids(new)}
    notes = with_ids(new, known)
    notes += with_ids({"jobs": rows}, known)
    for change in rows:
        word = change.get("id")
        if isinstance(word, str) and word not in known:
            change["id"] = _only_job(word, known)
            if change["id"] != word:
                notes.append(f"id: '{word}' was taken to mean job '{change['id']}'.")
    return notes


def _only_job(word: str, known: dict[str, str | None]) -> str:
    same = [full for full in known if full.rpartition("/")[2] == word]
    return same[0] if len(same) == 1 else id_of(word, known)


async def update_plan(call: Call, given: Any) -> Json:
    """Give fields of a plan anew."""
    meant = await meant_plan(call, given.plan)
    fields = {name: getattr(given, name) for name in given.model_fields_set - {"plan"}}
    if not fields:
        raise UsageError("Give at least one field of the plan to change.")
    await _reshaped(call, meant, [{"op": "update_plan", "set": fields}], changes.update_plan.own_path)
    return await done(call, meant, updated=sorted(fields))


class Updated(Done, kw_only=True):
    updated: list[str]


async def update_job(call: Call, given: Any) -> Json:
    """Give fields of a job anew that has not started."""
    meant = await meant_job(call, given.plan, given.job)
    fields = {name: getattr(given, name) for name in given.model_fields_set - {"plan", "job"}}
    if not fields:
        raise UsageError("Give at least one field of the job to change.")
    for name in sorted(type(given).ASKED_NULL & fields.keys()):
        if fields[name] is None:
            raise UsageError(
                f"{name}: null could mean to keep them or to remove them.", hint="Leave it out, or give [] for none."
            )
    notes = await call.served.read(_with_job_ids, call.served.app, meant.plan, [fields])
    change = {"op": "update", "id": meant.job, "set": fields}
    await _reshaped(call, meant, [change], changes.update_job.own_path)
    meant.notes += notes
    return await done(call, meant, updated=sorted(fields))


async def _reshaped(call: Call, meant: Meant, changes: list[Json], place: Callable[[str], str]) -> Json:
    try:
        return await ask(call, "reshape_plan", meant, changes=changes)
    except InvalidInput as error:
        raise _renamed(error, place) from None


def _renamed(error: InvalidInput, place: Callable[[str], str]) -> InvalidInput:
    """The same problems, at the places that the caller knows them by."""
    problems = [Problem(one.message, place(one.path)) for one in error.problems]
    late = any("has started" in one.message for one in problems)
    return InvalidInput(error.what, problems, STARTED if late else None)


def _as_arguments(path: str) -> str:
    return re.sub(r"^jobs(\[0\]\.?)?", "", path)


def _same(path: str) -> str:
    return path


UPDATED = [name for name in PlanFields.model_fields if name not in ("jobs", "groups", "params", "start_paused")]
TOOLS = (
    declared(drafts.add_jobs, Shaped, add_jobs, more={"jobs": (Jobs, Field(description="The jobs. All or none."))}),
    declared(
        changes.reshape_plan,
        Shaped,
        reshape_plan,
        more={"changes": (Changes, Field(description="In order; all of them or none."))},
    ),
    declared(
        changes.update_plan,
        Updated,
        update_plan,
        without=("fields",),
        more=plan_fields(PlanFields, only=tuple(UPDATED)),
    ),
    declared(
        changes.update_job,
        Updated,
        update_job,
        without=("fields",),
        more=plan_fields(JobFields, without=("id", "group")),
        asked_null=("prechecks", "postchecks", "setup"),
    ),
)
