"""What a user takes off the target while a plan runs is asked about, and never comes back by itself."""

import pytest

from orchard.core.plan import PlanId
from orchard.engine.session import Session
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

    status = await orchard.ask("land")

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
