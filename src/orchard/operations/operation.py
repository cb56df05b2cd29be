"""What an operation is; see the package for the theory."""

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Meta, Struct, field
from msgspec.structs import fields

from orchard.model.statuses import PlanStatus
from orchard.operations.selection import Fit as Fit


def says(
    description: str,
    *,
    form: str | None = None,
    also: tuple[str, ...] = (),
    absent: Mapping[str, str] | None = None,
    **limits: Any,
) -> Meta:
    """What a person reads of an argument, and the limits of its value.

    `form`: what a person writes for it is read first, as in a plan file: `work`, `works`, `budget`, `changes`; `phase`
    and `jobs` are names. `plan`, `plan_update`, `plan_clone` and `job_update` are a plan or fields of one.
    `also`: older names, which every surface still takes. `absent`: why a surface (`route`, `tool`, `verb`) that has the
    operation does not have this argument of it.
    """
    return Meta(description=description, extra={"form": form, "also": also, "absent": absent or {}}, **limits)


JOB_NAME = "Job: full id (`group/id`), id or unique name."


class Args(Struct, frozen=True, kw_only=True):
    """The arguments of an operation."""


class Argument(Struct, frozen=True, kw_only=True):
    """One argument as every surface derives its own form of it from."""

    name: str
    kind: Any
    """Its type, without the None of one that may be left out."""
    description: str
    required: bool
    default: Any
    form: str | None
    limits: Mapping[str, Any]
    """`ge`, `le`, `min_length`, `max_length`, `pattern`, as far as it has them."""
    also: tuple[str, ...] = ()
    """Older names of it."""
    absent: Mapping[str, str] = {}
    """Why a surface does not have it."""


def arguments_of(args: type[Args]) -> list[Argument]:
    hints = get_type_hints(args, include_extras=True)
    return [_argument(spec.name, hints[spec.name], spec.default) for spec in fields(args)]


def _argument(name: str, hint: Any, default: Any) -> Argument:
    kind, meta = get_args(hint) if get_origin(hint) is Annotated else (hint, Meta())
    limits = {limit: value for limit in _LIMITS if (value := getattr(meta, limit)) is not None}
    more = meta.extra or {}
    required = default is NODEFAULT
    return Argument(
        name=name, kind=_without_none(kind), description=meta.description or "", required=required,
        default=None if required else default, form=more.get("form"), limits=limits, also=more.get("also", ()),
        absent=more.get("absent", {}),
    )  # fmt: skip


def _without_none(kind: Any) -> Any:
    given = [one for one in get_args(kind) if one is not NoneType]
    return Union[tuple(given)] if len(given) < len(get_args(kind)) else kind  # noqa: UP007


_LIMITS = ("ge", "le", "min_length", "max_length", "pattern")


class OfPlan(Args, frozen=True, kw_only=True):
    plan: Annotated[str, says("Plan: id, unique name or unique beginning of the id.")]


class OfJob(OfPlan, frozen=True, kw_only=True):
    job: Annotated[str, says(JOB_NAME)]


WORKER_NAME = f"{JOB_NAME} Or `JOB/subtask-xxxxx`."


class OfWorker(OfPlan, frozen=True, kw_only=True):
    """About a job, or about one of its subtasks."""

    job: Annotated[str, says(WORKER_NAME)]


class Done(Struct, frozen=True, kw_only=True):
    """What was asked for is done, and durable."""

    plan: str
    status: Annotated[PlanStatus | None, says("What the plan shows now; null: it is gone.")]


class DoneJobs(Done, frozen=True, kw_only=True):
    """What was asked for is done with these jobs, and durable."""

    jobs: list[str]


class DoneJob(Done, frozen=True, kw_only=True):
    """What was asked for is done with this job, and durable."""

    job: str


# -------------------------------------------------------------------------------------- where it is found


class Route(Struct, frozen=True):
    """An operation in the HTTP API."""

    method: str
    path: str
    id: str = ""
    """Its name there, where that is not the operation's own."""
    query: frozenset[str] = frozenset()
    """Arguments that are parameters although the request has a body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Arguments that are request headers."""
    status: int = 200


class Tool(Struct, frozen=True):
    """An operation as an MCP tool."""

    toolset: str
    title: str
    name: str = ""
    """Its name there, where that is not the operation's own."""
    asks: bool = False
    """Whether a person is asked first."""
    details: str | None = None
    example: Mapping[str, Any] | None = None
    """What a model is told instead of the operation's own."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What arguments that are left out mean there, where that is not what they mean elsewhere."""


class Verb(Struct, frozen=True):
    """An operation as a command of the CLI."""

    name: str
    asks: bool = False
    """Whether a person is asked first."""
    details: str | None = None
    example: Mapping[str, Any] | None = None
    """What a model is told instead of the operation's own."""
    follows: bool = False
    """Whether work goes on because of it, which the command shows until it ends."""


class Absent(Struct, frozen=True):
    """Why a surface does not have an operation."""

    why: str


class Operation(Struct, frozen=True, kw_only=True):
    """One thing that can be asked for."""

    name: str
    sentence: str
    args: type[Args] = Args
    answer: type[Struct] | None = None
    example: Mapping[str, Any] = field(default_factory=dict)
    route: Route | Absent
    tool: Tool | Absent
    verb: Verb | Absent
    details: str = ""
    """What the sentence leaves out."""
    next: tuple[str, ...] = ()
    """Operations that usually follow."""
    of_subtasks: bool = False
    """Whether `job` can name a subtask as well: `JOB/subtask-xxxxx`."""
    whole_names: bool = False
    """Whether it ends, moves or removes something: then the beginning of an id names nothing."""
    fit: Fit | None = None
    """Which plan is meant where none is named; None: the newest."""
    repeatable: bool = False
    """Whether asking twice does no more than asking once, so that a lost answer may be asked for again."""
    refuses: Callable[[Any, str], None] | None = None
    """Given a run and a job, refuses what can be seen to be impossible, so that no person is asked about it first."""
    refuses_here: Callable[[Any, Any, Mapping[str, Any]], None] | None = None
    """The same for what git has to be asked about: given the repository, a run and the other arguments."""
    reads: bool = False
    """Whether it only looks: it changes no plan, no job, no file, and nothing that others are given."""
    destructive: bool = False
    """Whether it ends, moves or removes something that cannot be had back by asking for the opposite."""


class Alias(Operation, frozen=True, kw_only=True):
    """An operation that says in its own words what another one does."""

    becomes: Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]
    """The other operation and its arguments, given those of this one with whole names."""
    place: str = ""
    """Where its own fields stand in the other's arguments: who is told of problems does not know that place."""

    def own_path(self, path: str) -> str:
        """Where a problem with the other's arguments stands in what this one was given."""
        if not self.place or path.startswith(self.place):
            return path.removeprefix(self.place).lstrip(".")
        return "job" if path.endswith(".id") else ""


def of_one_job(args: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an alias that is about one job, as those of the command that is about several."""
    return {**{name: value for name, value in args.items() if name != "job"}, "jobs": [args["job"]]}
