"""Rows that the user names: agents and MCP servers."""

import pytest
from msgspec.structs import fields

from orchard.config.layers import Config, Layer, environment_layers, flatten, merge_layers
from orchard.config.rows import AGENT_FIELDS, BUILTIN_FIELDS, SERVER_FIELDS
from orchard.errors import InvalidInput
from orchard.model.agent_rows import AgentRow, BuiltinRow, ServerRow


def config_of(*tables: dict[str, object]) -> Config:
    return merge_layers([Layer(f"layer {at}", table) for at, table in enumerate(tables)]).config


def problem_of(values: dict[str, object], text: str = "") -> str:
    with pytest.raises(InvalidInput) as caught:
        merge_layers([Layer("orchard.toml", values, file="orchard.toml", text=text)])
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("row", "keys"), [(AgentRow, AGENT_FIELDS), (BuiltinRow, BUILTIN_FIELDS), (ServerRow, SERVER_FIELDS)]
)
def test_every_field_of_a_row_can_be_set_and_nothing_else(
    row: type[AgentRow | BuiltinRow | ServerRow], keys: tuple[object, ...]
) -> None:
    assert [field.name for field in fields(row)] == [key.name for key in keys]  # type: ignore[attr-defined]


def test_rows_become_agents_and_servers() -> None:
    config = config_of({
        "agent": "mine",
        "agents": {
            "claude": {"model": "opus", "args": ["--x"], "env": {"A": "b"}, "pass_env": ["C"], "home": "user"},
            "mine": {"command": "mytool {prompt_file}"},
            "builtin": {"provider": "openai", "base_url": "http://127.0.0.1:1/v1", "max_iterations": 9},
        },
        "mcp_servers": {
            "files": {"command": "server", "args": ["."], "env": {"K": "v"}},
            "docs": {"url": "https://docs.example/mcp", "headers": {"X-Api-Key": "k"}},
        },
    })  # fmt: skip

    assert config.agent == "mine"
    assert config.agents == {
        "claude": AgentRow(model="opus", args=("--x",), env={"A": "b"}, pass_env=("C",), home="user"),
        "mine": AgentRow(command="mytool {prompt_file}"),
    }
    assert config.builtin == BuiltinRow("openai", "http://127.0.0.1:1/v1", max_iterations=9)
    assert config.mcp_servers["files"] == ServerRow("server", (".",), {"K": "v"})
    assert config.mcp_servers["docs"] == ServerRow(url="https://docs.example/mcp", headers={"X-Api-Key": "k"})


def config_from(env: dict[str, str]) -> tuple[Config, list[str]]:
    layers, warnings = environment_layers(env)
    return merge_layers(layers).config, warnings


def test_variables_set_fields_of_known_agents() -> None:
    config, warnings = config_from(
        {
            "ORCHARD_AGENTS_BUILTIN_MAX_ITERATIONS": "7",
            "ORCHARD_AGENTS_BUILTIN_DENY_TOOLS": "bash, git_*",
            "ORCHARD_AGENTS_FAST_AGENT_MODEL": "small",
            "ORCHARD_AGENTS_CLAUDE_MODEL": "",
            "ORCHARD_AGENTS_BUILTIN_ENV": "A=b",
        }
    )
    assert (config.builtin.max_iterations, config.builtin.deny_tools) == (7, ("bash", "git_*"))
    assert config.agents == {"fast-agent": AgentRow(model="small")}
    assert [one.split(" ")[0] for one in warnings] == ["ORCHARD_AGENTS_BUILTIN_ENV"]


def test_a_bad_variable_of_a_row_is_named() -> None:
    with pytest.raises(InvalidInput, match="ORCHARD_AGENTS_BUILTIN_MAX_ITERATIONS"):
        config_from({"ORCHARD_AGENTS_BUILTIN_MAX_ITERATIONS": "many"})


@pytest.mark.parametrize(
    "text",
    [
        '[{"name": "fs", "command": "npx", "args": ["-y"]}]',
        '{"fs": {"command": "npx", "args": ["-y"]}}',
    ],
)
def test_servers_of_a_variable_are_rows(text: str) -> None:
    config, warnings = config_from({"ORCHARD_MCP_SERVERS": text})
    assert (config.mcp_servers, warnings) == ({"fs": ServerRow("npx", ("-y",))}, [])


@pytest.mark.parametrize("text", ["npx", "[1]", '[{"command": "npx"}]', '{"fs": 1}', "[" * 100_000, '{"fs": {}}'])
def test_servers_of_a_variable_that_make_no_rows_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="ORCHARD_MCP_SERVERS"):
        config_from({"ORCHARD_MCP_SERVERS": text})


def test_rows_of_several_layers_are_put_together_field_by_field() -> None:
    layers = [
        Layer("user", {"agents": {"claude": {"model": "opus", "args": ["--one"]}, "mine": {"command": "mytool"}}}),
        Layer("repository", {"agents": {"claude": {"args": ["--two"]}}}),
    ]

    resolved = merge_layers(layers)

    assert resolved.config.agents["claude"] == AgentRow(model="opus", args=("--two",))
    assert resolved.config.agents["mine"].command == "mytool"
    assert resolved.origins["agents.claude.model"] == "user"
    assert resolved.origins["agents.claude.args"] == "repository"


def test_the_values_of_rows_are_shown_with_their_origins() -> None:
    tables: dict[str, object] = {
        "agents": {"claude": {"home": "auto"}, "builtin": {"model": "m"}},
        "mcp_servers": {"s": {"url": "http://h/"}},
    }

    resolved = merge_layers([Layer("file", tables)])
    shown = flatten(resolved.config, resolved.origins)

    assert {name: shown[name] for name, origin in resolved.origins.items() if origin == "file"} == {
        "agents.claude.home": "auto",
        "agents.builtin.model": "m",
        "mcp_servers.s.url": "http://h/",
    }


def test_a_table_that_is_not_believed_leaves_no_row() -> None:
    tables: dict[str, object] = {"agents": {"mine": {"command": "evil"}}, "mcp_servers": {"s": {"command": "evil"}}}

    config = merge_layers([Layer("file", tables, ignored=frozenset({"agents", "mcp_servers"}))]).config

    assert (config.agents, config.mcp_servers) == ({}, {})


def test_an_empty_agent_means_the_first_that_is_usable() -> None:
    assert config_of({"agent": "claude"}, {"agent": ""}).agent is None


@pytest.mark.parametrize("name", ["claude", "my-agent_2", "acp:copilot --acp", "acp:/opt/an agent"])
def test_an_agent_is_a_name_or_a_command_behind_acp(name: str) -> None:
    assert config_of({"agent": name}).agent == name


BAD: list[tuple[dict[str, object], str]] = [
    ({"agent": "Claude!"}, "agent: must be the name of an agent, not 'Claude!'"),
    ({"agent": "acp: "}, "agent: must have a command after 'acp:'"),
    ({"agent": 3}, "agent: must be text"),
    ({"agents": 3}, "agents: must be a table of rows, [agents.NAME], not a whole number"),
    ({"agents": {"claude": "x"}}, "agents.claude: must be a table, [agents.claude], not 'x'"),
    ({"agents": {"claude": {"modle": "x"}}}, "agents.claude.modle: unknown key; did you mean 'model'?"),
    ({"agents": {"builtin": {"command": "x"}}}, "agents.builtin.command: unknown key"),
    ({"agents": {"builtin": {"provder": "x"}}}, "agents.builtin.provder: unknown key; did you mean 'provider'?"),
    ({"agents": {"builtin": {"provider": "x"}}}, "agents.builtin.provider: must be one of anthropic, openai"),
    ({"agents": {"builtin": {"base_url": "ftp://x"}}}, "agents.builtin.base_url: must begin with http"),
    ({"agents": {"builtin": {"max_tokens": 0}}}, "agents.builtin.max_tokens: must be from 1"),
    ({"agents": {"builtin": {"deny_tools": ["a b"]}}}, "deny_tools: must be the name of a tool"),
    ({"agents": {"builtin": {"compact_keep_recent": 30}}}, "must be less than compact_threshold"),
    (
        {"agents": {"cladue": {"model": "x"}}},
        "needs 'command' or 'instructions': there is no agent of this name; did you",
    ),
    ({"agents": {"cladue": {}}}, "agents.cladue: needs 'command'"),
    ({"agents": {"agent": {"command": "x"}}}, "agents.agent: cannot be used: '@agent' is the default agent"),
    ({"agents": {"a.b": {"command": "x"}}}, "must be named with lowercase letters"),
    ({"agents": {"A": {"command": "x"}}}, "must be named with lowercase letters"),
    ({"agents": {"a" * 33: {"command": "x"}}}, "must be named with lowercase letters"),
    ({"agents": {"x": {"command": " "}}}, "agents.x.command: must be a command"),
    ({"agents": {"x": {"command": "y", "home": "z"}}}, "agents.x.home: must be one of auto, private, user"),
    ({"agents": {"x": {"command": "y", "model": "--z"}}}, "agents.x.model: must be a name without spaces"),
    ({"agents": {"x": {"command": "y", "env": {"A B": "z"}}}}, "agents.x.env: 'A B' must be the name of an env"),
    ({"agents": {"x": {"command": "y", "env": {"A": 1}}}}, "agents.x.env: 'A' must be text"),
    ({"agents": {"x": {"command": "y", "env": {"A": "a\0b"}}}}, "agents.x.env: 'A' must not hold a NUL"),
    ({"agents": {f"x{n}": {"command": "y"} for n in range(101)}}, "agents: must hold at most 100 rows, not 101"),
    ({"mcp_servers": {"orchard__evil": {"command": "x"}}}, "mcp_servers.orchard__evil: must have no '__' in its name"),
    ({"mcp_servers": {"docs_": {"command": "x"}}}, "no '_' at its end"),
    ({"mcp_servers": {"s": {}}}, "mcp_servers.s: needs 'command' or 'url', and not both"),
    ({"mcp_servers": {"s": {"command": "x", "url": "http://x"}}}, "needs 'command' or 'url', and not both"),
    ({"mcp_servers": {"s": {"url": "http://x", "env": {"A": "b"}}}}, "'args' and 'env' are for a 'command'"),
    ({"mcp_servers": {"s": {"command": "x", "headers": {"A": "b"}}}}, "'headers' are for a 'url'"),
    (
        {"mcp_servers": {"s": {"url": "http://x", "headers": {"A": "b\r\nC: d"}}}},
        "'A' must not hold control characters",
    ),
    ({"mcp_servers": {"s": {"url": "http://x", "headers": {"A:": "b"}}}}, "must be the name of a header"),
    ({"mcp_servers": {"s": {"uri": "http://x"}}}, "mcp_servers.s.uri: unknown key; did you mean 'url'?"),
    ({"mcp_server": {"s": {"url": "http://x"}}}, "mcp_server: unknown key; did you mean 'mcp_servers'?"),
]


@pytest.mark.parametrize(("values", "message"), BAD, ids=[f"{n}-{bad[1][:30]}" for n, bad in enumerate(BAD)])
def test_a_bad_row_is_named_with_its_rule(values: dict[str, object], message: str) -> None:
    problem = problem_of(values)

    assert message in problem
    assert problem.isprintable()


def test_a_problem_of_a_row_names_its_line() -> None:
    text = '[agents.claude]\nmodel = "x"\n\n[agents.cladue]\nmodel = "x"\n'

    assert problem_of({"agents": {"cladue": {"model": "x"}}}, text).startswith("orchard.toml:4 agents.cladue: ")


def test_a_problem_with_a_value_does_not_show_it() -> None:
    secret = "hunter2\n"
    values: dict[str, object] = {"mcp_servers": {"s": {"url": "http://x", "headers": {"Authorization": secret}}}}

    assert "hunter2" not in problem_of(values)
