"""Lists of models: what a provider serves, or what a program says that it has.

A backend finds its models with this (`Backend.models`); what goes wrong is told in the answer, never raised.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from orchard.agents.known import Known
from orchard.agents.model_names import Model, models_of
from orchard.agents.probe import get_json
from orchard.model.agent_rows import AgentRow

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
    """Why nothing more was found."""


class Asking(Struct, frozen=True):
    """What a backend finds its models with."""

    env: Mapping[str, str]
    """The user's variables, and those of the row."""
    row: AgentRow
    program: Callable[[Sequence[str]], str]
    missing: str | None
    """Why its program is not there."""

    def ask(self, *arguments: str) -> str:
        """What the agent's own program prints with these arguments; empty where it fails."""
        return self.program(arguments)

    def no_answer(self) -> Found:
        """That its program did not tell, and why."""
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
    """The names that a program knows by itself, and what its provider serves to whoever has a key."""
    aliases = models_of(known.aliases, known.vendor)
    if not asking.env.get(key):
        return Found(aliases, known.name, problem=f"all of them are told only to whoever has {key} set")
    found = told(ask, asking.env.get(base), asking.env[key])
    return Found((*aliases, *found.models), found.source or known.name, found.complete, found.problem)


def ask_anthropic(base: str | None, key: str) -> tuple[str, list[str]]:
    """The models of Anthropic, or of who speaks like it."""
    address = f"{(base or 'https://api.anthropic.com').rstrip('/').removesuffix('/v1')}/v1/models?limit=1000"
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return address, [row["id"] for row in get_json(address, headers)["data"]]


def ask_openai(base: str | None, key: str) -> tuple[str, list[str]]:
    """The models of OpenAI, or of who speaks like it."""
    address = f"{(base or 'https://api.openai.com/v1').rstrip('/')}/models"
    return address, [row["id"] for row in get_json(address, {"Authorization": f"Bearer {key}"} if key else {})["data"]]


def ask_gemini(base: str | None, key: str) -> tuple[str, list[str]]:
    address = f"{(base or 'https://generativelanguage.googleapis.com').rstrip('/')}/v1beta/models?pageSize=1000"
    rows = get_json(address, {"x-goog-api-key": key})["models"]
    talking = [row for row in rows if "generateContent" in row.get("supportedGenerationMethods", ["generateContent"])]
    return address, [row["name"].removeprefix("models/") for row in talking]
