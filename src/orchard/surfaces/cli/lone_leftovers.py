"""What `orchard agent` leaves behind when it is killed: the plans of its subtasks, and pictures of its folder.

A picture lies under a ref that names the process which took it, and the plan of a subtask begins with a picture. So
where that process is gone, both are known to belong to no agent: the plans are deleted as the agent itself would have
done it, and what their jobs had committed is listed as saved work, since no record says whether it was pulled.
"""

import asyncio
import os
from contextlib import suppress

from orchard.app import App
from orchard.core.run import Run
from orchard.engine.server.session import Session
from orchard.errors import OrchardError
from orchard.git.refs import PREFIX, Update, delete_refs, list_refs, next_number, update_refs, wip_ref
from orchard.model.plan import JobId
from orchard.process.families.identity import Identity, boot_id, identify, is_alive

AGENT = "agent"
"""Stands in refs where those of a plan have its id."""
JOB = JobId("work")
PLANS = "subtask-"
"""What the ids of its plans begin with."""


def owner_name() -> str:
    """This process, as it is named in refs."""
    found = identify(os.getpid())
    return f"{os.getpid()}_{found.started if found is not None else 0}_{boot_id()}"


async def end_leftovers(app: App, session: Session) -> None:
    """Take what agents left that are gone out of the way; what their subtasks did is kept."""
    refs = await asyncio.to_thread(left_refs, app)
    bases = set(refs.values())
    for row in app.reader.plans() if refs else ():
        if not row.id.startswith(PLANS) or app.run_of(row.id).plan.base not in bases:
            continue
        if not app.run_of(row.id).deleted:
            with suppress(OrchardError):  # another process may be faster
                await session.request("delete_plan", plan=row.id)
        await asyncio.to_thread(_offer, app, app.run_of(row.id))
    with suppress(OrchardError):
        await asyncio.to_thread(delete_refs, app.repo.git, refs, "orchard: the agent is gone")


def may_have_left(app: App) -> bool:
    """Whether a look is worth its time."""
    return any(row.id.startswith(PLANS) for row in app.reader.plans())


def left_refs(app: App) -> dict[str, str]:
    """The pictures that were taken by processes which are gone, and what they hold."""
    place = f"{PREFIX}/wip/{AGENT}/"
    return {ref: commit for ref, commit in list_refs(app.repo.git, place).items() if _is_gone(ref[len(place) :])}


def _is_gone(name: str) -> bool:
    pid, _, rest = name.split("/")[0].partition("_")
    started, _, boot = rest.partition("_")
    try:
        return not is_alive(Identity(int(pid), float(started), boot.partition("_")[0]))
    except ValueError:
        return False


def _offer(app: App, run: Run) -> None:
    """List what the job of a plan committed as saved work."""
    commit = run.records[JOB].commit if JOB in run.records else None
    first = wip_ref(run.id, JOB, 1)
    known = list_refs(app.repo.git, first.rpartition("/")[0])
    if commit is None or commit == run.plan.base or commit in known.values():
        return
    with suppress(OrchardError):
        ref = wip_ref(run.id, JOB, next_number(app.repo.git, first))
        update_refs(app.repo.git, [Update(ref, commit, None)], "orchard: the agent that asked for it is gone")
