"""What agents and sides decided is said everywhere: who healed what, and whose version of a conflict is kept."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from orchard.core.views.documents import PlanSummary
from orchard.engine.server import start as opening
from orchard.git.landing import landing
from orchard.git.landing.checkout import BranchMoved
from orchard.model.events.plans import ConflictSettled, LeafMerged
from orchard.surfaces.cli.render.event_lines import LINES
from orchard.surfaces.cli.render.lines import plain
from orchard.surfaces.cli.render.tree import end_lines
from tests.engine.conftest import Json, Orchard, job
from tests.engine.scripted import ScriptedAgents, writes

pytestmark = pytest.mark.anyio

JOBS = """
name: Sides
resolver: {side}
jobs:
  - {{id: a, work: echo A > README.md}}
  - {{id: b, work: echo B > README.md}}
  - {{id: c, needs: [a, b], work: echo c > c.txt}}
  - {{id: d, needs: [a, b], work: echo d > d.txt}}
"""


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


def notes(orchard: Orchard, name: str, phase: str) -> str:
    (attempt,) = orchard.attempts(name, None)
    return " ".join(one["note"] for one in attempt["phases"] if one["phase"] == phase)


def said(document: Json) -> str:
    return "\n".join(plain(line) for line in end_lines(msgspec.convert(document["plan"], PlanSummary)))


@pytest.mark.parametrize(("side", "kept", "dropped"), [("theirs", "b", "a"), ("ours", "a", "b")])
async def test_a_side_that_is_taken_between_two_needs_is_told_for_every_job_that_starts_there(
    orchard: Orchard, side: str, kept: str, dropped: str
) -> None:
    status = await orchard.run(JOBS.format(side=side))

    found = {one["job"]: one for one in status["plan"]["resolutions"]}
    assert found.keys() == {"c", "d"}
    assert found["c"] == {
        "job": "c", "phase": "merge-fi", "by": side, "paths": ["README.md"], "ours": ["a"], "theirs": ["b"],
    }  # fmt: skip
    assert orchard.repo.files("work")["README.md"] == f"{kept.upper()}\n"
    for name in ("c", "d"):
        assert f"the version of {kept} is kept, that of {dropped} is not" in notes(orchard, name, "merge-fi")
    assert f"by {side} in c (preparing): README.md" in said(status)


async def test_a_side_that_is_taken_between_two_leaves_is_a_resolution_like_any_other(orchard: Orchard) -> None:
    status = await orchard.run("""
        name: Leaves
        resolver: theirs
        max_parallel: 1
        jobs:
          - {id: a, priority: 1, work: echo A > README.md}
          - {id: b, work: echo B > README.md}
    """)

    (found,) = status["plan"]["resolutions"]
    assert found == {
        "job": "b", "phase": "merge-ri", "by": "theirs", "paths": ["README.md"], "ours": ["a"], "theirs": ["b"],
    }  # fmt: skip
    assert "the version of b is kept, that of a is not" in notes(orchard, "b", "merge-ri")
    (event,) = orchard.events(ConflictSettled)
    app = orchard.app
    (line,) = LINES[ConflictSettled](app.run_of(app.find_plan(None)), event)
    assert "by theirs: README.md, the version of b is kept" in plain(line)
    assert [one.resolved for one in orchard.events(LeafMerged)] == [(), ("README.md",)]


async def test_what_was_healed_and_by_whom_is_in_the_summary_the_status_and_the_commits(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("medic", writes({"fixed.txt": "fixed"}))

    status = await orchard.run("""
        name: Heal
        jobs:
          - {id: a, work: echo a > a.txt, postchecks: test -f fixed.txt}
          - {id: b, work: echo b > b.txt}
    """)

    assert status["plan"]["status"] == "succeeded"
    assert status["plan"]["healed"] == [{"job": "a", "phase": "postchecks", "agent": "medic"}]
    assert (job(status, "a")["healed"], job(status, "b")["healed"]) == ([{"phase": "postchecks", "agent": "medic"}], [])
    assert "1 job was healed by medic: a (postchecks)" in said(status)
    for commit in (job(status, "a")["commit"], "work~0", "work~1"):
        body = orchard.repo("log", "-1", "--format=%B", commit)
        assert ("Orchard-Healed: postchecks by medic" in body) is ("Orchard-Job: a" in body), body


async def test_what_was_healed_in_the_merged_result_is_told_too(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("medic", writes({"fixed.txt": "fixed"}))

    status = await orchard.run("name: V\nverify: test -f fixed.txt\njobs: [{id: a, work: echo a > a.txt}]")

    (healed,) = status["plan"]["healed"]
    assert (healed["agent"], healed["phase"]) == ("medic", "work")
    assert "Orchard-Healed: work by medic" in orchard.repo("log", "-1", "--format=%B", "work")


async def test_what_a_fresh_worktree_dropped_is_not_called_healed(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("medic", writes({"fixed.txt": "fixed"}))
    plan = "name: F\njobs: [{id: a, work: echo a > a.txt, prechecks: test -f fixed.txt, postchecks: 'false'}]"
    await orchard.run(plan)
    true: list[dict[str, Any]] = [{"type": "shell", "command": "true"}]

    done = await orchard.ask("retry_plan", jobs=["a"], fresh=True, prechecks=true, postchecks=true)

    assert (done["plan"]["status"], done["plan"]["healed"]) == ("succeeded", [])
    assert "Orchard-Healed" not in orchard.repo("log", "-1", "--format=%B", "work")


async def test_a_checkout_that_could_not_follow_its_branch_is_a_warning(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = landing.land

    def land(*args: Any) -> object:
        done = real(*args)
        assert isinstance(done, BranchMoved)
        return replace(done, checkout=None, unfinished="The system refused to update /x: Input/output error")

    monkeypatch.setattr(landing, "land", land)

    status = await orchard.run("name: x\njobs: [{id: a, work: echo 1 > 1}]")

    assert status["plan"]["landed"]
    assert status["plan"]["warnings"] == [
        "The checkout could not follow when the branch moved. The system refused to update /x: Input/output error. "
        "The next engine of this repository makes it whole."
    ]
