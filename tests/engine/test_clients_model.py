"""Several requests about one plan in the same moment, in any order: what was answered holds, and nothing hangs.

`clients.py` holds what can happen and what must hold, `planted.py` the bugs that must be found. ORCHARD_SEED repeats a
run.
"""

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from orchard.core.states import IllegalTransition
from tests.core.planted import assert_fits
from tests.engine.clients import ClientsMachine
from tests.engine.planted import BUGS, REAL, Asked, modules_with

STEPS = 10
EXAMPLES = 60
MOST = 2000
SAMPLE = 1


def search(modules: Asked, examples: int, steps: int, number: int, *, shrink: bool) -> None:
    """Look for an order of requests in which something that was answered does not hold."""
    machine = type("ClientsModel", (ClientsMachine,), {"modules": modules})
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(machine), settings=limits)


def chosen_seed() -> int:
    number = int(os.environ.get("ORCHARD_SEED", random.randrange(10**9)))
    print(f"ORCHARD_SEED={number}")
    return number


def test_what_one_client_was_answered_no_other_undoes() -> None:
    search(REAL, EXAMPLES, STEPS, chosen_seed(), shrink=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_what_one_client_was_answered_no_other_undoes_for_long(part: int) -> None:
    search(REAL, MOST, 2 * STEPS, chosen_seed() + part, shrink=True)


def assert_found(name: str) -> None:
    """The first failure ends the search."""
    with pytest.raises((AssertionError, IllegalTransition, KeyError)) as found:
        search(modules_with(BUGS[name]), MOST, STEPS, int(os.environ.get("ORCHARD_SEED", "1")), shrink=False)
    print(f"{name}: {str(found.value)[:300]}")


def test_every_planted_bug_fits_the_source() -> None:
    for bug in BUGS.values():
        assert_fits(bug)


def test_some_of_the_planted_bugs_are_found() -> None:
    for name in random.Random(chosen_seed()).sample(sorted(BUGS), SAMPLE):
        assert_found(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_the_planted_bug_is_found(name: str) -> None:
    assert_found(name)
