"""Warm worktrees: a worktree that is no longer needed is reset to the next job's commit, not made anew."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from orchard.engine.world import World
from orchard.errors import OrchardError
from orchard.git.dependencies.kept import (
    WHY,
    WORTH,
    Kept,
    checkout_rules,
    claim,
    is_sparse,
    kept_worktrees,
    note_kept,
    ready_of,
    usable_root,
    weight,
)
from orchard.git.folders import remove_file
from orchard.git.merge.merge import Below
from orchard.git.refs import wip_ref
from orchard.git.repository import Worktree
from orchard.git.worktree.fitness import Ready, Unfit, beside, stays_ignored, take_stock
from orchard.git.worktree.save import Saved, ensure_saved
from orchard.git.worktree.status import indexed, look
from orchard.git.worktree.worktrees import ProofIsOld, Worktrees
from orchard.model.plan import STRAYS
from orchard.process.failpoint import failpoint
from orchard.process.families.occupants import EVER, Occupant, occupants
from orchard.process.families.table import Moment, moment

PATIENCE = 1.0
"""Seconds that a job waits for a worktree in use before it gets a new one."""
FOR_NEXT = "kept for the next run"
WORTH_WAITING = 4
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
        self._looking = asyncio.Lock()
        self._waiting: list[Kept] | None = None  # kept by an earlier engine; None: nobody has looked yet

    async def take(self, commit: str, reason: str, setup: str | None = None) -> Worktree:
        """A worktree that holds exactly this commit; `reason` says whom it is for, the plan's id first.

        `setup` says how it will be set up: where it was set up just so, what that left is kept, see `is_ready`.
        """
        await self._take_over_one(setup)
        while (saved := await self._free_one(setup)) is not None:
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

    def _reset(
        self, saved: Saved, commit: str, reason: str, setup: str | None, keep: tuple[str, ...] | None = None
    ) -> Worktree:
        """Make a worktree ready for a job; `keep`: ignored paths that stay, where the settings do not decide."""
        self._check_occupants(saved.worktree)
        keep, worktree = self.world.config.worktree.keep if keep is None else keep, saved.worktree
        ready = self._ready_for.pop(worktree.name, None)
        more = self._beside(worktree, ready, keep, commit) if ready is not None and ready.key == setup else None
        if ready is None or more is None:
            self._reset_surely(saved, commit, keep, reason)
            return worktree
        self._reset_surely(saved, commit, None, reason)
        # Asked again, now that the index is ours: a job may have added ignored files to its own, and hidden them so.
        more = beside(self.world.repo, worktree, ready, keep)
        if more is None:
            raise Unfit(worktree.path, "what set it up has changed")
        for name in more:
            remove_file(worktree.path, name)
        self._ready_for[worktree.name] = replace(ready, commit=commit)
        return worktree

    def _beside(self, worktree: Worktree, ready: Ready, keep: tuple[str, ...], commit: str) -> list[bytes] | None:
        """What goes although what setting up left may stay for a job at a commit; None: all of it goes."""
        if not stays_ignored(self.world.integration.objects, ready, commit):
            return None
        return beside(self.world.repo, worktree, ready, keep)

    def _reset_surely(self, saved: Saved, commit: str, keep: tuple[str, ...] | None, reason: str | None) -> None:
        try:
            self.worktrees.reset(saved.worktree, commit, saved, keep, reason)
        except ProofIsOld:
            self.worktrees.reset(saved.worktree, commit, self._save_again(saved), keep, reason)

    async def clean(self, saved: Saved, commit: str) -> None:
        """Have a worktree that a job goes on in hold exactly a commit, and what is ignored."""
        await self.world.in_thread(self._reset_surely, saved, commit, None, None)

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

    async def note_ready(self, worktree: Worktree, setup: str, commit: str) -> None:
        ready = await self.world.in_thread(take_stock, self.world.repo, worktree, setup, commit)
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

    async def _free_one(self, setup: str | None) -> Saved | None:
        patience = PATIENCE
        while not self._free:
            may_add = self._adding < self._most_adding
            if may_add and (not self._in_use or patience <= 0 or self._waited >= WORTH_WAITING * self._cost):
                return None
            self._changed.clear()
            began = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    min(patience, WORTH_WAITING * self._cost - self._waited) if may_add else None
                ):
                    await self._changed.wait()
            if may_add:
                waited = time.monotonic() - began
                patience, self._waited = patience - waited, self._waited + waited
        fits = (one for one in reversed(self._free) if self.is_ready(one.worktree, setup or ""))
        saved = next(fits, self._free[-1])
        self._free.remove(saved)
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

    # ------------------------------------------------------------------------- from one engine to the next

    async def _take_over_one(self, setup: str | None) -> None:
        """Have a free worktree, if an earlier engine has kept one: that which is set up so, else the newest."""
        async with self._looking:
            if self._waiting is None:
                self._waiting = await self.world.in_thread(self._find_kept)
        while not self._free and self._waiting:
            keys = {name: ready.key for name, ready in self._ready_for.items()}
            kept = next((one for one in self._waiting if setup and keys.get(one.name) == setup), self._waiting[0])
            self._waiting.remove(kept)
            if (saved := await self.world.in_thread(self._take_over, kept)) is not None:
                self._free.append(saved)
                self._changed.set()

    def _find_kept(self) -> list[Kept]:
        repo = self.world.repo
        found = [one for one in kept_worktrees(repo) if one.worktree.path.parent == self.worktrees.root]
        for kept in found:
            if (ready := ready_of(repo, kept.name)) is not None:
                self._ready_for[kept.name] = ready
        return found

    def _take_over(self, kept: Kept) -> Saved | None:
        """Claim a worktree that waits, and save what somebody may have put there; None: it is not used."""
        repo, live, worktree = self.world.repo, self.world.integration.live, kept.worktree
        if not claim(repo, kept.name):
            return None
        try:
            good = not kept.is_old and kept.rules == checkout_rules(repo)
            good = good and self.worktrees.take_over(worktree, kept.commit, kept.index)
            ref, made_from = wip_ref(STRAYS, kept.name, 1), kept.commit if good else None
            live.census.learn(live.objects.tree_of(kept.commit), Below(kept.attributes, False))
            left = kept.content if good else None
            saved = ensure_saved(repo, worktree, ref, WHY, kept.commit, live, made_from=made_from, left=left)
            if good:
                return saved
            self.worktrees.remove(worktree, saved)
        except (OrchardError, OSError) as error:
            self._notes.append(f"The worktree {worktree.path}, which waited for this run, is not used: {error}")
        return None

    def _keep_some(self) -> None:
        """Keep free worktrees for the next engine, as many and as large as the settings allow."""
        repo, config = self.world.repo, self.world.config
        if not config.worktree.keep_size or self.worktrees.root != usable_root(repo, config.worktree_root):
            return
        others = kept_worktrees(repo)
        candidates = [saved for saved in self._free if self._is_worth_keeping(saved)]
        candidates = candidates[max(0, len(candidates) - max(0, config.worktree.pool - len(others))) :]
        room = config.worktree.keep_size - sum(one.size for one in others)
        with ThreadPoolExecutor(self._most_adding, "orchard-keep") as threads:
            found = list(threads.map(self._parked, candidates))
        for saved, kept in reversed(list(zip(candidates, found, strict=True))):
            self._free.remove(saved)
            self._spent.append(saved)
            if kept is not None and kept.size <= room:
                with suppress(OSError):
                    note_kept(repo, kept, self._ready_for.get(kept.name))
                    self._spent.remove(saved)
                    room -= kept.size

    def _is_worth_keeping(self, saved: Saved) -> bool:
        git_dir, name = self.world.repo.notes_on(saved.worktree.name), saved.worktree.name
        ready = self._ready_for.get(name)
        files = indexed(git_dir / "index") + (len(ready.files) if ready is not None else 0)
        return files >= WORTH and saved.submodules is None and not is_sparse(self.world.repo, name)

    def _parked(self, saved: Saved) -> Kept | None:
        """Leave a worktree as a checkout of the user's commit would, with nothing of a job's but what set it up."""
        worktree, repo = saved.worktree, self.world.repo
        try:
            ready = self._ready_for.get(worktree.name)
            self._reset(saved, repo.resolve("HEAD")[1], FOR_NEXT, ready.key if ready is not None else None, keep=())
            self.worktrees.settle_index(worktree, wait=True)
            if (standing := self.worktrees.standing(worktree)) is None:
                return None
            commit, stamp = standing
            contents = look(repo.worktree_git(worktree.name, worktree.path), worktree.path, untouched=True)
            live = self.world.integration.live
            below = live.census.below(live.objects.tree_of(commit))
            odd = contents.special or contents.empty_folders or contents.nested or below.submodules
            if odd or not contents.clean:
                return None
            ready, rules = self._ready_for.get(worktree.name), checkout_rules(repo)
            if (size := weight(worktree.path, ready.files if ready is not None else ())) is None:
                return None
        except (OrchardError, OSError):
            return None
        path, at = str(worktree.path), time.time()
        return Kept(
            name=worktree.name,
            path=path,
            commit=commit,
            index=stamp,
            rules=rules,
            attributes=below.attributes,
            ignored=contents.ignored,
            size=size,
            at=at,
        )

    async def close(self) -> list[str]:
        """Keep some of the free worktrees, and remove the others; returns what could not be deleted."""
        failpoint("pool.before-close")
        self._free.extend(saved for saved in self._occupied if not self._occupants(saved.worktree))
        self._occupied.clear()
        with suppress(OrchardError, OSError):  # without a note they are strays for the next engine
            await self.world.in_thread(self._keep_some)
        await self.world.in_thread(self._remove_free)
        for saved in self._spent:
            with suppress(OrchardError, OSError):  # then it stays; the next engine saves it and removes it
                await self.world.in_thread(self._remove_spent, saved)
        problems = await self.world.in_thread(self.worktrees.empty_trash)
        await self.world.in_thread(self.worktrees.drop_empty_root)
        return problems
