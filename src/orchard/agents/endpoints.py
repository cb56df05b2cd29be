"""How the programs of an agent get to its model behind a wall: hosts that they reach, and routes with a key.

Where a program finds its model by an address and a key in variables, it needs neither: it is told an address at its
door, and our proxy adds the key (`process.proxy.routes`). So no program of the job holds one, and the model's host is
not even among what the job may reach. An agent that was logged in by hand keeps its login, and reaches the hosts that
are known of it; one of which nobody knows where its model is reaches whatever is public.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct, field

from orchard.agents.facts.known import Known, Service
from orchard.files import read_plain
from orchard.model.agent_rows import AgentRow
from orchard.process.proxy.routes import Key, Route

PLACEHOLDER = "added-by-the-proxy-of-orchard"
"""What a variable says whose key the proxy has: programs ask whether there is any."""
_MOST_BYTES = 1 << 20
_ADDRESS = re.compile(rb"https?://[A-Za-z0-9.\[\]:_-]{1,260}")


class Keyed(Struct, frozen=True):
    """A service whose requests pass through our proxy."""

    service: Service
    route: Route
    withheld: bool = True
    """Whether the program does not get the key itself."""


class Ways(Struct, frozen=True):
    """What the programs of an agent need of a wall."""

    hosts: tuple[str, ...] | None = None
    """Hosts on the list; None: nobody knows them."""
    own: tuple[str, ...] = ()
    """Addresses that the user's own settings name."""
    keyed: tuple[Keyed, ...] = ()
    known: Known | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """All variables of the program."""
    program: str | None = None
    """Where it is, if it is not ours."""

    def routes(self, door: Callable[[str], str]) -> dict[str, str]:
        """Addresses by the names of services; `door` says where a route begins."""
        return {one.service.name: door(one.route.name) for one in self.keyed}

    def replaced(self, door: Callable[[str], str]) -> dict[str, str]:
        """Variables that the program has to find instead of the user's."""
        found: dict[str, str] = {}
        for one in self.keyed:
            service = one.service
            if one.withheld:
                found |= {name: "" for name in service.others if self.env.get(name)}
                found |= {service.key: PLACEHOLDER} if self.env.get(service.key) else {}
            found |= {service.address: door(one.route.name)} if service.address else {}
        return found


@runtime_checkable
class Outgoing(Protocol):
    """An agent that says how it gets to its model."""

    def ways(self, env: Mapping[str, str]) -> Ways: ...


def ways_of(
    known: Known | None, row: AgentRow, env: Mapping[str, str], program: str | None, *, by_variables: bool = False
) -> Ways:
    """`by_variables`: it can be told an address only by a variable."""
    seen = {**env, **row.env}
    if known is None:
        return Ways(() if row.endpoints else None, row.endpoints, (), None, seen, program)
    services = known.services(seen) if row.home != "user" else ()
    usable = (service for service in services if service.address or not by_variables)
    keyed = tuple(one for service in usable if (one := _keyed(service, row, seen)) is not None)
    routed = {one.service.address for one in keyed}
    named = (seen.get(name, "") for name in known.endpoints if name not in routed)
    own = (*row.endpoints, *(value for value in named if "://" in value))
    if keyed:
        return Ways((), own, keyed, known, seen, program)
    other = any(seen.get(name) for name in known.elsewhere)
    hosts = known.hosts if known.hosts and not other else () if row.endpoints else None
    return Ways(hosts, (*own, *_written_down(known, seen)), (), known, seen, program)


def _keyed(service: Service, row: AgentRow, env: Mapping[str, str]) -> Keyed | None:
    """A service by way of the proxy; None: the program has to go there itself.

    An address without TLS is one of this machine or near it, which a program behind the wall reaches in no other way.
    """
    url = (env.get(service.address) if service.address else None) or service.usual
    secret = service.secret or env.get(service.key, "")
    near = url.lower().startswith("http:")
    if not url or not (near or (secret and row.key != "env")):
        return None
    try:
        route = Route(service.name, url.rstrip("/"), service.header, service.words, Key(secret))
    except ValueError:
        return None
    return Keyed(service, route, row.key != "env")


def _written_down(known: Known, env: Mapping[str, str]) -> Iterator[str]:
    """Addresses in the settings of the program that are copied into the job's home: whoever wrote them means them."""
    home = Path(env.get("HOME") or Path.home())
    for name in dict.fromkeys(name for name, _ in known.settings):
        try:
            content = read_plain(home / name, _MOST_BYTES)
        except OSError:
            continue
        yield from dict.fromkeys(found.decode("ascii") for found in _ADDRESS.findall(content))
