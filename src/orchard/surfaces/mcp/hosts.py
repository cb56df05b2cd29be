"""Programs that talk with MCP servers: where each keeps its list of them, and how an entry for ours looks there.

This is knowledge about other people's programs, and all of it is here. Nothing is read or written.

    HOSTS                     the programs that are known
    place(host, scope, ...)   the file, and how it is written
    entry(host, scope, ...)   what stands in it under our name
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

HOSTS: Mapping[str, str] = {
    "claude": "Claude Code",
    "vscode": "VS Code",
    "copilot": "Copilot CLI",
    "codex": "Codex",
    "cursor": "Cursor",
}
"""What each is called by people."""

WORKSPACE = "${workspaceFolder}"
"""What VS Code and Cursor put the folder for that is open; both start servers elsewhere if they are not told."""

STARTUP_SECONDS = 30
TOOL_SECONDS = 90
"""Codex gives up after these; a call of ours takes at most 45 seconds."""


class Place(Struct, frozen=True):
    """Where the entry of one host goes."""

    file: Path
    inside: Path
    """The file may be a link, but not to anything outside of this folder."""
    form: Form
    keys: tuple[str, ...]
    """Under these the servers stand, by name."""
    private: bool
    """Whether a file that is made is for the user's eyes only."""
    then: str
    """What the user has to do in the host."""


def place(host: str, scope: Scope, top: Path | None, env: Mapping[str, str] | None = None) -> Place:
    """The file of a host: of the project whose folder is `top`, or of the user."""
    variables = os.environ if env is None else env
    if scope == "project":
        if top is None:
            raise UsageError("A bare repository has no folder for a project's settings.", "Use --scope user.")
        return _project(host, top)
    return _user(host, variables)


def entry(host: str, scope: Scope, command: Sequence[str]) -> Json:
    """What a host is told: the program and its words."""
    program, *words = command
    if host == "codex":
        return {
            "command": program,
            "args": words,
            "startup_timeout_sec": STARTUP_SECONDS,
            "tool_timeout_sec": TOOL_SECONDS,
        }
    if host == "copilot" and scope == "user":
        return {"type": "local", "command": program, "args": words, "tools": ["*"]}
    if host == "vscode":
        return {"type": "stdio", "command": program, "args": words, "cwd": WORKSPACE}
    if host == "cursor":
        return {"type": "stdio", "command": program, "args": [*words, "--repo", WORKSPACE]}
    # Claude Code and Copilot CLI share a project's file, and this form.
    return {"type": "stdio", "command": program, "args": words}


def is_ours(found: object) -> bool:
    """Whether an entry starts our server, however it was made."""
    if not isinstance(found, dict) or not isinstance(found.get("args", []), list):
        return False
    words = [found.get("command"), *found.get("args", [])]
    if not all(isinstance(word, str) for word in words):
        return False
    named = [Path(word).name for word in words]
    return "mcp" in named[1:] and (named[0] == "orchard" or named[1:3] == ["-m", "orchard"])


def _project(host: str, top: Path) -> Place:
    names = {"vscode": ".vscode/mcp.json", "codex": ".codex/config.toml", "cursor": ".cursor/mcp.json"}
    then = {
        "claude": "Start 'claude' here: it asks once whether this server may run.",
        "vscode": "Open this folder in VS Code, and start the server from the list of MCP servers.",
        "copilot": "Start 'copilot' here; it reads this file in folders that you have trusted.",
        "codex": "Start 'codex' here; it reads this file in projects that you have trusted.",
        "cursor": "Open this folder in Cursor, and enable the server in its settings.",
    }
    file = top / names.get(host, ".mcp.json")
    form, keys = _form(host, "project")
    return Place(file, top, form, keys, private=False, then=then[host])


def _user(host: str, env: Mapping[str, str]) -> Place:
    home = folder_of(env, "HOME", None)
    if host == "claude":
        # With the variable the file is in that folder, without it beside the default one.
        inside = folder_of(env, "CLAUDE_CONFIG_DIR", home)
        file = inside / ".claude.json"
    elif host == "copilot":
        inside = folder_of(env, "COPILOT_HOME", home / ".copilot")
        file = inside / "mcp-config.json"
    elif host == "codex":
        inside = folder_of(env, "CODEX_HOME", home / ".codex")
        file = inside / "config.toml"
    elif host == "cursor":
        inside = file = home / ".cursor" / "mcp.json"
    else:
        config = home / "Library" / "Application Support" if sys.platform == "darwin" else home / ".config"
        inside = config if sys.platform == "darwin" else folder_of(env, "XDG_CONFIG_HOME", config)
        file = inside / "Code" / "User" / "mcp.json"
    form, keys = _form(host, "user")
    then = f"Start {HOSTS[host]} anew: it reads the list of servers when it starts."
    return Place(file, home if file.is_relative_to(home) else inside, form, keys, private=True, then=then)


def _form(host: str, scope: Scope) -> tuple[Form, tuple[str, ...]]:
    """How the file is written. Whether comments are read was tried with the programs, except for Cursor."""
    if host == "codex":
        return "toml", ("mcp_servers",)
    if host == "vscode":
        return "jsonc", ("servers",)
    commented = host == "cursor" or (host == "copilot" and scope == "user")
    return ("jsonc" if commented else "json"), ("mcpServers",)


def folder_of(env: Mapping[str, str], variable: str, default: Path | None) -> Path:
    """The folder that a variable names, else the default."""
    given = env.get(variable, "")
    if not given and default is not None:
        return default
    if not Path(given).is_absolute():
        raise UsageError(f"{variable} is not an absolute path: '{given}'", f"Set {variable} to an absolute path.")
    return Path(given)
