"""SQLite files that survive a kill, a newer Orchard and a bad disk.

A file is made whole under another name and then given its own, so it either does not exist or has
all its tables. What is found under the name is never replaced or deleted: a file that is damaged,
foreign or newer than this program is an error that names it.

Inside a process a database file must never be opened by anything but SQLite: POSIX locks belong to
the process, and closing any other descriptor of the file would drop them. Hence nothing here looks
at the file's bytes; SQLite's own answers are what is asked.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orchard.errors import RUN_DOCTOR, Hint, Next, OrchardError
from orchard.files import file_system, sync_folder
from orchard.process.failpoint import failpoint

BUSY_SECONDS = 5.0
STALE_SECONDS = 3600.0

# Locks and shared memory do not work across machines, and WAL needs both. 9p and virtiofs are not
# here: they are how containers and virtual machines see a local disk.
NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "afpfs", "coda", "ncpfs", "ceph", "lustre", "gfs2", "ocfs2",
    "gpfs", "beegfs", "glusterfs", "webdav", "davfs", "sshfs", "s3fs", "gcsfuse", "rclone", "goofys",
})  # fmt: skip


CHECK_DISK = "See that the disk has room and may be written, then do the same again."


class StoreError(OrchardError):
    """A file of ours cannot be used, and why."""


class Damaged(StoreError):
    """What lies under the name of a file of ours cannot be read as one."""


class Schema(Struct, frozen=True):
    """What a file holds, as the steps that lead from nothing to today's tables.

    Step n (counted from 1) brings version n-1 to version n. A step that was released never changes.
    """

    what: str
    """What people call the file: `journal`."""
    mark: int
    """SQLite's application id: tells our files from those of other programs."""
    steps: tuple[str, ...]

    @property
    def version(self) -> int:
        return len(self.steps)


def open_database(path: Path, schema: Schema, *, shared: bool = False) -> sqlite3.Connection:
    """The file for writing: made where it is missing, migrated where it is older.

    A commit has reached the disk when it returns. The caller sees to it that there is one writer, unless
    the file is `shared`: such a file has no write-ahead log, because SQLite before 3.51.3 can damage one
    that two processes write and cut at the same time, and a power cut may undo its last commits.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"The folder {path.parent} cannot be made: {error.strerror}.", CHECK_DISK) from error
    refuse_network(path, schema)
    if not os.path.lexists(path):
        _create(path, schema, wal=not shared)
    with explained(path, schema.what):
        connection = _connect(path, "rw")
        try:
            _check(connection, path, schema)
            mode = connection.execute(f"PRAGMA journal_mode = {'DELETE' if shared else 'WAL'}").fetchone()[0]
            if mode != ("delete" if shared else "wal"):
                raise StoreError(f"The file system of {path} does not support what SQLite needs.")
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if shared else 'FULL'}")
            connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone stops at the drive's cache
            _migrate(connection, path, schema)
        except BaseException:
            connection.close()
            raise
        return connection


def open_read_only(path: Path, schema: Schema) -> sqlite3.Connection:
    """The file for reading, also while another process writes it; it never writes, checkpoints or migrates."""
    with explained(path, schema.what):
        connection = _connect(path, "ro")
        try:
            connection.execute("PRAGMA query_only = ON")
            if _check(connection, path, schema) < schema.version:
                raise StoreError(
                    f"The {schema.what} {path} is from an older Orchard and has to be migrated.",
                    hint=("Run '", Next("resume_plan"), "'."),
                )
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Turn SQLite's errors about a file into errors for people."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path, what) from error


def explain(error: sqlite3.Error, path: Path, what: str) -> StoreError:
    code = getattr(error, "sqlite_errorname", "")
    hint: Hint
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return Damaged(f"The {what} {path} is damaged ({error}); it was left as it is.", way_out(path, what))
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        message = f"The {what} {path} is locked by another program."
        hint = f"End the program that has it open (fuser '{path}' names it), then try again."
    elif code.startswith("SQLITE_FULL"):
        message, hint = f"There is no space left to write the {what} {path}", "Free some space, then try again."
    elif code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        message, hint = f"The {what} {path} cannot be opened ({error}).", "Check who may read and write it."
    else:
        message, hint = f"The {what} {path} cannot be used: {error}.", RUN_DOCTOR
    return StoreError(message, hint)


def way_out(path: Path, what: str) -> tuple[str | Next, ...]:
    """What to do with a file that cannot be read any more; its neighbours belong to it, so they go with it."""
    aside = path.parent / "damaged"
    said = f"Move it away, and Orchard makes a new one: mkdir '{aside}' && mv '{path}'* '{aside}/'"
    if what != "journal":
        return (said,)
    return (
        f"{said} -- Its plans are then no longer listed. Their results stay in git ('git for-each-ref refs/orchard'), "
        "and the next plan that runs saves what lies in worktrees: '",
        Next("list_saved_work"),
        "' lists it.",
    )


def _connect(path: Path, mode: Literal["rw", "ro"]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    for pragma in ("foreign_keys = ON", "mmap_size = 0", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _check(connection: sqlite3.Connection, path: Path, schema: Schema) -> int:
    """The file's version; a file that is not ours, or from a newer Orchard, is an error."""
    mark: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if mark != schema.mark:
        raise Damaged(
            f"{path} is not the {schema.what} of an Orchard; it was left as it is.", hint=way_out(path, schema.what)
        )
    if version > schema.version:
        raise StoreError(
            f"The {schema.what} {path} was written by a newer Orchard"
            f" (it has version {version}, this one knows {schema.version}).",
            hint="Update orchard.",
        )
    return version


def _create(path: Path, schema: Schema, *, wal: bool) -> None:
    """Make the whole file aside, then give it its name, unless another process was first."""
    _remove_stale(path)
    draft = path.with_name(f"{path.name}.{os.urandom(6).hex()}.new")
    with explained(path, schema.what):
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
            connection = _connect(draft, "rw")
            try:
                connection.execute(f"PRAGMA application_id = {schema.mark}")
                for number, step in enumerate(schema.steps, 1):
                    _apply(connection, number, step)
                if wal:
                    connection.execute("PRAGMA journal_mode = WAL")
            finally:
                connection.close()
            _give_name(draft, path)
        except OSError as error:
            raise StoreError(f"The {schema.what} {path} cannot be made: {error.strerror}.", CHECK_DISK) from error
        finally:
            _remove_draft(draft)


def _give_name(draft: Path, path: Path) -> None:
    """Never over a file that exists: it may be another process's, in use by now."""
    failpoint("store.before-name")
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        if not os.path.lexists(path):
            draft.rename(path)
    sync_folder(path.parent)
    failpoint("store.after-name")


def _remove_draft(draft: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            draft.with_name(draft.name + suffix).unlink()


def _remove_stale(path: Path) -> None:
    """Drafts of processes that were killed; a young one may still be in the making."""
    for draft in path.parent.glob(f"{path.name}.*.new*"):
        with suppress(OSError):
            if time.time() - draft.stat().st_mtime > STALE_SECONDS:
                draft.unlink()


def _migrate(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    """Bring an older file to today's version, one transaction a step, after a copy was put beside it."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if found == schema.version:
        return
    copy = path.with_name(f"{path.name}.v{found}")
    draft = path.with_name(f"{copy.name}.{os.urandom(6).hex()}.new")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection.execute("VACUUM INTO ?", (os.fspath(draft),))
        draft.rename(copy)
    except OSError as error:
        raise StoreError(
            f"The {schema.what} {path} cannot be copied before it is migrated: {error.strerror}."
        ) from error
    finally:
        _remove_draft(draft)
    for number in range(found + 1, schema.version + 1):
        _apply(connection, number, schema.steps[number - 1])


def _apply(connection: sqlite3.Connection, number: int, step: str) -> None:
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{step};\nPRAGMA user_version = {number};\nCOMMIT;")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# --------------------------------------------------------------------------------- file systems


def refuse_network(path: Path, schema: Schema) -> None:
    """A database on a network file system loses data sooner or later, so it is an error now."""
    kind = file_system(path)
    if is_network(kind):
        raise StoreError(
            f"The {schema.what} {path} would lie on a network file system ({kind}), where SQLite is not safe.",
            hint="Put the repository on a local disk.",
        )


def is_network(kind: str) -> bool:
    """Whether a type of file system, as the kernel names it, is served by another machine."""
    return kind.lower().removeprefix("fuse.") in NETWORK_FILE_SYSTEMS
