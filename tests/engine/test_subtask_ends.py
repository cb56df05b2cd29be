"""How subtasks end when something else does: their parent's turn, a plan, the engine; and what they share with it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.protocol import Result
from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.engine.turns import turn as turns
from orchard.errors import UsageError
from orchard.model.events.plans import (
    ProgressReported,
    SubtaskCompleted,
    SubtaskEnded,
    SubtasksAnswered,
    SubtasksAwaited,
    SubtaskSpawned,
    SubtaskStarted,
)
from orchard.model.plan import PlanId
from orchard.operations.commands import subtasks
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.helpers import Asker, Line, by_task, run
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio

PLAN = "name: Help\njobs: [{id: a, work: '@one Parent'}]"


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01,))
    return table


@pytest.fixture
def line() -> Line:
    return Line()


def worktrees(orchard: Orchard) -> int:
    return orchard.repo("worktree", "list", "--porcelain").count("worktree ") - 1


def saved(orchard: Orchard, name: str) -> list[str]:
    """The saved work that holds a file."""
    return [ref for ref in orchard.repo.refs("refs/orchard/wip") if name in orchard.repo.files(ref)]


class Sleeper:
    """A child that writes half a file and then sleeps, until it is ended."""

    def __init__(self) -> None:
        self.asleep = asyncio.Event()
        self.ended = 0
        self.folders: list[Path] = []

    async def __call__(self, asker: Asker) -> str:
        asker.write(half="half")
        self.folders.append(asker.task.folder)
        self.asleep.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.ended += 1
        return "Never."


# -------------------------------------------------------------------------------------- the parent


async def test_the_end_of_the_parents_work_stops_what_still_runs_and_saves_it(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    child = Sleeper()

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child")
        await child.asleep.wait()
        asker.write(mine="mine")
        return "I did not wait."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"} and child.ended == 1
    (shown,) = job(status, "a")["subtasks"]
    assert (shown["status"], shown["worktree"]) == ("stopped", None)
    assert "half.txt" not in orchard.repo.files("work") and saved(orchard, "half.txt")
    assert worktrees(orchard) == 0
    notes = [phase["note"] for phase in orchard.attempts("a", None)[0]["phases"]]
    assert any("a subtask was not over" in note for note in notes)


@pytest.mark.parametrize("verb", ["cancel_plan", "force_fail_job", "cancel_jobs"])
async def test_whoever_stops_the_parent_stops_its_subtasks(
    orchard: Orchard, agents: ScriptedAgents, line: Line, verb: str
) -> None:
    child = Sleeper()

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child", blocking=True)
        return "Never."

    async def stop(session: Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await child.asleep.wait()
        more: dict[str, dict[str, Any]] = {"force_fail_job": {"job": "a"}, "cancel_jobs": {"jobs": ["a"]}}
        await session.request(verb, plan=plan, **more.get(verb, {}))

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await orchard.run(PLAN, during=stop)

    assert statuses(status) == {"a": "failed" if verb == "force_fail_job" else "canceled"}
    assert child.ended == 1 and not child.folders[0].exists()
    assert [one.status for one in orchard.events(SubtaskEnded)] == ["stopped"]
    assert saved(orchard, "half.txt")


async def test_a_parent_that_fails_takes_its_subtasks_and_theirs_with_it(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    sleeper = Sleeper()

    async def parent(asker: Asker) -> Result:
        await asker.spawn("Child")
        await sleeper.asleep.wait()
        return Result("failed", "It broke.")

    async def child(asker: Asker) -> str:
        asker.write(child="child")
        await asker.spawn("Grandchild", blocking=True)
        return "Never."

    agents.add("one", by_task(line, parent=parent, child=child, grandchild=sleeper))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "failed"} and sleeper.ended == 1
    assert [one.status for one in orchard.events(SubtaskEnded)] == ["stopped", "stopped"]
    assert saved(orchard, "child.txt") and saved(orchard, "half.txt")
    assert worktrees(orchard) == 1  # the job's own, kept for people to look into


async def test_subtasks_outlive_a_turn_that_is_tried_again(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    go, ids = asyncio.Event(), list[str]()

    async def parent(asker: Asker) -> Result | str:
        if not ids:
            ids.append((await asker.spawn("Child"))["id"])
            return Result("rate-limit", "429")
        go.set()
        answer = await asker.wait()
        await asker.pull(ids[0])
        return str(answer["ended"][0]["summary"])

    async def child(asker: Asker) -> str:
        await go.wait()
        asker.write(child="child")
        return "Still here."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert orchard.repo.files("work")["child.txt"] == "child"


async def test_a_retry_begins_without_the_subtasks_of_the_attempt_before(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    tries = []

    async def parent(asker: Asker) -> Result | str:
        tries.append(1)
        await asker.spawn("Child", blocking=True)
        if len(tries) == 1:
            return Result("failed", "It broke.")
        asker.write(mine="mine")
        return "Done."

    async def child(asker: Asker) -> str:
        return "Looked."

    agents.add("one", by_task(line, parent=parent, child=child))
    await run(orchard, line, PLAN)
    plan = orchard.app.find_plan(None)
    async with orchard.app.session() as session:
        await line.open(session, plan)
        await session.request("retry_plan", plan=plan, jobs=["a"], fresh_session=True)
        async for _ in session.follow(plan):
            pass

    assert statuses(orchard.status()) == {"a": "succeeded"}
    first, second = (attempt["subtasks"] for attempt in orchard.attempts("a", None))
    assert len(first) == len(second) == 1 and first[0]["id"] != second[0]["id"]
    assert [one["id"] for one in job(orchard.status(), "a")["subtasks"]] == [second[0]["id"]]


# -------------------------------------------------------------------------------------- the engine


async def test_an_engine_that_ends_leaves_an_interrupted_subtask_whose_work_the_next_one_saves(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    child = Sleeper()

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child", blocking=True)
        return "Never."

    agents.add("one", by_task(line, parent=parent, child=child))

    class Gone(Exception):
        pass

    async def leave(session: Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await child.asleep.wait()
        raise Gone

    with pytest.raises(Gone):
        await orchard.run(PLAN, during=leave)
    assert not orchard.events(SubtaskEnded) and child.folders[0].exists()
    assert job(orchard.status(), "a")["subtasks"][0]["status"] == "interrupted"

    async with orchard.app.session(work=False):
        pass

    status = orchard.status()
    assert statuses(status) == {"a": "failed"} and job(status, "a")["reason"] == "interrupted"
    (shown,) = job(status, "a")["subtasks"]
    assert (shown["status"], shown["worktree"]) == ("interrupted", None)
    assert saved(orchard, "half.txt") and not child.folders[0].exists()
    assert worktrees(orchard) == 1


async def test_a_folder_that_cannot_be_saved_is_kept_until_somebody_looks(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    folders: list[Path] = []

    async def parent(asker: Asker) -> str:
        result = await asker.spawn("Child", blocking=True)
        assert result["status"] == "failed" and "git repositories" in result["message"]
        asker.write(mine="mine")
        return "Done."

    async def child(asker: Asker) -> str:
        folders.append(asker.task.folder)
        (asker.task.folder / "nested" / ".git").mkdir(parents=True)
        (asker.task.folder / "nested" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (asker.task.folder / "nested" / "work.txt").write_text("not lost")
        return "Made a repository."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN)

    assert (folders[0] / "nested" / "work.txt").read_text() == "not lost"
    assert any(str(folders[0]) in warning for warning in status["plan"]["warnings"])
    async with orchard.app.session(work=False) as session:  # neither the next engine nor a delete removes it
        deleted = await session.request("delete_plan", plan=status["plan"]["id"])
    assert deleted["kept_folders"] == [str(folders[0])]
    assert (folders[0] / "nested" / "work.txt").exists()


# ------------------------------------------------------------------------------------------- slots


async def test_an_agent_that_waits_gives_its_slot_to_its_subtask_and_to_other_jobs(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    running: list[str] = []
    most: list[int] = []

    def began(name: str) -> None:
        running.append(name)
        most.append(len(running))

    async def parent(asker: Asker) -> str:
        began("parent")
        spawned = await asker.spawn("Child")
        assert spawned["status"] == "waiting"
        running.remove("parent")
        result = await asker.wait()
        began("parent")
        asker.write(mine="mine")
        running.remove("parent")
        return str(result["ended"][0]["status"])

    async def child(asker: Asker) -> str:
        began("child")
        await asyncio.sleep(0.05)
        running.remove("child")
        return "Done."

    async def other(asker: Asker) -> str:
        began("other")
        asker.write(other="x")
        running.remove("other")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child, other=other))
    plan = "name: One slot\nmax_parallel: 1\njobs: [{id: a, work: '@one Parent'}, {id: b, work: '@one Other'}]"
    status = await run(orchard, line, plan)

    assert statuses(status) == {"a": "succeeded", "b": "succeeded"}
    assert max(most) == 1
    assert len(orchard.events(SubtasksAwaited)) == len(orchard.events(SubtasksAnswered)) == 1


async def test_a_subtask_waits_for_a_slot_and_is_told_so_if_none_comes(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    async def parent(asker: Asker) -> str:
        assert (await asker.spawn("Child"))["status"] == "waiting"
        asker.write(mine="mine")
        return "I did not wait."

    async def child(asker: Asker) -> str:
        raise AssertionError("it has no slot")

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, "name: One slot\nmax_parallel: 1\njobs: [{id: a, work: '@one Parent'}]")

    assert statuses(status) == {"a": "succeeded"}
    assert not orchard.events(SubtaskStarted) and job(status, "a")["subtasks"][0]["status"] == "stopped"


@pytest.mark.parametrize("limit", ["1", "2"])
async def test_leases_are_given_back_however_it_ends(
    orchard: Orchard, agents: ScriptedAgents, line: Line, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setenv("ORCHARD_CAPACITY", limit)

    async def parent(asker: Asker) -> str:
        first = await asker.spawn("Child")
        await asker.wait(first["id"], timeout_s=0.2)
        await asker.spawn("Child", blocking=True)
        (asker.task.folder / f"{asker.scope['job']}.txt").write_text("x")
        return "Done."

    async def child(asker: Asker) -> str:
        await asyncio.sleep(0.3)
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    jobs = ", ".join(f"{{id: j{number}, work: '@one Parent'}}" for number in range(4))
    status = await run(orchard, line, f"name: Leases\nmax_parallel: 0\njobs: [{jobs}]")

    assert status["plan"]["status"] == "succeeded", status["plan"]["error"]
    app = orchard.app
    app.run_of(app.find_plan(None))
    assert app.run_of(app.find_plan(None)).slots_used == 0
    assert len(orchard.events(SubtaskStarted)) == 8


# ----------------------------------------------------------------------------- setup, words, people


async def test_the_folder_of_a_subtask_is_set_up_like_the_jobs_own(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    orchard.repo.commit({".gitignore": "*.log\n"})
    seen: list[str] = []

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child", blocking=True)
        asker.write(mine="mine")
        return "Done."

    async def child(asker: Asker) -> str:
        seen.append((asker.task.folder / "ready.log").read_text())
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    await run(orchard, line, "name: Setup\nsetup: ['echo ready > ready.log']\njobs: [{id: a, work: '@one Parent'}]")

    assert seen == ["ready\n"]
    logs = orchard.repo.path / ".git" / "orchard" / "logs"
    assert list(logs.rglob("subtask-*.log"))


async def test_a_definition_of_the_repository_says_how_a_subtask_is_done(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    head = "---\nname: reviewer\ndescription: Reads: and says\nmodel: one-9\ntools: Read, Grep\n---\n"
    orchard.repo.commit({
        ".claude/agents/reviewer.md": head + "You are a strict reviewer.\n",
        ".github/agents/writer.agent.md": "---\ndescription: Writes\n---\nChild writer\n",
        ".claude/agents/one.md": "---\nname: one\n---\nshadows an agent of the user's\n",
        ".claude/agents/broken.md": "no head",
    })  # fmt: skip
    seen: dict[str, Any] = {}

    async def parent(asker: Asker) -> str:
        seen["agents"] = await asker.ask("list_helpers")
        await asker.spawn("Review a.txt", agent="reviewer", blocking=True)
        asker.write(mine="mine")
        return "Done."

    async def review(asker: Asker) -> str:
        seen["told"], seen["model"] = asker.task.instructions, asker.task.settings.model
        return "Fine."

    agents.add("one", by_task(line, parent=parent, review=review))
    status = await run(orchard, line, PLAN)

    assert [one["name"] for one in seen["agents"]["agents"]] == ["one"]
    rows = [(one["name"], one["description"], one["tools"], one["usable"]) for one in seen["agents"]["definitions"]]
    assert rows == [
        ("broken", "", None, False),
        ("one", "", None, False),
        ("reviewer", "Reads: and says", ["Read", "Grep"], True),
        ("writer", "Writes", None, True),
    ]
    assert seen["told"].startswith("Review a.txt\n\n---\n\n## Your role: `reviewer`")
    assert "```text\nYou are a strict reviewer.\n```" in seen["told"]
    assert "use only these: `Read`, `Grep`" in seen["told"] and seen["model"] == "one-9"
    assert job(status, "a")["subtasks"][0]["definition"] == "reviewer"


async def test_progress_is_shown_and_bounded(orchard: Orchard, agents: ScriptedAgents, line: Line) -> None:
    answers: list[bool] = []

    async def parent(asker: Asker) -> str:
        for number in range(203):
            told = await asker.ask("report_progress", message=f"Step {number}\nof many", percent=number / 4)
            answers.append(told["recorded"])
        asker.write(mine="mine")
        return "Done."

    agents.add("one", by_task(line, parent=parent))
    status = await run(orchard, line, PLAN)

    assert job(status, "a")["progress"] == {"message": "Step 199 of many", "percent": 49.75}
    assert answers == [True] * 200 + [False] * 3 and len(orchard.events(ProgressReported)) == 200


async def test_what_an_agent_asks_for_without_end_is_recorded_so_often_and_no_more(
    orchard: Orchard, agents: ScriptedAgents, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtasks, "MOST_ASKED", 5)
    go, refused = asyncio.Event(), list[str]()

    async def flood(asker: Asker, verb: str, **args: Any) -> None:
        for _ in range(10):
            try:
                await asker.ask(verb, **args)
            except UsageError as error:
                refused.append(f"{verb} {error.message}")

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child")
        await flood(asker, "await_subtasks", timeout_s=0)
        go.set()
        await asker.ask("await_subtasks")  # one that waits is not counted
        asker.write(mine="mine")
        return "Done."

    async def child(asker: Asker) -> str:
        await go.wait()
        await flood(asker, "complete_subtask", result="Done.")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    await run(orchard, line, PLAN)

    assert len(orchard.events(SubtaskCompleted)) == 5 and len(orchard.events(SubtasksAwaited)) <= 6
    assert [one.split()[0] for one in refused] == ["await_subtasks"] * 5 + ["complete_subtask"] * 5


async def test_a_secret_that_is_handed_on_is_not_recorded(
    orchard: Orchard, agents: ScriptedAgents, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-hunter2")

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child: the token is hunter2-hunter2", blocking=True)
        await asker.ask("report_progress", message="I have hunter2-hunter2")
        asker.write(mine="mine")
        return "Done."

    async def child(asker: Asker) -> str:
        await asker.ask("complete_subtask", result="It was hunter2-hunter2")
        return "Bye."

    agents.add("one", by_task(line, parent=parent, child=child))
    await run(orchard, line, PLAN)

    assert orchard.events(SubtaskSpawned)
    journal = b"".join(one.read_bytes() for one in (orchard.repo.path / ".git" / "orchard").glob("journal.db*"))
    assert b"hunter2" not in journal
