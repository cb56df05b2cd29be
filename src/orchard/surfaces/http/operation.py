"""The vocabulary of the API: one operation, what it is asked with, and what it answers.

`operations.OPERATIONS` is the one table of all of them; routes, checks and the OpenAPI document are made from it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, TypeVar

from msgspec import Struct, field
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.operations.query import LARGEST_SEQ
from orchard.planfile.fields import Fields
from orchard.surfaces.http.daemon.repos import Repos
from orchard.surfaces.http.drafts import Drafts
from orchard.surfaces.http.events import Documents, Feed
from orchard.surfaces.http.problems import Refused, json_bytes
from orchard.surfaces.http.streams import Streams
from orchard.surfaces.served import Served

JSON = "application/json"
TEXT = "text/plain"
EVENTS = "text/event-stream"
SVG = "image/svg+xml"

T = TypeVar("T")


class Query(Fields):
    """The parameters that nearly every operation takes."""

    repo: str = Field(  # type: ignore[assignment]  # None cannot be sent
        default=None,
        max_length=200,
        description="Which repository: its id, or its name if no other has it. Not needed where only one is served.",
    )


class Nothing(Fields):
    """An object without fields; the body may be left out."""


class Part(Struct, frozen=True):
    """A body that is a plan, or a part of one: its schema is the plan's own, and the plan's parser checks it."""

    name: str
    description: str
    model: str
    """The model of `planmodel` that has its fields."""
    fields: frozenset[str] | None = None
    """Which of them; None: all."""


class Kept:
    """What the API remembers of one repository from request to request."""

    def __init__(self, served: Served) -> None:
        self.feed = Feed(served)
        self.documents = Documents()
        self.drafts = Drafts()


class Asked(Struct, frozen=True):
    repos: Repos
    served: Served
    """The repository that is meant; of an operation that is about none, the first one."""
    streams: Streams
    threads: ThreadPoolExecutor
    request: Request
    path: Mapping[str, str]
    query: Any
    """A value of the operation's `query`."""
    body: Any
    """A value of the operation's `body`; of a part of a plan, the object as it was sent."""
    data: bytes
    """The body as it was sent."""
    kept: Kept
    document: Callable[[], bytes]
    """What all operations are asked with and answer, for programs."""

    @property
    def raw(self) -> Json:
        found: Json = json.loads(self.data) if self.data.strip() else {}
        return found

    @property
    def seen(self) -> int | None:
        """The event after which a stream goes on; a client that comes back knows better than its address."""
        given = self.request.headers.get("last-event-id", "").strip()
        if not given:
            since: int | None = self.query.since
            return since
        if not (given.isascii() and given.isdecimal() and int(given) <= LARGEST_SEQ):
            raise Refused(400, "'Last-Event-ID' is not the number of an event.", "Give the id as it was sent.")
        return int(given)

    async def plan(self, verb: str = "") -> PlanId:
        """The plan that the path names: by id or unique name, or by unique prefix unless the verb forbids that."""
        return await self.served.read(self.served.app.find_plan, self.path["plan"], verb)

    async def job(self, verb: str) -> tuple[PlanId, JobId]:
        """The job that the path names: by full id, unique bare id or unique name, or likewise by unique prefix."""
        return await self.served.read(self.served.app.find_worker, self.path["job"], self.path["plan"], verb)

    async def read(self, question: Callable[[], object], *, apart: bool = False) -> Response:
        """Ask the App something, and answer with it: made and written beside the loop; `apart`: see `aside`."""
        return await (self.aside(partial(answer, question)) if apart else self.served.read(answer, question))

    async def aside(self, question: Callable[[], T]) -> T:
        """Do something that takes long and uses no run: other requests go on meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, question)


def answer(question: Callable[[], object]) -> Response:
    found = question()
    if isinstance(found, str):
        return Response(found.encode(errors="replace"), media_type=SVG if found.startswith("<svg") else TEXT)
    return (
        Response(found, media_type=TEXT) if isinstance(found, bytes) else Response(json_bytes(found), media_type=JSON)
    )


Run = Callable[[Asked], Awaitable[Response | Json]]


class Operation(Struct, frozen=True, dict=True):
    name: str
    """Its id in the document; what generated clients call their function."""
    method: str
    path: str
    summary: str
    run: Run
    answer: type[Struct] | None
    """What a JSON answer holds; None where there is none."""
    description: str = ""
    operation: str = ""
    """What the table of operations, and a next step, call it."""
    whole_names: bool = False
    query: type[Fields] = Query
    """Its parameters; without those of `Query` it is about no repository."""
    body: type[Fields] | Part | None = None
    """What the body holds. All of its fields may be left out if `body_required` is not set; then so may the body."""
    body_required: bool = False
    status: int = 200
    media: tuple[str, ...] = (JSON,)
    headers: Mapping[str, Json] = field(default_factory=dict)
    """Request headers that it heeds, as the document shows them."""
    told: Mapping[str, Json] = field(default_factory=dict)
    """Headers that its answer has, as the document shows them."""
    also: type[Struct] | None = None
    """What a JSON answer holds instead, where that is asked for."""

    @property
    def tag(self) -> str:
        """Under which heading the document has it."""
        if "jobs" in self.parts[:-1]:
            return "jobs"
        return {"plans": "plans", "drafts": "plans", "events": "events"}.get(self.parts[0], "system")

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    def fits(self, parts: tuple[str, ...]) -> bool:
        own = self.parts
        return len(own) == len(parts) and all(
            bool(given) if mine.startswith("{") else mine == given for mine, given in zip(own, parts, strict=True)
        )

    def named(self, parts: tuple[str, ...]) -> dict[str, str]:
        pairs = zip(self.parts, parts, strict=True)
        return {mine[1:-1]: given for mine, given in pairs if mine.startswith("{")}
