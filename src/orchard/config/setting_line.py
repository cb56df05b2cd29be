"""Which line, in which file, gives a setting one more value: told so that it fits what stands there now.

A list of the repository's file, or of a variable, replaces the user's own. So the line belongs where the value that
holds comes from, and into the user's own file where no file has the key yet, or the repository's where it fits
no other.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from orchard.config.keys import SHORT
from orchard.config.layers import DEFAULT, lookup
from orchard.config.load import REPOSITORY_FILE, USER_FILE, read_file
from orchard.config.user_dirs import UserDirs


def opening_line(key: str, value: str, origin: str | None, dirs: UserDirs, top: Path | None) -> str:
    """How a person adds `value` to the list `key`, or sets the single value `key` to it.

    It is as TOML writes it; several values of a list have commas between them."""
    one = key not in LISTS
    if origin is not None and origin.startswith("ORCHARD_"):
        bare = value.replace('"', "").replace(", ", ",")
        return f"set {origin} to {bare}" if one else f"add {bare} to the variable {origin}"
    if (origin == REPOSITORY_FILE or (origin is None and key in OF_REPOSITORY)) and top is not None:
        again = " again" if origin is not None else ""
        trust = f", and trust that file{again}" if not one else ""
        return _in_file(key, value, top / REPOSITORY_FILE, REPOSITORY_FILE, one=one) + trust
    file = dirs.config / USER_FILE
    return _in_file(key, value, file, _short(file), one=one)


LISTS = frozenset({"sandbox.expose", "sandbox.write", "sandbox.allow", "worktree.copy"})
OF_REPOSITORY = frozenset({"worktree.copy"})
"""What fits one repository only: where no file has the key, the line belongs into its own file."""


def _in_file(key: str, value: str, file: Path, shown: str, *, one: bool) -> str:
    text, values = read_file(file)
    section, _, name = key.partition(".")
    line = f"{name} = {value}" if one else f"{name} = [{value}]"
    held = values.get(section)
    if isinstance(held, str) and section in SHORT:
        level = SHORT[section].partition(".")[2]
        return f'in {shown}, put [{section}] with {level} = "{held}" and {line} in the place of {section} = "{held}"'
    table = f"[{section}]" if re.search(rf"^\s*\[\s*{section}\s*\]", text, re.MULTILINE) else ""
    where = f"under {table} in {shown}" if table else f"in {shown}"
    if lookup(values, key) is not None:
        called = name if table else key
        return f"change {called} to {value} {where}" if one else f"add {value} to {called} {where}"
    if table:
        return f"add {line} {where}"
    return f"put {section}.{line} at the top of {shown}"


def _short(file: Path) -> str:
    home = Path.home()
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file)


def origin_of(origins: Mapping[str, str], key: str) -> str | None:
    """Where the value that holds comes from; None: nobody has said anything."""
    found = origins.get(key, DEFAULT)
    return None if found == DEFAULT else found
