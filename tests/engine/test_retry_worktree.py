"""A retry begins in the worktree that a user expects: a command in a clean one, an agent and a person's edits go on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.protocol import Result, Task, Watch
from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.errors import UsageError
from orchard.model.events.plans import JobRetried, WorkSaved
from orchard.model.plan import PlanId
from tests.engine.conftest import LONGEST, Orchard, job, statuses, until
from tests.engine.scripted import ScriptedAgents
from tests.engine.test_crash import kill_when

pytestmark = pytest.mark.anyio

PLAN = """
    name: Again
    jobs: [{{id: a, heal: false, work: "{work}"}}]
"""


async def retry(orchard: Orchard, **args: Any) -> dict[str, Any]:
    """Retry, let the plan end, and return where the one job begins."""
    app = orchard.app
    plan = app.find_plan(None)
    async with asyncio.timeout(LONGEST), app.session() as session:
        answer = await session.request("retry_plan", plan=plan, **args)
        async for _ in session.follow(plan):
            pass
    [begins] = answer["begins"]
    assert begins["job"] == "a"
    return {name: begins[name] for name in ("attempt", "worktree", "edited")}


def folder_of(orchard: Orchard) -> Path:
    return Path(job(orchard.status(), "a")["worktree"])


def landed(orchard: Orchard, name: str = "a.txt") -> str | None:
    assert orchard.status()["plan"]["status"] == "succeeded", orchard.status()["jobs"]
    return orchard.repo.files("work").get(name)


async def fail(orchard: Orchard, tmp_path: Path, then: str = "true") -> Path:
    """A plan whose command has failed after it wrote a line; returns the file that lets it pass."""
    go = tmp_path / "go"
    plan = PLAN.format(work=f"echo line >> a.txt; test -e {go} && {then}")
    assert statuses(await orchard.run(plan)) == {"a": "failed"}
    return go


async def test_a_failed_command_begins_in_a_clean_worktree_and_what_it_left_is_saved(
    orchard: Orchard, tmp_path: Path
) -> None:
    (await fail(orchard, tmp_path)).touch()

    assert await retry(orchard) == {"attempt": 1, "worktree": "clean", "edited": False}

    assert landed(orchard) == "line\n"
    [saved] = orchard.events(WorkSaved)
    assert orchard.repo.files(saved.ref)["a.txt"] == "line\n"
    assert orchard.events(JobRetried)[0].fresh


async def test_a_failed_command_goes_on_where_a_person_edited_its_worktree_and_so_does_the_next_retry(
    orchard: Orchard, tmp_path: Path
) -> None:
    go = await fail(orchard, tmp_path)
    (folder_of(orchard) / "mine.txt").write_text("mine\n")

    assert await retry(orchard) == {"attempt": 1, "worktree": "kept", "edited": True}
    go.touch()
    assert await retry(orchard) == {"attempt": 2, "worktree": "kept", "edited": True}

    assert (landed(orchard, "mine.txt"), landed(orchard)) == ("mine\n", "line\nline\nline\n")
    assert [one.edited for one in orchard.events(JobRetried)] == [True, False]


async def test_what_a_person_installs_below_an_ignored_folder_is_an_edit_too(orchard: Orchard, tmp_path: Path) -> None:
    orchard.repo.commit({".gitignore": "modules/\n"})
    go = await fail(orchard, tmp_path, then="cat modules/one > b.txt")
    (folder_of(orchard) / "modules").mkdir()
    (folder_of(orchard) / "modules" / "one").write_text("installed\n")
    go.touch()

    assert (await retry(orchard))["edited"]

    assert landed(orchard, "b.txt") == "installed\n"


async def test_edits_before_the_command_first_ran_are_kept_when_it_fails(orchard: Orchard, tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    plan = f"""
        name: Checked first
        jobs: [{{id: a, heal: false, prechecks: "test -e {ready}", work: "echo line >> a.txt; test -e {go}"}}]
    """
    await orchard.run(plan)
    (folder_of(orchard) / "mine.txt").write_text("mine\n")
    ready.touch()
    assert (await retry(orchard))["worktree"] == "kept"
    go.touch()

    assert await retry(orchard) == {"attempt": 2, "worktree": "kept", "edited": True}

    assert landed(orchard, "mine.txt") == "mine\n"


async def test_a_command_goes_on_with_what_it_left_where_that_is_asked_for(orchard: Orchard, tmp_path: Path) -> None:
    (await fail(orchard, tmp_path)).touch()

    assert await retry(orchard, keep=True) == {"attempt": 1, "worktree": "kept", "edited": False}

    assert landed(orchard) == "line\nline\n"


async def test_fresh_and_keep_at_once_are_refused(orchard: Orchard, tmp_path: Path) -> None:
    await fail(orchard, tmp_path)
    with pytest.raises(UsageError, match="opposite"):
        await orchard.ask("retry_plan", fresh=True, keep=True)


async def test_other_work_instead_of_a_failed_command_finds_nothing_of_it(orchard: Orchard) -> None:
    plan = 'name: Forbidden\njobs: [{id: a, changes: forbidden, heal: false, work: "touch a.txt"}]'
    assert job(await orchard.run(plan), "a")["reason"] == "unexpected-changes"

    begins = await retry(orchard, work={"type": "shell", "command": "test ! -e a.txt"})

    assert begins["worktree"] == "clean"
    assert landed(orchard) is None


async def test_a_canceled_command_begins_in_a_clean_worktree(orchard: Orchard, tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def cancel(session: Session, plan: PlanId) -> None:
        await until(lambda: any(orchard.repo.path.glob(".worktrees/*/a.txt")))
        await session.request("cancel_jobs", plan=plan, jobs=["a"])

    plan = PLAN.format(work=f"echo line >> a.txt; test -e {go} || sleep 300")
    assert statuses(await orchard.run(plan, during=cancel)) == {"a": "canceled"}
    go.touch()

    assert (await retry(orchard))["worktree"] == "clean"

    assert landed(orchard) == "line\n"


async def test_a_canceled_command_goes_on_where_a_person_edited_its_worktree(orchard: Orchard, tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def cancel(session: Session, plan: PlanId) -> None:
        await until(lambda: any(orchard.repo.path.glob(".worktrees/*/a.txt")))
        await session.request("cancel_jobs", plan=plan, jobs=["a"])

    await orchard.run(PLAN.format(work=f"echo line >> a.txt; test -e {go} || sleep 300"), during=cancel)
    (folder_of(orchard) / "a.txt").write_text("mine\n")
    go.touch()

    assert await retry(orchard) == {"attempt": 1, "worktree": "kept", "edited": True}

    assert landed(orchard) == "mine\nline\n"


@pytest.mark.parametrize("by_itself", [True, False])
async def test_an_interrupted_command_begins_in_a_clean_worktree(
    orchard: Orchard, tmp_path: Path, by_itself: bool
) -> None:
    go, again = tmp_path / "go", str(by_itself).lower()
    (tmp_path / "plan.yaml").write_text(f"""
name: Interrupted
jobs:
  - {{id: a, retry_on_interrupt: {again}, work: "echo line >> a.txt; test -e {go} || sleep 300"}}
""")
    await kill_when(orchard, tmp_path / "plan.yaml", lambda: any(orchard.repo.path.glob(".worktrees/*/a.txt")))
    go.touch()

    if by_itself:
        await orchard.ask("resume_plan")
    else:
        assert (await retry(orchard))["worktree"] == "clean"

    assert landed(orchard) == "line\n"


async def test_an_agent_goes_on_with_what_it_left(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)

    def turn(task: Task, watch: Watch) -> Result:
        with (task.folder / "a.txt").open("a") as file:
            file.write("line\n")
        return Result("failed" if (task.folder / "a.txt").read_text() == "line\n" else "done", message="not yet")

    table.add("writer", turn)
    await orchard.run('name: Agent\njobs: [{id: a, work: "@writer Write"}]')

    assert await retry(orchard) == {"attempt": 1, "worktree": "kept", "edited": False}

    assert landed(orchard) == "line\nline\n"


async def test_what_an_agent_healed_in_vain_is_gone_on_with(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)

    def turn(task: Task, watch: Watch) -> Result:
        (task.folder / "half.txt").write_text("half\n")
        return Result("done")

    table.add("medic", turn)
    work = "test -e half.txt && test -e whole.txt"
    await orchard.run(f'name: Healed\njobs: [{{id: a, heal: 1, work: "{work}"}}]')

    assert (await retry(orchard))["worktree"] == "kept"


CHECKED = """
    name: Checked
    jobs: [{{id: a, heal: false, work: "{work}", postchecks: ["{check}"]}}]
"""


async def test_a_check_does_not_pass_on_what_it_left_when_it_failed(orchard: Orchard) -> None:
    check = "grep -q good a.txt || (echo good > a.txt; echo report > report.txt; false)"
    assert statuses(await orchard.run(CHECKED.format(work="echo bad > a.txt", check=check))) == {"a": "failed"}

    await retry(orchard)

    assert job(orchard.status(), "a")["status"] == "failed", "what lands is the commit, and that is bad"
    assert [saved.why for saved in orchard.events(WorkSaved)] == ["left by checks"]


async def test_what_a_person_mends_after_a_failed_check_is_still_checked_and_lands(orchard: Orchard) -> None:
    assert statuses(await orchard.run(CHECKED.format(work="echo bad > a.txt", check="grep -q good a.txt"))) == {
        "a": "failed"
    }
    (folder_of(orchard) / "a.txt").write_text("good\n")

    await retry(orchard)

    assert landed(orchard) == "good\n"


async def test_checks_that_are_tried_again_see_the_work_that_ran_last_and_no_older_commit(orchard: Orchard) -> None:
    work, check = "echo old-bad > a.txt", "grep -q good a.txt"
    assert statuses(await orchard.run(CHECKED.format(work=work, check=check))) == {"a": "failed"}
    await retry(orchard, work={"type": "shell", "command": "echo half > a.txt; exit 1"})
    (folder_of(orchard) / "a.txt").write_text("good\n")

    await retry(orchard, from_phase="postchecks")

    assert landed(orchard) == "good\n"


@pytest.mark.parametrize("phase", ["postchecks", "merge-ri"])
async def test_a_retry_after_the_commit_of_work_that_made_none_begins_with_the_commit(
    orchard: Orchard, phase: str
) -> None:
    assert statuses(await orchard.run(PLAN.format(work="echo x > a.txt; exit 1"))) == {"a": "failed"}

    await retry(orchard, from_phase=phase)

    assert landed(orchard) == "x\n"
