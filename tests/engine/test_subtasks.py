"""Work that an agent hands to another while it runs: folders, results, limits, and the end of all of it."""

import asyncio
from typing import Any

import pytest

from orchard.agents.protocol import Result
from orchard.engine.server import start as opening
from orchard.errors import NotFound, OrchardError, UsageError
from orchard.model.events.plans import (
    ProgressReported,
    SubtaskPulled,
    SubtaskSpawned,
)
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.helpers import Asker, Line, by_task, run
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio

PLAN = "name: Help\njobs: [{id: a, work: '@one Parent'}]"


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


@pytest.fixture
def line() -> Line:
    return Line()


async def nothing(asker: Asker) -> str:
    asker.write(done="done")
    return "Done."


def subtask(status: dict[str, Any], name: str = "a") -> dict[str, Any]:
    (found,) = job(status, name)["subtasks"]
    return dict(found)


def worktrees(orchard: Orchard) -> int:
    return orchard.repo("worktree", "list", "--porcelain").count("worktree ") - 1


# ------------------------------------------------------------------------------------ the usual way


async def test_a_subtask_sees_the_parents_files_and_its_changes_are_pulled(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    seen: dict[str, Any] = {}

    async def parent(asker: Asker) -> str:
        asker.write(draft="from the parent", shared="changed\n")
        seen["spawned"] = await asker.spawn("Child: write a file", name="Helper", blocking=True)
        asker.write(more="after")
        seen["pulled"] = await asker.pull(seen["spawned"]["id"])
        seen["names"] = asker.names()
        return "All done."

    async def child(asker: Asker) -> str:
        seen["child"] = (asker.read("draft"), asker.read("shared"), str(asker.task.folder), dict(asker.task.env))
        asker.write(child="from the child", draft="improved")
        asker.use(70)
        return "Wrote child.txt."

    agents.add("one", by_task(line, parent=parent, child=child))

    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert seen["child"][:2] == ("from the parent", "changed\n")
    assert seen["spawned"]["status"] == "completed" and seen["spawned"]["summary"] == "Wrote child.txt."
    assert seen["spawned"]["files"] == ["child.txt", "draft.txt"]
    assert seen["spawned"]["changes"] == {"added": 1, "modified": 1, "deleted": 0}
    assert seen["pulled"] == {
        "id": seen["spawned"]["id"], "status": "merged", "files": ["child.txt", "draft.txt"], "conflicts": [],
    }  # fmt: skip
    landed = orchard.repo.files("work")
    assert (landed["child.txt"], landed["draft.txt"], landed["more.txt"]) == ("from the child", "improved", "after")
    assert worktrees(orchard) == 0
    shown = subtask(status)
    assert (shown["name"], shown["status"], shown["pulled"], shown["worktree"]) == ("Helper", "completed", True, None)
    assert "ORCHARD_EVIDENCE" not in seen["child"][3] and seen["child"][3]["ORCHARD_WORKTREE"] == seen["child"][2]


async def test_the_result_of_a_subtask_is_held_by_a_ref_that_purge_knows(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    async def parent(asker: Asker) -> str:
        await asker.spawn("Child", blocking=True)
        return await nothing(asker)

    async def child(asker: Asker) -> str:
        asker.write(child="kept")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN)

    shown, plan = subtask(status), status["plan"]["id"]
    ref = f"refs/orchard/keep/{plan}/a/1-{shown['id']}"
    assert orchard.repo.refs(ref) == {ref: shown["commit"]}
    assert orchard.repo.files(ref)["child.txt"] == "kept"
    orchard.repo("reflog", "expire", "--expire=now", "--all")
    orchard.repo("gc", "--quiet", "--prune=now")
    assert orchard.repo.exists(shown["commit"])

    async with orchard.app.session() as session:
        await session.request("purge_plan", plan=plan)
    assert not orchard.repo.refs()


async def test_what_a_subtask_used_counts_for_the_job_and_the_plan(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    async def parent(asker: Asker) -> str:
        asker.use(30)
        await asker.spawn("Child", blocking=True)
        asker.use(5)
        return await nothing(asker)

    async def child(asker: Asker) -> str:
        asker.use(100)
        return "Looked."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN)

    assert job(status, "a")["usage"]["tokens"] == status["plan"]["usage"]["tokens"] == 135
    assert subtask(status)["usage"]["tokens"] == 100
    own, helper = orchard.attempts("a", None)[0]["turns"]
    assert (own["usage"]["tokens"], own["subtask"], helper["usage"]["tokens"]) == (35, None, 100)
    assert helper["trigger"] == "subtask"
    assert orchard.usage(None)["total"]["tokens"] == 135


async def test_several_subtasks_run_beside_each_other_and_are_awaited(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    both, answers = asyncio.Barrier(2), []

    async def parent(asker: Asker) -> str:
        ids = [(await asker.spawn(f"Child {number}"))["id"] for number in range(2)]
        answer = await asker.wait()
        answers.append(answer)
        again = await asker.wait(cursor=answer["cursor"])
        answers.append(again)
        for id in ids:
            assert (await asker.pull(id))["status"] == "merged"
        return "Done."

    async def child(asker: Asker) -> str:
        await both.wait()
        number = asker.task.instructions.split()[1]
        (asker.task.folder / f"child{number}.txt").write_text(number)
        return f"Child {number} did it."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}
    assert sorted(one["summary"] for one in answers[0]["ended"]) == ["Child 0 did it.", "Child 1 did it."]
    assert answers[0]["running"] == [] and answers[1]["ended"] == []
    assert {"child0.txt", "child1.txt"} <= orchard.repo.files("work").keys()


async def test_waiting_has_an_end_and_says_what_still_runs(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    go, answers = asyncio.Event(), []

    async def parent(asker: Asker) -> str:
        first = (await asker.spawn("Child one"))["id"]
        second = (await asker.spawn("Quick"))["id"]
        answers.append(await asker.wait(first, second, until="any"))
        answers.append(await asker.wait(first, timeout_s=0.05))
        go.set()
        answers.append(await asker.wait(first, second, cursor=answers[0]["cursor"]))
        assert [one["id"] for one in answers[0]["ended"]] == [second] and answers[0]["running"] == [first]
        assert answers[1]["ended"] == [] and answers[1]["running"] == [first]
        assert [one["id"] for one in answers[2]["ended"]] == [first]
        return await nothing(asker)

    async def child(asker: Asker) -> str:
        await go.wait()
        return "At last."

    async def quick(asker: Asker) -> str:
        return "Quick."

    agents.add("one", by_task(line, parent=parent, child=child, quick=quick))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]


async def test_a_subtask_tells_its_result_itself(orchard: Orchard, agents: ScriptedAgents, line: Line) -> None:
    results = []

    async def parent(asker: Asker) -> str:
        results.append(await asker.spawn("Child", blocking=True))
        results.append(await asker.spawn("Unable", blocking=True))
        with pytest.raises(UsageError, match="agent of a subtask"):
            await asker.ask("complete_subtask", result="I am no subtask")
        return await nothing(asker)

    async def child(asker: Asker) -> str:
        await asker.ask("complete_subtask", result="The answer is 42.")
        return "Bye."

    async def unable(asker: Asker) -> str:
        await asker.ask("complete_subtask", result="No way to do it.", succeeded=False)
        return "Bye."

    agents.add("one", by_task(line, parent=parent, child=child, unable=unable))
    await run(orchard, line, PLAN)

    assert [(one["status"], one["summary"]) for one in results] == [
        ("completed", "The answer is 42."),
        ("failed", "No way to do it."),
    ]


async def test_a_subtask_that_fails_is_a_result_and_its_work_can_still_be_pulled(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    async def parent(asker: Asker) -> str:
        result = await asker.spawn("Child", blocking=True)
        assert (result["status"], result["message"]) == ("failed", "It broke.")
        await asker.pull(result["id"])
        return asker.read("half")

    async def child(asker: Asker) -> Result:
        asker.write(half="half")
        return Result("failed", "It broke.")

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert orchard.repo.files("work")["half.txt"] == "half"


# ---------------------------------------------------------------------------------------- pulling


async def test_what_parent_and_child_changed_in_one_file_comes_together(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    async def parent(asker: Asker) -> str:
        lines = asker.read("shared").split("\n")
        asker.write(shared="\n".join(["one", *lines[1:]]))
        spawned = await asker.spawn("Child", blocking=True)
        # The parent goes on in lines that its picture held already: no conflict, because that is where the child began.
        asker.write(shared="\n".join(["ONE", *lines[1:]]))
        assert (await asker.pull(spawned["id"]))["files"] == ["shared.txt"]
        return asker.read("shared")

    async def child(asker: Asker) -> str:
        asker.write(shared=asker.read("shared").replace("9", "nine"))
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    await run(orchard, line, PLAN)

    assert orchard.repo.files("work")["shared.txt"] == "ONE\n2\n3\n4\n5\n6\n7\n8\nnine\n"


async def test_a_conflict_is_told_and_nothing_is_written(orchard: Orchard, agents: ScriptedAgents, line: Line) -> None:
    seen: dict[str, Any] = {}

    async def parent(asker: Asker) -> str:
        spawned = await asker.spawn("Child", blocking=True)
        asker.write(shared="mine\n")
        seen["pulled"] = await asker.pull(spawned["id"])
        seen["names"], seen["shared"] = asker.names(), asker.read("shared")
        return "Kept mine."

    async def child(asker: Asker) -> str:
        asker.write(shared="theirs\n", fresh="new")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN)

    assert seen["pulled"]["status"] == "conflict" and seen["pulled"]["files"] == []
    assert seen["pulled"]["conflicts"] == [{"path": "shared.txt", "kind": "content"}]
    assert seen["shared"] == "mine\n" and "fresh.txt" not in seen["names"]
    assert not orchard.events(SubtaskPulled) and not subtask(status)["pulled"]


async def test_a_file_that_git_does_not_know_is_not_overwritten(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    orchard.repo.commit({".gitignore": "*.secret\nbuild/\n"})
    seen: list[Any] = []

    async def parent(asker: Asker) -> str:
        spawned = await asker.spawn("Child", blocking=True)
        (asker.task.folder / "own.secret").write_text("precious")
        seen.append(await asker.pull(spawned["id"]))
        seen.append((asker.task.folder / "own.secret").read_text())
        return await nothing(asker)

    async def child(asker: Asker) -> str:
        (asker.task.folder / ".gitignore").write_text("")
        (asker.task.folder / "own.secret").write_text("stolen place")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    await run(orchard, line, PLAN)

    assert seen[0]["conflicts"] == [{"path": "own.secret", "kind": "in the way"}]
    assert seen[1] == "precious"


async def test_the_parents_index_and_edits_are_left_alone(orchard: Orchard, agents: ScriptedAgents, line: Line) -> None:
    seen: list[Any] = []

    async def parent(asker: Asker) -> str:
        asker.write(edited="mine")
        before = (asker.task.folder / "edited.txt").stat().st_mtime_ns
        spawned = await asker.spawn("Child", blocking=True)
        await asker.pull(spawned["id"])
        seen.append((asker.task.folder / "edited.txt").stat().st_mtime_ns == before)
        return "Done."

    async def child(asker: Asker) -> str:
        (asker.task.folder / "run.sh").write_text("#!/bin/sh\n")
        (asker.task.folder / "run.sh").chmod(0o755)
        (asker.task.folder / "README.md").unlink()
        (asker.task.folder / "deep" / "er").mkdir(parents=True)
        (asker.task.folder / "deep" / "er" / "x.txt").write_text("x")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN)

    assert seen == [True] and statuses(status) == {"a": "succeeded"}
    landed = orchard.repo.files("work")
    assert "README.md" not in landed and landed["deep/er/x.txt"] == "x" and landed["edited.txt"] == "mine"
    assert orchard.repo("ls-tree", "work", "run.sh").startswith("100755")


# ------------------------------------------------------------------------------------------ limits


async def test_a_subtask_may_have_subtasks_and_those_may_not(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    refused: list[str] = []

    async def parent(asker: Asker) -> str:
        child = await asker.spawn("Child", blocking=True)
        await asker.pull(child["id"])
        return asker.read("deep")

    async def child(asker: Asker) -> str:
        grandchild = await asker.spawn("Grandchild", blocking=True)
        await asker.pull(grandchild["id"])
        return "Done."

    async def grandchild(asker: Asker) -> str:
        with pytest.raises(UsageError, match="depth 2") as error:
            await asker.spawn("Child")
        refused.append(error.value.message)
        asker.write(deep="from below")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child, grandchild=grandchild))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert refused and orchard.repo.files("work")["deep.txt"] == "from below"
    first, second = job(status, "a")["subtasks"]
    assert (first["parent"], second["parent"]) == (None, first["id"])


@pytest.mark.parametrize(("key", "word"), [("subtasks_per_job", "This job"), ("subtasks_per_plan", "This plan")])
async def test_the_number_of_subtasks_is_limited(
    orchard: Orchard, agents: ScriptedAgents, line: Line, monkeypatch: pytest.MonkeyPatch, key: str, word: str
) -> None:
    monkeypatch.setenv(f"ORCHARD_LIMITS_{key.upper()}", "2")
    refused: list[str] = []

    async def parent(asker: Asker) -> str:
        answers = await asyncio.gather(*(asker.spawn("Child") for _ in range(5)), return_exceptions=True)
        refused.extend(one.message for one in answers if isinstance(one, OrchardError))
        await asker.wait()
        return await nothing(asker)

    async def child(asker: Asker) -> str:
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    await run(orchard, line, PLAN)

    assert len(refused) == 3 and all(one.startswith(word) for one in refused)
    assert len(orchard.events(SubtaskSpawned)) == 2


async def test_a_budget_that_is_used_up_lets_no_subtask_begin(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    async def parent(asker: Asker) -> str:
        asker.use(60)
        await asker.spawn("Child", blocking=True)
        with pytest.raises(UsageError, match="100 tokens is used up"):
            await asker.spawn("Child")
        return await nothing(asker)

    async def child(asker: Asker) -> str:
        asker.use(60)
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, PLAN + "\nbudget: {tokens: 100}")

    assert len(orchard.events(SubtaskSpawned)) == 1
    assert status["plan"]["usage"]["tokens"] == 120


async def test_one_agent_cannot_touch_the_subtasks_of_another(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    ids: dict[str, str] = {}
    both = asyncio.Barrier(2)

    async def parent(asker: Asker) -> str:
        name = asker.scope["job"]
        ids[name] = (await asker.spawn("Child", blocking=True))["id"]
        await both.wait()
        other = next(id for whose, id in ids.items() if whose != name)
        for verb in ("pull_subtask_changes", "await_subtasks"):
            args = {"id": other} if verb.startswith("pull") else {"ids": [other]}
            with pytest.raises(NotFound, match="no subtask"):
                await asker.ask(verb, **args)
        (asker.task.folder / f"{name}.txt").write_text("x")
        return "Done."

    async def child(asker: Asker) -> str:
        asker.write(secret="s")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(orchard, line, "name: Two\njobs: [{id: a, work: '@one Parent'}, {id: b, work: '@one Parent'}]")

    assert statuses(status) == {"a": "succeeded", "b": "succeeded"}, status["jobs"]


@pytest.mark.parametrize(
    ("verb", "args", "message"),
    [
        ("spawn_subtask", {"instructions": " "}, "needs 'instructions'"),
        ("spawn_subtask", {"instructions": "x" * 300_000}, "longer than 256 KiB"),
        (
            "spawn_subtask",
            {"instructions": "Child", "agent": "onee"},
            "no definition of that name; did you mean 'one'",
        ),
        ("await_subtasks", {}, "no subtask to wait for"),
        ("await_subtasks", {"ids": ["subtask-aaaaa"]}, "You have no subtask"),
        ("await_subtasks", {"until": "soon"}, "'all' or 'any'"),
        ("pull_subtask_changes", {"id": "subtask-aaaaa"}, "You have no subtask"),
        ("report_progress", {"message": ""}, "'message' is empty"),
        ("report_progress", {"message": "x", "percent": 101}, "from 0 to 100"),
        ("spawn_subtask", {"instructions": "Child", "attempt": 2}, "while its turn lasts"),
        ("spawn_subtask", {"instructions": "Child", "job": "b"}, "while its turn lasts"),
        ("spawn_subtask", {"instructions": "Child", "plan": "other"}, "while its turn lasts"),
        ("spawn_subtask", {"instructions": "Child", "subtask": "subtask-aaaaa"}, "while its turn lasts"),
    ],
)
async def test_what_cannot_be_is_refused_and_leaves_nothing(
    orchard: Orchard, agents: ScriptedAgents, line: Line, verb: str, args: dict[str, Any], message: str
) -> None:
    said: list[str] = []

    async def parent(asker: Asker) -> str:
        with pytest.raises(OrchardError) as error:
            await asker.ask(verb, **args)
        said.append(error.value.message)
        return await nothing(asker)

    agents.add("one", by_task(line, parent=parent))
    await run(orchard, line, PLAN)

    assert message in said[0]
    assert not orchard.events(SubtaskSpawned) and not orchard.events(ProgressReported)


async def test_nobody_can_ask_when_the_turn_is_over(orchard: Orchard, agents: ScriptedAgents, line: Line) -> None:
    askers: list[Asker] = []

    async def parent(asker: Asker) -> str:
        askers.append(asker)
        return await nothing(asker)

    agents.add("one", by_task(line, parent=parent))

    async def late(session: Any, plan: Any) -> None:
        await line.open(session, plan)
        async for _ in session.follow(plan):
            pass
        with pytest.raises(UsageError, match="while its turn lasts"):
            await askers[0].spawn("Child")

    await orchard.run(PLAN, during=late)

    assert not orchard.events(SubtaskSpawned)
