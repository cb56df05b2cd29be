"""What operations answer with beside the documents of `core.views`: the OpenAPI document is made from both.

Tests hold every answer against these types; while a daemon runs, nothing is checked against them. What clients send is
described in `operation`, `plans` and `jobs`, and checked every time.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from orchard.core.views.documents import AttemptView, Failure, JobView, PlanSummary
from orchard.errors import Next as Step
from orchard.model.phases import Phase
from orchard.model.statuses import JobStatus


class ProblemItem(Struct, frozen=True):
    """One thing that is wrong with what was sent, and where it stands."""

    path: Annotated[
        str, Meta(description="Where: `jobs[2].needs[0]`, or the name of a parameter; empty for all of it.")
    ]
    message: str
    line: Annotated[int | None, Meta(description="In the body, counted from 1.")]


class ProblemDocument(Struct, frozen=True):
    """Why a request was refused, and what to do about it."""

    type: Annotated[str, Meta(description="Which kind of problem, for programs: `urn:orchard:not-found`.")]
    title: str
    status: int
    detail: Annotated[str, Meta(description="One sentence: what happened, to what.")]
    hint: Annotated[str | None, Meta(description="What to do, often a command.")]
    next: Annotated[list[Step], Meta(description="The operations that the hint names, for programs.")]
    problems: Annotated[
        list[ProblemItem], Meta(description="Everything that is wrong with the input, if it is the input.")
    ]


Next = Annotated[str | None, Meta(description="The `cursor` for those that come after these; null: there are no more.")]


class PlanPage(Struct, frozen=True):
    """Some plans, the newest first."""

    plans: list[PlanSummary]
    next: Next


class JobPage(Struct, frozen=True):
    """Some jobs of a plan, in its order."""

    plan: str
    jobs: list[JobView]
    total: Annotated[int, Meta(description="How many jobs fit the filter, on all pages.")]
    next: Next


class Attempts(Struct, frozen=True):
    """Every try at a job."""

    plan: str
    job: str
    attempts: list[AttemptView]


class JobFailure(Struct, frozen=True):
    """Why a job is not done."""

    plan: str
    job: str
    status: JobStatus
    attempt: int | None
    failure: Annotated[Failure | None, Meta(description="How the last attempt failed; null: it did not.")]
    log: Annotated[str | None, Meta(description="Where the log of the failed phase can be read.")]
    hint: str | None


class LogPage(Struct, frozen=True):
    """A part of a log."""

    attempt: int | None
    phase: Phase | None
    data: str
    offset: Annotated[int, Meta(description="The byte of the log at which this part begins.")]
    next_offset: Annotated[int, Meta(description="The `offset` of the next part.")]
    size: Annotated[int, Meta(description="Bytes of the log as it was then.")]
    ended: Annotated[bool, Meta(description="Whether the log grows no more: who has come to `size` is done.")]


class Node(Struct, frozen=True):
    """A job in a graph."""

    id: str
    name: str
    group: str | None
    status: JobStatus
    validation: bool


class Graph(Struct, frozen=True):
    """Which job needs which."""

    plan: str
    jobs: list[Node]
    edges: Annotated[list[tuple[str, str]], Meta(description="Pairs: what is needed, and who needs it.")]


class Group(Struct, frozen=True):
    """Jobs that belong together."""

    path: str
    status: JobStatus
    counts: dict[str, int]
    jobs: Annotated[list[str], Meta(description="Its own, not those of the groups inside it.")]


class Groups(Struct, frozen=True):
    """Every group of a plan."""

    plan: str
    groups: list[Group]


class Valid(Struct, frozen=True):
    """A plan in which nothing is wrong."""

    valid: Literal[True]
    name: str
    jobs: int
    groups: int
    leaves: list[str]
