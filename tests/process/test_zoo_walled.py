"""Every kind of program behind each wall that works here, ended in every way: nothing of it is left."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import anyio
import pytest

from orchard.model.limits import Limits
from orchard.process.families.family import members
from orchard.process.families.orphans import adopted, become_subreaper
from orchard.process.program import run_program
from orchard.process.sandbox.level import walls
from tests.process.test_zoo import BOUND, assert_canceled, ending, lasting
from tests.process.zoo import GRACE, Animal, nap, shell, survivors, until_ready, walled

pytestmark = pytest.mark.anyio

Level = Literal["bwrap", "landlock"]
LEVELS = [finding.level for finding in walls().findings if finding.works]
NO_TERMINALS = ("terminal of its own", "landlock")
"""Landlock cannot tell the terminals of a program from the user's, so it opens none."""


def inhabitants(animals: list[Animal]) -> pytest.MarkDecorator:
    rows = [(animal, level) for animal in animals for level in LEVELS if (animal.name, level) != NO_TERMINALS]
    return pytest.mark.parametrize(("animal", "level"), rows, ids=[f"{row[0].name}-{row[1]}" for row in rows])


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    assert become_subreaper()
    yield
    assert adopted(known=()) == []


@inhabitants(ending)
async def test_a_program_that_ends_behind_a_wall_leaves_nothing(animal: Animal, level: Level, tmp_path: Path) -> None:
    number = nap()
    launch = walled(shell(tmp_path, animal.script, None, NAP=number, HOLD=":", **animal.env), level)

    with anyio.fail_after(BOUND):
        ended = await run_program(launch)

    # The first process behind bubblewrap is not the program, and says 128 and more where that died by a signal.
    told = ("exit", 137) if animal.ends[0] == "signal" and level == "bwrap" else animal.ends
    assert (ended.reason, ended.exit_code) == told, ended
    assert animal.wrote(launch.log)
    assert survivors(number) == []
    assert members(launch.token, None, launch.log) == []


@inhabitants(lasting)
async def test_a_program_that_is_canceled_behind_a_wall_leaves_nothing(
    animal: Animal, level: Level, tmp_path: Path
) -> None:
    number = nap()
    env = {"NAP": number, "HOLD": f"sleep {number}", **animal.env}
    launch = walled(shell(tmp_path, animal.script, None, **env), level)
    running = asyncio.ensure_future(run_program(launch))
    await until_ready(launch)

    running.cancel()
    await assert_canceled(running)

    assert survivors(number) == []
    assert members(launch.token, None, launch.log) == []


@pytest.mark.slow
@inhabitants(lasting)
async def test_a_program_that_takes_too_long_behind_a_wall_leaves_nothing(
    animal: Animal, level: Level, tmp_path: Path
) -> None:
    number = nap()
    env = {"NAP": number, "HOLD": f"sleep {number}", **animal.env}
    limits = Limits(wall=0.25, grace=GRACE)
    launch = walled(shell(tmp_path, animal.script, limits, **env), level)

    with anyio.fail_after(0.25 + BOUND):
        ended = await run_program(launch)

    assert (ended.reason, ended.ok) == ("timeout", False), ended
    assert survivors(number) == []
    assert members(launch.token, None, launch.log) == []
