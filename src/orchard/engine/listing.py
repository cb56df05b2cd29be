"""Which plans there are. Scripts and prompts ask this often, so no plan is replayed, or known, that need not be."""

from collections.abc import Callable, Iterable

from orchard.core.views.documents import PlanSummary
from orchard.model.names import PlanId
from orchard.store.plan_list import PlanRow


def listed(rows: Iterable[PlanRow], summarize: Callable[[PlanId], PlanSummary], *, deleted: bool) -> list[PlanSummary]:
    """Every plan in a few fields, in the order of the rows; a plan that is not settled is asked for anew."""
    found = [row.summary if row.settled else summarize(row.id) for row in rows]
    return [summary for summary in found if deleted or not summary.deleted]
