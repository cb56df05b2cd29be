"""Operations on what is around the plans: repositories, people, agents, settings, events."""

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from orchard.model.events.plans import Json
from orchard.surfaces.agent_lists import agent_list, model_list
from orchard.surfaces.http import events, queries
from orchard.surfaces.http.operation import Asked, Idle, Query, Seq, maybe


class PlanQuery(Query):
    """Which plan."""

    plan: Annotated[str, Field(min_length=1, max_length=200)] = maybe(
        description="Only of this plan: by id, unique prefix or unique name."
    )


class EventsQuery(PlanQuery):
    """Which events."""

    since: Seq = maybe(description="Those after this number, `0` for all; left out: those that are still to come.")
    idle: Idle = maybe(description="The stream ends when nothing has come for so many seconds; `0`: when all was sent.")


class ModelsQuery(Query):
    """Whose models."""

    agent: Annotated[str, Field(min_length=1, max_length=200)] = maybe(description="Only of this agent.")


async def list_repos(asked: Asked) -> Json:
    """Every repository that is served."""
    return {
        "repos": [
            {
                "id": one.id,
                "name": one.name,
                "folder": str(one.app.repo.main_top or one.app.repo.top or one.app.repo.common_dir),
                "engine": one.session is not None,
                "newest": one.newest,
            }
            for one in asked.repos.all()
        ]
    }


async def list_waiting(asked: Asked) -> Response:
    """What needs a person."""
    app = asked.served.app
    return await asked.read(lambda: {"waiting": app.waiting()})


async def list_saved(asked: Asked) -> Response:
    """What was saved of folders."""
    app = asked.served.app
    return await asked.read(lambda: {"saved": app.saved_work(asked.query.plan)})


async def list_agents(asked: Asked) -> Json:
    """Ask all programs."""
    return await asked.aside(lambda: agent_list(asked.served.app))


async def list_models(asked: Asked) -> Json:
    """Ask all programs and providers."""
    return await asked.aside(lambda: model_list(asked.served.app, asked.query.agent))


async def get_config(asked: Asked) -> Response:
    """The settings that hold."""
    return await asked.read(queries.config, asked.served.app)


async def get_doctor(asked: Asked) -> Json:
    """Look at everything."""
    return await asked.aside(lambda: queries.doctor(asked.served.app))


async def get_capacity(asked: Asked) -> Response:
    """The slots."""
    return await asked.read(queries.capacity, asked.served.app)


async def follow_events(asked: Asked) -> Response:
    """A stream from the journal."""
    query = asked.query
    plan = await asked.served.read(asked.served.app.find_plan, query.plan) if query.plan is not None else None
    seen = await asked.kept.feed.begin(asked.seen)
    return asked.streams.stream(events.frames(asked.kept.feed, asked.streams, seen, plan, query.idle))


async def get_document(asked: Asked) -> Response:
    """What is asked with and answered, for programs."""
    return Response(asked.document(), media_type="application/json")


LAST_EVENT_ID: dict[str, Json] = {
    "Last-Event-ID": {
        "description": "The number of the last event that arrived: those after it follow, without a gap. Browsers send "
        "it by themselves.",
        "schema": {"type": "string", "pattern": "^[0-9]{0,15}$"},
    }
}
