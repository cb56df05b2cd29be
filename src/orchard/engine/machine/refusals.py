"""What a wall probably kept a failed program from: read out of its last words, and judged by its policy.

A kernel tells nobody but the program that it was refused something. Most programs say it: the path, and the words of
the system for it. A path counts only where the policy closes it and it is there on the host; so a guess can be wrong
about what the failure came from, and never about what would open the path.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from orchard.engine.machine.advice import program_in
from orchard.patterns import later
from orchard.process.sandbox.policy import Policy
from orchard.process.sandbox.scratch import SCRATCH, outside

_WORDS = later(
    ": not found|permission denied|read-only file system|no such file or directory|operation not permitted"
    "|EACCES|EROFS|ENOENT|directory nonexistent|' does not exist|does not appear to be a git repository"
    "|(cannot|could not|failed to|unable to) connect|connection refused|ECONNREFUSED",
    re.IGNORECASE,
)
_ABSENT = later("no such file|not found|ENOENT|does not (exist|appear)", re.IGNORECASE)
_CONNECTS = later("connect|ECONNREFUSED", re.IGNORECASE)
_CREATES = later(
    "(cannot|can't|could not|failed to|unable to) (create|touch|make|move|write)|for writing"
    "|read-only file system|EROFS|^tee: |, (mkdir|rename|unlink|symlink|rmdir|copyfile) '",
    re.IGNORECASE,
)
_READS = later("^(cat|head|tail|less|more|wc|grep|sed|awk|ls|find|diff|cmp|sort): ")
_RAISED = later(r"^(?:[\w.]*\.)?\w*Error: ")
_OPENS = later(r"\bopen\(|read_(?:text|bytes)\(|\blistdir\(|\bscandir\(")
_OPENS_TO_WRITE = later(
    r"""open\([^)]{0,400}?,\s*(?:mode\s*=\s*)?["'][rbt]{0,2}[wax+]|open\(\s*["'][wax]b?["']"""
    r"|write_(?:text|bytes)\(|\.touch\(|mkdir\(|makedirs\(|\.dump\(|\.to_\w+\("
)
_PATH = later(r"(?<![\w/.~-])((?:/|\.[\w-]+/?|[\w-]+/)[^\s:'\"`‘’“”,;()<>|]{1,400})")
_NAME = later(r"(?:^|[\s:'\"])([\w.+-]{1,64}): (?:command )?not found|No such command: '?([\w.+-]{1,64})")
_HOME = later(r"(?<![\w/.~-])(?:~|\$HOME|\$\{HOME\})/")
_LINES, _MOST = 60, 5

Aim = Literal["read", "write", "either"]
"""What a program wanted with a path, as far as its words tell."""


class Line(Struct, frozen=True):
    """A line of the settings, whose keys have a dot, or of the plan."""

    key: str
    entry: str
    more: tuple[str, ...] = ()
    """Other entries of the same list: a key stands in a file once."""

    @property
    def values(self) -> str:
        return ", ".join(f'"{entry}"' for entry in (self.entry, *self.more))

    def __str__(self) -> str:
        return f"{self.key} = [{self.values}]" if "." in self.key else f"{self.key}: [{self.values}]"


def together(line: Line, lines: Iterable[Line | None]) -> Line:
    """The line with what others give the same key."""
    entries = dict.fromkeys(one.entry for one in lines if one is not None and one.key == line.key)
    first, *more = entries or (line.entry,)
    return Line(line.key, first, tuple(more))


class Kept(Struct, frozen=True):
    path: Path
    reason: Literal["hidden", "read-only", "protected"]
    worktree: Path | None = None
    place: Path = Path()
    """What is protected: the path, or a folder that holds it."""
    program: str | None = None
    """Who complains about it, where the line tells."""
    aim: Aim = "read"
    """Of what is hidden: whether it was to be read."""

    @property
    def opens(self) -> Path:
        """What would be opened: the path, or the folder that it is in. What is not there cannot be opened."""
        is_whole = self.path.exists() if self.reason == "hidden" else self.path.is_dir()
        return self.path if is_whole else self.path.parent

    @property
    def is_socket(self) -> bool:
        return self.path.is_socket()

    def line(self, home: Path) -> Line | None:
        """What opens exactly this; None: nothing does, for a whole home or temporary folder is not to be opened."""
        if self.worktree is not None and self.path.is_relative_to(self.worktree):
            return Line("unprotected", str(self.place.relative_to(self.worktree)))
        return self._opening("sandbox.expose" if self.reason == "hidden" else "sandbox.write", self.opens, home)

    def line_to_write(self, home: Path) -> Line | None:
        """What opens it to be written to, where it cannot be told whether it was to be read."""
        if self.reason != "hidden" or self.aim != "either" or self.is_socket:
            return None
        return self._opening("sandbox.write", self.path if self.path.is_dir() else self.path.parent, home)

    def _opening(self, key: str, place: Path, home: Path) -> Line | None:
        if home.is_relative_to(place) or os.fspath(place) in SCRATCH:
            return None
        return Line(key, f"~/{place.relative_to(home)}" if place.is_relative_to(home) else str(place))


def kept_from(said: str, policy: Policy, env: Mapping[str, str], told: Sequence[str] = ()) -> tuple[Kept, ...]:
    """What of the host the last lines of a program complain about, and its policy closes."""
    found: dict[Path, Kept] = {}
    lines, home = said.splitlines()[-_LINES:], Path(env["HOME"]) if env.get("HOME") else None
    for number, line in enumerate(lines):
        for named, aim in _named(line, lines[:number], told, policy.writable[0], env):
            path = _of_user(named, policy, env.get("HOME"))
            kept = _judged(path, policy, home, aim=aim)
            if kept is None or (_only_connects(line) and not kept.is_socket):
                continue
            if len(found) < _MOST and kept.opens != Path("/"):
                found.setdefault(path, replace(kept, program=program_in(line)))
    return tuple(found.values())


def _only_connects(line: str) -> bool:
    return _CONNECTS.search(line) is not None and _ABSENT.search(line) is None


def _of_user(path: Path, policy: Policy, users: str | None) -> Path:
    """What is meant by a path in the job's own home where nothing is: it may have been `~` in the user's."""
    if users is None or not path.is_relative_to(policy.home) or os.path.lexists(path):
        return path
    meant = Path(users, path.relative_to(policy.home))
    if meant.exists():
        return meant
    is_new = meant.parent != Path(users) and meant.parent.is_dir() and not path.parent.exists()
    return meant if is_new else path


def named_in(words: Iterable[str], policy: Policy, home: Path) -> Kept | None:
    """What a program was told of by the plan, in its command or in a variable, and cannot see."""
    words = (_HOME.sub(lambda _: f"{home}/", word) for word in words)
    paths = (Path(path) for word in words for path in _PATH.findall(word) if path.startswith("/"))
    judged = (_judged(path, policy, home, aim="read") for path in paths if ".." not in path.parts and path.exists())
    return next((kept for kept in judged if kept is not None), None)


def _named(
    line: str, before: Sequence[str], told: Sequence[str], folder: Path, env: Mapping[str, str]
) -> Iterator[tuple[Path, Aim]]:
    """Paths in a line of complaint with what was wanted of them, and programs that were not found."""
    if _WORDS.search(line):
        source = _raised_by(before, told) if _RAISED.match(line) else ()
        named = _PATH.findall(line) or [path for text in source for path in _PATH.findall(text) if path[0] == "/"]
        for path in (text.rstrip(".") for text in named):
            at = f"/{path.lstrip('/')}" if path.startswith("/") else path  # as in unix:///run/x.sock
            yield Path(os.path.normpath(folder / at)), _aim(line, path, source, told)
    for names in _NAME.findall(line):
        found = shutil.which(next(filter(None, names)), path=env.get("PATH", ""))
        if found is not None:
            yield Path(found), "read"


def _raised_by(before: Sequence[str], told: Sequence[str]) -> tuple[str, ...]:
    """The program text that an error of Python's came from: lines of the traceback, or those of `python -c`."""
    block = list(takewhile(lambda line: line.startswith(" "), reversed(before)))
    shown = [line for line in block if not line.lstrip().startswith(("File ", "~", "^"))]
    return tuple(shown) if shown else tuple(told)


def _aim(line: str, path: str, source: Sequence[str], told: Sequence[str]) -> Aim:
    name = re.escape(os.path.basename(path))  # noqa: PTH119 — text, as it was printed
    if _CREATES.search(line) or any(
        re.search(rf""">\s{{0,9}}["']?[^\s"';&|>]{{0,400}}{name}\b""", word) for word in told
    ):
        return "write"
    if not _RAISED.match(line):
        return "read" if _ABSENT.search(line) or _READS.search(line) else "either"
    if any(_OPENS_TO_WRITE.search(text) for text in source):
        return "write"
    return "read" if any(_OPENS.search(text) for text in source) else "either"


def _judged(path: Path, policy: Policy, home: Path | None, *, aim: Aim) -> Kept | None:
    real = Path(os.path.realpath(path))
    access = policy.access(real) if policy.access(path) != "hidden" else "hidden"
    if access == "hidden":
        return _hidden(path, policy, aim, home)
    if aim == "read":
        return None
    if access == "protected":
        holds = next((place for place in policy.writable if path.is_relative_to(place)), None)
        place = next(place for place in policy.protected if path.is_relative_to(place))
        return Kept(path, "protected", holds, place)
    if access == "exposed" and (real.exists() or real.parent.is_dir()):
        # By a link in its worktree a program names another place; what opens that is the place itself.
        return Kept(real if policy.access(path) == "writable" else path, "read-only")
    return None


def _hidden(path: Path, policy: Policy, aim: Aim, home: Path | None) -> Kept | None:
    own = outside(os.fspath(path), policy)
    if own is not None and (os.path.lexists(own) or (os.fspath(path.parent) in SCRATCH and not path.exists())):
        return None  # it is, or would be, in the job's own folder
    if aim == "write" and not path.is_socket():
        return Kept(path, "read-only") if path.exists() or path.parent.is_dir() else None
    if path.exists():
        return Kept(path, "hidden", aim=aim)
    if not path.parent.is_dir():
        return None
    if aim == "either":
        return Kept(path, "read-only")
    # Nothing is there, but the folder around it is: who reads there meant the user's own.
    return Kept(path, "hidden") if home in path.parent.parents and path.parent not in policy.hidden else None
