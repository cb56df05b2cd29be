"""Operations on jobs. A job is named by its full id; since that may hold a `/`, it is written `%2F` in a path."""

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from orchard.git.history import LONGEST_DIFF
from orchard.model.events.plans import Json
from orchard.model.phases import Phase
from orchard.planfile.fields import JobFields, PhaseName
from orchard.surfaces.http import logs, queries
from orchard.surfaces.http.operation import TEXT, Asked, Idle, Part, Query, maybe
from orchard.surfaces.http.plans import changed, done
from orchard.surfaces.log_pages import PAGE, Wanted, page

LONGEST_PAGE = 1024 * 1024
SHORTEST_PAGE = 64
LARGEST_OFFSET = 2**50


class LogQuery(Query):
    """Which part of which log."""

    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = maybe(description="This attempt; else the last.")
    phase: PhaseName = maybe(description="This phase; else the one that was written last.")
    offset: Annotated[int, Field(ge=0, le=LARGEST_OFFSET)] = Field(
        default=0, description="The byte to begin at: the `next_offset` of the page before."
    )
    limit: Annotated[int, Field(ge=SHORTEST_PAGE, le=LONGEST_PAGE)] = Field(
        default=PAGE, description="About how many bytes of the log at most."
    )
    follow: bool = Field(
        default=False,
        description="As server-sent events, as it grows: `log` with a page as data, then `end`. Without a phase, one "
        "phase after the other from the first on.",
    )
    idle: Idle = maybe(description="Following ends when nothing has come for so many seconds.")


UPDATE = Part(
    "JobUpdate",
    "Fields of a job that has not started. Its `id` and `group` stay.",
    "JobFields",
    frozenset(JobFields.model_fields) - {"id", "group"},
)


async def get_job(asked: Asked) -> Response:
    """Everything about it."""
    return await asked.read(asked.served.app.job, asked.path["job"], asked.path["plan"])


async def get_attempts(asked: Asked) -> Response:
    """Every try."""
    return await asked.read(queries.attempts, asked.served.app, *await asked.job())


async def get_failure(asked: Asked) -> Response:
    """Why it is not done."""
    return await asked.read(queries.failure, asked.served.app, *await asked.job())


async def get_job_diff(asked: Asked) -> Response:
    """Exactly what git printed; what is too long to be held is cut, and says so."""
    job, plan = asked.path["job"], asked.path["plan"]
    diff = await asked.served.read(asked.served.app.diff, job, plan, stat=asked.query.stat, most=LONGEST_DIFF)
    return Response(diff, media_type=TEXT)


async def get_logs(asked: Asked) -> Response:
    """A page, or a stream of them."""
    query = asked.query
    phase = Phase(query.phase) if query.phase is not None else None
    wanted = Wanted(*await asked.job(), query.attempt, phase, query.offset, query.limit)
    if not query.follow:
        return await asked.read(page, asked.served.app, wanted)
    seen = asked.request.headers.get("last-event-id")
    place = await asked.served.read(logs.begin, asked.served.app, wanted, seen)
    return asked.streams.stream(logs.frames(asked.served, wanted, place, query.idle))


async def update_job(asked: Asked) -> Json:
    """Give fields of it anew."""
    plan, job = await asked.job()
    return await done(asked, plan, await changed(asked, plan, {"op": "update", "id": job, "set": asked.body}))


LAST_LOG_ID: dict[str, Json] = {
    "Last-Event-ID": {
        "description": "When following: the id of the last event that arrived, to go on after it.",
        "schema": {"type": "string", "pattern": "^([0-9]{1,9}\\.[a-z-]{1,12}\\.[0-9]{1,15})?$"},
    }
}
