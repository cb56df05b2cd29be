"""Which wall can be built on this machine: found by building it once, never by a version.

A kernel, a container or a distribution may forbid what bubblewrap needs (user namespaces, a `/proc` of one's own), and
says so only when asked. So a program is started behind the real profile, and must report that it is where it should be.
What was found holds as long as this process lives, unless bubblewrap comes or goes.
"""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Literal

from msgspec import Struct

from orchard.process.sandbox.bwrap import ENVIRONMENT, bwrap_argv, bwrap_options, bwrap_program, packed
from orchard.process.sandbox.ground import survey
from orchard.process.sandbox.policy import Level, Policy, SandboxError
from orchard.process.sandbox.seccomp import seccomp_filter
from orchard.process.sandbox.spawn import popen

Wanted = Literal["auto", "bwrap", "landlock", "off"]

STRONGEST_FIRST: tuple[Level, ...] = ("bwrap", "landlock")

SECONDS = 20.0
"""How long the trial may take, on a machine that is busy with something else."""

_BOUNDED = 'test "$$" -lt 5 && ! test -e "$1" && ! touch / 2>/dev/null && ! unshare -U true 2>/dev/null && echo walled'
"""What the trial asks: are we in processes of our own, is the hidden hidden, the disk closed, and nesting refused?"""


_CLOSED = '! ls "$1" >/dev/null 2>&1 && ! touch ../there 2>/dev/null && touch here && echo walled'
"""The same for a wall without namespaces."""


class Finding(Struct, frozen=True):
    """Whether a level works here, and if not why not, in words for people."""

    level: Level
    works: bool
    reason: str = ""


class Walls(Struct, frozen=True):
    """What was found on this machine; the strongest first."""

    findings: tuple[Finding, ...]

    def choose(self, wanted: Wanted) -> Level:
        """The level to use; an error where it does not work. `auto` never means none."""
        return _first(wanted, (finding for finding in self.findings if wanted in ("auto", finding.level)))


def _first(wanted: Wanted, findings: Iterable[Finding]) -> Level:
    if wanted == "off":
        return "off"
    reasons = []
    for finding in findings:
        if finding.works:
            return finding.level
        reasons.append(f"{finding.level}: {finding.reason}")
    raise SandboxError(
        f"No wall can be put around programs on this machine. {' '.join(reasons)}",
        hint="Install bubblewrap (package 'bubblewrap'), or set sandbox = \"off\" to run everything without one.",
    )


def found(level: Level) -> Finding:
    """Whether a level works here; tried again when bubblewrap has come or gone."""
    with _trying:  # whoever asks meanwhile waits for the answer
        return _tried(level, bwrap_program() if level == "bwrap" else None)


_trying = threading.Lock()


@cache
def _tried(level: Level, bwrap: Path | None) -> Finding:
    return try_bwrap(bwrap) if level == "bwrap" else try_landlock()


def walls() -> Walls:
    """Every level, tried."""
    return Walls(tuple(map(found, STRONGEST_FIRST)))


def choose(wanted: Wanted) -> Level:
    """The level to use, as `Walls.choose` says, without trying one that is not asked for; where there was none, all are
    tried again the next time."""
    try:
        return _first(wanted, (found(level) for level in STRONGEST_FIRST if wanted in ("auto", level)))
    except SandboxError:
        _tried.cache_clear()
        raise


def try_bwrap(program: Path | None) -> Finding:
    """Start a program behind the whole profile."""
    if not sys.platform.startswith("linux"):
        return Finding("bwrap", False, "It exists on Linux only.")
    if program is None:
        return Finding("bwrap", False, "The program 'bwrap' is not installed.")
    if shutil.which("nsenter") is None:
        return Finding("bwrap", False, "The program 'nsenter' (util-linux), which its network needs, is not installed.")
    with _trial() as (policy, hidden):
        argv = ("/bin/sh", "-c", _BOUNDED, "sh", str(hidden / "inside"))
        try:
            done = _run(program, policy, argv)
        except OSError as error:
            return Finding("bwrap", False, f"It could not be started: {error.strerror}.")
        except subprocess.TimeoutExpired:
            return Finding("bwrap", False, f"A trial did not end within {SECONDS:.0f} seconds.")
    if done.returncode == 0 and done.stdout == b"walled\n":
        return Finding("bwrap", True)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return Finding("bwrap", False, said[-1] if said else "A trial came through: the profile does not hold here.")


def try_landlock() -> Finding:
    """Start a program behind it: a container may forbid the calls although the kernel knows them."""
    if not sys.platform.startswith("linux"):
        return Finding("landlock", False, "It exists on Linux only.")
    with _trial() as (policy, hidden):
        argv = ("/bin/sh", "-c", _CLOSED, "sh", str(hidden))
        try:
            said = _output(policy, argv)
        except OSError as error:
            return Finding("landlock", False, f"A trial could not be started: {error.strerror}.")
        except subprocess.TimeoutExpired:
            return Finding("landlock", False, f"A trial did not end within {SECONDS:.0f} seconds.")
    if said == b"walled\n":
        return Finding("landlock", True)
    return Finding("landlock", False, "A trial came through: the rules do not hold here.")


@contextmanager
def _trial() -> Iterator[tuple[Policy, Path]]:
    """A folder to be written to and one to be hidden, for a moment."""
    with TemporaryDirectory(prefix="orchard-wall-") as name:
        work, hidden = Path(name).resolve() / "work", Path(name).resolve() / "hidden"
        work.mkdir()
        (hidden / "inside").mkdir(parents=True)
        yield Policy(home=work, temporary=work, writable=(work,), hidden=(hidden,), network="off"), hidden


def _output(policy: Policy, argv: tuple[str, ...]) -> bytes:
    with popen(
        policy, "landlock", argv, env=dict(ENVIRONMENT), cwd=policy.home, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            return process.communicate(timeout=SECONDS)[0]
        finally:
            process.kill()


def _run(program: Path, policy: Policy, argv: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
    with TemporaryFile() as options, TemporaryFile() as calls:
        calls.write(seccomp_filter(unix=True, inet="all"))
        profile = bwrap_options(policy, survey(policy), ENVIRONMENT, policy.home, seccomp=calls.fileno())
        options.write(packed(profile))
        for file in (calls, options):
            file.seek(0)
        return subprocess.run(
            (*bwrap_argv(program, policy, options.fileno()), *argv),
            pass_fds=(options.fileno(), calls.fileno()),
            env=dict(ENVIRONMENT),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
