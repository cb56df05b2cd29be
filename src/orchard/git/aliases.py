"""Branches that are other names for branches (symbolic refs): the one that is meant is what lands."""

from pathlib import Path

from orchard.git.checkout_state import branch_in, may_be_alias
from orchard.git.command import Git
from orchard.git.repository import Repository


def meant_branch(repo: Repository, branch: str) -> str:
    if not may_be_alias(repo.common_dir, branch):
        return branch
    named = repo.git("symbolic-ref", "-q", f"refs/heads/{branch}", ok=(0, 1, 128)).text
    return named.removeprefix("refs/heads/") if named.startswith("refs/heads/") else branch


def checked_out_in(repo: Repository, git_dir: Path) -> str | None:
    """The branch whose commit a checkout is at; where HEAD names another name for a branch, that branch."""
    branch = branch_in(git_dir, repo.common_dir)
    if branch is not None:
        return branch
    git = Git(repo.common_dir, git_dir, cwd=repo.common_dir)
    name = git("rev-parse", "-q", "--symbolic-full-name", "HEAD", ok=(0, 1, 128)).text
    return name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None
