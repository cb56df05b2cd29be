"""Plans and works as the journal keeps them: JSON objects without what is default.

This is not the plan file: ids are full, names are resolved, nothing is checked. It is read by every
command that shows a plan, so it needs neither pydantic nor a parser. The validation job is left
out, since it follows from the other jobs.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from msgspec import NODEFAULT, convert
from msgspec.structs import FieldInfo, fields, replace

from orchard.model.permissions import FIELDS, Tools, made, written
from orchard.model.phases import Phase
from orchard.model.plan import (
    VALIDATION,
    AgentWork,
    Budget,
    Job,
    JobId,
    Plan,
    ProcessWork,
    ShellWork,
    Work,
    with_validation,
)

Json = dict[str, Any]

WORK_TYPES: Mapping[str, type[Work]] = {"shell": ShellWork, "process": ProcessWork, "agent": AgentWork}
_TYPE_NAMES = {cls: name for name, cls in WORK_TYPES.items()}


def plan_json(plan: Plan) -> Json:
    jobs = [job_json(job) for job in plan.jobs.values() if job.id != VALIDATION]
    return {**_each(_TO_JSON, _set_fields(plan)), "jobs": jobs}


def plan_from_json(body: Mapping[str, Any]) -> Plan:
    jobs = {JobId(job["id"]): _job_from_json(job) for job in body["jobs"]}
    return with_validation(Plan(**{**_each(_FROM_JSON, body), "jobs": jobs}))


def work_json(work: Work) -> Json:
    """A work as a JSON object, told apart by `type`."""
    return {"type": _TYPE_NAMES[type(work)], **_spread(_each(_TO_JSON, _set_fields(work)))}


def work_from_json(body: Mapping[str, Any]) -> Work:
    work: ShellWork | ProcessWork | AgentWork = convert(_without_tools(body), ShellWork | ProcessWork | AgentWork)
    return replace(work, tools=_tools(body)) if isinstance(work, AgentWork) and _names_tools(body) else work


def job_json(job: Job) -> Json:
    body = _spread(_each(_TO_JSON, _set_fields(job)))
    if job.name == _own_name(job.id):
        del body["name"]
    return body


def _job_from_json(body: Mapping[str, Any]) -> Job:
    values = {"name": _own_name(body["id"]), **_each(_FROM_JSON, _without_tools(body))}
    if values.pop("expects_no_changes", False):  # as journals had it before `changes`
        values["changes"] = "forbidden"
    job = Job(**values)
    return replace(job, tools=_tools(body)) if _names_tools(body) else job


def _spread(body: Json) -> Json:
    """What an agent may use is one value, and three fields for whoever writes or reads it."""
    tools = body.pop("tools", None)
    return body if tools is None else {**body, **written(tools)}


def _names_tools(body: Mapping[str, Any]) -> bool:
    return any(name in body for name in FIELDS)


def _without_tools(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in body.items() if name not in FIELDS} if _names_tools(body) else body


def _tools(body: Mapping[str, Any]) -> Tools:
    return made(body.get("tools"), body.get("deny_tools", ()), body.get("ask_tools", ()))


def _own_name(job: str) -> str:
    """The id without its group, which is what a job is called unless it says otherwise."""
    return job.rpartition("/")[2]


def _works_json(works: Iterable[Work]) -> list[Json]:
    return [work_json(work) for work in works]


def _works(bodies: list[Json]) -> tuple[Work, ...]:
    return tuple(work_from_json(body) for body in bodies)


@cache
def _defaults(cls: type[Any]) -> tuple[tuple[str, object], ...]:
    return tuple((spec.name, _default(spec)) for spec in fields(cls))


def _default(spec: FieldInfo) -> object:
    return spec.default_factory() if spec.default_factory is not NODEFAULT else spec.default


def _set_fields(value: Any) -> Json:
    """The fields that differ from their default, in types that JSON knows; values within are left as they are."""
    body: Json = {}
    for name, default in _defaults(value.__class__):
        item = getattr(value, name)
        if item != default:
            body[name] = _plain(item)
    return body


def _plain(item: object) -> object:
    if isinstance(item, tuple):
        return list(item)
    if isinstance(item, Mapping):
        return dict(item)
    return item.value if isinstance(item, Phase) else item


_WORKS = ("prechecks", "postchecks", "setup")
_TO_JSON: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(("work", "verify"), work_json),
    **dict.fromkeys(_WORKS, _works_json),
    **dict.fromkeys(("budget", "on_failure"), _set_fields),
}
_FROM_JSON: Mapping[str, Callable[[Any], object]] = {
    **dict.fromkeys(("work", "verify"), work_from_json),
    **dict.fromkeys(_WORKS, _works),
    "budget": lambda body: Budget(**body),
    "needs": tuple,
}
"""What a field of a plan, a job or a work is written as and read from, where its value is not the same in JSON."""


def _each(codec: Mapping[str, Callable[[Any], object]], values: Mapping[str, Any]) -> Json:
    return {name: codec[name](value) if name in codec else value for name, value in values.items()}
