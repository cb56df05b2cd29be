"""The disk of the checkout, of git's files and of the journal gets full just when a plan lands, and is empty later.

The engine is held up at the landing, all but so many pages are taken, and it goes on. Whatever it says then is what git
says; the checkout is whole; and when there is room again the user lands as if nothing had been.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.acceptance.program import Desk, until
from tests.git.test_landing import picture
from tests.git.test_landing_faults import PAGE, small_disk

FILES = 40
WORK = f"for i in $(seq {FILES}); do echo new $i > d/f$i; done; rm gone.txt; mkdir n; yes | head -c 400000 > n/big"
PLAN = f"name: Many\ntarget: work\nland: ask\nworktree_root: WORKTREES\njobs:\n  - id: a\n    work: {WORK!r}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with small_disk(tmp_path / "disk") as disk:
        repo = Repo.make(disk / "repo", files={f"d/f{number}": f"old {number}\n" for number in range(1, FILES + 1)})
        repo("checkout", "-q", "-b", "work")
        repo.commit({"gone.txt": "gone\n", "mine.txt": "mine\n"})
        made = Desk(tmp_path, repo)
        yield made
        made.close()


def leave_room(desk: Desk, room: int) -> Path:
    """Take all but so much of the disk."""
    filler = desk.repo.path.parent / "filler"
    found = os.statvfs(filler.parent)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, found.f_bavail * found.f_frsize - room))
    return filler


def check(desk: Desk, before: dict[str, str]) -> bool:
    """The checkout is whole; whether it is that of the landing."""
    repo = desk.repo
    assert repo("--no-optional-locks", "status", "--porcelain") == " M mine.txt\n"
    landed = "Orchard-Landing" in repo("log", "-1", "--format=%B")
    assert landed != (picture(repo.path) == before)
    return landed


@pytest.mark.parametrize(
    "pages", [60, *(pytest.param(pages, marks=pytest.mark.slow) for pages in (0, 3, 20, 100, 140, 150, 160, 170, 200))]
)
def test_a_plan_whose_landing_finds_no_room_lands_when_there_is_some(desk: Desk, pages: int, tmp_path: Path) -> None:
    asked = desk("run", desk.plan(PLAN.replace("WORKTREES", str(tmp_path / "worktrees"))))
    assert asked.code == 4, asked.talk
    desk.repo.write({"mine.txt": "mine, edited\n"})
    before = picture(desk.repo.path)
    here, go = tmp_path / "here", tmp_path / "go"
    held = f"checkout.before:1:note={here},checkout.before:1:wait={go}"
    running = desk.start("land", "Many", "--yes", ORCHARD_FAILPOINT=held)
    until(lambda: here.exists() or running.process.poll() is not None, "the landing")
    filler = leave_room(desk, pages * PAGE)
    go.touch()
    said = running.end()

    landed = check(desk, before)
    assert (said.code == 0) <= landed, said.talk
    assert landed or re.search("space|room|full", said.talk), said.talk
    filler.unlink()
    assert check(desk, before) == landed
    for words in (("resume",), ("land", "Many", "--yes")):
        if not desk.status()["plan"]["landed"]:
            desk(*words)
    assert check(desk, before)
    assert desk.status()["plan"]["landed"]
    assert desk.repo("log", "--format=%B").count("Orchard-Landing") == 1
