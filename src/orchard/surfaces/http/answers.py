"""Answers that are more than the JSON of an operation: with headers, in other media, or as streams."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from orchard.core.views.documents import PlanChanges
from orchard.model.events.plans import Json
from orchard.operations.commands.goals import Drafting, DraftPlan
from orchard.operations.queries.jobs import GetJobLogs, get_job_logs, wanted_logs
from orchard.operations.queries.system import Repositories, Repository
from orchard.planfile.parse import parse_plan_update
from orchard.surfaces.http import events, logs
from orchard.surfaces.http.operation import EVENTS, JSON, SVG, TEXT, Asked, Nothing, Operation, answer


async def get_plan(asked: Asked) -> Response:
    """The document, and up to which event it holds at least."""
    of, app = asked.kept.documents.of, asked.served.app
    newest, document = await asked.served.read(of, app, asked.path["plan"], asked.query.since)
    return Response(document, headers={"Orchard-Seq": str(newest)}, media_type=JSON)


async def follow_plan(asked: Asked) -> Response:
    plan, seen = await asked.plan(), await asked.kept.feed.begin(asked.seen or 0)
    following = events.plan_frames(asked.kept.documents, asked.served, asked.streams, plan, seen, asked.query.idle)
    return asked.streams.stream(following)


async def follow_events(asked: Asked) -> Response:
    query = asked.query
    plan = await asked.served.read(asked.served.app.find_plan, query.plan) if query.plan is not None else None
    seen = await asked.kept.feed.begin(asked.seen)
    return asked.streams.stream(events.frames(asked.kept.feed, asked.streams, seen, plan, query.idle))


async def get_job_log(asked: Asked) -> Response:
    """A page, or a stream of them."""
    given: dict[str, Any] = {**asked.query.model_dump(exclude={"repo"}), **asked.path}
    args = GetJobLogs(**given)
    if not args.follow:
        return await asked.read(lambda: get_job_logs.read(asked.served.app, args))
    wanted = await asked.served.read(wanted_logs, asked.served.app, args)
    place = await asked.served.read(logs.begin, asked.served.app, wanted, asked.request.headers.get("last-event-id"))
    return asked.streams.stream(logs.frames(asked.served, wanted, place, args.idle))


async def clone_plan(asked: Asked) -> Json:
    """The same plan again, with some fields given anew."""
    plan = await asked.served.read(asked.served.app.copy_of, await asked.plan())
    if asked.body:
        plan = parse_plan_update(asked.body, plan, False, "", clone=True)
    key = asked.request.headers.get("idempotency-key")
    scaffolding = asked.query.scaffolding
    return await asked.served.ask("create_plan", plan=plan, scaffolding=scaffolding, idempotency_key=key)


async def draft_plan(asked: Asked) -> Response:
    """What cannot be asked for is refused at once, before a stream begins."""
    place = asked.kept.drafts.take()
    begun = False
    try:
        given = {name: getattr(asked.body, name) for name in type(asked.body).model_fields}
        args = DraftPlan(**given, follow=asked.query.follow)
        drafting = await asked.aside(partial(Drafting, asked.served.app, args))
        if not args.follow:
            return await place.answer(drafting, asked.request)
        begun = True
        return asked.streams.stream(place.frames(drafting), place.leave)
    finally:
        if not begun:
            place.leave()


async def list_repos(asked: Asked) -> Response:
    found = [
        Repository(one.id, one.name, str(one.folder), one.session is not None, one.newest) for one in asked.repos.all()
    ]
    return answer(lambda: Repositories(found))


class Document(Struct, frozen=True):
    """An OpenAPI document."""

    openapi: str


async def get_document(asked: Asked) -> Response:
    return Response(asked.document(), media_type=JSON)


DOCUMENT = Operation(
    "getDocument", "GET", "/openapi.json", "Get the OpenAPI document", get_document, Document, query=Nothing
)


def _last_id(description: str, pattern: str) -> dict[str, Json]:
    return {"Last-Event-ID": {"description": description, "schema": {"type": "string", "pattern": pattern}}}


_LAST_EVENT = _last_id(
    "The number of the last event that arrived: those after it follow, without a gap. Browsers send it by themselves.",
    "^[0-9]{0,15}$",
)
_LAST_PAGE = _last_id(
    "When following: the id of the last event that arrived, to go on after it.",
    "^([0-9]{1,9}\\.[a-z-]{1,12}\\.[0-9]{1,15})?$",
)
_SEQ: dict[str, Json] = {
    "Orchard-Seq": {
        "description": "The number of an event: the document holds everything up to it.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    }
}

RENDERED: Mapping[str, Mapping[str, Any]] = {
    "get_plan": {"run": get_plan, "told": _SEQ, "also": PlanChanges},
    "follow_plan": {"run": follow_plan, "media": (EVENTS,), "headers": _LAST_EVENT},
    "follow_events": {"run": follow_events, "media": (EVENTS,), "headers": _LAST_EVENT},
    "get_plan_graph": {"media": (JSON, TEXT, SVG)},
    "get_plan_diff": {"media": (TEXT,)},
    "get_job_diff": {"media": (TEXT,)},
    "get_job_logs": {"run": get_job_log, "media": (JSON, EVENTS), "headers": _LAST_PAGE},
    "clone_plan": {"run": clone_plan},
    "draft_plan": {"run": draft_plan, "media": (JSON, EVENTS)},
    "list_repos": {"run": list_repos, "query": Nothing},
}
"""Operations of the API that are not as their declaration makes them, and what is different."""
