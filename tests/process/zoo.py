"""Programs that behave as badly as real ones do, and independent eyes that see whether they are gone.

Every lasting process of the zoo carries a number in its command line that no other process has: so
the tests can look for survivors without asking the code under test.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
from msgspec.structs import replace

from orchard.model.limits import Limits
from orchard.process.families.table import all_processes
from orchard.process.program import Launch
from orchard.process.sandbox.policy import Policy
from orchard.process.sandbox.wall import Wall

GRACE = 0.3

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Animal:
    """A shell script; `$NAP` is the number for `sleep`, `$HOLD` keeps the leader alive or does nothing."""

    name: str
    script: str
    code: str = ""
    """Python for `$CODE`, which `$SNAKE` runs."""
    log: bytes = b"READY\n"
    """What the log ends with when the program has ended by itself."""
    size: int | None = None
    """How long the log is then; None if it is no longer than that."""
    stays: bool = False
    """The leader never ends by itself."""
    ends: tuple[str, int | None] = ("exit", 0)
    """The reason of its end, and its exit code; one that does not `exit` ends at once, whatever one does."""

    @property
    def env(self) -> dict[str, str]:
        return {"CODE": self.code, "SNAKE": sys.executable}

    def wrote(self, log: Path) -> bool:
        """Whether the log is what this program writes."""
        size = len(self.log) if self.size is None else self.size
        with log.open("rb") as file:
            file.seek(max(0, size - len(self.log)))
            return file.read(len(self.log) + 1) == self.log and log.stat().st_size == size


# The parent goes on only when the child is what it wants to be: before that it is still a copy of the parent.
UP = "sh -c ': > up; exec sleep '$NAP"
WAIT = "until [ -e up ]; do sleep 0.01; done;"

SNAKE = f'"$SNAKE" -I -S -c "$CODE" $NAP & {WAIT} echo READY; $HOLD'
NAPS = "open('up', 'w')\ntime.sleep(600)"
AWAY = "os.chdir('/')\nfor one in range(256):\n  try: os.close(one)\n  except OSError: pass\ntime.sleep(600)"
MOVES_ON = "while True:\n  if os.fork(): os._exit(0)\n  os.setsid()\n  time.sleep(0.05)"
WIPES = (
    "libc = ctypes.CDLL(None)\nlibc.getenv.restype = ctypes.c_void_p\n"
    "name = b'ORCHARD_TOKEN'\nctypes.memset(libc.getenv(name) - len(name) - 1, 0, len(name) + 1)\n"
)
TRACED = "if not os.fork():\n  ctypes.CDLL(None).ptrace(0, 0, 0, 0)\n  os.kill(os.getpid(), signal.SIGSTOP)\n"

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
    Animal("no environment, own session", f"env -i setsid {UP} >/dev/null 2>&1 & {WAIT} echo READY; $HOLD"),
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
        "one line of 100 MB",
        "head -c 100000000 /dev/zero | tr '\\0' a; echo; echo READY; $HOLD",
        log=b"aaa\nREADY\n",
        size=100_000_000 + len(b"\nREADY\n"),
    ),
    Animal("both streams", "echo out; echo err >&2; echo READY; $HOLD", log=b"out\nerr\nREADY\n"),
    Animal("pipeline", "sleep $NAP | cat & echo READY; $HOLD"),
    Animal("background and wait", "sleep 0 & wait; echo READY; $HOLD & wait"),
    Animal(
        "thousands of files", "i=0; while [ $i -lt 3000 ]; do : > $i; i=$((i+1)); done; sleep $NAP & echo READY; $HOLD"
    ),
    Animal("folder that is gone", "mkdir gone; cd gone; rmdir ../gone; sleep $NAP & echo READY; $HOLD"),
    Animal("huge environment", "BIG=$(head -c 100000 /dev/zero | tr '\\0' x) sleep $NAP & echo READY; $HOLD"),
    Animal("holds the log open", "exec 7>&1; sleep $NAP >/dev/null 2>&1 & echo READY; $HOLD"),
    Animal("spawns whenever told to end", "trap 'setsid sleep $NAP &' TERM; echo READY; $HOLD & wait; $HOLD"),
    Animal("stopped, and ignores SIGTERM", "trap '' TERM; echo READY; kill -STOP $$; sleep $NAP", stays=True),
    Animal(
        "kills its own shell",
        f"sh -c ': > up; kill -9 $PPID; exec sleep '$NAP & {WAIT} sleep $NAP",
        ends=("signal", None),
        log=b"",
    ),
    Animal(
        "daemon",
        SNAKE,
        "import os, sys, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nopen('up', 'w')\n"
        + AWAY,
    ),
    Animal("daemon that moves on", SNAKE, "import os, sys, time\nopen('up', 'w')\n" + MOVES_ON),
    Animal(
        "another title", SNAKE, "import os, sys\nopen('up', 'w')\nos.execvp('sleep', ['[kworker/0:1]', sys.argv[1]])"
    ),
    Animal("token wiped from memory", SNAKE, "import ctypes, os, sys, time\nos.setsid()\n" + WIPES + NAPS),
    Animal(
        "parent that buries nobody",
        SNAKE,
        "import os, sys, time\nfor _ in range(20):\n  if not os.fork(): os._exit(0)\n" + NAPS,
    ),
    Animal("traced child", SNAKE, "import ctypes, os, signal, sys, time\n" + TRACED + NAPS),
    Animal(
        "started without fork",
        SNAKE,
        "import os, sys, time\nos.posix_spawnp('sleep', ['sleep', sys.argv[1]], os.environ)\n" + NAPS,
    ),
    Animal(
        "terminal of its own",
        SNAKE,
        "import os, pty, sys, time\npid, _ = pty.fork()\nif not pid: time.sleep(600)\n" + NAPS,
    ),
    Animal("group of its own", SNAKE, "import os, sys, time\nos.setpgid(0, 0)\n" + NAPS),
    Animal(
        "every signal blocked",
        SNAKE,
        "import signal, sys, time\nsignal.pthread_sigmask(0, signal.valid_signals())\n" + NAPS,
    ),
    Animal(
        "fifty threads",
        SNAKE,
        "import sys, threading, time\nfor _ in range(50): threading.Thread(target=time.sleep, args=(600,)).start()\n"
        + NAPS,
    ),
)


def nap() -> str:
    """Seconds for `sleep` that no other process was given."""
    return f"{600 + next(_numbers)}.{os.getpid():07d}"


def walled(launch: Launch, level: Literal["bwrap", "landlock"]) -> Launch:
    """The same behind a wall, where it may write to its folder only."""
    home, temporary = launch.cwd / "home", launch.cwd / "tmp"
    home.mkdir()
    temporary.mkdir()
    return replace(launch, wall=Wall(level, Policy(home=home, temporary=temporary, writable=(launch.cwd,))))


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
