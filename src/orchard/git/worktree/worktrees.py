"""Folders to work in: linked worktrees of ours, with detached heads, below one root.

Git itself fails now and then when two processes add or remove worktrees at once, so that part is
done under a lock that all our processes share. It is held only for what must not overlap (about
5 ms): files are written and deleted outside of it.

No worktree is reset or removed without a `Saved`, the proof that its content is under a ref.
Removing is a rename to `.trash`; `empty_trash` deletes later, when no job waits.
Folder names are ours and random. What a plan calls its jobs never becomes a path.
"""

import errno
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import filelock
from msgspec import Struct, field
from msgspec.structs import replace

from orchard.errors import RUN_DOCTOR, OrchardError, no_locks
from orchard.files import read_plain
from orchard.git.command import GitError
from orchard.git.folders import (
    delete_children,
    entries,
    exclude,
    mounts_below,
    remove_file,
    remove_special,
    remove_tree,
    write_atomically,
)
from orchard.git.landing.index import BadIndex, changed_index
from orchard.git.repository import LOCK_REASON, WORKTREE_NAME, Repository, Worktree, unblock_worktrees
from orchard.git.scratch import private_file
from orchard.git.worktree import fitness
from orchard.git.worktree.job_links import BY_JOB, sweep_links
from orchard.git.worktree.remains import AT_REST
from orchard.git.worktree.save import Saved, still_holds
from orchard.git.worktree.status import ADD_TIMEOUT, Left
from orchard.git.worktree.submodules import stayed
from orchard.process.failpoint import failpoint

LOCK_TIMEOUT = 60.0
ADD_TRIES = 12
"""A `worktree prune` that runs all the time beside us spoils one try in ten."""
TRASH = ".trash"
SETTLED_FROM = 64 * 1024
"""Bytes of an index, some hundred files; with fewer, reading them again costs less than a process."""

FOLLOWED_INDEX = 256 * 1024
"""Bytes of an index up to which it is quicker to change it ourselves than to have git check out."""

_SPARSE_FILES = ("config.worktree", "info/sparse-checkout")


class Stray(Struct, frozen=True):
    """Something below the root that is in no list."""

    name: str
    path: Path
    kind: Literal["folder", "entry"]
    """`folder`: git does not know this folder; `entry`: git knows a worktree of ours that has no folder."""


class NotSaved(OrchardError):
    """A worktree was about to be reset or removed without proof that its content is saved."""


class ProofIsOld(NotSaved):
    """A program wrote to a worktree after it was saved; it has to be saved again."""


class Worktrees(Struct):
    repo: Repository
    root: Path
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _used: set[str] = field(default_factory=set)
    _made: dict[str, tuple[str, tuple[int, ...], Left | None]] = field(default_factory=dict)
    _stood: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """The commit that was checked out last in a worktree, and the stamp of the index that this left."""
    _unsettled: set[str] = field(default_factory=set)
    _prepared: bool = False

    def add(self, commit: str, reason: str, *, parallel: bool = False) -> Worktree:
        """Make a worktree at this commit; `parallel` lets git write its files with one worker per core."""
        worktree = self._register(commit, _label(reason))
        failpoint("worktree.after-register")
        git = self.repo.worktree_git(worktree.name, worktree.path)
        try:
            self._note_sparse(worktree)
            workers = "0" if parallel else "1"
            git.with_config(checkout__workers=workers)("read-tree", "-u", "--reset", commit, timeout=ADD_TIMEOUT)
            self._note_checkout(worktree, commit)
        except BaseException:
            # Nothing but our own checkout has been here: there is nothing to save.
            self._discard(worktree)
            raise
        return worktree

    def made_from(self, worktree: Worktree) -> str | None:
        """The commit we made a worktree's index from; None if another git may have written to it since."""
        commit, stamp, _ = self._made.get(worktree.name, ("", (), None))
        return commit if commit and fitness.index_stamp(self._admin(worktree)) == stamp else None

    def left_by(self, worktree: Worktree) -> Left | None:
        """What the worktree held when its work was committed, if that was noted and nobody went on there."""
        return self._made.get(worktree.name, ("", (), None))[2]

    def settle_index(self, worktree: Worktree, *, wait: bool = False) -> None:
        """Spare later looks at a large worktree from reading every file again; `wait`: a second at most.

        Git trusts its notes on a file only if they are older, in whole seconds, than the index that holds them.
        A checkout writes both in the same second, so nothing is trusted until the index is written once more.
        """
        index = self._admin(worktree) / "index"
        with suppress(OSError, GitError):
            found = index.lstat()
            if wait and found.st_size >= SETTLED_FROM:
                time.sleep(min(1.0, max(0.0, int(found.st_mtime) + 1 - time.time())))
            if worktree.name not in self._unsettled or int(time.time()) <= int(found.st_mtime):
                return
            self._unsettled.discard(worktree.name)
            if (commit := self.made_from(worktree)) is not None and found.st_size >= SETTLED_FROM:
                git = self.repo.worktree_git(worktree.name, worktree.path)
                written = self._is_written(worktree)
                git("update-index", "-q", "--refresh", ok=(0, 1), timeout=ADD_TIMEOUT)
                self.note_index(worktree, commit, self.left_by(worktree))
                if not written:
                    self._stood[worktree.name] = (commit, fitness.index_stamp(self._admin(worktree)))

    def note_index(self, worktree: Worktree, commit: str, left: Left | None = None) -> None:
        self._made[worktree.name] = (commit, fitness.index_stamp(self._admin(worktree)), left)

    def _note_checkout(self, worktree: Worktree, commit: str) -> None:
        self.note_index(worktree, commit)
        self._stood[worktree.name] = (commit, fitness.index_stamp(self._admin(worktree)))
        self._unsettled.add(worktree.name)

    def standing(self, worktree: Worktree) -> tuple[str, tuple[int, ...]] | None:
        """The commit that a worktree stands at, and the stamp of its index; None if a git wrote to that since."""
        made, stood = self.made_from(worktree), self._stood.get(worktree.name)
        return stood if stood and stood[0] == made and not self._is_written(worktree) else None

    def take_over(self, worktree: Worktree, commit: str, stamp: tuple[int, ...]) -> bool:
        """Go on with a worktree that another engine left at a commit; False if git's notes are not as they were."""
        admin = self._admin(worktree)
        same = fitness.index_stamp(admin) == stamp and fitness.is_detached_at(admin, commit)
        if same and self.exists(worktree) and _pointer(admin) == worktree.path:
            self._made[worktree.name], self._stood[worktree.name] = (commit, stamp, None), (commit, stamp)
        return self.standing(worktree) is not None

    def reset(
        self,
        worktree: Worktree,
        commit: str,
        saved: Saved,
        keep: tuple[str, ...] | None = (),
        reason: str | None = None,
    ) -> None:
        """Make the worktree hold exactly `commit`, and of what is ignored only what matches `keep`; None: all of it.

        `Unfit`, while the proof is still good, if another folder should be taken.
        """
        admin, written = self._admin(worktree), self._is_written(worktree)
        fitness.refuse_unfit(admin, saved)
        self._use(worktree, saved)
        failpoint("worktree.before-reset")
        if reason is not None:
            self._label(worktree, reason)
        clean = saved.new_files is not None or (keep is None and saved.only_ignored)
        stays = clean and saved.head == commit and fitness.is_detached_at(admin, commit)
        if stays and not written and self.made_from(worktree) == commit:
            self._take_out(worktree, saved.new_files or ())
            self.note_index(worktree, commit)
        elif saved.stands_at == commit and not written and self._follow(worktree, saved):
            self._note_checkout(worktree, commit)
        else:
            self._check_out(worktree, commit, saved, keep)
            self._note_checkout(worktree, commit)
        failpoint("worktree.after-reset")

    def _is_written(self, worktree: Worktree) -> bool:
        """Whether we or a job have written to the index since the last checkout."""
        return self._stood.get(worktree.name, ("", ()))[1] != fitness.index_stamp(self._admin(worktree))

    def _label(self, worktree: Worktree, reason: str) -> None:
        """Have git's lock say whom the worktree is for now; it is held all the while, also when power fails here."""
        text = os.fsencode(_label(reason))
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            place = os.open(self._admin(worktree) / "locked", flags)
            try:
                os.pwrite(place, text, 0)
                os.ftruncate(place, len(text))
            finally:
                os.close(place)

    def _take_out(self, worktree: Worktree, names: tuple[bytes, ...]) -> None:
        """Remove files from a worktree that is as it should be without them."""
        self._forget_operations(self._admin(worktree), worktree, keep_index=True)
        for name in names:
            remove_file(worktree.path, name)
        self.repair(worktree)
        self._forget_log(worktree)

    def _follow(self, worktree: Worktree, saved: Saved) -> bool:
        """Have HEAD and the index follow a worktree that holds the next commit already; False: git has to do it.

        So a job that begins with what the one before it made costs no checkout.
        """
        admin = self._admin(worktree)
        index, commit = admin / "index", saved.stands_at or ""
        try:
            if self.made_from(worktree) != saved.head or index.lstat().st_size > FOLLOWED_INDEX:
                return False
            stands = {change.path: fitness.stand_of(worktree.path, change) for change in saved.changes}
            made = changed_index(index.read_bytes(), stands, len(commit) // 2)
        except (OSError, BadIndex):
            return False
        self._forget_operations(admin, worktree, keep_index=True)
        self.repair(worktree)
        # The journal says where a worktree stands, so these notes may reach the disk later.
        for file, content in ((index, made), (admin / "HEAD", f"{commit}\n".encode())):
            write_atomically(file, content, stat.S_IMODE(file.lstat().st_mode), durable=False)
        self._forget_log(worktree)
        return True

    def _check_out(self, worktree: Worktree, commit: str, saved: Saved, keep: tuple[str, ...] | None) -> None:
        admin, stood = self._admin(worktree), self._stood.get(worktree.name, ("", ()))[0]
        written = self._is_written(worktree)
        anew = not saved.index_usable or not stood or (written and fitness.takes_away(admin, len(commit) // 2))
        self._forget_operations(admin, worktree, keep_index=not anew)
        for name in saved.special:
            remove_special(worktree.path, name)
        for name in saved.new_files or ():
            remove_file(worktree.path, name)
        self.repair(worktree)
        # The journal says where a worktree stands, so these notes may reach the disk later.
        git = self.repo.worktree_git(worktree.name, worktree.path).with_config(core__fsync="objects")
        checkout = ("checkout", "-q", "--force", "--detach", "--no-recurse-submodules", commit)
        try:
            if written and not anew:
                fitness.remove_written(git, worktree.path, stood, ADD_TIMEOUT)
            done = git(*checkout, timeout=ADD_TIMEOUT)
        except GitError:
            (admin / "index").unlink(missing_ok=True)
            anew = True
            done = git(*checkout, timeout=ADD_TIMEOUT)
        if anew or (saved.clutter and saved.new_files is None):
            options = [word for pattern in keep or () for word in ("-e", pattern)]
            git("clean", "-ffdq" if keep is None else "-ffdxq", *options, timeout=ADD_TIMEOUT)
        if done.stderr:
            fitness.refuse_unclean(git, worktree.path, ADD_TIMEOUT)
        self._forget_log(worktree)

    def remove(self, worktree: Worktree, saved: Saved) -> None:
        """Take a worktree away; its files wait in the trash for `empty_trash`."""
        self._use(worktree, saved)
        failpoint("worktree.before-remove")
        self._discard(worktree)
        failpoint("worktree.after-remove")

    def remove_unknown(self, folder: Worktree, saved: Saved) -> None:
        """Take away a folder below the root that git does not know; like `remove`, only with proof."""
        self._use(folder, saved)
        trash = self.root / TRASH
        trash.mkdir(mode=0o700, exist_ok=True)
        folder.path.rename(trash / f"unknown-{secrets.token_hex(8)}")

    def empty_trash(self) -> list[str]:
        """Delete what was removed; returns what could not be deleted."""
        failpoint("trash.before-empty")
        return delete_children(self.root / TRASH)

    def drop_empty_root(self) -> None:
        """Take the root away if nothing is in it; what holds something stays."""
        sweep_links(self.root)
        for folder in (self.root / TRASH, self.root):
            with suppress(OSError):
                folder.rmdir()

    def exists(self, worktree: Worktree) -> bool:
        real = worktree.path.is_dir() and not worktree.path.is_symlink()
        return real and (self._admin(worktree) / "HEAD").exists()

    def head(self, worktree: Worktree) -> str:
        return self.repo.worktree_git(worktree.name, worktree.path)("rev-parse", "--verify", "HEAD^{commit}").text

    def is_ours(self, worktree: Worktree) -> bool:
        """Whether git's notes say that this worktree was made by us, for this very folder."""
        return self._owns(self._admin(worktree), worktree.path)

    def strays(self, known: Collection[str]) -> list[Stray]:
        """Folders that neither git nor the caller knows, and worktrees of ours that lost their folder."""
        notes = self.repo.common_dir / "worktrees"
        folders = {entry.name for entry in entries(self.root) if entry.name not in (TRASH, BY_JOB)}
        registered = {entry.name for entry in entries(notes) if _pointer(Path(entry.path)) == self.root / entry.name}
        gone = sorted(registered - folders - set(known))
        lost = [name for name in gone if self._owns(notes / name, self.root / name)]
        unknown = sorted(folders - registered - set(known))
        found = [Stray(name, self.root / name, "folder") for name in unknown]
        return found + [Stray(name, self.root / name, "entry") for name in lost]

    def repair(self, worktree: Worktree) -> None:
        """Put back what a job may have broken, so that git works for the next job there.

        A `.git` that became a repository of its own is moved aside: it may hold work.
        """
        if worktree.path.is_symlink() or not worktree.path.is_dir():
            raise OrchardError(f"The worktree {worktree.path} is gone.", hint="Retry the job with '--fresh'.")
        if known := self._made.get(worktree.name):
            self._made[worktree.name] = (*known[:2], None)  # somebody is about to work there
        admin, link = self._admin(worktree), worktree.path / ".git"
        if link.is_dir() and not link.is_symlink():
            link.rename(worktree.path / f".git-moved-{secrets.token_hex(4)}")
        wanted = {link: f"gitdir: {admin}\n", admin / "gitdir": f"{link}\n", admin / "commondir": "../..\n"}
        for file, text in wanted.items():
            if file.is_symlink() or not file.is_file() or file.read_bytes() != os.fsencode(text):
                write_atomically(file, os.fsencode(text), 0o644)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold what must not overlap with another process that adds or removes worktrees."""
        self.repo.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self.repo.state / "worktrees.lock"
        if not self._turn.acquire(timeout=LOCK_TIMEOUT):
            raise _busy(place)
        try:
            with filelock.FileLock(place, timeout=LOCK_TIMEOUT, mode=0o600).acquire(poll_interval=0.003):
                yield
        except filelock.Timeout as error:
            raise _busy(place) from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            raise no_locks(place, error) from error
        finally:
            self._turn.release()

    def _register(self, commit: str, reason: str) -> Worktree:
        """Tell git about a new worktree without writing its files."""
        words = ("worktree", "add", "--no-checkout", "--detach", "--lock", "--reason", reason)
        for last in (*[False] * (ADD_TRIES - 1), True):
            name = "w" + "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(8))
            worktree = Worktree(name, self.root / name)
            git = replace(self.repo.git, index=None)
            try:
                with self.lock():
                    self._prepare_root()
                    unblock_worktrees(self.repo.common_dir)
                    git(*words, "--", str(worktree.path), commit)
            except GitError:
                # A user's `worktree prune` or `add` beside us makes git fail in many words.
                self._discard(worktree)
                if last:
                    raise
                time.sleep(0.02)
            else:
                return worktree
        raise AssertionError("the last try returns or raises")

    def _prepare_root(self) -> None:
        if self._prepared:
            return
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise OrchardError(
                f"The worktree root {self.root} cannot be made: {error.strerror}.",
                hint="Set 'worktree_root' to a folder that you may write to.",
            ) from error
        top = self.repo.main_top
        if top is not None and self.root.is_relative_to(top) and not self.root.is_relative_to(self.repo.common_dir):
            exclude(self.repo.common_dir, f"/{self.root.relative_to(top)}/")
        self._prepared = True

    def _use(self, worktree: Worktree, saved: Saved) -> None:
        """Spend the proof; the same one twice would be no proof of what happened in between."""
        if saved.worktree != worktree or saved.token in self._used:
            raise NotSaved(f"The content of {worktree.path} was not saved, so it stays.", hint=RUN_DOCTOR)
        if mounted := mounts_below(worktree.path):
            raise NotSaved(f"{mounted[0]} is mounted in the worktree, so it stays.", hint=f"Run: umount {mounted[0]}")
        self._used.add(saved.token)
        if not self._is_as_it_was(worktree, saved):
            said = f"Something was written to {worktree.path} after it was saved, so it stays."
            raise ProofIsOld(said, hint=RUN_DOCTOR)

    def _is_as_it_was(self, worktree: Worktree, saved: Saved) -> bool:
        """Look once more: between saving and now a person or a process may have been there."""
        if saved.seen is None:
            return not os.path.lexists(worktree.path)
        git = self.repo.worktree_git(worktree.name, worktree.path)
        untouched = WORKTREE_NAME.fullmatch(worktree.name) is not None and self.made_from(worktree) is not None
        try:
            if not stayed(self.repo, worktree, saved.submodules, saved.head or ""):
                return False
            with private_file(self.repo) as index:
                return still_holds(git, worktree.path, saved.seen, index, untouched=untouched)
        except (GitError, OSError):
            return False

    def _discard(self, worktree: Worktree) -> None:
        trash = self.root / TRASH
        if os.path.lexists(worktree.path):
            trash.mkdir(mode=0o700, exist_ok=True)
            worktree.path.rename(trash / f"{worktree.name}-{secrets.token_hex(4)}")
        failpoint("worktree.after-rename")
        admin = self._admin(worktree)
        aside = self.repo.state / "tmp" / f"{worktree.name}-{secrets.token_hex(4)}"
        aside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One step: a `git worktree prune` beside us sees all of git's notes or none. It may also be first.
        with self.lock(), suppress(FileNotFoundError):
            if self._owns(admin, worktree.path):
                admin.rename(aside)
        remove_tree(aside)
        remove_tree(self._sparse_notes(worktree))

    def _owns(self, admin: Path, path: Path) -> bool:
        """Whether git's notes are on a worktree of ours: by their reason, or by the folder they point to."""
        if not WORKTREE_NAME.fullmatch(admin.name) or admin.is_symlink() or not admin.is_dir():
            return False
        try:
            reason = read_plain(admin / "locked")
        except OSError:
            reason = b""
        return reason.startswith(LOCK_REASON.encode()) or _pointer(admin) in (path, None)

    def _forget_operations(self, admin: Path, worktree: Worktree, *, keep_index: bool) -> None:
        """Remove a merge, rebase or setting that a job left under way, and lock files of dead processes."""
        for entry in entries(admin):
            if entry.name in AT_REST and (entry.name != "index" or keep_index):
                continue
            if entry.is_dir(follow_symlinks=False):
                if failed := remove_tree(Path(entry.path)):
                    raise OSError(errno.EBUSY, failed[0], entry.path)
            else:
                # A user's `reflog expire --all` takes a lock here, too, and lets it go by itself.
                Path(entry.path).unlink(missing_ok=True)
        notes = self._sparse_notes(worktree)
        if notes.is_dir():
            shutil.copytree(notes, admin, dirs_exist_ok=True)

    def _forget_log(self, worktree: Worktree) -> None:
        """Every commit that HEAD's log names is held by a ref of ours; the next job begins with an empty one."""
        remove_tree(self._admin(worktree) / "logs")

    def _note_sparse(self, worktree: Worktree) -> None:
        """Remember the settings that git copied from a sparse main worktree, to put them back on a reset."""
        for name in _SPARSE_FILES:
            file = self._admin(worktree) / name
            if file.is_file():
                copy = self._sparse_notes(worktree) / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)

    def _sparse_notes(self, worktree: Worktree) -> Path:
        return self.repo.state / "sparse" / worktree.name

    def _admin(self, worktree: Worktree) -> Path:
        if not WORKTREE_NAME.fullmatch(worktree.name):
            raise ValueError(f"{worktree.name!r} is not the name of a worktree of ours")
        return self.repo.notes_on(worktree.name)


def _pointer(admin: Path) -> Path | None:
    """The folder that git's notes are about; None if they do not say."""
    try:
        said = os.fsdecode(read_plain(admin / "gitdir").rstrip(b"\n"))
    except OSError:
        return None
    return Path(os.path.normpath(admin / said)).parent if said else None


def _busy(place: Path) -> OrchardError:
    """Who holds the lock, as far as the kernel tells."""
    holder = "another process"
    with suppress(OSError):
        inode = str(place.stat().st_ino)
        for row in Path("/proc/locks").read_text().splitlines():
            words = row.split()
            if "->" not in words and words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
                holder = f"process {words[4]}"
    return OrchardError(
        f"{holder.capitalize()} has been adding or removing worktrees for {LOCK_TIMEOUT:g} s.",
        hint=f"Wait for it or end it. The lock is {place}",
    )


def _label(reason: str) -> str:
    text = f"{LOCK_REASON}: {reason}"
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:200]
