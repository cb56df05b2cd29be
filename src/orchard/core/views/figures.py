"""What agents used, as documents tell it: beside a job or a plan, or as a report of its own."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from orchard.model.statuses import PlanStatus


class Figures(Struct, frozen=True, kw_only=True):
    """What agents used with one model, or with all of them."""

    tokens: int
    input: int
    cached: int
    cache_writes: int
    output: int
    requests: int
    cost: Annotated[float | None, Meta(description="In US dollars; null: not known.")]
    cost_source: str | None
    api_seconds: float
    premium_requests: Annotated[
        float | UnsetType, Meta(description="Taken off a monthly allowance of the provider's; left out: none.")
    ] = UNSET


class AgentUsage(Struct, frozen=True, kw_only=True):
    """What agents used, all together and for each model; empty where they used nothing."""

    tokens: int | UnsetType = UNSET
    input: int | UnsetType = UNSET
    cached: int | UnsetType = UNSET
    cache_writes: int | UnsetType = UNSET
    output: int | UnsetType = UNSET
    requests: int | UnsetType = UNSET
    cost: float | UnsetType | None = UNSET
    cost_source: str | UnsetType | None = UNSET
    api_seconds: float | UnsetType = UNSET
    premium_requests: float | UnsetType = UNSET
    models: dict[str, Figures] | UnsetType = UNSET


class PlanUsage(AgentUsage, frozen=True, kw_only=True):
    """What the jobs of a plan used so far."""

    job_seconds: float | UnsetType = UNSET


class JobUsage(AgentUsage, frozen=True, kw_only=True):
    """What a job used so far."""

    seconds: float | UnsetType = UNSET


class UsageSum(Figures, frozen=True, kw_only=True):
    """Figures of several turns. A cost that is not complete is at least so much: not every agent tells."""

    cost_complete: bool
    turns: int
    session_seconds: float
    lines_added: int
    lines_deleted: int


class UsageRow(UsageSum, frozen=True, kw_only=True):
    """What one turn used with one model."""

    job: str
    attempt: int
    phase: str
    agent: str
    trigger: str
    model: str


class PlanName(Struct, frozen=True):
    """Which plan, and what it shows."""

    id: str
    name: str
    status: PlanStatus


class UsageReport(Struct, frozen=True):
    """What the agents of a plan used."""

    plan: PlanName
    total: UsageSum
    by: Annotated[
        dict[str, dict[str, UsageSum]],
        Meta(description="The same by job, attempt, model, agent, phase and trigger."),
    ]
    rows: list[UsageRow]
