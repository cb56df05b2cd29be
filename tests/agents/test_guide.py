"""The guide for planners: its examples are plans, and its fields are those that the parser knows."""

import re

import pytest

from orchard.agents.prompts.plan import format_text, planning_guide
from orchard.model.plan import AgentWork, ShellWork
from orchard.planfile.fields import MODELS
from orchard.planfile.parse import parse

EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", planning_guide(), re.MULTILINE | re.DOTALL)


def test_there_are_examples_of_several_shapes() -> None:
    plans = [parse(example.encode(), "example.yaml") for example in EXAMPLES]

    assert len(plans) >= 3
    assert {len(plan.leaves) for plan in plans} and any(job.group for plan in plans for job in plan.jobs.values())
    works = [job.work for plan in plans for job in plan.jobs.values()]
    assert any(isinstance(work, AgentWork) for work in works) and any(isinstance(work, ShellWork) for work in works)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example).split("\n")[0])
def test_every_example_follows_the_advice(example: str) -> None:
    plan = parse(example.encode(), "example.yaml")

    assert plan.verify is not None
    for job in plan.jobs.values():
        assert not isinstance(job.work, AgentWork) or job.postchecks, job.id
        assert not isinstance(job.work, AgentWork) or job.work.instructions_file is None


def test_every_field_of_the_format_is_explained_once_for_each_form() -> None:
    told = format_text()

    rows = re.findall(r"^- `(\w+)` \(", told, re.MULTILINE)
    for model in MODELS:
        for name, field in model.model_fields.items():
            assert field.exclude or name in rows, (model, name)
            assert field.exclude or (field.description or "") in told, (model, name)
    assert "no_auto_heal" not in told


def test_the_guide_is_short_enough_to_be_a_part_of_a_prompt() -> None:
    assert "<!--" not in planning_guide()
    assert 8_000 < len(planning_guide()) < 24_000
