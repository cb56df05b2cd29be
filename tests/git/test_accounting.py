"""A result that lost something is noticed; one that git merged rightly, renames and all, is not held up."""

from collections.abc import Callable, Iterator

import pytest

from orchard.git.merge.account import LostInMerge, Trees, check, unaccounted
from orchard.git.merge.merge import Merger
from orchard.git.objects.reader import Objects
from orchard.git.repository import Repository
from orchard.testing import Content, Repo

LINES = [f"line {number}\n" for number in range(20)]
TEXT = "".join(LINES)
Act = Callable[[Repo], object]


@pytest.fixture
def objects(repository: Repository) -> Iterator[Objects]:
    with Objects(repository.git) as objects:
        yield objects


def write(files: dict[str, Content]) -> Act:
    return lambda repo: repo.write(files)


def move(old: str, new: str) -> Act:
    def act(repo: Repo) -> None:
        (repo.path / new).parent.mkdir(parents=True, exist_ok=True)
        (repo.path / old).rename(repo.path / new)

    return act


def side(repo: Repo, *acts: Act) -> str:
    repo("checkout", "-q", "--detach", "main")
    for act in acts:
        act(repo)
    commit = repo.commit()
    repo("checkout", "-q", "main")
    return commit


def trees(repo: Repo, objects: Objects, ours: str, theirs: str, result: str) -> Trees:
    tree = objects.tree_of
    return Trees((tree(repo.head("main")),), tree(ours), tree(theirs), tree(result))


LOSSES: dict[str, tuple[tuple[Act, ...], tuple[Act, ...], tuple[Act, ...], set[bytes]]] = {
    "a new file of theirs": ((write({"x": "x"}),), (write({"y": "y"}),), (write({"x": "x"}),), {b"y"}),
    "a new file of ours": ((write({"x": "x"}),), (write({"y": "y"}),), (write({"y": "y"}),), {b"x"}),
    "an edit of theirs": ((write({"x": "x"}),), (write({"a": "new"}),), (write({"x": "x"}),), {b"a"}),
    "a deletion of theirs": ((write({"x": "x"}),), (write({"a": None}),), (write({"x": "x"}),), {b"a"}),
    "a file that nobody touched": (
        (write({"x": "x"}),),
        (write({"y": "y"}),),
        (write({"x": "x", "y": "y", "b": None}),),
        {b"b"},
    ),
    "a file from nowhere": (
        (write({"x": "x"}),),
        (write({"y": "y"}),),
        (write({"x": "x", "y": "y", "z": "from nowhere"}),),
        {b"z"},
    ),
    "one side of a file that both edited": (
        (write({"a": "ours\n" + TEXT}),),
        (write({"a": TEXT + "theirs\n"}),),
        (write({"a": TEXT + "theirs\n"}),),
        {b"a"},
    ),
    "an executable bit": (
        (write({"a": "ours\n" + TEXT}),),
        (lambda repo: (repo.path / "a").chmod(0o755),),
        (write({"a": "ours\n" + TEXT}),),
        {b"a"},
    ),
    "an edit of a file that the other side moved": (
        (move("a", "moved"),),
        (write({"a": TEXT + "theirs\n"}),),
        (move("a", "moved"),),
        {b"a"},
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_noticed(repo: Repo, objects: Objects, name: str) -> None:
    repo.commit({"a": TEXT, "b": "b\n"})
    ours, theirs, result = (side(repo, *acts) for acts in LOSSES[name][:3])
    merged = trees(repo, objects, ours, theirs, result)

    assert set(unaccounted(objects, merged)) == LOSSES[name][3]
    with pytest.raises(LostInMerge):
        check(objects, merged)


RENAMES: dict[str, tuple[tuple[Act, ...], tuple[Act, ...]]] = {
    "moved here, edited there": ((move("d/a", "e"),), (write({"d/a": TEXT + "x\n"}),)),
    "edited here, moved there": ((write({"d/a": TEXT + "x\n"}),), (move("d/a", "e"),)),
    "moved here, made executable there": ((move("d/a", "e"),), (lambda repo: (repo.path / "d/a").chmod(0o755),)),
    "moved and edited on both sides": (
        (move("d/a", "e"), write({"e": "top\n" + TEXT})),
        (write({"d/a": TEXT + "x\n"}),),
    ),
    "the same move on both sides": ((move("d/a", "e"),), (move("d/a", "e"), write({"n": "n"}))),
    "both add lines to one file": ((write({"d/a": "x\n" + TEXT}),), (write({"d/a": TEXT + "y\n"}),)),
}


@pytest.mark.parametrize("name", RENAMES)
def test_what_git_merged_rightly_is_accounted_for(
    repo: Repo, repository: Repository, objects: Objects, name: str
) -> None:
    repo.commit({"d/a": TEXT, "d/b": TEXT.upper(), "c": "c\n"})
    ours, theirs = (side(repo, *acts) for acts in RENAMES[name])
    with Merger(repository, objects) as merger:
        merge = merger.merge(ours, theirs)
    tree = objects.tree_of

    assert merge.clean
    assert unaccounted(objects, Trees((tree(repo.head()),), tree(ours), tree(theirs), merge.tree)) == []


def test_a_folder_rename_that_takes_a_new_file_along_is_accounted_for(
    repo: Repo, repository: Repository, objects: Objects
) -> None:
    repo("config", "merge.directoryRenames", "true")
    repo.commit({f"d/{name}": f"{name}\n{TEXT}" for name in "abc"})
    ours = side(repo, *(move(f"d/{name}", f"e/{name}") for name in "abc"))
    theirs = side(repo, write({"d/new": "new\n"}))
    with Merger(repository, objects) as merger:
        merge = merger.merge(ours, theirs)
    tree = objects.tree_of

    assert merge.clean and "e/new" in repo.files(merge.tree)
    assert unaccounted(objects, Trees((tree(repo.head()),), tree(ours), tree(theirs), merge.tree)) == []


def test_the_cost_follows_what_theirs_changed_not_what_ours_gathered(repo: Repo, repository: Repository) -> None:
    repo.commit({f"d{number}/f": "x\n" for number in range(300)})
    ours = side(repo, write({f"d{number}/f": "y\n" for number in range(1, 300)}))
    theirs = side(repo, write({"d0/f": "z\n"}))
    read: list[str] = []

    class Counting(Objects):
        def read(self, name: str) -> tuple[str, bytes]:
            read.append(name)
            return super().read(name)

    with Counting(repository.git) as objects, Merger(repository, objects) as merger:
        merge = merger.merge(ours, theirs)
        result = trees(repo, objects, ours, theirs, theirs)
        with Counting(repository.git) as fresh:
            read.clear()
            lost = unaccounted(fresh, Trees(result.bases, result.ours, result.theirs, merge.tree))

    assert lost == []
    assert len(read) <= 12
