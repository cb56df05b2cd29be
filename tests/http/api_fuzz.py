"""Requests that nobody thought of: schemathesis makes them from the document, and holds every answer against it."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from schemathesis.engine import events, from_schema

from orchard.surfaces.http.openapi import document
from orchard.surfaces.http.streams import Stream, Streams
from tests.http.api_world import World

SEED = 5
STREAM_SECONDS = 0.1
LARGE = ("submitPlan", "validatePlan", "clonePlan", "updatePlan", "updateJob", "retryJob", "reshapePlan")
"""Operations that take a plan or a large part of one: covering every field of it takes thousands of requests each."""


class ShortStreams(Streams):
    """Streams that end soon, since nobody who makes up requests stops listening by himself."""

    def stream(self, frames: AsyncIterator[bytes], leave: Callable[[], None] = lambda: None) -> Stream:
        return Stream(self, _some(frames), leave)


async def _some(frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async with asyncio.timeout(STREAM_SECONDS):
            async for one in frames:
                yield one
    except TimeoutError:
        return


@dataclass
class Fuzzed:
    """What came of it."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    """Operations by how often they did what was asked."""
    failures: dict[str, str] = field(default_factory=dict)
    """One of each kind, with the request that shows it."""


def fuzz(world: World, names: dict[str, list[str]], examples: int) -> Fuzzed:
    """Cover what the document says of every operation, and make up as many `examples` of each besides.

    Without examples every field of a plan is covered as well, and all paths name what really is there.
    """
    config = schemathesis.Config.from_dict(_config(world, names, examples))
    random.seed(SEED)
    schema = schemathesis.openapi.from_dict(deepcopy(document()), config=config)
    found = Fuzzed()
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            _note(found, event.recorder)
        elif isinstance(event, events.NonFatalError | events.FatalError):
            found.failures[f"{getattr(event, 'label', '')} error"] = str(getattr(event, "info", event))
    return found


def _note(found: Fuzzed, recorder: Any) -> None:
    for case, interaction in recorder.interactions.items():
        found.requests += 1
        response = interaction.response
        status = response.status_code if response is not None else 0
        found.statuses[status] += 1
        if 200 <= status < 300:
            found.reached[recorder.label] += 1
        for check in recorder.checks.get(case, ()):
            if check.failure_info is not None:
                failure = check.failure_info.failure
                text = f"{failure}\n{check.failure_info.code_sample}\n{response.text[:1000] if response else ''}"
                found.failures.setdefault(f"{recorder.label} {check.name}", text)


def _config(world: World, names: dict[str, list[str]], examples: int) -> dict[str, Any]:
    phases = {"examples": False, "coverage": True, "fuzzing": examples > 0, "stateful": False}
    few = [{"include-operation-id": list(LARGE), "phases": {"coverage": {"enabled": False}}}]
    some = {name: {"dictionary": name, "probability": 0.9} for name in names}
    return {
        "seed": SEED,
        "base-url": world.url,
        "continue-on-failure": True,
        "request-timeout": 20.0,
        "workers": 1,
        "auth": {"openapi": {"token": {"bearer": world.token}}},
        "dictionaries": {name: {"values": values} for name, values in names.items()},
        "parameters": some if examples else {name: values[-1] for name, values in names.items()},
        "generation": {
            "max-examples": max(1, examples),
            "deterministic": True,
            "no-shrink": True,
            "database": "none",
            "allow-x00": False,
        },
        "operations": few if examples else [],
        "phases": {name: {"enabled": on} for name, on in phases.items()},
        "checks": {
            # What is well-formed may still be impossible: a plan in the wrong state, a need that does not exist.
            "positive_data_acceptance": {"expected-statuses": ["2xx", 401, 403, 404, 409, 422]},
            "negative_data_rejection": {"expected-statuses": [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 431]},
            # A plan that was deleted can still be looked at until it is purged, and one that is gone is 404.
            "use_after_free": {"enabled": False},
            "ensure_resource_availability": {"enabled": False},
        },
    }
