"""Trying jobs again: what `retry_plan` and `retry_job` share."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from orchard.model.events.plans import Json
from orchard.surfaces.mcp.tool import Call
from orchard.surfaces.mcp.tools.models import Arguments, Done, PhaseName, Work, Works, optional
from orchard.surfaces.mcp.tools.names import Meant, MeantJob, ask, done, meant_job
from orchard.surfaces.mcp.tools.work_args import work_of, works_of


class Retry(Arguments):
    """How to try again."""

    ASKED_NULL: ClassVar[frozenset[str]] = frozenset({"prechecks", "postchecks"})

    work: Work | None = optional("Instead of its work.")
    prechecks: Works | None = optional("Instead of its own; [] for none.")
    postchecks: Works | None = optional("Instead of its own; [] for none.")
    from_phase: PhaseName | None = optional("Left out: where it failed.")
    fresh: bool = Field(default=False, description="In a new worktree; the old one is saved.")
    fresh_session: bool = Field(default=False, description="With a new session of its agent.")


class Retried(Done):
    """What is tried again."""

    retried: list[str]


async def retry_request(call: Call, meant: Meant, jobs: Sequence[str] | None, given: Retry) -> Json:
    """Put jobs back in the queue; without any, all that failed or were canceled."""
    wanted = given.model_fields_set
    found = [await meant_job(call, meant.plan, job) for job in jobs] if jobs else []
    args = {
        "work": work_of(given.work, "work") if "work" in wanted else None,
        "prechecks": works_of(given.prechecks, "prechecks") if "prechecks" in wanted else None,
        "postchecks": works_of(given.postchecks, "postchecks") if "postchecks" in wanted else None,
    }
    asked = MeantJob(meant.plan, found[0].job) if len(found) == 1 else meant
    answer = await ask(
        call,
        "retry_plan",
        asked,
        jobs=list(dict.fromkeys(one.job for one in found)) or None,
        phase=given.from_phase,
        fresh=given.fresh,
        fresh_session=given.fresh_session,
        **{name: value for name, value in args.items() if value is not None},
    )
    meant.notes += [note for one in found for note in one.notes if note not in meant.notes]
    return await done(call, meant, retried=answer["jobs"])
