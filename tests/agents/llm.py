"""A model that follows a script, on 127.0.0.1, for programs that expect a real one.

    with ScriptedLlm(steps(Shell("echo hi > a.txt"), Say("Done."))) as llm:
        ...                        # llm.url: http://127.0.0.1:PORT, without /v1
        assert total(told) == llm.usage()

It speaks Anthropic Messages, OpenAI Chat Completions, OpenAI Responses and Gemini, streaming or not, and also answers
`/models`, `count_tokens` and `countTokens`. Any key is taken.

A script is a function from a request to what the model answers: `Asked -> Reply | list[Reply]`. It keeps no state:
programs send requests of their own in between, and again after errors. What to answer follows from the history.

    steps(one, two, ...)           the reply whose number is that of the tool results since the last prompt; the last
                                   one for ever. A request that offers no tools is a side request: it gets text only.
    routes({"marker": script}, otherwise=script)
                                   by which marker stands in the prompt that is nearest to the end of the history

Replies: `Say` a text, `Call` a tool by its name, `Shell` (whichever tool this client runs commands with), `Mcp` (a tool
of an MCP server, as this client calls it), `Fail` with an HTTP status, `Hang` until told. A list of `Say`, `Call`,
`Shell` and `Mcp` is one message of several parts (parallel tool calls).

    llm.fail(429, times=2)         the next two requests (None: all) fail, before the script is asked; `retry_after`
    llm.fail(None)                 no more failing
    llm.hanging                    an Event that is set while a `Hang` waits; `llm.wait_hanging()` waits for it
    llm.release()                  let everything that hangs go on
    llm.requests                   every request for a turn: wire, model, tools, history, headers, status
    llm.offered()                  the names of all tools that were ever offered (Responses: also `namespace/tool`)
    llm.usage(), by_model()        what was handed out, as `Usage`: each request has figures of its own, so that a sum
                                   that counts one twice, or takes the last for all, is seen
"""

import gzip
import json
import re
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from orchard.model.usage import Usage, by_model, total
from tests.agents.wires import Answer, Entry, Event, Json, ToolCall, Wire, WireName, wire_of

MODELS = ("claude-sonnet-4-5", "fake-model", "gemini-2.5-flash", "gpt-5")
LONGEST_HANG = 120.0


@dataclass(frozen=True)
class Say:
    """The model says a text; `stop` is the wire's own word for why it stopped (`max_tokens`, `refusal`, `length`)."""

    text: str
    stop: str | None = None


@dataclass(frozen=True)
class Call:
    """The model calls a tool by its name; arguments that are a string are sent as they are, valid or not."""

    tool: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)


@dataclass(frozen=True)
class Shell:
    """The model runs a command with whatever tool the client has for that."""

    command: str


@dataclass(frozen=True)
class Mcp:
    """The model calls a tool of an MCP server, by the name that the client gives it."""

    server: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fail:
    """The request fails; with `midstream` only after the answer has begun."""

    status: int
    message: str = ""
    retry_after: float | None = None
    midstream: bool = False


@dataclass(frozen=True)
class Hang:
    """The answer begins, and goes on only when told; `midstream` False: it does not even begin."""

    then: "Reply" = field(default_factory=lambda: Say("Released."))
    midstream: bool = True


Reply = Say | Call | Shell | Mcp | Fail | Hang


@dataclass
class Asked:
    """One request for a turn of the model."""

    wire: WireName
    path: str
    model: str
    stream: bool
    tools: tuple[str, ...]
    history: tuple[Entry, ...]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Json
    status: int = 0
    """What it was answered with; 0: not yet."""

    @property
    def prompts(self) -> list[str]:
        """What the user said, in order."""
        return [entry.text for entry in self.history if entry.role == "user"]

    @property
    def results(self) -> list[str]:
        """What tools gave, in order."""
        return [entry.text for entry in self.history if entry.role == "result"]

    def results_since(self, marker: str | None = None) -> list[str]:
        """What tools gave since the last prompt, or since the last one with the marker in it."""
        found: list[str] = []
        for number, entry in enumerate(self.history):
            if entry.role == "user" and (marker in entry.text if marker else self._prompts_at(number)):
                found = []
            elif entry.role == "result":
                found.append(entry.text)
        return found

    def _prompts_at(self, number: int) -> bool:
        """Whether a text of the user's is a prompt: clients add reminders of their own beside results of tools."""
        before = self.history[number - 1].role if number else "system"
        return before != "result" and bool(_REMINDERS.sub("", self.history[number].text).strip())


_REMINDERS = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)

Script = Callable[[Asked], Reply | Sequence[Reply]]


def steps(*replies: Reply | Sequence[Reply]) -> Script:
    """One reply after the other, by the number of tool results since the last prompt."""

    def script(asked: Asked) -> Reply | Sequence[Reply]:
        results, wanted = len(asked.results_since()), 0
        for reply in replies[:-1]:
            calls = sum(map(_is_call, _several(reply)))
            wanted += calls
            if results < wanted or not calls:
                break
        else:
            reply = replies[-1]
        return reply if asked.tools or not any(map(_is_call, _several(reply))) else Say("Fine.")

    return script


def _is_call(reply: Reply) -> bool:
    return isinstance(reply, Call | Shell | Mcp) or (isinstance(reply, Hang) and _is_call(reply.then))


def routes(scripts: Mapping[str, Script], otherwise: Script | None = None) -> Script:
    """The script whose marker stands nearest to the end of what the user said."""

    def script(asked: Asked) -> Reply | Sequence[Reply]:
        for prompt in reversed(asked.prompts):
            for marker, chosen in scripts.items():
                if marker in prompt:
                    return chosen(asked)
        return otherwise(asked) if otherwise is not None else Say("Fine.")

    return script


def _several(reply: Reply | Sequence[Reply]) -> Sequence[Reply]:
    return reply if isinstance(reply, Sequence) else (reply,)


class ScriptedLlm:
    """The model, as a server that runs while the context is open. See the module."""

    def __init__(self, script: Script | None = None, models: Sequence[str] = MODELS) -> None:
        self.script = script or steps(Say("Done."))
        self.models = tuple(models)
        self.requests: list[Asked] = []
        self.hanging = threading.Event()
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._used: list[Usage] = []
        self._failing: Fail | None = None
        self._failures_left: int | None = None
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.llm = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def usage(self) -> Usage:
        """Everything that was handed out."""
        with self._lock:
            return total(self._used)

    def by_model(self) -> dict[str, Usage]:
        """Everything that was handed out, for each model."""
        with self._lock:
            return by_model(self._used)

    def offered(self) -> set[str]:
        """The names of all tools that were ever offered."""
        with self._lock:
            return {tool for asked in self.requests for tool in asked.tools}

    def statuses(self) -> list[int]:
        """What the requests were answered with, in order of their arrival."""
        with self._lock:
            return [asked.status for asked in self.requests]

    def fail(
        self, status: int | None, times: int | None = None, message: str = "", retry_after: float | None = None
    ) -> None:
        """Let the next requests fail, so many of them or all; None ends that."""
        with self._lock:
            self._failing = Fail(status, message, retry_after) if status is not None else None
            self._failures_left = times

    def wait_hanging(self, seconds: float = 60.0) -> None:
        """Wait until a request hangs."""
        assert self.hanging.wait(seconds), "nothing hangs"

    def release(self) -> None:
        """Let everything that hangs go on, now and later."""
        self._released.set()

    # ------------------------------------------------------------------------- for the handler

    def decide(self, asked: Asked) -> Sequence[Reply]:
        """What is answered to a request."""
        with self._lock:
            self.requests.append(asked)
            failing, left = self._failing, self._failures_left
            if failing is not None and left != 0:
                self._failures_left = left - 1 if left is not None else None
                return (failing,)
        return _several(self.script(asked))

    def hang(self) -> None:
        """Wait to be released."""
        self.hanging.set()
        self._released.wait(LONGEST_HANG)
        self.hanging.clear()

    def next_usage(self, asked: Asked) -> Usage:
        """The figures of the next answer: no two are the same, and what a wire cannot tell is not there."""
        with self._lock:
            number = len(self._used)
        writes = 5 + number if asked.wire == "anthropic" else 0
        return Usage(asked.model, 101 + 7 * number, 11 + 3 * number, writes, 23 + 2 * number, requests=1)

    def count(self, usage: Usage) -> None:
        """Take down what is handed out."""
        with self._lock:
            self._used.append(usage)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    llm: ScriptedLlm

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that are ended in mid-turn are the point of many tests: say nothing."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = LONGEST_HANG

    @property
    def llm(self) -> ScriptedLlm:
        return cast(_Server, self.server).llm

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        if not self.path.partition("?")[0].endswith("/models"):
            self._send(404, {"error": {"type": "not_found_error", "message": self.path}})
            return
        rows = [
            {"id": name, "object": "model", "type": "model", "display_name": name, "created": 1, "owned_by": "script",
             "created_at": "2026-01-01T00:00:00Z"} for name in self.llm.models
        ]  # fmt: skip
        named = [{"name": f"models/{name}", "displayName": name} for name in self.llm.models]
        self._send(200, {"object": "list", "data": rows, "models": named, "has_more": False})

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        try:
            body = json.loads(self._body() or b"{}")
        except ValueError:
            self._send(400, {"error": {"type": "invalid_request_error", "message": "this is no JSON"}})
            return
        if path.endswith("/count_tokens"):
            self._send(200, {"input_tokens": 42})
        elif path.endswith(":countTokens"):
            self._send(200, {"totalTokens": 42})
        elif (wire := wire_of(path)) is None:
            self._send(404, {"error": {"type": "not_found_error", "message": path}})
        else:
            self._answer(wire, self._asked(wire, path, body))

    def _asked(self, wire: Wire, path: str, body: Json) -> Asked:
        named = path.rpartition("/")[2].partition(":")[0] if wire.name == "gemini" else ""
        return Asked(
            wire=wire.name,
            path=path,
            model=named or body.get("model", ""),
            stream=bool(body.get("stream")) or path.endswith(":streamGenerateContent"),
            tools=tuple(wire.tools(body)),
            history=tuple(wire.history(body)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )

    def _body(self) -> bytes:
        if "chunked" in (self.headers.get("transfer-encoding") or ""):
            raw = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        return gzip.decompress(raw) if self.headers.get("content-encoding") == "gzip" else raw

    def _answer(self, wire: Wire, asked: Asked) -> None:
        replies = self.llm.decide(asked)
        first = replies[0]
        if isinstance(first, Hang):
            self._hang(wire, asked, first)
        elif isinstance(first, Fail) and first.midstream and asked.stream:
            asked.status = 200
            answer = Answer(asked.model, "This will not", (), Usage())
            begun, _ = _parts(wire.events(answer))
            self._stream([*begun, wire.broken(first.status, first.message or f"scripted {first.status}")])
        elif isinstance(first, Fail):
            asked.status = first.status
            wait = [("retry-after", f"{first.retry_after:g}")] if first.retry_after is not None else []
            self._send(first.status, wire.failure(first.status, first.message or f"scripted {first.status}"), wait)
        else:
            self._finish(wire, asked, replies)

    def _hang(self, wire: Wire, asked: Asked, hang: Hang) -> None:
        if not (hang.midstream and asked.stream):
            self.llm.hang()
            if not self._client_left():
                self._finish(wire, asked, (hang.then,))
            return
        answer = _made(asked, (hang.then,), self.llm.next_usage(asked))
        begun, rest = _parts(wire.events(answer))
        self._begin_stream()
        self._write(begun)
        self.llm.hang()
        if not self._client_left():
            asked.status = 200
            self.llm.count(answer.usage)
            self._write(rest)

    def _finish(self, wire: Wire, asked: Asked, replies: Sequence[Reply]) -> None:
        answer = _made(asked, replies, self.llm.next_usage(asked))
        asked.status = 200
        # Before it is sent: whoever has read the end of it may look at the figures at once.
        self.llm.count(answer.usage)
        if asked.stream:
            self._stream(wire.events(answer))
        else:
            self._send(200, wire.body(answer))

    def _client_left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _send(self, status: int, body: Json, headers: Sequence[tuple[str, str]] = ()) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, events: Sequence[Event]) -> None:
        self._begin_stream()
        self._write(events)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def _write(self, events: Sequence[Event]) -> None:
        for name, data in events:
            head = f"event: {name}\n" if name else ""
            self.wfile.write(f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode())
            self.wfile.flush()


def _parts(events: list[Event]) -> tuple[list[Event], list[Event]]:
    """What of an answer is sent before it hangs or breaks, and the rest."""
    begun = min(2, len(events) - 1)
    return events[:begun], events[begun:]


# ------------------------------------------------------------------------------------------ what clients call things

_SHELLS: dict[str, Callable[[str], Json]] = {
    "bash": lambda command: {"command": command, "description": "Run a command"},
    "run_shell_command": lambda command: {"command": command, "description": "Run a command", "is_background": False},
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["bash", "-lc", command]},
}


def _made(asked: Asked, replies: Sequence[Reply], usage: Usage) -> Answer:
    """The answer that some replies make up."""
    texts, calls, stop = [], [], None
    for reply in replies:
        if isinstance(reply, Say):
            texts.append(reply.text)
            stop = reply.stop or stop
        elif isinstance(reply, Call | Shell | Mcp):
            calls.append(_call(asked, reply))
    text = "\n".join(texts)
    if not calls and asked.wire == "gemini" and (asked.body.get("generationConfig") or {}).get("responseMimeType"):
        text = json.dumps(_GEMINI_SIDE)
    return Answer(asked.model, text, tuple(calls), usage, stop)


_GEMINI_SIDE = {
    "reasoning": "simple", "next_speaker": "user", "model_choice": "flash", "complexity_score": 1,
    "complexity_reasoning": "simple", "is_stuck": False, "unproductive_state_confidence": 0,
    "unproductive_state_analysis": "none",
}  # fmt: skip
"""Answers to what Gemini's program asks about the conversation, beside it, in JSON."""


def _call(asked: Asked, reply: Call | Shell | Mcp) -> ToolCall:
    if isinstance(reply, Call):
        raw = reply.arguments if isinstance(reply.arguments, str) else json.dumps(reply.arguments)
        return ToolCall(reply.tool, raw)
    if isinstance(reply, Shell):
        by_lower = {name.lower(): name for name in asked.tools}
        known = next(name for name in _SHELLS if name in by_lower)
        return ToolCall(by_lower[known], json.dumps(_SHELLS[known](reply.command)))
    server, tool, raw = reply.server, reply.tool, json.dumps(reply.arguments)
    if asked.wire == "responses" and f"mcp__{server}" in asked.tools:
        # Codex gives tools names of its own, without dashes.
        renamed = tool.replace("-", "_")
        return ToolCall(renamed if f"mcp__{server}/{renamed}" in asked.tools else tool, raw, f"mcp__{server}")
    # Claude offers these only on demand: they can be called without being listed.
    usual = f"mcp__{server}__{tool}"
    others = (f"mcp_{server}_{tool}", f"{server}-{tool}", f"{server}_{tool}")
    return ToolCall(next((name for name in others if name in asked.tools), usual), raw)
