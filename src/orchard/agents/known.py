"""What is known about each agent before it is started: who makes it, how it is installed, where its login lies.

Whether somebody is logged in is judged by what can be seen without asking anybody: a key in the environment, or the
file in which the program keeps a login. Of such a file only its existence matters; it is never opened. Settings, which
most programs write by themselves, may hold a login only where a certain word is in them.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from orchard.core.agentrows import AgentRow, BuiltinRow
from orchard.frozen import frozen

Ability = Literal["resume", "mcp", "effort", "max_turns", "usage", "cost", "models"]
"""What an agent can do: go on in a session, use MCP servers, honour `effort` and `max_turns`, tell tokens and cost,
and tell which models it has."""
ABILITIES: tuple[Ability, ...] = ("resume", "mcp", "effort", "max_turns", "usage", "cost", "models")

SETTINGS_BYTES = 256 * 1024
"""Of a file of settings no more is read."""

LoggedIn = Literal["yes", "no", "unknown"]


@frozen
class Login:
    """Whether an agent has credentials, and how that is known."""

    state: LoggedIn
    how: str


@frozen
class Known:
    """One agent that is a program of others."""

    name: str
    vendor: str
    program: str
    package: str
    """On npm."""
    login: str
    """What to do to log in."""
    keys: tuple[str, ...]
    """Variables any of which is a credential."""
    folder: tuple[str, str]
    """The variable that names the program's own folder, and where it is below the home folder otherwise."""
    files: tuple[str, ...]
    """In that folder: any of them is a login."""
    settings: tuple[tuple[str, str], ...]
    """Files below the home folder, each with a word: where that is in it, it may hold a login."""
    abilities: frozenset[Ability]
    status: tuple[str, ...] = ()
    """Arguments with which the program says whether it is logged in, by its exit status."""
    keychain: bool = False
    """On macOS the login is in the keychain, which is not asked."""
    providers: tuple[str, ...] = ()
    """Variables any of which means that another service is asked, with credentials that only the program finds."""
    anonymous: bool = False
    """Some of its models need no login: it can be used without one by whoever names it, but is not chosen."""

    @property
    def install(self) -> str:
        """How to get it."""
        return f"npm install -g {self.package}"


def _can(*abilities: Ability) -> frozenset[Ability]:
    return frozenset({"resume", "mcp", "usage", "models", *abilities})


BUILTIN_ABILITIES = _can("effort", "max_turns")
BUILTIN_LOGIN = "Set {variable} to a key of your model's provider."

PROGRAMS: Mapping[str, Known] = {
    known.name: known
    for known in (
        Known(
            "claude",
            "Anthropic",
            "claude",
            "@anthropic-ai/claude-code",
            "Run 'claude' once and use /login, or set ANTHROPIC_API_KEY.",
            ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            ("CLAUDE_CONFIG_DIR", ".claude"),
            (".credentials.json",),
            (
                (".claude/settings.json", "apiKeyHelper"),
                (".claude/settings.json", "ANTHROPIC_"),
                (".claude/settings.json", "CLAUDE_CODE_USE_"),
            ),
            _can("effort", "max_turns", "cost"),
            providers=(
                "CLAUDE_CODE_USE_BEDROCK",
                "CLAUDE_CODE_USE_VERTEX",
                "CLAUDE_CODE_USE_FOUNDRY",
                "CLAUDE_CODE_USE_MANTLE",
                "ANTHROPIC_BASE_URL",
                "ANTHROPIC_CUSTOM_HEADERS",
                "AWS_BEARER_TOKEN_BEDROCK",
            ),
            keychain=True,
        ),
        Known(
            "codex",
            "OpenAI",
            "codex",
            "@openai/codex",
            "Run 'codex login', or set OPENAI_API_KEY.",
            ("CODEX_API_KEY", "OPENAI_API_KEY"),
            ("CODEX_HOME", ".codex"),
            ("auth.json",),
            ((".codex/config.toml", "model_provider"), (".codex/config.toml", "oss_provider")),
            _can("effort"),
            providers=(
                "AZURE_OPENAI_API_KEY",
                "OPENAI_BASE_URL",
                "CODEX_OSS_BASE_URL",
                "CODEX_OSS_PORT",
                "CODEX_ACCESS_TOKEN",
            ),
            status=("login", "status"),
        ),
        Known(
            "copilot",
            "GitHub",
            "copilot",
            "@github/copilot",
            "Run 'copilot login', or set COPILOT_GITHUB_TOKEN.",
            ("COPILOT_PROVIDER_BASE_URL", "COPILOT_GITHUB_TOKEN"),
            ("COPILOT_HOME", ".copilot"),
            (),
            ((".copilot/config.json", "ogged"), (".config/gh/hosts.yml", "github.com")),
            _can("effort"),
            providers=("COPILOT_PROVIDER_API_KEY_COMMAND", "COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_GH_HOST"),
        ),
        Known(
            "gemini",
            "Google",
            "gemini",
            "@google/gemini-cli",
            "Run 'gemini' once and log in, or set GEMINI_API_KEY.",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"),
            ("GEMINI_CLI_HOME", ".gemini"),
            ("oauth_creds.json",),
            ((".gemini/settings.json", "selectedType"), (".gemini/.env", "_KEY"), (".gemini/.env", "GOOGLE_")),
            _can("max_turns"),
            providers=(
                "GOOGLE_GENAI_USE_GCA",
                "GEMINI_CLI_USE_COMPUTE_ADC",
                "GOOGLE_APPLICATION_CREDENTIALS",
                "GEMINI_DEFAULT_AUTH_TYPE",
                "GOOGLE_GEMINI_BASE_URL",
            ),
        ),
        Known(
            "qwen",
            "Alibaba",
            "qwen",
            "@qwen-code/qwen-code",
            "Run 'qwen' once and log in, or set OPENAI_API_KEY.",
            ("OPENAI_API_KEY",),
            ("QWEN_HOME", ".qwen"),
            ("oauth_creds.json",),
            (
                (".qwen/settings.json", "selectedType"),
                (".qwen/settings.json", "_KEY"),
                (".qwen/settings.json", "apiKey"),
                (".qwen/settings.json", "modelProviders"),
                (".qwen/.env", "_KEY"),
            ),
            _can("max_turns"),
            providers=("DASHSCOPE_API_KEY", "OPENAI_BASE_URL", "QWEN_DEFAULT_AUTH_TYPE"),
        ),
        Known(
            "opencode",
            "several",
            "opencode",
            "opencode-ai",
            "Run 'opencode auth login', or set the key of a provider.",
            (
                "ANTHROPIC_API_KEY",
                "OPENAI_API_KEY",
                "GEMINI_API_KEY",
                "GOOGLE_GENERATIVE_AI_API_KEY",
                "OPENROUTER_API_KEY",
                "OPENCODE_API_KEY",
                "GROQ_API_KEY",
                "MISTRAL_API_KEY",
                "XAI_API_KEY",
                "DEEPSEEK_API_KEY",
            ),
            ("", ".local/share/opencode"),
            ("auth.json",),
            (
                (".config/opencode/opencode.json", '"provider"'),
                (".config/opencode/opencode.jsonc", '"provider"'),
                (".config/opencode/config.json", '"provider"'),
            ),
            _can("effort", "cost"),
            anonymous=True,
        ),
    )
}

SPEAKS_FOR: Mapping[str, str] = {
    **{known.program: known.name for known in PROGRAMS.values()},
    "claude-agent-acp": "claude",
    "claude-code-acp": "claude",
    "codex-acp": "codex",
}
"""Programs that speak the Agent Client Protocol, and the agent whose login and variables each of them uses."""


def program_login(known: Known, env: Mapping[str, str], row: AgentRow | None = None) -> Login:
    """Whether a program finds credentials with these variables, started as the row says.

    `no` is said only where the program would certainly fail: what the row adds may bring a login of its own.
    """
    for name in known.keys:
        if env.get(name):
            return Login("yes", f"{name} is set")
    home = Path(env.get("HOME") or Path.home())
    variable, below = known.folder
    folder = Path(env[variable]) if variable and env.get(variable) else home / below
    for name in known.files:
        if _is_there(folder / name):
            return Login("yes", f"{_short(folder / name, home)} is there")
    for name, word in known.settings:
        place = folder / name.removeprefix(f"{below}/") if name.startswith(f"{below}/") else home / name
        if _holds(place, word):
            return Login("unknown", f"{_short(place, home)} may hold a login")
    chosen = next((name for name in known.providers if env.get(name)), None)
    if chosen is not None:
        return Login("unknown", f"{chosen} is set: whether there is a login for that, only {known.program} knows")
    added = _added(row) if row is not None else None
    if added is not None:
        return Login("unknown", f"'{added}' of [agents.{known.name}] may bring a login of its own")
    if known.anonymous:
        return Login("no", "no key is set and no login was found; some of its models need none")
    if known.keychain and sys.platform == "darwin":
        return Login("unknown", "a login may be in the keychain")
    return Login("no", "no key is set and no login was found")


def _added(row: AgentRow) -> str | None:
    """What of a row may bring a login that nobody but the program knows of."""
    given = {"command": row.command, "args": row.args, "env": row.env, "pass_env": row.pass_env}
    return next((name for name, value in given.items() if value), None)


def key_variable(row: BuiltinRow) -> str:
    """The variable that holds the key of our own agent."""
    return row.api_key_env or ("ANTHROPIC_API_KEY" if row.provider == "anthropic" else "OPENAI_API_KEY")


def builtin_login(row: BuiltinRow, env: Mapping[str, str]) -> Login:
    """Whether our own agent has a key."""
    name = key_variable(row)
    return Login("yes", f"{name} is set") if env.get(name) else Login("no", f"{name} is not set")


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _holds(path: Path, word: str) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return word.encode() in file.read(SETTINGS_BYTES)
    except OSError:
        return False


def _short(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
