"""Where measuring happens: a temporary folder with a home of its own, real repositories, and programs that are timed.

Nothing of the user's is read or written, and nothing is left: every program is in a session of its own, which is
ended with everything in it when measuring is interrupted.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LONGEST = 1800.0
"""Seconds after which a program that is measured is taken for stuck."""

GRACE = 10.0

KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")
IDENTITY = {
    "GIT_AUTHOR_NAME": "Bench",
    "GIT_AUTHOR_EMAIL": "bench@example.com",
    "GIT_COMMITTER_NAME": "Bench",
    "GIT_COMMITTER_EMAIL": "bench@example.com",
}


class Broken(RuntimeError):
    """A program that is measured failed: its time would mean nothing."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What running a program took."""

    wall: float
    cpu: float
    """With that of everything it started."""
    peak: float
    """Bytes of memory of the largest process among them."""
    output: str


@dataclass(frozen=True, slots=True)
class Bench:
    """The folder of one run, and how large things are to be."""

    folder: Path
    quick: bool

    def size(self, full: int, quick: int) -> int:
        """How many there are of something."""
        return quick if self.quick else full

    def fresh(self, name: str) -> Path:
        """A path in our folder that does not exist yet."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder)) / name


@contextmanager
def open_bench(*, quick: bool) -> Iterator[Bench]:
    """A temporary folder with our own environment around it; both are put back as they were."""
    before = dict(os.environ)
    folder = Path(tempfile.mkdtemp(prefix="orchard-bench-"))
    try:
        os.environ.clear()
        os.environ.update(_environment(before, folder))
        yield Bench(folder, quick)
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


def _environment(before: dict[str, str], folder: Path) -> dict[str, str]:
    env = {name: before[name] for name in KEPT_VARIABLES if name in before}
    home = folder / "home"
    places = {
        "HOME": home,
        **{f"XDG_{name}_HOME": home / name.lower() for name in ("STATE", "CONFIG", "CACHE", "DATA")},
    }
    # A short one: the path of a socket has room for about a hundred characters.
    places["XDG_RUNTIME_DIR"] = folder / "run"
    for place in places.values():
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    env.update({name: str(place) for name, place in places.items()})
    return {**env, **IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


@contextmanager
def started(words: Sequence[str | Path], cwd: Path, output: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own, which has ended with all its children when this is left."""
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
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)
        if process.stdout is not None:
            process.stdout.close()


def timed(words: Sequence[str | Path], cwd: Path) -> Timed:
    """Run a program to its end and say what it took."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        with started(words, cwd, output.fileno()) as process:
            limit = threading.Timer(LONGEST, os.killpg, (process.pid, signal.SIGKILL))
            limit.start()
            try:
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
        raise Broken(f"'{shown}' ended with status {process.returncode}:\n{said[-4000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timed(wall, cpu, used.ru_maxrss * 1024, said)


def orchard(*words: str | Path) -> list[str | Path]:
    """The command line of the real program."""
    return [sys.executable, "-m", "orchard", *words]


def git(cwd: Path, *words: str, stdin: bytes = b"") -> str:
    """Run git for what is prepared, not measured."""
    done = subprocess.run(["git", *words], cwd=cwd, input=stdin, capture_output=True, timeout=LONGEST, check=False)
    if done.returncode != 0:
        raise Broken(f"'git {' '.join(words)}' ended with status {done.returncode}: {os.fsdecode(done.stderr)}")
    return os.fsdecode(done.stdout).strip()
