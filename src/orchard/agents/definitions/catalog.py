"""All definitions of agents that there are for one plan, or for one folder, and what the name of an agent means.

    config      [agents.NAME] with `instructions`
    repository  what the commit holds that is worked on, and what git ignores in the user's checkout
    user        ~/.claude/agents, ~/.copilot/agents, and `agents` beside the user's configuration

The first of a name counts. An agent of that name goes before all of them: no text can take a program's place.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from orchard.agents.definitions.definition import NOBODY, PLACES, Definition, in_commit, in_folder, lying_at, without
from orchard.config.layers import Config
from orchard.config.user_dirs import user_dirs
from orchard.errors import Hint, Next, UsageError
from orchard.git.objects.reader import Objects
from orchard.git.repository import Repository
from orchard.git.worktree.untracked import ignored_files, new_files
from orchard.model.agent_rows import ACP
from orchard.text import did_you_mean, nearest, quoted

USER_PLACES = ((".claude/agents", ".md"), (".copilot/agents", ".agent.md"))
OWN_PLACE = ("agents", ".md")
NOT_COMMITTED = "it is not committed, and jobs see only what is"
SEE_AGENTS: Hint = ("Run '", Next("list_agents"), "' to see which there are.")


class NoSuchAgent(UsageError):
    """Neither an agent nor a definition has this name."""


class Named(Struct, frozen=True):
    """What a plan or an agent means by a name."""

    agent: str | None
    """Whose program; None: the usual one."""
    definition: Definition | None = None


class Catalog(Struct, frozen=True, dict=True):
    agents: tuple[str, ...]
    """The names of the agents that there are."""
    all: tuple[Definition, ...] = ()
    """The strongest first, with those that are not used."""

    @cached_property
    def used(self) -> Mapping[str, Definition]:
        return {one.name: one for one in self.all if not one.problem}

    def why_not(self, one: Definition) -> str | None:
        """Why the name of a definition does not mean it; None: it does."""
        if one.problem or one.name not in self.agents:
            return one.problem or None
        return f"'{one.name}' is an agent; 'AGENT:{one.name}' means this definition"

    def meaning(self, name: str | None) -> Named:
        """What a name stands for that is no agent's: `architect`, `claude:architect`, `claude:agent`."""
        if name is None:
            return Named(None)
        before, mark, word = name.partition(":")
        if mark and before in self.agents:
            return Named(before) if word == NOBODY else Named(before, self._find(word, name))
        found = self._find(name, name)
        return Named(found.agent, found)

    def remarks(self, name: str | None) -> Iterator[str]:
        """What a person should know who says this name: which of several is meant by it."""
        word = (name or "").rpartition(":")[2]
        same = [one for one in self.all if one.name == word and word]
        if not same or (name or "").startswith(ACP):
            return
        if name in self.agents:
            yield f"'{name}' means the agent of that name, and not the definition in {same[0].file}."
        elif len(same) > 1 and (used := self.used.get(word)) is not None:
            others = ", ".join(one.file for one in same if one is not used)
            yield f"'{word}' means the definition in {used.file}, and not {others}."

    def _near(self, name: str) -> str:
        before, mark, word = name.partition(":")
        agent = nearest(before, self.agents) if mark and word in self.used else None
        said = f"; did you mean {quoted(f'{agent}:{word}')}?" if agent is not None else ""
        return said or did_you_mean(before, [*self.agents, *self.used]) or "."

    def _find(self, name: str, asked: str) -> Definition:
        found = self.used.get(name)
        if found is not None:
            return found
        unused = next((one for one in self.all if one.name == name), None)
        if unused is not None:
            raise NoSuchAgent(
                f"There is no agent {quoted(asked)}: {unused.file} is not used, because {unused.problem}."
            )
        if name != asked:
            near = did_you_mean(name, self.used) or "."
            raise NoSuchAgent(
                f"There is no agent {quoted(asked)}: no definition is called {quoted(name)}{near}", SEE_AGENTS
            )
        near = self._near(name)
        raise NoSuchAgent(f"There is no agent {quoted(asked)}, and no definition of that name{near}", SEE_AGENTS)


def meaning_of(
    name: str | None, agents: Collection[str], described: Callable[[], Catalog], *, commands: bool = True
) -> Named:
    """What a name stands for; definitions are looked for only where no agent is called so.

    `commands`: any program behind `acp:` may be named as well, which is for the user to do.
    """
    is_agent = name is None or name in agents or (commands and name.startswith(ACP) and name != ACP)
    return Named(name) if is_agent else described().meaning(name)


def catalog(
    config: Config, host: Mapping[str, str], agents: Collection[str], repository: Iterable[Definition] = ()
) -> Catalog:
    """The definitions of the configuration, of a repository, and of the user's own folders, in this order."""
    first: dict[str, Definition] = {}
    found: list[Definition] = []
    for one in (*configured(config), *repository, *of_user(host)):
        if not one.problem and one.name in first:
            one = without(one, f"{first[one.name].file} has the same name and goes before it")
        elif not one.problem:
            first[one.name] = one
        found.append(one)
    return Catalog(tuple(agents), tuple(found))


def configured(config: Config) -> list[Definition]:
    return [
        Definition(
            name,
            row.description or "",
            row.instructions,
            row.model,
            None if row.tools == "all" else (row.tools,) if isinstance(row.tools, str) else row.tools,
            row.deny_tools,
            file=f"[agents.{name}]",
            origin="config",
            agent=row.agent,
            permissions=row.permissions,
        )
        for name, row in config.agents.items()
        if row.instructions is not None
    ]


def of_user(host: Mapping[str, str]) -> list[Definition]:
    home, own = Path(host.get("HOME") or Path.home()), user_dirs().config
    mine = in_folder(own, (OWN_PLACE,), "user", f"{own}/")
    return [*mine, *in_folder(home, USER_PLACES, "user", "~/")]


def of_checkout(repo: Repository) -> list[Definition]:
    """Definitions in the user's checkout that no commit holds: what git ignores counts, what is not added does not."""
    top = repo.main_top or repo.top
    folders = [place for place, _ in PLACES]
    if top is None or not any((top / place).is_dir() for place in folders):
        return []
    ignored = [lying_at(top, file) for file in ignored_files(repo, top, folders)]
    fresh = [lying_at(top, file) for file in new_files(repo, top, folders)]
    counted = [one for one in ignored if one is not None]
    return counted + [without(one, NOT_COMMITTED) for one in fresh if one is not None]


def of_repository(repo: Repository, objects: Objects, commit: str | None) -> list[Definition]:
    """What jobs that begin with a commit find described; None: there is none yet."""
    return [*(in_commit(objects, commit) if commit is not None else ()), *of_checkout(repo)]
