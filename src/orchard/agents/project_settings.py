"""What a repository holds for the programs of agents: their hooks, servers, addresses and variables.

Claude Code, Codex, Gemini CLI and the others read settings from the folder that they are started in, and such settings
run programs and decide where keys are sent. They come with a clone, so they count only once the user has agreed to
exactly this content.

What is agreed to is the whole of a folder's settings: one file more, one less or one other, and they are as unknown
as they were. Where two lines differ only in how they end, they are the same.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePosixPath

from msgspec import Struct, field

from orchard.agents.facts.programs import all_known
from orchard.config.trust import agreed_projects, digest
from orchard.files import NOT_A_FILE, read_plain
from orchard.git.objects.reader import EXECUTABLE, FILE, SYMLINK
from orchard.git.repository import Repository
from orchard.model.agent_rows import BACKENDS, BUILTIN

SILENT = (BUILTIN,)
"""Agents that read none of it."""

MOST_FILES = 5_000
MOST_BYTES = 64 * 1024 * 1024
SHOWN_BYTES = 256 * 1024
"""A longer file, or one that is no text, is shown by its size and digest."""


@cache
def read_by() -> Mapping[str, frozenset[str]]:
    """Names, of files or of folders with all that is in them, and whose programs read them."""
    found: dict[str, set[str]] = {}
    for known in all_known():
        for name in known.reads:
            found.setdefault(name, set()).add(known.name)
    return {name: frozenset(agents) for name, agents in found.items()}


@cache
def _tops() -> frozenset[str]:
    return frozenset(name.partition("/")[0] for name in read_by())


class SettingsFile(Struct, frozen=True):
    """One file: where it lies, seen from the top, and what is in it; a link's content is where it points."""

    path: str
    data: bytes
    link: bool = False

    @property
    def text(self) -> str | None:
        """What a person can read of it; None where that is not all of it."""
        if len(self.data) > SHOWN_BYTES or b"\0" in self.data:
            return None
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            return None

    @property
    def sha256(self) -> str:
        return sha256(self.data.replace(b"\r\n", b"\n")).hexdigest()


class ProjectSettings(Struct, frozen=True):
    folders: Mapping[str, tuple[SettingsFile, ...]] = field(default_factory=dict)
    """By the folder that they are for, seen from the top, which is ''."""
    looked_in: tuple[str, ...] = ()
    """The folders that were asked about, whether there is something in them or not; empty: all that there are."""
    odd: str | None = None
    """Why nobody can agree to them: what is odd about one of them."""

    @property
    def files(self) -> tuple[SettingsFile, ...]:
        return tuple(file for name in sorted(self.folders) for file in self.folders[name])

    @property
    def digests(self) -> dict[str, str]:
        return {
            name: digest({"files": [[file.path, file.link, file.sha256] for file in files]})
            for name, files in self.folders.items()
        }

    def read_by(self, agent: str) -> bool:
        """Whether there is something here that this agent's program may read; who is not known may read all."""
        if agent in SILENT:
            return False
        rules = {_rule(_own(name, file.path)) for name, files in self.folders.items() for file in files}
        return any(agent not in BACKENDS or rule is None or agent in read_by()[rule] for rule in rules)


class _Odd(Exception):
    """Settings that cannot be agreed to."""


def committed(repo: Repository, commit: str) -> ProjectSettings:
    rows = repo.git("ls-tree", "-r", "-z", "--full-tree", commit).fields
    entries: list[tuple[str, str, int, str]] = []
    for row in rows:
        about, _, name = row.partition(b"\t")
        path = os.fsdecode(name)
        folder = _folder_of(path)
        if folder is not None:
            mode, _, oid = about.decode().split(" ")
            entries.append((folder, path, int(mode, 8), oid))
    try:
        return ProjectSettings(_sorted(_from_commit(repo, entries)))
    except _Odd as odd:
        seen = _sorted((folder, SettingsFile(path, b"")) for folder, path, _, _ in entries)
        return ProjectSettings(seen, odd=str(odd))


def lying_in(top: Path, folder: Path) -> ProjectSettings:
    """The settings that lie in a folder and in those above it, up to the top."""
    top, folder = top.resolve(), folder.resolve()
    if not folder.is_relative_to(top):
        return ProjectSettings(odd="the folder lies outside of the worktree")
    inside = folder.relative_to(top).parts
    names = tuple("/".join(inside[:depth]) for depth in range(len(inside) + 1))
    left = [MOST_FILES, MOST_BYTES]
    try:
        return ProjectSettings(_sorted((name, file) for name in names for file in _in_folder(top, name, left)), names)
    except (_Odd, OSError) as odd:
        seen = _sorted((name, SettingsFile(path, b"")) for name in names for path in _present(top, name))
        return ProjectSettings(seen, names, str(odd))


def covered(found: ProjectSettings, top: Path, common_dir: Path, state: Path | None = None) -> bool:
    """Whether the user agreed to what lies in these folders of a repository, all of it together."""
    if found.odd is not None or not found.folders:
        return False
    held = found.digests
    return any(
        all(agreed.get(name) == held.get(name) for name in found.looked_in or {*agreed, *held})
        for agreed in agreed_projects(top, common_dir, state)
    )


# ----------------------------------------------------------------------------------- what is meant


def _rule(parts: Sequence[str]) -> str | None:
    """The name of the table that a path begins with, seen from the folder that it is for."""
    first = parts[0].lower()
    if first in read_by():
        return first
    if first in _tops() and len(parts) > 1:
        pair = f"{first}/{parts[1].lower()}"
        return next((name for name in read_by() if fnmatchcase(pair, name)), None)
    return None


def _folder_of(path: str) -> str | None:
    """The folder whose settings a path belongs to; None: it is no setting."""
    parts = path.split("/")
    for place in range(len(parts)):
        if _rule(parts[place:]) is not None or (place == len(parts) - 1 and parts[place].lower() in _tops()):
            return "/".join(parts[:place])
    return None


def _own(folder: str, path: str) -> list[str]:
    return path[len(folder) + 1 if folder else 0 :].split("/")


def _stays_watched(path: str, target: str) -> bool:
    """Whether what a link points at is itself among the settings of the same folder."""
    if target.startswith("/"):
        return False
    reached: list[str] = list(PurePosixPath(path).parent.parts)
    for part in target.split("/"):
        if part == ".." and not reached:
            return False
        if part == "..":
            reached.pop()
        elif part not in ("", "."):
            reached.append(part)
    folder = _folder_of(path) or ""
    own = _own(folder, "/".join(reached)) if _folder_of("/".join(reached)) == folder else []
    return bool(own) and _rule(own) is not None


def _link(path: str, target: str) -> SettingsFile:
    if not _stays_watched(path, target):
        raise _Odd(f"{path} is a link to something else")
    return SettingsFile(path, os.fsencode(target), link=True)


def _sorted(found: Iterable[tuple[str, SettingsFile]]) -> dict[str, tuple[SettingsFile, ...]]:
    folders: dict[str, list[SettingsFile]] = {}
    for folder, file in found:
        folders.setdefault(folder, []).append(file)
    return {name: tuple(sorted(files, key=lambda file: file.path)) for name, files in folders.items()}


# --------------------------------------------------------------------------------------- in a commit


def _from_commit(repo: Repository, entries: Sequence[tuple[str, str, int, str]]) -> Iterator[tuple[str, SettingsFile]]:
    if len(entries) > MOST_FILES:
        raise _Odd(f"there are more than {MOST_FILES} files")
    for _, path, mode, _ in entries:
        if mode not in (FILE, EXECUTABLE, SYMLINK):
            raise _Odd(f"{path} is a repository of its own")
    contents = _blobs(repo, [oid for _, _, _, oid in entries])
    for folder, path, mode, oid in entries:
        data = contents[oid]
        yield folder, _link(path, os.fsdecode(data)) if mode == SYMLINK else SettingsFile(path, data)


def _blobs(repo: Repository, oids: Sequence[str]) -> dict[str, bytes]:
    asked = "".join(f"{oid}\n" for oid in dict.fromkeys(oids)).encode()
    if not asked:
        return {}
    sizes = repo.git("cat-file", "--batch-check=%(objectsize)", stdin=asked).stdout.split()
    if any(not size.isdigit() for size in sizes) or sum(map(int, sizes)) > MOST_BYTES:
        raise _Odd(f"there are more than {MOST_BYTES // 1024**2} MiB of them")
    said = repo.git("cat-file", "--batch", stdin=asked).stdout
    found, place = {}, 0
    while place < len(said):
        end = said.index(b"\n", place)
        oid, _, size = said[place:end].decode().split(" ")
        found[oid] = said[end + 1 : end + 1 + int(size)]
        place = end + int(size) + 2
    return found


# --------------------------------------------------------------------------------------- in a folder


def _present(top: Path, name: str) -> list[str]:
    try:
        found = sorted(path.name for path in (top / name).iterdir() if path.name.lower() in _tops())
    except OSError:
        return []
    return [f"{name}/{one}" if name else one for one in found]


def _in_folder(top: Path, name: str, left: list[int]) -> Iterator[SettingsFile]:
    prefix = f"{name}/" if name else ""
    with os.scandir(top / name) as entries:
        found = [entry for entry in entries if entry.name.lower() in _tops()]
    for entry in found:
        yield from _walk(entry, f"{prefix}{entry.name}", [entry.name], left)


def _walk(entry: "os.DirEntry[str]", path: str, own: list[str], left: list[int]) -> Iterator[SettingsFile]:
    """Every file at and below a name that may be one of settings; nothing is followed."""
    meant = _rule(own) is not None
    left[0] -= meant
    if left[0] < 0:
        raise _Odd(f"there are more than {MOST_FILES} files")
    if entry.is_symlink():
        if meant or len(own) == 1:
            yield _link(path, str(Path(entry.path).readlink()))
    elif entry.is_dir(follow_symlinks=False):
        with os.scandir(entry.path) as entries:
            within = (below for below in entries if meant or _rule([*own, below.name]) is not None)
            found = list(islice(within, left[0] + 1))
        for below in found:
            yield from _walk(below, f"{path}/{below.name}", [*own, below.name], left)
    elif meant:
        yield SettingsFile(path, _content(entry.path, path, left))


def _content(place: str, path: str, left: list[int]) -> bytes:
    try:
        data = read_plain(place, left[1] + 1)
    except OSError as error:
        raise _Odd(f"{path} is not a file") if error.strerror == NOT_A_FILE else error from None
    left[1] -= len(data)
    if left[1] < 0:
        raise _Odd(f"there are more than {MOST_BYTES // 1024**2} MiB of them")
    return data
