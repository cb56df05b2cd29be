"""Whether plans are traced, and where traces go: `[tracing]` of the settings, else the standard OTEL_* variables.

Without either nothing of OpenTelemetry is imported, and an engine that records something asks one question more.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct, field

from orchard.config.layers import Config, Traces
from orchard.engine.server.session import Place
from orchard.engine.trace import names
from orchard.engine.trace.trace import Tracing

FLUSH_SECONDS = 2.0
"""For how long the last spans may keep a process that has nothing else to do."""

INSTALL = "Plans are not traced, although that is configured: install Orchard's extra, 'orchard-agents[tracing]'."


class Route(Struct, frozen=True):
    endpoint: str | None = None
    """None: where the standard variables say."""
    headers: str = ""
    """As the standard variable for them holds them: `name=value,name=value`."""
    foreign: str = ""
    """Headers that a standard variable holds for its own address, which are not ours to send elsewhere."""


class Traced(Struct):
    tracing: Tracing | None = None
    notes: list[str] = field(default_factory=list)
    last_words: list[str] = field(default_factory=list)


@asynccontextmanager
async def traced(place: Place, env: Mapping[str, str]) -> AsyncIterator[Traced]:
    """Trace what happens in the block, if somebody wants that; the last spans are sent when it is left."""
    found = Traced()
    close = _begin(found, place, env)
    try:
        yield found
    finally:
        lost = await asyncio.to_thread(close, FLUSH_SECONDS) if close is not None else None
        if lost is not None:
            found.last_words.append(lost)


def _begin(found: Traced, place: Place, env: Mapping[str, str]) -> Callable[[float], str | None] | None:
    """Begin to trace, if that is wanted and possible; what sends the last spans, and says which were lost."""
    way = route(place.config.tracing, env)
    if not isinstance(way, Route):
        found.notes += [] if way is None else [way]
        return None
    try:
        from orchard.engine.trace.spans import QUEUE, Spans, to_endpoint, to_standard
    except ImportError:
        found.notes.append(INSTALL)
        return None
    try:
        there = to_standard() if way.endpoint is None else to_endpoint(way.endpoint, way.headers, way.foreign)
        spans = Spans(there, queue=None if env.get(names.QUEUE_SIZE) else QUEUE, notes=found.notes)
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        found.notes.append(f"Plans are not traced: {error}")
        return None
    found.notes += _missing(place.config.tracing, env)
    found.tracing = Tracing(spans, place.reader, time.time)
    return spans.close


def route(settings: Traces, env: Mapping[str, str]) -> Route | str | None:
    """Where traces go; None: nobody wants any; a text: why there are none although somebody does."""
    exporter = env.get(names.EXPORTER, "").strip().lower()
    if env.get(names.DISABLED, "").strip().lower() == "true" or exporter == "none":
        return None
    if settings.endpoint is not None:
        headers = env.get(settings.headers_env, "") if settings.headers_env is not None else ""
        return Route(settings.endpoint, headers, _first(env, names.HEADERS))
    if not exporter and not _first(env, names.ENDPOINTS):
        return None
    if exporter not in ("", "otlp"):
        return (
            f"Plans are not traced: {names.EXPORTER} is '{exporter[:40]}', and only 'otlp' and 'none' are known here."
        )
    protocol = _first(env, names.PROTOCOLS)
    if protocol not in ("", "http/protobuf"):
        return (
            f"Plans are not traced: {names.PROTOCOLS[1]} is '{protocol[:40]}', and only 'http/protobuf' is known here."
        )
    return Route()


def without_headers(env: Mapping[str, str], config: Config) -> dict[str, str]:
    """What of our variables others may see: not those that our own settings name, unless `pass_env` does as well."""
    hidden = {*names.HEADERS, config.tracing.headers_env, config.notify.secret_env} - {*config.pass_env}
    return {name: value for name, value in env.items() if name not in hidden}


def _first(env: Mapping[str, str], variables: tuple[str, ...]) -> str:
    return next((value for name in variables if (value := env.get(name, "").strip())), "")


def _missing(settings: Traces, env: Mapping[str, str]) -> list[str]:
    name = settings.headers_env
    if settings.endpoint is None or name is None or env.get(name):
        return []
    return [f"Traces are sent without headers: the variable {name} ('tracing.headers_env') is not set."]
