"""Regular expressions that are compiled when they are first used."""

import gc
import re
from importlib import import_module
from pathlib import Path

import pytest

import orchard
from orchard import patterns
from orchard.patterns import later

PACKAGE = Path(orchard.__file__).parent


def test_a_pattern_is_compiled_by_its_first_use_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, int]] = []
    real = re.compile

    def noted(text: str, flags: int) -> re.Pattern[str]:
        compiled.append((text, flags))
        return real(text, flags)

    monkeypatch.setattr(re, "compile", noted)

    pattern = later("a+", re.IGNORECASE)
    assert compiled == []
    assert [found[0] for text in ("xAa", "b", "aa") if (found := pattern.search(text))] == ["Aa", "aa"]
    assert compiled == [("a+", re.IGNORECASE)]
    assert pattern.sub("-", "banana") == "b-n-n-"


def test_every_pattern_of_the_program_can_be_compiled() -> None:
    """What `re.compile` would say when its module is imported is said here."""
    users = [path for path in PACKAGE.rglob("*.py") if "patterns import later" in path.read_text("utf-8")]
    for path in users:
        import_module("orchard." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts))

    found = [one for one in gc.get_objects() if type(one) is patterns._Later]
    assert len(found) > 3 * len(users) > 30
    for one in found:
        assert one.pattern == one._given[0]
