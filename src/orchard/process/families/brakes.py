"""Processes that we have stopped, and for whom: each goes on when the last holder lets it go.

A process that a person or a debugger stopped is not in the list, and we never continue it.
"""

import signal
import threading
from collections.abc import Iterable

from orchard.process.families.exits import send
from orchard.process.families.identity import Identity

_held: dict[Identity, set[object]] = {}
_lock = threading.Lock()


def stop(identity: Identity, stopped: bool, holder: object) -> bool:
    """Stop a process for a holder; one that is `stopped` already, but not by us, is left as it is.

    False where we may not: it has other rights than we have, which no program behind a wall can get.
    """
    with _lock:
        if not stopped and not send(identity, signal.SIGSTOP):
            return False
        if not stopped or identity in _held:
            _held.setdefault(identity, set()).add(holder)
    return True


def nudge(identity: Identity) -> None:
    """Let one that we stopped take a few steps; who holds it stops it again."""
    with _lock:
        if identity in _held:
            send(identity, signal.SIGCONT)


def release(identities: Iterable[Identity], holder: object) -> None:
    """Let those go on that have no other holder."""
    with _lock:
        for identity in identities:
            holders = _held.get(identity, set())
            holders.discard(holder)
            if not holders and _held.pop(identity, None) is not None:
                send(identity, signal.SIGCONT)


def is_held(identity: Identity) -> bool:
    return identity in _held
