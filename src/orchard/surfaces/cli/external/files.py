"""Files that belong to other programs: read with care, changed only after the change was seen, with a copy kept.

What is refused: a link that leads out of the folder it should be in, something that is not a file, a file of another
user, one that may not be written, one that is not text. A new file takes the place of the old one as a whole, with its
mode, and never if the old one has changed since it was read. What was there is kept beside it under a new name.
"""

import difflib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from orchard.errors import NeedsPerson, OrchardError, UsageError
from orchard.files import read_plain, sync_folder
from orchard.model.events.plans import Json
from orchard.model.secrets import looks_secret
from orchard.store.redact import redact_text
from orchard.surfaces.cli.commands.plans.views import diff_line
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe, safe_lines
from orchard.surfaces.cli.terminal import Terminal

MOST_BYTES = 32 * 1024 * 1024
DIFF_LINES = 200
LINE_WIDTH = 300
UNCHANGED: Json = {"changed": False, "created": False, "backup": None}
BACKUP = ".orchard-backup"
MOST_BACKUPS = 1000

_FIELD = re.compile(r"""([\w-]{1,100})["']?\s*[:=]\s*(?=\S)""")


class Found(Struct, frozen=True):
    path: Path
    """Where it really is: links are followed."""
    text: str | None
    """None: there is no file."""
    mode: int


class Change(Struct, frozen=True):
    file: Path
    """As people name it."""
    found: Found
    after: str | None
    """None: nothing is left of it."""


def look(file: Path, inside: Path, *, private: bool) -> Found:
    real, folder = Path(os.path.realpath(file)), Path(os.path.realpath(inside))
    if not real.is_relative_to(folder) or ".git" in real.relative_to(folder).parts:
        raise UsageError(
            f"'{safe(file)}' is a link that leads to '{safe(real)}', which is not its place.", "Remove the link."
        )
    try:
        found = real.lstat()
    except FileNotFoundError:
        if file.is_symlink():
            raise UsageError(f"'{safe(file)}' is a link that leads nowhere.", "Remove the link.") from None
        return Found(real, None, 0o600 if private else 0o666)
    except OSError as error:
        raise UsageError(f"'{safe(file)}' cannot be read: {error.strerror}.") from error
    wrong = _wrong(found)
    if wrong is not None:
        raise UsageError(f"'{safe(file)}' was left as it is: {wrong}.")
    data = _bytes(real)
    if len(data) > MOST_BYTES:
        raise UsageError(f"'{safe(file)}' is longer than {MOST_BYTES} bytes.")
    try:
        return Found(real, data.decode("utf-8"), stat.S_IMODE(found.st_mode))
    except UnicodeDecodeError as error:
        raise UsageError(f"'{safe(file)}' is not UTF-8: byte {error.start}.") from None


def _wrong(found: os.stat_result) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "it is not a file"
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}"
    return None if found.st_mode & stat.S_IWUSR else "it is read-only"


def _bytes(real: Path) -> bytes:
    return read_plain(real, MOST_BYTES + 1)


# ---------------------------------------------------------------------------------------- showing


def diff_lines(change: Change, most: int = DIFF_LINES) -> list[Line]:
    """What changes, as people know it; secrets of others that stand nearby are not shown."""
    before, after = (shown.splitlines() for shown in (change.found.text or "", change.after or ""))
    old = "/dev/null" if change.found.text is None else str(change.file)
    new = "/dev/null" if change.after is None else str(change.file)
    rows = [row.rstrip("\n") for row in difflib.unified_diff(before, after, old, new, lineterm="")]
    shown = [diff_line(line) for row in rows[:most] for line in safe_lines(_hidden(row), LINE_WIDTH)]
    more = len(rows) - most
    return [*shown, *([text.done(f"... and {text.many(more, 'more line')}")] if more > 0 else [])]


def _hidden(row: str) -> str:
    """A line without what follows the first name that looks like that of a secret."""
    row = row[: 4 * LINE_WIDTH]
    for found in _FIELD.finditer(row):
        if looks_secret(found[1].replace("-", "_")):
            return f"{redact_text(row[: found.end()])}[hidden]"
    return redact_text(row)


def offer(
    terminal: Terminal, change: Change, question: str, *, yes: bool, again: str, other: str = "", most: int = DIFF_LINES
) -> Json | None:
    """Show a change, and make it if a person agrees: what was done, as data; None after a no.

    `again` is the command that was given; `other` says what is there instead, and asks for '--replace'.
    """
    terminal.note(*diff_lines(change, most))
    if other and (yes or not terminal.can_ask):
        raise NeedsPerson(f"{other}; it was left as it is.", f"{again} --replace --yes")
    if not yes and not terminal.can_ask:
        sentence = f"Nothing was changed: no person can be asked about '{safe(change.file)}' here."
        raise NeedsPerson(sentence, f"{again} --yes")
    if not yes and not terminal.agreed(question):
        terminal.note(text.done(text.NOTHING_CHANGED))
        return None
    kept = carry_out(change)
    return {"changed": True, "created": change.found.text is None, "backup": None if kept is None else str(kept)}


def kept_lines(done: Json) -> list[Line]:
    kept = done["backup"]
    return [] if kept is None else [[("What was there is kept in ", ""), (safe(str(kept)), "name")]]


# ---------------------------------------------------------------------------------------- writing


def carry_out(change: Change) -> Path | None:
    """Make the change; the answer is where what was there is kept, if it is kept."""
    try:
        return _carry_out(change)
    except OSError as error:
        raise OrchardError(
            f"'{safe(change.file)}' cannot be written: {error.strerror}.", "It was left as it was."
        ) from error


def _carry_out(change: Change) -> Path | None:
    real, after = change.found.path, change.after
    if after is None:
        _refuse_if_changed(change)
        real.unlink()
        return None
    folder_mode = 0o700 if change.found.mode == 0o600 else 0o777
    real.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
    kept = None if change.found.text is None else _keep(change.found)
    new = real.with_name(f".{real.name}.orchard-{os.getpid()}")
    try:
        _create(new, after.encode(), change.found.mode, exact=change.found.text is not None)
        _refuse_if_changed(change)
        new.rename(real)
    finally:
        with suppress(OSError):
            new.unlink()
    sync_folder(real.parent)
    if _bytes(real) != after.encode():
        raise OrchardError(f"'{safe(change.file)}' was changed by another program in the same moment.", "Look at it.")
    return kept


def _refuse_if_changed(change: Change) -> None:
    before = change.found.text
    try:
        now: bytes | None = _bytes(change.found.path)
    except FileNotFoundError:
        now = None
    if now != (None if before is None else before.encode()):
        raise OrchardError(f"'{safe(change.file)}' has changed while this went on; it was left as it is.", "Try again.")


def _keep(found: Found) -> Path:
    """A copy of what is there; one that was kept before is never overwritten, and the same is not kept twice."""
    assert found.text is not None
    data = found.text.encode()
    for number in range(1, MOST_BACKUPS):
        copy = found.path.with_name(f"{found.path.name}{BACKUP}{'' if number == 1 else f'-{number}'}")
        try:
            _create(copy, data, found.mode, exact=True)
        except FileExistsError:
            with suppress(OSError):
                if _bytes(copy) == data:
                    return copy
            continue
        return copy
    raise OrchardError(f"There are {MOST_BACKUPS} backups of '{safe(found.path)}' already.", "Move them away.")


def _create(path: Path, data: bytes, mode: int, *, exact: bool) -> None:
    """A new file, never through a link; `exact` is a mode that the umask does not change."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600 if exact else mode)
    with os.fdopen(handle, "wb") as file:
        if exact:
            os.fchmod(handle, mode)
        file.write(data)
        file.flush()
        os.fsync(handle)
