"""Changing a graph under way: all of the changes or none."""

from typing import Any

import pytest

from orchard.errors import InvalidInput, UsageError
from orchard.model.plan import VALIDATION, Job, JobId, Plan, ShellWork, with_validation
from orchard.planfile.reshape import reshape


def plan(**needs: str) -> Plan:
    jobs = {
        JobId(name): Job(
            id=JobId(name), name=name, needs=tuple(JobId(n) for n in wanted.split()), work=ShellWork(command="true")
        )
        for name, wanted in needs.items()
    }
    return with_validation(Plan(name="p", jobs=jobs))


def edges(shaped: Plan) -> dict[str, list[str]]:
    return {job.id: list(job.needs) for job in shaped.jobs.values()}


def test_a_new_job_becomes_a_leaf_that_the_validation_job_needs() -> None:
    shaped = reshape(plan(a="", b="a"), (), [{"op": "add", "job": {"id": "c", "needs": ["a"], "work": "true"}}])
    assert edges(shaped) == {"a": [], "b": ["a"], "c": ["a"], VALIDATION: ["b", "c"]}


def test_removing_a_job_bridges_its_edges() -> None:
    shaped = reshape(plan(a="", x="", b="a x", c="b"), (), [{"op": "remove", "id": "b"}])
    assert edges(shaped)["c"] == ["a", "x"]


def test_a_job_put_before_another_takes_over_its_needs() -> None:
    changes = [{"op": "add_before", "id": "b", "job": {"id": "n", "work": "true"}}]
    shaped = reshape(plan(a="", b="a"), {JobId("a")}, changes)
    assert edges(shaped) == {"a": [], "n": ["a"], "b": ["n"], VALIDATION: ["b"]}


def test_a_job_put_after_another_takes_over_what_needed_it() -> None:
    changes = [{"op": "add_after", "id": "a", "job": {"id": "n", "work": "true"}}]
    shaped = reshape(plan(a="", b="a", c="a"), {JobId("a")}, changes)
    assert edges(shaped) == {"a": [], "n": ["a"], "b": ["n"], "c": ["n"], VALIDATION: ["b", "c"]}


def test_changes_may_pass_through_a_graph_that_would_be_wrong_by_itself() -> None:
    changes = [{"op": "set_needs", "id": "a", "needs": ["b"]}, {"op": "set_needs", "id": "b", "needs": []}]
    assert edges(reshape(plan(a="", b="a"), (), changes))["a"] == ["b"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([{"op": "remove", "id": "a"}], "has started"),
        ([{"op": "remove", "id": "nope"}], "no job 'nope'"),
        ([{"op": "remove", "id": VALIDATION}], "by itself"),
        ([{"op": "set_needs", "id": "b", "needs": ["c"]}], "circular dependency: b -> c -> b"),
        ([{"op": "set_needs", "id": "b", "needs": "c"}], "list of job ids"),
        ([{"op": "set_needs", "id": "b", "needs": ["zz"]}], "no job 'zz'"),
        ([{"op": "add", "job": {"id": "b", "work": "true"}}], "'b'"),
        ([{"op": "add", "job": {"id": "Bad Id"}}], "id"),
        ([{"op": "ad", "job": {}}], "did you mean 'add'?"),
        ([{"op": "remove"}], "needs the field 'id'"),
        ([{"op": "remove", "id": "b", "force": True}], "unknown field 'force'"),
        (["remove b"], "must be an object"),
        ([{"op": "remove", "id": "b"}, {"op": "remove", "id": "c"}, {"op": "remove", "id": "d"}], "no job 'd'"),
    ],
)
def test_a_bad_change_is_refused_with_a_reason(changes: list[Any], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        reshape(plan(a="", b="a", c="b"), {JobId("a")}, changes)
    assert words in caught.value.message


def test_every_problem_is_reported_at_once() -> None:
    changes = [{"op": "remove", "id": "x"}, {"op": "remove", "id": "y"}]
    with pytest.raises(InvalidInput) as caught:
        reshape(plan(a=""), (), changes)
    assert len(caught.value.problems) == 2


def test_a_plan_keeps_at_least_one_job() -> None:
    with pytest.raises(InvalidInput, match="at least one job"):
        reshape(plan(a=""), (), [{"op": "remove", "id": "a"}])


def test_an_empty_list_is_no_reshape() -> None:
    with pytest.raises(UsageError, match="at least one change"):
        reshape(plan(a=""), (), [])
