"""Write docs/tools.md from the MCP tools themselves; with `--check`, only say whether it is up to date."""

import sys
from pathlib import Path
from typing import Any

from orchard.surfaces.mcp.selection import TOOLSETS
from orchard.surfaces.mcp.tool import Tool
from orchard.surfaces.mcp.toolbox import every_tool, input_schema

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tools.md"
HEAD = """\
# The MCP tools

<!-- Made by tools/tool_reference.py from the table of operations and the tools; edit those instead. -->

How a host is set up, and which toolsets it is offered: [mcp.md](mcp.md). Fields that hold parts of a plan are those of
[plan files](plan-file.md). A tool in bold changes something; an argument with a star is required.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for toolset, names in TOOLSETS.items():
        parts.append(f"## {toolset}\n")
        for name in names:
            found = [tool for tool in every_tool() if tool.name == name]
            parts.append(section(next((tool for tool in found if tool.toolset == toolset), found[0])))
    return "\n".join(parts)


def section(tool: Tool) -> str:
    """One tool: what a model reads about it, and what it takes."""
    title = f"### {tool.name}\n" if tool.read_only else f"### **{tool.name}**\n"
    said, _, rest = tool.description.partition("\nExample: ")
    example, _, after = rest.partition("\nReturns")
    parts = [title, f"{said}\n", f"```json\n{example}\n```\n", f"Returns{after}\n"]
    schema = input_schema(tool)
    needed = schema.get("required", [])
    rows = [f"| `{name}`{'*' if name in needed else ''} | {meaning(part)} |" for name, part in fields(schema)]
    return "\n".join([*parts, "| argument | meaning |\n| --- | --- |", *rows, ""] if rows else parts)


def fields(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(schema.get("properties", {}).items())


def meaning(part: dict[str, Any]) -> str:
    said = (
        str(part.get("description") or f"{part.get('type', 'Any')}".capitalize() + ".")
        .replace("|", "\\|")
        .replace("\n", " ")
    )
    choices = part.get("enum")
    return f"{said} One of {', '.join(f'`{one}`' for one in choices)}." if choices else said


def main() -> int:
    """Write the page, or compare it."""
    made = page()
    if "--check" in sys.argv[1:]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == made
        sys.stdout.write("" if fresh else "docs/tools.md is stale: run python tools/tool_reference.py\n")
        return 0 if fresh else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
