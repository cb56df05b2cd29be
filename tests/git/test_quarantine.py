"""What a job's own git wrote comes into the repository whole and checked, or not at all."""

import hashlib
import os
import re
import resource
import shutil
import subprocess
import zlib
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from orchard.errors import OrchardError
from orchard.git.objects import lengths, quarantine
from orchard.git.objects.lengths import Room
from orchard.git.objects.quarantine import Brought, bring_in, is_empty, variables
from orchard.git.repository import Repository
from orchard.testing import Repo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "objects"
    made.mkdir()
    return made


def job_git(repo: Repo, repository: Repository, folder: Path, *args: str, stdin: bytes = b"") -> str:
    """Git as the job runs it, in the user's own checkout for simplicity."""
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **variables(folder, repository)}
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *args], cwd=repo.path, env=env | names, input=stdin, stdout=-1, check=True)
    return done.stdout.decode().strip()


def test_a_job_that_uses_no_git_costs_nothing(repository: Repository, folder: Path) -> None:
    assert is_empty(folder)
    assert bring_in(repository, folder) == Brought()
    assert bring_in(repository, folder / "missing") == Brought()


def test_commits_of_a_job_are_in_the_repository_afterwards(repo: Repo, repository: Repository, folder: Path) -> None:
    before = set((repo.path / ".git/objects").rglob("*"))
    repo.write({"a.txt": "one\n", "dir/b.txt": "two\n"})
    job_git(repo, repository, folder, "add", ".")
    tree = job_git(repo, repository, folder, "write-tree")
    commit = job_git(repo, repository, folder, "commit-tree", tree, "-p", "HEAD", "-m", "x")
    assert set((repo.path / ".git/objects").rglob("*")) == before
    assert subprocess.run(["git", "cat-file", "-e", commit], cwd=repo.path, check=False).returncode != 0

    brought = bring_in(repository, folder)

    assert (brought.refused, brought.objects) == (None, 5)
    assert repo("show", f"{commit}:dir/b.txt") == "two\n"
    assert is_empty(folder) and not list((repository.state / "tmp").iterdir())
    repo("fsck", "--strict")


def test_packs_of_a_job_come_along(repo: Repo, repository: Repository, folder: Path) -> None:
    repo.write({"a.txt": "one\n"})
    job_git(repo, repository, folder, "add", "a.txt")
    blob = job_git(repo, repository, folder, "hash-object", "a.txt")
    job_git(repo, repository, folder, "pack-objects", "-q", str(folder / "pack/pack"), stdin=f"{blob}\n".encode())
    (folder / blob[:2] / blob[2:]).unlink()

    assert bring_in(repository, folder).objects == 1
    assert repo("cat-file", "blob", blob) == "one\n"


def test_an_object_that_is_not_what_its_name_says_stays_out(repo: Repo, repository: Repository, folder: Path) -> None:
    repo.write({"a.txt": "one\n"})
    blob = job_git(repo, repository, folder, "hash-object", "-w", "a.txt")
    other = "0" * 40
    (folder / "00").mkdir()
    (folder / blob[:2] / blob[2:]).rename(folder / "00" / other[2:])

    assert bring_in(repository, folder).refused is not None
    assert not is_empty(folder)
    repo("fsck", "--strict")


def test_a_tree_that_would_write_into_git_s_own_folder_stays_out(
    repo: Repo, repository: Repository, folder: Path
) -> None:
    blob = job_git(repo, repository, folder, "hash-object", "-w", "--stdin", stdin=b"[core]\n")
    row = b"100644 .git\0" + bytes.fromhex(blob)
    tree = job_git(repo, repository, folder, "hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=row)

    refused = bring_in(repository, folder).refused

    assert refused is not None
    assert subprocess.run(["git", "cat-file", "-e", tree], cwd=repo.path, check=False).returncode != 0


def test_a_tree_without_its_files_stays_out(repo: Repo, repository: Repository, folder: Path) -> None:
    row = f"100644 blob {'1' * 40}\tgone\n".encode()
    job_git(repo, repository, folder, "mktree", "--missing", stdin=row)

    assert bring_in(repository, folder).refused is not None


def test_folders_that_a_job_names_are_not_read(
    repo: Repo, repository: Repository, folder: Path, tmp_path: Path
) -> None:
    """A file of alternates would let git read, and bring in, whatever the user has elsewhere."""
    private = Repo.make(tmp_path / "private")
    private.commit({"secret.txt": "the secret\n"})
    secret = private("rev-parse", "HEAD:secret.txt").strip()
    tree = private("rev-parse", "HEAD^{tree}").strip()
    commit = private("rev-parse", "HEAD").strip()
    (folder / "info").mkdir()
    (folder / "info/alternates").write_text(f"{private.path}/.git/objects\n")
    made = job_git(repo, repository, folder, "commit-tree", tree, "-p", commit, "-m", "leak")

    assert made and bring_in(repository, folder).refused is not None
    assert subprocess.run(["git", "cat-file", "-e", secret], cwd=repo.path, check=False).returncode != 0


def test_links_are_not_followed(repo: Repo, repository: Repository, folder: Path, tmp_path: Path) -> None:
    repo.write({"a.txt": "one\n"})
    blob = job_git(repo, repository, folder, "hash-object", "-w", "a.txt")
    (folder / blob[:2] / blob[2:]).rename(tmp_path / "elsewhere")
    (folder / blob[:2] / blob[2:]).symlink_to(tmp_path / "elsewhere")
    (folder / "pack").symlink_to(repo.path / ".git/objects/pack")

    assert bring_in(repository, folder) == Brought()


def test_a_link_in_the_place_of_the_folder_leads_to_no_other_repository(
    repo: Repo, repository: Repository, folder: Path, tmp_path: Path
) -> None:
    private = Repo.make(tmp_path / "private")
    private.commit({"secret.txt": "the secret\n"})
    folder.rmdir()
    folder.symlink_to(private.path / ".git/objects")

    assert bring_in(repository, folder) == Brought()
    private("fsck", "--strict")


def test_what_was_brought_in_is_removed_through_no_link(
    repo: Repo, repository: Repository, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write({"a.txt": "one\n"})
    blob = job_git(repo, repository, folder, "hash-object", "-w", "a.txt")
    real = repo.path / ".git/objects" / blob[:2]
    bring = quarantine._bring

    def swapped(*args: Any) -> Brought:
        """A program of the job that still runs puts a link there meanwhile."""
        done = bring(*args)
        real.mkdir(exist_ok=True)
        (real / blob[2:]).write_text("the user's")
        (folder / blob[:2]).rename(folder / "gone")
        (folder / blob[:2]).symlink_to(real)
        return done

    monkeypatch.setattr(quarantine, "_bring", swapped)
    bring_in(repository, folder)

    assert (real / blob[2:]).read_text() == "the user's"


def test_more_than_is_brought_in_is_refused_unread(repo: Repo, repository: Repository, folder: Path) -> None:
    for number in range(3):
        place = folder / "aa" / f"{number:038x}"
        place.parent.mkdir(exist_ok=True)
        with place.open("wb") as file:
            file.truncate(1 << 30)

    assert "more than 2 GiB" in (bring_in(repository, folder).refused or "")


def test_a_file_of_holes_is_refused_unread(repo: Repo, repository: Repository, folder: Path) -> None:
    place = folder / "aa" / ("b" * 38)
    place.parent.mkdir()
    with place.open("wb") as file:
        file.truncate(2 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert "consists of holes" in (bring_in(repository, folder).refused or "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_an_object_that_would_fill_the_memory_once_git_unpacks_it_is_refused(
    repo: Repo, repository: Repository, folder: Path
) -> None:
    put = folder / "aa" / ("b" * 38)
    put.parent.mkdir()
    put.write_bytes(zlib.compress(b"blob %d\0" % (900 << 30) + bytes(1 << 20)))

    assert "more than 2 GiB once git unpacks it" in (bring_in(repository, folder).refused or "")


def test_small_objects_that_are_much_together_once_git_unpacks_them_are_refused(
    repo: Repo, repository: Repository, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is allowed, and all are small on disk."""
    monkeypatch.setattr(quarantine, "LARGEST", 3 << 20)
    for number in range(4):
        job_git(repo, repository, folder, "hash-object", "-w", "--stdin", stdin=bytes([number]) * (1 << 20))

    assert "once git unpacks it" in (bring_in(repository, folder).refused or "")
    monkeypatch.setattr(quarantine, "LARGEST", 5 << 20)
    assert bring_in(repository, folder) == Brought(4)


def nested(repo: Repo, repository: Repository, folder: Path, depth: int) -> str:
    """A commit of a hundred folders in each of a hundred folders, and so on, which is as many objects as it is deep."""
    kind, name = "100644 blob", job_git(repo, repository, folder, "hash-object", "-w", "--stdin", stdin=b"x")
    for _ in range(depth):
        rows = "".join(f"{kind} {name}\td{number}\n" for number in range(100)).encode()
        kind, name = "040000 tree", job_git(repo, repository, folder, "mktree", stdin=rows)
    return job_git(repo, repository, folder, "commit-tree", name, "-p", "HEAD", "-m", "x")


def test_a_commit_of_a_million_paths_in_a_few_objects_is_refused(
    repo: Repo, repository: Repository, folder: Path
) -> None:
    commit = nested(repo, repository, folder, 3)

    refused = bring_in(repository, folder).refused

    assert refused == "A commit of it has more than 200,000 paths that what it builds on does not have."
    assert subprocess.run(["git", "cat-file", "-e", commit], cwd=repo.path, check=False).returncode != 0


def test_paths_that_a_commit_has_from_what_it_builds_on_do_not_count(
    repo: Repo, repository: Repository, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = nested(repo, repository, folder, 2)
    assert bring_in(repository, folder).refused is None
    monkeypatch.setattr(lengths, "MORE_PATHS", 10)
    tree = job_git(repo, repository, folder, "rev-parse", f"{commit}^{{tree}}")
    more = job_git(repo, repository, folder, "ls-tree", tree) + f"\n040000 tree {tree}\tmore"
    few = job_git(repo, repository, folder, "mktree", stdin=more.encode())
    job_git(repo, repository, folder, "commit-tree", few, "-p", commit, "-m", "twice as many")
    assert "more than 10 paths" in (bring_in(repository, folder).refused or "")
    shutil.rmtree(folder)
    folder.mkdir()

    job_git(repo, repository, folder, "commit-tree", tree, "-p", commit, "-m", "as many")
    assert bring_in(repository, folder).refused is None


def test_folders_that_hold_each_other_by_made_up_names_are_refused() -> None:
    one, other = lengths._Tree(0, Counter({"b": 1})), lengths._Tree(0, Counter({"a": 1}))

    with pytest.raises(OrchardError, match="in itself"):
        lengths._summed({"a": one, "b": other})


def test_an_object_that_hides_its_length_is_refused(repo: Repo, repository: Repository, folder: Path) -> None:
    """Blocks with nothing in them stand before the header; git would read on."""
    packer = zlib.compressobj()
    start = packer.compress(b"") or b"\x78\x9c"
    put = folder / "aa" / ("b" * 38)
    put.parent.mkdir()
    body = zlib.compress(b"blob 5000000000\0" + bytes(1 << 16))[2:]
    put.write_bytes(start + b"\0\0\0\xff\xff" * 2000 + body)

    assert "does not say how long" in (bring_in(repository, folder).refused or "")


def pack_of(*entries: bytes, number: int | None = None) -> bytes:
    head = b"PACK" + (2).to_bytes(4, "big") + (len(entries) if number is None else number).to_bytes(4, "big")
    return head + b"".join(entries) + hashlib.sha1(head + b"".join(entries)).digest()


def entry(kind: int, length: int, content: bytes, base: bytes = b"") -> bytes:
    numbers = [kind << 4 | length & 15]
    length >>= 4
    while length:
        numbers[-1] |= 128
        numbers.append(length & 127)
        length >>= 7
    return bytes(numbers) + base + zlib.compress(content)


def number_of(value: int) -> bytes:
    """As a delta writes it."""
    found = [value & 127]
    while value := value >> 7:
        found[-1] |= 128
        found.append(value & 127)
    return bytes(found)


BLOB, BY_PLACE, BY_NAME = 3, 6, 7
SMALL = entry(BLOB, 5, b"small")
DELTA = number_of(5) + number_of(900 << 30) + b"\x90\x05"


@pytest.mark.parametrize(
    ("pack", "said"),
    [
        (pack_of(entry(BLOB, 900 << 30, bytes(1000))), "more than 2 GiB once"),
        (pack_of(entry(BLOB, 10, bytes(1000))), "longer than it says"),
        (pack_of(SMALL, entry(BY_PLACE, len(DELTA), DELTA, bytes([len(SMALL)]))), "more than 2 GiB once"),
        (pack_of(SMALL, entry(BY_NAME, len(DELTA), DELTA, bytes(20))), "more than 2 GiB once"),
        (pack_of(SMALL, number=1 << 31), "damaged"),
        (pack_of(SMALL[:-6]), "damaged"),
        (pack_of(b"\xff" * 5000), "damaged|more than"),
        (pack_of(*[SMALL] * 30), "more than 20 objects"),
    ],
    ids=["long", "lying", "delta", "delta by name", "count", "cut", "numbers", "many"],
)
def test_packs_that_are_more_than_they_seem_are_refused_before_git_reads_them(
    repository: Repository, folder: Path, monkeypatch: pytest.MonkeyPatch, pack: bytes, said: str
) -> None:
    monkeypatch.setattr(lengths, "MOST_OBJECTS", 20)
    (folder / "pack").mkdir()
    (folder / f"pack/pack-{'0' * 40}.pack").write_bytes(pack)

    assert re.search(said, bring_in(repository, folder).refused or "")


def test_what_packs_say_of_their_lengths_is_what_git_finds(repo: Repo, repository: Repository, folder: Path) -> None:
    lines = [f"line {number}" for number in range(3000)]
    for number in range(6):
        lines[number * 100] = f"changed {number}"
        repo.commit({"a.txt": "\n".join(lines), f"new{number}": "x" * number * 1000})
    listed = repo("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    job_git(repo, repository, folder, "pack-objects", "-q", str(folder / "pack/pack"), stdin=listed.encode())
    (pack,) = (folder / "pack").glob("*.pack")
    said = repo("verify-pack", "-v", str(pack)).splitlines()
    rows = [row.split() for row in said if len(row) > 40 and row.split()[1] in ("blob", "tree", "commit")]
    assert any(len(row) == 7 for row in rows)  # deltas

    room = Room(1 << 30, 20)
    room.take(pack, packed=True)

    assert (1 << 30) - room._left == sum(int(row[2]) for row in rows)
    assert bring_in(repository, folder).refused is None


@pytest.mark.parametrize("which", ["top", "inner"])
def test_a_folder_that_becomes_a_link_while_it_is_looked_through_is_not_followed(
    repo: Repo, repository: Repository, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    private = Repo.make(tmp_path / "private")
    private.commit({"secret.txt": "the secret\n"})
    objects = private.path / ".git/objects"
    secret = private("rev-parse", "HEAD:secret.txt").strip()
    (folder / secret[:2]).mkdir()
    scan = os.scandir

    def swapped(place: Any) -> Any:
        """A program of the job that still runs acts as soon as the names have been read."""
        found = list(scan(place))
        [one.is_dir(follow_symlinks=False) for one in found]
        if which == "inner" and (folder / secret[:2]).is_dir() and not (folder / secret[:2]).is_symlink():
            (folder / secret[:2]).rmdir()
            (folder / secret[:2]).symlink_to(objects / secret[:2])
        elif which == "top" and not folder.is_symlink():
            folder.rename(tmp_path / "gone")
            folder.symlink_to(objects)
        return nullcontext(found)

    monkeypatch.setattr(os, "scandir", swapped)

    assert bring_in(repository, folder) == Brought()


def test_notes_for_git_are_written_through_no_link(repository: Repository, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (folder / "info").symlink_to(tmp_path / "private")

    with pytest.raises(OrchardError, match="is another one now"):
        quarantine.mounts(folder, repository, tmp_path / "shared")
    assert not list((tmp_path / "private").iterdir())
