"""Kinds of single values in a plan file: what each may be, and what its JSON Schema says of it."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, PlainValidator, StringConstraints, Tag, WithJsonSchema

from orchard.model import limits, permissions
from orchard.planfile import rules
from orchard.planfile.forms import MARK, form_of_list

Line = Annotated[
    str, StringConstraints(min_length=1, max_length=limits.NAME_LENGTH), AfterValidator(rules.checked_line)
]
Text = Annotated[str, StringConstraints(min_length=1), AfterValidator(rules.checked_text)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=limits.NAME_LENGTH), AfterValidator(rules.checked_ref)]
AgentName = Annotated[
    str, StringConstraints(min_length=1, max_length=limits.NAME_LENGTH), AfterValidator(rules.checked_agent)
]
Folder = Annotated[str, StringConstraints(min_length=1), AfterValidator(rules.checked_ref)]
Address = Annotated[str, StringConstraints(min_length=1), AfterValidator(rules.checked_url)]
Id = Annotated[
    str, AfterValidator(rules.checked_id), WithJsonSchema({"type": "string", "pattern": limits.JOB_ID_PATTERN})
]
Group = Annotated[str, AfterValidator(rules.checked_group)]
Seconds = Annotated[
    float,
    PlainValidator(rules.seconds),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)?s)?$", "minLength": 2},
            ]
        }
    ),
]
Heal = Annotated[
    bool | int,
    PlainValidator(rules.heal_value),
    WithJsonSchema({"oneOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 100}]}),
]
Environment = dict[
    Annotated[str, AfterValidator(rules.checked_environment_name)],
    Annotated[str, PlainValidator(rules.environment_value), WithJsonSchema({"type": ["string", "number"]})],
]
_ANY_TEXT = {"type": ["string", "number", "boolean", "null"]}
Params = Annotated[dict[str, str], WithJsonSchema({"type": "object", "additionalProperties": _ANY_TEXT})]
ToolName = {"type": "string", "pattern": f"^({permissions.ENTRY})$"}
ToolList = Annotated[
    list[str],
    PlainValidator(rules.tool_names),
    WithJsonSchema({"type": "array", "items": ToolName, "maxItems": permissions.MOST}),
]
ToolSet = Annotated[
    str | list[str],
    PlainValidator(rules.tool_set),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "string", "enum": [*permissions.MODES, permissions.ASK]},
                {"type": "array", "items": ToolName, "maxItems": permissions.MOST},
            ]
        }
    ),
]
Network = Annotated[
    Literal["on", "off"],
    PlainValidator(rules.switch),
    WithJsonSchema({"enum": ["on", "off", True, False]}),
]
Protected = Annotated[str, AfterValidator(rules.checked_cwd)]
Positive = Annotated[float, Field(gt=0)]
PhaseName = Literal["merge-fi", "setup", "prechecks", "work", "commit", "postchecks", "merge-ri"]
Needs = Annotated[
    Annotated[str, Tag(MARK + "one")] | Annotated[list[str], Tag(MARK + "list")], Discriminator(form_of_list)
]
