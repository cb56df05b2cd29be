"""Slots over several real processes: never more than there are, and none lost with a dead holder."""

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from orchard.process.families.identity import identify
from orchard.store.slots import Slots

ME = identify(os.getpid())
assert ME is not None


@pytest.fixture
def runtime() -> Iterator[Path]:
    with TemporaryDirectory(prefix="os", dir="/tmp") as folder:  # short: a socket's path may have 100 bytes
        yield Path(folder)


def test_there_are_as_many_as_the_limit_says(tmp_path: Path) -> None:
    with closing(Slots.open(tmp_path / "slots.db", 3)) as slots, closing(Slots.open(tmp_path / "slots.db", 3)) as other:
        assert [slots.acquire(), slots.acquire(), other.acquire()] == [True] * 3
        assert [slots.acquire(), other.acquire()] == [False] * 2
        assert slots.count() == 3

        other.release()
        other.drain()

        assert slots.acquire()
    assert stat.S_IMODE((tmp_path / "slots.db").stat().st_mode) == 0o600


def test_several_leases_are_taken_as_far_as_they_go(tmp_path: Path) -> None:
    assert ME is not None
    with closing(Slots.open(tmp_path / "slots.db", 3)) as slots:
        assert len(slots.try_take(ME, 5)) == 3
        assert slots.try_take(ME) == []


def test_a_lease_is_kept_for_the_next_job_until_the_engine_is_idle(tmp_path: Path) -> None:
    with closing(Slots.open(tmp_path / "slots.db", 2)) as slots, closing(Slots.open(tmp_path / "slots.db", 2)) as other:
        assert slots.acquire()
        assert slots.acquire()
        slots.release()
        assert not other.acquire()
        assert slots.acquire()
        slots.release()

        slots.drain()

        assert other.acquire()
        assert slots.count() == 2


def test_without_a_limit_nothing_is_counted_and_no_file_is_made(tmp_path: Path) -> None:
    with closing(Slots.open(tmp_path / "slots.db", 0)) as slots:
        assert all(slots.acquire() for _ in range(100))
        for _ in range(100):
            slots.release()

    assert list(tmp_path.iterdir()) == []


def test_a_lease_of_a_live_process_is_never_taken_but_one_of_a_reused_pid_is(tmp_path: Path) -> None:
    assert ME is not None
    with closing(Slots.open(tmp_path / "slots.db", 1)) as slots:
        [mine] = slots.try_take(ME)
        assert slots.try_take(ME) == []
        slots.free(mine)

        slots.try_take(replace(ME, started=ME.started - 1))
        assert len(slots.try_take(replace(ME, boot="the boot before"))) == 1
        assert len(slots.try_take(ME)) == 1
        assert slots.count() == 1


HOLDER = """
import sys, time
from pathlib import Path
from orchard.store.slots import Slots
slots = Slots.open(Path(sys.argv[1]), 1)
print(slots.acquire(), flush=True)
time.sleep(600)
"""


def test_a_killed_holder_gives_its_lease_back(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "slots.db")], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        with closing(Slots.open(tmp_path / "slots.db", 1)) as slots:
            while_alive = slots.acquire()
            holder.send_signal(signal.SIGKILL)
            holder.wait(timeout=30)

            assert not while_alive
            assert slots.acquire()


# Each takes a slot 40 times and, while it has one, holds one of as many lock files as there are slots:
# finding none free means that more slots were out than there are.
WORKER = """
import asyncio, fcntl, os, sys
from pathlib import Path
from orchard.store.slots import Slots
folder, total = Path(sys.argv[1]), 2

async def main():
    slots = Slots.open(folder / "slots.db", total, runtime=Path(sys.argv[2]))
    for number in range(40):
        while not slots.acquire():
            await slots.wait_free()
        for place in range(total):
            file = os.open(folder / f"place-{place}", os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                os.close(file)
        else:
            print("more than there are")
            sys.exit(1)
        await asyncio.sleep(0.002)
        os.close(file)
        slots.release()
        if number % 3 == 0:
            slots.drain()
    slots.drain()
    assert slots.warning is None, slots.warning
    slots.close()

asyncio.run(main())
"""


def test_never_more_than_the_limit_are_out_at_once(tmp_path: Path, runtime: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path), str(runtime)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    os.kill(workers[0].pid, signal.SIGKILL)

    said = [worker.communicate(timeout=120)[0] for worker in workers]

    assert said == [""] * 5
    assert [worker.returncode for worker in workers] == [-signal.SIGKILL, 0, 0, 0, 0]


@pytest.mark.anyio
async def test_one_who_waits_is_woken_by_another_who_frees(tmp_path: Path, runtime: Path) -> None:
    other, slots = (Slots.open(tmp_path / "slots.db", 1, runtime) for _ in range(2))
    with closing(other), closing(slots):
        assert other.acquire()
        assert not slots.acquire()
        other.release()
        other.drain()  # before the wait begins: the byte must not be lost
        async with asyncio.timeout(30):
            await slots.wait_free(longest=1000)
        assert slots.acquire()

        assert not other.acquire()
        waiting = asyncio.ensure_future(other.wait_free(longest=1000))
        await asyncio.sleep(0)
        slots.release()
        slots.drain()
        async with asyncio.timeout(30):
            await waiting
        assert other.acquire()
    assert list(runtime.iterdir()) == []


@pytest.mark.anyio
async def test_one_who_waits_is_woken_by_a_job_of_its_own_and_by_the_timer(tmp_path: Path) -> None:
    with closing(Slots.open(tmp_path / "slots.db", 1)) as slots:
        assert slots.acquire()
        assert not slots.acquire()
        async with asyncio.timeout(30):
            await slots.wait_free(longest=0.01)
            waiting = asyncio.ensure_future(slots.wait_free(longest=1000))
            await asyncio.sleep(0)
            slots.release()
            await waiting
        assert slots.acquire()


@pytest.mark.parametrize("harm", ["folder", "unreachable"])
def test_a_file_that_cannot_be_used_is_left_alone_and_each_counts_for_itself(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "slots.db"
    if harm == "folder":
        path.mkdir()
    else:
        (tmp_path / "file").write_bytes(b"")
        path = tmp_path / "file" / "slots.db"

    with closing(Slots.open(path, 2)) as slots:
        assert [slots.acquire() for _ in range(3)] == [True, True, False]
        slots.release()
        assert slots.acquire()
        assert slots.warning is not None
        assert "counts its own jobs" in slots.warning


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_set_aside_told_and_made_anew_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "slots.db"
    path.write_bytes(content)

    with ThreadPoolExecutor(8) as threads, ExitStack() as stack:
        opened = [stack.enter_context(closing(one)) for one in threads.map(lambda _: Slots.open(path, 2), range(8))]
        taken = [slots.acquire() for slots in opened]
        told = [slots.warning for slots in opened if slots.warning is not None]

    (kept,) = (tmp_path / "damaged").iterdir()
    assert kept.read_bytes() == content
    assert taken.count(True) == 2, "all of them share what was made anew"
    assert len(told) == 1 and str(kept) in told[0] and "left as it is" not in told[0]
    with closing(Slots.open(path, 2)) as later:
        assert later.acquire() and later.warning is None


def test_a_file_of_a_newer_orchard_is_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "slots.db"
    Slots.open(path, 2).close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with closing(Slots.open(path, 2)) as slots:
        assert slots.warning is not None and "newer Orchard" in slots.warning
    assert not (tmp_path / "damaged").exists()


def test_a_file_that_breaks_later_does_not_break_the_count(tmp_path: Path) -> None:
    path = tmp_path / "slots.db"
    with closing(Slots.open(path, 3)) as slots:
        assert slots.acquire()
        with closing(sqlite3.connect(path)) as vandal:
            vandal.execute("DROP TABLE leases")

        assert [slots.acquire() for _ in range(3)] == [True, True, False]
        assert slots.warning is not None


HOLDS_THE_LOCK = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
db.execute("ROLLBACK")
"""


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Another process holds the lock of the file for so long."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_THE_LOCK, str(path), str(seconds)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        yield


def test_a_lock_of_another_process_makes_nobody_wait_and_is_no_reason_to_count_alone(tmp_path: Path) -> None:
    path = tmp_path / "slots.db"
    with closing(Slots.open(path, 3)) as slots:
        assert slots.acquire() and slots.acquire()
        slots.release()
        with locked(path, 1.0):
            began = time.monotonic()
            tried = [slots.drain(), slots.acquire(), slots.acquire(), *(slots.acquire() for _ in range(20))]
            took = time.monotonic() - began

            # What should have gone back is kept, and is there for who wants one next; new ones are not to be had.
            assert tried == [False, True, *[False] * 21]
            assert took < 0.3, took
        assert slots.warning is None
        asyncio.run(slots.wait_free())

        assert slots.acquire()
        slots.release()
        assert slots.drain()
        assert slots.count() == 2


@pytest.mark.anyio
async def test_whoever_meets_a_lock_tries_again_soon_and_gets_what_is_free(tmp_path: Path) -> None:
    path = tmp_path / "slots.db"
    with closing(Slots.open(path, 1)) as slots, locked(path, 0.5):
        began = time.monotonic()
        while not slots.acquire():
            await slots.wait_free()
        assert time.monotonic() - began < 3.0
        assert slots.warning is None


@pytest.mark.slow
def test_a_file_that_stays_locked_is_given_up_after_a_while(tmp_path: Path) -> None:
    path = tmp_path / "slots.db"
    with closing(Slots.open(path, 2)) as slots, locked(path, 12.0):
        began = time.monotonic()
        while not slots.acquire():
            time.sleep(0.1)
        assert time.monotonic() - began > 3.0
        assert slots.warning is not None and "locked by another program" in slots.warning
