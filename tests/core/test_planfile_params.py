"""Parameters of a plan: what is put in where, what is left as it is, and what is refused."""

import pytest
from msgspec.structs import replace

from orchard.errors import InvalidInput
from orchard.model.plan import JobId, ShellWork, part_of
from orchard.model.plan_codec import plan_from_json, plan_json
from orchard.planfile.output import plan_file
from orchard.planfile.parse import parse, parse_value

PLAN = """
name: Release ${{ version }}
target: release/${{ version }}
params:
  version: 1.10
  loud: true
  who:
env: {VERSION: "${{version}}"}
jobs:
  - id: tag
    work: echo ${{ who }} ${{ loud }} $${{ who }} ${{ github.ref }}
"""


def test_values_are_put_into_every_text_as_they_were_written() -> None:
    plan = parse(PLAN.encode(), params={"who": "Ada"})

    assert (plan.name, plan.target, plan.env) == ("Release 1.10", "release/1.10", {"VERSION": "1.10"})
    work = plan.jobs[JobId("tag")].work
    assert isinstance(work, ShellWork) and work.command == "echo Ada true ${{ who }} ${{ github.ref }}"
    assert plan.params == {"version": "1.10", "loud": "true", "who": "Ada"}
    assert plan_from_json(plan_json(plan)) == plan


def test_a_name_in_a_plan_without_parameters_is_refused_and_the_text_itself_can_be_written() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(b"name: x\njobs: [{id: a, work: 'echo ${{ who }}'}]")
    plan = parse(b"name: x\njobs: [{id: a, work: 'echo $${{ who }} ${{ github.ref }}'}]")

    said = "there is no parameter 'who'; name it in 'params', or write '$${{ who }}' for the text '${{ who }}' itself"
    assert str(refused.value.problems[0]) == f"plan.yaml:2:22 jobs[0].work: {said}"
    work = plan.jobs[JobId("a")].work
    assert isinstance(work, ShellWork) and work.command == "echo ${{ who }} ${{ github.ref }}"


@pytest.mark.parametrize("text", ["echo ${{ who }}", "echo $${{ who }}", "echo $$${{who}} ${{ a.b }} $${{"])
def test_a_text_that_looks_like_a_parameter_comes_back_from_a_plan_file(text: str) -> None:
    plan = parse(b"name: x\njobs: [{id: a, work: 'true'}]")
    job = replace(plan.jobs[JobId("a")], work=ShellWork(command=text))

    again = parse(plan_file(replace(plan, jobs={**plan.jobs, JobId("a"): job})).encode())

    assert again.jobs[JobId("a")].work == ShellWork(command=text)


WRONG = [
    ({}, "plan.yaml:7:3 params.who: has no default"),
    ({"who": "a", "vresion": "2"}, "there is no parameter 'vresion'; did you mean 'version'?"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_a_value_that_is_missing_or_unknown_is_refused_with_its_place(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(PLAN.encode(), params=given)

    assert said in str(refused.value.problems[0])


def test_an_unknown_name_in_a_text_is_refused_where_it_stands() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(PLAN.replace("${{ loud }}", "${{ loudd }}").encode(), params={"who": "a"})

    said = str(refused.value.problems[0])
    assert said == "plan.yaml:11:11 jobs[0].work: there is no parameter 'loudd'; did you mean 'loud'?"


@pytest.mark.parametrize("params", [{"a b": "x"}, {"a": [1]}, {"a": None}, [], "x"])
def test_odd_parameters_are_refused_from_programs_too(params: object) -> None:
    with pytest.raises(InvalidInput):
        parse_value({"name": "x", "params": params, "jobs": [{"id": "a", "work": "true"}]})


def test_a_value_for_a_plan_that_has_no_parameters_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(b"name: x\njobs: [{id: a, work: 'true'}]", params={"who": "Ada"})

    assert "has no 'params'" in str(refused.value.problems[0])


def test_a_part_of_a_plan_has_what_it_needs_and_lands_what_is_left() -> None:
    rows = [("a", ""), ("b", "a"), ("c", "b"), ("d", "a")]
    jobs = ", ".join(f"{{id: {job}, work: 'true', needs: [{need}]}}" for job, need in rows)
    plan = parse(f"name: x\njobs: [{jobs}]".encode())

    part = part_of(plan, [JobId("b")])

    assert list(part.jobs) == ["a", "b", "__snapshot-validation__"]
    assert part.leaves == ("b",)
