"""Programs that are timed: each in a session of its own, which is ended with everything in it."""

import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from orchard.errors import OrchardError

LONGEST = 1800.0
"""Seconds after which a program that is timed is taken for stuck."""

GRACE = 10.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAID = 4000


class Broken(OrchardError):
    """A program that is timed failed: its time would mean nothing."""


class Timed(Struct, frozen=True):
    wall: float
    cpu: float
    """With that of everything it started."""
    peak: float
    """Bytes of memory of the largest process among them."""
    output: str


@contextmanager
def started(words: Sequence[str | Path], cwd: Path, output: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own, which has ended with all its children when this is left."""
    with held_signals() as deliver:
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            text=True,
            start_new_session=True,
        )
        try:
            deliver()
            yield process
        finally:
            if process.poll() is None:
                _end(process)
            if process.stdout is not None:
                process.stdout.close()


@contextmanager
def held_signals() -> Iterator[Callable[[], None]]:
    """Signals that ask us to end wait until the given function is called: by then somebody can clean up.

    Without it, one that comes while something is being made leaves it behind: nobody has it in hand yet.
    """
    if threading.current_thread() is not threading.main_thread():  # signals come to the main thread only
        yield lambda: None
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in ENDING}

    def deliver() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)
        while came:
            signal.raise_signal(came.pop())

    try:
        yield deliver
    finally:
        deliver()


def _end(process: "subprocess.Popen[str]") -> None:
    """Ask a program and its children to end; those that are left when it has ended, or when it does not, are killed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    deadline = time.monotonic() + GRACE
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, signal.SIGKILL)  # fails when no process is left in the group
            process.poll()
            time.sleep(0.01)
    process.wait()


def timed(words: Sequence[str | Path], cwd: Path) -> Timed:
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        with started(words, cwd, output.fileno()) as process:
            limit = threading.Timer(LONGEST, os.killpg, (process.pid, signal.SIGKILL))
            limit.daemon = True  # a program that is interrupted here does not wait for it
            try:
                limit.start()
                # Not `wait(timeout)`: it polls with pauses of up to 50 ms.
                _, status, used = os.wait4(process.pid, 0)
                wall = time.perf_counter() - begin
                process.returncode = os.waitstatus_to_exitcode(status)
            finally:
                limit.cancel()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        output.seek(0)
        said = output.read()
    if process.returncode != 0:
        shown = " ".join(str(word) for word in words)
        raise Broken(f"'{shown}' ended with status {process.returncode}:\n{said[-SAID:].strip()}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timed(wall, cpu, used.ru_maxrss * _MAXRSS_UNIT, said)


_MAXRSS_UNIT = 1 if os.uname().sysname == "Darwin" else 1024
