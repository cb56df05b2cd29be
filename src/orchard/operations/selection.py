"""Which plan is meant: by name, or, where none is named, by what the operation can be applied to."""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from orchard.core.views.documents import PlanSummary
from orchard.errors import Next, NotFound, UsageError
from orchard.model.names import PlanId
from orchard.store.plan_list import PlanRow
from orchard.text import did_you_mean

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
    raise NotFound(f"There is {missing}{guess}", hint=Next("list_plans"))


def named(ids: Sequence[str]) -> str:
    """Ids in a sentence, the newest first; what is left out is counted."""
    more = f" and {len(ids) - NAMED} older" if len(ids) > NAMED else ""
    return ", ".join(list(reversed(ids))[:NAMED]) + more


class Fit(Struct, frozen=True):
    """To which plans an operation can be applied, and which of them is meant where none is named."""

    applies: Callable[[PlanSummary], bool]
    what: str
    """What such plans are, after "No plan here"."""
    newest: str | None = None
    """The event by which the newest of several is meant; None: with several, one has to be named."""
    last_first: bool = False
    """Whether the plan that was made last is meant wherever the operation applies to it."""
    deleted: bool | None = False
    """Whether it is about plans that are deleted, or about those that are not; None: about both."""
    already: Callable[[PlanSummary], bool] = lambda plan: False
    """Plans for which nothing would change; one of them is meant where the operation applies to no other."""
    by_name: Callable[[PlanSummary], str | None] = lambda plan: None
    """What is said of a plan to which it applies only where that is named; None: it does not apply."""


def fitting(plans: Sequence[PlanSummary], operation: str, fit: Fit, last_of: LastOf) -> PlanId:
    """The plan that an operation without a name means; `plans` are all there are, the oldest first."""
    possible = [plan for plan in plans if fit.deleted in (None, plan.deleted)]
    found = [plan for plan in possible if fit.applies(plan)] or [plan for plan in possible if fit.already(plan)]
    if not found:
        raise _none(possible, operation, fit)
    if len(found) == 1 or (fit.last_first and found[-1] is possible[-1]):
        return PlanId(found[-1].id)
    if fit.newest is not None:
        return last_of(fit.newest, [PlanId(plan.id) for plan in found]) or PlanId(found[-1].id)
    listed = named([plan.id for plan in found])
    raise UsageError(f"This could mean any of {len(found)} plans: {listed}", hint=Next(operation, found[-1].id))


def _none(possible: Sequence[PlanSummary], operation: str, fit: Fit) -> NotFound:
    """That no plan is meant; one that would have to be named is told with the command that names it."""
    named_only = [(plan.id, how) for plan in possible if (how := fit.by_name(plan)) is not None]
    if not named_only:
        return NotFound(f"No plan here {fit.what}.", hint=Next("list_plans"))
    last, how = named_only[-1]
    return NotFound(f"No plan here {fit.what}. Plan '{last}' {how}.", hint=Next(operation, last))
