"""What sets a new worktree up for a job: works of the job, of the plan or of the configuration, and submodules."""

from orchard.engine.world import World
from orchard.model.plan import Job, OnFailure, Plan, ProcessWork, Work

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


def wants_submodules(plan: Plan, world: World) -> bool:
    return plan.submodules if plan.submodules is not None else world.config.worktree.submodules


def _has_submodules(world: World, commit: str) -> bool:
    live = world.integration.live
    return live.census.below(live.objects.tree_of(commit)).submodules
