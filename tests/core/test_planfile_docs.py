"""The documentation and the schema say what the parser does."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields

from orchard.model import plan
from orchard.model.phases import Phase
from orchard.planfile import fields as planmodel
from orchard.planfile.forms import HIDDEN
from orchard.planfile.parse import parse, schema
from orchard.planfile.values import PhaseName

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "plan-file.md"
BLOCKS = re.findall(r"^```(yaml|json|toml)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_is_what_the_models_say() -> None:
    command = [sys.executable, str(TOP / "tools" / "plan_reference.py"), "--check"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("language", "text"), BLOCKS)
def test_every_example_of_the_page_is_a_plan(language: str, text: str) -> None:
    assert parse(text.encode(), f"example.{language}").in_order


def test_the_page_has_examples_of_all_formats() -> None:
    assert {language for language, _ in BLOCKS} == {"yaml", "json", "toml"}


def test_the_schema_is_json_and_describes_every_field() -> None:
    made = json.loads(json.dumps(schema()))

    objects: list[dict[str, Any]] = [made, *made["$defs"].values()]
    assert made["required"] == ["name"]
    assert "\0" not in json.dumps(made)
    for shape in objects:
        assert shape["additionalProperties"] is False
        for name, field in shape["properties"].items():
            assert field.get("description") or "$ref" in field, name
            assert "title" not in field
    assert not any(hidden in json.dumps(made) for hidden in HIDDEN)


PAIRS: list[tuple[type[planmodel.Fields], type[Any]]] = [
    (planmodel.PlanFields, plan.Plan),
    (planmodel.JobFields, plan.Job),
    (planmodel.ShellFields, plan.ShellWork),
    (planmodel.ProcessFields, plan.ProcessWork),
    (planmodel.AgentFields, plan.AgentWork),
    (planmodel.OnFailureFields, plan.OnFailure),
    (planmodel.BudgetFields, plan.Budget),
]


@pytest.mark.parametrize(("model", "value"), PAIRS)
def test_every_field_that_can_be_written_can_be_meant(model: type[planmodel.Fields], value: type[Any]) -> None:
    # What an agent may use is written in three fields, and is one value.
    written = set(model.model_fields) - {"groups", "type", *HIDDEN, "deny_tools", "ask_tools"}
    written -= {"agent"} if value is plan.Job else set()  # means its work

    assert written == {spec.name for spec in fields(value)}


@pytest.mark.parametrize(("model", "value"), PAIRS)
def test_the_documented_default_is_the_real_one(model: type[planmodel.Fields], value: type[Any]) -> None:
    plain = {"true": True, "false": False, "0": 0, "[]": (), "{}": {}, '""': "", "auto": "auto", "squash": "squash"}

    for spec in fields(value):
        extra = model.model_fields[spec.name].json_schema_extra
        absent = extra["x-absent"] if isinstance(extra, dict) else None
        if isinstance(absent, str) and absent in plain and spec.name != "jobs":
            real = spec.default_factory() if spec.default_factory is not NODEFAULT else spec.default
            assert real == plain[absent], spec.name


def test_every_phase_can_be_named() -> None:
    assert list(get_args(PhaseName)) == [phase.value for phase in Phase]
