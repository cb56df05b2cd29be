"""Resolutions: by a side, by hand, from memory. Modes are kept, and nothing outside the conflict changes."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchard.git.merge.conflicts import (
    BadResolution,
    Merge,
    Side,
    extract,
    resolve_by_side,
    take_back,
    verify,
)
from orchard.git.merge.memory import conflict_key, recall, remember_all, resolve_from_memory
from orchard.git.merge.merge import Merger
from orchard.git.objects.reader import EXECUTABLE, SYMLINK, Objects
from orchard.git.repository import Repository
from orchard.testing import Repo

TEXT = "".join(f"line {number}\n" for number in range(20))
Act = Callable[[Repo], object]


@pytest.fixture
def merger(repository: Repository) -> Iterator[Merger]:
    with Objects(repository.git) as objects, Merger(repository, objects) as merger:
        yield merger


def side(repo: Repo, act: Act) -> str:
    repo("checkout", "-q", "--detach", "main")
    act(repo)
    commit = repo.commit()
    repo("checkout", "-q", "main")
    return commit


def write(text: str, name: str = "f") -> Act:
    return lambda repo: repo.write({name: text})


def delete(repo: Repo) -> None:
    (repo.path / "f").unlink()


def link(to: str) -> Act:
    def act(repo: Repo) -> None:
        delete(repo)
        (repo.path / "f").symlink_to(to)

    return act


def move(to: str) -> Act:
    return lambda repo: (repo.path / "f").rename(repo.path / to)


def folder(repo: Repo) -> None:
    delete(repo)
    repo.write({"f/inside": "x"})


def _with_own_file(act: Act, name: str) -> Act:
    def both(repo: Repo) -> None:
        act(repo)
        repo.write({name: name})

    return both


def merge_of(repo: Repo, merger: Merger, ours: Act, theirs: Act) -> Merge:
    """Two sides that do not go together, each with a file of its own besides."""
    repo.commit({"f": TEXT, "untouched": "u"})
    commits = [side(repo, _with_own_file(act, name)) for act, name in ((ours, "o"), (theirs, "t"))]
    merge = merger.merge(*commits)
    assert not merge.clean
    return merge


SIDES: dict[str, tuple[Act, Act, set[str], set[str]]] = {
    "content": (write(TEXT + "ours"), write(TEXT + "theirs"), {"f"}, {"f"}),
    "modify/delete": (write(TEXT + "ours"), delete, {"f"}, set()),
    "delete/modify": (delete, write(TEXT + "theirs"), set(), {"f"}),
    "add/add": (write("ours", "new"), write("theirs", "new"), {"f", "new"}, {"f", "new"}),
    "binary": (write("\0ours"), write("\0theirs"), {"f"}, {"f"}),
    "link": (link("a"), link("b"), {"f"}, {"f"}),
    "file and link": (write(TEXT + "ours"), link("b"), {"f"}, {"f"}),
    "two renames": (move("g"), move("h"), {"g"}, {"h"}),
    "file and folder": (write(TEXT + "ours"), folder, {"f"}, {"f/inside"}),
    "folder and file": (folder, write(TEXT + "theirs"), {"f/inside"}, {"f"}),
}


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("chosen", ["ours", "theirs"])
def test_a_preferred_side_gives_its_files_and_leaves_the_rest_merged(
    repo: Repo, repository: Repository, merger: Merger, name: str, chosen: Side
) -> None:
    ours, theirs, kept_ours, kept_theirs = SIDES[name]
    merge = merge_of(repo, merger, ours, theirs)

    tree = resolve_by_side(repository, merger.objects, merge, chosen).tree

    commit = merge.ours if chosen == "ours" else merge.theirs
    kept = kept_ours if chosen == "ours" else kept_theirs
    listing = dict(line.split("\t")[::-1] for line in repo("ls-tree", "-r", tree).splitlines())
    wanted = dict(line.split("\t")[::-1] for line in repo("ls-tree", "-r", commit).splitlines())
    assert set(listing) == kept | {"README.md", "untouched", "o", "t"}
    assert {path: listing[path] for path in kept} == {path: wanted[path] for path in kept}


def test_a_new_file_in_a_renamed_folder_is_kept_whichever_side_is_preferred(
    repo: Repo, repository: Repository, merger: Merger
) -> None:
    repo.commit({f"d/{name}": f"{name}\n{TEXT}" for name in "abc"})
    ours = side(repo, lambda r: (r.path / "d").rename(r.path / "e"))
    theirs = side(repo, lambda r: r.write({"d/new": "new"}))
    merge = merger.merge(ours, theirs)

    trees = [resolve_by_side(repository, merger.objects, merge, chosen).tree for chosen in ("ours", "theirs")]

    assert [conflict.kind for conflict in merge.conflicts] == ["directory-rename"]
    assert all(repo.files(tree)["e/new"] == "new" for tree in trees)


def test_an_executable_bit_survives_a_resolution(
    repo: Repo, repository: Repository, merger: Merger, tmp_path: Path
) -> None:
    def with_bit(repo: Repo) -> None:
        repo.write({"f": TEXT + "theirs\n"})
        (repo.path / "f").chmod(0o755)

    merge = merge_of(repo, merger, write(TEXT + "ours\n"), with_bit)
    extract(merger.objects, merge, tmp_path / "work")
    (tmp_path / "work/1.merged").write_text("settled\n")

    tree = take_back(repository, merger.objects, merge, tmp_path / "work").tree

    entry = merger.objects.entry(tree, b"f")
    assert entry is not None and entry.mode == EXECUTABLE
    assert repo.files(tree)["f"] == "settled\n"


def test_names_from_the_repository_never_become_paths(repo: Repo, merger: Merger, tmp_path: Path) -> None:
    name = "..\n-rf '$(x)'"
    repo.commit({name: TEXT})
    merge = merger.merge(side(repo, write(TEXT + "a", name)), side(repo, write(TEXT + "b", name)))

    extract(merger.objects, merge, tmp_path / "work")

    names = sorted(path.name for path in (tmp_path / "work").iterdir())
    manifest = json.loads((tmp_path / "work/manifest.json").read_text())
    assert names == ["1.base", "1.merged", "1.ours", "1.theirs", "manifest.json"]
    assert base64.b64decode(manifest["conflicts"][0]["raw"]) == name.encode()
    assert (tmp_path / "work/1.ours").read_text() == TEXT + "a"
    assert "<<<<<<<" in (tmp_path / "work/1.merged").read_text()


def _leave_markers(work: Path) -> None:
    """The file is taken back as it was."""


def _extra(work: Path) -> None:
    (work / "1.merged").write_text("ok\n")
    (work / "notes.txt").write_text("x")


def _link(work: Path) -> None:
    (work / "1.merged").unlink()
    (work / "1.merged").symlink_to("/etc/passwd")


def _directory(work: Path) -> None:
    (work / "1.merged").unlink()
    (work / "1.merged").mkdir()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_leave_markers, "markers left"),
        (lambda work: (work / "1.merged").unlink(), "missing"),
        (_extra, "do not belong"),
        (_link, "cannot be read"),
        (_directory, "not a plain file"),
    ],
)
def test_an_incomplete_or_strange_resolution_is_refused(
    repo: Repo, repository: Repository, merger: Merger, tmp_path: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    merge = merge_of(repo, merger, write(TEXT + "ours\n"), write(TEXT + "theirs\n"))
    extract(merger.objects, merge, tmp_path / "work")
    spoil(tmp_path / "work")

    with pytest.raises(BadResolution, match=reason):
        take_back(repository, merger.objects, merge, tmp_path / "work")


def test_marker_lines_that_a_side_had_before_are_content(
    repo: Repo, repository: Repository, merger: Merger, tmp_path: Path
) -> None:
    documented = TEXT + "<<<<<<< is how a conflict begins\n"
    merge = merge_of(repo, merger, write(documented), write(TEXT + "theirs\n"))
    extract(merger.objects, merge, tmp_path / "work")
    (tmp_path / "work/1.merged").write_text(documented + "theirs\n")

    tree = take_back(repository, merger.objects, merge, tmp_path / "work").tree

    assert repo.files(tree)["f"] == documented + "theirs\n"


def test_a_file_that_one_side_deleted_may_be_deleted_or_kept(
    repo: Repo, repository: Repository, merger: Merger, tmp_path: Path
) -> None:
    merge = merge_of(repo, merger, write(TEXT + "ours\n"), delete)
    extract(merger.objects, merge, tmp_path / "work")

    kept = take_back(repository, merger.objects, merge, tmp_path / "work").tree
    (tmp_path / "work/1.merged").unlink()
    deleted = take_back(repository, merger.objects, merge, tmp_path / "work").tree

    assert repo.files(kept)["f"] == TEXT + "ours\n"
    assert "f" not in repo.files(deleted)


@pytest.mark.parametrize(("ours", "theirs"), [(write("\0a"), write("\0b")), (link("a"), link("b"))])
def test_conflicts_that_are_not_about_text_are_left_to_a_person(
    repo: Repo, merger: Merger, tmp_path: Path, ours: Act, theirs: Act
) -> None:
    merge = merge_of(repo, merger, ours, theirs)

    with pytest.raises(BadResolution, match="a person has to decide"):
        extract(merger.objects, merge, tmp_path / "work")


def test_the_same_conflict_is_resolved_from_memory(
    repo: Repo, repository: Repository, merger: Merger, tmp_path: Path
) -> None:
    merge = merge_of(repo, merger, write(TEXT + "ours\n"), write(TEXT + "theirs\n"))
    assert resolve_from_memory(repository, merger.objects, "p1", merge) is None
    extract(merger.objects, merge, tmp_path / "work")
    (tmp_path / "work/1.merged").write_text("settled\n")
    resolution = take_back(repository, merger.objects, merge, tmp_path / "work")

    remember_all(repository, merger.objects, "p1", merge, resolution)
    repo("reflog", "expire", "--expire=now", "--all")
    repo("gc", "-q", "--prune=now")
    again = merger.merge(
        side(repo, lambda r: r.write({"f": TEXT + "ours\n", "x": "x"})), side(repo, write(TEXT + "theirs\n"))
    )
    remembered = resolve_from_memory(repository, merger.objects, "p1", again)

    assert remembered is not None and repo.files(remembered.tree)["f"] == "settled\n"
    assert recall(repository, "p2", conflict_key(merge.conflicts[0])) is None


def test_a_resolution_cannot_touch_paths_outside_the_conflict(repo: Repo, merger: Merger) -> None:
    merge = merge_of(repo, merger, write(TEXT + "ours\n"), write(TEXT + "theirs\n"))
    settled = merger.objects.entry(merger.objects.tree_of(merge.ours), b"f")

    with pytest.raises(BadResolution, match="would also change"):
        verify(merger.objects, merge.tree, merger.objects.tree_of(merge.ours), {b"f": settled})


def test_a_link_is_kept_as_a_link(repo: Repo, repository: Repository, merger: Merger) -> None:
    merge = merge_of(repo, merger, link("a"), link("b"))

    entry = merger.objects.entry(resolve_by_side(repository, merger.objects, merge, "theirs").tree, b"f")

    assert entry is not None and entry.mode == SYMLINK
    assert merger.objects.read(entry.oid)[1] == b"b"
