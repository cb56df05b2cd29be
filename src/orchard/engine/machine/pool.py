"""Warm worktrees: a worktree that is no longer needed is reset to the next job's commit, not made anew."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from orchard.engine.world import World
from orchard.errors import OrchardError
from orchard.git.folders import remove_file
from orchard.git.refs import wip_ref
from orchard.git.repository import Worktree
from orchard.git.worktree.fitness import Ready, Unfit, beside, take_stock
from orchard.git.worktree.save import Saved, ensure_saved
from orchard.git.worktree.worktrees import ProofIsOld, Worktrees
from orchard.model.plan import STRAYS
from orchard.process.failpoint import failpoint
from orchard.process.families.occupants import EVER, Occupant, occupants
from orchard.process.families.table import Moment, moment

PATIENCE = 1.0
"""Seconds that a job waits for a worktree in use before it gets a new one."""
WORTH = 4
"""A new worktree is worth it when jobs have waited for others this many times as long as making one takes."""


class Occupied(OrchardError):
    def __init__(self, worktree: Worktree, who: Occupant) -> None:
        super().__init__(
            f"The worktree {worktree.path} is not used again: process {who.pid} {who.how}.",
            hint="It goes when Orchard next starts after that process has left.",
        )


class Pool:
    """The worktrees below one root.

    A checkout may take seconds of everybody's processor while a worktree in use comes back in a moment, so a
    job waits a little for one; how long all of them wait is bounded by what a worktree more would cost.
    """

    def __init__(self, world: World, worktrees: Worktrees, notes: list[str] | None = None) -> None:
        self.world, self.worktrees = world, worktrees
        self._notes = notes if notes is not None else []  # for a person to read
        self._made: dict[str, Moment] = {}  # when each folder was made, as far as that was here
        self._occupied: list[Saved] = []
        self._spent: list[Saved] = []  # could not be made ready for a job: a git died there, or the disk was full
        self._ready_for: dict[str, Ready] = {}
        self._free: deque[Saved] = deque()
        self._in_use: set[str] = set()  # the names of those that a job gives back in a while
        self._adding = 0
        self._most_adding = os.cpu_count() or 1  # more at once only get into each other's way
        self._cost = 0.0  # seconds that the last new worktree took
        self._waited = 0.0  # seconds that jobs have waited since then
        self._changed = asyncio.Event()

    async def take(self, commit: str, reason: str, setup: str | None = None) -> Worktree:
        """A worktree that holds exactly this commit; `reason` says whom it is for, the plan's id first.

        `setup` says how it will be set up: where it was set up just so, what that left is kept, see `is_ready`.
        """
        while (saved := await self._free_one()) is not None:
            try:
                return await self._ready(partial(self._reset, saved, commit, reason, setup), commit)
            except Occupied as error:
                self._notes.append(error.message)
                self._occupied.append(saved)
                self.leave(saved.worktree)
            except (Unfit, OSError):
                await self._drop(saved)
            except OrchardError:
                self._spent.append(saved)  # its proof is: it is saved again before it goes
                self.leave(saved.worktree)
            except asyncio.CancelledError:
                self.leave(saved.worktree)
                raise
        self._adding += 1
        began = time.monotonic()
        try:
            # Git's own workers help a checkout that is alone; beside another one they only get in its way.
            alone = self._adding == 1
            made = moment()
            worktree = await self._ready(lambda: self.worktrees.add(commit, reason, parallel=alone), commit)
            self._made[worktree.name] = made
            self._cost, self._waited = time.monotonic() - began, 0.0
            return worktree
        finally:
            self._adding -= 1
            self._changed.set()

    def _reset(self, saved: Saved, commit: str, reason: str, setup: str | None) -> Worktree:
        self._check_occupants(saved.worktree)
        keep, worktree = self.world.config.worktree.keep, saved.worktree
        ready = self._ready_for.pop(worktree.name, None)
        if ready is None or ready.key != setup or (more := beside(self.world.repo, worktree, ready, keep)) is None:
            self._reset_surely(saved, commit, keep, reason)
            return worktree
        self._reset_surely(saved, commit, None, reason)
        for name in more:
            remove_file(worktree.path, name)
        self._ready_for[worktree.name] = ready
        return worktree

    def _reset_surely(self, saved: Saved, commit: str, keep: tuple[str, ...] | None, reason: str) -> None:
        try:
            self.worktrees.reset(saved.worktree, commit, saved, keep, reason)
        except ProofIsOld:
            self.worktrees.reset(saved.worktree, commit, self._save_again(saved), keep, reason)

    async def _drop(self, saved: Saved) -> None:
        """Remove a worktree that is not used again; what cannot be removed now goes with the others."""
        try:
            await self.world.in_thread(self._remove, saved)
        except OrchardError:
            self._spent.append(saved)
        self.leave(saved.worktree)

    def _remove(self, saved: Saved) -> None:
        try:
            self.worktrees.remove(saved.worktree, saved)
        except ProofIsOld:
            self._remove_spent(saved)

    def _remove_free(self) -> None:
        """Remove every free worktree, some at a time; what cannot be removed stays for the next engine."""
        with ThreadPoolExecutor(self._most_adding, "orchard-remove") as threads:
            going = [threads.submit(self._remove, saved) for saved in self._free]
        self._free.clear()
        for gone in going:
            with suppress(OrchardError, OSError):
                gone.result()

    def _remove_spent(self, saved: Saved) -> None:
        self.worktrees.remove(saved.worktree, self._save_again(saved))

    def _save_again(self, saved: Saved) -> Saved:
        """Save what somebody has put into a worktree after it was saved, and while no job had it."""
        name, why = saved.worktree.name, "orchard: found in a worktree that no job had"
        return ensure_saved(self.world.repo, saved.worktree, wip_ref(STRAYS, name, 1), why, saved.head or "")

    def _check_occupants(self, worktree: Worktree) -> None:
        """A job never shares its worktree: who is in one that is free may be anybody, and is not ended."""
        if found := self._occupants(worktree):
            raise Occupied(worktree, found[0])

    def _occupants(self, worktree: Worktree) -> list[Occupant]:
        return occupants(worktree.path, self._made.get(worktree.name, EVER))

    async def note_ready(self, worktree: Worktree, setup: str) -> None:
        ready = await self.world.in_thread(take_stock, self.world.repo, worktree, setup)
        if ready is not None:
            self._ready_for[worktree.name] = ready

    def is_ready(self, worktree: Worktree, setup: str) -> bool:
        ready = self._ready_for.get(worktree.name)
        return ready is not None and ready.key == setup

    async def _ready(self, step: Callable[[], Worktree], commit: str) -> Worktree:
        """The worktree that a step makes ready; the one that nobody waits for any more goes back at once."""
        made: list[Worktree] = []
        try:
            await self.world.in_thread(lambda: made.append(step()))
        except asyncio.CancelledError:
            for worktree in made:
                await self._take_back(worktree, commit)
            raise
        self._in_use.add(made[0].name)
        return made[0]

    async def _take_back(self, worktree: Worktree, commit: str) -> None:
        """Have a worktree again that nobody has worked in; one that is not as we made it stays where it is."""
        ref, trees, live = wip_ref(STRAYS, worktree.name, 1), self.worktrees, self.world.integration.live

        def save() -> Saved:
            why = "orchard: found in a worktree that no job had"
            return ensure_saved(trees.repo, worktree, ref, why, commit, live, made_from=trees.made_from(worktree))

        try:
            await self.give(await self.world.in_thread(save))
        except OrchardError:
            self.leave(worktree)

    def leave(self, worktree: Worktree) -> None:
        """Count no longer on a worktree: whoever has it keeps it for a person to look at."""
        self._in_use.discard(worktree.name)
        self._changed.set()

    def keep(self, worktree: Worktree) -> None:
        self._in_use.add(worktree.name)

    async def _free_one(self) -> Saved | None:
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
        saved = self._free.pop()
        self._in_use.add(saved.worktree.name)
        return saved

    async def give(self, saved: Saved) -> None:
        self._in_use.discard(saved.worktree.name)
        # A checkout leaves submodules as they are: the next job would find those of this one.
        if saved.submodules is None and len(self._free) < self.world.config.worktree.pool:
            self._free.append(saved)
            self._changed.set()
        else:
            await self.world.in_thread(self._remove, saved)

    async def close(self) -> list[str]:
        """Remove every free worktree; returns what could not be deleted."""
        failpoint("pool.before-close")
        self._free.extend(saved for saved in self._occupied if not self._occupants(saved.worktree))
        self._occupied.clear()
        await self.world.in_thread(self._remove_free)
        for saved in self._spent:
            with suppress(OrchardError, OSError):  # then it stays; the next engine saves it and removes it
                await self.world.in_thread(self._remove_spent, saved)
        problems = await self.world.in_thread(self.worktrees.empty_trash)
        await self.world.in_thread(self.worktrees.drop_empty_root)
        return problems
