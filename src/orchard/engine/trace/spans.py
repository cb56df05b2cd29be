"""Spans of OpenTelemetry, made of the parts that `tracing` hands on, and sent where they were asked for.

Everything that needs the extra `tracing` is here; `tracingsetup` imports this only where traces are wanted.
Spans are sent in batches by a thread of the SDK's, from a queue with an end: a place that does not answer costs
spans, never a plan.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context
from opentelemetry.trace import use_span as using
from opentelemetry.util.re import parse_env_headers

from orchard import __version__
from orchard.engine.trace import names
from orchard.engine.trace.trace import Part

QUEUE = 20_000
"""Spans that wait to be sent, where the standard variable says nothing: a plan of 5,000 jobs without work has ended
in a few seconds."""
NANOSECONDS = 1e9
WHY = 160
AWAY = "Traces do not arrive where they are sent"


class Spans:
    def __init__(self, exporter: SpanExporter, queue: int | None = None, notes: list[str] | None = None) -> None:
        self._exporter = _Heard(exporter, notes if notes is not None else [])
        _listen()
        self._ids = _Ids()
        self._provider = TracerProvider(id_generator=self._ids, resource=_resource(), shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(self._exporter, max_queue_size=queue)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer(names.SCOPE, __version__)
        self._taken = 0

    def samples(self, trace: int) -> bool:
        """Whether this trace is one of those that the sampler wants: all, unless a standard variable says else."""
        found = self._provider.sampler.should_sample(None, trace, names.INVOKE_WORKFLOW)
        return found.decision is Decision.RECORD_AND_SAMPLE

    def take(self, part: Part) -> None:
        """A part has ended: it is a span now, with the ids and times that it had all along."""
        self._ids.trace, self._ids.span = part.trace, part.id
        # A context of its own: a span that belongs to a plan has nothing to do with who happens to be at work here.
        context = Context()
        if part.parent is not None:
            context = set_span_in_context(_remembered(part.trace, part.parent), context)
        started, ended = (int(moment * NANOSECONDS) for moment in (part.started, part.ended))
        span = self._tracer.start_span(part.name, context, attributes=part.attributes, start_time=started)
        if part.error is not None:
            span.set_status(Status(StatusCode.ERROR, part.error))
        span.end(ended)
        self._taken += 1

    def current(self, part: Part) -> AbstractContextManager[object]:
        """For the time of the block, what libraries trace or hand on belongs to this part."""
        return using(_remembered(part.trace, part.id), record_exception=False, set_status_on_exception=False)

    def close(self, seconds: float) -> str | None:
        """Send what waits, in bounded time; the answer says what was lost, if anything was."""
        # Not the SDK's own bound, which is half a minute.
        sending = threading.Thread(target=self._processor.shutdown, name="last-spans", daemon=True)
        sending.start()
        sending.join(seconds)
        lost = self._taken - self._exporter.sent
        if sending.is_alive():
            self._exporter.shutdown()  # no further tries
        if lost <= 0:
            return None
        why = f": {self._exporter.why}" if self._exporter.why else ""
        return f"{lost} of {self._taken} spans of the trace could not be sent{why}"


def to_endpoint(endpoint: str, headers: str, foreign: str) -> OTLPSpanExporter:
    """An exporter to an address of our own settings.

    It sends the headers that belong to this address, and not those that a standard variable holds for another one:
    there may be a key among them.
    """
    own = parse_env_headers(headers, liberal=True)
    others = parse_env_headers(foreign, liberal=True).keys() - own.keys()

    def only_own(request: Any) -> Any:
        for name in others:
            request.headers.pop(name, None)
        return request

    session = import_module("requests").Session()
    session.auth = only_own
    path = "" if endpoint.rstrip("/").endswith("/v1/traces") else "/v1/traces"
    return OTLPSpanExporter(f"{endpoint.rstrip('/')}{path}", headers=own, session=session)


def to_standard() -> OTLPSpanExporter:
    return OTLPSpanExporter()


def _resource() -> Resource:
    found = Resource.create()
    named = not str(found.attributes.get(names.SERVICE, "unknown_service")).startswith("unknown_service")
    return found if named else found.merge(Resource({names.SERVICE: names.SCOPE}))


def _remembered(trace: int, span: int) -> NonRecordingSpan:
    """A span as others refer to it, whether it has ended or not."""
    return NonRecordingSpan(SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)))


class _Ids(IdGenerator):
    trace = span = 1

    def generate_span_id(self) -> int:
        return self.span

    def generate_trace_id(self) -> int:
        return self.trace


class _Heard(SpanExporter):
    """An exporter that counts what it has sent, and knows why it could not send the rest.

    While that is so, it stands among the notes of the engine, which may have days to live.
    """

    def __init__(self, exporter: SpanExporter, notes: list[str]) -> None:
        self._exporter, self._notes = exporter, notes
        self.sent = 0
        self.why = ""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.why = ""
        _ear.exporting[threading.get_ident()] = self
        try:
            result = self._exporter.export(spans)
        finally:
            del _ear.exporting[threading.get_ident()]
        self._notes[:] = [note for note in self._notes if not note.startswith(AWAY)]
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        else:
            self._notes.append(f"{AWAY}: {self.why}")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _Ear(logging.Handler):
    """Hears what the SDK complains about, which would otherwise be written over what a person looks at."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.exporting: dict[int, _Heard] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """The first complaint about a batch says most. Of an error only its kind is told: the rest holds addresses."""
        exporter = self.exporting.get(record.thread or 0)
        if exporter is None or exporter.why:
            return
        given = record.args if isinstance(record.args, tuple) else ()
        shown = tuple(type(one).__name__ if isinstance(one, Exception) else one for one in given)
        said = str(record.msg) % shown if shown else str(record.msg)
        exporter.why = "".join(letter if letter.isprintable() else " " for letter in said)[:WHY]


_ear = _Ear()


def _listen() -> None:
    logger = logging.getLogger("opentelemetry")
    if _ear not in logger.handlers:
        logger.addHandler(_ear)
        logger.propagate = False
