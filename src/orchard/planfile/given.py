"""What a plan file gives, read without pydantic: importing that and building its models takes longer than a short run.

`quick` reads what is plainly right by the table in `checks.py`, which is made from the models of `fields`. Of anything
else it says that it is not sure, and the models look: they alone find problems. So it may be stricter than they are,
and never gives what they would not.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec import Struct

from orchard.planfile import forms, rules
from orchard.planfile.checks import CHECKS, WHOLE, WORK

Reads = Callable[[Any], Any]
"""From what was written to what is meant; ValueError: not sure."""

_EXACT = 2**53
"""Whole numbers below it are numbers of floating point as well."""


class Given(Struct):
    """An object with fields: which kind it is, and the fields that were written."""

    kind: str
    values: dict[str, Any]


class _Unsure(ValueError):
    pass


def quick(what: str, value: object) -> Any:
    """What is given by a plan, a job, jobs or a work; None: the models have to look."""
    try:
        return _reader(WHOLE[what])(value)
    except ValueError:  # a rule that refuses a value says so by one as well
        return None


def _reader(check: tuple[Any, ...]) -> Reads:
    return _KINDS[check[0]](*check[1:])


def _text(least: int, most: int | None, *rules_after: str) -> Reads:
    after = [_rule(name) for name in rules_after]

    def reads(value: Any) -> Any:
        if type(value) is not str or len(value) < least or (most is not None and len(value) > most):
            raise _Unsure
        if not value.isascii():
            value.encode()  # half of a pair of surrogates is an UnicodeEncodeError
        for rule in after:
            value = rule(value)
        return value

    return reads


def _truth() -> Reads:
    def reads(value: Any) -> Any:
        return value if type(value) is bool else _not_sure()

    return reads


def _whole(least: int, most: int) -> Reads:
    def reads(value: Any) -> Any:
        return value if type(value) is int and least <= value <= most else _not_sure()

    return reads


def _number(above: float) -> Reads:
    def reads(value: Any) -> Any:
        if type(value) is int and above < value < _EXACT:
            return float(value)
        return value if type(value) is float and above < value < math.inf else _not_sure()

    return reads


def _choice(*choices: str) -> Reads:
    known = frozenset(choices)

    def reads(value: Any) -> Any:
        return value if type(value) is str and value in known else _not_sure()

    return reads


def _rule(name: str) -> Reads:
    found: Reads = getattr(rules, name)
    return found


def _list(check: tuple[Any, ...], most: int | None) -> Reads:
    entry = _reader(check)

    def reads(value: Any) -> Any:
        if type(value) is not list or (most is not None and len(value) > most):
            raise _Unsure
        return [entry(one) for one in value]

    return reads


def _names(key: tuple[Any, ...], check: tuple[Any, ...]) -> Reads:
    name, entry = _reader(key), _reader(check)

    def reads(value: Any) -> Any:
        return {name(own): entry(one) for own, one in value.items()} if type(value) is dict else _not_sure()

    return reads


def _form(chooses: str, checks: dict[str, tuple[Any, ...]]) -> Reads:
    choose: Callable[[Any], str | None] = getattr(forms, chooses)
    made: dict[str, Reads] = {}

    def reads(value: Any) -> Any:
        form = choose(value)
        if form not in checks:
            raise _Unsure
        if form not in made:
            made[form] = _reader(checks[form])
        return made[form](value)

    return reads


@cache
def _work() -> Reads:
    return _reader(WORK)


@cache
def _object(kind: str) -> Reads:
    fields, needed, rules_after = CHECKS[kind]
    own = {name: field for field, (names, _) in fields.items() for name in names}
    made: dict[str, Reads] = {}
    after = [_rule(name) for name in rules_after]

    def reads(value: Any) -> Given:
        if type(value) is not dict:
            raise _Unsure
        values: dict[str, Any] = {}
        for name, given in value.items():
            field = own.get(name)
            if field is None or field in values:
                raise _Unsure
            if field not in made:  # most plans use few of them
                made[field] = _reader(fields[field][1])
            values[field] = made[field](given)
        if not values.keys() >= needed:
            raise _Unsure
        for rule in after:
            rule(values)
        return Given(kind, values)

    return reads


def _not_sure() -> Any:
    raise _Unsure


_KINDS: dict[str, Callable[..., Reads]] = {
    "text": _text,
    "truth": _truth,
    "whole": _whole,
    "number": _number,
    "choice": _choice,
    "rule": _rule,
    "list": _list,
    "names": _names,
    "form": _form,
    "work": _work,
    "object": _object,
}
