"""Dependencies that a worktree lacks and the user's checkout has: read in the last words of a program that failed.

A new worktree has no `node_modules` and no `.venv`, because git ignores them. What is told here was looked at: the
module or the program is in such a folder of the checkout, and the worktree has no such folder.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from orchard.git.repository import Repository
from orchard.git.worktree.setup import git_of_checkout, ignored_in
from orchard.patterns import later

NODE = "node_modules"
ENVIRONMENTS = (".venv", "venv")
SUBFOLDERS = 100
"""So many folders of the checkout are looked into for a `node_modules` of their own."""
LOOKED_AT = 20
"""So many names that a program missed."""

_NODE_MODULE = later(
    r"(?:cannot find (?:module|package)|can't resolve|failed to resolve import|could not resolve)"
    r""" ["'](@[\w.-]+/[\w.-]+|[\w-][\w.-]*)""",
    re.IGNORECASE,
)
_PYTHON_MODULE = later(r"No module named ['\"]?([A-Za-z_]\w*)")
_PROGRAM = later(
    r"(?:^|[\s:'\"])(?:[\w./-]*/)?([\w.-]+)['\"]?: (?:command )?not found(?!: \w)"
    r"|command not found: ([\w.-]+)"
    r"|(?:node_modules/\.bin|\.?venv/bin)/([\w.-]+)['\"]?: no such file",
    re.IGNORECASE | re.MULTILINE,
)


def missing_folders(repo: Repository, said: str, folder: Path, cwd: Path) -> list[str]:
    """Ignored folders of the checkout that have what a program missed in `cwd` of the worktree at `folder`."""
    top = repo.main_top
    wanted = list(dict.fromkeys(islice(_wanted(said), LOOKED_AT)))
    if top is None or not wanted:
        return []
    bases = list(_bases(top, cwd.relative_to(folder)))
    found: dict[str, None] = {}
    for kind, name in wanted:
        for base in bases:
            has = next((one for one in _folders(kind) if _has(top / base / one, kind, name)), None)
            if has is not None:
                found[(base / has).as_posix()] = None
                break
    lacks = [name for name in found if not (folder / name).exists()]
    ignored = {one.rstrip(b"/") for one in ignored_in(git_of_checkout(repo, top), [name.encode() for name in lacks])}
    return [name for name in lacks if name.encode() in ignored]


def _wanted(said: str) -> Iterator[tuple[str, str]]:
    yield from (("node", one[1]) for one in _NODE_MODULE.finditer(said))
    yield from (("python", one[1]) for one in _PYTHON_MODULE.finditer(said))
    yield from (("program", one[1] or one[2] or one[3]) for one in _PROGRAM.finditer(said))


def _bases(top: Path, cwd: Path) -> Iterator[PurePosixPath]:
    """Where a project of the checkout may be: where the program ran, above that, and one folder below the top."""
    here = PurePosixPath(cwd.as_posix())
    yield here
    yield from (one for one in here.parents if one != here)
    try:
        below = sorted(one.name for one in top.iterdir() if one.is_dir() and not one.name.startswith("."))
    except OSError:
        return
    yield from (PurePosixPath(name) for name in below[:SUBFOLDERS] if name != NODE)


def _folders(kind: str) -> tuple[str, ...]:
    return {"node": (NODE,), "python": ENVIRONMENTS, "program": (NODE, *ENVIRONMENTS)}[kind]


def _has(place: Path, kind: str, name: str) -> bool:
    if not place.is_dir():
        return False
    if kind == "program":
        return (place / (".bin" if place.name == NODE else "bin") / name).is_file()
    if kind == "node":
        return (place / name).exists()
    packages = place.glob("lib/python*/site-packages")
    return any((one / name).exists() or (one / f"{name}.py").exists() for one in packages)
