"""Which way to log in needs nobody: one that takes a key from the agent's environment."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_KEY = re.compile(r"\bapi.?key\b", re.I)


def key_method(methods: Iterable[Any] | None, env: Mapping[str, str]) -> str | None:
    """The id of such a method; None: a person has to do it, and is told so."""
    for method in methods or ():
        kind = getattr(method, "type", None)
        names = [each.name for each in getattr(method, "vars", None) or ()]
        if kind == "env_var" and names and all(name in env for name in names):
            return str(method.id)
        if kind in (None, "agent") and _KEY.search(str(method.id)):
            return str(method.id)
    return None
