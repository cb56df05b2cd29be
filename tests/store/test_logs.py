"""Logs: where they lie, who may read them, and reading them in bounds."""

import asyncio
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, JobId, PlanId
from orchard.store.log_follower import Changes
from orchard.store.logs import Block, LogFiles, read, tail

PLAN = PlanId("01jq-plan")


def made(logs: LogFiles, plan: PlanId, job: str, phase: Phase = Phase.WORK) -> Path:
    return logs.make(logs.path(plan, JobId(job), 1, phase))


def test_a_log_lies_where_the_design_says(tmp_path: Path) -> None:
    logs = LogFiles(tmp_path)

    assert logs.path(PLAN, JobId("back/api"), 2, Phase.MERGE_FI) == tmp_path / "logs/01jq-plan/back/api/2/merge-fi.log"
    assert logs.evidence_path(PLAN, VALIDATION, 1) == tmp_path / f"logs/01jq-plan/{VALIDATION}/1/evidence.json"


@pytest.mark.parametrize("job", ["..", "a/../b", "/etc", "a//b", "", ".", "a/.hidden", "A", "a\n", "a/b\0", "-x"])
def test_an_id_that_could_leave_the_folder_is_refused(tmp_path: Path, job: str) -> None:
    with pytest.raises(AssertionError):
        LogFiles(tmp_path).path(PLAN, JobId(job), 1, Phase.WORK)
    with pytest.raises(AssertionError):
        LogFiles(tmp_path).remove(PlanId(job if job != "A" else "../A"))


def test_folders_and_files_are_the_users_alone(tmp_path: Path) -> None:
    path = made(LogFiles(tmp_path / "state"), PLAN, "a/b")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    folders = [folder for folder in path.parents if folder.is_relative_to(tmp_path / "state" / "logs")]
    assert len(folders) == 5
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_creating_again_keeps_what_was_written_and_a_link_is_refused(tmp_path: Path) -> None:
    logs = LogFiles(tmp_path)
    path = made(logs, PLAN, "a")
    path.write_bytes(b"kept")
    link = logs.path(PLAN, JobId("a"), 1, Phase.SETUP)
    link.symlink_to(tmp_path / "elsewhere")

    assert made(logs, PLAN, "a").read_bytes() == b"kept"
    with pytest.raises(OSError, match="symbolic"):
        made(logs, PLAN, "a", Phase.SETUP)


def test_a_log_is_read_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")

    first = read(path, 0, 4)
    rest = read(path, first.next_offset, 100)

    assert (first.data, first.next_offset, first.size) == (b"0123", 4, 10)
    assert (rest.data, rest.offset, rest.next_offset) == (b"456789", 4, 10)
    assert read(path, 10).data == b""
    assert read(path, 99).next_offset == 10
    assert read(tmp_path / "missing", 0).size == 0


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    (tmp_path / "secret").write_bytes(b"not yours")
    if kind == "link":
        path.symlink_to(tmp_path / "secret")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()

    assert read(path).data == b""
    assert tail(path) == ""


@pytest.mark.parametrize(
    ("content", "lines", "shown"),
    [
        (b"", 40, ""),
        (b"a\nb\nc\n", 2, "b\nc"),
        (b"a\nb\nc", 2, "b\nc"),
        (b"a\nb\n", 0, ""),
        (b"bad \xff byte\n", 1, "bad \ufffd byte"),
        (b"cut off\nlast one\n" + b"z" * 95, 40, "z" * 95),
        (b"x" * 1000, 40, "x" * 100),
    ],
)
def test_the_end_of_a_log_is_bounded(tmp_path: Path, content: bytes, lines: int, shown: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)

    assert tail(path, lines, max_bytes=100) == shown


def test_removing_the_logs_of_a_plan_follows_no_link(tmp_path: Path) -> None:
    logs = LogFiles(tmp_path / "state")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("here")
    path = made(logs, PLAN, "a")
    (path.parent / "link").symlink_to(outside)
    kept = made(logs, PlanId("other"), "a")
    (tmp_path / "state" / "logs" / "linked").symlink_to(outside)

    for plan in (PLAN, PlanId("linked"), PlanId("never-there")):
        logs.remove(plan)

    assert (outside / "precious").exists()
    assert kept.exists()
    assert [path.name for path in (tmp_path / "state" / "logs").iterdir()] == ["other"]


# ----------------------------------------------------------------------------------- following


async def follow(path: Path, offset: int, ended: asyncio.Event | Callable[[], bool]) -> AsyncIterator[Block]:
    """The blocks of a log from `offset` on, as they are written, until `ended` says so and all was handed out."""
    changes = Changes(path)
    told = asyncio.ensure_future(_tell(ended, changes)) if isinstance(ended, asyncio.Event) else None
    try:
        while True:
            last_look = ended.is_set() if isinstance(ended, asyncio.Event) else ended()
            while (block := read(path, offset)).data:
                yield block
                offset = block.next_offset
            if last_look:
                return
            await changes.wait()
    finally:
        if told is not None:
            told.cancel()
        changes.close()


async def _tell(ended: asyncio.Event, changes: Changes) -> None:
    await ended.wait()
    changes.wake()


async def gather(path: Path, ended: asyncio.Event, enough: int | None = None) -> bytes:
    found = b""
    async for block in follow(path, 0, ended):
        assert block.offset == len(found)
        found += block.data
        if enough is not None and len(found) >= enough:
            ended.set()
    return found


def run_into(path: Path, script: str) -> None:
    with path.open("wb") as log:
        subprocess.run([sys.executable, "-c", script], stdout=log, timeout=60, check=True)


@pytest.mark.anyio
async def test_a_log_is_followed_from_before_its_folder_exists(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "work.log"
    ended = asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        following = group.create_task(gather(path, ended, enough=9))
        for step in (path.parent.parent.mkdir, path.parent.mkdir, lambda: path.write_bytes(b"one")):
            await asyncio.sleep(0.02)
            step()
        for text in (b"two", b"six"):
            await asyncio.sleep(0.02)
            with path.open("ab") as log:
                log.write(text)

    assert following.result() == b"onetwosix"


@pytest.mark.anyio
async def test_following_hands_out_everything_of_another_process_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "work.log"
    ended = asyncio.Event()
    script = "import sys\nfor n in range(20000): sys.stdout.write(f'line {n}\\n')"
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        following = group.create_task(gather(path, ended))
        await asyncio.to_thread(run_into, path, script)
        ended.set()

    assert following.result() == b"".join(b"line %d\n" % number for number in range(20000))


@pytest.mark.anyio
async def test_a_function_can_say_when_to_end(tmp_path: Path) -> None:
    path = tmp_path / "work.log"
    path.write_bytes(b"all")

    async with asyncio.timeout(30):
        blocks = [block.data async for block in follow(path, 1, lambda: True)]

    assert blocks == [b"ll"]


@pytest.mark.anyio
async def test_a_change_wakes_at_once_and_silence_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "work.log"
    path.write_bytes(b"")
    changes = Changes(path)
    if changes.by_timer:
        pytest.skip("this system does not tell of changes")
    try:
        used = time.process_time()
        await changes.wait(0.3)
        used = time.process_time() - used
        path.write_bytes(b"more")
        async with asyncio.timeout(10):
            await changes.wait(1000)
    finally:
        changes.close()

    assert used < 0.1


@pytest.mark.anyio
async def test_a_follower_that_is_dropped_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(list(Path("/dev/fd").iterdir()))
    following = follow(tmp_path / "work.log", 0, asyncio.Event())
    waiting = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0.02)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await following.aclose()  # type: ignore[attr-defined]

    assert len(list(Path("/dev/fd").iterdir())) == before
