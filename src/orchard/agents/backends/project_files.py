"""What a repository holds for the programs of agents: found, so that none of it counts before the user has agreed.

Most programs can be told to leave it out. Where one cannot, the agent is not started, and this says why.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchard.agents.protocol import Task
from orchard.errors import Next, OrchardError
from orchard.files import read_plain
from orchard.planfile.works import reserved

_MOST_BYTES = 1 << 20
_MOST_WORDS = 64 * 1024
_VARIABLE = re.compile(r"^[^\S\n]*+(?:export\s+)?([\w.-]++)\s*+[=:]", re.MULTILINE)
"""What sets a variable. Blanks and newlines may stand around its name, and each of them is looked at once: with `\\s*`
at its beginning, a file of newlines would take as long as the square of its length."""
_BLANKS = str.maketrans({"\r": "\n", "\u2028": "\n", "\u2029": "\n", "\ufeff": " "})
"""What ends a line, or is a blank, for programs in JavaScript and not for Python."""


def there(folder: Path, names: Iterable[str]) -> list[str]:
    """Which of these the folder holds, links included.

    An empty folder says nothing: the sandbox of a program that was killed leaves some, where it had closed a place.
    """
    return [name for name in names if os.path.lexists(folder / name) and not _is_empty(folder / name)]


def _is_empty(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode) and not any(path.iterdir())
    except OSError:
        return False


def _text(path: Path) -> str:
    """A text of the repository's; a link is not followed, and what is long is cut."""
    try:
        return read_plain(path, _MOST_WORDS).decode(errors="replace")
    except OSError:
        return ""


def anywhere(task: Task, names: Iterable[str]) -> list[Path]:
    return [above / name for above in _upwards(task) for name in there(above, names)]


def _upwards(task: Task) -> list[Path]:
    """The task's folder and all those above, the user's own home left out: that is not a repository's."""
    home = Path(task.env.get("HOME") or "/nowhere").resolve()
    folder = task.folder.resolve()
    return [above for above in (folder, *folder.parents) if above != home]


def foreign(task: Task, obeys: Iterable[str], variables: Iterable[str]) -> list[str | Path]:
    """What a program would obey of a repository, and files that set variables which decide something.

    Programs look for such a file (`.env`) all the way up.
    """
    files = (above / name for above in _upwards(task) for name in variables)
    return [*there(task.folder, obeys), *filter(_steers, files)]


def with_own_words(task: Task, names: Iterable[str]) -> bytes:
    """What the agent is told, and below it what the repository asks of agents in plain words.

    A program that leaves a repository's settings out leaves that out as well, and text runs nothing. A session that
    goes on has heard it.
    """
    told = task.instructions
    if task.session is None and not task.trusted_project_settings:
        said = next(((name, text) for name in names if (text := _text(task.folder / name))), None)
        if said is not None:
            told = f"{told.rstrip()}\n\n## What this repository asks of agents ({said[0]})\n\n{said[1].strip()}\n"
    return told.encode()


def refuse(task: Task, agent: str, found: Iterable[str | Path]) -> None:
    """Do not start an agent in a folder that holds settings which it cannot be told to leave out, if any was found."""
    shown = ", ".join(dict.fromkeys(_shown(task, path) for path in found))
    if not shown:
        return
    raise OrchardError(
        f"the repository holds settings for {agent} that you have not agreed to ({shown}), and {agent} cannot be told "
        "to leave them out: they can run programs, and send your key elsewhere.",
        hint=("Look at them and agree with '", Next("trust_repository"), "', remove them, or use another agent."),
    )


def addresses(env: Mapping[str, str], usual: Mapping[str, str]) -> dict[str, str]:
    """Where requests go, said outright: by the user's variables, else to the usual address."""
    return {name: env.get(name) or address for name, address in usual.items()}


def _shown(task: Task, path: str | Path) -> str:
    if isinstance(path, str):
        return path
    folder = task.folder.resolve()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _steers(path: Path) -> bool:
    """Whether a file of variables sets one that matters; one that cannot be read as such may."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return os.path.lexists(path)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return not stat.S_ISDIR(os.fstat(descriptor).st_mode)
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        return True
    text = data.decode(errors="replace").translate(_BLANKS)
    return any(reserved(found[1]) for found in _VARIABLE.finditer(text))
