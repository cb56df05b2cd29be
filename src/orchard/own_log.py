"""What Orchard itself does, in lines with a time and a component, for people who look for the cause of something.

    2026-11-17 13:52:07.123+0000 info  [engine] add-login-3f2a: JobStarted job=api attempt=1
    2026-11-17 13:52:07.140+0000 debug [git] status --porcelain=v2: 0 after 6.2 ms

Nothing is written unless a person asks for it. `-v` shows the lines on stderr, and `ORCHARD_LOG=LEVEL` writes them into
a file of the process, in the user's state folder; `debug:git,http` writes those of some components only. A file turns
over at a size, and old files are removed. Lines hold names, numbers and paths, never what plans, people, agents or
programs say: a log is something that people send to others.
"""

import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from orchard.errors import UsageError

VARIABLE = "ORCHARD_LOG"
FOLDER = "own-logs"
FILE_BYTES = 10 * 1024 * 1024
KEPT_FILES = 20

DEBUG, INFO, WARNING, OFF = 10, 20, 30, 100
LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "off": OFF}
COMPONENTS = ("engine", "operations", "git", "process", "http", "mcp")

_level = OFF
_components: frozenset[str] = frozenset(COMPONENTS)
_sinks: "list[Sink]" = []


class Sink:
    """A place where lines go: a stream, or a file that turns over."""

    def __init__(self, level: int, stream: IO[str] | None = None, path: Path | None = None) -> None:
        self.level, self.stream, self._path = level, stream, path

    def write(self, line: str) -> None:
        """What cannot be written is left out: no work may fail because of a line about it."""
        try:
            if self._path is not None and self.stream is None:
                self.stream = _private(self._path)
            if self.stream is None:
                return
            self.stream.write(line)
            self.stream.flush()
            if self._path is not None and self.stream.tell() > FILE_BYTES:
                self.stream.close()
                self._path.rename(self._path.with_suffix(".old.log"))
                self.stream = None
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Close the file, if this is one."""
        if self._path is not None and self.stream is not None:
            self.stream.close()


def _private(path: Path) -> IO[str]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _forget_old(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")


def _forget_old(folder: Path) -> None:
    """Keep the newest files, and those whose process may still write."""
    files = sorted(folder.glob("orchard-*.log"), key=lambda one: one.name)
    for file in files[: max(0, len(files) - KEPT_FILES + 1)]:
        number = file.name.partition(".")[0].rpartition("-")[2]
        if not (number.isdecimal() and Path(f"/proc/{number}").exists()):
            file.unlink(missing_ok=True)


def start(wanted: str | None, verbose: int, state: Path) -> None:
    """Begin to write: `wanted` is what the variable says, `verbose` how often `-v` was given."""
    global _level, _components  # noqa: PLW0603 - one log for the process, as there is one stderr
    level, _, names = (wanted or "off").strip().lower().partition(":")
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if level not in LEVELS or not set(chosen) <= set(COMPONENTS):
        raise UsageError(
            f"{VARIABLE} is a level ({', '.join(LEVELS)}), perhaps with components: debug:git,engine.",
            hint=f"Components are: {', '.join(COMPONENTS)}",
        )
    sinks: list[Sink] = []
    if LEVELS[level] < OFF:
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        sinks.append(Sink(LEVELS[level], path=state / FOLDER / f"orchard-{now}-{os.getpid()}.log"))
    if verbose:
        sinks.append(Sink(INFO if verbose == 1 else DEBUG, sys.stderr))
    for old in _sinks:
        old.close()
    _sinks[:] = sinks
    _level = min((sink.level for sink in sinks), default=OFF)
    _components = frozenset(chosen or COMPONENTS)


def is_shown() -> bool:
    """Whether lines go to stderr, where they would tear a picture that moves."""
    return any(sink.stream is sys.stderr for sink in _sinks)


def wants(level: int, component: str) -> bool:
    """Whether such a line would be written: ask before you put an expensive one together."""
    return level >= _level and component in _components


def debug(component: str, text: str) -> None:
    """What happens all the time."""
    _write(DEBUG, component, text)


def info(component: str, text: str) -> None:
    """What moves a plan."""
    _write(INFO, component, text)


def warning(component: str, text: str) -> None:
    """What should not be."""
    _write(WARNING, component, text)


def facts(names: Iterable[str], value: object) -> str:
    """Some fields of a value as `name=value`; what it does not have is left out."""
    found = ((name, getattr(value, name, None)) for name in names)
    return " ".join(f"{name}={held}" for name, held in found if held not in (None, ""))


def _write(level: int, component: str, text: str) -> None:
    if not wants(level, component):
        return
    now = time.time()
    moment = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))}.{int(now % 1 * 1000):03d}"
    word = next(name for name, number in LEVELS.items() if number == level)
    plain = "".join(one if one.isprintable() else " " for one in re.sub(r"://\S+@", "://", text))
    line = f"{moment}{time.strftime('%z')} {word:<7} [{component}] {plain}\n"
    for sink in _sinks:
        if level >= sink.level:
            sink.write(line)
