"""A family that is held still: none of it runs, whatever it does about that, and afterwards all go on as before."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.model.limits import Limits
from orchard.process.families.family import end_family_now
from orchard.process.families.identity import identify
from orchard.process.families.orphans import adopted, become_subreaper
from orchard.process.families.stillness import Foreign, Hold, NotStill
from orchard.process.families.table import Stat, read_stat
from orchard.process.program import Launch, run_program
from tests.process.zoo import GRACE, ZOO, nap, shell, survivors, until, until_ready, walled

pytestmark = pytest.mark.anyio

HELD = (
    "child in its own session", "no environment, own session", "stopped child", "fork storm", "deep tree", "daemon",
    "token wiped from memory", "traced child", "every signal blocked", "fifty threads", "terminal of its own",
)  # fmt: skip

# It writes the time down, without end, from a grandchild in a session of its own that has no environment any more.
TICKS = "setsid env -i sh -c 'while :; do date +%s%N > tick; done' >/dev/null 2>&1 & echo READY; $HOLD"
STORM = """
import os, sys, time
open("up", "w")
for _ in range(4):
    if not os.fork():
        while True:
            if not os.fork():
                open("tick", "w").write(str(time.monotonic_ns()))
                os._exit(0)
            os.wait()
time.sleep(600)
"""
SPAWNS = """
import subprocess, time
open("up", "w")
while True:
    subprocess.run(["/bin/true"])
    open("tick", "w").write(str(time.monotonic_ns()))
"""
# The kernel closes what nobody can reach any more when the next socket of anybody's is closed.
TERMINALS_IN_GARBAGE = """
import fcntl, os, pty, signal, socket, termios, time
def wakes(*_):
    open("tick", "w").write(str(time.monotonic_ns()))
    os._exit(0)
signal.signal(signal.SIGHUP, wakes)
print("READY", flush=True)
while True:
    (ours, theirs), (one, other) = pty.openpty(), socket.socketpair()
    if not os.fork():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        os.close(ours), one.close(), other.close()
        while True:
            time.sleep(600)
    os.close(theirs)
    time.sleep(0.02)
    socket.send_fds(one, [b"x"], [ours, one.fileno(), other.fileno()])
    os.close(ours), one.close(), other.close()
    os.wait()
"""
STOPS_AGAIN = """
import os, signal, time
def again(*_):
    open("tick", "w").write("I ran")
    os.kill(os.getpid(), signal.SIGSTOP)
signal.signal(signal.SIGCONT, again)
open("pid", "w").write(str(os.getpid()))
print("READY", flush=True)
while True:
    time.sleep(600)
"""
# When the second process ends, the third has no parent in its session any more, and the kernel lets it go on.
LAST_PARENT = """
import os, signal, time
os.setpgid(0, 0)
if not os.fork():
    os.setpgid(0, 0)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        open("tick", "w").write(str(time.monotonic_ns()))
        time.sleep(0.001)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("READY", flush=True)
while True:
    time.sleep(600)
"""


def snake(folder: Path, code: str, number: str = "") -> Launch:
    return shell(folder, '"$SNAKE" -c "$CODE" $NAP; exit 0', SNAKE="/usr/bin/python3", CODE=code, NAP=number)


def in_terminals(number: str) -> list[Stat]:
    return [stat for pid in survivors(number) if (stat := read_stat(pid)) and stat.terminal and stat.session == pid]


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    assert become_subreaper()
    yield
    assert adopted(known=()) == []


@asynccontextmanager
async def at_work(launch: Launch) -> AsyncIterator[None]:
    running = asyncio.ensure_future(run_program(launch))
    try:
        await until_ready(launch)
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


def states(pids: list[int]) -> str:
    """What each thread of these processes does: seen without the code under test."""
    found = []
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return "".join(found)


def sleepers(number: str) -> list[int]:
    return [pid for pid in survivors(number) if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]


def tick(folder: Path) -> str:
    return (folder / "tick").read_text() if (folder / "tick").exists() else ""


async def ticks_on(folder: Path) -> None:
    now = tick(folder)
    await until(lambda: tick(folder) not in ("", now))


@pytest.mark.parametrize("animal", [one for one in ZOO if one.name in HELD], ids=lambda one: one.name)
async def test_none_of_a_family_runs_while_it_is_held_and_all_go_on_afterwards(animal, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    number = nap()
    launch = shell(tmp_path, animal.script, None, NAP=number, HOLD=f"sleep {number}", **animal.env)
    async with at_work(launch):
        await until(lambda: bool(survivors(number)))
        before = states(survivors(number))
        hold = Hold(launch.token)
        await asyncio.to_thread(hold.stop)
        assert set(states(survivors(number))) <= set("Tt")
        hold.check()
        hold.release()
        await until(lambda: states(survivors(number)).count("T") == before.count("T"))


async def test_who_was_stopped_by_somebody_else_before_stays_so(tmp_path: Path) -> None:
    stopped, other = nap(), nap()
    async with at_work(launch := shell(tmp_path, f"sleep {stopped} & sleep {other} & echo READY; read x || wait")):
        await until(lambda: len(sleepers(stopped)) == len(sleepers(other)) == 1)
        first, second = sleepers(stopped), sleepers(other)
        os.kill(first[0], signal.SIGSTOP)
        await until(lambda: states(first) == "T")
        hold = Hold(launch.token)
        await asyncio.to_thread(hold.stop)
        assert states(first + second) == "TT"
        hold.release()
        await until(lambda: states(second) == "S")
        assert states(first) == "T"


@pytest.mark.parametrize("code", [STORM, SPAWNS], ids=["forks without end", "starts programs without end"])
async def test_who_forks_without_end_is_held_all_the_same(code: str, tmp_path: Path) -> None:
    launch = shell(tmp_path, '"$SNAKE" -c "$CODE" & echo READY; wait', SNAKE=sys.executable, CODE=code)
    async with at_work(launch):
        for _ in range(5):
            await ticks_on(tmp_path)
            hold = Hold(launch.token)
            await asyncio.to_thread(hold.stop)
            now = tick(tmp_path)
            await asyncio.sleep(0.05)
            assert tick(tmp_path) == now
            hold.release()
        await ticks_on(tmp_path)


@pytest.mark.parametrize("level", ["bwrap", "landlock"])
async def test_who_is_behind_a_wall_is_held_also_when_it_left_everything_behind(level, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    launch = walled(shell(tmp_path, TICKS, HOLD="sleep 600"), level)
    async with at_work(launch):
        await ticks_on(tmp_path)
        hold = Hold(launch.token)
        await asyncio.to_thread(hold.stop)
        now = tick(tmp_path)
        await asyncio.sleep(0.1)
        assert tick(tmp_path) == now
        hold.release()
        await ticks_on(tmp_path)


async def test_an_orphan_that_no_family_claims_is_held_with_every_family(tmp_path: Path) -> None:
    code = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n" + SPAWNS
    stranger = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env={})  # noqa: ASYNC220
    stranger.wait()
    try:
        await ticks_on(tmp_path)
        hold = Hold("no-such-token")
        assert hold.needed
        await asyncio.to_thread(hold.stop)
        now = tick(tmp_path)
        await asyncio.sleep(0.1)
        assert tick(tmp_path) == now
        hold.release()
        await ticks_on(tmp_path)
    finally:
        for orphan in adopted(known=()):
            os.kill(orphan.pid, signal.SIGKILL)
        await until(lambda: adopted(known=()) == [])


async def test_an_orphan_of_another_job_that_cannot_be_stopped_keeps_nobody_from_a_hold(tmp_path: Path) -> None:
    """It waits for a child that never ends, as `vfork` does, and no signal but SIGKILL reaches it."""
    number = nap()
    call = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    waits = f"import ctypes, time\nctypes.CDLL(None).syscall({call}, 0x4000 | 17, 0, 0, 0, 0)\ntime.sleep(600)"
    leaves = '(setsid "$SNAKE" -c "$CODE" $NAP >/dev/null 2>&1 &); echo READY; exec sleep 600'
    launch = shell(tmp_path, leaves, SNAKE="/usr/bin/python3", CODE=waits, NAP=number)
    async with at_work(launch):
        await until(lambda: "D" in states(survivors(number)))
        hold = Hold("other:job")
        await asyncio.to_thread(hold.stop, 0.3)
        assert "D" not in states(survivors(number)) and {*hold.ended} == {"python3"}
        hold.check()
        hold.release()


async def test_who_is_held_twice_goes_on_when_both_let_go(tmp_path: Path) -> None:
    launch = shell(tmp_path, TICKS, HOLD="sleep 600")
    async with at_work(launch):
        await ticks_on(tmp_path)
        one, two = Hold(launch.token), Hold(launch.token)
        await asyncio.gather(asyncio.to_thread(one.stop), asyncio.to_thread(two.stop))
        one.release()
        now = tick(tmp_path)
        await asyncio.sleep(0.1)
        assert tick(tmp_path) == now
        two.check()
        two.release()
        await ticks_on(tmp_path)


async def test_who_cannot_be_proved_to_stand_still_is_let_go_and_the_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = shell(tmp_path, TICKS, HOLD="sleep 600")
    monkeypatch.setattr("orchard.process.families.stillness.thread_states", lambda pid: "R")
    async with at_work(launch):
        hold = Hold(launch.token)
        with pytest.raises(NotStill, match="did not stand still"):
            await asyncio.to_thread(hold.stop, 0.2)
        await ticks_on(tmp_path)


async def test_a_hold_that_is_given_up_while_it_begins_leaves_nobody_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = shell(tmp_path, TICKS, HOLD="sleep 600")
    monkeypatch.setattr("orchard.process.families.stillness.thread_states", lambda pid: "R")
    async with at_work(launch):
        hold = Hold(launch.token)
        stopping = asyncio.ensure_future(asyncio.to_thread(hold.stop, 60.0))
        await asyncio.sleep(0.1)
        assert not stopping.done()
        hold.release()
        await asyncio.wait_for(stopping, 5.0)
        await ticks_on(tmp_path)


async def test_who_was_let_go_by_somebody_else_is_noticed(tmp_path: Path) -> None:
    number = nap()
    async with at_work(launch := shell(tmp_path, "echo READY; exec sleep $NAP", NAP=number)):
        await until(lambda: bool(survivors(number)))
        hold = Hold(launch.token)
        await asyncio.to_thread(hold.stop)
        os.kill(survivors(number)[0], signal.SIGCONT)
        await until(lambda: "T" not in states(survivors(number)))
        with pytest.raises(NotStill, match="Another process"):
            hold.check()
        hold.release()


async def test_who_ran_and_stopped_again_is_noticed(tmp_path: Path) -> None:
    async with at_work(launch := snake(tmp_path, STOPS_AGAIN)):
        hold = Hold(launch.token)
        await asyncio.to_thread(hold.stop)
        hold.check()
        running = int((tmp_path / "pid").read_text())
        os.kill(running, signal.SIGCONT)
        await until(lambda: tick(tmp_path) == "I ran")
        await until(lambda: states([running]) == "T")
        with pytest.raises(NotStill, match="Another process"):
            hold.check()
        hold.release()


async def test_who_ended_while_it_was_held_is_noticed(tmp_path: Path) -> None:
    number = nap()
    async with at_work(launch := shell(tmp_path, "echo READY; sleep $NAP; exit 0", NAP=number)):
        await until(lambda: bool(sleepers(number)))
        hold = Hold(launch.token)
        await asyncio.to_thread(hold.stop)
        os.kill(sleepers(number)[0], signal.SIGKILL)
        await until(lambda: not sleepers(number))
        with pytest.raises(NotStill, match="ended them"):
            hold.check()
        hold.release()


async def test_a_terminal_that_the_kernel_closes_lets_nobody_go_on_behind_a_wall(tmp_path: Path) -> None:
    number, tried = nap(), 0
    launch = walled(snake(tmp_path, TERMINALS_IN_GARBAGE, number), "bwrap")
    async with at_work(launch):
        while tried < 5:
            await asyncio.sleep(0.05)
            one, two = Hold(launch.token), Hold(launch.token)
            await asyncio.gather(asyncio.to_thread(one.stop), asyncio.to_thread(two.stop))
            now = tick(tmp_path)
            tried += len(in_terminals(number))
            for end in socket.socketpair():
                end.close()
            one.release()
            await asyncio.sleep(0.05)
            assert tick(tmp_path) == now
            two.check()
            two.release()
            await ticks_on(tmp_path)


async def test_no_program_of_a_family_is_started_while_it_is_held(tmp_path: Path) -> None:
    hold = Hold("plan:job")
    launch = shell(tmp_path, "echo READY")
    held = asyncio.ensure_future(run_program(Launch(launch.argv, tmp_path, launch.env, launch.log, "plan:job:1~x")))
    other = await run_program(Launch(launch.argv, tmp_path, launch.env, tmp_path / "other", "plan:job2:1"))
    assert other.ok and not launch.log.exists()
    hold.release()
    assert (await held).ok and launch.log.exists()


async def test_other_programs_of_a_job_stand_still_while_a_wall_of_mounts_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them could put a link in the place of what is about to be mounted."""
    first = replace(walled(shell(tmp_path, TICKS, HOLD="sleep 600"), "bwrap"), token="plan:job:1")
    second = replace(first, argv=("true",), token="plan:job:2~x", log=tmp_path / "second")
    seen: list[str] = []

    def begun(wall: int) -> bool:
        seen.append(tick(tmp_path))
        return len(seen) > 40

    monkeypatch.setattr("orchard.process.program.begun", begun)
    async with at_work(first):
        await ticks_on(tmp_path)
        assert (await run_program(second)).ok
        await until(lambda: len(seen) > 40)
        assert len({*seen}) == 1
        await ticks_on(tmp_path)
        other = await run_program(replace(second, token="plan:other:1"))
        assert other.ok and len(seen) == 41


@pytest.mark.parametrize("limit", [Limits(grace=GRACE, wall=0.6), Limits(grace=GRACE, idle=0.6)], ids=["wall", "idle"])
async def test_the_time_that_a_program_is_held_still_is_not_its_own(limit: Limits, tmp_path: Path) -> None:
    launch = shell(tmp_path, "echo READY; sleep 600", limit)
    running = asyncio.ensure_future(run_program(launch))
    await until_ready(launch)
    one, two = Hold(launch.token), Hold(launch.token)
    await asyncio.gather(asyncio.to_thread(one.stop), asyncio.to_thread(two.stop))
    await asyncio.sleep(0.5)
    one.release()
    await asyncio.sleep(0.5)
    assert not running.done()
    two.release()
    ended = await running
    assert ended.reason in ("timeout", "idle") and 1.5 < ended.seconds < 5.0


async def test_canceling_a_program_that_is_held_lets_none_of_it_run_before_the_hold_is_over(tmp_path: Path) -> None:
    launch = shell(tmp_path, "trap 'date > tick' TERM; echo READY; while :; do sleep 0.01; done")
    running = asyncio.ensure_future(run_program(launch))
    await until_ready(launch)
    hold = Hold(launch.token)
    await asyncio.to_thread(hold.stop)
    running.cancel()
    await asyncio.sleep(0.1)
    assert tick(tmp_path) == "" and not running.done()
    hold.release()
    await asyncio.wait({running})
    assert running.cancelled()


@pytest.mark.parametrize("level", ["bwrap", "landlock"])
async def test_the_end_of_a_held_family_waits_until_the_hold_is_over(level, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    launch = walled(
        shell(tmp_path, 'trap "" TERM; "$SNAKE" -c "$CODE"', SNAKE="/usr/bin/python3", CODE=LAST_PARENT), level
    )
    running = asyncio.ensure_future(run_program(launch))
    await until_ready(launch)
    await ticks_on(tmp_path)
    hold = Hold(launch.token)
    await asyncio.to_thread(hold.stop)
    now = tick(tmp_path)
    running.cancel()
    await asyncio.sleep(2 * GRACE + 0.2)
    assert tick(tmp_path) == now and not running.done()
    hold.check()
    hold.release()
    await asyncio.wait({running}, timeout=10.0)
    assert running.cancelled()


async def test_a_family_without_processes_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hold, "_look", lambda hold: pytest.fail("every process was looked at"))
    hold = Hold("no-such-token")
    hold.stop()
    hold.release()


async def test_a_family_of_another_process_is_held_by_its_token(tmp_path: Path) -> None:
    """As a reader does it who finds what a dead engine left."""
    token = f"foreign-{os.getpid()}:job:1"
    env = {**os.environ, "ORCHARD_TOKEN": token}
    code = f"import subprocess\nsubprocess.run(['sh', '-c', {TICKS.replace('$HOLD', 'wait')!r}])"
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, start_new_session=True)  # noqa: ASYNC220
    leader = identify(child.pid)
    try:
        await ticks_on(tmp_path)
        hold = Hold(token, foreign=Foreign(leader))
        await asyncio.to_thread(hold.stop)
        now = tick(tmp_path)
        await asyncio.sleep(0.1)
        assert tick(tmp_path) == now
        hold.release()
        await ticks_on(tmp_path)
    finally:
        await asyncio.to_thread(end_family_now, token, leader, None, 0.2)
        child.wait()


@pytest.mark.parametrize("level", [None, "bwrap"])
async def test_a_family_that_a_dead_engine_left_stopped_ends_within_its_grace(level, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    number = nap()
    launch = shell(tmp_path, "echo READY; sleep $NAP", NAP=number)
    running = asyncio.ensure_future(run_program(walled(launch, level) if level else launch))
    await until_ready(launch)
    await until(lambda: bool(survivors(number)))
    hold = Hold(launch.token)
    await asyncio.to_thread(hold.stop)
    from orchard.process.families import brakes

    brakes._held.clear()  # the next engine knows nothing of the hold
    began = time.monotonic()
    ended = await asyncio.to_thread(end_family_now, launch.token, None, launch.log, 10.0)
    assert ended and time.monotonic() - began < 5.0 and survivors(number) == []
    hold.release()
    await running
