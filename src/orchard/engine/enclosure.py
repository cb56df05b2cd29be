"""What a workspace has of walls: the wall itself, private folders, a way out for its programs, and what those left.

A workspace without a wall has one of these too: nothing of it costs anything then, and what programs behind an earlier
wall wrote (an engine before this one may have had another setting) is brought in all the same.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from orchard.core.run import Run
from orchard.engine.engine import Engine
from orchard.engine.machine.advice import (
    LOOPBACK,
    NO_PORTS,
    NO_PROXY,
    NO_SOCKET,
    NOT_OPENED,
    OF_GIT,
    PREFIX,
    Failure,
    advised,
    limit_reached,
    local_port,
    missed_index,
    missed_network,
)
from orchard.engine.machine.lines import how_to, how_to_have_network
from orchard.engine.machine.refusals import Kept, Line, kept_from, named_in, together
from orchard.engine.machine.sandbox import (
    Asked,
    Folders,
    folders_of_workspace,
    make_placeholders,
    remove_placeholders,
)
from orchard.git.objects import large
from orchard.git.objects.quarantine import bring_in, is_empty
from orchard.git.repository import Worktree
from orchard.git.worktree.notes import Mended, put_in_order, remember
from orchard.model.events.plans import SandboxRefused, SandboxSet
from orchard.model.names import JobId
from orchard.model.phases import Phase
from orchard.process.families.stillness import Hold
from orchard.process.launcher import Launcher
from orchard.process.proxy.allowed import Allowed, Reach
from orchard.process.proxy.refusals import Refusal
from orchard.process.proxy.routes import BaseUrl, Route
from orchard.process.sandbox.wall import Wall
from orchard.text import one_line

Where = tuple[JobId, int, Phase]


class Enclosure:
    def __init__(self, engine: Engine, run: Run, job: JobId, whose: str) -> None:
        self._engine, self._run, self._job, self._whose = engine, run, job, whose
        self.wall: Wall | None = None
        self._worktree: Worktree | None = None

    @cached_property
    def folders(self) -> Folders:
        """What programs have for themselves; the next attempt goes on with them, as it does with the worktree."""
        return folders_of_workspace(self._engine.world.repo, f"{self._run.id} {self._whose}")

    async def build(self, worktree: Worktree | None) -> None:
        """Put the wall up, where there is to be one; SandboxError where it cannot be had."""
        around, plan = self._engine.sandboxes.around, self._run.plan
        self._worktree = worktree
        if self._engine.sandboxes.is_off(self._run):
            self.wall = None
        else:
            job = self._run.job(self._job)
            unprotected = plan.unprotected if job.unprotected is None else job.unprotected
            asked = Asked(job.network or plan.network, unprotected)
            self.wall = await self._engine.world.in_thread(around, self._run, asked, worktree, self.folders)
        self._note_level()

    def _note_level(self) -> None:
        """Record it where another wall stands than the plan's documents say: somebody asked for another one since."""
        level = self.wall.level if self.wall is not None else "off"
        now = (level, self._engine.sandboxes.limits(level))
        if now != self._run.walls and (self._run.walls[0] is not None or level != "off"):
            self._engine.record(self._run.id, SandboxSet(*now))

    def kept_from(self, failure: Failure, attempt: int, phase: Phase, subtask: str | None) -> str | None:
        """Record what the last words of a failed program say that the wall kept it from, and name what opens it.

        A program that does not say it may have been told of a place that it cannot see.
        """
        if self.wall is None:
            return None
        where, policy = (self._job, attempt, phase), self.wall.policy
        env = self._engine.world.environment
        home = Path(env.get("HOME") or Path.home())
        kept = kept_from(failure.said, policy, env, failure.told)
        if kept and kept[0].path.is_relative_to(self._engine.world.repo.common_dir):
            return advised(failure, self.wall.level, policy) or OF_GIT
        lines = [one.line(home) for one in kept]
        closed = [self._closed(where, one, failure, home, lines) for one in kept]
        refused = closed or self._unreached(where, failure)
        for one in refused:
            self._engine.record(self._run.id, replace(one, subtask=subtask))
        if refused and refused[0].reason == "no-proxy":
            return f"{NO_PROXY} {_who(refused[0])}"
        if refused:
            return f"{PREFIX}{' '.join(map(_who, refused))} {self._opens(refused, kept, home)}"
        advice = self._advised(failure, attempt, phase, subtask)
        named = named_in(failure.told, policy, home) if advice is None else None
        if named is None:
            return advice
        told = self._closed(where, named, failure, home, ())
        return f"{PREFIX}it names {named.path}, which is hidden. {self._opens([told], (), home)}"

    def _advised(self, failure: Failure, attempt: int, phase: Phase, subtask: str | None) -> str | None:
        """What its words tell, or else what the proxy refused it."""
        assert self.wall is not None
        advice, port = advised(failure, self.wall.level, self.wall.policy), local_port(failure)
        if advice in (LOOPBACK, NO_PORTS) and port is not None and self.wall.policy.network != "off":
            how = self._how(Line("sandbox.allow", f"127.0.0.1:{port}"))
            return (
                f"{advice} To reach one of this machine by HTTP, {how}, and begin the command with NO_PROXY= no_proxy="
            )
        last = self._run.records[self._job].last
        if advice is None and last is not None:
            for one in reversed(last.refused.values()):
                if (one.kind, one.attempt, one.phase, one.subtask) == ("network", attempt, phase, subtask) and one.how:
                    return f"{PREFIX}{_who(one)} To open it, {one.how}."
        return advice

    def _how(self, line: Line) -> str:
        return how_to(self._engine.world, self._run, self._job, line)

    def _closed(
        self, where: Where, kept: Kept, failure: Failure, home: Path, lines: Sequence[Line | None]
    ) -> SandboxRefused:
        """What it was kept from, and how to open it together with what `lines` open."""
        assert self.wall is not None
        line = kept.line(home)
        if line is None or (kept.is_socket and self.wall.level == "landlock"):  # which cannot tell sockets apart
            setting, how = None, None
        else:
            setting, how = str(line), self._how(together(line, lines))
        refused = SandboxRefused(*where, "file", str(kept.path), kept.reason, setting)
        return replace(refused, program=kept.program or failure.program, how=how)

    def _opens(self, refused: Sequence[SandboxRefused], kept: Sequence[Kept], home: Path) -> str:
        """What a person does about it, in sentences: once for each key."""
        hows = list(dict.fromkeys(one.how for one in refused if one.how is not None))
        if not hows:
            return NO_SOCKET if Path(refused[0].name).is_socket() else NOT_OPENED
        writes = [line for one in kept if (line := one.line_to_write(home)) is not None]
        more = f"; if it is to be written to, {self._how(together(writes[0], writes))}" if writes else ""
        return f"To open it, {', and '.join(hows)}{more}."

    def _unreached(self, where: Where, failure: Failure) -> list[SandboxRefused]:
        """A limit that it came to, or an address that it tried to reach without the proxy."""
        assert self.wall is not None
        world, policy = self._engine.world, self.wall.policy
        if (limit := limit_reached(failure, policy)) is not None:
            key, most = f"sandbox.{limit}", getattr(policy.resources, limit)
            setting, how = f"{key} = {2 * most}", world.opening_line(key, str(2 * most))
            told = SandboxRefused(*where, "limit", f"{limit} above {most}", "limit", setting)
            return [replace(told, program=failure.program, how=how)]
        address = missed_network(failure) or (missed_index(failure) if policy.network == "off" else None)
        if address is None:
            return []
        if policy.network == "off":
            how = how_to_have_network(world, self._run, self._job)
            told = SandboxRefused(*where, "network", address, "network-off", "network: on")
            return [replace(told, program=failure.program, how=how)]
        return [replace(SandboxRefused(*where, "network", address, "no-proxy"), program=failure.program)]

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """Inside the `with` no program of the job runs: none can change a folder under our git, which no wall holds.

        Where none is running it costs nothing. NotStill: they could not be held, or did not stay so.
        """
        hold = Hold(f"{self._run.id}:{self._job}", self._engine.known_children)
        try:
            if hold.needed:
                await self._engine.world.in_thread(hold.stop)
            yield
            hold.check()
        finally:
            hold.release()
            if hold.ended:
                names = ", ".join(one_line(name, 40) for name in sorted({*hold.ended})[:5])
                said = f"The engine ended {len(hold.ended)} processes that had left their job and would not stand still"
                self._engine.warn(self._run.id, f"{said}: {names}.", self._job)

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[None]:
        """The same, with all that its programs' git wrote brought in."""
        async with self.still():
            await self._bring_in()
            yield

    async def bring_in(self) -> None:
        """Bring the objects that its programs' own git wrote into the repository, large files first."""
        if not is_empty(self.folders.objects) or not large.is_empty(self.folders.large):
            async with self.still():
                await self._bring_in()

    async def _bring_in(self) -> None:
        world = self._engine.world
        if not large.is_empty(self.folders.large) and (kept := large.store(world.repo)) is not None:
            most = world.config.sandbox.disk
            refused = await world.in_thread(large.bring_in, kept, self.folders.large, most)
            for name in refused:
                self._engine.warn(
                    self._run.id, f"Git LFS wrote a file in the job that is not what its name says: {name}", self._job
                )
        if is_empty(self.folders.objects):
            return
        brought = await world.in_thread(bring_in, world.repo, self.folders.objects)
        if brought.refused is not None:
            told = (
                f"What git wrote in the job is no part of its result, since git does not accept it: {brought.refused}"
            )
            self._engine.warn(self._run.id, told, self._job)

    async def remove(self) -> None:
        """Once the worktree is given back; what git did not accept stays there, for no other place has it."""
        if not is_empty(self.folders.objects) or not large.is_empty(self.folders.large):
            return
        await self._engine.world.in_thread(self.folders.remove)

    def allowed(self, urls: Iterable[str] = (), own: Iterable[str] = (), *, reach: Reach = "public") -> Allowed:
        """What its programs may reach: what is public or only what is listed, and what the user's settings name."""
        return Allowed.of(reach, tuple(urls), (*own, *self._engine.world.config.sandbox.allow))

    @asynccontextmanager
    async def opened(
        self, launcher: Launcher, attempt: int, phase: Phase, subtask: str | None, allowed: Allowed | None = None
    ) -> AsyncIterator[Launcher]:
        """The launcher, with a way out for programs behind a wall; `allowed` None: to whatever is public."""
        if launcher.wall is None:
            yield launcher
            return
        async with self.through(launcher, launcher.wall, (attempt, phase, subtask), allowed) as (opened, _):
            yield opened

    @asynccontextmanager
    async def through(
        self,
        launcher: Launcher,
        wall: Wall,
        where: tuple[int, Phase, str | None],
        allowed: Allowed | None = None,
        routes: Sequence[Route] = (),
    ) -> AsyncIterator[tuple[Launcher, BaseUrl | None]]:
        """The launcher with a door, and where the routes behind that are; None where there is no network."""
        attempt, phase, subtask = where
        world, worktree = self._engine.world, self._worktree
        async with self.still():
            notes = remember(world.repo, worktree) if worktree is not None else None
            make_placeholders(wall.policy)

        def tell(refusal: Refusal) -> None:
            name = f"{refusal.host}:{refusal.port}"
            line = _line_for(refusal)
            how, setting = (None, None) if line is None else (self._how(line), str(line))
            if how is not None and refusal.own and refusal.address not in (None, refusal.host):
                how += " (the address itself: a name opens public addresses only)"
            refused = SandboxRefused(self._job, attempt, phase, "network", name, refusal.reason, setting)
            known = replace(refused, count=refusal.count, subtask=subtask, program=refusal.program, how=how)
            self._engine.record(self._run.id, known)

        try:
            async with self._engine.network.door(wall, allowed or self.allowed(), tell, routes) as (opened, door):
                yield launcher.behind(opened), None if door is None else door.base_url
        finally:
            # The program is over, others may go on. People's git reads what HEAD, index and logs of a worktree name.
            async with self.settled():
                if notes is not None:
                    self._tell_mended(await world.in_thread(put_in_order, world.repo, notes))
                remove_placeholders(wall.policy)

    def _tell_mended(self, mended: Mended) -> None:
        what = "git's notes on the worktree, which programs had left broken"
        if mended.done:
            told = f"The engine mended {what}: {', '.join(mended.done[:5])}."
            self._engine.warn(self._run.id, told, self._job)
        if mended.failed:
            told = (
                f"The engine could not mend {what}; your own git may stumble over them: {', '.join(mended.failed[:5])}."
            )
            self._engine.warn(self._run.id, told, self._job)


def _line_for(refusal: Refusal) -> Line | None:
    """The line that would let it through."""
    if refusal.entry is None:
        return None
    return Line("sandbox.allow" if refusal.own else "allowed_urls", refusal.entry)


def _who(refused: SandboxRefused) -> str:
    """Who was kept from what, as a sentence."""
    reason = {"limit": "a limit", "no-proxy": "no proxy was used", "network-off": "network: off"}
    why = reason.get(refused.reason, refused.reason)
    return f"{refused.program or 'a program'} was kept from {refused.name} ({why})."
