"""Starting a program behind a wall, of whatever kind: the one place that does it.

bubblewrap is a program that starts another one; its profile and its filter of system calls are handed over in memory
that has no name (memfd). Landlock needs no program: what a thread gives up it gives up for itself and for what it
starts. So a thread is made for each start, goes behind the wall, starts the program and ends; the others of this
process notice nothing.

bubblewrap ends with the thread that started it (`--die-with-parent`), so it is started by one that stays. A program on
the network of the machine would find there the abstract UNIX sockets of the machine as well, desktop and all; Landlock
can keep it from these without keeping bubblewrap from its mounts. So there is one more thread, for as long as we live,
that gave up these sockets and nothing else.
"""

import errno
import gc
import os
import stat
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from orchard.process.families.table import TOKEN_VARIABLE
from orchard.process.sandbox.bwrap import ENVIRONMENT, bwrap_argv, bwrap_options, bwrap_program, packed
from orchard.process.sandbox.ground import Ground, survey
from orchard.process.sandbox.kernel import filter_calls
from orchard.process.sandbox.landlock import (
    SCOPES_SINCE,
    give_up_abstract_sockets,
    on_the_ground,
    restrict,
    version,
)
from orchard.process.sandbox.policy import Level, Policy
from orchard.process.sandbox.resources import hold
from orchard.process.sandbox.scratch import make_standing, outside
from orchard.process.sandbox.seccomp import Inet, seccomp_filter

_INET: Mapping[str, Inet] = {"on": "all", "proxy": "tcp", "off": "none"}


def popen(policy: Policy, level: Level, argv: Sequence[str], **arguments: Any) -> subprocess.Popen[bytes]:
    """Start a program; arguments and exceptions are those of `subprocess.Popen`.

    A wall that cannot be built is an OSError or a SandboxError, and no program runs.
    """
    if level == "bwrap":
        process = _by_bwrap(policy, argv, arguments)
    elif level == "landlock":
        process = _by_thread(policy, argv, arguments)
    else:
        process = _plainly(argv, arguments)
    try:
        hold(process.pid, policy.resources)
    except BaseException:
        _undo(process)
        raise
    return process


def _plainly(argv: Sequence[str], arguments: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    process: subprocess.Popen[bytes] = subprocess.Popen(argv, **arguments)
    return process


def _undo(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


@cache
def _filter(*, unix: bool, inet: Inet, listen: bool) -> bytes:
    return seccomp_filter(unix=unix, inet=inet, listen=listen)


# ------------------------------------------------------------------------------------------ bwrap


def _by_bwrap(policy: Policy, argv: Sequence[str], arguments: dict[str, Any]) -> subprocess.Popen[bytes]:
    program = bwrap_program()
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "There is no bubblewrap", "bwrap")
    env = _environment(arguments)
    folder = Path(arguments.get("cwd") or Path.cwd())
    if folder.is_dir():
        _look_for(argv[0], folder, env, policy)
    # Sockets are not filtered: behind this wall there are none but those that the policy shows, and the network that
    # there is has nothing in it that may not be reached.
    calls = _filter(unix=True, inet="all", listen=True)
    outside = {**ENVIRONMENT, **{name: env[name] for name in (TOKEN_VARIABLE,) if name in env}}
    with ExitStack() as stack:
        filtered, ground = _memory(stack, calls), survey(policy)
        make_standing(policy, ground)
        options = _memory(stack, packed(bwrap_options(policy, ground, env, folder, seccomp=filtered)))
        arguments |= {"env": outside, "pass_fds": (*arguments.get("pass_fds", ()), filtered, options)}
        whole = (*bwrap_argv(program, policy, options), *argv)
        if policy.network == "on" and version() >= SCOPES_SINCE and not program.stat().st_mode & stat.S_ISUID:
            return _handed_over(_apart().submit(_plainly, whole, arguments))
        return _plainly(whole, arguments)


@cache
def _apart() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "orchard-bwrap", initializer=give_up_abstract_sockets)


def _handed_over(start: "Future[subprocess.Popen[bytes]]") -> subprocess.Popen[bytes]:
    """The program that another thread starts; none, if we are interrupted while we wait for it."""
    try:
        return start.result()
    except BaseException:
        if start.exception() is None:
            _undo(start.result())
        raise


def _memory(stack: ExitStack, content: bytes) -> int:
    descriptor = os.memfd_create("orchard-wall")
    stack.callback(os.close, descriptor)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _look_for(name: str, folder: Path, env: Mapping[str, str], policy: Policy) -> None:
    """Raise what Popen would raise for a program that is not there: bubblewrap could only say so in the log."""
    places = [""] if "/" in name else env.get("PATH", os.defpath).split(os.pathsep)
    seen = False
    for place in places:
        path = os.path.join(folder, place, name)  # noqa: PTH118 — one of many, and most are not there
        own = outside(path, policy)
        path = own or path
        if not os.access(path, os.F_OK) or not (own or policy.may_read(Path(os.path.realpath(path)))):
            continue
        if os.access(path, os.X_OK) and Path(path).is_file():
            return
        seen = True
    number = errno.EACCES if seen else errno.ENOENT
    raise OSError(number, os.strerror(number), name)


# --------------------------------------------------------------------------------------- landlock


def _by_thread(policy: Policy, argv: Sequence[str], arguments: dict[str, Any]) -> subprocess.Popen[bytes]:
    env = {**_environment(arguments), "HOME": str(policy.home), "TMPDIR": str(policy.temporary)}
    # A path of a UNIX socket is none of Landlock's business, so either all can be connected to or none.
    unix = bool(policy.sockets)
    calls = _filter(unix=unix, inet=_INET[policy.network], listen=unix or policy.network == "on")
    with ThreadPoolExecutor(1, "orchard-wall") as thread:
        return _handed_over(thread.submit(_start, policy, on_the_ground(policy), calls, argv, arguments | {"env": env}))


def _start(
    policy: Policy, ground: Ground, calls: bytes, argv: Sequence[str], arguments: dict[str, Any]
) -> subprocess.Popen[bytes]:
    """What the thread does in its short life."""
    with _collector_paused():
        restrict(policy, ground, _outputs(arguments))
        filter_calls(calls)
        return _plainly(argv, arguments)


def _outputs(arguments: Mapping[str, Any]) -> Iterator[int]:
    """The descriptors that become the program's output."""
    for name, inherited in (("stdout", 1), ("stderr", 2)):
        given = arguments.get(name)
        descriptor = inherited if given is None else given if isinstance(given, int) else given.fileno()
        if descriptor >= 0:
            yield descriptor


_collector = threading.Lock()
_pauses = 0
_was_enabled = False


@contextmanager
def _collector_paused() -> Iterator[None]:
    """What others left to be cleaned up must not be cleaned up by a thread that may open nothing."""
    global _pauses, _was_enabled  # noqa: PLW0603 — the collector belongs to the whole process
    with _collector:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _collector:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()


def _environment(arguments: Mapping[str, Any]) -> dict[str, str]:
    given = arguments.get("env")
    return dict(os.environ if given is None else given)
