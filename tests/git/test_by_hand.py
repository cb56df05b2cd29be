"""A conflict of any kind can be resolved in a worktree, and is found again in the next merge that meets it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.git.merge.by_hand import (
    Names,
    is_untouched,
    leftover,
    marked_tree,
    refuse_impossible,
    resolution,
    unmerge,
)
from orchard.git.merge.conflicts import BadResolution, Conflict, Merge, Resolution
from orchard.git.merge.memory import remember_all, resolve_as_by_hand, resolve_from_memory
from orchard.git.merge.merge import Merger
from orchard.git.objects.reader import GITLINK, Entry, Objects
from orchard.git.repository import Repository
from orchard.git.worktree.worktrees import Worktrees
from orchard.testing import Repo
from tests.git.test_conflicts import TEXT, Act, delete, folder, link, move, side, write

NAMES = Names("job 'a'", "the target branch 'main'")
BINARY = "".join(f"{number}\0" for number in range(50))


@pytest.fixture
def merger(repository: Repository) -> Iterator[Merger]:
    with Objects(repository.git) as objects, Merger(repository, objects) as merger:
        yield merger


class Place:
    """A worktree with a conflict in it."""

    def __init__(self, repository: Repository, merger: Merger, merge: Merge, root: Path) -> None:
        self.repository, self.merger, self.merge = repository, merger, merge
        self.tree = marked_tree(repository, merger.objects, merge, NAMES)
        commit = merger.commit(self.tree, (merge.ours, merge.theirs), "conflict", when=0)
        worktree = Worktrees(repository, root).add(commit, "test")
        self.path, self.git = worktree.path, repository.worktree_git(worktree.name, worktree.path)
        self.fresh = is_untouched(self.git)
        unmerge(self.git, merge)

    @property
    def left(self) -> list[str]:
        found = leftover(self.repository, self.git, self.merger.objects, self.merge, self.tree)
        return [one.path.decode() for one in found]

    def resolved(self) -> Resolution:
        self.git("add", "-A")
        return resolution(self.merger.objects, self.merge, self.tree, self.git("write-tree").text)


def meet(repo: Repo, merger: Merger, ours: Act, theirs: Act) -> Merge:
    repo.write({"f": TEXT, "bin": BINARY})
    repo.commit()
    merge = merger.merge(side(repo, ours), side(repo, theirs))
    assert not merge.clean
    return merge


KINDS: dict[str, tuple[Act, Act]] = {
    "content": (write(TEXT.replace("line 5\n", "ours\n")), write(TEXT.replace("line 5\n", "theirs\n"))),
    "binary": (write(BINARY + "a", "bin"), write(BINARY + "b", "bin")),
    "modify/delete": (delete, write(TEXT + "more\n")),
    "rename": (move("here"), move("there")),
    "file/directory": (folder, write(TEXT + "more\n")),
    "symlink": (link("x"), link("y")),
    "add/add": (write("one\n", "new"), write("two\n", "new")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_conflict_is_resolved_in_a_worktree_and_known_again(
    repo: Repo, repository: Repository, merger: Merger, tmp_path: Path, kind: str
) -> None:
    merge = meet(repo, merger, *KINDS[kind])
    place = Place(repository, merger, merge, tmp_path / "trees")
    assert place.fresh and not is_untouched(place.git)
    assert set(place.left) <= {one.path.decode() for one in merge.conflicts} and place.left
    for one in merge.conflicts:
        (place.path / one.path.decode()).unlink(missing_ok=True)
    (place.path / "result").write_text("as a person wants it\n")
    assert place.left == []

    found = place.resolved()
    remember_all(repository, merger.objects, "plan", merge, found)
    again = merger.merge(merge.ours, merge.theirs)

    known = resolve_as_by_hand(repository, merger.objects, "plan", again)
    assert known is not None and known.tree == found.tree
    assert known.paths == found.paths
    assert resolve_as_by_hand(repository, merger.objects, "other", again) is None
    agents = resolve_from_memory(repository, merger.objects, "plan", again)
    assert agents is not None and agents.tree == found.tree


def test_a_resolution_that_changed_other_files_counts_only_where_those_are_as_they_were(
    repo: Repo, repository: Repository, merger: Merger, tmp_path: Path
) -> None:
    ours, theirs = KINDS["content"]
    merge = meet(repo, merger, ours, theirs)
    place = Place(repository, merger, merge, tmp_path / "trees")
    (place.path / "f").write_text("resolved\n")
    (place.path / "beside").write_text("needed by the merge\n")
    remember_all(repository, merger.objects, "plan", merge, place.resolved())

    def more(repo: Repo) -> None:
        ours(repo)
        repo.write({"unrelated": "x\n"})

    def same_name(repo: Repo) -> None:
        ours(repo)
        repo.write({"beside": "somebody else's\n"})

    grown = merger.merge(side(repo, more), merge.theirs)
    known = resolve_as_by_hand(repository, merger.objects, "plan", grown)
    assert known is not None
    assert {"unrelated", "beside"} <= set(repo.files(known.tree))
    taken = merger.merge(side(repo, same_name), merge.theirs)
    assert resolve_as_by_hand(repository, merger.objects, "plan", taken) is None


def test_markers_name_the_sides_and_are_found_whatever_their_size(
    repo: Repo, repository: Repository, merger: Merger, tmp_path: Path
) -> None:
    repo.write({".gitattributes": "f conflict-marker-size=12\n"})
    repo.commit()
    merge = meet(repo, merger, *KINDS["content"])
    place = Place(repository, merger, merge, tmp_path / "trees")

    text = (place.path / "f").read_text()
    assert "<<<<<<<<<<<< job 'a'\nours\n" in text and ">>>>>>>>>>>> the target branch 'main'\n" in text
    (place.path / "f").write_text(text + "edited\n")
    place.git("add", "f")
    assert place.left == ["f"], "a file with markers is not resolved by 'git add'"


def test_submodules_and_nested_repositories_are_refused(
    repo: Repo, repository: Repository, merger: Merger, tmp_path: Path
) -> None:
    links = [Entry(GITLINK, str(number) * 40) for number in range(3)]
    merge = Merge("a" * 40, "b" * 40, "c" * 40, (Conflict(b"sub", "submodule", *links),))
    with pytest.raises(BadResolution, match="moved the submodule sub"):
        refuse_impossible(merge)
    real = meet(repo, merger, *KINDS["content"])
    place = Place(repository, merger, real, tmp_path / "trees")
    (place.path / "f").write_text("resolved\n")
    Repo.make(place.path / "inner", files={"x": "x"})
    with pytest.raises(BadResolution, match="git repository of its own"):
        place.resolved()
