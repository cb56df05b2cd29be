"""Where a checkout is now that an intent was written for: it may have been moved since, or this may be a copy of it.

What counts is the claim in which the notes lie, and so the repository that it belongs to. The paths that were written
down only say what lay in what. A linked worktree is where git's own notes say, if the folder there says in turn that
it belongs to them: in a copy of a repository these notes still name the worktree of the original.

    found_again   an intent, with every place as it is now
    Astray        a place cannot be found: nothing may be touched, and our notes must stay
"""

import os
import re
import shlex
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from orchard.errors import OrchardError
from orchard.git.folders import plain_content
from orchard.git.landing.claim import claims
from orchard.git.landing.intent import Intent, read_intent
from orchard.git.ownership import points_elsewhere
from orchard.git.repository import Repository

STAGE_NAME = ".orchard-landing-"
"""How the name of every stage begins."""

_OUR_STAGE = re.compile(rf"{re.escape(STAGE_NAME)}[0-9a-f]{{12}}")
_LINKED = "worktree-"


class Astray(OrchardError):
    """Where a landing or an undo was interrupted cannot be found; `intent` is what was written down about it."""

    def __init__(self, intent: Intent, claim: Path, missing: str, remedy: str) -> None:
        given_up = f"If that checkout is as it should be, or gone for good: rm -r {shlex.quote(str(claim))}"
        super().__init__(
            f"A landing or an undo in {intent.top} was interrupted and cannot be settled: {missing}.",
            hint=f"{remedy} {given_up}",
        )
        self.intent = intent


def git_dir_of(repo: Repository, claim: Path) -> Path:
    if claim.name == "main":
        return repo.common_dir
    return repo.common_dir / "worktrees" / claim.name.removeprefix(_LINKED)


def found_again(repo: Repository, claim: Path, intent: Intent) -> Intent:
    git_dir = git_dir_of(repo, claim)
    top = _main_top(repo, intent.top, intent.git_dir) if git_dir == repo.common_dir else _linked_top(git_dir)
    if top is None:
        missing = f"no folder is known that says it is the checkout of {git_dir}"
        remedy = "Where it was moved, run 'git worktree repair' in it; where it is not mounted, mount it."
        raise Astray(intent, claim, missing, remedy)
    stage = stage_now(claim, top, intent.stage, inside=intent.stage.parent == intent.top)
    if stage is None:
        raise Astray(intent, claim, f"{intent.stage} is no folder of ours", "Look with 'git status' there.")
    return replace(intent, top=top, git_dir=git_dir, stage=stage)


def top_now(repo: Repository, claim: Path) -> Path | None:
    """The top of the checkout of a claim, if there is one that says so."""
    git_dir = git_dir_of(repo, claim)
    return _main_top(repo) if git_dir == repo.common_dir else _linked_top(git_dir)


def stage_now(claim: Path, top: Path, noted: Path, *, inside: bool) -> Path | None:
    """The stage of that name, in the checkout or among our notes; None if it is none of ours.

    A note that a full disk cut short names another folder, and whoever can write here could name any.
    """
    if not _OUR_STAGE.fullmatch(noted.name):
        return None
    return (top if inside else claim) / noted.name


def must_have_stage(claim: Path, intent: Intent) -> None:
    """Astray if the folder is missing that holds what made way: without it nobody can say how far that came."""
    for folder in (intent.stage, intent.stage / "new", intent.stage / "old"):
        if not folder.is_dir():
            missing = f"the folder {folder} with the files that made way is missing"
            raise Astray(intent, claim, missing, "Bring it back, or look with 'git status' what differs there.")


def none_astray(repo: Repository, branch: str) -> None:
    """Astray if a checkout went from one commit of this branch to another and is lost half-way.

    If the branch moved on without it, nobody could tell any more by the branch how far it came.
    """
    with suppress(FileNotFoundError):
        for claim in sorted(claims(repo).iterdir()):
            intent = read_intent(claim)
            if intent is not None and not intent.done and intent.branch == branch:
                found_again(repo, claim, intent)


def _main_top(repo: Repository, noted: Path | None = None, noted_git_dir: Path | None = None) -> Path | None:
    """The top of the main checkout; what was noted counts only where git's folder is still the one that was noted."""
    top = repo.main_top
    if top is None and noted_git_dir == repo.common_dir:
        top = noted
    return top if top is not None and top.is_dir() and not points_elsewhere(top, repo.common_dir) else None


def _linked_top(git_dir: Path) -> Path | None:
    """Where git says that a linked worktree is, if the folder there names these very notes of git's."""
    try:
        told = plain_content(git_dir / "gitdir")
        if told is None or b"\0" in told:
            return None
        link = Path(os.path.normpath(git_dir / os.fsdecode(told.rstrip(b"\n"))))
        back = plain_content(link)
        if link.name != ".git" or back is None or not back.startswith(b"gitdir:") or b"\0" in back:
            return None
        owner = link.parent / os.fsdecode(back.removeprefix(b"gitdir:").strip())
        return link.parent if owner.resolve() == git_dir.resolve() else None
    except OSError:
        return None
