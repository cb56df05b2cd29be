"""Programs that talk with MCP servers: where each keeps its list of them, and how an entry for ours looks there.

This is knowledge about other people's programs, and all of it is here. Nothing is read or written.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orchard.errors import UsageError
from orchard.model.events.plans import Json

Scope = Literal["project", "user"]
Form = Literal["json", "jsonc", "toml"]

WORKSPACE = "${workspaceFolder}"
"""What VS Code and Cursor put the folder for that is open; both start servers elsewhere if they are not told."""

STARTUP_SECONDS = 30
TOOL_SECONDS = 90
"""Codex gives up after these; a call of ours takes at most 45 seconds."""


class _Host(Struct, frozen=True):
    title: str
    project: str | None
    """The file of a project, below its folder; None: it has none."""
    user: tuple[str, str, str]
    """The file of a user: the variable that names its folder, else the folder below the user's, and its name."""
    forms: tuple[Form, Form] = ("json", "json")
    """Of both files. Whether comments are read was tried with the first four; the others are taken at their word."""
    key: str = "mcpServers"
    """Under this the servers stand, by name."""
    elsewhere: bool = False
    """It starts servers in no folder of a project, so they are told which repository is meant."""


_CONFIG = ("", "Library/Application Support") if sys.platform == "darwin" else ("XDG_CONFIG_HOME", ".config")
_KNOWN = {
    # With the variable the user's file is in that folder, without it beside the default one.
    "claude": _Host("Claude Code", ".mcp.json", ("CLAUDE_CONFIG_DIR", "", ".claude.json")),
    "vscode": _Host("VS Code", ".vscode/mcp.json", (*_CONFIG, "Code/User/mcp.json"), ("jsonc", "jsonc"), key="servers"),
    "copilot": _Host("Copilot CLI", ".mcp.json", ("COPILOT_HOME", ".copilot", "mcp-config.json"), ("json", "jsonc")),
    "codex": _Host(
        "Codex", ".codex/config.toml", ("CODEX_HOME", ".codex", "config.toml"), ("toml", "toml"), key="mcp_servers"
    ),
    "cursor": _Host("Cursor", ".cursor/mcp.json", ("", ".cursor", "mcp.json"), ("jsonc", "jsonc")),
    "gemini": _Host("Gemini CLI", ".gemini/settings.json", ("", ".gemini", "settings.json"), ("jsonc", "jsonc")),
    "qwen": _Host("Qwen Code", ".qwen/settings.json", ("", ".qwen", "settings.json"), ("jsonc", "jsonc")),
    "opencode": _Host(
        "OpenCode",
        "opencode.json",
        ("XDG_CONFIG_HOME", ".config", "opencode/opencode.json"),
        ("jsonc", "jsonc"),
        key="mcp",
    ),
    "zed": _Host(
        "Zed",
        ".zed/settings.json",
        ("" if sys.platform == "darwin" else "XDG_CONFIG_HOME", ".config", "zed/settings.json"),
        ("jsonc", "jsonc"),
        key="context_servers",
    ),
    "windsurf": _Host("Windsurf", None, ("", ".codeium", "windsurf/mcp_config.json"), elsewhere=True),
    "claude-desktop": _Host("Claude Desktop", None, (*_CONFIG, "Claude/claude_desktop_config.json"), elsewhere=True),
    "jetbrains": _Host("JetBrains IDEs (Junie)", ".junie/mcp/mcp.json", ("", ".junie", "mcp/mcp.json")),
}
_THEN = {
    "claude": "Start 'claude' here: it asks once whether this server may run.",
    "vscode": "Open this folder in VS Code, and start the server from the list of MCP servers.",
    "copilot": "Start 'copilot' here; it reads this file in folders that you have trusted.",
    "codex": "Start 'codex' here; it reads this file in projects that you have trusted.",
    "cursor": "Open this folder in Cursor, and enable the server in its settings.",
    "gemini": "Start 'gemini' here; it reads this file in folders that you have trusted.",
    "qwen": "Start 'qwen' here; it reads this file in folders that you have trusted.",
    "opencode": "Start 'opencode' here.",
    "zed": "Open this folder in Zed and trust it; the server is in the settings of the agent panel.",
    "jetbrains": "Open this folder in the IDE, and enable the server in Junie's MCP settings.",
}
HOSTS: Mapping[str, str] = {name: host.title for name, host in _KNOWN.items()}
"""What each is called by people."""


def scopes(host: str) -> tuple[Scope, ...]:
    """For whom a host can be told: not every one keeps a file in projects."""
    return ("project", "user") if _KNOWN[host].project is not None else ("user",)


def starts_elsewhere(host: str) -> bool:
    """Whether a host has to be told which repository is meant, because it starts servers in no project."""
    return _KNOWN[host].elsewhere


class Place(Struct, frozen=True):
    """Where the entry of one host goes."""

    file: Path
    inside: Path
    """The file may be a link, but not to anything outside of this folder."""
    form: Form
    key: str
    private: bool
    """Whether a file that is made is for the user's eyes only."""
    then: str
    """What the user has to do in the host."""


def place(host: str, scope: Scope, top: Path | None, env: Mapping[str, str] | None = None) -> Place:
    """The file of a host: of the project whose folder is `top`, or of the user."""
    known = _KNOWN[host]
    if scope == "project":
        if known.project is None:
            raise UsageError(f"{known.title} keeps no file in projects.", "Use --scope user.")
        if top is None:
            raise UsageError("A bare repository has no folder for a project's settings.", "Use --scope user.")
        return Place(top / known.project, top, known.forms[0], known.key, private=False, then=_THEN[host])
    variable, default, name = known.user
    folder, inside = user_folder(variable, default, os.environ if env is None else env)
    then = f"Start {known.title} anew: it reads the list of servers when it starts."
    return Place(folder / name, inside, known.forms[1], known.key, private=True, then=then)


def user_folder(variable: str, default: str, env: Mapping[str, str]) -> tuple[Path, Path]:
    """The folder that a variable names, else one below the user's; and the one that links must not lead out of."""
    home = _absolute("HOME", env)
    folder = _absolute(variable, env) if env.get(variable) else home / default
    return folder, home if folder.is_relative_to(home) else folder


def _absolute(variable: str, env: Mapping[str, str]) -> Path:
    given = env.get(variable, "")
    if not Path(given).is_absolute():
        raise UsageError(f"{variable} is not an absolute path: '{given}'", f"Set {variable} to an absolute path.")
    return Path(given)


def entry(host: str, scope: Scope, command: Sequence[str]) -> Json:
    """What a host is told: the program and its words."""
    program, *words = command
    if host == "codex":
        times = {"startup_timeout_sec": STARTUP_SECONDS, "tool_timeout_sec": TOOL_SECONDS}
        return {"command": program, "args": words, **times}
    if host == "copilot" and scope == "user":
        return {"type": "local", "command": program, "args": words, "tools": ["*"]}
    if host == "vscode":
        return {"type": "stdio", "command": program, "args": words, "cwd": WORKSPACE}
    if host == "cursor":
        return {"type": "stdio", "command": program, "args": [*words, "--repo", WORKSPACE]}
    if host == "opencode":
        return {"type": "local", "command": [program, *words], "enabled": True}
    if host in ("gemini", "qwen", "zed", "windsurf", "claude-desktop", "jetbrains"):
        return {"command": program, "args": words}
    # Claude Code and Copilot CLI share a project's file, and this form.
    return {"type": "stdio", "command": program, "args": words}


def is_ours(found: object) -> bool:
    """Whether an entry starts our server, however it was made."""
    if not isinstance(found, dict) or not isinstance(found.get("args", []), list):
        return False
    command = found.get("command")
    words = [*(command if isinstance(command, list) else [command]), *found.get("args", [])]
    if not all(isinstance(word, str) for word in words):
        return False
    named = [Path(word).name for word in words] or [""]
    return "mcp" in named[1:] and (named[0] == "orchard" or named[1:3] == ["-m", "orchard"])
