"""Write the table of requests in docs/api.md from the API itself; with `--check`, only say whether it is up to date."""

import json
import sys
from pathlib import Path
from typing import Any

from orchard.operations.operation import Route
from orchard.operations.table import OPERATIONS
from orchard.surfaces.http.operation import Operation, Part
from orchard.surfaces.http.operations import ROUTES, camel

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
HEAD = "| request | what it does |\n| --- | --- |\n"
TAGS = ("plans", "jobs", "events", "system")

EXAMPLES = {camel(one.route.id or one.name): one.example for one in OPERATIONS.values() if isinstance(one.route, Route)}


def page(text: str) -> str:
    """The page with the table as it should be; the table ends at the first empty line."""
    before, _, after = text.partition(HEAD)
    return before + table() + "\n" + after.partition("\n\n")[2]


def table() -> str:
    rows = sorted(ROUTES, key=lambda one: (TAGS.index(one.tag), one.path, one.method))
    return HEAD + "".join(f"| `{one.method} {one.path}` | {told(one)} |\n" for one in rows)


def told(one: Operation) -> str:
    """What it does, its parameters, and a body that it takes."""
    words = [one.summary[0].lower() + one.summary[1:]]
    words.append(", ".join(f"`{name}`" for name in one.query.model_fields if name != "repo"))
    body = body_of(one)
    words.append(f"`{json.dumps(body)}`" if body else "")
    return "; ".join(word for word in words if word)


def body_of(one: Operation) -> dict[str, Any]:
    """An example of the body; a plan, or fields of one, are explained with plan files."""
    if one.body is None or isinstance(one.body, Part):
        return {}
    return {name: value for name, value in EXAMPLES[one.name].items() if name in one.body.model_fields}


def main() -> int:
    text = PAGE.read_text("utf-8")
    if "--check" not in sys.argv:
        PAGE.write_text(page(text), "utf-8")
    elif page(text) != text:
        print(f"docs/{PAGE.name} is stale: run python tools/api_reference.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
