"""What an engine works with: the repository, the settings, and the seams for what comes from outside."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from msgspec import Struct, field

from orchard.agents.definitions.catalog import Catalog, of_checkout, of_repository
from orchard.agents.definitions.definition import Definition, in_folder
from orchard.agents.permissions import Holds
from orchard.agents.project_settings import ProjectSettings, covered, lying_in
from orchard.agents.protocol import Agent, McpServer
from orchard.config.layers import Config, variables_of
from orchard.config.user_dirs import user_dirs
from orchard.engine.merges.memory import Gathered, Picks
from orchard.engine.programs import host_environment
from orchard.errors import Say, SystemRefused
from orchard.git.command import GitError, lock_in_the_way
from orchard.git.merge.integration import Integration
from orchard.git.objects.reader import ObjectMissing
from orchard.git.repository import Repository
from orchard.model.events.event import Json
from orchard.model.plan import PlanId, Tier, Work
from orchard.process.background import to_its_end
from orchard.store.logs import LogFiles

P = ParamSpec("P")
T = TypeVar("T")

GIT_THREADS = 8
VANISHED_TRIES = 5


class Agents(Protocol):
    """Whoever knows the agents that there are; `agents.table.Agents` is the one."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def find(self, name: str | None) -> Agent:
        """The agent of this name, or the default one; OrchardError where it is not known or not usable."""

    def model_for(self, agent: str, model: str | None, tier: Tier | None) -> str | None:
        """The model that a plan means; None: the agent's own choice. UsageError for one that nobody knows."""

    def listed(self) -> list[Json]:
        """Every agent that has a name: `name`, `usable`, and why it is not."""

    def holds(self, name: str) -> Holds:
        """How far an agent can be held to what it may use."""

    def knows(self, agent: str, model: str) -> bool:
        """Whether an agent is known to have a model."""

    def catalog(self, repository: Iterable[Definition]) -> Catalog:
        """The definitions of a repository among the user's own."""

    def servers(self, names: Iterable[str]) -> tuple[McpServer, ...]: ...


class World(Struct, frozen=True, dict=True):
    repo: Repository
    config: Config
    logs: LogFiles
    integration: Integration
    environment: Mapping[str, str]
    """The host's variables, from which those of the programs are made."""
    agents: Agents
    say: Say
    """What makes texts of the hints that are recorded: who opened the engine gives its own words."""
    setup: tuple[Work, ...] = ()
    user_state: Path | None = None
    """Where the user's agreements are kept; None: where the platform says."""
    changed_settings: Callable[[], Sequence[str]] = tuple
    """The files of settings that were changed since they were read: an engine keeps those that it began with."""
    opening_line: Callable[[str, str], str] = "{} = [{}]".format
    """How a person gives a setting (by its key) one more value, as TOML writes it: the line, and where it belongs."""
    told_of_settings: set[tuple[PlanId, str]] = field(default_factory=set)
    """Plans and agents for which it was said that project settings are ignored."""
    picks: Picks = field(default_factory=Picks)
    gathered: Gathered = field(default_factory=Gathered)
    changed_paths: dict[tuple[str, str], frozenset[bytes]] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(max_workers=GIT_THREADS, thread_name_prefix="orchard-git")
    )

    @cached_property
    def hidden_in(self) -> Mapping[str, str]:
        """The variables whose values, where they are secrets, must not be shown."""
        return {**variables_of(self.config), **self.environment}

    @property
    def ports_folder(self) -> Path:
        """Where the engines of this user agree on the ports of their jobs."""
        return (self.user_state or user_dirs().state) / "ports"

    @cached_property
    def seen_by_programs(self) -> Mapping[str, str]:
        return host_environment(self.environment, self.config.pass_env)

    @cached_property
    def identity(self) -> tuple[str, str]:
        """Whose name the jobs' commits carry: asked once, so that no job can change it for the next."""
        return self.repo.identity()

    @cached_property
    def signs(self) -> bool:
        return self.repo.wants_signing()

    def project_settings(self, top: Path, folder: Path) -> tuple[ProjectSettings, bool]:
        """What is there for agents' programs, and whether the user agreed to it; reads files, so it is for a thread."""
        found = lying_in(top, folder)
        return found, covered(found, self.repo.home, self.repo.common_dir, self.user_state)

    def described_at(self, commit: str | None) -> Catalog:
        """The definitions for a job that begins with a commit: no work of the job changes them. For a thread."""
        return self.agents.catalog(of_repository(self.repo, self.integration.objects, commit))

    def described_in(self, folder: Path) -> Catalog:
        """The definitions for whoever works in a folder, as they lie there now. For a thread."""
        return self.agents.catalog([*in_folder(folder), *of_checkout(self.repo)])

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step of git work to its end in a thread.

        A cancellation is not let through until the step is over: half of a commit or of a merge
        is worse than a moment of waiting, and nobody else may touch the worktree meanwhile. What a
        disk or the system refuses is an error for the user, like what git refuses.
        """
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self.threads, lambda: function(*args, **kwargs))
        try:
            return await to_its_end(future)
        except OSError as error:
            raise SystemRefused(error) from error

    async def again_if_vanished(self, step: Callable[[], Awaitable[T]]) -> T:
        """Do a step that can be repeated; again while somebody's `git gc --prune=now` takes what has no ref yet."""
        for number in range(VANISHED_TRIES):
            try:
                return await step()
            except (GitError, ObjectMissing) as error:
                if isinstance(error, GitError) and lock_in_the_way(error.stderr):
                    raise  # it was waited for already, and the lock of a dead git stays
                # Processes that stay open remember packs that are gone, and would not write their objects again.
                await self.in_thread(self.integration.close)
                self.gathered.forget()
                await asyncio.sleep(0.05 * 2**number)
        return await step()

    def close(self) -> None:
        self.threads.shutdown(wait=True, cancel_futures=True)
        self.integration.close()
