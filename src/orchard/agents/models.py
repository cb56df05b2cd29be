"""Which models an agent has: told by its program or by the provider it asks, and remembered for an hour.

    Models.of        the models of an agent, where that is known from, and whether a name beside them can be right
    Models.check     refuses a model that does not exist; where nothing could be found out, everything may be right
    Models.resolve   the model for a work: the one it names, or one of the tier that it names

A provider's list is the truth about what its endpoint serves, so where the user has set an endpoint of his own only
that is asked, and the list that comes with a program does not count.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from urllib.parse import urlsplit

from orchard.agents.asking import Question, ask, get_json
from orchard.agents.cache import HOUR, Cache
from orchard.agents.known import PROGRAMS, key_variable
from orchard.agents.modelnames import Model, is_among, models_of, newest
from orchard.core.agentrows import AgentRow
from orchard.core.config import Config
from orchard.core.event import Json
from orchard.core.plan import Tier
from orchard.core.suggest import quoted
from orchard.errors import UsageError
from orchard.frozen import frozen

FAILED_SECONDS = 300.0
"""What could not be found out is not asked again for so long, so that plans do not wait for it each time."""
MOST_MODELS = 2000

ALIASES: Mapping[str, Mapping[str, Tier]] = {
    "claude": {"haiku": "fast", "sonnet": "standard", "opus": "premium"},
    "gemini": {"flash": "fast", "flash-lite": "fast", "pro": "premium", "auto": "standard"},
}
"""Names that a program knows by itself and that always mean its newest model, the first of a tier preferred."""
_MORE_ALIASES = {"claude": ("default", "best", "fable", "mythos", "opusplan"), "copilot": ("auto",)}


@frozen
class Found:
    """What is known about the models of an agent."""

    models: tuple[Model, ...] = ()
    source: str = ""
    """Who told: a command, or a host."""
    complete: bool = False
    """Whether a name that is not among them is wrong."""
    problem: str = ""
    """Why nothing more was found."""


class Table(Protocol):
    """What has to be known about agents to ask them; `table.Agents` is the one."""

    config: Config
    host: Mapping[str, str]

    def row(self, name: str) -> AgentRow:
        """What the configuration says about an agent."""
        ...

    def path_of(self, name: str) -> str | None:
        """Where its program is."""
        ...

    def environment(self, name: str) -> dict[str, str]:
        """What its program sees."""
        ...

    def missing(self, name: str) -> str | None:
        """Why it is not there."""
        ...


class Models:
    """The models of the agents of one table. Its methods may wait for programs and for the network."""

    def __init__(self, agents: Table, cache: Cache) -> None:
        self._agents, self._cache = agents, cache
        self._asking: defaultdict[str, Lock] = defaultdict(Lock)

    def of(self, name: str, *, refresh: bool = False) -> Found:
        """The models of one agent."""
        key = self._key(name)
        with self._asking[name]:  # many jobs begin at once, and one answer serves them all
            kept = None if refresh else _from_json(self._cache.get(key))
            if kept is not None:
                return kept
            found = self._discover(name)
            self._cache.put({key: _to_json(found)}, HOUR if found.models else FAILED_SECONDS)
            return found

    def all(self, names: Iterable[str], *, refresh: bool = False) -> dict[str, Found]:
        """The models of several agents, asked at the same time."""
        wanted = list(names)
        with ThreadPoolExecutor(max_workers=8) as pool:
            return dict(zip(wanted, pool.map(lambda name: self.of(name, refresh=refresh), wanted), strict=True))

    def check(self, name: str, model: str) -> None:
        """Refuse a model that the agent does not have."""
        found = self.of(name)
        known = [one.name for one in found.models]
        if not found.complete or not known or is_among(model, [*known, *ALIASES.get(name, ()), *_more(name)]):
            return
        from difflib import get_close_matches

        near = get_close_matches(model, known, n=3, cutoff=0.5)
        guess = f"; did you mean {' or '.join(quoted(one) for one in near)}?" if near else ""
        raise UsageError(
            f"Agent '{name}' has no model {quoted(model)}{guess}",
            f"Run 'orchard models --agent {name}' to see all of them; --refresh asks again.",
        )

    def resolve(self, name: str, model: str | None, tier: Tier | None) -> str | None:
        """The model that is meant by a work; None: the agent's own choice, also where no model of the tier is known."""
        if model is not None or tier is None:
            return model
        alias = next((alias for alias, means in ALIASES.get(name, {}).items() if means == tier), None)
        return alias or newest(self.of(name).models, tier)

    # ------------------------------------------------------------------------------- finding them

    def _discover(self, name: str) -> Found:
        """Ask whoever knows; what goes wrong is told in the answer."""
        env = self._env(name)
        if name == "builtin":
            row = self._agents.config.builtin
            key = env.get(key_variable(row), "")
            asked = _ask_anthropic if row.provider == "anthropic" else _ask_openai
            base = row.base_url or env.get("ANTHROPIC_BASE_URL" if row.provider == "anthropic" else "OPENAI_BASE_URL")
            if not key and not base:
                return Found(problem=f"{key_variable(row)} is not set")
            return _told(asked, base, key)
        finder = {
            "claude": _claude,
            "codex": self._codex,
            "copilot": self._copilot,
            "gemini": _gemini,
            "qwen": _qwen,
            "opencode": self._opencode,
        }.get(name)
        return finder(env) if finder is not None else Found(problem="it does not tell which models it has")

    def _codex(self, env: Mapping[str, str]) -> Found:
        if env.get("OPENAI_BASE_URL"):
            return _told(_ask_openai, env["OPENAI_BASE_URL"], env.get("OPENAI_API_KEY", ""))
        text = self._ask("codex", "debug", "models")
        try:
            models = json.loads(text)["models"]
            names = [model["slug"] for model in models if model.get("visibility", "list") == "list"]
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return self._no_answer("codex")
        # Whoever has set up another provider knows its models better than the list that comes with the program.
        other = any("model_provider" in argument for argument in self._agents.row("codex").args)
        folder = Path(env.get("CODEX_HOME") or Path(env.get("HOME") or Path.home()) / ".codex")
        return _listed("codex", names, "codex debug models", complete=not other and not _mentions_provider(folder))

    def _copilot(self, env: Mapping[str, str]) -> Found:
        if env.get("COPILOT_PROVIDER_BASE_URL"):
            asked = _ask_anthropic if env.get("COPILOT_PROVIDER_TYPE") == "anthropic" else _ask_openai
            return _told(asked, env["COPILOT_PROVIDER_BASE_URL"], env.get("COPILOT_PROVIDER_API_KEY", ""))
        text = self._ask("copilot", "help", "config")
        section = re.search(r"^ *`model`:.*\n((?: +- .*\n?)+)", text, re.MULTILINE)
        names = re.findall(r'^ +- "([^"\s]+)"', section[1], re.MULTILINE) if section else []
        return _listed("copilot", names, "copilot help config") if names else self._no_answer("copilot")

    def _opencode(self, env: Mapping[str, str]) -> Found:
        names = re.findall(r"^([\w.:-]+/\S+)\s*$", self._ask("opencode", "models"), re.MULTILINE)
        return _listed("opencode", names, "opencode models") if names else self._no_answer("opencode")

    def _ask(self, name: str, *arguments: str) -> str:
        path = self._agents.path_of(name)
        if path is None:
            return ""
        (answer,) = ask([Question((path, *self._agents.row(name).args, *arguments), self._agents.environment(name))])
        return answer.text if answer.ok else ""

    def _no_answer(self, name: str) -> Found:
        return Found(problem=self._agents.missing(name) or "its program did not tell")

    def _env(self, name: str) -> dict[str, str]:
        row = self._agents.config.builtin if name == "builtin" else self._agents.row(name)
        return {**self._agents.host, **row.env}

    def _key(self, name: str) -> str:
        """What a remembered answer holds for: this program, these endpoints and settings; the keys do not matter."""
        path = None if name == "builtin" else self._agents.path_of(name)
        env = self._env(name)
        told = [
            path,
            _changed_at(path),
            repr(self._agents.config.builtin if name == "builtin" else self._agents.row(name)),
            {variable: env.get(variable) for variable in (*_ENDPOINTS, "HOME", "CODEX_HOME")},
            [variable for variable in (PROGRAMS[name].keys if name in PROGRAMS else ()) if env.get(variable)],
        ]
        return f"models {name} {hashlib.sha256(json.dumps(told).encode()).hexdigest()}"


_ENDPOINTS = (
    "ANTHROPIC_BASE_URL",
    "OPENAI_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL",
    "COPILOT_PROVIDER_BASE_URL",
    "COPILOT_PROVIDER_TYPE",
)


# ------------------------------------------------------------------------------- asking a provider


def _claude(env: Mapping[str, str]) -> Found:
    aliases = models_of(ALIASES["claude"], "Anthropic")
    key = env.get("ANTHROPIC_API_KEY", "")
    if not key:
        return Found(aliases, "claude", problem="all of them are told only to whoever has ANTHROPIC_API_KEY set")
    found = _told(_ask_anthropic, env.get("ANTHROPIC_BASE_URL"), key)
    return Found((*aliases, *found.models), found.source or "claude", found.complete, found.problem)


def _gemini(env: Mapping[str, str]) -> Found:
    aliases = models_of(ALIASES["gemini"], "Google")
    key = env.get("GEMINI_API_KEY", "")
    if not key:
        return Found(aliases, "gemini", problem="all of them are told only to whoever has GEMINI_API_KEY set")
    found = _told(_ask_gemini, env.get("GOOGLE_GEMINI_BASE_URL"), key)
    return Found((*aliases, *found.models), found.source or "gemini", found.complete, found.problem)


def _qwen(env: Mapping[str, str]) -> Found:
    key = env.get("OPENAI_API_KEY", "")
    if not key:
        return Found(problem="they are told only to whoever has OPENAI_API_KEY set")
    return _told(_ask_openai, env.get("OPENAI_BASE_URL"), key)


def _ask_anthropic(base: str | None, key: str) -> tuple[str, list[str]]:
    address = f"{(base or 'https://api.anthropic.com').rstrip('/').removesuffix('/v1')}/v1/models?limit=1000"
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return address, [row["id"] for row in get_json(address, headers)["data"]]


def _ask_openai(base: str | None, key: str) -> tuple[str, list[str]]:
    address = f"{(base or 'https://api.openai.com/v1').rstrip('/')}/models"
    return address, [row["id"] for row in get_json(address, {"Authorization": f"Bearer {key}"} if key else {})["data"]]


def _ask_gemini(base: str | None, key: str) -> tuple[str, list[str]]:
    address = f"{(base or 'https://generativelanguage.googleapis.com').rstrip('/')}/v1beta/models?pageSize=1000"
    rows = get_json(address, {"x-goog-api-key": key})["models"]
    talking = [row for row in rows if "generateContent" in row.get("supportedGenerationMethods", ["generateContent"])]
    return address, [row["name"].removeprefix("models/") for row in talking]


def _told(asked: Callable[[str | None, str], tuple[str, list[str]]], base: str | None, key: str) -> Found:
    """What a provider tells."""
    try:
        address, names = asked(base, key)
        return _listed("", names, urlsplit(address).netloc.rpartition("@")[2])
    except ValueError as error:
        return Found(problem=str(error))
    except (TypeError, LookupError, AttributeError):
        return Found(problem="the answer is no list of models")


def _listed(name: str, names: list[Any], source: str, *, complete: bool = True) -> Found:
    vendor = PROGRAMS[name].vendor if name == "codex" else ""
    models = models_of([one for one in names if isinstance(one, str)][:MOST_MODELS], vendor)
    return Found(models, source, complete) if models else Found(problem="the list of models is empty")


def _more(name: str) -> tuple[str, ...]:
    return _MORE_ALIASES.get(name, ())


def _mentions_provider(folder: Path) -> bool:
    try:
        with (folder / "config.toml").open("rb") as file:
            return b"model_provider" in file.read(256 * 1024)
    except OSError:
        return False


def _changed_at(path: str | None) -> int:
    try:
        return Path(path).stat().st_mtime_ns if path is not None else 0
    except OSError:
        return 0


# -------------------------------------------------------------------------------- what is remembered


def _to_json(found: Found) -> dict[str, Any]:
    names = [model.name for model in found.models]
    vendors = [model.vendor for model in found.models]
    return {
        "models": names,
        "vendors": vendors,
        "source": found.source,
        "complete": found.complete,
        "problem": found.problem,
    }


def _from_json(body: Any) -> Found | None:
    try:
        pairs = zip(body["models"], body["vendors"], strict=True)
        models = tuple(Model(name, vendor, one.tier) for name, vendor in pairs for one in models_of([name]))
        return Found(models, str(body["source"]), bool(body["complete"]), str(body["problem"]))
    except (TypeError, LookupError, ValueError, AttributeError):
        return None


def model_document(told: Mapping[str, Found]) -> Json:
    """What the agents said of their models."""
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
