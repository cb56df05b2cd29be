"""Git processes that stay open for one repository, for what every job does: write a commit, name it, read it back.

A process costs more than what most of these steps do. None of the open ones holds a lock between two
questions, and none of them knows more than success: where one of them fails, for whatever reason, the
usual way is taken, which finds out why.

    Live    the open processes of a repository; `close` it
    Mover   moves refs
"""

import threading
from collections.abc import Sequence

from orchard.git.command import GitError, GitGone, LiveGit
from orchard.git.merge.merge import Merger
from orchard.git.objects.reader import Objects
from orchard.git.refs import ANY, Update, confirm, hold, ref_line, update_refs
from orchard.git.repository import Repository
from orchard.git.worktree.fast_commit import Storage
from orchard.process.failpoint import failpoint

MOVE_TIMEOUT = 30.0


class Mover:
    """Moves refs through one open `git update-ref`.

    `durable`: a ref that was moved outlives a power cut. Without it, what a ref holds must be known elsewhere.
    """

    def __init__(self, repo: Repository, *, durable: bool) -> None:
        self._repo, self._durable = repo, durable
        self._lock = threading.Lock()
        self._process: LiveGit | None = None

    def move(self, updates: Sequence[Update], message: str, *, deref: bool = True) -> None:
        """Compare and swap all of these refs or none; see `update_refs`."""
        rows = b"".join(ref_line(one, deref=deref) for one in updates)
        failpoint("ref.before-update")
        with self._lock:
            try:
                if self._process is None:
                    git = self._repo.git if self._durable else self._repo.git.with_config(core__fsync="objects")
                    self._process = LiveGit(git, "update-ref", "--create-reflog", "-m", "orchard", "--stdin", "-z")
                self._process.say(b"start\0" + rows + b"prepare\0commit\0")
                for step in (b"start", b"prepare", b"commit"):
                    if self._process.read_until(b"\n", MOVE_TIMEOUT) != step + b": ok":
                        raise GitGone("'git update-ref' gave an answer that was not expected.")
                failpoint("ref.after-update")
                return
            except GitGone:
                self._drop()
            except BaseException:
                self._drop()
                raise
        update_refs(self._repo.git, updates, message, deref=deref)

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class Live:
    def __init__(self, repo: Repository) -> None:
        self.repo = repo
        self.objects = Objects(repo.git)
        self.merger = Merger(repo, self.objects)
        self.census, self.loose = self.merger.census, self.merger.loose
        self._storage = Storage(repo)
        self.results = Mover(repo, durable=True)
        """For refs that hold work."""
        self.lines = Mover(repo, durable=False)
        """For refs that can be made again from what the journal says."""

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_plain(self, commit: str) -> bool:
        """Whether every file of a commit is stored as it is, and none of it is a submodule; see `plain`."""
        below = self.census.below(self.objects.tree_of(commit))
        return self._storage.is_plain() and not below.attributes and not below.submodules

    def close(self) -> None:
        self.results.close()
        self.lines.close()
        self.merger.close()
        self.objects.close()

    def hold(self, ref: str, commit: str, base: str, old: str | None = None) -> None:
        """Make a new ref hold a commit made on `base`, and prove that all of it can be read from there.

        As `refs.hold`, for a commit with the one parent `base`; others are proved the usual way.
        """
        hold(self.repo.git, ref, commit, base, self.results.move, self._read_back, old)

    def set_head(self, worktree: str, commit: str) -> None:
        """Move the detached HEAD of a worktree, by its name; its files and its index stay as they are."""
        self.lines.move([Update(f"worktrees/{worktree}/HEAD", commit, ANY)], "orchard: work committed", deref=False)

    def _read_back(self, ref: str, commit: str, base: str) -> None:
        if (self.repo.common_dir / "gc.pid").exists() or self.objects.resolve(ref) != commit:
            return confirm(self.repo.git, ref, commit, base)
        if self.objects.commit(commit).parents != (base,):
            return confirm(self.repo.git, ref, commit, base)
        old, new = self.objects.tree_of(base), self.objects.tree_of(commit)
        made = self.objects.new_objects(old, new)
        if missing := self.objects.missing([commit, *made]):
            raise GitError(("cat-file", ref), self.repo.common_dir, 0, f"missing object {missing}")
        return None
