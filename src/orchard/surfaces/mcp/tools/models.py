"""What tools take and give, as far as several of them share it.

No schema of ours offers null. What may be left out of a call is None once it is read; what an answer does not have is
not in it, so its fields are declared with the type of their value alone, as in the plan model.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from orchard.model.statuses import JobStatusName as JobStatusName
from orchard.model.statuses import PlanStatusName as PlanStatusName
from orchard.operations.commands.workers import WorkerState as WorkerState
from orchard.planfile.fields import Fields, JobFields, PlanFields
from orchard.planfile.forms import HIDDEN
from orchard.surfaces.mcp.schemas import plan_part
from orchard.surfaces.mcp.tool import Input, Output

PAGE = 50
LARGEST_PAGE = 200
LARGEST_TEXT = 100_000
TEXT = 8_000

PhaseName = Literal["merge-fi", "setup", "prechecks", "work", "commit", "postchecks", "merge-ri"]


class Arguments(Input):
    """What our tools take: nothing unknown, nothing converted behind anybody's back (`repair` converts, and tells)."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ASKED_NULL: ClassVar[frozenset[str]] = frozenset()
    """Fields whose null has two meanings."""


def optional(description: str = "", **more: Any) -> Any:
    """A field that may be left out."""
    return Field(default=None, description=description or None, **more)


def plan_fields(model: type[Fields], *, without: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields of the plan model as fields of a tool: their schema is the plan's, and the plan's parser checks them."""
    owner = {PlanFields: "Plan", JobFields: "Job"}[model]
    made: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in without or (only and name not in only):
            continue
        shown = WithJsonSchema(plan_part(f"{owner}.{name}"))
        kind = Annotated[Any, SkipJsonSchema() if name in HIDDEN else shown]
        made[name] = (kind, Field() if field.is_required() and not only else Field(default=None))
    return made


Work = Annotated[Any, WithJsonSchema(plan_part("Job.work"))]
Works = Annotated[Any, WithJsonSchema(plan_part("Job.prechecks"))]
Name = Annotated[str, Field(min_length=1, max_length=400)]
Limit = Annotated[int, Field(ge=1, le=LARGEST_PAGE)]
MaxBytes = Annotated[int, Field(ge=200, le=LARGEST_TEXT)]
Offset = Annotated[int, Field(ge=0)]
Cursor = Annotated[str, Field(min_length=1, max_length=400)]
Reason = Annotated[str, Field(max_length=1000)]

PLAN = Field(description="Id, unique name or beginning of the id.")
SOME_PLAN = optional("Id, name or beginning of the id. Left out: the newest.")
JOB = Field(description="Id, `group/id` or unique name.")


class OfPlan(Arguments):
    """A plan that is acted on."""

    plan: Name = PLAN


class OfJob(Arguments):
    """A job that is acted on."""

    plan: Name = PLAN
    job: Name = JOB


class AboutPlan(Arguments):
    """A plan that is looked at."""

    plan: Name | None = SOME_PLAN


class AboutJob(Arguments):
    """A job that is looked at."""

    plan: Name | None = SOME_PLAN
    job: Name = JOB


# ---------------------------------------------------------------------------------------- given


class Told(Output, kw_only=True):
    notes: list[str] | None = None


class Done(Told, kw_only=True):
    plan: str
    status: PlanStatusName
    cursor: int
    next: str | None = None


class JobRow(Output, kw_only=True):
    id: str
    status: JobStatusName
    name: str | None = None
    phase: PhaseName | None = None
    attempts: int | None = None
    needs: list[str] | None = None
    needs_total: int | None = None
    error: str | None = None
    waiting: str | None = None
    health: list[str] | None = None


class PlanRow(Output, kw_only=True):
    plan: str
    name: str
    status: PlanStatusName
    counts: dict[str, int]
    target: str | None = None
    landed: bool | None = None
    created_at: str | None = None
    ended_at: str | None = None
    error: str | None = None
