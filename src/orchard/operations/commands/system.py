"""Operations about the engine itself."""

from orchard.engine.engine import Engine
from orchard.model.events.plans import Json
from orchard.operations.command import Service
from orchard.operations.operation import Absent, Args

_INNER = Absent("It is how programs of Orchard see that an engine is there.")


async def _ping(engine: Engine, args: Args) -> Json:
    return {"plans": [run.id for run in engine.runs.values() if not run.settled]}


ping = Service(
    name="ping",
    sentence="Say that an engine is there, and which plans it works on.",
    route=_INNER,
    tool=_INNER,
    verb=_INNER,
    serve=_ping,
)
