"""What about a repository makes plans fail, slow or surprising: what `orchard doctor` says about it.

Nothing is changed here. An `error` stops plans, a `warning` may, a `note` explains what orchard does
otherwise than the user may expect.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orchard.errors import Hint, Next
from orchard.files import file_system
from orchard.git.command import Git
from orchard.git.folders import entries
from orchard.git.landing.claim import GitLocks, claim_of
from orchard.git.repository import Repository, is_true
from orchard.git.worktree.status import display

NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "drvfs")
LISTED = 20
STALE_AFTER = 5.0
"""Seconds. Git holds its locks for moments."""

Severity = Literal["error", "warning", "note"]


class Hazard(Struct, frozen=True):
    kind: str
    message: str
    hint: Hint
    severity: Severity


def hazards(repo: Repository) -> list[Hazard]:
    parts: tuple[Callable[[Repository], Iterator[Hazard]], ...] = (
        _history,
        _layout,
        _locks,
        _operations,
        _programs,
        _content,
        _place,
    )
    found = [hazard for part in parts for hazard in part(repo)]
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda hazard: order[hazard.severity])


def _history(repo: Repository) -> Iterator[Hazard]:
    if not repo.has_commits():
        yield Hazard("unborn", "The repository has no commit yet.", "Run: git commit --allow-empty -m first", "error")
    if repo.is_shallow():
        said = "The clone is shallow, so merges may not find where two lines began."
        yield Hazard("shallow", said, "Run: git fetch --unshallow", "warning")
    said_config = repo.config(r"^(extensions\.(partialclone|refstorage)|remote\..*\.promisor)$")
    if any(key != "extensions.refstorage" for key in said_config):
        said = "The clone is partial: objects that were not fetched cannot be merged."
        yield Hazard("partial", said, "Run: git fetch --refetch --no-filter", "warning")
    if said_config.get("extensions.refstorage") == "reftable":
        yield Hazard("reftable", "Refs are stored in a reftable.", "Nothing to do.", "note")


def _layout(repo: Repository) -> Iterator[Hazard]:
    said = repo.config(r"^core\.(bare|worktree|ignorecase|sparsecheckout)$")
    if is_true(said.get("core.bare")) and repo.common_dir.name == ".git":
        message = "The setting core.bare is true, but this repository has a work tree beside it."
        yield Hazard("core.bare", message, f"Run: git --git-dir={repo.common_dir} config core.bare false", "error")
    if "core.worktree" in said and not (repo.common_dir / said["core.worktree"]).is_dir():
        message = f"The setting core.worktree names {said['core.worktree']!r}, which is not there."
        yield Hazard("core.worktree", message, "Run: git config --unset core.worktree", "error")
    if is_true(said.get("core.ignorecase")):
        message = "The file system takes upper and lower case for the same: such paths are refused."
        yield Hazard("ignorecase", message, "Nothing to do.", "note")
    if is_true(said.get("core.sparsecheckout")):
        yield Hazard("sparse", "The checkout is sparse, and worktrees will be so too.", "Nothing to do.", "note")


def _locks(repo: Repository) -> Iterator[Hazard]:
    """Lock files that a killed git left behind. They are the user's to remove."""
    files = [repo.common_dir / name for name in ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock")]
    files += [one.git_dir / "index.lock" for one in repo.checkouts() if one.git_dir != repo.common_dir]
    refs = repo.common_dir / "refs"
    for folder, _, names in os.walk(refs):
        files += [Path(folder) / name for name in names if name.endswith(".lock")]
    for file in files:
        try:
            age = time.time() - file.lstat().st_mtime
        except OSError:
            continue
        if age >= STALE_AFTER and GitLocks(claim_of(repo, file.parent), file.parent).is_ours(file):
            said = f"An interrupted landing or undo of Orchard's holds the lock {display(os.fsencode(file))}."
            yield Hazard(
                "lock", said, ("Leave it there: '", Next("resume_plan"), "' makes the checkout whole."), "warning"
            )
        elif age >= STALE_AFTER:
            message = f"The lock {display(os.fsencode(file))} is {age:.0f} s old, and git waits for it."
            yield Hazard("lock", message, f"If no git is running, run: rm '{display(os.fsencode(file))}'", "error")


def _operations(repo: Repository) -> Iterator[Hazard]:
    for one in repo.checkouts():
        if one.operation and not one.ours:
            path = display(os.fsencode(one.path))
            message = f"A {one.operation} is under way in {path}, so nothing lands there."
            yield Hazard("operation", message, "Finish or abort it.", "warning")
        if one.prunable and not one.ours:
            message = f"Git knows a worktree at {display(os.fsencode(one.path))} that is gone."
            yield Hazard("prunable", message, "Run: git worktree prune", "note")


def hook_names(repo: Repository) -> list[str]:
    """The user's hooks: none of them runs for what we commit, merge and land."""
    said = repo.config(r"^core\.hookspath$").get("core.hookspath")
    folder = (repo.top or repo.common_dir) / Path(said).expanduser() if said else repo.common_dir / "hooks"
    files = [Path(entry.path) for entry in entries(folder) if entry.is_file()]
    return sorted(path.name for path in files if path.suffix != ".sample" and os.access(path, os.X_OK))


def _programs(repo: Repository) -> Iterator[Hazard]:
    """Settings that make git run something, which ours does not."""
    said = repo.config(
        r"^(core\.(fsmonitor|hookspath|sshcommand)|merge\..*\.driver|include(if\..*)?\.path|filter\..*)$"
    )
    hooks = hook_names(repo)
    if hooks or "core.hookspath" in said:
        names = ", ".join(hooks) or said.get("core.hookspath", "")
        message = f"There are hooks ({names}), which are not run for what orchard commits, merges and lands."
        yield Hazard("hooks", message, "Put what they check into 'postchecks' or 'verify'.", "note")
    for key, value in said.items():
        if key.startswith("merge."):
            message = f"The merge driver {key.split('.')[1]!r} is not run: its files are reported as conflicts."
            yield Hazard("merge-driver", message, "Nothing to do.", "note")
        elif key.startswith("include"):
            yield Hazard("include", f"The settings include {value!r}.", "See that only you can write it.", "note")
        elif key == "core.fsmonitor" and value not in ("true", "false"):
            message = f"The setting core.fsmonitor runs {value!r}; orchard does not."
            yield Hazard("fsmonitor", message, "If you did not set it: git config --unset core.fsmonitor", "warning")
    if any(key.startswith("filter.lfs.") for key in said):
        message = "Git LFS is in use: each worktree fetches the files it needs."
        yield Hazard("lfs", message, "Set GIT_LFS_SKIP_SMUDGE=1 if jobs do not need them.", "note")
    if repo.wants_signing():
        message = "Commits are to be signed: what lands is signed, which has to work without asking."
        yield Hazard("signing", message, "Keep the key unlocked in an agent.", "note")


def _content(repo: Repository) -> Iterator[Hazard]:
    if not repo.has_commits() or repo.main_top is None:
        return
    main = Git(repo.common_dir, repo.common_dir, cwd=repo.main_top, work_tree=repo.main_top)
    modes = [row.split(b"\t", 1) for row in main("ls-files", "-s", "-z").fields]
    submodules = [display(name) for facts, name in modes if facts.startswith(b"160000")]
    if submodules:
        names = ", ".join(submodules[:LISTED])
        message = f"There are submodules ({names}), which are empty folders in worktrees unless a plan says otherwise."
        hint = "If jobs need them, set 'submodules: true' in the plan, or 'worktree.submodules' for all plans."
        yield Hazard("submodules", message, hint, "warning")


def _place(repo: Repository) -> Iterator[Hazard]:
    kind = file_system(repo.common_dir)
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        message = f"The repository lies on a network file system ({kind}), where locks and SQLite are not safe."
        yield Hazard("network", message, "Move it to a local disk.", "error")
