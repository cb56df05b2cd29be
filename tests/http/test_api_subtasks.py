"""Subtasks over HTTP: their logs, what they changed and said while they are idle, messages, pauses, and their end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.protocol import Heard, Said, Session
from orchard.engine.server import start as opening
from orchard.testing import Repo
from tests.engine.helpers import Asker, Line, by_task
from tests.engine.scripted import ScriptedAgents
from tests.http.api_world import Json, World, job_path, wait_for, world

PARENT: Json = {"id": "a", "work": {"instructions": "Parent", "agent": "one", "interactive": True}}
LONG = "x" * 9000


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    return made


@pytest.fixture
def api(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    agents, line = ScriptedAgents(), Line()
    monkeypatch.setattr(opening, "Agents", lambda config, host: agents)

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child", interactive=True)
        return "I wait."

    turns: list[str] = []

    async def child(asker: Asker) -> str:
        turns.append(asker.task.instructions)
        asker.watch.tell(Session("child"))
        asker.watch.tell(Heard())
        asker.watch.tell(Said(f"turn {len(turns)} of the child\n"))
        asker.write(**{f"child{len(turns)}": "from the child\n"})
        return f"{LONG} Is turn {len(turns)} right?"

    agents.add("one", by_task(line, parent=parent, child=child, more=child))
    with world(repo.path) as made:
        line.session = made.served[0].session
        line.ready.set()
        yield made


def shown(api: World, plan: str) -> Json:
    """The only subtask of the job."""
    found = [one for one in api.get(f"/plans/{plan}/jobs/a")["subtasks"] if one]
    return dict(found[0]) if found else {"status": None}


def reached(api: World, plan: str, status: str, turns: int) -> Json:
    def there() -> bool:
        found = shown(api, plan)
        said: list[Any] = (
            [one for one in talk(api, plan, found["id"]) if one["kind"] == "words"] if found["status"] else []
        )
        return (found["status"], len(said)) == (status, turns)

    wait_for(there)
    return shown(api, plan)


def talk(api: World, plan: str, subtask: str) -> list[Json]:
    entries: list[Json] = api.get(f"{job_path(plan, f'a/{subtask}')}/talk")["entries"]
    return entries


def test_an_idle_subtask_is_read_sent_to_paused_resumed_and_completed(api: World) -> None:
    plan = api.submit([PARENT])
    one = reached(api, plan, "idle", 1)
    path = job_path(plan, f"a/{one['id']}")

    assert "turn 1 of the child" in str(api.get(f"{path}/logs"))
    diff = api.get(f"{path}/diff")
    assert "child1.txt" in str(diff) and "from the child" in str(diff), diff
    asked, said = talk(api, plan, one["id"])[:2]
    assert (asked["kind"], asked["text"], said["kind"]) == ("task", "Child", "words")
    assert said["text"].startswith("[5,017 characters before this are left out; the log has all of them]")
    assert (asked["whole"], said["whole"]) == (True, False)

    api.post(f"{path}/send", {"message": "More of it"})
    reached(api, plan, "idle", 2)
    assert "child2.txt" in str(api.get(f"{path}/diff"))
    assert [(row["kind"], row["sender"]) for row in talk(api, plan, one["id"])] == [
        ("task", "parent"), ("words", "one"), ("message", "person"), ("words", "one"),
    ]  # fmt: skip

    api.post(f"{path}/pause")
    assert api.post(f"{path}/send", {"message": "More later"})["worker"] == "paused"
    assert (shown(api, plan)["status"], shown(api, plan)["queued"]) == ("paused", 1)
    assert api.post(f"{path}/resume")["worker"] == "running"
    reached(api, plan, "idle", 3)

    api.post(f"{path}/complete", {"result": "It is enough."})
    assert reached(api, plan, "completed", 3)["summary"] == "It is enough."
    assert api.get(f"{path}/result")["result"] == "It is enough."
    assert "child3.txt" in str(api.get(f"{path}/diff"))
    said = api.get(f"{job_path(plan, 'a')}/talk")["entries"]
    ends = [row for row in said if row["kind"] in ("result", "update") and row["sender"] == one["id"]]
    assert [row["text"] for row in ends if "enough" in row["text"]] == ["It is enough."], "its end is told once"


def test_the_jobs_of_a_plan_may_be_called_nodes(api: World) -> None:
    made = api.post("/plans", {"name": "N", "nodes": [{"producer_id": "b", "work": "touch b"}]}, 201)
    assert next(job["id"] for job in api.until(made["plan"], "succeeded")["jobs"]) == "b"
