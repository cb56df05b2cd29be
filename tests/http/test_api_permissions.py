"""Calls that a person is asked about, over real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.agents.protocol import Permit, Result, Task, Wanted, Watch
from orchard.engine.server import start as opening
from orchard.testing import Repo
from tests.engine.scripted import ScriptedAgents
from tests.http.api_world import World, job_path, wait_for, world


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


@pytest.fixture
def api(tmp_path: Path, agents: ScriptedAgents) -> Iterator[World]:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    with world(made.path) as found:
        yield found


def test_what_waits_is_shown_and_answered(api: World, agents: ScriptedAgents) -> None:
    found: list[Permit] = []

    async def turn(task: Task, watch: Watch) -> Result:
        assert watch.person is not None
        for name in ("a", "b"):
            found.append(await watch.person(Wanted("write_file", f"{name}.txt", f'{{"path": "{name}.txt"}}')))
        (task.folder / "a.txt").write_text("a")
        return Result("done")

    agents.add("one", turn)
    plan = api.submit([{"id": "a", "tools": ["edit", "ask"], "work": "@one Write"}])
    wait_for(lambda: bool(api.get("/waiting")["waiting"]))

    (row,) = api.get("/waiting")["waiting"]
    assert (row["kind"], row["job"], row["input"]) == ("permission", "a", '{"path": "a.txt"}')
    assert [step["operation"] for step in row["next"]] == ["allow_call", "deny_call"]
    (worker,) = api.get("/workers")["workers"]
    assert [(one["number"], one["tool"], one["about"]) for one in worker["asks"]] == [(1, "write_file", "a.txt")]
    assert worker["asks"][0]["next"] == row["next"]
    assert api.get(f"/plans/{plan}")["plan"]["next"] == row["next"]
    shown = api.get(job_path(plan, "a"))
    assert shown["waiting"]["kind"] == "permission"
    assert shown["permissions"]["tools"] == "edit; asks before all that does more than read"
    assert shown["permissions"]["sources"] == [
        {"origin": "the job", "tools": "edit; asks before all that does more than read"}
    ]

    api.post(f"{job_path(plan, 'a')}/allow", {"question": 7}, 422)
    answer = api.post(f"{job_path(plan, 'a')}/allow", {"question": 1})
    assert (answer["question"], answer["tool"], answer["about"]) == (1, "write_file", "a.txt")
    wait_for(lambda: [one["input"] for one in api.get("/waiting")["waiting"]] == ['{"path": "b.txt"}'])
    api.post(f"{job_path(plan, 'a')}/deny", {"reason": "one is enough"})

    api.until(plan, "succeeded")
    assert found == [Permit(True), Permit(False, "a person said no: one is enough")]
    talk = [(one["kind"], one["sender"], one["reason"]) for one in api.get(f"{job_path(plan, 'a')}/talk")["entries"]]
    asked = [("asked", "one", None), ("answered", "person", "allowed")]
    refused = [("asked", "one", None), ("answered", "person", "refused")]
    assert talk == [("task", "person", None), *asked, *refused], "what was asked and answered is a part of it"
