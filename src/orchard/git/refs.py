"""The refs that hold what orchard made, and the one way in which refs move.

A commit that no ref holds is garbage to `git gc`, so every result and every piece of saved work gets
a ref of ours before anyone relies on it. Refs move in transactions that compare and swap: each
update says what it expects to find, and either all of them happen or none.

    refs/orchard/keep/<plan>/<job>/<attempt>   the result of an attempt; `<attempt>-<subtask>` that of a subtask
    refs/orchard/wip/<plan>/<job>/<n>          work saved before a worktree was reset or removed
    refs/orchard/integration/<plan>            leaves merged with true ancestry
    refs/orchard/snapshot/<plan>               the line that lands
    refs/orchard/base/<plan>/<job>/<attempt>   what a job with several needs starts from
    refs/orchard/resolutions/...               conflicts that were resolved before

Refs are read by asking git, never from files: they may be loose, packed or in a reftable.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from orchard.errors import OrchardError, UsageError
from orchard.files import read_plain
from orchard.git.command import Git, GitError, lock_in_the_way
from orchard.git.folders import plain_content
from orchard.process.failpoint import failpoint

PREFIX = "refs/orchard"
LOCK_TIMEOUT = 5.0

ANY = "*"
"""As an old value: whatever the ref holds now is fine."""

_PART = re.compile(r"[A-Za-z0-9._-]{1,200}")


class RefMoved(OrchardError):
    """A ref was not where the caller last saw it; nothing was changed."""

    def __init__(self, ref: str, expected: str | None, actual: str | None) -> None:
        super().__init__(
            f"Ref {ref} is {_place(actual)}, not {_place(expected)}", hint="Read it again and decide anew."
        )
        self.ref, self.expected, self.actual = ref, expected, actual


class Update(Struct, frozen=True):
    ref: str
    new: str | None
    """None deletes the ref."""
    old: str | None
    """What the ref must hold now; None or the empty string: it must not exist; ANY: no matter what."""


def job_ref_part(job: str) -> str:
    """A job id as a part of a ref name, from which `job_of_ref_part` gets it back.

    Ids may hold what refs may not, and `a/1` would clash with attempt 1 of `a`. A `%`, which no id
    has, is put where either would happen.
    """
    parts = job.split("/")
    for part in parts:
        if not _PART.fullmatch(part):
            raise UsageError(f"Job id {job!r} cannot be part of a ref name.")
    return "/".join(_escape(part, first=number == 0) for number, part in enumerate(parts))


def job_of_ref_part(part: str) -> str:
    return part.replace("%", "")


def keep_ref(plan: str, job: str, attempt: int) -> str:
    return f"{PREFIX}/keep/{job_ref_part(plan)}/{job_ref_part(job)}/{attempt}"


def subtask_ref(plan: str, job: str, attempt: int, subtask: str) -> str:
    return f"{keep_ref(plan, job, attempt)}-{job_ref_part(subtask)}"


def wip_ref(plan: str, job: str, number: int) -> str:
    return f"{PREFIX}/wip/{job_ref_part(plan)}/{job_ref_part(job)}/{number}"


def integration_ref(plan: str) -> str:
    return f"{PREFIX}/integration/{job_ref_part(plan)}"


def snapshot_ref(plan: str) -> str:
    return f"{PREFIX}/snapshot/{job_ref_part(plan)}"


def read_ref(git: Git, ref: str) -> str | None:
    """What a ref holds; None if there is no such ref. Unlike a revision, a name means only itself."""
    return list_refs(git, ref).get(ref)


def list_refs(git: Git, *prefixes: str) -> dict[str, str]:
    rows = git("for-each-ref", "--format=%(objectname) %(refname)", *prefixes).stdout.splitlines()
    pairs = (row.decode(errors="surrogateescape").split(" ", 1) for row in rows)
    return {ref: oid for oid, ref in pairs}


def read_log(git: Git, ref: str, limit: int) -> set[tuple[str, str]]:
    """What a ref was moved to, and with which words: the last moves, as many as `limit`; nothing where none is noted.

    `git log -g` gives up where a setting for its colors or dates makes no sense, and no other command tells the words.
    """
    if (git.common_dir / "reftable").is_dir():
        words = ("log", "-g", "-z", "--format=%H %gs", f"--max-count={limit}", ref, "--")
        told = (os.fsdecode(row).partition(" ") for row in git(*words, ok=(0, 128), timeout=300).fields)
        return {(new, message) for new, _, message in told}
    rows = (plain_content(git.common_dir / "logs" / ref) or b"").splitlines()[-limit:]
    parts = (os.fsdecode(row).partition("\t") for row in rows)
    return {(" ".join(moved.split(" ", 2)[1:2]), message) for moved, _, message in parts}


def next_number(git: Git, ref_of_first: str) -> int:
    """The first number that is free beside a numbered ref such as a `wip_ref`."""
    folder = ref_of_first.rpartition("/")[0]
    numbers = [ref[len(folder) + 1 :] for ref in list_refs(git, folder)]
    return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=0) + 1


def update_refs(git: Git, updates: Sequence[Update], message: str, *, deref: bool = True) -> None:
    """Move all of these refs or none; RefMoved if one of them is not where it was expected.

    Without `deref` a symbolic ref such as HEAD is replaced, not followed.

    A failure is told apart by looking at the refs, not at what git says. Another process may hold a
    lock for a moment: git itself waits for it, and packed refs and transactions are tried again.
    """
    if not updates:
        return
    script = b"".join([b"start\0", *(ref_line(one, deref=deref) for one in updates), b"prepare\0commit\0"])
    _try_until_free(git, updates, ("--create-reflog", "-m", _one_line(message), "--stdin", "-z"), script)


def move_ref(git: Git, update: Update, message: str) -> None:
    """Move one ref as `update_refs` does, by a git that reads and says nothing: our own death does not stop it."""
    old = update.old if update.old else "0" * len(update.new or "")
    words = ("-d", update.ref, old) if update.new is None else ("--create-reflog", update.ref, update.new, old)
    _try_until_free(git, [update], ("-m", _one_line(message), *words))


def _try_until_free(git: Git, updates: Sequence[Update], words: Sequence[str], script: bytes = b"") -> None:
    failpoint("ref.before-update")
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            git("update-ref", *words, stdin=script)
        except GitError as error:
            _raise_if_moved(git, updates)
            if ".lock'" not in error.stderr:
                raise
            if time.monotonic() >= deadline and not _remove_old_lock(git, updates, error.stderr):
                raise
            time.sleep(0.05)
        else:
            failpoint("ref.after-update")
            return


Move = Callable[[Sequence[Update], str], None]
Prove = Callable[[str, str, str], None]


def hold(
    git: Git,
    ref: str,
    commit: str,
    base: str,
    move: Move | None = None,
    prove: Prove | None = None,
    old: str | None = None,
) -> None:
    """Make a new ref hold a commit that builds on `base`, and prove that all of it can be read from there.

    It is fine if the ref holds the commit already. If the proof fails, a ref that was made here goes
    again: a ref to what is not there would break every later `git gc`. `move` and `prove` are other ways
    to do what `update_refs` and `confirm` do. `old`: the ref is there and holds this, which the commit builds on.
    """
    created = True
    try:
        (move or partial(update_refs, git))([Update(ref, commit, old)], "orchard: hold")
    except RefMoved as moved:
        if moved.actual != commit:
            raise
        created = False
    failpoint("hold.before-read-back")
    try:
        (prove or partial(confirm, git))(ref, commit, base)
    except OrchardError:
        if created:
            update_refs(git, [Update(ref, old, commit)], "orchard: not readable")
        raise


def delete_refs(git: Git, refs: Mapping[str, str], message: str) -> None:
    update_refs(git, [Update(ref, None, old) for ref, old in refs.items()], message)


def confirm(git: Git, ref: str, commit: str, base: str) -> None:
    """Read every object between `base` and the ref, by a new process; a missing one is an error of git's.

    A `git gc --prune=now` that began before the ref was made deletes what it saw no ref for, even
    after we have read it. While a gc runs the objects are therefore packed as well: it deletes only
    those packs that it found when it began.
    """
    if (git.common_dir / "gc.pid").exists():
        place = git.common_dir / "objects" / "pack" / "pack"
        wanted = f"{commit}\n{f'^{base}' if base else ''}\n".encode()
        git("pack-objects", "-q", "--revs", str(place), stdin=wanted, timeout=600)
    # Where it is not known what it was made from, what the user's own refs hold is left out.
    beyond = (base,) if base else ("--branches", "--tags", "--remotes")
    rows = git("rev-list", "--objects", ref, "--not", *beyond, timeout=600).stdout
    held = rows.split(b"\n", 1)[0].decode() or read_ref(git, ref)  # older than base: nothing to list
    if held != commit:
        raise GitError(("rev-list", ref), git.cwd, 0, f"missing: the ref holds {held}, not {commit}")


def _remove_old_lock(git: Git, updates: Sequence[Update], stderr: str) -> bool:
    """Remove a lock that a git of ours left when it was killed; whether there was one.

    It has stood still for as long as we waited, and holds what we are about to write, or is that of a ref that is ours
    alone. Where a gc runs, it may be the gc's.
    """
    lock = Path(lock_in_the_way(stderr) or "")
    if not lock.is_relative_to(git.common_dir) or (git.common_dir / "gc.pid").exists():
        return False
    ref = str(lock.relative_to(git.common_dir)).removesuffix(".lock")
    wanted = [f"{one.new}\n".encode() for one in updates if one.ref == ref and one.new]
    try:
        if time.time() - lock.lstat().st_mtime < LOCK_TIMEOUT:
            return False
        if not ref.startswith(f"{PREFIX}/") and read_plain(lock) not in wanted:
            return False
        lock.unlink()
    except OSError:
        return False
    return True


def _raise_if_moved(git: Git, updates: Iterable[Update]) -> None:
    expected = {update.ref: update.old or None for update in updates if update.old != ANY}
    if not expected:
        return
    actual = list_refs(git, *expected)
    for ref, old in expected.items():
        if actual.get(ref) != old:
            raise RefMoved(ref, old, actual.get(ref))


def ref_line(update: Update, *, deref: bool = True) -> bytes:
    """One command of a transaction; with `-z` an empty old value would mean "do not check"."""
    return _line(update) if deref else b"option no-deref\0" + _line(update)


def _line(update: Update) -> bytes:
    old = "" if update.old == ANY else update.old or ""
    if update.new is None and not update.old:
        words = f"verify {update.ref}", ""
    elif update.new is None:
        words = f"delete {update.ref}", old
    elif not update.old:
        words = f"create {update.ref}", update.new
    else:
        return "\0".join((f"update {update.ref}", update.new, old, "")).encode(errors="surrogateescape")
    return "\0".join((*words, "")).encode(errors="surrogateescape")


def _escape(part: str, *, first: bool) -> str:
    while ".." in part:
        part = part.replace("..", ".%.")
    if part.startswith("."):
        part = f"%{part}"
    if part.endswith(".lock"):
        part = f"{part[:-5]}.%lock"
    if part.endswith("."):
        part = f"{part}%"
    return f"%{part}" if part.isdigit() and not first else part


def _one_line(message: str) -> str:
    return " ".join(message.replace("\0", " ").split()) or "orchard"


def _place(oid: str | None) -> str:
    return f"at {oid:.12}" if oid else "missing"
