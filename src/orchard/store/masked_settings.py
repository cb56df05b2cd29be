"""The settings as they are shown to people and programs: what looks like a secret is hidden."""

import re
from collections.abc import Mapping
from typing import Any

from orchard.config.layers import flatten
from orchard.config.load import Settings
from orchard.model.secrets import looks_secret
from orchard.store.redact import REDACTED, redact_text


def shown_settings(settings: Settings) -> dict[str, dict[str, Any]]:
    """Every setting with its value and where that comes from; this is what people paste into reports."""
    values = flatten(settings.config, settings.origins)
    return {name: {"value": _shown(value), "origin": settings.origins.get(name)} for name, value in values.items()}


def _shown(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _hidden(key, held) for key, held in value.items()}
    if isinstance(value, tuple):
        return [_shown(held) for held in value]
    return redact_text(value) if isinstance(value, str) else value


def _hidden(key: str, value: object) -> object:
    secret = (
        isinstance(value, str) and looks_secret(key.replace("-", "_")) and not re.fullmatch(r"(\w+ )?\$\{\w+\}", value)
    )
    return REDACTED.decode() if secret else _shown(value)
