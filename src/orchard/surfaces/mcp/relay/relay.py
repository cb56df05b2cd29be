"""`orchard mcp`: the process that a host starts. It hands on lines between the host and the daemon, and no more.

The daemon has the engine, the tools and the SDK; this process has a poll loop. While it looks for a daemon, or starts
one, in a thread, it answers what is written down (`greeting`). When the daemon dies it finds the next one (`relaying`
says what that one is told). When the host closes stdin it ends at once, and plans go on without it.
"""

import os
import select
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orchard.errors import EXIT_CANCELED, EXIT_FAILED, OrchardError, SystemRefused, UsageError
from orchard.surfaces.mcp.relay.engine_connection import Joined, NoDaemon, Wanted, join
from orchard.surfaces.mcp.relay.handshake_cache import read_greeting
from orchard.surfaces.mcp.relay.state import Desk
from orchard.surfaces.mcp.server.frames import Lines
from orchard.surfaces.next_steps import told

READ_BYTES = 64 * 1024
WRITE_BYTES = 4096
"""What a pipe that can be written to always takes at once."""
FULL_BYTES = 8 * 1024 * 1024
"""Once so much waits to be written, nothing more is read."""
LOOK_AGAIN = 2000
"""Milliseconds after which a client that only listens looks whether there is a daemon again."""

LAST_WORDS = 500
"""Milliseconds that a host which has closed stdin may take to read on."""

STDIN, STDOUT = 0, 1


class Relay:
    """One host at stdin and stdout, and the daemon that answers it."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        # An agent in a job is offered something else than what is written down.
        self._desk = Desk(None if wanted.pass_file is not None else read_greeting(wanted.selection))
        self._lines = Lines()
        self._server: Joined | None = None
        self._server_lines = Lines()
        self._joining = False
        self._found: list[Joined | OrchardError] = []
        self._only_looked = False
        """Whether the search that is under way, or was the last, was not to start anything."""
        self._woken, self._wake = os.pipe()

    def run(self) -> int:
        """Hand on lines until the host has gone."""
        self._join(start=True)
        try:
            while True:
                self._step()
        except _HostGone:
            self._write_rest()
            return 0

    def _step(self) -> None:
        desk = self._desk
        poll = select.poll()
        full = len(desk.out) >= FULL_BYTES
        if not full and len(desk.to_server) < FULL_BYTES:
            poll.register(STDIN, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        # POLLERR is always told: a host that no longer reads is seen also while there is nothing to say.
        poll.register(STDOUT, select.POLLOUT if desk.out else 0)
        if self._server is not None:
            events = (0 if full else select.POLLIN) | (select.POLLOUT if desk.to_server else 0)
            poll.register(self._server.socket, events)
        idle = desk.listens and self._server is None and not self._joining
        ready = dict(poll.poll(LOOK_AGAIN if idle else None))
        if STDOUT in ready:
            self._write_out(ready[STDOUT])
        if self._woken in ready:
            self._take_found()
        if self._server is not None and self._server.socket.fileno() in ready:
            self._serve(self._server)
        if STDIN in ready:
            self._read_in()
        if idle and not ready:
            self._join(start=False)
        elif desk.wants_server and self._server is None:
            self._join(start=True)

    # -------------------------------------------------------------------------------------- the host

    def _read_in(self) -> None:
        data = os.read(STDIN, READ_BYTES)
        if not data:
            raise _HostGone()
        for line in self._lines.feed(data):
            self._desk.hear(line)

    def _write_out(self, event: int) -> None:
        out = self._desk.out
        try:
            if out and event & select.POLLOUT:
                del out[: os.write(STDOUT, out[:WRITE_BYTES])]
            elif event & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                raise _HostGone()
        except BlockingIOError:
            return
        except OSError as error:
            raise _HostGone() from error

    def _write_rest(self) -> None:
        """Say what is said already; a host that does not take it is not waited for."""
        poll = select.poll()
        poll.register(STDOUT, select.POLLOUT)
        with suppress(OSError):
            while self._desk.out and any(event & select.POLLOUT for _, event in poll.poll(LAST_WORDS)):
                del self._desk.out[: os.write(STDOUT, self._desk.out[:WRITE_BYTES])]

    # ------------------------------------------------------------------------------------ the daemon

    def _serve(self, server: Joined) -> None:
        """Write and read as much as goes without waiting."""
        try:
            if self._desk.to_server:
                with suppress(BlockingIOError):
                    del self._desk.to_server[: server.socket.send(self._desk.to_server[:READ_BYTES])]
            data = server.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self._lose(server)

    def _take(self, data: bytes) -> None:
        for line in self._server_lines.feed(data):
            self._desk.take(line)

    def _lose(self, server: Joined) -> None:
        server.socket.close()
        self._server = None
        self._desk.disconnect()
        if self._wanted.pass_file is None:
            _say("the daemon went away")

    def _join(self, *, start: bool) -> None:
        """Look for a daemon in a thread; one search at a time."""
        if not self._joining:
            self._joining, self._only_looked = True, not start
            threading.Thread(target=self._search, args=(start,), daemon=True).start()

    def _search(self, start: bool) -> None:
        found: Joined | OrchardError
        try:
            found = join(self._wanted, start=start)
        except OrchardError as error:
            found = error
        except OSError as error:
            found = SystemRefused(error)
        except Exception as error:  # a thread that dies of a bug would leave the host waiting for ever
            found = NoDaemon(f"Orchard could not look for its daemon: {error!r}")
        self._found.append(found)
        os.write(self._wake, b"!")

    def _take_found(self) -> None:
        os.read(self._woken, READ_BYTES)
        self._joining = False
        for found in self._found:
            if isinstance(found, Joined):
                self._server, self._server_lines = found, Lines()
                self._desk.connect(found.read_only)
                self._take(found.read)
            elif not self._only_looked:
                if self._desk.wants_server or not isinstance(found, NoDaemon):
                    _say(told(found))
                self._desk.give_up(told(found))
        self._found.clear()


class _HostGone(Exception):
    """Nobody talks to us any more, or nobody listens."""


def _say(text: str) -> None:
    """Tell whoever reads the host's log."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"orchard mcp: {text}\n")
        sys.stderr.flush()


def parse_words(words: Sequence[str]) -> Wanted:
    """What the words after `orchard mcp` mean; UsageError for one that means nothing."""
    lists: dict[str, list[str]] = {"--toolsets": [], "--tools": [], "--exclude-tools": []}
    folder, pass_file, read_only = Path(), None, False
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name == "--read-only" and not equals:
            read_only = True
            continue
        if name not in (*lists, "-C", "--repo", "--pass"):
            raise UsageError(f"'orchard mcp' knows no '{name}'.", "orchard mcp --help")
        if not equals and not rest:
            raise UsageError(f"'{name}' needs a value.", "orchard mcp --help")
        value = value if equals else rest.pop(0)
        if name in lists:
            lists[name].append(value)
        elif name == "--pass":
            pass_file = Path(value)
        else:
            folder = folder / value
    return Wanted(
        folder.absolute(),
        tuple(lists["--toolsets"]),
        tuple(lists["--tools"]),
        tuple(lists["--exclude-tools"]),
        read_only,
        pass_file,
    )


def relay(wanted: Wanted) -> int:
    """Be the server of the host that started us; the answer is an exit code."""
    try:
        return Relay(wanted).run()
    except KeyboardInterrupt:
        return EXIT_CANCELED


def main(words: Sequence[str]) -> int:
    """`python -m orchard.surfaces.mcp.relay.relay`, which an agent in a job is given."""
    try:
        return relay(parse_words(words))
    except OSError as error:  # the folder in which it was started is gone, for one
        _say(SystemRefused(error).message)
        return EXIT_FAILED
    except OrchardError as error:
        _say(told(error))
        return error.exit_code


if __name__ == "__main__":
    # Taking the interpreter apart would wait for a thread that may look for a daemon.
    os._exit(main(sys.argv[1:]))
