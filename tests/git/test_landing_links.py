"""Folders that become links, and links that become folders: what lies behind a link is not what stands at the path."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.git import folders
from orchard.git.landing import checkout, placement
from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.landing import undo
from orchard.git.landing.obstacles import LandingRefused
from orchard.git.landing.recovery import settle_all
from orchard.git.repository import find_repository
from orchard.testing import Repo
from tests.git.test_landing import Scene, picture
from tests.git.test_landing_steps import at, killed_at

Tree = dict[str, str | None]
"""Paths with their contents; a link is told by the arrow before its goal."""

LINK = "-> "


def fill(top: Path, tree: Tree) -> None:
    """Make a checkout hold exactly this."""
    for one in top.iterdir():
        if one.name != ".git":
            shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
    for name, content in tree.items():
        place = top / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is not None and content.startswith(LINK):
            place.symlink_to(content.removeprefix(LINK))
        else:
            place.write_text(content or "")


def scene_of(repo: Repo, before: Tree, after: Tree) -> Scene:
    """A repository whose `main` can go from the one tree to the other, and has no file that git does not track."""
    fill(repo.path, before)
    old = repo.commit({})
    repo("checkout", "-q", "--detach")
    fill(repo.path, after)
    new = repo.commit({})
    fill(repo.path, {})
    repo("checkout", "-q", "-f", "main")
    return Scene(repo, find_repository(repo.path), old, new)


def holds(repo: Repo, commit: str) -> bool:
    """Whether branch, files and index are at a commit, and no empty folder is left."""
    empty = [place for place, folders, names in os.walk(repo.path) if not folders and not names and ".git" not in place]
    clean = repo("status", "--porcelain", "--ignored") == "" and empty == []
    return clean and repo.head("main") == commit and not (repo.path / ".git/index.lock").exists()


SWAPS: dict[str, tuple[Tree, Tree]] = {
    "a folder moves and leaves a link": (
        {"docs/patterns/x": "x", "docs/patterns/y": "y"},
        {"real/patterns/x": "x", "real/patterns/y": "y", "docs": "-> real"},
    ),
    "a folder in a folder moves and leaves a link": (
        {"docs/patterns/x": "x", "docs/patterns/y": "y", "docs/z": "z"},
        {"real/x": "x", "real/y": "y", "docs/z": "z", "docs/patterns": "-> ../real"},
    ),
    "a link becomes a copy of the folder that it led to": (
        {"docs/patterns/x": "x", "docs/patterns/y": "y", "lnk": "-> docs"},
        {"docs/patterns/x": "x", "docs/patterns/y": "y", "lnk/patterns/x": "x", "lnk/patterns/y": "y"},
    ),
    "a link becomes a folder where the folder that it led to has a link": (
        {"docs/a/x": "x", "docs/b": "-> a", "lnk": "-> docs"},
        {"docs/a/x": "x", "docs/b": "-> a", "lnk/b/x": "x", "lnk/a": "-> b"},
    ),
    "a link to a closed folder becomes a folder": ({"lnk": "-> /proc"}, {"lnk/x": "x", "lnk/1/y": "y"}),
    "two folders change places with their links": (
        {"a/d/x": "x", "b": "-> a", "c/d": "-> ../a/d"},
        {"b/d/x": "x", "a": "-> b", "c/d/x": "x"},
    ),
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_folder_and_a_link_that_change_places_land_and_are_undone(repo: Repo, swap: str) -> None:
    scene = scene_of(repo, *SWAPS[swap])

    assert scene.land() == BranchMoved(repo.path)
    assert holds(repo, scene.new)
    assert undo(scene.repository, "main", scene.old, scene.new) == BranchMoved(repo.path)
    assert holds(repo, scene.old)


@pytest.mark.parametrize("verb", ["land", "undo"])
@pytest.mark.parametrize("swap", ["a folder moves and leaves a link", "two folders change places with their links"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_landing_of_links_for_folders_that_is_killed_is_taken_back(
    repo: Repo, swap: str, nth: int, verb: str
) -> None:
    scene = scene_of(repo, *SWAPS[swap])
    if verb == "undo":
        scene.land()

    killed_at(scene, "checkout.after-rename", verb, nth)
    (found,) = settle_all(scene.repository)

    assert not found.forward and found.theirs == ()
    assert holds(repo, scene.old if verb == "land" else scene.new)


@pytest.mark.parametrize("name", ["docs/patterns/mine", "docs/mine", "docs/patterns/deep/mine"])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_file_of_the_users_in_a_folder_that_becomes_a_link_is_named_and_stays(
    repo: Repo, name: str, ignored: bool
) -> None:
    scene = scene_of(repo, *SWAPS["a folder moves and leaves a link"])
    if ignored:
        (repo.path / ".git/info/exclude").write_text("mine\n")
    repo.write({name: "mine\n"})
    before = picture(repo.path)

    refused = scene.land()

    assert isinstance(refused, LandingRefused) and name in refused.reason
    assert picture(repo.path) == before and repo.head("main") == scene.old


@pytest.mark.parametrize("place", ["checkout.staged", "checkout.intended", "checkout.before-rename"])
def test_nothing_is_written_through_a_link_that_the_user_put_in_place_of_a_folder_meanwhile(
    repo: Repo, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(repo, {"d/e/x": "x", "d/gone": "gone"}, {"d/e/x": "y", "d/e/f/new": "new"})
    outside = tmp_path / "outside"

    def move_out() -> None:
        (repo.path / "d").rename(outside)
        (repo.path / "d").symlink_to(outside)

    at(place, move_out, monkeypatch)
    refused = scene.land()

    assert isinstance(refused, LandingRefused) and "d/" in refused.reason
    assert (repo.path / "d").is_symlink() and repo.head("main") == scene.old
    assert picture(outside).keys() == {"e/x", "gone"} and (outside / "e/x").read_text() == "x"


def test_nothing_goes_back_through_a_link_that_the_user_set_otherwise_after_a_crash(repo: Repo, tmp_path: Path) -> None:
    scene = scene_of(repo, *SWAPS["a folder moves and leaves a link"])
    outside = tmp_path / "outside"
    outside.mkdir()
    killed_at(scene, "checkout.placed")
    (repo.path / "docs").unlink()
    (repo.path / "docs").symlink_to(outside)

    (found,) = settle_all(scene.repository)

    assert set(found.theirs) == {b"docs", b"docs/patterns/x", b"docs/patterns/y"}
    assert (repo.path / "docs").readlink() == outside and list(outside.iterdir()) == []
    assert not (repo.path / "real").exists()


def test_an_empty_folder_behind_a_link_that_has_landed_stays(repo: Repo) -> None:
    scene = scene_of(repo, {"docs/e/x": "x", "real/y": "y"}, {"docs": "-> real", "real/y": "y"})
    (repo.path / "real/e").mkdir()

    assert scene.land() == BranchMoved(repo.path)
    assert (repo.path / "real/e").is_dir()


# ------------------------------------------------------------------------------------ by chance

NAMES = ("a", "b", "c")
DEPTH = 4


def any_tree(chance: random.Random, outside: Path) -> Tree:
    """Folders, files and links of a few names, so that two trees often have one for the other at the same path."""
    tree: Tree = {"keep": "keep"}

    def grow(folder: str, depth: int) -> None:
        for name in NAMES:
            path = f"{folder}{name}"
            kind = chance.choice(["folder", "folder", "link", "link", "file", ""])
            if kind == "folder" and depth < DEPTH:
                grow(f"{path}/", depth + 1)
            elif kind == "link":
                up = "../" * chance.randrange(depth + 1)
                goal = up + "/".join(chance.choice(NAMES) for _ in range(chance.randrange(1, DEPTH)))
                tree[path] = LINK + chance.choice([goal, goal, goal, str(outside)])
            elif kind:
                # Few contents: then a file behind a link is often just like the one that is looked for.
                tree[path] = chance.choice(["one\n", "two\n"])

    grow("", 0)
    return tree


class Died(BaseException):
    """What a kill is to those who call."""


def dies(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch, nth: int) -> bool:
    """Do something until it has moved so many files, then end as by a kill; False if it came to its end before."""
    left = [nth]

    def killed(move: Callable[..., object]) -> Callable[..., object]:
        def moved(*words: bytes) -> object:
            done = move(*words)
            left[0] -= 1
            if left[0] == 0:
                raise Died
            return done

        return moved

    def nobody(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        for name in ("put", "take", "swap"):
            patched.setattr(placement, name, killed(getattr(folders, name)))
        patched.setattr(checkout, "_put_right", nobody)
        try:
            act()
        except Died:
            return True
    return False


@pytest.mark.parametrize("seed", range(6))
def test_whatever_becomes_of_folders_and_links_a_landing_is_whole_also_after_a_kill(
    repo: Repo, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    outside = tmp_path / "outside"
    for name in NAMES:
        (outside / name / "a").mkdir(parents=True)  # empty folders, and files of names that are landed, too
        (outside / name / "b").write_text("one\n")
    theirs = sorted(outside.rglob("*"))
    before, after = any_tree(chance, outside), any_tree(chance, outside)
    scene = scene_of(repo, before, after)
    moves = len(repo("diff", "--name-only", "--no-renames", scene.old, scene.new).splitlines())

    for go, back, ends in (
        (scene.land, scene.old, scene.new),
        (lambda: undo(scene.repository, "main", scene.old, scene.new), scene.new, scene.old),
    ):
        for _ in range(3):
            nth = chance.randrange(1, moves + 1)
            assert dies(go, monkeypatch, nth)
            if chance.random() < 0.7:
                dies(lambda: settle_all(scene.repository), monkeypatch, chance.randrange(1, nth + 1))
            settled = settle_all(scene.repository)
            assert [one.theirs for one in settled if one.theirs] == []
            assert holds(repo, back)
        assert go() in (BranchMoved(repo.path), BranchMoved(repo.path))
        assert holds(repo, ends)
    assert sorted(outside.rglob("*")) == theirs
