"""What a user takes off the target while a plan runs is asked about, and never comes back by itself."""

import pytest

from orchard.engine.server.session import Session
from orchard.model.plan import PlanId
from tests.engine.conftest import Orchard, until

pytestmark = pytest.mark.anyio

PLAN = """
name: P
target: work
merge: {merge}
jobs:
  - id: a
    work: "echo a > a.txt; touch '{here}/in'; while ! test -e '{here}/go'; do sleep 0.05; done"
  - id: b
    work: "echo b > b.txt"
"""


def _amend(orchard: Orchard) -> None:
    orchard.repo("rm", "-q", "secret.txt")
    orchard.repo("commit", "-q", "--amend", "--allow-empty", "-m", "clean")


def _reset(orchard: Orchard) -> None:
    orchard.repo("reset", "-q", "--hard", "HEAD~1")


def _amend_and_go_on(orchard: Orchard) -> None:
    _amend(orchard)
    orchard.repo.commit({"later.txt": "later"})


@pytest.mark.parametrize("rewrite", [_amend, _reset, _amend_and_go_on])
@pytest.mark.parametrize("merge", ["squash", "merge"])
async def test_a_target_that_was_rewritten_is_asked_about_and_lands_without_what_was_taken_off(
    orchard: Orchard, rewrite: object, merge: str
) -> None:
    assert callable(rewrite)
    repo, here = orchard.repo, orchard.repo.path / ".git"
    repo("checkout", "-q", "-B", "work")
    bad = repo.commit({"secret.txt": "SECRET"}, message="oops")

    async def during(session: Session, plan: PlanId) -> None:
        await until((here / "in").exists)
        rewrite(orchard)
        (here / "go").touch()

    status = await orchard.run(PLAN.format(here=here, merge=merge), during)

    plan = status["plan"]
    before = repo.head("work")
    assert plan["status"] == "waiting" and "a.txt" not in repo.files("work")
    assert (
        "amended or reset" in plan["waiting"][0]["reason"]
        and f"orchard land {plan['id']}" in plan["waiting"][0]["reason"]
    )

    status = await orchard.ask("land_plan")

    assert status["plan"]["status"] == "succeeded"
    files = repo.files("work")
    assert files["a.txt"] == "a\n" and files["b.txt"] == "b\n" and "secret.txt" not in files
    assert before in repo("rev-list", "work").split() and bad not in repo("rev-list", "work").split()


async def test_a_target_that_only_advanced_is_merged_again_without_asking(orchard: Orchard) -> None:
    repo, here = orchard.repo, orchard.repo.path / ".git"
    repo("checkout", "-q", "-B", "work")

    async def during(session: Session, plan: PlanId) -> None:
        await until((here / "in").exists)
        repo.commit({"later.txt": "later"})
        (here / "go").touch()

    status = await orchard.run(PLAN.format(here=here, merge="squash"), during)

    assert status["plan"]["status"] == "succeeded"
    assert {"a.txt", "b.txt", "later.txt"} <= repo.files("work").keys()


ASKS = "name: {name}\ntarget: work\nland: ask\nresolver: fail\njobs: [{{id: a, work: 'echo {name} > {file}'}}]\n"


async def test_what_a_result_could_not_be_merged_onto_is_not_missed_when_it_is_undone(orchard: Orchard) -> None:
    for name in ("one", "two"):
        await orchard.run(ASKS.format(name=name, file="same.txt"))
    await orchard.ask("land_plan", "one")
    failed = await orchard.ask("land_plan", "two")
    await orchard.ask("undo_plan", "one")

    asked = await orchard.ask("retry_plan", "two")
    landed = await orchard.ask("land_plan", "two")

    assert failed["plan"]["status"] == "failed"
    assert [one["kind"] for one in asked["plan"]["waiting"]] == ["landing"]
    assert landed["plan"]["landed"] is True
    assert orchard.repo.files("work")["same.txt"] == "two\n"


async def test_a_landing_that_was_undone_below_a_result_is_named_and_asked_about_once(orchard: Orchard) -> None:
    one = await orchard.run(ASKS.format(name="one", file="one.txt"))
    await orchard.ask("land_plan", "one")
    await orchard.run(ASKS.format(name="two", file="two.txt"))
    await orchard.ask("undo_plan", "one")

    asked = await orchard.ask("land_plan", "two")
    landed = await orchard.ask("land_plan", "two")

    (waits,) = asked["plan"]["waiting"]
    assert waits["kind"] == "rewritten"
    assert f"since the landing of plan '{one['plan']['id']}' was undone" in waits["reason"]
    assert "amended" not in waits["reason"]
    assert landed["plan"]["landed"] is True
    assert orchard.repo.files("work").keys() >= {"two.txt"} and "one.txt" not in orchard.repo.files("work")
