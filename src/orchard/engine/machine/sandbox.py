"""The wall around the programs of a workspace: what they may reach, made of the repository, the plan and the settings.

What a program behind the wall sees of this machine: the disk to read, without the user's home, temporary and runtime
folders, checkouts and worktrees; of the home the toolchains and what `sandbox.expose` names; of the repository's `.git`
all that git needs to read, and nothing that belongs to us or to other worktrees. It writes to its worktree, to git's
notes on that, and to private folders of its attempt: a home, a temporary folder, and the objects that its own git
makes (`git.objects.quarantine`).
"""

import hashlib
import os
import pwd
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path

from msgspec import Struct

import orchard
from orchard.agents.project_settings import read_by
from orchard.config.places import place_of
from orchard.core.run import Run
from orchard.engine.machine.git_settings import GitSettings, git_settings
from orchard.engine.machine.manifests import manifests_above
from orchard.engine.machine.own_home import Links, Opened, furnish, links_to
from orchard.engine.world import World
from orchard.files import read_plain
from orchard.git.folders import remove_tree
from orchard.git.objects import large, quarantine
from orchard.git.repository import Repository, Worktree
from orchard.git.worktree.setup import folder_to_link
from orchard.git.worktree.sources import local_sources
from orchard.model.sandbox import Level as Wanted
from orchard.model.sandbox import Network, stricter
from orchard.process.sandbox.policy import Level, Policy, Resources, SandboxError
from orchard.process.sandbox.wall import Wall

_RUNTIME = ("/tmp", "/var/tmp", "/run", "/var/run", "/dev/shm", "/mnt", "/media")
_LOCKS = Path("/dev/shm")
"""Locks between processes are files here (`multiprocessing` of Python). A wall with mounts has one of its own."""
PROTECTED = (".git", ".github/workflows", ".vscode", ".husky")
"""Beside what agents' programs obey: names at the top of a worktree that make others run what stands in them."""


@cache
def obeyed_names() -> frozenset[str]:
    """Names at the top of a repository that other programs obey: hooks, workflows, settings of agents."""
    return frozenset({*PROTECTED, *(name for name in read_by() if not name.endswith(".env"))})


def is_obeyed(path: bytes) -> bool:
    """Whether a path of a commit is one of them, or in one."""
    parts = os.fsdecode(path).split("/")
    steps = ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return any(step in obeyed_names() or any(fnmatch(step, name) for name in _patterns()) for step in steps)


@cache
def _patterns() -> tuple[str, ...]:
    return tuple(name for name in obeyed_names() if "*" in name)


class Folders(Struct, frozen=True, dict=True):
    """What an attempt, or a subtask, has for itself beside its worktree."""

    top: Path

    @cached_property
    def home(self) -> Path:
        return self.top / "home"

    @cached_property
    def temporary(self) -> Path:
        """What programs find at `/tmp` behind a wall with mounts. It keeps its long path: nobody names it."""
        return self.top / "tmp"

    @cached_property
    def short(self) -> Path:
        """What `TMPDIR` is behind a wall without mounts: a link, for the path of a socket may have 107 letters."""
        found = tempfile.gettempdir()
        place = found if len(found) <= _SHORT else "/tmp"
        return Path(place, f"{_LINK}{hashlib.sha256(os.fsencode(self.top)).hexdigest()[:12]}")

    @cached_property
    def objects(self) -> Path:
        return self.top / "objects"

    @cached_property
    def large(self) -> Path:
        """What its git LFS wrote."""
        return self.top / "large"

    @cached_property
    def shared(self) -> Path:
        """Where programs behind a wall with mounts see the repository's own objects; outside nothing is there."""
        return self.top / "shared"

    @cached_property
    def out(self) -> Path:
        """Where programs leave what is for us."""
        return self.top / "out"

    def make(self) -> None:
        self.top.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("home", "tmp", "out", "objects", "objects/info", "objects/pack"):
            with suppress(FileExistsError):
                (self.top / name).mkdir(mode=0o700)
                if name == "tmp":
                    (self.top / name).chmod(0o1777)  # as programs expect of /tmp; others do not come this far

    def make_short(self) -> Path:
        """The short link, made; where its name is taken by something else, the folder itself."""
        try:
            self.short.symlink_to(self.temporary)
        except FileExistsError:
            return self.short if self._has_short() else self.temporary
        _remove_stale(self.short.parent)
        return self.short

    def _has_short(self) -> bool:
        return _leads_to(self.short) == self.temporary

    def remove(self) -> None:
        if self._has_short():
            self.short.unlink(missing_ok=True)
        remove_tree(self.top)


_SHORT, _LINK = 40, "orchard-tmp-"


def _leads_to(link: Path) -> Path | None:
    """Where a link of ours leads."""
    try:
        status = link.lstat()
        return link.readlink() if stat.S_ISLNK(status.st_mode) and status.st_uid == os.geteuid() else None
    except OSError:
        return None


@cache
def _remove_stale(folder: Path) -> None:
    """Once per engine: links of ours whose jobs went with their repository."""
    for link in folder.glob(f"{_LINK}*"):
        if _leads_to(link) is not None and not os.path.exists(link):  # noqa: PTH110 — it raises nothing
            link.unlink(missing_ok=True)


def folders_of_workspace(repo: Repository, whose: str) -> Folders:
    return Folders(repo.state / "jobs" / hashlib.sha256(whose.encode()).hexdigest()[:16])


class Asked(Struct, frozen=True):
    """What a plan or a job says about its wall."""

    network: Network | None = None
    unprotected: tuple[str, ...] = ()


_SECONDS, _MOST = 5.0, 16
_PATH_BYTES = 8192


def _try_out(wanted: Wanted) -> None:
    from orchard.process.sandbox import level  # with all that builds walls

    with suppress(SandboxError, OSError):  # a plan that asks for it is told
        level.choose(wanted)


class Sandboxes:
    """The walls that one engine builds."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known_links: dict[tuple[Path, ...], tuple[float, Links]] = {}
        self._known_sources: tuple[int, tuple[Path, ...]] | None = None
        self._known_manifests: tuple[float, Path, tuple[Path, ...]] = (0.0, Path(), ())

    def level(self, run: Run) -> Level:
        """The level that holds for a plan: SandboxError where none can be had. The first call tries it out."""
        wanted = self._wanted(run)
        if wanted == "off":
            return "off"
        from orchard.process.sandbox import level  # with all that builds walls

        return level.choose(wanted)

    def look_ahead(self) -> None:
        """Begin to try out, in a thread, what the first plan will most probably ask for."""
        if (wanted := self._world.config.sandbox.level) != "off":
            self._world.threads.submit(_try_out, wanted)

    def is_off(self, run: Run) -> bool:
        return self._wanted(run) == "off"

    def _wanted(self, run: Run) -> Wanted:
        """What people ask for, or what the plan itself does, whichever is stricter. Our own settings are those of who
        happened to start the engine, and count only for plans of which it was not recorded who asks for what."""
        return stricter(run.sandbox or self._world.config.sandbox.level, run.plan.sandbox)

    def limits(self, level: Level) -> tuple[str, ...]:
        """What holds of the limits that were asked for, in sentences; without a wall none does."""
        if level == "off" or self._resources == Resources():
            return ()
        from orchard.process.sandbox.resources import in_force  # only where something is limited

        return in_force(self._resources).asked

    @cached_property
    def _resources(self) -> Resources:
        config = self._world.config.sandbox
        return Resources(memory=config.memory, processes=config.processes, files=config.files, disk=config.disk)

    def around(self, run: Run, asked: Asked, worktree: Worktree | None, folders: Folders) -> Wall | None:
        """The wall for programs in a worktree, or in private folders only, which are made; None: there is none."""
        level = self.level(run)
        if level == "off":
            return None
        world, config = self._world, self._world.config.sandbox
        folders.make()
        self.furnish(folders.home, level)
        own, kept = _of_worktree(world.repo, worktree, asked) if worktree is not None else ((), ())
        mounted = quarantine.mounts(folders.objects, world.repo, folders.shared) if level == "bwrap" else ()
        if mounted and self._large is not None:
            mounted += large.mounts(folders.large, self._large, folders.shared)
        objects = () if mounted else (folders.objects,)
        temporary = folders.temporary if level == "bwrap" else folders.make_short()
        # Behind bubblewrap it stands at /tmp, and nowhere else.
        shown = () if level == "bwrap" and Path("/tmp").is_dir() else (folders.temporary, temporary)
        homes = (self._home, *_home_of_account())
        above = self._manifests(worktree, homes) if level == "landlock" and worktree is not None else ()
        policy = Policy(
            home=folders.home,
            temporary=temporary,
            # Each by itself and not the folder around them: a job must not put a link in the place of one.
            writable=(*own, folders.home, *shown, folders.out, *objects, *self._writable()),
            protected=(*kept, *(path / "info" for path in objects)),
            hidden=tuple(path for path in self._hidden(worktree) if path != _LOCKS or level == "bwrap"),
            exposed=(
                world.repo.common_dir,
                *quarantine.alternates(world.repo),
                *self._exposed,
                *self._linked(),
                *self._named(),
                *above,
                *self._sources(level),
            ),
            mounts=mounted,
            network="off" if "off" in (config.network, asked.network) else "on",
            resources=self._resources,
        )
        env = self._told if mounted else {**self._told, **quarantine.variables(folders.objects, world.repo)}
        return Wall(level, policy, env)

    def furnish(self, home: Path, level: Level, more: Iterable[Path] = ()) -> None:
        """Let programs whose home that is find there what the wall opens of the user's own, and `more`, and his git."""
        has_large = level == "bwrap" and self._large is not None
        self._git.lay(home, without=None if has_large else large.DRIVER)
        named = (*self._named(), *self._writable(), *more)
        furnish(home, self._links(named))

    def _links(self, named: tuple[Path, ...]) -> Links:
        """As they were a moment ago: toolchains are not looked through for each job of many."""
        now = time.monotonic()
        known = self._known_links.get(named)
        if known is None or known[0] < now:
            known = (now + _SECONDS, links_to(self._home, (*self._chains[0], *map(Opened, named))))
            if len(self._known_links) > _MOST:
                self._known_links.clear()
            self._known_links[named] = known
        return known[1]

    def _manifests(self, worktree: Worktree, homes: tuple[Path, ...]) -> tuple[Path, ...]:
        """What is in the folders above, as it was a moment ago: worktrees lie side by side."""
        now, around = time.monotonic(), worktree.path.parent
        if self._known_manifests[0] < now or self._known_manifests[1] != around:
            self._known_manifests = (now + _SECONDS, around, tuple(manifests_above(worktree.path, homes)))
        return self._known_manifests[2]

    @cached_property
    def _git(self) -> GitSettings:
        """As it is when the first job is there, as with the user's name: no job can change it for the next."""
        opened = (*self._exposed, *self._named())
        seen = Policy(home=self._home, temporary=self._home, hidden=self._always_hidden, exposed=opened)
        world = self._world
        return git_settings(world.repo, world.identity, world.environment, seen.may_read)

    @property
    def _large(self) -> Path | None:
        return self._kept_large if (self._world.repo.common_dir / "lfs").is_dir() else None

    @cached_property
    def _kept_large(self) -> Path | None:
        return large.store(self._world.repo)

    @cached_property
    def _home(self) -> Path:
        return Path(self._world.environment.get("HOME") or Path.home()).resolve()

    def _hidden(self, worktree: Worktree | None) -> Iterable[Path]:
        yield from self._always_hidden
        if worktree is not None:
            yield worktree.path.parent
        yield from self._checkouts()

    @cached_property
    def _always_hidden(self) -> tuple[Path, ...]:
        world, repo = self._world, self._world.repo
        ours = (repo.main_top, repo.top, repo.state, repo.common_dir / "worktrees", world.user_state)
        others = (self._home, *_home_of_account(), *map(Path, _RUNTIME), Path(tempfile.gettempdir()).resolve())
        return tuple(dict.fromkeys((*others, *(place for place in ours if place is not None))))

    def _checkouts(self) -> list[Path]:
        """Where linked worktrees are, the user's own among them, as git's notes on them say."""
        found = []
        notes = self._world.repo.common_dir / "worktrees"
        for name in os.listdir(notes) if notes.is_dir() else ():  # noqa: PTH208 — the names alone, at each start
            try:
                place = Path(os.fsdecode(read_plain(notes / name / "gitdir", _PATH_BYTES)).strip())
            except OSError:  # a job may have put anything there
                continue
            if place.is_absolute() and ".." not in place.parts:
                found.append(place.parent)
        return found

    @cached_property
    def _chains(self) -> tuple[tuple[Opened, ...], dict[str, str]]:
        from orchard.process.sandbox.toolchains import toolchains  # only behind a wall

        found = toolchains(self._home, self._world.environment)
        places = tuple(Opened(path, chain.grows) for chain in found for path in chain.paths)
        return places, {name: value for chain in found for name, value in chain.variables.items()}

    @cached_property
    def _exposed(self) -> tuple[Path, ...]:
        """Toolchains, environments on the PATH, and the programs that are ours."""
        paths = [place.path for place in self._chains[0]]
        for part in self._world.environment.get("PATH", "").split(os.pathsep):
            top = Path(part).parent
            if part.startswith("/") and os.path.isfile(top / "pyvenv.cfg") and ".." not in top.parts:  # noqa: PTH113
                paths.append(top)  # a virtual environment is found by its programs, and needs all of it
        own = [Path(sys.prefix), Path(sys.base_prefix), *(Path(place).parent for place in orchard.__path__)]
        return tuple(dict.fromkeys(path for path in (*paths, *own) if os.path.exists(path)))  # noqa: PTH110

    def _sources(self, level: Level) -> tuple[Path, ...]:
        """What a job reads of repositories of this machine, for its submodules. Behind Landlock git sees that there are
        settings, may not read them, and gives up: there the user's own line opens all or nothing."""
        common = self._world.repo.common_dir
        if level != "bwrap" or not (common / "modules").is_dir():
            return ()
        stamp = (common / "config").stat().st_mtime_ns  # git writes there when a submodule comes
        if self._known_sources is None or self._known_sources[0] != stamp:
            self._known_sources = (stamp, local_sources(self._world.repo))
        return self._known_sources[1]

    def _linked(self) -> Iterable[Path]:
        """Folders of the checkout that worktrees share by a link: to be read, where the settings open no more."""
        top = self._world.repo.main_top
        if top is not None:
            found = (folder_to_link(top, name) for name in self._world.config.worktree.link)
            yield from (place for place in found if place is not None)

    def _named(self) -> Iterable[Path]:
        """What the settings name and is there; an engine may live longer than it takes to come."""
        named = (place_of(text, self._home) for text in self._world.config.sandbox.expose)
        return (path for path in named if path.exists())

    def _writable(self) -> Iterable[Path]:
        named = (place_of(text, self._home) for text in self._world.config.sandbox.write)
        return (path for path in named if path.is_dir())

    @property
    def _told(self) -> dict[str, str]:
        return self._chains[1]


@cache
def _home_of_account() -> tuple[Path, ...]:
    """The home that the system knows, if it knows one; HOME may say another one."""
    try:
        return (Path(pwd.getpwuid(os.getuid()).pw_dir).resolve(),)
    except KeyError:
        return ()


PLACEHOLDER = "config.worktree"
"""Among git's notes on a worktree: settings of its own, which a job could make. It stands there, empty, while programs
run; our git takes its presence for settings that it does not know."""


def make_placeholders(policy: Policy) -> None:
    for path in policy.protected:
        if path.name == PLACEHOLDER:
            with suppress(OSError):  # behind the weaker wall a job may have put a link there
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))


def remove_placeholders(policy: Policy) -> None:
    """Once no program runs; what has something in it is a job's doing, and is for our git to find."""
    for path in policy.protected:
        if path.name == PLACEHOLDER and path.is_file() and not path.is_symlink() and not path.stat().st_size:
            path.unlink()


def _same_or_around(one: str, name: str) -> bool:
    return name == one or name.startswith(f"{one}/") or one.startswith(f"{name}/")


def _of_worktree(repo: Repository, worktree: Worktree, asked: Asked) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """What programs in a worktree may write to, and what of that has to stay as it is."""
    notes = repo.notes_on(worktree.name)
    kept = [notes / name for name in ("commondir", "gitdir", PLACEHOLDER)]
    return (worktree.path, notes), (*kept, *_protected(worktree.path, asked.unprotected))


def _protected(top: Path, unprotected: Iterable[str]) -> Iterator[Path]:
    """What there is of the names that programs obey, but for what the plan opens; a name may be a pattern."""
    opened = [name.strip("/") for name in unprotected]
    there = frozenset(os.listdir(top))  # noqa: PTH208 — the names alone, at each start
    for name in sorted(obeyed_names()):
        if name.partition("/")[0] not in there:
            continue
        for path in sorted(top.glob(name)) if "*" in name else (top / name,):
            seen = path.relative_to(top).as_posix()
            if os.path.lexists(path) and (seen == ".git" or not any(_same_or_around(one, seen) for one in opened)):
                yield path
