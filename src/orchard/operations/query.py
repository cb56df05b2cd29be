"""Operations that only look: they are answered from the journal, with and without an engine."""

from collections.abc import Callable
from typing import Annotated, Any

from orchard.core.views.events import EventPage, event_view
from orchard.errors import UsageError
from orchard.operations.library import Library
from orchard.operations.operation import Args, Operation, Route, Tool, Verb, says

MOST_EVENTS = 200
LARGEST_SEQ = 2**53 - 1
"""What JSON keeps exactly."""


class Query(Operation, frozen=True, kw_only=True):
    """An operation that changes nothing."""

    read: Callable[[Library, Any], Any]
    """Gives the answer; where it is no document, a text."""
    repeatable: bool = True
    reads: bool = True
    apart: bool = False
    """Whether it asks programs and looks at no run: it may take long, and other questions are answered meanwhile."""


class ListEvents(Args, frozen=True, kw_only=True):
    plan: Annotated[str | None, says("Only those of this plan; else of all.")] = None
    since: Annotated[int, says("Show only what came after the event of this number.", ge=0, le=LARGEST_SEQ)] = 0
    limit: Annotated[int, says("Show at most this many.", ge=1, le=MOST_EVENTS)] = MOST_EVENTS


def read_events(library: Library, args: ListEvents) -> EventPage:
    plan = library.find_plan(args.plan) if args.plan is not None else None
    newest = library.reader.last_seq()
    if args.since > newest:
        raise UsageError(f"since: there was no event {args.since} yet; the newest is {newest}.")
    found = list(library.reader.events(plan, args.since, args.limit))
    return EventPage([event_view(one) for one in found], found[-1].seq if found else args.since)


list_events = Query(
    name="list_events",
    sentence="Read the journal: everything that happened, in its order.",
    details="Each event has a number. To go on where you stopped, give the `next` of the last answer as `since`.",
    args=ListEvents,
    answer=EventPage,
    example={"plan": "add-login", "since": 120},
    route=Route("GET", "/journal"),
    tool=Tool("plans", "Read the journal"),
    verb=Verb("events"),
    next=("get_plan",),
    read=read_events,
)
