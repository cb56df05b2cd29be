"""Filters: programs that git runs on the content of files, as the user has set them.

Git starts them in the folder that it works in. In a worktree of ours that folder is a job's: the job could put a script
or a module of the same name there (`sh tools/clean.sh`, `python -m nbstripout`), and it would run outside of every
wall. So for a job's content they run in the user's own checkout, which is where their paths lead for the user, too.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from orchard.git.command import Git

Filters = tuple[tuple[str, str], ...]
"""Keys of git's settings with their values."""

RUNS = (".smudge", ".clean", ".process")
_THERE = "unset GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE GIT_PREFIX\n"


def run_at(folder: Path, filters: Filters) -> Filters:
    """The same filters, each run in this folder; a git that one of them asks finds itself there, too."""
    return tuple((key, _at(folder, key, _THERE) + value if is_program(key, value) else value) for key, value in filters)


def run_in_checkout(top: Path, config: Mapping[str, str]) -> dict[str, str]:
    """The filters of some settings, run in the user's checkout and as if git itself ran there."""
    programs = {key: value for key, value in config.items() if is_program(key, value)}
    return {key: _at(top, key, _own(top)) + value for key, value in programs.items()}


def as_set(said: bytes, top: Path) -> bytes:
    """What git said about filters in a checkout, with their commands as the user has set them."""
    for kind in RUNS:
        said = said.replace(os.fsencode(_at(top, kind, _own(top))), b"")
    return said


def is_program(key: str, value: str) -> bool:
    return key.startswith("filter.") and key.endswith(RUNS) and bool(value)


def _own(top: Path) -> str:
    return f"GIT_WORK_TREE={shlex.quote(str(top))}; export GIT_WORK_TREE\nunset GIT_INDEX_FILE\n"


def _at(folder: Path, key: str, more: str = "") -> str:
    words = f"cd {shlex.quote(str(folder))} || exit 1\n{more}"
    # Git puts the file's name for %f, except where one program filters all files.
    return words if key.endswith(".process") else words.replace("%", "%%")


_FAILING_FILTER = {"clean": "false", "smudge": "false", "process": "", "required": "true"}
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}


def block_filters(git: Git, trusted: Filters, *, fail: bool = True) -> Git:
    """The same git, whose settings can name no filter program beside those that are trusted.

    Files that ask for another one make git fail, or are taken as they are, and so do those that ask for a trusted one
    to which the repository has added a key: git would prefer a `process` that the user has not set.
    """
    blocking = _FAILING_FILTER if fail else _NO_FILTER
    rows = git("config", "-z", "--name-only", "--get-regexp", r"^filter\.", ok=(0, 1)).fields
    known = {key for key, _ in trusted}
    strange = {key.rpartition(".")[0] for key in map(os.fsdecode, rows) if key not in known}
    blocked = {f"{driver}.{key}": value for driver in strange for key, value in blocking.items()}
    return replace(git, config={**git.config, **dict(trusted), **blocked})
