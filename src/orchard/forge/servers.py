"""Which forge the address of a remote names, and which project there."""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.forge.kinds import GITHUB, GITLAB, KINDS, Kind
from orchard.text import one_line, without_credentials

_SCP = re.compile(r"^(?:[^@/\s]+@)?(?P<host>[^/:\s]+):(?!/)(?P<path>[^\s]+)$")
_NAME = re.compile(r"[A-Za-z0-9_.~-]+(?:/[A-Za-z0-9_.~-]+)+")
SCHEMES = {"https": 443, "http": 80, "ssh": None, "git+ssh": None, "git": None}


class Server(Struct, frozen=True):
    kind: Kind
    host: str
    """With a port where it is not the usual one."""
    scheme: str = "https"

    @property
    def public(self) -> bool:
        return self.host == self.kind.host

    @property
    def api(self) -> str:
        return self.kind.api if self.public else f"{self.scheme}://{self.host}{self.kind.own_api}"

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.kind.tokens if self.public else (*self.kind.own_tokens, *self.kind.tokens)


class Project(Struct, frozen=True):
    """A repository on a forge."""

    server: Server
    name: str
    """`owner/name`; on GitLab there may be groups in between."""

    @property
    def owner(self) -> str:
        return self.name.split("/")[0]

    def page(self, number: int) -> str:
        """Where people see one of its requests: made from what we know, and not taken from an answer."""
        return f"{self.server.scheme}://{self.server.host}/{self.name}{self.server.kind.page}{number}"


class UnknownForge(OrchardError):
    """No forge that is known has this address."""


def known_servers(github: Sequence[str], gitlab: Sequence[str], env: Mapping[str, str]) -> list[Server]:
    """The public forges, and those of the user: named in settings, or by the variables of their tools and CI."""
    named = [(GITHUB, one) for one in github] + [(GITLAB, one) for one in gitlab]
    for kind in KINDS:
        named += [(kind, env[name]) for name in (*kind.servers, kind.tool_host) if env.get(name)]
    servers = [Server(kind, kind.host) for kind in KINDS]
    for kind, text in named:
        server = server_of(kind, text)
        if server is not None and not any(server.host == other.host for other in servers):
            servers.append(server)
    return servers


def server_of(kind: Kind, text: str) -> Server | None:
    """A server that the user named: a host, or its address. Without TLS only this very machine is one."""
    parts = urlsplit(text if "://" in text else f"https://{text}")
    try:
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return None
    if not host or parts.scheme not in ("https", "http") or (parts.scheme == "http" and not _is_here(host)):
        return None
    shown = f"[{host}]" if ":" in host else host
    return Server(kind, shown if port in (None, SCHEMES[parts.scheme]) else f"{shown}:{port}", parts.scheme)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def project_at(address: str, servers: Sequence[Server], remote: str) -> Project:
    """The project that the address of a remote names; UnknownForge in words where there is none."""
    host, port, path = _parts(address)
    if not host:
        raise UnknownForge(
            f"The remote '{one_line(remote)}' is at no host ({one_line(without_credentials(address))}), so there is no "
            "forge to open a pull request at.",
            hint="Look at 'git remote -v': a pull request needs a remote on GitHub, GitLab or a server of yours.",
        )
    for server in servers:
        if not any(same == (host, port) for same in _ways_to(server)):
            continue
        name = path.strip("/").removesuffix(".git")
        if not _NAME.fullmatch(name) or any(part in ("", ".", "..") for part in name.split("/")):
            break
        if not server.kind.quoted and name.count("/") != 1:
            break
        return Project(server, name)
    else:
        at = host if port in (None, *SCHEMES.values()) else f"{host}:{port}"
        raise UnknownForge(
            f"The remote '{one_line(remote)}' is on {one_line(at)}, which Orchard does not know as a forge of yours.",
            hint=f'If it is one, say so in your own configuration, below [forge]: github = ["{one_line(at)}"], or '
            "gitlab in its place.",
        )
    raise UnknownForge(f"The address of the remote '{one_line(remote)}' names no repository on {one_line(host)}.")


def _parts(address: str) -> tuple[str, int | None, str]:
    """Host, port of the web (None: it is another protocol's) and path of a remote's address."""
    if "://" not in address:
        found = _SCP.match(address)
        return (found["host"].lower(), None, found["path"]) if found else ("", None, "")
    try:
        parts = urlsplit(address)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", None, ""
    if parts.scheme not in SCHEMES or parts.query or parts.fragment:
        return "", None, ""
    usual = SCHEMES[parts.scheme]
    return host, None if usual is None else port or usual, parts.path


def _ways_to(server: Server) -> Iterator[tuple[str, int | None]]:
    """The hosts and ports by which git reaches a server; whoever is behind another port is somebody else."""
    parts = urlsplit(f"{server.scheme}://{server.host}")
    host = parts.hostname or ""
    yield host, parts.port or SCHEMES[server.scheme]
    yield host, None
    if server.public:
        for other in server.kind.aliases:
            yield other, None
            yield other, 443
