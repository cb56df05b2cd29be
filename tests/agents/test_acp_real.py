"""Real agents that speak the Agent Client Protocol, against a scripted model."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.acp.agent import AcpAgent
from orchard.agents.protocol import Called, McpServer, Result, Settings, Task
from orchard.model.agent_rows import AgentRow
from orchard.model.usage import Usage
from orchard.process.families.family import members
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import Call, Hang, Mcp, Say, ScriptedLlm, Shell, routes, steps
from tests.agents.programs import program

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Kind:
    """One real agent: how it is started, and how it finds the scripted model."""

    program: str
    args: tuple[str, ...]
    env: Callable[[str, Desk], Mapping[str, str]]


def copilot(url: str, desk: Desk) -> Mapping[str, str]:
    return {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": "test-key",
        "COPILOT_MODEL": "fake-model",
    }


def claude(url: str, desk: Desk) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "test-key",
        "CLAUDE_CONFIG_DIR": str(desk.private / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }


def codex(url: str, desk: Desk) -> Mapping[str, str]:
    home = desk.private / "codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        "model = 'gpt-5'\nmodel_provider = 'scripted'\nsandbox_mode = 'danger-full-access'\n"
        "check_for_update_on_startup = false\nanalytics.enabled = false\n"
        "features.plugins = false\nfeatures.apps = false\n"
        f"[model_providers.scripted]\nname = 'scripted'\nbase_url = '{url}/v1'\nenv_key = 'SCRIPTED_KEY'\n"
        "wire_api = 'responses'\nrequest_max_retries = 0\nstream_max_retries = 0\n"
    )
    return {"CODEX_HOME": str(home), "SCRIPTED_KEY": "test-key"}


KINDS = {
    "copilot": Kind("copilot", ("--acp",), copilot),
    "claude-agent-acp": Kind("claude-agent-acp", (), claude),
    "codex-acp": Kind("codex-acp", (), codex),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each of them."""
    return KINDS[request.param]


def agent_and_task(
    kind: Kind, llm: ScriptedLlm, desk: Desk, instructions: str = "Write what the script says.", **more: Any
) -> tuple[AcpAgent, Task]:
    found = program(kind.program)
    row = AgentRow(args=kind.args, env=kind.env(llm.url, desk))
    task = desk.task(instructions, path=found.search_path, **more)
    return AcpAgent(kind.program, row), task


async def turn(kind: Kind, llm: ScriptedLlm, desk: Desk, ear: Ear, **more: Any) -> Result:
    agent, task = agent_and_task(kind, llm, desk, **more)
    async with asyncio.timeout(200):
        return await agent.run(task, ear.watch)


async def test_a_file_is_written_and_every_token_is_counted(kind: Kind, desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Shell("echo hello > hello.txt"), Say("I wrote hello.txt."))) as llm:
        result = await turn(kind, llm, desk, ear)

        assert (result.reason, result.message) == ("done", "")
        assert result.text == "I wrote hello.txt."
        assert result.session == ear.session is not None
        assert (desk.folder / "hello.txt").read_text() == "hello\n"
        assert [call.about for call in ear.of(Called)] == ["echo hello > hello.txt"]
        assert tokens(ear.usage) == tokens(llm.usage())
    assert not list(desk.home.glob("hello*"))


def tokens(usage: Usage) -> tuple[int, int, int, int]:
    return usage.input, usage.cached, usage.cache_writes, usage.output


async def test_a_session_goes_on_and_only_the_new_turn_is_told(kind: Kind, desk: Desk) -> None:
    first, second = Ear(), Ear()
    with ScriptedLlm(steps(Shell("date >> dates.txt"), Say("I added a date."))) as llm:
        begun = await turn(kind, llm, desk, first)
        before, cost = len(llm.requests), first.usage.cost
        result = await turn(kind, llm, desk, second, session=begun.session, instructions="Once more.")

        assert result.ok
        assert result.session == begun.session
        assert len((desk.folder / "dates.txt").read_text().splitlines()) == 2
        assert second.text == "I added a date."
        # A title for the session is the agent's own affair, and not told.
        asked = [request for request in llm.requests[before:] if request.tools]
        assert len(asked) == 2
        assert any("Once more." in prompt for prompt in asked[0].prompts)
        assert any("Write what the script says." in prompt for prompt in asked[0].prompts)
        assert 0 < second.usage.tokens < first.usage.tokens * 2
    if cost is not None:
        assert second.usage.cost is not None
        assert 0 < second.usage.cost < 2 * cost


async def test_a_session_that_the_agent_never_had_is_lost(kind: Kind, desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Say("Never."))) as llm:
        result = await turn(kind, llm, desk, ear, session="019a0000-0000-7000-8000-000000000000")

    assert result.reason == "session-lost"
    assert not llm.requests


@pytest.mark.parametrize(("status", "reason"), [(401, "not-logged-in"), (429, "rate-limit"), (500, "overloaded")])
async def test_errors_of_the_model_have_their_reason(
    kind: Kind, desk: Desk, ear: Ear, status: int, reason: str
) -> None:
    with ScriptedLlm(steps(Say("Never."))) as llm:
        llm.fail(status, times=None, retry_after=1 if status == 429 else None)
        result = await turn(kind, llm, desk, ear)

    assert result.reason == reason
    assert result.message


async def test_cancellation_in_mid_turn_leaves_no_process_and_no_late_edit_and_the_session_goes_on(
    kind: Kind, desk: Desk, ear: Ear
) -> None:
    work = steps(Shell("touch begun; sleep 5; echo late > late.txt"), Say("Done."))
    with ScriptedLlm(routes({"Go on": steps(Say("I am back."))}, work)) as llm:
        agent, task = agent_and_task(kind, llm, desk)
        running = asyncio.ensure_future(agent.run(task, ear.watch))
        async with asyncio.timeout(100):
            while not (desk.folder / "begun").exists():
                assert not running.done()
                await asyncio.sleep(0.05)
        begun = time.monotonic()

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert members(task.launcher.token, None, task.log) == []
        await asyncio.sleep(max(0.0, begun + 5.5 - time.monotonic()))
        assert not (desk.folder / "late.txt").exists()

        result = await turn(kind, llm, desk, Ear(), session=ear.session, instructions="Go on.")
        assert (result.reason, result.text) == ("done", "I am back."), result.message


async def test_a_model_that_hangs_is_canceled(kind: Kind, desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Hang(Shell("echo late > late.txt")), Say("Done."))) as llm:
        agent, task = agent_and_task(kind, llm, desk)
        running = asyncio.ensure_future(agent.run(task, ear.watch))
        await asyncio.to_thread(llm.wait_hanging)

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        llm.release()

        assert members(task.launcher.token, None, task.log) == []
        assert not (desk.folder / "late.txt").exists()


@pytest.mark.parametrize(
    ("name", "tool", "path", "text"),
    [("copilot", "create", "path", "file_text"), ("claude-agent-acp", "Write", "file_path", "content")],
)
async def test_a_file_outside_is_denied(
    desk: Desk, ear: Ear, tmp_path: Path, name: str, tool: str, path: str, text: str
) -> None:
    outside = tmp_path / "outside.txt"
    with ScriptedLlm(steps(Call(tool, {path: str(outside), text: "x"}), Say("I tried."))) as llm:
        result = await turn(KINDS[name], llm, desk, ear)

    assert result.reason == ("denied" if name == "copilot" else "done")
    assert not outside.exists()
    assert str(outside) in ear.notes("denied")[0]


async def test_a_server_of_ours_is_called(kind: Kind, desk: Desk, ear: Ear) -> None:
    server = program("server-everything")
    # Started by our own hand: the agent's PATH may have no Node.
    ours = McpServer("every", command=str(server.path), args=("stdio",), env={"PATH": server.search_path})
    with ScriptedLlm(steps(Mcp("every", "echo", {"message": "marco"}), Say("I heard it."))) as llm:
        result = await turn(kind, llm, desk, ear, settings=Settings(mcp_servers=(ours,)))

        assert result.ok
        assert any("marco" in text for text in llm.requests[-1].results)
