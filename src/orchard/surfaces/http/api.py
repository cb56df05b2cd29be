"""The HTTP API, below `/api/v1`: every operation of the table, found by its path and asked with what was sent.

Paths are matched before they are decoded, part by part, so that a job `backend/api` is one part, `backend%2Fapi`, and
never mistaken for something else. Whatever happens, an answer is made: what a client did wrong is its problem document.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from orchard import own_log
from orchard.errors import OrchardError, Problem
from orchard.surfaces.http import problems
from orchard.surfaces.http.bodies import check_media, read_body, read_fields, read_json, read_path, read_query
from orchard.surfaces.http.daemon.repos import Repos
from orchard.surfaces.http.operation import JSON, Asked, Kept, Operation, Part, Query
from orchard.surfaces.http.operations import ROUTES, matching
from orchard.surfaces.http.problems import Refused, json_bytes
from orchard.surfaces.http.streams import Streams
from orchard.surfaces.served import Served
from orchard.text import did_you_mean, quoted

PREFIX = "/api/v1"
THREADS = 4
MOST_PARAMETERS = 50

_log = logging.getLogger("uvicorn.error")


def routes(repos: Repos, streams: Streams | None = None) -> list[BaseRoute]:
    return [ApiRoute(Api(repos, streams or Streams()))]


class ApiRoute(BaseRoute):
    """All paths of the API; which of them exist, the API itself knows."""

    def __init__(self, api: "Api") -> None:
        self.api = api

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope.get("path", "")
        ours = scope["type"] == "http" and (path == PREFIX or path.startswith(f"{PREFIX}/"))
        return (Match.FULL if ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.api(scope, receive, send)


class Api:
    """The operations on some repositories, as an application."""

    def __init__(self, repos: Repos, streams: Streams) -> None:
        self.repos, self.streams = repos, streams
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="api")
        self._kept: dict[str, Kept] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except OrchardError as error:
            response = problems.answer(error)
        except Exception:
            _log.exception("A request could not be answered: %s", request.method)
            response = problems.problem(
                HTTPStatus.INTERNAL_SERVER_ERROR, "Something went wrong here.", "The daemon's log tells what."
            )
        if own_log.wants(own_log.DEBUG, "http"):
            own_log.debug("http", f"{request.method} {request.url.path}: {response.status_code}")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        parts = _parts(request)
        operation = _operation(request.method, parts)
        path = operation.named(parts)
        read_path(path)
        query = read_query(_pairs(request), operation.query)
        data = await read_body(request)
        body = _body(operation, request, data)
        served = self.repos.find(query.repo) if isinstance(query, Query) else next(iter(self.repos.all()))
        kept = self._kept_of(served)
        asked = Asked(
            self.repos, served, self.streams, self._threads, request, path, query, body, data, kept, _document
        )
        answer = await operation.run(asked)
        if isinstance(answer, Response):
            return answer
        return Response(json_bytes(answer), operation.status, media_type=JSON)

    def _kept_of(self, served: Served) -> Kept:
        if served.id not in self._kept:
            self._kept[served.id] = Kept(served)
        return self._kept[served.id]


def _document() -> bytes:
    from orchard.surfaces.http.openapi import document_bytes

    return document_bytes()


def _parts(request: Request) -> tuple[str, ...]:
    """The path below the prefix, part by part, each decoded by itself."""
    raw: bytes = request.scope["raw_path"]
    path = raw.partition(b"?")[0].removeprefix(PREFIX.encode()).removeprefix(b"/")
    try:
        return tuple(unquote_to_bytes(part).decode() for part in path.split(b"/"))
    except UnicodeDecodeError:
        raise Refused(HTTPStatus.BAD_REQUEST, "The path is not UTF-8 text.") from None


def _operation(method: str, parts: tuple[str, ...]) -> Operation:
    found = matching(parts)
    if not found:
        raise Refused(HTTPStatus.NOT_FOUND, "There is no such path.", _near(parts))
    for one in found:
        if one.method == method:
            return one
    allowed = ", ".join(sorted(one.method for one in found))
    raise Refused(
        HTTPStatus.METHOD_NOT_ALLOWED, f"This path has no {quoted(method[:20])}.", f"There is: {allowed}",
        headers={"Allow": allowed},
    )  # fmt: skip


def _near(parts: tuple[str, ...]) -> str:
    """What may have been meant by a path that does not exist."""
    if len(parts) > 4 and parts[0] == "plans" and parts[2] in ("jobs", "groups"):
        return "In a path, the '/' of a job or group is written '%2F'."
    words = {part for one in ROUTES for part in one.parts if not part.startswith("{")}
    wrong = next((part for part in parts if part not in words), parts[-1])
    return f"All paths are in {PREFIX}/openapi.json{did_you_mean(wrong[:100], words)}"


def _pairs(request: Request) -> Sequence[tuple[str, str]]:
    try:
        text = request.scope.get("query_string", b"").decode("ascii")
        return parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=MOST_PARAMETERS
        )
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, "The parameters cannot be read.", "Write them as name=value.") from None


def _body(operation: Operation, request: Request, data: bytes) -> Any:
    if operation.body is None:
        if data.strip():
            raise Refused(HTTPStatus.BAD_REQUEST, f"{request.method} takes no body here.", "Send it without one.")
        return None
    if data.strip():
        check_media(request)
        value = read_json(data)
    elif operation.body_required:
        raise Refused(HTTPStatus.BAD_REQUEST, "The body is empty.", "Send a JSON object.")
    else:
        value = {}
    if not isinstance(value, dict):
        raise Refused(
            HTTPStatus.BAD_REQUEST, "The body must be an object.", problems=[Problem("must be an object with fields")]
        )
    return value if isinstance(operation.body, Part) else read_fields(value, operation.body)
