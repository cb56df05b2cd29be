"""Every kind of program, ended in every way: nothing of it is left, and the answer is true."""

import asyncio
import os
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import anyio
import pytest

from orchard.model.limits import Limits
from orchard.process.families import table
from orchard.process.families.family import end_family, members
from orchard.process.families.identity import Identity
from orchard.process.families.orphans import LAST_RESORT, adopted, become_subreaper
from orchard.process.program import Ended, run_program
from tests.process.zoo import GRACE, ZOO, Animal, nap, shell, survivors, until, until_ready, zombies

pytestmark = pytest.mark.anyio

# What a stop may take at most, plus what two busy cores may add to it.
BOUND = GRACE + LAST_RESORT

ending = [animal for animal in ZOO if not animal.stays]
lasting = [animal for animal in ZOO if animal.ends[0] == "exit"]


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    """As in the engine, orphans come to us; none may be left when a test ends."""
    assert become_subreaper()
    yield
    assert adopted(known=()) == []


async def end_adopted() -> None:
    for orphan in adopted(known=()):
        await end_family("no-such-token", orphan, None, grace=0.0)


async def assert_canceled(running: "asyncio.Future[Ended]") -> None:
    """It ends within the bound, by the cancellation it was given; `wait` never adds one of its own."""
    await asyncio.wait({running}, timeout=BOUND)
    assert running.cancelled()


@pytest.mark.parametrize("animal", ending, ids=[animal.name for animal in ending])
async def test_a_program_that_ends_leaves_nothing_behind(animal: Animal, tmp_path: Path) -> None:
    number = nap()
    launch = shell(tmp_path, animal.script, None, NAP=number, HOLD=":", **animal.env)

    with anyio.fail_after(BOUND):
        ended = await run_program(launch)

    assert (ended.reason, ended.exit_code) == animal.ends, ended
    assert ended.ok == (animal.ends == ("exit", 0))
    assert animal.wrote(launch.log)
    assert survivors(number) == []
    assert members(launch.token, None, launch.log) == []


@pytest.mark.parametrize("animal", lasting, ids=[animal.name for animal in lasting])
async def test_a_canceled_program_leaves_nothing_behind(animal: Animal, tmp_path: Path) -> None:
    number = nap()
    launch = shell(tmp_path, animal.script, None, NAP=number, HOLD=f"sleep {number}", **animal.env)
    running = asyncio.ensure_future(run_program(launch))
    await until_ready(launch)

    running.cancel()
    await assert_canceled(running)

    assert survivors(number) == []
    assert members(launch.token, None, launch.log) == []


@pytest.mark.parametrize("animal", lasting, ids=[animal.name for animal in lasting])
async def test_a_program_that_takes_too_long_leaves_nothing_behind(animal: Animal, tmp_path: Path) -> None:
    number = nap()
    limits = Limits(wall=0.25, grace=GRACE)
    launch = shell(tmp_path, animal.script, limits, NAP=number, HOLD=f"sleep {number}", **animal.env)

    with anyio.fail_after(0.25 + BOUND):
        ended = await run_program(launch)

    assert (ended.reason, ended.ok) == ("timeout", False), ended
    assert "longer than 0.25 s" in ended.message
    assert survivors(number) == []
    assert members(launch.token, None, launch.log) == []


def test_the_zoo_is_large_and_every_animal_has_a_name_of_its_own() -> None:
    assert len({animal.name for animal in ZOO}) == len(ZOO) >= 40


@pytest.mark.parametrize("code", [0, 1, 77, 255])
async def test_the_exit_code_is_the_programs_own(code: int, tmp_path: Path) -> None:
    ended = await run_program(shell(tmp_path, f"exit {code}"))

    assert (ended.reason, ended.exit_code, ended.signal, ended.ok) == ("exit", code, None, code == 0)
    assert f"status {code}" in ended.message


@pytest.mark.parametrize(("name", "number"), [("SEGV", 11), ("KILL", 9), ("TERM", 15)])
async def test_a_program_that_dies_by_a_signal_says_which(name: str, number: int, tmp_path: Path) -> None:
    ended = await run_program(shell(tmp_path, f"kill -{name} $$"))

    assert (ended.reason, ended.exit_code, ended.signal, ended.ok) == ("signal", None, number, False)
    assert f"SIG{name}" in ended.message


async def test_a_log_past_its_limit_stops_the_program(tmp_path: Path) -> None:
    number = nap()
    limits = Limits(log_bytes=1_000_000, grace=GRACE)
    launch = shell(tmp_path, "head -c 6000000 /dev/zero; sleep $NAP", limits, NAP=number)

    with anyio.fail_after(5 + BOUND):
        ended = await run_program(launch)

    assert ended.reason == "output-limit"
    assert survivors(number) == []


async def test_who_fills_the_disk_has_no_grace_and_the_log_is_no_longer_than_its_limit(tmp_path: Path) -> None:
    limits = Limits(log_bytes=1_000_000, grace=60)
    launch = shell(tmp_path, "trap '' TERM; while :; do head -c 10000000 /dev/zero; done", limits)

    with anyio.fail_after(30):
        ended = await run_program(launch)

    assert ended.reason == "output-limit"
    assert launch.log.stat().st_size == limits.log_bytes


async def test_a_log_past_its_limit_is_told_even_if_the_program_ended_first(tmp_path: Path) -> None:
    limits = Limits(log_bytes=1000, grace=GRACE)

    ended = await run_program(shell(tmp_path, "head -c 6000 /dev/zero", limits))

    assert (ended.reason, ended.ok) == ("output-limit", False)


async def test_a_program_that_does_nothing_is_idle(tmp_path: Path) -> None:
    number = nap()
    limits = Limits(wall=30, idle=0.4, grace=GRACE)

    ended = await run_program(shell(tmp_path, "sleep $NAP", limits, NAP=number))

    assert ended.reason == "idle"
    assert survivors(number) == []


@pytest.mark.parametrize(
    "busy",
    [
        "i=0; while [ $i -lt 16 ]; do echo $i; sleep 0.1; i=$((i+1)); done",
        "timeout 1.6 sh -c 'while :; do :; done'; exit 0",
        "(setsid timeout 1.6 sh -c 'while :; do :; done'); exit 0",
    ],
    ids=["writes", "computes", "computes in another session"],
)
async def test_a_program_that_writes_or_computes_is_not_idle(busy: str, tmp_path: Path) -> None:
    ended = await run_program(shell(tmp_path, busy, Limits(wall=30, idle=0.8, grace=GRACE)))

    assert ended.reason == "exit", ended
    assert ended.seconds > 1.2


async def test_a_program_gets_the_time_to_clean_up(tmp_path: Path) -> None:
    script = "trap 'sleep 0.3; echo CLEANED; exit 3' TERM; echo READY; sleep $NAP & wait"
    number = nap()
    launch = shell(tmp_path, script, Limits(wall=0.4, grace=20.0), NAP=number)

    ended = await run_program(launch)

    assert launch.log.read_bytes() == b"READY\nCLEANED\n"
    assert (ended.reason, ended.exit_code) == ("timeout", 3)
    assert survivors(number) == []


async def test_a_background_child_that_is_about_to_end_may_finish_its_sentence(tmp_path: Path) -> None:
    launch = shell(tmp_path, "(sleep 0.1; echo LATE) & echo READY", Limits(grace=20.0))

    ended = await run_program(launch)

    assert launch.log.read_bytes() == b"READY\nLATE\n"
    assert ended.leftovers >= 1


async def test_leftovers_are_counted_and_do_not_change_the_reason(tmp_path: Path) -> None:
    number = nap()

    ended = await run_program(shell(tmp_path, "sleep $NAP & setsid sleep $NAP & exit 7", NAP=number))

    assert (ended.reason, ended.exit_code) == ("exit", 7)
    assert ended.leftovers == 2
    assert survivors(number) == []


async def test_a_stopped_program_is_woken_to_clean_up(tmp_path: Path) -> None:
    script = "trap 'echo CLEANED; exit 3' TERM; echo READY; kill -STOP $$; while :; do sleep 0.01; done"
    launch = shell(tmp_path, script, Limits(wall=0.4, grace=20.0))

    with anyio.fail_after(15):
        ended = await run_program(launch)

    assert launch.log.read_bytes() == b"READY\nCLEANED\n"
    assert (ended.reason, ended.exit_code) == ("timeout", 3)


async def test_orphans_that_came_to_us_are_buried(tmp_path: Path) -> None:
    number, before = nap(), set(zombies())

    ended = await run_program(shell(tmp_path, "(sleep 0 &); (sleep $NAP &); setsid sleep $NAP & :", NAP=number))

    assert ended.ok
    assert set(zombies()) - before == set()


@pytest.mark.parametrize("script", ["setsid sleep $NAP & :", "(setsid sleep $NAP &) ; :", ":"])
async def test_a_program_that_another_thread_began_leaves_nothing_behind(script: str, tmp_path: Path) -> None:
    number = nap()
    launch = shell(tmp_path, script, NAP=number)

    ended = await asyncio.to_thread(lambda: asyncio.run(run_program(launch)))

    assert ended.ok
    assert survivors(number) == []
    assert members(launch.token, None, launch.log) == []


def test_the_list_that_orphans_are_put_on_is_read_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process numbers begin anew some day: a thread may have a smaller one than its process."""
    main, read = os.getpid(), list[str]()

    def opened(path: str, *_: object, **__: object) -> BytesIO:
        read.append(path)
        return BytesIO(b"")

    monkeypatch.setattr(table, "open", opened, raising=False)
    for threads in ([main, main - 1, main + 1], [main + 1, main - 1, main]):
        monkeypatch.setattr(os, "listdir", lambda _, found=threads: map(str, found))
        assert table.own_children() == []
        assert read.pop() == f"/proc/self/task/{main}/children"


async def stubborn(folder: Path, number: str, hurry: asyncio.Event | None = None) -> "asyncio.Future[Ended]":
    """A running family that ignores SIGTERM and has all the grace in the world."""
    script = "trap '' TERM; setsid sleep $NAP & echo READY; sleep $NAP & wait; sleep $NAP"
    launch = shell(folder, script, Limits(grace=600.0), NAP=number)
    running = asyncio.ensure_future(run_program(launch, hurry=hurry))
    await until_ready(launch)
    return running


async def test_a_second_cancellation_skips_the_grace_and_leaves_nothing_behind(tmp_path: Path) -> None:
    number = nap()
    running = await stubborn(tmp_path, number)

    running.cancel()
    await asyncio.wait({running}, timeout=0.2)
    assert not running.done()
    assert survivors(number)
    running.cancel()
    await assert_canceled(running)

    assert survivors(number) == []


async def test_many_cancellations_in_a_row_leave_nothing_behind(tmp_path: Path) -> None:
    number = nap()
    running = await stubborn(tmp_path, number)

    deadline = time.monotonic() + BOUND
    while not running.done() and time.monotonic() < deadline:
        running.cancel()
        await asyncio.sleep(0)

    assert running.cancelled()
    assert survivors(number) == []


async def test_being_in_a_hurry_skips_the_grace(tmp_path: Path) -> None:
    number, hurry = nap(), asyncio.Event()
    running = await stubborn(tmp_path, number, hurry)

    running.cancel()
    await asyncio.wait({running}, timeout=0.2)
    assert not running.done()
    hurry.set()
    await assert_canceled(running)

    assert survivors(number) == []


async def test_a_program_whose_start_cannot_be_written_down_is_ended(tmp_path: Path) -> None:
    number = nap()

    async def refuse(identity: Identity) -> None:
        raise OSError("the journal is full")

    with pytest.raises(OSError, match="the journal is full"):
        await run_program(shell(tmp_path, "setsid sleep $NAP & sleep $NAP", NAP=number), on_start=refuse)

    assert survivors(number) == []


async def test_a_cancellation_while_the_start_is_written_down_ends_the_program(tmp_path: Path) -> None:
    number = nap()

    async def never(identity: Identity) -> None:
        await asyncio.Event().wait()

    launch = shell(tmp_path, "setsid sleep $NAP & echo READY; sleep $NAP", NAP=number)
    running = asyncio.ensure_future(run_program(launch, on_start=never))
    await until_ready(launch)
    running.cancel()
    await assert_canceled(running)

    assert survivors(number) == []


async def test_siblings_survive_the_end_of_a_program(tmp_path: Path) -> None:
    mine, other = nap(), nap()
    sibling = shell(tmp_path, "setsid sleep $NAP & echo READY; sleep $NAP", NAP=other)
    running = asyncio.ensure_future(run_program(sibling))
    await until_ready(sibling)

    ended = await run_program(shell(tmp_path, "sleep $NAP & setsid sleep $NAP & :", NAP=mine))

    assert ended.ok
    assert ended.leftovers == 2
    assert len(survivors(other)) >= 2
    assert not running.done()
    running.cancel()
    await asyncio.wait({running}, timeout=BOUND)
    await until(lambda: survivors(other) == [])
