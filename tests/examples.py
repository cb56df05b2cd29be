"""How much of a long list a test tries: some every day, all of it in `make test-all`."""

import os
import zlib

from hypothesis import settings

EVERYTHING = bool(os.environ.get("ORCHARD_TEST_ALL"))
SHARE = 4
"""Of so many examples, one is tried every day; they are others each time."""

FIRST_ROWS = 4
ROW_SHARE = 8
"""Of a table of cases the first few rows are tried every day, and of the rest one in so many."""


def is_everyday(name: str, row: int) -> bool:
    """Whether `make test` tries this row of a table, counted from 1; it is the same ones each time."""
    return row <= FIRST_ROWS or zlib.crc32(name.encode()) % ROW_SHARE == 0


def share_of(number: int) -> int:
    """What is tried of so many."""
    return number if EVERYTHING else max(10, number // SHARE)


def examples(number: int = 100) -> settings:
    """Settings for a test of so many examples, which may take their time."""
    return settings(max_examples=share_of(number), deadline=None)
