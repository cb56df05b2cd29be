"""What is known of agents by the names of their programs: where they live, what suits us. Never what they may see."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

from msgspec import Struct, field

from orchard.agents.backends import claude, codex, copilot
from orchard.agents.backends.project_files import refused, steering_files, there
from orchard.agents.backends.stream import is_private, stdio, write_private
from orchard.agents.protocol import McpServer, Task
from orchard.model.agent_rows import AgentRow


class Known(Struct, frozen=True):
    """One program; what nobody knows is empty."""

    keys: tuple[str, ...] = ()
    """With any of these it needs no login by hand."""
    home: str = "HOME"
    """The variable that says where its settings and sessions are."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What it is told where nobody says otherwise."""
    obeys: tuple[str, ...] = ()
    """What of a repository it obeys, and cannot be told over the protocol to leave out."""
    files: tuple[str, ...] = ()
    """Files of variables that it reads, there and in the folders above."""
    server_flag: str | None = None
    """How it is told of servers that are commands, where it takes none over the protocol."""

    def environment(self, row: AgentRow, task: Task) -> dict[str, str]:
        """The whole environment for a turn."""
        home = {}
        if is_private(row, {**task.env, **row.env}, self.keys):
            home[self.home] = str(task.private / "home")
            (task.private / "home").mkdir(mode=0o700, exist_ok=True)
        return {**self.env, **task.env, "TMPDIR": str(task.scratch), **home, **row.env}

    def check_project(self, task: Task, name: str) -> None:
        """Refuse a folder with settings for its program that nobody has agreed to."""
        if not task.trusted_project_settings:
            found: list[str | Path] = [*there(task.folder, self.obeys), *steering_files(task, self.files)]
            if found:
                raise refused(task, name, found)

    def servers(self, task: Task) -> tuple[tuple[str, ...], tuple[McpServer, ...]]:
        """Arguments that name servers, and the servers that are left to be named over the protocol."""
        given = task.settings.mcp_servers
        commands = {server.name: server for server in given if server.url is None}
        if self.server_flag is None or not commands:
            return (), given
        rows = {name: {"type": "local", **stdio(server), "tools": ["*"]} for name, server in commands.items()}
        file = write_private(task.private / "acp-mcp.json", json.dumps({"mcpServers": rows}))
        return (self.server_flag, f"@{file}"), tuple(server for server in given if server.url is not None)


# A guess at what the user types next is a call of the model, and here nobody types.
_CLAUDE = Known(
    claude.KEYS,
    "CLAUDE_CONFIG_DIR",
    {"CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false"},
    obeys=(".claude/settings.json", ".claude/settings.local.json", ".mcp.json"),
)
_KNOWN = {
    "claude-agent-acp": _CLAUDE,
    "claude-code-acp": _CLAUDE,
    "codex-acp": Known(codex.KEYS, "CODEX_HOME", {"CODEX_ACP_PROMPT_SUGGESTIONS": "false"}, obeys=(".codex",)),
    "copilot": Known(copilot.KEYS, "COPILOT_HOME", server_flag="--additional-mcp-config"),
    "gemini": Known(obeys=(".gemini",), files=(".gemini/.env", ".env")),
    "qwen": Known(obeys=(".qwen",), files=(".qwen/.env", ".env")),
    "opencode": Known(obeys=(".opencode", "opencode.json", "opencode.jsonc")),
}


def known(argv: Iterable[str]) -> Known:
    """What is known of the agent that a command line starts, by itself or through a launcher (`npx`)."""
    for word in argv:
        name = PurePath(word).name
        found = _KNOWN.get(name) or _KNOWN.get(name.partition("@")[0])
        if found is not None:
            return found
    return Known()
