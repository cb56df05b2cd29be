"""Lists of models: what a provider serves, or what a program says that it has.

A backend finds its models with this (`Backend.models`); what goes wrong is told in the answer, never raised.

Who makes a model, how capable it is, and which of several is the newest, is told by its name. Names are all there is to
go by: no provider says how its models compare to those of others.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from orchard.agents.facts.known import Known
from orchard.agents.facts.probe import get_json
from orchard.model.agent_rows import AgentRow
from orchard.model.plan import Tier

_FAST = frozenset({"haiku", "mini", "flash", "nano", "lite", "small", "tiny", "luna", "instant", "lightning"})
_PREMIUM = frozenset({"opus", "pro", "max", "mythos", "ultra", "astra"})
_VENDORS = (
    ("Anthropic", "claude|opus|sonnet|haiku|fable|mythos"),
    ("OpenAI", "gpt|chatgpt|codex|davinci|o[1-9]"),
    ("Google", "gemini|gemma"),
    ("Alibaba", "qwen|qwq"),
    ("xAI", "grok"),
    ("DeepSeek", "deepseek"),
    ("Meta", "llama"),
    ("Mistral", "mistral|mixtral|codestral|devstral|magistral|ministral"),
    ("Moonshot", "kimi"),
    ("Zhipu", "glm"),
    ("MiniMax", "minimax"),
    ("Microsoft", "mai|phi"),
    ("NVIDIA", "nemotron"),
)
_NOT_FOR_TALK = re.compile(
    r"embed|whisper|\btts\b|dall-?e|image|audio|moderation|realtime|transcri|babbage|davinci|sora|veo|imagen|aqa|rerank"
)


class Model(Struct, frozen=True):
    name: str
    vendor: str
    tier: Tier


def tier_of(name: str) -> Tier:
    words = set(_words(name))
    if words & _FAST:
        return "fast"
    return "premium" if words & _PREMIUM or any(re.fullmatch(r"o[1-9]", word) for word in words) else "standard"


def vendor_of(name: str, otherwise: str = "") -> str:
    """Who makes a model of this name; `otherwise` where the name does not tell."""
    for word in _words(name.rpartition("/")[2]):
        for vendor, pattern in _VENDORS:
            if re.match(rf"(?:{pattern})[0-9]*$", word):
                return vendor
    return otherwise


def models_of(names: Iterable[str], vendor: str = "") -> tuple[Model, ...]:
    """Models by their names, each once; what cannot talk or is no name is left out."""
    good = [name for name in dict.fromkeys(names) if re.fullmatch(r"[!-~]{1,200}", name)]
    return tuple(Model(name, vendor_of(name, vendor), tier_of(name)) for name in good if not _NOT_FOR_TALK.search(name))


def newest(models: Iterable[Model], tier: Tier) -> str | None:
    """The model of a tier whose name has the highest version; of the same version the one with the plainest name.

    Versions of different vendors cannot be compared: the vendor that is listed first is preferred.
    """
    found = [model for model in models if model.tier == tier]
    names = [model.name for model in found if model.vendor == found[0].vendor]
    return max(names, key=lambda name: (_version(name), -len(name)), default=None)


def is_among(name: str, known: Iterable[str]) -> bool:
    """Whether a name means one of the known ones: as it is, without a date, or as the latest of its line."""
    plain = re.sub(r"\[[0-9a-z]+\]$", "", name)
    line = plain.removesuffix("-latest")
    dated = re.compile(re.escape(line) + r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)")
    return any(other in (name, plain) or dated.fullmatch(other) for other in known) or (
        line != plain and any(other.startswith(line) for other in known)
    )


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9.]+", name.lower()) if word]


def _version(name: str) -> tuple[int, ...]:
    plain = re.sub(r"\d{4}-\d{2}-\d{2}|(?<!\d)\d{6,8}(?!\d)", "", name)
    return tuple(int(number) for number in re.findall(r"\d{1,4}", plain))[:4]


MOST_MODELS = 2000

Ask = Callable[[str | None, str], tuple[str, list[str]]]
"""Asks a provider, at an address of the user's or its usual one, with a key: the address that was asked, and names."""


class Found(Struct, frozen=True):
    models: tuple[Model, ...] = ()
    source: str = ""
    """Who told: a command, or a host."""
    complete: bool = False
    """Whether a name that is not among them is wrong."""
    problem: str = ""


class Asking(Struct, frozen=True):
    env: Mapping[str, str]
    """The user's variables, and those of the row."""
    row: AgentRow
    ask: Callable[..., str]
    """What the agent's own program prints with these arguments; empty where it fails."""
    missing: str | None

    def no_answer(self) -> Found:
        return Found(problem=self.missing or "its program did not tell")


def told(ask: Ask, base: str | None, key: str) -> Found:
    try:
        address, names = ask(base, key)
        return listed(names, urlsplit(address).netloc.rpartition("@")[2])
    except ValueError as error:
        return Found(problem=str(error))
    except (TypeError, LookupError, AttributeError):
        return Found(problem="the answer is no list of models")


def listed(names: list[Any], source: str, *, vendor: str = "", complete: bool = True) -> Found:
    models = models_of([one for one in names if isinstance(one, str)][:MOST_MODELS], vendor)
    return Found(models, source, complete) if models else Found(problem="the list of models is empty")


def with_aliases(known: Known, asking: Asking, key: str, base: str, ask: Ask) -> Found:
    aliases = models_of(known.aliases, known.vendor)
    if not asking.env.get(key):
        return Found(aliases, known.name, problem=f"the program tells all of them only where {key} is set")
    found = told(ask, asking.env.get(base), asking.env[key])
    return Found((*aliases, *found.models), found.source or known.name, found.complete, found.problem)


def ask_anthropic(base: str | None, key: str) -> tuple[str, list[str]]:
    address = f"{(base or 'https://api.anthropic.com').rstrip('/').removesuffix('/v1')}/v1/models?limit=1000"
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return address, [row["id"] for row in get_json(address, headers)["data"]]


def ask_openai(base: str | None, key: str) -> tuple[str, list[str]]:
    address = f"{(base or 'https://api.openai.com/v1').rstrip('/')}/models"
    return address, [row["id"] for row in get_json(address, {"Authorization": f"Bearer {key}"} if key else {})["data"]]


def ask_gemini(base: str | None, key: str) -> tuple[str, list[str]]:
    address = f"{(base or 'https://generativelanguage.googleapis.com').rstrip('/')}/v1beta/models?pageSize=1000"
    rows = get_json(address, {"x-goog-api-key": key})["models"]
    talking = [row for row in rows if "generateContent" in row.get("supportedGenerationMethods", ["generateContent"])]
    return address, [row["name"].removeprefix("models/") for row in talking]
