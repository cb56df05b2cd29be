"""The JSON Schema of `orchard.toml`, for editors: from the tables that check it, so that it knows what they know."""

from collections.abc import Iterable
from typing import Any

from orchard.config.keys import KEYS, SHORT, Key
from orchard.config.kinds import ROW_NAME
from orchard.config.layers import Config, flatten
from orchard.config.rows import AGENT_FIELDS, BUILTIN_FIELDS, MOST, SERVER_FIELDS
from orchard.model.agent_rows import BUILTIN

SCHEMA_ID = "urn:orchard-agents:settings"


def settings_schema() -> dict[str, Any]:
    defaults = flatten(Config())
    top = _table([])
    for key in KEYS.values():
        section, _, name = key.name.rpartition(".")
        place = top if not section else top["properties"].setdefault(section, _table([]))
        place["properties"][name] = _value(key, defaults[key.name])
    for section, name in SHORT.items():
        one, whole = KEYS[name], top["properties"][section]
        top["properties"][section] = {"anyOf": [_value(one, defaults[name]), whole]}
    agents = _rows(AGENT_FIELDS)
    agents["properties"] = {BUILTIN: _table(BUILTIN_FIELDS)}
    top["properties"] |= {"agents": agents, "mcp_servers": _rows(SERVER_FIELDS)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Settings of Orchard",
        **top,
    }


def _table(keys: Iterable[Key]) -> dict[str, Any]:
    found = {key.name: _value(key, None) for key in keys}
    return {"type": "object", "properties": found, "additionalProperties": False}


def _rows(keys: Iterable[Key]) -> dict[str, Any]:
    names = {"pattern": f"^{ROW_NAME}$"}
    return {"type": "object", "propertyNames": names, "maxProperties": MOST, "additionalProperties": _table(keys)}


def _value(key: Key, default: object) -> dict[str, Any]:
    trust = " In a repository's file it counts only once you trust it." if key.needs_trust else ""
    said = {**key.kind.schema, "description": f"{key.meaning[:1].upper()}{key.meaning[1:]}.{trust}"}
    if default is not None:
        said["default"] = list(default) if isinstance(default, tuple) else default
    return said
