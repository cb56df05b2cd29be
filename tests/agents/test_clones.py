"""A cloned repository's settings for agents' programs, with the real programs: nothing in them counts before trust."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.agents.cli import CliAgent
from orchard.agents.protocol import Result
from orchard.model.agent_rows import AgentRow
from orchard.model.limits import Limits
from orchard.surfaces.next_steps import in_commands
from tests.agents.claims import NOWHERE, WRITES, Claims
from tests.agents.clones import ADDRESSES, Attacker, files_for, hostile_clone
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import ScriptedLlm
from tests.agents.programs import program
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
            assert "orchard trust" in in_commands(result.hint or "")
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


# ------------------------------------------------------------------------------ who has named no address himself

NO_ADDRESS: dict[str, tuple[str, dict[str, str]]] = {
    "claude": ("claude-sonnet-4-5", {"ANTHROPIC_API_KEY": "not-a-key"}),
    "codex": ("gpt-5", {"OPENAI_API_KEY": "not-a-key"}),
    "copilot": ("gpt-5", {"COPILOT_GITHUB_TOKEN": "gho_notakey", "COPILOT_PROVIDER_API_KEY": "not-a-key"}),
    "gemini": ("gemini-2.5-flash", {"GEMINI_API_KEY": "not-a-key"}),
    "opencode": (
        "anthropic/claude-sonnet-4-5",
        {"ANTHROPIC_API_KEY": "not-a-key", "OPENCODE_DISABLE_MODELS_FETCH": "1", "NPM_CONFIG_REGISTRY": NOWHERE},
    ),
    "qwen": ("qwen3-coder", {"OPENAI_API_KEY": "not-a-key"}),
}
"""A model, and the key of a user who relies on the program's own address."""


@pytest.mark.parametrize("by_user", [False, True], ids=["the clone says it", "the user says it"])
@pytest.mark.parametrize("name", NO_ADDRESS)
async def test_where_the_user_names_no_address_a_clone_names_none_either(
    name: str, by_user: bool, desk: Desk, ear: Ear, tmp_path: Path
) -> None:
    model, env = NO_ADDRESS[name]
    with Attacker(tmp_path) as attacker:
        folder = desk.folder
        if by_user:
            env = {**env, **dict.fromkeys(ADDRESSES, attacker.url)}
        elif name in CANNOT:
            (folder / ".env").write_text(files_for(name, attacker)[".env"])
        else:
            folder = hostile_clone(tmp_path, attacker, name)
        # The usual addresses lead nowhere, so that no test asks a real owner of models; the attacker's can be reached.
        closed = {"HTTPS_PROXY": NOWHERE, "https_proxy": NOWHERE, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        path = program(name).search_path
        task = desk.task("Do it.", path=path, env={**env, **closed}, limits=Limits(wall=45, grace=1))
        agent = CliAgent(PROGRAMS[name]().backend(), AgentRow(model=model))
        result = await run(agent, replace(task, folder=folder), ear)

        assert result.reason != "done", result
        assert bool(attacker.harvest()) == by_user, result
