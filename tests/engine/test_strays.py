"""Folders below the worktree root that nobody accounts for: told, saved, then removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.app import open_app
from orchard.model.events.plans import Recorded
from orchard.model.plan import PlanId
from orchard.store.reader import JournalReader
from orchard.surfaces.next_steps import in_commands
from tests.engine.conftest import Orchard

pytestmark = pytest.mark.anyio

PLAN = "name: Small\njobs: [{id: a, work: echo a >> a.txt}]"


async def notes(orchard: Orchard) -> list[str]:
    app = open_app(orchard.repo.path, in_commands)
    async with app.session() as session:
        answer = await session.request("create_plan", plan=app.parse_plan(None, PLAN.encode()))
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


FAILS = (
    "name: Bad\nmax_parallel: 1\njobs: [{id: a, work: echo a > a.txt}, {id: b, needs: a, work: echo b > b.txt; exit 1}]"
)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plans whose events were read since."""
    asked: list[str] = []
    real = JournalReader.events

    def events(self: JournalReader, plan: PlanId | None = None, *args: int) -> Iterator[Recorded]:
        asked.append(plan or "")
        return real(self, plan, *args)

    monkeypatch.setattr(JournalReader, "events", events)
    return asked


async def test_of_the_plans_that_are_over_only_those_are_read_whose_folders_are_there(
    orchard: Orchard, replayed: list[str]
) -> None:
    failed, *others = [(await orchard.run(plan))["plan"]["id"] for plan in (FAILS, PLAN, PLAN, PLAN)]
    (kept,) = folders(orchard)
    replayed.clear()

    await notes(orchard)

    assert failed in replayed and not {*others} & {*replayed}
    assert (kept / "b.txt").read_text() == "b\n"
    label = (orchard.repo.path / ".git" / "worktrees" / kept.name / "locked").read_text()
    assert label == f"orchard: {failed} b", "it was made for 'a'"


@pytest.mark.parametrize("label", ["", "orchard: ", "orchard: nobody at-all"])
async def test_a_folder_whose_label_was_changed_is_still_its_plans(
    orchard: Orchard, replayed: list[str], label: str
) -> None:
    failed = (await orchard.run(FAILS))["plan"]["id"]
    (kept,) = folders(orchard)
    (orchard.repo.path / ".git" / "worktrees" / kept.name / "locked").write_text(label)
    await orchard.run(PLAN)

    await notes(orchard)

    assert (kept / "b.txt").read_text() == "b\n"
    assert not orchard.repo.refs("refs/orchard/wip/strays")
    assert label == "" or failed in replayed


def folders(orchard: Orchard) -> list[Path]:
    return [*(orchard.repo.path / ".worktrees").glob("w*")]
