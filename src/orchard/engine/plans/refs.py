"""Which commits and branches a plan means, asked of git at the moment it matters."""

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping

from orchard.errors import NotFound, UsageError
from orchard.git.checkout_state import operation_in
from orchard.git.repository import Repository
from orchard.model.events.plans import PlanStarted
from orchard.model.plan import Plan, PlanId

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


def slug(name: str, length: int = 40) -> str:
    plain = "".join(mark for mark in unicodedata.normalize("NFKD", name.lower()) if not unicodedata.combining(mark))
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return words[:length].strip("-") or "plan"


def new_plan_id(name: str, is_taken: Callable[[PlanId], bool]) -> PlanId:
    """A short id that people can type: the name, and enough chance to be unique."""
    from secrets import choice  # brings hashing, which naming needs only here

    while True:
        plan_id = PlanId(f"{slug(name, 24)}-{''.join(choice(_ALPHABET) for _ in range(5))}")
        if not is_taken(plan_id):
            return plan_id


def check_start(repo: Repository, plan: Plan) -> None:
    if plan.after is None:
        check_base(repo, plan)  # what a chained plan starts from may be what the plan before it lands
    check_target(repo, plan)


def check_base(repo: Repository, plan: Plan) -> None:
    _base_of(repo, plan, repo.branches())


def base_commit(repo: Repository, plan: Plan) -> str | None:
    """Where a plan would begin if it began now; None where that cannot be told yet."""
    try:
        return _base_of(repo, plan, repo.branches())[1]
    except UsageError:
        return None


def check_target(repo: Repository, plan: Plan) -> None:
    proposes = plan.land == "pr" and plan.after is None  # the plan before it may make the branch
    branches = repo.branches()
    if plan.target is None:
        if proposes and _base_of(repo, plan, branches)[0] is None:
            raise UsageError("'land: pr' needs a branch to open a pull request for.", hint="Name it: 'target: BRANCH'.")
        return
    repo.check_branch_name(plan.target)
    if proposes and plan.target not in branches:
        raise UsageError(
            f"Branch '{plan.target}' does not exist here, so no pull request can be opened for it.",
            hint=f"If a remote has it: git branch {plan.target} REMOTE/{plan.target}",
        )
    if plan.target not in branches:
        _check_clash(repo, plan.target, branches)


def target_of(repo: Repository, plan: Plan, others: list[str]) -> PlanStarted:
    """Base and target of a plan that starts now, pinned; `others`: branches that are other plans' to make."""
    branches = repo.branches()
    branch, commit = _base_of(repo, plan, branches)
    target = plan.target
    if target is not None:
        repo.check_branch_name(target)
    elif branch is not None and (plan.land == "pr" or branch != repo.default_branch()):
        target = branch
    else:
        own = repo.free_branch_name(f"orchard/{slug(plan.name)}", [*branches, *others])
        return PlanStarted(branch, commit, own, None)
    tip = branches.get(target)
    if tip is None:
        _check_clash(repo, target, branches)
    return PlanStarted(branch, commit, target, tip)


def _base_of(repo: Repository, plan: Plan, branches: Mapping[str, str]) -> tuple[str | None, str]:
    if plan.base is not None:
        if plan.base in branches:
            return plan.base, branches[plan.base]
        try:
            return repo.resolve(plan.base)
        except NotFound as error:
            raise UsageError(f"base: {error.message}", hint=error.hint) from error
    current = repo.current_branch()
    if current is None:
        operation = operation_in(repo.git_dir)
        if operation is not None:
            raise UsageError(
                f"A {operation} is under way here, so there is no current branch to start from.",
                hint=f"Finish the {operation}, or name the branch to start from: 'base: BRANCH'.",
            )
        return repo.resolve("HEAD") if branches else _unborn()
    tip = branches.get(current)
    return (current, tip) if tip is not None else _unborn()


def _unborn() -> tuple[str | None, str]:
    raise UsageError(
        "This repository has no commit yet, so there is nothing to start from.",
        hint="Make one: git commit --allow-empty -m 'first commit'",
    )


def _check_clash(repo: Repository, branch: str, branches: Collection[str]) -> None:
    """A branch `a` and a branch `a/b` cannot both exist; this one does not exist yet."""
    if repo.free_branch_name(branch, branches) != branch:
        raise UsageError(
            f"A branch '{branch}' cannot be made: its name clashes with that of another branch.",
            hint="Choose another 'target', or rename the other branch.",
        )
