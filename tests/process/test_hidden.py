"""Processes that hide as well as they can are found by what they inherited; who is not a job's is left alone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from orchard.process.families.family import end_family_now, members
from orchard.process.families.identity import Identity, identify
from orchard.process.families.marks import carries, mark_of, marked, read_mark, unmarked
from orchard.process.families.occupants import occupants
from orchard.process.families.orphans import adopted, become_subreaper
from orchard.process.families.table import Moment, began_since, moment
from orchard.process.program import run_program
from tests.process.zoo import nap, shell, survivors, until

pytestmark = pytest.mark.anyio

HIDES = (
    "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nos.chdir('/')\n"
    "for one in range(256):\n  try: os.close(one)\n  except OSError: pass\n"
    "for _ in range(3): os.open('/dev/null', os.O_RDWR)\n"
    "os.execve('/bin/sleep', ['sleep', sys.argv[1]], {})"
)
ENGINE = """
import asyncio, sys
from pathlib import Path
from orchard.process.families.orphans import become_subreaper
from orchard.model.limits import Limits
from orchard.process.program import Launch, run_program
become_subreaper()
folder, token, script = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
async def main():
    async def told(identity): print(identity.pid, identity.started, identity.boot, flush=True)
    launch = Launch(("sh", "-c", script), folder, {"PATH": "/usr/bin:/bin"}, folder / "log", token, Limits())
    await run_program(launch, told)
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    assert become_subreaper()
    yield
    assert adopted(known=()) == []


def hides(number: str) -> str:
    return f'"{sys.executable}" -I -S -c "$HIDES" {number}; until grep -aqs {number} /proc/[0-9]*/cmdline; do :; done'


async def test_who_left_everything_behind_is_ended_with_its_program_while_others_go_on(tmp_path: Path) -> None:
    hidden, busy = nap(), nap()
    going_on = shell(tmp_path, "sleep $NAP", NAP=busy)
    async with anyio.create_task_group() as group:
        group.start_soon(run_program, going_on)
        await until(lambda: bool(survivors(busy)))
        ended = await run_program(shell(tmp_path, f"{hides(hidden)}; sleep 0.2", HIDES=HIDES))
        assert ended.ok and ended.leftovers >= 1
        assert survivors(hidden) == [] and survivors(busy)
        group.cancel_scope.cancel()
    assert survivors(busy) == []


async def test_after_the_engine_was_killed_they_are_ended_too(tmp_path: Path) -> None:
    hidden, token = nap(), f"hidden-{os.getpid()}:job:1"
    script = f"""HIDES='{HIDES.replace("'", '"')}'; {hides(hidden)}; echo READY > "$PWD/ready"; sleep {hidden}"""
    engine = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", ENGINE, tmp_path, token, script], stdout=subprocess.PIPE, start_new_session=True
    )
    assert engine.stdout is not None
    pid, started, boot = engine.stdout.readline().decode().split()
    await until((tmp_path / "ready").exists)
    assert len(survivors(hidden)) >= 2
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    engine.stdout.close()

    end_family_now(token, Identity(int(pid), float(started), boot), tmp_path / "log")

    await until(lambda: survivors(hidden) == [])
    adopted(known=())  # buried


async def test_a_process_of_the_users_in_the_folder_is_seen_and_not_ended(tmp_path: Path) -> None:
    number = nap()
    users = subprocess.Popen(["sleep", number], cwd=tmp_path, start_new_session=True)  # noqa: ASYNC220
    try:
        ended = await run_program(shell(tmp_path, "true"))
        assert ended.ok and ended.leftovers == 0
        assert users.poll() is None
        assert [(one.pid, one.how) for one in occupants(tmp_path)] == [(users.pid, "stands in it")]
        assert occupants(tmp_path.parent / "other") == []
    finally:
        users.kill()
        users.wait()
    assert occupants(tmp_path) == []


def test_who_has_a_file_of_the_folder_open_is_seen(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    then = moment()
    with (tmp_path / "below" / "file").open("w") as file:
        users = subprocess.Popen(["sleep", nap()], cwd="/", stdout=file)
        try:
            assert [(one.pid, one.how) for one in occupants(tmp_path, then)] == [(users.pid, "has a file open in it")]
            assert occupants(tmp_path / "bel", then) == []
        finally:
            users.kill()
            users.wait()


MAPPER = """
import ctypes, mmap, os, sys, time
handle = os.open(sys.argv[1], os.O_RDWR)
# Python's own maps keep a descriptor.
place = ctypes.CDLL(None).mmap
place.restype, place.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
how = mmap.MAP_PRIVATE if sys.argv[2] == "private" else mmap.MAP_SHARED
assert place(None, 10, mmap.PROT_READ | mmap.PROT_WRITE, how, handle, 0) != 2**64 - 1
os.close(handle)
print("mapped", flush=True)
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize("name", ["data", "with space", "new\nline", "back\\012slash"])
def test_who_can_write_to_a_file_of_the_folder_without_having_it_open_is_seen(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / name).write_bytes(b"x" * 10)
    with _mapper(folder / name, "shared") as (users, then):
        assert [(one.pid, one.how) for one in occupants(folder, then)] == [(users.pid, "has a file mapped in it")]
        assert occupants(tmp_path / name[:-1], then) == []
        (folder / name).unlink()
        assert [one.pid for one in occupants(folder, then)] == [users.pid]


def test_who_only_runs_or_copies_a_file_of_the_folder_is_not_in_it(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 10)
    with _mapper(tmp_path / "data", "private") as (_, then):
        assert occupants(tmp_path, then) == []


@contextmanager
def _mapper(file: Path, how: str) -> Iterator[tuple[subprocess.Popen[bytes], Moment]]:
    """A process that has a file mapped and not open, and the moment before it began."""
    then = moment()
    words = [sys.executable, "-c", MAPPER, str(file), how, nap()]
    with subprocess.Popen(words, cwd="/", stdout=subprocess.PIPE) as users:
        try:
            assert users.stdout is not None and users.stdout.readline() == b"mapped\n"
            yield users, then
        finally:
            users.kill()


def test_who_began_before_a_moment_is_told_from_who_began_after_it() -> None:
    before = subprocess.Popen(["sleep", nap()])
    then = moment()
    after = subprocess.Popen(["sleep", nap()])
    try:
        is_young = began_since(then)
        assert is_young(after.pid) and not is_young(before.pid) and not is_young(os.getpid())
        assert began_since(Moment())(before.pid)
    finally:
        for one in (before, after):
            one.kill()
            one.wait()


def test_numbers_that_begin_again_below_are_those_of_the_young() -> None:
    largest, now = int(Path("/proc/sys/kernel/pid_max").read_text()), moment()

    high = began_since(Moment(largest - 5, now.forks - 1000))
    assert high(largest - 1) and high(301) and high(1000)
    assert not high(largest - 5) and not high(largest // 2)
    once_around = began_since(Moment(largest - 5, now.forks - largest))
    assert once_around(largest - 5) and once_around(largest // 2)


def test_looking_for_occupants_takes_milliseconds(tmp_path: Path) -> None:
    began = time.process_time()
    for _ in range(10):
        occupants(tmp_path, moment())
    count = sum(name.isdecimal() for name in os.listdir("/proc"))  # noqa: PTH208

    assert (time.process_time() - began) / 10 < 0.005 + 50e-6 * count


def test_a_mark_names_a_family_and_its_parts() -> None:
    whole, part = mark_of("p:j:1"), mark_of("p:j:1~s1")

    assert carries(whole, "p:j:1") and carries(part, "p:j:1") and carries(part, "p:j:1~s1")
    assert not carries(whole, "p:j:1~s1") and not carries(part, "p:j:1~s2")
    assert not carries(whole, "p:j:2") and not carries(None, "p:j:1")


def test_what_is_started_beside_a_program_carries_no_mark() -> None:
    with marked("p:j:1"):
        child = subprocess.Popen(["sleep", "60"])
    with unmarked():
        helper = subprocess.Popen(["sleep", "60"])
    try:
        assert carries(read_mark(child.pid), "p:j:1")
        assert read_mark(helper.pid) is None and read_mark(os.getpid()) is None
        assert identify(child.pid) is not None
        assert members("p:j:1") == []  # it is in our own session, as only helpers are
    finally:
        for one in (child, helper):
            one.kill()
            one.wait()
