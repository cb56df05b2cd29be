"""Warm worktrees: a folder that is no longer needed is reset to the next job's commit, not made anew."""

import asyncio
import os
import time
from collections import deque
from contextlib import suppress

from orchard.engine.world import World
from orchard.errors import OrchardError
from orchard.git.repository import Worktree
from orchard.git.wip import Saved
from orchard.git.worktrees import Worktrees
from orchard.process.failpoint import failpoint

PATIENCE = 1.0
"""Seconds that a job waits for a folder in use before it gets a new one."""
WORTH = 4
"""A new folder is worth it when jobs have waited for others this many times as long as making one takes."""


class Pool:
    """The folders below one root.

    A checkout may take seconds of everybody's processor while a folder in use comes back in a moment, so a
    job waits a little for one; how long all of them wait is bounded by what a folder more would cost.
    """

    def __init__(self, world: World, worktrees: Worktrees) -> None:
        self.world, self.worktrees = world, worktrees
        self._free: deque[Saved] = deque()
        self._in_use = 0
        self._adding = 0
        self._most_adding = os.cpu_count() or 1  # more at once only get into each other's way
        self._cost = 0.0  # seconds that the last new folder took
        self._waited = 0.0  # seconds that jobs have waited since then
        self._changed = asyncio.Event()

    async def take(self, commit: str, reason: str) -> Worktree:
        """A folder that holds exactly this commit; `reason` says whom it is for, the plan's id first."""
        keep = self.world.config.worktree.keep
        while (saved := await self._free_one()) is not None:
            try:
                await self.world.in_thread(self.worktrees.reset, saved.worktree, commit, saved, keep, reason)
            except OrchardError:
                # Its proof is spent, so it stays where it is; the next engine saves it and takes it away.
                self._in_use -= 1
                continue
            return saved.worktree
        self._adding += 1
        began = time.monotonic()
        try:
            # Git's own workers help a checkout that is alone; beside another one they only get in its way.
            alone = self._adding == 1
            worktree = await self.world.in_thread(self.worktrees.add, commit, reason, parallel=alone)
            self._cost, self._waited = time.monotonic() - began, 0.0
            self._in_use += 1
            return worktree
        finally:
            self._adding -= 1
            self._changed.set()

    async def _free_one(self) -> Saved | None:
        """A folder that nobody uses; None: make one."""
        patience = PATIENCE
        while not self._free:
            may_add = self._adding < self._most_adding
            if may_add and (not self._in_use or patience <= 0 or self._waited >= WORTH * self._cost):
                return None
            self._changed.clear()
            began = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(patience, WORTH * self._cost - self._waited) if may_add else None):
                    await self._changed.wait()
            if may_add:
                waited = time.monotonic() - began
                patience, self._waited = patience - waited, self._waited + waited
        self._in_use += 1
        return self._free.pop()

    async def give(self, saved: Saved) -> None:
        """Take back a folder whose content is saved."""
        self._in_use = max(0, self._in_use - 1)  # those of an earlier engine were not counted
        if len(self._free) < self.world.config.worktree.pool:
            self._free.append(saved)
            self._changed.set()
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
