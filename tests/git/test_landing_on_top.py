"""A user who removes our locks after a crash and commits on top: the landing is finished, what they did stays."""

from dataclasses import replace

import pytest

from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.claim import claims
from orchard.git.landing.recovery import settle_all
from orchard.testing import Repo
from tests.git.test_landing import Scene, make_scene
from tests.git.test_landing_steps import killed_at


@pytest.fixture
def scene(repo: Repo) -> Scene:
    return make_scene(repo)


def unlock(repo: Repo) -> None:
    for name in ("index.lock", "HEAD.lock"):
        (repo.path / ".git" / name).unlink(missing_ok=True)


def is_forgotten(scene: Scene) -> bool:
    return [one.name for one in claims(scene.repository).iterdir()] == ["main.lock"]


@pytest.mark.parametrize("branch", ["main", "mine"])
def test_what_was_committed_on_a_landing_that_died_stays_and_is_named(scene: Scene, branch: str) -> None:
    repo = scene.repo
    killed_at(scene, "checkout.published")
    unlock(repo)
    if branch != "main":
        repo("switch", "-q", "-c", branch)
    repo("rm", "-q", "new.txt")
    mine = repo.commit({"a.txt": "mine\n", "README.md": "mine\n"})

    (found,) = settle_all(scene.repository)

    assert found.forward and found.published and sorted(found.theirs) == [b"a.txt", b"new.txt"]
    assert repo("status", "--porcelain") == "" and repo.head(branch) == mine
    assert not (repo.path / "new.txt").exists() and not (repo.path / "gone.txt").exists()
    assert (repo.path / "a.txt").read_text() == "mine\n"
    assert is_forgotten(scene)


def test_a_file_that_a_landing_removed_and_a_commit_brought_back_is_named(scene: Scene) -> None:
    killed_at(scene, "checkout.published")
    unlock(scene.repo)
    scene.repo.commit({"gone.txt": "again\n"})

    (found,) = settle_all(scene.repository)

    assert found.forward and found.theirs == (b"gone.txt",)
    assert scene.repo("status", "--porcelain") == ""


def test_a_folder_that_a_landing_put_in_the_place_of_a_file_is_not_taken_for_a_change(scene: Scene) -> None:
    repo = scene.repo
    repo("checkout", "-q", "--detach")
    (repo.path / "gone.txt").unlink()
    new = repo.commit({"gone.txt/inside": "x\n"})
    repo("checkout", "-q", "main")
    killed_at(replace(scene, new=new), "checkout.published")
    unlock(repo)
    repo.commit({"README.md": "mine\n"})

    (found,) = settle_all(scene.repository)

    assert found.forward and found.theirs == ()
    assert repo("status", "--porcelain") == ""


def test_a_commit_on_top_from_an_index_that_had_not_followed_loses_no_file(scene: Scene) -> None:
    repo = scene.repo
    killed_at(scene, "checkout.swapped")
    unlock(repo)
    (repo.path / "mine.txt").write_text("mine\n")
    repo("add", "mine.txt")
    repo("commit", "-q", "-m", "mine")

    (found,) = settle_all(scene.repository)

    assert found.forward and b"new.txt" in found.theirs and b"a.txt" in found.theirs
    assert (repo.path / "new.txt").read_text() == "new\n" and not (repo.path / "gone.txt").exists()
    assert repo("diff", "--cached", "--name-only") == ""
    assert is_forgotten(scene)


def test_a_branch_that_moved_on_elsewhere_leaves_an_index_that_can_still_be_put_in_place(scene: Scene) -> None:
    repo = scene.repo
    killed_at(scene, "checkout.swapped")
    top = repo("commit-tree", "-p", scene.new, "-m", "on top", f"{scene.new}^{{tree}}").strip()
    (repo.path / ".git/refs/heads/main").write_text(f"{top}\n")

    (found,) = settle_all(scene.repository)

    assert found.forward and found.published and found.theirs == ()
    assert repo("status", "--porcelain") == "" and repo.head("main") == top


@pytest.mark.parametrize("place", ["placed", "published"])
def test_an_undo_that_died_goes_the_way_of_its_branch_when_there_is_a_commit_on_top(scene: Scene, place: str) -> None:
    repo = scene.repo
    assert isinstance(scene.land(), BranchMoved)
    killed_at(scene, f"checkout.{place}", "undo")
    unlock(repo)
    (repo.path / "mine.txt").write_text("mine\n")
    repo("add", "mine.txt")
    repo("commit", "-q", "-m", "mine")

    (found,) = settle_all(scene.repository)

    assert found.forward == (place == "published") and found.theirs == ()
    assert repo("status", "--porcelain") == ""
    assert (repo.path / "gone.txt").exists() == (place == "published")


def test_an_undo_whose_branch_has_not_moved_is_taken_back_also_from_an_older_branch(scene: Scene) -> None:
    repo = scene.repo
    assert isinstance(scene.land(), BranchMoved)
    killed_at(scene, "checkout.intended", "undo")
    unlock(repo)
    repo("switch", "-q", "-c", "side", scene.old)
    repo.commit({"mine.txt": "mine\n"})

    (found,) = settle_all(scene.repository)

    assert not found.forward and found.theirs == ()
    assert repo("status", "--porcelain") == ""
