"""What the models find wrong with a plan, in words for people, with paths that a reader of the file knows."""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from orchard.planfile.fields import FORMS, INSIDE, WHOLE, Fields, JobFields, PlanFields, given_in
from orchard.planfile.forms import MARK, names_of
from orchard.planfile.given import Given
from orchard.planfile.places import Finding, Path, Unreadable
from orchard.planfile.rules import NO_FORM, RULE, must_be
from orchard.text import did_you_mean, one_of, quoted

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "an object of names and values",
    "model_type": "an object with fields",
    "model_attributes_type": "an object with fields",
}


def checked(what: str, value: object) -> Any:
    """What is given by a plan, a job, jobs or a work; Unreadable with all that is wrong with it."""
    try:
        return _plain(_adapter(what).validate_python(value))
    except ValidationError as error:
        top = JobFields if what == "jobs" else PlanFields
        raise Unreadable(findings(error, value, top)) from None


def findings(error: ValidationError, value: Any, top: type[Fields]) -> list[Finding]:
    return [_finding(item, value, top) for item in error.errors(include_url=False)]


@cache
def _adapter(what: str) -> TypeAdapter[Any]:
    kind = WHOLE[what]
    return TypeAdapter(kind, config=None if isinstance(kind, type) else ConfigDict(defer_build=True))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, Fields):
        return value
    return Given(type(value).__name__, {name: _plain(one) for name, one in given_in(value).items()})


def _finding(item: Any, value: Any, top: type[Fields]) -> Finding:
    path, found = _walk(item["loc"], value)
    kind: str = item["type"]
    if kind == "missing":
        return Finding((*path, item["loc"][-1]), "is required")
    if kind == "extra_forbidden":
        return Finding(path, _unknown_field(item["loc"], value, top), key=True)
    # A wrong key of `env` has the key in its location, and this word after it.
    steps = [part for part in item["loc"] if not str(part).startswith(MARK)]
    is_key = steps[-1:] == ["[key]"] and len(steps) > len(path)
    return Finding(path, _message(item, kind, found), key=is_key)


def _walk(location: Sequence[str | int], value: Any) -> tuple[Path, Any]:
    """The part of the document that is meant: names of forms, and steps the document does not have, are left out."""
    path: Path = ()
    for part in location:
        if isinstance(part, str) and part.startswith(MARK):
            continue
        in_object = isinstance(value, dict) and part in value
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if not (in_object or in_list):
            break
        value = value[part]
        path = (*path, part)
    return path, value


def _message(item: Any, kind: str, value: Any) -> str:
    if kind == RULE:
        return str(item["msg"])
    if kind == "plan_form":
        return _no_form(value)
    if kind in _KINDS:
        return must_be(_KINDS[kind], value)
    if kind == "literal_error":
        return _not_a_choice(item, value)
    limit = item.get("ctx", {})
    wordings: dict[str, Callable[[], str]] = {
        "string_too_short": lambda: "must not be empty",
        "string_too_long": lambda: f"is longer than {limit['max_length']} characters",
        "string_pattern_mismatch": lambda: f"must have the form {limit['pattern']}",
        "too_long": lambda: f"has more than {limit['max_length']} entries",
        "greater_than": lambda: f"must be more than {limit['gt']:g}",
        "greater_than_equal": lambda: f"must be at least {limit['ge']}",
        "less_than_equal": lambda: f"must be at most {limit['le']}",
        "finite_number": lambda: "must be a finite number",
    }
    return wordings[kind]() if kind in wordings else "is not valid here"


def _no_form(value: Any) -> str:
    if value is None or not isinstance(value, dict | str):
        return must_be("a command line or an object with a 'type'", value)
    named = value.get("type") if isinstance(value, dict) else None
    if isinstance(named, str):
        near = did_you_mean(named, FORMS) or f"; it must be {one_of(FORMS)}"
        return f"unknown type {quoted(named)}{near}"
    return NO_FORM


def _not_a_choice(item: Any, value: Any) -> str:
    choices = [choice.strip("'") for choice in item["ctx"]["expected"].replace(" or ", ", ").split(", ")]
    if not isinstance(value, str):
        return must_be(f"one of {one_of(choices)}", value)
    return f"must be {one_of(choices)}, not {quoted(value)}{did_you_mean(value, choices)}"


def _unknown_field(location: Sequence[str | int], value: Any, top: type[Fields]) -> str:
    name = str(location[-1])
    model = _model_at(location[:-1], top)
    _, around = _walk(location[:-1], value)
    for own in model.model_fields:
        if name in names_of(own):
            given = next(other for other in names_of(own) if other in around)
            return f"{quoted(name)} and {quoted(given)} are the same field; give one of them"
    return f"unknown field {quoted(name)}{_near_field(name, model)}"


OF_OTHERS = {
    "depends_on": "needs", "dependson": "needs", "requires": "needs", "deps": "needs",
    "run": "work", "cmd": "work", "command": "work", "script": "work", "exec": "work", "steps": "work",
    "prompt": "work",
    "stage": "group", "test": "postchecks", "tests": "postchecks", "check": "postchecks", "checks": "postchecks",
    "continue-on-error": "allow_failure", "continue_on_error": "allow_failure", "branch": "target",
    "working-directory": "cwd", "working_directory": "cwd", "environment": "env", "vars": "params", "inputs": "params",
}  # fmt: skip
"""What tools of others call a field."""


# The same mistake is often made in every job.
@lru_cache(maxsize=256)
def _near_field(name: str, model: type[Fields]) -> str:
    fields = [own for own, field in model.model_fields.items() if not field.exclude]
    meant = OF_OTHERS.get(name.lower())
    if meant in fields:
        return f"; did you mean {quoted(meant)}?"
    return did_you_mean(name, [known for field in fields for known in names_of(field)])


def _model_at(location: Sequence[str | int], top: type[Fields]) -> type[Fields]:
    model = top
    for part in location:
        if isinstance(part, str):
            model = FORMS.get(part[1:], model) if part.startswith(MARK) else INSIDE.get(part, model)
    return model
