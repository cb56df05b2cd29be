"""What `orchard mcp install` writes, read by the real programs it is written for."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk
from tests.agents.programs import program

ROWS = [
    ("claude", "user", "Connected"),
    ("claude", "project", "orchard"),
    ("codex", "user", "enabled"),
    ("copilot", "user", "orchard"),
    # Copilot lists nothing of a project's file in a folder that is new to it; why was not found out.
]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    try:
        yield desk
    finally:
        desk("stop", "--now")
        desk.close()


@pytest.mark.parametrize(("host", "scope", "words"), ROWS)
def test_the_host_sees_our_server(desk: Desk, host: str, scope: str, words: str) -> None:
    found = program(host)
    done = desk("mcp", "install", "--host", host, "--scope", scope, "--yes")
    assert done.code == 0, done.talk

    listed = subprocess.run(
        [str(found.path), "mcp", "list"],
        cwd=desk.repo.path,
        env={**desk.env, "PATH": found.search_path, "CI": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )

    [line] = [line for line in listed.stdout.splitlines() if "orchard" in line] or [listed.stdout + listed.stderr]
    assert words in line, listed.stdout + listed.stderr
