"""Links that say which folder is which job's: `<root>/by-job/<plan>/<job>` leads to the worktree that the job has now.

Worktrees keep their own names, so that no program finds its folder renamed and a warm worktree is used again as it is.
The links are for people: no work goes through them, and where the disk refuses one, there is none. They are made and
removed beneath an open folder, so that a link in the place of one of ours leads nowhere. Making and removing a folder
costs milliseconds, so that of a plan stays until the next plan begins or the engine ends.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchard.git.folders import entries

BY_JOB = "by-job"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}")
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def link_job(worktree: Path, plan: str, job: str) -> None:
    """Have the link of a job lead to this worktree."""
    name = _name(plan, job)
    if name is None:
        return
    with suppress(OSError), _opened(worktree.parent, plan, make=True) as folder:
        goal = f"../../{worktree.name}"
        with suppress(FileExistsError):
            os.symlink(goal, name, dir_fd=folder)
            return
        if os.readlink(name, dir_fd=folder) != goal:
            os.unlink(name, dir_fd=folder)
            os.symlink(goal, name, dir_fd=folder)


def unlink_job(worktree: Path, plan: str, job: str) -> None:
    """Take the link of a job away, if it leads to this worktree."""
    name = _name(plan, job)
    if name is None:
        return
    with suppress(OSError), _opened(worktree.parent, plan) as folder:
        if os.readlink(name, dir_fd=folder) == f"../../{worktree.name}":
            os.unlink(name, dir_fd=folder)


def named_worktree(worktree: Path, plan: str, job: str) -> Path:
    """A worktree by the name of its job, as a person reads it; as it is, where no link leads there."""
    name = _name(plan, job)
    if name is not None:
        link = worktree.parent / BY_JOB / plan / name
        with suppress(OSError):
            if os.readlink(link) == f"../../{worktree.name}":  # noqa: PTH115 (the text of it)
                return link
    return worktree


def linked_worktrees(root: Path) -> dict[str, list[Path]]:
    """The worktrees of jobs that run, failed or were kept, by plan."""
    found: dict[str, list[Path]] = {}
    for plan in entries(root / BY_JOB):
        with suppress(OSError), _opened(root, plan.name) as folder:
            goals = [os.readlink(name, dir_fd=folder) for name in sorted(os.listdir(folder))]  # noqa: PTH208 (open already)
            names = [goal.rpartition("/")[2] for goal in goals if goal.startswith("../../")]
            found[plan.name] = [root / name for name in names if (root / name).is_dir()]
    return {plan: folders for plan, folders in found.items() if folders}


def sweep_links(root: Path) -> None:
    """Take away folders without links, and links to worktrees that are gone: an engine was killed before it could."""
    for plan in entries(root / BY_JOB):
        with suppress(OSError), _opened(root, plan.name) as folder:
            for name in os.listdir(folder):  # noqa: PTH208 (open already)
                _sweep(root, folder, name)
    _drop_empty(root)
    with suppress(OSError):
        (root / BY_JOB).rmdir()


def _sweep(root: Path, folder: int, name: str) -> None:
    with suppress(OSError):
        goal = os.readlink(name, dir_fd=folder)
        if goal.startswith("../../") and not (root / goal.rpartition("/")[2]).is_dir():
            os.unlink(name, dir_fd=folder)


def _name(plan: str, job: str) -> str | None:
    """What the link of a job is called; None for names that are no names of files."""
    name = re.sub(r"[/ ]", "+", job)
    return name if _NAME.fullmatch(name) and _NAME.fullmatch(plan) else None


@contextmanager
def _opened(root: Path, plan: str, *, make: bool = False) -> Iterator[int]:
    """The folder of a plan's links, each folder on the way a real one."""
    above = os.open(root, _FLAGS)
    try:
        for name in (BY_JOB, plan):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=above)
                    _drop_empty(root, but=name)  # of plans before it
            below = os.open(name, _FLAGS, dir_fd=above)
            os.close(above)
            above = below
        yield above
    finally:
        os.close(above)


def _drop_empty(root: Path, but: str = "") -> None:
    for plan in entries(root / BY_JOB):
        if plan.name != but and not plan.is_symlink():
            with suppress(OSError):
                os.rmdir(plan)  # noqa: PTH106 (an entry)
