"""Random histories, merged by us and by a real `git merge` in a checkout: the results must be the same.

The seed is printed when a case fails; ORCHARD_SEED repeats it.
"""

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchard.git.command import GitError
from orchard.git.history import merge_bases
from orchard.git.merge.account import Trees, unaccounted
from orchard.git.merge.conflicts import Merge
from orchard.git.merge.merge import Merger
from orchard.git.objects.reader import Objects
from orchard.git.repository import Repository, find_repository
from orchard.testing import Repo

Files = dict[bytes, tuple[bytes, bytes]]
"""Path to (mode, content)."""

FOLDERS = [b"", b"src/", b"src/core/", b"docs/", b"lib/a/", b"lib/b/"]
NAMES = [b"one.txt", b"two.c", b"three", b"new\nline", b'quo"te', b"-dash", b"caf\xc3\xa9", b"\xff\xfe.bin", b"sp ace"]


ODD = re.compile(rb"[^ -~]|^-|/-|[\" ]")
HISTORIES = 100
LEAST = {
    "rename": 40, "rename on both sides": 5, "rename against removal": 6, "folder renamed": 5, "mode": 15, "link": 8,
    "binary": 15, "odd name": 50, "criss-cross": 4, "clean": 5, "conflict": 25,
}  # fmt: skip
"""What at least so many of a hundred histories hold; on average it is more than twice as many."""


@dataclass(frozen=True)
class Case:
    """Two commits to merge, how they were made, and what makes them hard."""

    seed: int
    stream: bytes
    """For `git fast-import`."""
    features: frozenset[str]

    @property
    def ours(self) -> str:
        return f"refs/heads/c{self.seed}-ours"

    @property
    def theirs(self) -> str:
        return f"refs/heads/c{self.seed}-theirs"


def _seed() -> int:
    return int(os.environ.get("ORCHARD_SEED", random.randrange(10**9)))


def test_a_hundred_random_histories_merge_as_git_merges_them(tmp_path: Path) -> None:
    _compare(tmp_path, _seed())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_five_thousand_random_histories_merge_as_git_merges_them(tmp_path: Path, part: int) -> None:
    _compare(tmp_path, _seed() + part * HISTORIES)


def _compare(folder: Path, seed: int) -> None:
    print(f"ORCHARD_SEED={seed}")
    repo = Repo.make(folder / "repo")
    cases = [_history(one) for one in range(seed, seed + HISTORIES)]
    repo("fast-import", "--quiet", "--force", stdin=b"".join(case.stream for case in cases))
    refs = repo.refs("refs/heads")
    repository = find_repository(repo.path)
    seen: Counter[str] = Counter()
    with Objects(repository.git) as objects, Merger(repository, objects) as merger:
        for case in cases:
            merge = _compare_one(repo, merger, refs[case.ours], refs[case.theirs], _evidence(case, folder))
            if merge is not None:
                _check_accounting(repository, objects, merge, _evidence(case, folder))
                seen.update([*case.features, "clean" if merge.clean else "conflict"])
    print(dict(seen))
    assert seen["clean"] + seen["conflict"] > 0.9 * len(cases), seen
    assert {name: seen[name] for name, least in LEAST.items() if seen[name] < least} == {}


def _compare_one(repo: Repo, merger: Merger, ours: str, theirs: str, evidence: Callable[[], str]) -> Merge | None:
    """Our merge, which is git's; None where git died, as 2.39 does on a few of these."""
    try:
        merge = merger.merge(ours, theirs)
    except GitError as error:
        # Git 2.39 has assertions that some of these histories break; then its merge fails as well.
        assert error.status is not None and error.status < 0, f"{error}: {evidence()}"
        return None
    real = _real_merge(repo, ours, theirs)
    if real is None:
        # What git cannot even write down is nothing that we may call merged.
        assert not merge.clean, f"{merge}: {evidence()}"
        return None
    assert _same(repo, merge, real), f"{merge} is not {real}: {evidence()}"
    return merge


def _evidence(case: Case, folder: Path) -> Callable[[], str]:
    """Saves the history and says how to get it back."""

    def save() -> str:
        place = Path(os.environ.get("ORCHARD_EVIDENCE", folder)) / f"merge-{case.seed}.fast-import"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(case.stream)
        return f"ORCHARD_SEED={case.seed} makes it again, and 'git fast-import < {place}' alone"

    return save


def _blobs(objects: Objects, tree: str) -> set[str]:
    return {change.new.oid for change in objects.diff_trees(None, tree) if change.new is not None}


def _check_accounting(repository: Repository, objects: Objects, merge: Merge, evidence: Callable[[], str]) -> None:
    """The true result is accounted for; one that dropped what a side did is not."""
    bases = tuple(map(objects.tree_of, merge_bases(repository, merge.ours, merge.theirs)))
    ours, theirs = objects.tree_of(merge.ours), objects.tree_of(merge.theirs)

    lost = unaccounted(objects, Trees(bases, ours, theirs, merge.tree, merge.conflicts))

    # Git 2.39 loses a file in about one of 20,000 of these merges; it is right to say so then.
    held = _blobs(objects, merge.tree)
    if merge.clean:
        # Only where a side moved a file, and did not edit it, is its blob sure to be there.
        known = set[str]().union(*(_blobs(objects, base) for base in bases))
        sides = [objects.entry(tree, path) for tree in (ours, theirs) for path in lost]
        lost_blobs = {one.oid for one in sides if one is not None and one.oid in known} - held
        assert len(lost) <= len(lost_blobs), f"{lost}: {evidence()}"
    else:
        gone = [path for path in lost if (entry := objects.entry(ours, path)) is not None and entry.oid not in held]
        assert lost == gone, f"{lost}: {evidence()}"
    renamed = objects.renames(bases[0], ours) or objects.renames(bases[0], theirs)
    if merge.clean and len(bases) == 1 and not renamed:
        for wrong, side in ((ours, theirs), (theirs, ours), (bases[0], ours)):
            if merge.tree != wrong and side != bases[0]:
                assert unaccounted(objects, Trees(bases, ours, theirs, wrong)), f"unseen {wrong}: {evidence()}"


def _real_merge(repo: Repo, ours: str, theirs: str) -> tuple[bool, str, frozenset[tuple[str, bytes]]] | None:
    """(clean, tree, stages) of `git merge` in the checkout; None if git died, as 2.39 does on a few of these."""
    repo("checkout", "-q", "-f", "--detach", ours)
    done = repo.run("merge", "-q", "--no-commit", "--no-ff", "-m", "m", theirs)
    if done.status < 0 or b"cache entry has null sha1" in done.stderr:
        (repo.path / ".git/index.lock").unlink(missing_ok=True)
        repo("clean", "-qffdx")
        return None
    assert done.status in (0, 1), done
    if done.status == 0:
        return True, repo("write-tree").strip(), frozenset()
    stages = repo.run("ls-files", "-u", "-z").stdout.split(b"\0")[:-1]
    repo("clean", "-qffdx")
    return False, "", frozenset((row.split(b"\t")[0].decode(), _plain(row.split(b"\t", 1)[1])) for row in stages)


def _same(repo: Repo, merge: Merge, real: tuple[bool, str, frozenset[tuple[str, bytes]]]) -> bool:
    clean, tree, rows = real
    if clean and any(message.kind.startswith("CONFLICT") for message in merge.messages):
        # Git 2.39 tells of a conflict, leaves its markers in a file, and calls that clean; we do not.
        return not merge.clean
    if merge.clean or clean:
        return merge.clean == clean and merge.tree == tree
    ours = {
        (f"{entry.mode:06o} {entry.oid} {stage}", _plain(conflict.path))
        for conflict in merge.conflicts
        for stage, entry in ((1, conflict.base), (2, conflict.ours), (3, conflict.theirs))
        if entry is not None
    }
    if any(conflict.kind in ("rename", "directory-rename") for conflict in merge.conflicts):
        # A renamed file's stage may hold markers, whose labels differ.
        return _without_oids(ours) == _without_oids(rows)
    return ours == rows


def _without_oids(rows: Iterable[tuple[str, bytes]]) -> set[tuple[str, str, bytes]]:
    return {(row.split()[0], row.split()[2], path) for row, path in rows}


def _plain(path: bytes) -> bytes:
    """A leftover's name without its label, which is `HEAD` in a checkout and a commit with us."""
    return re.sub(rb"~(HEAD|[0-9a-f]{40})(_\d+)?$", b"~", path)


def _history(seed: int) -> Case:
    luck = random.Random(seed)
    base: Files = {}
    for _ in range(luck.randint(5, 14)):
        base[luck.choice(FOLDERS) + luck.choice(NAMES)] = _new_file(luck)
    ours, theirs = _plot(luck, base)
    ours, theirs = _change(luck, ours), _change(luck, theirs)
    mark = seed * 10
    refs = f"refs/heads/c{seed}"
    parts = [_commit(f"{refs}-base", mark + 1, [], base)]
    parts.append(_commit(f"{refs}-ours", mark + 2, [mark + 1], ours))
    parts.append(_commit(f"{refs}-theirs", mark + 3, [mark + 1], theirs))
    features = _features(_settled(base), _settled(ours), _settled(theirs))
    if luck.random() < 0.2:
        mixed = {**ours, **theirs} if luck.random() < 0.5 else ours
        parts.append(_commit(f"{refs}-ours", mark + 4, [mark + 2, mark + 3], _change(luck, mixed)))
        parts.append(_commit(f"{refs}-theirs", mark + 5, [mark + 3, mark + 2], _change(luck, {**theirs, **ours})))
        features |= {"criss-cross"}
    return Case(seed, b"".join(parts), features)


def _plot(luck: random.Random, base: Files) -> tuple[Files, Files]:
    """Two sides that get in each other's way on purpose, which chance alone rarely does."""
    ours, theirs = dict(base), dict(base)
    path = luck.choice(sorted(base))
    if luck.random() < 0.5:
        ours, theirs = theirs, ours
    match luck.choice(["rename twice", "rename and remove", "rename to one", "move folder", "move folder", "none"]):
        case "rename twice":
            ours[b"here/" + luck.choice(NAMES)], theirs[b"there/" + luck.choice(NAMES)] = (
                ours.pop(path),
                theirs.pop(path),
            )
        case "rename and remove":
            ours[b"here/" + luck.choice(NAMES)] = ours.pop(path)
            del theirs[path]
        case "rename to one":
            other = luck.choice(sorted(base))
            ours[b"here/one"], theirs[b"here/one"] = ours.pop(path), theirs.pop(other)
        case "move folder":
            base[b"src/core/kept.c"], base[b"src/core/more.c"] = _text(luck), _text(luck)
            ours, theirs = dict(base), dict(base)
            ours = {re.sub(rb"^src/core/", b"moved/core/", name): file for name, file in ours.items()}
            theirs[b"src/core/added-%d.c" % luck.randrange(3)] = _text(luck)
    return ours, theirs


def _features(base: Files, ours: Files, theirs: Files) -> frozenset[str]:
    """What happened between the three, by looking at them; a rename counts if it left the content alone."""
    found = set()
    moves = []
    for side in (ours, theirs):
        places = {file: name for name, file in side.items() if name not in base}
        moves.append({name: places[file] for name, file in base.items() if name not in side and file in places})
        changed = [name for name in base.keys() | side.keys() if base.get(name) != side.get(name)]
        both = [(name, base[name], side[name]) for name in changed if name in base and name in side]
        touched = [one for name in changed for one in (base.get(name), side.get(name)) if one is not None]
        found |= {"mode" for _, old, new in both if old[0] != new[0]} | {
            "odd name" for name in changed if ODD.search(name)
        }
        found |= {"link" for mode, _ in touched if mode == b"120000"} | {"binary" for _, old in touched if b"\0" in old}
    if moves[0] or moves[1]:
        found.add("rename")
    if any(moves[1].get(name, place) != place for name, place in moves[0].items()):
        found.add("rename on both sides")
    for mine, other, side in ((moves[0], moves[1], theirs), (moves[1], moves[0], ours)):
        if any(name not in side and name not in other for name in mine):
            found.add("rename against removal")
        for folder in {os.path.dirname(name) for name in mine if b"/" in name}:  # noqa: PTH120 (bytes)
            inside = [name for name in base if name.startswith(folder + b"/")]
            if len(inside) > 1 and all(name in mine for name in inside):
                found |= {"folder renamed" for name in side if name.startswith(folder + b"/") and name not in base}
    return frozenset(found)


def _settled(files: Files) -> Files:
    """Without the files that are folders of others: those cannot be."""
    folders = {b"/".join(path.split(b"/")[:depth]) for path in files for depth in range(1, path.count(b"/") + 1)}
    return {path: file for path, file in files.items() if path not in folders}


def _commit(ref: str, mark: int, parents: list[int], files: Files) -> bytes:
    lines = [f"commit {ref}\nmark :{mark}\ncommitter A <a@example.com> {1700000000 + mark} +0000\ndata 0\n".encode()]
    for number, parent in enumerate(parents):
        lines.append(f"{'merge' if number else 'from'} :{parent}\n".encode())
    lines.append(b"deleteall\n")
    for path, (mode, content) in sorted(_settled(files).items()):
        lines.append(b"M %s inline %s\ndata %d\n%s\n" % (mode, _quote(path), len(content), content))
    return b"".join(lines)


def _quote(path: bytes) -> bytes:
    return (
        b'"'
        + b"".join(b"\\%03o" % byte if byte < 33 or byte > 126 or byte in b'"\\' else bytes([byte]) for byte in path)
        + b'"'
    )


def _new_file(luck: random.Random) -> tuple[bytes, bytes]:
    kind = luck.random()
    if kind < 0.08:
        return b"120000", luck.choice([b"one.txt", b"../x", b"/nowhere"])
    if kind < 0.18:
        return b"100644", bytes(luck.randrange(256) for _ in range(60)) + b"\0"
    return _text(luck)


def _text(luck: random.Random) -> tuple[bytes, bytes]:
    text = b"".join(b"line %d of %d\n" % (number, luck.randrange(10**6)) for number in range(luck.randint(8, 24)))
    return luck.choice([b"100644", b"100644", b"100755"]), text


def _change(luck: random.Random, before: Files) -> Files:
    files = dict(before)
    for _ in range(luck.randint(1, 5)):
        paths = sorted(files)
        path = luck.choice(paths) if paths else b"first"
        mode, content = files.get(path, (b"100644", b""))
        action = luck.choice(["edit", "edit", "edit", "add", "delete", "rename", "chmod", "folder", "retype", "clash"])
        if action == "edit" and mode != b"120000":
            rows = content.split(b"\n")
            rows[luck.randrange(len(rows))] = b"edited %d" % luck.randrange(10**6)
            files[path] = mode, b"\n".join(rows)
        elif action == "add":
            files[luck.choice(FOLDERS) + b"n%d-" % luck.randrange(3) + luck.choice(NAMES)] = _new_file(luck)
        elif action == "delete":
            files.pop(path, None)
        elif action == "rename" and path in files:
            files[luck.choice(FOLDERS) + b"r%d" % luck.randrange(4)] = files.pop(path)
        elif action == "chmod" and mode != b"120000":
            files[path] = (b"100755" if mode == b"100644" else b"100644"), content
        elif action == "folder":
            old, new = luck.choice(FOLDERS[1:]), luck.choice([b"moved/", b"lib/c/"])
            files = {(new + name[len(old) :] if name.startswith(old) else name): file for name, file in files.items()}
        elif action == "retype":
            files[path] = _new_file(luck)
        elif action == "clash" and path in files:
            files[path + b"/inside"] = files.pop(path)
    return files or {b"last": (b"100644", b"x\n")}
