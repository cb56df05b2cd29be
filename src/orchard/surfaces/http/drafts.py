"""Plans that agents write for goals: each agent works for as long as the client that asked for its plan stays."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from orchard.agents.protocol import Telling
from orchard.errors import OrchardError
from orchard.operations.commands.goals import Draft, Drafting, Step
from orchard.process.background import begin
from orchard.surfaces.http import problems
from orchard.surfaces.http.problems import Refused, json_bytes
from orchard.surfaces.http.streams import first_frame, frame

LOOK = "The daemon's log tells what."
MOST = 4
"""Agents that write plans at once, for one repository."""
MOST_STEPS = 200
"""Steps that wait for a slow client; of more, the oldest are dropped."""

_log = logging.getLogger("uvicorn.error")


class Drafts:
    """The agents that write plans for one repository now."""

    def __init__(self) -> None:
        self._places: set[Place] = set()

    def take(self) -> "Place":
        """A place for one more agent; one too many is refused. Whoever takes it leaves it again."""
        if len(self._places) >= MOST:
            wait = {"Retry-After": str(problems.WAIT_SECONDS)}
            message, hint = f"{MOST} agents write plans already.", "Wait until one has ended, or cancel one."
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, message, hint, headers=wait)
        place = Place(self._places)
        self._places.add(place)
        return place


class Place:
    """Where one agent writes a plan. It is free again when the agent has ended, and all that it started."""

    def __init__(self, among: "set[Place]") -> None:
        self._among = among
        self._works: set[asyncio.Task[Any]] = set()

    def leave(self) -> None:
        """Free it, unless its agent works or ends: then that is done when it has ended."""
        if not self._works:
            self._among.discard(self)

    def _begin(self, work: Coroutine[Any, Any, Draft]) -> "asyncio.Task[Draft]":
        task = begin(work, self._works)
        task.add_done_callback(lambda done: self.leave())
        return task

    async def answer(self, drafting: Drafting, request: Request) -> Response:
        """The plan, when it is there."""
        work = self._begin(drafting.draft(lambda telling: None))
        gone = begin(_left(request), set())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            return Response(json_bytes(work.result().document()), media_type="application/json") if work.done() else _NO
        finally:
            work.cancel()
            gone.cancel()

    async def frames(self, drafting: Drafting) -> AsyncIterator[bytes]:
        """What the agent does, as it does it, and what came of it. Who stops to listen ends the agent."""
        yield first_frame(None)
        steps: deque[Step] = deque(maxlen=MOST_STEPS)
        news = asyncio.Event()

        def tell(step: Step | None) -> None:
            if step is not None:
                steps.append(step)
                news.set()

        def heard(telling: Telling) -> None:
            tell(drafting.step(telling))

        def again(number: int) -> None:
            tell(Step("again", f"The plan was not valid. The agent hears what is wrong, and answer {number} follows."))

        work = self._begin(drafting.draft(heard, again))
        work.add_done_callback(lambda done: news.set())
        number = 0
        try:
            while not work.done() or steps:
                await news.wait()
                news.clear()
                while steps:
                    number += 1
                    yield frame(json_bytes(steps.popleft()).decode(), "step", str(number))
            yield await _last(work, str(number + 1))
        finally:
            # Nothing is waited for here: this is where a client that went away cancels us, again and again.
            work.cancel()


async def clear_after_killed() -> None:
    """End the agents of daemons that were killed, and remove what they left."""

    def clear() -> None:
        from orchard.agents.planner import clear_desks  # with all that asks agents

        clear_desks()

    try:
        await asyncio.to_thread(clear)
    except Exception:
        _log.exception("What the agents of a killed daemon left could not be removed")


async def _last(work: "asyncio.Task[Draft]", id: str) -> bytes:
    """What came of it, as the last event."""
    try:
        return frame(json_bytes((await work).document()).decode(), "plan", id)
    except OrchardError as error:
        return frame(bytes(problems.answer(error).body).decode(), "failed", id)
    except Exception:
        _log.exception("A plan could not be drafted")
        told = problems.document(HTTPStatus.INTERNAL_SERVER_ERROR, "Something went wrong here.", LOOK)
        return frame(json_bytes(told).decode(), "failed", id)


async def _left(request: Request) -> None:
    """Until the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


_NO = Response(status_code=HTTPStatus.NO_CONTENT)
"""For a client that does not read it any more."""
