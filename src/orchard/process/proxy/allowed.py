"""What a job may reach: a list of hosts and ports, and the verdict on one request.

An address that is not public is reached only where the user's own settings name this very address. A plan cannot name
it, and a name that resolves to it is not enough.
"""

from typing import Literal, Self

from msgspec import Struct

from orchard.model.addresses import Address, objection
from orchard.model.endpoints import Entry, entry, problem

Reach = Literal["public", "listed", "nothing"]
"""Everything that is public; only what is on the list; nothing at all."""


class Allowed(Struct, frozen=True):
    """What one job may reach."""

    reach: Reach = "listed"
    entries: tuple[Entry, ...] = ()
    own: tuple[Entry, ...] = ()
    """Those of the entries that stand in the user's own settings: they may name an address that is not public."""

    @classmethod
    def of(cls, reach: Reach, listed: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> Self:
        """From lists as they are written, without the lines in which `problem` finds one."""
        trusted = tuple(entry(text) for text in own if problem(text, own=True) is None)
        others = tuple(entry(text) for text in listed if problem(text) is None)
        return cls(reach, (*others, *trusted), trusted)

    def refuses(self, host: str, port: int) -> str | None:
        """Why a host may not even be looked up; None: its addresses decide."""
        if any(one.covers(host, port) for one in self.entries):
            return None
        if self.reach == "public":
            return None
        return "not-listed" if self.reach == "listed" else "network-off"

    def refuses_address(self, address: Address, port: int) -> str | None:
        """Why an address may not be connected to, once it is known that its name may be reached."""
        if self.names(address, port):
            return None
        return objection(address)

    def names(self, address: Address, port: int) -> bool:
        """Whether the user's own settings name this very address."""
        return any(one.address == address and one.covers(str(address), port) for one in self.own)
