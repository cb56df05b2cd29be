"""Frozen classes behave like frozen dataclasses: what a dataclass does with the same fields is the expectation."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from functools import cached_property

import pytest

from orchard.frozen import frozen


@frozen
class Point:
    x: int
    y: int = 2
    names: list[str] = field(default_factory=list)

    @cached_property
    def sum(self) -> int:
        return self.x + self.y


@dataclass(frozen=True)
class Model:
    x: int
    y: int = 2
    names: list[str] = field(default_factory=list)


@frozen
class Narrow:
    seen: str
    unseen: int = field(default=0, compare=False, repr=False)

    def __repr__(self) -> str:
        return "narrow"


GIVEN: list[tuple[tuple[object, ...], dict[str, object]]] = [
    ((1,), {}),
    ((1, 3), {}),
    ((1, 3, ["a"]), {}),
    ((), {"x": 1}),
    ((1,), {"names": ["b"]}),
    ((), {"names": [], "y": 5, "x": 4}),
    ((), {}),
    ((1, 2, [], 4), {}),
    ((1,), {"x": 2}),
    ((1,), {"z": 2}),
    ((), {"y": 1, "names": []}),
    ((1, 2, []), {"names": []}),
    ((), {"x": 1, "y": 2, "z": []}),
]


@pytest.mark.parametrize(("args", "kwargs"), GIVEN)
def test_it_takes_what_a_dataclass_takes_and_refuses_what_that_refuses(
    args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    try:
        expected: dict[str, object] | None = asdict(Model(*args, **kwargs))  # type: ignore[arg-type]
    except TypeError:
        expected = None
    if expected is None:
        with pytest.raises(TypeError, match="Point takes x, y, names"):
            Point(*args, **kwargs)  # type: ignore[arg-type]
    else:
        assert asdict(Point(*args, **kwargs)) == expected  # type: ignore[arg-type]


def test_a_default_that_is_made_is_made_for_each() -> None:
    one, other = Point(1), Point(1)
    one.names.append("a")
    assert other.names == []


def test_it_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match="cannot be changed: x"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match="cannot be changed: new"):
        point.new = 2  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="cannot be changed: x"):
        del point.x
    assert point.x == 1
    assert issubclass(FrozenInstanceError, AttributeError)  # who expects that of a dataclass catches ours too


def test_equal_ones_are_equal_however_they_were_made() -> None:
    one, other = Narrow("a"), Narrow(unseen=3, seen="a")
    assert one == other
    assert hash(one) == hash(other)
    assert Point(1, 2, []) == Point(names=[], y=2, x=1)
    assert Point(1) != Point(2)
    others: list[object] = [Model(1), (1, 2, [])]
    assert Point(1) not in others


def test_what_was_worked_out_meanwhile_does_not_count() -> None:
    one = Point(1)
    assert one.sum == 3
    assert one == Point(1)


def test_it_is_a_dataclass_to_others() -> None:
    point = Point(1)
    assert [one.name for one in fields(point)] == ["x", "y", "names"]
    assert replace(point, y=7) == Point(1, 7)
    assert repr(point) == "Point(x=1, y=2, names=[])"
    assert repr(Narrow("a")) == "narrow"
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_copies_are_equal() -> None:
    point = Point(1, names=["a"])
    assert copy.copy(point) == point
    assert copy.deepcopy(point) == point
    assert pickle.loads(pickle.dumps(point)) == point
