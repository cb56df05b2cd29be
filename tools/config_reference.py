"""Write the table of settings into docs/configuration.md, from the table that checks them.

python tools/config_reference.py            write it
python tools/config_reference.py --check    exit 1 if the page shows another one
"""

import sys
from pathlib import Path

from orchard.config.keys import KEYS, Key
from orchard.config.layers import Config, flatten
from orchard.config.rows import AGENT_FIELDS, BUILTIN_FIELDS, SERVER_FIELDS
from orchard.model.agent_rows import AgentRow, BuiltinRow, ServerRow

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
BEGIN = "<!-- written by tools/config_reference.py: begin -->"
END = "<!-- written by tools/config_reference.py: end -->"


def table() -> str:
    """Every key with its default, its variable and what it means."""
    defaults = flatten(Config())
    rows = ["| key | default | variable | meaning |", "| --- | --- | --- | --- |"]
    for key in KEYS.values():
        variable = f"`{key.variables[-1]}`"
        trust = " (in a repository's file: after `orchard trust`)" if key.needs_trust else ""
        trust = f" (in a repository's file: {_more(key.name)} only after `orchard trust`)" if key.loosens else trust
        default = defaults[key.name] if defaults[key.name] is not None or key.nothing == 0 else key.nothing
        rows.append(f"| `{key.name}` | {shown(default)} | {variable} | {key.meaning}{trust} |")
    return "\n".join([*rows, "", *row_tables()])


def _more(name: str) -> str:
    """What a repository's file may not make of a setting by itself."""
    if not name.startswith("health."):
        return "looser"
    return "more drastic" if name.startswith("health.on_") else "sooner"


def row_tables() -> list[str]:
    """What the rows that a user names may hold."""
    return [
        "### Rows",
        "",
        "A table with a name of your choice: small letters, digits, `-` and `_`, at most 32. In a repository's file",
        "rows count after `orchard trust`.",
        "",
        *row_table("[agents.NAME]", AGENT_FIELDS, AgentRow()),
        *row_table("[agents.builtin]", BUILTIN_FIELDS, BuiltinRow()),
        *row_table("[mcp_servers.NAME]", SERVER_FIELDS, ServerRow()),
    ][:-1]


def row_table(title: str, keys: tuple[Key, ...], row: object) -> list[str]:
    """The fields of one kind of row."""
    lines = [f"| `{title}` | default | meaning |", "| --- | --- | --- |"]
    for key in keys:
        default = getattr(row, key.name)
        lines.append(f"| `{key.name}` | {'' if default is None else shown(default)} | {key.meaning} |")
    return [*lines, ""]


def shown(value: object) -> str:
    """A default as one would write it in TOML."""
    if value is None:
        return "no limit"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        return "`{}`"
    if isinstance(value, tuple):
        return "`[]`" if not value else f"`{list(value)}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def written(page: str) -> str:
    """The page with today's table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Write the page, or only say whether it is up to date."""
    page = PAGE.read_text()
    if "--check" not in arguments:
        PAGE.write_text(written(page))
        return 0
    if page == written(page):
        return 0
    sys.stderr.write("docs/configuration.md is out of date: run 'python tools/config_reference.py'.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
