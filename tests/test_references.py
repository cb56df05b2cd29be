"""What is written from the table of operations for people and other programs."""

import re

from tools.tool_reference import PAGE, page
from tools.typescript_types import types

from orchard.surfaces.http.openapi import document
from orchard.surfaces.http.operations import ROUTES


def test_the_reference_of_tools_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_typescript_types_hold_every_operation_and_name_only_what_they_declare() -> None:
    made = types(document())

    declared = set(re.findall(r"^export (?:interface|type) (\w+)", made, re.MULTILINE))
    plain = re.sub(r'/\*\*.*?\*/|//[^\n]*|"(?:[^"\\]|\\.)*"', "", made, flags=re.DOTALL)
    named = set(re.findall(r"\b[A-Z]\w+", plain)) - {"Record", "OPERATIONS"}
    assert named == declared
    for one in ROUTES:
        assert f'  {one.name}: {{ method: "{one.method}", path: "{one.path}", operation: "' in made
    assert not re.search(r"\bany\b", plain)
    assert "  status: " in made[made.index("export interface PlanSummary {") :]


def test_a_field_that_may_be_left_out_and_one_that_may_be_null_are_different_types() -> None:
    row = {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "b": {"type": "array", "items": {"enum": ["x", "y"]}},
            "c": {"type": "object", "additionalProperties": {"type": "boolean"}},
        },
    }

    made = types({"components": {"schemas": {"Row": row}}, "paths": {}})

    assert "  a: number | null;\n" in made
    assert '  b?: ("x" | "y")[];\n' in made
    assert "  c?: Record<string, boolean>;\n" in made
