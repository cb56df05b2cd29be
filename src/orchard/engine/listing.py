"""Which plans there are. Scripts and prompts ask this often, so no plan is replayed, or known, that need not be."""

from collections.abc import Callable, Iterable
from typing import Any

from orchard.model.names import PlanId
from orchard.store.plan_list import PlanRow


def listed(
    rows: Iterable[PlanRow], summarize: Callable[[PlanId], dict[str, Any]], *, deleted: bool
) -> list[dict[str, Any]]:
    """Every plan in a few fields, in the order of the rows; a plan that is not settled is asked for anew."""
    found = [row.summary if row.settled else summarize(row.id) for row in rows]
    return [summary for summary in found if deleted or not summary.get("deleted")]
