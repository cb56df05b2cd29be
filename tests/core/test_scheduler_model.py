"""Any plans, any order of events, any crash: what the core decides is what the plain model says.

`model.py` holds the rules in the plainest form, `machine.py` what can happen, `planted.py` the bugs that
must be found. ORCHARD_SEED repeats a run. A failure is written to the folder that ORCHARD_EVIDENCE names.
"""

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.core.machine_workers import WorkerMachine
from tests.core.planted import BUGS, REAL, Core, assert_fits, core_with
from tests.examples import share_of

STEPS = 30
EXAMPLES = 300
SAMPLE = 3


def search(core: Core, examples: int, steps: int, number: int, *, shrink: bool) -> None:
    """Look for a sequence of steps after which core and model differ."""
    machine = type("SchedulerModel", (WorkerMachine,), {"core": core})
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=phases,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(machine), settings=limits)


def chosen_seed() -> int:
    number = int(os.environ.get("ORCHARD_SEED", random.randrange(10**9)))
    print(f"ORCHARD_SEED={number}")
    return number


def search_the_core(examples: int, steps: int, number: int, folder: Path) -> None:
    """Search the real core; what is needed to see a failure again is written down."""
    try:
        search(REAL, examples, steps, number, shrink=True)
    except Exception as error:
        folder = Path(os.environ.get("ORCHARD_EVIDENCE", folder))
        folder.mkdir(parents=True, exist_ok=True)
        story = folder / f"scheduler-model-{number}.txt"
        notes = "\n".join(getattr(error, "__notes__", []))
        story.write_text(f"ORCHARD_SEED={number} examples={examples} steps={steps}\n{error!r}\n{notes}\n")
        error.add_note(f"ORCHARD_SEED={number} repeats this; the steps are in {story}")
        raise


def test_the_core_decides_as_the_model_says(tmp_path: Path) -> None:
    search_the_core(share_of(EXAMPLES), STEPS, chosen_seed(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_the_core_decides_as_the_model_says_for_long(part: int, tmp_path: Path) -> None:
    search_the_core(500, 60, chosen_seed() + part, tmp_path)


def assert_found(name: str) -> None:
    """With fewer examples than the real core is given; the first failure ends the search."""
    core = core_with(BUGS[name])
    with pytest.raises((AssertionError, core.states.IllegalTransition)) as found:
        search(core, 3 * EXAMPLES, STEPS, int(os.environ.get("ORCHARD_SEED", "1")), shrink=False)
    print(f"{name}: {str(found.value)[:300]}")


def test_every_planted_bug_fits_the_source() -> None:
    for bug in BUGS.values():
        assert_fits(bug)


def test_the_model_finds_some_of_the_planted_bugs() -> None:
    for name in random.Random(chosen_seed()).sample(sorted(BUGS), SAMPLE):
        assert_found(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_the_model_finds_the_planted_bug(name: str) -> None:
    assert_found(name)
