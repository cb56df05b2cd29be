"""What a family uses, told in rows that are safe to show."""

import asyncio
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from orchard.process.families.identity import Identity
from orchard.process.families.usage import family_usage
from orchard.process.program import run_program
from orchard.text import one_line
from tests.process.zoo import nap, shell, until, until_ready

pytestmark = pytest.mark.anyio


async def test_rows_show_the_tree_and_shares_follow_from_two_samples(tmp_path: Path) -> None:
    leaders: list[Identity] = []

    async def note(identity: Identity) -> None:
        leaders.append(identity)

    launch = shell(tmp_path, "setsid sleep $NAP & echo READY; while :; do :; done", NAP=nap())
    running = asyncio.ensure_future(run_program(launch, on_start=note))
    await until_ready(launch)
    await until(lambda: "sleep" in {row.name for row in family_usage(launch.token, leaders[0], launch.log)})

    first = family_usage(launch.token, leaders[0], launch.log)
    earlier = [replace(row, sampled=row.sampled - 1, cpu_seconds=row.cpu_seconds - 0.5) for row in first]
    second = family_usage(launch.token, leaders[0], launch.log, earlier=earlier)
    running.cancel()
    with anyio.fail_after(10):
        await asyncio.wait({running})

    leader, child = second
    assert (leader.pid, child.parent) == (leaders[0].pid, leaders[0].pid)
    assert (child.name, child.rss > 0) == ("sleep", True)
    assert [row.cpu_percent for row in first] == [None, None]
    assert leader.cpu_percent is not None
    assert leader.cpu_percent > 10
    assert family_usage(launch.token, leaders[0], launch.log) == []


async def test_a_hostile_command_line_is_made_harmless(tmp_path: Path) -> None:
    launch = shell(tmp_path, "")
    evil = "\x1b]0;owned\x07\nFAKE \x9b31m" + "x" * 5000
    launch = replace(launch, argv=("sh", "-c", "echo READY; sleep 600; :", evil))
    running = asyncio.ensure_future(run_program(launch))
    await until_ready(launch)

    rows = family_usage(launch.token, None, launch.log)
    running.cancel()
    await asyncio.wait({running}, timeout=10)

    shell_row = next(row for row in rows if "FAKE" in row.command)
    assert shell_row.command.isprintable()
    assert len(shell_row.command) <= 200


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\x1b[0mb\n", "a [0mb "), ("\udcff", " "), ("x" * 9, "xxxx…"), ("grün", "grün"), ("a\u202eb", "a b")],
)
async def test_plain_text_is_one_printable_line(text: str, shown: str) -> None:
    assert one_line(text, 5) == shown or one_line(text) == shown
