"""What happened, as programs read it: variables that look like secrets are hidden, and whole plans are left out."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from orchard.core.views.documents import time_text
from orchard.model.events.plans import Json, PlanReshaped, PlanSubmitted, Recorded
from orchard.model.secrets import masked


class EventPage(Struct, frozen=True):
    """Some events of the journal, in their order."""

    events: Annotated[
        list[dict[str, Any]], Meta(description="Each has `seq`, `at`, `plan`, `type`, and what it tells.")
    ]
    next: Annotated[int, Meta(description="The `since` for those that come after these.")]


def event_view(recorded: Recorded) -> Json:
    event = recorded.event
    body: Json = {
        "seq": recorded.seq,
        "at": time_text(recorded.at),
        "plan": recorded.plan,
        "type": type(event).__name__,
    }
    body.update((key, value) for key, value in _told(event).items() if key not in body)
    return body


def _told(event: Any) -> Json:
    fields: Json = {name: getattr(event, name) for name in event.__struct_fields__}
    if isinstance(event, PlanSubmitted):
        fields |= {"name": event.plan["name"], "jobs": len(event.plan["jobs"])}
    if isinstance(event, PlanSubmitted | PlanReshaped):
        del fields["plan"]
    return masked(fields)
