"""Merges that never touch a checkout.

Two commits go in, a tree comes out; the user's files, index, HEAD and refs are neither read nor written.

`git merge-tree` does the merging, in surroundings that only we decide on: a private git folder that borrows nothing
but the repository's objects, so that no setting, attribute file or merge driver of the repository is in force, and a
work tree that holds the `.gitattributes` files of *ours* and nothing else (merge-tree reads attributes from there;
git 2.39 does not take them from an index). What a repository may ask for are the built-in drivers (text, binary,
union). A driver of the user's own is never run: files that ask for it are conflicts when both sides changed them.

`Merger` merges and commits, through processes that stay open; `close` it.

A conflict is a result, not an error: the tree exists either way, and holds the usual markers.
"""

import errno
import hashlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orchard.errors import NeedsPerson, OrchardError
from orchard.git.command import Git, GitError, GitGone, LiveGit
from orchard.git.merge.conflicts import Merge, parse_merge
from orchard.git.objects.loose import LooseObjects
from orchard.git.objects.reader import GITLINK, TREE, Objects, checked
from orchard.git.repository import Repository
from orchard.git.scratch import sweep

REMEMBERED_TREES = 500_000


class Below(NamedTuple):
    """What decides how the files of a tree are read and written."""

    attributes: tuple[tuple[bytes, str], ...] = ()
    """Every attribute file: its path and the oid of its content."""
    submodules: bool = False


class Census:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[str, Below] = {}
        self._lock = threading.Lock()

    def below(self, tree: str) -> Below:
        with self._lock:
            return self._below(tree)

    def learn(self, tree: str, below: Below) -> None:
        """Believe what an earlier census found: what is below a tree never changes."""
        with self._lock:
            self._known[tree] = below

    def _below(self, tree: str) -> Below:
        if len(self._known) > REMEMBERED_TREES:
            self._known.clear()
        order, waiting = [], [tree]
        while waiting:
            if (one := waiting.pop()) not in self._known:
                order.append(one)
                waiting += [entry.oid for entry in self._objects.tree_entries(one).values() if entry.mode == TREE]
        for one in reversed(order):
            self._known[one] = self._sum(one)
        return self._known[tree]

    def _sum(self, tree: str) -> Below:
        attributes: list[tuple[bytes, str]] = []
        submodules = False
        for name, entry in self._objects.tree_entries(tree).items():
            if entry.mode == TREE:
                inner = self._known[entry.oid]
                attributes += [(name + b"/" + path, oid) for path, oid in inner.attributes]
                submodules = submodules or inner.submodules
            elif entry.mode == GITLINK:
                submodules = True
            elif name == b".gitattributes" and entry.is_regular:
                attributes.append((name, entry.oid))
        return Below(tuple(attributes), submodules)


MERGE_TIMEOUT = 600.0
SIGN_TIMEOUT = 30.0
MERGES_PER_PROCESS = 500
"""A merge-tree that stays open remembers every object it parsed, so it is replaced now and then."""

ATTRIBUTES_LIMIT = 10 * 1024 * 1024

# Settings that decide how git merges but run nothing.
_HARMLESS = (
    r"^(merge\.(renormalize|renames|directoryrenames|renamelimit)|diff\.(renames|renamelimit)|core\.(autocrlf|eol))$"
)
_DRIVERS = r"^merge\..*\.driver$"


class UnrelatedHistories(OrchardError):
    """Two commits without a common ancestor cannot be merged."""


class SigningFailed(NeedsPerson):
    """The user wants signed commits and this one could not be signed, so it was not made."""

    def __init__(self, reason: str, hint: str = "") -> None:
        unlock = "Try 'git commit --allow-empty -S' in a terminal and unlock the key, or turn 'commit.gpgSign' off."
        super().__init__(f"The commit could not be signed: {reason}", hint=hint or unlock)


class Merger:
    """Merges and commits in one repository, through git processes that are started once.

    Safe to use from several threads; questions are answered one after the other.
    """

    def __init__(self, repo: Repository, objects: Objects) -> None:
        self.repo, self.objects = repo, objects
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._live: LiveGit | None = None
        self._live_folder: Path | None = None
        self._answered = 0
        self.census, self.loose = Census(objects), LooseObjects(repo)
        self._stays_open = can_stay_open(repo.version)
        self._gits: dict[str, Git] = {}
        self._identity: tuple[str, str] | None = None

    def __enter__(self) -> "Merger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes and remove the private folder; the next merge makes them anew."""
        with self._lock:
            self._drop_live()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            self._gits.clear()

    def merge(self, ours: str, theirs: str) -> Merge:
        tree = self.objects.tree_of(ours)
        if ours == theirs or theirs in self.objects.parents(ours):
            return Merge(ours, theirs, tree)
        if ours in self.objects.parents(theirs):
            return Merge(ours, theirs, self.objects.tree_of(theirs))
        with self._lock:
            git = self._git_for(tree)
            if self._stays_open:
                try:
                    return self._ask(git, ours, theirs)
                except GitGone:
                    self._drop_live()  # It says why only when run alone.
                except BaseException:
                    self._drop_live()
                    raise
            return self._run(git, ours, theirs)

    def commit(
        self,
        tree: str,
        parents: Sequence[str],
        message: str,
        *,
        when: int,
        sign: bool = False,
        author: tuple[str, str] | None = None,
        durable: bool = True,
    ) -> str:
        """Make a commit whose oid depends on these arguments and the user's identity only (unless it is signed)."""
        who = author or self._user()
        when = max(when, 0)  # git knows no time before 1970, whatever the clock says
        if sign:
            signed = _sign(self.repo, self.repo.git, who, (tree, tuple(parents), message, when))
            if b"\ngpgsig" not in self.objects.read(signed)[1].split(b"\n\n", 1)[0]:
                raise SigningFailed("git made a commit without a signature.")
            return signed
        lines = [f"tree {checked(tree)}", *(f"parent {checked(parent)}" for parent in parents)]
        person = f"{_bare(who[0])} <{_bare(who[1])}> {when} +0000"
        lines += [f"author {person}", f"committer {person}", "", clean_message(message)]
        return self.loose.write("commit", "\n".join(lines).encode(errors="replace"), durable=durable)

    def _user(self) -> tuple[str, str]:
        with self._lock:
            if self._identity is None:
                self._identity = self.repo.identity()
            return self._identity

    def _ask(self, git: Git, ours: str, theirs: str) -> Merge:
        if self._live_folder != git.cwd or self._answered >= MERGES_PER_PROCESS:
            self._drop_live()
        if self._live is None:
            words = ("merge-tree", "--write-tree", "--stdin", "--messages", "-z")
            self._live = LiveGit(git, *words, unbuffered=self.repo.version < FLUSHES)
            self._live_folder, self._answered = git.cwd, 0
        live = self._live
        live.say(f"{ours} {theirs}\n".encode())
        self._answered += 1
        clean = live.read_until(b"\0", MERGE_TIMEOUT) == b"1"
        return parse_merge(lambda: live.read_until(b"\0", MERGE_TIMEOUT), ours, theirs, clean=clean)

    def _run(self, git: Git, ours: str, theirs: str) -> Merge:
        try:
            done = git("merge-tree", "--write-tree", "--messages", "-z", ours, theirs, ok=(0, 1), timeout=MERGE_TIMEOUT)
        except GitError as error:
            if self.repo.git("merge-base", ours, theirs, ok=(0, 1, 128)).status == 1:
                raise _unrelated(self.repo, ours, theirs) from error
            raise
        fields = iter([*done.stdout.split(b"\0")[:-1], b""])
        return parse_merge(lambda: next(fields), ours, theirs, clean=done.status == 0)

    def _git_for(self, tree: str) -> Git:
        found = self.census.below(tree).attributes
        digest = hashlib.sha256(b"".join(path + b"\0" + oid.encode() for path, oid in found)).hexdigest()
        if digest not in self._gits:
            folder = self._private_folder() / "attributes" / digest
            folder.mkdir(parents=True)
            for path, oid in found:
                _write_attributes(folder, path, self.objects.read(oid)[1])
            config = {**self.repo.config(_HARMLESS), "core.attributesFile": os.devnull}
            if found:
                config |= dict.fromkeys(self.repo.config(_DRIVERS), "false")
            private = self._private_folder() / "git"
            environment = {
                "GIT_OBJECT_DIRECTORY": str(self.repo.common_dir / "objects"),
                "GIT_SHALLOW_FILE": str(self.repo.common_dir / "shallow"),
                "GIT_CONFIG_GLOBAL": os.devnull,
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_ATTR_NOSYSTEM": "1",
                "GIT_NO_REPLACE_OBJECTS": "1",
            }
            self._gits[digest] = Git(private, private, folder, folder, private / "no-index", config, environment)
        return self._gits[digest]

    def _private_folder(self) -> Path:
        if self._folder is None:
            place = self.repo.state / "merge"
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            sweep(place)
            self._folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=place))
            for name in ("git/refs", "git/objects", "attributes"):
                (self._folder / name).mkdir(parents=True)
            (self._folder / "git/HEAD").write_text("ref: refs/heads/none\n")
            version = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n"
            (self._folder / "git/config").write_text(
                f"{version}[extensions]\n\tobjectFormat = {self.repo.object_format}\n"
            )
        return self._folder

    def _drop_live(self) -> None:
        if self._live is not None:
            self._live.close()
        self._live, self._live_folder = None, None


FLUSHES = (2, 49)
"""From here on `merge-tree --stdin` hands out each answer when it is ready."""


def can_stay_open(version: tuple[int, ...]) -> bool:
    """Whether `merge-tree --stdin` can be talked to: it came with 2.39, and answered at once only later."""
    return version >= FLUSHES or (version >= (2, 39) and shutil.which("stdbuf") is not None)


def clean_message(message: str) -> str:
    """A commit message as git stores it: no NUL, one newline at the end."""
    return message.replace("\0", "").rstrip("\n") + "\n"


def _bare(text: str) -> str:
    """A name or an address without what would end it; git leaves the same characters out."""
    return re.sub(r"[\0\n<>]", "", text).strip(" .,:;\"\\'")


def _write_attributes(folder: Path, path: bytes, content: bytes) -> None:
    parts = path.split(b"/")
    if len(content) > ATTRIBUTES_LIMIT or any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
        return
    file = folder / os.fsdecode(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        # A name too long for a disk: a checkout would not have this file either.
        if error.errno != errno.ENAMETOOLONG:
            raise


def signing_problem(repo: Repository) -> SigningFailed | None:
    """Why a commit could not be signed now: an empty one is signed in a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="orchard-") as place:
        objects = str(repo.common_dir / "objects")
        aside = repo.git.with_environment(GIT_OBJECT_DIRECTORY=place, GIT_ALTERNATE_OBJECT_DIRECTORIES=objects)
        try:
            empty = aside("hash-object", "-w", "-t", "tree", "--stdin", stdin=b"").text
            _sign(repo, aside, repo.identity(), (empty, (), "Try to sign", 0))
        except SigningFailed as problem:
            return problem
    return None


def _sign(repo: Repository, git: Git, who: tuple[str, str], what: tuple[str, tuple[str, ...], str, int]) -> str:
    tree, parents, message, when = what
    rows = repo.git("config", "--show-scope", "-z", "--get-regexp", r"^gpg\..*program$", ok=(0, 1)).fields
    if {b"local", b"worktree"} & set(rows[::2]):
        # A job can write to the repository's settings; what they name is not run with the user's key.
        raise SigningFailed(
            "the repository's own config names the signing program.",
            "Name it in your global config ('git config --global gpg.program PROGRAM') and take it out of this one.",
        )
    date = f"@{when} +0000"
    variables = {"GPG_TTY": ""}
    for role in ("AUTHOR", "COMMITTER"):
        variables |= {f"GIT_{role}_NAME": who[0], f"GIT_{role}_EMAIL": who[1], f"GIT_{role}_DATE": date}
    git = git.with_environment(**variables)
    flags = [word for parent in parents for word in ("-p", parent)]
    try:
        text = clean_message(message).encode(errors="replace")
        return git("commit-tree", "-S", *flags, tree, stdin=text, timeout=SIGN_TIMEOUT).text
    except GitError as error:
        raise SigningFailed(error.stderr.strip() or "the signing program failed.") from error


def _unrelated(repo: Repository, ours: str, theirs: str) -> UnrelatedHistories:
    message = f"Commits {ours:.12} and {theirs:.12} have no common ancestor here, so they cannot be merged."
    if repo.is_shallow():
        return UnrelatedHistories(message, hint="This clone is shallow: run 'git fetch --unshallow'.")
    return UnrelatedHistories(message, hint="Base the plan on a branch that shares history with its target.")
