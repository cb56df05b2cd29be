"""What operations about everything but plans and jobs answer with: people, repositories, agents, settings."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from orchard.core.views.documents import SavedWorkView, Waiting
from orchard.errors import Next


class WaitingList(Struct, frozen=True):
    """What needs a person, the oldest first."""

    waiting: list[Waiting]


class SavedList(Struct, frozen=True):
    """What was saved of folders before they were reset or removed."""

    saved: list[SavedWorkView]


class Repository(Struct, frozen=True):
    """A repository that is served here."""

    id: str
    name: str
    folder: str
    engine: Annotated[bool, Meta(description="Whether an engine works on it.")]
    newest: Annotated[int, Meta(description="The number of the newest event.")]


class Repositories(Struct, frozen=True):
    """Every repository that is served here."""

    repos: list[Repository]


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


class AgentList(Struct, frozen=True):
    """Every agent, and which one does the work that names none."""

    default: str | None
    agents: list[AgentItem]


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


class Setting(Struct, frozen=True):
    """A setting, and where it comes from."""

    value: Any
    origin: str | None


class SettingList(Struct, frozen=True):
    """The settings that hold here; what looks like a secret is hidden."""

    settings: dict[str, Setting]
    untrusted: Annotated[list[str], Meta(description="Keys of the repository's file that wait for `orchard trust`.")]


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


class Holder(Struct, frozen=True):
    """A process that runs jobs."""

    pid: int
    slots: int


class Capacity(Struct, frozen=True):
    """How many jobs of this user may run at once, in all repositories, and how many do."""

    total: Annotated[int, Meta(description="0: there is no limit.")]
    used: int
    holders: list[Holder]
    max_parallel: Annotated[
        int, Meta(description="How many jobs of one plan run at once, unless the plan says otherwise.")
    ]


class Document(Struct, frozen=True):
    """An OpenAPI document."""

    openapi: str
