"""The home of an agent's program behind a wall: a folder of the job's own, with the agent's own login in it.

The user's home is not there. What the program needs of it to speak with its model is copied: the files in which it
keeps a login, and nothing of other agents. Where the user has given it another folder by its variable, that folder
is opened as it is.
"""

import os
from pathlib import Path

from orchard.agents.endpoints import Ways
from orchard.files import read_plain, write_below

_MOST_BYTES = 1 << 20


def make_home(ways: Ways, home: Path) -> tuple[Path, ...]:
    """Make the home of an agent, and say what else of the user's folders it needs.

    One whose key our proxy has needs no login.
    """
    if home.is_symlink():
        home.unlink()  # a turn before this one put it there: a login would follow it
    home.mkdir(mode=0o700, exist_ok=True)
    known, env = ways.known, ways.env
    if known is None or any(one.withheld for one in ways.keyed):
        return ()
    variable, below = known.folder
    if variable and (moved := env.get(variable)):
        return (Path(moved),) if Path(moved).is_dir() else ()
    users = Path(env.get("HOME") or Path.home())
    for name in (*(f"{below}/{file}" for file in known.files), *(file for file, _ in known.settings)):
        _copy(users / name, home, name)
    return ()


def _copy(source: Path, home: Path, name: str) -> None:
    """A newer login replaces an older copy; one that the program has renewed there stays.

    Programs have written in that home since: where one has put a link in the way, nothing is copied.
    """
    goal = home / name
    try:
        if goal.exists() and goal.stat().st_mtime >= source.stat().st_mtime:
            return
        content = read_plain(Path(os.path.realpath(source)), _MOST_BYTES)
        write_below(home, name, content, aside=False)
    except OSError:
        return


def places_of(program: str) -> tuple[Path, ...]:
    """What has to be seen of a program so that it can be started, wherever the user has installed it.

    A link leads to what it names. A package of Node finds others beside itself, and an environment of Python is needed
    as a whole; of anything else, the file and the folder that is its own.
    """
    real = Path(os.path.realpath(program))
    packages = next((above for above in reversed(real.parents) if above.name == "node_modules"), None)
    environment = next((above for above in real.parents if (above / "pyvenv.cfg").is_file()), None)
    whole = packages or environment
    if whole is None and real != Path(program):
        whole = real.parent if real.parent.name != "bin" else None
    return tuple(dict.fromkeys(path for path in (Path(program), real, whole) if path is not None))
