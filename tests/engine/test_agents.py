"""Jobs whose work is done by agents: what they are told, what is recorded, what is tried again."""

import asyncio
import os
from pathlib import Path

import pytest

from orchard.agents.project_settings import committed
from orchard.agents.protocol import Noted, Result, Task, Used, Watch
from orchard.config.trust import trust
from orchard.engine.server import start as opening
from orchard.engine.turns import turn as turns
from orchard.errors import InvalidInput, UsageError
from orchard.model.events.plans import AgentNoted, AgentStarted, JobStarted
from orchard.model.usage import Usage
from tests.engine.conftest import Orchard, job, statuses, until
from tests.engine.scripted import ScriptedAgents, ends, sleeps, writes

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


async def test_what_an_agent_wrote_lands_and_what_it_used_adds_up(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}, tokens=100, says="Made a."))
    agents.add("two", writes({"b.txt": "b"}, tokens=50))

    status = await orchard.run("""
        name: Two agents
        jobs:
          - {id: a, work: "@one Write a"}
          - {id: b, needs: [a], work: "@two Write b"}
    """)

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work") | {"a.txt": "a", "b.txt": "b"} == orchard.repo.files("work")
    assert (status["plan"]["usage"]["tokens"], status["plan"]["usage"]["requests"]) == (150, 2)
    assert status["plan"]["usage"]["cost"] == pytest.approx(0.15)
    assert job(status, "a")["usage"]["tokens"] == 100
    (turn,) = orchard.attempts("a", None)[0]["turns"]
    assert (turn["agent"], turn["trigger"], turn["outcome"], turn["session"]) == ("one", "work", "done", "s1")


async def test_an_agent_is_told_the_task_its_place_and_what_its_needs_delivered(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "a"}, says="Made a with care."))
    second = agents.add("two", writes({"b.txt": "b"}))

    await orchard.run("""
        name: Told
        jobs:
          - {id: a, work: "@one Write a"}
          - id: b
            needs: [a]
            work: {type: agent, agent: two, instructions: "Write b now", model: m1, effort: high, max_turns: 7,
                   allowed_folders: [/tmp], mcp_servers: [docs]}
            postchecks: test -f b.txt
    """)

    (task,) = second.tasks
    assert task.instructions.startswith("Write b now")
    assert "Made a with care." in task.instructions and "a.txt" in task.instructions
    assert "test -f b.txt" in task.instructions and "ORCHARD_EVIDENCE" in task.instructions
    assert (task.settings.model, task.settings.effort, task.settings.max_turns) == ("m1", "high", 7)
    assert task.settings.allowed_folders == (Path("/tmp"),)
    assert [server.name for server in task.settings.mcp_servers] == ["docs"]


async def test_an_agent_sees_an_allow_list_of_variables_and_what_the_plan_sets(
    orchard: Orchard, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "secret")
    monkeypatch.setenv("CANARY_PLAIN", "plain")
    monkeypatch.setenv("ITS_KEY", "key")
    agent = agents.add("one", writes({"a.txt": "a"}))
    agent.variables = ("ITS_KEY",)

    await orchard.run("name: Env\nenv: {FROM_PLAN: p}\njobs: [{id: a, env: {FROM_JOB: j}, work: '@one Write a'}]")

    env = agent.tasks[0].env
    assert not {"CANARY_TOKEN", "CANARY_PLAIN"} & env.keys()
    assert (env["ITS_KEY"], env["FROM_PLAN"], env["FROM_JOB"], env["ORCHARD_JOB"]) == ("key", "p", "j", "a")
    assert env["PATH"] == os.environ["PATH"]


async def test_an_agent_that_says_it_is_done_but_changed_nothing_fails(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", ends(Result("done", text="All done!")))

    status = await orchard.run("name: Lazy\njobs: [{id: a, work: '@agent Write a'}]")

    assert job(status, "a")["reason"] == "no-changes"


async def test_an_error_that_passes_is_waited_for_and_the_session_goes_on(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    limited = Result("rate-limit", "429: slow down.", session="s9")
    agent = agents.add("one", ends(limited), writes({"a.txt": "a"}, session="s9"))

    status = await orchard.run("name: Limited\njobs: [{id: a, work: '@agent Write a'}]")

    assert statuses(status) == {"a": "succeeded"}
    assert [task.session for task in agent.tasks] == [None, "s9"]
    (note,) = [one for one in orchard.events(AgentNoted) if one.kind == "retry"]
    assert "429" in note.message
    assert [one.number for one in orchard.events(AgentStarted)] == [1, 2]


async def test_an_error_that_does_not_pass_fails_after_a_bounded_number_of_tries(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", ends(Result("overloaded", "500")))

    status = await orchard.run("name: Down\njobs: [{id: a, work: '@agent Write a'}]")

    assert len(agent.tasks) == 3
    assert (job(status, "a")["reason"], job(status, "a")["failed_phase"]) == ("agent", "work")
    assert "did not pass" in job(status, "a")["error"]


async def test_a_retry_goes_on_in_the_session_and_is_told_what_failed(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("one", writes({"a.txt": "bad"}, session="s1"), writes({"a.txt": "good"}, session="s1"))
    status = await orchard.run("""
        name: Again
        jobs:
          - {id: a, heal: false, work: "@agent Write a", postchecks: "grep good a.txt || { echo not good; exit 3; }"}
    """)
    assert job(status, "a")["failed_phase"] == "postchecks"

    status = await orchard.ask("retry_plan", jobs=["a"], phase="work")

    assert statuses(status) == {"a": "succeeded"}
    assert agent.tasks[1].session == "s1"
    told = agent.tasks[1].instructions
    assert "not good" in told and "postchecks" in told and "Write a" not in told.split("data")[0]
    assert agent.tasks[1].folder == agent.tasks[0].folder
    assert agent.tasks[1].private == agent.tasks[0].private


async def test_an_agent_whose_changes_are_rejected_goes_back_to_work_and_is_told_why(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "first"}, session="s1"), writes({"a.txt": "second"}, session="s1"))
    waiting = await orchard.run("name: Look\njobs: [{id: a, approve: true, work: '@agent Write a'}]")
    assert job(waiting, "a")["waiting"]["kind"] == "approval"

    again = await orchard.ask("reject_job", job="a", reason="It has to say second.")

    assert job(again, "a")["waiting"]["kind"] == "approval" and job(again, "a")["attempts"] == 2
    assert agent.tasks[1].session == "s1"
    assert "It has to say second." in agent.tasks[1].instructions
    done = await orchard.ask("approve_job", job="a")
    assert done["plan"]["status"] == "succeeded" and orchard.repo.files("work")["a.txt"] == "second"


async def test_work_of_no_agent_that_is_rejected_has_failed_and_only_what_waits_can_be(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    await orchard.run("name: Look\njobs: [{id: a, approve: true, work: echo a > a.txt}]")
    with pytest.raises(UsageError, match="needs a reason"):
        await orchard.ask("reject_job", job="a", reason=" ")

    status = await orchard.ask("reject_job", job="a", reason="No.")

    assert (status["plan"]["status"], job(status, "a")["reason"]) == ("failed", "rejected")
    assert "rejected them: No." in job(status, "a")["error"]
    assert "--work COMMAND" in job(status, "a")["hint"] and "--from work" in job(status, "a")["hint"]
    with pytest.raises(UsageError, match="does not wait for approval"):
        await orchard.ask("reject_job", job="a", reason="No.")
    await orchard.ask("retry_plan", jobs=["a"])
    assert orchard.events(JobStarted)[-1].first_phase == "work"


async def test_a_fresh_session_is_told_everything_again(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("one", ends(Result("failed", "It broke.", session="s1")), writes({"a.txt": "a"}))
    await orchard.run("name: Fresh\njobs: [{id: a, work: '@agent Write a'}]")

    status = await orchard.ask("retry_plan", jobs=["a"], fresh_session=True)

    assert statuses(status) == {"a": "succeeded"}
    assert agent.tasks[1].session is None
    assert agent.tasks[1].instructions.startswith("Write a") and "It broke." in agent.tasks[1].instructions


async def test_a_session_that_the_agent_lost_is_told_and_begun_anew(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add(
        "one",
        ends(Result("failed", "It broke.", session="s1")),
        ends(Result("session-lost", "No such session.")),
        writes({"a.txt": "a"}, session="s2"),
    )
    await orchard.run("name: Lost\njobs: [{id: a, work: '@agent Write a'}]")

    status = await orchard.ask("retry_plan", jobs=["a"])

    assert statuses(status) == {"a": "succeeded"}
    assert [task.session for task in agent.tasks] == [None, "s1", None]
    assert agent.tasks[2].instructions.startswith("Write a")
    assert any(one.kind == "session" and "s1" in one.message for one in orchard.events(AgentNoted))


async def test_resume_session_false_begins_anew_on_a_retry(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("one", ends(Result("failed", "It broke.", session="s1")), writes({"a.txt": "a"}))
    await orchard.run("name: New\njobs: [{id: a, work: {type: agent, instructions: Write a, resume_session: false}}]")

    await orchard.ask("retry_plan", jobs=["a"])

    assert [task.session for task in agent.tasks] == [None, None]


async def test_a_canceled_turn_leaves_its_work_saved_and_is_not_healed(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", sleeps())

    async def cancel(session: object, plan: str) -> None:
        await until(lambda: bool(agent.tasks) and (agent.tasks[0].folder / "half.txt").exists())
        at_work = job(orchard.status(), "a")["agent"]
        assert (at_work["name"], at_work["doing"]) == ("one", "work")
        await session.request("cancel_plan", plan=plan)  # type: ignore[attr-defined]

    status = await orchard.run("name: Stop\njobs: [{id: a, work: '@agent Write a'}]", during=cancel)

    assert statuses(status) == {"a": "canceled"}
    assert len(agent.tasks) == 1
    assert "half.txt" in orchard.repo.files(next(iter(orchard.repo.refs("refs/orchard/wip"))))
    (turn,) = orchard.attempts("a", None)[0]["turns"]
    assert turn["outcome"] == "stopped"
    assert job(status, "a")["agent"] is None


async def test_what_it_says_and_calls_is_in_the_log(orchard: Orchard, agents: ScriptedAgents) -> None:
    def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Noted("setting", "'effort: high' has no effect."))
        return writes({"a.txt": "a"}, says="Hello there.")(task, watch)  # type: ignore[return-value]

    agents.add("one", turn)
    await orchard.run("name: Log\njobs: [{id: a, work: '@agent Write a'}]")

    text = next((orchard.repo.path / ".git/orchard/logs").rglob("work.log")).read_text()
    assert "[setting] 'effort: high' has no effect." in text and "Hello there." in text


async def test_a_secret_that_an_agent_repeats_is_not_passed_on(
    orchard: Orchard, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-hunter2")

    def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Noted("warning", "I saw hunter2-hunter2 somewhere."))
        (task.folder / f"{task.env['ORCHARD_JOB']}.txt").write_text("x")
        return Result("done", text="The token is hunter2-hunter2.")

    agent = agents.add("one", turn)
    await orchard.run("name: Secret\njobs: [{id: a, work: '@one go'}, {id: b, needs: [a], work: '@one go on'}]")

    assert "The token is" in agent.tasks[1].instructions
    assert "hunter2" not in agent.tasks[1].instructions
    assert "hunter2" not in str(orchard.attempts("a", None))


async def test_instructions_come_from_a_file_of_the_repository_and_from_nowhere_else(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    orchard.repo.commit({"tasks/a.md": "# Write a\nfrom the file"})
    agent = agents.add("one", writes({"a.txt": "a"}))

    status = await orchard.run("""
        name: File
        jobs:
          - {id: a, work: {type: agent, instructions_file: tasks/a.md}}
          - {id: b, work: {type: agent, instructions_file: ../../../outside.md}}
          - {id: c, work: {type: agent, instructions_file: missing.md}}
    """)

    assert statuses(status) == {"a": "succeeded", "b": "failed", "c": "failed"}
    assert agent.tasks[0].instructions.startswith("# Write a\nfrom the file")
    assert "outside of the repository" in job(status, "b")["error"]
    assert "cannot be read" in job(status, "c")["error"]


# ---------------------------------------------------------------------------------------- budgets


async def test_a_budget_of_tokens_warns_and_then_waits_for_a_person(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}, tokens=85), writes({"b.txt": "b"}, tokens=30), writes({"c.txt": "c"}))

    status = await orchard.run("""
        name: Budget
        budget: {tokens: 100}
        jobs:
          - {id: a, work: "@agent Write a"}
          - {id: b, needs: [a], work: "@agent Write b"}
          - {id: c, needs: [b], work: "@agent Write c"}
    """)

    assert status["plan"]["status"] == "waiting"
    assert "100 tokens is used up" in status["plan"]["error"]
    assert statuses(status) == {"a": "succeeded", "b": "succeeded", "c": "ready"}

    status = await orchard.ask("resume_plan", budget={"tokens": 500})

    assert status["plan"]["status"] == "succeeded"


async def test_a_turn_that_a_budget_ends_is_held_with_its_work_saved_and_goes_on_in_its_session(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    async def stops(task: Task, watch: Watch) -> Result:
        (task.folder / "half.txt").write_text("half")
        watch.tell(Used(Usage("m", input=1000, requests=1)))
        why = watch.stop()
        assert why is not None
        return Result("budget", why, session="s1")

    agent = agents.add("one", stops, writes({"a.txt": "a"}, session="s1"))
    status = await orchard.run("name: Held\nbudget: {tokens: 500}\njobs: [{id: a, work: '@agent Write a'}]")

    assert status["plan"]["status"] == "waiting"
    assert job(status, "a")["waiting"]["kind"] == "budget"

    status = await orchard.ask("resume_plan")

    assert status["plan"]["status"] == "succeeded"
    assert agent.tasks[1].session == "s1"
    assert {"a.txt", "half.txt"} <= orchard.repo.files("work").keys()


async def test_a_cost_budget_counts_what_agents_say_they_cost(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}, tokens=2000), writes({"b.txt": "b"}))

    status = await orchard.run("""
        name: Cost
        budget: {cost: 1.5}
        jobs:
          - {id: a, work: "@agent Write a"}
          - {id: b, needs: [a], work: "@agent Write b"}
    """)

    assert "$1.5 is used up" in status["plan"]["error"]


async def test_many_agents_at_once_do_not_mix_up_their_turns(orchard: Orchard, agents: ScriptedAgents) -> None:
    async def turn(task: Task, watch: Watch) -> Result:
        await asyncio.sleep(0.05)
        name = task.env["ORCHARD_JOB"]
        (task.folder / f"{name}.txt").write_text(name)
        watch.tell(Used(Usage("m", output=int(name[1:]), requests=1)))
        return Result("done", text=name)

    agents.add("one", turn)
    jobs = ", ".join(f"{{id: j{number}, work: '@agent go'}}" for number in range(1, 9))

    status = await orchard.run(f"name: Many\nmax_parallel: 8\njobs: [{jobs}]")

    assert {one["id"]: one["usage"]["output"] for one in status["jobs"] if not one["validation"]} == {
        f"j{number}": number for number in range(1, 9)
    }


async def test_settings_for_agents_programs_count_only_once_they_are_agreed_to_and_that_is_said_once(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    orchard.repo.commit({".claude/settings.json": '{"hooks": {}}'})
    agent = agents.add("claude", *[writes({f"{number}.txt": "x"}) for number in range(6)])
    plan = """
        name: Hooks
        jobs:
          - {id: a, work: "@claude Write"}
          - {id: b, needs: [a], work: "@claude Write"}
    """

    await orchard.run(plan)
    notes = [one for one in orchard.events(AgentNoted) if "orchard trust" in one.message]
    repo = orchard.app.repo
    trust(repo.home, None, orchard.app.dirs.state, repo.common_dir, committed(repo, "HEAD").digests)
    await orchard.run(plan)

    assert [task.trusted_project_settings for task in agent.tasks] == [False, False, True, True]
    assert len(notes) == 1 and "project settings of claude" in notes[0].message


async def test_settings_that_a_job_writes_do_not_count_for_the_next(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({".mcp.json": "{}"}))
    agent = agents.add("claude", writes({"b.txt": "b"}))

    await orchard.run("""
        name: Planted
        jobs:
          - {id: a, work: "@one Write"}
          - {id: b, needs: [a], work: "@claude Write"}
    """)

    assert [task.trusted_project_settings for task in agent.tasks] == [False]


# ------------------------------------------------------------------------------ what a plan may not set


async def test_a_plan_that_steers_an_agents_keys_is_refused_before_anything_is_made(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "a"}))

    with pytest.raises(InvalidInput) as caught:
        await orchard.run("""
            name: Steered
            env: {PATH: "/x:/bin"}
            jobs:
              - {id: a, work: {type: agent, agent: one, instructions: x, env: {ANTHROPIC_BASE_URL: "http://evil"}}}
        """)

    assert [problem.path for problem in caught.value.problems] == ["env.PATH", "job 'a'.work.env.ANTHROPIC_BASE_URL"]
    assert "'allow_env' of [agents.one]" in str(caught.value)
    assert agents.agents["one"].tasks == []


async def test_an_agent_that_mends_a_command_finds_programs_with_the_users_path(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    one = agents.add("one", writes({"mended": ""}))

    status = await orchard.run("""
        name: Mended
        jobs: [{id: a, env: {PATH: "/nowhere:/usr/bin:/bin", CI: "1"}, work: "test -e mended"}]
    """)

    assert status["plan"]["status"] == "succeeded"
    assert one.tasks[0].env["PATH"] == os.environ["PATH"]
    assert one.tasks[0].env["CI"] == "1"


async def test_a_folder_that_is_not_there_is_refused(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))

    with pytest.raises(InvalidInput, match="there is no folder '/not/there'"):
        await orchard.run("""
            name: Missing
            jobs: [{id: a, work: {type: agent, agent: one, instructions: x, allowed_folders: [/not/there]}}]
        """)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("I looked.\n\nCHECK FAILED: errors are not handled", "errors are not handled"),
        ("**Check failed: no test**\n", "no test"),
        ("CHECK FAILED:", "it does not say why"),
        ("If this were bad I would say\nCHECK FAILED: so\nbut it is fine.", None),
        ("All good.", None),
    ],
)
async def test_an_agent_that_checks_can_say_that_the_check_failed(
    orchard: Orchard, agents: ScriptedAgents, said: str, why: str | None
) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    reviewer = agents.add("reviewer", writes({}, says=said))

    status = await orchard.run("""
        name: Checked
        jobs: [{id: a, work: "@one Write a", postchecks: "@reviewer Read the change"}]
    """)

    assert "CHECK FAILED:" in reviewer.tasks[0].instructions
    if why is None:
        assert status["plan"]["status"] == "succeeded"
        return
    assert status["plan"]["status"] == "failed"
    assert f"agent 'reviewer' says that the check failed: {why}" in str(job(status, "a")["error"])


async def test_an_agent_can_refuse_the_merged_result(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    agents.add("judge", writes({}, says="CHECK FAILED: it must not land"))

    status = await orchard.run("""
        name: Judged
        verify: "@judge Look at all of it"
        jobs: [{id: a, work: "@one Write a"}]
    """)

    assert status["plan"]["status"] == "failed" and "a.txt" not in orchard.repo.files("work")
