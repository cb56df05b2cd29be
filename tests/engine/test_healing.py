"""What fails is mended by an agent, and the failed check decides; conflicts are settled by one, and checked."""

import re
import shutil
from pathlib import Path

import pytest

from orchard.agents.protocol import Result, Task, Watch
from orchard.engine.server import start as opening
from orchard.engine.turns import turn as turns
from orchard.model.events.plans import ConflictSettled, HealTried
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.scripted import ScriptedAgents, ends, writes

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01,))
    return table


def outcomes(orchard: Orchard) -> list[str]:
    return [one.outcome for one in orchard.events(HealTried)]


def note(orchard: Orchard, phase: str, name: str = "a") -> str:
    phases = orchard.attempts(name, None)[-1]["phases"]
    return " ".join(one["note"] for one in phases if one["phase"] == phase)


async def test_a_failed_postcheck_is_mended_and_the_result_holds_what_mended_it(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("medic", writes({"a.txt": "good"}, says="Made it good."))

    status = await orchard.run("""
        name: Heal
        jobs:
          - id: a
            work: echo bad > a.txt
            postchecks: "grep good a.txt || { echo it is not good; exit 3; }"
    """)

    assert statuses(status) == {"a": "succeeded"}
    assert orchard.repo.files("work")["a.txt"] == "good"
    assert outcomes(orchard) == ["passed"]
    told = agent.tasks[0].instructions
    assert "it is not good" in told and "Exit code: 3" in told and "grep good a.txt" in told and "+bad" in told
    assert "healed by medic at try 1" in note(orchard, "postchecks")
    (turn,) = orchard.attempts("a", None)[0]["turns"]
    assert (turn["trigger"], turn["healed"]) == ("heal", "passed")
    keep = orchard.repo.refs("refs/orchard/keep")
    assert sum("/a/1" in ref for ref in keep) == 1, "one result, under one ref"


@pytest.mark.parametrize(
    ("plan", "job", "setting", "heals"),
    [
        ("", "", None, False),
        ("", "heal: 1,", None, True),
        ("verify: {instructions: Look., agent: medic}", "", None, True),
        ("", "", ("ORCHARD_HEAL_ENABLED", "true"), True),
        ("", "", ("ORCHARD_HEAL_AGENT", "medic"), True),
        ("verify: {instructions: Look., agent: medic}", "", ("ORCHARD_HEAL_ENABLED", "false"), False),
    ],
)
async def test_an_agent_heals_only_where_somebody_named_one(
    orchard: Orchard,
    agents: ScriptedAgents,
    monkeypatch: pytest.MonkeyPatch,
    plan: str,
    job: str,
    setting: tuple[str, str] | None,
    heals: bool,
) -> None:
    monkeypatch.delenv("ORCHARD_HEAL_ENABLED")
    if setting is not None:
        monkeypatch.setenv(*setting)
    medic = agents.add("medic", writes({"a.txt": "good"}), writes({}))

    await orchard.run(f"""
        name: Heal
        {plan}
        jobs:
          - {{id: a, work: echo bad > a.txt, {job} postchecks: "grep good a.txt"}}
    """)

    assert outcomes(orchard) == (["passed"] if heals else [])
    assert bool(medic.tasks) is heals, "no model is called"


async def test_the_check_of_work_that_changed_nothing_is_mended(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("medic", writes({"a.txt": "good"}))

    status = await orchard.run("""
        name: Heal
        jobs:
          - {id: a, work: echo nothing, postchecks: "grep good a.txt"}
    """)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")
    assert orchard.repo.files("work")["a.txt"] == "good"


async def test_what_mended_a_check_but_could_not_be_committed_is_not_passed_over_by_a_retry(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    def mends(task: Task, watch: Watch) -> Result:
        Repo.make(task.folder / "nested")
        (task.folder / "a.txt").write_text("good")
        return Result("done")

    agents.add("medic", mends)
    failed = await orchard.run("""
        name: Heal
        jobs:
          - {id: a, heal: 1, work: "echo bad > a.txt", postchecks: "grep good a.txt"}
    """)
    assert "nested" in job(failed, "a")["error"], job(failed, "a")

    again = await orchard.ask("retry_plan")
    assert (job(again, "a")["status"], again["plan"]["landed"]) == ("failed", False), job(again, "a")
    shutil.rmtree(Path(job(again, "a")["worktree"]) / "nested")
    status = await orchard.ask("retry_plan")

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")
    assert orchard.repo.files("work")["a.txt"] == "good"


@pytest.mark.parametrize("phase", ["setup", "prechecks", "work"])
async def test_failed_programs_of_other_phases_are_mended_too(
    orchard: Orchard, agents: ScriptedAgents, phase: str
) -> None:
    agents.add("medic", writes({"fixed": "yes"}))
    works = {"setup": "", "prechecks": "", "work": "echo done > done.txt"}
    works[phase] = f"test -f fixed{' && echo done > done.txt' if phase == 'work' else ''}"
    lines = "".join(f"            {name}: [{text!r}]\n" for name, text in works.items() if text and name != "work")

    status = await orchard.run(f"""
        name: Heal
        jobs:
          - id: a
            work: {works["work"]!r}
{lines}    """)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")
    assert {"fixed", "done.txt"} <= orchard.repo.files("work").keys()


async def test_the_check_decides_and_not_the_agent(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add(
        "medic",
        writes({"a.txt": "still bad"}, says="Fixed!"),
        writes({"a.txt": "also bad"}, says="Now it is fixed!"),
        writes({"a.txt": "good"}),
    )

    status = await orchard.run(
        "name: Heal\njobs: [{id: a, work: 'echo bad > a.txt', postchecks: 'grep -x good a.txt'}]"
    )

    assert statuses(status) == {"a": "succeeded"}
    assert outcomes(orchard) == ["failed", "failed", "passed"]
    assert "Fixed!" in agent.tasks[1].instructions and "Now it is fixed!" in agent.tasks[2].instructions


async def test_healing_stops_when_its_tries_are_used(orchard: Orchard, agents: ScriptedAgents) -> None:
    counter = iter(range(100))

    def turn(task: Task, watch: Watch) -> Result:
        (task.folder / "a.txt").write_text(f"bad {next(counter)}")
        return Result("done")

    agent = agents.add("medic", turn)
    status = await orchard.run(
        "name: Heal\njobs: [{id: a, heal: 2, work: 'echo bad > a.txt', postchecks: 'grep good a.txt'}]"
    )

    assert statuses(status) == {"a": "failed"}
    assert len(agent.tasks) == 2
    assert (job(status, "a")["failed_phase"], job(status, "a")["reason"]) == ("postchecks", "exit")


async def test_a_heal_that_changes_nothing_ends_healing(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("medic", ends(Result("done", text="Looks fine to me.")))

    status = await orchard.run("name: Heal\njobs: [{id: a, work: 'echo bad > a.txt', postchecks: 'grep good a.txt'}]")

    assert statuses(status) == {"a": "failed"}
    assert len(agent.tasks) == 1 and outcomes(orchard) == ["unchanged"]
    assert "changed nothing" in note(orchard, "postchecks")


@pytest.mark.parametrize(
    "job_text",
    [
        "{id: a, heal: false, work: 'false'}",
        "{id: a, work: {command: 'false', on_failure: {heal: false}}}",
        "{id: a, heal: 0, work: 'false'}",
    ],
)
async def test_healing_can_be_forbidden(orchard: Orchard, agents: ScriptedAgents, job_text: str) -> None:
    agent = agents.add("medic", writes({"x": "x"}))

    status = await orchard.run(f"name: No\njobs: [{job_text}]")

    assert statuses(status) == {"a": "failed"}
    assert not agent.tasks


async def test_without_a_usable_agent_the_job_says_that_healing_was_skipped(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    status = await orchard.run("name: None\njobs: [{id: a, work: 'false'}]")

    assert statuses(status) == {"a": "failed"}
    assert "healing was skipped: no agent is usable" in note(orchard, "work")


async def test_the_authors_message_reaches_whoever_mends(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("medic", writes({"x": "x"}))

    await orchard.run("""
        name: Advice
        jobs:
          - {id: a, work: {command: "test -f x", on_failure: {message: "Run make first"}}}
    """)

    assert "Run make first" in agent.tasks[0].instructions


@pytest.mark.parametrize("merge", ["squash", "merge"])
async def test_what_verify_finds_in_the_merged_result_is_mended_and_what_passed_is_what_lands(
    orchard: Orchard, agents: ScriptedAgents, merge: str
) -> None:
    agent = agents.add("medic", writes({"b.txt": "calls new_name"}))

    status = await orchard.run(f"""
        name: Together
        merge: {merge}
        verify: grep -q new_name a.txt && grep -q new_name b.txt
        jobs:
          - {{id: a, work: "echo new_name > a.txt"}}
          - {{id: b, work: "echo calls old_name > b.txt"}}
    """)

    assert status["plan"]["status"] == "succeeded", status["plan"]["error"]
    assert len(agent.tasks) == 1 and "new_name" in agent.tasks[0].instructions
    landed = orchard.repo.files("work")
    assert (landed["a.txt"], landed["b.txt"]) == ("new_name\n", "calls new_name")
    mended = "Mend what the checks of the merged result found"
    subject = f'Merge "{mended}"' if merge == "merge" else mended
    assert orchard.repo("log", "-1", "--format=%s", "work").strip() == subject


async def test_what_was_mended_is_merged_again_when_the_target_moves(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("medic", writes({"b.txt": "good"}))
    marker = orchard.repo.path.parent / "moved"
    moves = f"test -f {marker} || {{ touch {marker}; git -C {orchard.repo.path} commit -q --allow-empty -m moved; }}"

    status = await orchard.run(f"""
        name: Moving
        verify: "grep -q good b.txt && {{ {moves}; }}"
        jobs:
          - {{id: a, work: "echo a > a.txt"}}
          - {{id: b, work: "echo bad > b.txt"}}
    """)

    assert status["plan"]["status"] == "succeeded", status["plan"]["error"]
    assert marker.exists()
    assert "moved" in orchard.repo("log", "--format=%s", "work")
    landed = orchard.repo.files("work")
    assert (landed["a.txt"], landed["b.txt"]) == ("a\n", "good")


# -------------------------------------------------------------------------------------- conflicts

CONFLICT = """
    name: Conflict
    {more}
    jobs:
      - {{id: a, task: "Say one", work: "sed -i s/5/one/ shared.txt"}}
      - {{id: b, task: "Say two", work: "sed -i s/5/two/ shared.txt"}}
"""


def settles(content: str) -> "object":
    def turn(task: Task, watch: Watch) -> Result:
        (task.folder / "1.merged").write_text(content)
        return Result("done", text="Kept both.")

    return turn


MERGED = "1\n2\n3\n4\none and two\n6\n7\n8\n9\n"


async def test_a_conflict_of_two_leaves_is_settled_by_an_agent_that_knows_both_intents(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("judge", settles(MERGED))  # type: ignore[arg-type]

    status = await orchard.run(CONFLICT.format(more=""))

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["shared.txt"] == MERGED
    (task,) = agent.tasks
    assert "Say one" in task.instructions and "Say two" in task.instructions
    (settled,) = orchard.events(ConflictSettled)
    assert (settled.by, settled.paths) == ("judge", ("shared.txt",))
    assert not Path(task.folder).exists()


async def test_a_file_that_an_agent_lets_go_in_a_conflict_is_gone_and_asked_about_once(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    def removes(task: Task, watch: Watch) -> Result:
        (task.folder / "1.merged").unlink()
        return Result("done", text="Nobody needs it.")

    agent = agents.add("judge", removes)
    plan = CONFLICT.format(more="").replace('"sed -i s/5/two/ shared.txt"', '"rm shared.txt"')

    status = await orchard.run(plan)

    assert status["plan"]["status"] == "succeeded"
    assert "shared.txt" not in orchard.repo.files("work")
    assert len(agent.tasks) == 1


async def test_a_conflict_of_two_needs_is_settled_before_the_work_begins(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("judge", settles(MERGED))  # type: ignore[arg-type]

    status = await orchard.run(
        CONFLICT.format(more="") + "      - {id: c, needs: [a, b], work: cp shared.txt copy.txt}\n"
    )

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["copy.txt"] == MERGED


async def test_whoever_settles_a_conflict_can_read_the_rest_of_the_project(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    read: list[str] = []

    def turn(task: Task, watch: Watch) -> Result:
        project = next(Path(word) for word in re.findall(r"`(/[^`]+)`", task.instructions) if ".worktrees" in word)
        read.append((project / "README.md").read_text())
        (project / "scribble.txt").write_text("not allowed, and not lost")
        (task.folder / "1.merged").write_text(MERGED)
        return Result("done")

    agents.add("judge", turn)
    more = "      - {id: c, needs: [a, b], work: cp shared.txt copy.txt}\n"

    status = await orchard.run(CONFLICT.format(more="") + more)

    assert status["plan"]["status"] == "succeeded"
    assert read and set(read) == {"# small\n"}
    assert "scribble.txt" not in orchard.repo.files("work")
    assert any("scribble.txt" in orchard.repo.files(ref) for ref in orchard.repo.refs("refs/orchard/wip"))


async def test_an_answer_with_markers_left_is_not_accepted_and_asked_once_more(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("judge", ends(Result("done")), settles(MERGED))  # type: ignore[arg-type]

    status = await orchard.run(CONFLICT.format(more=""))

    assert status["plan"]["status"] == "succeeded"
    assert len(agent.tasks) == 2 and "conflict markers" in agent.tasks[1].instructions


async def test_an_agent_that_does_not_settle_it_leaves_the_conflict_to_a_person(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("judge", ends(Result("failed", "I cannot.")))

    status = await orchard.run(CONFLICT.format(more=""))

    failed = next(one for one in status["jobs"] if one["status"] == "failed")
    assert (failed["reason"], failed["failed_phase"]) == ("conflict", "merge-ri")
    assert "shared.txt" in failed["error"]
    assert orchard.repo.files("work")["shared.txt"].startswith("1\n2\n3\n4\n5")


@pytest.mark.parametrize("more", ["resolver: ours", "resolver: fail"])
async def test_a_plan_that_says_otherwise_asks_no_agent(orchard: Orchard, agents: ScriptedAgents, more: str) -> None:
    agent = agents.add("judge", settles(MERGED))  # type: ignore[arg-type]

    await orchard.run(CONFLICT.format(more=more))

    assert not agent.tasks


async def test_what_has_landed_is_not_asked_again_in_the_same_repository(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("judge", settles(MERGED))  # type: ignore[arg-type]
    base = orchard.repo.head("work")
    first = await orchard.run(CONFLICT.format(more="target: first"))
    assert first["plan"]["status"] == "succeeded"
    assert orchard.repo.head("work") == base

    second = await orchard.run(CONFLICT.format(more="target: second"))

    assert second["plan"]["status"] == "succeeded"
    assert len(agent.tasks) == 1
    assert orchard.repo.files("second")["shared.txt"] == MERGED


VERIFY = """verify: {command: "grep 'one and two' shared.txt", on_failure: {heal: false}}"""


async def test_what_did_not_pass_validation_is_asked_again(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("judge", settles(MERGED.replace("one and two", "nonsense")), settles(MERGED))  # type: ignore[arg-type]
    first = await orchard.run(CONFLICT.format(more=f"target: first\n    {VERIFY}"))
    assert first["plan"]["status"] == "failed"

    second = await orchard.run(CONFLICT.format(more=f"target: second\n    {VERIFY}"))

    assert second["plan"]["status"] == "succeeded"
    assert len(agent.tasks) == 2


# ------------------------------------------------------------------------- edited after the commit


async def test_what_a_person_mends_after_a_failed_check_is_in_the_result_that_passes(orchard: Orchard) -> None:
    status = await orchard.run(
        "name: By hand\njobs: [{id: a, work: 'echo bad > a.txt', postchecks: 'grep good a.txt'}]"
    )
    Path(job(status, "a")["worktree"], "a.txt").write_text("good, by hand\n")

    status = await orchard.ask("retry_plan", jobs=["a"])

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"] == "good, by hand\n"


async def test_what_a_failed_check_left_is_not_in_the_result(orchard: Orchard, tmp_path: Path) -> None:
    check = f"echo dropped > dropped.txt; test -e {tmp_path}/go"
    await orchard.run(f"name: Droppings\njobs: [{{id: a, work: 'echo a > a.txt', postchecks: '{check}'}}]")
    (tmp_path / "go").touch()

    status = await orchard.ask("retry_plan", jobs=["a"])

    assert status["plan"]["status"] == "succeeded"
    assert "dropped.txt" not in orchard.repo.files("work")
