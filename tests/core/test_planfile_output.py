"""A plan that is written as a plan file is read as the same plan."""

import json

import pytest
from hypothesis import assume, given, settings
from msgspec.structs import replace

from orchard.model.plan import Plan
from orchard.planfile.output import plan_fields, plan_file
from orchard.planfile.parse import parse
from tests.core.strategies import plans


def has_clear_needs(plan: Plan) -> bool:
    """Whether no job needs one outside of its group that is called as one inside of it is."""
    return not [
        need for job in plan.jobs.values() for need in job.needs
        if job.group and "/" not in need and any(f"{part}/{need}" in plan.jobs for part in parents(job.group))
    ]  # fmt: skip


def parents(group: str) -> list[str]:
    parts = group.split("/")
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


@settings(deadline=None)
@given(plans())
def test_any_plan_comes_back_from_its_file_as_it_was(plan: Plan) -> None:
    assume(has_clear_needs(plan))

    assert parse(plan_file(plan).encode()) == plan
    assert parse(json.dumps(plan_fields(plan)).encode(), "plan.json") == plan


WRITTEN = """\
name: Add login
target: feature/login
verify: make test
env:
  DEBUG: "1"
jobs:

  - id: models
    work: "@agent Add a User model: hashed"

  - id: docs
    group: texts
    needs: [models]
    work: |
      set -e
      make docs
    postchecks:
      - test -s docs/index.html
      - type: process
        executable: "true"
    timeout: 90
"""


def test_a_plan_file_is_written_as_people_write_it() -> None:
    plan = parse(WRITTEN.encode())

    assert plan_file(plan) == WRITTEN


@pytest.mark.parametrize(
    "text", ["no", "1:30", "a: b", "# x", "- x", "null", "'", '"', "é", " x ", "a\nb ", "\u2028x", "0x1", "%a", "[a"]
)
def test_texts_that_yaml_reads_as_something_else_are_quoted(text: str) -> None:
    plan = parse(
        json.dumps({"name": "p", "jobs": [{"id": "a", "work": "true", "env": {"X": text}}]}).encode(), "p.json"
    )

    assert parse(plan_file(plan).encode()) == plan


def test_parameters_are_put_in_and_not_declared_again() -> None:
    plan = parse(
        b"name: p ${{ v }}\nparams: {v: 1}\njobs: [{id: a, work: 'echo ${{ v }} $${{ v }} ${{ github.ref }}'}]"
    )

    again = parse(plan_file(plan).encode())

    assert again == replace(plan, params={})
    assert "params" not in plan_file(plan) and "echo 1 $${{ v }} ${{ github.ref }}" in plan_file(plan)
