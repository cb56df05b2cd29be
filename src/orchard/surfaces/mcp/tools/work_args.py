"""Parts of a plan that a tool takes by themselves, read by the plan's own parser and written for the engine."""

from typing import Any

from pydantic import ValidationError

from orchard.errors import InvalidInput, Problem, UsageError
from orchard.model.events.plans import Json
from orchard.model.plan_codec import work_json
from orchard.planfile import parse
from orchard.planfile.fields import BudgetFields
from orchard.planfile.places import show_path
from orchard.planfile.problems import findings


def work_of(value: Any, path: str) -> Json:
    """A work as the engine takes it."""
    return work_json(parse.parse_work(value, path))


def works_of(value: Any, path: str) -> list[Json]:
    """A work or a list of works as the engine takes it; an empty list means that there are none."""
    if value is None:
        raise UsageError(
            f"{path}: null could mean to keep them or to remove them.",
            hint=f"Leave '{path}' out to keep what the job has, or give [] to have none.",
        )
    if not isinstance(value, list):
        return [work_of(value, path)]
    return [work_of(one, f"{path}[{number}]") for number, one in enumerate(value)]


def budget_of(value: Any) -> Json | None:
    """A budget as the engine takes it."""
    if value is None:
        return None
    try:
        model = BudgetFields.model_validate(value)
    except ValidationError as error:
        found = findings(error, value, BudgetFields)
        problems = [Problem(one.message, show_path(one.path, "budget") or "budget") for one in found]
        raise InvalidInput("budget", problems) from None
    if not model.model_fields_set:
        raise UsageError("budget: give at least one of 'tokens', 'cost' and 'minutes'.")
    return {name: getattr(model, name) for name in model.model_fields_set}
