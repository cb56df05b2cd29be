"""Queries about what is around the plans: people, agents, settings, this machine."""

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct, convert

from orchard.core.views.definitions import DefinitionItem
from orchard.core.views.documents import Waiting
from orchard.core.views.saved_work import SavedWorkView
from orchard.engine.server.address import read_address
from orchard.errors import Next, NotFound
from orchard.operations.library import Library
from orchard.operations.operation import Absent, Args, Operation, Route, Tool, Verb, says
from orchard.operations.queries.plans import GOES_ON, LONGEST_IDLE, QUIET
from orchard.operations.query import LARGEST_SEQ, Query
from orchard.process.families.identity import Identity, is_alive
from orchard.store.db import StoreError, explained, open_read_only
from orchard.store.masked_settings import shown_settings
from orchard.store.plan_list import JOURNAL_FILE, PlanList
from orchard.store.repositories import known_repositories
from orchard.store.slots import SLOTS

SLOTS_FILE = "slots.db"


class Repository(Struct, frozen=True):
    """A repository that is served here."""

    id: str
    name: str
    folder: str
    engine: Annotated[bool, says("Whether an engine works on it.")]
    newest: Annotated[int, says("The number of the newest event.")]


class Repositories(Struct, frozen=True):
    """Every repository that is served here."""

    repos: list[Repository]


list_repos = Operation(
    name="list_repos",
    sentence="List the repositories that are served here.",
    answer=Repositories,
    route=Route("GET", "/repos"),
    tool=Absent("A session is about one repository."),
    verb=Absent("A command is about the repository that it is run in."),
    next=("list_plans",),
    repeatable=True,
    reads=True,
)


class WaitingList(Struct, frozen=True):
    """What needs a person, the oldest first."""

    waiting: list[Waiting]


list_waiting = Query(
    name="list_waiting",
    sentence="List what needs a person, in all plans: approvals, landings, budgets.",
    answer=WaitingList,
    route=Route("GET", "/waiting"),
    tool=Tool("plans", "List what needs a person"),
    verb=Verb("waiting"),
    next=("approve_job", "land_plan", "resume_plan"),
    read=lambda library, args: WaitingList(library.waiting()),
)


class MaybeOfPlan(Args, frozen=True, kw_only=True):
    plan: Annotated[
        str | None, says("Only of this plan: by id, unique prefix or unique name.", min_length=1, max_length=200)
    ] = None


class SavedList(Struct, frozen=True):
    """What was saved of folders before they were reset or removed."""

    saved: list[SavedWorkView]


list_saved_work = Query(
    name="list_saved_work",
    sentence="List what was saved of worktrees before they were removed.",
    args=MaybeOfPlan,
    answer=SavedList,
    example={"plan": "add-login"},
    route=Route("GET", "/saved-work"),
    tool=Absent("Saved work is for people; `get_job` names what was saved of a job."),
    verb=Verb("recover"),
    next=("get_plan",),
    read=lambda library, args: SavedList(library.saved_work(args.plan)),
)


class FollowEvents(MaybeOfPlan, frozen=True, kw_only=True):
    since: Annotated[
        int | None,
        says("Those after this number, `0` for all; left out: those that are still to come.", ge=0, le=LARGEST_SEQ),
    ] = None
    idle: Annotated[float | None, says(QUIET, ge=0, le=LONGEST_IDLE, absent=GOES_ON)] = None


follow_events = Operation(
    name="follow_events",
    sentence="Follow everything that happens, as it happens.",
    details="Server-sent events. `id` is the event's number in the journal, `event` its name, and `data` an object "
    "with `seq`, `at`, `plan`, `type` and what the event tells. Nothing is missing and nothing comes twice. A client "
    "that takes nothing for 30 seconds is cut off; it comes back with `Last-Event-ID`.",
    args=FollowEvents,
    example={"plan": "add-login", "since": 120},
    route=Route("GET", "/events"),
    tool=Absent("`wait_plan` waits for what happens next, and `list_events` reads what happened."),
    verb=Verb("events"),
    next=("get_plan",),
    repeatable=True,
    reads=True,
)

# ---------------------------------------------------------------------------------------- agents


class AgentItem(Struct, frozen=True):
    """One agent as it is here."""

    name: str
    vendor: str
    installed: bool
    version: str | None
    program: str | None
    logged_in: Literal["yes", "no", "unknown"]
    how_known: str
    abilities: dict[str, bool]
    default: bool
    install: str
    login: str
    permissions: Annotated[str, says("How far it can be held to what it may use.")] = "nothing"


class AgentList(Struct, frozen=True):
    """Every agent, which one does the work that names none, and the definitions by which agents can work."""

    default: str | None
    agents: list[AgentItem]
    definitions: list[DefinitionItem]


def _read_agents(library: Library, args: Args) -> AgentList:
    from orchard.agents.facts.cache import user_cache
    from orchard.agents.facts.describe import describe
    from orchard.agents.registry import Agents
    from orchard.operations.queries.definitions import definition_items, described_here

    agents = Agents(library.settings.config, os.environ)
    infos = describe(agents, cache=user_cache())
    default = next((info.name for info in infos if info.default), library.settings.config.agent)
    found = definition_items(described_here(library.repo, agents))
    return AgentList(default, [AgentItem(**info.as_json()) for info in infos], found)


list_agents = Query(
    name="list_agents",
    sentence="List the agents: which are installed, logged in, what each can do; and the definitions of agents.",
    answer=AgentList,
    route=Route("GET", "/agents"),
    tool=Absent("`list_models` names the agents that are installed."),
    verb=Verb("agents"),
    next=("list_models",),
    apart=True,
    read=_read_agents,
)


class ListModels(Args, frozen=True, kw_only=True):
    agent: Annotated[
        str | None,
        says("Only the models of this agent (default: of all that are installed).", min_length=1, max_length=200),
    ] = None


class ModelItem(Struct, frozen=True):
    """One model of an agent."""

    agent: str
    model: str
    vendor: str | None
    tier: str


class ModelList(Struct, frozen=True):
    """The models of the agents that are installed, and how much is known about each agent's."""

    models: list[ModelItem]
    agents: dict[str, dict[str, Any]]


def _read_models(library: Library, args: ListModels) -> ModelList:
    from orchard.agents.facts.cache import user_cache
    from orchard.agents.facts.models import Models, model_document
    from orchard.agents.registry import Agents

    found = Agents(library.settings.config, os.environ)
    if args.agent is not None and args.agent not in found.names:
        raise NotFound(f"There is no agent '{args.agent}'.", f"There is: {', '.join(found.names)}")
    names = [args.agent] if args.agent else [name for name in found.names if found.missing(name) is None]
    return convert(model_document(Models(found, user_cache()).all(names)), ModelList)


list_models = Query(
    name="list_models",
    sentence="List the models of the agents (`model` of a work), with vendor and tier.",
    details="May take a few seconds.",
    args=ListModels,
    answer=ModelList,
    route=Route("GET", "/models"),
    tool=Tool("workers", "List models"),
    verb=Verb("models"),
    next=("save_plan", "create_plan"),
    apart=True,
    read=_read_models,
)

# -------------------------------------------------------------------------------------- this machine


class Setting(Struct, frozen=True):
    """A setting, and where it comes from."""

    value: Any
    origin: str | None


class SettingList(Struct, frozen=True):
    """The settings that hold here; what looks like a secret is hidden."""

    settings: dict[str, Setting]
    untrusted: Annotated[list[str], says("Keys of the repository's file that wait until the user trusts it.")]


def _read_config(library: Library, args: Args) -> SettingList:
    shown = {name: Setting(**one) for name, one in shown_settings(library.settings).items()}
    return SettingList(shown, sorted(library.settings.untrusted))


_ABOUT_HERE = Absent("It is about the user's machine, not about plans.")

get_config = Query(
    name="get_config",
    sentence="Show the settings and where they come from.",
    answer=SettingList,
    route=Route("GET", "/config"),
    tool=_ABOUT_HERE,
    verb=Verb("config"),
    next=("get_doctor",),
    read=_read_config,
)


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    level: Literal["ok", "note", "warning", "problem"]
    topic: str
    message: str
    hint: str | None
    next: list[Next]


class Health(Struct, frozen=True):
    """What could go wrong here."""

    healthy: bool
    findings: list[Finding]


def _read_health(library: Library, args: Args) -> Health:
    from orchard.engine.machine.doctor import examine, health

    found = examine(library.repo, library.settings, library.dirs, engine_alive=library.engine_alive())
    return convert(health(found, library.say), Health)


get_doctor = Query(
    name="get_doctor",
    sentence="Look for what could go wrong here; changes nothing.",
    answer=Health,
    route=Route("GET", "/doctor"),
    tool=_ABOUT_HERE,
    verb=Verb("doctor"),
    next=("get_config",),
    apart=True,
    read=_read_health,
)


class Holder(Struct, frozen=True):
    """An engine that runs jobs."""

    pid: int
    slots: int
    repository: Annotated[str | None, says("The repository whose jobs it runs; null: not known here.")] = None
    plans: Annotated[list[str], says("The plans of that repository that run.")] = []


class Capacity(Struct, frozen=True):
    """How many jobs of this user may run at once, in all repositories, and how many do."""

    total: Annotated[int, says("0: there is no limit.")]
    used: int
    holders: list[Holder]
    max_parallel: Annotated[int, says("How many jobs of one plan run at once, unless the plan says otherwise.")]
    problem: Annotated[str | None, says("Why the jobs of other engines cannot be counted now.")] = None


def _read_capacity(library: Library, args: Args) -> Capacity:
    """A holder that is gone has no slots."""
    rows: list[tuple[int, float, str, int]] = []
    problem = None
    place = library.dirs.state / SLOTS_FILE
    try:
        if place.is_file():
            with explained(place, SLOTS.what), closing(open_read_only(place, SLOTS)) as db:
                rows = db.execute("SELECT pid, started, boot, count(*) FROM leases GROUP BY 1, 2, 3").fetchall()
    except StoreError as error:
        problem = error.message  # each engine counts its own jobs alone
    alive = [(pid, count) for pid, started, boot, count in rows if is_alive(Identity(pid, started, boot))]
    engines = _engines(library.dirs.state) if alive else {}
    holders = [Holder(pid, count, *engines.get(pid, (None, []))) for pid, count in alive]
    config = library.settings.config
    return Capacity(config.capacity.global_, sum(one.slots for one in holders), holders, config.max_parallel, problem)


def _engines(state: Path) -> dict[int, tuple[str, list[str]]]:
    """The repositories that this user has worked in and an engine works on now, with their plans that run, by pid."""
    found: dict[int, tuple[str, list[str]]] = {}
    for folder in known_repositories(state):
        own = next((one for one in (folder / ".git" / "orchard", folder / "orchard") if one.is_dir()), None)
        address = read_address(own) if own is not None else None
        if own is not None and address is not None:
            with suppress(StoreError):
                plans = [row.id for row in PlanList(own / JOURNAL_FILE).plans() if row.status == "running"]
                found[address.pid] = (str(folder), list[str](plans))
    return found


get_capacity = Query(
    name="get_capacity",
    sentence="Show how many jobs may run at once, and how many do.",
    answer=Capacity,
    route=Route("GET", "/capacity"),
    tool=Tool("workers", "Look at the capacity"),
    verb=Verb("capacity"),
    next=("get_config",),
    read=_read_capacity,
)

OPERATIONS = (
    list_repos,
    list_waiting,
    list_saved_work,
    follow_events,
    list_agents,
    list_models,
    get_config,
    get_doctor,
    get_capacity,
)
