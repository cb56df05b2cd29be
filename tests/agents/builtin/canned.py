"""A server that answers each request with the same bytes: for streams that no honest model would send."""

import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]


def sse(*events: Json | str) -> bytes:
    """Events of a stream; those with a type are named by it."""
    found = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        found.append(f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return "".join(found).encode()


class Canned:
    """Answers on 127.0.0.1 while the context is open, the last answer again and again; what was asked is kept."""

    def __init__(
        self, *bodies: bytes, status: int = 200, headers: Mapping[str, str] | None = None, pause: float = 0.0
    ) -> None:
        """`pause`: seconds between the events of a stream."""
        self.requests: list[Json] = []
        self.fetched: list[str] = []
        self.headers: list[dict[str, str]] = []
        canned, given = self, {"content-type": "text/event-stream", **(headers or {})}

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                """Nothing is printed."""

            def do_GET(self) -> None:
                canned.fetched.append(self.path)
                self.send_error(404)

            def do_POST(self) -> None:
                canned.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                canned.headers.append({name.lower(): value for name, value in self.headers.items()})
                body = bodies[min(len(canned.requests), len(bodies)) - 1]
                self.send_response(status)
                for name, value in given.items():
                    self.send_header(name, value)
                self.end_headers()
                for event in body.split(b"\n\n") if pause else ():
                    self.wfile.write(event + b"\n\n")
                    time.sleep(pause)
                if not pause:
                    self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def anthropic_stream(*parts: Json, stop: str = "end_turn", usage: Json | None = None) -> list[Json]:
    """The events of one message: `parts` are events about its blocks."""
    start = {"input_tokens": 50, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-x", "content": [], "usage": start}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        *parts,
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage or {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


def block(index: int, content: Json, *deltas: Json) -> list[Json]:
    """The events of one block."""
    grown = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    begin = {"type": "content_block_start", "index": index, "content_block": content}
    return [begin, *grown, {"type": "content_block_stop", "index": index}]


def chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
    """One part of a chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x", "choices": [choice], **more}
