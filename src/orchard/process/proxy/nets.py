"""Network namespaces for jobs: each has a loopback of its own with one door in it, and nothing else.

A slot is one such namespace with the listener of its door. It belongs to one job at a time, and goes back when the last
process of the job is dead: making one takes some milliseconds, and the kernel takes longer to clean it up.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path

from msgspec import Struct

from orchard.process.proxy import keeper

DOOR_PORT = keeper.PORT
"""Where the door is in every slot, on 127.0.0.1."""
START_SECONDS = 10.0


class NoNets(Exception):
    """Why there are no network namespaces here, in words for people."""


class Slot(Struct, frozen=True, eq=False):
    """One namespace: the process that keeps it, and the listener of its door, which the slot owns."""

    pid: int
    listener: socket.socket
    nsenter: str

    @property
    def enter(self) -> tuple[str, ...]:
        """What stands before a command, so that it runs in there as the same user."""
        return (self.nsenter, "--preserve-credentials", "--user", "--net", "-t", str(self.pid), "--")

    def door_listener(self) -> socket.socket:
        """A listener for one door: closing it leaves the slot's own open. What waited on it is thrown away."""
        _empty(self.listener)
        return self.listener.dup()


class Nets:
    """All slots of an engine, and the keeper process that they live by."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: list[subprocess.Popen[bytes]] = []
        self._socket: socket.socket | None = None
        self._nsenter = ""
        self._asked: deque[asyncio.Future[Slot]] = deque()
        self._free: list[Slot] = []
        self._taken: set[Slot] = set()

    async def take(self) -> Slot:
        """A slot that no other job has; raises NoNets where there can be none."""
        if self._free:
            slot = self._free.pop()
            self._taken.add(slot)
            return slot
        self._start()
        if self._socket is None:
            raise NoNets("The keeper of network namespaces did not start.")
        answer: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self._socket.sendall(b"+")
        try:
            async with asyncio.timeout(START_SECONDS):
                slot = await answer
        except TimeoutError:
            raise NoNets("The keeper of network namespaces does not answer.") from None
        self._taken.add(slot)
        return slot

    def give_back(self, slot: Slot) -> None:
        """The last process of the job is dead: another may have it."""
        if slot in self._taken:
            self._taken.discard(slot)
            _empty(slot.listener)
            self._free.append(slot)

    def discard(self, slot: Slot) -> None:
        """There may be a process of the job in it still: it is never used again, and has no door any more."""
        if slot in self._taken:
            self._taken.discard(slot)
            slot.listener.close()
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.sendall(b"-%d" % slot.pid)

    async def close(self) -> None:
        """End the keeper and all that lives by it."""
        self._lost()
        for process in self._ending:
            # It ends at once. We wait in no thread: a machine that is out of processes has none.
            while process.poll() is None:  # noqa: ASYNC110 (nothing tells of it)
                await asyncio.sleep(0.003)
        self._ending.clear()

    def _start(self) -> None:
        """Start the keeper, where there is none or the last one has died."""
        if self._process is not None and self._process.poll() is None:
            return
        self._lost()
        nsenter = shutil.which("nsenter")
        if nsenter is None:
            raise NoNets("The program 'nsenter' (util-linux) is not installed.")
        if not Path("/proc/self/ns/user").exists() or not Path("/proc/self/ns/net").exists():
            raise NoNets("This system has no user or network namespaces.")
        self._nsenter = nsenter
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            # Nothing of our environment: what lives beside jobs shall hold no secret.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(its.fileno())],
                pass_fds=(its.fileno(),), env={}, cwd="/", process_group=0,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)

    def _hear(self) -> None:
        if self._socket is None:
            return
        try:
            said, fds, _, _ = socket.recv_fds(self._socket, 1024, 1)
        except BlockingIOError:
            return
        except OSError:
            said, fds = b"", []
        if not said:
            self._lost()
            return
        answer = said.decode()
        waiting = self._asked.popleft()
        if not answer.isdecimal() or not fds:
            if not waiting.done():
                waiting.set_exception(NoNets(_words(answer)))
            return
        slot = Slot(int(answer), socket.socket(fileno=fds[0]), self._nsenter)
        slot.listener.setblocking(False)
        os.set_inheritable(slot.listener.fileno(), False)
        if waiting.done():
            self._free.append(slot)  # who asked for it waits no more
        else:
            waiting.set_result(slot)

    def _lost(self) -> None:
        """The keeper is gone or is to go: closing our end of its socket is what ends it."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._ending.append(self._process)
            self._process = None
        self._ending = [process for process in self._ending if process.poll() is None]
        for slot in (*self._free, *self._taken):
            slot.listener.close()
        self._free.clear()
        self._taken.clear()
        for waiting in self._asked:
            if not waiting.done():
                waiting.set_exception(NoNets("The keeper of network namespaces has ended."))
        self._asked.clear()


def _words(problem: str) -> str:
    """What the kernel said, with what it means."""
    if problem.startswith("unshare"):
        return f"This system lets {_who()} make no user namespace ({problem})."
    return f"A network namespace could not be set up ({problem})."


def _who() -> str:
    return "root" if os.geteuid() == 0 else "an ordinary user"


def _empty(listener: socket.socket) -> None:
    """Throw away connections that wait on a listener: who made them is dead, and what they ask is not this job's."""
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()
