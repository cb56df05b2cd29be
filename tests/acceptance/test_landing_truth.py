"""What the program says about landings and undos is what git says."""

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, desks

PLAN = (
    "name: One\nbase: work\ntarget: {target}\nverify: test -e a.txt\njobs: [{{id: a, work: '{more}echo a > a.txt'}}]\n"
)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    for one in desks(tmp_path):
        one.repo("checkout", "-q", "-b", "work")
        yield one


def run(desk: Desk, target: str = "work", more: str = "") -> str:
    done = desk("run", desk.plan(PLAN.format(target=target, more=more)))
    assert done.code == 0, done.talk
    return str(desk.status()["plan"]["id"])


def test_a_merge_strategy_that_a_job_configures_changes_nothing(desk: Desk) -> None:
    run(desk, more='git config branch.work.mergeoptions "-s ours"; ')

    assert (desk.repo.path / "a.txt").read_text() == "a\n"
    assert desk.repo("rev-list", "--merges", "work") == ""
    assert desk.repo("status", "--porcelain") == ""


def test_an_undo_that_was_refused_leaves_nothing_pending(desk: Desk) -> None:
    plan = run(desk)
    desk.repo.write({"a.txt": "edited\n"})

    refused = desk("undo", plan, "--yes")
    pending = desk.status(plan)["plan"].get("undoing")
    desk.repo("commit", "-q", "-a", "--amend", "-m", "amended")
    again = desk("undo", plan, "--yes")

    assert refused.code == 4 and "a.txt" in refused.err, refused.talk
    assert not pending
    assert again.code == 4, again.talk
    assert desk.status(plan)["plan"]["undone"] is False
    assert desk.repo.files("work")["a.txt"] == "edited\n"


def test_an_undo_of_what_was_undone_before_says_so_and_claims_nothing(desk: Desk) -> None:
    plan = run(desk)
    desk("undo", plan, "--yes")
    desk.repo.commit({"b.txt": "b\n"})

    again = desk("undo", plan, "--yes")

    assert again.code == 0, again.talk
    assert "before" in again.out and "is back at" not in again.out


def test_a_target_that_is_another_name_for_the_branch_takes_its_checkout_along(desk: Desk) -> None:
    desk.repo("symbolic-ref", "refs/heads/alias", "refs/heads/work")

    plan = run(desk, target="alias")

    assert desk.repo("status", "--porcelain") == "" and (desk.repo.path / "a.txt").exists()
    assert desk.status(plan)["plan"]["landed"] is True
    assert desk("undo", plan, "--yes").code == 0
    assert desk.repo("status", "--porcelain") == "" and not (desk.repo.path / "a.txt").exists()


def test_two_undos_at_once_undo_it_once(desk: Desk) -> None:
    plan = run(desk)
    before = desk.repo("rev-parse", "work~1").strip()

    running = [desk.start("undo", plan, "--yes") for _ in range(2)]
    done = [one.end() for one in running]

    assert desk.repo.head("work") == before
    assert desk.repo("status", "--porcelain") == ""
    assert any(one.code == 0 for one in done)
    assert all("another git command" not in one.talk.lower() for one in done), [one.talk for one in done]


def test_a_user_who_switches_branches_all_the_time_never_gets_a_landing_on_another_branch(desk: Desk) -> None:
    desk.repo("branch", "other")
    other = desk.repo.head("other")
    over = threading.Event()

    def switch() -> None:
        while not over.is_set():
            for name in ("other", "work"):
                subprocess.run(["git", "switch", "-q", name], cwd=desk.repo.path, capture_output=True, check=False)
                time.sleep(0.02)

    user = threading.Thread(target=switch)
    user.start()
    codes = []
    try:
        for number in range(3):
            text = f"name: P{number}\nbase: work\ntarget: work\njobs: [{{id: a, work: 'echo {number} > f{number}'}}]\n"
            codes.append(desk("run", desk.plan(text)).code)
    finally:
        over.set()
        user.join()
    desk.repo.run("switch", "-q", "work")

    assert desk.repo.head("other") == other
    landed = [number for number in range(3) if f"f{number}" in desk.repo.files("work")]
    assert landed == [number for number, code in enumerate(codes) if code == 0], codes
    assert desk.repo("status", "--porcelain") == ""
