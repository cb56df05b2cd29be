"""Who was refused at the engine's door: a line each, in a file beside the journal that stays small."""

import os
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

REFUSED_FILE = "refused.log"
MOST_BYTES = 256 * 1024


def note_refusal(state: Path, peer: socket.socket, why: str) -> None:
    """Write down who came and why they were sent away; a log that cannot be written stops nobody."""
    place = state / REFUSED_FILE
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(place, flags, 0o600)
        try:
            if os.fstat(handle).st_size > MOST_BYTES:
                os.ftruncate(handle, 0)
            os.write(handle, f"{at} refused {_who(peer)}: {why}\n".encode())
        finally:
            os.close(handle)


def _who(peer: socket.socket) -> str:
    if not hasattr(socket, "SO_PEERCRED"):
        return "somebody"
    with suppress(OSError):
        pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return f"process {pid} of user {uid}"
    return "somebody"
