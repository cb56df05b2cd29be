"""Where a user's own files lie: state, configuration, and sockets.

Naming a folder makes nothing, so that commands which only read leave no trace; whoever is about to
write asks for the folder to be made. The runtime folder is special: others on the machine may write
next to it (`/tmp`), and whoever can put a socket there can talk as the engine. It is used only when
it is a real folder of ours that nobody else can enter.
"""

import os
import stat
from pathlib import Path

from msgspec import Struct

from orchard.errors import OrchardError

SOCKET_PATH_BYTES = 100
"""What every system takes as a unix socket's path, with room to spare (macOS ends at 104)."""

TEMPORARY = Path("/tmp")

SOCKET_NAME_BYTES = 40
"""What a runtime folder leaves for the names of sockets in it."""


class UserDirs(Struct, frozen=True):
    state: Path
    config: Path
    runtime: Path


def user_dirs() -> UserDirs:
    """The folders of the user who runs this, as the platform and XDG variables say."""
    from platformdirs import user_config_path, user_state_path  # slow to import: 10 ms and more

    state = _absolute(user_state_path("orchard"), "XDG_STATE_HOME")
    config = _absolute(user_config_path("orchard"), "XDG_CONFIG_HOME")
    return UserDirs(state, config, _runtime_dir(state))


def make_state_dir(path: Path) -> Path:
    """Make a folder that only the user can enter; one that is there is left as it is."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        hint = "Set XDG_STATE_HOME to a folder that can be written."
        raise OrchardError(f"Cannot make the folder {path}: {error.strerror}.", hint) from error
    return path


def make_runtime_dir(path: Path) -> Path:
    """Make the folder for sockets, or refuse the one that is there when it is not ours alone."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        hint = "Set XDG_RUNTIME_DIR to a folder that only you can enter."
        raise OrchardError(f"Cannot make the folder {path}: {error.strerror}.", hint) from error
    wrong = _not_ours_alone(found)
    if wrong is not None:
        hint = "Remove it, or set XDG_RUNTIME_DIR to a folder that only you can enter."
        raise OrchardError(f"The folder for sockets, {path}, cannot be trusted: {wrong}.", hint)
    return path


def socket_path(runtime: Path, name: str) -> Path:
    """The path of a socket in the runtime folder; a name that would not fit is a bug of the caller."""
    path = runtime / name
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES or path.parent != runtime:
        raise ValueError(f"no path for a socket: {path}")
    return path


def _runtime_dir(state: Path) -> Path:
    """Below XDG_RUNTIME_DIR if that is ours and short enough for sockets, else below /tmp, else with the state."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    place = Path(given) / "orchard"
    if given and place.is_absolute() and _holds_sockets(place) and _is_ours_alone(place.parent):
        return place
    # Not tempfile.gettempdir(): TMPDIR differs from terminal to terminal, and all must meet here.
    place = TEMPORARY / f"orchard-{os.getuid()}"
    return state / "run" if _is_taken(place) and _holds_sockets(state / "run") else place


def _holds_sockets(place: Path) -> bool:
    return len(os.fsencode(place)) + 1 + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES


def _is_taken(place: Path) -> bool:
    """Whether another user was first to use this name, which nobody else can remove in a folder like /tmp."""
    try:
        return place.lstat().st_uid != os.getuid()
    except OSError:
        return False


def _is_ours_alone(path: Path) -> bool:
    try:
        return _not_ours_alone(path.stat()) is None
    except OSError:
        return False


def _not_ours_alone(found: os.stat_result) -> str | None:
    if not stat.S_ISDIR(found.st_mode):
        return "it is a link" if stat.S_ISLNK(found.st_mode) else "it is not a folder"
    if found.st_uid != os.getuid():
        return f"it belongs to user {found.st_uid}"
    return f"its mode is {found.st_mode & 0o777:o}, not 700" if found.st_mode & 0o077 else None


def _absolute(path: Path, variable: str) -> Path:
    """A relative folder would mean another one in every repository, and that repository's files."""
    if not path.is_absolute():
        raise OrchardError(f"{variable} is not an absolute path: {path}", f"Set {variable} to an absolute path.")
    return path
