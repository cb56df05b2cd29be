"""Each field that is a tool's own, such as `limit` or `purge`, does what it says."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from orchard.model.events.plans import JobCanceled, JobFailed, JobRetried, Json, PlanCanceled
from orchard.model.plan import PlanId
from orchard.surfaces.mcp import toolbox
from tests.mcp.fieldwalk import Place
from tests.mcp.test_tools_fields import OF_TOOLS
from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio

Check = Callable[[Bench, str], Awaitable[None]]
CHECKS: dict[tuple[str, str], Check] = {}
"""By tool (or `*`) and field; `test_every_own_field_has_a_test` sees to it that none is missing."""

ROWS = {
    "list_events": "events",
    "get_plan": "jobs", "list_plans": "plans", "get_plan_graph": "jobs", "list_jobs": "jobs", "list_groups": "groups",
    "get_group": "jobs", "get_job_attempts": "attempts",
}  # fmt: skip
ARGUMENTS: dict[str, Json] = {
    "add_job": {"id": "x"}, "add_jobs": {"jobs": [{"id": "x"}]}, "cancel_group": {"group": "g"},
    "get_group": {"group": "g"}, "reshape_plan": {"changes": [{"op": "remove", "id": "x"}]},
    "update_plan": {"push": True},
    "update_job": {"priority": 1}, "list_plans": {}, "reject_job": {"reason": "no"},
}  # fmt: skip
"""What a tool needs besides the plan and the job."""


def check(field: str, *tools: str) -> Callable[[Check], Check]:
    def add(function: Check) -> Check:
        CHECKS.update({(tool, field): function for tool in tools or ("*",)})
        return function

    return add


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """An engine at work; plan `Ran` is over, with a job that was tried three times."""
    home = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STATE_HOME", "CONFIG_HOME", "CACHE_HOME", "RUNTIME_DIR"):
            (home / name).mkdir(mode=0o700)
            patch.setenv(f"XDG_{name}", str(home / name))
        patch.setenv("HOME", str(home))
        patch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
        async with bench(home / "repo") as made:
            await made("create_plan", name="Other", jobs=[{"id": "a"}], start_paused=True)
            ran = await made("create_plan", name="Ran", target="ran", jobs=RAN)
            await made.ended(ran["plan"], "failed")
            for _ in range(2):
                await made("retry_job", plan="Ran", job="bad")
                await made.ended(ran["plan"], "failed")
            yield made


LINES = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo line $n of what it printed; done"
RAN = [
    {"id": "good", "group": "g", "work": f"{LINES}; seq 300 > numbers.txt", "postchecks": "echo checked"},
    {"id": "also", "group": "h/i", "work": "echo also > also.txt"},
    {"id": "bad", "group": "g", "work": "echo this is attempt $ORCHARD_ATTEMPT; exit 1", "heal": False},
    {"id": "late", "group": "g", "needs": ["bad"], "work": "true"},
]


async def paused(tools: Bench, **more: Any) -> str:
    """A plan that stands still."""
    jobs = [{"id": "a", "group": "g", "work": "true"}, {"id": "b", "work": "true"}]
    plan: str = (await tools("create_plan", **{"name": "Still", "start_paused": True, "jobs": jobs, **more}))["plan"]
    return plan


async def failed(tools: Bench) -> str:
    """A plan that stands still, with two failed jobs."""
    plan = await paused(tools, land="never")
    for job in ("g/a", "b"):
        await tools("force_fail_job", plan=plan, job=job)
    return plan


def events(tools: Bench, plan: str, kind: type[Any]) -> list[Any]:
    return [one.event for one in tools.served.app.reader.events(PlanId(plan)) if isinstance(one.event, kind)]


@pytest.mark.parametrize("place", OF_TOOLS, ids=str)
async def test_a_field_of_a_tool_has_an_effect(live: Bench, place: Place) -> None:
    found = CHECKS.get((place.tool, place.field)) or CHECKS[("*", place.field)]

    await found(live, place.tool)


# --------------------------------------------------------------------------- which, and how much


@check("plan")
async def names_a_plan(tools: Bench, tool: str) -> None:
    given = dict(ARGUMENTS.get(tool, {}))
    if "job" in next(one for one in toolbox.every_tool() if one.name == tool).input.model_fields:
        given["job"] = "good"
    said = await tools.refused(tool, plan="nonesuch", **given)
    assert "There is no plan 'nonesuch'" in said
    assert "list_plans" in said


@check("job")
async def names_a_job(tools: Bench, tool: str) -> None:
    said = await tools.refused(tool, plan="Ran", job="gooood", **ARGUMENTS.get(tool, {}))
    assert "has no job 'gooood'; did you mean 'good'?" in said.replace("g/good", "good")


@check("job", "reshape_plan")
async def holds_a_new_job(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    await tools("reshape_plan", plan=plan, changes=[{"op": "add", "job": {"id": "c", "needs": ["b"]}}])
    assert tools.configuration(plan)["jobs"][-1] == {"id": "c", "needs": ["b"]}


@check("group", "get_group", "list_jobs")
async def names_a_group(tools: Bench, tool: str) -> None:
    found = await tools(tool, plan="Ran", group="h")
    assert [job["id"] for job in found["jobs"]] == ["h/i/also"]
    assert "has no group 'hh'" in await tools.refused(tool, plan="Ran", group="hh")


@check("group", "cancel_group")
async def stops_a_group(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    found = await tools(tool, plan=plan, group="g")
    assert found["canceled"] == ["g/a"]
    seen = await tools("list_jobs", plan=plan, status="canceled")
    assert [job["id"] for job in seen["jobs"]] == ["g/a"]


@check("revert")
async def takes_a_landing_back_by_a_commit_on_top(tools: Bench, tool: str) -> None:
    jobs = [{"id": "a", "work": "echo hello > landed.txt"}]
    plan = (await tools("create_plan", name="Landed", target="landed", jobs=jobs))["plan"]
    await tools.ended(plan)
    top = tools.repo("commit-tree", "-p", "landed", "-m", "on top", "landed^{tree}").strip()
    tools.repo("update-ref", "refs/heads/landed", top)

    assert "was not undone" in await tools.refused(tool, plan=plan)
    await tools(tool, plan=plan, revert=True)

    assert tools.repo("rev-parse", "landed~1").strip() == top and "landed.txt" not in tools.repo.files("landed")


@check("limit")
async def bounds_a_page(tools: Bench, tool: str) -> None:
    given = await page_arguments(tools, tool)
    assert len((await tools(tool, **given))[ROWS[tool]]) > 1
    assert len((await tools(tool, **given, limit=1))[ROWS[tool]]) == 1
    assert "limit: must be at most 200" in await tools.refused(tool, **given, limit=201)


@check("cursor")
async def turns_the_page(tools: Bench, tool: str) -> None:
    given = await page_arguments(tools, tool)
    rows = (await tools(tool, **given))[ROWS[tool]]
    first = await tools(tool, **given, limit=1)
    second = await tools(tool, **given, limit=1, cursor=first["next_cursor"])
    assert [*first[ROWS[tool]], *second[ROWS[tool]]] == rows[:2]
    assert "'nonsense' is no page" in await tools.refused(tool, **given, cursor="nonsense")


async def page_arguments(tools: Bench, tool: str) -> Json:
    if tool == "list_plans":
        return {"status": "paused"} if len((await tools(tool, status="paused"))["plans"]) > 1 else {}
    return {"plan": "Ran", **({"job": "bad"} if tool == "get_job_attempts" else ARGUMENTS.get(tool, {}))}


@check("status", "list_plans")
async def chooses_plans(tools: Bench, tool: str) -> None:
    found = (await tools(tool, status="failed"))["plans"]
    assert {plan["status"] for plan in found} == {"failed"}
    assert "status: must be" in await tools.refused(tool, status="sleeping")


@check("status", "list_jobs")
async def chooses_jobs(tools: Bench, tool: str) -> None:
    found = await tools(tool, plan="Ran", status="blocked")
    assert [job["id"] for job in found["jobs"]] == ["g/late", "__snapshot-validation__"]


@check("since", "get_plan")
async def asks_for_news_only(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    before = (await tools(tool, plan=plan))["cursor"]
    assert (await tools(tool, plan=plan, since=before))["jobs"] == []
    await tools("force_fail_job", plan=plan, job="b")
    after = await tools(tool, plan=plan, since=before)
    assert [job["id"] for job in after["jobs"]] == ["b", "__snapshot-validation__"]
    assert "there was no event 999999999" in await tools.refused(tool, plan=plan, since=999_999_999)


@check("since", "list_events")
async def reads_on_where_it_stopped(tools: Bench, tool: str) -> None:
    first = await tools(tool, plan="Ran", limit=2)
    rest = await tools(tool, plan="Ran", since=first["next"])
    assert rest["events"][0]["seq"] > first["events"][-1]["seq"]
    assert "since: must be at least 0" in await tools.refused(tool, since=-1)


# ---------------------------------------------------------------------------------- logs and diffs


@check("phase", "get_job_logs")
async def chooses_a_phase(tools: Bench, tool: str) -> None:
    assert "checked" in (await tools(tool, plan="Ran", job="good"))["text"], "the phase that printed last"
    assert "line 20" in (await tools(tool, plan="Ran", job="good", phase="work"))["text"]


@check("attempt", "get_job_logs")
async def chooses_the_log_of_an_attempt(tools: Bench, tool: str) -> None:
    assert (await tools(tool, plan="Ran", job="bad"))["text"] == "this is attempt 3\n"
    assert (await tools(tool, plan="Ran", job="bad", attempt=1))["text"] == "this is attempt 1\n"
    assert "has no attempt 9" in await tools.refused(tool, plan="Ran", job="bad", attempt=9)


@check("attempt", "get_job_attempts")
async def chooses_an_attempt(tools: Bench, tool: str) -> None:
    assert [one["number"] for one in (await tools(tool, plan="Ran", job="bad"))["attempts"]] == [3, 2, 1]
    assert [one["number"] for one in (await tools(tool, plan="Ran", job="bad", attempt=2))["attempts"]] == [2]
    assert "no attempt 7; it has had 3" in await tools.refused(tool, plan="Ran", job="bad", attempt=7)


@check("tail", "get_job_logs")
async def shows_the_last_lines(tools: Bench, tool: str) -> None:
    found = await tools(tool, plan="Ran", job="good", phase="work", tail=2)
    assert found["text"] == "line 19 of what it printed\nline 20 of what it printed\n"
    assert found["next_offset"] == found["size"]
    assert found["offset"] == found["size"] - len(found["text"])
    assert "exclude each other" in await tools.refused(tool, plan="Ran", job="good", tail=2, offset=0)


@check("offset", "get_job_logs")
@check("max_bytes", "get_job_logs")
async def reads_a_log_in_pieces(tools: Bench, tool: str) -> None:
    whole = (await tools(tool, plan="Ran", job="good", phase="work", offset=0))["text"]
    text, at, pieces = "", 0, 0
    while at < len(whole):
        piece = await tools(tool, plan="Ran", job="good", phase="work", offset=at, max_bytes=200)
        assert (piece["offset"], piece["ended"]) == (at, True)
        text, at, pieces = text + piece["text"], piece["next_offset"], pieces + 1
    assert (text, pieces) == (whole, 3)


@check("stat", "get_job_diff")
async def shows_a_table(tools: Bench, tool: str) -> None:
    assert "+300" in (await tools(tool, plan="Ran", job="good", max_bytes=5000))["diff"]
    table = (await tools(tool, plan="Ran", job="good", stat=True))["diff"]
    assert "numbers.txt" in table
    assert "+++" in table
    assert "\n+300" not in table


@check("offset", "get_job_diff")
@check("max_bytes", "get_job_diff")
async def reads_a_diff_in_pieces(tools: Bench, tool: str) -> None:
    whole = (await tools(tool, plan="Ran", job="good", max_bytes=5000))["diff"]
    text, at = "", 0
    while True:
        piece = await tools(tool, plan="Ran", job="good", offset=at, max_bytes=300)
        assert len(piece["diff"]) <= 300
        text += piece["diff"]
        if "next_offset" not in piece:
            break
        at = piece["next_offset"]
    assert text == whole


# --------------------------------------------------------------------------------------- waiting


@check("cursor", "wait_plan")
async def waits_from_there_on(tools: Bench, tool: str) -> None:
    plan = await paused(tools, deploy="auto")
    before = (await tools("get_plan", plan=plan))["cursor"]
    await tools("force_fail_job", plan=plan, job="b")
    seen = await tools(tool, plan=plan, cursor=before)
    assert [job["id"] for job in seen["changed"]] == ["b", "__snapshot-validation__"]
    assert "changed" not in await tools(tool, plan=plan, cursor=seen["cursor"])
    assert "cursor: there was no event" in await tools.refused(tool, plan=plan, cursor=999_999_999)


@check("timeout_s", "wait_plan")
@check("until", "wait_plan")
async def waits_for_a_change_or_for_the_end(tools: Bench, tool: str) -> None:
    """A job that goes on until a file is there: only we decide when something happens."""
    go = tools.repo.path.parent / "go"
    go.unlink(missing_ok=True)
    work = f"until test -e {go}; do sleep 0.05; done; echo > done.txt"
    plan = (await tools("create_plan", name="Wait", target="waited", jobs=[{"id": "a", "work": work}]))["plan"]
    seen: Json = {"cursor": 0, "counts": {}}
    while "running" not in seen["counts"]:
        seen = await tools(tool, plan=plan, cursor=seen["cursor"])
        assert seen["happened"]
    assert not (await tools(tool, plan=plan, cursor=seen["cursor"], timeout_s=0))["happened"]
    assert not (await tools(tool, plan=plan, cursor=0, until="end", timeout_s=0))["happened"]
    assert (await tools(tool, plan=plan, cursor=0, until="change", timeout_s=0))["happened"]
    go.touch()
    over = await tools(tool, plan=plan, until="end", timeout_s=45)
    assert (over["happened"], over["status"]) == (True, "succeeded")
    assert "timeout_s: must be at most 45" in await tools.refused(tool, plan=plan, timeout_s=46)
    assert "until: must be 'change' or 'end'" in await tools.refused(tool, plan=plan, until="forever")


# ---------------------------------------------------------------------------------------- acting


@check("reason", "cancel_plan")
async def says_why_a_plan_was_canceled(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    await tools(tool, plan=plan, reason="wrong idea")
    assert [event.reason for event in events(tools, plan, PlanCanceled)] == ["wrong idea"]


@check("reason", "cancel_group")
async def says_why_a_group_was_canceled(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    await tools(tool, plan=plan, group="g", reason="not wanted")
    assert [event.reason for event in events(tools, plan, JobCanceled)] == ["not wanted"]


@check("reason", "force_fail_job")
async def says_why_a_job_was_failed(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    await tools(tool, plan=plan, job="b", reason="it loops")
    assert [event.message for event in events(tools, plan, JobFailed)] == ["it loops"]
    assert (await tools("get_job_failure", plan=plan, job="b"))["message"] == "it loops"


@check("reason", "reject_job")
async def says_why_a_job_was_rejected(tools: Bench, tool: str) -> None:
    made = await tools("create_plan", name="Look", land="never", jobs=[{"id": "b", "work": "true", "approve": True}])
    await tools.ended(made["plan"], "waiting")
    await tools(tool, plan=made["plan"], job="b", reason="not so")
    assert [event.message for event in events(tools, made["plan"], JobFailed)] == [
        "A person looked at the changes and rejected them: not so"
    ]


@check("draft")
async def asks_for_a_draft(tools: Bench, tool: str) -> None:
    jobs = [{"id": "a", "work": "echo hello > proposed.txt"}]
    plan = (await tools("create_plan", name="Asked", land="ask", jobs=jobs))["plan"]
    await tools.ended(plan, "waiting")

    await tools(tool, plan=plan, draft=True)

    asked = tools.served.app.run_of(PlanId(plan)).pull_asked
    assert asked is not None and asked.draft


@check("purge", "delete_plan")
async def removes_a_plan_for_good(tools: Bench, tool: str) -> None:
    kept, gone = await paused(tools), await paused(tools)
    assert not (await tools(tool, plan=kept))["purged"]
    assert (await tools("get_plan", plan=kept))["plan"]["plan"] == kept, "its story is still there"
    assert (await tools(tool, plan=gone, purge=True))["purged"]
    assert f"There is no plan '{gone}'" in await tools.refused("get_plan", plan=gone)


@check("jobs", "retry_plan")
async def retries_some(tools: Bench, tool: str) -> None:
    plan = await failed(tools)
    assert (await tools(tool, plan=plan, jobs=["b"], work="echo > b.txt"))["retried"] == ["b"]
    await tools.ended(plan, "failed")
    assert (await tools(tool, plan=plan, work="echo > a.txt"))["retried"] == ["g/a"]
    await tools.ended(plan)


@check("jobs", "add_jobs")
async def adds_all_or_none(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    jobs = [{"id": "d", "needs": ["c"]}, {"id": "c", "needs": ["b"]}]
    assert (await tools(tool, plan=plan, jobs=jobs))["jobs"] == ["d", "c"]
    said = await tools.refused(tool, plan=plan, jobs=[{"id": "e"}, {"id": "f", "needs": ["x"]}])
    assert "- jobs[1].needs[0]: there is no job 'x'" in said
    assert "e" not in [job["id"] for job in tools.configuration(plan)["jobs"]]


@check("work", "retry_job", "retry_plan")
@check("prechecks", "retry_job", "retry_plan")
@check("postchecks", "retry_job", "retry_plan")
async def does_something_else(tools: Bench, tool: str) -> None:
    plan = await failed(tools)
    await retry(tools, tool, plan, work="echo work; false", prechecks="echo pre", postchecks=["echo post", "echo more"])
    [event] = events(tools, plan, JobRetried)
    assert event.work == {"type": "shell", "command": "echo work; false"}
    assert [work["command"] for work in (*event.prechecks, *event.postchecks)] == ["echo pre", "echo post", "echo more"]
    await tools.ended(plan, "failed")
    await retry(tools, tool, plan, postchecks=[])
    assert events(tools, plan, JobRetried)[-1].postchecks == ()
    await tools.ended(plan, "failed")
    said = await tools.refused(tool, plan=plan, **which(tool), postchecks=None)
    assert "null could mean" in said


@check("from_phase", "retry_job", "retry_plan")
async def begins_elsewhere(tools: Bench, tool: str) -> None:
    plan = await failed(tools)
    await retry(tools, tool, plan, from_phase="setup")
    assert events(tools, plan, JobRetried)[0].first_phase == "setup"


@check("fresh", "retry_job", "retry_plan")
async def begins_in_a_new_folder(tools: Bench, tool: str) -> None:
    plan = await failed(tools)
    await retry(tools, tool, plan, fresh=True)
    assert events(tools, plan, JobRetried)[0].fresh


@check("keep", "retry_job", "retry_plan")
async def goes_on_in_the_old_folder(tools: Bench, tool: str) -> None:
    plan = await failed(tools)
    await retry(tools, tool, plan, keep=True)
    assert not events(tools, plan, JobRetried)[0].fresh


@check("fresh_session", "retry_job", "retry_plan")
async def begins_a_new_session(tools: Bench, tool: str) -> None:
    plan = await failed(tools)
    await retry(tools, tool, plan, fresh_session=True)
    [event] = events(tools, plan, JobRetried)
    assert (event.fresh_session, event.fresh) == (True, False)


def which(tool: str) -> Json:
    return {"job": "b"} if tool == "retry_job" else {"jobs": ["b"]}


async def retry(tools: Bench, tool: str, plan: str, **how: Any) -> None:
    assert (await tools(tool, plan=plan, **which(tool), **how))["retried"] == ["b"]


@check("budget", "resume_plan")
async def gives_a_budget(tools: Bench, tool: str) -> None:
    plan = await paused(tools, deploy="manual")
    await tools(tool, plan=plan, budget={"minutes": 7})
    assert tools.configuration(plan)["budget"] == {"minutes": 7}
    assert "budget.minutes: must be more than 0" in await tools.refused(tool, plan=plan, budget={"minutes": -1})


@check("again", "resume_plan")
async def runs_nothing_again_that_was_not_interrupted(tools: Bench, tool: str) -> None:
    plan = await paused(tools, deploy="manual")
    await tools(tool, plan=plan, again=True)
    assert not events(tools, plan, JobRetried)


# --------------------------------------------------------------------------------------- building


@check("start_paused", "finalize_plan")
async def starts_or_waits(tools: Bench, tool: str) -> None:
    plans = [
        (await tools("scaffold_plan", name="S", land="never", start_paused=said))["plan"] for said in (False, True)
    ]
    for plan in plans:
        await tools("add_job", plan=plan, id="a", work="true", expects_no_changes=True)
    assert (await tools(tool, plan=plans[0], start_paused=True))["status"] == "paused"
    assert (await tools(tool, plan=plans[1], start_paused=False))["status"] != "paused"
    await tools.ended(plans[1])


@check("scaffolding", "clone_plan")
async def waits_to_be_finalized(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    assert (await tools(tool, plan=plan))["status"] == "scaffolding"
    assert (await tools(tool, plan=plan, scaffolding=False))["status"] == "paused", "as the plan itself says"
    assert (await tools(tool, plan=plan, scaffold=False))["status"] == "paused", "its older name"


@check("idempotency_key", "create_plan", "create_job", "scaffold_plan", "clone_plan")
async def makes_a_plan_once(tools: Bench, tool: str) -> None:
    source = await paused(tools)
    given: dict[str, Json] = {
        "create_plan": {"name": "Once", "start_paused": True, "jobs": [{"id": "a"}]},
        "create_job": {"id": "once", "start_paused": True},
        "scaffold_plan": {"name": "Once"},
        "clone_plan": {"plan": source},
    }
    first = await tools(tool, **given[tool], idempotency_key=f"key of {tool}")
    again = await tools(tool, **given[tool], idempotency_key=f"key of {tool}")
    other = await tools(tool, **given[tool])
    assert again["plan"] == first["plan"] != other["plan"]
    assert "nothing new was made" in again["notes"][0]
    changed = {**given[tool], "name": "Another"}
    assert "was used for plan" in await tools.refused(tool, **changed, idempotency_key=f"key of {tool}")
    assert "idempotency_key: must have the form" in await tools.refused(tool, **given[tool], idempotency_key="ends ")


@check("deleted", "list_plans")
async def shows_deleted_plans(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    await tools("delete_plan", plan=plan)
    assert plan not in [one["plan"] for one in (await tools(tool))["plans"]]
    assert plan in [one["plan"] for one in (await tools(tool, deleted=True))["plans"]]


@check("changes", "reshape_plan")
@check("op", "reshape_plan")
@check("id", "reshape_plan")
@check("needs", "reshape_plan")
@check("set", "reshape_plan")
async def changes_the_graph(tools: Bench, tool: str) -> None:
    plan = await paused(tools)
    changes = [
        {"op": "set_needs", "id": "b", "needs": ["g/a"]},
        {"op": "add_before", "id": "b", "job": {"id": "c"}},
        {"op": "update", "id": "b", "set": {"priority": 4}},
        {"op": "update_plan", "set": {"push": True}},
    ]
    await tools(tool, plan=plan, changes=changes)
    made = tools.configuration(plan)
    jobs = {job["id"]: job for job in made["jobs"]}
    assert (jobs["c"]["needs"], jobs["b"]["needs"], jobs["b"]["priority"]) == (["g/a"], ["c"], 4)
    assert made["push"] is True
    said = await tools.refused(tool, plan=plan, changes=[{"op": "twist", "id": "b"}, {"op": "remove", "id": "bb"}])
    assert "changes[0].op: must be one of add, remove" in said
    assert "changes[1].id: there is no job 'bb'; did you mean 'b'?" in said


@check("step", "resolve_conflict")
async def says_how_far_to_go(tools: Bench, tool: str) -> None:
    jobs = [{"id": one, "work": f"echo {one} > same.txt"} for one in ("a", "b")]
    plan = (await tools("create_plan", name="Met", target="met", resolver="fail", jobs=jobs))["plan"]
    await tools.ended(plan, "failed")
    job = next(one["id"] for one in (await tools("list_jobs", plan=plan))["jobs"] if one["status"] == "failed")
    opened = await tools(tool, plan=plan, job=job)
    assert "<<<<<<< job" in (Path(opened["folder"]) / "same.txt").read_text()
    assert opened["next"].endswith(f'resolve_conflict(plan="{plan}", job="{job}", step="continue").')
    assert "same.txt has conflict markers" in await tools.refused(tool, plan=plan, job=job, step="continue")
    assert "folder" not in await tools(tool, plan=plan, job=job, step="abort")
    assert "step: must be 'open', 'continue' or 'abort'" in await tools.refused(tool, plan=plan, job=job, step="twist")
