"""Qwen Code: `qwen` with an OpenAI-compatible endpoint, told its task by standard input."""

import json
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from msgspec.structs import replace

from orchard.agents.backends.claude_stream import MessageReader, api_seconds
from orchard.agents.backends.project_files import addresses, foreign, refuse
from orchard.agents.backends.stream import (
    Totals,
    count,
    is_private,
    limited_server,
    part,
    servers_file,
    text,
    write_private,
)
from orchard.agents.cli import Command, Json, KnownBackend, options
from orchard.agents.facts.known import AcpTraits, Known, Service, can
from orchard.agents.facts.model_lists import Asking, Found, ask_openai, told
from orchard.agents.permissions import Catalogue, split
from orchard.agents.protocol import Noted, Reason, Task, Tell
from orchard.model.agent_rows import AgentRow
from orchard.model.permissions import Tools
from orchard.model.usage import Usage

KEYS = ("OPENAI_API_KEY",)
ADDRESSES = {"OPENAI_BASE_URL": "https://api.openai.com/v1"}
_FLAGS = {"model": "--model", "max_turns": "--max-session-turns", "allowed_folders": "--include-directories"}
SETTINGS: Json = {
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"enableAutoUpdate": False},
    # Helpers of its own that read the conversation afterwards, at the user's cost, for a home that nobody uses again.
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False, "enableAutoSkill": False},
    # Of the client that it calls its model with; around that it tries 7 times, for 75 s, which nothing switches off.
    "model": {"generationConfig": {"maxRetries": 0}},
    # Nobody looks at its commands, and behind Landlock no program can open a terminal of its own.
    "tools": {"shell": {"enableInteractiveShell": False}},
}


def _services(env: Mapping[str, str]) -> tuple[Service, ...]:
    if not env.get("OPENAI_API_KEY"):
        return ()
    ((variable, usual),) = ADDRESSES.items()
    return (Service(key="OPENAI_API_KEY", address=variable, usual=usual, others=("DASHSCOPE_API_KEY",)),)


KNOWN = Known(
    "qwen",
    "Alibaba",
    "qwen",
    "npm install -g @qwen-code/qwen-code",
    "Run 'qwen' once and log in, or set OPENAI_API_KEY.",
    KEYS,
    ("QWEN_HOME", ".qwen"),
    ("oauth_creds.json",),
    (
        (".qwen/settings.json", "selectedType"),
        (".qwen/settings.json", "_KEY"),
        (".qwen/settings.json", "apiKey"),
        (".qwen/settings.json", "modelProviders"),
        (".qwen/.env", "_KEY"),
    ),
    can("max_turns"),
    providers=("DASHSCOPE_API_KEY", "OPENAI_BASE_URL", "QWEN_DEFAULT_AUTH_TYPE"),
    hosts=(
        "api.openai.com",
        "chat.qwen.ai",
        "portal.qwen.ai",
        "dashscope.aliyuncs.com",
        "dashscope-intl.aliyuncs.com",
        "coding.dashscope.aliyuncs.com",
    ),
    services=_services,
    endpoints=("OPENAI_BASE_URL",),
    acp={"qwen": AcpTraits(obeys=(".qwen",), files=(".qwen/.env", ".env"))},
    reads=(".qwen", ".env"),
    droppings=(".qwen/",),
    variables=("OPENAI_BASE_URL", "OPENAI_MODEL", "QWEN_HOME", "DASHSCOPE_API_KEY"),
    holds="tools",
    attach=("--resume", "{session}"),
    own_folders={"QWEN_HOME": "qwen"},
)


_TOOLS: Catalogue = {
    "read_file": "read_file", "read_many_files": "read_file", "list_directory": "list_files", "glob": "list_files",
    "grep_search": "search_files", "search_file_content": "search_files", "lsp": "search_files",
    "edit": "edit_file", "notebook_edit": "edit_file", "write_file": "write_file", "run_shell_command": "bash",
    "monitor": "bash", "web_fetch": "web_fetch", "web_search": "web_search", "todo_write": "todo",
    "save_memory": "subagent", "agent": "subagent", "task": "subagent", "list_agents": "subagent", "skill": "skill",
    "tool_search": "", "tool_call": "",
}  # fmt: skip


def _limited(tools: Tools) -> list[str]:
    """Arguments for what it may use: its own tools by name, and those that may not be used once more."""
    if not tools.limits:
        return []
    allowed, denied = split(tools, _TOOLS)
    return [*(f"--core-tools={name}" for name in allowed), *(f"--exclude-tools={name}" for name in denied)]


class Qwen(KnownBackend):
    known = KNOWN

    def models(self, asking: Asking) -> Found:
        key = asking.env.get("OPENAI_API_KEY", "")
        if not key:
            return Found(problem="the program tells them only where OPENAI_API_KEY is set")
        return told(ask_openai, asking.env.get("OPENAI_BASE_URL"), key)

    def prepare(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        settings = task.settings
        argv = [program, *row.args, "--yolo", "--output-format", "stream-json"]
        env = {"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"}
        strange = [] if task.trusted_project_settings else foreign(task, (".qwen",), (".qwen/.env", ".env"))
        seen = {**task.env, **row.env}
        if is_private(row, seen, KEYS):
            write_private(task.private, "qwen/settings.json", json.dumps(SETTINGS))
            env |= {"QWEN_HOME": str(task.private / "qwen"), **addresses(seen, ADDRESSES)}
            argv += ["--auth-type", "openai"]
            if strange:
                # It reads no settings at all then, ours neither: what they say, variables say as well.
                argv.append("--bare")
                env["QWEN_USAGE_STATISTICS_ENABLED"] = "false"
                said = ", ".join(map(str, strange))
                tell(Noted("setting", f"qwen works without its settings: you have not agreed to those here ({said})."))
        else:
            refuse(task, self.name, strange)
        argv += options(self.name, task, tell, _FLAGS)
        argv += _limited(settings.tools)
        if settings.mcp_servers:
            row_of = partial(limited_server, settings.tools)
            file = servers_file(task.private, "qwen-mcp.json", settings.mcp_servers, row_of)
            argv += ["--mcp-config", str(file)]
        if task.session is not None:
            argv += ["--resume", task.session]
        return Command(tuple(argv), env, task.instructions.encode())

    def reader(self, task: Task, tell: Tell) -> "QwenReader":
        return QwenReader(task, tell)


class QwenReader(MessageReader):
    """Hears one turn of Qwen Code. Messages tell their own tokens; the result tells the sum of the whole session."""

    name: ClassVar[str] = "qwen"
    lost_words: ClassVar[tuple[str, ...]] = ("No saved session found",)
    statuses: ClassVar[Mapping[int, Reason]] = {53: "max-turns"}

    def __init__(self, task: Task, tell: Tell) -> None:
        super().__init__(task, tell)
        self._totals = Totals(task.private, "qwen-usage.json")
        self._before = self._totals.told(task.session)

    def feed(self, message: Json) -> None:
        """Take in one event; what was told of the session is remembered at once, as any may be the last."""
        super().feed(message)
        if message.get("type") in ("assistant", "result") and self.session is not None:
            told, before = self.ledger.told, self._before or {}
            now = {"input": told.input, "cached": told.cached, "output": told.output}
            self._totals.remember(self.session, {name: before.get(name, 0) + value for name, value in now.items()})

    def message_usage(self, message: Json) -> Usage:
        """What was read from a cache is in its `input_tokens` as well."""
        return _usage(text(message.get("model")), part(message, "usage"))

    def tell_whole_usage(self, final: Json) -> None:
        """All of it is of one model, as far as it tells. Of a session that began elsewhere only messages count."""
        whole = _usage(self.ledger.model, part(final, "usage"))
        before = self._before or {}
        if whole.tokens and (self._task.session is None or self._before is not None):
            self.ledger.whole(
                replace(
                    whole,
                    input=max(0, whole.input - before.get("input", 0)),
                    cached=max(0, whole.cached - before.get("cached", 0)),
                    output=max(0, whole.output - before.get("output", 0)),
                    api_seconds=api_seconds(final),
                )
            )


def _usage(model: str, row: Json) -> Usage:
    cached = count(row.get("cache_read_input_tokens"))
    return Usage(model, max(0, count(row.get("input_tokens")) - cached), cached, 0, count(row.get("output_tokens")))


BACKEND = Qwen()
