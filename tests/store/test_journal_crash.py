"""The journal when its process is killed, its disk is full, or its log is torn."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchard.model.events.plans import PlanPaused
from orchard.model.plan import PlanId
from orchard.store.db import StoreError
from orchard.store.journal import Journal
from orchard.store.reader import read
from orchard.surfaces.next_steps import in_commands

PLAN = PlanId("p1")

# Eight coroutines append in rounds and print each number once it is durable.
WRITER = """
import asyncio, sys, time
from pathlib import Path
from msgspec.structs import replace
from orchard.core.views.documents import bare_summary
from orchard.model.events.plans import PlanPaused
from orchard.model.plan import PlanId
from orchard.store.journal import Journal
from orchard.store.plan_list import PlanRow

async def work(journal, worker):
    plan = PlanId(f"p{worker}")
    for number in range(int(sys.argv[2])):
        shown = replace(bare_summary(plan, "n", "running", 1.0), error=str(number))
        row = PlanRow(plan, "n", 1.0, 0, "running", False, shown)
        seq = journal.append(plan, PlanPaused(f"{worker}:{number}"), 1.0, row)
        await journal.durable(seq)
        sys.stdout.write(f"{seq} {worker}:{number}\\n")
        sys.stdout.flush()

async def main():
    with Journal.open(Path(sys.argv[1])) as journal:
        await asyncio.gather(*(work(journal, worker) for worker in range(8)))

asyncio.run(main())
"""


def acknowledged(lines: list[str]) -> dict[int, str]:
    whole = [line.split() for line in lines if line.endswith("\n")]
    return {int(seq): text for seq, text in whole}


def recorded(path: Path) -> dict[int, str]:
    with read(path) as reader:
        found = list(reader.events())
    assert [event.seq for event in found] == sorted({event.seq for event in found})
    return {event.seq: event.event.reason for event in found if isinstance(event.event, PlanPaused)}


def start(path: Path, rounds: int, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(rounds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )


def test_whatever_was_acknowledged_before_a_kill_is_there(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    known: dict[int, str] = {}
    for stop_after in (1, 9, 40, 101, 150, 300):
        with start(path, 100_000) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(stop_after)]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()

        told = acknowledged(lines)
        assert len(told) >= stop_after
        known |= told
        found = recorded(path)
        assert known.items() <= found.items()
        assert list(found) == list(range(1, len(found) + 1))


@pytest.mark.parametrize("place", ["journal.before-commit", "journal.after-commit"])
@pytest.mark.parametrize("nth", [1, 2, 7])
def test_a_death_beside_a_commit_keeps_batches_whole_and_acknowledged_events_safe(
    tmp_path: Path, place: str, nth: int
) -> None:
    path = tmp_path / "journal.db"

    with start(path, 100, ORCHARD_FAILPOINT=f"{place}:{nth}:kill") as writer:
        assert writer.stdout is not None
        told = acknowledged(writer.stdout.readlines())

    assert writer.wait(timeout=30) == -signal.SIGKILL
    found = recorded(path)
    assert told.items() <= found.items()
    assert list(found) == list(range(1, len(found) + 1))
    with read(path) as reader:
        newest = {text.split(":")[0]: text for text in found.values()}
        rows = {row.id.removeprefix("p"): f"{row.id[1:]}:{row.summary.error}" for row in reader.plans()}
    assert rows == newest
    with Journal.open(path) as journal:
        assert journal.append(PLAN, PlanPaused(), 1.0) == len(found) + 1


def test_a_torn_log_holds_whole_batches_only(tmp_path: Path) -> None:
    commits = [0]
    with Journal.open(tmp_path / "journal.db") as journal:
        journal.on_commit(commits.append)
        for size in (1, 40, 3, 300, 12):
            for _ in range(size):
                journal.append(PLAN, PlanPaused("x" * 200), 1.0)
            journal.flush()
        log = (tmp_path / "journal.db-wal").read_bytes()
        for number, length in enumerate(range(0, len(log) + 1, max(1, len(log) // 40))):
            copy = tmp_path / str(number)
            copy.mkdir()
            shutil.copyfile(tmp_path / "journal.db", copy / "journal.db")
            (copy / "journal.db-wal").write_bytes(log[:length])
            with read(copy / "journal.db") as reader:
                assert reader.last_seq() in commits
                assert len(list(reader.events())) == reader.last_seq()


SMALL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from orchard.model.events.plans import PlanPaused
from orchard.model.plan import PlanId
from orchard.store.journal import Journal, JournalFailed

async def main():
    journal = Journal.open(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    try:
        for number in range(100_000):
            seq = journal.append(PlanId("p"), PlanPaused("x" * 500), 1.0)
            await journal.durable(seq)
            print(seq, "durable")
    except JournalFailed as error:
        print("failed", error.message)
        try:
            journal.append(PlanId("p"), PlanPaused(), 1.0)
        except JournalFailed:
            print("refused")
    journal.close()

asyncio.run(main())
"""


def check_full_disk(path: Path, *limit: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SMALL_DISK, str(path), *limit], capture_output=True, text=True, timeout=120, check=False
    )
    *durable, failed, refused = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert failed.startswith("failed The journal can record nothing any more"), failed
    assert refused == "refused"
    assert {int(line.split()[0]) for line in durable} <= recorded(path).keys()


def test_a_file_that_may_not_grow_ends_the_journal_cleanly(tmp_path: Path) -> None:
    check_full_disk(tmp_path / "journal.db", "300000")

    with Journal.open(tmp_path / "journal.db") as journal:
        journal.append(PLAN, PlanPaused("there is space again"), 1.0)
        journal.flush()


def test_a_full_disk_ends_the_journal_cleanly(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], capture_output=True, timeout=30, check=False
    )
    if mount.returncode != 0:
        pytest.skip("only the superuser can make a small disk")
    try:
        check_full_disk(disk / "journal.db")
    finally:
        subprocess.run(["umount", str(disk)], timeout=30, check=True)


def test_two_readers_see_a_growing_prefix_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    ended = threading.Event()
    problems: list[str] = []

    def look() -> None:
        with read(path) as reader:
            before = 0
            while True:
                last_look = ended.is_set()
                numbers = [event.seq for event in reader.events()]
                if numbers != list(range(1, len(numbers) + 1)) or len(numbers) < before:
                    problems.append(f"{before} then {numbers[-3:]}")
                before = len(numbers)
                if last_look:
                    break
            if before != 1500:
                problems.append(f"the end has {before}")

    with Journal.open(path) as journal:
        readers = [threading.Thread(target=look) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(300):
                for _ in range(5):
                    journal.append(PLAN, PlanPaused(), 1.0)
                journal.flush()
        finally:
            ended.set()
        for reader in readers:
            reader.join(timeout=60)

    assert problems == []


def test_a_damaged_journal_is_named_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal.open(path) as journal:
        for _ in range(2000):
            journal.append(PLAN, PlanPaused("y" * 100), 1.0)
    content = bytearray(path.read_bytes())
    content[4096 : len(content) // 2] = b"\xa5" * (len(content) // 2 - 4096)
    path.write_bytes(content)

    with pytest.raises(StoreError, match="damaged") as caught, read(path) as reader:
        list(reader.events())

    assert in_commands(caught.value.hint or "").startswith("Move it away")
    assert path.read_bytes() == bytes(content)
