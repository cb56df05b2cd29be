"""GitHub Copilot's CLI: JSON lines on its output, and tokens in files.

Each call of the model is in the record of the session, which is read as the turn goes on: so also what a turn used that
is stopped is known. Where that record is not found, there is the file that the program writes at its end; it counts
for a whole session, and what it had counted when the turn began is taken off.

The turn names the session itself: the program tells the id only in its last line, which a turn that was stopped never
prints.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from orchard.agents.backends.stream import (
    StreamReader,
    amount,
    count,
    is_private,
    part,
    sentence,
    server_row,
    servers_file,
    telling_line,
    text,
    write_private,
)
from orchard.agents.cli import Command, Enough, Json, KnownBackend, options, reason_of
from orchard.agents.facts.known import AcpTraits, Known, Service, can
from orchard.agents.facts.model_lists import Asking, Found, ask_anthropic, ask_openai, listed, told
from orchard.agents.permissions import Catalogue, denied_of_server, of_server, split
from orchard.agents.protocol import TRANSIENT, McpServer, Noted, Reason, Result, Session, Task, Tell, Used
from orchard.files import open_plain, read_below, read_plain
from orchard.model.agent_rows import AgentRow
from orchard.model.permissions import Tools
from orchard.model.usage import Usage, less
from orchard.process.program import Ended

KEYS = ("COPILOT_PROVIDER_BASE_URL", "COPILOT_GITHUB_TOKEN")
BROAD_KEYS = ("GH_TOKEN", "GITHUB_TOKEN")
"""These log it in as well, where the user hands them on: they may do much more than call a model."""
_SECRETS = (
    "COPILOT_GITHUB_TOKEN",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "COPILOT_PROVIDER_API_KEY",
    "COPILOT_PROVIDER_API_KEY_COMMAND",
    "COPILOT_PROVIDER_BEARER_TOKEN",
    "COPILOT_PROVIDER_HEADERS",
)
"""What the program itself needs, and no command that it runs."""
_FLAGS = {
    "model": "--model",
    "effort": "--reasoning-effort",
    "allowed_folders": "--add-dir",
    "allowed_urls": "--allow-url=",
}
RETRIES = 2
"""Of its own, after which it is ours to wait; it has no switch for that."""
_MOST_USAGE = 1 << 20
_MOST_RECORD = 1 << 23
_ID = re.compile(r"[0-9a-fA-F-]{36}")
_LOST = "No session, task, or name matched"
_NO_LOGIN = "No authentication information found"
_LOG_IN = (
    "Copilot has no login: run 'copilot login', or set COPILOT_GITHUB_TOKEN. GH_TOKEN and GITHUB_TOKEN are handed on "
    "only where 'pass_env' of [agents.copilot] names them."
)


def _acp_failure(said: str, used: bool, denied: bool) -> tuple[Reason, str] | None:
    if denied and said == "Info: Operation cancelled by user":
        return "denied", "It gave up when it was denied a tool."
    if not used and said.startswith("Error: "):
        return reason_of(said), sentence(said.removeprefix("Error: ")) or "no reason is told"
    return None


_KEY_HEADERS = {"anthropic": ("x-api-key", ""), "azure": ("api-key", "")}


def _services(env: Mapping[str, str]) -> tuple[Service, ...]:
    """A model of the user's own; with a login at GitHub there is nothing that could be put in between."""
    header, words = _KEY_HEADERS.get(env.get("COPILOT_PROVIDER_TYPE", ""), ("Authorization", "Bearer"))
    key, others = "COPILOT_PROVIDER_API_KEY", ["COPILOT_GITHUB_TOKEN"]
    if env.get("COPILOT_PROVIDER_BEARER_TOKEN"):
        (header, words), key = ("Authorization", "Bearer"), "COPILOT_PROVIDER_BEARER_TOKEN"
        others.append("COPILOT_PROVIDER_API_KEY")
    return (Service(key=key, address="COPILOT_PROVIDER_BASE_URL", header=header, words=words, others=tuple(others)),)


KNOWN = Known(
    "copilot",
    "GitHub",
    "copilot",
    "npm install -g @github/copilot",
    "Run 'copilot login', or set COPILOT_GITHUB_TOKEN.",
    KEYS,
    ("COPILOT_HOME", ".copilot"),
    (),
    ((".copilot/config.json", "ogged"), (".config/gh/hosts.yml", "github.com")),
    can("effort"),
    providers=("COPILOT_PROVIDER_API_KEY_COMMAND", "COPILOT_PROVIDER_BEARER_TOKEN", "COPILOT_GH_HOST"),
    hosts=("api.github.com", "github.com", "*.githubcopilot.com", "copilot-proxy.githubusercontent.com"),
    elsewhere=("COPILOT_GH_HOST", "GH_HOST"),
    services=_services,
    endpoints=("COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_TYPE"),
    acp={"copilot": AcpTraits(KEYS, "COPILOT_HOME", server_flag="--additional-mcp-config", failure=_acp_failure)},
    reads=(
        ".mcp.json",
        ".agents",
        ".copilot",
        ".github/copilot*",
        ".github/hooks",
        ".github/agents",
        ".github/skills",
        ".github/mcp.json",
        ".github/lsp.json",
        ".vscode/mcp.json",
    ),
    droppings=(".copilot/logs/", ".copilot/session-state/"),
    more_aliases=("auto",),
    variables=(
        # GH_TOKEN and GITHUB_TOKEN may do much more than call a model: only who names them in `pass_env` hands them on.
        "COPILOT_HOME",
        "COPILOT_MODEL",
        "COPILOT_OFFLINE",
        "COPILOT_CUSTOM_INSTRUCTIONS_DIRS",
        "COPILOT_GH_HOST",
        "GH_HOST",
        "COPILOT_PROVIDER_TYPE",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_API_KEY_COMMAND",
        "COPILOT_PROVIDER_BEARER_TOKEN",
        "COPILOT_PROVIDER_WIRE_API",
        "COPILOT_PROVIDER_TRANSPORT",
        "COPILOT_PROVIDER_AZURE_API_VERSION",
        "COPILOT_PROVIDER_MODEL_ID",
        "COPILOT_PROVIDER_WIRE_MODEL",
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS",
        "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS",
        "COPILOT_PROVIDER_HEADERS",
    ),
    holds="tools",
    attach=("--resume={session}",),
    own_folders={"COPILOT_HOME": "copilot"},
)

_TOOLS: Catalogue = {
    "view": "read_file", "glob": "list_files", "grep": "search_files", "rg": "search_files",
    "create": "write_file", "edit": "edit_file", "apply_patch": "edit_file", "str_replace_editor": "edit_file",
    "bash": "bash", "read_bash": "bash", "write_bash": "bash", "stop_bash": "bash", "list_bash": "bash",
    "powershell": "bash", "task": "subagent", "read_agent": "subagent", "write_agent": "subagent",
    "list_agents": "subagent", "skill": "skill", "web_fetch": "web_fetch", "web_search": "web_search",
    "update_todo": "todo", "sql": "todo",
}  # fmt: skip
_WHOLE_KINDS = {"shell": ("bash",), "write": ("write_file", "edit_file"), "url": ("web_fetch",)}
"""Words for all tools that do such a thing, also those that a newer program has: what they deny is denied."""


def _limited(tools: Tools, servers: Sequence[McpServer]) -> list[str]:
    """Arguments that take tools away: from the model's sight, and again when it calls them nevertheless."""
    if not tools.limits:
        return []
    _, denied = split(tools, _TOOLS)
    refused = [kind for kind, ours in _WHOLE_KINDS.items() if not any(tools.permits(name) for name in ours)]
    for server in servers:
        refused += [f"{server.name}({tool})" for tool in denied_of_server(tools, server.name)]
    return [*(f"--excluded-tools={name}" for name in denied), *(f"--deny-tool={rule}" for rule in refused)]


class Copilot(KnownBackend):
    known = KNOWN

    def models(self, asking: Asking) -> Found:
        env = asking.env
        if env.get("COPILOT_PROVIDER_BASE_URL"):
            asked = ask_anthropic if env.get("COPILOT_PROVIDER_TYPE") == "anthropic" else ask_openai
            return told(asked, env["COPILOT_PROVIDER_BASE_URL"], env.get("COPILOT_PROVIDER_API_KEY", ""))
        section = re.search(r"^ *`model`:.*\n((?: +- .*\n?)+)", asking.ask("help", "config"), re.MULTILINE)
        names = re.findall(r'^ +- "([^"\s]+)"', section[1], re.MULTILINE) if section else []
        return listed(names, "copilot help config") if names else asking.no_answer()

    def prepare(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        settings, session = task.settings, task.session or str(uuid4())
        private = is_private(row, {**task.env, **row.env}, (*KEYS, *BROAD_KEYS))
        home = str(task.private / "copilot") if private else {**task.env, **row.env}.get("COPILOT_HOME", "")
        write_private(task.scratch, _NOTE, json.dumps({"session": session, "home": home}))
        if task.session is None:
            # So that a later turn knows that the session began here, even if this one is stopped before it can count.
            write_private(task.private, _usage_file(session), "{}")
        argv = [program, *row.args, "--output-format", "json", "--no-color", "--no-auto-update", "--no-remote"]
        argv += ["--allow-all-tools", "--no-ask-user", "--usage-output-file", str(task.private / _usage_file(session))]
        argv += _limited(settings.tools, settings.mcp_servers)
        argv.append(f"--secret-env-vars={','.join(_SECRETS)}")
        # With --session-id a session that is lost would silently be a new one.
        argv.append(f"--resume={session}" if task.session else f"--session-id={session}")
        argv += options(self.name, task, tell, {**_FLAGS, "allowed_urls": None} if task.walled else _FLAGS)
        # A wall holds it to its folders and addresses: there a command that merely names others need not be refused.
        argv += ["--allow-all-paths", "--allow-all-urls"] if task.walled else []
        if settings.mcp_servers:
            file = servers_file(
                task.private, "copilot-mcp.json", settings.mcp_servers, partial(_server, settings.tools)
            )
            argv += ["--additional-mcp-config", f"@{file}"]
        env = {"COPILOT_HOME": home} if private else {}
        # Only this very word lets the folder's hooks and servers count; `--trust-folder` is for `-p` only.
        env |= {"COPILOT_ALLOW_ALL": "true" if task.trusted_project_settings else "1"}
        return Command(tuple(argv), env, task.instructions.encode())

    def reader(self, task: Task, tell: Tell) -> "CopilotReader":
        return CopilotReader(task, tell)


def _server(tools: Tools, server: McpServer) -> Json:
    named = None if server.offered else of_server(tools, server.name)
    kind = "http" if server.url is not None else "local"
    return {"type": kind, **server_row(server), "tools": ["*"] if named is None else list(named)}


_NOTE = "copilot-turn.json"
"""Which session a turn is in, and where that is: from `prepare` to the reader."""


def _usage_file(session: str) -> str:
    return f"copilot-usage-{sha256(session.encode()).hexdigest()[:16]}.json"


class CopilotReader(StreamReader):
    def __init__(self, task: Task, tell: Tell) -> None:
        super().__init__(task, tell)
        # Read before the program runs: what is in the scratch folder afterwards may be the agent's own.
        note = json.loads(read_below(task.scratch, _NOTE))
        self._session: str | None = note["session"]
        home = Path(note["home"] or Path(task.env.get("HOME") or "/") / ".copilot")
        self._record = _Record(home, note["session"])
        self._usage_file = task.private / _usage_file(self._session or "")
        self._counts = self._usage_file.exists()
        self._before = _counted(self._usage_file)
        self._premium_before = _premium(self._usage_file)
        self._model = ""
        self._told_session = False
        self._error: Json = {}
        self._failures = 0
        self._end: Json | None = None

    def feed(self, message: Json) -> None:
        data = part(message, "data")
        if message.get("ephemeral") is not True:
            self._record.tell_new(self._tell)
        match message.get("type"):
            case "session.tools_updated":
                self._model = text(data.get("model")) or self._model
            case "user.message" | "assistant.turn_start":
                self._tell_session()
            case "assistant.message":
                self._error, self._failures = {}, 0
                if (said := text(data.get("content"))).strip():
                    self._words = ""
                    self._say(said)
            case "tool.execution_start":
                self._calls.begin(text(data.get("toolCallId")), text(data.get("toolName")), data.get("arguments"))
            case "tool.execution_complete":
                denied = part(data, "error").get("code") == "denied"
                self._calls.end(text(data.get("toolCallId")), failed=data.get("success") is False, denied=denied)
            case "model.call_failure":
                self._call_failed(data)
            case "assistant.turn_retry":
                why = sentence(text(data.get("reason")))
                self._tell(Noted("retry", f"Copilot asks the model again: {why}."))
            case "session.warning":
                self._tell(Noted("warning", sentence(text(data.get("message")))))
            case "session.compaction_complete":
                self._tell(Noted("compacted", "Copilot has summarised the conversation so far."))
            case "session.error":
                self._error = data
            case "result":
                self._end = message
                self._session = text(message.get("sessionId")) or self._session
                self._tell_session()

    def result(self, ended: Ended, stray: str) -> Result:
        self._count()
        session, said = self._session if self._told_session else None, self._words.strip()
        if self._end is None and not self._error:
            complaints = "" if self._told_session else self._complaints.read()
            reason, message = _never_began(complaints, "" if self._told_session else stray)
            return Result(reason, message, said, session)
        if self._end is not None and self._end.get("exitCode") == 0:
            return self._calls.judge(Result("done", text=said, session=session))
        message = sentence(text(self._error.get("message")))
        return Result(self._why(), message or "Copilot failed and did not say why.", said, session)

    def stopped(self) -> None:
        self._record.tell_new(self._tell)

    def _call_failed(self, data: Json) -> None:
        self._error = {"message": _own_words(text(data.get("errorMessage"))), "statusCode": data.get("statusCode")}
        self._failures += 1
        if self._failures > RETRIES and self._why() in TRANSIENT:
            raise Enough

    def _why(self) -> Reason:
        status = self._error.get("statusCode")
        return reason_of(text(self._error.get("message")), status if isinstance(status, int) else None)

    def _tell_session(self) -> None:
        if not self._told_session and self._session:
            self._told_session = True
            self._tell(Session(self._session))

    def _count(self) -> None:
        self._record.tell_new(self._tell)
        self._count_premium()
        if self._record.told:
            return
        if not self._counts:
            why = "copilot counts for a whole session, and this one began elsewhere."
            self._tell(Noted("warning", f"What this turn used is not known: {why}"))
            return
        for model, now in _counted(self._usage_file).items():
            used = less(now, self._before.get(model, Usage(model)))
            if used.tokens or used.requests:
                self._tell(Used(used))

    def _count_premium(self) -> None:
        """Tell what of an allowance the turn took: by the file, which counts whole sessions, else by the last line."""
        whole = _premium(self._usage_file)
        told = amount(part(self._end, "usage").get("premiumRequests"))
        used = max(whole - self._premium_before, 0.0) if whole else told
        if used:
            self._tell(Used(Usage(self._model, premium_requests=used)))


class _Record:
    """The record that the program keeps of a session: every call of the model is a line in it."""

    def __init__(self, home: Path, session: str) -> None:
        self.told = False
        self._file = home / "session-state" / session / "events.jsonl" if _ID.fullmatch(session) else None
        self._read = self._file.stat().st_size if self._file is not None and self._file.exists() else 0

    def tell_new(self, tell: Tell) -> None:
        for line in self._new_lines():
            if b"session.usage_record" not in line:
                continue
            try:
                row = part(json.loads(line), "data", "usage")
            except (ValueError, RecursionError):
                continue
            used = _usage(text(row.get("model")), row, 1, amount(row.get("duration")) / 1000)
            if used.tokens:
                self.told = True
                tell(Used(used))

    def _new_lines(self) -> list[bytes]:
        if self._file is None:
            return []
        try:
            # It is in reach of the agent: a link or a pipe in its place must not lead us anywhere.
            with open_plain(self._file) as file:
                file.seek(self._read)
                block = file.read(_MOST_RECORD)
        except OSError:
            return []
        whole, end, _ = block.rpartition(b"\n")
        self._read += len(whole) + len(end) if end else len(block) if len(block) == _MOST_RECORD else 0
        return whole.split(b"\n")


def _own_words(error: str) -> str:
    try:
        return text(part(json.loads(error)).get("message")) or error
    except (ValueError, RecursionError):
        return error


def _never_began(complaints: str, stray: str) -> tuple[Reason, str]:
    if _LOST in complaints:
        return "session-lost", "Copilot does not know the session any more."
    if _NO_LOGIN in complaints:
        return "not-logged-in", _LOG_IN
    message = telling_line(complaints) or sentence(stray)
    return reason_of(message), message or "Copilot ended without saying how its work went."


def _premium(file: Path) -> float:
    return amount(_usage_body(file).get("totalPremiumRequests"))


def _usage_body(file: Path) -> Json:
    try:
        return part(json.loads(read_plain(file, _MOST_USAGE)))
    except (OSError, ValueError, RecursionError):
        return {}


def _counted(file: Path) -> dict[str, Usage]:
    body = _usage_body(file)
    found = {}
    seconds = amount(body.get("totalApiDurationMs")) / 1000
    for model, metrics in part(body, "modelMetrics").items():
        found[model] = _usage(model, part(metrics, "usage"), count(part(metrics, "requests").get("count")), seconds)
        seconds = 0.0
    return found


def _usage(model: str, tokens: Json, requests: int, seconds: float) -> Usage:
    cached, writes = count(tokens.get("cacheReadTokens")), count(tokens.get("cacheWriteTokens"))
    return Usage(
        model,
        max(count(tokens.get("inputTokens")) - cached - writes, 0),
        cached,
        writes,
        count(tokens.get("outputTokens")),
        requests,
        api_seconds=seconds,
    )


BACKEND = Copilot()
