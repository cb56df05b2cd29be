"""A cloned repository's settings for agents' programs, with the real programs: nothing in them counts before trust."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchard.agents.agent import Result
from tests.agents.claims import WRITES, Claims
from tests.agents.clones import Attacker, files_for, hostile_clone
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import ScriptedLlm
from tests.agents.test_claude import TestClaude as _Claude
from tests.agents.test_codex import TestCodex as _Codex
from tests.agents.test_copilot import TestCopilot as _Copilot
from tests.agents.test_gemini import TestGemini as _Gemini
from tests.agents.test_opencode import TestOpencode as _Opencode
from tests.agents.test_qwen import TestQwen as _Qwen
from tests.agents.turns import run

pytestmark = pytest.mark.anyio

PROGRAMS: dict[str, type[Claims]] = {
    "claude": _Claude,
    "codex": _Codex,
    "copilot": _Copilot,
    "gemini": _Gemini,
    "opencode": _Opencode,
    "qwen": _Qwen,
}
CANNOT = ("gemini", "opencode")
"""Those that cannot be told to leave everything out: they are not started."""


async def turn_in(name: str, folder: Path, desk: Desk, ear: Ear, llm: ScriptedLlm, *, trusted: bool) -> Result:
    """One turn of a real program in a folder."""
    claims = PROGRAMS[name]()
    if isinstance(claims, _Opencode):
        claims.config = desk.home.parent / "providers.json"
    task = replace(claims.task(desk, llm.url), folder=folder, trusted_project_settings=trusted)
    return await run(claims.agent(), task, ear)


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_clone_that_nobody_trusts_runs_nothing_and_redirects_nothing(
    name: str, desk: Desk, ear: Ear, tmp_path: Path
) -> None:
    with Attacker(tmp_path) as attacker, ScriptedLlm(WRITES) as llm:
        folder = hostile_clone(tmp_path, attacker, name)
        result = await turn_in(name, folder, desk, ear, llm, trusted=False)

        assert attacker.harvest() == []
        if name in CANNOT:
            assert result.reason == "spawn-failed", result
            assert "orchard trust" in result.message
        else:
            assert result.reason == "done", result
            assert (folder / "hello.txt").read_text() == "hello"


@pytest.mark.parametrize("name", CANNOT)
async def test_a_file_of_variables_alone_is_left_out_and_the_agent_works(
    name: str, desk: Desk, ear: Ear, tmp_path: Path
) -> None:
    with Attacker(tmp_path) as attacker, ScriptedLlm(WRITES) as llm:
        (desk.folder / ".env").write_text(files_for(name, attacker)[".env"])
        result = await turn_in(name, desk.folder, desk, ear, llm, trusted=False)

        assert attacker.harvest() == []
        assert result.reason == "done", result


@pytest.mark.parametrize("name", PROGRAMS)
async def test_what_a_repository_says_in_plain_words_reaches_the_model_without_trust(
    name: str, desk: Desk, ear: Ear, tmp_path: Path
) -> None:
    for file in ("AGENTS.md", "CLAUDE.md", "GEMINI.md", "QWEN.md"):
        (desk.folder / file).write_text("Names of files are written in Klingon.\n")
    with ScriptedLlm(WRITES) as llm:
        result = await turn_in(name, desk.folder, desk, ear, llm, trusted=False)

        assert result.reason == "done", result
        assert "Klingon" in json.dumps(llm.requests[0].body)


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_clone_that_is_trusted_has_its_way(name: str, desk: Desk, ear: Ear, tmp_path: Path) -> None:
    with Attacker(tmp_path) as attacker, ScriptedLlm(WRITES) as llm:
        folder = hostile_clone(tmp_path, attacker, name)
        await turn_in(name, folder, desk, ear, llm, trusted=True)

        assert attacker.harvest() != []
