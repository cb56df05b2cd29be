"""Into the folder of a job, and old plans out of the way."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.git.dependencies.kept import Kept, note_kept
from orchard.git.repository import find_repository
from orchard.git.worktree.worktrees import Worktrees
from tests.acceptance.program import Desk, Done, desks

FAILS = """
name: Fails
target: goal
jobs:
  - {id: good, work: "echo 1 > good.txt"}
  - {id: bad, heal: false, work: "echo 2 > bad.txt", postchecks: "grep right bad.txt"}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def in_a_process(desk: Desk, *words: str) -> Done:
    """A command that becomes another program takes its process with it."""
    return desk.start(*words).end()


def test_the_worktree_of_a_failed_job_is_found_and_what_is_edited_there_counts_on_retry(desk: Desk) -> None:
    assert desk("run", desk.plan(FAILS)).code == 1

    folder = Path(desk("path", "bad").out.strip())
    assert (folder / "bad.txt").read_text() == "2\n"
    assert desk("path", "bad", "--json").json["path"] == str(folder)
    done = in_a_process(desk, "shell", "bad", "--", "sh", "-c", "pwd; echo $ORCHARD_JOB; echo right > bad.txt")
    assert done.code == 0 and done.out == f"{folder}\nbad\n", done.talk
    assert in_a_process(desk, "shell", "bad", "--", "sh", "-c", "exit 7").code == 7
    assert in_a_process(desk, "shell", "bad", "--", "no-such-program").code == 2

    assert desk("retry", "bad").code == 0
    assert desk.repo.files("goal")["bad.txt"] == "right\n"
    gone = desk("path", "good")
    assert gone.code == 3 and "has no worktree now" in gone.err


def test_a_person_sees_a_worktree_by_the_name_of_its_job(desk: Desk) -> None:
    assert desk("run", desk.plan(FAILS)).code == 1
    plan = desk.status()["plan"]["id"]
    folder = Path(desk("path", "bad").out.strip())
    link = folder.parent / "by-job" / plan / "bad"
    sees = desk.folder / "sees"
    sees.write_text("#!/bin/sh\npwd\n")
    sees.chmod(0o755)

    assert link.resolve() == folder
    assert f"worktree    {link}\n" in desk("job", "bad").out and str(folder) not in desk("job", "bad").out
    assert desk("job", "bad", "--json").json["worktree"] == str(folder), "a program gets the folder itself"
    assert desk.start("shell", "bad", SHELL=str(sees)).end().out == f"{link}\n"
    link.unlink()
    assert f"worktree    {folder}\n" in desk("job", "bad").out


def test_only_plans_that_ended_long_ago_are_pruned_and_only_with_a_yes(desk: Desk) -> None:
    assert desk("run", desk.plan(FAILS)).code == 1
    plan = desk.status()["plan"]["id"]

    assert desk("prune", "--older-than", "1d", "--yes", "--json").json == {
        "plans": [],
        "purged": False,
        "left": [],
        "worktrees": [],
    }
    shown = desk("prune", "--older-than", "0.001s", "--dry-run")
    assert shown.code == 0 and plan in shown.out and desk("status", plan).code == 0
    assert desk("prune", "--older-than", "0.001s").code == 4
    assert desk("prune", "--older-than", "soon").code == 2

    assert desk("prune", "--older-than", "0.001s", "--yes").out == f"Purged plan {plan}.\n"
    assert desk("list", "--deleted", "--json").json == []


def test_a_plan_that_cannot_be_pruned_is_told_and_the_others_are_pruned(desk: Desk) -> None:
    nested = (
        "git init -q nested && cd nested && git -c user.name=n -c user.email=e@e commit -q --allow-empty -m n; false"
    )
    made = [
        desk(
            "run", desk.plan(f"name: Plan {name}\ntarget: goal\njobs: [{{id: a, heal: false, work: '{work}'}}]\n"), "-q"
        )
        for name, work in (("one", "false"), ("two", nested), ("three", "false"))
    ]
    first, nested_plan, last = (one.out.strip() for one in made)

    done = desk("prune", "--older-than", "0.001s", "--yes")
    again = desk("prune", "--older-than", "0.001s", "--yes", "--json")

    assert done.code == 1 and done.out == f"Purged plan {first}.\nPurged plan {last}.\n", done.talk
    assert f"Plan {nested_plan} is left: " in done.err and "could not be saved" in done.err
    assert again.code == 1 and again.json["plans"] == [] and again.json["left"][0]["plan"] == nested_plan


def kept_worktree(desk: Desk) -> Path:
    """A worktree as an engine leaves it for the next one."""
    repo = find_repository(desk.repo.path)
    worktree = Worktrees(repo, repo.worktree_root(".worktrees")).add(desk.repo.head(), "kept for the next run")
    path, head = str(worktree.path), desk.repo.head()
    note_kept(
        repo,
        Kept(name=worktree.name, path=path, commit=head, index=(), rules="", size=3 << 20, at=time.time() - 60),
        None,
    )
    return worktree.path


def test_worktrees_that_wait_for_the_next_run_are_told_of_and_removed(desk: Desk) -> None:
    assert desk("prune").code == 2
    assert "No worktree waits" in desk("prune", "--worktrees").err
    path = kept_worktree(desk)
    (path / "mine.txt").write_text("mine")

    assert "One warm worktree waits for the next run" in desk("doctor").out
    assert desk("prune", "--worktrees", "--dry-run", "--json").json["worktrees"] == [str(path)]
    assert desk("prune", "--older-than", "1d", "--yes", "--json").json["worktrees"] == []
    assert path.is_dir()

    pruned = desk("prune", "--older-than", "30s").err
    assert "Removed 1 warm worktree (3 MiB)." in pruned
    assert not path.parent.exists()
    command = pruned.partition("What lay in one of them is saved: orchard ")[2].splitlines()[0].split()
    assert desk(*command[:-1], str(desk.folder / "back")).code == 0, pruned
    assert (desk.folder / "back" / "mine.txt").read_text() == "mine"
    assert desk("recover", "--json").json[0]["files"] == 1, "what a person had put there"
    assert "waits for the next run" not in desk("doctor").out


def test_what_worktrees_of_ended_plans_take_is_told_with_the_command_that_frees_it(desk: Desk) -> None:
    assert desk("run", desk.plan(FAILS)).code == 1
    folder = Path(desk("path", "bad").out.strip()).resolve()
    (folder / "large.bin").write_bytes(bytes(3 << 20))
    plan = desk.status()["plan"]["id"]

    told = " ".join(desk("doctor").out.split())
    assert "One worktree of a plan that has ended takes 3 MiB of the disk." in told
    assert f"'orchard delete {plan}'" in told
    time.sleep(1.1)
    rehearsed = desk("prune", "--older-than", "1s", "--dry-run")
    assert "3.0 MiB" in rehearsed.out and "1 plan would be purged. That frees 3.0 MiB of worktrees." in rehearsed.err

    assert desk("delete", plan, "--yes").code == 0
    assert not folder.exists() and "of the disk" not in desk("doctor").out
