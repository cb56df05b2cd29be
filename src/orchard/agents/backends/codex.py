"""Codex: `codex exec --json`, told its task by standard input."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from orchard.agents.backends.project_files import with_own_words
from orchard.agents.backends.stream import (
    LONGEST_TEXT,
    Counts,
    StreamReader,
    Totals,
    about,
    count,
    is_private,
    part,
    private_home,
    sentence,
    text,
)
from orchard.agents.cli import Command, Enough, Json, KnownBackend, options, reason_of
from orchard.agents.facts.known import AcpTraits, Known, Service, can, holds
from orchard.agents.facts.model_lists import Asking, Found, ask_openai, listed, told
from orchard.agents.permissions import denied_of_server, of_server
from orchard.agents.protocol import Called, McpServer, Noted, Reason, Result, Said, Task, Tell, Used, digest
from orchard.model.agent_rows import AgentRow
from orchard.model.permissions import Tools
from orchard.model.usage import Usage
from orchard.process.program import Ended

KEYS = ("CODEX_API_KEY", "OPENAI_API_KEY")
OPENAI = "https://api.openai.com/v1"
RETRIES = 2
"""Of its own, after which it is ours to wait."""
MOST_WAITS_FOR_NETWORK = 2
"""Without a network it would wait for ever: so often it may say so."""
_FLAGS = {"model": "--model", "effort": None, "allowed_folders": "--add-dir", "allowed_urls": None}
_QUIET: dict[str, bool] = {
    "check_for_update_on_startup": False, "analytics.enabled": False, "features.plugins": False, "features.apps": False,
}  # fmt: skip
"""What it would otherwise call outside hosts for."""
_APPROVED = {"default_tools_approval_mode": "approve"}
"""A server's tools are for the agent to use: in its sandbox, where nobody is asked, it would refuse all that write."""


def _services(env: Mapping[str, str]) -> tuple[Service, ...]:
    key = next((name for name in KEYS if env.get(name)), None)
    if key is None:
        return ()
    return (Service(key=key, address="OPENAI_BASE_URL", usual=OPENAI, others=tuple(one for one in KEYS if one != key)),)


KNOWN = Known(
    "codex",
    "OpenAI",
    "codex",
    "npm install -g @openai/codex",
    "Run 'codex login', or set OPENAI_API_KEY.",
    KEYS,
    ("CODEX_HOME", ".codex"),
    ("auth.json",),
    ((".codex/config.toml", "model_provider"), (".codex/config.toml", "oss_provider")),
    can("effort"),
    providers=("AZURE_OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_OSS_BASE_URL", "CODEX_OSS_PORT", "CODEX_ACCESS_TOKEN"),
    status=("login", "status"),
    hosts=("api.openai.com", "auth.openai.com", "chatgpt.com"),
    elsewhere=("AZURE_OPENAI_API_KEY", "CODEX_OSS_BASE_URL", "CODEX_OSS_PORT"),
    services=_services,
    endpoints=("OPENAI_BASE_URL",),
    acp={"codex-acp": AcpTraits(KEYS, "CODEX_HOME", {"CODEX_ACP_PROMPT_SUGGESTIONS": "false"}, obeys=(".codex",))},
    reads=(".codex", ".agents"),
    droppings=(".codex/tmp/", ".codex/sessions/", ".codex/log/"),
    variables=("OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT", "CODEX_HOME"),
    holds="modes",
    attach=("resume", "{session}"),
    own_folders={"CODEX_HOME": "codex"},
)


class Codex(KnownBackend):
    known = KNOWN

    def models(self, asking: Asking) -> Found:
        env = asking.env
        if env.get("OPENAI_BASE_URL"):
            return told(ask_openai, env["OPENAI_BASE_URL"], env.get("OPENAI_API_KEY", ""))
        try:
            models = json.loads(asking.ask("debug", "models"))["models"]
            names = [model["slug"] for model in models if model.get("visibility", "list") == "list"]
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return asking.no_answer()
        # Whoever has set up another provider knows its models better than the list that comes with the program.
        other = any("model_provider" in argument for argument in asking.row.args)
        folder = Path(env.get("CODEX_HOME") or Path(env.get("HOME") or Path.home()) / ".codex")
        complete = not other and not holds(folder / "config.toml", "model_provider")
        return listed(names, "codex debug models", vendor=KNOWN.vendor, complete=complete)

    def prepare(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        """One turn, unattended: behind our wall, or else in its own sandbox where that works; they cannot be nested.

        Behind ours a turn that may only read finds a worktree that cannot be written to.
        """
        settings = task.settings
        env: dict[str, str] = {}
        config: dict[str, Any] = dict(_QUIET)
        if is_private(row, {**task.env, **row.env}, KEYS):
            env["CODEX_HOME"] = private_home(task, "codex")
            config |= _provider({**task.env, **row.env})
        if not task.trusted_project_settings:
            config["projects"] = _untrusted(task)
        if settings.effort is not None:
            config["model_reasoning_effort"] = settings.effort
        if settings.mcp_servers:
            config["mcp_servers"] = _servers(settings.mcp_servers, task.env, env)
            for server in settings.mcp_servers:
                config["mcp_servers"][server.name] |= _named(settings.tools, server)
        argv = [program, *row.args, "exec", "--json", "--skip-git-repo-check"]
        if settings.tools.mode != "all":
            config |= {"features.multi_agent": False, "web_search": "disabled"}
        if task.walled:
            argv.append("--dangerously-bypass-approvals-and-sandbox")
        elif settings.tools.mode != "all":
            # Never without its walls: where they cannot be made, its commands fail.
            argv += ["--sandbox", "workspace-write" if settings.tools.mode == "edit" else "read-only"]
            config |= {"approval_policy": "never", "sandbox_workspace_write": _walls(task)}
        elif no_walls := without_namespaces():
            tell(Noted("warning", f"codex works without its own sandbox ({no_walls}): it can do all that you can."))
            argv.append("--dangerously-bypass-approvals-and-sandbox")
        else:
            argv += ["--sandbox", "workspace-write"]
            config |= {"approval_policy": "never", "sandbox_workspace_write": _walls(task)}
        argv += options(self.name, task, tell, _FLAGS)
        for name, value in config.items():
            argv += ["--config", f"{name}={_toml(value)}"]
        if settings.allowed_urls and not task.walled:
            listed = ", ".join(settings.allowed_urls)
            tell(Noted("setting", f"'allowed_urls: {listed}' lets codex reach any address: it knows all or none."))
        if task.session is not None:
            argv += ["resume", _thread(task.session)]
        return Command((*argv, "-"), env, with_own_words(task, ("AGENTS.override.md", "AGENTS.md")))

    def reader(self, task: Task, tell: Tell) -> "CodexReader":
        return CodexReader(task, tell)


def _thread(session: str) -> str:
    """The session's id. What is none would be taken for a name, and an unknown name silently begins a new session."""
    try:
        return str(UUID(session))
    except ValueError:
        return str(UUID(int=0))


def _walls(task: Task) -> Json:
    """What its sandbox lets commands do beside writing to the worktree: give evidence, and reach addresses if asked."""
    evidence = task.env.get("ORCHARD_EVIDENCE")
    roots = [str(Path(evidence).parent)] if evidence else []
    return {"writable_roots": roots, "network_access": bool(task.settings.allowed_urls)}


def without_namespaces() -> str | None:
    """Why a sandbox that a program makes for itself cannot work here, as far as the system tells; None: it can."""
    if sys.platform != "linux":
        return None
    unprivileged = os.geteuid() != 0
    for name, closed, matters in (
        ("user/max_user_namespaces", "0", True),
        ("kernel/unprivileged_userns_clone", "0", unprivileged),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", unprivileged),
    ):
        try:
            found = (Path("/proc/sys") / name).read_text("ascii").strip()
        except (OSError, ValueError):
            continue
        if matters and found == closed:
            return f"/proc/sys/{name} is {found}"
    return None


def _untrusted(task: Task) -> Json:
    """That no project around the folder is trusted. Of a worktree it asks for the repository that it belongs to."""
    folder = task.folder.resolve()
    return {str(place): {"trust_level": "untrusted"} for place in (folder, *folder.parents)}


def _provider(env: Mapping[str, str]) -> Json:
    """The owner of the model, with retries that end; those of the owner it knows by itself cannot be set."""
    key = next((key for key in KEYS if env.get(key)), KEYS[-1])
    table = {
        "name": "OpenAI", "base_url": env.get("OPENAI_BASE_URL") or OPENAI, "env_key": key, "wire_api": "responses",
        "request_max_retries": RETRIES, "stream_max_retries": RETRIES,
    }  # fmt: skip
    return {"model_provider": "orchard", "model_providers.orchard": table}


def _servers(servers: Sequence[McpServer], inherited: Mapping[str, str], env: dict[str, str]) -> Json:
    """The servers, as configuration. Values that may be secret go by variables: arguments can be seen by anybody."""
    found: Json = {}
    for server in servers:
        if server.url is not None:
            names = {header: f"ORCHARD_MCP_{len(env)}_{number}" for number, header in enumerate(server.headers)}
            env |= {names[header]: value for header, value in server.headers.items()}
            found[server.name] = {"url": server.url, "env_http_headers": names, **_APPROVED}
            continue
        command, args = server.command or "", list(server.args)
        clashing = {name: value for name, value in server.env.items() if inherited.get(name, value) != value
                    or env.get(name, value) != value}  # fmt: skip
        own = {name: value for name, value in server.env.items() if name not in clashing}
        if clashing:
            # It hands variables on by their names only. What has another value for the program itself goes by another
            # name, and a shell puts it right.
            renamed = {f"ORCHARD_MCP_{len(env)}_{number}": name for number, name in enumerate(clashing)}
            env |= {other: clashing[name] for other, name in renamed.items()}
            script = " ".join(f'{name}="${other}"; export {name}; unset {other};' for other, name in renamed.items())
            command, args = "/bin/sh", ["-c", f'{script} exec "$@"', "sh", command, *args]
            own |= dict.fromkeys(renamed, "")
        env |= {name: value for name, value in own.items() if name not in env}
        found[server.name] = {"command": command, "args": args, "env_vars": list(own), **_APPROVED}
    return found


def _named(tools: Tools, server: McpServer) -> Json:
    """Which of a server's tools it is to know."""
    found: Json = {}
    if not server.offered and (named := of_server(tools, server.name)) is not None:
        found["enabled_tools"] = list(named)
    if denied := denied_of_server(tools, server.name):
        found["disabled_tools"] = list(denied)
    return found


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


class CodexReader(StreamReader):
    name = "codex"
    lost_words = ("no rollout found",)

    def __init__(self, task: Task, tell: Tell) -> None:
        super().__init__(task, tell)
        self._done = False
        self._error = ""
        self._begun: str | None = None
        self._waits = 0

    def feed(self, message: Json) -> None:
        kind = message.get("type")
        if kind == "thread.started":
            self._name_session(text(message.get("thread_id")))
        elif kind in ("item.started", "item.completed"):
            self._hear_item(part(message, "item"), completed=kind == "item.completed")
        elif kind == "turn.completed":
            self._done = True
            self._hear_usage(part(message, "usage"))
        elif kind == "turn.failed":
            self._error = text(part(message, "error").get("message")) or "the turn failed"
        elif kind == "error":
            self._hear_error(text(message.get("message")))

    def result(self, ended: Ended, stray: str) -> Result:
        """How the turn ended: `turn.completed` is the only good word."""
        if self._done and not ended.exit_code:
            return Result("done", "", self._words, self.session)
        if self._error:
            return Result(self._reason(self._error), sentence(self._error), self._words, self.session)
        return self._unfinished(ended, stray)

    def _reason(self, message: str) -> Reason:
        if "high demand" in message:
            return "overloaded"
        if "Missing environment variable" in message:
            return "not-logged-in"
        return reason_of(message)

    def _hear_item(self, item: Json, completed: bool) -> None:
        kind = item.get("type")
        if kind == "agent_message" and completed:
            self._words = text(item.get("text"))[:LONGEST_TEXT]
            self._tell(Said(self._words + "\n"))
        elif kind == "error":
            self._tell(Noted("warning", f"codex: {sentence(text(item.get('message')))}"))
        elif kind not in ("agent_message", "reasoning", "todo_list"):
            self._hear_call(item, completed)

    def _hear_call(self, item: Json, completed: bool) -> None:
        tool, shown = _call(item)
        id = text(item.get("id"))
        if id != self._begun:
            self._tell(Called(tool, shown, input=_input(item)))
            self._begun = id
        if completed and item.get("status") in ("failed", "declined"):
            self._tell(Called(tool, shown, failed=True))

    def _hear_error(self, message: str) -> None:
        if not message.startswith("Reconnecting"):
            self._error = message
            return
        self._tell(Noted("retry", f"codex calls its model again: {sentence(message)}"))
        if "waiting for network" in message:
            self._waits += 1
            if self._waits >= MOST_WAITS_FOR_NETWORK:
                self._error = f"network: {message}"
                raise Enough

    def _hear_usage(self, row: Json) -> None:
        """What it tells is the sum of the whole session: of that, what was not told in earlier turns."""
        whole = {name: count(row.get(name)) for name in _COUNTED}
        totals = Totals(self._task.private, "codex-usage.json")
        before = totals.told(self.session)
        if before is None and self._task.session is not None:
            self._tell(Noted("warning", "What this turn used is not known: codex tells the sum of a session that began "
                                        "elsewhere."))  # fmt: skip
        else:
            self._tell(Used(_usage(self._task.settings.model or "", whole, before or {})))
        if self.session is not None:
            totals.remember(self.session, whole)


_COUNTED = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")


def _usage(model: str, whole: Counts, before: Counts) -> Usage:
    prompt, cached, writes, output = (max(0, whole[name] - before.get(name, 0)) for name in _COUNTED)
    return Usage(model, max(0, prompt - cached - writes), cached, writes, output)


def _call(item: Json) -> tuple[str, str]:
    kind = text(item.get("type"))
    if kind == "command_execution":
        return "shell", about(item)
    if kind == "mcp_tool_call":
        return sentence(f"{text(item.get('server'))}/{text(item.get('tool'))}"), about(item.get("arguments"))
    if kind == "file_change":
        changes = item.get("changes")
        paths = [text(part(change).get("path")) for change in changes] if isinstance(changes, list) else []
        return "edit", sentence(", ".join(paths[:10]))
    return sentence(kind), about(item)


def _input(item: Json) -> str:
    """A digest of what a call was made with; edits come with their paths only, so they are like no other."""
    return digest([item.get(name) for name in ("command", "arguments")]) if item.get("type") != "file_change" else ""


BACKEND = Codex()
