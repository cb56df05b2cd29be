"""A plan as the text of a plan file: what `parse` reads back as the same plan.

Parameters are put in already, so none are declared. Only what is not the default is written, and a work in its short
form where that means the same.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchard.model.plan import AgentWork, Plan, Work
from orchard.model.plan_codec import Json, plan_json, work_from_json
from orchard.planfile.params import as_text
from orchard.planfile.rules import work_from_text

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.@+=-]*(?: [A-Za-z0-9_/.@+=()<>|&;$*~-]+)*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf", "nan", "inf"})
"""What some reader of YAML takes for something else than text."""
_WORKS = ("prechecks", "postchecks", "setup")
_FIRST = ("id", "group", "name", "task", "needs", "work")


def plan_file(plan: Plan) -> str:
    """The text of a plan file, as YAML."""
    body = plan_fields(plan)
    jobs = body.pop("jobs")
    lines = [*_lines(body, 0), "jobs:"]
    for job in jobs:
        lines += ["", *_item(job, 2)]
    return "\n".join(lines) + "\n"


def plan_fields(plan: Plan) -> Json:
    """The fields of a plan file as values."""
    body = plan_json(plan)
    body.pop("params", None)
    jobs = [_job(job) for job in body.pop("jobs")]
    fields: Json = as_text({**_with_works(body), "jobs": jobs})
    return fields


def _job(body: Json) -> Json:
    own = {**body, "id": body["id"].rpartition("/")[2]}
    first = {name: own[name] for name in _FIRST if name in own}
    return _with_works({**first, **own})


def _with_works(body: Json) -> Json:
    found = dict(body)
    for name in ("work", "verify"):
        if name in found:
            found[name] = _work(found[name])
    for name in _WORKS:
        if name in found:
            found[name] = [_work(one) for one in found[name]]
    return found


def _work(body: Json) -> Json | str:
    """A work as text, where that is all there is to it."""
    work = work_from_json(body)
    short = _short(work, body)
    return short if short is not None and work_from_text(short) == work else body


def _short(work: Work, body: Json) -> str | None:
    if isinstance(work, AgentWork):
        return f"@{work.agent or 'agent'} {work.instructions}" if work.instructions else None
    command = body.get("command")
    return command if isinstance(command, str) and not command.startswith("@") else None


# ------------------------------------------------------------------------------------------------ YAML


def _lines(body: Mapping[str, Any], depth: int) -> Iterator[str]:
    """The fields of an object, each on lines of its own."""
    for name, value in body.items():
        yield from _field(_text(name), value, depth)


def _field(name: str, value: Any, depth: int) -> Iterator[str]:
    pad = " " * depth
    if isinstance(value, Mapping) and value:
        yield f"{pad}{name}:"
        yield from _lines(value, depth + 2)
    elif isinstance(value, list) and any(isinstance(one, Mapping) or _is_block(one) for one in value):
        yield f"{pad}{name}:"
        for one in value:
            yield from _item(one, depth + 2)
    elif _is_block(value):
        keep = "" if value.endswith("\n") else "-"
        yield f"{pad}{name}: |{keep}"
        yield from (f"{pad}  {line}" if line else "" for line in value.removesuffix("\n").split("\n"))
    else:
        yield f"{pad}{name}: {_flow(value)}"


def _item(value: Any, depth: int) -> Iterator[str]:
    """One entry of a list."""
    if isinstance(value, Mapping) and value:
        first, *rest = _lines(value, depth + 2)
        yield f"{' ' * depth}- {first.strip()}"
        yield from rest
    else:
        yield f"{' ' * depth}- {_flow(value)}"


def _is_block(value: Any) -> bool:
    """Whether a text is written line by line, as it is."""
    if not isinstance(value, str) or "\n" not in value.removesuffix("\n"):
        return False
    lines = value.split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    return plain and not value.startswith((" ", "\n")) and not value.endswith("\n\n")


def _flow(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(_flow(one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(name)}: {_flow(one)}' for name, one in value.items())}}}"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def _text(value: str) -> str:
    """A text on one line; quoted unless every reader takes the bare words for this text."""
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if "'" not in value and '"' in value and value.isprintable():
        return f"'{value}'"
    return "".join(_escaped(char) for char in json.dumps(value, ensure_ascii=False))


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    return f"\\U{ord(char):08x}" if ord(char) > 0xFFFF else f"\\u{ord(char):04x}"
