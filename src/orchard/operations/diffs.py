"""What the diff of a job, or of a subtask, is between: two commits, or a commit and what lies in a worktree now."""

from pathlib import Path

from orchard.core.records import DEAD, JobRecord
from orchard.core.run import Run
from orchard.core.states import ACTIVE
from orchard.errors import Next, NotFound
from orchard.git.repository import Worktree
from orchard.model.plan import JobId

Now = str | Worktree
"""A commit, or the worktree that has to be looked into."""


def is_at_rest(record: JobRecord) -> bool:
    """Whether an agent waits to be told more, in a worktree that holds what it has done so far."""
    return record.hold is not None and record.hold.kind == "worker" and record.worktree is not None


def diff_of(run: Run, job: JobId, subtask: str | None = None) -> tuple[str, Now]:
    """What a worker began with, and what it has made of that; NotFound where it has made nothing."""
    record = run.records[job]
    if subtask is not None:
        return _of_subtask(record, subtask)
    taken = record.worktree
    made = record.work_commit is not None and record.work_commit.attempt == record.number
    if taken is not None and (is_at_rest(record) or (record.state in ACTIVE and not made)):
        return taken.base, Worktree(taken.worktree, Path(taken.path))
    if record.state in DEAD and not made and (left := _left_by(record)) is not None:
        return left
    commit = record.work_commit.commit if record.work_commit else record.commit
    if commit is None or record.base is None:
        yet = "" if record.state in DEAD else " yet"
        hint = Next("get_job", run.id, job)
        raise NotFound(f"Job '{job}' has no result{yet}; it is {record.status}.", hint=hint)
    return record.base, commit


def _of_subtask(record: JobRecord, subtask: str) -> tuple[str, Now]:
    one = record.subtasks[subtask]
    if one.at_rest and one.worktree is not None and one.path is not None:
        return one.base, Worktree(one.worktree, Path(one.path))
    if not one.over:
        raise NotFound(f"Subtask '{subtask}' has no result yet; it is {one.status}.")
    return one.base, one.commit or one.base


def _left_by(record: JobRecord) -> tuple[str, Now] | None:
    """What a job left that failed or was canceled before its work was committed: in its worktree, else as saved."""
    if (taken := record.worktree) is not None and Path(taken.path).is_dir():
        return taken.base, Worktree(taken.worktree, Path(taken.path))
    return (record.base, record.saved[-1].commit) if record.saved and record.base is not None else None
