"""Plans and works as the journal keeps them: JSON objects without what is default.

This is not the plan file: ids are full, names are resolved, nothing is checked. It is read by every
command that shows a plan, so it needs neither pydantic nor a parser. The validation job is left
out, since it follows from the other jobs.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import NODEFAULT, convert
from msgspec.structs import FieldInfo, fields

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

_JOB_WORKS = ("prechecks", "postchecks", "setup")


def plan_json(plan: Plan) -> Json:
    body = _set_fields(plan)
    body["jobs"] = [job_json(job) for job in plan.jobs.values() if job.id != VALIDATION]
    if "verify" in body:
        body["verify"] = work_json(body["verify"])
    if "setup" in body:
        body["setup"] = [work_json(work) for work in body["setup"]]
    if "budget" in body:
        body["budget"] = _set_fields(body["budget"])
    return body


def plan_from_json(body: Mapping[str, Any]) -> Plan:
    values = dict(body)
    values["jobs"] = {JobId(job["id"]): _job_from_json(job) for job in values["jobs"]}
    if "verify" in values:
        values["verify"] = work_from_json(values["verify"])
    if "setup" in values:
        values["setup"] = _works(values["setup"])
    if "budget" in values:
        values["budget"] = Budget(**values["budget"])
    return with_validation(Plan(**values))


def work_json(work: Work) -> Json:
    """A work as a JSON object, told apart by `type`."""
    body = {"type": _TYPE_NAMES[type(work)], **_set_fields(work)}
    if "on_failure" in body:
        body["on_failure"] = _set_fields(body["on_failure"])
    return body


def work_from_json(body: Mapping[str, Any]) -> Work:
    return convert(body, ShellWork | ProcessWork | AgentWork)


def job_json(job: Job) -> Json:
    body = _set_fields(job)
    if job.name == _own_name(job.id):
        del body["name"]
    if "work" in body:
        body["work"] = work_json(body["work"])
    for name in _JOB_WORKS:
        if name in body:
            body[name] = [work_json(work) for work in body[name]]
    return body


def _job_from_json(body: Mapping[str, Any]) -> Job:
    values = dict(body)
    if "name" not in values:
        values["name"] = _own_name(values["id"])
    if "needs" in values:
        values["needs"] = tuple(values["needs"])
    if "work" in values:
        values["work"] = work_from_json(values["work"])
    for name in _JOB_WORKS:
        if name in values:
            values[name] = _works(values[name])
    return Job(**values)


def _own_name(job: str) -> str:
    """The id without its group, which is what a job is called unless it says otherwise."""
    return job.rpartition("/")[2]


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
