"""A plan's parameters: values with names, put in wherever a text of the plan says `${{ name }}`.

Only plain names count: `${{ github.ref }}` in a file that a job writes stays as it is. `$${{ name }}` stands for
`${{ name }}`, also in a plan without `params`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from orchard.planfile.document import Document
from orchard.planfile.places import Finding, Path
from orchard.text import did_you_mean, quoted

NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_REFERENCE = re.compile(rf"\$?\$\{{\{{\s*({NAME})\s*\}}\}}")
_PLAIN = re.compile(rf"\$\{{\{{\s*{NAME}\s*\}}\}}")


def with_params(document: Document, given: Mapping[str, str]) -> Document:
    """The document with its parameters put in; `given` values count instead of the defaults that it names."""
    value = document.value
    declared = value.get("params") if isinstance(value, dict) else None
    if declared is None and given:
        names = ", ".join(quoted(name) for name in given)
        raise document.refuse([Finding((), f"the plan has no 'params', so {names} cannot be given")])
    if not isinstance(value, dict) or not isinstance(declared, dict | None):
        return document  # what else is wrong with it is found when it is read
    if declared is None:
        if not any(_texts(value, ())):
            return document
        declared = {}
    values = {**{name: _text(default) for name, default in declared.items()}, **given}
    if found := list(_wrong(declared, given, values)) or list(_unknown(value, values)):
        raise document.refuse(found)
    filled = _filled({name: part for name, part in value.items() if name != "params"}, values)
    return replace(document, value={**filled, "params": values} if "params" in value else filled)


def as_text(value: Any) -> Any:
    """A part of a plan in which parameters are put in already, as a plan file has to say it to be read as the same."""
    if isinstance(value, str):
        return _PLAIN.sub(r"$\g<0>", value) if "${{" in value else value
    if isinstance(value, dict):
        return {name: as_text(part) for name, part in value.items()}
    return [as_text(part) for part in value] if isinstance(value, list) else value


def _text(default: object) -> Any:
    if isinstance(default, bool):
        return "true" if default else "false"
    return str(default) if isinstance(default, str | int | float) else default


def _wrong(declared: Mapping[str, Any], given: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[Finding]:
    for name in given:
        if name not in declared:
            yield Finding(("params",), f"there is no parameter {quoted(name)}{did_you_mean(name, declared)}")
    for name, value in values.items():
        if not re.fullmatch(NAME, name):
            yield Finding(("params", name), "must be named with letters, digits, '_' and '-'", key=True)
        elif value is None:
            yield Finding(("params", name), "has no default, so a value has to be given", key=True)
        elif not isinstance(value, str):
            yield Finding(("params", name), "must be text, a number, or true or false")


def _unknown(value: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[Finding]:
    for path, text in _texts({name: part for name, part in value.items() if name != "params"}, ()):
        for found in _REFERENCE.finditer(text):
            if found[1] not in values and not found[0].startswith("$$"):
                near = did_you_mean(found[1], values)
                meant = near or f"; name it in 'params', or write '${found[0]}' for the text {quoted(found[0])} itself"
                yield Finding(path, f"there is no parameter {quoted(found[1])}{meant}")


def _texts(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str) and "${{" in value:
        yield path, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _texts(part, (*path, name))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _texts(part, (*path, number))


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _one(found, values), value) if "${{" in value else value
    if isinstance(value, dict):
        return {name: _filled(part, values) for name, part in value.items()}
    return [_filled(part, values) for part in value] if isinstance(value, list) else value


def _one(found: re.Match[str], values: Mapping[str, str]) -> str:
    return found[0][1:] if found[0].startswith("$$") else values[found[1]]
