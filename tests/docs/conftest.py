"""A reader with a terminal and a repository."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import desks
from tests.docs.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    for desk in desks(tmp_path):
        yield Shell(desk)
