"""The first exchange: who we are and what we can do, and what the agent can."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from orchard import __version__
from orchard.agents.acp.failures import ASKED_FOR

_KEY = re.compile(r"\bapi.?key\b", re.I)


def key_method(methods: Iterable[Any] | None, env: Mapping[str, str]) -> str | None:
    """The way to log in that needs nobody: it takes a key from the environment. None: a person has to log in."""
    for method in methods or ():
        kind = getattr(method, "type", None)
        names = [each.name for each in getattr(method, "vars", None) or ()]
        if kind == "env_var" and names and all(name in env for name in names):
            return str(method.id)
        if kind in (None, "agent") and _KEY.search(str(method.id)):
            return str(method.id)
    return None


Json = dict[str, Any]

VERSION = 1
"""What we offer; an agent that answers with another one is not talked with."""


class Abilities(Struct, frozen=True):
    name: str = ""
    resumes: bool = False
    loads: bool = False
    """It can go on with a session too, but tells the whole story again meanwhile."""
    more_folders: bool = False
    http_servers: bool = False
    key_method: str | None = None
    """How it can be told to use the key that is in its environment."""


def greeting() -> Json:
    """What we say first. Files and terminals are the agent's own affair: it works in a folder on this machine."""
    from acp.schema import ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest

    can = ClientCapabilities(
        fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False, field_meta=ASKED_FOR
    )
    us = Implementation(name="orchard", title="Orchard", version=__version__)
    return wire(InitializeRequest(protocol_version=VERSION, client_capabilities=can, client_info=us))


def abilities(answer: Json, env: Mapping[str, str]) -> Abilities:
    """What the agent answers; `ValueError` says why it cannot be talked with."""
    from acp.schema import InitializeResponse
    from pydantic import ValidationError

    version = answer.get("protocolVersion")
    if version != VERSION:
        said = f"version {version}" if type(version) is int else "no version that we know"
        raise ValueError(f"speaks {said} of the Agent Client Protocol; we speak version {VERSION}")
    try:
        agent = InitializeResponse.model_validate(answer)
    except (ValidationError, RecursionError):
        raise ValueError("answered 'initialize' with something that is no answer") from None
    can = agent.agent_capabilities
    session = can.session_capabilities if can is not None else None
    servers = can.mcp_capabilities if can is not None else None
    return Abilities(
        name=agent.agent_info.name if agent.agent_info is not None else "",
        resumes=session is not None and session.resume is not None,
        loads=can is not None and bool(can.load_session),
        more_folders=session is not None and session.additional_directories is not None,
        http_servers=servers is not None and bool(servers.http),
        key_method=key_method(agent.auth_methods, env),
    )


def wire(request: Any) -> Json:
    params: Json = request.model_dump(mode="json", by_alias=True, exclude_none=True)
    return params
