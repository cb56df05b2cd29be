"""How many may stand at the engine's door at once, so that nobody can take all of its descriptors.

Who has not shown a secret yet makes room for the next: the oldest of them is sent away. Programs of jobs stand apart:
they make room for each other, first those of the job that has most of them there, and never take the user's place. Who
shows a job token may hold so many connections, and all agents together leave some for the user, who is let in always.
Who was refused is written down, a line each, in a file beside the journal that stays small.
"""

import logging
import os
import socket
import struct
import time
from asyncio import StreamWriter
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path

from orchard.engine.turns.job_tokens import Scope
from orchard.process.families.table import LINUX, ancestors, read_token

REFUSED_FILE = "refused.log"
REFUSED_BYTES = 256 * 1024
UNGREETED = 16
OF_ONE_PASS = 64
OF_PASSES = 480
DESCRIPTORS = 65_536
"""More than an engine needs; a limit without end makes some programs slow that inherit it."""
MOST_LINES, LINES_SECONDS = 20, 60.0
"""What may be logged in a minute: nobody fills the disk by being wrong."""


class Crowd:
    def __init__(self) -> None:
        self._strangers: dict[StreamWriter, None] = {}
        self._of_jobs: dict[StreamWriter, str] = {}
        self._known: dict[StreamWriter, Scope] = {}
        self._of: Counter[Scope] = Counter()

    def enter(self, writer: StreamWriter, family: str | None) -> None:
        """Let one stand there who has said nothing yet; `family` tells programs of jobs from each other."""
        if family is not None:
            self._of_jobs[writer] = family
            if len(self._of_jobs) > UNGREETED:
                (largest, _), *_ = Counter(self._of_jobs.values()).most_common(1)
                self._send_away(next(one for one, whose in self._of_jobs.items() if whose == largest))
            return
        self._strangers[writer] = None
        if len(self._strangers) > UNGREETED:
            self._send_away(next(iter(self._strangers)))

    def _send_away(self, writer: StreamWriter) -> None:
        self._forget(writer)
        writer.transport.abort()

    def _forget(self, writer: StreamWriter) -> None:
        self._strangers.pop(writer, None)
        self._of_jobs.pop(writer, None)

    def greet(self, writer: StreamWriter, scope: Scope | None) -> str | None:
        """Let one stay who has shown a secret; or why not."""
        self._forget(writer)
        if scope is None:
            return None
        if self._of[scope] >= OF_ONE_PASS or len(self._known) >= OF_PASSES:
            return "too many connections"
        self._known[writer] = scope
        self._of[scope] += 1
        return None

    def leave(self, writer: StreamWriter) -> None:
        self._forget(writer)
        scope = self._known.pop(writer, None)
        if scope is not None:
            self._of[scope] -= 1
            self._of += Counter()  # forgets those of whom nobody is left


class Few(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self._times: deque[float] = deque(maxlen=MOST_LINES)

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if len(self._times) == MOST_LINES and self._times[0] > now - LINES_SECONDS:
            return False
        self._times.append(now)
        return True


def prepare_for_crowds() -> None:
    """As many descriptors as the system lets us have, and a log that cannot grow without end."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    log = logging.getLogger("asyncio")
    if not any(isinstance(one, Few) for one in log.filters):
        log.addFilter(Few())


def note_refusal(state: Path, peer: socket.socket, why: str) -> None:
    """Write down who came and why they were sent away; a log that cannot be written stops nobody."""
    place = state / REFUSED_FILE
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    who = "an unknown process"
    with suppress(OSError):
        if (found := peer_of(peer)) is not None:
            who = f"process {found[0]} of user {found[1]}"
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(place, flags, 0o600)
        try:
            if os.fstat(handle).st_size > REFUSED_BYTES:
                os.ftruncate(handle, 0)
            os.write(handle, f"{at} refused {who}: {why}\n".encode())
        finally:
            os.close(handle)


def family_of(peer: socket.socket) -> str | None:
    """What tells the programs of one job from others, where one of them is at the other end; None: somebody else is.

    Behind a wall with namespaces these tell; otherwise what a whole family inherits, and who is above it. Who has left
    by now, or does not let us look, is none of the user's commands that wait for an answer.
    """
    with suppress(OSError):
        if (found := peer_of(peer)) is not None and found[0] != os.getpid():
            return _family(found[0])
    return None


def _family(pid: int) -> str | None:
    if LINUX:
        try:
            for kind in ("pid", "user"):
                inside = Path(f"/proc/{pid}/ns/{kind}").readlink()
                if inside != Path(f"/proc/self/ns/{kind}").readlink():
                    return str(inside)
        except OSError:
            return "gone"
    if token := read_token(pid):
        return token.decode(errors="replace")
    above = [pid, *ancestors(pid)]
    return str(above[above.index(os.getpid()) - 1]) if os.getpid() in above else None


def peer_of(peer: socket.socket) -> tuple[int, int] | None:
    """The process and the user at the other end of a socket; None where the system cannot tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, uid
