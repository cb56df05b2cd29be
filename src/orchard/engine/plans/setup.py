"""What sets a new worktree up for a job: works of the job, of the plan or of the configuration, and submodules."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from orchard.core.run import Run
from orchard.engine.programs import PORT
from orchard.engine.world import World
from orchard.git.dependencies.copies import Copies, copied_files, copy_folders
from orchard.git.folders import entries
from orchard.git.repository import Worktree
from orchard.git.worktree.setup import Linked, copy_included, included_files, link_folders
from orchard.git.worktree.worktrees import Worktrees
from orchard.model.plan import AgentWork, Job, OnFailure, Plan, ProcessWork, Work
from orchard.model.plan_codec import work_json

_OF_A_SESSION = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM.*|COLUMNS|LINES|WINDOWID|DISPLAY|WAYLAND.*|SSH_.*|TMUX.*|STY|WINDOW|COLORTERM|LS_COLORS|PS1"
    r"|XDG_(SESSION|RUNTIME|SEAT|VTNR).*|DBUS_.*|DESKTOP_.*|GNOME_.*|KDE_.*|VTE_.*|KONSOLE_.*|ITERM_.*|VSCODE_.*|INVOCATION_ID"
    r"|JOURNAL_STREAM|SYSTEMD_.*|MANAGERPID|LOGNAME|MAIL|EDITOR|VISUAL|PAGER|LESS.*|HISTFILE|PYTEST_.*"
)
"""Variables that differ from one terminal to the next, and say nothing about what a program installs."""

UPDATE_SUBMODULES = ProcessWork(
    executable="git",
    # Not `--init`, which would write to the settings that all worktrees share with the user.
    args=("-c", "submodule.active=.", "submodule", "update", "--recursive"),
    env={"GIT_TERMINAL_PROMPT": "0"},
    on_failure=OnFailure(heal=False, message="The submodules of the worktree could not be checked out"),
)


class Filled(Struct, frozen=True):
    """What a new worktree got from the user's checkout."""

    copies: Copies = Copies()
    included: tuple[str, ...] = ()
    linked: Linked = Linked()


def fill_worktree(world: World, trees: Worktrees, worktree: Worktree, *, again: bool = False) -> Filled:
    """Copy and link what the settings name; `again`: what is there stays."""
    config, top = world.config.worktree, world.repo.main_top
    if not config.include and not config.link and not config.copy:
        return Filled()
    copy, link = (
        [name for name in names if not again or not os.path.lexists(worktree.path / name)]
        for names in (config.copy, config.link)
    )
    copies = copy_folders(world.repo, top, worktree, copy, (trees.root,))
    included = copy_included(world.repo, top, worktree, config.include, (trees.root,))
    return Filled(copies, tuple(included), link_folders(trees, top, worktree, link))


def setup_works(plan: Plan, job: Job, world: World, commit: str) -> tuple[Work, ...]:
    """What is run in a new worktree at a commit: what the job says, else the plan, else the configuration."""
    first = (UPDATE_SUBMODULES,) if wants_submodules(plan, world) and _has_submodules(world, commit) else ()
    if job.setup is not None:
        return (*first, *job.setup)
    return (*first, *(plan.setup if plan.setup is not None else world.setup))


def setup_settings(world: World, run: Run, job: Job, commit: str) -> str:
    """A digest of what plan and settings say about setting a worktree up, whatever it would leave there."""
    config = world.config.worktree
    works = [work_json(work) for work in setup_works(run.plan, job, world, commit)]
    said = repr((config.include, config.link, config.copy, works))
    return hashlib.sha256(said.encode(errors="surrogateescape")).hexdigest()[:20]


def setup_key(world: World, run: Run, job: Job, commit: str, root: Path) -> str | None:
    """What decides what setting a worktree up leaves there; None: nothing to set up, or nothing that can be spared.

    An agent's work is done anew each time. What programs leave depends on all that they see, and on the wall around
    them: none takes what another wall let through. What we copy and link ourselves depends on the originals alone.
    """
    plan, config, top = run.plan, world.config.worktree, world.repo.main_top
    works = setup_works(plan, job, world, commit)
    if any(isinstance(work, AgentWork) or work is UPDATE_SUBMODULES for work in works):
        return None
    if any(PORT in str(work_json(work)) for work in works):
        return None  # the next job has other ports
    if not works and not (config.include or config.link or config.copy):
        return None
    included = included_files(world.repo, top, config.include, (root,))
    copied = copied_files(world.repo, top, config.copy, (root,))
    said: list[object] = [config.link, config.copy, included, copied]
    if works:
        said += [world.integration.objects.tree_of(commit), [work_json(work) for work in works]]
        said += [sorted(plan.env.items()), sorted(job.env.items()), world.config.pass_env]
        said += [sorted(_lasting(world.seen_by_programs).items())]
        said += [run.sandbox, plan.sandbox, plan.network, job.network, world.config.sandbox]
    return hashlib.sha256(repr(said).encode(errors="surrogateescape")).hexdigest()


def _lasting(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not _OF_A_SESSION.fullmatch(name)}


def wants_submodules(plan: Plan, world: World) -> bool:
    return plan.submodules if plan.submodules is not None else world.config.worktree.submodules


def empty_submodules(plan: Plan, world: World, commit: str, folder: Path) -> list[str]:
    """Submodules of a commit that are empty folders in a worktree, because neither plan nor settings say anything."""
    if plan.submodules is not None or wants_submodules(plan, world) or not commit or not _has_submodules(world, commit):
        return []
    rows = world.repo.git("ls-tree", "-r", "-z", commit).stdout.split(b"\0")
    names = [os.fsdecode(row.partition(b"\t")[2]) for row in rows if row.startswith(b"160000 ")]
    return [name for name in names if not entries(folder / name)]


def _has_submodules(world: World, commit: str) -> bool:
    live = world.integration.live
    return live.census.below(live.objects.tree_of(commit)).submodules
