"""Becoming the engine of a repository, or finding the one that works on it already."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import filelock

from orchard.agents.registry import Agents
from orchard.config.layers import Config
from orchard.config.user_dirs import make_runtime_dir, make_state_dir, socket_path
from orchard.engine.attempt import run_attempt
from orchard.engine.engine import Engine, running
from orchard.engine.recovery import keep_walls, recover
from orchard.engine.server.address import LOCK_FILE, Address, read_address, refuse_copy
from orchard.engine.server.crowd import prepare_for_crowds
from orchard.engine.server.server import Caller, Connection, EngineGone, connect, listening
from orchard.engine.server.session import ASKS, Answering, Companion, Place, Session, Speaking
from orchard.engine.snapshot import start_plan
from orchard.engine.trace.setup import Traced, traced, without_headers
from orchard.engine.turns.subtask import end_abandoned
from orchard.engine.world import World
from orchard.errors import OrchardError, UsageError, no_locks
from orchard.git.merge.integration import Integration
from orchard.git.repository import Repository
from orchard.model.events.plans import Json
from orchard.model.plan import Work
from orchard.model.sandbox import Level
from orchard.process.background import beside
from orchard.process.families.exits import wait_exit
from orchard.process.families.identity import is_stopped
from orchard.process.privacy import hide_memory
from orchard.store.journal import Journal, JournalFailed
from orchard.store.logs import LogFiles
from orchard.store.plan_list import JOURNAL_FILE
from orchard.store.repositories import note_repository
from orchard.store.slots import Slots

CONNECT_SECONDS = 30.0
LINGER_SECONDS = 5.0
ENDING_SECONDS = 2.0
STOPPED_SECONDS = 3.0
"""For an engine that is only stopped for a moment."""


@asynccontextmanager
async def open_session(place: Place, *, work: bool) -> AsyncIterator[Session]:
    """Work with the one engine of this repository; without one, this process becomes it."""
    lock = filelock.FileLock(_state(place.repo) / LOCK_FILE, mode=0o600, thread_local=False)
    address = await _claim(place.repo, lock)
    if address is not None:
        async with _joined(place, address) as session:
            yield session
        return
    async with traced(place, os.environ) as trace, accompanied(place, trace.last_words) as companions:
        try:
            async with _own_engine(place, work, trace, companions) as link:
                level = place.config.sandbox.level
                words = trace.last_words
                yield Session(link, place.reader, owns_engine=True, last_words=words, sandbox=level)
                await link.wait_idle()
        finally:
            lock.release()


@asynccontextmanager
async def accompanied(place: Place, last_words: list[str]) -> AsyncIterator[Sequence[Companion]]:
    """Those who follow the engine of this process; they finish when it has ended, and hold nothing up then."""
    companions = [make() for make in place.companions.values()]
    try:
        yield companions
    finally:
        for companion in companions:
            last_words += await companion.close()


@asynccontextmanager
async def join_session(place: Place) -> AsyncIterator[Session]:
    """Listen to the engine that works on this repository; never become it, whoever only looks changes nothing."""
    address = read_address(place.repo.state)
    if address is None:
        raise EngineGone()
    async with _joined(place, address) as session:
        yield session


async def serve_until_idle(place: Place, ready: Callable[[], None]) -> None:
    """Be the engine for others, until nobody has asked for anything for a while."""
    async with open_session(place, work=True) as session:
        ready()
        link = session.link
        while isinstance(link, OwnEngine):
            await link.wait_idle()
            if not await link.asked_again(LINGER_SECONDS):
                return


async def _claim(repo: Repository, lock: filelock.BaseFileLock) -> Address | None:
    """Become the one engine (None), or find the one there is; it may still be starting."""
    deadline = asyncio.get_running_loop().time() + CONNECT_SECONDS
    while True:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            address = read_address(repo.state)
            if address is not None:
                return address
        except OSError as error:
            raise no_locks(repo.state / LOCK_FILE, error) from error
        else:
            return None
        if asyncio.get_running_loop().time() > deadline:
            raise OrchardError(
                "Another engine holds this repository but does not answer.",
                hint=f"See which process has {repo.state / LOCK_FILE} open, and end it.",
            )
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _joined(place: Place, address: Address) -> AsyncIterator[Session]:
    await _refuse_if_stopped(address)
    asking, hearing = await connect(address), await connect(address)
    try:
        await hearing.start_following()
        other = OtherEngine(asking, hearing, address)
        yield Session(other, place.reader, owns_engine=False, sandbox=place.config.sandbox.level)
    finally:
        asking.close()
        hearing.close()


async def _refuse_if_stopped(address: Address) -> None:
    """An engine that somebody has stopped (SIGSTOP, or a debugger) takes connections and never answers."""
    if is_stopped(address.pid):
        await asyncio.sleep(STOPPED_SECONDS)
    if is_stopped(address.pid):
        raise OrchardError(
            f"The engine of this repository (process {address.pid}) is stopped and does not answer; nothing was asked.",
            hint=f"Let it go on: kill -CONT {address.pid}",
        )


@asynccontextmanager
async def _own_engine(
    place: Place, work: bool, trace: Traced, companions: Sequence[Companion]
) -> AsyncIterator["OwnEngine"]:
    hide_memory()
    prepare_for_crowds()
    repo, config = place.repo, place.config
    refuse_copy(repo.state)
    runtime = make_runtime_dir(place.dirs.runtime)
    door = socket_path(runtime, f"{hashlib.sha256(os.fsencode(repo.common_dir)).hexdigest()[:16]}.sock")
    host = dict(os.environ)
    agents = Agents(config, host)
    seen = without_headers(host, config)
    setup, logs = _setup_works(config), LogFiles(repo.state)
    of_files = (place.changed_settings, place.opening_line)
    world = World(repo, config, logs, Integration(repo), seen, agents, place.say, setup, place.dirs.state, *of_files)
    slots = Slots.open(make_state_dir(place.dirs.state) / "slots.db", config.capacity.global_, runtime)
    note_repository(place.dirs.state, repo.common_dir, repo.main_top or repo.top)
    try:
        with Journal.open(repo.state / JOURNAL_FILE) as journal:
            place.reader.recent = journal.recent
            engine = Engine(world, journal, slots, attempting=run_attempt, starting=start_plan, ending=end_abandoned)
            engine.tracing, engine.notes = trace.tracing, trace.notes
            engine.chain.reader = place.reader
            engine.starts_work = False
            engine.check_place = Whereabouts(repo).check
            since = journal.durable_seq
            async with running(engine), AsyncExitStack() as stack:
                if work:
                    engine.sandboxes.look_ahead()
                await recover(engine, place.reader)
                if work:
                    keep_walls(engine)
                answering = place.answering(engine, place.reader)
                own = OwnEngine(engine, answering)
                session = Session(own, place.reader, owns_engine=True)
                await stack.enter_async_context(beside(*(one.follow(session, since) for one in companions)))
                channels = {name: partial(_spoken, place, session, speak) for name, speak in place.channels.items()}
                engine.job_tokens.languages = frozenset(channels)
                async with listening(repo.state, door, answering.handle, journal, channels, engine.job_tokens):
                    engine.starts_work = work
                    engine.wake()
                    yield own
                while not engine.is_idle:
                    # Somebody handed in a plan while the door was closing: it is ours to run.
                    async with listening(repo.state, door, answering.handle, journal, channels, engine.job_tokens):
                        await engine.wait_idle()
    finally:
        place.reader.recent = None  # from now on another process may write
        slots.close()
        world.close()


async def _spoken(place: Place, session: Session, speak: Speaking, caller: Caller) -> None:
    """A channel, whose requests ask for the wall that its caller asks for, and not for that of who started the engine.

    An agent in a job cannot ask for one."""
    asked = None
    if caller.scope is None:
        given = caller.args.get("variables")
        texts = {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
        asked = await asyncio.to_thread(place.wall_with, texts)
    ASKS.set(asked)  # each connection has a task, and so a context, of its own
    await speak(session, caller)


def _setup_works(config: Config) -> tuple[Work, ...]:
    if not config.setup:
        return ()
    # Most engines never need the parser.
    from orchard.planfile.parse import parse_work

    return tuple(parse_work(raw, f"setup[{number}]") for number, raw in enumerate(config.setup))


def _state(repo: Repository) -> Path:
    if not repo.common_dir.is_dir():
        raise OrchardError(f"The repository {repo.common_dir} is gone.", hint="Look for where it is now.")
    repo.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    return repo.state


class OwnEngine:
    def __init__(self, engine: Engine, answering: Answering) -> None:
        self.engine, self._answering = engine, answering
        self._news = asyncio.Event()
        self._interrupted = False
        engine.journal.on_commit(lambda _: self._news.set(), asyncio.get_running_loop())

    async def request(self, op: str, args: Mapping[str, Any], sandbox: Level | None = None) -> Json:
        return await self._answering.handle(op, args, sandbox)

    async def grown(self, seen: int) -> None:
        journal = self.engine.journal
        while journal.durable_seq <= seen:
            self._news.clear()
            if journal.failure is not None:
                raise journal.failure
            if journal.durable_seq <= seen:
                await self._news.wait()

    async def interrupt(self) -> str:
        if self._interrupted:
            self.engine.hurry()
            return "hurrying"
        self._interrupted = True
        for run in list(self.engine.runs.values()):
            if not run.settled and (run.is_active or run.may_start):
                with suppress(UsageError):  # it landed, or ended, in the same moment
                    await self.request("cancel_plan", {"plan": run.id, "reason": "interrupted by the user"})
        return "canceled"

    async def wait_idle(self) -> None:
        await self.engine.wait_idle()

    async def asked_again(self, seconds: float) -> bool:
        self._answering.came.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._answering.came.wait()
        except TimeoutError:
            return False
        return True


class OtherEngine:
    """The engine runs in another process: one connection for requests, one for news."""

    def __init__(self, asking: Connection, hearing: Connection, address: Address) -> None:
        self._asking, self._hearing, self._address = asking, hearing, address
        self._newest = 0

    async def request(self, op: str, args: Mapping[str, Any], sandbox: Level | None = None) -> Json:
        return await self._asking.request(op, args, sandbox)

    async def grown(self, seen: int) -> None:
        while self._newest <= seen:
            try:
                self._newest = int((await self._hearing.read())["seq"])
            except EngineGone:
                # Its connections are closed a moment before it counts as ended; who looks now must see it gone.
                await asyncio.to_thread(wait_exit, self._address.identity, ENDING_SECONDS)
                raise

    async def interrupt(self) -> str:
        return "detached"

    async def wait_idle(self) -> None:
        return


class RepositoryReplaced(JournalFailed):
    """Where the repository was there is another one, or none: its engine ends."""


class Whereabouts:
    """The files that make an engine the one engine of a repository, as they were when it was opened.

    A folder can be removed and made anew under a running engine: a clone is thrown away and cloned again. The files
    that the old engine has open are then nobody's any more, and what it acknowledged is in no journal that can be read.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._files = [os.fspath(path) for path in (repo.state, repo.state / JOURNAL_FILE, repo.state / LOCK_FILE)]
        self._found = self._look()

    def check(self) -> None:
        """Raise where they are not there any more, or others are; a few looks at the disk, so it may be done often."""
        if self._look() != self._found:
            raise RepositoryReplaced(
                f"The repository {self._repo.common_dir}, or what Orchard keeps there, was removed or replaced "
                "while its engine ran; what was not recorded there before is not done.",
                hint="Ask again: what is there now has an engine of its own.",
            )

    def _look(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(_identity, self._files))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (hot)
    except OSError:
        return None
    return found.st_dev, found.st_ino
