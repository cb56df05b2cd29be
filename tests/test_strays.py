"""The check after each module of tests: what it left running is named and ended, with what that has started."""

import subprocess

import pytest

from orchard.process.families.identity import identify, is_alive
from orchard.process.families.orphans import become_subreaper
from tests import strays


def test_a_program_that_was_left_is_named_and_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    assert become_subreaper()
    monkeypatch.setattr(strays, "LEAVES", 0.1)
    left = subprocess.Popen(
        ["sh", "-c", "sleep 61 & echo $!; wait"], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert left.stdout is not None
    child = identify(int(left.stdout.readline()))
    left.stdout.close()
    assert child is not None

    named = strays.end_strays()

    assert [line.split(" (in")[0].partition(": ")[2] for line in named] == [
        "sh -c sleep 61 & echo $!; wait",
        "sleep 61",
    ]
    assert not is_alive(child) and strays.end_strays() == []
    left.returncode = 0  # it is buried already
