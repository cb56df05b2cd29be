"""Notes about a landing that are none: a pipe keeps nobody waiting, and damage is named instead of guessed at."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.claim import claim_of
from orchard.git.landing.intent import DamagedNotes, read_intent
from orchard.git.landing.landing import land
from orchard.git.landing.obstacles import LandingRefused
from orchard.git.landing.recovery import settle_all
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.git.test_landing import Scene, make_scene

LONGEST = 15.0


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LONGEST


@pytest.fixture
def scene(repo: Repo) -> Scene:
    return make_scene(repo)


@pytest.fixture
def claim(scene: Scene) -> Path:
    place = claim_of(scene.repository, scene.repository.common_dir)
    place.mkdir(parents=True)
    return place


def link(place: Path) -> None:
    place.symlink_to("/dev/zero")


def bind(place: Path) -> None:
    here = Path.cwd()
    os.chdir(place.parent)  # the path of a socket has to be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(place.name)
    finally:
        os.chdir(here)


def refused_by_name(scene: Scene, place: Path) -> None:
    """Whoever starts, and whoever lands, is told which file it is; without it everything works."""
    with pytest.raises(DamagedNotes) as told:
        settle_all(scene.repository)
    refused = land(scene.repository, "main", scene.old, scene.new, "m")

    remove = "rm -r" if place.is_dir() else "rm"
    assert str(place) in told.value.message and f"{remove} '{place}'" in in_commands(told.value.hint or "")
    assert (
        isinstance(refused, LandingRefused) and str(place) in refused.reason and str(place) in in_commands(refused.hint)
    )
    assert scene.repo.head("main") == scene.old
    place.rmdir() if place.is_dir() else place.unlink()
    assert isinstance(land(scene.repository, "main", scene.old, scene.new, "m"), BranchMoved)
    assert scene.repo("status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["intent.json", "done.json"])
@pytest.mark.parametrize("put", [os.mkfifo, link, bind, os.mkdir])
def test_what_is_no_file_in_place_of_our_notes_is_named_and_not_waited_for(
    scene: Scene, claim: Path, name: str, put: Callable[[Path], None]
) -> None:
    put(claim / name)

    refused_by_name(scene, claim / name)


@pytest.mark.parametrize("name", ["stage.path", "index.lock", "HEAD.lock"])
def test_pipes_among_our_other_notes_keep_nobody(scene: Scene, claim: Path, name: str) -> None:
    os.mkfifo(claim / name)
    lock = scene.repository.common_dir / "index.lock"
    lock.touch()

    settle_all(scene.repository)

    assert lock.exists()
    lock.unlink()
    assert isinstance(land(scene.repository, "main", scene.old, scene.new, "m"), BranchMoved)


GOOD = {
    "top": "/x", "git_dir": "/x/.git", "branch": "main", "stage": "/x/s", "old": "1" * 40, "new": "2" * 40,
    "index": [], "items": [["a", None, [33188, "3" * 40], [], [33188, 1, 2, 3, ""]]], "emptied": [], "made": ["d"],
}  # fmt: skip

DAMAGED: list[object] = [
    {}, [], None, 5, {"top": "/x"}, {**GOOD, "top": 5}, {**GOOD, "git_dir": "/x\0"}, {**GOOD, "new": 7},
    {**GOOD, "stage": "\ud800"}, {**GOOD, "index": 5}, {**GOOD, "index": [1, 2]}, {**GOOD, "items": "abc"},
    {**GOOD, "items": [["a"]]}, {**GOOD, "items": [["a", [1], None, [], []]]},
    {**GOOD, "items": [["a\0", None, None, [], []]]}, {**GOOD, "items": [["a", None, None, [1], []]]},
    {**GOOD, "emptied": [["a", "x"]]}, {**GOOD, "made": [5]},
]  # fmt: skip


@pytest.mark.parametrize("row", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_intent_is_refused_by_name(claim: Path, row: object) -> None:
    (claim / "intent.json").write_text(json.dumps(GOOD))
    assert read_intent(claim) is not None
    (claim / "intent.json").write_text(json.dumps(row))

    with pytest.raises(DamagedNotes, match=r"intent\.json"):
        read_intent(claim)


@pytest.mark.parametrize("text", ["", "{", "{}", "[" * 100_000])
def test_damage_stops_landings_until_the_user_has_looked(scene: Scene, claim: Path, text: str) -> None:
    (claim / "intent.json").write_text(text)

    refused_by_name(scene, claim / "intent.json")
