"""Names that are shown are accepted, what failed is said, and what is advised can be done."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, desks, until

VERIFY = """
name: Verified
verify: grep -x good a.txt
target: goal
jobs:
  - {id: a, heal: false, work: "echo bad > a.txt"}
"""
FAILS = """
name: Fails
target: goal
jobs:
  - {id: a, heal: false, work: "echo why; exit 7"}
"""
GOOD = """
name: Good
target: goal
jobs:
  - {id: a, work: "echo a > a.txt"}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def as_json(desk: Desk, *words: str) -> object:
    return json.loads(desk(*words, "--json").out)


# ------------------------------------------------------------------------------------- conflicts


def follow(desk: Desk, commands: str) -> None:
    """Do what a hint says, as a shell would."""
    for command in commands.partition("#")[0].split("&&"):
        orchard, *words = command.split()
        assert orchard == "orchard"
        assert desk(*words).code == 0, command


def test_of_two_jobs_in_conflict_the_hint_names_both_and_works_when_copied(desk: Desk) -> None:
    jobs = '[{id: a, work: "echo a > a.txt"}, {id: b, work: "sleep 1; echo b > a.txt"}]'
    done = desk("run", desk.plan(f"name: Meet\ntarget: goal\nresolver: fail\njobs: {jobs}\n"))

    status = desk.status()
    assert "Job 'b' and job 'a' conflict in a.txt" in done.out
    assert "In a new plan, let one job need the other." in status["jobs"][1]["hint"]
    plan = status["plan"]["id"]
    assert status["plan"]["hint"] == f"orchard resolve b --plan {plan}"
    steps = [f"orchard reshape {plan} --resolver theirs", f"orchard retry --plan {plan}"]
    assert all(f"'{step}'" in status["jobs"][1]["hint"] for step in steps)
    follow(desk, " && ".join(steps))
    assert desk.status()["plan"]["landed"] is True
    assert desk.repo("show", "goal:a.txt") == "b\n"


def test_of_a_job_in_conflict_with_the_target_nobody_says_that_jobs_or_verify_were_at_fault(desk: Desk) -> None:
    desk.repo("branch", "goal")
    moves = f"git -C '{desk.repo.path}' worktree add -q ../goal goal; cd '{desk.repo.path}/../goal'; echo t > a.txt; "
    work = f"echo a > a.txt; ({moves} git add a.txt; git commit -qm t)"
    done = desk("run", desk.plan(f'name: Meet\ntarget: goal\nresolver: fail\njobs: [{{id: a, work: "{work}"}}]\n'))

    status = desk.status()
    assert "merging onto the target failed: Job 'a' and the target branch 'goal' conflict in a.txt" in done.out
    assert "verify" not in done.out and "need the other" not in done.out
    plan = status["plan"]["id"]
    assert status["plan"]["hint"] == f"orchard resolve --plan {plan}"
    follow(desk, f"orchard reshape {plan} --resolver ours && orchard retry --plan {plan}")
    shown = desk("status").out
    assert "nothing to land: what the jobs changed was dropped where conflicts were resolved" in shown


@pytest.mark.parametrize(
    ("work", "why"),
    [
        ("true", "the jobs changed nothing"),
        ("echo a > a.txt", "the branch already holds the result of the jobs' changes"),
    ],
)
def test_that_there_was_nothing_to_land_is_said_with_the_reason_that_is_true(desk: Desk, work: str, why: str) -> None:
    moves = f"git -C '{desk.repo.path}' worktree add -q ../goal goal; cd '{desk.repo.path}/../goal'; echo a > a.txt; "
    no_file = ", expects_no_changes: true" if work == "true" else ""
    jobs = f'[{{id: a, work: "{work}; ({moves} git add a.txt; git commit -qm t)"{no_file}}}]'
    desk.repo("branch", "goal")

    done = desk("run", desk.plan(f"name: Same\ntarget: goal\njobs: {jobs}\n"))

    assert done.code == 0 and f"nothing to land: {why}" in done.out, done.talk
    assert f"nothing to land: {why}" in desk("status").out
    assert f"{why}: there is nothing to land" in desk("attempts", "validation", "--json").out


# ------------------------------------------------------------------------------ the validation job


@pytest.mark.parametrize("name", ["verify", "validation", "(validation)", "__snapshot-validation__"])
def test_the_validation_job_answers_to_every_name_by_which_it_is_shown(desk: Desk, name: str) -> None:
    desk("run", desk.plan(VERIFY))

    shown = [desk(verb, name) for verb in ("logs", "job", "attempts")]
    retried = desk("retry", name)

    assert [done.code for done in shown] == [0, 0, 0]
    assert retried.code == 1 and "exited with 1" in retried.out


def test_a_job_that_is_called_verify_is_meant_before_the_validation_job(desk: Desk) -> None:
    desk("run", desk.plan(GOOD.replace("id: a", "id: verify")))

    assert desk("job", "verify", "--json").json["validation"] is False
    assert desk("job", "validation", "--json").json["validation"] is True


def test_a_failed_verify_is_told_by_the_word_that_the_user_wrote(desk: Desk) -> None:
    done = desk("run", desk.plan(VERIFY))

    assert "verify failed: 'grep -x good a.txt' exited with 1." in done.out
    assert "__" not in done.out
    assert desk.status()["plan"]["error"].startswith("verify failed: 'grep -x good a.txt'")


def test_a_retry_says_in_which_worktree_it_begins(desk: Desk) -> None:
    work = "jobs: [{id: a, heal: false, work: 'echo line >> a.txt; grep -q mine mine.txt'}]"
    assert desk("run", desk.plan(f"name: Again\n{work}\n")).code == 1
    plan = desk.status()["plan"]["id"]

    clean = desk("retry")
    Path(desk("path", "a").out.strip(), "mine.txt").write_text("mine\n")
    edited = desk("retry", "--detach")
    desk("wait", plan)

    saved = f"anything attempt 1 left is saved, except ignored files: orchard recover --plan {plan}"
    assert f"Job 'a' begins clean; {saved}" in clean.err
    assert "Job 'a' goes on with what you edited; --fresh begins clean." in edited.err
    assert desk("recover", "--plan", plan).out.count("refs/orchard/wip/") == 1


def test_a_retry_says_where_it_saved_what_was_edited_after_a_failed_verify_if_the_target_moved(desk: Desk) -> None:
    desk.repo("branch", "goal")
    desk("run", desk.plan(VERIFY))
    folder = Path(desk("job", "verify", "--json").json["worktree"])
    (folder / "a.txt").write_text("good\n")
    moved = desk.repo("commit-tree", "goal^{tree}", "-p", "goal", "-m", "moved").strip()
    desk.repo("update-ref", "refs/heads/goal", moved)

    done = desk("retry")
    command = done.out.split("orchard recover ")[1].split()[0]
    restored = desk("recover", command, desk.folder / "restored")

    assert done.code == 1 and restored.code == 0, done.talk
    assert (desk.folder / "restored" / "a.txt").read_text() == "good\n"


def test_a_result_that_verify_refused_is_put_right_by_a_job_that_is_added_as_the_guide_says(desk: Desk) -> None:
    plan = str(desk("run", desk.plan(VERIFY), "-q").out.strip())
    mend = '[{op: add, job: {id: mend, needs: [a], work: "echo good > a.txt"}}]'

    refused = desk("retry", "a", "--work", "echo good > a.txt")
    added = desk("reshape", plan, desk.plan(mend, "changes.yaml"))
    retried = desk("retry")

    assert refused.code == 2 and "only a failed or canceled job can be retried" in refused.err
    assert added.code == retried.code == 0 and desk.status()["plan"]["landed"] is True, retried.talk


@pytest.mark.parametrize("words", [[], ["--detach"]])
def test_a_retry_that_ends_a_pause_says_so(desk: Desk, words: list[str]) -> None:
    plan = desk("run", desk.plan(GOOD.replace("name: Good", "name: Held\nstart_paused: true")), "-q").out.strip()
    desk("cancel", f"{plan}:a")

    done = desk("retry", "a", *words)
    again = desk("retry", "a")

    assert done.code == 0 and f"Plan {plan} was paused; it goes on now." in done.err, done.talk
    assert "was paused" not in again.talk


# ------------------------------------------------------------------------------------- --quiet


@pytest.mark.parametrize("verb", ["run", "retry"])
def test_quiet_prints_the_plan_and_says_on_stderr_why_it_failed(desk: Desk, verb: str) -> None:
    if verb == "retry":
        desk("run", desk.plan(FAILS))
    words = [desk.plan(FAILS)] if verb == "run" else []

    done = desk(verb, *words, "-q")
    plan = desk.status()["plan"]["id"]

    assert done.code == 1 and done.out == f"{plan}\n"
    assert "Job 'a' failed in work: " in done.err and "exited with 7" in done.err
    assert f"orchard retry --plan {plan}" in done.err and plan in done.err


def test_quiet_in_the_background_prints_the_plan_and_nothing_else(desk: Desk) -> None:
    done = desk("run", desk.plan(GOOD), "--detach", "-q")

    assert done.code == 0 and done.err == ""
    assert done.out == f"{desk.status()['plan']['id']}\n"
    desk("wait")


def test_quiet_success_prints_the_plan_only(desk: Desk) -> None:
    done = desk("run", desk.plan(GOOD), "-q")

    assert (done.code, done.out, done.err) == (0, f"{desk.status()['plan']['id']}\n", "")


def test_what_is_in_the_way_of_a_landing_is_a_sentence_and_said_once_in_the_status(desk: Desk) -> None:
    (desk.repo.path / "README.md").write_text("edited\n")
    desk("run", desk.plan(GOOD.replace("target: goal", "target: main").replace("a.txt", "README.md")))

    shown = desk("status").out

    assert shown.count("overwritten: README.md. Move") == 1 and shown.count("overwritten") == 1, shown


def test_an_undo_of_a_branch_that_went_on_names_the_revert_that_works(desk: Desk) -> None:
    desk("run", desk.plan(GOOD.replace("target: goal", "target: main")))
    desk.repo.commit({"later.txt": "later\n"})

    done = desk("undo", "--yes")
    desk(*done.err.split("orchard ")[1].split(), "--yes")

    assert done.code == 4
    assert set(desk.repo.files("main")) == {"README.md", "later.txt"}


# ------------------------------------------------------------------------------------- places


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("where", [".", "inside"])
def test_the_setting_that_trusts_a_folder_of_another_user_works_as_it_is_printed(desk: Desk, where: str) -> None:
    (desk.repo.path / "inside").mkdir()
    os.chown(desk.repo.path, 1234, -1)
    os.chown(desk.repo.path / ".git", 1234, -1)
    settings = desk.folder / "gitconfig"
    refused = desk("list", cwd=desk.repo.path / where, GIT_CONFIG_GLOBAL=str(settings))
    value = refused.err.split("safe.directory ")[1].split()[0]
    settings.write_text(f"[safe]\n\tdirectory = {value}\n")

    assert refused.code == 2 and str(desk.repo.path) in refused.err
    assert desk("list", cwd=desk.repo.path / where, GIT_CONFIG_GLOBAL=str(settings)).code == 0


def test_a_folder_that_is_in_no_repository_is_named_in_full(desk: Desk) -> None:
    outside = desk.folder / "outside"
    outside.mkdir()

    assert f"error: {outside} is not in a git repository." in desk("list", cwd=outside).err


# ---------------------------------------------------------------------------------- small words


def test_as_many_plans_are_named_as_are_counted(desk: Desk) -> None:
    plans = [desk("run", desk.plan(GOOD), "--start-paused", "--detach", "-q").out.strip() for _ in range(6)]

    done = desk("status", "Good")

    assert "could be any of 6 plans" in done.err and all(plan in done.err for plan in plans)


def test_what_a_job_may_not_change_is_shown_in_full_and_in_lower_case(desk: Desk) -> None:
    desk("run", desk.plan(GOOD.replace('"echo a > a.txt"', '"true", expects_no_changes: true')))

    shown = desk("job", "a").out

    assert "forbidden" in shown and "True" not in shown and "~" not in shown


def test_logs_of_a_job_that_has_not_begun_say_so(desk: Desk) -> None:
    desk("run", desk.plan(FAILS.replace('exit 7"}', 'exit 7"}\n  - {id: b, needs: [a], work: "true"}')))

    assert "Job 'b' has not begun; it is blocked." in desk("logs", "b").err


def test_a_plan_that_was_reshaped_after_it_failed_was_not_interrupted(desk: Desk) -> None:
    desk("run", desk.plan(FAILS))
    plan = desk.status()["plan"]["id"]
    desk("reshape", plan, "-", stdin=b'[{"op": "add", "job": {"id": "b", "work": "echo b > b"}}]')

    shown = desk("status")

    assert "interrupted" not in shown.out and f"orchard resume {plan}" in shown.out


def test_waiting_names_plans_that_are_paused_or_whose_engine_is_gone(desk: Desk) -> None:
    paused = desk("run", desk.plan(GOOD), "--start-paused", "-q").out.strip()
    running = desk.start("run", desk.plan(GOOD.replace("echo a >", "touch on; sleep 50; echo a >"), "slow.yaml"))
    until(lambda: desk.events("ProgramStarted"))
    running.process.kill()
    running.process.wait(60)

    done = desk("waiting")

    assert done.code == 4
    assert f"orchard resume {paused}" in done.out and "interrupted" in done.out
    assert done.out.count("next: orchard resume ") == 2
    desk("resume", paused)


def test_a_file_that_was_renamed_is_counted_once(desk: Desk) -> None:
    desk.repo.commit({"old.txt": "".join(f"line {n}\n" for n in range(50))})

    done = desk("run", desk.plan(GOOD.replace("echo a > a.txt", "git mv old.txt new.txt")))

    assert "1 commit, 1 file" in done.out, done.out


def test_the_hint_about_earlier_attempts_names_a_plan_that_is_not_the_newest(desk: Desk) -> None:
    first = desk("run", desk.plan(FAILS), "-q").out.strip()
    desk("retry", "a")
    desk("run", desk.plan(GOOD.replace("id: a", "id: b"), "other.yaml"))

    shown = desk("job", "a", "--plan", first).out
    words = shown.split("1 earlier attempt: orchard ")[1].splitlines()[0].split()

    assert desk(*words).code == 0


def test_a_push_that_failed_is_warned_about_once(desk: Desk) -> None:
    desk.repo("remote", "add", "origin", str(desk.folder / "nowhere"))

    done = desk("run", desk.plan(GOOD.replace("target: goal", "target: goal\npush: true")))
    status = desk("status")

    before, after = done.out.split("Succeeded")
    assert [said.count("ush of 'goal' failed") for said in (before, after, status.out)] == [1, 1, 1], done.out
    assert "push failed" not in done.out + status.out


def test_the_doctor_finds_a_signing_program_that_would_fail_and_a_missing_name(desk: Desk) -> None:
    for name in ("user.name", "user.email"):
        desk.repo("config", name, "")
    desk.repo("config", "commit.gpgSign", "true")
    desk.repo("config", "gpg.program", "/bin/false")
    before = desk.git_bytes()

    done = desk("doctor")

    assert done.code != 0 and "could not be signed" in done.out and "Git does not know who you are" in done.out
    assert desk.git_bytes() == before, "looking changes nothing"


def test_the_doctor_sees_that_signing_works(desk: Desk) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no program to sign with")
    import subprocess

    key = desk.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    for name, value in {"gpg.format": "ssh", "user.signingKey": str(key), "commit.gpgSign": "true"}.items():
        desk.repo("config", name, value)
    before = desk.git_bytes()

    done = desk("doctor")

    assert "could not be signed" not in done.out, done.out
    assert desk.git_bytes() == before
