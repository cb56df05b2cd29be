"""Everything a user can ask for, behind one object: all surfaces call it, none holds logic.

Reading works with and without an engine and changes nothing (`operations.library`). Acting goes through a session,
which is either an engine of this process (it recovers first, and its jobs end with it) or a connection to the engine
that already works on this repository.

Every command imports this module, so what only some of them need is imported where it is used.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

from orchard.config.load import Settings, load_settings
from orchard.config.user_dirs import UserDirs, user_dirs
from orchard.core.records import DEAD
from orchard.core.run import Run
from orchard.engine.server.address import read_address
from orchard.engine.server.server import EngineGone
from orchard.engine.server.session import Answering, Companion, Place, Session, Speaking
from orchard.errors import OrchardError, Say, hint_from
from orchard.git.repository import Repository, Worktree, find_repository
from orchard.model.events.plans import Json
from orchard.model.names import token_of
from orchard.model.plan import JobId
from orchard.model.sandbox import Level
from orchard.operations.library import Library
from orchard.operations.operation import Operation
from orchard.store.reader import JournalReader


def open_app(start: Path, say: Say, flags: Mapping[str, object] | None = None) -> "App":
    """Find the repository and its settings; nothing is made or changed."""
    repo = find_repository(start)
    dirs = user_dirs()
    settings = load_settings(repo.main_top or repo.top, flags or {}, os.environ, dirs, repo.common_dir)
    return App(repo, settings, dirs, say)


class App(Library):
    """One repository, and all that can be asked about it and done in it."""

    def __init__(self, repo: Repository, settings: Settings, dirs: UserDirs, say: Say) -> None:
        super().__init__(repo, settings, dirs, say)
        self.channels: dict[str, Speaking] = {}
        """Languages that other programs may speak at the engine's door, should this process become the engine."""
        self.companions: dict[str, Callable[[], Companion]] = {}
        """Who follows the journal beside the engine, should this process become the engine."""

    def _operation(self, name: str) -> Operation:
        from orchard.operations.table import OPERATIONS  # who only looks needs none

        return OPERATIONS[name]

    def _held_in(self, run: Run, job: JobId, worktree: Worktree, subtask: str | None = None) -> str:
        """Who works there could lead our git astray meanwhile, so all of them are held still: by their engine."""
        if run.records[job].state not in DEAD and self.engine_alive():
            try:
                return str(self._asked_now("see_folder", plan=run.id, job=job, subtask=subtask)["tree"])
            except EngineGone:
                if self.engine_alive():
                    raise  # in another container, where nothing of ours reaches its programs
        from orchard.git.worktree.transfer import tree_now
        from orchard.process.families.stillness import Foreign, Hold

        # What an engine that died has left running is found by what it carries.
        last = run.records[job].last
        hold = Hold(token_of(run.id, job, last.number if last is not None else 1, subtask), foreign=Foreign())
        try:
            hold.stop()
            tree = tree_now(self.repo, worktree)
            hold.check()
            return tree
        finally:
            hold.release()

    def _asked_now(self, operation: str, **args: object) -> Json:
        """Ask the engine from code that waits for it; a thread has its own loop, whatever this one is busy with."""

        async def ask() -> Json:
            async with self.listen() as session:
                return await session.request(operation, **args)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, ask()).result()

    def others(self) -> Iterator["App"]:
        from orchard.store.repositories import known_repositories

        seen = {self.repo.common_dir}
        for folder in known_repositories(self.dirs.state):
            with suppress(OrchardError):  # one that cannot be read now says nothing about the rest
                app = open_app(folder, self.say)
                if app.repo.common_dir not in seen:
                    seen.add(app.repo.common_dir)
                    yield app

    def session(self, *, work: bool = True) -> AbstractAsyncContextManager[Session]:
        """Work with the engine of this repository; without one, this process becomes it.

        `work=False` starts no job: for requests that only change what is asked for.
        """
        from orchard.engine.server.start import open_session

        return open_session(self._place(), work=work)

    def listen(self) -> AbstractAsyncContextManager[Session]:
        """Follow the engine of this repository without ever becoming it; EngineGone where there is none."""
        from orchard.engine.server.start import join_session

        return join_session(self._place())

    async def serve_until_idle(self, ready: Callable[[], None]) -> None:
        """Be the engine for others, until nobody has asked for anything for a while."""
        from orchard.engine.server.start import serve_until_idle

        await serve_until_idle(self._place(), ready)

    def detach(self) -> None:
        """See that an engine runs in the background."""
        from orchard.process.detached import start_detached

        if read_address(self.repo.state) is not None:
            return
        self.repo.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "orchard.surfaces.cli.background", str(self.repo.top or self.repo.common_dir)]
        problem = start_detached(argv, self.repo.state / "engine.log", dict(os.environ))
        if problem and read_address(self.repo.state) is None:
            said = json.loads(problem) if problem.startswith("{") else {"message": problem}
            raise OrchardError(said["message"], hint_from(said.get("hint")))

    def _place(self) -> Place:
        known = (self.repo, self.settings.config, self.dirs, self.reader, self.say, _answering, self.channels)
        return Place(*known, self.companions, self._changed_settings, self._wall_with, self.opening_line)

    def opening_line(self, key: str, value: str) -> str:
        """How a person gives a setting one more value: the line, and the file that it belongs into."""
        from orchard.config.setting_line import opening_line, origin_of  # only a program that failed needs it

        top = self.repo.main_top or self.repo.top
        return opening_line(key, value, origin_of(self.settings.origins, key), self.dirs, top)

    def _wall_with(self, variables: Mapping[str, str]) -> Level:
        """The wall that the files of settings ask for, under these variables; those of this process count for nothing.
        Where the settings cannot be read, it is the default."""
        with suppress(OrchardError):
            top = self.repo.main_top or self.repo.top
            return load_settings(top, {}, variables, self.dirs, self.repo.common_dir).config.sandbox.level
        return "auto"

    def _changed_settings(self) -> list[str]:
        """The files of settings that are not as this process read them."""
        with suppress(OrchardError):  # who asks is told what is wrong with them
            top = self.repo.main_top or self.repo.top
            now = load_settings(top, {}, {}, self.dirs, self.repo.common_dir)
            return now.changed_since(self.settings)
        return []


def _answering(engine: Any, reader: JournalReader) -> Answering:
    from orchard.operations.handler import Handler  # only an engine needs it

    return Handler(engine, reader)
