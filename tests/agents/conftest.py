"""What tests of agents share: a task in a folder of its own, and somebody who listens."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from orchard.agents.protocol import Called, Noted, Said, Session, Settings, Task, Telling, Used, Watch
from orchard.model.limits import Limits
from orchard.model.usage import Usage, total
from orchard.process.families.identity import Identity
from orchard.process.launcher import Launcher

pytest.register_assert_rewrite("tests.agents.claims", "tests.agents.turns")

T = TypeVar("T")


class Tellings(list[Telling]):
    """What was told; the digests of what tools were called with are kept apart."""

    def __init__(self) -> None:
        self.inputs: list[str] = []

    def append(self, telling: Telling) -> None:
        if isinstance(telling, Called):
            self.inputs += [telling.input] if not telling.failed else []
            telling = replace(telling, input="")
        super().append(telling)


@dataclass
class Ear:
    """Somebody who runs a turn, and remembers what was told."""

    told: Tellings = field(default_factory=Tellings)
    started: list[Identity] = field(default_factory=list)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    stop: Callable[[], str | None] = lambda: None
    signs: int = 0
    """How often it was told that something is going on."""

    @property
    def watch(self) -> Watch:
        """For `Agent.run`."""
        return Watch(self.told.append, self._on_start, self.hurry, self.stop, alive=self._alive)

    def _alive(self) -> None:
        self.signs += 1

    async def _on_start(self, identity: Identity) -> None:
        self.started.append(identity)

    def of(self, kind: type[T]) -> list[T]:
        """What was told, of one kind."""
        return [telling for telling in self.told if isinstance(telling, kind)]

    @property
    def usage(self) -> Usage:
        """Everything that was used."""
        return total(used.usage for used in self.of(Used))

    @property
    def text(self) -> str:
        """Everything that was said."""
        return "".join(said.text for said in self.of(Said))

    @property
    def session(self) -> str | None:
        """The session that was told last."""
        return next((telling.id for telling in reversed(self.of(Session))), None)

    def notes(self, kind: str) -> list[str]:
        """What was noted, of one kind."""
        return [noted.message for noted in self.of(Noted) if noted.kind == kind]


@pytest.fixture
def ear() -> Ear:
    """Somebody who listens to one turn."""
    return Ear()


@dataclass
class Desk:
    """The places of one job, and tasks for it."""

    folder: Path
    private: Path
    scratch: Path
    log: Path
    home: Path

    def task(
        self,
        instructions: str = "Do what the script says.",
        *,
        env: Mapping[str, str] | None = None,
        path: str | None = None,
        settings: Settings | None = None,
        session: str | None = None,
        limits: Limits | None = None,
    ) -> Task:
        """A task in the folder; `env` comes on top of a home and a PATH, and nothing else is there."""
        base = {"HOME": str(self.home), "PATH": path or os.environ["PATH"], "LANG": "C.UTF-8"}
        return Task(
            instructions=instructions,
            folder=self.folder,
            env={**base, **(env or {})},
            private=self.private,
            scratch=self.scratch,
            log=self.log,
            launcher=Launcher(),
            settings=settings or Settings(),
            session=session,
            limits=limits or Limits(wall=240.0, grace=3.0),
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A folder to work in, a private and a scratch folder beside it, and a home of the user's."""
    places = {name: tmp_path / name for name in ("folder", "private", "scratch", "home")}
    for place in places.values():
        place.mkdir(mode=0o700)
    return Desk(log=tmp_path / "turn.log", **places)
