"""Files of our own for the time of a step, mostly indexes, and commits that are made from them."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchard.files import is_hollow, open_plain
from orchard.git.command import Git
from orchard.git.repository import FALLBACK_IDENTITY, Repository

SCRATCH = "tmp"
"""The folder below a repository's state for files of one step."""

MOST_INDEX = 2 << 30
"""Bytes of an index; one entry takes about a hundred."""


@contextmanager
def private_file(repo: Repository) -> Iterator[Path]:
    folder = repo.state / SCRATCH
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{os.getpid()}-{secrets.token_hex(8)}"
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)
        file.with_name(f"{file.name}.lock").unlink(missing_ok=True)


def copy_index(index: Path, copy: Path) -> bool:
    """Copy an index with its times, if there is one.

    Git tells an edit of the moment in which it wrote the index only by the time of the index: in a copy that were
    younger, a file of the same size would pass for unchanged. What stands in its place may be a job's doing: no link is
    followed, no pipe is waited for, and nothing is copied that no git has written.
    """
    try:
        with open_plain(index) as source:
            found = os.fstat(source.fileno())
            if is_hollow(found) or found.st_size > MOST_INDEX:
                return False
            with copy.open("wb") as target:
                shutil.copyfileobj(source, target)
    except OSError as error:
        if error.errno in _NO_INDEX:
            return False
        raise
    os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
    return True


_NO_INDEX = (0, errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO)
"""Nothing is there, a link, a folder, or something else that is no file."""


def sweep(place: Path) -> None:
    """Remove what processes that ended without doing so have left; each name begins with the number of its process."""
    for left in list(place.iterdir()) if place.is_dir() else []:
        owner = left.name.partition("-")[0]
        if not owner.isdigit():
            continue
        try:
            os.kill(int(owner), 0)
        except ProcessLookupError:
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
        except (PermissionError, OverflowError):
            continue


_NO_FILES = (
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
)
"""The tree without files: git knows it by heart and does not write it, but `git fsck` misses it."""


def commit_index(git: Git, parents: list[str], message: str) -> str:
    name, email = FALLBACK_IDENTITY
    named = git.with_environment(
        GIT_AUTHOR_NAME=name, GIT_AUTHOR_EMAIL=email, GIT_COMMITTER_NAME=name, GIT_COMMITTER_EMAIL=email
    )
    tree = git("write-tree").text
    if tree in _NO_FILES:
        git("hash-object", "-t", "tree", "-w", "--stdin")
    words = [word for parent in parents for word in ("-p", parent)]
    text = message.replace("\0", " ").encode(errors="replace") or b"saved work"
    return named("commit-tree", tree, *words, "-F", "-", stdin=text).text
