"""A landing on a branch that went on is taken back by a commit on top of it, or the user is told why not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, Done, desks

LINES = "".join(f"{number}\n" for number in range(9))
PLAN = """
name: Change the middle
target: {target}
{more}
jobs: [{{id: a, work: "sed -i s/4/four/ lines.txt; echo new > new.txt"}}, {{id: b, work: "echo b > b.txt"}}]
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    for one in desks(tmp_path):
        one.repo("checkout", "-q", "-b", "work")
        one.repo.commit({"lines.txt": LINES})
        yield one


def landed(desk: Desk, target: str = "work", more: str = "") -> str:
    done = desk("run", desk.plan(PLAN.format(target=target, more=more)))
    assert done.code == 0, done.talk
    return str(desk.status()["plan"]["id"])


def refused(desk: Desk, done: Done, tip: str, branch: str = "work") -> str:
    """What a refusal says; it has changed nothing."""
    plan = desk.status()["plan"]
    assert (done.code, desk.repo.head(branch)) == (4, tip), done.talk
    assert (plan["landed"], plan["undone"], plan["undoing"]) == (True, False, False)
    return done.err


@pytest.mark.parametrize("more", ["", "merge: merge"])
def test_a_landing_under_later_commits_is_taken_back_by_a_commit_on_top(desk: Desk, more: str) -> None:
    plan = landed(desk, more=more)
    tip = desk.repo.commit({"later.txt": "later\n", "lines.txt": LINES.replace("4", "four").replace("0", "zero")})
    desk.repo.write({"README.md": "edited\n", "loose.txt": "loose\n"})

    hinted = desk("undo", plan, "--yes").err
    done = desk("undo", plan, "--revert", "--yes")

    assert f"orchard undo {plan} --revert" in hinted
    assert done.code == 0 and f"({plan}): branch work is at " in done.out, done.talk
    assert desk.repo("rev-parse", "work^").strip() == tip
    files = desk.repo.files("work")
    assert set(files) == {"README.md", "lines.txt", "later.txt"}
    assert (desk.repo.path / "lines.txt").read_text() == LINES.replace("0", "zero")
    assert desk.repo("status", "--short").splitlines() == [" M README.md", "?? loose.txt"]
    assert (desk.status()["plan"]["undone"], desk.status()["plan"]["reverted"]) == (True, True)
    assert f"Orchard-Undo: {plan}." in desk.repo("log", "-1", "--format=%B", "work")


def test_a_branch_that_is_not_checked_out_is_reverted_and_the_checkout_stays_as_it_is(desk: Desk) -> None:
    plan = landed(desk, "goal")  # which the landing makes
    desk.repo("checkout", "-q", "goal")
    desk.repo.commit({"later.txt": "later\n"})
    desk.repo("checkout", "-q", "work")
    desk.repo.write({"lines.txt": "edited\n"})

    done = desk("undo", plan, "--revert", "--yes")

    assert done.code == 0, done.talk
    assert set(desk.repo.files("goal")) == {"README.md", "lines.txt", "later.txt"}
    assert desk.repo("status", "--short").splitlines() == [" M lines.txt"]


def test_a_landing_that_was_changed_again_is_not_reverted_and_its_files_are_named(desk: Desk) -> None:
    plan = landed(desk)
    tip = desk.repo.commit({"lines.txt": LINES.replace("4", "vier")})

    said = refused(desk, desk("undo", plan, "--revert", "--yes"), tip)

    assert "conflicts with that: lines.txt." in said and "git revert --no-edit" in said, said


def test_edits_in_the_way_of_a_revert_are_named_and_kept(desk: Desk) -> None:
    plan = landed(desk)
    tip = desk.repo.commit({"later.txt": "later\n"})
    desk.repo.write({"lines.txt": "edited\n"})

    said = refused(desk, desk("undo", plan, "--revert", "--yes"), tip)

    assert "would be overwritten: lines.txt" in said and "orchard undo --revert" in said, said
    assert (desk.repo.path / "lines.txt").read_text() == "edited\n"


def test_a_branch_that_no_longer_holds_the_landing_is_not_reverted(desk: Desk) -> None:
    plan = landed(desk)
    desk.repo("commit", "-q", "--amend", "-m", "mine now")
    tip = desk.repo.head("work")

    plain, reverting = desk("undo", plan, "--yes"), desk("undo", plan, "--revert", "--yes")

    assert "--revert" not in refused(desk, plain, tip), "what would be refused as well is not proposed"
    assert "which does not build on" in refused(desk, reverting, tip)


def test_a_landing_that_the_user_reverted_is_noted_as_undone_without_a_commit(desk: Desk) -> None:
    plan = landed(desk)
    desk.repo("revert", "--no-edit", "HEAD~2..HEAD")
    tip = desk.repo.head("work")

    done = desk("undo", plan, "--revert", "--yes")

    assert done.code == 0 and "nothing was changed now" in done.out, done.talk
    assert desk.repo.head("work") == tip and desk.status()["plan"]["undone"]


def test_a_reverted_landing_cannot_land_again_but_the_hint_brings_it_back(desk: Desk) -> None:
    plan = landed(desk)
    desk.repo.commit({"later.txt": "later\n"})
    desk("undo", plan, "--revert", "--yes")

    again = desk("land", plan, "--yes")
    unnamed = desk("land", "--yes")
    desk.repo("revert", *again.err.split("git revert ")[1].split())

    assert again.code == 2 and "cannot land again as it is" in again.err
    assert unnamed.code == 3 and "waits to be landed" in unnamed.err
    assert {"new.txt", "b.txt", "later.txt"} <= set(desk.repo.files("work"))


def test_without_a_terminal_a_revert_asks_for_a_yes_that_does_the_same(desk: Desk) -> None:
    plan = landed(desk)
    tip = desk.repo.commit({"later.txt": "later\n"})

    asked = desk("undo", plan, "--revert")

    assert "Add a commit to 'work'" in asked.err
    assert f"orchard undo {plan} --revert --yes" in refused(desk, asked, tip)


@pytest.mark.parametrize("name", ["undo.before-intent", "undo.before-move", "undo.after-move", "checkout.after-rename"])
def test_a_revert_that_is_killed_happens_once(desk: Desk, name: str) -> None:
    plan = landed(desk)
    tip = desk.repo.commit({"later.txt": "later\n"})

    killed = desk("undo", plan, "--revert", "--yes", ORCHARD_FAILPOINT=f"{name}:1:kill")
    there = desk.repo.head("work")
    done = desk("undo", plan, "--revert", "--yes")

    assert killed.code == -9 and (there == tip) is (name != "undo.after-move")
    assert done.code == 0, done.talk
    assert desk.repo("rev-list", "--count", f"{tip}..work").strip() == "1"
    assert set(desk.repo.files("work")) == {"README.md", "lines.txt", "later.txt"}
    assert desk.repo("status", "--short") == "" and desk.status()["plan"]["reverted"]


def test_nobody_is_asked_about_an_undo_that_later_commits_make_impossible(desk: Desk) -> None:
    plan = landed(desk)
    tip = desk.repo.commit({"later.txt": "later\n"})

    said = refused(desk, desk("undo", plan), tip)

    assert "Cannot ask" not in said and f"orchard undo {plan} --revert" in said, said
