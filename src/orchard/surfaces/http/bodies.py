"""Reading what a client sent: strictly, and within bounds, before anything is made of it.

A body is one JSON value in UTF-8, without duplicate keys, numbers that are none (`NaN`, `1e999`) or that no other
program could keep, and without deep nesting. A parameter is given once, is known, and has the form of its type.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from starlette.requests import Request

from orchard.errors import InvalidInput, Problem
from orchard.model import limits
from orchard.planfile.document import Document, read_document
from orchard.planfile.fields import Fields
from orchard.planfile.problems import findings
from orchard.planfile.rules import RULE
from orchard.surfaces.http.problems import Refused, told
from orchard.text import did_you_mean, quoted

BODY_BYTES = limits.PLAN_BYTES
LARGEST = 2**63 - 1
LONGEST_NUMBER = 40
JSON_MEDIA = "application/json"

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")

F = TypeVar("F", bound=Fields)


async def read_body(request: Request) -> bytes:
    """The bytes of a request, as long as they are not too many."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body has more than {BODY_BYTES} bytes.", "Send less at once."
            )
        parts.append(part)
    return b"".join(parts)


def check_media(request: Request) -> None:
    """Refuse a body that is not said to be JSON."""
    given = request.headers.get("content-type", "")
    name, _, rest = given.partition(";")
    charset = rest.strip().lower().removeprefix("charset=").strip('"')
    if name.strip().lower() != JSON_MEDIA or charset not in ("", "utf-8", "utf8"):
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"The body must be JSON; its type is {quoted(given[:100])}.",
            f"Send it with the header 'Content-Type: {JSON_MEDIA}'.",
        )


def read_json(data: bytes) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _unreadable([Problem(f"is not UTF-8 text (byte {error.start})")]) from None
    if not text.strip():
        raise _unreadable([Problem("is empty; JSON is expected")])
    if text.strip() == "null":
        return None
    try:
        value = read_document(data, "body", "json").value
    except InvalidInput as invalid:
        raise _unreadable(invalid.problems) from None
    if _LONG_NUMBER.search(data) and (path := _too_large(value)) is not None:
        raise _unreadable([Problem(f"is a number beyond {LARGEST}", path=path)])
    return value


def read_fields(value: object, model: type[F]) -> F:
    """A body as the model says it has to be; everything that is wrong with it is told at once."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        invalid = Document(value, "body").refuse(findings(error, value, model))
        if all(_has_form(item["type"], item["input"]) for item in error.errors(include_url=False)):
            raise invalid from None
        raise _unreadable(invalid.problems) from None


def _has_form(kind: str, given: object) -> bool:
    """Whether a value is of the right form, and only not what may be given; JSON takes 3.0 for a whole number."""
    return kind == RULE or (kind == "int_type" and isinstance(given, float) and given.is_integer())


def read_query(pairs: Sequence[tuple[str, str]], model: type[F]) -> F:
    """The parameters of a request, each of them text that has the form of its type."""
    problems = [
        Problem(f"unknown parameter {quoted(name)}{did_you_mean(name, model.model_fields)}", path=name[:60])
        for name in dict(pairs)
        if name not in model.model_fields
    ]
    counted = Counter(name for name, _ in pairs)
    problems += [Problem("is given more than once", path=name[:60]) for name, count in counted.items() if count > 1]
    known = {name: _typed(model, name, text) for name, text in pairs if name in model.model_fields}
    if not problems:
        return read_fields(known, model)
    try:
        read_fields(known, model)
    except (InvalidInput, Refused) as error:
        problems += error.problems
    raise _unreadable(problems)


def read_path(parts: Mapping[str, str], lengths: int = limits.STRING_BYTES) -> None:
    """Refuse names that nothing can have."""
    for name, value in parts.items():
        if len(value) > lengths:
            raise _unreadable([Problem(f"is longer than {lengths} characters", path=name)])


def _typed(model: type[Fields], name: str, text: str) -> object:
    """A number or a truth value where one is wanted; what is neither is left for the model to refuse."""
    wanted = model.model_fields[name].annotation
    kinds = {wanted, *get_args(wanted)}
    if bool in kinds:
        return {"true": True, "false": False}.get(text, text)
    if int in kinds and _WHOLE.fullmatch(text):
        return int(text)
    if float in kinds and len(text) < LONGEST_NUMBER and _NUMBER.fullmatch(text):
        return float(text)
    return text


def _too_large(value: Any) -> str | None:
    """Where a whole number stands that does not fit into 64 bits."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, dict):
            waiting += [(f"{path}.{key[:60]}" if path else key[:60], inner) for key, inner in item.items()]
        elif isinstance(item, list):
            waiting += [(f"{path}[{number}]", inner) for number, inner in enumerate(item)]
        elif isinstance(item, int) and abs(item) > LARGEST:
            return path
    return None


def _unreadable(problems: Sequence[Problem]) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, told(problems), problems=problems)
