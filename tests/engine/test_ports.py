"""`ORCHARD_PORT`: every program of a job may listen on ten ports that no other running job has."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from orchard.process.sandbox.level import walls
from orchard.store.ports import WIDTH
from tests.acceptance.program import Desk, desks
from tests.engine.conftest import Orchard, job

# Landlock has no network of its own for a job, and lets none listen.
LEVELS = ["off", *(found.level for found in walls().findings if found.works and found.level == "bwrap")]
SERVE = r"""
import http.server, os, threading, urllib.request
port = int(os.environ["ORCHARD_PORT"]) + 9
server = http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(opener.open(f"http://127.0.0.1:{port}/serve.py", timeout=10).status, file=open("answer.txt", "w"))
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def ports_of(desk: Desk) -> set[int]:
    return {int(text) for name, text in desk.repo.files("goal").items() if name.startswith("port-")}


def side_by_side(meeting: Path) -> str:
    """A plan of two jobs, each of which ends only when as many as four jobs have begun."""
    begun = f'touch "{meeting}/$ORCHARD_PLAN-$ORCHARD_JOB"'
    wait = f'{begun}; until [ $(ls "{meeting}" | wc -l) -ge 4 ]; do sleep 0.05; done'
    rows = "".join(
        f"  - id: {name}\n    work: |\n      echo $ORCHARD_PORT > port-{name}\n      {wait}\n" for name in ("a", "b")
    )
    return f"name: n\ntarget: goal\njobs:\n{rows}"


def test_no_two_running_jobs_share_ports_also_in_two_repositories(desk: Desk) -> None:
    meeting = desk.folder / "meeting"
    meeting.mkdir()
    (desk.folder / "other").mkdir()
    other = desk.beside("other")
    plan = desk.plan(side_by_side(meeting))

    runs = [one.start("run", plan) for one in (desk, other)]
    ends = [run.end() for run in runs]

    assert [done.code for done in ends] == [0, 0], ends
    found = sorted(ports_of(desk) | ports_of(other))
    assert len(found) == 4
    assert all(later - earlier >= WIDTH for earlier, later in pairwise(found))


def test_every_program_of_a_job_has_the_same_ports(desk: Desk) -> None:
    plan = """
name: n
target: goal
jobs:
  - id: a
    prechecks: ["echo $ORCHARD_PORT > port-1; git add -N port-1"]
    work: "echo $ORCHARD_PORT > port-2"
    postchecks: ['[ "$ORCHARD_PORT" = "$(cat port-2)" ]']
"""
    done = desk("run", desk.plan(plan), ORCHARD_PORT="1")

    assert done.code == 0, done.talk
    assert "not a setting" not in done.talk
    assert len(ports_of(desk)) == 1
    assert 1 not in ports_of(desk)


def test_a_setup_that_uses_the_ports_runs_for_every_job(desk: Desk) -> None:
    (desk.repo.path / ".gitignore").write_text(".env.local\n")
    desk.repo.commit(message="ignore")
    plan = """
name: n
target: goal
setup: ["echo $ORCHARD_PORT > .env.local; echo ran >> .env.local"]
jobs:
  - {id: a, work: '[ "$(head -1 .env.local)" = $ORCHARD_PORT ] && cat .env.local > port-a-file'}
  - {id: b, needs: [a], work: '[ "$(head -1 .env.local)" = $ORCHARD_PORT ] && echo yes > b.txt'}
"""
    assert desk("run", desk.plan(plan.replace("port-a-file", "a.txt"))).code == 0


@pytest.mark.anyio
@pytest.mark.parametrize("level", LEVELS)
async def test_a_server_of_a_job_listens_on_its_ports_behind_a_wall(
    orchard: Orchard, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", level)
    orchard.repo.commit({"serve.py": SERVE})
    python = os.path.realpath("/usr/bin/python3")

    status = await orchard.run(f"name: n\njobs:\n  - {{id: a, work: '{python} serve.py'}}\n")

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert orchard.repo.files("work")["answer.txt"] == "200\n"
