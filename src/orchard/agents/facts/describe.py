"""What there is to know about each agent, for `orchard agents`: programs are asked, all of them at once."""

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from orchard import __version__
from orchard.agents.facts.cache import Cache
from orchard.agents.facts.known import ABILITIES, BUILTIN_ABILITIES, Ability, LoggedIn, Login
from orchard.agents.facts.probe import Answer, Question, ask, changed_at
from orchard.agents.permissions import Holds
from orchard.agents.registry import Agents
from orchard.model.agent_rows import BUILTIN

_VERSION = re.compile(r"(?<!\d)\d+\.\d+(?:\.\d+)?(?:[-+.][0-9A-Za-z.-]{1,40}[0-9A-Za-z])?")


class AgentInfo(Struct, frozen=True):
    name: str
    vendor: str
    installed: bool
    version: str | None
    program: str | None
    logged_in: LoggedIn
    how_known: str
    abilities: tuple[Ability, ...]
    default: bool
    install: str
    login: str
    permissions: Holds = "nothing"
    """How far it can be held to what it may use."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "abilities": {name: name in self.abilities for name in ABILITIES}}


def describe(agents: Agents, names: Iterable[str] | None = None, cache: Cache | None = None) -> list[AgentInfo]:
    wanted = list(agents.names if names is None else names)
    facts = {name: known for name in wanted if (known := agents.known(name)) is not None}
    paths = {name: path for name in facts if (path := agents.path_of(name)) is not None}
    versions = {name: cache.get(_version_key(agents, name, path)) for name, path in paths.items()} if cache else {}
    asked: dict[tuple[str, str], Question] = {}
    for name, path in paths.items():
        start, env, known = (path, *agents.row(name).args), agents.environment(name), facts[name]
        if known.version and not isinstance(versions.get(name), str):
            asked[name, "version"] = Question((*start, *known.version), env, known.folder[0])
        if known.status and agents.login(name).state != "yes":
            asked[name, "login"] = Question((*start, *known.status), env)
    answers = dict(zip(asked, ask(list(asked.values())), strict=True))
    found = {name: _version_in(answer.text) for (name, what), answer in answers.items() if what == "version"}
    if cache is not None:
        cache.put({_version_key(agents, name, paths[name]): told for name, told in found.items() if told is not None})
    default = agents.config.agent or agents.default()
    return [
        _info(agents, name, found.get(name, versions.get(name)), answers.get((name, "login")), default == name)
        for name in wanted
    ]


def _info(agents: Agents, name: str, told: str | None, status: Answer | None, default: bool) -> AgentInfo:
    known = agents.known(name)
    login = _told_login(agents.login(name), status, " ".join(known.status) if known is not None else "")
    builtin = name == BUILTIN
    abilities = BUILTIN_ABILITIES if builtin else known.abilities if known is not None else frozenset[Ability]()
    return AgentInfo(
        name=name,
        vendor="Orchard" if builtin else known.vendor if known is not None else "",
        installed=agents.missing(name) is None,
        version=__version__ if builtin else told,
        program=None if builtin else agents.path_of(name),
        logged_in=login.state,
        how_known=login.how,
        abilities=tuple(one for one in ABILITIES if one in abilities),
        default=default,
        install=agents.install_command(name),
        login=agents.how_to_log_in(name),
        permissions=agents.holds(name),
    )


def _told_login(seen: Login, status: Answer | None, command: str) -> Login:
    """What files told, unless the program itself knows better."""
    if status is None or status.exit_code is None:
        return seen
    if status.ok:
        return Login("yes", f"'{command}' says so")
    return Login("no", f"'{command}' says so") if seen.state == "unknown" else seen


def _version_in(text: str) -> str | None:
    found = _VERSION.search(text)
    return found[0] if found else None


def _version_key(agents: Agents, name: str, path: str) -> str:
    return f"version {path} {changed_at(path)} {' '.join(agents.row(name).args)}"
