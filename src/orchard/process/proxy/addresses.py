"""Addresses of this very machine, which the kernel knows best."""

import socket
from ipaddress import IPv4Address

from orchard.model.addresses import Address, parsed


def is_this_machine(address: Address) -> bool:
    """Whether an address, public or not, is one of this machine's: then the kernel would speak from the same address.

    Nothing is sent: a datagram socket that is connected has only looked up its route.
    """
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            own = parsed(probe.getsockname()[0])
    except OSError:
        return False  # no way leads there, so the connection will fail as well
    return own == address
