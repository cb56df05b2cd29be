"""What git notes in the folder of a checkout, read without starting it."""

import os
import re
from pathlib import Path

from orchard.files import read_plain

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
    found = next((note for note in _OPERATIONS if os.path.lexists(git_dir / note)), None)
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
