"""Random trees of subtasks that are spawned, awaited, sent to, paused, interrupted, completed and killed.

Whatever is asked of them, in whatever order and with however few slots: every request is answered or refused,
everything comes to an end, what was written is in a commit that a ref of ours holds, and no process, worktree, slot or
lease is left.
"""

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from orchard.agents import protocol
from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.errors import OrchardError
from orchard.model.events.plans import SubtaskEnded, SubtaskSpawned, SubtaskStarted
from orchard.model.plan import PlanId
from orchard.process.families.orphans import children
from tests.engine.conftest import Orchard, job
from tests.engine.helpers import Asker, Line, turn
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio

ACTIONS = ("send", "interrupt", "pause", "resume", "complete")
VERBS = {
    "send": "send_message", "interrupt": "interrupt_worker", "pause": "pause_worker", "resume": "resume_worker",
    "complete": "complete_task",
}  # fmt: skip
SEEDS = range(int(os.environ.get("ORCHARD_TEST_TREES", "6")))
"""More of them were run by hand; these few keep the everyday suite short."""


class Gone(Exception):
    """The engine ends in the middle of it all."""


class Tree:
    """What the agents of one run do, by chance, and what they wrote."""

    def __init__(self, seed: int, line: Line) -> None:
        self.chance, self.line = random.Random(seed), line
        self.written: dict[str, set[str]] = {}
        self.outcomes: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()

    async def __call__(self, asker: Asker) -> str | protocol.Result:
        me = asker.scope["subtask"] or "parent"
        asker.watch.tell(protocol.Session(me))
        asker.watch.tell(protocol.Heard())
        self.turns[me] += 1
        name = f"{me}-{self.turns[me]}.txt"
        (asker.task.folder / name).write_text(me)
        self.written.setdefault(me, set()).add(name)
        ids: list[str] = []
        for _ in range(self.chance.randint(1, 5) if me == "parent" else self.chance.randint(0, 2)):
            await self.act(asker, ids)
        await asyncio.sleep(self.chance.choice((0, 0.01, 0.05)))
        if me != "parent" and self.chance.random() < 0.15:
            return protocol.Result("failed", "By chance.")
        return "Done."

    async def act(self, asker: Asker, ids: list[str]) -> None:
        verb = self.chance.choice(("spawn", "spawn", "spawn", "wait", "steer", "steer", "pull"))
        id = self.chance.choice(ids) if ids else "subtask-aaaaa"
        try:
            if verb == "spawn":
                found = await asker.spawn(
                    "Help", blocking=self.chance.random() < 0.3, interactive=self.chance.random() < 0.4, timeout_s=0.3
                )
                ids.append(found["id"])
            elif verb == "wait":
                await asker.wait(*(ids[:2]), timeout_s=self.chance.choice((0.0, 0.3)))
            elif verb == "pull":
                await asker.pull(id)
            else:
                action = self.chance.choice(ACTIONS)
                message = "More." if action == "send" else ""
                await asker.ask("steer_subtask", id=id, action=action, message=message)
            self.outcomes[verb] += 1
        except OrchardError:
            self.outcomes["refused"] += 1

    async def people(self, orchard: Orchard, session: Session, plan: PlanId) -> None:
        """They meddle with whatever there is, and end it in one of the ways in which things end."""
        await self.line.open(session, plan)
        for _ in range(self.chance.randint(0, 6)):
            await asyncio.sleep(self.chance.choice((0, 0.02, 0.1)))
            known = [str(one["id"]) for one in job(orchard.status(), "a")["subtasks"]]
            name = f"a/{self.chance.choice(known)}" if known and self.chance.random() < 0.8 else "a"
            action = self.chance.choice(ACTIONS)
            args: dict[str, Any] = {"message": "A word."} if action == "send" else {}
            try:
                await session.request(VERBS[action], plan=plan, job=name, **args)
                self.outcomes[f"person {action}"] += 1
            except OrchardError:
                self.outcomes["refused"] += 1
        end = self.chance.choice(("complete", "cancel", "fail", "gone"))
        patient = end == "complete" or self.chance.random() < 0.6
        async with asyncio.timeout(20):
            while job(orchard.status(), "a")["status"] not in ("succeeded", "failed", "canceled"):
                await asyncio.sleep(0.02)
                worker = job(orchard.status(), "a")["worker"]
                if patient and (worker is None or worker["state"] not in ("idle", "paused")):
                    continue
                if end == "gone":
                    raise Gone
                verb = {"complete": "complete_task", "cancel": "cancel_plan", "fail": "force_fail_job"}[end]
                try:
                    await session.request(verb, plan=plan, **({} if end == "cancel" else {"job": "a"}))
                except OrchardError:
                    self.outcomes["refused"] += 1


@pytest.mark.parametrize("slots", [1, 2, 0])
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_tree_ends_and_leaves_nothing(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, seed: int, slots: int
) -> None:
    table, line = ScriptedAgents(), Line()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setenv("ORCHARD_SUBTASKS_PER_JOB", str(random.Random(seed).choice((2, 5, 20))))
    tree, before = Tree(seed * 10 + slots, line), children()
    table.add("one", turn(line, tree))
    plan = f"name: Tree\nmax_parallel: {slots}\n"
    plan += "jobs: [{id: a, work: {agent: one, instructions: Parent, interactive: true}}]"

    async def during(session: Session, id: PlanId) -> None:
        await tree.people(orchard, session, id)

    app = orchard.app
    try:
        await orchard.run(plan, during=during)
    except Gone:
        async with orchard.app.session() as session:
            await line.open(session, app.find_plan(None))
            with suppress(OrchardError):  # it may have failed as interrupted
                await session.request("cancel_plan", plan=app.find_plan(None))
    status = orchard.status()

    run = app.run_of(app.find_plan(None))
    record = run.records["a"]  # type: ignore[index]
    assert job(status, "a")["status"] in ("succeeded", "failed", "canceled")
    assert all(one.over and one.worktree is None for one in record.subtasks.values())
    assert run.slots_used == 0
    spawned, ended = orchard.events(SubtaskSpawned), orchard.events(SubtaskEnded)
    assert sorted(one.subtask for one in spawned) == sorted(one.subtask for one in ended)
    assert orchard.repo("worktree", "list", "--porcelain").count("worktree ") - 1 <= 1  # the job's own, if it failed
    assert children() <= before
    assert_nothing_lost(orchard, tree)
    assert len(orchard.events(SubtaskStarted)) <= sum(tree.turns.values()) + len(spawned)


def assert_nothing_lost(orchard: Orchard, tree: Tree) -> None:
    """Every file that a helper wrote is in a commit that a ref of ours holds."""
    held = [set(orchard.repo.files(ref)) for ref in orchard.repo.refs("refs/orchard")]
    for who, names in tree.written.items():
        if who != "parent":
            assert any(names <= files for files in held), (who, names)
