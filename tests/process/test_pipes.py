"""A program can be talked with while it runs, whatever it writes and however it ends."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from orchard.model.limits import Limits
from orchard.process import pipes
from orchard.process.pipes import Converse, Pipes
from orchard.process.program import Ended, Launch, run_program

pytestmark = pytest.mark.anyio


async def talk(tmp_path: Path, program: str, converse: Converse, **limits: float | int) -> Ended:
    launch = Launch(
        argv=(sys.executable, "-c", program),
        cwd=tmp_path,
        env=dict(os.environ),
        log=tmp_path / "log",
        token=f"test-{tmp_path.name}-{time.monotonic_ns()}",
        limits=Limits(**{"grace": 2.0, **limits}),  # type: ignore[arg-type]
        pipes=True,
    )
    async with asyncio.timeout(30):
        return await run_program(launch, converse=converse)


def collecting(lines: list[bytes], said: bytes = b"") -> Converse:
    async def converse(ends: Pipes) -> None:
        if said:
            await ends.write(said)
        ends.close_input()
        async for line in ends.lines():
            lines.append(line)

    return converse


async def test_what_is_written_is_heard_line_by_line_and_what_is_said_arrives(tmp_path: Path) -> None:
    lines: list[bytes] = []
    program = "import sys; print(sys.stdin.read().upper()); print('two'); print('err', file=sys.stderr); sys.exit(3)"

    ended = await talk(tmp_path, program, collecting(lines, b"hello"))

    assert lines == [b"HELLO", b"two"]
    assert (ended.reason, ended.exit_code) == ("exit", 3)
    assert (tmp_path / "log").read_text() == "err\n"


async def test_a_last_line_without_an_end_and_lines_over_many_blocks_are_whole(tmp_path: Path) -> None:
    lines: list[bytes] = []
    program = "import sys; sys.stdout.write('x' * 1_000_000 + '\\n' + 'y' * 300_000)"

    await talk(tmp_path, program, collecting(lines))

    assert [(line[:1], len(line)) for line in lines] == [(b"x", 1_000_000), (b"y", 300_000)]


async def test_a_line_that_is_too_long_is_left_out_and_the_next_one_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "LONGEST_LINE", 1000)
    lines: list[bytes] = []

    await talk(tmp_path, "print('a'); print('x' * 3_000_000); print('b')", collecting(lines))

    assert lines == [b"a", b"b"]


async def test_more_output_than_allowed_ends_it_with_the_reason(tmp_path: Path) -> None:
    ended = await talk(
        tmp_path, "import sys\nwhile True: sys.stdout.write('x' * 65536)", collecting([]), log_bytes=1_000_000
    )

    assert ended.reason == "output-limit"


async def test_a_program_that_goes_on_after_all_is_said_is_ended_after_its_grace(tmp_path: Path) -> None:
    async def converse(ends: Pipes) -> None:
        await ends.read()

    began = time.monotonic()
    ended = await talk(tmp_path, "import time; print('ready', flush=True); time.sleep(60)", converse, grace=0.3)

    assert time.monotonic() - began < 10
    assert ended.reason == "signal"


async def test_a_program_that_reads_nothing_can_be_told_much_without_waiting_for_it(tmp_path: Path) -> None:
    lines: list[bytes] = []

    ended = await talk(tmp_path, "import os, sys; os.close(0); print('done')", collecting(lines, b"x" * 5_000_000))

    assert lines == [b"done"]
    assert ended.ok


async def test_cancelling_ends_the_program_and_the_conversation(tmp_path: Path) -> None:
    heard = asyncio.Event()

    async def converse(ends: Pipes) -> None:
        await ends.read()
        heard.set()
        await ends.read()

    running = asyncio.ensure_future(talk(tmp_path, "import time; print('ready', flush=True); time.sleep(60)", converse))
    await heard.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("ticks", range(1, 6))
async def test_cancelling_before_the_conversation_begins_ends_the_program_too(tmp_path: Path, ticks: int) -> None:
    program = "import pathlib, time; time.sleep(1); pathlib.Path('late').touch(); time.sleep(60)"
    running = asyncio.ensure_future(talk(tmp_path, program, collecting([])))
    for _ in range(ticks):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await asyncio.sleep(1.5)

    assert not (tmp_path / "late").exists()


async def test_an_error_in_the_conversation_is_raised_after_the_program_is_gone(tmp_path: Path) -> None:
    async def converse(ends: Pipes) -> None:
        raise RuntimeError("confused")

    with pytest.raises(RuntimeError, match="confused"):
        await talk(tmp_path, "import time; time.sleep(60)", converse)


async def test_what_a_background_child_still_writes_is_heard(tmp_path: Path) -> None:
    lines: list[bytes] = []
    program = "import subprocess; subprocess.Popen('sleep 0.2; echo late', shell=True); print('first', flush=True)"

    ended = await talk(tmp_path, program, collecting(lines))

    assert lines == [b"first", b"late"]
    assert ended.ok
