"""Which wall works is found by building it, and the reason is told where it does not."""

from pathlib import Path

import pytest

from orchard.process.sandbox import level
from orchard.process.sandbox.bwrap import bwrap_program
from orchard.process.sandbox.level import Finding, Walls, choose, try_bwrap, try_landlock, walls
from orchard.process.sandbox.policy import SandboxError

WORKS = Walls((Finding("bwrap", True), Finding("landlock", True)))
WEAKER = Walls((Finding("bwrap", False, "No room."), Finding("landlock", True)))
NONE = Walls((Finding("bwrap", False, "No room."), Finding("landlock", False, "Too old.")))


def script(folder: Path, text: str) -> Path:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


@pytest.mark.skipif(bwrap_program() is None, reason="bubblewrap is not installed")
def test_both_walls_are_found_on_this_machine() -> None:
    assert [finding.level for finding in walls().findings if finding.works] == ["bwrap", "landlock"]


def test_a_program_that_is_not_there_is_told() -> None:
    assert try_bwrap(None).reason == "The program 'bwrap' is not installed."


def test_the_words_of_one_that_refuses_are_told(tmp_path: Path) -> None:
    refusing = script(tmp_path, "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")

    found = try_bwrap(refusing)

    assert (found.works, found.reason) == (False, "bwrap: setting up uid map: Permission denied")


def test_one_that_starts_the_program_without_a_wall_is_found_out(tmp_path: Path) -> None:
    careless = script(tmp_path, 'shift 3; exec "$@"')

    found = try_bwrap(careless)

    assert (found.works, found.reason) == (False, "A trial came through: the profile does not hold here.")


def test_one_that_cannot_be_executed_is_told(tmp_path: Path) -> None:
    program = script(tmp_path, "")
    program.chmod(0o644)

    assert try_bwrap(program).reason == "It could not be started: Permission denied."


def test_a_program_is_started_behind_landlock() -> None:
    assert try_landlock() == Finding("landlock", True)


def test_auto_takes_the_strongest_and_never_none() -> None:
    assert WORKS.choose("auto") == "bwrap"
    assert WEAKER.choose("auto") == "landlock"
    with pytest.raises(SandboxError, match=r"bwrap: No room\. landlock: Too old\."):
        NONE.choose("auto")


def test_a_level_by_name_is_that_one_or_an_error() -> None:
    assert WORKS.choose("landlock") == "landlock"
    assert NONE.choose("off") == "off"
    with pytest.raises(SandboxError, match=r"machine\. bwrap: No room\.$"):
        WEAKER.choose("bwrap")


def test_no_wall_is_tried_that_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def found(wanted: str) -> Finding:
        tried.append(wanted)
        return next(finding for finding in WORKS.findings if finding.level == wanted)

    monkeypatch.setattr(level, "found", found)

    assert [choose("off"), choose("landlock"), choose("auto"), choose("bwrap")] == ["off", "landlock", "bwrap", "bwrap"]
    assert tried == ["landlock", "bwrap", "bwrap"]


def test_what_works_is_tried_again_once_bubblewrap_comes_and_after_nothing_worked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[Path | None] = []

    def try_bwrap(program: Path | None) -> Finding:
        tried.append(program)
        return Finding("bwrap", program is not None)

    level._tried.cache_clear()
    monkeypatch.setattr(level, "try_bwrap", try_bwrap)
    monkeypatch.setattr(level, "try_landlock", lambda: Finding("landlock", False))
    monkeypatch.setattr(level, "bwrap_program", lambda: None)
    try:
        for _ in range(2):
            with pytest.raises(SandboxError):
                choose("auto")
        monkeypatch.setattr(level, "bwrap_program", lambda: tmp_path)
        assert choose("auto") == choose("auto") == "bwrap"
    finally:
        level._tried.cache_clear()
    assert tried == [None, None, tmp_path]


def test_bubblewrap_without_the_program_that_enters_a_network_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    finding = level.try_bwrap(Path("/usr/bin/bwrap"))

    assert not finding.works and "nsenter" in finding.reason
