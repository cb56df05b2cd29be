"""What the git of a job behind a wall can read, and what it can leave for the user's own git to stumble over."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchard.engine.machine.sandbox import Sandboxes
from orchard.engine.world import World
from orchard.git.repository import find_repository
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.test_sandbox import home, level, plan

pytestmark = pytest.mark.anyio
__all__ = ["home", "level"]

NOWHERE = "1" * 40
VANDALISM = {
    "head-nowhere": f"echo {NOWHERE} > $d/HEAD",
    "head-garbage": "echo garbage > $d/HEAD",
    "head-pipe": "rm $d/HEAD; mkfifo $d/HEAD",
    "head-gone": "rm $d/HEAD",
    "head-folder": "rm $d/HEAD; mkdir $d/HEAD",
    "index-pipe": "rm $d/index; mkfifo $d/index",
    "index-garbage": "head -c 9000 /dev/urandom > $d/index",
    "index-folder": "rm $d/index; mkdir -p $d/index/x",
    "index-nowhere": f"git update-index --add --cacheinfo 100644,{NOWHERE},x.txt",
    "ref-nowhere": f"mkdir -p $d/refs/worktree; echo {NOWHERE} > $d/refs/worktree/x",
    "ref-garbage": "mkdir -p $d/refs/bisect; echo garbage > $d/refs/bisect/bad",
    "ref-pipe": "mkdir -p $d/refs/worktree; mkfifo $d/refs/worktree/x",
    "refs-deep": "mkdir $d/refs/worktree; cd $d/refs/worktree; for i in $(seq 400); do mkdir aaaaaaaaaaa; cd a*; done",
    "log-nowhere": f"mkdir -p $d/logs; printf '{NOWHERE} {NOWHERE} x <x@y> 1 +0000\\tx\\n' >> $d/logs/HEAD",
    "log-garbage": "mkdir -p $d/logs; head -c 9000 /dev/urandom > $d/logs/HEAD",
    "log-pipe": "mkdir -p $d/logs/refs/worktree; rm -f $d/logs/HEAD; mkfifo $d/logs/HEAD $d/logs/refs/worktree/x",
    "log-long": 'mkdir -p $d/logs; h=$(git rev-parse HEAD); l=$(printf "%-127s" "$h $h x <x@y> 1 +0000"); '
    f"(yes \"$l\" | head -c 8388608; echo '{NOWHERE} {NOWHERE} x <x@y> 1 +0000') > $d/logs/HEAD",
    "aside-taken": f"echo x > $d/orchard-aside; echo {NOWHERE} > $d/HEAD; rm $d/index; mkdir $d/index/",
    "aside-closed": "mkdir $d/orchard-aside; chmod 0 $d/orchard-aside; rm $d/index; mkdir $d/index",
    "locks": "touch $d/HEAD.lock $d/index.lock",
    "locked-pipe": "rm -f $d/locked; mkfifo $d/locked",
    "pseudo": f"for n in ORIG_HEAD MERGE_HEAD CHERRY_PICK_HEAD REBASE_HEAD AUTO_MERGE; do echo {NOWHERE} > $d/$n; done",
    "states": "mkdir -p $d/rebase-merge $d/sequencer; mkfifo $d/rebase-merge/head-name $d/BISECT_LOG $d/sequencer/todo",
    "links": "rm -rf $d/refs $d/logs; ln -s /proc $d/refs; ln -s $d $d/logs",
    "gitdir": "rm -f $d/gitdir; mkfifo $d/gitdir",
    "commondir": "echo /nowhere > $d/commondir",
    "settings": "printf '[core]\\n\\tfsmonitor = false\\n' > $d/config.worktree; mkfifo $d/sparse",
}
"""What jobs do to git's notes on their worktree, which is `$d`."""
LOOKS = (
    "worktree list --porcelain", "fsck --no-dangling --no-progress", "gc --quiet --prune=now", "status --porcelain",
    "log --all --oneline", "branch --all", "reflog expire --all --expire=now", "pack-refs --all", "worktree prune",
)  # fmt: skip


def looks(repo: Repo, words: str) -> str:
    """What is wrong with a command that the user types."""
    try:
        done = subprocess.run(
            ["git", *words.split()], cwd=repo.path, capture_output=True, text=True, timeout=20, check=False
        )
    except subprocess.TimeoutExpired:
        return f"git {words}: hangs"
    return f"git {words}: {done.returncode} {done.stderr}" if done.returncode or done.stderr else ""


async def test_nothing_that_jobs_leave_among_gits_notes_hurts_the_users_own_git(orchard: Orchard, level: str) -> None:
    begins = "d=$(git rev-parse --absolute-git-dir); git status -s"
    rows = [{"id": name, "heal": False, "work": f"{begins}; {done}; exit 1"} for name, done in VANDALISM.items()]

    status = await orchard.run(json.dumps({"name": "Vandals", "max_parallel": 4, "jobs": rows}))

    assert set(statuses(status).values()) == {"failed"}
    assert not [said for words in LOOKS if (said := looks(orchard.repo, words))]
    listed = orchard.repo("worktree", "list", "--porcelain")
    assert listed.count("\nlocked ") == len(VANDALISM) and "prunable" not in listed
    for one in status["jobs"]:
        if one["worktree"]:
            assert not (orchard.repo.path / ".git/worktrees" / Path(one["worktree"]).name / "config.worktree").exists()
            assert not looks(Repo(Path(one["worktree"])), "status --porcelain"), one["id"]


async def test_what_git_itself_leaves_among_its_notes_stays(orchard: Orchard, level: str) -> None:
    begins = "git tag -l; echo one > one.txt; git add one.txt; git commit -qm one; echo two > two.txt; git add two.txt"
    kept = "git bisect start -q; git update-ref refs/worktree/mine HEAD; git checkout -q --detach HEAD~1"

    status = await orchard.run(plan(f"{begins}; {kept}; exit 1"))

    there = Repo(Path(job(status, "a")["worktree"]))
    assert there("diff", "--cached", "--name-only").split() == ["two.txt"]
    assert there("log", "--format=%s", "refs/worktree/mine").split()[0] == "one"
    assert len(there("reflog").splitlines()) >= 2 and not status["plan"]["warnings"]


def test_a_pipe_in_place_of_a_note_does_not_hold_the_next_wall_up(orchard: Orchard) -> None:
    orchard.repo("worktree", "add", "-q", "--detach", str(orchard.repo.path.parent / "own"))
    note = orchard.repo.path / ".git/worktrees/own/gitdir"
    sandboxes = Sandboxes(cast("World", SimpleNamespace(repo=find_repository(orchard.repo.path))))
    assert sandboxes._checkouts() == [orchard.repo.path.parent / "own"]

    note.unlink()
    os.mkfifo(note)

    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(sandboxes._checkouts)
        try:
            assert looking.result(timeout=10) == []
        finally:
            os.close(os.open(note, os.O_RDWR))  # whoever waits for it goes on


@pytest.mark.parametrize("branch", ["theirs", "none"])
async def test_a_failed_job_that_went_to_a_branch_does_not_keep_the_user_from_it(
    orchard: Orchard, level: str, branch: str
) -> None:
    orchard.repo("branch", "theirs")

    status = await orchard.run(plan(f"git symbolic-ref HEAD refs/heads/{branch}; echo half > half.txt; exit 1"))

    there = Repo(Path(job(status, "a")["worktree"]))
    assert there("rev-parse", "HEAD") == orchard.repo("rev-parse", "theirs") and (there.path / "half.txt").exists()
    orchard.repo("checkout", "-q", "theirs")
    orchard.repo("checkout", "-q", "-")
    orchard.repo("branch", "-D", "theirs")


@pytest.mark.parametrize("how", ["absolute", "relative", "of another"])
async def test_a_repository_that_borrows_objects_from_another_is_worked_on(
    orchard: Orchard, home: Path, level: str, how: str
) -> None:
    """`git clone --shared`, and the like: the objects are elsewhere, in a folder that is hidden."""
    between = home / "between"
    orchard.repo("clone", "-q", "--shared", str(orchard.repo.path), str(between))
    borrower = Repo(home / "deep" / "borrower")
    first = between if how == "of another" else orchard.repo.path
    orchard.repo("clone", "-q", "--shared", str(first), str(borrower.path))
    if how == "relative":
        notes = borrower.path / ".git/objects/info/alternates"
        notes.write_text(os.path.relpath(notes.read_text().strip(), notes.parent.parent) + "\n")
    borrower("checkout", "-q", "-B", "work")
    borrower("config", "user.name", "Someone")
    borrower("config", "user.email", "someone@example.com")
    own = "git log --oneline | wc -l > count.txt; git show HEAD:README.md > read.txt; git add -A; git commit -qm own"

    status = await Orchard(borrower).run(plan(own))

    assert status["plan"]["status"] == "succeeded", job(status, "a")["error"]
    assert borrower.files(status["plan"]["target"]["branch"])["read.txt"] == "# small\n"
    borrower("fsck", "--strict")


async def test_what_is_no_folder_of_objects_is_not_opened_by_a_repositorys_notes(
    orchard: Orchard, home: Path, level: str
) -> None:
    (home / "private").mkdir()
    (home / "private/key").write_text("the secret\n")
    (orchard.repo.path / ".git/objects/info/alternates").write_text(f"{home}/private\n{home}/.ssh\n")

    status = await orchard.run(plan(f"cat {home}/private/key {home}/.ssh/id_ed25519 > read.txt 2>/dev/null; true"))

    assert status["plan"]["status"] == "succeeded", job(status, "a")["error"]
    assert orchard.repo.files("work")["read.txt"] == ""
