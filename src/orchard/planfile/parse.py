"""From what a person wrote to a plan, or to everything that is wrong with it.

Two looks at the same value, so that one kind of mistake never hides the other:

    fields    `given` or, where that is not sure, the models of `fields` check each value by itself
    graph     `_Outline` reads only groups, ids and needs, leniently, and checks how they fit together

Only a value that passes both becomes a `Plan`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.errors import InvalidInput
from orchard.model import limits
from orchard.model.permissions import ASK, Tools, made
from orchard.model.phases import Phase
from orchard.model.plan import (
    VALIDATION,
    AgentWork,
    Budget,
    Job,
    JobId,
    OnFailure,
    Plan,
    ProcessWork,
    ShellWork,
    Work,
    topological_order,
    with_validation,
)
from orchard.planfile.document import Document, Format, read_document, value_findings
from orchard.planfile.forms import HIDDEN, names_of
from orchard.planfile.given import Given, quick
from orchard.planfile.params import with_params
from orchard.planfile.places import Finding, Path, Unreadable, show_path
from orchard.planfile.rules import DEEPEST_GROUP, agent_meant, work_from_text, work_of_agent
from orchard.planfile.works import Paths, interactive_findings
from orchard.text import did_you_mean, quoted

_ID_NAMES = names_of("id")
_NEEDS_NAMES = names_of("needs")
_JOBS_NAMES = names_of("jobs")

# Comparing one unknown name with every job costs milliseconds in a large plan.
_GUESSES = 20
_SHOWN_CYCLE = 12


NO_PARAMS: Mapping[str, str] = {}


def parse(
    data: bytes,
    name: str = "plan.yaml",
    format: Format | None = None,
    *,
    scaffolding: bool = False,
    params: Mapping[str, str] = NO_PARAMS,
) -> Plan:
    """The plan in a file; raises InvalidInput with everything that is wrong with it."""
    return _plan(with_params(read_document(data, name, format), params), scaffolding=scaffolding)


def review(
    data: bytes, name: str, look: Callable[[Plan, Paths], list[Finding]], params: Mapping[str, str] = NO_PARAMS
) -> Plan:
    """The plan in a file, if nothing is wrong with it by itself, and nothing that `look` finds.

    What is wrong with single fields does not hide what `look` finds: it looks at the plan without them.
    """
    document = with_params(read_document(data, name, None), params)
    placed, found = _looked_at(document)
    rest = placed or _looked_at(Document(_without(document.value, [one.path for one in found]), name))[0]
    if rest is not None:
        found = [*found, *interactive_findings(*rest), *look(*rest)]
    if found or placed is None:
        raise document.refuse(found)
    return placed[0]


def _without(value: Any, paths: Iterable[Path]) -> Any:
    """A value without these fields of it; jobs and groups stay, so that the places of the others do."""
    gone = {path[: 1 + max(at for at, part in enumerate(path) if isinstance(part, str))] for path in paths if path}
    gone = {path for path in gone if path[-1] not in (*_JOBS_NAMES, "groups")}

    def kept(part: Any, path: Path) -> Any:
        if isinstance(part, dict):
            return {name: kept(inner, (*path, name)) for name, inner in part.items() if (*path, name) not in gone}
        return [kept(inner, (*path, number)) for number, inner in enumerate(part)] if isinstance(part, list) else part

    return kept(value, ())


def parse_value(value: object, name: str = "plan", *, scaffolding: bool = False) -> Plan:
    """The plan in a value that came from no file; one that is scaffolded may have no job yet."""
    return _plan(with_params(_outside_value(value, name), NO_PARAMS), scaffolding=scaffolding)


def parse_work(value: object, path: str) -> Work:
    """A single work, such as an entry of `setup` in the configuration; `path` says where it was found."""
    document = _outside_value(value, path, root=path)
    try:
        return _work(_read("work", value))
    except Unreadable as error:
        raise document.refuse(error.findings) from None


def parse_jobs(values: list[object], known: Collection[JobId], path: str = "jobs") -> list[Job]:
    """New jobs for a plan that has the `known` ones; they may need those and each other."""
    document = _outside_value(values, path, root=path)
    outline = _Outline(known={str(job): None for job in known if job != VALIDATION})
    outline.add_jobs(values, (), None)
    outline.check()
    given: list[Given] = []
    try:
        given = _read("jobs", values)
    except Unreadable as error:
        outline.found += error.findings
    if outline.found:
        raise document.refuse(outline.found)
    return [_job(one, entry) for one, entry in zip(given, outline.entries, strict=True)]


def parse_job_update(value: object, job: Job, known: Collection[JobId], path: str) -> Job:
    """A job of a plan with some of its fields given anew; everything else stays."""
    own, document = job.id.rpartition("/")[2], _outside_value(value, path, root=path)
    if not isinstance(value, dict) or not value:
        raise document.refuse([Finding((), "must be an object with at least one field of a job")])
    fixed = [name for name in value if name in (*_ID_NAMES, "group")]
    if fixed:
        raise document.refuse([Finding((name,), "cannot be changed; remove the job and add another") for name in fixed])
    whole = {**value, "id": own, **({"group": job.group} if job.group else {})}
    try:
        [new] = parse_jobs([whole], [one for one in known if one != job.id], path)
    except InvalidInput as error:
        # It was read as a list of one job, but given as the fields of one.
        problems = [replace(one, path=one.path.replace(f"{path}[0]", path, 1)) for one in error.problems]
        raise InvalidInput(error.what, problems, error.hint) from None
    given = _read("job", whole).values.keys() - {"id", "group"}
    for other, meant in {"agent": "work", "expects_no_changes": "changes"}.items():
        given = given - {other} | {meant} if other in given else given
    about_tools = given & {"tools", "deny_tools", "ask_tools"}
    values = {name: getattr(new, name) for name in given - about_tools}
    return replace(job, tools=_new_tools(job.tools, new.tools, about_tools), **values)


def _new_tools(old: Tools, new: Tools, given: Collection[str]) -> Tools:
    """What three fields come to where only some of them are given anew."""
    ask = new.ask if "ask_tools" in given else tuple(rule for rule in old.ask if rule != ASK)
    if "tools" not in given:
        ask = (*(rule for rule in old.ask if rule == ASK), *ask)
    elif "ask_tools" not in given:
        ask = (*new.ask, *ask)
    return Tools(new.lists if "tools" in given else old.lists, new.deny if "deny_tools" in given else old.deny, ask)


def parse_plan_update(value: object, plan: Plan, started: bool, path: str, *, clone: bool = False) -> Plan:
    """A plan, or a clone of it that is not submitted yet, with some of its own fields given anew; its jobs stay."""
    document = _outside_value(value, path, root=path)
    if not isinstance(value, dict) or not value:
        raise document.refuse([Finding((), "must be an object with at least one field of a plan")])
    try:
        read: Given = _read("plan", {"name": plan.name, **value})
    except Unreadable as error:
        raise document.refuse(error.findings) from None
    given = [name for name in read.values if name != "name" or "name" in value]
    may = CLONED if clone else UPDATED_ALWAYS if started else UPDATED_ALWAYS | UPDATED_BEFORE
    wrong = sorted(set(given) - may)
    if wrong:
        why = "cannot be changed any more" if started and not set(wrong) - UPDATED_BEFORE else "cannot be changed here"
        raise document.refuse([Finding((), f"'{name}' {why}; what can: {', '.join(sorted(may))}") for name in wrong])
    new = _built(read, dict(plan.jobs))
    changed = replace(plan, **{name: getattr(new, name) for name in given})
    validation = changed.jobs[VALIDATION]
    if "verify" in given:
        changed = replace(changed, jobs={**changed.jobs, VALIDATION: replace(validation, work=changed.verify)})
    return changed


UPDATED_ALWAYS = frozenset(
    {
        "description",
        "max_parallel",
        "env",
        "verify",
        "land",
        "push",
        "budget",
        "resolver",
        "cleanup",
        "network",
        "unprotected",
    }
)
UPDATED_BEFORE = frozenset(
    {"name", "base", "target", "setup", "submodules", "after", "worktree_root", "merge", "deploy", "sandbox"}
)
"""What can be changed of a plan at any time, and what only before it has started."""
CLONED = UPDATED_ALWAYS | UPDATED_BEFORE | {"start_paused"}


SCHEMA_ID = "urn:orchard-agents:plan-file"


def schema() -> dict[str, Any]:
    """The JSON Schema of a plan file, for editors and other programs."""
    from orchard.planfile.fields import PlanFields  # brings pydantic

    made = PlanFields.model_json_schema()
    _simplify(made)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **made}


def _simplify(part: Any) -> None:
    """Leave out what pydantic adds and nobody reads: titles made from names, defaults that only mean absence."""
    if isinstance(part, list):
        for item in part:
            _simplify(item)
    elif isinstance(part, dict):
        part.pop("x-absent", None)
        if part.get("default", part) is None:
            del part["default"]
        for name, inner in part.items():
            if name in ("properties", "$defs"):
                for hidden in HIDDEN:
                    inner.pop(hidden, None)
                for item in inner.values():
                    item.pop("title", None)
                    _simplify(item)
            else:
                _simplify(inner)


def _outside_value(value: object, name: str, root: str = "") -> Document:
    document = Document(value, name, root=root)
    found = value_findings(value)
    if found:
        raise document.refuse(found)
    return document


def _plan(document: Document, *, scaffolding: bool = False) -> Plan:
    plan, paths = _placed(document, scaffolding=scaffolding)
    if talking := interactive_findings(plan, paths):
        raise document.refuse(talking)
    return plan


def _placed(document: Document, *, scaffolding: bool = False) -> tuple[Plan, Paths]:
    placed, found = _looked_at(document, scaffolding=scaffolding)
    if placed is None:
        raise document.refuse(found)
    return placed


def _looked_at(document: Document, *, scaffolding: bool = False) -> tuple[tuple[Plan, Paths] | None, list[Finding]]:
    """The plan with the places of its jobs, or None and what is wrong with it."""
    value = document.value
    outline = _Outline()
    if isinstance(value, dict):
        jobs = _given_name(value, _JOBS_NAMES) or "jobs"
        outline.add_jobs(value.get(jobs), (jobs,), None)
        outline.add_groups(value.get("groups"), ("groups",), None)
        if outline.entries or not scaffolding:
            outline.count(value)
    outline.check()
    try:
        read: Given = _read("plan", value)
    except Unreadable as error:
        return None, outline.found + error.findings
    if outline.found:
        return None, outline.found
    made = [_job(one, entry) for one, entry in zip(_jobs(read), outline.entries, strict=True)]
    plan = _built(read, {job.id: job for job in made})
    return (plan, {job.id: entry.path for job, entry in zip(made, outline.entries, strict=True)}), []


# ---------------------------------------------------------------------------------------- graph


class _Entry(Struct):
    """A job as far as the graph goes: its full id and needs, once they are resolved."""

    path: Path
    raw: dict[str, Any]
    group: str | None
    id: str | None = None
    needs: dict[str, None] = field(default_factory=dict)


class _Outline(Struct):
    """Groups, ids and needs of all jobs, read without trusting that any of them is well-formed."""

    known: dict[str, Path | None] = field(default_factory=dict)
    """Full ids, with the place of the job; None for jobs of a plan that exists already."""
    entries: list[_Entry] = field(default_factory=list)
    found: list[Finding] = field(default_factory=list)
    guesses: int = 0

    def add_jobs(self, raw: Any, path: Path, group: str | None) -> None:
        for number, job in enumerate(raw if isinstance(raw, list) else ()):
            if isinstance(job, dict):
                self._add_job(job, (*path, number), group)

    def add_groups(self, raw: Any, path: Path, around: str | None) -> None:
        for number, group in enumerate(raw if isinstance(raw, list) else ()):
            if not isinstance(group, dict):
                continue
            here = (*path, number)
            name = group.get("name")
            full = "/".join(part for part in (around, name) if isinstance(part, str))
            if full.count("/") >= DEEPEST_GROUP and isinstance(name, str) and name.count("/") < DEEPEST_GROUP:
                self.found.append(Finding((*here, "name"), f"groups are nested at most {DEEPEST_GROUP} deep"))
            jobs = _given_name(group, _JOBS_NAMES) or "jobs"
            self.add_jobs(group.get(jobs), (*here, jobs), full or None)
            self.add_groups(group.get("groups"), (*here, "groups"), full or None)

    def count(self, value: dict[str, Any]) -> None:
        lists = [value[name] for name in (*_JOBS_NAMES, "groups") if name in value]
        jobs = _given_name(value, _JOBS_NAMES)
        if len(self.entries) > limits.JOBS:
            message = f"a plan has at most {limits.JOBS} jobs, not {len(self.entries)}"
            self.found.append(Finding((jobs or "groups",), message))
        elif not self.entries and all(isinstance(given, list) for given in lists):
            self.found.append(Finding((jobs,) if jobs else (), "a plan needs at least one job"))

    def check(self) -> None:
        for entry in self.entries:
            self._resolve(entry)
        graph = {JobId(entry.id): [JobId(need) for need in entry.needs] for entry in self.entries if entry.id}
        _, cycle = topological_order({job: [need for need in needs if need in graph] for job, needs in graph.items()})
        if cycle is not None:
            shown = cycle if len(cycle) <= _SHOWN_CYCLE else (*cycle[: _SHOWN_CYCLE - 2], "...", cycle[-1])
            path = self.known[cycle[0]] or ()
            self.found.append(Finding(path, f"circular dependency: {' -> '.join(shown)}"))

    def _add_job(self, job: dict[str, Any], path: Path, group: str | None) -> None:
        own = job.get("group")
        if group is not None and own is not None:
            self.found.append(Finding((*path, "group"), f"the job is in group {quoted(group)} already", key=True))
        entry = _Entry(path, job, group or (own if isinstance(own, str) and own else None))
        self.entries.append(entry)
        key = _given_name(job, _ID_NAMES)
        if key is None or not isinstance(job[key], str):
            return
        full = f"{entry.group}/{job[key]}" if entry.group else job[key]
        if full not in self.known:
            self.known[full] = path
            entry.id = full
            return
        first = self.known[full]
        where = f"; {show_path(first)} has it too" if first else "; the plan has such a job"
        self.found.append(Finding((*path, key), f"the id {quoted(full)} is given twice{where}"))

    def _resolve(self, entry: _Entry) -> None:
        key = _given_name(entry.raw, _NEEDS_NAMES)
        if key is None:
            return
        raw = entry.raw[key]
        path = (*entry.path, key)
        if isinstance(raw, str):
            self._need(entry, raw, path)
        elif isinstance(raw, list):
            if len(raw) > limits.NEEDS_PER_JOB:
                message = f"a job needs at most {limits.NEEDS_PER_JOB} others, not {len(raw)}"
                self.found.append(Finding(path, message))
            for number, need in enumerate(raw[: limits.NEEDS_PER_JOB]):
                if isinstance(need, str):
                    self._need(entry, need, (*path, number))

    def _need(self, entry: _Entry, need: str, path: Path) -> None:
        full = next((name for name in _meanings(need, entry.group) if name in self.known), None)
        if full is None:
            self.found.append(Finding(path, f"there is no job {quoted(need)}{self._guess(need, entry.group)}"))
        elif full == entry.id:
            self.found.append(Finding(path, f"the job {quoted(full)} needs itself"))
        elif full in entry.needs:
            self.found.append(Finding(path, f"the job {quoted(full)} is needed twice"))
        else:
            entry.needs[full] = None

    def _guess(self, need: str, group: str | None) -> str:
        self.guesses += 1
        if self.guesses > _GUESSES:
            return ""
        own = {name.removeprefix(f"{group}/"): name for name in self.known} if group and "/" not in need else self.known
        return did_you_mean(need, own)


def _meanings(need: str, group: str | None) -> Iterator[str]:
    """The full ids that a need may stand for, the nearest group first."""
    while group and "/" not in need:
        yield f"{group}/{need}"
        group = group.rpartition("/")[0]
    yield need


def _given_name(raw: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if name in raw), None)


# ---------------------------------------------------------------------------------------- values


def _read(what: str, value: object) -> Any:
    """What is given by a plan, a job, jobs or a work; Unreadable with all that is wrong with it."""
    found = quick(what, value)
    if found is not None:
        return found
    from orchard.planfile.problems import checked  # brings pydantic

    return checked(what, value)


def _jobs(plan: Given) -> Iterator[Given]:
    yield from plan.values.get("jobs", ())
    for group in plan.values.get("groups", ()):
        yield from _jobs(group)


def _job(given: Given, entry: _Entry) -> Job:
    values = {"name": given.values["id"], **given.values}
    values.update(id=entry.id, group=entry.group, needs=tuple(entry.needs))
    if values.pop("expects_no_changes", False):
        values["changes"] = "forbidden"
    if "work" in values:
        values["work"] = _work(values["work"])
    elif "agent" in values:
        values["work"] = work_of_agent(values.pop("agent"), values["task"])
    for name in ("prechecks", "postchecks", "setup"):
        if name in values:
            values[name] = _works(values[name])
    return Job(**_with_tools(values))


def _with_tools(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a job or a work, with the three fields that say what an agent may use made into one."""
    said = [values.pop(name, None) for name in ("tools", "deny_tools", "ask_tools")]
    if any(one is not None for one in said):
        values["tools"] = made(said[0], said[1] or (), said[2] or ())
    return values


def _built(given: Given, jobs: dict[JobId, Job]) -> Plan:
    values = {name: value for name, value in given.values.items() if name not in ("jobs", "groups")}
    if "verify" in values:
        values["verify"] = _work(values["verify"])
    if "setup" in values:
        values["setup"] = _works(values["setup"])
    if "budget" in values:
        values["budget"] = Budget(**values["budget"].values)
    return with_validation(Plan(jobs=jobs, **values))


def _works(forms: Any) -> tuple[Work, ...]:
    return tuple(_work(form) for form in (forms if isinstance(forms, list) else [forms]))


def _work(form: str | Given) -> Work:
    if isinstance(form, str):
        return work_from_text(form)
    values = dict(form.values)
    values.pop("type", None)
    values.update({name: tuple(value) for name, value in values.items() if isinstance(value, list)})
    if "on_failure" in values:
        values["on_failure"] = _on_failure(dict(values["on_failure"].values))
    if form.kind == "ShellFields":
        return ShellWork(**values)
    if form.kind == "ProcessFields":
        return ProcessWork(**values)
    if "agent" in values:
        values["agent"] = agent_meant(values["agent"])
    return AgentWork(**_with_tools(values))


def _on_failure(values: dict[str, Any]) -> OnFailure:
    if "no_auto_heal" in values:
        values["heal"] = not values.pop("no_auto_heal")
    if "resume_from" in values:
        values["resume_from"] = Phase(values["resume_from"])
    return OnFailure(**values)
