"""What operations on what is around the plans answer with: people, repositories, agents, settings."""

from typing import Any, Literal

from pydantic import Field

from orchard.surfaces.http.models import Moment, Values
from orchard.surfaces.http.operation import Shown


class Waiting(Shown):
    """One thing that needs a person."""

    plan: str
    name: str
    job: str | None
    kind: str
    reason: str
    answer: str = Field(description="The request that answers it.")
    command: str = Field(description="The same for a terminal.")
    since: Moment | None


class WaitingList(Shown):
    """What needs a person, the oldest first."""

    waiting: list[Waiting]


class SavedItem(Shown):
    """What was saved of a folder."""

    ref: str
    commit: str
    plan: str | None
    job: str | None
    at: Any
    subject: str
    files: Any


class SavedList(Shown):
    """What was saved of folders before they were reset or removed."""

    saved: list[SavedItem]


class Repository(Shown):
    """A repository that is served here."""

    id: str
    name: str
    folder: str
    engine: bool = Field(description="Whether an engine works on it.")
    newest: int = Field(description="The number of the newest event.")


class Repositories(Shown):
    """Every repository that is served here."""

    repos: list[Repository]


class AgentItem(Shown):
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


class AgentList(Shown):
    """Every agent, and which one does the work that names none."""

    default: str | None
    agents: list[AgentItem]


class ModelItem(Shown):
    """One model of an agent."""

    agent: str
    model: str
    vendor: str | None
    tier: str


class ModelList(Shown):
    """The models of the agents that are installed, and how much is known about each agent's."""

    models: list[ModelItem]
    agents: dict[str, Values]


class Setting(Shown):
    """A setting, and where it comes from."""

    value: Any
    origin: str | None


class SettingList(Shown):
    """The settings that hold here; what looks like a secret is hidden."""

    settings: dict[str, Setting]
    untrusted: list[str] = Field(description="Keys of the repository's file that wait for `orchard trust`.")


class Finding(Shown):
    """One thing that was looked at."""

    level: Literal["ok", "note", "warning", "problem"]
    topic: str
    message: str
    hint: str | None


class Health(Shown):
    """What could go wrong here."""

    healthy: bool
    findings: list[Finding]


class Holder(Shown):
    """A process that runs jobs."""

    pid: int
    slots: int


class Capacity(Shown):
    """How many jobs of this user may run at once, in all repositories, and how many do."""

    total: int = Field(description="0: there is no limit.")
    used: int
    holders: list[Holder]
    max_parallel: int = Field(description="How many jobs of one plan run at once, unless the plan says otherwise.")


class Document(Shown):
    """An OpenAPI document."""

    openapi: str
