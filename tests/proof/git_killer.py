"""A git that dies at its nth write: what stands in for git on the PATH of the crash matrix.

`wrap` makes a folder with a program `git` in it. That hands everything on to the real one; the command that a file
beside it names is traced, and killed when it is about to make a certain change (write, create, rename, remove, sync).
The kernel stops it there, so the change before has happened, and this one has not. Whoever started it may die first
(`both`), or alone while git goes on to its end (`engine`).
"""

import ctypes
import json
import os
import platform
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

WHO = ("git", "both", "engine")
"""Who dies."""


@dataclass(frozen=True)
class GitKill:
    """The `nth` git command of this kind that the engine starts is hit at its change number `change`."""

    verb: str
    nth: int
    change: int
    who: str

    def __str__(self) -> str:
        return f"git-{self.verb}:{self.nth}:{self.change}:{self.who}"


SCRIPT = """#!/bin/sh
# All but the armed command go straight to git.
for verb; do case "$verb" in -*) ;; *) break;; esac; done
if [ -e "{folder}/armed-$verb" ]; then exec "{python}" -IS "{here}" "{folder}" "{git}" "$@"; fi
exec "{git}" "$@"
"""


def wrap(folder: Path) -> Path:
    """Make the stand-in; returns the folder for the PATH."""
    folder.mkdir()
    git = shutil.which("git")
    assert git is not None
    program = folder / "git"
    program.write_text(SCRIPT.format(folder=folder, python=sys.executable, here=Path(__file__).resolve(), git=git))
    program.chmod(0o755)
    return folder


def arm(folder: Path, kill: GitKill) -> None:
    """From now on, until it has happened."""
    (folder / "kill.json").write_text(json.dumps(asdict(kill)))
    (folder / f"armed-{kill.verb}").touch()


def has_fired(folder: Path) -> bool:
    return (folder / "fired").exists()


def why_not() -> str:
    """Why nothing can be traced here."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"this tracer knows the system calls of Linux on x86_64 only, not of {platform.machine()}"
    child = os.fork()
    if child == 0:
        os._exit(0 if _ptrace(_TRACE_ME, 0, 0, 0) == 0 else 1)
    return "" if os.waitpid(child, 0)[1] == 0 else "this system does not let a process trace its child"


# ---------------------------------------------------------------------------------- as a program

_TRACE_ME, _PEEK_USER, _SYSCALL, _SET_OPTIONS = 0, 3, 24, 0x4200
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x100000  # mark syscalls; follow fork, vfork, clone; die with the tracer
_ALL_CHILDREN = 0x40000000
_NUMBER, _FIRST, _SECOND, _THIRD = (8 * row for row in (15, 14, 13, 12))
_WRITES = frozenset({1, 18, 20})
_CHANGES = frozenset({74, 75, 76, 77, 82, 83, 84, 86, 87, 88, 90, 91, 258, 263, 264, 265, 266, 268, 280, 316})
_OPEN, _OPEN_AT = 2, 257


def _ptrace(request: int, pid: int, address: int, data: int) -> int:
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    return int(call(request, pid, address, data))


def _is_change(pid: int) -> bool:
    number = _ptrace(_PEEK_USER, pid, _NUMBER, 0)
    if number in _WRITES:
        return _ptrace(_PEEK_USER, pid, _FIRST, 0) > 2  # what it prints is no change
    if number in (_OPEN, _OPEN_AT):
        flags = _ptrace(_PEEK_USER, pid, _SECOND if number == _OPEN else _THIRD, 0)
        return bool(flags & (os.O_CREAT | os.O_TRUNC))
    return number in _CHANGES


def _turn(folder: Path, kill: GitKill) -> bool:
    """Whether this is the command that is meant: each one that is started makes a mark of its own."""
    for number in range(1, kill.nth + 1):
        with suppress(FileExistsError):
            (folder / f"seen-{number}").mkdir()
            return number == kill.nth
    return False


def _follow(git: str, words: list[str], kill: GitKill, folder: Path) -> int:
    """Run git to its end, or to the change at which it is hit; the answer is the status for whoever waits."""
    engine = os.getppid()
    first = os.fork()
    if first == 0:
        _ptrace(_TRACE_ME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.execv(git, [git, *words])
    os.waitpid(first, 0)
    _ptrace(_SET_OPTIONS, first, 0, _OPTIONS)
    _ptrace(_SYSCALL, first, 0, 0)
    living, inside, changes = {first}, set[int](), 0
    while True:
        pid, status = os.waitpid(-1, _ALL_CHILDREN)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            living.discard(pid)
            if pid == first:
                return status
            continue
        living.add(pid)
        number, passed = os.WSTOPSIG(status), 0
        if number == signal.SIGTRAP | 0x80:
            inside ^= {pid}
            if pid in inside and _is_change(pid):
                changes += 1
                if changes == kill.change:
                    (folder / f"armed-{kill.verb}").unlink(missing_ok=True)
                    (folder / "fired").touch()
                    if kill.who in ("engine", "both"):
                        os.kill(engine, signal.SIGKILL)
                    if kill.who in ("git", "both"):
                        for one in living:
                            with suppress(ProcessLookupError):
                                os.kill(one, signal.SIGKILL)
                        os.kill(os.getpid(), signal.SIGKILL)
        elif number not in (signal.SIGTRAP, signal.SIGSTOP):
            passed = number
        _ptrace(_SYSCALL, pid, 0, passed)


def main(folder: Path, git: str, words: list[str]) -> None:
    kill = GitKill(**json.loads((folder / "kill.json").read_text()))
    if not _turn(folder, kill):
        os.execv(git, [git, *words])
    status = _follow(git, words, kill, folder)
    if os.WIFSIGNALED(status):
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
