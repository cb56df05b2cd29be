"""What git notes in the folder of a checkout, and which git folder a folder belongs to.

A stranger may have written either of them.
"""

import os
import re
import shlex
from pathlib import Path

from orchard.errors import RUN_DOCTOR, OrchardError, UsageError
from orchard.files import read_plain
from orchard.git.command import Output, run_git

_OPERATIONS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
    "sequencer": "sequence",
}
# Where an operation that detached HEAD notes the branch that it will come back to.
_BRANCH_NOTES = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
_ON_A_BRANCH = re.compile(rb"ref: refs/heads/((?!\.)[^\n]+)\n")
"""What nearly every HEAD says. Reftables name a branch there that cannot be; that and all else is git's to read."""
_BARE = ("HEAD", "objects", "refs")
"""What a git folder holds at least."""
PATH_BYTES = 8192


def branch_in(git_dir: Path, common_dir: Path) -> str | None:
    """The branch that a checkout is on; None where only git can tell."""
    said = _ON_A_BRANCH.fullmatch(_beginning(git_dir / "HEAD"))
    if said is None or may_be_alias(common_dir, os.fsdecode(said[1])):
        return None
    return os.fsdecode(said[1])


def may_be_alias(common_dir: Path, branch: str) -> bool:
    """Whether a branch may be another name for a branch: git keeps such a name in a file, or in a reftable."""
    file = common_dir / "refs" / "heads" / branch
    return _beginning(file).startswith(b"ref:") or file.is_symlink() or (common_dir / "reftable").is_dir()


def operation_in(git_dir: Path) -> str | None:
    found = next((note for note in _OPERATIONS if os.path.lexists(f"{git_dir}/{note}")), None)
    if found == "rebase-apply" and os.path.lexists(git_dir / found / "applying"):
        return "am"
    return None if found is None else _OPERATIONS[found]


def way_out_of(operation: str) -> str:
    """The git command that gives up what is under way."""
    return {"bisect": "git bisect reset", "sequence": "git cherry-pick --quit"}.get(
        operation, f"git {operation} --abort"
    )


def branch_to_come_back_to(git_dir: Path) -> str | None:
    for note in _BRANCH_NOTES:
        said = os.fsdecode(_beginning(git_dir / note)).strip()
        # BISECT_START holds a bare branch name, or the commit that was checked out.
        bisected = note == "BISECT_START" and said and not re.fullmatch(r"[0-9a-f]{40,64}", said)
        if said.startswith("refs/heads/") or bisected:
            return said.removeprefix("refs/heads/")
    return None


def _beginning(file: Path) -> bytes:
    """The first bytes of a small file; none where there is no such file. A fifo in its place does not keep us."""
    try:
        return read_plain(file, 4096)
    except OSError:
        return b""


def naming(start: Path, env: dict[str, str]) -> dict[str, str]:
    """The environment in which git finds the repository of a folder, be it one without a checkout that is named."""
    if start == Path() or (start / ".git").exists() or not all((start / name).exists() for name in _BARE):
        return env
    place = start.resolve()
    outer = path_in(run_git(("rev-parse", "--show-toplevel"), cwd=place.parent, env=env))
    if outer is not None and place.is_relative_to(outer):
        inside = f":(literal){place.relative_to(outer)}"
        if run_git(("ls-files", "-z", "--", inside), cwd=outer, env=env).stdout:
            raise UsageError(
                f"{start} looks like a repository, but its files are tracked by the one in {outer}.",
                hint="Settings in such a folder would run programs that its author chose; clone it to use it.",
            )
    return {**env, "GIT_DIR": str(place)}


def points_elsewhere(top: Path, git_dir: Path) -> bool:
    """Whether a checkout says itself that it belongs to another git folder than this, which may say what it likes."""
    link = top / ".git"
    try:
        if link.is_dir():
            return link.resolve() != git_dir
        told = read_plain(os.path.realpath(link), PATH_BYTES).removeprefix(b"gitdir:").strip()
    except OSError:
        return False  # no other's
    return (top / os.fsdecode(told)).resolve() != git_dir


def path_in(done: Output) -> Path | None:
    said = os.fsdecode(done.stdout.removesuffix(b"\n"))
    return Path(said).resolve() if done.status == 0 and said else None


def not_found(start: Path, done: Output) -> OrchardError:
    start = start.absolute()
    said = done.stderr.decode(errors="replace").strip()
    if "dubious ownership" in said:
        # Git names the folder that it looks for in its settings; a subfolder of it would not do.
        named = re.search(r"dubious ownership in repository at '(.+)'", said)
        top = named[1] if named else str(start)
        return UsageError(
            f"The repository at {top} belongs to another user, so git does not trust it.",
            hint=f"If you do, run: git config --global --add safe.directory {shlex.quote(top)}",
        )
    if "safe.bareRepository" in said:
        return UsageError(
            f"{start} is in a git folder or in a repository without a checkout, which counts only where you name it.",
            hint="Name its top: orchard -C DIR list",
        )
    if "not a git repository" in said:
        return UsageError(f"{start} is not in a git repository.", hint="Run 'git init' there, or go to one.")
    return UsageError(f"Git cannot use the repository at {start}: {said}", hint=RUN_DOCTOR)
