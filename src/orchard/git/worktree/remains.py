"""What only git's own notes on a worktree lead to.

A rebase that stopped keeps the job's commits in a todo list and in `rebase-merge/orig-head`; a reset, an amend or a
checkout leaves them in the worktree's reflog; a bisect has refs that belong to this worktree alone. All of that lies in
the folder which git keeps for the worktree, and goes with it. So before a worktree is reset or removed, every commit
that is named there and that no ref reaches gets a ref of its own, and the notes themselves are saved as files.
"""

import errno
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orchard.files import open_plain
from orchard.git.checkout_state import operation_in
from orchard.git.command import Git
from orchard.git.repository import Repository
from orchard.git.scratch import commit_index, private_file
from orchard.git.worktree.status import Contents
from orchard.patterns import later

SEPARATE = 16
"""So many commits get a ref each; what is more is held by one commit that has them as parents."""
LARGEST = 32 * 1024 * 1024
MOST_TREES = 8

AT_REST = frozenset({"HEAD", "commondir", "gitdir", "index", "locked", "logs", "modules", "reftable"})
"""What git keeps for a linked worktree at rest; all else there was left by something that a job began."""

_SKIPPED = AT_REST - {"logs"} | {"config.worktree", "info"}
_WORDS_OF_PEOPLE = later(r"(.*/)?(COMMIT_EDITMSG|MERGE_MSG|TAG_EDITMSG|message.*|patch|author-script|msg.*|\d+)")
_ID = later(rb"(?<![0-9A-Za-z])[0-9a-f]{7,64}(?![0-9A-Za-z])")
_LOG_LINE = later(rb"^([0-9a-f]{40,64}) ([0-9a-f]{40,64}) ", re.MULTILINE)
_ROOT_REFS = ("ORIG_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "BISECT_HEAD", "AUTO_MERGE")
_OWN_REFS = ("refs/bisect", "refs/worktree", "refs/rewritten")


class Remains(Struct, frozen=True):
    """Commits that no ref reaches, and trees, that git's notes name."""

    tips: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    """Further commits: so many that a ref for each would be too long a list to read."""
    trees: tuple[str, ...] = ()


def nothing_but(git_dir: Path, known: Collection[str]) -> bool:
    """Whether git's notes on a worktree are those of one at rest, and name no commit but these."""
    try:
        names = {entry.name for entry in os.scandir(git_dir)}
        if not names <= AT_REST or "reftable" in names:
            return False
        return {os.fsdecode(word) for word in named_objects(git_dir)} <= set(known)
    except OSError:
        return False


def find_remains(git: Git, refs: Git, known: Collection[str]) -> Remains:
    """What the notes of the worktree that `git` is in name and no ref holds; `refs` sees those of the repository."""
    words = {word for word in named_objects(git.git_dir) if os.fsdecode(word) not in known}
    if (git.git_dir / "reftable").is_dir():
        words.update(_named_in_reftable(git))
    if not words:
        return Remains()
    asked = b"".join(word + b"\n" for word in sorted(words))
    rows = [row.split() for row in git("cat-file", "--batch-check", stdin=asked, timeout=300).stdout.splitlines()]
    commits = sorted({row[0] for row in rows if row[1:2] in ([b"commit"], [b"tag"])})
    trees = sorted({row[0].decode() for row in rows if row[1:2] == [b"tree"]})
    tips = _tips(refs, commits, known)
    return Remains(tuple(tips[:SEPARATE]), tuple(tips[SEPARATE:]), tuple(trees[:MOST_TREES]))


def commit_notes(repo: Repository, notes: Path, known: tuple[str, bytes], remains: Remains, message: str) -> str | None:
    """A commit of what has no ref of its own: git's notes as files, the sides of conflicts, trees, further commits.

    `known` are the worktree's HEAD and rows from `staged_apart`. None: there is nothing of the kind.
    """
    head, rows = known
    operation = operation_in(notes)
    files = [file for file in _files(notes) if not file[0].startswith("logs/")] if operation else []
    if not (rows or files or remains.rest):
        return None
    with private_file(repo) as index:
        git = replace(repo.git, index=index)
        for name, place in files:
            oid = git("hash-object", "-w", "--no-filters", "--stdin", stdin=_read(place)).text
            rows += b"100644 %s\tnotes/%s\0" % (oid.encode(), escaped(os.fsencode(name)))
        git("read-tree", "--empty")
        git("update-index", "--add", "-z", "--index-info", stdin=rows)
        for tree in remains.trees:
            git("read-tree", f"--prefix=trees/{tree}/", tree)
        why = f"git's notes of a {operation} under way" if operation else "what only git's notes on the worktree knew"
        return commit_index(git, [*([head] if head else []), *remains.rest], f"{message} ({why})")


def staged_apart(git: Git, contents: Contents) -> bytes:
    """The sides of conflicts, and what was staged beside them and then changed, as rows for an index of their own."""
    if not contents.unmerged:
        return b""
    wanted = {*contents.unmerged, *(set(contents.staged) & set(contents.changed))}
    rows = []
    for row in git("ls-files", "-s", "-z").fields:
        facts, _, name = row.partition(b"\t")
        mode, oid, stage_ = facts.split(b" ")
        if name in wanted and mode != b"160000":
            rows.append(b"%s %s\tindex/%s/%s\0" % (mode, oid, stage_, name))
    return b"".join(rows)


def escaped(name: bytes) -> bytes:
    """A path as a name that git stores whatever it was, and that its owner can still read."""
    return re.sub(rb"[^A-Za-z0-9_/-]", lambda found: b"%%%02X" % found[0][0], name)


def _tips(refs: Git, commits: list[bytes], known: Collection[str]) -> list[str]:
    """Those of these commits that no ref reaches, without those that another of them reaches."""
    if not commits:
        return []
    held = [one for one in known if one]
    # Not the HEADs of other worktrees: those go, too, one day.
    words = ("rev-list", "--single-worktree", "--parents", "--not", "--all", *held, "--stdin")
    rows = refs(*words, stdin=b"".join(one + b"\n" for one in commits), timeout=600).stdout.splitlines()
    listed = [row.decode().split() for row in rows]
    parents = {parent for _, *above in listed for parent in above}
    return [commit for commit, *_ in listed if commit not in parents]


def named_objects(git_dir: Path) -> set[bytes]:
    """Every word in git's notes that may be the name of an object."""
    found: set[bytes] = set()
    for name, place in _files(git_dir):
        if name.startswith("logs/"):
            for line in _LOG_LINE.finditer(_read(place)):
                found.update(line.groups())
        elif not _WORDS_OF_PEOPLE.fullmatch(name):
            found.update(_ID.findall(_read(place)))
    return {word for word in found if word.strip(b"0")}


def _named_in_reftable(git: Git) -> set[bytes]:
    """The same, where refs and logs are in tables that only git can read."""
    own = git("for-each-ref", "--format=%(objectname)", *_OWN_REFS).stdout.split()
    logged = git("rev-list", "-g", "HEAD", "--", ok=(0, 128)).stdout.split()
    return {*own, *logged, *(name.encode() for name in _ROOT_REFS)}


def _files(git_dir: Path) -> Iterator[tuple[str, Path]]:
    """Files below a folder of git's, by name; links are not followed, and what is no file is no note."""
    waiting = [("", git_dir)]
    while waiting:
        above, folder = waiting.pop()
        with os.scandir(folder) as found:
            entries = list(found)
        for entry in entries:
            name = above + entry.name
            if not above and entry.name in _SKIPPED:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append((f"{name}/", Path(entry.path)))
            elif entry.is_file(follow_symlinks=False):
                yield name, Path(entry.path)


def _read(place: Path) -> bytes:
    try:
        file = open_plain(place)
    except OSError as error:
        if error.errno in (0, errno.ENOENT):
            return b""  # it is no file, or a git beside us took it away
        raise
    with file:
        if os.fstat(file.fileno()).st_size > LARGEST:
            raise OSError(errno.EFBIG, "git's notes are too large to look through", str(place))
        return file.read(LARGEST)
