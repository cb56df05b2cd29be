"""Folders below the worktree root that nobody accounts for: told, saved, then removed."""

from pathlib import Path

import pytest

from orchard.app import open_app
from tests.engine.conftest import Orchard

pytestmark = pytest.mark.anyio

PLAN = "name: Small\njobs: [{id: a, work: echo a > a.txt}]"


async def notes(orchard: Orchard) -> list[str]:
    app = open_app(orchard.repo.path)
    async with app.session() as session:
        answer = await session.request("submit", plan=app.parse_plan(None, PLAN.encode()))
        found: list[str] = answer["notes"]
        return found


async def test_an_unknown_folder_is_saved_and_then_removed(orchard: Orchard) -> None:
    stray = orchard.repo.path / ".worktrees" / "stray"
    stray.mkdir(parents=True)
    (stray / "thought.txt").write_text("do not lose me\n")

    told = await notes(orchard)

    assert not stray.exists()
    assert "stray" in told[0]
    ref = next(ref for ref in orchard.repo.refs("refs/orchard/wip") if "strays" in ref)
    assert orchard.repo.files(ref)["thought.txt"] == "do not lose me\n"


async def test_an_unknown_folder_with_ignored_files_is_left_alone(orchard: Orchard) -> None:
    stray = orchard.repo.path / ".worktrees" / "stray"
    stray.mkdir(parents=True)
    (stray / ".gitignore").write_text(".env\n")
    (stray / ".env").write_text("KEY=1\n")

    told = await notes(orchard)

    assert (stray / ".env").read_text() == "KEY=1\n"
    assert "left alone" in told[0]


async def test_a_worktree_that_the_user_made_there_is_none_of_our_business(orchard: Orchard) -> None:
    mine = orchard.repo.path / ".worktrees" / "mine"
    orchard.repo("worktree", "add", "-q", str(mine), "-b", "mine")
    (mine / "draft.txt").write_text("typing\n")

    await orchard.run(PLAN)

    assert (mine / "draft.txt").read_text() == "typing\n"
    assert orchard.status()["plan"]["status"] == "succeeded"


async def test_a_link_among_the_folders_is_not_followed(orchard: Orchard, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file.txt").write_text("precious\n")
    (orchard.repo.path / ".worktrees").mkdir()
    (orchard.repo.path / ".worktrees" / "link").symlink_to(precious)

    await notes(orchard)

    assert (precious / "file.txt").read_text() == "precious\n"
