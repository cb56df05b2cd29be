"""Every field of every tool has an effect or is refused; a field that is new and has no test here fails the suite.

What is part of a plan is compared with what the plan file's own parser makes of it: it has to arrive at the engine.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from typing import Any

import pytest

from orchard.errors import InvalidInput
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.model.plan_codec import plan_json, work_json
from orchard.planfile import parse
from tests.mcp.fieldwalk import SAME_ANYWAY, SAMPLES, Place, every_place, value_at, with_base
from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio

CONFIG = """
agent = "fake"
[agents.fake]
command = "true {prompt_file} {model}"
model = "small"
[mcp_servers.docs]
command = "true"
"""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def still(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """An engine that takes plans and runs none of them, with a plan that stands there."""
    home = tmp_path_factory.mktemp("still")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("state", "config", "cache", "run"):
            (home / name).mkdir(mode=0o700)
        for name, folder in (
            ("STATE_HOME", "state"),
            ("CONFIG_HOME", "config"),
            ("CACHE_HOME", "cache"),
            ("RUNTIME_DIR", "run"),
        ):
            patch.setenv(f"XDG_{name}", str(home / folder))
        patch.setenv("HOME", str(home))
        patch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
        (home / "config" / "orchard").mkdir()
        (home / "config" / "orchard" / "config.toml").write_text(CONFIG)
        async with bench(home / "repo", work=False) as made:
            (made.repo.path / "sub").mkdir()
            await made("create_plan", name="Standing", jobs=[{"id": "first", "work": "true"}])
            yield made


PLACES = every_place()
FIRST = {"id": "first", "work": "true"}


def parsed(value: Json, *, scaffolding: bool = False) -> Json:
    return plan_json(parse.parse_value(deepcopy(value), scaffolding=scaffolding))


def job_of(plan: Json, name: str) -> Json:
    found: Json = next(job for job in plan["jobs"] if job["id"] == name or job["id"].endswith(f"/{name}"))
    return found


# ------------------------------------------------------------------------- parts of a plan

Arrived = tuple[Any, Any]
"""What the engine has, and what the plan file's parser makes of the same."""


async def by_create_plan(tools: Bench, given: Json) -> Arrived:
    value = {"name": "Tried", "jobs": [FIRST], **given}
    if "jobs" in given:
        value["jobs"] = [FIRST, *given["jobs"]]
    made = await tools("create_plan", **deepcopy(value))
    return tools.configuration(made["plan"]), settled(tools, parsed(value))


async def by_scaffold_plan(tools: Bench, given: Json) -> Arrived:
    value = {"name": "Tried", **given}
    made = await tools("scaffold_plan", **deepcopy(value))
    return tools.configuration(made["plan"]), settled(tools, parsed(value, scaffolding=True))


def settled(tools: Bench, plan: Json) -> Json:
    """What the engine fills in when it takes a plan."""
    after = {"after": tools.served.app.find_plan(plan["after"])} if "after" in plan else {}
    return {"max_parallel": 4, "resolver": "agent", **plan, **after}


async def by_add_job(tools: Bench, given: Json) -> Arrived:
    plan = (await tools("create_plan", name="Tried", jobs=[FIRST]))["plan"]
    job = with_base("Job", given)
    answer = await tools("add_job", plan=plan, **deepcopy(job))
    return tools.configuration(plan)["jobs"][-1], parsed({"name": "x", "jobs": [FIRST, job]})["jobs"][-1] | {
        "id": answer["jobs"][0]
    }


async def by_add_jobs(tools: Bench, given: Json) -> Arrived:
    plan = (await tools("create_plan", name="Tried", jobs=[FIRST]))["plan"]
    await tools("add_jobs", plan=plan, **deepcopy(given))
    return tools.configuration(plan)["jobs"], parsed({"name": "x", "jobs": [FIRST, *given["jobs"]]})["jobs"]


async def by_reshape_plan(tools: Bench, given: Json) -> Arrived:
    plan = (await tools("create_plan", name="Tried", jobs=[FIRST]))["plan"]
    change = {"op": "add", **given["changes"][0]}
    await tools("reshape_plan", plan=plan, changes=[deepcopy(change)])
    return tools.configuration(plan)["jobs"], parsed({"name": "x", "jobs": [FIRST, change["job"]]})["jobs"]


async def by_create_job(tools: Bench, given: Json) -> Arrived:
    value = {"name": "Tried", "jobs": [FIRST, *given["jobs"]]} if "jobs" in given else with_base("Job", given)
    made = await tools("create_job", **deepcopy(value))
    around: Json = {
        name: value.pop(name)
        for name in ("base", "target", "land", "verify", "budget", "start_paused")
        if name in value
    }
    jobs = value["jobs"] if "jobs" in given else [value]
    wanted = parsed({"name": value.get("name", value.get("id")), **around, "jobs": jobs})
    return tools.configuration(made["plan"]), settled(tools, wanted)


async def by_update_plan(tools: Bench, given: Json) -> Arrived:
    plan = (await tools("create_plan", name="Tried", jobs=[FIRST]))["plan"]
    answer = await tools("update_plan", plan=plan, **deepcopy(given))
    assert answer["updated"] == sorted(given)
    return tools.configuration(plan), settled(tools, parsed({"name": "Tried", "jobs": [FIRST], **given}))


async def by_clone_plan(tools: Bench, given: Json) -> Arrived:
    plan = (await tools("create_plan", name="Tried", jobs=[FIRST]))["plan"]
    made = await tools("clone_plan", plan=plan, **deepcopy(given))
    return tools.configuration(made["plan"]), settled(tools, parsed({"name": "Tried", "jobs": [FIRST], **given}))


async def by_update_job(tools: Bench, given: Json) -> Arrived:
    given = {"task": "Do it", **given} if "agent" in given else given
    new = {"id": "new", "work": "true"}
    plan = (await tools("create_plan", name="Tried", jobs=[FIRST, new]))["plan"]
    answer = await tools("update_job", plan=plan, job="new", **deepcopy(given))
    assert answer["updated"] == sorted(given)
    wanted = with_base("Job", {"id": "new", **given})
    return tools.configuration(plan)["jobs"], parsed({"name": "Tried", "jobs": [FIRST, wanted]})["jobs"]


async def by_retry(tools: Bench, given: Json, tool: str) -> Arrived:
    plan = (await tools("create_plan", name="Tried", jobs=[FIRST]))["plan"]
    await tools("force_fail_job", plan=plan, job="first")
    which = {"job": "first"} if tool == "retry_job" else {"jobs": ["first"]}
    await tools(tool, plan=plan, **which, **deepcopy(given))
    job = tools.served.app.run_of(PlanId(plan)).job(JobId("first"))
    wanted = parse.parse_value({"name": "x", "jobs": [{**FIRST, **given}]}).jobs[JobId("first")]
    works = [(job.work, *job.prechecks, *job.postchecks), (wanted.work, *wanted.prechecks, *wanted.postchecks)]
    found = [[work_json(work) for work in one if work is not None] for one in works]
    return found[0], found[1]


async def by_retry_job(tools: Bench, given: Json) -> Arrived:
    return await by_retry(tools, given, "retry_job")


async def by_retry_plan(tools: Bench, given: Json) -> Arrived:
    return await by_retry(tools, given, "retry_plan")


async def by_resume_plan(tools: Bench, given: Json) -> Arrived:
    plan = (await tools("create_plan", name="Tried", start_paused=True, jobs=[FIRST]))["plan"]
    await tools("resume_plan", plan=plan, **deepcopy(given))
    return tools.configuration(plan).get("budget"), parsed({"name": "x", "jobs": [FIRST], **given})["budget"]


ARRIVING: dict[str, Callable[[Bench, Json], Awaitable[Arrived]]] = {
    "create_plan": by_create_plan, "scaffold_plan": by_scaffold_plan, "add_job": by_add_job, "add_jobs": by_add_jobs,
    "reshape_plan": by_reshape_plan, "create_job": by_create_job, "update_plan": by_update_plan,
    "update_job": by_update_job, "retry_job": by_retry_job, "retry_plan": by_retry_plan,
    "resume_plan": by_resume_plan, "clone_plan": by_clone_plan,
}  # fmt: skip

OWNERS: dict[str, dict[str, str]] = {
    "create_plan": {"": "Plan"},
    "scaffold_plan": {"": "Plan"},
    "update_plan": {"": "Plan"},
    "clone_plan": {"": "Plan"},
    "add_job": {"": "Job"},
    "update_job": {"": "Job"},
    "create_job": {"": "Job"},
}
"""Tools whose own fields are those of a plan or of a job."""


def sample_of(place: Place) -> str | None:
    """The name of the plan model's field that this one is, None for a field that is the tool's own."""
    if place.owner and place.owner != "change":
        return f"{place.owner}.{place.field}"
    if place.owner == "change" or place.field in ("plan", "job", "idempotency_key", "scaffolding"):
        return None
    owner = OWNERS.get(place.tool, {}).get("")
    around = ("base", "target", "land", "verify", "budget", "start_paused", "jobs")
    if place.tool == "create_job" and place.field in around:
        owner = "Plan"
    return f"{owner}.{place.field}" if owner else None


OF_PLANS = [place for place in PLACES if sample_of(place) is not None]
OF_TOOLS = [place for place in PLACES if sample_of(place) is None]

NOT_THERE = {
    ("scaffold_plan", "Agent.interactive"): "interactive",
    ("update_plan", "Agent.interactive"): "interactive",
    ("clone_plan", "Agent.interactive"): "interactive",
}
"""What the engine refuses on the only way that leads there, and a word of the refusal."""


@pytest.mark.parametrize("place", OF_PLANS, ids=str)
async def test_a_field_of_a_plan_arrives_at_the_engine(still: Bench, place: Place) -> None:
    name = sample_of(place)
    assert name is not None
    assert name in SAMPLES, f"{name} is new: give it a value in SAMPLES"
    given = value_at(place.way, deepcopy(SAMPLES[name]))
    if (place.tool, name) in NOT_THERE:
        with pytest.raises(AssertionError, match=NOT_THERE[place.tool, name]):
            await ARRIVING[place.tool](still, given)
        return

    has, wanted = await ARRIVING[place.tool](still, given)

    assert has == wanted
    if name in SAME_ANYWAY:
        wrong = value_at(place.way, "nonsense")
        with pytest.raises(AssertionError, match="nonsense"):
            await ARRIVING[place.tool](still, wrong)
    else:
        assert differs(place, name, wanted), f"{name} says nothing that would not hold without it"


def differs(place: Place, name: str, wanted: Any) -> bool:
    """Whether the sample is seen in what the plan's parser makes of it."""
    owner, _, field = name.partition(".")
    whole = {"name": "n", "jobs": [FIRST]}
    try:
        return _shape(owner, {field: SAMPLES[name]}, whole) != _shape(owner, {}, whole)
    except InvalidInput:
        return True  # it cannot be left out


def _shape(owner: str, fields: Json, whole: Json) -> Json:
    way: dict[str, Callable[[Json], Json]] = {
        "Plan": lambda value: {**whole, **value},
        "Budget": lambda value: {**whole, "budget": value},
        "Job": lambda value: {**whole, "jobs": [FIRST, value_at((("part", "Job"),), value)]},
        "Group": lambda value: {**whole, "groups": [value_at((("part", "Group"),), value)]},
        "OnFailure": lambda value: {**whole, "verify": {"command": "true", "on_failure": value}},
    }
    work: Callable[[Json], Json] = lambda value: {**whole, "verify": value_at((("part", owner),), value)}  # noqa: E731
    return parsed(way.get(owner, work)(fields))


def test_every_own_field_has_a_test() -> None:
    from tests.mcp.test_tools_own_fields import CHECKS

    missing = [
        str(place) for place in OF_TOOLS if (place.tool, place.field) not in CHECKS and ("*", place.field) not in CHECKS
    ]

    assert not missing, "these fields are new: give each a check in CHECKS"


def test_every_field_is_looked_at() -> None:
    assert len(OF_PLANS) > 400
    assert {place.tool for place in OF_PLANS} == set(ARRIVING)
    assert len({str(place) for place in PLACES}) == len(PLACES)
