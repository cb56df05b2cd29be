"""Watching it, breaking it, retrying it, canceling it, undoing it."""

from pathlib import Path

import psutil
import pytest

from orchard.engine.server.session import Session
from orchard.errors import NeedsPerson, UsageError
from orchard.model.events.plans import BudgetWarned, JobStarted, Landed, LandingIntended, WorkSaved, WorktreeTaken
from orchard.model.plan import PlanId
from orchard.surfaces.next_steps import in_commands
from tests.engine.conftest import Orchard, job, statuses, until

pytestmark = pytest.mark.anyio


async def test_a_retry_resumes_at_the_failed_phase_and_lands(orchard: Orchard, tmp_path: Path) -> None:
    flag, count = tmp_path / "flag", tmp_path / "count"
    first = await orchard.run(f"""
        name: Twice
        jobs: [{{id: a, work: "echo run >> {count}; echo a > a.txt", postchecks: test -f {flag}}}]
    """)
    flag.touch()

    done = await orchard.ask("retry_plan", jobs=["a"])

    assert first["plan"]["status"] == "failed"
    assert done["plan"]["status"] == "succeeded"
    assert job(done, "a")["attempts"] == 2
    assert count.read_text() == "run\n"
    assert orchard.events(JobStarted)[1].first_phase == "postchecks"


async def test_a_retry_may_start_earlier_or_with_other_work(orchard: Orchard) -> None:
    await orchard.run("name: Other\njobs: [{id: a, work: exit 1}, {id: b, needs: [a], work: cat a.txt > b.txt}]")

    done = await orchard.ask("retry_plan", jobs=["a"], work={"type": "shell", "command": "echo mended > a.txt"})

    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["b.txt"] == "mended\n"


async def test_a_fresh_retry_saves_what_the_failed_attempt_left(orchard: Orchard, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    await orchard.run(f"""
        name: Fresh
        jobs: [{{id: a, work: "ls half.txt 2>/dev/null && exit 9; echo half > half.txt; test -f {flag}"}}]
    """)
    flag.touch()

    done = await orchard.ask("retry_plan", jobs=["a"], fresh=True)

    assert done["plan"]["status"] == "succeeded"
    saved = orchard.events(WorkSaved)[0]
    assert orchard.repo.files(saved.ref)["half.txt"] == "half\n"


async def test_only_failed_or_canceled_jobs_can_be_retried(orchard: Orchard) -> None:
    await orchard.run("name: Fine\njobs: [{id: a, work: echo a > a.txt}]")
    with pytest.raises(UsageError, match="only a failed or canceled job"):
        await orchard.ask("retry_plan", jobs=["a"])
    with pytest.raises(UsageError, match="no failed or canceled job"):
        await orchard.ask("retry_plan")


async def test_on_failure_sets_the_message_and_where_a_retry_begins(orchard: Orchard, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    failed = await orchard.run(f"""
        name: Advice
        jobs:
          - id: a
            work: echo a >> a.txt
            postchecks: {{command: test -f {flag}, on_failure: {{message: ask Ann, resume_from: work}}}}
    """)
    flag.touch()
    await orchard.ask("retry_plan")

    assert "ask Ann" in job(failed, "a")["error"]
    assert orchard.events(JobStarted)[1].first_phase == "work"


async def test_cancel_ends_a_grandchild_with_its_own_session_and_keeps_the_work(
    orchard: Orchard, tmp_path: Path
) -> None:
    marker = tmp_path / "pid"

    async def cancel(session: Session, plan: PlanId) -> None:
        await until(lambda: marker.exists() and bool(marker.read_text().strip()))
        await session.request("cancel_plan", plan=plan)

    done = await orchard.run(
        f"""
        name: Long
        jobs:
          - id: a
            work: |
              echo half > half.txt
              setsid sh -c 'trap "" TERM; echo $$ > {marker}; sleep 300' &
              sleep 300
          - {{id: b, needs: [a], work: echo b > b.txt}}
        """,
        during=cancel,
    )

    assert done["plan"]["status"] == "canceled"
    assert statuses(done) == {"a": "canceled", "b": "canceled"}
    assert not psutil.pid_exists(int(marker.read_text()))
    worktree = Path(job(done, "a")["worktree"])
    assert (worktree / "half.txt").read_text() == "half\n"
    assert orchard.repo.files(orchard.events(WorkSaved)[0].ref)["half.txt"] == "half\n"


async def test_a_canceled_plan_can_be_retried_to_its_end(orchard: Orchard, tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    async def cancel(session: Session, plan: PlanId) -> None:
        await until((tmp_path / "began").exists)
        await session.request("cancel_plan", plan=plan)

    await orchard.run(
        f"""
        name: Again
        jobs:
          - {{id: a, work: "touch {tmp_path}/began; test -f {flag} || sleep 300; echo a > a.txt"}}
          - {{id: b, needs: [a], work: echo b > b.txt}}
        """,
        during=cancel,
    )
    flag.touch()

    done = await orchard.ask("retry_plan")

    assert done["plan"]["status"] == "succeeded"
    assert {"a.txt", "b.txt"} <= set(orchard.repo.files("work"))


async def test_force_fail_stops_a_job_and_blocks_what_needs_it(orchard: Orchard, tmp_path: Path) -> None:
    async def fail(session: Session, plan: PlanId) -> None:
        await until((tmp_path / "began").exists)
        await session.request("force_fail_job", plan=plan, job="a", reason="it hangs")

    done = await orchard.run(
        f"""
        name: Forced
        jobs:
          - {{id: a, work: "touch {tmp_path}/began; sleep 300"}}
          - {{id: b, needs: [a], work: echo b > b.txt}}
        """,
        during=fail,
    )
    assert statuses(done) == {"a": "failed", "b": "blocked"}
    assert (job(done, "a")["reason"], job(done, "a")["error"]) == ("forced", "it hangs")


async def test_a_timeout_has_its_own_reason(orchard: Orchard) -> None:
    done = await orchard.run("name: Slow\njobs: [{id: a, timeout: 0.3, work: sleep 60}]")
    assert (job(done, "a")["reason"], job(done, "a")["failed_phase"]) == ("timeout", "work")


async def test_a_paused_plan_lets_running_jobs_finish_and_goes_on_when_resumed(
    orchard: Orchard, tmp_path: Path
) -> None:
    async def pause(session: Session, plan: PlanId) -> None:
        await until((tmp_path / "began").exists)
        await session.request("pause_plan", plan=plan)
        (tmp_path / "go").touch()

    paused = await orchard.run(
        f"""
        name: Pause
        jobs:
          - id: a
            work: "touch {tmp_path}/began; while ! test -f {tmp_path}/go; do sleep 0.05; done; echo a > a.txt"
          - {{id: b, needs: [a], work: echo b > b.txt}}
        """,
        during=pause,
    )
    done = await orchard.ask("resume_plan")

    assert paused["plan"]["status"] == "paused"
    assert statuses(paused) == {"a": "succeeded", "b": "ready"}
    assert done["plan"]["status"] == "succeeded"


async def test_a_plan_that_starts_paused_waits_for_resume(orchard: Orchard) -> None:
    paused = await orchard.run("name: Later\nstart_paused: true\njobs: [{id: a, work: echo a > a.txt}]")
    assert paused["plan"]["status"] == "paused"

    assert (await orchard.ask("resume_plan"))["plan"]["status"] == "succeeded"


async def test_a_job_that_asks_for_approval_waits_and_then_goes_on_where_it_was(
    orchard: Orchard, tmp_path: Path
) -> None:
    waiting = await orchard.run(f"""
        name: Look first
        jobs: [{{id: a, approve: true, work: "echo x >> {tmp_path}/runs; echo a > a.txt"}}]
    """)
    assert waiting["plan"]["status"] == "waiting"
    assert job(waiting, "a")["waiting"]["kind"] == "approval"
    assert b"+a" in orchard.app.diff("a", None)

    done = await orchard.ask("approve_job", job="a")

    assert done["plan"]["status"] == "succeeded"
    assert job(done, "a")["attempts"] == 1
    assert (tmp_path / "runs").read_text() == "x\n"


async def test_an_edit_made_while_a_job_waits_for_approval_is_not_left_out_of_what_is_approved(
    orchard: Orchard,
) -> None:
    await orchard.run("name: Look first\njobs: [{id: a, approve: true, work: echo a > a.txt, postchecks: touch log}]")
    (taken,) = orchard.events(WorktreeTaken)
    (Path(taken.path) / "a.txt").write_text("edited\n")

    with pytest.raises(UsageError, match="edited the worktree of job 'a'") as refused:
        await orchard.ask("approve_job", job="a")

    assert "--from commit --keep" in in_commands(refused.value.hint or "")
    await orchard.ask("force_fail_job", job="a", reason="edited")
    await orchard.ask("retry_plan", jobs=["a"], from_phase="commit", keep=True)
    done = await orchard.ask("approve_job", job="a")
    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"] == "edited\n"


async def test_a_check_that_changes_what_the_work_made_is_warned_of(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Mended by checks
        jobs:
          - {id: a, work: echo bad > a.txt, postchecks: ["sed -i s/bad/good/ a.txt", "grep good a.txt"]}
          - {id: b, work: echo b > b.txt, postchecks: "echo all > report.txt"}
    """)

    assert done["plan"]["status"] == "succeeded"
    (warning,) = done["plan"]["warnings"]
    assert "The checks of job 'a' changed a.txt" in str(warning)


async def test_land_ask_waits_with_a_validated_result_and_lands_when_told(orchard: Orchard) -> None:
    before = orchard.repo.head("work")
    waiting = await orchard.run("name: Ask\nland: ask\nverify: 'true'\njobs: [{id: a, work: echo a > a.txt}]")
    assert waiting["plan"]["status"] == "waiting"
    assert orchard.repo.head("work") == before

    done = await orchard.ask("land_plan")

    assert (done["plan"]["status"], done["plan"]["landed"]) == ("succeeded", True)


async def test_land_never_leaves_the_result_on_a_new_branch(orchard: Orchard) -> None:
    before = orchard.repo.head("work")
    done = await orchard.run("name: Never here\nland: never\njobs: [{id: a, work: echo a > a.txt}]")
    assert (done["plan"]["status"], done["plan"]["landed"]) == ("succeeded", False)
    assert done["plan"]["result"]["branch"] == "orchard/never-here"
    assert orchard.repo.files("orchard/never-here")["a.txt"] == "a\n"
    assert orchard.repo.head("work") == before


async def test_a_checkout_in_the_way_makes_the_plan_wait_and_loses_nothing(orchard: Orchard) -> None:
    (orchard.repo.path / "a.txt").write_text("mine, not tracked\n")

    waiting = await orchard.run("name: In the way\njobs: [{id: a, work: echo a > a.txt}]")

    assert waiting["plan"]["status"] == "waiting"
    assert "a.txt" in waiting["plan"]["error"]
    assert (orchard.repo.path / "a.txt").read_text() == "mine, not tracked\n"
    (orchard.repo.path / "a.txt").unlink()
    done = await orchard.ask("land_plan")
    assert done["plan"]["landed"] is True
    assert (orchard.repo.path / "a.txt").read_text() == "a\n"


async def test_edits_elsewhere_in_the_checkout_survive_a_landing(orchard: Orchard) -> None:
    (orchard.repo.path / "README.md").write_text("being edited\n")
    done = await orchard.run("name: Beside\njobs: [{id: a, work: echo a > a.txt}]")
    assert done["plan"]["landed"] is True
    assert (orchard.repo.path / "README.md").read_text() == "being edited\n"


async def test_a_target_that_moves_during_validation_is_merged_and_validated_again(
    orchard: Orchard, tmp_path: Path
) -> None:
    orchard.repo("checkout", "-q", "main")
    orchard.repo("branch", "goal")
    script = (
        f"echo v >> {tmp_path}/verified; test -f {tmp_path}/moved || "
        f"(touch {tmp_path}/moved; cd {orchard.repo.path}; git worktree add -q {tmp_path}/other goal; "
        f"cd {tmp_path}/other; echo new > new.txt; git add -A; git commit -qm moved; "
        f"cd {orchard.repo.path}; git worktree remove --force {tmp_path}/other)"
    )
    done = await orchard.run(f"""
        name: Moving
        target: goal
        verify: "{script}"
        jobs: [{{id: a, work: echo a > a.txt}}]
    """)

    assert done["plan"]["status"] == "succeeded"
    assert {"a.txt", "new.txt"} <= set(orchard.repo.files("goal"))
    assert (tmp_path / "verified").read_text() == "v\nv\n"
    landed = orchard.events(Landed)[0]
    assert orchard.repo("log", "-1", "--format=%s", landed.old).strip() == "moved"


async def test_undo_takes_the_landing_back_and_land_brings_it_again(orchard: Orchard) -> None:
    before = orchard.repo.head("work")
    await orchard.run("name: Undo me\njobs: [{id: a, work: echo a > a.txt}]")
    landed = orchard.repo.head("work")

    undone = await orchard.ask("undo_plan")

    assert orchard.repo.head("work") == before
    assert not (orchard.repo.path / "a.txt").exists()
    assert (undone["plan"]["landed"], undone["plan"]["undone"]) == (False, True)
    await orchard.ask("land_plan")
    assert orchard.repo.head("work") == landed


async def test_undo_refuses_when_the_branch_has_moved_on(orchard: Orchard) -> None:
    await orchard.run("name: Undo me\njobs: [{id: a, work: echo a > a.txt}]")
    mine = orchard.repo.commit({"mine.txt": "mine"})
    with pytest.raises(NeedsPerson, match="not undone"):
        await orchard.ask("undo_plan")
    assert orchard.repo.head("work") == mine


async def test_a_plan_starts_when_the_plan_it_comes_after_has_succeeded(orchard: Orchard) -> None:
    first = await orchard.run("name: First\nland: ask\njobs: [{id: a, work: echo a > a.txt}]")
    second = await orchard.run(f"""
        name: Second
        after: {first["plan"]["id"]}
        jobs: [{{id: b, work: cat a.txt > b.txt}}]
    """)
    assert second["plan"]["status"] == "pending"

    await orchard.ask("land_plan", first["plan"]["id"])
    done = orchard.status(second["plan"]["id"])

    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["b.txt"] == "a\n"


async def test_delete_saves_work_removes_folders_and_keeps_commits_until_purge(orchard: Orchard) -> None:
    failed = await orchard.run("""
        name: Gone
        jobs: [{id: a, work: echo a > a.txt}, {id: b, needs: [a], work: "echo half > half.txt; exit 1"}]
    """)
    commit, folder = job(failed, "a")["commit"], Path(job(failed, "b")["worktree"])

    await orchard.ask("delete_plan")

    assert not folder.exists()
    saved = orchard.events(WorkSaved, failed["plan"]["id"])[0]
    assert orchard.repo.files(saved.ref)["half.txt"] == "half\n"
    assert orchard.app.plans() == []
    assert commit in orchard.repo.refs().values()
    async with orchard.app.session() as session:
        await session.request("purge_plan", plan=failed["plan"]["id"])
    assert orchard.repo.refs() == {}


async def test_a_budget_of_minutes_warns_and_then_pauses_the_plan(orchard: Orchard) -> None:
    waiting = await orchard.run("""
        name: Budget
        budget: {minutes: 0.05}
        jobs: [{id: a, work: "sleep 3.5; echo a > a.txt"}, {id: b, needs: [a], work: echo b > b.txt}]
    """)
    assert waiting["plan"]["status"] == "waiting"
    assert "budget" in waiting["plan"]["error"].lower()
    assert statuses(waiting) == {"a": "succeeded", "b": "ready"}
    assert [event.kind for event in orchard.events(BudgetWarned)] == ["minutes"]

    assert (await orchard.ask("resume_plan"))["plan"]["status"] == "succeeded"


async def test_programs_see_what_they_are_told_and_no_secrets(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "do-not-tell")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("PLAIN", "fine")
    monkeypatch.delenv("GIT_DIR")
    done = await orchard.run("""
        name: Environment
        env: {WHO: plan, A: plan}
        jobs:
          - id: a
            env: {WHO: job}
            work: {command: "env | sort > env.txt; git rev-parse --show-toplevel >> env.txt", env: {WHO: work}}
    """)
    seen = orchard.repo.files("work")["env.txt"]
    assert "WHO=work" in seen
    assert "A=plan" in seen
    assert "PLAIN=fine" in seen
    assert "do-not-tell" not in seen
    assert f"ORCHARD_PLAN={done['plan']['id']}" in seen
    assert "ORCHARD_JOB=a" in seen
    assert f"ORCHARD_BASE={done['plan']['base']['commit']}" in seen


async def test_process_work_runs_without_a_shell(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Direct
        jobs: [{id: a, work: {type: process, executable: cp, args: [README.md, "copy $HOME.md"]}}]
    """)
    assert done["plan"]["status"] == "succeeded"
    assert "copy $HOME.md" in orchard.repo.files("work")


async def test_setup_runs_once_in_each_new_folder(orchard: Orchard, tmp_path: Path) -> None:
    (orchard.repo.path / ".gitignore").write_text(".env\nnode_modules/\n")
    orchard.repo.commit()
    (orchard.repo.path / ".env").write_text("KEY=1\n")
    (orchard.repo.path / ".worktreeinclude").write_text(".env\n")
    orchard.trust()
    done = await orchard.run(f"""
        name: Ready
        setup: ["pwd >> {tmp_path}/setups"]
        jobs: [{{id: a, work: cp .env seen.txt}}, {{id: b, setup: [], work: echo b > b.txt}}]
    """)
    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["seen.txt"] == "KEY=1\n"
    assert len((tmp_path / "setups").read_text().splitlines()) == 1


async def test_a_plan_under_way_can_be_reshaped(orchard: Orchard, tmp_path: Path) -> None:
    async def reshape(session: Session, plan: PlanId) -> None:
        await until((tmp_path / "began").exists)
        changes = [
            {"op": "remove", "id": "b"},
            {"op": "add", "job": {"id": "n", "needs": ["a"], "work": "cat a.txt > n.txt"}},
        ]
        await session.request("reshape_plan", plan=plan, changes=changes)
        (tmp_path / "go").touch()

    done = await orchard.run(
        f"""
        name: Reshape
        jobs:
          - id: a
            work: "touch {tmp_path}/began; while ! test -f {tmp_path}/go; do sleep 0.05; done; echo a > a.txt"
          - {{id: b, needs: [a], work: echo b > b.txt}}
        """,
        during=reshape,
    )
    assert done["plan"]["status"] == "succeeded"
    assert "n.txt" in orchard.repo.files("work")
    assert "b.txt" not in orchard.repo.files("work")


async def test_a_landing_is_intended_before_it_happens_and_carries_its_mark(orchard: Orchard) -> None:
    await orchard.run("name: Marked\njobs: [{id: a, work: echo a > a.txt}]")
    intent, landed = orchard.events(LandingIntended)[0], orchard.events(Landed)[0]
    assert (intent.landing, intent.new) == (landed.landing, landed.new)
    assert f"Orchard-Landing: {intent.landing}" in orchard.repo("log", "-1", "--format=%B", "work")


async def test_a_push_that_fails_is_reported_and_the_landing_stands(orchard: Orchard) -> None:
    done = await orchard.run("name: Push\npush: true\njobs: [{id: a, work: echo a > a.txt}]")
    assert (done["plan"]["status"], done["plan"]["landed"]) == ("succeeded", True)
    assert done["plan"]["pushed"]["ok"] is False
    assert done["plan"]["warnings"]


async def test_the_configuration_decides_about_a_push_where_the_plan_does_not(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_PUSH", "yes")
    silent = await orchard.run("name: Push\njobs: [{id: a, work: echo a > a.txt}]")
    against = await orchard.run("name: None\npush: false\njobs: [{id: b, work: echo b > b.txt}]")
    assert silent["plan"]["pushed"]["ok"] is False, "there is no remote to push to"
    assert against["plan"]["pushed"] is None


async def test_work_for_an_agent_that_nobody_knows_is_refused_before_anything_is_made(orchard: Orchard) -> None:
    with pytest.raises(
        UsageError, match=r"Job 'a' is work for an agent: There is no agent 'cluade', .*; did you mean 'claude'"
    ):
        await orchard.run("name: Agent\njobs: [{id: a, work: '@cluade write a poem'}]")
    assert orchard.app.plans() == []


async def test_no_more_jobs_run_at_once_than_the_plan_allows(orchard: Orchard, tmp_path: Path) -> None:
    script = f"echo + >> {tmp_path}/log; sleep 0.4; echo - >> {tmp_path}/log; echo $ORCHARD_JOB > $ORCHARD_JOB.txt"
    jobs = "\n".join(f'          - {{id: j{number}, work: "{script}"}}' for number in range(6))
    await orchard.run(f"""
        name: Two at once
        max_parallel: 2
        jobs:
{jobs}
    """)
    running = most = 0
    for line in (tmp_path / "log").read_text().split():
        running += 1 if line == "+" else -1
        most = max(most, running)
    assert most == 2


async def test_a_process_that_hides_every_trace_of_its_origin_does_not_outlive_the_engine(
    orchard: Orchard, tmp_path: Path
) -> None:
    hidden = tmp_path / "hidden"
    script = f"echo $$ > {hidden}; exec sleep 300"
    await orchard.run(f"""
        name: Hide
        jobs:
          - id: a
            work: |
              (env -i setsid sh -c 'cd /; {script}' > /dev/null 2>&1 < /dev/null &)
              while ! test -s {hidden}; do sleep 0.05; done
              echo a > a.txt
    """)
    assert not psutil.pid_exists(int(hidden.read_text()))
