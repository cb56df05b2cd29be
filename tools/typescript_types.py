"""Write the API as TypeScript types, for the dashboard: every document, and what each operation takes and answers.

    python tools/typescript_types.py [FILE]     web/src/generated/api.ts, unless another file is named; `-`: print it

It is made from the OpenAPI document, which is made from the table of operations. The file is build output: `make types`
writes it, and git does not keep it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from orchard.surfaces.http.openapi import document

Json = dict[str, Any]
FILE = Path(__file__).resolve().parent.parent / "web" / "src" / "generated" / "api.ts"
HEAD = "// Made by tools/typescript_types.py from the table of operations; edit that instead.\n"
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def types(api: Json) -> str:
    """The whole file."""
    schemas = api["components"]["schemas"]
    parts = [HEAD, *(_declaration(name, part) for name, part in sorted(schemas.items()))]
    rows = [(method, path, one) for path, methods in api["paths"].items() for method, one in methods.items()]
    parts.append("export interface Operations {\n" + "".join(_operation(*row, api) for row in rows) + "}\n")
    table = "".join(f"  {one['operationId']}: {_row(method, path, one)},\n" for method, path, one in rows)
    parts.append(f"export const OPERATIONS = {{\n{table}}} as const satisfies Record<keyof Operations, object>;\n")
    return "\n".join(parts)


def _row(method: str, path: str, one: Json) -> str:
    """Where an operation is found, and what a next step calls it."""
    name = one.get("x-operation", one["operationId"])
    return f"{{ method: {json.dumps(method.upper())}, path: {json.dumps(path)}, operation: {json.dumps(name)} }}"


def _declaration(name: str, part: Json) -> str:
    told = f"/** {part['description']} */\n" if part.get("description") else ""
    if "properties" in part:
        return f"{told}export interface {name} {_object(part, '')}\n"
    return f"{told}export type {name} = {_type(part)};\n"


def _operation(method: str, path: str, one: Json, api: Json) -> str:
    """What an operation takes and answers."""
    given = [_followed(parameter, api) for parameter in one.get("parameters", [])]
    needed: Json = {"type": "object", "properties": {}, "required": []}
    for parameter in given:
        if parameter["in"] != "header":
            described = {"description": parameter["description"]} if parameter.get("description") else {}
            needed["properties"][parameter["name"]] = {**parameter["schema"], **described}
            needed["required"] += [parameter["name"]] if parameter.get("required") else []
    body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    sent = _type(body) if body is not None else "undefined"
    may_be_left_out = body is not None and not one["requestBody"].get("required")
    answers = [one["responses"][code].get("content", {}) for code in sorted(one["responses"]) if code.startswith("2")]
    told = [_answer(media, part.get("schema")) for content in answers for media, part in content.items()]
    return (
        f"  /** {one['summary']} */\n"
        f"  {one['operationId']}: {{\n"
        f"    parameters: {_object(needed, '    ')};\n"
        f"    body: {sent}{' | undefined' if may_be_left_out else ''};\n"
        f"    answer: {' | '.join(dict.fromkeys(told)) or 'undefined'};\n"
        "  };\n"
    )


def _answer(media: str, schema: Json | None) -> str:
    return _type(schema) if media == "application/json" and schema is not None else "string"


def _followed(part: Json, api: Json) -> Json:
    if "$ref" not in part:
        return part
    found: Any = api
    for word in part["$ref"].removeprefix("#/").split("/"):
        found = found[word]
    return dict(found)


def _object(part: Json, indent: str) -> str:
    required = part.get("required", [])
    lines = []
    for name, inner in part["properties"].items():
        if inner.get("description"):
            lines.append(f"{indent}  /** {inner['description']} */")
        key = name if name.isidentifier() else json.dumps(name)
        lines.append(f"{indent}  {key}{'' if name in required else '?'}: {_type(inner, indent + '  ')};")
    return "{\n" + "".join(f"{line}\n" for line in lines) + f"{indent}}}"


def _type(part: Json, indent: str = "") -> str:
    """A schema as a type."""
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    if "const" in part:
        return json.dumps(part["const"])
    if "enum" in part:
        return " | ".join(json.dumps(one) for one in part["enum"])
    forms = part.get("anyOf") or part.get("oneOf")
    if forms:
        return " | ".join(dict.fromkeys(_type(form, indent) for form in forms))
    kind = part.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**part, "type": one}, indent) for one in kind)
    if part.get("prefixItems"):
        return f"[{', '.join(_type(one, indent) for one in part['prefixItems'])}]"
    if kind == "array":
        inner = _type(part.get("items", {}), indent)
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if part.get("properties"):
        return _object(part, indent)
    if kind == "object":
        values = part.get("additionalProperties")
        return f"Record<string, {_type(values, indent) if isinstance(values, dict) and values else 'unknown'}>"
    return PLAIN[kind] if kind is not None else "unknown"


def main() -> None:
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(types(document()))
        return
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(types(document()))
    print(f"{file}: {len(file.read_text().splitlines())} lines")


if __name__ == "__main__":
    main()
