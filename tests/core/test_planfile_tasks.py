"""A job that says its task and its agent instead of a work, and what a plan says that it is for."""

import pytest

from orchard.errors import InvalidInput
from orchard.model.plan import AgentWork, JobId
from orchard.planfile.parse import parse_value
from orchard.planfile.reshape import reshape


def job(**fields: object) -> dict[str, object]:
    return {"name": "p", "jobs": [{"id": "a", **fields}]}


@pytest.mark.parametrize(
    ("given", "agent"), [("claude", "claude"), ("@claude", "claude"), ("agent", None), ("@agent", None)]
)
@pytest.mark.parametrize("name", ["task", "description"])
def test_a_task_with_an_agent_is_agent_work_with_that_text(name: str, given: str, agent: str | None) -> None:
    made = parse_value(job(**{name: "Write a", "agent": given})).jobs[JobId("a")]
    assert made.work == AgentWork(instructions="Write a", agent=agent)
    assert made.task == "Write a"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"agent": "claude"}, "'agent' needs a 'task'"),
        ({"agent": "claude", "task": "  "}, "'agent' needs a 'task'"),
        ({"agent": "claude", "task": "x", "work": "true"}, "'agent' and 'work' are both given"),
        ({"task": "x", "description": "y"}, "description"),
    ],
)
def test_an_agent_with_two_tasks_or_none_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_value(job(**fields))
    assert said in str(error.value.problems)


def test_a_task_without_an_agent_is_for_people_only() -> None:
    assert parse_value(job(task="Gather")).jobs[JobId("a")].work is None


def test_an_update_can_give_a_job_to_an_agent_and_a_plan_another_description() -> None:
    plan = parse_value({"description": "Before", **job(work="true")})
    assert plan.description == "Before"
    changes = [
        {"op": "update", "id": "a", "set": {"task": "Write a", "agent": "codex"}},
        {"op": "update_plan", "set": {"description": "After"}},
    ]
    new = reshape(plan, [], changes)
    assert new.jobs[JobId("a")].work == AgentWork(instructions="Write a", agent="codex")
    assert new.description == "After"


@pytest.mark.parametrize("where", ["jobs", "nodes"])
def test_the_jobs_of_a_plan_and_of_its_groups_may_be_called_nodes(where: str) -> None:
    group = {"name": "g", where: [{"id": "b", "work": "true", "needs": ["a"]}]}
    plan = parse_value({"name": "p", where: [{"producer_id": "a", "work": "true"}], "groups": [group]})
    assert [*plan.jobs][:2] == ["a", "g/b"] and plan.jobs[JobId("g/b")].needs == ("a",)


def test_problems_of_nodes_stand_where_they_were_written_and_both_names_at_once_are_refused() -> None:
    with pytest.raises(InvalidInput) as error:
        parse_value({"name": "p", "nodes": [{"id": "a", "wrok": "true", "needs": ["b"]}]})
    assert {one.path for one in error.value.problems} == {"nodes[0].wrok", "nodes[0].needs[0]"}
    with pytest.raises(InvalidInput, match="same field"):
        parse_value({"name": "p", "jobs": [{"id": "a"}], "nodes": [{"id": "b"}]})
    with pytest.raises(InvalidInput) as empty:
        parse_value({"name": "p", "nodes": []})
    assert [one.path for one in empty.value.problems] == ["nodes"]
