"""What agents used: tokens, requests, cost and time, and how such figures add up."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

MOST_TOKENS = 10**12
"""No turn of an agent uses more, whatever it or its model's server says."""
MOST_DOLLARS = 1e9

CostSource = str
"""`agent`: the program said so; `prices`: tokens times a table of prices; empty: nobody knows."""


class Usage(Struct, frozen=True):
    """What was used with one model. Each token is counted once: `input` is what was neither read from nor put into a
    cache."""

    model: str = ""
    input: int = 0
    cached: int = 0
    cache_writes: int = 0
    output: int = 0
    requests: int = 0
    """Calls of the model; 0 where the agent does not tell."""
    cost: float | None = None
    cost_source: CostSource = ""
    api_seconds: float = 0.0
    """Time spent waiting for the model, where the agent tells."""
    premium_requests: float = 0.0
    """What the provider takes off a monthly allowance, where the agent tells; some models count as a part of one."""

    @property
    def tokens(self) -> int:
        return self.input + self.cached + self.cache_writes + self.output

    def as_json(self) -> dict[str, Any]:
        """The fields that say something; that something cost nothing is such a thing to say."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        free = {"cost": 0.0} if self.cost == 0 else {}
        return {**{name: value for name, value in told.items() if value not in (0, 0.0, "", None)}, **free}


def counted(value: object) -> int:
    """A count as a stranger tells it: a whole number that is not negative and can be true, else 0."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0


def priced(value: object) -> float | None:
    """A cost as a stranger tells it: a number of dollars that can be true, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_DOLLARS:
        return None
    return float(value)


def _real(value: float) -> float:
    return value if math.isfinite(value) and 0 <= value < MOST_TOKENS else 0.0


def believed(usage: Usage) -> Usage:
    """What of a usage can be true: budgets are kept by it, so nothing in it may be negative or without end."""
    cost = priced(usage.cost)
    return Usage(
        model=usage.model,
        input=counted(usage.input),
        cached=counted(usage.cached),
        cache_writes=counted(usage.cache_writes),
        output=counted(usage.output),
        requests=counted(usage.requests),
        cost=cost,
        cost_source=usage.cost_source if cost is not None else "",
        api_seconds=_real(usage.api_seconds),
        premium_requests=_real(usage.premium_requests),
    )


def usage_from_json(body: Mapping[str, Any]) -> Usage:
    """The usage that was written so; a field that is not known is from a newer program."""
    known = {one.name for one in fields(Usage)}
    return Usage(**{name: value for name, value in body.items() if name in known})


def add(one: Usage, other: Usage) -> Usage:
    """Both together; the model is named where it is the same, the cost where both are known."""
    costs = [usage.cost for usage in (one, other) if usage.cost is not None]
    sources = {usage.cost_source for usage in (one, other) if usage.cost is not None}
    return replace(
        one,
        model=one.model if one.model == other.model else "",
        input=one.input + other.input,
        cached=one.cached + other.cached,
        cache_writes=one.cache_writes + other.cache_writes,
        output=one.output + other.output,
        requests=one.requests + other.requests,
        cost=sum(costs) if costs else None,
        cost_source=sources.pop() if len(sources) == 1 else ("mixed" if sources else ""),
        api_seconds=one.api_seconds + other.api_seconds,
        premium_requests=one.premium_requests + other.premium_requests,
    )


def less(whole: Usage, told: Usage) -> Usage:
    """What of a whole was not told yet; its cost is that of the whole."""
    counts = ("input", "cached", "cache_writes", "output", "requests", "api_seconds", "premium_requests")
    return replace(whole, **{name: max(getattr(whole, name) - getattr(told, name), 0) for name in counts})


def total(usages: Iterable[Usage]) -> Usage:
    found = list(usages)
    result = found[0] if found else Usage()
    for usage in found[1:]:
        result = add(result, usage)
    return result


def by_model(usages: Iterable[Usage]) -> dict[str, Usage]:
    found: dict[str, Usage] = {}
    for usage in usages:
        found[usage.model] = add(found[usage.model], usage) if usage.model in found else usage
    return found
