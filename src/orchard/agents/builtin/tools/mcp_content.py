"""What MCP servers tell about their tools, made fit for a model: names, descriptions, schemas and answers.

All of it was written by somebody else. A name may be anything, a schema may point to a page on the network or hold
an expression that takes for ever; a model's owner refuses a whole request for one tool that is described wrongly.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any

from orchard.agents.builtin.tool import Answer, Json, plain_answer, plain_text
from orchard.text import shortened

LONGEST_NAME = 64
LONGEST_DESCRIPTION = 4000
LARGEST_SCHEMA = 64 * 1024
DEEPEST_SCHEMA = 40

# Keys of a schema by what they hold: names with a schema each, schemas in a row, or one schema.
_MAPS = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_ROWS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ONES = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
     "unevaluatedItems", "unevaluatedProperties", "additionalItems"}
)  # fmt: skip
# An expression of a stranger would be run here, on what the model says; and a root of these is refused by models.
_DROPPED = frozenset(
    {"pattern", "patternProperties", "$id", "$schema", "$anchor", "$dynamicAnchor", "$recursiveAnchor"}
)
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class BadTool(Exception):
    """A tool that cannot be handed to a model, with the reason."""


def full_name(server: str, tool: str) -> str:
    """`mcp__server__tool`, clean, however long it is."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", f"mcp__{server}__{tool}")


def tool_name(server: str, tool: str, taken: Collection[str]) -> str:
    """The same, at most 64 characters, and no other tool's."""
    name = full_name(server, tool)
    if len(name) <= LONGEST_NAME and name not in taken:
        return name
    for number in range(1000):
        mark = hashlib.sha256(f"{server}\0{tool}\0{number}".encode(errors="replace")).hexdigest()[:8]
        made = f"{name[: LONGEST_NAME - 9]}_{mark}"
        if made not in taken:
            return made
    raise BadTool("no name is left for it")


def description(server: str, said: str | None) -> str:
    return shortened(plain_text(said or "").strip(), LONGEST_DESCRIPTION) or f"A tool of the MCP server '{server}'."


def input_schema(given: Mapping[str, Any]) -> Json:
    """The schema without what is dangerous to use here; the server checks its input itself."""
    try:
        if len(json.dumps(given)) > LARGEST_SCHEMA:
            raise BadTool(f"its schema is larger than {LARGEST_SCHEMA:,} characters")
    except (TypeError, ValueError, RecursionError) as error:
        raise BadTool(f"its schema is not JSON: {error}") from error
    if given.get("type", "object") != "object":
        raise BadTool("its input is not an object")
    made = cleaned(given)
    for key in _ROWS | {"not", "if", "then", "else"}:
        made.pop(key, None)
    made["type"] = "object"
    made.setdefault("properties", {})
    _check(made)
    return made


def cleaned(given: Mapping[str, Any], depth: int = 0) -> Json:
    if depth > DEEPEST_SCHEMA:
        raise BadTool("its schema is too deep")
    found: Json = {}
    for key, value in given.items():
        if key in _DROPPED:
            continue
        if key in _REFERENCES and not (isinstance(value, str) and value.startswith("#")):
            raise BadTool(f"its schema refers to another document: {plain_text(str(value))[:100]}")
        if key in _MAPS and isinstance(value, dict):
            found[key] = {name: _schema(each, depth + 1) for name, each in value.items()}
        elif key in _ROWS and isinstance(value, list):
            found[key] = [_schema(each, depth + 1) for each in value]
        elif key in _ONES:
            rows = isinstance(value, list)
            found[key] = [_schema(each, depth + 1) for each in value] if rows else _schema(value, depth + 1)
        else:
            found[key] = value
    return found


def _schema(given: object, depth: int) -> object:
    return cleaned(given, depth) if isinstance(given, dict) else given


def _check(schema: Json) -> None:
    jsonschema = import_module("jsonschema")  # slow to import, and here before: the client of MCP uses it
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise BadTool(f"its schema is not valid: {plain_text(error.message)[:200]}") from error


def answer(content: Sequence[Any], structured: object, *, failed: bool) -> Answer:
    """What a server answered, as text: pictures and sounds are only named."""
    said = [_block(block) for block in content]
    if not any(said) and structured is not None:
        said = [json.dumps(structured, ensure_ascii=False, default=str)]
    return plain_answer("\n".join(said), failed=failed)


def _block(block: Any) -> str:
    kind = getattr(block, "type", "")
    if kind == "text":
        return str(block.text)
    if kind in ("image", "audio"):
        return f"[{kind}: {block.mime_type}, {len(block.data) * 3 // 4:,} bytes]"
    if kind == "resource":
        inside = block.resource
        shown = getattr(inside, "text", None)
        return f"[{inside.uri}]\n{shown}" if shown is not None else f"[{inside.uri}: {inside.mime_type or 'binary'}]"
    if kind == "resource_link":
        return f"[{block.name}: {block.uri}]"
    return f"[{kind or 'something'} that cannot be shown]"
