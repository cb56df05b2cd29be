"""Warm worktrees: a folder that is no longer needed is reset to the next job's commit, not made anew."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from orchard.engine.world import World
from orchard.errors import OrchardError
from orchard.git.repository import Worktree
from orchard.git.wip import Saved
from orchard.git.worktrees import Worktrees
from orchard.process.failpoint import failpoint

PATIENCE = 1.0
"""Seconds that somebody waits for a folder which another job gives back."""


class Pool:
    """The free folders below one root."""

    def __init__(self, world: World, worktrees: Worktrees) -> None:
        self.world, self.worktrees = world, worktrees
        self._free: deque[Saved] = deque()
        self._adding = 0
        self._coming = 0
        self._came = asyncio.Event()

    async def take(self, commit: str, reason: str) -> Worktree:
        """A folder that holds exactly this commit."""
        keep = self.world.config.worktree.keep
        await self._wait_for_a_free_one()
        while self._free:
            saved = self._free.pop()
            try:
                async with self.world.checkouts:
                    await self.world.in_thread(self.worktrees.reset, saved.worktree, commit, saved, keep)
            except OrchardError:
                # Its proof is spent, so it stays where it is; the next engine saves it and takes it away.
                continue
            return saved.worktree
        async with self.world.checkouts:
            # Git's own workers help a checkout that is alone; beside another one they only get in its way.
            self._adding += 1
            try:
                alone = self._adding == 1
                return await self.world.in_thread(self.worktrees.add, commit, reason, parallel=alone)
            finally:
                self._adding -= 1

    @contextmanager
    def coming(self) -> Iterator[None]:
        """Inside the `with` somebody is about to give a folder back."""
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1
            self._came.set()

    async def _wait_for_a_free_one(self) -> None:
        """Wait for a folder that is just being given back: that takes a moment, a new one may take seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not self._free and self._coming:
                    self._came.clear()
                    await self._came.wait()

    async def give(self, saved: Saved) -> None:
        """Take back a folder whose content is saved."""
        if len(self._free) < self.world.config.worktree.pool:
            self._free.append(saved)
        else:
            await self.world.in_thread(self.worktrees.remove, saved.worktree, saved)

    async def close(self) -> list[str]:
        """Remove every free folder; returns what could not be deleted."""
        failpoint("pool.before-close")
        while self._free:
            saved = self._free.pop()
            try:
                await self.world.in_thread(self.worktrees.remove, saved.worktree, saved)
            except OrchardError:
                continue
        problems = await self.world.in_thread(self.worktrees.empty_trash)
        await self.world.in_thread(self.worktrees.drop_empty_root)
        return problems
