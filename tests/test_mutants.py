"""Every mutant still fits the source: one that does not would protect nothing without anybody noticing."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MUTANTS = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))["mutant"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_a_mutant_changes_a_text_that_stands_there_once_and_names_tests_that_exist(mutant: dict[str, object]) -> None:
    source = (ROOT / "src" / "orchard" / str(mutant["file"])).read_text("utf-8")
    tests = mutant["tests"]

    also = mutant.get("also", [])
    assert isinstance(also, list)
    for one in (mutant, *also):
        assert source.count(str(one["old"])) == 1
        assert one["old"] != one["new"]
    assert isinstance(tests, list) and all((ROOT / str(test).partition("::")[0]).exists() for test in tests)
