"""What each program is told of the tools that it may use: a table of backend and mode, and what has no effect."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.cli import CliAgent, backend, served
from orchard.agents.permissions import ACP_KINDS, denied_of_server, of_server, permits_kind, unheld
from orchard.agents.protocol import McpServer, Noted, Settings, Telling
from orchard.model.agent_rows import BACKENDS, AgentRow
from orchard.model.permissions import ALL, Tools, made, narrowed
from tests.agents.conftest import Desk, Ear

KEYS = {
    "ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": "x", "GEMINI_API_KEY": "x", "COPILOT_PROVIDER_BASE_URL": "x",
}  # fmt: skip
DOCS = McpServer("docs", "server")
OURS = McpServer("orchard", "relay", offered=True)


def prepared(name: str, desk: Desk, tools: Tools, *servers: McpServer) -> tuple[str, Mapping[str, str]]:
    """The arguments of a program in a line, and its variables, for what it may use."""
    settings = Settings(tools=tools, mcp_servers=servers)
    command = backend(name).prepare(name, AgentRow(), desk.task(env=KEYS, settings=settings), lambda told: None)
    return " ".join(command.argv), command.env


TABLE: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
    ("claude", "read-only", ("--tools Read,Glob,LS,Grep,", "--disallowedTools Edit,"), ("--dangerously", "Tools Bash")),
    ("claude", "edit", ("--permission-mode acceptEdits --tools Read,", "Write", "--disallowedTools Bash"),
     ("--dangerously",)),
    ("codex", "read-only", ("--sandbox read-only", 'approval_policy="never"'), ("bypass", "workspace-write ")),
    ("codex", "edit", ("--sandbox workspace-write",), ("bypass",)),
    ("copilot", "read-only", ("--deny-tool=shell", "--deny-tool=write", "--deny-tool=url", "--excluded-tools=create"),
     ("--excluded-tools=view",)),
    ("copilot", "edit", ("--deny-tool=shell", "--excluded-tools=bash"), ("--deny-tool=write", "--excluded-tools=edit")),
    ("gemini", "read-only", ("--policy=",), ()),
    ("qwen", "read-only", ("--core-tools=read_file", "--exclude-tools=write_file", "--exclude-tools=run_shell_command"),
     ("--core-tools=edit",)),
    ("qwen", "edit", ("--core-tools=edit", "--exclude-tools=run_shell_command"), ("--exclude-tools=edit",)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "tools", "there", "absent"), TABLE)
def test_the_arguments_of_each_program_in_each_mode(
    desk: Desk, name: str, tools: str, there: tuple[str, ...], absent: tuple[str, ...]
) -> None:
    line, _ = prepared(name, desk, made(tools))
    assert [words for words in there if words not in line] == [], line
    assert [words for words in absent if words in line] == [], line


@pytest.mark.parametrize("name", BACKENDS)
def test_without_limits_nothing_is_said_about_tools(desk: Desk, name: str) -> None:
    line, env = prepared(name, desk, ALL)
    for words in ("--tools", "disallowed", "--deny-tool", "excluded", "--policy", "--core-tools", "read-only"):
        assert words not in line
    assert '"*": "deny"' not in env.get("OPENCODE_CONFIG_CONTENT", "").replace('"external_directory": {"*": "deny"', "")


def test_gemini_is_given_rules_by_which_nothing_is_allowed_but_what_is_named(desk: Desk) -> None:
    line, _ = prepared("gemini", desk, made("edit"), OURS)
    file = next(word.partition("=")[2] for word in line.split() if word.startswith("--policy="))
    with Path(file).open("rb") as content:
        rules = tomllib.load(content)["rule"]

    assert rules[0] == {"toolName": "*", "decision": "deny", "priority": 100}
    allowed = {(rule["toolName"], rule.get("mcpName")) for rule in rules[1:] if rule["decision"] == "allow"}
    assert ("write_file", None) in allowed and ("*", "orchard") in allowed
    assert ("run_shell_command", None) not in allowed
    assert all(rule["priority"] > 100 for rule in rules[1:])


def test_opencode_is_given_permissions_by_which_nothing_is_allowed_but_what_is_named(desk: Desk) -> None:
    _, env = prepared("opencode", desk, made(["read-only", "mcp__docs__Find"]), DOCS, OURS)
    found = json.loads(env["OPENCODE_CONFIG_CONTENT"])["permission"]

    assert next(iter(found)) == "*" and found["*"] == "deny"
    assert found["read"] == found["docs_Find"] == found["orchard_*"] == "allow"
    assert "edit" not in found and "bash" not in found


def test_codex_never_works_without_its_walls_where_it_may_not_do_all(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchard.agents.backends.codex.without_namespaces", lambda: "there are none here")
    assert "--dangerously-bypass" in prepared("codex", desk, ALL)[0]
    assert "--dangerously-bypass" not in prepared("codex", desk, made("edit"))[0]


def test_single_tools_of_servers(desk: Desk) -> None:
    tools = made(["read-only", "mcp__docs__Find", "mcp__docs__get"], ["mcp__docs__get"])
    assert of_server(tools, "docs") == ("Find",)
    assert denied_of_server(tools, "docs") == ("get",)
    assert of_server(made(["mcp__docs__*"]), "docs") is None
    assert of_server(made("all"), "docs") is None
    assert of_server(narrowed(made(["mcp__docs__a", "mcp__docs__b"]), made(["mcp__docs__b"])), "docs") == ("b",)

    line, _ = prepared("claude", desk, tools, DOCS, OURS)
    assert "mcp__docs__Find," in line and "mcp__orchard" in line and "mcp__docs," not in line
    assert "mcp__docs__get" in line.partition("--disallowedTools")[2]
    prepared("copilot", desk, tools, DOCS, OURS)
    held = json.loads((desk.private / "copilot-mcp.json").read_text())["mcpServers"]
    assert (held["docs"]["tools"], held["orchard"]["tools"]) == (["Find"], ["*"])
    assert 'enabled_tools" = ["Find"]' in prepared("codex", desk, tools, DOCS)[0]
    prepared("qwen", desk, tools, DOCS)
    row = json.loads((desk.private / "qwen-mcp.json").read_text())["mcpServers"]["docs"]
    assert (row["includeTools"], row["excludeTools"]) == (["Find"], ["get"])


def test_a_server_none_of_whose_tools_may_be_used_is_not_told_of_and_ours_is() -> None:
    told: list[Telling] = []
    kept = served(Settings(tools=made("edit"), mcp_servers=(DOCS, OURS)), told.append)
    assert kept == (OURS,)
    assert told == [Noted("mcp", "MCP server 'docs' is left out: none of its tools may be used.")]
    assert served(Settings(tools=made(deny=["mcp__orchard__*"]), mcp_servers=(OURS,)), told.append) == ()


UNHELD: list[tuple[str, Any, str]] = [
    ("tools", made("edit"), ""),
    ("tools", made(["read_file"], ["bash"]), ""),
    ("tools", made("ask"), "'tools: ask' has no effect with X"),
    ("tools", made(["mcp__docs__re*"]), "'mcp__docs__re*' has no effect with X"),
    ("tools", made(["mcp__docs__*"]), ""),
    ("modes", made("read-only"), ""),
    ("modes", made(["read_file"]), "holds for X only as 'read-only'"),
    ("modes", made("edit", ["git_add"]), "holds for X only as 'edit'"),
    ("asked", made("edit"), "holds for X only as far as it asks"),
    ("asked", made("ask"), ""),
    ("nothing", made("edit"), "'tools: edit' has no effect with X"),
    ("nothing", ALL, ""),
]


@pytest.mark.parametrize(("holds", "tools", "said"), UNHELD)
def test_what_has_no_effect_is_said(holds: Any, tools: Tools, said: str) -> None:
    found = " ".join(unheld("X", holds, tools))
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.anyio
async def test_a_row_takes_tools_away_whatever_the_task_says(desk: Desk, ear: Ear) -> None:
    seen: list[Settings] = []

    class Listening:
        name, program, variables, holds = "listening", "true", (), "nothing"

        def prepare(self, program: str, row: AgentRow, task: Any, tell: Any) -> Any:
            seen.append(task.settings)
            raise OSError("it is enough")

        def reader(self, task: Any, tell: Any) -> Any: ...

    agent = CliAgent(Listening(), AgentRow(tools="read-only"))  # type: ignore[arg-type]
    await agent.run(desk.task(settings=Settings(tools=made("edit", ["git_log"]))), ear.watch)

    assert seen[0].tools == made("read-only", ["git_log"])


def test_every_kind_of_the_protocol_is_one_of_ours() -> None:
    edit = made("edit")
    assert {kind for kind, ours in ACP_KINDS.items() if permits_kind(edit, ours)} == {
        "read", "search", "edit", "delete", "move",
    }  # fmt: skip
    assert not permits_kind(made(["edit_file"]), "edit"), "it may be any tool that edits"
