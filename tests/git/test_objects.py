"""The reader that stays open: what it says about objects, and what it survives."""

import os
import signal
import subprocess
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.errors import OrchardError
from orchard.git.objects.reader import (
    EXECUTABLE,
    FILE,
    SYMLINK,
    TREE,
    Change,
    Entry,
    ObjectMissing,
    Objects,
    _parse_tree,
)
from orchard.git.repository import Repository, find_repository
from orchard.testing import Repo


def test_a_tree_is_read_with_odd_names_modes_and_links(repo: Repo, repository: Repository) -> None:
    (repo.path / "run").write_text("x")
    (repo.path / "run").chmod(0o755)
    (repo.path / "link").symlink_to("run")
    repo.commit({"a\nb": "x", "d/e": "y"})

    with Objects(repository.git) as objects:
        tree = objects.tree_of(repo.head())
        entries = objects.tree_entries(tree)
        modes = {name: entry.mode for name, entry in entries.items()}

        assert modes == {b"README.md": FILE, b"a\nb": FILE, b"d": TREE, b"link": SYMLINK, b"run": EXECUTABLE}
        assert objects.read(entries[b"a\nb"].oid) == ("blob", b"x")
        assert objects.entry(tree, b"d/e") == Entry(FILE, repo("rev-parse", "HEAD:d/e").strip())
        assert objects.entry(tree, b"run/e") is None
        assert objects.entry(tree, b"d/none") is None


def test_differences_are_found_below_folders_and_where_a_file_became_a_folder(
    repo: Repo, repository: Repository
) -> None:
    first = repo.commit({"same/x": "x", "d/e": "1", "f": "file"})
    second = repo.commit({"d/e": "2", "f": None})
    third = repo.commit({"f/g": "deep"})

    with Objects(repository.git) as objects:
        found = {
            change.path: (change.old is not None, change.new is not None)
            for change in objects.diff_trees(objects.tree_of(first), objects.tree_of(third))
        }
        nothing = list(objects.diff_trees(objects.tree_of(second), objects.tree_of(second)))

    assert found == {b"d/e": (True, True), b"f": (True, False), b"f/g": (False, True)}
    assert nothing == []


def test_objects_made_later_are_seen_and_a_missing_one_is_an_error(repo: Repo, repository: Repository) -> None:
    with Objects(repository.git) as objects:
        objects.tree_of(repo.head())
        later = repo.commit({"later": "x"})

        assert objects.parents(later) == (repo.head("HEAD~1"),)
        assert objects.exists(later)
        assert not objects.exists("0" * 40)
        with pytest.raises(ObjectMissing):
            objects.read("1" * 40)


def test_a_name_that_is_no_oid_is_never_sent_to_git(repository: Repository) -> None:
    with Objects(repository.git) as objects, pytest.raises(ValueError, match="not an object name"):
        objects.read("HEAD\ncontents HEAD")


def test_a_reader_that_was_killed_is_started_again(repo: Repo, repository: Repository) -> None:
    with Objects(repository.git) as objects:
        objects.exists(repo.head())
        for line in subprocess.run(
            ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True, check=True
        ).stdout.splitlines():
            if "cat-file" in line:
                os.kill(int(line.split()[0]), signal.SIGKILL)

        assert objects.read(repo.head())[0] == "commit"


def test_many_threads_get_their_own_answers(repo: Repo, repository: Repository) -> None:
    repo.commit({f"f{number}": f"content {number}\n" for number in range(40)})
    wrong: list[int] = []

    def ask(objects: Objects, entries: dict[bytes, Entry]) -> None:
        for number in range(40):
            content = objects.read(entries[b"f%d" % number].oid)[1]
            if content != b"content %d\n" % number:
                wrong.append(number)

    with Objects(repository.git) as objects:
        entries = dict(objects.tree_entries(objects.tree_of(repo.head())))
        threads = [threading.Thread(target=ask, args=(objects, entries)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    assert wrong == []


def test_a_tree_is_not_a_commit(repo: Repo, repository: Repository) -> None:
    with Objects(repository.git) as objects, pytest.raises(OrchardError, match="not a commit"):
        objects.commit(objects.tree_of(repo.head()))


def test_sha256_names_are_read(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo", object_format="sha256")
    repository = find_repository(repo.path)

    with Objects(repository.git) as objects:
        changes = list(objects.diff_trees(None, objects.tree_of(repo.head())))

    assert changes == [Change(b"README.md", None, Entry(FILE, repo("rev-parse", "HEAD:README.md").strip()))]


# -------------------------------------------------------------------------------- folders with many files


def test_of_a_huge_folder_only_what_changed_is_taken_apart(repo: Repo, repository: Repository) -> None:
    files, commits = 2000, 10
    chain = [repo.commit({f"file{number:05}": "same\n" for number in range(files)})]
    chain += [repo.commit({f"file{number * 150 + 7:05}": "new\n", f"late{number}": ""}) for number in range(commits)]

    with Objects(repository.git) as objects:
        for old, new in pairwise(chain):
            found = {change.path for change in objects.diff_trees(objects.tree_of(old), objects.tree_of(new))}
            assert len(found) == 2

        # The whole folder once, and of every commit after it its two files.
        assert objects.entries_parsed <= files + 1 + 2 * commits


def _tree(rows: dict[bytes, bytes]) -> bytes:
    return b"".join(b"100644 " + name + b"\0" + oid for name, oid in sorted(rows.items()))


NAMES = st.text("ab1 ", min_size=1, max_size=3).map(str.encode)
OIDS = st.lists(st.sampled_from([b"\0", b" ", b"a", b"1"]), min_size=20, max_size=20).map(b"".join)
ROWS = st.dictionaries(NAMES, OIDS, max_size=8)


@given(ROWS, ROWS, st.sets(NAMES))
def test_whatever_tree_was_read_before_the_next_is_read_as_it_is(
    before: dict[bytes, bytes], changes: dict[bytes, bytes], gone: set[bytes]
) -> None:
    after = {name: oid for name, oid in {**before, **changes}.items() if name not in gone}

    near = _parse_tree(_tree(after), 20, _parse_tree(_tree(before), 20))

    assert (near.rows, near.starts) == _parse_tree(_tree(after), 20)[1:3]
    assert [name for name, _ in near.rows] == sorted(after)
