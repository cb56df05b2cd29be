"""Claude Code: `claude -p`, told its task by standard input."""

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar

from orchard.agents.backends.claude_stream import MessageReader, api_seconds
from orchard.agents.backends.project_files import with_own_words
from orchard.agents.backends.stream import amount, count, is_private, part, private_home, server_row, servers_file
from orchard.agents.cli import Command, Json, KnownBackend, options
from orchard.agents.facts.known import AcpTraits, Known, Service, can
from orchard.agents.facts.model_lists import Asking, Found, ask_anthropic, with_aliases
from orchard.agents.permissions import Catalogue, denied_of_server, of_server, split
from orchard.agents.protocol import McpServer, Task, Tell
from orchard.model.agent_rows import AgentRow
from orchard.model.permissions import Tools
from orchard.model.usage import Usage

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_TOOLS: Catalogue = {
    "Read": "read_file", "Glob": "list_files", "LS": "list_files", "Grep": "search_files",
    "Edit": "edit_file", "MultiEdit": "edit_file", "NotebookEdit": "edit_file", "Write": "write_file",
    "Bash": "bash", "BashOutput": "bash", "KillShell": "bash", "TaskOutput": "bash", "TaskStop": "bash",
    "TodoWrite": "todo", "TaskCreate": "todo", "TaskUpdate": "todo", "TaskList": "todo", "TaskGet": "todo",
    "Task": "subagent", "Agent": "subagent", "Skill": "skill", "WebFetch": "web_fetch", "WebSearch": "web_search",
    "ListMcpResourcesTool": "mcp_resources", "ReadMcpResourceTool": "mcp_resources", "ToolSearch": "",
}  # fmt: skip
_EDITS = ("Edit", "MultiEdit", "NotebookEdit", "Write")
_VARIABLES = (
    "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE", "CLAUDE_CODE_SKIP_BEDROCK_AUTH", "CLAUDE_CODE_SKIP_VERTEX_AUTH",
    "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_VERTEX_PROJECT_ID",
    "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE", "ANTHROPIC_FOUNDRY_API_KEY", "CLOUD_ML_REGION",
    "AWS_REGION", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK",
)  # fmt: skip
_FLAGS = {"model": "--model", "effort": "--effort", "max_turns": "--max-turns", "allowed_folders": "--add-dir"}
RETRIES = 2
"""Of its own, after which it is ours to wait; it would go on for minutes."""

# A guess at what the user types next is a call of the model, and here nobody types.
_ACP = AcpTraits(
    KEYS,
    "CLAUDE_CONFIG_DIR",
    {"CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false"},
    obeys=(".claude/settings.json", ".claude/settings.local.json", ".mcp.json"),
)

_LOGINS = {"ANTHROPIC_AUTH_TOKEN": ("Authorization", "Bearer"), "ANTHROPIC_API_KEY": ("x-api-key", ""),
           "CLAUDE_CODE_OAUTH_TOKEN": ("Authorization", "Bearer")}  # fmt: skip
"""In the order in which it uses them, with the header that each goes by."""
_OTHER_OWNERS = (
    "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_MANTLE",
)  # fmt: skip


def _services(env: Mapping[str, str]) -> tuple[Service, ...]:
    key = next((name for name in _LOGINS if env.get(name)), None)
    if key is None or any(env.get(name) for name in _OTHER_OWNERS):
        return ()
    header, words = _LOGINS[key]
    others = tuple(name for name in _LOGINS if name != key)
    usual = "https://api.anthropic.com"
    return (Service(key=key, address="ANTHROPIC_BASE_URL", usual=usual, header=header, words=words, others=others),)


KNOWN = Known(
    "claude",
    "Anthropic",
    "claude",
    "npm install -g @anthropic-ai/claude-code",
    "Run 'claude' once and use /login, or set ANTHROPIC_API_KEY.",
    KEYS,
    ("CLAUDE_CONFIG_DIR", ".claude"),
    (".credentials.json",),
    (
        (".claude/settings.json", "apiKeyHelper"),
        (".claude/settings.json", "ANTHROPIC_"),
        (".claude/settings.json", "CLAUDE_CODE_USE_"),
    ),
    can("effort", "max_turns", "cost"),
    providers=(
        *_OTHER_OWNERS,
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS",
        "AWS_BEARER_TOKEN_BEDROCK",
    ),
    keychain=True,
    hosts=("api.anthropic.com", "claude.ai", "console.anthropic.com", "platform.claude.com"),
    elsewhere=_OTHER_OWNERS,
    services=_services,
    endpoints=("ANTHROPIC_BASE_URL",),
    acp={"claude-agent-acp": _ACP, "claude-code-acp": _ACP},
    reads=(".claude", ".mcp.json", "bunfig.toml"),
    droppings=(".claude/settings.local.json", ".claude/worktrees/", ".claude/scheduled_tasks.lock"),
    aliases={"haiku": "fast", "sonnet": "standard", "opus": "premium"},
    more_aliases=("default", "best", "fable", "mythos", "opusplan"),
    variables=_VARIABLES,
    holds="tools",
    attach=("--resume", "{session}"),
    own_folders={"CLAUDE_CONFIG_DIR": "claude"},
)


class Claude(KnownBackend):
    known = KNOWN

    def models(self, asking: Asking) -> Found:
        return with_aliases(KNOWN, asking, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ask_anthropic)

    def prepare(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        settings = task.settings
        argv = [program, *row.args, "-p", "--output-format", "stream-json", "--verbose", *_permissions(row, task),
                "--strict-mcp-config"]  # fmt: skip
        if not task.trusted_project_settings:
            argv += ["--setting-sources", "user"]
        argv += options(self.name, task, tell, _FLAGS)
        if settings.mcp_servers:
            argv += ["--mcp-config", str(servers_file(task.private, "claude-mcp.json", settings.mcp_servers, _server))]
        if task.session is not None:
            argv += ["--resume", task.session]
        return Command(tuple(argv), _environment(row, task), with_own_words(task, ("CLAUDE.md", ".claude/CLAUDE.md")))

    def reader(self, task: Task, tell: Tell) -> "ClaudeReader":
        return ClaudeReader(task, tell)


def _permissions(row: AgentRow, task: Task) -> tuple[str, ...]:
    """That it asks nobody. As root it takes that only in a sandbox: where there is none, it is told what it may use."""
    tools, servers = task.settings.tools, task.settings.mcp_servers
    if tools.limits:
        return _limited(tools, servers)
    if task.walled or os.geteuid() != 0 or row.env.get("IS_SANDBOX") or task.env.get("IS_SANDBOX"):
        return ("--dangerously-skip-permissions",)
    every = (*_TOOLS, *(f"mcp__{server.name}" for server in servers))
    return ("--permission-mode", "acceptEdits", "--allowedTools", ",".join(every))


def _limited(tools: Tools, servers: Sequence[McpServer]) -> tuple[str, ...]:
    """Only tools that are named are there at all. Edits are not allowed by name, which would be anywhere on the disk:
    in this mode it makes those in its folders by itself, and is refused all others, since nobody can be asked."""
    allowed, denied = split(tools, _TOOLS)
    rules = [name for name in allowed if name not in _EDITS]
    for server in servers:
        named = None if server.offered else of_server(tools, server.name)
        rules += [f"mcp__{server.name}" if named is None else f"mcp__{server.name}__{tool}" for tool in named or ("",)]
        denied += tuple(f"mcp__{server.name}__{tool}" for tool in denied_of_server(tools, server.name))
    words = ("--permission-mode", "acceptEdits", "--tools", ",".join(allowed), "--allowedTools", ",".join(rules))
    return (*words, "--disallowedTools", ",".join(denied)) if denied else words


def _environment(row: AgentRow, task: Task) -> dict[str, str]:
    env = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(RETRIES),
    }
    if task.walled:
        env["IS_SANDBOX"] = "1"
    if is_private(row, {**task.env, **row.env}, KEYS):
        env["CLAUDE_CONFIG_DIR"] = private_home(task, "claude")
    return env


def _server(server: McpServer) -> Json:
    return {"type": "http" if server.url is not None else "stdio", **server_row(server)}


class ClaudeReader(MessageReader):
    name: ClassVar[str] = "claude"
    lost_words: ClassVar[tuple[str, ...]] = ("No conversation found", "--resume requires a valid session")

    def tell_whole_usage(self, final: Json) -> None:
        """By model, with what it cost. In a session that goes on, `modelUsage` also has all that was before."""
        since = final.get("model_usage_since_last_result")
        rows = since if isinstance(since, dict) else ({} if self._task.session else part(final, "modelUsage"))
        seconds = api_seconds(final)
        for model, row in rows.items():
            if not isinstance(row, dict):
                continue
            cost = amount(row.get("costUSD"))
            self.ledger.whole(
                Usage(
                    model=model,
                    input=count(row.get("inputTokens")),
                    cached=count(row.get("cacheReadInputTokens")),
                    cache_writes=count(row.get("cacheCreationInputTokens")),
                    output=count(row.get("outputTokens")),
                    cost=cost,
                    cost_source="agent",
                    api_seconds=seconds,
                )
            )
            seconds = 0.0


BACKEND = Claude()
