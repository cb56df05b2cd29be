"""A retry sets its worktree up again where plan or settings say another thing about that than before."""

from pathlib import Path

import pytest

from orchard.agents.protocol import Result, Task, Watch
from orchard.engine.server import start as opening
from orchard.model.events.plans import JobStarted, PhaseEnded
from orchard.model.phases import Phase
from tests.engine.conftest import Orchard, statuses
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio

COPY = 'worktree.copy = ["installed"]\n'
CHECKED = """
    name: Checked
    jobs: [{{id: a, heal: false, {more} work: "echo a >> a.txt", {checks}: "test -e installed/tool"}}]
"""


@pytest.fixture
def installed(orchard: Orchard) -> Path:
    """A folder of the checkout that git ignores."""
    orchard.repo.commit({".gitignore": "installed\n"})
    folder = orchard.repo.path / "installed"
    folder.mkdir()
    (folder / "tool").write_text("tool\n")
    return folder


def say(orchard: Orchard, settings: str) -> None:
    (orchard.repo.path / "orchard.toml").write_text(settings)
    orchard.trust()


def setups(orchard: Orchard) -> list[tuple[str, str]]:
    return [
        (one.outcome, one.note) for one in orchard.events(PhaseEnded) if one.phase is Phase.SETUP and one.job == "a"
    ]


@pytest.mark.parametrize("checks", ["prechecks", "postchecks"])
async def test_what_the_settings_copy_now_is_there_for_the_check_that_failed_without_it(
    orchard: Orchard, installed: Path, checks: str
) -> None:
    assert statuses(await orchard.run(CHECKED.format(checks=checks, more=""))) == {"a": "failed"}
    say(orchard, COPY)

    status = await orchard.ask("retry_plan")

    assert status["plan"]["status"] == "succeeded", status["jobs"]
    assert orchard.repo.files("work")["a.txt"] == "a\n"
    assert orchard.events(JobStarted)[1].first_phase == checks
    assert setups(orchard)[1][0] == "passed" and "has changed: the worktree is set up again" in setups(orchard)[1][1]


async def test_an_agent_goes_on_in_a_worktree_that_is_set_up_again(
    orchard: Orchard, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)

    def turn(task: Task, watch: Watch) -> Result:
        with (task.folder / "a.txt").open("a") as file:
            file.write("line\n")
        return Result("done" if (task.folder / "installed").exists() else "failed", message="no tool")

    table.add("writer", turn)
    await orchard.run('name: Agent\njobs: [{id: a, work: "@writer Write"}]')
    say(orchard, COPY)

    assert (await orchard.ask("retry_plan"))["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"] == "line\nline\n"


async def test_a_worktree_is_not_set_up_again_where_nothing_about_that_has_changed(
    orchard: Orchard, installed: Path, tmp_path: Path
) -> None:
    say(orchard, f'{COPY}setup = ["echo ran >> {tmp_path}/ran"]\n')
    go = tmp_path / "go"
    plan = CHECKED.format(checks="postchecks", more="").replace("test -e installed/tool", f"test -e {go}")
    await orchard.run(plan)
    await orchard.ask("retry_plan")
    go.touch()

    assert (await orchard.ask("retry_plan"))["plan"]["status"] == "succeeded"
    assert (tmp_path / "ran").read_text().count("ran") == 1


async def test_a_new_setup_that_fails_is_tried_again_before_the_check_that_failed(
    orchard: Orchard, installed: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    await orchard.run(CHECKED.format(checks="postchecks", more=""))
    say(orchard, f'setup = ["test -e {go} && cp -r {installed} ."]\n')
    assert statuses(await orchard.ask("retry_plan")) == {"a": "failed"}
    go.touch()

    assert (await orchard.ask("retry_plan"))["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"] == "a\n"
    assert [one.first_phase for one in orchard.events(JobStarted) if one.job == "a"][1:] == ["postchecks"] * 2


async def test_an_edit_of_a_person_counts_and_what_setup_brings_is_none(orchard: Orchard, installed: Path) -> None:
    await orchard.run(CHECKED.format(checks="postchecks", more=""))
    [folder] = [one["worktree"] for one in orchard.status()["jobs"] if one["id"] == "a"]
    Path(folder, "a.txt").write_text("mine\n")
    say(orchard, 'setup = ["mkdir installed; touch installed/tool; touch new.txt"]\n')

    assert (await orchard.ask("retry_plan"))["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"] == "mine\n"
