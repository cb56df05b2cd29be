"""What a plan file says about tools: words, lists, on jobs and works, and what is wrong with them."""

import pytest

from orchard.errors import InvalidInput
from orchard.model.permissions import ALL, made
from orchard.model.plan import AgentWork, Job, JobId, Plan
from orchard.model.plan_codec import plan_from_json, plan_json
from orchard.planfile.parse import parse, parse_job_update

PLAN = """
name: p
jobs:
  - id: a
    tools: {job}
    work: {{instructions: do it, tools: {work}, deny_tools: [Bash, "mcp__x__*"], ask_tools: [git_commit]}}
"""


def parsed(job: str = "edit", work: str = "[Read, bash]") -> Plan:
    return parse(PLAN.format(job=job, work=work).encode())


def test_a_job_and_its_work_say_what_agents_may_use() -> None:
    job = parsed().jobs[JobId("a")]

    assert job.tools == made("edit")
    assert isinstance(job.work, AgentWork)
    assert job.work.tools == made(["read_file", "bash"], ["bash", "mcp__x__*"], ["git_commit"])


def test_the_journal_gives_them_back() -> None:
    plan = parsed()
    assert plan_from_json(plan_json(plan)) == plan
    assert "tools" not in plan_json(parsed("all"))["jobs"][0]


def test_what_is_not_said_takes_nothing_away() -> None:
    plan = parse(b"name: p\njobs: [{id: a, work: '@agent do it'}]")
    job = plan.jobs[JobId("a")]
    assert job.tools == ALL
    assert isinstance(job.work, AgentWork) and job.work.tools == ALL


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("edits", "must be one of read-only, edit, all, ask, or a list of tools"),
        ("3", "must be read-only, edit, all or ask, or a list of tools"),
        ("[Read-Only]", "must be written as 'read-only'"),
        ('["Bash(git log:*)"]', "must be the name of a tool, or its beginning and '*'"),
        ("", "is empty"),
    ],
)
def test_what_cannot_be_meant_is_told_where_it_stands(said: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed(job=said)
    problem = next(one for one in caught.value.problems if one.path == "jobs[0].tools")
    assert message in problem.message
    assert problem.line == 5


def test_only_agents_have_tools() -> None:
    with pytest.raises(InvalidInput, match="tools"):
        parse(b"name: p\njobs: [{id: a, work: {command: ls, tools: edit}}]")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"deny_tools": ["bash"]}, made(["edit", "ask"], ["bash"], ["git_add"])),
        ({"tools": "read-only"}, made("read-only", ["git_*"], ["git_add"])),
        ({"tools": "ask"}, made("ask", ["git_*"], ["git_add"])),
        ({"ask_tools": []}, made(["edit", "ask"], ["git_*"])),
        ({"task": "new"}, made(["edit", "ask"], ["git_*"], ["git_add"])),
    ],
)
def test_an_update_changes_only_what_it_names(given: dict[str, object], found: object) -> None:
    old = Job(id=JobId("a"), name="a", tools=made(["edit", "ask"], ["git_*"], ["git_add"]))
    assert parse_job_update(given, old, [JobId("a")], "job").tools == found
