"""Whatever is given to a tool, the answer is an answer: never an exception, and never a change by what was refused."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.tool import Call, Tool
from tests.mcp.fieldwalk import BASES, SAMPLES, places, value_at
from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio

OURS = [tool for tool in toolbox.every_tool() if tool.toolset in ("core", "plans", "jobs", "groups")]
CALLS = 25

DEEP: Any = []
for _ in range(80):
    DEEP = [DEEP]

ODD: list[Any] = [
    None, True, False, 0, -1, 3.5, 1e308, float("inf"), float("nan"), 10**30, "", " ", "x", "nonesuch", "S", "a", "g",
    "-x", "../..", "a\0b", "\ud800", "é" * 300, "y" * 300_000, "{}", "[]", '{"type": "shell"}', '{"command": 5}',
    "[[[", "true", "12", "</invoke>", "@agent", "@agent do", [], [[]], [None], ["a", "a"], [{}], {}, {"id": "a"},
    {"": 1}, {"x": {}}, {"type": "agent"}, {"type": []}, {"op": "add"}, {"op": {}}, {"jobs": {}}, {"tokens": 0},
    {"minutes": "x"}, DEEP, {"id": "z", "needs": [None]}, {"id": "z", "needs": {"a": 1}}, [{"id": "z", "group": 5}],
    [{"name": "g", "groups": [5]}],
]  # fmt: skip


def arguments(tool: Tool, plan: str, dice: random.Random) -> Json:
    """Something like what the tool takes, with something odd in it somewhere."""
    made: Json = {}
    for place in dice.sample(places(tool), k=min(len(places(tool)), dice.randint(0, 5))):
        sample = SAMPLES.get(f"{place.owner}.{place.field}") if place.owner else dice.choice(["S", "a", 1])
        leaf = dice.choice(ODD) if dice.random() < 0.6 else sample
        whole = value_at(tuple(step for step in place.way if step[0] != "part" or step[1] in BASES), leaf)
        made.update(whole)
    if dice.random() < 0.7 and "plan" in tool.input.model_fields:
        made["plan"] = plan
    if dice.random() < 0.7 and "job" in tool.input.model_fields:
        made["job"] = "a"
    if dice.random() < 0.1:
        made[dice.choice(["", "x", "planId", "a b", "__class__"])] = dice.choice(ODD)
    return made | ({"timeout_s": 0} if tool.name == "wait_plan" else {})


@pytest.fixture
async def still(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo", work=False) as made:
        yield made


@pytest.mark.parametrize("scoped", [False, True], ids=["user", "agent"])
async def test_any_arguments_get_an_answer(still: Bench, scoped: bool) -> None:
    dice, plan = random.Random(5), ""
    for tool in OURS:
        for _ in range(CALLS):
            if plan not in [row.id for row in still.served.app.reader.plans()] or dice.random() < 0.05:
                plan = (await still("create_plan", name="S", jobs=[{"id": "a", "group": "g"}, {"id": "b"}]))["plan"]
            caller = still.with_(scope=Scope(PlanId(plan), JobId("b"), 1)) if scoped else still
            before = still.served.app.reader.last_seq()
            answer = await caller.answer(tool.name, **arguments(tool, plan, dice))
            assert answer.text
            assert answer.is_error == (answer.value is None)
            answer.text.encode(errors="strict" if "\ud800" not in answer.text else "replace")
            if tool.read_only or scoped or (answer.is_error and "refused:" in answer.text):
                assert still.served.app.reader.last_seq() == before, "what only reads, or is refused, changes nothing"
            if not answer.is_error and answer.value is not None:
                convert(answer.value, tool.output)


@pytest.mark.parametrize("given", [None, [], "x", 5, [("plan", "S")]])
async def test_arguments_that_are_no_object_are_refused(still: Bench, given: Any) -> None:
    call = Call(still.served)
    answer = await toolbox.call(call, still.selection, "list_plans", given)
    assert answer.is_error
    assert "must be an object" in answer.text
