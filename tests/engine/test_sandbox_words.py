"""What a person is told of the sandbox before anything runs: places that are not there, limits, and the level."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchard.config.places import missing_places
from orchard.model.sandbox import Sandbox
from orchard.process.sandbox.level import walls
from tests.acceptance.program import Desk

WALL = next(finding.level for finding in walls().findings if finding.works)
PLAN = "name: n\njobs:\n  - {id: a, work: touch a}\n"
GONE: dict[str, Any] = {
    "ORCHARD_SANDBOX": "auto",
    "ORCHARD_SANDBOX_EXPOSE": "~/gone",
    "ORCHARD_SANDBOX_WRITE": "~/file",
}
TOLD = ("sandbox.expose names '~/gone', which is not there", "sandbox.write names '~/file', which is no folder")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "desk")
    (desk.folder / "file").touch()
    yield desk
    desk.close()


@pytest.mark.parametrize("words", ["run", "validate", "doctor"])
def test_a_place_that_is_opened_and_not_there_is_told_once(desk: Desk, words: str) -> None:
    said = desk(words, *([desk.plan(PLAN)] if words != "doctor" else []), **GONE)

    assert [(said.out + said.err).count(told) for told in TOLD] == [1, 1]


def test_places_that_are_there_need_no_word_and_without_a_wall_none_does(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert missing_places(Sandbox(expose=("~/there",), write=("~/there", str(tmp_path))), tmp_path) == []
    assert missing_places(Sandbox(level="off", expose=("~/gone",)), tmp_path) == []
    assert len(missing_places(Sandbox(expose=("~/gone", "/nowhere")), tmp_path)) == 2


def test_doctor_names_limits_that_hold_those_that_do_not_and_in_one_line_those_that_nobody_set(desk: Desk) -> None:
    said = desk("doctor", ORCHARD_SANDBOX="auto", ORCHARD_SANDBOX_FILES="64", ORCHARD_SANDBOX_MEMORY="512MiB").out

    assert "Open files: at most 64 for each process." in said and "Memory: at most 512 MiB" in said
    assert "no limit where you set none: sandbox.processes, sandbox.disk." in said
    assert "no limit is set." not in said


@pytest.mark.parametrize(("asked", "told"), [("auto", f"sandbox {WALL}"), ("off", "sandbox off")])
def test_a_rehearsal_names_the_level(desk: Desk, asked: str, told: str) -> None:
    plan = desk.plan(PLAN)
    first = desk("run", "--dry-run", plan, ORCHARD_SANDBOX=asked)
    assert first.code == 0 and told in first.out.splitlines()[0]
    document = desk("run", "--dry-run", plan, "--json", ORCHARD_SANDBOX=asked).json
    assert document["sandbox"] == told.removeprefix("sandbox ")
