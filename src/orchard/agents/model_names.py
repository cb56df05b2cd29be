"""What the name of a model tells: who makes it, how capable it is, and which of several is the newest.

Names are all there is to go by: no provider says how its models compare to those of others.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

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
    """The numbers of a name, without its date."""
    plain = re.sub(r"\d{4}-\d{2}-\d{2}|(?<!\d)\d{6,8}(?!\d)", "", name)
    return tuple(int(number) for number in re.findall(r"\d{1,4}", plain))[:4]
