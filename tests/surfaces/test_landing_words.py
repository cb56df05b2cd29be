"""What is said around a landing, its push and its undo is true when it is said, and can be followed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.acceptance.program import Desk, desks

PLAN = "name: One\ntarget: work\n{more}\njobs: [{{id: a, work: 'echo a > a.txt'}}]\n"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    for one in desks(tmp_path):
        one.repo("checkout", "-q", "-b", "work")
        yield one


def landed(desk: Desk, more: str = "") -> str:
    """The id of a plan that has landed in the checkout."""
    done = desk("run", desk.plan(PLAN.format(more=more)))
    assert done.code == 0, done.talk
    return str(desk.status()["plan"]["id"])


@pytest.fixture
def remote(desk: Desk) -> Repo:
    desk.repo("init", "-q", "--bare", str(desk.folder / "remote.git"))
    desk.repo("remote", "add", "origin", str(desk.folder / "remote.git"))
    desk.repo("push", "-q", "origin", "work")
    return Repo(desk.folder / "remote.git")


def test_a_landing_again_is_pushed_again(desk: Desk, remote: Repo) -> None:
    plan = landed(desk, "push: true")
    desk("undo", plan, "--yes")
    desk.repo("push", "-q", "--force", "origin", "work")

    again = desk("land", plan, "--yes")

    assert again.code == 0 and "pushed" in again.out, again.talk
    assert remote.head("work") == desk.repo.head("work")


def test_an_undo_of_what_was_pushed_says_that_the_remote_still_has_it(desk: Desk, remote: Repo) -> None:
    plan = landed(desk, "push: true")

    undone = desk("undo", plan, "--yes")

    assert remote.head("work") != desk.repo.head("work")
    assert "remote of work still has it" in undone.out, undone.talk


def test_a_push_that_failed_is_told_of_the_landing_that_stands_and_no_longer(desk: Desk) -> None:
    desk.repo("remote", "add", "origin", str(desk.folder / "later.git"))
    plan = landed(desk, "push: true")
    failed = desk("status", plan)

    desk("undo", plan, "--yes")
    undone = desk("status", plan)
    desk.repo("init", "-q", "--bare", str(desk.folder / "later.git"))
    again = desk("land", plan, "--yes")

    assert "The push of 'work' failed; the landing stands" in failed.out
    assert "push" not in undone.out, undone.out
    assert "the landing stands" not in again.talk + desk("status", plan).talk, again.talk


def test_the_question_of_an_undo_says_that_the_branch_will_be_removed(desk: Desk) -> None:
    plan = desk("run", desk.plan(PLAN.format(more="").replace("target: work", "target: goal")), "-q").out.strip()

    asked = desk("undo", plan)

    assert asked.code == 4 and "Remove branch 'goal'" in asked.err, asked.talk
    assert desk.repo.exists("refs/heads/goal")


@pytest.mark.parametrize("staged", [False, True])
def test_who_follows_the_hint_of_an_undo_that_was_refused_can_undo(desk: Desk, staged: bool) -> None:
    plan = landed(desk)
    desk.repo.write({"a.txt": "edited\n", "mine.txt": "mine\n"})
    if staged:
        desk.repo("add", ".")

    refused = desk("undo", plan, "--yes")
    assert refused.code == 4 and "git stash -u" in refused.err, refused.talk
    desk.repo("stash", "-u")
    undone = desk("undo", plan, "--yes")

    assert undone.code == 0, undone.talk


def test_of_an_ignored_file_in_the_way_nobody_says_that_a_stash_takes_it(desk: Desk) -> None:
    desk.repo.write({".gitignore": "a.txt\n", "a.txt": "mine\n"})

    held = desk("run", desk.plan(PLAN.format(more="")))
    (desk.repo.path / "a.txt").rename(desk.folder / "a.txt")
    landed = desk("land", "--yes")

    assert held.code == 4 and "Move a.txt away ('git stash -u' leaves files that git ignores)" in held.talk, held.talk
    assert landed.code == 0, landed.talk


def test_who_follows_the_hint_of_a_landing_again_that_was_refused_has_the_result(desk: Desk) -> None:
    plan = landed(desk)
    desk("undo", plan, "--yes")
    desk.repo.commit({"fix.txt": "fix\n"})

    refused = desk("land", plan, "--yes")
    assert refused.code == 4, refused.talk
    desk.repo(*refused.err.split("hint: ")[1].split(": git ")[1].split(), "--no-edit")

    assert {"a.txt", "fix.txt"} <= set(desk.repo.files("work"))


def test_a_plan_that_cannot_open_its_pull_request_says_so_first_and_can_land_here(desk: Desk) -> None:
    file = desk.plan("name: Proposed\nland: pr\njobs: [{id: a, work: 'echo a > a.txt'}]\n")

    checked, held, bare = desk("validate", file), desk("run", file), desk("land", "--yes")
    plan = desk.status()["plan"]["id"]
    landed = desk("land", plan, "--yes")

    assert checked.code == 0 and "no pull request can be opened when this plan is done" in checked.err, checked.talk
    assert held.code == 4 and f"orchard land {plan}" in held.out and f"next: orchard pr {plan}" in held.out, held.talk
    assert bare.code == 3 and "waits for its pull request" in bare.err
    assert landed.code == 0 and desk.status()["plan"]["landed"], landed.talk


def test_the_next_command_of_a_deleted_plan_works(desk: Desk) -> None:
    held = "name: Held\nstart_paused: true\njobs: [{id: a, work: 'echo a > a.txt'}]\n"
    plan = desk("run", desk.plan(held), "--detach", "-q").out.strip()
    desk("delete", plan, "--yes")

    words = desk("status", plan).out.split("next: orchard ")[1].split()
    retried = desk("retry", "--plan", plan)

    assert desk(*words).code == 0, words
    assert retried.code == 2 and "hint: orchard recover" in retried.err, retried.talk


def test_a_bare_deploy_with_nothing_to_deploy_is_about_nothing_there(desk: Desk) -> None:
    landed(desk)

    done = desk("deploy")

    assert done.code == 3 and "hint: " in done.err, done.talk


def test_files_that_an_interrupted_undo_left_alone_are_named_until_the_next_one(desk: Desk) -> None:
    plan = landed(desk)
    desk.repo.write({"README.md": "mine\n"})
    killed = desk("undo", plan, "--yes", ORCHARD_FAILPOINT="checkout.after-rename:1:kill")
    desk.repo.write({"a.txt": "edited\n"})
    desk("resume", plan)
    told = desk("status", plan)

    desk.repo("checkout", "-q", "--", "a.txt")
    undone = desk("undo", plan, "--yes")

    assert killed.code == -9 and "left as they are: a.txt" in told.out, told.talk
    assert undone.code == 0 and "left as they are" not in desk("status", plan).out, undone.talk
