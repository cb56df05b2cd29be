"""What a wall probably kept a failed program from: read out of its last words, and judged by its policy.

A kernel tells nobody but the program that it was refused something. Most programs say it: the path, and the words of
the system for it. A path counts only where the policy closes it and it is there on the host; so a guess can be wrong
about what the failure came from, and never about what would open the path.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from orchard.engine.machine.advice import program_in
from orchard.process.sandbox.policy import Policy
from orchard.process.sandbox.scratch import SCRATCH, outside

_WORDS = (
    ": not found|Permission denied|Read-only file system|No such file or directory|Operation not permitted"
    "|EACCES|EROFS|ENOENT|Directory nonexistent|' does not exist|does not appear to be a git repository"
)
_CREATES = re.compile("(cannot|can't|could not) (create|touch|make)")
_PATH = re.compile(r"(?<![\w/.~-])((?:/|\.[\w-]+/?|[\w-]+/)[^\s:'\"`‘’“”,;()<>|]{1,400})")
_NAME = re.compile(r"(?:^|[\s:'\"])([\w.+-]{1,64}): (?:command )?not found|No such command: '?([\w.+-]{1,64})")
_HOME = re.compile(r"(?<![\w/.~-])(?:~|\$HOME|\$\{HOME\})/")
_LINES, _MOST = 60, 5


class Line(Struct, frozen=True):
    """A line of the settings, whose keys have a dot, or of the plan."""

    key: str
    entry: str

    def __str__(self) -> str:
        return f'{self.key} = ["{self.entry}"]' if "." in self.key else f'{self.key}: ["{self.entry}"]'


class Kept(Struct, frozen=True):
    path: Path
    reason: Literal["hidden", "read-only", "protected"]
    worktree: Path | None = None
    place: Path = Path()
    """What is protected: the path, or a folder that holds it."""
    program: str | None = None
    """Who complains about it, where the line tells."""

    @property
    def opens(self) -> Path:
        """What would be opened: the path, or the folder that it is in."""
        return self.path if self.reason == "hidden" or self.path.is_dir() else self.path.parent

    def line(self, home: Path) -> Line:
        """What opens exactly this."""
        if self.worktree is not None and self.path.is_relative_to(self.worktree):
            return Line("unprotected", str(self.place.relative_to(self.worktree)))
        place = self.opens
        shown = f"~/{place.relative_to(home)}" if place.is_relative_to(home) and place != home else str(place)
        return Line("sandbox.expose" if self.reason == "hidden" else "sandbox.write", shown)


def kept_from(said: str, policy: Policy, env: Mapping[str, str]) -> tuple[Kept, ...]:
    """What of the host the last lines of a program complain about, and its policy closes."""
    found: dict[Path, Kept] = {}
    for line in said.splitlines()[-_LINES:]:
        for named, writes in _named(line, policy.writable[0], env):
            path = _of_user(named, policy, env.get("HOME"))
            kept = _judged(path, policy, writes=writes)
            if kept is not None and kept.reason == "hidden" and _CREATES.search(line):
                kept = Kept(path, "read-only")
            if kept is not None and len(found) < _MOST and kept.opens != Path("/"):
                found.setdefault(path, replace(kept, program=program_in(line)))
    return tuple(found.values())


def _of_user(path: Path, policy: Policy, users: str | None) -> Path:
    """What is meant by a path in the job's own home where nothing is: it may have been `~` in the user's."""
    if users is None or not path.is_relative_to(policy.home) or os.path.lexists(path):
        return path
    meant = Path(users, path.relative_to(policy.home))
    return meant if meant.exists() else path


def named_in(words: Iterable[str], policy: Policy, home: Path) -> Kept | None:
    """What a program was told of by the plan, in its command or in a variable, and cannot see."""
    words = (_HOME.sub(lambda _: f"{home}/", word) for word in words)
    paths = (Path(path) for word in words for path in _PATH.findall(word) if path.startswith("/"))
    judged = (_judged(path, policy, writes=False) for path in paths if ".." not in path.parts)
    return next((kept for kept in judged if kept is not None), None)


def _named(line: str, folder: Path, env: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    """Paths in a line of complaint, and whether it may be about writing; programs that were not found."""
    if re.search(_WORDS, line):
        writes = (
            _CREATES.search(line) or re.search("No such file|not found|ENOENT|does not (exist|appear)", line) is None
        )
        yield from ((Path(os.path.normpath(folder / path)), bool(writes)) for path in _PATH.findall(line))
    for names in _NAME.findall(line):
        found = shutil.which(next(filter(None, names)), path=env.get("PATH", ""))
        if found is not None:
            yield Path(found), False


def _judged(path: Path, policy: Policy, *, writes: bool) -> Kept | None:
    real = Path(os.path.realpath(path))
    access = policy.access(real) if policy.access(path) != "hidden" else "hidden"
    if access == "hidden":
        own = outside(os.fspath(path), policy)
        if own is not None and (os.path.lexists(own) or (os.fspath(path.parent) in SCRATCH and not path.exists())):
            return None  # it is, or would be, in the job's own folder
        if path.exists():
            return Kept(path, "hidden")
        return Kept(path, "read-only") if writes and path.parent.is_dir() else None
    if access == "protected" and writes:
        holds = next((place for place in policy.writable if path.is_relative_to(place)), None)
        place = next(place for place in policy.protected if path.is_relative_to(place))
        return Kept(path, "protected", holds, place)
    if access == "exposed" and writes and (real.exists() or real.parent.is_dir()):
        # By a link in its worktree a program names another place; what opens that is the place itself.
        return Kept(real if policy.access(path) == "writable" else path, "read-only")
    return None
