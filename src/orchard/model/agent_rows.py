"""What a configuration says about agents: the rows of `[agents.NAME]` and `[mcp_servers.NAME]`."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from orchard.model.permissions import Tools, made

BUILTIN = "builtin"

BACKENDS: Mapping[str, str] = {
    "claude": "orchard.agents.backends.claude",
    "codex": "orchard.agents.backends.codex",
    "copilot": "orchard.agents.backends.copilot",
    "gemini": "orchard.agents.backends.gemini",
    "qwen": "orchard.agents.backends.qwen",
    "opencode": "orchard.agents.backends.opencode",
}
"""Programs of others that are known: each is a module with a value `BACKEND`, and a line here."""

ACP_AGENTS: Mapping[str, str] = {
    "cursor": "orchard.agents.acp.named:CURSOR",
    "kiro": "orchard.agents.acp.named:KIRO",
    "droid": "orchard.agents.acp.named:DROID",
    "kimi": "orchard.agents.acp.named:KIMI",
    "goose": "orchard.agents.acp.named:GOOSE",
    "cline": "orchard.agents.acp.named:CLINE",
    "vibe": "orchard.agents.acp.named:VIBE",
    "openhands": "orchard.agents.acp.named:OPENHANDS",
    "auggie": "orchard.agents.acp.named:AUGGIE",
    "qoder": "orchard.agents.acp.named:QODER",
    "fast-agent": "orchard.agents.acp.named:FAST_AGENT",
}
"""Programs that speak the Agent Client Protocol and are known: each is a value, and a line here.

A row of the user's with a `command` is an agent of his own, whatever its name."""

AGENTS = (BUILTIN, *BACKENDS, *ACP_AGENTS)
"""The agents that are known without a row."""

ACP = "acp:"
"""What the name of an agent begins with that is any command which speaks the Agent Client Protocol."""

Home = Literal["auto", "private", "user"]
"""Where an agent keeps its settings and sessions: a folder of the job's own, or the user's own place. `auto`: private
where a key in the environment is all it needs, the user's where it was logged in by hand."""


Keeper = Literal["proxy", "env"]
"""Who has an agent's key behind a wall: our proxy adds it to requests, wherever the agent can be told another address,
or the agent finds it in its environment."""


class Permitted(Struct, frozen=True, kw_only=True):
    """What a row says about the tools of its agent, in the words of `model.permissions`."""

    tools: str | tuple[str, ...] = "all"
    deny_tools: tuple[str, ...] = ()
    """Tools that it does not get, by name; `github_*` stands for all that begin so."""
    ask_tools: tuple[str, ...] = ()
    """Tools before each use of which a person is asked."""

    @property
    def permissions(self) -> Tools:
        return made(self.tools, self.deny_tools, self.ask_tools)


class AgentRow(Permitted, frozen=True):
    """One agent: how it is started and what it may see. For a name that is not known, `command` makes a new agent."""

    command: str | None = None
    """The program; for an agent of the user's own a command line with `{prompt}`, `{prompt_file}`, `{model}` ..."""
    args: tuple[str, ...] = ()
    """Put before the arguments that we add."""
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    allow_env: tuple[str, ...] = ()
    """Variables that a plan may set for it, although they decide where keys go or which programs run."""
    droppings: tuple[str, ...] = ()
    """Files that it leaves for itself: patterns of paths in the worktree. They are no work, and are not committed."""
    home: Home = "auto"
    key: Keeper = "proxy"
    endpoints: tuple[str, ...] = ()
    """Hosts that it needs behind a wall, beside those that are known: its model, and where its login is renewed."""
    instructions: str | None = None
    """The row is a definition: no program, but how one that the user has is to work."""
    description: str | None = None
    agent: str | None = None
    """Of a definition: the agent that works by it; None: the one that the work would get anyway."""


class BuiltinRow(Permitted, frozen=True):
    provider: Literal["anthropic", "openai"] = "anthropic"
    base_url: str | None = None
    api_key_env: str | None = None
    """The variable that holds the key; None: the provider's usual one."""
    model: str | None = None
    max_iterations: int = 50
    max_tokens: int = 8192
    max_messages: int = 40
    compact: bool = True
    compact_threshold: int = 30
    compact_keep_recent: int = 10
    bash_seconds: float = 60.0
    """That a command has where the model does not ask for more."""
    bash_max_seconds: float = 300.0
    """The most that it can ask for."""
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    allow_env: tuple[str, ...] = ()


class ServerRow(Struct, frozen=True):
    """An MCP server: a command that speaks over its standard input and output, or an address."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    always: bool = False
    """Whether every agent in a job gets it, also where the work does not name it."""
