"""Which models an agent has: told by its program or by the provider it asks, and remembered for an hour.

A provider's list is the truth about what its endpoint serves, so where the user has set an endpoint of his own only
that is asked, and the list that comes with a program does not count.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Protocol

from msgspec import ValidationError, convert, to_builtins

from orchard.agents.cli import backend
from orchard.agents.facts.cache import HOUR, Cache
from orchard.agents.facts.known import BUILTIN_SERVERS, key_variable
from orchard.agents.facts.model_lists import Asking, Found, ask_anthropic, ask_openai, is_among, newest, told
from orchard.agents.facts.probe import Question, ask, changed_at
from orchard.config.layers import Config
from orchard.errors import Next, UsageError
from orchard.model.agent_rows import BACKENDS, BUILTIN, AgentRow, BuiltinRow
from orchard.model.events.event import Json
from orchard.model.plan import Tier
from orchard.text import quoted

FAILED_SECONDS = 300.0
"""What could not be found out is not asked again for so long, so that plans do not wait for it each time."""


class Table(Protocol):
    """What has to be known about agents to ask them; `registry.Agents` is the one."""

    config: Config
    host: Mapping[str, str]

    def row(self, name: str) -> AgentRow: ...

    def path_of(self, name: str) -> str | None: ...

    def environment(self, name: str) -> dict[str, str]: ...

    def missing(self, name: str) -> str | None: ...


class Models:
    """The models of the agents of one table. Its methods may wait for programs and for the network."""

    def __init__(self, agents: Table, cache: Cache) -> None:
        self._agents, self._cache = agents, cache
        self._asking: defaultdict[str, Lock] = defaultdict(Lock)

    def of(self, name: str, *, refresh: bool = False) -> Found:
        key = self._key(name)
        with self._asking[name]:  # many jobs begin at once, and one answer serves them all
            with suppress(ValidationError):
                if not refresh:
                    return convert(self._cache.get(key), Found)
            found = self._discover(name)
            self._cache.put({key: to_builtins(found)}, HOUR if found.models else FAILED_SECONDS)
            return found

    def all(self, names: Iterable[str], *, refresh: bool = False) -> dict[str, Found]:
        wanted = list(names)
        with ThreadPoolExecutor(max_workers=8) as pool:
            return dict(zip(wanted, pool.map(lambda name: self.of(name, refresh=refresh), wanted), strict=True))

    def knows(self, name: str, model: str) -> bool:
        """Whether an agent is known to have this model; what could not be found out is not known."""
        more = backend(name).known.more_aliases if name in BACKENDS else ()
        aliases = [*_aliases(name), *more]
        return model in aliases or is_among(model, [*(one.name for one in self.of(name).models), *aliases])

    def check(self, name: str, model: str) -> None:
        """Refuse a model that does not exist; where nothing could be found out, everything may be right."""
        found = self.of(name)
        known = [one.name for one in found.models]
        if not found.complete or not known or self.knows(name, model):
            return
        from difflib import get_close_matches

        near = get_close_matches(model, known, n=3, cutoff=0.5)
        guess = f"; did you mean {' or '.join(quoted(one) for one in near)}?" if near else ""
        raise UsageError(
            f"Agent '{name}' has no model {quoted(model)}{guess}",
            ("Run '", Next("list_models", args={"agent": name}), "' to see all of them; --refresh asks again."),
        )

    def resolve(self, name: str, model: str | None, tier: Tier | None) -> str | None:
        """The model that is meant by a work; None: the agent's own choice, also where no model of the tier is known."""
        if model is not None or tier is None:
            return model
        alias = next((alias for alias, means in _aliases(name).items() if means == tier), None)
        return alias or newest(self.of(name).models, tier)

    # ------------------------------------------------------------------------------- finding them

    def _discover(self, name: str) -> Found:
        if name == BUILTIN:
            return _served(self._agents.config.builtin, self._env(name))
        if name not in BACKENDS:
            return Found(problem="it does not tell which models it has")
        asking = Asking(self._env(name), self._agents.row(name), partial(self._ask, name), self._agents.missing(name))
        return backend(name).models(asking)

    def _ask(self, name: str, *arguments: str) -> str:
        path = self._agents.path_of(name)
        if path is None:
            return ""
        (answer,) = ask([Question((path, *self._agents.row(name).args, *arguments), self._agents.environment(name))])
        return answer.text if answer.ok else ""

    def _env(self, name: str) -> dict[str, str]:
        row = self._agents.config.builtin if name == BUILTIN else self._agents.row(name)
        return {**self._agents.host, **row.env}

    def _key(self, name: str) -> str:
        """What a remembered answer holds for: this program, these endpoints and settings; the keys do not matter."""
        path = None if name == BUILTIN else self._agents.path_of(name)
        env = self._env(name)
        told = [
            path,
            changed_at(path),
            repr(self._agents.config.builtin if name == BUILTIN else self._agents.row(name)),
            {variable: env.get(variable) for variable in (*_decisive(name), "HOME")},
            [variable for variable in (backend(name).known.keys if name in BACKENDS else ()) if env.get(variable)],
        ]
        return f"models {name} {hashlib.sha256(json.dumps(told).encode()).hexdigest()}"


def _decisive(name: str) -> tuple[str, ...]:
    if name == BUILTIN:
        return tuple(BUILTIN_SERVERS.values())
    known = backend(name).known if name in BACKENDS else None
    return (*known.endpoints, *filter(None, known.folder[:1])) if known is not None else ()


def _served(row: BuiltinRow, env: Mapping[str, str]) -> Found:
    key = env.get(key_variable(row), "")
    asked = ask_anthropic if row.provider == "anthropic" else ask_openai
    base = row.base_url or env.get(BUILTIN_SERVERS[row.provider])
    if not key and not base:
        return Found(problem=f"{key_variable(row)} is not set")
    return told(asked, base, key)


def _aliases(name: str) -> Mapping[str, Tier]:
    return backend(name).known.aliases if name in BACKENDS else {}


def model_document(told: Mapping[str, Found]) -> Json:
    rows = [
        {"agent": name, "model": model.name, "vendor": model.vendor, "tier": model.tier}
        for name, one in told.items()
        for model in one.models
    ]
    known = {
        name: {"source": one.source, "complete": one.complete, "problem": one.problem or None}
        for name, one in told.items()
    }
    return {"models": rows, "agents": known}
