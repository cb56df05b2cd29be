"""Every attack of the corpus behind every wall, as root and as an ordinary user.

What a level promises is that its attacks fail; what it does not promise is named in `corpus.promises`. The table in
docs/sandbox.md is written by tools/sandbox_table.py from such a run, and held against this one.
"""

import os
from collections.abc import Iterator

import pytest
from tools.sandbox_table import PAGE, cells

from orchard.process.sandbox.level import walls
from orchard.process.sandbox.policy import Level
from tests.process.sandbox.corpus.promises import NOT_PROMISED
from tests.process.sandbox.corpus.run import ATTACKS, succeeded
from tests.process.sandbox.walled import ORDINARY
from tests.strays import end_strays

USERS = {"root": None, "user": ORDINARY} if os.geteuid() == 0 else {"user": None}
WORKING = {finding.level for finding in walls().findings if finding.works}


@pytest.fixture(autouse=True)
def survivors() -> Iterator[None]:
    """Attacks try to outlive their wall; without an engine nobody but us ends what a weak one lets live."""
    yield
    end_strays()


def test_every_attack_has_a_name_of_its_own() -> None:
    names = [attack.name for attack in ATTACKS]

    assert len(names) == len(set(names)) >= 250
    assert all(NOT_PROMISED[level] <= set(names) for level in NOT_PROMISED)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("level", NOT_PROMISED)
def test_no_attack_succeeds_that_the_level_promises_to_stop(level: Level, user: str) -> None:
    if level not in WORKING:
        pytest.skip(f"{level} does not work here")

    won, words = succeeded(level, USERS[user])

    assert {name: words[name] for name in won - NOT_PROMISED[level]} == {}
    if os.geteuid() == 0:  # who alone can lay out everything that is attacked, as it was for the page
        assert _told_otherwise(level, user, won) == []


def _told_otherwise(level: str, user: str, won: frozenset[str]) -> list[str]:
    written = cells(PAGE.read_text())
    everywhere = [attack.name for attack in ATTACKS if not attack.sometimes]
    return [name for name in everywhere if (written[name, level, user] == "open") != (name in won)]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="half of the attacks need a root who has lost his way")
def test_every_attack_succeeds_without_a_wall() -> None:
    won = {name for user in USERS.values() for name in succeeded("off", user)[0]}

    assert [attack.name for attack in ATTACKS if attack.name not in won and not attack.sometimes] == []
