"""Tools that take a plan out of the way, and that say what needs a person."""

from typing import Any

from orchard.core.views.documents import Waiting as NeedsPerson
from orchard.model.events.plans import Json
from orchard.operations.commands import removal
from orchard.operations.queries import system as system_queries
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Call, Output
from orchard.surfaces.mcp.tools.declaration import declared
from orchard.surfaces.mcp.tools.models import Told
from orchard.surfaces.mcp.tools.names import ask, confirm, meant_plan
from orchard.surfaces.next_steps import tool_call


class Deleted(Told, kw_only=True):
    plan: str
    deleted: bool
    purged: bool
    kept_folders: list[str] | None = None


async def delete_plan(call: Call, given: Any) -> Json:
    """Take a plan out of the way."""
    meant = await meant_plan(call, given.plan, "delete_plan")
    if given.purge:
        await confirm(call, f"Remove plan '{meant.plan}' with all its commits, saved work and logs, for good?")
    answer = await ask(call, "delete_plan", meant, purge=given.purge)
    left = {"kept_folders": answer.get("kept_folders"), "notes": meant.notes}
    return {"plan": meant.plan, "deleted": True, "purged": given.purge, **compact(left)}


class WaitingRow(Output, kw_only=True):
    plan: str
    name: str
    kind: str
    reason: str
    tool: str
    next: str
    job: str | None = None
    since: str | None = None
    input: str | None = None
    others: list[str] | None = None


class Waiting(Told, kw_only=True):
    waiting: list[WaitingRow]


async def list_waiting(call: Call, given: Any) -> Json:
    """Everything that waits for a person."""
    rows = await call.served.read(call.served.app.waiting)
    return {"waiting": [_waiting(row) for row in rows]}


def _waiting(row: NeedsPerson) -> Json:
    named = {"plan": row.plan, "name": row.name, "kind": row.kind, "reason": row.reason}
    step = row.next[0]
    others = [tool_call(one) for one in row.next[1:]] or None
    more = {"job": row.job or step.job, "since": row.since, "input": row.input, "others": others}
    told = {"tool": step.operation, "next": tool_call(step)}
    return {**named, **told, **compact(more)}


TOOLS = (
    declared(removal.delete_plan, Deleted, delete_plan),
    declared(system_queries.list_waiting, Waiting, list_waiting),
)  # fmt: skip
