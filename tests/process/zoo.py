"""Programs that behave as badly as real ones do, and independent eyes that see whether they are gone.

Every lasting process of the zoo carries a number in its command line that no other process has: so
the tests can look for survivors without asking the code under test.
"""

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from orchard.process.program import Launch, Limits
from orchard.process.table import all_processes

GRACE = 0.3

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Animal:
    """A shell script; `$NAP` is the number for `sleep`, `$HOLD` keeps the leader alive or does nothing."""

    name: str
    script: str
    log: bytes = b"READY\n"
    """What the log holds when the program has ended by itself."""
    stays: bool = False
    """The leader never ends by itself."""
    scrubbed: bool = False
    """Once the leader is gone nothing proves whose child it was: for `adopted` to find."""


# The parent goes on only when the child is what it wants to be: before that it is still a copy of the parent.
UP = "sh -c ': > up; exec sleep '$NAP"
WAIT = "until [ -e up ]; do sleep 0.01; done;"

ZOO = (
    Animal("plain", "echo READY; $HOLD"),
    Animal("background child", "sleep $NAP & echo READY; $HOLD"),
    Animal("child in its own session", f"setsid {UP} & {WAIT} echo READY; $HOLD"),
    Animal("double fork", "(setsid sh -c 'sleep $NAP & sleep $NAP' &) & wait; echo READY; $HOLD"),
    Animal("ignores SIGTERM", "trap '' TERM; sleep $NAP & echo READY; $HOLD"),
    Animal("session that ignores SIGTERM", "setsid sh -c 'trap \"\" TERM; sleep $NAP' & echo READY; $HOLD"),
    Animal("stopped child", "sh -c 'kill -STOP $$; sleep $NAP' & echo READY; $HOLD"),
    Animal("stopped leader", "echo READY; kill -STOP $$; sleep $NAP", stays=True),
    Animal("closed stdio", "echo READY; exec <&- >&- 2>&-; sleep $NAP & $HOLD"),
    Animal("child that closed stdio and left the session", f"setsid {UP} <&- >&- 2>&- & {WAIT} echo READY; $HOLD"),
    Animal("child that forgot the token", f"env -u ORCHARD_TOKEN setsid {UP} & {WAIT} echo READY; $HOLD"),
    Animal("child with no environment", f"env -i {UP} >/dev/null 2>&1 & {WAIT} echo READY; $HOLD"),
    Animal(
        "no environment, own session", f"env -i setsid {UP} >/dev/null 2>&1 & {WAIT} echo READY; $HOLD", scrubbed=True
    ),
    Animal("own process groups", "set -m 2>/dev/null; sleep $NAP & sleep $NAP & echo READY; $HOLD"),
    Animal("nohup", "nohup sleep $NAP >/dev/null 2>&1 & echo READY; $HOLD"),
    Animal("changes its folder", "cd /; sleep $NAP & echo READY; $HOLD"),
    Animal("fork storm", "i=0; while [ $i -lt 50 ]; do sleep $NAP & i=$((i+1)); done; echo READY; $HOLD"),
    Animal(
        "deep tree",
        "deep() { if [ $1 -gt 0 ]; then (deep $(($1-1)); :) & else sleep $NAP & fi; sleep $NAP; };"
        " deep 10 & echo READY; $HOLD",
    ),
    Animal("chain of exec", "exec sh -c 'exec sh -c \"echo READY; $HOLD\"'"),
    Animal("respawns when told to end", "trap 'setsid sleep $NAP & exit 3' TERM; echo READY; $HOLD & wait"),
    Animal("reads its input", "cat; read answer; echo READY; $HOLD"),
    Animal("NUL and broken UTF-8", "printf 'a\\000b\\377\\376\\n'; echo READY; $HOLD", log=b"a\0b\xff\xfe\nREADY\n"),
    Animal(
        "one line of 20 MB",
        "head -c 20000000 /dev/zero | tr '\\0' a; echo; echo READY; $HOLD",
        log=b"a" * 20_000_000 + b"\nREADY\n",
    ),
    Animal("both streams", "echo out; echo err >&2; echo READY; $HOLD", log=b"out\nerr\nREADY\n"),
    Animal("pipeline", "sleep $NAP | cat & echo READY; $HOLD"),
)


def nap() -> str:
    """Seconds for `sleep` that no other process was given."""
    return f"{600 + next(_numbers)}.{os.getpid():07d}"


def shell(folder: Path, script: str, limits: Limits | None = None, **env: str) -> Launch:
    """A launch of this script, with a log and a token of its own."""
    number = next(_numbers)
    return Launch(
        argv=("sh", "-c", script),
        cwd=folder,
        env={"PATH": os.environ["PATH"], **env},
        log=folder / f"{number}.log",
        token=f"zoo-{os.getpid()}-{number}",
        limits=limits or Limits(grace=GRACE),
    )


def survivors(number: str) -> list[int]:
    """Live processes that have this number in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and number.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that another process does, in bounded time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await anyio.sleep(0.01)


def zombies() -> list[int]:
    """Children of ours that ended and were not waited for."""
    return [stat.pid for stat in all_processes() if stat.dead and stat.parent == os.getpid()]


async def until_ready(launch: Launch) -> None:
    """Wait until the script has said so in its log."""
    await until(lambda: launch.log.exists() and b"READY" in launch.log.read_bytes()[-64:])
