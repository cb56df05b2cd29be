"""How many made-up examples a test tries: some every day, all of them in `make test-all`."""

import os

from hypothesis import settings

EVERYTHING = bool(os.environ.get("ORCHARD_TEST_ALL"))
SHARE = 4
"""Of so many examples, one is tried every day; they are others each time."""


def share_of(number: int) -> int:
    """What is tried of so many."""
    return number if EVERYTHING else max(10, number // SHARE)


def examples(number: int = 100) -> settings:
    """Settings for a test of so many examples, which may take their time."""
    return settings(max_examples=share_of(number), deadline=None)
