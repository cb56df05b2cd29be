"""Commands that start in milliseconds: forks of a process that has imported the program already.

Half a second of every command is Python reading modules, and the tests start thousands of commands. Each of them is a
process of its own here as well, with its own environment, folder and files; only the reading is done once.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
PLACE = "PYTEST_NURSERY"
"""Where the nursery of the whole run listens."""
OWN: set[int] = set()
"""The pids of those that this process has begun: children that are to stay until it ends."""
LONGEST = 1024 * 1024
NOT_IMPORTED = ("orchard.bench", "orchard.__main__")
IMPORTED_LATE = ("rich.console", "rich.live", "rich.table", "rich.markup", "ruamel.yaml", "anthropic", "openai")
"""What the program imports where it is used."""


class Nursery:
    """Our end: asks for commands and hears how they ended."""

    def __init__(self) -> None:
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.connect(os.environ.get(PLACE) or str(_begin()))
        atexit.register(self._line.close)

    def run(
        self, words: list[str], cwd: Path, env: dict[str, str], stdin: bytes, seconds: float
    ) -> tuple[int, bytes, bytes]:
        """Run `orchard WORDS` to its end: its code, or the number of the signal below 0, and what it printed."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            answer, theirs = socket.socketpair()
            with answer, theirs:
                message = json.dumps({"words": words, "cwd": str(cwd), "env": env}).encode()
                files = [given.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
                socket.send_fds(self._line, [message], files)
                theirs.close()
                code = _heard(answer, words, seconds)
            printed = []
            for file in (out, err):
                file.seek(0)
                printed.append(file.read())
            return code, printed[0], printed[1]


def _begin() -> Path:
    place = Path(tempfile.mkdtemp(prefix="nursery-")) / "door"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(place))
        door.listen(64)
        argv = [sys.executable, "-m", "tests.nursery", str(door.fileno()), str(place)]
        # Not waited for: it ends when the last of us has hung up.
        begun = subprocess.Popen(
            argv, cwd=ROOT, pass_fds=[door.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
        )
        begun.returncode = 0
        OWN.add(begun.pid)
    return place


def begin_for_workers() -> None:
    """Begin one for the processes that we start, and keep it until we end.

    It must be no child of theirs: what its commands leave in the background would come to a worker whose tests adopt
    orphans, and would be ended by the next engine of that worker.
    """
    os.environ[PLACE] = str(_begin())
    nursery()


@cache
def nursery() -> Nursery:
    """The one of this process, or of the whole run."""
    return Nursery()


def command(
    *words: str | Path, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = "", seconds: float = 120
) -> "subprocess.CompletedProcess[str]":
    """Run `orchard WORDS` to its end, as `subprocess.run` would."""
    given = [*map(str, words)]
    code, out, err = nursery().run(given, cwd, dict(env or os.environ), stdin.encode(), seconds)
    return subprocess.CompletedProcess(given, code, out.decode(), err.decode())


def _heard(answer: socket.socket, words: list[str], seconds: float) -> int:
    answer.settimeout(seconds)
    lines = answer.makefile("r")
    pid = int(lines.readline())
    try:
        return int(lines.readline())
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(words, seconds) from None


# ------------------------------------------------------------------------------- the other process


def serve(door: socket.socket) -> None:
    """Fork for every command that is asked for, until nobody can ask any more."""
    _import_all()
    gc.collect()
    gc.freeze()
    chosen = selectors.DefaultSelector()
    chosen.register(door, selectors.EVENT_READ, door)
    askers = 0
    while True:
        for key, _ in chosen.select():
            if key.data is door:
                chosen.register(door.accept()[0], selectors.EVENT_READ)
                askers += 1
            elif key.data is not None:
                _tell_end(chosen, key)
            elif not _forked(chosen, key.fileobj):
                askers -= 1
                if askers == 0:
                    return


def _forked(chosen: selectors.BaseSelector, line: Any) -> bool:
    """Begin the command that is asked for on a line; False: the line has ended."""
    message, files, _, _ = socket.recv_fds(line, LONGEST, 4)
    if not message:
        chosen.unregister(line)
        line.close()
        return False
    pid = os.fork()
    if pid == 0:
        os.close(files[3])
        _become(json.loads(message), files[:3])
    for file in files[:3]:
        os.close(file)
    os.write(files[3], f"{pid}\n".encode())
    chosen.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, files[3]))
    return True


def _tell_end(chosen: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, answer = key.data
    chosen.unregister(key.fileobj)
    os.close(key.fd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):  # the test may have given it up
        os.write(answer, f"{code}\n".encode())
    os.close(answer)


def _become(asked: dict[str, Any], files: list[int]) -> NoReturn:
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, max(map(int, os.listdir("/dev/fd"))) + 1)  # noqa: PTH208
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    tempfile.tempdir = None
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode, encoding="utf-8") for number, mode in enumerate("rww"))  # noqa: SIM115, PTH123
    sys.argv = ["orchard", *asked["words"]]
    from orchard.__main__ import program

    program()


def _import_all() -> None:
    import orchard

    for found in pkgutil.walk_packages(orchard.__path__, "orchard."):
        if not found.name.startswith(NOT_IMPORTED):
            importlib.import_module(found.name)
    for name in IMPORTED_LATE:
        importlib.import_module(name)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    shutil.rmtree(Path(sys.argv[2]).parent)
