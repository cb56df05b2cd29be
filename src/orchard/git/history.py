"""What happened between two commits: counts, files, the diff, and who descends from whom.

Everything is asked of git without the programs that a repository may name for showing changes (external diffs, text
conversions), and without the user's settings for colours and renames.

How commits of one plan relate is told from the commits themselves instead of by a process for each question. All
commits of a plan descend from the one that it began with. So what lies between that one, the floor, and a few commits
is all that has to be known to say which of them is in which, and where two of them part: a walk over commits that are
remembered anyway. Where a history leads elsewhere, the answer is `Unclear`, and git is asked.

    Line       a commit that grows, with everything in it down to the floor
    Ancestry   many of them
    Meeting    how another commit relates to a line
"""

import os
import re
from collections import OrderedDict
from collections.abc import Container, Sequence
from contextlib import suppress

from msgspec import Struct, field

from orchard.errors import OrchardError
from orchard.git.command import Blocked, Git, TooMuchOutput
from orchard.git.objects.reader import ObjectMissing, Objects
from orchard.git.repository import Repository, Worktree
from orchard.git.worktree.review import differences
from orchard.git.worktree.status import walk_unblocked
from orchard.patterns import later

FARTHEST = 5_000
WALK_LIMIT = 256
"""Commits that one walk looks at; beyond them a process is cheaper."""
REMEMBERED_LINES = 64


class Unclear(OrchardError):
    """The history leads past the floor, or too far."""

    def __init__(self) -> None:
        super().__init__("The history between these commits is not the plan's alone.")


class Meeting(Struct, frozen=True):
    commit: str
    fresh: frozenset[str]
    """What it has that the line has not."""
    met: frozenset[str]
    """Where its history first meets the line's: where there is only one, that is the merge base."""


class Line:
    def __init__(self, objects: Objects, floor: str, tip: str) -> None:
        self._objects = objects
        self._seen = {floor}
        self.tip = tip
        self._seen |= self.meet(tip).fresh

    def meet(self, commit: str) -> Meeting:
        return meet(self._objects, self._seen, commit, FARTHEST)

    def is_behind(self, meeting: Meeting) -> bool:
        """Whether the other commit has everything that the line has."""
        return self.tip in meeting.met

    def grow(self, meeting: Meeting, tip: str) -> None:
        """Go on at a commit that has all of both: the other one, or the merge of the two."""
        self._seen |= meeting.fresh
        self._seen.add(tip)
        self.tip = tip


def meet(objects: Objects, held: Container[str], start: str, farthest: int) -> Meeting:
    """Walk from a commit down to commits that are held; Unclear if that leads past them, or too far."""
    fresh, met, waiting = set[str](), set[str](), [start]
    while waiting:
        commit = waiting.pop()
        if commit in held:
            met.add(commit)
        elif commit not in fresh:
            fresh.add(commit)
            try:
                parents = objects.parents(commit)
            except ObjectMissing:
                parents = ()  # where a shallow clone ends, or a gc was faster: git will say
            if not parents or len(fresh) > farthest:
                raise Unclear
            waiting += parents
    return Meeting(start, frozenset(fresh), frozenset(met))


class Ancestry(Struct):
    """Which commits growing lines of merges hold, so that a leaf's merge base costs the leaf's own history.

    For each line: its first commit, and every commit that its tip has and its first commit has not. Walking back from
    a leaf until commits of the line are met gives the merge base; where the walk leads past the line's beginning, git
    is asked.
    """

    repo: Repository
    objects: Objects
    _lines: OrderedDict[str, set[str]] = field(default_factory=OrderedDict)

    def begin(self, commit: str) -> None:
        self._lines[commit] = {commit}
        if len(self._lines) > REMEMBERED_LINES:
            self._lines.popitem(last=False)

    def bases(self, ours: str, theirs: str) -> tuple[str, ...]:
        held = self._lines.get(ours)
        with suppress(Unclear):
            if held and len(met := meet(self.objects, held, theirs, WALK_LIMIT).met) == 1:
                return tuple(met)
        return merge_bases(self.repo, ours, theirs)

    def advance(self, ours: str, theirs: str, merged: str) -> None:
        """The line's tip is now `merged`, which has both commits as parents."""
        held = self._lines.pop(ours, None)
        with suppress(Unclear):
            if held:
                held |= meet(self.objects, held, theirs, WALK_LIMIT).fresh | {merged}
                self._lines[merged] = held


DIFF_LIMIT = 64 * 1024 * 1024
LONGEST_DIFF = 4 * 1024 * 1024
"""Of what a daemon holds to answer one question."""
CUT = b"... the rest is left out: the difference is too long for one answer; ask for the table of files\n"
"""No line of a patch begins like this, so that no reader takes what was cut for the whole."""
READ_AHEAD = 4
"""How many times as much as one answer is read of a patch, to cut each file by itself: a long one hides no other."""
LEAST_PART = 2048
NAMED = 1000
"""How many of the files that are not shown a cut patch names."""
_SECTION = later(rb"^(?=diff --git )", re.MULTILINE)


class Summary(Struct, frozen=True):
    commits: int = 0
    added: int = 0
    modified: int = 0
    deleted: int = 0
    lines_added: int = 0
    lines_deleted: int = 0

    @property
    def files(self) -> int:
        return self.added + self.modified + self.deleted


class ChangedFile(Struct, frozen=True):
    """One file that differs; `status` is A, M, D or T (another type), `shown` is safe to print."""

    status: str
    path: bytes
    shown: str


class LoggedCommit(Struct, frozen=True):
    id: str
    at: int
    author: str
    subject: str


def is_ancestor(repo: Repository, ancestor: str, commit: str) -> bool:
    return ancestor == commit or repo.git("merge-base", "--is-ancestor", ancestor, commit, ok=(0, 1)).status == 0


def merge_bases(repo: Repository, one: str, other: str) -> tuple[str, ...]:
    """The best common ancestors: usually one, several after criss-cross merges, none for strangers."""
    return tuple(repo.git("merge-base", "--all", one, other, ok=(0, 1)).text.split())


def count_commits(repo: Repository, base: str, commit: str) -> int:
    return int(repo.git("rev-list", "--count", f"{base}..{commit}", "--").text)


def commits(repo: Repository, base: str, commit: str, most: int) -> list[LoggedCommit]:
    """The newest commits between two, the oldest first."""
    asked = ("log", "-z", f"--max-count={most}", "--format=%H%x00%at%x00%an%x00%s", f"{base}..{commit}", "--")
    rows = [part.decode(errors="replace") for part in repo.git(*asked).fields]
    found = zip(rows[::4], rows[1::4], rows[2::4], rows[3::4], strict=True)
    return [LoggedCommit(id, int(at), author, subject) for id, at, author, subject in found][::-1]


def summary(repo: Repository, base: str, commit: str) -> Summary:
    changed, lines = differences(repo, base, commit)
    kinds = [one.status for one in changed]
    added, deleted = kinds.count("A"), kinds.count("D")
    return Summary(count_commits(repo, base, commit), added, len(kinds) - added - deleted, deleted, *lines)


def files(repo: Repository, base: str, commit: str) -> list[ChangedFile]:
    rows = repo.git("diff-tree", "-r", "-z", "--name-status", "--no-renames", base, commit, "--", timeout=300).fields
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return [ChangedFile(status.decode(), path, show_path(path)) for status, path in pairs]


def diff(
    repo: Repository,
    base: str,
    commit: str,
    *,
    color: bool = False,
    stat: bool = False,
    names: bool = False,
    paths: Sequence[bytes] = (),
    most: int | None = None,
) -> bytes:
    """The difference as a patch (or as a table of files), as bytes: files are not always text.

    A longer one than `most` is cut after a line, and its last line says so. Of a patch each file is cut by itself, and
    lines before the last one name the files that are not shown.
    """
    words = ["-p", "--no-ext-diff", "--no-textconv", "--no-color-moved", "--inter-hunk-context=1"]
    if stat or names:
        words = ["--stat"] if stat else ["--name-only"]
    words += ["-r", "-M", f"--color={'always' if color else 'never'}", "--src-prefix=a/", "--dst-prefix=b/"]
    git = repo.git.with_environment(GIT_LITERAL_PATHSPECS="1")
    limit = DIFF_LIMIT if most is None else most
    asked: tuple[str | bytes, ...] = ("diff-tree", *words, base, commit, "--", *paths)
    if most is not None and not (stat or names or color):
        found = git(*asked, timeout=300, limit=READ_AHEAD * most + 1, cut=True).stdout
        return found if len(found) <= most else _shortened(found, _counts(git, base, commit, paths), most)
    try:
        found = git(*asked, timeout=300, limit=limit + (most is not None), cut=most is not None).stdout
        return found if len(found) <= limit else found[: found.rfind(b"\n", 0, limit) + 1] + CUT
    except TooMuchOutput as error:
        raise OrchardError(
            f"The difference is larger than {DIFF_LIMIT // (1024 * 1024)} MB.",
            hint="Ask for some paths only, or for the table of files (--stat).",
        ) from error


def _counts(git: Git, base: str, commit: str, paths: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Every file of a patch in its order, with the lines that came and went: `+3 -1`, or `binary`."""
    rows = iter(git("diff-tree", "-r", "-z", "-M", "--numstat", base, commit, "--", *paths, timeout=300).fields)
    found: list[tuple[bytes, bytes]] = []
    for row in rows:
        came, went, path = row.split(b"\t", 2)
        if not path:  # renamed: two names follow
            next(rows)
            path = next(rows)
        found.append((path, b"binary" if came == b"-" else b"+%b -%b" % (came, went)))
    return found


def _shortened(found: bytes, counts: Sequence[tuple[bytes, bytes]], most: int) -> bytes:
    """The beginning of a patch with as much of each file as there is room for; what is left out is named."""
    parts: list[bytes] = []
    for section in _SECTION.split(found):
        head = section.partition(b"\n")[0]
        if parts and parts[-1].partition(b"\n")[0] == head:
            parts[-1] += section  # of another type now: it goes, and comes anew
        elif section:
            parts.append(section)
    torn = len(parts) - 1 if len(found) > READ_AHEAD * most else -1
    share = max(LEAST_PART, _share([*map(len, parts)], most))
    shown: list[bytes] = []
    missing: list[bytes] = []
    room = most
    for place, (path, count) in enumerate(counts):
        part = parts[place] if place < len(parts) else b""
        if len(part) > min(share, room) or place == torn:
            part = part[: part.rfind(b"\n", 0, min(share, room) if room >= LEAST_PART else 0) + 1]
            shown.append(part + b"... the rest of this file is left out: %b in all\n" % count if part else b"")
        else:
            shown.append(part)
        room -= len(part)
        if not part:
            missing.append(b"... not shown: %b %b\n" % (count, os.fsencode(show_path(path))))
    if len(missing) > NAMED:
        missing[NAMED:] = [b"... not shown: %d more files\n" % (len(missing) - NAMED)]
    return b"".join([*shown, *missing, CUT])


def _share(sizes: Sequence[int], room: int) -> int:
    """How much each may take so that all fit into `room`: the small ones whole, the others alike."""
    for place, size in enumerate(sorted(sizes)):
        if size * (len(sizes) - place) > room:
            return room // (len(sizes) - place)
        room -= size
    return max(sizes, default=0)


def worktree_diff(repo: Repository, worktree: Worktree, base: str, limit: int) -> str:
    git = repo.worktree_git(worktree.name, worktree.path)
    try:
        walk_unblocked(git, worktree.path)
    except (Blocked, OSError) as error:
        return f"{error}\n"
    plain = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "--submodule=short")
    shown = git(
        "diff", *plain, "--stat", "-p", base, "--", ok=(0, 1, 128), timeout=120, limit=4 * limit, cut=True
    ).stdout
    return shown.decode(errors="replace")[:limit]


def show_path(path: bytes) -> str:
    """A path that can be printed on a terminal: what is not plain text is escaped, as git would do it."""
    text = os.fsdecode(path)
    if text.isprintable() and not re.search(r'["\\]', text):
        return text
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    shown = (
        escapes.get(char, char)
        if char.isprintable() or char in escapes
        else "".join(f"\\{byte:03o}" for byte in os.fsencode(char))
        for char in text
    )
    return f'"{"".join(shown)}"'
