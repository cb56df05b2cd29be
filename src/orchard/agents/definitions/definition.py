"""Agents that somebody describes in a text: `.claude/agents/NAME.md`, `.github/agents/NAME.agent.md`.

    ---
    name: reviewer
    description: Reads a change and says what is wrong with it
    model: fast-model
    tools: Read, Grep
    ---
    You review changes. ...

A definition is a text that tells an agent how to work, and not a program: whoever works by it is an agent that the user
has. A repository's files are a stranger's, so links are not followed, and all of it is bounded. What cannot be used is
kept with the reason, so that it can be told to whoever asks for it.

    parse      the text of one file -> a definition
    in_folder  those that lie in a checkout, or in a folder of the user's
    in_commit  those that a commit holds
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from orchard.agents.definitions import head
from orchard.agents.prompts.quote import plain_text
from orchard.files import read_plain
from orchard.git.objects.reader import SYMLINK, TREE, Entry, Objects
from orchard.model.permissions import ALL, Tools
from orchard.patterns import later
from orchard.text import quoted

Origin = Literal["config", "repository", "user"]

PLACES = ((".claude/agents", ".md"), (".github/agents", ".agent.md"))
MOST = 100
"""Definitions that are read of each place."""
FILE_BYTES = 64 * 1024
DESCRIPTION = 500
MOST_TOOLS = 100
NAME = later(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NOBODY = "agent"
"""`@agent TEXT` is work for the default agent, and `claude:agent` for claude by no definition."""

_MODEL = later(r"[A-Za-z0-9][\w.:/@+-]{0,199}")
"""What could be taken for an option of a program is no model."""
_TOOL = later(r"[\w*][\w*.:/(), -]{0,199}")
_TITLE = later(r"[\w .()&+-]{1,100}")
_DENYING = ("disallowedtools", "disallowed-tools", "disallowed_tools")
_NO_MODEL = ("", "inherit", "default")

LINK = "it is a link, and links are not followed"
TOO_LONG = f"it is longer than {FILE_BYTES // 1024} KiB"
NO_HEAD = "it does not begin with a head between two lines of '---'"
NO_TEXT = "it holds no text beside its head"


class Definition(Struct, frozen=True):
    name: str
    description: str = ""
    instructions: str = ""
    model: str | None = None
    tools: tuple[str, ...] | None = None
    """Those that it is for, by the names that its author's program has for them; None: all."""
    denied: tuple[str, ...] = ()
    file: str = ""
    origin: Origin = "repository"
    agent: str | None = None
    """Whose program does it: only the user's own configuration can say that."""
    permissions: Tools = ALL
    """What a row of the configuration leaves of all tools, in our own words."""
    problem: str = ""
    """Why it is not used; empty: it is."""


def parse(text: str, stem: str, file: str = "", origin: Origin = "repository") -> Definition:
    """The definition that a file holds, or what keeps it from being one."""
    made = head.read(text)
    if made is None:
        return _unusable(stem, file, origin, NO_HEAD)
    fields, body = made.fields, made.body
    name = _name(fields.get("name", ""), stem, file)
    if not NAME.fullmatch(name):
        return _unusable(stem, file, origin, "its name is not of letters, digits, '.', '_' and '-'")
    if name == NOBODY:
        return _unusable(name, file, origin, "'agent' means an agent without any definition")
    if doubtful := _doubtful(made):
        return _unusable(name, file, origin, doubtful)
    if not body:
        return _unusable(name, file, origin, NO_TEXT)
    model = fields.get("model", "")
    return Definition(
        name,
        " ".join(plain_text(fields.get("description", "")).split())[:DESCRIPTION],
        body,
        None if model.lower() in _NO_MODEL or not _MODEL.fullmatch(model) else model,
        _tools(fields.get("tools")),
        _denied(next((fields[key] for key in _DENYING if key in fields), None)),
        file,
        origin,
    )


def _doubtful(made: head.Head) -> str:
    """Why it is not known which tools a definition is for: all of them would be more than its author meant."""
    if made.doubtful:
        return f"its head may limit its tools in a form that is not understood: {quoted(made.doubtful)}"
    about = [key for key in made.fields if "tool" in key and key != "tools"]
    odd = [key for key in about if key not in _DENYING] or about[1:]
    return f"{quoted(odd[0])} in its head is not understood: 'tools' and 'disallowedTools' are" if odd else ""


def _name(said: str, stem: str, file: str) -> str:
    """What it is called. Some programs have a title there, which names nothing: then the file does."""
    is_title = file.startswith(".github/") and NAME.fullmatch(said) is None and _TITLE.fullmatch(said) is not None
    return stem if not said or is_title else said


def _unusable(name: str, file: str, origin: Origin, problem: str) -> Definition:
    return Definition(name if NAME.fullmatch(name) else "", file=file, origin=origin, problem=problem)


def _tools(said: str | None) -> tuple[str, ...] | None:
    """`Read, Grep`, `["read", "search"]`, or a list below it; nothing, or `*`, is all of them, and `[]` is none."""
    if said is None or not said.strip():
        return None
    words = tuple(word for word in _entries(said) if _TOOL.fullmatch(word))
    return None if "*" in words else words[:MOST_TOOLS]


def _denied(said: str | None) -> tuple[str, ...]:
    """Every entry, whatever it looks like: what is not understood must not be lost. Too many of them are all tools."""
    words = tuple(_entries(said or ""))
    return words if len(words) <= MOST_TOOLS else ("*",)


def _entries(said: str) -> Iterator[str]:
    """The words of a list, one more than may be at most: a comma within parentheses belongs to one tool, as in
    `Bash(git log:*, git diff:*)`. Parentheses that are not closed hold nothing together.
    """
    text = said.strip().removeprefix("[").removesuffix("]")
    return islice((word for part in _parts(text) if (word := head.value(part))), MOST_TOOLS + 1)


def _parts(text: str) -> Iterator[str]:
    opened: list[int] = []
    pairs: dict[int, int] = {}
    for place, char in enumerate(text):
        if char == "(":
            opened.append(place)
        elif char == ")" and opened:
            pairs[opened.pop()] = place
    start = held = 0
    for place, char in enumerate(text):
        held = max(held, pairs.get(place, 0))
        if char in ",\n" and place >= held:
            yield text[start:place]
            start = place + 1
    yield text[start:]


# --------------------------------------------------------------------------------------- in a folder


def in_folder(
    folder: Path, places: Iterable[tuple[str, str]] = PLACES, origin: Origin = "repository", shown: str = ""
) -> list[Definition]:
    """The definitions that lie below a folder, with those that cannot be used; in one of the user's own links count.

    `shown` is how the folder is told, with a slash.
    """
    found: list[Definition] = []
    for place, ending in places:
        names = sorted(_names(folder / place, ending, links=origin == "user"))
        found += [_lying(folder, f"{place}/{name}", ending, origin, shown) for name in names[:MOST]]
    return found


def lying_at(folder: Path, file: str) -> Definition | None:
    """The definition in one file of a checkout; None where it is none of the files that are read."""
    place, _, name = file.rpartition("/")
    ending = dict(PLACES).get(place)
    return _lying(folder, file, ending, "repository") if ending is not None and _is_text(name, ending) else None


def _lying(folder: Path, file: str, ending: str, origin: Origin, shown: str = "") -> Definition:
    path, stem = folder / file, file.rpartition("/")[2].removesuffix(ending)
    try:
        data = read_plain(path.resolve() if origin == "user" else path, FILE_BYTES + 1)
    except OSError as error:
        problem = LINK if path.is_symlink() else f"it cannot be read ({error.strerror})"
        return _unusable(stem, f"{shown}{file}", origin, problem)
    return _read(data, stem, f"{shown}{file}", origin)


def _read(data: bytes, stem: str, file: str, origin: Origin = "repository") -> Definition:
    if len(data) > FILE_BYTES:
        return _unusable(stem, file, origin, TOO_LONG)
    return parse(data.decode(errors="replace"), stem, file, origin)


def _names(folder: Path, ending: str, *, links: bool) -> Iterator[str]:
    """The files of a folder that is reached through folders only."""
    if not links and any(place.is_symlink() for place in (folder, folder.parent)):
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _is_text(entry.name, ending) and not entry.is_dir(follow_symlinks=links):
                    yield entry.name
    except OSError:
        return


def _is_text(name: str, ending: str) -> bool:
    return name.endswith(ending) and name.isprintable() and not name.startswith(".")


# --------------------------------------------------------------------------------------- in a commit


def in_commit(objects: Objects, commit: str) -> list[Definition]:
    """The definitions that a commit holds, with those that cannot be used."""
    tree = objects.tree_of(commit)
    found: list[Definition] = []
    for place, ending in PLACES:
        folder = objects.entry(tree, place.encode())
        rows = objects.tree_entries(folder.oid) if folder is not None and folder.mode == TREE else {}
        texts = [(name.decode(errors="replace"), entry) for name, entry in rows.items() if entry.mode != TREE]
        named = sorted((name, entry) for name, entry in texts if _is_text(name, ending))
        found += [_held(objects, entry, f"{place}/{name}", ending) for name, entry in named[:MOST]]
    return found


def _held(objects: Objects, entry: Entry, file: str, ending: str) -> Definition:
    stem = file.rpartition("/")[2].removesuffix(ending)
    if not entry.is_regular:
        return _unusable(stem, file, "repository", LINK if entry.mode == SYMLINK else "it is not a file")
    if objects.size(entry.oid) > FILE_BYTES:
        return _unusable(stem, file, "repository", TOO_LONG)
    return _read(objects.read(entry.oid)[1], stem, file)


def without(definition: Definition, problem: str) -> Definition:
    """The same, not used for this reason."""
    return replace(definition, problem=definition.problem or problem)
