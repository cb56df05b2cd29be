"""A plan without problems is read without pydantic, and never otherwise than the models read it.

What is tried is drawn from the table of checks itself: every field by each of its names, with values at the edges of
what it takes, and with values that it may not take.
"""

import datetime
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.plan_checks import MODULE, module

from orchard.model.plan import Plan
from orchard.planfile.checks import CHECKS, WHOLE, WORK
from orchard.planfile.given import Given, quick
from orchard.planfile.output import plan_fields
from orchard.planfile.places import Unreadable, written_float, written_int
from orchard.planfile.problems import checked
from tests.core.strategies import plans
from tests.examples import examples


class Text(str): ...


_WORDS = """a A a.b a/b -a @ @x 10m 1h30m 0s 400d on off ask all edit read-only shell agent git_* .github ..
a/../.. /a C:x
https://example.com *.example.com:80 file:///x 127.0.0.1 a/b/c/d/e/f/g/h a/b/c/d/e/f/g/h/i PATH 1A ORCHARD_X
GIT_DIR"""
TEXTS = [*_WORDS.split(), "", " ", "@x do it", "a\nb", "a\0", "\u2028", "é" * 200, "x" * 64, "x" * 65, "x" * 201]
NUMBERS = [
    -1001,
    -1000,
    -1,
    0,
    1,
    100,
    101,
    1000,
    1001,
    1024,
    1025,
    100_000,
    100_001,
    10**15,
    10**15 + 1,
    2**53,
    10**400,
]
ODD: list[Any] = [
    None, True, False, math.nan, math.inf, -math.inf, 0.0, -0.5, 0.5, 1e308, written_int("012"), written_float("1.10"),
    "\ud800", Text("a"), b"a", ("a",), {"a"}, OrderedDict(name="a", id="a"), datetime.date(2026, 1, 1), [[["a"]]], {},
    [], {"a": 1}, {1: "a"},
]  # fmt: skip
texts = st.sampled_from(TEXTS) | st.text(max_size=3)
numbers = st.sampled_from(NUMBERS) | st.integers(-5, 200)
odd = st.sampled_from(ODD) | texts | numbers | st.floats()
DEEPEST = 3


def values(check: tuple[Any, ...], depth: int = 0) -> st.SearchStrategy[Any]:
    """What may be given where this is checked: mostly something of the right kind."""
    return st.integers(0, 19).flatmap(lambda one: odd if one == 0 else right(check, depth))


def right(check: tuple[Any, ...], depth: int) -> st.SearchStrategy[Any]:
    kind, *rest = check
    if kind == "form":
        return st.sampled_from(sorted(rest[1])).flatmap(lambda form: values(rest[1][form], depth))
    if kind == "list":
        return st.lists(values(rest[0], depth + 1), max_size=3 if depth < DEEPEST else 0)
    if kind == "names":
        return st.dictionaries(texts, texts | numbers | st.floats(), max_size=2)
    if kind == "object":
        return objects(rest[0], depth)
    plain: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "work": lambda: values(WORK, depth),
        "text": lambda: texts,
        "truth": st.booleans,
        "whole": lambda: st.sampled_from([rest[0] - 1, rest[0], rest[1], rest[1] + 1]),
        "number": lambda: numbers | st.floats(),
        "choice": lambda: st.sampled_from(rest),
        "rule": lambda: texts | numbers | st.floats() | st.booleans() | st.lists(texts, max_size=3),
    }
    return plain[kind]()


@st.composite
def objects(draw: st.DrawFn, kind: str, depth: int) -> Any:
    fields, needed, _ = CHECKS[kind]
    more = st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True)
    named = [*sorted(needed), *(name for name in draw(more) if name not in needed)]
    if kind == "AgentFields" and draw(st.integers(0, 9)):
        named = list(dict.fromkeys([*named, "instructions"]))
    made = {draw(st.sampled_from(fields[name][0])): draw(values(fields[name][1], depth + 1)) for name in named}
    accident = draw(st.integers(0, 29))
    if accident == 0:
        made[draw(st.sampled_from(["x", "", "Name", "names"]))] = draw(odd)
    elif accident == 1 and named:  # the same field twice, where it has two names
        made.update(dict.fromkeys(fields[draw(st.sampled_from(named))][0], draw(odd)))
    elif accident == 2 and made:
        made.pop(draw(st.sampled_from(sorted(made))))
    return made


def shown(value: Any) -> Any:
    """A value with its types: `1`, `1.0` and `True` are equal, and not the same."""
    if isinstance(value, Given):
        return value.kind, shown(value.values)
    if type(value) is dict:
        return {shown(name): shown(one) for name, one in value.items()}
    if type(value) is list:
        return [shown(one) for one in value]
    return type(value), repr(value)


def agreed(what: str, value: Any) -> bool:
    """Whether the quick reader was sure; then the models found nothing wrong, and the same values."""
    found = quick(what, value)
    if found is None:
        return False
    try:
        meant = checked(what, value)
    except Unreadable as refused:
        pytest.fail(f"{value!r} was read, though: {refused.findings}")
    assert shown(found) == shown(meant)
    return True


def test_the_table_of_checks_is_what_the_models_check() -> None:
    assert MODULE.read_text("utf-8") == module(), "run tools/plan_checks.py"


@examples(800)
@given(st.sampled_from(sorted(WHOLE)).flatmap(lambda what: st.tuples(st.just(what), values(WHOLE[what]))))
def test_what_is_read_quickly_is_what_the_models_read(drawn: tuple[str, Any]) -> None:
    agreed(*drawn)


@pytest.mark.parametrize("kind", sorted(CHECKS))
def test_every_field_is_read_quickly_and_as_the_models_read_it(kind: str) -> None:
    """Each field with each value that is tried, by itself: what nobody accepts shows that no field is left out."""
    fields, needed, _ = CHECKS[kind]
    rest = {"name": "a", "id": "a", "command": "a", "executable": "a"}
    for field, (names, check) in fields.items():
        base = {name: rest[name] for name in needed if name != field}
        if kind == "AgentFields" and not field.startswith("instructions"):
            base["instructions"] = "a"
        if (kind, field) == ("JobFields", "agent"):
            base["task"] = "a"
        choices: list[Any] = list(check[1:]) if check[0] == "choice" else []
        tried = [*ODD, *TEXTS, *NUMBERS, *choices, {"name": "a"}, [{"id": "a"}], {"minutes": 1}, {"A": 1}, ["a"], [[]]]
        sure = [value for name in names for value in tried if agreed(*_whole(kind, {**base, name: value}))]
        assert 0 < len(sure) < len(names) * len(tried), field
        assert len(names) == 1 or not agreed(*_whole(kind, {**base, **dict.fromkeys(names, sure[0])})), field
        assert not base or not agreed(*_whole(kind, {names[0]: sure[0]})), field


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("work", {"command": "a", "on_failure": {"heal": True, "no_auto_heal": True}}),
        ("work", {"type": "agent"}),
        ("work", {"instructions": "a", "instructions_file": "a"}),
        ("work", {"command": "a", "executable": "a"}),
        ("work", {"type": "shell", "executable": "a"}),
        ("job", {"id": "a", "changes": "optional", "expects_no_changes": True}),
        ("job", {"id": "a", "agent": "x"}),
        ("job", {"id": "a", "agent": "x", "task": " "}),
        ("job", {"id": "a", "agent": "x", "task": "a", "work": "a"}),
        ("job", {"id": "a", "setup": ["a"] * 101}),
        ("job", {"id": "a", "postchecks": ["a"] * 101}),
        ("jobs", [{"id": "a"}, {}]),
        ("jobs", {"id": "a"}),
        ("plan", {"jobs": [{"id": "a"}]}),
    ],
)
def test_what_is_wrong_with_fields_together_is_left_to_the_models(what: str, value: Any) -> None:
    assert not agreed(what, value)
    with pytest.raises(Unreadable):
        checked(what, value)


def _whole(kind: str, value: Any) -> tuple[str, Any]:
    """A value that can be read by itself, with an object of this kind in it."""
    around: dict[str, tuple[str, Any]] = {
        "PlanFields": ("plan", value),
        "JobFields": ("job", value),
        "GroupFields": ("plan", {"name": "p", "groups": [value]}),
        "BudgetFields": ("plan", {"name": "p", "budget": value}),
        "OnFailureFields": ("work", {"command": "a", "on_failure": value}),
    }
    return around.get(kind, ("work", value))


@examples(100)
@given(plans())
def test_a_plan_without_problems_is_read_quickly(plan: Plan) -> None:
    assert agreed("plan", plan_fields(plan))
