"""Connections to the outside: a name is resolved once, each of its addresses is judged, one that passed is called."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from orchard.model.addresses import Address, parsed
from orchard.process.proxy.addresses import is_this_machine
from orchard.process.proxy.wires import Wire

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, the best first; raises OSError."""
Judge = Callable[[Address], str | None]
"""Why an address may not be called, as one word."""

RESOLVERS = 4
MOST_ADDRESSES = 6
ADDRESS_SECONDS = 5.0
"""So long one address may take to answer while there is another."""
DIAL_SECONDS = 20.0


class RefusedAddress(Exception):
    """A name that leads only to where this job may not go."""

    def __init__(self, reason: str, address: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.address = address


class Unreachable(Exception):
    """A host that may be reached and cannot be; the words say why."""


class Dialer:
    """Who calls others for all jobs. Names are looked up in threads of their own: jobs cannot take up the engine's."""

    def __init__(self, resolve: Resolve | None = None, seconds: float = DIAL_SECONDS) -> None:
        self._threads = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="proxy-names")
        self._resolve = resolve or self._ask_system
        self._seconds = seconds

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def dial(self, host: str, port: int, judge: Judge, tls: ssl.SSLContext | None = None) -> Wire:
        """A connection to a host in its canonical spelling; raises RefusedAddress or Unreachable."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._first(await self._addresses(host, port, judge), port, tls, host)
        except TimeoutError:
            raise Unreachable("it does not answer") from None

    async def _addresses(self, host: str, port: int, judge: Judge) -> list[Address]:
        literal = parsed(host)
        if literal is None:
            try:
                texts = await self._resolve(host, port)
            except OSError as error:
                raise Unreachable(f"its name is not known ({error.strerror or error})") from None
            # An address with a scope (`%eth0`) is none that is parsed, and so none that is called.
            found = [address for text in texts if (address := parsed(text)) is not None]
        else:
            found = [literal]
        verdicts = [(address, judge(address)) for address in dict.fromkeys(found)]
        good = [address for address, reason in verdicts if reason is None]
        if not verdicts:
            raise Unreachable("its name has no address")
        if not good:
            address, reason = verdicts[0]
            raise RefusedAddress(str(reason), str(address))
        return good[:MOST_ADDRESSES]

    async def _first(self, addresses: list[Address], port: int, tls: ssl.SSLContext | None, host: str) -> Wire:
        words = ""
        for address in addresses:
            last = address is addresses[-1]
            try:
                async with asyncio.timeout(None if last else ADDRESS_SECONDS):
                    return await _connected(address, port, tls, host)
            except TimeoutError:
                if last:
                    raise
            except ssl.SSLError as error:
                words = f"TLS: {error.reason or error}"
            except OSError as error:
                words = error.strerror or str(error)
        raise Unreachable(words or "it does not answer")

    async def _ask_system(self, host: str, port: int) -> Sequence[str]:
        def ask() -> list[str]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return [str(row[4][0]) for row in found]

        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)


async def _connected(address: Address, port: int, tls: ssl.SSLContext | None, host: str) -> Wire:
    # The address is a number here: the loop looks up nothing any more.
    loop = asyncio.get_running_loop()
    if tls is None:
        return (await loop.create_connection(Wire, str(address), port))[1]
    return (await loop.create_connection(Wire, str(address), port, ssl=tls, server_hostname=host))[1]


def not_this_machine(judge: Judge, exempt: Callable[[Address], bool]) -> Judge:
    """A judge that also refuses public addresses which are this machine's own, but for those that are exempt."""

    def judged(address: Address) -> str | None:
        reason = judge(address)
        if reason is None and not exempt(address) and is_this_machine(address):
            return "this-machine"
        return reason

    return judged
