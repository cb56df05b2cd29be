"""Every attack of the corpus behind every wall, as root and as an ordinary user.

What a level promises is that its attacks fail; what it does not promise is named at the attack. Both are held, so
that the table in docs/sandbox.md says what is so: it is written by tools/sandbox_table.py from the same run.
"""

import os

import pytest

from orchard.process.sandbox.level import bwrap_program
from orchard.process.sandbox.policy import Level
from tests.process.sandbox.corpus.run import ATTACKS, succeeded
from tests.process.sandbox.walled import ORDINARY

USERS = {"root": None, "user": ORDINARY} if os.geteuid() == 0 else {"user": None}

pytestmark = pytest.mark.skipif(bwrap_program() is None, reason="bubblewrap is not installed")


def test_every_attack_has_a_name_of_its_own() -> None:
    names = [attack.name for attack in ATTACKS]

    assert len(names) == len(set(names)) >= 250


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("level", ["bwrap"])
def test_no_attack_succeeds_that_the_level_promises_to_stop(level: Level, user: str) -> None:
    won, words = succeeded(level, USERS[user])

    promised = [attack.name for attack in ATTACKS if level not in attack.passes]
    assert {name: words[name] for name in promised if name in won} == {}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="half of the attacks need a root who has lost his way")
def test_every_attack_succeeds_without_a_wall() -> None:
    won = {name for user in USERS.values() for name in succeeded("off", user)[0]}

    assert [attack.name for attack in ATTACKS if attack.name not in won and not attack.sometimes] == []
