"""The toolbox as a whole: which tools there are, which are denied, and what it leaves behind."""

import asyncio
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from orchard.agents.builtin.toolbox import open_toolbox
from orchard.agents.protocol import McpServer, Telling
from orchard.model.permissions import ALL
from orchard.process.background import beside
from tests.agents.builtin.kit import make_context, open_box
from tests.agents.builtin.test_mcp import small

pytestmark = pytest.mark.anyio

OWN = [
    "bash", "edit_file", "git_add", "git_branch", "git_commit", "git_diff", "git_log", "git_status",
    "github_create_comment", "github_get_issue", "github_list_issues", "list_files", "read_file", "search_files",
    "write_file",
]  # fmt: skip


async def test_every_tool_of_the_design_is_there_sorted_and_described_for_a_model(tmp_path: Path) -> None:
    async with open_box(tmp_path) as box:
        tools = box.tools

    assert [tool.name for tool in tools] == OWN
    for tool in tools:
        import_module("jsonschema").Draft202012Validator.check_schema(tool.schema)
        assert tool.schema["type"] == "object"
        assert tool.schema["additionalProperties"] is False
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool.name)
        assert 10 < len(tool.description) < 1000


async def test_only_tools_that_change_nothing_run_beside_others(tmp_path: Path) -> None:
    async with open_box(tmp_path) as box:
        beside_others = {tool.name for tool in box.tools if tool.parallel}

    changing = {"bash", "edit_file", "write_file", "git_add", "git_branch", "git_commit", "github_create_comment"}
    assert beside_others == set(OWN) - changing


async def test_denied_tools_are_not_there_and_a_rule_without_effect_is_told(tmp_path: Path) -> None:
    async with open_box(tmp_path, deny=["github_*", "bash", "git_comit"]) as box:
        assert box.names == [name for name in OWN if name != "bash" and not name.startswith("github_")]

    assert box.notes == ["'deny_tools: git_comit' has no effect: there is no such tool."]


async def test_tools_of_servers_can_be_denied_and_a_server_without_any_is_not_started(tmp_path: Path) -> None:
    missing = McpServer("missing", command="no-such-program")
    deny = ["mcp__missing__*", "mcp__small__die"]

    async with open_box(tmp_path, [missing, small()], deny) as box:
        names = [name for name in box.names if name.startswith("mcp__")]

    assert "mcp__small__echo" in names
    assert "mcp__small__die" not in names
    assert box.notes == []


async def test_an_error_of_whoever_uses_the_toolbox_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_box(tmp_path, [small()]):
            raise ZeroDivisionError


async def test_nothing_is_left_in_the_scratch_folder_but_the_logs_of_servers(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    told: list[Telling] = []

    async with open_toolbox(make_context(tmp_path, scratch=scratch), [small()], ALL, told.append) as tools:
        assert tools

    assert [path.name for path in scratch.iterdir()] == ["mcp-0.log"]


def test_without_a_server_the_client_of_mcp_is_not_imported() -> None:
    program = (
        "import sys, orchard.agents.builtin.toolbox; print({'mcp', 'anyio', 'httpx2', 'jsonschema'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "set()"


# ------------------------------------------------------------------------------ work beside somebody


async def test_what_runs_beside_ends_when_the_body_does() -> None:
    ended: list[str] = []
    leave = asyncio.Event()

    async def polite() -> None:
        await leave.wait()
        ended.append("polite")

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("stubborn")

    async with beside(polite(), stubborn(), leave=leave.set, patience=0.1):
        await asyncio.sleep(0)
        assert ended == []

    assert ended == ["polite", "stubborn"]


async def test_an_error_beside_is_raised_at_the_end_and_the_bodys_own_comes_first() -> None:
    async def fails() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        async with beside(fails()):
            await asyncio.sleep(0)
    with pytest.raises(ZeroDivisionError):
        async with beside(fails()):
            await asyncio.sleep(0)
            raise ZeroDivisionError


async def test_a_cancellation_waits_for_what_runs_beside_however_often_it_comes() -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            begun.set()
            for _ in range(3):
                try:
                    await asyncio.sleep(0.02)
                except asyncio.CancelledError:
                    continue
            cleaned.set()

    async def work() -> None:
        async with beside(slow_to_end()):
            await asyncio.Event().wait()

    running = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait_for(begun.wait(), 20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 20)

    assert cleaned.is_set()
