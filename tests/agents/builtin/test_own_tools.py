"""The built-in agent with the engine's own tools, as the real program runs it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.builtin.tool import ToolError
from orchard.agents.builtin.tools import own
from orchard.agents.protocol import McpServer
from orchard.engine.server.server import Caller
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.server import tool_channel
from tests.acceptance.program import Desk
from tests.agents.llm import Call, Say, ScriptedLlm, steps

SECONDS = 120.0
SDKS = ("mcp", "mcp_types", "acp")
RUN = "import sys; from orchard.surfaces.cli.start import run_command_line as run; code = run({words!r})"
LOADED = f"print('loaded', [name for name in {SDKS!r} if name in sys.modules]); sys.exit(code)"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_turn_uses_the_tools_of_its_job_and_imports_no_protocol_for_it(desk: Desk, provider: str) -> None:
    script = steps(
        Call("mcp__orchard__report_progress", {"message": "Half of it is there."}),
        Call("mcp__orchard__report_progress", {"message": ""}),
        Call("mcp__orchard__get_job", {"job": "elsewhere/none"}),
        Call("write_file", {"path": "mine.txt", "content": "mine\n"}),
        Say("It is done."),
    )
    work = {"type": "agent", "agent": "builtin", "instructions": "Write the file."}
    plan = desk.folder / "plan.json"
    plan.write_text(json.dumps({"name": "p", "target": "landed", "jobs": [{"id": "a", "work": work}]}))
    with ScriptedLlm(script) as llm:
        url = llm.url if provider == "anthropic" else f"{llm.url}/v1"
        settings = Path(desk.env["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(
            f"[agents.builtin]\nprovider = '{provider}'\nbase_url = '{url}'\nmodel = 'fake'\napi_key_env = 'A_KEY'\n"
        )

        code = f"{RUN.format(words=['run', str(plan), '--quiet'])}; {LOADED}"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=desk.repo.path, env={**desk.env, "A_KEY": "not-a-key"},
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

        offered, results = llm.offered(), llm.requests[-1].results
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["loaded []"]), done.stderr
    assert {"mcp__orchard__report_progress", "mcp__orchard__spawn_subtask", "mcp__orchard__get_plan"} <= offered
    assert "mcp__orchard__cancel_plan" not in offered
    assert json.loads(results[0]) == {"recorded": True}
    assert "message: must not be empty" in results[1] and "has no job 'elsewhere/none'" in results[2]
    told = [json.loads(event[3])["message"] for event in desk.events("ProgressReported")]
    assert told == ["Half of it is there."]


@pytest.mark.anyio
async def test_a_call_that_is_given_up_ends_at_the_other_end_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def call(*_: object) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served: Any = None
        await tool_channel._answer(served, Caller(reader, writer, {}, None))
        writer.close()

    monkeypatch.setattr(toolbox, "call", call)
    door = str(tmp_path / "door")
    async with await asyncio.start_unix_server(answer, door):
        server = McpServer("orchard", dial=lambda: asyncio.open_unix_connection(door))
        with pytest.raises(ToolError, match="did not answer within"):
            async with own._asked(server, {"call": "any", "arguments": {}}, 0.2):
                pass
        async with asyncio.timeout(10):
            await ended.wait()
