"""Failpoints do what the environment says, once, and nothing otherwise."""

import ast
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchard
from orchard.process.failpoint import FAILPOINTS, VARIABLE, BadFailpoint, failpoint, known, rearm

NAME = "journal.before-commit"


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    rearm(None)


def run_through(armed: str) -> subprocess.CompletedProcess[str]:
    script = (
        f"from orchard.process.failpoint import failpoint\nfor n in range(3): print(n, flush=True); failpoint({NAME!r})"
    )
    environment = {**os.environ, VARIABLE: armed}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=20, check=False
    )


@pytest.mark.parametrize(
    ("armed", "status", "passed"),
    [("1:kill", -9, 1), ("2:kill", -9, 2), ("3:exit", 70, 3), ("4:kill", 0, 3), ("2:sleep=0.01", 0, 3)],
)
def test_the_nth_time_through_a_failpoint_is_the_one_that_acts(armed: str, status: int, passed: int) -> None:
    done = run_through(f"{NAME}:{armed}")

    assert (done.returncode, done.stdout.split()) == (status, ["0", "1", "2"][:passed])


def test_several_failpoints_are_armed_at_once() -> None:
    done = run_through(f"journal.after-commit:1:kill, {NAME}:2:exit")

    assert (done.returncode, done.stdout.split()) == (70, ["0", "1"])


def test_an_error_is_an_input_output_error_and_comes_once() -> None:
    rearm(f"{NAME}:1:error")

    with pytest.raises(OSError, match=NAME) as raised:
        failpoint(NAME)
    failpoint(NAME)

    assert raised.value.errno == errno.EIO


def test_sleeping_takes_its_time() -> None:
    rearm(f"{NAME}:1:sleep=0.05")
    before = time.monotonic()

    failpoint(NAME)

    assert time.monotonic() - before >= 0.05


def test_nothing_happens_when_nothing_is_armed() -> None:
    rearm("")

    for name in known():
        failpoint(name)


def test_an_unlisted_name_is_a_mistake_in_the_code() -> None:
    rearm(f"{NAME}:1:kill")

    with pytest.raises(AssertionError, match=r"no\.such"):
        failpoint("no.such")


@pytest.mark.parametrize("text", ["no.such:1:kill", f"{NAME}:0:kill", f"{NAME}:x:kill", f"{NAME}:1:dance", NAME])
def test_a_mistake_in_the_variable_is_told(text: str) -> None:
    with pytest.raises(BadFailpoint, match=VARIABLE):
        rearm(text)


def test_every_call_in_the_code_uses_a_listed_name() -> None:
    used = set()
    for path in Path(orchard.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "failpoint":
                (name,) = node.args
                assert isinstance(name, ast.Constant), f"{path}: the name must be written out"
                used.add(name.value)

    assert used <= FAILPOINTS
