"""What sets a new worktree up for a job: works of the job, of the plan or of the configuration, and submodules."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from orchard.core.run import Run
from orchard.engine.programs import PORT
from orchard.engine.world import World
from orchard.git.dependencies.copies import copied_files
from orchard.git.folders import entries
from orchard.git.worktree.setup import included_files
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


def setup_works(plan: Plan, job: Job, world: World, commit: str) -> tuple[Work, ...]:
    """What is run in a new worktree at a commit: what the job says, else the plan, else the configuration."""
    first = (UPDATE_SUBMODULES,) if wants_submodules(plan, world) and _has_submodules(world, commit) else ()
    if job.setup is not None:
        return (*first, *job.setup)
    return (*first, *(plan.setup if plan.setup is not None else world.setup))


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
