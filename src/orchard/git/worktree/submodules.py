"""What lies in the submodules of a worktree, seen without obeying anything that they bring along.

Git keeps the repository of such a submodule in `modules` of its notes on the worktree, so it goes with the worktree.
What a job did there is safe only if a remote has it: a commit that a branch of a remote reaches, as far as the last
fetch or push told. Everything else is refused before anything is removed. A `.git` that points to another place is not
followed: a look takes flags off an index, and that one may be the user's.
"""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from orchard.files import read_plain
from orchard.git.checkout_state import PATH_BYTES
from orchard.git.command import Git
from orchard.git.filters import Filters, block_filters
from orchard.git.pipes import foreign_notes
from orchard.git.repository import Repository, Worktree
from orchard.git.worktree.status import display, fingerprint, look, refuse_blocked_notes

TIMEOUT = 300.0
MOST_PINNED = 16
"""So many commits that no remote has, but commits of ours name, are passed over in one submodule."""

PACKED_REFS = 64 * 1024 * 1024
"""Bytes that are read of a list of refs."""

_NO_REMOTE = {"GIT_ALLOW_PROTOCOL": "none"}
"""A job's settings may name a remote for objects that are missing, and the program that speaks to it: git before 2.39.4
does not know `GIT_NO_LAZY_FETCH`, and would start it."""

Places = tuple[tuple[bytes, str], ...]
"""Submodules and the commits that they are at."""


class Submodule(Struct, frozen=True):
    """One that is checked out."""

    name: bytes
    wanted: str | None
    """The commit that the HEAD around it names."""
    at: str | None
    problem: str | None
    """Why its folder holds more than a commit of it."""
    git: Git | None

    @property
    def shown(self) -> str:
        return display(self.name)

    @property
    def moved(self) -> bool:
        return self.at != self.wanted

    @property
    def is_held(self) -> bool:
        """Whether a branch of a remote of its own reaches the commit that it is at."""
        if self.git is None or self.at is None:
            return False
        return not self.git("rev-list", "--max-count=1", self.at, "--not", "--remotes", timeout=TIMEOUT).stdout


def submodules_in(repo: Repository, worktree: Worktree, names: Iterable[bytes], head: str) -> list[Submodule]:
    """Those of a worktree's submodules that are checked out; `head` names the commits that they should be at."""
    home = modules_of(repo, worktree)
    found = (_looked_into(repo.filters_at_home, repo.git, worktree.path, home, name, head) for name in names)
    return [one for one in found if one is not None]


def named_by(git: Git, commit: str, name: bytes) -> str | None:
    """The commit that another one, of the repository around it, names for a submodule."""
    facts = git("ls-tree", "-z", commit, "--", b":(literal)" + name).stdout.split()[:3]
    return os.fsdecode(facts[2]) if facts[:1] == [b"160000"] else None


def modules_of(repo: Repository, worktree: Worktree) -> Path:
    """Where git keeps the repositories of a worktree's submodules."""
    return repo.notes_on(worktree.name) / "modules"


def fingerprints(filters: Filters, top: Path, home: Path, names: Iterable[bytes]) -> Iterator[bytes]:
    """What differs as soon as a program has changed something in a submodule that is checked out."""
    for name in names:
        folder = top / os.fsdecode(name)
        git_dir = _home(folder, home) if _is_checked_out(top, folder) else None
        if isinstance(git_dir, Path):
            git = _git(git_dir, folder, filters)
            yield (
                name
                + fingerprint(git, folder, inside=partial(fingerprints, filters, folder, git_dir / "modules")).encode()
            )


class Loss(Struct, frozen=True):
    """What would go with a worktree although no commit of ours and no remote holds it."""

    name: str
    problem: str


class Settled(Struct, frozen=True):
    """Where the submodules of a worktree are, if they hold nothing that would be lost with it."""

    places: Places | None
    """Those that are checked out; None where git keeps nothing of any for the worktree."""
    moved: Places


def settle(repo: Repository, worktree: Worktree, names: Iterable[bytes], head: str) -> Settled | Loss:
    found = submodules_in(repo, worktree, names, head)
    for one in found:
        if one.problem is not None:
            return Loss(one.shown, one.problem)
        if one.moved and not one.is_held:
            return Loss(one.shown, f"is at another commit, {one.at or 'none':.12}, which no remote of it has")
    home = modules_of(repo, worktree)
    if home.is_symlink():
        return Loss(home.name, "is a link among git's notes on the worktree, which git does not make")
    wanted = {one.wanted for one in found if one.wanted is not None}
    for git_dir in _repositories(home):
        if (commit := _only_here(repo, git_dir, wanted, head)) is not None:
            name = display(os.fsencode(git_dir.relative_to(home)))
            return Loss(name, f"has commit {commit:.12}, which no remote of it has")
    places = tuple((one.name, one.at or "") for one in found)
    moved = tuple((one.name, one.at or "") for one in found if one.moved)
    return Settled(places if found or os.path.lexists(home) else None, moved)


def stayed(repo: Repository, worktree: Worktree, places: Places | None, head: str) -> bool:
    """Whether the submodules of a worktree are where they were, with nothing new in them."""
    if places is None:
        return not os.path.lexists(modules_of(repo, worktree))
    settled = settle(repo, worktree, [name for name, _ in places], head)
    return isinstance(settled, Settled) and settled.places == places


def _looked_into(filters: Filters, around: Git, top: Path, home: Path, name: bytes, head: str) -> Submodule | None:
    folder = top / os.fsdecode(name)
    if not _is_checked_out(top, folder):
        return None
    wanted = named_by(around, head, name)
    git_dir = _home(folder, home)
    if not isinstance(git_dir, Path):
        return Submodule(name, wanted, None, git_dir, None)
    git = _git(git_dir, folder, filters)
    inside = look(git, folder)
    if inside.head is None:
        return Submodule(name, wanted, None, "is at no commit", git)
    clean = inside.clean and not inside.nested
    for one in inside.submodules if clean else ():
        within = _looked_into(filters, git, folder, git_dir / "modules", one, inside.head)
        clean = clean and (within is None or (within.problem is None and not within.moved))
    return Submodule(name, wanted, inside.head, None if clean else "has changes", git)


def _git(git_dir: Path, folder: Path, filters: Filters) -> Git:
    return block_filters(Git(git_dir, git_dir, cwd=folder, work_tree=folder, environment=_NO_REMOTE), filters)


def _is_checked_out(top: Path, folder: Path) -> bool:
    """Whether something lies in a submodule's folder; where that, or one on the way to it, is a link, it is not it."""
    real = str(Path(os.path.realpath(top)) / folder.relative_to(top))
    return os.path.realpath(folder) == real and folder.is_dir() and any(folder.iterdir())


def _home(folder: Path, home: Path) -> Path | str:
    """The repository of a submodule, which git made below `home`; or what is wrong with it.

    The path counts as it is written: no link of a job's, in the worktree or among git's notes, says which one is meant.
    Nor may one stand for its index or a log: a look writes there.
    """
    try:
        pointer = read_plain(folder / ".git", PATH_BYTES)
    except OSError:
        return "has files that no commit holds"
    named = os.fsdecode(pointer.removeprefix(b"gitdir: ").rstrip(b"\n"))
    said = Path(os.path.normpath(os.path.realpath(folder) + "/" + named if not named.startswith("/") else named))
    inside = _below_real(home)
    below = next((said.relative_to(top).parts for top in (inside, home) if said.is_relative_to(top)), ())
    git_dir = inside.joinpath(*below)
    if not below or os.path.realpath(git_dir) != os.fspath(git_dir) or not git_dir.is_dir():
        return "has a repository of its own that this one does not know"
    try:
        foreign = foreign_notes(git_dir)
    except OSError as error:
        return f"has a repository that cannot be looked through ({error.strerror})"
    return f"has a repository whose '{display(os.fsencode(foreign[0]))}' is no file of its own" if foreign else git_dir


def _below_real(home: Path) -> Path:
    """The folder by its real path, unless it is a link itself, which only a job puts there."""
    return Path(os.path.realpath(home.parent)) / home.name


def _repositories(home: Path) -> Iterator[Path]:
    """Every repository that git made for a submodule below a folder, those of submodules in submodules as well."""
    waiting = [home]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as found:
                inside = {entry.name: entry for entry in found}
        except FileNotFoundError:
            continue
        if "HEAD" in inside and "objects" in inside:
            yield folder
            inside = {name: entry for name, entry in inside.items() if name == "modules"}
        waiting += [Path(entry.path) for entry in inside.values() if entry.is_dir(follow_symlinks=False)]


def _only_here(repo: Repository, git_dir: Path, wanted: set[str], head: str) -> str | None:
    """A commit that somebody had checked out or on a branch in a submodule, and that nobody else has.

    Commits that ours name count as held: git fetched those by their names, whatever branch they are on.
    """
    git = Git(git_dir, git_dir, cwd=git_dir, environment=_NO_REMOTE)
    refuse_blocked_notes(git, thorough=True)
    tips = ("--exclude=refs/tags/*", "--exclude=refs/remotes/*", "--all", "--reflog", *_new_tags(git))
    held, commit = sorted(wanted), ""
    for _ in range(MOST_PINNED):
        words = ("rev-list", "--ignore-missing", "--max-count=1", *tips, "--not", "--remotes", *held)
        if not (commit := git(*words, timeout=TIMEOUT).text):
            return None
        if not repo.git("log", "--max-count=1", "--format=%H", f"--find-object={commit}", head, timeout=TIMEOUT).stdout:
            return commit
        held.append(commit)
    return commit


def _new_tags(git: Git) -> list[str]:
    """Tags that came after the clone, which packs those of the remote: a job may have made them."""
    try:
        packed = read_plain(git.git_dir / "packed-refs", PACKED_REFS)
    except OSError:
        packed = b""
    known = {row.split(b" ", 1)[-1] for row in packed.splitlines()}
    names = git("for-each-ref", "--format=%(refname)", "refs/tags").stdout.splitlines()
    return [os.fsdecode(name) for name in names if name not in known]
