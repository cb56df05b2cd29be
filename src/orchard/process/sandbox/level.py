"""Which wall can be built on this machine: found by building it once, never by a version.

A kernel, a container or a distribution may forbid what bubblewrap needs (user namespaces, a `/proc` of one's own), and
says so only when asked. So a program is started behind the real profile, and must report that it is where it should be.
What was found holds as long as this process lives.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orchard.process.sandbox.bwrap import ENVIRONMENT, bwrap_argv, bwrap_options, packed
from orchard.process.sandbox.ground import survey
from orchard.process.sandbox.policy import Level, Policy, SandboxError

Wanted = Literal["auto", "bwrap", "landlock", "off"]

SECONDS = 20.0
"""How long the trial may take, on a machine that is busy with something else."""

_BOUNDED = 'test "$$" -lt 5 && ! test -e "$1" && ! touch / 2>/dev/null && ! unshare -U true 2>/dev/null && echo walled'
"""What the trial asks: are we in processes of our own, is the hidden hidden, the disk closed, and nesting refused?"""


_CREATE_RULESET = 444  # the same number on all machines
_VERSION = 1


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
        if wanted == "off":
            return "off"
        for finding in self.findings:
            if finding.works and wanted in ("auto", finding.level):
                return finding.level
        asked = [finding for finding in self.findings if wanted in ("auto", finding.level)]
        reasons = " ".join(f"{finding.level}: {finding.reason}" for finding in asked)
        raise SandboxError(
            f"No wall can be put around programs on this machine. {reasons}",
            hint="Install bubblewrap (package 'bubblewrap'), or set sandbox = \"off\" to run everything without one.",
        )


@cache
def walls() -> Walls:
    return Walls((try_bwrap(bwrap_program()), try_landlock()))


@cache
def bwrap_program() -> Path | None:
    """By the system's own path: a program of that name in a job's or a repository's folder is not it."""
    found = shutil.which("bwrap", path=ENVIRONMENT["PATH"])
    return Path(found) if found else None


def try_bwrap(program: Path | None) -> Finding:
    """Start a program behind the whole profile."""
    if not sys.platform.startswith("linux"):
        return Finding("bwrap", False, "It exists on Linux only.")
    if program is None:
        return Finding("bwrap", False, "The program 'bwrap' is not installed.")
    with tempfile.TemporaryDirectory(prefix="orchard-wall-") as name:
        folder = Path(name).resolve()
        hidden = folder / "hidden"
        (hidden / "inside").mkdir(parents=True)
        policy = Policy(home=folder, temporary=folder, writable=(folder,), hidden=(hidden,), network="off")
        options = bwrap_options(policy, survey(policy), ENVIRONMENT, folder)
        argv = ("/bin/sh", "-c", _BOUNDED, "sh", str(hidden / "inside"))
        try:
            done = _run(program, policy, options, argv)
        except OSError as error:
            return Finding("bwrap", False, f"It could not be started: {error.strerror}.")
        except subprocess.TimeoutExpired:
            return Finding("bwrap", False, f"A trial did not end within {SECONDS:.0f} seconds.")
    if done.returncode == 0 and done.stdout == b"walled\n":
        return Finding("bwrap", True)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return Finding("bwrap", False, said[-1] if said else "A trial came through: the profile does not hold here.")


def try_landlock() -> Finding:
    """Ask the kernel which rules it knows: the call makes nothing, and needs no right."""
    if not sys.platform.startswith("linux"):
        return Finding("landlock", False, "It exists on Linux only.")
    import ctypes  # only who builds a wall needs it

    version = int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, 0, _VERSION))
    if version > 0:
        return Finding("landlock", True)
    return Finding("landlock", False, f"The kernel has it not: {os.strerror(ctypes.get_errno())}.")


def _run(
    program: Path, policy: Policy, options: tuple[str, ...], argv: tuple[str, ...]
) -> subprocess.CompletedProcess[bytes]:
    descriptor = os.memfd_create("orchard-wall")
    try:
        os.write(descriptor, packed(options))
        os.lseek(descriptor, 0, os.SEEK_SET)
        return subprocess.run(
            (*bwrap_argv(program, policy, descriptor), *argv),
            pass_fds=(descriptor,),
            env=dict(ENVIRONMENT),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    finally:
        os.close(descriptor)
