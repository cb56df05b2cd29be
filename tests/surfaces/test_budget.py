"""A budget on the command line: what it means, and what is refused."""

import pytest

from orchard.errors import UsageError
from orchard.surfaces.cli.action import read_budget


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("tokens=500000", {"tokens": 500000}),
        ("tokens=2_000_000, cost=2.5", {"tokens": 2_000_000, "cost": 2.5}),
        ("minutes=90,cost=10", {"minutes": 90.0, "cost": 10.0}),
    ],
)
def test_a_budget_is_read(given: str, meant: dict[str, float]) -> None:
    assert read_budget(given) == meant


@pytest.mark.parametrize(
    "given",
    [
        "",
        "tokens",
        "tokens=",
        "tokens=0",
        "tokens=-5",
        "tokens=1.5",
        "cost=nan",
        "cost=inf",
        "euros=5",
        "cost=1,cost=2",
    ],
)
def test_what_is_no_budget_is_refused_with_an_example_or_the_rule(given: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_budget(given)

    assert refused.value.hint
