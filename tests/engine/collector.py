"""A place that traces are sent to: a real HTTP server on 127.0.0.1 that reads what OTLP sends."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """A span as it arrived."""

    name: str
    trace: str
    id: str
    parent: str
    started: int
    ended: int
    attributes: dict[str, Any]
    error: str | None
    """The text of its status, where that is an error."""

    def __getitem__(self, name: str) -> Any:
        return self.attributes.get(name)


@dataclass
class Collector:
    """What has arrived so far."""

    url: str
    spans: list[Span] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    raw: bytes = b""

    def named(self, name: str) -> list[Span]:
        """The spans of this name, in the order in which they began."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.started)

    def one(self, name: str) -> Span:
        """The only span of this name."""
        (found,) = self.named(name)
        return found

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        self.raw += body
        self.headers.append(headers)
        for resource in request.resource_spans:
            self.services |= {
                one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
            }
            self.spans += [_span(one) for scope in resource.scope_spans for one in scope.spans]


def _span(found: Any) -> Span:
    values = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found.attributes}
    error = found.status.message if found.status.code == found.status.STATUS_CODE_ERROR else None
    return Span(
        found.name,
        found.trace_id.hex(),
        found.span_id.hex(),
        found.parent_span_id.hex(),
        found.start_time_unix_nano,
        found.end_time_unix_nano,
        values,
        error,
    )


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """Collect for the time of the block; every request is answered with this status."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces" and status == 200:
                collector.take(body, {name.lower(): value for name, value in self.headers.items()})
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
