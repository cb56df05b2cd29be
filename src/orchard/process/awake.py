"""Keeping the machine awake while jobs run.

One hold serves everybody: the first to ask takes it, the last to leave gives it back. There are
three ways to hold, tried in order: wakepy (desktops), `systemd-inhibit` (Linux machines without a
desktop session), `caffeinate` (macOS without wakepy). Each ends with us even if we are killed. That
none works is a warning to show once, never a failure: the jobs run all the same.
"""

import contextlib
import importlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

_PATIENCE = 3.0
"""Seconds for a desktop or init system to answer."""

Release = Callable[[], None]
Way = Callable[[], Release | None]
"""Takes hold and answers with how to let go; None when this way does not work here."""

WARNING = "The machine may fall asleep while jobs run: Orchard cannot keep it awake here."


class Wakefulness:
    def __init__(self, ways: Sequence[Way]) -> None:
        self._ways = ways
        self._lock = threading.Lock()
        self._holders = 0
        self._release: Release | None = None

    @contextlib.contextmanager
    def hold(self) -> Iterator[str | None]:
        with self._lock:
            self._holders += 1
            if self._release is None:
                self._release = next(filter(None, (way() for way in self._ways)), None)
            warning = None if self._release is not None else WARNING
        try:
            yield warning
        finally:
            with self._lock:
                self._holders -= 1
                release = self._release if self._holders == 0 else None
                if release is not None:
                    self._release = None
                    release()


def by_wakepy() -> Release | None:
    """Ask the desktop. In a thread of its own, because wakepy must be left by the thread that entered it."""
    try:
        keep = importlib.import_module("wakepy").keep  # an extra that may be missing, and slow to import
    except ImportError:
        return None
    answered, done = threading.Event(), threading.Event()
    active: list[bool] = []

    def stay() -> None:
        with keep.running(on_fail="pass") as mode:
            active.append(bool(mode.active))
            answered.set()
            if mode.active:
                done.wait()

    thread = threading.Thread(target=stay, name="keep-awake", daemon=True)
    thread.start()
    answered.wait(_PATIENCE)

    def release() -> None:
        done.set()
        thread.join(_PATIENCE)

    if active == [True]:
        return release
    release()
    return None


def by_systemd() -> Release | None:
    """Run `cat` under the inhibitor, on a pipe of ours: when we go, however we go, the pipe ends and so does it."""
    why = ["--who=orchard", "--why=Jobs are running", "--mode=block"]
    try:
        process = subprocess.Popen(
            ["systemd-inhibit", "--what=idle:sleep", *why, "--", "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    except OSError:
        return None
    if _answers(process):
        return lambda: _stop(process)
    _stop(process)
    return None


def by_caffeinate() -> Release | None:
    """Let macOS watch our pid and stay awake for as long as it lives."""
    if sys.platform != "darwin":
        return None
    try:
        process = subprocess.Popen(
            ["caffeinate", "-dims", "-w", str(os.getpid())], stdin=subprocess.DEVNULL, process_group=0
        )
    except OSError:
        return None
    return lambda: _stop(process)


def _answers(process: subprocess.Popen[bytes]) -> bool:
    """Whether what we write comes back: then `cat` runs, and it only runs once the lock is taken."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(b"?")
        process.stdin.flush()
    except OSError:
        return False
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    return bool(poll.poll(_PATIENCE * 1000)) and os.read(process.stdout.fileno(), 1) == b"?"


def _stop(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    for end in (process.terminate, process.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
            return


_shared = Wakefulness((by_wakepy, by_systemd, by_caffeinate))


def keep_awake() -> contextlib.AbstractContextManager[str | None]:
    """Stay awake inside the `with`; it gives a warning text when that does not work, and never raises."""
    return _shared.hold()
