"""Answers held against the document: what is there is documented, and what is documented is there."""

from copy import deepcopy
from functools import cache
from typing import Any
from urllib.parse import unquote

import httpx2
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from msgspec.json import schema_components

from orchard.surfaces.http.openapi import document
from orchard.surfaces.http.operation import Operation
from orchard.surfaces.http.operations import ROUTES, matching
from orchard.surfaces.http.problems import ProblemDocument


@cache
def strict_document() -> dict[str, Any]:
    """The document, with answers that may have no field beside those that are named."""
    made = deepcopy(document())
    for name in shown_models():
        made["components"]["schemas"][name]["additionalProperties"] = False
    return made


def shown_models() -> set[str]:
    """Every model of an answer, by the name it has in the document."""

    answers = {form for one in ROUTES for form in (one.answer, one.also) if form is not None}
    _, told = schema_components([ProblemDocument, *answers])
    return {name for name, schema in told.items() if "properties" in schema}


def operation_of(answer: httpx2.Response) -> Operation | None:
    """Which operation was asked for."""
    raw = answer.request.url.raw_path.partition(b"?")[0].decode().removeprefix("/api/v1/")
    found = matching(tuple(unquote(part) for part in raw.split("/")))
    return next((one for one in found if one.method == answer.request.method), None)


def held(answer: httpx2.Response) -> Operation | None:
    """See that an answer is one of those that the document promises."""
    operation = operation_of(answer)
    kind = answer.headers["content-type"].partition(";")[0]
    if answer.status_code >= 400:
        assert kind == "application/problem+json", answer.text
        _check(ProblemDocument.__name__, answer.json())
        assert answer.json()["status"] == answer.status_code
        return None
    assert operation is not None, answer.url
    promised = document()["paths"][operation.path][operation.method.lower()]["responses"]
    assert str(answer.status_code) in promised, (operation.name, answer.status_code)
    assert kind in operation.media
    if kind == "application/json" and operation.answer is not None and operation.name != "getDocument":
        form = operation.also if operation.also is not None and "since" in answer.request.url.params else None
        _check((form or operation.answer).__name__, answer.json())
    return operation


def _check(model: str, value: Any) -> None:
    schema = {"$ref": f"#/components/schemas/{model}", "components": strict_document()["components"]}
    wrong = [f"{error.json_path}: {error.message[:300]}" for error in Draft202012Validator(schema).iter_errors(value)]
    assert not wrong, (model, wrong[:5])
