"""Work that is still in a worktree, saved before anything may be removed.

Whatever a job left (staged, not staged, untracked, commits of its own, and those that only a rebase which stopped
or the worktree's reflog still know) becomes a commit under a ref of ours, read back by another git process. Only then
is there a `Saved`, and without one nothing resets or removes a worktree. What cannot be saved raises `CannotSave`, and
stays where it is.
Ignored files are not saved: they are caches and build results, or were copied from the user's folder.

Nothing in the worktree is touched: files are staged in an index of our own.
"""

import hashlib
import itertools
import os
import secrets
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orchard.errors import RUN_DOCTOR, OrchardError, UsageError
from orchard.files import read_plain
from orchard.git.command import Blocked, Git, GitError
from orchard.git.filters import block_filters
from orchard.git.folders import remove_special
from orchard.git.objects.processes import Live
from orchard.git.objects.reader import Change, ObjectMissing
from orchard.git.pipes import remove_blocked_notes, remove_links
from orchard.git.refs import PREFIX, RefMoved, hold, job_of_ref_part, job_ref_part, next_number
from orchard.git.repository import WORKTREE_NAME, Repository, Worktree
from orchard.git.scratch import commit_index, copy_index, private_file
from orchard.git.worktree.fast_commit import holds, read_files
from orchard.git.worktree.remains import commit_notes, escaped, find_remains, named_objects, nothing_but, staged_apart
from orchard.git.worktree.status import (
    ADD_TIMEOUT,
    Contents,
    Left,
    Picture,
    display,
    look,
    picture,
    seen_as,
    stage,
    stamps,
    try_again,
)
from orchard.git.worktree.submodules import Loss, Places, Settled, modules_of, settle
from orchard.process.failpoint import failpoint

REF_TRIES = 5
ESCAPED = ".orchard-saved"
"""The folder, in a commit of saved work, of files whose names git does not store."""
LISTED_NAMES = 100


class Witness(Struct, frozen=True):
    """What a worktree looked like when it was saved, so that it can be told later whether it still does.

    A worktree that no job has may wait for minutes before it is reset, and a person or a process may write there
    meanwhile. Small ones are compared by a picture (names, sizes and the times that only the kernel sets), without a
    process; for large ones git is asked once more, and files that differed then are compared by their times.
    """

    picture: Picture | None
    """None: there is too much in it."""
    contents: Contents | None = None
    stamps: bytes = b""
    notes: bytes = b""


class CannotSave(OrchardError):
    def __init__(self, worktree: Worktree, reason: str, paths: tuple[str, ...] = ()) -> None:
        super().__init__(
            f"The work in {worktree.path} cannot be saved: {reason}",
            hint="Nothing was removed. Move what you want to keep out of that folder, then try again.",
        )
        self.worktree, self.reason, self.paths = worktree, reason, paths


class Saved(Struct, frozen=True):
    """Proof, good for one use, that a worktree holds nothing that is not also under a ref."""

    worktree: Worktree
    commit: str | None
    """None: there was nothing to save."""
    ref: str | None
    head: str | None
    dirty: bool
    ignored: int
    """How many ignored files or folders there are; they are not saved."""
    special: tuple[bytes, ...]
    """Pipes, sockets and devices: they cannot be saved, and git does not remove them."""
    clutter: bool
    """Whether something lies there that a checkout would not remove."""
    index_usable: bool
    token: str
    seen: Witness | None = None
    """What the worktree looked like; None where there was none any more."""
    more: tuple[tuple[str, str], ...] = ()
    """Refs and commits that hold what only git's own notes led to: a rebase that stopped, a reflog."""
    new_files: tuple[bytes, ...] | None = None
    """The worktree stands at `head` but for these files; None where more than that, or something else, differs."""
    only_ignored: bool = False
    """The worktree stands at `head` but for ignored files."""
    stands_at: str | None = None
    """The commit that the worktree holds, file by file and nothing besides, while HEAD and the index are at `head`."""
    changes: tuple[Change, ...] = ()
    """From `head` to the commit that the worktree stands at."""
    submodules: Places | None = None
    """The submodules that are checked out, and where; None where git keeps nothing of any for the worktree."""

    @property
    def refs(self) -> tuple[tuple[str, str], ...]:
        first = ((self.ref, self.commit),) if self.ref is not None and self.commit is not None else ()
        return (*first, *self.more)


class SavedWork(Struct, frozen=True):
    """A piece of saved work, as `orchard recover` lists it."""

    ref: str
    commit: str
    plan: str
    job: str
    number: int
    at: int
    """Seconds since 1970."""
    subject: str
    files: int


def ensure_saved(
    repo: Repository,
    worktree: Worktree,
    ref: str,
    message: str,
    base: str,
    live: Live | None = None,
    *,
    made_from: str | None = None,
    held_by: str | None = None,
    left: Left | None = None,
) -> Saved:
    """Save what the worktree holds beyond `base`; if `ref` is taken, the next number is used.

    `made_from`: the commit we made the worktree's index from, if no other git wrote to it since.
    `held_by`: the ref that holds `base`. `left`: what the worktree held when `base` was made of it, where nobody was
    started there since. The proof is then that it holds just that: whoever resets or removes it looks first.

    Objects can vanish under us if someone runs `git gc --prune=now` in the moment between writing
    and naming them. Reading back notices, and the files are hashed once more.
    """
    if not os.path.lexists(worktree.path):
        return _save_head_only(repo, worktree, _Request(ref, message, base, fresh=True))
    if worktree.path.is_symlink() or not worktree.path.is_dir():
        raise CannotSave(worktree, "it is not a folder any more.")
    request = _Request(ref, message, base, fresh=False)
    notes = _notes(repo, worktree)
    if notes is not None:
        remove_blocked_notes(notes)
        try:
            remove_links(notes)
        except OSError as error:
            raise CannotSave(worktree, f"git's notes on it cannot be read ({error.strerror}).") from error
    if made_from and live is not None:
        saved = _in_result(live, worktree, base, made_from, held_by, left)
        if saved is not None:
            return saved
    try:
        return _save_surely(repo, worktree, request)
    except Blocked as blocked:
        # A pipe holds nothing, and with it there no git would ever end.
        for name in blocked.names if blocked.cwd == worktree.path else ():
            remove_special(worktree.path, name)
    try:
        return _save_surely(repo, worktree, request)
    except Blocked as blocked:
        raise CannotSave(worktree, blocked.message) from blocked


def _save_surely(repo: Repository, worktree: Worktree, request: "_Request") -> Saved:
    """Save, and once more with fresh eyes where git's notes turn out to be damaged, or objects vanished."""
    for number in itertools.count():
        with private_file(repo) as index:
            try:
                return _save(repo, worktree, index, replace(request, fresh=number > 0))
            except Blocked:
                raise
            except (GitError, OSError) as error:
                if not try_again(error, number):
                    raise CannotSave(worktree, str(error)) from error
    raise AssertionError("the last try returns or raises")


def restore(repo: Repository, revision: str, folder: Path) -> str:
    """Write saved work into a new folder; returns the commit."""
    commit = repo.resolve(revision)[1]
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()) or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not empty.", hint="Name a folder that does not exist yet.")
    folder.mkdir(parents=True, exist_ok=True)
    with private_file(repo) as index:
        git = _folder_git(repo, folder.resolve(), index)
        git("read-tree", "--reset", "-u", commit, timeout=ADD_TIMEOUT)
    return commit


def saved_work(repo: Repository, plan: str | None = None) -> list[SavedWork]:
    prefix = f"{PREFIX}/wip/{job_ref_part(plan)}" if plan else f"{PREFIX}/wip"
    fields = ("refname", "objectname", "creatordate:unix", "parent", "contents:subject")
    form = "%00".join(f"%({field})" for field in fields)
    listed = []
    for row in repo.git("for-each-ref", f"--format={form}", "--sort=-creatordate", prefix).stdout.splitlines():
        name, commit, at, parents, subject = row.decode(errors="replace").split("\0", 4)
        parts = name.removeprefix(f"{PREFIX}/wip/").split("/")
        if len(parts) < 3 or not parts[-1].isdigit():
            continue  # not made by us
        job = job_of_ref_part("/".join(parts[1:-1]))
        work = SavedWork(name, commit, job_of_ref_part(parts[0]), job, int(parts[-1]), int(at or 0), subject, 0)
        listed.append((work, parents.split(" ")[0]))
    counts = _changed_files(repo.git, [(work.commit, parent) for work, parent in listed if parent])
    return [replace(work, files=counts.get(work.commit, 0)) for work, _ in listed]


class _Request(Struct, frozen=True):
    ref: str
    message: str
    base: str
    fresh: bool
    """Trust nothing git noted about this worktree: neither its index nor its HEAD."""


def _save(repo: Repository, worktree: Worktree, index: Path, request: _Request) -> Saved:
    seen = picture(worktree.path)
    git, index_usable = _open_index(repo, worktree, index, request)
    contents = look(git, worktree.path)
    head = contents.head or request.base
    if request.fresh:
        head = _head(repo, worktree) or request.base
    if contents.nested:
        names = tuple(display(name) for name in contents.nested)
        raise CannotSave(worktree, f"there are other git repositories in it ({', '.join(names[:5])}).", names)
    proof = _proof(repo, worktree, seen_as(worktree.path, contents, seen))
    settled = _settled(repo, worktree, contents.submodules, head)
    contents = replace(contents, moved=settled.moved)
    ref = None
    commit = None
    staged = staged_apart(git, contents)
    if not contents.clean:
        commit = _commit(git, worktree, contents, (head, request.message))
        failpoint("wip.before-hold")
        ref = _hold(repo.git, request, commit)
    elif head != request.base and not _is_held(repo.git, head, request.base):
        commit = head
        ref = _hold(repo.git, request, commit)
    return replace(
        proof,
        commit=commit,
        ref=ref,
        dirty=not contents.clean,
        submodules=settled.places,
        index_usable=index_usable and not contents.hidden,
        more=_hold_remains(repo, worktree, replace(request, base=request.base or head), (head, staged)),
    )


def _proof(repo: Repository, worktree: Worktree, found: Left) -> Saved:
    """For a worktree that holds this, all of it saved elsewhere."""
    notes, contents = repo.notes_on(worktree.name), found.contents
    return Saved(
        worktree=worktree,
        commit=None,
        ref=None,
        head=contents.head,
        dirty=not contents.clean,
        ignored=len(contents.ignored),
        special=contents.special,
        clutter=contents.clutter,
        index_usable=True,
        token=secrets.token_hex(8),
        seen=witness(notes, found),
    )


def _in_result(
    live: Live, worktree: Worktree, result: str, made_from: str, held_by: str | None, left: Left | None
) -> Saved | None:
    """The proof for a worktree that holds a result which a ref holds already, and nothing more; None: look closer."""
    try:
        if not live.is_plain(made_from) or not live.is_plain(result):
            return None
        notes = live.repo.notes_on(worktree.name)
        if os.path.lexists(modules_of(live.repo, worktree)):
            return None
        found = left or _look_again(live.repo, worktree, notes)
        proof, contents = _proof(live.repo, worktree, found), found.contents
        files = read_files(worktree.path, contents)
        if files is None or contents.head is None:
            return None
        if not nothing_but(notes, (made_from, result, contents.head)):
            return None
        trees = live.objects.tree_of(contents.head), live.objects.tree_of(result)
        if not holds(live.objects, live.loose, files, trees):
            return None
        if files and (held_by is None or live.objects.resolve(held_by) != result):
            return None
    except (GitError, ObjectMissing, OSError):
        return None
    besides = contents.ignored or contents.special or contents.empty_folders
    new_files = None if contents.changed or besides else contents.untracked
    only_ignored = contents.clean and not contents.special and not contents.empty_folders
    proof = replace(proof, new_files=new_files, only_ignored=only_ignored)
    if left is None or left.picture is None or besides:
        return proof
    return replace(proof, stands_at=result, changes=tuple(live.objects.diff_trees(*trees)))


def _look_again(repo: Repository, worktree: Worktree, notes: Path) -> Left:
    seen = picture(worktree.path, notes / "index")
    contents = look(repo.worktree_git(worktree.name, worktree.path), worktree.path, untouched=True)
    return seen_as(worktree.path, contents, seen)


def _save_head_only(repo: Repository, worktree: Worktree, request: _Request) -> Saved:
    head = _head(repo, worktree)
    ref = None
    if head and head != request.base and not _is_held(repo.git, head, request.base):
        ref = _hold(repo.git, request, head)
    _settled(repo, worktree, (), head or request.base)
    more = _hold_remains(repo, worktree, replace(request, base=request.base or head or ""), (head or "", b""))
    token = secrets.token_hex(8)
    return Saved(worktree, head if ref else None, ref, head, False, 0, (), False, False, token, None, more)


def _hold_remains(
    repo: Repository, worktree: Worktree, request: _Request, known: tuple[str, bytes]
) -> tuple[tuple[str, str], ...]:
    """Give refs to what only git's notes on the worktree lead to; `known` are its HEAD, and rows of its index."""
    notes, (head, staged) = _notes(repo, worktree), known
    if notes is None:
        return ()
    remains = find_remains(replace(repo.git, git_dir=notes), repo.git, (head, request.base))
    commits = list(remains.tips)
    if (last := commit_notes(repo, notes, (head, staged), remains, request.message)) is not None:
        commits.append(last)
    return tuple((_hold(repo.git, request, commit), commit) for commit in commits)


def _notes(repo: Repository, worktree: Worktree) -> Path | None:
    """Where git keeps what it notes about a worktree of ours; None where it keeps nothing."""
    notes = repo.notes_on(worktree.name)
    return notes if WORKTREE_NAME.fullmatch(worktree.name) and notes.is_dir() and not notes.is_symlink() else None


def _open_index(repo: Repository, worktree: Worktree, index: Path, request: _Request) -> tuple[Git, bool]:
    """A private copy of the worktree's index, or a new one where that is missing or damaged."""
    if not request.fresh:
        git = repo.worktree_git(worktree.name, worktree.path).with_index(index)
        if copy_index(git.git_dir / "index", index):
            return git, True
        git("read-tree", "HEAD")
        return git, False
    git = _folder_git(repo, worktree.path, index)
    git("read-tree", _head(repo, worktree) or request.base or "--empty")
    return git, False


def _folder_git(repo: Repository, folder: Path, index: Path) -> Git:
    """Git with this folder as work tree, without any notes that git keeps about it.

    Content that asks for a filter that is not trusted is saved as it is: better so than not at all.
    """
    git = Git(repo.common_dir, repo.common_dir, cwd=folder, work_tree=folder, index=index)
    return block_filters(git, repo.filters_at_home, fail=False)


def _head(repo: Repository, worktree: Worktree) -> str | None:
    """The worktree's HEAD, if git's notes on it are still readable."""
    git = replace(repo.git, git_dir=repo.notes_on(worktree.name))
    return git("rev-parse", "-q", "--verify", "HEAD^{commit}", ok=(0, 1, 128)).text or None


def _settled(repo: Repository, worktree: Worktree, names: tuple[bytes, ...], head: str) -> Settled:
    """Where the worktree's submodules are; CannotSave if they hold what no remote has."""
    settled = settle(repo, worktree, names, head)
    if isinstance(settled, Loss):
        raise CannotSave(worktree, f"submodule {settled.name} {settled.problem}.", (settled.name,))
    return settled


def _commit(git: Git, worktree: Worktree, contents: Contents, why: tuple[str, str]) -> str:
    """Commit the worktree's content; what was staged and then changed again becomes a second parent."""
    head, message = why
    parents = [head] if head else []
    if set(contents.staged) & set(contents.changed) and not contents.unmerged:
        parents.append(commit_index(git, parents[:], f"staged: {message}"))
    refused = stage(git, worktree.path, contents)
    if refused:
        message = f"{message}\n\n{_stage_escaped(git, worktree.path, refused)}"
    return commit_index(git, parents, message)


def _stage_escaped(git: Git, top: Path, names: tuple[bytes, ...]) -> str:
    """Put files whose names git does not store into the index under names that it does; returns what to say of it."""
    candidates = itertools.chain([ESCAPED], (f"{ESCAPED}-{number}" for number in itertools.count(2)))
    folder = next(one for one in candidates if not os.path.lexists(top / one))
    rows = []
    for name in names:
        place = top / os.fsdecode(name)
        link = place.is_symlink()
        if link:
            oid = git("hash-object", "-w", "--stdin", stdin=os.fsencode(place.readlink())).text
        else:
            oid = git("hash-object", "-w", "--no-filters", "--", str(place), timeout=ADD_TIMEOUT).text
        mode = b"120000" if link else b"100755" if place.lstat().st_mode & 0o100 else b"100644"
        rows.append(b"%s %s\t%s/%s\0" % (mode, oid.encode(), folder.encode(), escaped(name)))
    git("update-index", "--add", "-z", "--index-info", stdin=b"".join(rows))
    listed = "\n".join(f"  {display(name)}" for name in names[:LISTED_NAMES])
    return f"Git does not store files of these names; they are in {folder}/, with their names escaped:\n{listed}"


def _hold(git: Git, request: _Request, commit: str) -> str:
    """Put the commit under the ref that was asked for, or under the next free number."""
    ref = request.ref
    for _ in range(REF_TRIES):
        try:
            hold(git, ref, commit, request.base)
        except RefMoved:
            ref = f"{request.ref.rpartition('/')[0]}/{next_number(git, request.ref)}"
        else:
            return ref
    raise OrchardError(f"No free ref was found beside {request.ref}", hint=RUN_DOCTOR)


def _is_held(git: Git, commit: str, base: str) -> bool:
    """Whether a ref of ours reaches this commit; where it is not known what it began from, any ref will do."""
    return bool(git("for-each-ref", "--count=1", f"--contains={commit}", *([PREFIX] if base else [])).stdout)


def _changed_files(git: Git, pairs: list[tuple[str, str]]) -> dict[str, int]:
    """How many files each commit changes against the given parent."""
    if not pairs:
        return {}
    lines = "".join(f"{commit} {parent}\n" for commit, parent in dict.fromkeys(pairs)).encode()
    counts: dict[str, int] = {}
    current = ""
    wanted = {commit.encode() for commit, _ in pairs}
    for row in git("diff-tree", "--stdin", "-r", "--no-renames", "--name-only", "-z", stdin=lines).fields:
        if row in wanted:
            current = row.decode()
        else:
            counts[current] = counts.get(current, 0) + 1
    return counts


# ------------------------------------------------------------------ whether it is still as it was saved


def witness(git_dir: Path, found: Left) -> Witness:
    """What to remember of a worktree that holds what was found there."""
    if found.picture is not None:
        return Witness(found.picture, notes=_digest_of_notes(git_dir))
    return Witness(None, found.contents, found.stamps, _digest_of_notes(git_dir))


def still_holds(git: Git, path: Path, before: Witness, index: Path, *, untouched: bool) -> bool:
    """Whether a worktree is as it was; `index` is a place for a copy of its own, which is not written to."""
    if not os.path.lexists(path):
        return True
    if before.notes != _digest_of_notes(git.git_dir):
        return False
    if before.picture is not None:
        return picture(path) == before.picture
    if before.contents is None:
        return False
    if not (git.git_dir / "index").exists():
        return True  # git never knew this folder, or its notes were damaged: it cannot be asked
    if not untouched:
        if not copy_index(git.git_dir / "index", index):
            return False
        git = git.with_index(index)
    return look(git, path, untouched=untouched) == before.contents and stamps(path, before.contents) == before.stamps


def _digest_of_notes(git_dir: Path) -> bytes:
    """What changes with git's notes on a worktree: its HEAD, its index, and every commit that they name."""
    digest = hashlib.sha256()
    try:
        # A `git gc` beside us holds HEAD's lock while it looks for old lines in the log of HEAD.
        names = sorted(entry.name for entry in os.scandir(git_dir) if entry.name != "HEAD.lock")
        index = (git_dir / "index").lstat()
        facts = (index.st_ino, index.st_size, index.st_mtime_ns, index.st_ctime_ns)
        digest.update(repr((names, facts, sorted(named_objects(git_dir)))).encode())
        digest.update(read_plain(os.path.realpath(git_dir / "HEAD")))
    except OSError as error:
        digest.update(repr(error.errno).encode())
    return digest.digest()
