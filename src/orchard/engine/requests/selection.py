"""Which plan a request means: by name, or, where none is named, by what the verb can be applied to."""

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct

from orchard.core.views.documents import PlanSummary
from orchard.errors import NotFound, UsageError
from orchard.model.names import PlanId
from orchard.store.plan_list import PlanRow
from orchard.text import did_you_mean

EXACT = frozenset({"cancel", "force-fail", "approve", "land", "undo", "delete", "purge"})
"""Verbs that end, move or remove something: they take whole names only, never the beginning of one."""

NAMED = 8

LastOf = Callable[[str, Collection[PlanId]], PlanId | None]
"""Which of some plans an event of this name was the last to be about."""


def find_plan(
    rows: Sequence[PlanRow], name: str, *, exact: bool = False, jobs: Collection[str] | None = None
) -> PlanId:
    """The plan that is meant: by id or unique name; by a unique beginning of its id unless `exact`.

    `jobs` are those that could have been meant just as well, and were looked through before.
    """
    whole = ([row for row in rows if row.id == name], [row for row in rows if row.name == name])
    begun = [row for row in rows if row.id.startswith(name)]
    for matches in whole if exact else (*whole, begun):
        if len(matches) == 1:
            return matches[0].id
        if len(matches) > 1:
            listed = named([row.id for row in matches])
            raise NotFound(f"'{name}' could be any of {len(matches)} plans: {listed}", hint="Give the whole id.")
    if exact and begun:
        raise NotFound(
            f"There is no plan '{name}', and the beginning of an id is not enough here.",
            hint=f"Give the whole id: {named([row.id for row in begun])}",
        )
    guess = did_you_mean(name, [*(jobs or ()), *(row.id for row in rows), *(row.name for row in rows)])
    missing = f"no plan '{name}'" if jobs is None else f"no plan or job '{name}' under way"
    raise NotFound(f"There is {missing}{guess}", hint="orchard list")


def named(ids: Sequence[str]) -> str:
    """Ids in a sentence, the newest first; what is left out is counted."""
    more = f" and {len(ids) - NAMED} older" if len(ids) > NAMED else ""
    return ", ".join(list(reversed(ids))[:NAMED]) + more


class Fit(Struct, frozen=True):
    """To which plans a verb can be applied, and which of them is meant where none is named."""

    applies: Callable[[PlanSummary], bool]
    what: str
    """What such plans are, after "No plan here"."""
    newest: str | None = None
    """The event by which the newest of several is meant; None: with several, one has to be named."""
    last_first: bool = False
    """Whether the plan that was made last is meant wherever the verb applies to it."""
    deleted: bool | None = False
    """Whether it is about plans that are deleted, or about those that are not; None: about both."""
    already: Callable[[PlanSummary], bool] = lambda plan: False
    """Plans for which nothing would change; one of them is meant where the verb applies to no other."""


def _open(plan: PlanSummary) -> bool:
    return plan.status not in ("succeeded", "failed", "canceled")


def _resumable(plan: PlanSummary) -> bool:
    return (plan.hint or "").startswith("orchard resume")


def _landable(plan: PlanSummary) -> bool:
    held = any(hold.kind in ("landing", "rewritten") for hold in plan.waiting)
    return held or plan.undone or plan.landing


def _retriable(plan: PlanSummary) -> bool:
    return bool(plan.counts.get("failed") or plan.counts.get("canceled"))


FITS: Mapping[str, Fit] = {
    "pause": Fit(lambda plan: _open(plan) and plan.status != "paused", "is under way", already=_open),
    "resume": Fit(_resumable, "is paused"),
    "retry": Fit(_retriable, "has a failed or canceled job", last_first=True),
    "cancel": Fit(_open, "is under way"),
    "land": Fit(_landable, "waits to be landed"),
    "undo": Fit(lambda plan: plan.landed, "has landed and is not undone", newest="Landed", deleted=None),
    "delete": Fit(lambda plan: True, "is left to delete"),
    "purge": Fit(lambda plan: True, "is deleted", newest="PlanDeleted", deleted=True),
}


def fitting(plans: Sequence[PlanSummary], verb: str, last_of: LastOf) -> PlanId:
    """The plan that a verb without a name means; `plans` are all there are, the oldest first."""
    fit = FITS[verb]
    possible = [plan for plan in plans if fit.deleted in (None, plan.deleted)]
    found = [plan for plan in possible if fit.applies(plan)] or [plan for plan in possible if fit.already(plan)]
    if not found:
        raise NotFound(f"No plan here {fit.what}.", hint="orchard list")
    if len(found) == 1 or (fit.last_first and found[-1] is possible[-1]):
        return PlanId(found[-1].id)
    if fit.newest is not None:
        return last_of(fit.newest, [PlanId(plan.id) for plan in found]) or PlanId(found[-1].id)
    listed = named([plan.id for plan in found])
    raise UsageError(
        f"'orchard {verb}' could mean any of {len(found)} plans: {listed}", hint=f"orchard {verb} {found[-1].id}"
    )
