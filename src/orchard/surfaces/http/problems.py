"""What went wrong, as `application/problem+json`: one form for every error, with a hint that says what to do.

The status tells whose move it is:

    400   the request cannot be read: broken JSON, an unknown parameter, a field of the wrong type
    404   there is no such path, repository, plan or job
    409   the request is fine, but a person has to do something first, or the world refused it
    422   the request can be read, but what it asks for cannot be done: problems of a plan, a wrong moment
    503   no engine works on the repository, or too many listen
    504   what was waited for did not happen in time
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from orchard.engine.server.server import EngineGone
from orchard.errors import (
    Bug,
    Hint,
    InvalidInput,
    Next,
    NotFound,
    OrchardError,
    Problem,
    SystemRefused,
    TimedOut,
    UsageError,
    steps_of,
)
from orchard.model.events.plans import Json
from orchard.store.db import StoreError
from orchard.surfaces.next_steps import in_commands

MEDIA = "application/problem+json"
SHOWN = 100
"""Problems of one input that are told one by one."""
WAIT_SECONDS = 2
KINDS: Mapping[int, str] = {
    400: "bad-request", 401: "no-token", 403: "forbidden", 404: "not-found", 405: "no-such-method", 408: "too-slow",
    409: "conflict", 413: "too-large", 415: "not-json", 421: "wrong-host", 422: "not-possible", 500: "internal",
    501: "not-installed", 503: "not-now", 504: "timed-out",
}  # fmt: skip
"""What programs may tell errors apart by; titles are for people."""


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
    next: Annotated[list[Next], Meta(description="The operations that the hint names, for programs.")]
    problems: Annotated[
        list[ProblemItem], Meta(description="Everything that is wrong with the input, if it is the input.")
    ]


class Refused(OrchardError):
    """A request that is refused with a status of its own."""

    def __init__(
        self,
        status: int,
        message: str,
        hint: Hint | None = None,
        problems: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.status, self.problems, self.headers = status, tuple(problems), dict(headers or {})


def answer(error: OrchardError) -> Response:
    if isinstance(error, Refused):
        return problem(error.status, error.message, error.hint, error.problems, error.headers)
    if isinstance(error, InvalidInput):
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, told(error.problems), error.hint, error.problems)
    status = status_of(error)
    headers = {"Retry-After": str(WAIT_SECONDS)} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    return problem(status, error.message, error.hint, headers=headers)


def status_of(error: OrchardError) -> int:
    """The status that says whose move it is."""
    if isinstance(error, EngineGone):
        return HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, UsageError):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    if isinstance(error, NotFound):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, TimedOut):
        return HTTPStatus.GATEWAY_TIMEOUT
    if isinstance(error, SystemRefused | StoreError | Bug):
        return HTTPStatus.INTERNAL_SERVER_ERROR
    return HTTPStatus.CONFLICT


def told(problems: Sequence[Problem]) -> str:
    """Problems in one sentence: the first, and how many more there are."""
    if not problems:
        return "The request cannot be read."
    first = problems[0]
    said = f"{first.path}: {first.message}" if first.path else f"The body {first.message}"
    return said if len(problems) == 1 else f"{said} (and {len(problems) - 1} more)"


def problem(
    status: int,
    detail: str,
    hint: Hint | None = None,
    problems: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    return Response(json_bytes(document(status, detail, hint, problems)), status, headers, MEDIA)


def document(status: int, detail: str, hint: Hint | None = None, problems: Sequence[Problem] = ()) -> Json:
    return {
        "type": f"urn:orchard:{KINDS.get(status, 'refused')}",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
        "hint": in_commands(hint) if hint else None,
        "next": steps_of(hint),
        "problems": [{"path": one.path, "message": one.message, "line": one.line} for one in problems[:SHOWN]],
    }


def json_bytes(value: object) -> bytes:
    """A value as JSON; half of a surrogate pair, which a path may hold and JSON may not, becomes a question mark."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        value = msgspec.to_builtins(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
