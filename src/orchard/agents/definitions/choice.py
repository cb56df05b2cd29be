"""Who does a work that names an agent: the agent itself, and the definition by which it works, if any.

A definition says how to work and nothing else: it can ask for a model that the agent has and for fewer tools, and
starts no program. What of it has no effect is told.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from orchard.agents.definitions.catalog import Catalog, meaning_of
from orchard.agents.definitions.definition import Definition
from orchard.agents.prompts.role import role_text
from orchard.agents.protocol import Agent
from orchard.model.permissions import ALL, Tools, denied, named, narrowed, unfolded
from orchard.model.plan import Tier
from orchard.text import quoted

COPILOT = ".agent.md"
"""How the names of Copilot's definitions end."""


class Table(Protocol):
    """Whoever knows the agents that there are; `registry.Agents` is the one."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def find(self, name: str | None) -> Agent: ...

    def model_for(self, agent: str, model: str | None, tier: Tier | None) -> str | None: ...

    def knows(self, agent: str, model: str) -> bool: ...

    def catalog(self, repository: Iterable[Definition]) -> Catalog: ...


class Choice(Struct, frozen=True):
    agent: Agent
    definition: Definition | None = None
    model: str | None = None
    """That the definition asks for, where the agent has it."""
    notes: tuple[str, ...] = ()
    """What of the definition has no effect."""
    tools: Tools = ALL
    """What of all tools the definition leaves."""

    @property
    def role(self) -> str | None:
        """What the agent is told of the definition."""
        return role_text(self.definition)

    @property
    def name(self) -> str | None:
        return self.definition.name if self.definition is not None else None


def choose(
    agents: Table,
    name: str | None,
    described: Callable[[], Catalog],
    *,
    usual: str | None = None,
    commands: bool = True,
    has_model: bool = False,
) -> Choice:
    """Who is meant; UsageError where nobody is, or nobody who can be used. `usual` works where no agent is named.

    `has_model`: the work says itself which model it is for. May ask an agent's program, so it is for a thread.
    """
    meant = meaning_of(name, agents.names, described, commands=commands)
    agent, definition = agents.find(meant.agent or usual), meant.definition
    return by_definition(agents, agent, definition, has_model=has_model)


def choose_again(agents: Table, name: str, definition: str | None, described: Callable[[], Catalog]) -> Choice:
    """Who worked before, by the names that were recorded: nobody else takes it over, whoever asks."""
    found = described().meaning(definition).definition if definition is not None else None
    return by_definition(agents, agents.find(name), found)


def by_definition(agents: Table, agent: Agent, definition: Definition | None, *, has_model: bool = False) -> Choice:
    """An agent that works by a definition, or by none."""
    if definition is None:
        return Choice(agent)
    model, unknown = (None, ()) if has_model else _model(agents, agent, definition)
    tools, parts = _tools(definition)
    return Choice(agent, definition, model, (*unknown, *parts), tools)


def _model(agents: Table, agent: Agent, definition: Definition) -> tuple[str | None, tuple[str, ...]]:
    """The model that a definition asks for, where the agent has it: definitions are written for other programs too."""
    if definition.model is None:
        return None, ()
    if definition.origin == "config":  # it is for us, so what cannot be had is a mistake
        return agents.model_for(agent.name, definition.model, None), ()
    if agents.knows(agent.name, definition.model):
        return definition.model, ()
    said = f"'model: {definition.model}' in {definition.file} has no effect"
    return None, (f"{said}: {agent.name} is not known to have that model.",)


def _tools(definition: Definition) -> tuple[Tools, tuple[str, ...]]:
    """What a definition leaves of all tools. A part of a tool is nothing that can be given: all of it is taken away."""
    if definition.origin == "config":
        return definition.permissions, ()
    meant = unfolded if definition.file.endswith(COPILOT) else tuple
    only, parts = named(meant(definition.tools)) if definition.tools is not None else (ALL, ())
    deny, wider, lost = denied(meant(definition.denied))
    notes = (
        (parts, "gives no tool: only whole tools can be given."),
        (wider, "takes the whole tool away: a part of it cannot be."),
        (lost, "takes nothing away: it names no tool."),
    )
    said = ((", ".join(map(quoted, words)), end) for words, end in notes if words)
    return narrowed(only, Tools(deny=deny)), tuple(f"{listed} in {definition.file} {end}" for listed, end in said)
