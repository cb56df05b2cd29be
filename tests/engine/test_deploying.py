"""Plans whose jobs are deployed by hand."""

from typing import Any

import pytest

from orchard.engine.server.session import Session
from orchard.errors import NotFound, UsageError
from orchard.model.events.plans import JobDeployed, JobPicked
from orchard.model.plan import PlanId
from tests.engine.conftest import Json, Orchard, job, statuses

pytestmark = pytest.mark.anyio

MANUAL = """
name: By hand
deploy: manual
jobs:
  - {id: a, work: echo a > a.txt}
  - {id: b, needs: [a], work: cat a.txt > b.txt}
  - {id: c, work: echo c > c.txt}
"""


async def ask(orchard: Orchard, verb: str, **args: Any) -> Json:
    app = orchard.app
    async with app.session(work=False) as found:
        return await found.request(verb, plan=app.find_plan(None), **args)


async def test_nothing_runs_before_it_is_deployed_and_the_plan_says_that_it_waits(orchard: Orchard) -> None:
    status = await orchard.run(MANUAL)

    assert status["plan"]["status"] == "waiting"
    assert statuses(status) == {"a": "pending", "b": "pending", "c": "pending"}
    assert [job(status, name)["deployed"] for name in ("a", "b", "c")] == [False, False, False]
    assert status["plan"]["error"] == "3 jobs wait to be deployed: a, b, c"
    (waiting,) = orchard.waiting()
    assert (waiting["kind"], waiting["answer"], waiting["job"]) == ("deploy", "deploy", None)
    assert waiting["command"] == f"orchard deploy a --plan {status['plan']['id']}" == status["plan"]["hint"]
    assert orchard.events(JobPicked) == []


async def test_a_deployed_job_runs_and_one_that_needs_others_starts_when_they_are_done(orchard: Orchard) -> None:
    await orchard.run(MANUAL)

    early = await orchard.ask("deploy_jobs", jobs=["b"])
    after = await orchard.ask("deploy_jobs", jobs=["a"])
    done = await orchard.ask("deploy_jobs", jobs=["c"])

    assert (statuses(early), job(early, "b")["deployed"]) == ({"a": "pending", "b": "pending", "c": "pending"}, True)
    assert early["plan"]["error"] == "2 jobs wait to be deployed: a, c"
    assert statuses(after) == {"a": "succeeded", "b": "succeeded", "c": "pending"}
    assert (after["plan"]["status"], done["plan"]["status"]) == ("waiting", "succeeded")
    assert orchard.repo.files("work")["b.txt"] == "a\n"
    assert orchard.waiting() == []


async def test_a_retry_stays_deployed_and_a_job_that_never_was_has_to_be(orchard: Orchard) -> None:
    await orchard.run(
        "name: Retry\ndeploy: manual\njobs: [{id: a, work: test -f go.txt}, {id: b, work: echo b > b.txt}]"
    )
    failed = await orchard.ask("deploy_jobs", jobs=["a"])
    await orchard.ask("cancel_plan")
    with pytest.raises(UsageError, match="canceled"):
        await ask(orchard, "deploy_jobs", jobs=["b"])

    await orchard.ask("retry_plan", work={"type": "shell", "command": "echo a > a.txt"}, jobs=["a"])
    again = await orchard.ask("retry_plan", jobs=["b"])

    assert statuses(failed) == {"a": "failed", "b": "pending"}
    assert failed["plan"]["status"] == "waiting"
    assert statuses(again) == {"a": "succeeded", "b": "pending"}
    assert job(again, "b")["deployed"] is False
    assert (await orchard.ask("deploy_jobs", jobs=["b"]))["plan"]["status"] == "succeeded"


async def test_a_job_that_is_added_later_waits_as_well(orchard: Orchard) -> None:
    await orchard.run(MANUAL)
    added = {"op": "add", "job": {"id": "d", "work": "echo d > d.txt"}}
    await ask(orchard, "reshape_plan", changes=[added, {"op": "remove", "id": "b"}])

    status = await orchard.ask("deploy_jobs", jobs=["a", "c"])

    assert statuses(status) == {"a": "succeeded", "c": "succeeded", "d": "pending"}
    assert (await orchard.ask("deploy_jobs", jobs=["d"]))["plan"]["status"] == "succeeded"


async def test_what_was_deployed_outlives_the_engine(orchard: Orchard) -> None:
    await orchard.run(MANUAL)

    await ask(orchard, "deploy_jobs", jobs=["a", "c"])
    status = await orchard.ask("resume_plan")

    assert statuses(status) == {"a": "succeeded", "b": "pending", "c": "succeeded"}


async def test_a_scaffolded_plan_is_finalized_by_a_deployment_that_asks_for_it(orchard: Orchard) -> None:
    app = orchard.app
    asked = app.parse_plan(None, MANUAL.encode())
    async with app.session() as session:
        plan = (await session.request("create_plan", plan=asked, scaffolding=True))["plan"]
        with pytest.raises(UsageError, match="still being scaffolded"):
            await session.request("deploy_jobs", plan=plan, jobs=["a"])
        await session.request("deploy_jobs", plan=plan, jobs=["a"], finalize=True)
        async for _ in session.follow(PlanId(plan)):
            pass

    assert statuses(orchard.status()) == {"a": "succeeded", "b": "pending", "c": "pending"}


async def test_a_paused_plan_takes_a_deployment_and_runs_it_when_it_goes_on(orchard: Orchard) -> None:
    await orchard.run(f"{MANUAL}start_paused: true\n")

    paused = await orchard.ask("deploy_jobs", jobs=["a"])
    resumed = await orchard.ask("resume_plan")

    assert (paused["plan"]["status"], statuses(paused)["a"]) == ("paused", "ready")
    assert statuses(resumed)["a"] == "succeeded"


@pytest.mark.parametrize(
    ("jobs", "error", "said"),
    [
        (["nobody"], NotFound, "no job 'nobody'"),
        ([], UsageError, "No job is named"),
        (["__snapshot-validation__"], UsageError, "starts by itself"),
        (["a", "nobody"], NotFound, "no job 'nobody'"),
        (["c"], UsageError, "deployed already"),
    ],
)
async def test_what_cannot_be_deployed_is_refused_and_changes_nothing(
    orchard: Orchard, jobs: list[str], error: type[Exception], said: str
) -> None:
    async def deploy(session: Session, plan: PlanId) -> None:
        await session.request("deploy_jobs", plan=plan, jobs=["c"])

    await orchard.run(MANUAL, during=deploy)

    with pytest.raises(error, match=said):
        await ask(orchard, "deploy_jobs", jobs=jobs)

    assert [event.job for event in orchard.events(JobDeployed)] == ["c"]


async def test_jobs_that_gather_only_wait_to_be_deployed_as_well(orchard: Orchard) -> None:
    status = await orchard.run(
        "name: Gather\ndeploy: manual\njobs: [{id: a, work: echo a > a.txt}, {id: g, needs: [a]}]"
    )
    after = await orchard.ask("deploy_jobs", jobs=["a"])

    assert statuses(status) == {"a": "pending", "g": "pending"}
    assert statuses(after) == {"a": "succeeded", "g": "pending"}
    assert (await orchard.ask("deploy_jobs", jobs=["g"]))["plan"]["status"] == "succeeded"
