"""Definitions of agents on a terminal: a list of them, and a page of one."""

from collections.abc import Sequence

from orchard.agents.definitions.catalog import Catalog
from orchard.agents.definitions.definition import Definition
from orchard.core.views.definitions import DefinitionItem
from orchard.surfaces.cli.render.lines import Line, Piece, safe, table
from orchard.text import for_screen

WIDEST = 24
DESCRIPTION = 60
TEXT_LINES = 60
"""Of a definition's text that are shown; `--json` has all of it."""


def definition_list(rows: Sequence[DefinitionItem]) -> list[Line]:
    """Those that are used, and below them those that are not, each with the reason."""
    if not rows:
        return []
    used = [one for one in rows if one.usable]
    heads: list[Piece] = [(word, "dim") for word in ("definition", "from", "for")]
    lines: list[Line] = [[]]
    if used:
        lines += table([heads, *[_row(one) for one in used]], WIDEST)
    for one in rows:
        if not one.usable:
            lines.append([(safe(one.file), "dim"), (f" is not used: {safe(one.why_not or '', 300)}", "wait")])
    return lines


def _row(one: DefinitionItem) -> list[Piece]:
    return [(safe(one.name), "name"), (safe(one.origin), ""), (safe(one.description, DESCRIPTION), "dim")]


def definition_page(catalog: Catalog, one: Definition) -> list[Line]:
    rows = [
        ("definition", one.description),
        ("from", f"{one.origin}: {one.file}"),
        ("agent", one.agent or "the one that the work would get anyway"),
        ("model", one.model or ""),
        ("tools", "" if one.tools is None else ", ".join(one.tools) or "none"),
        ("without", ", ".join(one.denied)),
        ("not used", catalog.why_not(one) or ""),
    ]
    lines: list[Line] = [[(safe(one.name or one.file), "name")]]
    lines += [[(f"  {title:<11}", "dim"), (safe(value, 1000), "")] for title, value in rows if value]
    text = for_screen(one.instructions).split("\n")
    if one.instructions:
        lines.append([])
    for row in text[:TEXT_LINES] if one.instructions else ():
        lines.append([(f"  {row}", "")])
    if len(text) > TEXT_LINES:
        lines.append([(f"  ... and {len(text) - TEXT_LINES} more lines", "dim")])
    return lines
