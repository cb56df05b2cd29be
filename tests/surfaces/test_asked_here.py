"""A call of an agent without a plan, which the person at its terminal is asked about."""

import asyncio
import io
import json

import pytest

from orchard.agents.protocol import Wanted
from orchard.surfaces.cli.commands.machine.agents import _asked_here
from orchard.surfaces.cli.terminal import Terminal


@pytest.mark.parametrize("quiet", [False, True])
def test_the_person_at_the_terminal_sees_every_sign_of_a_call(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "echo one; \x9d; id > PWNED; \x9c\u202e\u3164"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))

    wanted = Wanted("bash", command, json.dumps({"command": command}, ensure_ascii=False))
    answer = asyncio.run(_asked_here(Terminal(quiet=quiet), wanted))

    shown = capsys.readouterr().err
    written = r"echo one; \u009d; id > PWNED; \u009c\u202e\u3164"
    assert not answer.allowed
    assert f'{{"command": "{written}"}}' in shown and f"May the agent use bash: {written}?" in shown
