"""A checkout that is elsewhere by the time a landing is settled: moved, copied, or not to be found."""

import shutil
import subprocess
from pathlib import Path

import pytest

from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.claim import claim_of
from orchard.git.landing.landing import land
from orchard.git.landing.obstacles import LandingRefused
from orchard.git.landing.recovery import Settled, settle_all
from orchard.git.repository import find_repository
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.git.test_landing import Scene, make_scene, picture
from tests.git.test_landing_steps import at, killed_at


@pytest.fixture
def scene(repo: Repo) -> Scene:
    return make_scene(repo)


@pytest.fixture
def linked(scene: Scene) -> Repo:
    """A linked worktree that has the target."""
    scene.repo("checkout", "-q", "-b", "elsewhere")
    scene.repo("worktree", "add", "-q", str(scene.repo.path.parent / "linked"), "main")
    return Repo(scene.repo.path.parent / "linked")


def copy(source: Path, goal: Path) -> Repo:
    subprocess.run(["cp", "-a", source, goal], check=True)
    return Repo(goal)


def moved(repo: Repo) -> Repo:
    return Repo(repo.path.rename(repo.path.with_name("elsewhere")))


def settle(repo: Repo) -> Settled:
    (found,) = settle_all(find_repository(repo.path))
    return found


def is_whole(repo: Repo, files: dict[str, str]) -> bool:
    git_dir = Path(repo("rev-parse", "--absolute-git-dir").strip())
    clean = repo("status", "--porcelain", "--ignored") == "" and not list(git_dir.glob("*.lock"))
    return clean and {name: one for name, one in picture(repo.path).items() if name != ".git"} == files


# ------------------------------------------------------------------------------------ moved


@pytest.mark.parametrize("place", ["locked", "staged", "before-rename", "placed"])
def test_a_landing_that_died_in_a_repository_that_was_moved_since_is_taken_back(scene: Scene, place: str) -> None:
    before = picture(scene.repo.path)
    killed_at(scene, f"checkout.{place}", nth=4 if place == "before-rename" else 1)

    repo = moved(scene.repo)
    found = settle_all(find_repository(repo.path))

    assert [one.theirs for one in found] == ([()] if place in ("before-rename", "placed") else [])
    assert is_whole(repo, before)
    assert list((repo.path / ".git/orchard/landing").iterdir()) == [repo.path / ".git/orchard/landing/main.lock"]


@pytest.mark.parametrize("place", ["swapped", "published"])
def test_a_landing_that_died_in_a_repository_that_was_moved_since_is_finished(scene: Scene, place: str) -> None:
    killed_at(scene, f"checkout.{place}")

    repo = moved(scene.repo)
    found = settle(repo)

    assert found.forward and found.published and found.theirs == () and found.kept is None
    assert repo("status", "--porcelain") == "" and not list((repo.path / ".git").glob("*.lock"))


def test_a_landing_that_died_in_a_linked_worktree_that_git_moved_since_is_taken_back(
    scene: Scene, linked: Repo
) -> None:
    before = picture(linked.path)
    del before[".git"]
    killed_at(scene, "checkout.before-rename", nth=4)

    scene.repo("worktree", "move", str(linked.path), str(linked.path.with_name("moved")))
    found = settle(scene.repo)

    assert found.theirs == () and not found.astray
    assert is_whole(Repo(linked.path.with_name("moved")), before)


def test_a_stage_in_a_checkout_moves_with_it(scene: Scene, linked: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    before = picture(linked.path)
    del before[".git"]
    killed_at(scene, "checkout.before-rename", nth=4)
    claim = claim_of(scene.repository, scene.repository.common_dir / "worktrees" / "linked")
    (stage,) = claim.glob(".orchard-landing-*")
    shutil.move(stage, linked.path / stage.name)
    for name in ("intent.json", "stage.path"):
        note = claim / name
        note.write_text(note.read_text().replace(str(stage), str(linked.path / stage.name)))

    scene.repo("worktree", "move", str(linked.path), str(linked.path.with_name("moved")))
    found = settle(scene.repo)

    assert found.theirs == () and is_whole(Repo(linked.path.with_name("moved")), before)


# ------------------------------------------------------------------------------------ not to be found


def test_while_a_checkout_does_not_say_that_it_is_ours_nothing_is_touched_and_our_notes_stay(
    scene: Scene, linked: Repo
) -> None:
    before = picture(linked.path)
    del before[".git"]
    killed_at(scene, "checkout.before-rename", nth=4)
    there = Repo(linked.path.rename(linked.path.with_name("moved")))
    half_way = picture(there.path)

    for _ in range(2):
        found = settle(scene.repo)
        assert "linked" in in_commands(found.astray) and "git worktree repair" in in_commands(found.astray)
    refused = land(scene.repository, "main", scene.old, scene.new, "m")

    assert isinstance(refused, LandingRefused) and scene.repo.head("main") == scene.old
    assert picture(there.path) == half_way
    scene.repo("worktree", "repair", str(there.path))
    assert settle(scene.repo).theirs == () and is_whole(there, before)


def test_a_checkout_that_cannot_be_found_keeps_no_other_branch_from_landing(scene: Scene, linked: Repo) -> None:
    killed_at(scene, "checkout.before-rename", nth=4)
    (linked.path / ".git").write_text("gitdir: /nowhere\n")
    scene.repo("branch", "free", scene.old)

    assert land(scene.repository, "free", scene.old, scene.new, "m") == BranchMoved(None)
    assert settle(scene.repo).astray


def test_while_the_files_that_made_way_are_not_to_be_found_our_notes_stay(scene: Scene) -> None:
    before = picture(scene.repo.path)
    killed_at(scene, "checkout.placed")
    claim = claim_of(scene.repository, scene.repository.common_dir)
    (stage,) = claim.glob(".orchard-landing-*")
    stage.rename(scene.repo.path.parent / "away")
    half_way = picture(scene.repo.path)

    found, refused = settle(scene.repo), scene.land()

    assert (
        str(stage) in in_commands(found.astray) and isinstance(refused, LandingRefused) and str(stage) in refused.reason
    )
    assert picture(scene.repo.path) == half_way
    (scene.repo.path.parent / "away").rename(stage)
    assert settle(scene.repo).theirs == () and is_whole(scene.repo, before)


# ------------------------------------------------------------------------------------ copied


@pytest.mark.parametrize("place", ["staged", "before-rename", "placed", "swapped"])
def test_an_engine_in_a_copy_settles_the_copy_and_not_the_original(
    scene: Scene, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, found = picture(scene.repo.path), list[Settled]()

    def settle_a_copy() -> None:
        other = copy(scene.repo.path, scene.repo.path.with_name("copy"))
        found.extend(settle_all(find_repository(other.path)))

    at(f"checkout.{place}", settle_a_copy, monkeypatch, nth=4 if place == "before-rename" else 1)

    assert scene.land() == BranchMoved(scene.repo.path)
    assert is_whole(scene.repo, after := picture(scene.repo.path))
    assert [(one.theirs, one.kept) for one in found] == ([] if place == "staged" else [((), None)])
    assert is_whole(Repo(scene.repo.path.with_name("copy")), after if place == "swapped" else before)


def test_an_engine_in_a_copy_leaves_a_linked_worktree_to_the_original(
    scene: Scene, linked: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[Settled]()

    def settle_a_copy() -> None:
        other = copy(scene.repo.path, scene.repo.path.with_name("copy"))
        found.extend(settle_all(find_repository(other.path)))

    at("checkout.before-rename", settle_a_copy, monkeypatch, nth=4)

    assert scene.land() == BranchMoved(linked.path)
    assert is_whole(linked, {name: one for name, one in picture(linked.path).items() if name != ".git"})
    assert [str(linked.path) in in_commands(one.astray) for one in found] == [True]
