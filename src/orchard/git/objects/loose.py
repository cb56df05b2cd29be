"""Objects written by ourselves, as git writes them: one compressed file each, in place in one step and durable.

Starting a process for each would cost more than all else that happens to a small commit. Where files
must belong to a group (`core.sharedRepository`), git is asked to write them: it knows the rights.
"""

import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from orchard.git.repository import Repository

PUT_TRIES = 10
SYNCED_AT_ONCE = 8

Kind = Literal["blob", "tree", "commit"]


class LooseObjects:
    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._folder = os.fspath(repo.common_dir / "objects")
        self._digest = hashlib.sha256 if repo.object_format == "sha256" else hashlib.sha1
        self._shared: bool | None = None
        self._syncing = ThreadPoolExecutor(SYNCED_AT_ONCE, thread_name_prefix="orchard-sync")

    def name(self, kind: Kind, content: bytes) -> str:
        return self._digest(_header(kind, content) + content).hexdigest()

    def write(self, kind: Kind, content: bytes, *, durable: bool = True) -> str:
        """Write an object and return its name; one that exists is young again, so that no gc takes it.

        One that is not `durable` may be lost or empty after a power cut, until `harden`.
        """
        if self._shared is None:
            said = self._repo.config(r"^core\.sharedrepository$").get("core.sharedrepository", "umask")
            self._shared = said.lower() not in ("umask", "false", "0", "no", "off")
        if self._shared:
            return self._repo.git("hash-object", "-t", kind, "-w", "--stdin", stdin=content).text
        whole = _header(kind, content) + content
        name = self._digest(whole).hexdigest()
        if self._freshen(name, durable):
            return name
        self._put(name, zlib.compress(whole, 1), durable)
        return name

    def _freshen(self, name: str, durable: bool) -> bool:
        """Whether the object is there; one that a power cut left empty is not."""
        path = f"{self._folder}/{name[:2]}/{name[2:]}"
        try:
            if os.stat(path).st_size == 0:  # noqa: PTH116 (hot, and a str)
                return False
            os.utime(path)
        except OSError:
            return False
        if durable:
            _sync(path)
        return True

    def harden(self, names: Iterable[str]) -> None:
        """Make objects outlive a power cut. Those that are in a pack by now do: git syncs packs."""
        # Several at once share what the disk has to do.
        list(self._syncing.map(_sync, [f"{self._folder}/{name[:2]}/{name[2:]}" for name in names]))

    def _put(self, name: str, data: bytes, durable: bool) -> None:
        folder = f"{self._folder}/{name[:2]}"
        for last in (*[False] * (PUT_TRIES - 1), True):
            try:
                return _write(folder, name[2:], data, durable)
            except FileNotFoundError:
                # There is no such folder yet, or a user's `git gc --prune=now` took it, or the file, away.
                if last:
                    raise
                Path(folder).mkdir(exist_ok=True)
        return None


def _sync(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(folder: str, name: str, data: bytes, durable: bool) -> None:
    # A process that dies before the last step leaves a name that `git gc` knows to remove.
    beside = f"{folder}/tmp_obj_{secrets.token_hex(6)}"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            if durable:
                os.fsync(descriptor)
        os.rename(beside, f"{folder}/{name}")  # noqa: PTH104 (hot, and a str)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _header(kind: Kind, content: bytes) -> bytes:
    return f"{kind} {len(content)}".encode() + b"\0"
