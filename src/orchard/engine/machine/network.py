"""The way out of programs behind a wall: one proxy per engine, and a door for each program or turn.

Behind bubblewrap a program stands in a network namespace with nothing in it but its door; behind Landlock it may
connect to the port of its door only, which asks for a token. What a door lets through is said by who opens it: for
programs of the plan whatever is public, for an agent its model's endpoints and what the plan allows it. Ports of this
machine are reached by no one, unless the user's own settings name their address.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property

from msgspec.structs import replace

from orchard.process.proxy.allowed import Allowed
from orchard.process.proxy.doors import Door, Proxy
from orchard.process.proxy.nets import DOOR_PORT, Nets, NoNets, Slot
from orchard.process.proxy.refusals import Refusal
from orchard.process.proxy.routes import Route
from orchard.process.sandbox.policy import SandboxError
from orchard.process.sandbox.wall import Wall

Tell = Callable[[Refusal], None]


class Network:
    """What an engine has for the network of all its jobs; made when the first program needs it."""

    @cached_property
    def _proxy(self) -> Proxy:
        return Proxy()

    @cached_property
    def _nets(self) -> Nets:
        return Nets()

    @asynccontextmanager
    async def door(
        self, wall: Wall, allowed: Allowed, tell: Tell, routes: Sequence[Route] = ()
    ) -> AsyncIterator[tuple[Wall, Door | None]]:
        """The wall with a door in it for the time of the block; every program behind it has ended by then."""
        if wall.policy.network == "off":
            yield wall, None
            return
        if wall.level == "landlock":
            door = Door.with_token(self._proxy, allowed, routes, refused=tell)
            async with _open(door):
                yield _with_door(wall, door, door.port, None), door
            return
        slot = await self._take()
        try:
            listener = slot.door_listener()
            door = Door(self._proxy, listener, allowed, routes, refused=tell, keeper=slot.pid)
            async with _open(door):
                yield _with_door(wall, door, DOOR_PORT, slot.pid), door
        except BaseException:
            # A program of it may be left that no signal has reached.
            self._nets.discard(slot)
            raise
        self._nets.give_back(slot)

    async def _take(self) -> Slot:
        try:
            return await self._nets.take()
        except NoNets as error:
            hint = 'Set network: off for programs that need none, or sandbox = "landlock".'
            raise SandboxError(f"Programs behind the wall cannot be given a network. {error}", hint=hint) from error

    async def close(self) -> None:
        if "_nets" in self.__dict__:
            await self._nets.close()
        if "_proxy" in self.__dict__:
            self._proxy.close()


@asynccontextmanager
async def _open(door: Door) -> AsyncIterator[None]:
    door.open()
    try:
        yield
    finally:
        await door.close()


def _with_door(wall: Wall, door: Door, port: int, keeper: int | None) -> Wall:
    policy = replace(wall.policy, network="proxy", proxy_port=port, netns=keeper)
    return replace(wall, policy=policy, env={**wall.env, **door.environment()})
