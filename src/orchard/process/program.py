"""Running one program from its start to the end of everything it started.

The program gets a session of its own, nothing to read, and the log file itself as its output: the
engine holds no pipe, so a chatty program cannot fill our memory and a forgotten background child
cannot keep us waiting. Its end is told by the kernel; limits are timers that are set to when the
next one could be passed. However the program ends (by itself, by a limit, by cancellation), its
whole family is ended before `run_program` returns or raises.

The leader is waited for last. Until then its zombie holds its pid, so the number of its session
and group cannot be given to anybody else while signals are sent to them.
"""

import asyncio
import errno
import math
import os
import signal
import stat
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from orchard import own_log
from orchard.model.limits import Limits
from orchard.process.background import to_its_end
from orchard.process.failpoint import failpoint
from orchard.process.families.exits import child_exit_notice, send, wait_last_thread
from orchard.process.families.family import end_family, look
from orchard.process.families.identity import Identity, boot_id, identify
from orchard.process.families.marks import marked
from orchard.process.families.orphans import begun, children, leading
from orchard.process.families.stillness import Hold, NotStill, is_led, moving, stood_still
from orchard.process.families.table import TOKEN_VARIABLE
from orchard.process.pipes import Converse, Pipes, Talk, open_pipes
from orchard.process.sandbox.policy import SandboxError
from orchard.process.sandbox.wall import Wall
from orchard.text import one_line

Reason = Literal["exit", "signal", "timeout", "idle", "output-limit", "spawn-failed"]
Broken = Literal["timeout", "idle", "output-limit"]

SETTLE = 0.5
"""After a normal end, how long background children may take to leave by themselves (a `tee` that flushes)."""

_FASTEST_LOG = 1e9
"""Bytes a second that no program writes for long: how soon a log could fill."""
_SOONEST_LOOK, _LATEST_LOOK = 0.25, 5.0
_SOON = 0.001
"""Seconds to the next look where a limit has been reached, but for a hold that may be over at once."""
_IDLE_LOOKS = 8
"""Looks per idle limit: the limit is noticed an eighth late at worst."""
_LAST_THREAD = 1.0
"""Seconds for the last threads of a leader that is a zombie already; milliseconds are usual."""
_BUILDING_LOOK, _LONGEST_BUILDING = 0.001, 10.0
"""Seconds between looks at a wall that is being built while others stand still, and until that is given up."""
_IDLE_CPU_SHARE = 0.001
"""A family that uses less of a core than this is waiting: runtimes wake up for their own housekeeping."""


class Launch(Struct, frozen=True):
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """The whole environment; only the family token is added."""
    log: Path
    token: str
    """Unique to this attempt: what carries it is ended with the attempt."""
    limits: Limits = field(default_factory=Limits)
    wall: Wall | None = None
    """What stands around the program and all that it starts."""
    pipes: bool = False
    """Standard input and output are pipes to us, for `converse`; only standard error goes to the log."""
    farewell: float | None = None
    """Seconds to end by itself once all is said; None: the grace; infinite: until another limit ends it."""


class Ended(Struct, frozen=True):
    reason: Reason
    exit_code: int | None
    signal: int | None
    message: str
    seconds: float
    cpu_seconds: float | None = None
    """Of the program and the children it waited for; None if it never ran."""
    leftovers: int = 0
    """Processes that were still running when the program had ended by itself."""

    @property
    def ok(self) -> bool:
        return self.reason == "exit" and self.exit_code == 0


class _Child(Struct, frozen=True):
    process: subprocess.Popen[bytes]
    identity: Identity
    log_fd: int
    launch: Launch
    started: float

    @property
    def name(self) -> str:
        return one_line(self.launch.argv[0], 80)


async def run_program(
    launch: Launch,
    on_start: Callable[[Identity], Awaitable[None]] | None = None,
    hurry: asyncio.Event | None = None,
    converse: Converse | None = None,
) -> Ended:
    """Run the program and end its family; what went wrong is in the answer, only cancellation is raised.

    `on_start` hears who was started before anything else happens. Cancelling ends the family and
    takes at most the grace plus 5 s; a second cancellation, or `hurry` being set, skips the grace.
    `converse` talks with a program that was launched with pipes, until one of the two has nothing more to say.
    """
    child = await _started(launch)
    if isinstance(child, Ended):
        return child
    with leading(child.identity.pid, launch.token):
        if converse is None:
            return await _run(child, on_start, hurry)
        talk = Talk(await _opened(child, hurry), converse)
        try:
            return await _run(child, on_start, hurry, talk)
        finally:
            await talk.close()


async def _opened(child: _Child, hurry: asyncio.Event | None) -> Pipes:
    """The ends of the child's pipes; who is cancelled before they are open leaves no child either."""
    try:
        return await open_pipes(child.process, child.launch.limits.log_bytes)
    except BaseException:
        try:
            await _end(child, hurry, 0.0)
        finally:
            _bury(child)
        raise


async def _run(
    child: _Child,
    on_start: Callable[[Identity], Awaitable[None]] | None,
    hurry: asyncio.Event | None,
    talk: Talk | None = None,
) -> Ended:
    broken: Broken | None = None
    settle = 0.0
    ended_at: float | None = None
    try:
        with child_exit_notice(child.identity) as gone:
            failpoint("process.after-spawn")
            if on_start is not None:
                await on_start(child.identity)
            broken = await _watch(child, gone, talk.begin() if talk is not None else None)
        if broken is None:
            ended_at = time.monotonic()
            settle = min(SETTLE, child.launch.limits.grace / 2)
            failpoint("process.before-sweep")
    finally:
        try:
            others = await _end(child, hurry, settle, hastily=broken == "output-limit")
        finally:
            status, cpu = _bury(child)
    if talk is not None and await talk.heard_all() == "too-much" and broken is None:
        broken = "output-limit"
    seconds = (ended_at or time.monotonic()) - child.started
    code = status if status is not None and status >= 0 else None
    number = -status if status is not None and status < 0 else None
    reason: Reason = broken or ("signal" if number is not None else "exit")
    leftovers = others if broken is None else 0
    return Ended(reason, code, number, _sentence(child, reason, code, number), seconds, cpu, leftovers)


async def _end(child: _Child, hurry: asyncio.Event | None, settle: float, *, hastily: bool = False) -> int:
    """End the family; one that fills the disk has no grace to go on with, and the log is cut to its limit."""
    launch = child.launch
    grace = 0.0 if hastily else launch.limits.grace
    try:
        return await end_family(launch.token, child.identity, launch.log, grace, hurry, settle)
    except OSError:
        # No descriptor is left to look with: at least the group goes.
        os.killpg(child.identity.pid, signal.SIGKILL)
        raise
    finally:
        if os.fstat(child.log_fd).st_size > launch.limits.log_bytes:
            os.ftruncate(child.log_fd, launch.limits.log_bytes)
        os.close(child.log_fd)


async def _started(launch: Launch) -> _Child | Ended:
    """Start it. While a wall of mounts is built, no other program of the job runs: it could put a link in the place of
    what bubblewrap is about to mount, and see what that leads to."""
    while True:
        await moving(launch.token)
        # Of plan and job: attempts and subtasks share folders. Orphans of others are not behind walls of mounts.
        job = ":".join(launch.token.partition("~")[0].split(":")[:2])
        if launch.wall is None or launch.wall.level != "bwrap" or not is_led(job):
            return _spawn(launch)
        hold = Hold(job, known=children())
        child: _Child | Ended | None = None
        try:
            await to_its_end(asyncio.ensure_future(asyncio.to_thread(hold.stop)))
            if hold.only:
                child = _spawn(launch)
                return child
        except NotStill as error:
            return _not_started(
                f"'{one_line(launch.argv[0], 80)}' cannot be started: {error.message}", time.monotonic()
            )
        finally:
            if isinstance(child, _Child):
                building = asyncio.ensure_future(_build(child, hold))
                _building.add(building)
                building.add_done_callback(_building.discard)
            else:
                hold.release()


_building: set[asyncio.Future[None]] = set()
"""Walls that are being built while other programs of their job are held still."""


async def _build(child: _Child, hold: Hold) -> None:
    """Let the others go on once the wall stands; one that does not stand in time is ended."""
    until = time.monotonic() + _LONGEST_BUILDING
    try:
        while not (done := begun(child.identity.pid)):
            if done is None:
                until = time.monotonic() + _LONGEST_BUILDING
            elif time.monotonic() > until:
                send(child.identity, signal.SIGKILL)
                return
            await asyncio.sleep(_BUILDING_LOOK)
    finally:
        hold.release()


def _spawn(launch: Launch) -> _Child | Ended:
    started = time.monotonic()
    if not launch.argv:
        return _not_started("There is no program to start: the command is empty.", started)
    try:
        log_fd = _open_log(launch.log)
    except OSError as error:
        return _not_started(f"The log {one_line(str(launch.log))} cannot be opened: {error.strerror}.", started)
    try:
        with marked(launch.token):
            process = _popen(launch.wall)(
                launch.argv,
                cwd=launch.cwd,
                env={**launch.env, TOKEN_VARIABLE: launch.token},
                stdin=subprocess.PIPE if launch.pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if launch.pipes else log_fd,
                stderr=log_fd,
                start_new_session=True,
            )
    except (OSError, ValueError, SandboxError) as error:
        os.close(log_fd)
        return _not_started(_why_not_started(launch, error), started)
    # Only a child that ended in no time, in a process that ignores SIGCHLD, is not in the table any more.
    identity = identify(process.pid) or Identity(process.pid, 0.0, boot_id())
    own_log.debug("process", f"{launch.argv[0]} started as {process.pid} in {launch.cwd}")
    return _Child(process, identity, log_fd, launch, started)


def _popen(wall: Wall | None) -> Callable[..., subprocess.Popen[bytes]]:
    if wall is None:
        return subprocess.Popen
    from orchard.process.sandbox.spawn import popen  # only who builds a wall needs it

    return partial(popen, wall.policy, wall.level)


def _open_log(path: Path) -> int:
    # O_NONBLOCK so that a pipe put in the log's place cannot hang us; a regular file does not mind.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file")
    os.set_blocking(fd, True)
    return fd


def _not_started(message: str, started: float) -> Ended:
    return Ended("spawn-failed", None, None, message, time.monotonic() - started)


def _why_not_started(launch: Launch, error: OSError | ValueError | SandboxError) -> str:
    program = one_line(launch.argv[0], 80)
    if isinstance(error, SandboxError):
        return f"'{program}' cannot be started behind a wall: {error.message}"
    if not isinstance(error, OSError):
        return f"'{program}' cannot be started: {one_line(str(error))}."
    if not launch.cwd.is_dir():
        return f"'{program}' cannot be started in {one_line(str(launch.cwd))}: that folder does not exist."
    if not os.access(launch.cwd, os.X_OK):
        return f"'{program}' cannot be started in {one_line(str(launch.cwd))}: that folder may not be entered."
    if isinstance(error, FileNotFoundError):
        if _exists(launch):
            return f"'{program}' cannot be started: the interpreter that its first line names does not exist."
        return f"There is no program '{program}'."
    return f"'{program}' cannot be started: {error.strerror} ({errno.errorcode.get(error.errno or 0, error.errno)})."


def _exists(launch: Launch) -> bool:
    import shutil  # brings the compression modules, for this one message

    name = launch.argv[0]
    found = shutil.which(name, path=launch.env.get("PATH", os.defpath)) if "/" not in name else name
    return found is not None and (launch.cwd / found).is_file()


async def _watch(child: _Child, gone: asyncio.Future[None], said: asyncio.Future[None] | None) -> Broken | None:
    """Wait for the end of the program; the limit that it broke first, or None if it ended by itself.

    `said` is done when there is nothing more to talk about: then the program has its grace to end.
    """
    watch = _Watch(child)
    waiting = {gone} if said is None else {gone, said}
    while True:
        now = time.monotonic()
        done, _ = await asyncio.wait(waiting, timeout=watch.next_look(now) - now, return_when="FIRST_COMPLETED")
        broken = watch.look(time.monotonic(), ended=bool(done))
        if broken is None and said is not None and done == {said} and said.exception() is None:
            farewell = child.launch.farewell
            if farewell == math.inf:
                waiting = {gone}
                continue
            await asyncio.wait({gone}, timeout=child.launch.limits.grace if farewell is None else farewell)
        if broken is not None or done:
            return broken


class _Watch:
    """What was seen of a program so far, and so when the next look is due."""

    def __init__(self, child: _Child) -> None:
        self._child, self._limits = child, child.launch.limits
        self._size = self._log_size()
        self._cpu = 0.0
        self._active_at = child.started
        self._idle_look = child.started + (self._limits.idle or 0.0) / _IDLE_LOOKS

    def next_look(self, now: float) -> float:
        """The earliest moment at which some limit could have been passed."""
        fills_in = (self._limits.log_bytes - self._size) / _FASTEST_LOG
        looks = [now + min(max(fills_in, _SOONEST_LOOK), _LATEST_LOOK)]
        if self._limits.wall is not None:
            looks.append(max(self._ends_at(self._limits.wall), now + _SOON))
        if self._limits.idle is not None:
            looks.append(self._idle_look)
        return min(looks)

    def look(self, now: float, *, ended: bool) -> Broken | None:
        """The limit that is passed by now."""
        size = self._log_size()
        if size != self._size:
            self._size, self._active_at = size, now
        if size > self._limits.log_bytes:
            return "output-limit"
        if ended:
            return None
        if self._limits.wall is not None and now >= self._ends_at(self._limits.wall):
            return "timeout"
        return self._look_for_idleness(now, self._limits.idle) if self._limits.idle is not None else None

    def _ends_at(self, wall: float) -> float:
        """When its time is over; what it stood still for the engine does not count."""
        started = self._child.started
        return started + wall + stood_still(self._child.launch.token, started)

    def _look_for_idleness(self, now: float, idle: float) -> Broken | None:
        pause = idle / _IDLE_LOOKS
        if now < self._idle_look:
            return None
        overslept = now - self._idle_look > max(1.0, pause)
        self._idle_look = now + pause
        if now - self._active_at < pause:
            # It wrote something a moment ago: no need to look at every process for its CPU time.
            return None
        launch = self._child.launch
        cpu = look(launch.token, self._child.identity, launch.log).cpu_seconds
        # The sum shrinks when a process with a past leaves, which is activity as well. And after we have been
        # stopped ourselves nobody was watching: the time does not count.
        if overslept or abs(cpu - self._cpu) > _IDLE_CPU_SHARE * (now - self._active_at):
            self._cpu, self._active_at = cpu, now
        waited = now - self._active_at - stood_still(launch.token, self._active_at)
        return "idle" if waited >= idle else None

    def _log_size(self) -> int:
        return os.fstat(self._child.log_fd).st_size


def _bury(child: _Child) -> tuple[int | None, float | None]:
    """Wait for the leader, who has ended: its status as Popen counts it, and its CPU time."""
    try:
        pid, status, usage = os.wait4(child.identity.pid, os.WNOHANG)
        if pid == 0:
            wait_last_thread(child.identity.pid, _LAST_THREAD)
            pid, status, usage = os.wait4(child.identity.pid, os.WNOHANG)
    except ChildProcessError:
        return None, None
    if pid == 0:
        return None, None
    code = os.waitstatus_to_exitcode(status)
    # Popen must not wait for a pid that is another process's by now.
    child.process.returncode = code
    return code, usage.ru_utime + usage.ru_stime


def _sentence(child: _Child, reason: Reason, code: int | None, number: int | None) -> str:
    limits, name = child.launch.limits, child.name
    if reason == "timeout":
        return f"'{name}' was stopped: it ran longer than {limits.wall:g} s."
    if reason == "idle":
        return f"'{name}' was stopped: for {limits.idle:g} s it wrote nothing and used no CPU."
    if reason == "output-limit":
        return f"'{name}' was stopped: its log grew past {limits.log_bytes:,} bytes."
    if number is not None:
        return f"'{name}' was ended by {_signal_name(number)}."
    if code is None:
        return f"'{name}' has ended, but its status was lost."
    return f"'{name}' ended with status {code}."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
