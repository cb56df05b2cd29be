"""What anybody on the machine can read: the arguments of programs. Nothing secret is ever in them."""

import subprocess

import pytest

from orchard.agents.acp.agent import servers
from orchard.agents.backends import claude, codex, copilot, custom, gemini, opencode, qwen
from orchard.agents.cli import Backend
from orchard.agents.facts.programs import traits_of
from orchard.agents.protocol import McpServer, Settings
from orchard.model.agent_rows import AgentRow
from tests.agents.conftest import Desk, Ear

BACKENDS: tuple[Backend, ...] = (
    claude.Claude(),
    codex.Codex(),
    copilot.Copilot(),
    custom.Custom("mine"),
    gemini.Gemini(),
    opencode.Opencode(),
    qwen.Qwen(),
)
KEYS = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GH_TOKEN"), "canary-of-the-agent")
SERVERS = (
    McpServer(
        "first", "server", ("--x",), {"TOKEN": "canary-one", "OPENAI_API_KEY": "canary-two", "PATH": "/canary-path"}
    ),
    McpServer("second", "server", (), {"TOKEN": "canary-three", "ANTHROPIC_API_KEY": "canary-four"}),
    McpServer("third", url="https://example.org/mcp", headers={"Authorization": "Bearer canary-five"}),
)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("home", ["private", "user"])
def test_no_argument_holds_a_secret_of_the_agent_or_of_a_server(
    backend: Backend, home: str, desk: Desk, ear: Ear
) -> None:
    row = AgentRow(command="mine {mcp_config}" if not backend.program else None, home=home)  # type: ignore[arg-type]
    task = desk.task(env=KEYS, settings=Settings(mcp_servers=SERVERS))

    command = backend.prepare("/bin/program", row, task, ear.told.append)

    assert "canary" not in " ".join(command.argv)


def test_no_argument_of_an_agent_behind_the_protocol_does(desk: Desk) -> None:
    arguments, _ = servers(traits_of(["copilot"]), desk.task(env=KEYS, settings=Settings(mcp_servers=SERVERS)))

    assert "canary" not in " ".join(arguments)


def test_a_server_of_codex_gets_its_own_value_of_a_variable_that_the_agent_has_too(desk: Desk, ear: Ear) -> None:
    task = desk.task(env=KEYS, settings=Settings(mcp_servers=SERVERS[:2]))
    command = codex.Codex().prepare("codex", AgentRow(home="user"), task, ear.told.append)
    env: dict[str, str] = {}
    found = codex._servers(SERVERS[:2], task.env, env)  # what is in the arguments, before it is TOML

    for server, wanted in (("first", ("canary-one", "canary-two")), ("second", ("canary-three", "canary-four"))):
        names = found[server]["env_vars"]
        seen = {name: {**task.env, **env}[name] for name in names}
        second = "OPENAI_API_KEY" if server == "first" else "ANTHROPIC_API_KEY"
        argv = [found[server]["command"], *found[server]["args"][:3], "/bin/sh", "-c", f'echo "$TOKEN ${second}"']
        said = subprocess.run(argv, env=seen, capture_output=True, text=True, check=True).stdout
        assert tuple(said.split()) == wanted
    assert env.items() <= command.env.items()
