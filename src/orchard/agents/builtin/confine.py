"""Paths that cannot lead out of the folders they are confined to, whatever links, `..` or races there are.

A path is walked one name at a time, each opened in the folder that was opened before it and never through a link:
links are read and walked by us. So there is no moment between a check and a use in which something could be put
in place of what was checked. Only the Python library is used here: the search runs it in a process of its own.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

LONGEST_PATH = 4096
DEEPEST = 100
"""Folders in each other: each holds a descriptor while it is walked through."""
MOST_LINKS = 40
LARGEST_FILE = 16 * 1024 * 1024

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""What opening a link as a folder may be answered with."""


class BadPath(Exception):
    """A path that cannot be used, with the reason in words that a model can act on."""


class Place(NamedTuple):
    """A name in an open folder: what a path leads to. The name is `.` for the folder that a path begins in."""

    parent: int
    name: str
    path: Path

    def status(self) -> os.stat_result | None:
        with suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.parent, follow_symlinks=False)
        return None

    def open_folder(self) -> int:
        try:
            return os.open(self.name, _FOLDER, dir_fd=self.parent)
        except OSError as error:
            raise BadPath(f"{self.path} cannot be opened as a folder: {error.strerror}.") from error

    def read(self, most: int = LARGEST_FILE) -> bytes:
        # O_NONBLOCK: a pipe without a writer must not hold us; it is refused once we can see what it is.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        self._refuse_special(self.status())
        try:
            fd = os.open(self.name, flags, dir_fd=self.parent)
        except OSError as error:
            raise BadPath(f"{self.path} cannot be read: {error.strerror}.") from error
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            self._refuse_special(found)
            if found.st_size > most:
                raise BadPath(
                    f"{self.path} has {found.st_size:,} bytes, which is too large: at most {most:,} are read."
                )
            content = file.read(most + 1)
        if len(content) > most:
            raise BadPath(f"{self.path} grows while it is read, past {most:,} bytes.")
        return content

    def write(self, content: bytes) -> None:
        """Put a regular file there in one step; one that was there keeps its mode."""
        before = self.status()
        if before is not None:
            self._refuse_special(before)
        beside = f".orchard-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            # Open to nobody else until it has the mode of the file that it replaces.
            mode = 0o666 if before is None else 0o600
            with os.fdopen(os.open(beside, flags, mode, dir_fd=self.parent), "wb") as file:
                file.write(content)
                file.flush()
                if before is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode) & 0o777)
            os.rename(beside, self.name, src_dir_fd=self.parent, dst_dir_fd=self.parent)
        except OSError as error:
            with suppress(OSError):
                os.unlink(beside, dir_fd=self.parent)
            raise BadPath(f"{self.path} cannot be written: {error.strerror}.") from error

    def _refuse_special(self, found: os.stat_result | None) -> None:
        if found is None:
            raise BadPath(f"There is no file {self.path}.")
        if stat.S_ISDIR(found.st_mode):
            raise BadPath(f"{self.path} is a folder, not a file.")
        if not stat.S_ISREG(found.st_mode):
            raise BadPath(f"{self.path} is not a regular file (a pipe, socket, device or link), and is left alone.")


class Confines:
    """Folders that paths may lead into, and nowhere else. Relative paths begin in the first."""

    def __init__(self, folders: Sequence[Path], protected: Sequence[Path] = ()) -> None:
        """`protected`: places in them that are not written to, by their real paths."""
        self.protected = frozenset(protected)
        self.roots = [Path(os.path.realpath(folder)) for folder in folders]
        given = [Path(os.path.normpath(folder)) for folder in folders]
        self.names = {name.parts: root for name, root in zip(given, self.roots, strict=True)}
        self.names.update((root.parts, root) for root in self.roots)

    @contextmanager
    def reach(self, path: str, *, writing: bool = False) -> Iterator[Place]:
        """Walk a path to what it leads to, links followed; for writing, missing folders on the way are made."""
        walk = _Walk(self, path, writing)
        try:
            yield walk.place()
        except OSError as error:
            raise BadPath(f"'{path}' cannot be used: {error.strerror}.") from error
        finally:
            walk.close()


class _Walk:
    def __init__(self, confines: Confines, path: str, writing: bool) -> None:
        self._confines, self._asked, self._writing = confines, path, writing
        self._opened: list[int] = []
        self._names: list[str] = []
        """Of the opened folders, but for the first, which is one of the roots."""
        self._root = confines.roots[0]
        self._outside: list[str] | None = None
        """The absolute name of where we are while it is in none of the roots: nothing is opened there."""
        self._links = 0

    def place(self) -> Place:
        """Walk to the end; the last name may be that of something which does not exist."""
        rest = self._split(self._asked)
        if self._outside is None:
            self._enter(self._root)
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            if self._outside is not None:
                self._step_outside(name)
            elif name == "..":
                self._step_up()
            else:
                target = self._step(name, last=not any(each not in ("", ".") for each in rest))
                if target is None:
                    continue
                if isinstance(target, Place):
                    return target
                self._links += 1
                if self._links > MOST_LINKS:
                    raise BadPath(f"'{self._asked}' goes through too many links.")
                rest += self._split(target)
        if self._outside is not None:
            raise self._escape()
        return Place(self._opened[-1], ".", self._here())

    def close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())

    def _split(self, path: str) -> list[str]:
        """The names of a path, the first one last; an absolute one begins outside of all roots."""
        if not path or "\0" in path or len(path) > LONGEST_PATH:
            raise BadPath("A path has 1 to 4096 characters, none of them NUL.")
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise BadPath(f"{path!r} cannot be the name of a file.") from error
        if path.startswith("/"):
            self._leave(["/"])
        return path.split("/")[::-1]

    def _leave(self, outside: list[str]) -> None:
        self.close()
        self._names.clear()
        self._outside = outside
        self._look_for_root()

    def _look_for_root(self) -> None:
        assert self._outside is not None
        root = self._confines.names.get(tuple(self._outside))
        if root is not None:
            self._enter(root)

    def _enter(self, root: Path) -> None:
        # The roots are whoever's who made us, and their real names: nothing in them is walked to get there.
        self._opened.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        self._root, self._outside = root, None

    def _step_outside(self, name: str) -> None:
        assert self._outside is not None
        if name != "..":
            self._outside.append(name)
        elif len(self._outside) > 1:
            self._outside.pop()
        if len(self._outside) > DEEPEST:
            raise self._escape()
        self._look_for_root()

    def _step_up(self) -> None:
        if self._names:
            self._names.pop()
            os.close(self._opened.pop())
        else:
            self._leave(list(self._root.parent.parts))

    def _step(self, name: str, *, last: bool) -> Place | str | None:
        """Into the folder of this name (None), to where the link of this name leads (str), or to the end."""
        parent = self._opened[-1]
        if self._writing and name.casefold() == ".git":
            raise BadPath(f"'{self._asked}' leads into '.git', which is git's own: use the git tools.")
        here = self._here() / name
        if self._writing and here in self._confines.protected:
            shown = here.relative_to(self._root)
            raise BadPath(
                f"'{self._asked}' is protected: other programs obey what stands there. Only the plan's line "
                f'unprotected: ["{shown}"] opens it.'
            )
        target = _link(parent, name)
        if target is not None:
            return target
        if last:
            return Place(parent, name, self._here() / name)
        if len(self._opened) >= DEEPEST:
            raise BadPath(f"'{self._asked}' is more than {DEEPEST} folders deep.")
        self._opened.append(self._open(parent, name))
        self._names.append(name)
        return None

    def _open(self, parent: int, name: str) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            if not self._writing:
                raise BadPath(f"There is no folder {self._here() / name}.") from None
        except OSError as error:
            if error.errno in _LINKS:
                raise BadPath(f"{self._here() / name} is not a folder.") from None
            raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        return os.open(name, _FOLDER, dir_fd=parent)

    def _here(self) -> Path:
        return self._root.joinpath(*self._names)

    def _escape(self) -> BadPath:
        allowed = ", ".join(str(root) for root in self._confines.roots)
        return BadPath(f"'{self._asked}' leads out of the folders that may be used: {allowed}.")


def _link(parent: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
            return None
        raise
