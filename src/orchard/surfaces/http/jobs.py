"""Operations on jobs. A job is named by its full id; since that may hold a `/`, it is written `%2F` in a path."""

from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from orchard.git.history import LONGEST_DIFF
from orchard.model.events.plans import Json
from orchard.model.phases import Phase
from orchard.model.plan_codec import work_json
from orchard.planfile.fields import Checks, Fields, JobFields, PhaseName, Work
from orchard.planfile.parse import parse_work
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


class JobRetryBody(Fields):
    """How a job is tried again, and with what."""

    phase: PhaseName = maybe(description="Where to begin; else where it failed.")
    fresh: bool = Field(default=False, description="In a new worktree; what lies in the old one is saved.")
    fresh_session: bool = Field(default=False, description="Its agent begins a new session instead of going on.")
    work: Work = maybe(description="Do this instead.")
    prechecks: Checks = maybe(description="Check this before.")
    postchecks: Checks = maybe(description="Check this after.")


UPDATE = Part(
    "JobUpdate",
    "Fields of a job that has not started. Its `id` and `group` stay.",
    "JobFields",
    frozenset(JobFields.model_fields) - {"id", "group"},
)


class MessageBody(Fields):
    """What is said to an agent."""

    message: Annotated[str, Field(min_length=1, max_length=64 * 1024)] = Field(description="The text, in Markdown.")


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


async def retry_job(asked: Asked) -> Json:
    """Try it again."""
    (plan, job), body = await asked.job(), asked.body
    works = {name: _works(name, asked.raw[name]) for name in ("work", "prechecks", "postchecks") if name in asked.raw}
    options = {"phase": body.phase, "fresh": body.fresh, "fresh_session": body.fresh_session}
    return await done(asked, plan, await asked.served.ask("retry", plan=plan, jobs=[job], **options, **works))


def _works(name: str, value: Any) -> Json | list[Json]:
    if name == "work":
        return work_json(parse_work(value, name))
    many = value if isinstance(value, list) else [value]
    return [work_json(parse_work(one, f"{name}[{number}]")) for number, one in enumerate(many)]


async def update_job(asked: Asked) -> Json:
    """Give fields of it anew."""
    plan, job = await asked.job()
    return await done(asked, plan, await changed(asked, plan, {"op": "update", "id": job, "set": asked.body}))


async def cancel_job(asked: Asked) -> Json:
    """Stop it."""
    plan, job = await asked.job("cancel")
    answer = await asked.served.ask("cancel_jobs", plan=plan, jobs=[job], reason=asked.body.reason)
    return await done(asked, plan, answer)


async def force_fail_job(asked: Asked) -> Json:
    """Stop it and fail it."""
    return await of_job(asked, "force_fail", reason=asked.body.reason)


async def approve_job(asked: Asked) -> Json:
    """Let it go on."""
    return await of_job(asked, "approve")


async def send_message(asked: Asked) -> Json:
    """Say something to its agent."""
    return await of_job(asked, "send", message=asked.body.message)


async def interrupt_worker(asked: Asked) -> Json:
    """End the present turn of its agent."""
    return await of_job(asked, "interrupt")


async def complete_worker(asked: Asked) -> Json:
    """The work of its idle agent is done."""
    return await of_job(asked, "complete")


async def of_job(asked: Asked, verb: str, **args: Any) -> Json:
    """Ask the engine for one thing about the job that the path names."""
    plan, job = await asked.job(verb.replace("_", "-"))
    return await done(asked, plan, {"job": job, **await asked.served.ask(verb, plan=plan, job=job, **args)})


LAST_LOG_ID: dict[str, Json] = {
    "Last-Event-ID": {
        "description": "When following: the id of the last event that arrived, to go on after it.",
        "schema": {"type": "string", "pattern": "^([0-9]{1,9}\\.[a-z-]{1,12}\\.[0-9]{1,15})?$"},
    }
}
