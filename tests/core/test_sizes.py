"""Limits of the sandbox can be written as people write sizes."""

import pytest

from orchard.config.keys import KEYS

GOOD = {
    "512MB": 512 * 1000**2,
    "512mb": 512 * 1000**2,
    "2GiB": 2 << 30,
    "1.5 G": 3 << 29,
    "64K": 64 << 10,
    "4096 B": 4096,
    "0MB": None,
}


@pytest.mark.parametrize("name", ["sandbox.memory", "sandbox.disk"])
@pytest.mark.parametrize("text", GOOD)
def test_a_size_with_a_unit_is_a_number_of_bytes(name: str, text: str) -> None:
    kind = KEYS[name].kind
    assert kind.check(text) == kind.check(kind.read(text)) == GOOD[text]
    assert kind.check(12345) == kind.check(kind.read("12345")) == 12345 and kind.check(0) is None


@pytest.mark.parametrize("text", ["512 MX", "MB", "-1MB", "", "1e9", "999999T", "512MBs"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 512MB|must be from 0 to"):
        KEYS["sandbox.memory"].kind.check(text)
