"""A branch that an engine was killed while moving: every surface says so, and one command makes it whole."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, Done, desks, until

PLAN = """
name: Moved
target: main
land: {land}
jobs:
  - {{id: a, work: "echo a > a.txt"}}
"""
PLACES = ("undo.before-move", "checkout.after-rename", "checkout.swapped", "undo.after-move")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    for desk in desks(tmp_path):
        desk.repo("checkout", "-q", "main")
        yield desk


def killed(desk: Desk, place: str, *words: str) -> None:
    done = desk(*words, "--yes", ORCHARD_FAILPOINT=f"{place}:1:kill")
    assert done.code == -9, done.talk


def is_told(desk: Desk, plan: str, what: str) -> None:
    for verb in ("status", "waiting"):
        said = desk(verb).talk
        assert f"{what} of this plan was interrupted" in said and f"orchard resume {plan}" in said
    assert desk("wait").code == 4
    examined = desk("doctor")
    assert "was interrupted" in examined.talk and f"Run 'orchard resume {plan}'." in examined.talk
    assert "Everything is fine" not in examined.talk and examined.code == 0


def is_whole(desk: Desk) -> None:
    assert desk.repo("status", "--porcelain") == ""
    assert [one.name for one in (desk.repo.path / ".git").glob("*.lock")] == []
    shown = desk.status()["plan"]
    assert shown["landed"] is (desk.repo.path / "a.txt").exists() and shown["undone"] is not shown["landed"]
    assert shown["error"] is None and not desk("waiting", "--json").json


def says_what_became_of_it(desk: Desk, what: str, done: Done) -> None:
    landed = desk.status()["plan"]["landed"]
    ended = "was completed" if landed is (what == "landing") else "was not completed"
    stands = "the landing on main stands" if landed else "the landing on main is undone"
    assert f"The interrupted {what} {ended}: {stands}." in done.err, done.talk


@pytest.mark.parametrize("place", PLACES)
def test_an_undo_that_was_killed_is_told_and_a_bare_resume_settles_it(desk: Desk, place: str) -> None:
    desk("run", desk.plan(PLAN.format(land="auto")))
    plan = desk.status()["plan"]["id"]
    killed(desk, place, "undo")

    is_told(desk, plan, "An undo")
    done = desk("resume")

    assert done.code == 0, done.talk
    is_whole(desk)
    says_what_became_of_it(desk, "undo", done)


@pytest.mark.parametrize("place", ["checkout.after-rename", "checkout.swapped"])
def test_a_landing_again_that_was_killed_is_told_and_a_bare_resume_settles_it(desk: Desk, place: str) -> None:
    desk("run", desk.plan(PLAN.format(land="auto")))
    plan = desk.status()["plan"]["id"]
    desk("undo", "--yes")
    killed(desk, place, "land", plan)

    is_told(desk, plan, "A landing")
    done = desk("resume")

    assert done.code == 0, done.talk
    is_whole(desk)
    says_what_became_of_it(desk, "landing", done)


@pytest.mark.parametrize("verb", ["land", "undo"])
def test_what_was_killed_before_the_branch_moved_is_not_made_again_as_the_page_says(desk: Desk, verb: str) -> None:
    desk("run", desk.plan(PLAN.format(land="auto")))
    if verb == "land":
        desk("undo", "--yes")
    killed(desk, "checkout.after-rename", verb, desk.status()["plan"]["id"])

    desk("resume")

    assert desk.status()["plan"]["landed"] is (verb == "undo")
    page = " ".join((Path(__file__).parents[2] / "docs/landing.md").read_text().split())
    assert "Whatever is asked of a plan that is over is not made again without you." in page
    assert (
        "(after an undo: see below)" in page and "Ask for it again with `orchard land PLAN` or `orchard undo`." in page
    )
    assert desk(verb, desk.status()["plan"]["id"], "--yes").code == 0 and desk.status()["plan"]["landed"] is (
        verb == "land"
    )
    is_whole(desk)


def test_doctor_knows_locks_of_ours_and_does_not_have_them_removed(desk: Desk) -> None:
    desk("run", desk.plan(PLAN.format(land="auto")))
    killed(desk, "checkout.after-rename", "undo")
    old = time.time() - 60
    for lock in ("index.lock", "HEAD.lock"):
        os.utime(desk.repo.path / ".git" / lock, (old, old))

    said = desk("doctor").talk

    assert "rm '" not in said and "orchard resume" in said
    assert "interrupted landing or undo of Orchard's holds the lock" in said


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("place", ["landing.before-intent", "checkout.after-rename", "landing.after-move"])
def test_a_landing_that_was_killed_lands_when_it_is_asked_for_again(desk: Desk, place: str, bare: bool) -> None:
    desk("run", desk.plan(PLAN.format(land="ask")))
    killed(desk, place, "land")

    done = desk("land", *([] if bare else [desk.status()["plan"]["id"]]), "--yes")

    assert done.code == 0 and "Landed on main" in done.talk, done.talk
    assert (desk.repo.path / "a.txt").read_text() == "a\n" and desk.repo("status", "--porcelain") == ""


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_a_resume_asks_about_what_a_crash_cut_off(desk: Desk, answer: str) -> None:
    go, ran = desk.folder / "go", desk.folder / "ran"
    work = f"echo ran >> {ran}; test -e {go} || sleep 300"
    engine = desk.start("run", desk.plan(f"name: Cut\ntarget: goal\njobs: [{{id: a, heal: false, work: '{work}'}}]\n"))
    until(ran.exists, "the job runs")
    engine.process.kill()
    engine.process.wait()
    go.touch()

    running, ours = desk.on_a_terminal("resume")
    shown = ""
    while "[y/N]" not in shown:
        shown += os.read(ours, 65536).decode()
    os.write(ours, f"{answer}\n".encode())
    code = running.process.wait(60)
    os.close(ours)

    assert "Job 'a' was interrupted while running. Run again?" in shown
    assert (code, ran.read_text()) == ((0, "ran\nran\n") if answer == "y" else (1, "ran\n"))
