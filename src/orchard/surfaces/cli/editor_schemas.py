"""The schemas of plan files and of `orchard.toml` as editors find them.

They are kept in the repository's `.git/orchard`, so that a file which names them there means the schema of the Orchard
that is installed, without a network. `orchard init` puts them there; `orchard run` replaces those of other versions.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from orchard import __version__
from orchard.errors import OrchardError
from orchard.files import replace_whole
from orchard.git.repository import Repository, find_repository
from orchard.surfaces.cli.terminal import json_text

What = Literal["plan", "settings"]
_VERSION = f"of Orchard {__version__}".encode()


def _plan() -> dict[str, Any]:
    from orchard.planfile.parse import schema  # brings pydantic

    return schema()


def _settings() -> dict[str, Any]:
    from orchard.config.schema import settings_schema

    return settings_schema()


SCHEMAS: Mapping[What, Callable[[], dict[str, Any]]] = {"plan": _plan, "settings": _settings}

LINES: Mapping[What, str] = {"plan": "# yaml-language-server: $schema={place}\n", "settings": "#:schema {place}\n"}
"""What the first line of a file says to editors."""


def first_line(what: What, file: Path) -> str:
    """The line by which an editor finds the schema of a file; nothing outside of a plain checkout."""
    place = _kept(file.absolute().parent, what)
    return "" if place is None else LINES[what].format(place=os.path.relpath(place, file.absolute().parent))


def refresh_schemas(repo: Repository) -> None:
    """Where a file names the schemas, see that they are those of this version; making them takes a while."""
    places = [repo.state / f"{what}.schema.json" for what in SCHEMAS]
    with suppress(OSError):
        if any(place.is_file() and _VERSION not in place.read_bytes()[:300] for place in places):
            keep_schemas(repo)


def keep_schemas(repo: Repository) -> None:
    """Put the schemas where files name them; what cannot be written is left, for nothing but an editor needs it."""
    for what, made in SCHEMAS.items():
        content = (json_text({"$comment": f"of Orchard {__version__}", **made()}, 1) + "\n").encode()
        place = repo.state / f"{what}.schema.json"
        with suppress(OSError):
            if not place.is_file() or place.read_bytes() != content:
                repo.state.mkdir(mode=0o700, exist_ok=True)
                replace_whole(place, content)


def _kept(folder: Path, what: What) -> Path | None:
    try:
        repo = find_repository(folder)
    except OrchardError:
        return None
    if repo.top is None or repo.common_dir != repo.top / ".git":
        return None  # a linked worktree, or a folder apart: the path would hold on this machine only
    keep_schemas(repo)
    return repo.state / f"{what}.schema.json"
