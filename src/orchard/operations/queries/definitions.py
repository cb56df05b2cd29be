"""Definitions of agents as operations see them: those that hold for a plan, and how they are listed."""

from collections.abc import Callable, Iterator
from functools import cache

from orchard.agents.definitions.catalog import Catalog, meaning_of, of_repository
from orchard.agents.definitions.choice import choose
from orchard.agents.definitions.definition import Definition
from orchard.core.run import Run
from orchard.core.views.definitions import DefinitionItem
from orchard.engine.plans.refs import base_commit
from orchard.engine.world import Agents, World
from orchard.errors import NotFound, OrchardError
from orchard.git.objects.reader import Objects
from orchard.git.repository import Repository
from orchard.model.plan import AgentWork, Plan
from orchard.planfile.works import named, works_of

Described = Callable[[], Catalog]
"""The definitions that hold somewhere: they are read when the first of them is needed."""


def definition_items(catalog: Catalog) -> list[DefinitionItem]:
    return [definition_item(catalog, one) for one in catalog.all]


def definition_item(catalog: Catalog, one: Definition) -> DefinitionItem:
    why = catalog.why_not(one)
    tools = list(one.tools) if one.tools is not None else None
    return DefinitionItem(
        one.name, one.description, one.origin, one.file, one.model, tools, one.agent, why is None, why
    )


def described_here(repo: Repository, agents: Agents, objects: Objects | None = None) -> Catalog:
    """The definitions for plans that begin with what is checked out."""
    try:
        commit: str | None = repo.resolve("HEAD")[1]
    except (NotFound, OrchardError):
        commit = None
    return _read(repo, agents, commit, objects)


def described_for(repo: Repository, agents: Agents, plan: Plan) -> Described:
    """The definitions for the jobs of a plan that has not begun: those of the commit that it would begin with now."""
    return cache(lambda: _read(repo, agents, base_commit(repo, plan), None))


def described_to(world: World, plan: Plan, run: Run | None = None) -> Described:
    """The same for an engine. A plan that has begun keeps to what it began with."""
    if run is not None and run.started is not None:
        started = run.started.base_commit
        return cache(lambda: world.described_at(started))
    return cache(lambda: world.described_at(base_commit(world.repo, plan)))


def _read(repo: Repository, agents: Agents, commit: str | None, objects: Objects | None) -> Catalog:
    if objects is not None:
        return agents.catalog(of_repository(repo, objects, commit))
    with Objects(repo.git) as opened:
        return agents.catalog(of_repository(repo, opened, commit))


def agent_meant(agents: Agents, described: Described, name: str | None) -> str | None:
    """Whose program does a work that names an agent or a definition; None: the default one's, or nobody's."""
    try:
        return meaning_of(name, agents.names, described).agent
    except OrchardError:  # nobody has this name, which is said elsewhere
        return name


def agents_of(agents: Agents, described: Described, plan: Plan) -> set[str]:
    """The agents that do the works of a plan, by their names; the default one among them where a work names none."""
    works = [work for _, work, _ in works_of(plan, named(plan)) if isinstance(work, AgentWork)]
    meant = {agent_meant(agents, described, work.agent) for work in works}
    default = next((str(one["name"]) for one in agents.listed() if one["default"]), None) if None in meant else None
    return {name for name in (*meant, default) if name is not None}


def definition_notes(agents: Agents, described: Described, plan: Plan) -> list[str]:
    """What a person should know of the definitions that a plan names: which is meant, and what of it has no effect."""
    return list(dict.fromkeys(_notes(agents, described, plan)))


def _notes(agents: Agents, described: Described, plan: Plan) -> Iterator[str]:
    asked = {
        (work.agent, work.model is not None or work.tier is not None): None
        for _, work, _ in works_of(plan, named(plan))
        if isinstance(work, AgentWork) and work.agent is not None
    }
    for name, has_model in asked:
        yield from described().remarks(name)
        try:
            yield from choose(agents, name, described, has_model=has_model).notes
        except OrchardError:  # it cannot be had, which is said elsewhere
            continue
