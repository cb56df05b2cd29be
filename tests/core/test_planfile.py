"""What a plan file means, once it is right."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings

from orchard.errors import InvalidInput
from orchard.model.phases import Phase
from orchard.model.plan import (
    VALIDATION,
    AgentWork,
    Budget,
    Job,
    JobId,
    OnFailure,
    Plan,
    ProcessWork,
    ShellWork,
    Work,
)
from orchard.model.plan_codec import plan_json
from orchard.planfile.document import read_document
from orchard.planfile.parse import parse, parse_jobs, parse_value, parse_work
from tests.core.strategies import plans


def job(fields: dict[str, Any]) -> Job:
    plan = parse_value({"name": "p", "jobs": [{"id": "a", **fields}]})
    return plan.jobs[JobId("a")]


def test_a_small_plan_means_what_it_says() -> None:
    text = b"""
name: Add login
target: feature/login
verify: make test
jobs:
  - id: models
    work: "@agent Add a User model"
  - id: api
    needs: [models]
    work: {type: agent, agent: claude, instructions: "# Login"}
    postchecks: pytest -q
"""

    plan = parse(text)

    assert (plan.name, plan.target, plan.base) == ("Add login", "feature/login", None)
    assert list(plan.jobs) == ["models", "api", VALIDATION]
    assert plan.jobs[JobId("models")].work == AgentWork(instructions="Add a User model")
    assert plan.jobs[JobId("models")].name == "models"
    assert plan.jobs[JobId("api")].needs == ("models",)
    assert plan.jobs[JobId("api")].work == AgentWork(agent="claude", instructions="# Login")
    assert plan.jobs[JobId("api")].postchecks == (ShellWork(command="pytest -q"),)
    assert plan.jobs[VALIDATION].work == ShellWork(command="make test")
    assert plan.leaves == ("api",)


def test_the_three_formats_say_the_same() -> None:
    yaml = b"name: p\njobs:\n- id: a\n  env: {V: 1.10, N: 2}\n  timeout: 1.5\n"
    json = b'{"name": "p", "jobs": [{"id": "a", "env": {"V": 1.10, "N": 2}, "timeout": 1.5}]}'
    toml = b'name = "p"\n[[jobs]]\nid = "a"\nenv = {V = 1.10, N = 2}\ntimeout = 1.5\n'

    found = [parse(yaml, "p.yml"), parse(json, "p.json"), parse(toml, "p.toml")]

    assert found[0] == found[1] == found[2]
    assert found[0].jobs[JobId("a")].env == {"V": "1.10", "N": "2"}


def test_a_file_without_a_known_suffix_is_recognized_by_how_it_begins() -> None:
    assert parse(b'  {"name": "p", "jobs": [{"id": "a"}]}', "-").name == "p"
    assert parse(b"name: q\njobs: [{id: a}]", "-").name == "q"
    assert parse(b'name = "r"\n[[jobs]]\nid = "a"', "-", "toml").name == "r"


def test_a_document_knows_where_its_values_and_keys_begin() -> None:
    document = read_document(b"name: p\njobs:\n  - id: a\n    needs:\n      - b\n", "p.yaml")

    assert document.value == {"name": "p", "jobs": [{"id": "a", "needs": ["b"]}]}
    assert document.position(()) == (1, 1)
    assert document.position(("jobs", 0)) == (3, 5)
    assert document.position(("jobs", 0, "needs", 0)) == (5, 9)
    assert document.position(("jobs", 0, "needs"), key=True) == (4, 5)
    assert document.position(("jobs", 1)) is None


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    assert parse(b"\xef\xbb\xbfname: p\r\njobs:\r\n- id: a\r\n").name == "p"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("make test", ShellWork(command="make test")),
        ("@agent  Do it\nwell ", AgentWork(instructions="Do it\nwell")),
        ("@claude Do it", AgentWork(instructions="Do it", agent="claude")),
        ("@ not an agent", ShellWork(command="@ not an agent")),
        ("@/x y", ShellWork(command="@/x y")),
        ({"command": "x", "shell": "bash"}, ShellWork(command="x", shell="bash")),
        ({"type": "shell", "command": "@agent x"}, ShellWork(command="@agent x")),
        ({"executable": "ls", "args": ["-l", ""]}, ProcessWork(executable="ls", args=("-l", ""))),
        ({"instructions": "x"}, AgentWork(instructions="x")),
        ({"instructionsFile": "t.md", "modelTier": "fast"}, AgentWork(instructions_file="t.md", tier="fast")),
        (
            {"command": "x", "cwd": "a/../b", "timeout": "1h30m", "env": {"A": 1, "B": 1.5, "C": "no"}},
            ShellWork(command="x", cwd="a/../b", timeout=5400.0, env={"A": "1", "B": "1.5", "C": "no"}),
        ),
        (
            {"command": "x", "on_failure": {"heal": False, "message": "m", "resume_from": "prechecks"}},
            ShellWork(command="x", on_failure=OnFailure(heal=False, message="m", resume_from=Phase.PRECHECKS)),
        ),
        (
            {"command": "x", "onFailure": {"noAutoHeal": True, "resumeFromPhase": "merge-fi"}},
            ShellWork(command="x", on_failure=OnFailure(heal=False, resume_from=Phase.MERGE_FI)),
        ),
    ],
)
def test_a_work_may_be_written_in_many_ways(written: object, meant: Work) -> None:
    found = parse_work(written, "setup[0]")

    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(3, 3.0), (0.5, 0.5), ("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("1d", 86400.0), ("0.25s", 0.25)],
)
def test_a_timeout_is_seconds_or_a_duration(written: object, seconds: float) -> None:
    assert job({"timeout": written}).timeout == seconds


def test_every_field_has_its_camel_case_and_its_older_name() -> None:
    plan = parse_value(
        {
            "name": "p",
            "baseBranch": "main",
            "target_branch": "t",
            "verifyRi": "true",
            "clean_up_successful_work": False,
            "worktreeInit": ["a", "b"],
            "resumeAfterPlan": "x",
            "maxParallel": 0,
            "startPaused": True,
            "jobs": [
                {"producer_id": "a"},
                {"producerId": "b", "dependencies": ["a"], "autoHeal": 3, "expectsNoChanges": True},
            ],
        }
    )

    assert (plan.base, plan.target, plan.cleanup, plan.after) == ("main", "t", False, "x")
    assert plan.verify == ShellWork(command="true")
    assert plan.setup == (ShellWork(command="a"), ShellWork(command="b"))
    assert (plan.max_parallel, plan.start_paused) == (0, True)
    second = plan.jobs[JobId("b")]
    assert (second.needs, second.heal, second.changes) == (("a",), 3, "forbidden")


def test_checks_and_setup_take_one_work_or_many() -> None:
    found = job({"prechecks": "a", "postchecks": ["b", {"command": "c"}], "setup": []})

    assert found.prechecks == (ShellWork(command="a"),)
    assert found.postchecks == (ShellWork(command="b"), ShellWork(command="c"))
    assert found.setup == ()
    assert job({}).setup is None


def test_a_bare_need_means_the_nearest_job_of_that_name() -> None:
    plan = parse_value(
        {
            "name": "p",
            "jobs": [{"id": "x"}, {"id": "y"}, {"id": "z", "group": "g/h", "needs": ["x", "y", "w"]}],
            "groups": [
                {"name": "g", "jobs": [{"id": "w"}], "groups": [{"name": "h", "jobs": [{"id": "x", "needs": "g/w"}]}]}
            ],
        }
    )

    assert plan.jobs[JobId("g/h/z")].needs == ("g/h/x", "y", "g/w")
    assert plan.jobs[JobId("g/h/x")].needs == ("g/w",)
    assert (plan.jobs[JobId("g/h/x")].group, plan.jobs[JobId("g/h/x")].name) == ("g/h", "x")


def test_groups_are_the_same_as_a_group_on_each_job() -> None:
    nested = {"name": "p", "groups": [{"name": "a", "groups": [{"name": "b", "jobs": [{"id": "x"}]}]}]}
    flat = {"name": "p", "jobs": [{"id": "x", "group": "a/b"}]}

    assert parse_value(nested) == parse_value(flat)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("y", "y"),
        ("=", "="),
        ("'12'", "12"),
        ("2026-01-01", "2026-01-01"),
    ],
)
def test_plain_words_are_read_as_yaml_1_2_does(written: str, value: str) -> None:
    plan = parse(f"name: {written}\njobs: [{{id: a}}]\n".encode())

    assert plan.name == value


@pytest.mark.parametrize("written", ["012", "0x1F", "0o17", "+5", "1.10", "1e3", "5", "-0", ".5"])
def test_numbers_in_an_environment_stay_as_they_were_written(written: str) -> None:
    plan = parse(f"name: p\nenv: {{V: {written}}}\njobs: [{{id: a}}]\n".encode())

    assert plan.env == {"V": written}


def test_heal_keeps_true_apart_from_one() -> None:
    assert job({"heal": True}).heal is True
    assert job({"heal": 1}).heal is not True
    assert job({"heal": 0}).heal is not False
    assert job({}).heal is None


def test_a_budget_may_name_some_of_its_limits() -> None:
    plan = parse_value({"name": "p", "jobs": [{"id": "a"}], "budget": {"tokens": 5, "cost": 1}})

    assert plan.budget == Budget(tokens=5, cost=1.0)


def test_new_jobs_may_need_known_jobs_and_each_other() -> None:
    known = [JobId("g/a"), JobId("b"), VALIDATION]

    made = parse_jobs([{"id": "x", "group": "g", "needs": ["a", "b"]}, {"id": "y", "needs": "g/x"}], known)

    assert [(new.id, new.needs) for new in made] == [("g/x", ("g/a", "b")), ("y", ("g/x",))]


def test_new_jobs_cannot_take_the_id_of_a_known_job_nor_need_the_validation_job() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_jobs([{"id": "b"}, {"id": "c", "needs": [VALIDATION]}], [JobId("b"), VALIDATION], "changes[0].job")

    assert [str(problem) for problem in refused.value.problems] == [
        "changes[0].job[0].id: the id 'b' is given twice; the plan has such a job",
        "changes[0].job[1].needs[0]: there is no job '__snapshot-validation__'",
    ]


def as_written(plan: Plan) -> dict[str, Any]:
    """A plan in the form of a plan file."""
    body = plan_json(plan)
    for entry in body["jobs"]:
        entry["id"] = entry["id"].rpartition("/")[2]
    return body


@settings(deadline=None)
@given(plans())
def test_any_plan_can_be_written_down_and_read_again(plan: Plan) -> None:
    # A bare need is looked for in the own group first: names that occur there too cannot be said from inside it.
    tops = {str(name) for name in plan.jobs if "/" not in name}
    assume(not any("/" in name and name.rpartition("/")[2] in tops for name in plan.jobs))

    assert parse_value(as_written(plan)) == plan


def test_packages_that_call_themselves_plugins_of_pydantic_do_not_run(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nplugin = None\n")
    facts = tmp_path / "planted-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[pydantic]\nplanted = planted:plugin\n")
    parse_one = "from orchard.planfile.parse import parse; parse(b'name: p\\njobs: [{id: a}]'); import sys; "
    code = f"{parse_one}print('importlib.metadata' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "False", "it takes longer to import than the models to build"
    assert not (tmp_path / "ran").exists()
