"""Chats that drive Orchard: the real Claude Code and Codex make a plan through our MCP server and see it land."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.agents.backends.claude import Claude
from orchard.agents.backends.codex import Codex
from orchard.agents.cli import CliAgent
from orchard.agents.protocol import McpServer, Settings
from orchard.model.agent_rows import AgentRow
from tests.acceptance.program import Desk as Home
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import Asked, Mcp, Reply, Say, ScriptedLlm, Shell
from tests.agents.programs import program
from tests.agents.turns import run

pytestmark = pytest.mark.anyio

PLAN = {
    "name": "From a chat",
    "target": "chat",
    "jobs": [
        {"id": "one", "work": "echo one > one.txt"},
        {"id": "two", "needs": ["one"], "work": "echo two > two.txt"},
    ],
}
MOST = 40


def _drives(asked: Asked) -> Reply:
    """Makes a plan, waits until it has ended, and says so."""
    if asked.wire == "responses" and "mcp__orchard" not in asked.tools:
        return Shell("sleep 0.5")  # Codex offers the tools of a server once it is up, and does not wait for that
    told = " ".join(asked.results)
    made = re.search(r"from-a-chat-\w{5}", told)
    if made is None:
        return Mcp("orchard", "create_plan", PLAN) if len(asked.results) < MOST else Say("Gave up.")
    if not re.search(r"\\?\"status\\?\": ?\\?\"succeeded", told) and len(asked.results) < MOST:
        return Mcp("orchard", "wait_plan", {"plan": made[0], "until": "end", "timeout_s": 20})
    return Say(f"Plan {made[0]} has ended.")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home-of-the-user")
    try:
        yield home
    finally:
        home("stop", "--now")
        home.close()


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_chat_makes_a_plan_and_sees_it_land(home: Home, desk: Desk, ear: Ear, name: str) -> None:
    found = program(name)
    with ScriptedLlm(_drives) as llm:
        urls = {"ANTHROPIC_BASE_URL": llm.url, "OPENAI_BASE_URL": f"{llm.url}/v1"}
        keys = {"ANTHROPIC_API_KEY": "not-a-key", "OPENAI_API_KEY": "not-a-key"}
        server = McpServer("orchard", sys.executable, ("-m", "orchard", "mcp"), env=home.env)
        task = desk.task(path=found.search_path, env={**urls, **keys}, settings=Settings(mcp_servers=(server,)))
        agent = (
            CliAgent(Claude(), AgentRow(model="claude-sonnet-4-5"))
            if name == "claude"
            else CliAgent(Codex(), AgentRow(model="gpt-5"))
        )
        result = await run(agent, replace(task, folder=home.repo.path), ear)

    assert result.reason == "done", result
    assert "has ended" in ear.text, ear.told
    assert home.repo.files("chat").keys() >= {"one.txt", "two.txt"}
    [plan] = home("list", "--json").json
    assert plan["landed"]
    assert plan["status"] == "succeeded"
