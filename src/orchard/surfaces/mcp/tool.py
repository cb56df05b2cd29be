"""The vocabulary of our MCP tools, apart from any SDK.

Tool     a name, what a model reads about it, what it takes and gives, and the function behind it
Call     for whom a tool is called, and with which repository
Answer   what a model gets: text that it reads, and the same as a value
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from pydantic import BaseModel, ConfigDict

from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import Json
from orchard.surfaces.served import Served


class Input(BaseModel):
    """What a tool takes. A field that is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class Output(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a tool gives; what is None is not told. Tools give documents, which tests check against these."""


Progress = Callable[[float, float | None, str], Awaitable[None]]
"""How far it is, of how much, and a sentence."""

Elicit = Callable[[str, Mapping[str, Any]], Awaitable[Json | None]]
"""Ask the person at the other end: a question and a schema of the answer. None: declined, or nobody can be asked."""


class Call(Struct, frozen=True):
    """One call of a tool: where, for whom, and how to talk back."""

    served: Served
    scope: Scope | None = None
    """The job whose agent calls; None: the user, who may do everything that is enabled."""
    progress: Progress | None = None
    elicit: Elicit | None = None


class Tool(Struct, frozen=True):
    """One tool, as `tools/list` shows it and `tools/call` runs it."""

    name: str
    toolset: str
    title: str
    description: str
    """What it does, an example, what it returns, what to call next."""
    input: type[Input]
    output: type[Struct]
    run: Callable[[Call, Any], Awaitable[Json]]
    """Given a validated `input`; gives a value that fits `output`. An OrchardError is told to the model."""
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    next: tuple[str, ...] = ()
    """Tools that usually follow."""
    check: Callable[[Json], object] | None = None
    """Says everything that is wrong inside of arguments which `input` refuses already; it changes nothing."""


def next_words(names: Iterable[str]) -> str:
    return f"Next: {', '.join(names) or 'go on'}."


class Answer(Struct, frozen=True):
    """What a call came to."""

    text: str
    value: Json | None = None
    is_error: bool = False
