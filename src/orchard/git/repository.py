"""The user's repository: where it is, what it holds, and how git is pointed at it.

There are three ways to point git, and each names every folder outright, so that neither the
environment nor a `.git` file decides which repository is meant:

    repo.git                  plumbing on objects and refs: an empty work tree, no index
    repo.worktree_git(...)    one of our worktrees
    repo.checkout_git(...)    one of the user's checkouts; only landing writes there

Our own state lies in the `orchard` folder of the repository's common folder, where there is nothing
to ignore and nothing to commit by accident.
"""

import os
import re
import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.errors import NotFound, UsageError
from orchard.files import read_plain
from orchard.git.checkout_state import (
    branch_in,
    branch_to_come_back_to,
    may_be_alias,
    naming,
    not_found,
    operation_in,
    path_in,
    points_elsewhere,
)
from orchard.git.command import MINIMUM_VERSION, Blocked, Git, GitError, GitMissing, Output, clean_environment, run_git
from orchard.git.filters import Filters, block_filters, run_at
from orchard.git.folders import entries, links_out_of
from orchard.git.pipes import on_the_way, remove_blocked_notes, waiting_worktrees
from orchard.git.refs import list_refs, read_ref

LOCK_REASON = "orchard"
"""How the reason begins for which `git worktree lock` holds a worktree of ours."""

REMOTE_KEYS = r"remote\..*\.(url|pushurl|receivepack|uploadpack|vcs|proxy)$|url\.|credential\."
"""Settings that say where a fetch or a push goes, and which programs git runs for it."""
WORKTREE_NAME = re.compile(r"w[a-z2-7]{8}")

FALLBACK_IDENTITY = ("Orchard", "orchard@localhost")


class Worktree(Struct, frozen=True):
    """A folder of ours to work in; `name` is also what git calls it below `worktrees/`."""

    name: str
    path: Path


class Checkout(Struct, frozen=True):
    """One row of `git worktree list`: the user's main folder, a linked one, or one of ours."""

    path: Path
    git_dir: Path
    branch: str | None
    """The branch that is checked out here, or that a rebase or bisect under way here will come back to."""
    head: str | None
    bare: bool
    locked: bool
    prunable: bool
    ours: bool
    label: str
    """What the lock on it was made for; of our own, see `Worktrees.add`."""
    operation: str | None
    """What is under way here: rebase, merge, cherry-pick, revert, bisect."""


class Repository(Struct, frozen=True, eq=False, dict=True):
    """A repository that exists. What can change while we run is asked for, not kept."""

    common_dir: Path
    git_dir: Path
    """The git folder of the checkout that the user stands in; `common_dir` outside of a linked one."""
    top: Path | None
    """The top of the checkout that the user stands in; None in a bare repository or inside `.git`."""
    main_top: Path | None
    """The top of the main worktree; None where there is none."""
    object_format: str
    version: tuple[int, ...]
    filters: Filters = ()
    """Every `filter.*` setting at the time of opening, see `worktree_git`."""
    remotes: tuple[tuple[str, str], ...] = ()
    """Every setting of remotes at the time of opening, see `changed_remotes`."""
    config_stamp: tuple[int, ...] = ()
    ignores_case: bool = False
    """Whether the file system takes `A` and `a` for one name, as git found when the repository was made."""
    _legal_names: set[str] = field(default_factory=set)
    """Names that git allows for a branch: its rules are the one thing here that cannot change."""
    _notes: dict[str, Path] = field(default_factory=dict)
    _free_roots: dict[Path, tuple[int, ...]] = field(default_factory=dict)
    """Folders below which no file was tracked, and the stamp of the index that said so."""

    @property
    def bare(self) -> bool:
        return self.main_top is None

    @property
    def home(self) -> Path:
        """The folder that stands for the repository: its main checkout, or where there is none its git folder."""
        return self.main_top or self.top or self.common_dir

    @cached_property
    def state(self) -> Path:
        return self.common_dir / "orchard"

    def notes_on(self, name: str) -> Path:
        """Git's own folder about a worktree; asked for many times a job, so each path is made once."""
        if (known := self._notes.get(name)) is None:
            known = self._notes[name] = self.common_dir / "worktrees" / name
        return known

    @property
    def git(self) -> Git:
        """Git for objects and refs: no attribute file or index of any checkout changes what it does."""
        empty = self.state / "empty"
        if self.state.is_dir():
            empty.mkdir(mode=0o700, exist_ok=True)
        else:
            empty = self.common_dir  # a command that only looks makes nothing
        return Git(
            self.common_dir, self.common_dir, cwd=self.common_dir, work_tree=empty, index=self.state / "no-index"
        )

    @property
    def remote_git(self) -> Git:
        """Git for remotes: in the user's folder, as the address of one may be a path that begins there."""
        return replace(self.git, cwd=self.home)

    def changed_remotes(self) -> list[str]:
        """The settings of remotes that are not as they were when the repository was opened.

        They name addresses, and programs that git runs for them. Since then jobs have run, who can write them.
        """
        known, now = dict(self.remotes), self.config(f"^({REMOTE_KEYS})")
        return sorted(key for key in known.keys() | now.keys() if known.get(key) != now.get(key))

    def worktree_git(self, name: str, path: Path) -> Git:
        """Git in one of our worktrees, whatever the `.git` file in that folder says.

        Filters are programs that `add` and `read-tree` run. Those that the user had configured when
        the repository was opened keep their values; one that turned up since then may be a job's
        doing: it fails instead of running, and only for files that ask for it.
        """
        git_dir = self.notes_on(name)
        git = Git(self.common_dir, git_dir, cwd=path, work_tree=path, config=dict(self.filters_at_home))
        if stamp_of(self.common_dir / "config", git_dir / "config.worktree") == self.config_stamp:
            return git
        return block_filters(git, self.filters_at_home)

    @property
    def filters_at_home(self) -> Filters:
        """The user's filters for content of jobs: they run where no job can put a program or a module in their way."""
        return run_at(self.home, self.filters)

    def checkout_git(self, checkout: Checkout) -> Git:
        if checkout.bare:
            return self.git
        return Git(self.common_dir, checkout.git_dir, cwd=checkout.path, work_tree=checkout.path)

    def config(self, pattern: str) -> dict[str, str]:
        """The user's own settings whose key matches, without those that we override; the last value counts."""
        git = self.git.with_environment(GIT_CONFIG_COUNT="0")
        rows = git("config", "-z", "--get-regexp", pattern, ok=(0, 1)).fields
        pairs = (os.fsdecode(row).partition("\n") for row in rows)
        # A key without "=" has no value and means true.
        return {key: value if equals else "true" for key, equals, value in pairs}

    def checkouts(self) -> list[Checkout]:
        unblock_worktrees(self.common_dir)
        git_dirs = _admin_folders(self.common_dir)
        listing = _list_worktrees(self.git)
        records = [record for record in listing.stdout.split(b"\0\0") if record]
        return [self._checkout(record, git_dirs, main=number == 0) for number, record in enumerate(records)]

    def current_branch(self) -> str | None:
        """The branch of the checkout that the user stands in; None if its HEAD is detached."""
        return self._branch_in(self.git_dir)

    def default_branch(self) -> str | None:
        """The branch that others start from: what the remote says, else the usual names."""
        remote = self.git("symbolic-ref", "-q", "refs/remotes/origin/HEAD", ok=(0, 1)).text
        if remote.startswith("refs/remotes/origin/"):
            return remote.removeprefix("refs/remotes/origin/")
        configured = self.config(r"^init\.defaultbranch$").get("init.defaultbranch")
        names = [name for name in (configured, "main", "master") if name]
        branches = list_refs(self.git, *(f"refs/heads/{name}" for name in names))
        return next((name for name in names if f"refs/heads/{name}" in branches), None)

    def branches(self) -> dict[str, str]:
        return {ref.removeprefix("refs/heads/"): tip for ref, tip in list_refs(self.git, "refs/heads").items()}

    def branch_tip(self, branch: str) -> str | None:
        return read_ref(self.git, f"refs/heads/{branch}") if branch else None

    def resolve(self, name: str) -> tuple[str | None, str]:
        """What a name means, as (branch, commit): a branch before anything else that git understands."""
        if not name or "\0" in name:
            raise UsageError("A branch or commit has to be named.")
        tip = self.branch_tip(name)
        if tip is not None:
            return name, tip
        git = Git(self.common_dir, self.git_dir, cwd=self.common_dir)
        done = git("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}", ok=(0, 1, 128))
        if done.status == 0 and done.text:
            return None, done.text
        from difflib import get_close_matches  # only a mistake pays for it

        near = get_close_matches(name, list(self.branches()), n=3)
        hint = (
            f"Did you mean {' or '.join(repr(one) for one in near)}?"
            if near
            else "Run 'git branch -a' to see what there is."
        )
        raise NotFound(f"There is no branch or commit {name!r} in this repository.", hint=hint)

    def check_branch_name(self, name: str) -> None:
        """UsageError unless a branch may have this name. Unlike `--branch`, nothing is expanded."""
        if name in self._legal_names:
            return
        legal = bool(name) and "\0" not in name and not name.startswith("-") and name != "HEAD"
        if not legal or self.git("check-ref-format", f"refs/heads/{name}", ok=(0, 1)).status != 0:
            hint = "Run 'git check-ref-format --help' for the rules."
            raise UsageError(f"{name!r} is not a name that git allows for a branch.", hint=hint)
        self._legal_names.add(name)

    def free_branch_name(self, wanted: str, branches: Iterable[str] | None = None) -> str:
        """This name if no branch stands in its way, else the nearest that is free."""
        names = [name.casefold() for name in (self.branches() if branches is None else branches)]
        taken = set(names) | {name[:end] for name in names for end, char in enumerate(name) if char == "/"}
        parents = [wanted[:end] for end, char in enumerate(wanted) if char == "/"]
        if any(parent.casefold() in names for parent in parents):
            # A branch `orchard` forbids every `orchard/...`.
            wanted = wanted.replace("/", "-")
        number, name = 1, wanted
        while name.casefold() in taken:
            number += 1
            name = f"{wanted}-{number}"
        self.check_branch_name(name)
        return name

    def has_commits(self) -> bool:
        return bool(self.git("for-each-ref", "--count=1", "refs/heads").stdout)

    def is_shallow(self) -> bool:
        return self.git("rev-parse", "--is-shallow-repository").text == "true"

    def identity(self) -> tuple[str, str]:
        """Whose name commits carry, as (name, email); a neutral one where git knows none."""
        said = self.config(r"^(user|author)\.(name|email)$")
        found = []
        for word, fallback in zip(("name", "email"), FALLBACK_IDENTITY, strict=True):
            configured = (said.get(f"{who}.{word}") for who in ("author", "user"))
            values = (os.environ.get(f"GIT_AUTHOR_{word.upper()}"), *configured)
            value = next(filter(None, values), "")
            found.append(re.sub(r"[\x00-\x1f<>]+", " ", value).strip(" .,:;\"'\\") or fallback)
        return found[0], found[1]

    def wants_signing(self) -> bool:
        git = self.git.with_environment(GIT_CONFIG_COUNT="0")
        return git("config", "--type=bool", "--get", "commit.gpgSign", ok=(0, 1, 128)).text == "true"

    def worktree_root(self, setting: str) -> Path:
        """Where our worktrees go: a folder that belongs to nothing else."""
        home = self.main_top
        if re.search(r"[\x00-\x1f]", setting) or not setting.strip():
            raise UsageError(f"{setting!r} cannot be the worktree root.")
        chosen = Path(setting)
        if home is None and not chosen.is_absolute():
            return self.state / "worktrees"
        root = ((home or self.state) / chosen).resolve()
        if home is not None and (links := links_out_of(home, chosen)):
            git = Git(self.common_dir, self.common_dir, cwd=home, work_tree=home)
            if found := git("ls-files", "--", *(f":(literal){link}" for link in links)).text:
                said = f"The worktree root {chosen} leads out of the repository by {found}, a link that git tracks"
                raise UsageError(said, hint="Name the folder that you mean by its full path, in your own settings.")
        if root.exists() and not root.is_dir():
            raise UsageError(f"The worktree root {root} is not a folder", hint="Move it away, or set 'worktree_root'.")
        hint = "Set 'worktree_root' to a folder of its own, such as '.orchard-worktrees'."
        for taken in (home, self.common_dir):
            if taken is not None and taken.is_relative_to(root):
                raise UsageError(f"The worktree root {root} holds the repository itself", hint=hint)
        if root.is_relative_to(self.common_dir) and not root.is_relative_to(self.state / "worktrees"):
            raise UsageError(f"The worktree root {root} lies inside git's own folder", hint=hint)
        index = stamp_of(self.common_dir / "index")
        if home is not None and root.is_relative_to(home) and self._free_roots.get(root) != index:
            main = Git(self.common_dir, self.common_dir, cwd=home, work_tree=home)
            if main("ls-files", "-z", "--", f":(literal){root.relative_to(home)}").stdout:
                raise UsageError(f"The worktree root {root} holds files that git tracks", hint=hint)
            self._free_roots[root] = index
        return root

    def meant_branch(self, branch: str) -> str:
        """The branch that a name stands for: it may be another name for one (a symbolic ref)."""
        if not may_be_alias(self.common_dir, branch):
            return branch
        return _branch_of(self.git("symbolic-ref", "-q", f"refs/heads/{branch}", ok=(0, 1, 128))) or branch

    def checked_out_in(self, git_dir: Path) -> str | None:
        """The branch whose commit a checkout is at; where HEAD names another name for a branch, that branch."""
        git = Git(self.common_dir, git_dir, cwd=self.common_dir)
        asked = ("rev-parse", "-q", "--symbolic-full-name", "HEAD")
        return branch_in(git_dir, self.common_dir) or _branch_of(git(*asked, ok=(0, 1, 128)))

    def _branch_in(self, git_dir: Path) -> str | None:
        git = Git(self.common_dir, git_dir, cwd=self.common_dir)
        return branch_in(git_dir, self.common_dir) or _branch_of(git("symbolic-ref", "-q", "HEAD", ok=(0, 1)))

    def _checkout(self, record: bytes, git_dirs: dict[bytes, Path], *, main: bool) -> Checkout:
        rows = {key: value for key, _, value in (row.partition(b" ") for row in record.strip(b"\0").split(b"\0"))}
        listed = rows[b"worktree"]
        path = self.main_top or self.common_dir if main else Path(os.fsdecode(listed))
        git_dir = self.common_dir if main else git_dirs.get(listed, self.notes_on(path.name))
        branch = os.fsdecode(rows[b"branch"]).removeprefix("refs/heads/") if b"branch" in rows else None
        head, bare = rows.get(b"HEAD", b"").decode(), b"bare" in rows
        if bare and main and self.main_top is not None:
            # Set since we began, by a job or a test in it: the user's files and branch are there all the same.
            branch, bare = self._branch_in(self.common_dir), False
            head = self.git("rev-parse", "-q", "--verify", "HEAD^{commit}", ok=(0, 1)).text
        return Checkout(
            path=path,
            git_dir=git_dir,
            branch=branch if branch is not None or bare else branch_to_come_back_to(git_dir),
            head=head if head.strip("0") else None,
            bare=bare,
            locked=b"locked" in rows,
            prunable=b"prunable" in rows,
            ours=rows.get(b"locked", b"").startswith(LOCK_REASON.encode()),
            label=os.fsdecode(rows.get(b"locked", b"")).removeprefix(f"{LOCK_REASON}: "),
            operation=None if bare else operation_in(git_dir),
        )


def _branch_of(ref: Output) -> str | None:
    return ref.text.removeprefix("refs/heads/") if ref.text.startswith("refs/heads/") else None


def is_true(value: str | None) -> bool:
    """Whether a setting of git's says yes."""
    return (value or "").lower() in ("true", "yes", "on", "1")


def find_repository(start: Path) -> Repository:
    """The repository that this folder is in.

    A repository without a checkout may be a few tracked files of another one, with settings that run programs, so it
    counts only where it is named: `Path()`, the folder that the user happens to stand in, names nothing.
    """
    if not start.is_dir():
        raise UsageError(f"There is no folder {start}")
    try:
        place = start.resolve()
    except FileNotFoundError:
        raise UsageError("The folder that you are in was removed.", hint="Change to one that exists.") from None
    if (waits := on_the_way(place)) is not None:
        raise Blocked(*waits)
    version = git_version(start)
    env = clean_environment()
    object_format, common_dir, git_dir, top = _places(start, naming(start, env))
    if top is not None and points_elsewhere(top, git_dir):
        raise UsageError(
            f"The repository in {git_dir} says that its files are in {top}, which belongs to another repository.",
            hint=f"Look at 'core.worktree' in {git_dir / 'config'}.",
        )
    repo = Repository(common_dir, git_dir, top, None, object_format, version)
    said = repo.config(rf"^(filter\.|core\.ignorecase$|{REMOTE_KEYS})")
    ignores_case = is_true(said.pop("core.ignorecase", None))
    remotes = {key: said.pop(key) for key in list(said) if not key.startswith("filter.")}
    return replace(
        repo,
        main_top=_main_top(repo),
        filters=tuple(said.items()),
        remotes=tuple(remotes.items()),
        config_stamp=stamp_of(common_dir / "config"),
        ignores_case=ignores_case,
    )


def _places(start: Path, env: Mapping[str, str]) -> tuple[str, Path, Path, Path | None]:
    """The object format, the common folder, the git folder and the top, by one git where one can tell."""
    common = ("--show-object-format", "--path-format=absolute", "--git-common-dir")
    done = run_git(("rev-parse", *common, "--absolute-git-dir", "--show-toplevel"), cwd=start, env=env)
    # A repository without a checkout, and a folder inside of `.git`, have no top: the rest was told before that.
    rows = os.fsdecode(done.stdout).removesuffix("\n").split("\n")
    if len(rows) == (4 if done.status == 0 else 3):
        paths = [Path(row).resolve() for row in rows[1:]]
        return rows[0], paths[0], paths[1], paths[2] if done.status == 0 else None
    done = run_git(("rev-parse", *common), cwd=start, env=env)
    if done.status != 0:
        raise not_found(start, done)
    object_format, place = os.fsdecode(done.stdout.removesuffix(b"\n")).split("\n", 1)
    common_dir = Path(place).resolve()
    git_dir = path_in(run_git(("rev-parse", "--absolute-git-dir"), cwd=start, env=env)) or common_dir
    return object_format, common_dir, git_dir, path_in(run_git(("rev-parse", "--show-toplevel"), cwd=start, env=env))


def git_version(cwd: Path) -> tuple[int, ...]:
    said = run_git(("--version",), cwd=cwd, env=clean_environment()).text
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", said)
    version = tuple(int(number or 0) for number in found.groups()) if found else (0,)
    if version < MINIMUM_VERSION:
        needed = ".".join(map(str, MINIMUM_VERSION))
        raise GitMissing(f"This is {said}, which is too old.", hint=f"Install git {needed} or newer.")
    return version


def unblock_worktrees(common_dir: Path) -> None:
    """See that `git worktree` waits for no pipe: those in notes on our worktrees go, others raise `Blocked`."""
    for name in waiting_worktrees(common_dir):
        folder = common_dir / "worktrees" / name.split("/")[1]
        if not WORKTREE_NAME.fullmatch(folder.name):
            raise Blocked(common_dir, (os.fsencode(name),))
        remove_blocked_notes(folder)


def _admin_folders(common_dir: Path) -> dict[bytes, Path]:
    """Where git keeps its notes on each linked worktree, by the path that it lists it under."""
    found = {}
    for folder in entries(common_dir / "worktrees"):
        admin = Path(folder.path)
        try:
            pointer = read_plain(admin / "gitdir").rstrip(b"\n")
        except OSError:
            continue  # being made or removed at this moment
        if not pointer.startswith(b"/"):
            pointer = os.path.normpath(os.fsencode(admin) + b"/" + pointer)
        found[pointer.removesuffix(b"/.git")] = admin
    return found


def _list_worktrees(git: Git) -> Output:
    """`git worktree list`, which fails now and then while another process is adding one."""
    for delay in (0.02, 0.1, 0.5):
        try:
            return git("worktree", "list", "--porcelain", "-z")
        except GitError:
            time.sleep(delay)
    return git("worktree", "list", "--porcelain", "-z")


def _main_top(repo: Repository) -> Path | None:
    """The top of the main worktree, also when the user stands in a linked one."""
    if repo.git_dir == repo.common_dir and repo.top is not None:
        return repo.top
    said = repo.config(r"^core\.(bare|worktree)$")
    if is_true(said.get("core.bare")):
        return None
    if "core.worktree" in said:
        top = (repo.common_dir / said["core.worktree"]).resolve()
        return None if points_elsewhere(top, repo.common_dir) else top
    return repo.common_dir.parent if repo.common_dir.name == ".git" else None


def stamp_of(*files: Path) -> tuple[int, ...]:
    """Changes when one of these files does; a file that is not there adds nothing."""
    stamp: list[int] = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        stamp += (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return tuple(stamp)
