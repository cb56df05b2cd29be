"""A goal becomes a plan over HTTP: with an agent that follows a script, and with one that is a real program."""

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchard.agents import registry
from orchard.agents.protocol import Agent, Called, Noted, Result, Said, Task, Used, Watch
from orchard.model.usage import Usage
from orchard.process.families.identity import identify, is_alive
from orchard.surfaces.http import drafts
from orchard.testing import Repo, Turn
from tests.engine.scripted import ScriptedAgents
from tests.http.api_world import Json, World, events_in, wait_for, world

GOOD = "name: Greet\njobs:\n  - id: hello\n    work: echo hello > hello.txt\n"
BAD = "name: Greet\njobs:\n  - id: Hello\n"
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[2J\r\nevent: plan\r\ndata: {}\r\n\r\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "repo")


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(registry, "Agents", lambda config, host: table)
    return table


@pytest.fixture
def api(repo: Repo, agents: ScriptedAgents) -> Iterator[World]:
    with world(repo.path) as made:
        yield made


def says(text: str) -> Turn:
    return lambda task, watch: Result("done", text=f"Here it is.\n```yaml\n{text}```\n")


def hangs(canceled: list[str]) -> Turn:
    """A turn that ends only when it is canceled, and tells."""

    async def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Called("Read", "README.md"))
        try:
            await asyncio.sleep(600)
        finally:
            canceled.append(str(task.folder))
        return Result("done")

    return turn


def followed(api: World, body: Json) -> Iterator[Json]:
    headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"}
    where = f"{api.url}/drafts?follow=true"
    with api.client.stream("POST", where, content=json.dumps(body).encode(), headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        yield from events_in(answer.iter_lines())


def open_draft(api: World, follow: bool) -> socket.socket:
    """A client that has asked for a plan, up to the last byte of it."""
    port, body = int(api.url.split(":")[2].split("/")[0]), b'{"goal": "Greet"'
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.sendall(
        f"POST /api/v1/drafts?follow={str(follow).lower()} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Authorization: Bearer {api.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) + 1}\r\n\r\n".encode()
        + body
    )
    return client


def test_a_goal_becomes_a_plan_and_nothing_of_it_runs(api: World, repo: Repo, agents: ScriptedAgents) -> None:
    scripted = agents.add("one", says(BAD), says(GOOD))

    made = api.post("/drafts", {"goal": "Greet the people", "agent": "one", "model": "one-large"})

    assert (made["text"], made["name"], made["jobs"], made["agent"]) == (GOOD, "Greet", 1, "one")
    assert len(made["problems"]) == 1 and "'Hello'" in made["problems"][0][0]
    assert "Greet the people" in scripted.tasks[0].instructions
    assert scripted.tasks[0].settings.model == "one-large"
    assert not scripted.tasks[0].folder.exists()
    assert api.get("/plans")["plans"] == [] and repo("status", "--porcelain") == ""


def test_what_the_agent_does_is_told_as_it_does_it(api: World, agents: ScriptedAgents) -> None:
    def looks(task: Task, watch: Watch) -> Result:
        watch.tell(Called("Read", "README.md"))
        watch.tell(Called("Bash", "make", failed=True))
        watch.tell(Noted("retry", "The model was busy."))
        watch.tell(Said("I think about it."))
        watch.tell(Used(Usage("large", input=9, output=1, requests=1)))
        return Result("done", text=BAD)

    agents.add("one", looks, says(GOOD))

    *steps, last = followed(api, {"goal": "Greet"})

    assert [one["event"] for one in steps] == ["step"] * 4
    assert [one["data"]["kind"] for one in steps] == ["call", "call", "note", "again"]
    assert steps[0]["data"] == {"kind": "call", "text": "Read", "about": "README.md", "failed": False}
    assert steps[1]["data"]["failed"] and "answer 2" in steps[3]["data"]["text"]
    assert last["event"] == "plan" and last["data"]["text"] == GOOD and last["data"]["usage"]["tokens"] == 10


def test_text_of_others_is_data_in_the_stream(api: World, agents: ScriptedAgents) -> None:
    name = "</script><img src=x onerror=alert(1)>"
    plan = (
        f"name: {json.dumps(name)}\njobs:\n  - id: one\n    task: |\n      x\n\n      event: plan\n    work: 'true'\n"
    )

    def hostile(task: Task, watch: Watch) -> Result:
        watch.tell(Called(HOSTILE, HOSTILE))
        return Result("done", text=HOSTILE)

    scripted = agents.add("one", hostile, says(plan))

    *steps, last = followed(api, {"goal": HOSTILE})

    assert [one["event"] for one in steps] == ["step", "step"] and last["event"] == "plan"
    assert "onerror" in steps[0]["data"]["text"] and (last["data"]["name"], last["data"]["text"]) == (name, plan)
    assert "</script>" in scripted.tasks[0].instructions


@pytest.mark.parametrize("follow", [True, False])
def test_a_client_that_goes_away_ends_the_agent(api: World, agents: ScriptedAgents, follow: bool) -> None:
    canceled: list[str] = []
    scripted = agents.add("one", hangs(canceled))
    with open_draft(api, follow) as client:
        client.sendall(b"}")
        wait_for(lambda: bool(scripted.tasks))
        assert not canceled

    wait_for(lambda: len(canceled) == 1)
    wait_for(lambda: not Path(canceled[0]).exists())


@pytest.mark.parametrize("follow", [True, False])
def test_an_agent_that_takes_too_long_is_stopped(api: World, agents: ScriptedAgents, follow: bool) -> None:
    canceled: list[str] = []
    agents.add("one", hangs(canceled))
    began = time.monotonic()

    if follow:
        told = [*followed(api, {"goal": "Greet", "timeout": 1})][-1]
        assert told["event"] == "failed"
        problem = told["data"]
    else:
        problem = api.post("/drafts", {"goal": "Greet", "timeout": 1}, 504)

    assert problem["status"] == 504 and "in 1 seconds" in problem["detail"] and problem["hint"]
    assert len(canceled) == 1 and time.monotonic() - began < 20


def test_without_an_agent_the_answer_says_what_to_do(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.Agents, "missing", lambda self, name: "it is not installed")
    with world(repo.path) as api:
        problem = api.post("/drafts", {"goal": "Greet"}, 422, follow="true")
        named = api.post("/drafts", {"goal": "Greet", "agent": "nobody"}, 422)

    assert "No agent can be used" in problem["detail"] and "orchard agents" in problem["hint"]
    assert problem["next"] == [{"operation": "list_agents"}]
    assert "There is no agent 'nobody'" in named["detail"]


@pytest.mark.parametrize(
    "body", [{}, {"goal": ""}, {"goal": " \n"}, {"goal": "x", "timeout": 0}, {"goal": "x", "agent": ""}, {"goal": 1}]
)
def test_what_is_no_goal_is_refused_before_an_agent_is_asked(api: World, agents: ScriptedAgents, body: Json) -> None:
    scripted = agents.add("one", says(GOOD))

    assert api.ask("POST", "/drafts", body).status_code in (400, 422)
    assert scripted.tasks == []


def test_an_agent_that_gives_no_plan_fails_with_all_that_was_wrong(api: World, agents: ScriptedAgents) -> None:
    agents.add("one", says(BAD))

    *steps, last = followed(api, {"goal": "Greet"})

    assert [one["data"]["kind"] for one in steps] == ["again"] * 3
    assert last["event"] == "failed" and last["data"]["status"] == 409
    assert "answer 4" in last["data"]["detail"] and "another agent" in last["data"]["hint"]


def test_a_bug_is_told_without_its_cause(api: World, agents: ScriptedAgents) -> None:
    def breaks(task: Task, watch: Watch) -> Result:
        raise RuntimeError("inner")

    agents.add("one", breaks)

    (last,) = followed(api, {"goal": "Greet"})

    assert last["event"] == "failed" and last["data"]["status"] == 500 and "inner" not in json.dumps(last)


def test_secrets_are_in_no_step_no_message_and_no_plan(
    api: World, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary-of-somebody-0123456789")

    def leaks(task: Task, watch: Watch) -> Result:
        watch.tell(Called("Bash", "echo canary-of-somebody-0123456789"))
        watch.tell(Noted("warning", "I saw canary-of-somebody-0123456789."))
        return Result("done", text=GOOD.replace("echo hello", "echo canary-of-somebody-0123456789"))

    def fails(task: Task, watch: Watch) -> Result:
        return Result("failed", "canary-of-somebody-0123456789 was refused.")

    agents.add("one", leaks, says(GOOD))
    told = [*followed(api, {"goal": "Greet"})]
    agents.add("two", fails)
    refused = [*followed(api, {"goal": "Greet", "agent": "two"})]

    assert told[-1]["data"]["text"] == GOOD and "name the variable" in told[-1]["data"]["problems"][0][0]
    assert "canary-of" not in json.dumps([told, refused])
    assert refused[-1]["event"] == "failed"


def test_a_secret_that_yaml_hides_is_in_no_problem_and_no_plan(
    api: World, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "canary-of-somebody-0123456789"
    monkeypatch.setenv("CANARY_TOKEN", secret)
    escaped = "".join(f"\\x{ord(char):02x}" for char in secret)
    wrong = f'name: x\njobs:\n  - id: "{"x" * 30} {escaped} BAD"\n    work: "true"\n'
    hidden = f'name: x\njobs:\n  - id: ok\n    work: "echo {escaped}"\n'
    named = f'name: x\nenv: {{A: "{escaped}"}}\njobs:\n  - id: ok\n    work: "true"\n'
    agents.add("one", says(wrong), says(hidden), says(named), says(GOOD))
    agents.add("two", says(wrong))

    made = [*followed(api, {"goal": "Greet", "agent": "one"})]
    refused = [*followed(api, {"goal": "Greet", "agent": "two"})]

    assert made[-1]["data"]["text"] == GOOD and len(made[-1]["data"]["problems"]) == 3
    assert all("the value of a secret" in one[0] for one in made[-1]["data"]["problems"])
    assert refused[-1]["event"] == "failed" and "canary" not in json.dumps([made, refused])


def test_one_agent_too_many_is_told_to_wait(
    api: World, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "MOST", 1)
    canceled: list[str] = []
    agents.add("one", hangs(canceled))
    first = followed(api, {"goal": "Greet"})
    next(first)

    problem = api.post("/drafts", {"goal": "Greet"}, 503)
    first.close()  # type: ignore[attr-defined]

    assert "1 agents write plans already" in problem["detail"] and problem["hint"]
    wait_for(lambda: len(canceled) == 1)


@pytest.mark.parametrize("follow", [True, False])
def test_however_many_ask_at_once_no_more_agents_start_than_there_are_places(
    api: World, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    canceled: list[str] = []
    scripted = agents.add("one", hangs(canceled))
    find, moment = agents.find, time.monotonic() + 2

    def slowly(name: str | None) -> Agent:
        time.sleep(max(0, moment - time.monotonic()))  # so that all are ready at the same moment
        return find(name)

    monkeypatch.setattr(agents, "find", slowly)
    asked = [open_draft(api, follow) for _ in range(24)]
    for client in asked:
        client.sendall(b"}")

    wait_for(lambda: len(scripted.tasks) >= drafts.MOST)
    refused: set[socket.socket] = set()

    def all_are_refused() -> bool:
        heard, _, _ = select.select([client for client in asked if client not in refused], [], [], 0)
        refused.update(client for client in heard if b" 503 " in client.recv(20))
        return len(refused) >= 24 - drafts.MOST

    wait_for(all_are_refused)
    assert len(scripted.tasks) == drafts.MOST

    for client in asked:
        client.close()
    wait_for(lambda: len(canceled) == drafts.MOST)
    agents.add("two", says(GOOD))
    wait_for(lambda: api.ask("POST", "/drafts", {"goal": "Greet", "agent": "two"}).status_code == 200)


def test_a_draft_that_cannot_begin_leaves_its_place(
    api: World, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "MOST", 1)
    agents.add("one", says(GOOD))

    for _ in range(3):
        assert "nobody" in api.post("/drafts", {"goal": "Greet", "agent": "nobody"}, 422)["detail"]
        assert "nobody" in api.post("/drafts", {"goal": "Greet", "agent": "nobody"}, 422, follow="true")["detail"]
    with monkeypatch.context() as full:
        full.setattr(api.streams, "most", 0)
        assert "clients listen" in api.post("/drafts", {"goal": "Greet"}, 503, follow="true")["detail"]
    assert [*followed(api, {"goal": "Greet"})][-1]["event"] == "plan"
    assert api.post("/drafts", {"goal": "Greet"})["text"] == GOOD


def test_the_program_of_an_agent_ends_with_the_client(repo: Repo, tmp_path: Path) -> None:
    """With all that it started: a real program, which does not end by being asked."""
    script, pids = tmp_path / "agent.sh", tmp_path / "pids"
    script.write_text(f"#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho $$ $! > {pids}.new; mv {pids}.new {pids}\nwait\n")
    script.chmod(0o755)
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard"
    config.mkdir(exist_ok=True, parents=True)
    (config / "config.toml").write_text(f'agent = "mine"\nlimits.grace = 1\n[agents.mine]\ncommand = "{script}"\n')
    with world(repo.path) as api:
        headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"}
        where = f"{api.url}/drafts?follow=true"
        with api.client.stream("POST", where, content=b'{"goal": "Greet"}', headers=headers) as answer:
            assert answer.status_code == 200
            wait_for(pids.exists)
        wait_for(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids.read_text().split()))


OWNER = """
import asyncio, sys
from pathlib import Path
from orchard.agents.planner import Seat, open_desk
from orchard.agents.protocol import Watch
from orchard.git.repository import find_repository
from orchard.operations.commands.goals import not_remembered
from orchard.process.program import run_program

class Sleeper:
    name = "sleeper"

    async def run(self, task, watch):
        shell = "env -i sleep 600 & a=$!; sleep 600 & echo $$ $a $! > pids.new; mv pids.new pids; wait"
        await run_program(task.launcher.launch(("sh", "-c", shell), task.folder, task.env, task.log, task.limits))

async def main():
    watch = Watch(lambda telling: None, not_remembered, asyncio.Event())
    async with open_desk(find_repository(Path(sys.argv[1])), Seat(Sleeper(), {"PATH": sys.argv[2]}), watch) as desk:
        await desk.ask("Write a plan")

asyncio.run(main())
"""


def test_what_a_killed_daemon_left_of_a_plan_is_ended_and_removed_by_the_next(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "orchard-plan-of-others").mkdir()
    argv = [sys.executable, "-c", OWNER, str(repo.path), os.environ["PATH"]]
    owners = [subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(tmp_path)}) for _ in range(2)]
    try:
        wait_for(lambda: len([*tmp_path.glob("orchard-plan-*/project/pids")]) == 2)
        owners[0].kill()
        owners[0].wait()
        asyncio.run(drafts.clear_after_killed())
        (kept,) = tmp_path.glob("orchard-plan-*/project/pids")
        found = [identify(int(pid)) for pid in kept.read_text().split()]
        agents = [one for one in found if one is not None and is_alive(one)]
        assert len(agents) == 3 and owners[1].poll() is None
    finally:
        for owner in owners:
            owner.kill()
            owner.wait()
        asyncio.run(drafts.clear_after_killed())
    wait_for(lambda: not any(map(is_alive, agents)))
    assert [one.name for one in tmp_path.glob("orchard-plan-*")] == ["orchard-plan-of-others"]
