"""Google's Gemini CLI: JSON lines on its output, the last of which says how it ended and what was used.

Its settings are a file in its own folder. In a folder of the job's own we write it; the user's is left as it is, so
that what only settings can say (MCP servers, the most turns, how often it asks again) has no effect there.
"""

import json
from collections.abc import Mapping
from typing import Any

from orchard.agents.backends.project_files import addresses, foreign, refuse
from orchard.agents.backends.stream import (
    LONGEST_TEXT,
    StreamReader,
    count,
    is_private,
    limited_server,
    part,
    sentence,
    telling_line,
    text,
    write_private,
)
from orchard.agents.cli import Command, Json, KnownBackend, no_effect, options, reason_of
from orchard.agents.facts.known import AcpTraits, Known, Service, can
from orchard.agents.facts.model_lists import Asking, Found, ask_gemini, with_aliases
from orchard.agents.permissions import Catalogue, split
from orchard.agents.protocol import Noted, Reason, Result, Said, Task, Tell, Used
from orchard.model.agent_rows import AgentRow
from orchard.model.usage import Usage
from orchard.process.program import Ended

KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI")
ADDRESSES = {"GOOGLE_GEMINI_BASE_URL": "https://generativelanguage.googleapis.com"}
_FLAGS = {"model": "--model=", "max_turns": None, "allowed_folders": "--include-directories=", "allowed_urls": None}
_NO_LOGIN, _BAD_INPUT, _TURNS = 41, 42, 53
_LOST = "Error resuming session"
_HTTP_EXITS = range(400 - 256, 256)
"""An error of the model's owner ends it with the HTTP status, of which the system keeps the lower eight bits."""

_VERTEX = "GOOGLE_GENAI_USE_VERTEXAI"


def _services(env: Mapping[str, str]) -> tuple[Service, ...]:
    if not env.get("GEMINI_API_KEY") or _auth(env) != "gemini-api-key":
        return ()
    ((variable, usual),) = ADDRESSES.items()
    header, others = "x-goog-api-key", ("GOOGLE_API_KEY",)
    return (Service(key="GEMINI_API_KEY", address=variable, usual=usual, header=header, words="", others=others),)


KNOWN = Known(
    "gemini",
    "Google",
    "gemini",
    "npm install -g @google/gemini-cli",
    "Run 'gemini' once and log in, or set GEMINI_API_KEY.",
    KEYS,
    ("GEMINI_CLI_HOME", ".gemini"),
    ("oauth_creds.json",),
    ((".gemini/settings.json", "selectedType"), (".gemini/.env", "_KEY"), (".gemini/.env", "GOOGLE_")),
    can("max_turns"),
    providers=(
        "GOOGLE_GENAI_USE_GCA",
        "GEMINI_CLI_USE_COMPUTE_ADC",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GEMINI_DEFAULT_AUTH_TYPE",
        "GOOGLE_GEMINI_BASE_URL",
    ),
    hosts=(
        "generativelanguage.googleapis.com",
        "cloudcode-pa.googleapis.com",
        "oauth2.googleapis.com",
        "accounts.google.com",
        "www.googleapis.com",
    ),
    elsewhere=(_VERTEX, "GOOGLE_API_KEY", "GEMINI_CLI_USE_COMPUTE_ADC", "GOOGLE_VERTEX_BASE_URL"),
    services=_services,
    endpoints=("GOOGLE_GEMINI_BASE_URL",),
    acp={"gemini": AcpTraits(obeys=(".gemini",), files=(".gemini/.env", ".env"))},
    reads=(".agents", ".gemini", ".env"),
    droppings=(".gemini/tmp/", ".gemini/settings.json.orig", "gemini-client-error-*.json"),
    aliases={"flash": "fast", "flash-lite": "fast", "pro": "premium", "auto": "standard"},
    variables=(
        "GEMINI_CLI_HOME",
        "GEMINI_MODEL",
        "GEMINI_API_KEY_AUTH_MECHANISM",
        "GEMINI_CLI_CUSTOM_HEADERS",
        "GEMINI_CLI_USE_COMPUTE_ADC",
        "GEMINI_DEFAULT_AUTH_TYPE",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_VERTEX_BASE_URL",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_PROJECT_ID",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_GENAI_USE_GCA",
    ),
    holds="tools",
    attach=("--resume={session}",),
    own_folders={"GEMINI_CLI_HOME": "gemini"},
)

_TOOLS: Catalogue = {
    "read_file": "read_file", "read_many_files": "read_file", "list_directory": "list_files", "glob": "list_files",
    "grep_search": "search_files", "search_file_content": "search_files", "replace": "edit_file",
    "write_file": "write_file", "run_shell_command": "bash", "list_background_processes": "bash",
    "read_background_output": "bash", "web_fetch": "web_fetch", "google_web_search": "web_search",
    "write_todos": "todo", "update_topic": "", "save_memory": "subagent", "invoke_agent": "subagent",
    "activate_skill": "skill", "enter_plan_mode": "subagent", "exit_plan_mode": "subagent",
}  # fmt: skip
_LAST, _FIRST = 100, 900
"""Of rules that fit a call, the one with the higher number counts."""


def _limited(task: Task) -> list[str]:
    """Arguments that name a file of rules: nothing may be used but what is named there."""
    tools, servers = task.settings.tools, task.settings.mcp_servers
    if not tools.limits:
        return []
    allowed, _ = split(tools, _TOOLS)
    rules = [_rule("deny", _LAST, toolName="*")]
    rules += [_rule("allow", _FIRST, toolName=name) for name in allowed]
    # Of a server only those tools are known to it that may be used: its settings say so.
    rules += [_rule("allow", _FIRST, toolName="*", mcpName=server.name) for server in servers]
    return [f"--policy={write_private(task.private, 'gemini-policy.toml', ''.join(rules))}"]


def _rule(decision: str, priority: int, **about: str) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in about.items()]
    return "\n".join(["[[rule]]", *lines, f'decision = "{decision}"', f"priority = {priority}", "", ""])


class Gemini(KnownBackend):
    known = KNOWN

    def models(self, asking: Asking) -> Found:
        return with_aliases(KNOWN, asking, "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ask_gemini)

    def prepare(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        settings = task.settings
        seen = {**task.env, **row.env}
        private = is_private(row, seen, KEYS)
        if not task.trusted_project_settings:
            # That `.env` does not count is a setting, which we write where the settings are ours.
            variables = (".gemini/.env",) if private else (".gemini/.env", ".env")
            refuse(task, self.name, foreign(task, (".gemini",), variables))
        # In a folder that it does not trust it does not begin.
        argv = [program, *row.args, "--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust"]
        if task.session:
            argv.append(f"--resume={task.session}")
        argv += options(self.name, task, tell, _FLAGS)
        argv += _limited(task)
        for url in settings.allowed_urls if not task.walled else ():
            no_effect(tell, self.name, "allowed_urls", url)
        env: dict[str, str] = {}
        if private:
            home = task.private / "gemini"
            write_private(task.private, "gemini/.gemini/settings.json", json.dumps(_settings(task, seen)))
            env |= {"GEMINI_CLI_HOME": str(home), **addresses(seen, ADDRESSES)}
        else:
            self._note_unsettable(task, tell)
        return Command(tuple(argv), env, task.instructions.encode())

    def reader(self, task: Task, tell: Tell) -> "GeminiReader":
        return GeminiReader(task, tell)

    def _note_unsettable(self, task: Task, tell: Tell) -> None:
        why = f"{self.name} uses your own settings; with 'home = \"private\"' and a key in the environment it would"
        if task.settings.max_turns is not None:
            tell(Noted("setting", f"'max_turns: {task.settings.max_turns}' has no effect: {why}."))
        for server in [one for one in task.settings.mcp_servers if not one.offered]:
            tell(Noted("mcp", f"The MCP server '{server.name}' is not used: {why}."))


def _settings(task: Task, env: Mapping[str, str]) -> Json:
    """Its settings for a job. Our own policy decides what is tried again, where people see it."""
    found: Json = {
        "general": {"enableAutoUpdate": False, "maxAttempts": 1, "retryFetchErrors": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "advanced": {"ignoreLocalEnv": not task.trusted_project_settings},
    }
    if kind := _auth(env):
        found["security"] = {"auth": {"selectedType": kind}}
    if task.settings.max_turns is not None:
        found["model"] = {"maxSessionTurns": task.settings.max_turns}
    if task.settings.mcp_servers:
        found["mcpServers"] = {
            server.name: limited_server(task.settings.tools, server) for server in task.settings.mcp_servers
        }
    return found


def _auth(env: Mapping[str, str]) -> str | None:
    if env.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("true", "1"):
        return "vertex-ai"
    if env.get("GEMINI_API_KEY"):
        return "gemini-api-key"
    return "vertex-ai" if env.get("GOOGLE_API_KEY") else None


class GeminiReader(StreamReader):
    def __init__(self, task: Task, tell: Tell) -> None:
        super().__init__(task, tell)
        self._open_line = False
        self._end: Json | None = None

    def feed(self, message: Json) -> None:
        match message.get("type"):
            case "init":
                self._name_session(text(message.get("session_id")))
            case "message" if message.get("role") == "assistant":
                self._say(text(message.get("content")))
            case "tool_use":
                self._call(message)
            case "tool_result":
                self._calls.end(text(message.get("tool_id")), failed=message.get("status") == "error")
            case "error":
                self._tell(Noted("warning", sentence(text(message.get("message")))))
            case "result":
                self._end_line()
                self._end = message
                self._count(part(message, "stats"))

    def result(self, ended: Ended, stray: str) -> Result:
        said = self._words.strip()
        if self._end is not None and self._end.get("status") == "success":
            return Result("done", text=said, session=self.session)
        message = sentence(text(part(self._end, "error").get("message")))
        reason, message = self._why(ended, message, stray)
        return Result(reason, message, said, self.session)

    def _why(self, ended: Ended, message: str, stray: str) -> tuple[Reason, str]:
        complaints = self._complaints.read()
        if self.session is None:
            # Later its complaints may be about anything.
            message = message or telling_line(complaints) or sentence(stray)
        if ended.exit_code == _TURNS:
            return "max-turns", "Gemini reached the most turns that it may take."
        if ended.exit_code == _NO_LOGIN:
            return "not-logged-in", message or "Gemini has no login."
        if ended.exit_code == _BAD_INPUT and _LOST in complaints:
            return "session-lost", "Gemini does not know the session any more."
        if self._end is None:
            return reason_of(message), message or "Gemini ended without saying how its work went."
        exit_code = ended.exit_code or 0
        status = exit_code + 256 if exit_code in _HTTP_EXITS else None
        return reason_of(message, status), message or "Gemini failed and did not say why."

    def _say(self, said: str) -> None:
        if said:
            self._words = (self._words + said)[-LONGEST_TEXT:]
            self._open_line = not said.endswith("\n")
            self._tell(Said(said))

    def _end_line(self) -> None:
        if self._open_line:
            self._open_line = False
            self._tell(Said("\n"))

    def _call(self, message: Json) -> None:
        self._end_line()
        self._words = ""
        self._calls.begin(text(message.get("tool_id")), text(message.get("tool_name")), message.get("parameters"))

    def _count(self, stats: Json) -> None:
        for model, tokens in part(stats, "models").items():
            used = _usage(model, tokens)
            if used.tokens:
                self._tell(Used(used))


def _usage(model: str, tokens: Any) -> Usage:
    """What it counted for a model; thoughts are only in the total."""
    counted = part(tokens)
    prompt, cached = count(counted.get("input_tokens")), count(counted.get("cached"))
    output = max(count(counted.get("output_tokens")), count(counted.get("total_tokens")) - prompt)
    return Usage(model, max(prompt - cached, 0), cached, output=output)


BACKEND = Gemini()
