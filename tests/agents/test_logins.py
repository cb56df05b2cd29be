"""Nobody is refused for credentials whose program might find some: only what certainly fails is `no`."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from orchard.agents.cli import backend
from orchard.agents.facts.known import program_login
from orchard.agents.registry import Agents, NoAgent
from orchard.config.layers import Config
from orchard.model.agent_rows import AgentRow

CODEX_ARGS = (
    "-c",
    'model_provider="fake"',
    "-c",
    'model_providers.fake={base_url="http://127.0.0.1:9/v1",env_key="FAKE_KEY"}',
)

SETUPS: tuple[tuple[str, AgentRow, Mapping[str, str], Mapping[str, str], str], ...] = (
    # agent, row, variables, files below the home, what is known
    ("claude", AgentRow(), {}, {}, "no"),
    ("claude", AgentRow(), {"ANTHROPIC_API_KEY": "k"}, {}, "yes"),
    ("claude", AgentRow(), {"ANTHROPIC_AUTH_TOKEN": "k"}, {}, "yes"),
    ("claude", AgentRow(), {"CLAUDE_CODE_OAUTH_TOKEN": "k"}, {}, "yes"),
    ("claude", AgentRow(), {"CLAUDE_CODE_USE_BEDROCK": "1"}, {}, "unknown"),
    ("claude", AgentRow(), {"CLAUDE_CODE_USE_VERTEX": "1"}, {}, "unknown"),
    ("claude", AgentRow(), {"CLAUDE_CODE_USE_FOUNDRY": "1"}, {}, "unknown"),
    ("claude", AgentRow(), {"AWS_BEARER_TOKEN_BEDROCK": "k"}, {}, "unknown"),
    ("claude", AgentRow(), {"ANTHROPIC_BASE_URL": "http://127.0.0.1:4000"}, {}, "unknown"),
    ("claude", AgentRow(), {}, {".claude/settings.json": '{"apiKeyHelper": "x"}'}, "unknown"),
    ("claude", AgentRow(), {}, {".claude/settings.json": '{"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}'}, "unknown"),
    ("claude", AgentRow(), {}, {".claude/settings.json": '{"theme": "dark"}'}, "no"),
    ("claude", AgentRow(), {"CLAUDE_CONFIG_DIR": "{home}/c"}, {"c/settings.json": '{"apiKeyHelper": "x"}'}, "unknown"),
    ("claude", AgentRow(env={"CLAUDE_CONFIG_DIR": "{home}/c"}), {}, {"c/.credentials.json": ""}, "yes"),
    ("claude", AgentRow(args=("--settings", "{...}")), {}, {}, "unknown"),
    ("claude", AgentRow(command="my-claude"), {}, {}, "unknown"),
    ("claude", AgentRow(env={"ANTHROPIC_API_KEY": "k"}), {}, {}, "yes"),
    ("claude", AgentRow(model="opus", home="private"), {}, {}, "no"),
    ("codex", AgentRow(), {}, {}, "no"),
    ("codex", AgentRow(args=CODEX_ARGS, env={"FAKE_KEY": "k"}), {}, {}, "unknown"),
    ("codex", AgentRow(args=CODEX_ARGS), {"FAKE_KEY": "k"}, {}, "unknown"),
    ("codex", AgentRow(args=("--oss",)), {}, {}, "unknown"),
    ("codex", AgentRow(args=("--profile", "azure")), {}, {}, "unknown"),
    ("codex", AgentRow(pass_env=("MY_KEY",)), {}, {}, "unknown"),
    ("codex", AgentRow(), {"AZURE_OPENAI_API_KEY": "k"}, {}, "unknown"),
    ("codex", AgentRow(), {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}, {}, "unknown"),
    ("codex", AgentRow(), {}, {".codex/config.toml": 'model_provider = "x"'}, "unknown"),
    ("codex", AgentRow(), {"CODEX_HOME": "{home}/c"}, {"c/config.toml": 'model_provider = "x"'}, "unknown"),
    ("codex", AgentRow(env={"CODEX_HOME": "{home}/c"}), {}, {"c/auth.json": ""}, "yes"),
    ("codex", AgentRow(), {"CODEX_API_KEY": "k"}, {}, "yes"),
    ("gemini", AgentRow(), {}, {}, "no"),
    ("gemini", AgentRow(), {"GOOGLE_GENAI_USE_VERTEXAI": "true"}, {}, "yes"),
    ("gemini", AgentRow(), {"GOOGLE_APPLICATION_CREDENTIALS": "/x.json"}, {}, "unknown"),
    ("gemini", AgentRow(), {"GOOGLE_GENAI_USE_GCA": "true"}, {}, "unknown"),
    ("gemini", AgentRow(), {}, {".gemini/.env": "GOOGLE_CLOUD_PROJECT=x"}, "unknown"),
    ("qwen", AgentRow(), {}, {}, "no"),
    ("qwen", AgentRow(), {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}, {}, "unknown"),
    ("qwen", AgentRow(), {"DASHSCOPE_API_KEY": "k"}, {}, "unknown"),
    ("qwen", AgentRow(), {}, {".qwen/settings.json": '{"modelProviders": {}}'}, "unknown"),
    ("qwen", AgentRow(args=("--openai-api-key", "k")), {}, {}, "unknown"),
    ("copilot", AgentRow(), {}, {}, "no"),
    ("copilot", AgentRow(), {"COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:1/v1"}, {}, "yes"),
    ("copilot", AgentRow(pass_env=("GH_TOKEN",)), {"GH_TOKEN": "k"}, {}, "unknown"),
    ("opencode", AgentRow(), {}, {}, "no"),
    ("opencode", AgentRow(), {"GROQ_API_KEY": "k"}, {}, "yes"),
)


def _placed(values: Mapping[str, str], home: Path) -> dict[str, str]:
    return {name: value.replace("{home}", str(home)) for name, value in values.items()}


@pytest.mark.parametrize(("name", "row", "env", "files", "state"), SETUPS)
def test_what_is_known_of_a_login_is_no_more_than_can_be_seen(
    name: str, row: AgentRow, env: Mapping[str, str], files: Mapping[str, str], state: str, tmp_path: Path
) -> None:
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    seen = {"HOME": str(tmp_path), **_placed(env, tmp_path), **_placed(row.env, tmp_path)}

    assert program_login(backend(name).known, seen, row).state == state


def test_a_provider_in_the_arguments_of_a_row_is_tried_and_not_refused(tmp_path: Path) -> None:
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)
    host = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    row = AgentRow(args=CODEX_ARGS, env={"FAKE_KEY": "k"})

    assert Agents(Config(agents={"codex": row}), host).find("codex").name == "codex"
    with pytest.raises(NoAgent, match="has no credentials"):
        Agents(Config(), host).find("codex")
