"""opencode: JSON lines on its output, one for each step; there is no last word, so the last step tells the end.

It has no variable of its own for its folders, so a home of the job's own is made with those of the XDG convention.
What we want of it goes on top of every other configuration, by a variable.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from orchard.agents.backends.project_files import anywhere, refuse, with_own_words
from orchard.agents.backends.stream import (
    StreamReader,
    amount,
    count,
    is_private,
    part,
    sentence,
    telling_line,
    text,
    write_private,
)
from orchard.agents.cli import Command, Json, KnownBackend, options, reason_of
from orchard.agents.endpoints import PLACEHOLDER
from orchard.agents.facts.known import AcpTraits, Known, Service, can
from orchard.agents.facts.model_lists import Asking, Found, listed
from orchard.agents.permissions import Catalogue, denied_of_server, of_server, split
from orchard.agents.protocol import McpServer, Noted, Reason, Result, Task, Tell, Used
from orchard.files import read_plain
from orchard.model.agent_rows import AgentRow
from orchard.model.permissions import Tools
from orchard.model.usage import Usage
from orchard.process.program import Ended

KEYS = (
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
)
_BY_HAND = (
    ".local/share/opencode/auth.json",
    *(f".config/opencode/{name}" for name in ("opencode.json", "opencode.jsonc", "config.json")),
)
_FLAGS = {"model": "--model", "effort": "--variant", "allowed_folders": None, "allowed_urls": None}
_FOLDERS = {"XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data", "XDG_STATE_HOME": "state"}
_PROJECT_OFF = ("OPENCODE_DISABLE_PROJECT_CONFIG", "OPENCODE_DISABLE_CLAUDE_CODE_SKILLS")
_LOST = "Session not found"
_DENIED = ("rule which prevents", "rejected permission", "permission requested")
_ENDS: Mapping[str, tuple[Reason, str]] = {
    "length": ("failed", "The model's answer was cut off: it was longer than it may be."),
    "content-filter": ("refused", "The model's owner filtered the answer."),
    "tool-calls": ("failed", "opencode ended in the middle of its work."),
}

_OWNERS: Mapping[str, tuple[tuple[str, ...], str, str, str]] = {
    "anthropic": (("ANTHROPIC_API_KEY",), "https://api.anthropic.com/v1", "x-api-key", ""),
    "openai": (("OPENAI_API_KEY",), "https://api.openai.com/v1", "Authorization", "Bearer"),
    "google": (
        ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"),
        "https://generativelanguage.googleapis.com/v1beta",
        "x-goog-api-key",
        "",
    ),
    "openrouter": (("OPENROUTER_API_KEY",), "https://openrouter.ai/api/v1", "Authorization", "Bearer"),
    "groq": (("GROQ_API_KEY",), "https://api.groq.com/openai/v1", "Authorization", "Bearer"),
    "mistral": (("MISTRAL_API_KEY",), "https://api.mistral.ai/v1", "Authorization", "Bearer"),
    "xai": (("XAI_API_KEY",), "https://api.x.ai/v1", "Authorization", "Bearer"),
    "deepseek": (("DEEPSEEK_API_KEY",), "https://api.deepseek.com", "Authorization", "Bearer"),
}
"""By the names of providers: variables of their keys, their address, and the header that a key goes by."""
_IN_VARIABLE = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE_BYTES = 1 << 20


def _services(env: Mapping[str, str]) -> tuple[Service, ...]:
    """Providers whose key is in a variable or in the user's own file, by the names that it has for them."""
    found: dict[str, Service] = {}
    for name, (keys, address, header, words) in _OWNERS.items():
        if (key := next((one for one in keys if env.get(one)), None)) is not None:
            others = tuple(one for one in keys if one != key)
            found[name] = Service(key=key, usual=address, name=name, header=header, words=words, others=others)
    for name, row in part(_own_file(env), "provider").items():
        given = part(row, "options") if isinstance(row, dict) else {}
        address, key = text(given.get("baseURL")), text(given.get("apiKey"))
        if not address:
            continue
        if not key and name in found:
            found[name] = replace(found[name], usual=address)
            continue
        named = _IN_VARIABLE.fullmatch(key)
        known = _OWNERS.get(name, ((), "", "Authorization", "Bearer"))
        secret = "" if named else key
        found[name] = Service(
            key=named[1] if named else "", usual=address, name=name, header=known[2], words=known[3], secret=secret
        )
    return tuple(found.values())


def _own_file(env: Mapping[str, str]) -> Json:
    """What the user's own file says, which a variable names."""
    try:
        found = json.loads(read_plain(Path(env["OPENCODE_CONFIG"]), _FILE_BYTES))
    except (KeyError, OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


KNOWN = Known(
    "opencode",
    "several",
    "opencode",
    "npm install -g opencode-ai",
    "Run 'opencode auth login', or set the key of a provider.",
    KEYS,
    ("", ".local/share/opencode"),
    ("auth.json",),
    (
        (".config/opencode/opencode.json", '"provider"'),
        (".config/opencode/opencode.jsonc", '"provider"'),
        (".config/opencode/config.json", '"provider"'),
    ),
    can("effort", "cost"),
    anonymous=True,
    hosts=("opencode.ai", "models.dev", *(urlsplit(address).netloc for _, address, _, _ in _OWNERS.values())),
    services=_services,
    acp={"opencode": AcpTraits(obeys=(".opencode", "opencode.json", "opencode.jsonc"))},
    reads=(
        ".opencode",
        "opencode.json",
        "opencode.jsonc",
        "bunfig.toml",
        ".env",
        ".env.local",
        ".env.development",
        ".env.production",
    ),
    droppings=(".opencode/node_modules/", ".opencode/package.json", ".opencode/bun.lock", ".opencode/.gitignore"),
    variables=(
        "OPENCODE_CONFIG",
        "OPENCODE_CONFIG_DIR",
        "OPENCODE_DISABLE_MODELS_FETCH",
        "OPENCODE_MODELS_URL",
        "NPM_CONFIG_REGISTRY",
    ),
    holds="tools",
    attach=("--session", "{session}"),
    own_folders={name: f"opencode/{below}" for name, below in _FOLDERS.items()},
)

_TOOLS: Catalogue = {
    "read": "read_file", "list": "list_files", "glob": "list_files", "grep": "search_files", "lsp": "search_files",
    "bash": "bash", "task": "subagent", "skill": "skill", "webfetch": "web_fetch", "websearch": "web_search",
    "codesearch": "web_search", "todowrite": "todo", "todoread": "todo",
}  # fmt: skip
_ONE_PERMISSION = ("edit", ("edit_file", "write_file"))
"""To change files by whatever tool is one permission."""


def _limited(tools: Tools, servers: Sequence[McpServer]) -> Json:
    """Permissions for what may be used: nothing but what is named."""
    if not tools.limits:
        return {}
    allowed, _ = split(tools, _TOOLS)
    found: Json = {"*": "deny", **dict.fromkeys(allowed, "allow")}
    if all(tools.permits(name) for name in _ONE_PERMISSION[1]):
        found[_ONE_PERMISSION[0]] = "allow"
    for server in servers:
        named = None if server.offered else of_server(tools, server.name)
        known = re.sub(r"[^a-zA-Z0-9_-]", "_", server.name)
        found |= {f"{known}_{tool}": "allow" for tool in (named if named is not None else ("*",))}
        found |= {f"{known}_{tool}": "deny" for tool in denied_of_server(tools, server.name)}
    return found


class Opencode(KnownBackend):
    known = KNOWN

    def models(self, asking: Asking) -> Found:
        names = re.findall(r"^([\w.:-]+/\S+)\s*$", asking.ask("models"), re.MULTILINE)
        return listed(names, "opencode models") if names else asking.no_answer()

    def prepare(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        settings = task.settings
        argv = [program, *row.args, "run", "--format", "json", "--auto"]
        # Without a title it asks the model for one, and does not count what that takes.
        argv += ["--session", task.session] if task.session else ["--title", "Orchard"]
        argv += options(self.name, task, tell, _FLAGS)
        if settings.allowed_urls and not task.walled:
            urls = ", ".join(settings.allowed_urls)
            tell(Noted("setting", f"'allowed_urls: {urls}' lets {self.name} fetch any address: it knows all or none."))
        env = {
            "NO_COLOR": "1",
            "OPENCODE_CONFIG_CONTENT": json.dumps(_config(task)),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_TERMINAL_TITLE": "1",
        }
        if not task.trusted_project_settings:
            # No addresses, servers and commands of the repository's.
            env |= dict.fromkeys(_PROJECT_OFF, "1")
            # What is code in there it runs all the same.
            refuse(task, self.name, anywhere(task, (".opencode",)))
        if _is_private(row, {**task.env, **row.env}):
            # A folder of its own holds no plugins.
            argv.append("--pure")
            env |= {name: str(task.private / "opencode" / below) for name, below in _FOLDERS.items()}
        if task.walled and (own := _own_file({**task.env, **row.env})):
            # Where the user has it, nothing can be read behind the wall.
            file = write_private(task.private, "opencode-own.json", json.dumps(_without_keys(own, task.routes)))
            env["OPENCODE_CONFIG"] = str(file)
        return Command(tuple(argv), env, with_own_words(task, ("AGENTS.md", "CLAUDE.md")))

    def reader(self, task: Task, tell: Tell) -> "OpencodeReader":
        return OpencodeReader(task, tell)


def _is_private(row: AgentRow, env: Mapping[str, str]) -> bool:
    """A key in the environment may be there for other programs: a configuration by hand comes first."""
    home = env.get("HOME")
    by_hand = home is not None and any((Path(home) / name).exists() for name in _BY_HAND)
    return is_private(row, env, () if by_hand else KEYS)


def _config(task: Task) -> Json:
    """What holds whatever else is configured. Of two patterns that fit the later one counts."""
    fetches = task.settings.allowed_urls and task.settings.tools.permits("web_fetch")
    folders = {"*": "deny", **{f"{folder}/*": "allow" for folder in (task.scratch, *task.settings.allowed_folders)}}
    found: Json = {
        "autoupdate": False,
        "share": "disabled",
        "permission": {
            **_limited(task.settings.tools, task.settings.mcp_servers),
            # A wall holds it to its folders: there a command that merely names others need not be refused.
            "external_directory": "allow" if task.walled else folders,
            "webfetch": "allow" if fetches else "deny",
        },
    }
    if task.routes:
        found["provider"] = {name: {"options": {"baseURL": url}} for name, url in task.routes.items()}
    if task.settings.mcp_servers:
        found["mcp"] = {server.name: _server(server) for server in task.settings.mcp_servers}
    return found


def _without_keys(own: Json, routes: Mapping[str, str]) -> Json:
    """The user's file, without the keys that are added on the way."""

    def without(row: Json) -> Json:
        return {**row, "options": {**part(row, "options"), "apiKey": PLACEHOLDER}}

    rows = {name: without(row) if name in routes and row else row for name, row in part(own, "provider").items()}
    return {**own, "provider": rows} if rows else own


def _server(server: McpServer) -> Json:
    if server.url is not None:
        return {"type": "remote", "url": server.url, "headers": dict(server.headers), "enabled": True}
    command = [server.command or "", *server.args]
    return {"type": "local", "command": command, "environment": dict(server.env), "enabled": True}


class OpencodeReader(StreamReader):
    def __init__(self, task: Task, tell: Tell) -> None:
        super().__init__(task, tell)
        # It does not say which model works: only one that was asked for is known.
        self._model = (task.settings.model or "").partition("/")[2]
        self._last_step = ""
        self._error: Json | None = None

    def feed(self, message: Json) -> None:
        if self.session is None:
            self._name_session(text(message.get("sessionID")))
        step = part(message, "part")
        match message.get("type"):
            case "step_start":
                self._words = ""
                self._error = None
            case "text":
                self._say(text(step.get("text")))
            case "tool_use":
                self._call(step)
            case "step_finish":
                self._last_step = text(step.get("reason"))
                self._count(step)
            case "error":
                self._error = part(message, "error")

    def result(self, ended: Ended, stray: str) -> Result:
        """By its last step and its exit code together; an error after the last step is what counts."""
        said = self._words.strip()
        if self._error is not None:
            return self._failure(self._error, said)
        if self._last_step == "stop" and ended.exit_code == 0:
            return self._calls.judge(Result("done", text=said, session=self.session))
        if self._last_step in _ENDS:
            reason, message = _ENDS[self._last_step]
            return Result(reason, message, said, self.session)
        complaints = self._complaints.read()
        if not self._last_step and _LOST in complaints:
            return Result("session-lost", "opencode does not know the session any more.")
        # Only what it complained about before it began is the reason; later that may be about anything.
        message = (telling_line(complaints) or sentence(stray)) if self.session is None else ""
        missing = "opencode ended without saying how its work went."
        return Result(reason_of(message), message or missing, said, self.session)

    def _failure(self, error: Json, said: str) -> Result:
        data = part(error, "data")
        message = sentence(text(data.get("message")) or text(error.get("name")))
        status = data.get("statusCode")
        reason = reason_of(message, status if isinstance(status, int) else None)
        if error.get("name") == "ProviderAuthError":
            reason = "not-logged-in"
        wait = _seconds(text(part(data, "responseHeaders").get("retry-after")))
        return Result(reason, message or "opencode failed and did not say why.", said, self.session, retry_after=wait)

    def _call(self, step: Json) -> None:
        state = part(step, "state")
        id, error = text(step.get("callID")), text(state.get("error"))
        self._calls.begin(id, text(step.get("tool")), state.get("input"))
        denied = any(words in error for words in _DENIED)
        self._calls.end(id, failed=state.get("status") == "error", denied=denied)

    def _count(self, step: Json) -> None:
        """What a step used; thinking is in the total only, or beside the output."""
        tokens = part(step, "tokens")
        cache = part(tokens, "cache")
        prompt, cached, writes = count(tokens.get("input")), count(cache.get("read")), count(cache.get("write"))
        beside = count(tokens.get("total")) - prompt - cached - writes
        output = max(count(tokens.get("output")), beside)
        cost = amount(step.get("cost"))
        # A model without a price costs 0 there, which only means that nobody knows.
        used = Usage(self._model, prompt, cached, writes, output, 1, cost or None, "agent" if cost else "")
        self._tell(Used(used))


def _seconds(value: str) -> float | None:
    try:
        return amount(float(value))
    except ValueError:
        return None


BACKEND = Opencode()
