"""Which users of this machine are at the other end of connections, as the kernel's table of sockets tells (Linux)."""

import ipaddress
import struct
from collections.abc import Iterable
from pathlib import Path

Peer = tuple[str, int]


def owners_of(peers: Iterable[Peer | None]) -> dict[Peer | None, int]:
    """The user of each peer that is on this machine; others are left out."""
    wanted = {_key(peer): peer for peer in peers if peer is not None}
    found: dict[Peer | None, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split(None, 8)
            if len(fields) > 7 and fields[1] in wanted:
                found[wanted[fields[1]]] = int(fields[7])
    return found


def _key(peer: Peer) -> str:
    """An address and port as the kernel writes them: words of the machine's own order, in hexadecimal."""
    raw = ipaddress.ip_address(peer[0].partition("%")[0]).packed
    words = struct.unpack(f"={len(raw) // 4}I", raw)
    return "".join(f"{word:08X}" for word in words) + f":{peer[1]:04X}"
