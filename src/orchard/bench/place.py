"""Where measuring happens: a temporary folder with a home of its own, real repositories, and our real program.

Nothing of the user's is written, and nothing is left: the folder goes away with everything in it, also when
measuring is interrupted.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from orchard.git.command import run_git
from orchard.process.stopwatch import LONGEST, Broken, held_signals

LONGEST_REMOVAL = 10.0
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")
IDENTITY = {
    "GIT_AUTHOR_NAME": "Bench",
    "GIT_AUTHOR_EMAIL": "bench@example.com",
    "GIT_COMMITTER_NAME": "Bench",
    "GIT_COMMITTER_EMAIL": "bench@example.com",
}


class Bench(Struct, frozen=True):
    folder: Path
    quick: bool

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def fresh(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder)) / name


def scratch_parent(parent: Path | None) -> Path:
    """Where folders for measuring are made: what was asked for, else where temporary folders go."""
    return parent or Path(tempfile.gettempdir())


@contextmanager
def open_bench(*, quick: bool = False, parent: Path | None = None) -> Iterator[Bench]:
    """A temporary folder with our own environment around it; both are put back as they were."""
    before = dict(os.environ)
    with held_signals() as deliver:
        folder = Path(tempfile.mkdtemp(prefix="orchard-bench-", dir=scratch_parent(parent))).resolve()
        try:
            deliver()
            os.environ.clear()
            os.environ.update(_environment(before, folder))
            yield Bench(folder, quick)
        finally:
            os.environ.clear()
            os.environ.update(before)
            _remove(folder)


def _remove(folder: Path) -> None:
    """Delete a folder, again for a while where a program that was killed has just written into it."""
    deadline = time.monotonic() + LONGEST_REMOVAL
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)


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
    # The scripts beside which we are measured have no walls; what those cost is a measure of its own.
    return {**env, **IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "ORCHARD_SANDBOX": "off"}


def orchard(*words: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "orchard", *words]


def git(cwd: Path, *words: str, stdin: bytes = b"") -> str:
    """Run git for what is prepared, not measured."""
    done = run_git(words, cwd=cwd, env=os.environ, stdin=stdin, timeout=LONGEST)
    if done.status != 0:
        raise Broken(f"'git {' '.join(words)}' ended with status {done.status}: {os.fsdecode(done.stderr).strip()}")
    return done.text
