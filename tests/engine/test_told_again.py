"""What is told about conflicts is about the merge that was made last: what was thrown away decided nothing."""

from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from orchard.agents.protocol import Result, Task, Watch
from orchard.core.views.documents import PlanSummary
from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.model.events.plans import ConflictSettled, JobFact, LeafMerged
from orchard.model.plan import VALIDATION, PlanId
from orchard.surfaces.cli.render.event_lines import LINES
from orchard.surfaces.cli.render.lines import plain
from orchard.surfaces.cli.render.tree import end_lines
from tests.engine.conftest import Json, Orchard, until
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio

JOBS = """
    name: Silent
    resolver: {side}
    max_parallel: 1
    verify: "{verify}"
    jobs:
      - {{id: a, priority: 1, work: sed -i s/2/a/ shared.txt}}
      - {{id: b, work: sed -i 's/2/b/; s/8/b/' shared.txt}}
"""
LINES_OF_USER = "1\n2\n3\n4\n5\n6\n7\nuser\n9\n"


def rows(status: Json) -> list[tuple[str, str, str, list[str], list[str]]]:
    found = status["plan"]["resolutions"]
    return [(one["job"], one["phase"], one["by"], one["ours"], one["theirs"]) for one in found]


def said(status: Json) -> str:
    return "\n".join(plain(line) for line in end_lines(msgspec.convert(status["plan"], PlanSummary)))


def notes(orchard: Orchard, name: str) -> str:
    return " ".join(phase["note"] for attempt in orchard.attempts(name, None) for phase in attempt["phases"])


async def moved_once(orchard: Orchard, plan: str, files: dict[str, str]) -> Json:
    """Run a plan, and commit these files on its target while `verify` runs for the first time."""
    begun, moved = orchard.repo.path.parent / "begun", orchard.repo.path.parent / "moved"
    verify = f"touch {begun}; until test -e {moved}; do sleep 0.05; done"

    async def move(session: Session, plan: PlanId) -> None:
        await until(begun.exists)
        orchard.repo.commit(files)
        moved.touch()

    return await orchard.run(dedent(plan).replace("VERIFY", verify), move)


@pytest.mark.parametrize(
    ("side", "kept", "lost"), [("theirs", "b", "the target 'work'"), ("ours", "the target 'work'", "b")]
)
async def test_that_a_commit_on_the_target_met_a_job_is_told_when_the_result_is_merged_onto_it(
    orchard: Orchard, side: str, kept: str, lost: str
) -> None:
    status = await moved_once(orchard, JOBS.format(side=side, verify="VERIFY"), {"shared.txt": LINES_OF_USER})

    landed = orchard.repo.files("work")["shared.txt"].split()
    assert (landed[1], landed[7]) == {"theirs": ("b", "b"), "ours": ("a", "user")}[side]
    assert rows(status) == [("b", "merge-ri", side, ["a"], ["b"]), ("b", "merge-ri", side, [], ["b"])]
    sentence = f"the version of {kept} is kept, that of {lost} is not"
    assert sentence in notes(orchard, VALIDATION)
    assert sentence in said(status)
    run = orchard.app.run_of(orchard.app.find_plan(None))
    told = [plain(line) for one in orchard.events(ConflictSettled) for line in LINES[ConflictSettled](run, one)]
    assert len(told) == 3 and sentence in told[-1]


async def test_a_job_that_only_meets_the_target_is_not_said_to_have_met_other_jobs(orchard: Orchard) -> None:
    plan = """
        name: Target
        resolver: theirs
        verify: "VERIFY"
        jobs: [{id: a, work: echo a > a.txt}, {id: b, work: sed -i s/8/b/ shared.txt}]
    """
    status = await moved_once(orchard, plan, {"shared.txt": LINES_OF_USER})

    assert rows(status) == [("b", "merge-ri", "theirs", [], ["b"])]


async def test_of_every_path_it_is_told_whom_the_job_met_there(orchard: Orchard) -> None:
    plan = """
        name: Paths
        resolver: theirs
        max_parallel: 1
        verify: "VERIFY"
        jobs:
          - {id: a, priority: 1, work: echo a > README.md}
          - {id: b, work: echo b > README.md; sed -i s/8/b/ shared.txt}
    """
    status = await moved_once(orchard, plan, {"shared.txt": LINES_OF_USER})

    found = [(one["ours"], one["paths"]) for one in status["plan"]["resolutions"]]
    assert found == [(["a"], ["README.md"]), ([], ["shared.txt"])]


async def test_what_was_decided_is_recorded_before_the_merge_that_nobody_makes_again(orchard: Orchard) -> None:
    await orchard.run(JOBS.format(side="theirs", verify="true"))

    kinds = [type(one) for one in orchard.events(JobFact) if isinstance(one, ConflictSettled | LeafMerged)]
    assert kinds == [LeafMerged, ConflictSettled, LeafMerged]


async def test_a_target_that_moved_elsewhere_is_not_said_to_have_lost(orchard: Orchard) -> None:
    status = await moved_once(orchard, JOBS.format(side="theirs", verify="VERIFY"), {"other.txt": "user"})

    assert status["plan"]["landed"]
    assert rows(status) == [("b", "merge-ri", "theirs", ["a"], ["b"])]


async def test_what_is_told_is_how_the_result_that_landed_was_merged(orchard: Orchard, tmp_path: Path) -> None:
    first = await orchard.run(JOBS.format(side="theirs", verify=f"test -e {tmp_path}/fine"))
    assert rows(first) == [("b", "merge-ri", "theirs", ["a"], ["b"])]
    await orchard.ask("reshape_plan", changes=[{"op": "update_plan", "set": {"resolver": "ours"}}])
    orchard.repo.commit({"other.txt": "user"})
    (tmp_path / "fine").touch()

    status = await orchard.ask("retry_plan")

    assert status["plan"]["landed"]
    assert orchard.repo.files("work")["shared.txt"].split()[1] == "a"
    assert rows(status) == [("b", "merge-ri", "ours", ["a"], ["b"])]
    assert "by ours in b" in said(status) and "theirs" not in said(status)


async def test_what_was_decided_between_the_needs_of_a_job_stays_told_when_the_target_moves(orchard: Orchard) -> None:
    plan = """
        name: Needs
        resolver: theirs
        verify: "VERIFY"
        jobs:
          - {id: a, work: sed -i s/2/a/ shared.txt}
          - {id: b, work: sed -i s/2/b/ shared.txt}
          - {id: c, needs: [a, b], work: echo c > c.txt}
    """
    status = await moved_once(orchard, plan, {"other.txt": "user"})

    assert status["plan"]["landed"]
    assert rows(status) == [("c", "merge-fi", "theirs", ["a"], ["b"])]


async def test_a_job_that_gathers_its_needs_again_is_told_with_the_side_that_was_taken_last(
    orchard: Orchard, tmp_path: Path
) -> None:
    await orchard.run(f"""
        name: Needs
        resolver: theirs
        jobs:
          - {{id: a, work: sed -i s/2/a/ shared.txt}}
          - {{id: b, work: sed -i s/2/b/ shared.txt}}
          - {{id: c, needs: [a, b], work: "test -e {tmp_path}/fine && echo c > c.txt"}}
    """)
    await orchard.ask("reshape_plan", changes=[{"op": "update_plan", "set": {"resolver": "ours"}}])
    (tmp_path / "fine").touch()

    status = await orchard.ask("retry_plan")

    assert orchard.repo.files("work")["shared.txt"].split()[1] == "a"
    assert rows(status) == [("c", "merge-fi", "ours", ["a"], ["b"])]


async def test_an_agent_that_settled_a_conflict_is_named_after_the_result_was_merged_again(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: agents)

    def settle(task: Task, watch: Watch) -> Result:
        (task.folder / "1.merged").write_text("1\na and b\n3\n4\n5\n6\n7\nb\n9\n")
        return Result("done")

    judge = agents.add("judge", settle)
    status = await moved_once(orchard, JOBS.format(side="agent", verify="VERIFY"), {"other.txt": "user"})

    assert status["plan"]["landed"] and len(judge.tasks) == 1
    assert [row[:3] for row in rows(status)] == [("b", "merge-ri", "judge")]


async def test_an_agent_that_settles_what_the_target_brought_is_told_once(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: agents)

    def settle(task: Task, watch: Watch) -> Result:
        (task.folder / "1.merged").write_text("1\na and b\n3\n4\n5\n6\n7\nuser and b\n9\n")
        return Result("done")

    judge = agents.add("judge", settle, settle)
    status = await moved_once(orchard, JOBS.format(side="agent", verify="VERIFY"), {"shared.txt": LINES_OF_USER})

    assert status["plan"]["landed"] and len(judge.tasks) == 2
    assert [row[:3] for row in rows(status)] == [("b", "merge-ri", "judge")]
