"""Which agents there are, which of them can be used here, and what is said where one cannot."""

import contextlib
from pathlib import Path

import pytest

from orchard.agents.builtin.agent import BuiltinAgent
from orchard.agents.cli import CliAgent, backend
from orchard.agents.facts.known import BUILTIN_ABILITIES
from orchard.agents.protocol import McpServer, Noted, Settings, Task, Telling
from orchard.agents.registry import Agents, NoAgent
from orchard.config.layers import Config
from orchard.errors import OrchardError, UsageError
from orchard.model.agent_rows import AGENTS, BACKENDS, AgentRow, BuiltinRow, ServerRow
from orchard.process.launcher import Launcher
from orchard.surfaces.next_steps import in_commands


class Machine:
    """A user's variables, home and programs."""

    def __init__(self, folder: Path) -> None:
        self.home, self.bin = folder / "home", folder / "bin"
        self.home.mkdir()
        self.bin.mkdir()
        self.env = {"HOME": str(self.home), "PATH": str(self.bin)}

    def install(self, *names: str) -> None:
        for name in names:
            (self.bin / name).write_text("#!/bin/sh\n")
            (self.bin / name).chmod(0o755)

    def write(self, name: str, text: str = "") -> None:
        (self.home / name).parent.mkdir(parents=True, exist_ok=True)
        (self.home / name).write_text(text)

    def agents(self, config: Config | None = None, /, **env: str) -> Agents:
        return Agents(config or Config(), {**self.env, **env})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# ------------------------------------------------------------------------------------- the default


def test_where_nothing_is_installed_no_agent_can_be_used(machine: Machine) -> None:
    with pytest.raises(NoAgent, match="No agent can be used") as caught:
        machine.agents().find(None)

    assert "orchard agents" in in_commands(caught.value.hint or "")


def test_the_configuration_chooses_the_default(machine: Machine) -> None:
    machine.install("gemini")
    agents = machine.agents(Config(agent="gemini"), ANTHROPIC_API_KEY="k", GEMINI_API_KEY="k")

    assert agents.find(None).name == "gemini"


def test_our_own_comes_first_where_it_has_a_key(machine: Machine) -> None:
    machine.install("claude")

    assert isinstance(machine.agents(ANTHROPIC_API_KEY="k").find(None), BuiltinAgent)


@pytest.mark.parametrize(
    ("installed", "env", "chosen"),
    [
        (("claude", "codex", "gemini"), {"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}, "codex"),
        (("gemini", "qwen"), {"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}, "gemini"),
        (("qwen", "opencode"), {"OPENAI_API_KEY": "k"}, "qwen"),
        (("opencode",), {"OPENAI_API_KEY": "k"}, "opencode"),
        (("copilot", "claude"), {"COPILOT_GITHUB_TOKEN": "k"}, "copilot"),
    ],
)
def test_the_first_that_is_installed_and_has_credentials_is_chosen(
    machine: Machine, installed: tuple[str, ...], env: dict[str, str], chosen: str
) -> None:
    machine.install(*installed)

    assert machine.agents(**env).find(None).name == chosen


def test_who_surely_has_a_login_is_chosen_before_who_may_have_one(machine: Machine) -> None:
    machine.install("claude", "codex")
    machine.write(".claude/settings.json", '{"apiKeyHelper": "x"}')
    assert machine.agents().find(None).name == "claude"

    machine.write(".codex/auth.json")
    assert machine.agents().find(None).name == "codex"


def test_an_agent_that_works_without_a_login_is_not_chosen_by_itself(machine: Machine) -> None:
    """What is sent to a model that asks for no login is read by others: only whoever names it may want that."""
    machine.install("opencode")

    assert machine.agents().default() is None
    assert machine.agents().find("opencode").name == "opencode"


def test_an_agent_of_the_users_own_is_chosen_last(machine: Machine) -> None:
    machine.install("mytool", "codex")
    config = Config(agents={"mine": AgentRow(command="mytool {prompt}")})

    assert machine.agents(config).find(None).name == "mine"
    assert machine.agents(config, OPENAI_API_KEY="k").find(None).name == "codex"


# ---------------------------------------------------------------------------------------- by name


@pytest.mark.parametrize("name", BACKENDS)
def test_every_known_agent_is_found_by_its_name(machine: Machine, name: str) -> None:
    machine.install(name)

    agent = machine.agents(**{backend(name).known.keys[0]: "k"}).find(name)

    assert isinstance(agent, CliAgent) and agent.name == name


@pytest.mark.parametrize("name", BACKENDS)
def test_a_program_may_see_what_it_logs_in_with(name: str) -> None:
    found = backend(name)

    assert (found.name, found.known.name) == (name, name)
    assert set(found.known.keys) <= set(found.variables)
    assert not found.known.folder[0] or found.known.folder[0] in found.variables


@pytest.mark.parametrize("name", BACKENDS)
def test_what_a_program_is_said_to_honour_it_does(name: str, tmp_path: Path) -> None:
    told: list[Telling] = []
    row = AgentRow(home="private")
    settings = Settings(effort="high", max_turns=3, mcp_servers=(McpServer("s", command="x"),))
    task = Task("", tmp_path, {"HOME": str(tmp_path)}, tmp_path, tmp_path, tmp_path / "log", Launcher("t"), settings)

    backend(name).prepare(name, row, task, told.append)

    refused = " ".join(one.message for one in told if isinstance(one, Noted))
    for ability in ("effort", "max_turns"):
        assert (ability in backend(name).known.abilities) == (f"'{ability}: " not in refused), refused
    assert "mcp" in backend(name).known.abilities and "mcp" not in refused


def test_our_own_agent_honours_effort_and_turns() -> None:
    assert {"effort", "max_turns", "resume", "mcp"} <= BUILTIN_ABILITIES


@pytest.mark.parametrize(("name", "near"), [("cladue", "claude"), ("copliot", "copilot"), ("min", "mine")])
def test_an_unknown_name_is_answered_with_the_nearest(machine: Machine, name: str, near: str) -> None:
    agents = machine.agents(Config(agents={"mine": AgentRow(command="x")}))

    with pytest.raises(UsageError, match=f"did you mean '{near}'") as caught:
        agents.find(name)

    assert "orchard agents" in in_commands(caught.value.hint or "")


def test_an_agent_that_is_not_installed_is_answered_with_how_to_install_it(machine: Machine) -> None:
    with pytest.raises(NoAgent, match="the program 'codex' is not installed") as caught:
        machine.agents(OPENAI_API_KEY="k").find("codex")

    assert in_commands(caught.value.hint or "") == "To install it: npm install -g @openai/codex"


def test_an_agent_without_credentials_is_answered_with_how_to_log_in(machine: Machine) -> None:
    machine.install("codex")

    with pytest.raises(NoAgent, match="no credentials") as caught:
        machine.agents().find("codex")

    assert "codex login" in in_commands(caught.value.hint or "")


def test_our_own_agent_names_the_variable_that_is_missing(machine: Machine) -> None:
    with pytest.raises(NoAgent, match="MY_KEY is not set") as caught:
        machine.agents(Config(builtin=BuiltinRow(api_key_env="MY_KEY")), ANTHROPIC_API_KEY="k").find("builtin")

    assert "MY_KEY" in in_commands(caught.value.hint or "")


def test_a_key_may_stand_in_the_row_of_an_agent(machine: Machine) -> None:
    machine.install("codex")
    config = Config(
        agents={"codex": AgentRow(env={"OPENAI_API_KEY": "k"})}, builtin=BuiltinRow(env={"ANTHROPIC_API_KEY": "k"})
    )

    assert machine.agents(config).find("codex").name == "codex"
    assert machine.agents(config).find("builtin").name == "builtin"


def test_a_row_can_name_another_program(machine: Machine) -> None:
    machine.install("codex-nightly")
    agents = machine.agents(Config(agents={"codex": AgentRow(command="codex-nightly")}), OPENAI_API_KEY="k")

    assert agents.find("codex").name == "codex"
    assert agents.path_of("codex") == str(machine.bin / "codex-nightly")


def test_programs_are_looked_for_on_the_path_that_is_given(machine: Machine, tmp_path: Path) -> None:
    machine.install("codex")

    assert machine.agents(OPENAI_API_KEY="k").find("codex").name == "codex"
    for path in (str(tmp_path), ""):
        with pytest.raises(NoAgent):
            machine.agents(OPENAI_API_KEY="k", PATH=path).find("codex")


# -------------------------------------------------------------------------- the protocol, own rows


def test_any_command_can_be_an_agent_behind_the_protocol(machine: Machine) -> None:
    machine.install("myagent")

    assert machine.agents().find("acp:myagent --acp").name == "acp:myagent --acp"


@pytest.mark.parametrize("name", ["acp:nothere --acp", "acp:", "acp:  ", "acp:'unbalanced"])
def test_a_command_that_is_none_is_an_error(machine: Machine, name: str) -> None:
    with pytest.raises(OrchardError, match="cannot be used") as caught:
        machine.agents().find(name)

    assert "acp:" in in_commands(caught.value.hint or "")


def test_a_row_gives_a_command_behind_the_protocol_a_name_and_variables(machine: Machine) -> None:
    machine.install("copilot", "other")
    config = Config(
        agents={
            "pilot": AgentRow(command="acp:copilot --acp", pass_env=("MORE",)),
            "other": AgentRow(command="acp:other"),
        }
    )
    agents = machine.agents(config)

    assert {"COPILOT_GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL", "MORE"} <= set(agents.find("pilot").variables)
    assert agents.find("other").variables == ()


@pytest.mark.parametrize(
    ("command", "gets"),
    [
        ("claude-agent-acp", True),
        ("{bin}/claude-agent-acp", True),
        ("{bin}/../bin/claude-agent-acp --any", True),
        ("{elsewhere}/claude-agent-acp", False),
        ("{elsewhere}/claude-agent-acp --acp", False),
        ("./claude-agent-acp", False),
        ("../claude-agent-acp", False),
        ("sh -c 'exec claude-agent-acp'", False),
        ("sh {elsewhere}/claude-agent-acp", False),
        ("env claude-agent-acp", False),
        ("npx claude-agent-acp", False),
        ("npx @evil/claude-agent-acp", False),
        ("Claude-Agent-Acp", False),
        ("claude-agent-acp\u200b", False),
        ("cl\u0430ude-agent-acp", False),
    ],
)
def test_keys_go_to_the_program_that_the_users_own_path_finds_and_to_no_namesake(
    command: str, gets: bool, machine: Machine, tmp_path: Path
) -> None:
    machine.install("claude-agent-acp", "sh", "env", "npx", "Claude-Agent-Acp", "claude-agent-acp\u200b")
    machine.install("cl\u0430ude-agent-acp")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "claude-agent-acp").write_text("#!/bin/sh\nenv\n")
    (elsewhere / "claude-agent-acp").chmod(0o755)
    said = command.format(bin=machine.bin, elsewhere=elsewhere)
    agents = machine.agents(Config(agents={"mine": AgentRow(command=f"acp:{said}")}))

    try:
        variables = agents.find("mine").variables
    except NoAgent:
        variables = ()
    assert ("ANTHROPIC_API_KEY" in variables) == gets


def test_a_folder_on_the_path_that_is_not_whole_finds_no_program(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o755)

    with contextlib.chdir(tmp_path), pytest.raises(NoAgent, match="is not installed"):
        machine.agents(PATH=f".:{machine.bin}:", ANTHROPIC_API_KEY="k").find("claude")


def test_a_row_whose_command_cannot_be_read_stands_in_nobodys_way(machine: Machine) -> None:
    machine.install("codex")
    agents = machine.agents(Config(agents={"mine": AgentRow(command="'unbalanced")}), OPENAI_API_KEY="k")

    assert agents.find(None).name == "codex"
    with pytest.raises(NoAgent, match="is not a command line"):
        agents.find("mine")


def test_the_order_of_names_is_ours_and_then_the_users() -> None:
    agents = Agents(Config(agents={"mine": AgentRow(command="x"), "codex": AgentRow()}), {})

    assert agents.names == (*AGENTS, "mine")


# ----------------------------------------------------------------------------------------- servers


def test_servers_are_found_by_name_with_variables_filled_in() -> None:
    rows = {
        "files": ServerRow("server", ("a",), {"KEY": "${MY_KEY}", "PLAIN": "$HOME"}),
        "docs": ServerRow(url="https://docs.example/mcp", headers={"Authorization": "Bearer ${MY_KEY}"}),
    }
    agents = Agents(Config(mcp_servers=rows), {"MY_KEY": "k", "HOME": "h"})

    assert agents.servers(["docs", "files"]) == (
        McpServer("docs", url="https://docs.example/mcp", headers={"Authorization": "Bearer k"}),
        McpServer("files", "server", ("a",), {"KEY": "k", "PLAIN": "$HOME"}),
    )


def test_a_server_for_every_agent_is_given_where_no_work_names_it() -> None:
    rows = {"files": ServerRow("server", always=True), "docs": ServerRow("other")}
    agents = Agents(Config(mcp_servers=rows), {})
    given = {named: [one.name for one in agents.servers(named)] for named in [(), ("docs",), ("files",)]}
    assert given == {(): ["files"], ("docs",): ["docs", "files"], ("files",): ["files"]}


def test_an_unknown_server_and_an_unset_variable_are_errors() -> None:
    agents = Agents(Config(mcp_servers={"files": ServerRow("server", env={"K": "${MY_KEY}"})}), {})

    with pytest.raises(UsageError, match="no MCP server 'filse'; did you mean 'files'"):
        agents.servers(["filse"])
    with pytest.raises(OrchardError, match="needs the variable MY_KEY, which is not set"):
        agents.servers(["files"])
    assert agents.servers([]) == ()


def test_the_page_about_agents_says_what_each_can_do() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "agents.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    heads = next(row for row in rows if row[0] == "")
    titles = {
        "resume": "goes on in its session on a retry",
        "mcp": "MCP servers",
        "effort": "`effort`",
        "max_turns": "`max_turns`",
        "usage": "reports tokens",
        "cost": "reports cost",
    }

    for ability, title in titles.items():
        row = next(row for row in rows if row[0] == title)
        said = {name.strip("`") for name, cell in zip(heads[1:], row[1:], strict=True) if cell == "yes"}
        able = {name for name in BACKENDS if ability in backend(name).known.abilities}
        assert said == able | ({"builtin"} if ability in BUILTIN_ABILITIES else set())
    assert all(backend(name).known.install in page for name in BACKENDS)
