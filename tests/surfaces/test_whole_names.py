"""Verbs that end, move or remove something: whole names only, a yes from a person, and never the wrong plan."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, desks, until

ONE = """
name: {name}
target: {target}
jobs:
  - {{id: a, work: "echo {name} > {target}.txt"}}
"""
HELD = """
name: {name}
start_paused: true
jobs:
  - {{id: api, work: "echo 1 > 1"}}
  - {{id: docs, group: back, work: "echo 2 > 2"}}
  - {{id: more, group: back/in, work: "echo 3 > 3"}}
"""
APPROVE = """
name: Look at it
target: result
jobs:
  - {id: bump, approve: true, work: "echo a > a.txt"}
"""
ASK = """
name: Ask first
target: main
land: ask
jobs:
  - {id: a, work: "echo a > a.txt"}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def ran(desk: Desk, text: str, *words: str) -> str:
    """The id of a plan that was run."""
    done = desk("run", desk.plan(text), "--json", *words)
    return str(done.json["plan"] if "--detach" in words else _last(done.out))


def _last(out: str) -> str:
    return str(json.loads(out.splitlines()[-1])["plan"]["id"])


def listed(desk: Desk, *words: str) -> list[str]:
    return [plan["id"] for plan in desk("list", "--json", *words).json]


SAME = """
name: validate
start_paused: true
jobs:
  - {id: verify, work: "echo 1 > 1"}
  - {id: back, work: "echo 2 > 2"}
  - {id: more, group: back, work: "echo 3 > 3"}
"""


def test_names_that_are_also_words_of_ours_mean_the_plan_and_its_jobs(desk: Desk) -> None:
    plan = ran(desk, SAME)

    def canceled() -> list[str]:
        jobs = desk("status", "validate", "--json").json["jobs"]
        return [one["id"] for one in jobs if one["status"] == "canceled"]

    assert desk("job", "verify", "--json").json["id"] == "verify"
    assert desk("job", "__snapshot-validation__", "--json").json["id"] == "__snapshot-validation__"
    assert desk("cancel", "back").code == 0 and canceled() == ["back"]
    assert desk("cancel", "back/", "--plan", plan).code == 0 and canceled() == ["back", "back/more"]
    assert desk("validate", desk.plan(SAME)).code == 0


# ---------------------------------------------------------------------------- the plan that is meant


def test_purge_without_a_name_means_the_plan_that_was_deleted_last(desk: Desk) -> None:
    first, second, third = (ran(desk, ONE.format(name=f"Plan {n}", target=f"t{n}")) for n in (1, 2, 3))
    desk("delete", third, "--yes")
    desk("delete", first, "--yes")

    one, two, none = (desk("purge", "--yes") for _ in range(3))

    assert one.code == two.code == 0 and first in one.out and third in two.out
    assert none.code == 3 and "No plan here is deleted" in none.err
    assert listed(desk, "--deleted") == [second]


def test_delete_without_a_name_means_the_only_plan_and_else_lists_them(desk: Desk) -> None:
    first, second = (ran(desk, ONE.format(name=f"Plan {n}", target=f"t{n}")) for n in (1, 2))

    several = desk("delete", "--yes")
    desk("delete", first, "--yes")
    only = desk("delete", "--yes")

    assert several.code == 2 and first in several.err and second in several.err
    assert only.code == 0 and second in only.out


def test_undo_without_a_name_means_the_last_landing_that_is_not_undone(desk: Desk) -> None:
    landed = ran(desk, ONE.format(name="Lands", target="goal"))
    ran(desk, ONE.format(name="Fails", target="other").replace("echo Fails", "exit 1; echo"))

    undone, nothing = desk("undo", "--yes"), desk("undo", "--yes")

    assert undone.code == 0 and not desk.repo.exists("refs/heads/goal"), undone.talk
    assert nothing.code == 3 and "No plan here has landed" in nothing.err
    assert landed in desk("undo", landed, "--json").out, "what is undone already is said again"


def test_undo_without_a_name_means_a_landing_again_where_that_came_last(desk: Desk) -> None:
    first, second = (ran(desk, ONE.format(name=name, target=name)) for name in ("one", "two"))
    assert desk("undo", first, "--yes").code == 0 and desk("land", first, "--yes").code == 0

    undone, then = desk("undo", "--yes"), desk("undo", "--yes", "--json")

    assert undone.code == 0 and not desk.repo.exists("refs/heads/one"), undone.talk
    assert then.code == 0 and second in then.out, then.talk


def test_undo_without_a_name_means_the_last_landing_also_where_its_plan_is_deleted(desk: Desk) -> None:
    first, last = (ran(desk, ONE.format(name=name, target=name)) for name in ("one", "two"))
    desk("delete", last, "--yes")

    undone, then = desk("undo", "--yes", "--json"), desk("undo", "--yes", "--json")

    assert undone.code == 0 and last in undone.out and not desk.repo.exists("refs/heads/two"), undone.talk
    assert then.code == 0 and first in then.out, then.talk


def test_undo_finds_that_nothing_landed_before_it_asks(desk: Desk) -> None:
    plan = ran(desk, ONE.format(name="Fails", target="other").replace("echo Fails", "exit 1; echo"))
    running, ours = desk.on_a_terminal("undo", plan)
    code = running.process.wait(60)
    shown = os.read(ours, 65536).decode()
    os.close(ours)

    assert code == 2 and "has not landed" in shown and "[y/N]" not in shown


def test_cancel_and_pause_without_a_name_mean_the_only_plan_under_way(desk: Desk) -> None:
    held = ran(desk, HELD.format(name="Held"), "--detach")
    ran(desk, ONE.format(name="Newer", target="t"))

    paused = desk("pause")
    canceled = desk("cancel")

    assert paused.code == 0 and held in paused.out, "to pause twice is to pause once"
    assert canceled.code == 0 and held in canceled.out
    assert desk.status(held)["plan"]["status"] == "canceled"


def test_with_several_plans_under_way_cancel_lists_them_and_cancels_none(desk: Desk) -> None:
    plans = [ran(desk, HELD.format(name=f"Held {n}"), "--detach") for n in (1, 2)]

    done = desk("cancel")

    assert done.code == 2 and all(plan in done.err for plan in plans)
    assert not desk.events("PlanCanceled")


@pytest.mark.parametrize("verb", ["cancel", "delete", "purge", "undo", "land"])
def test_the_beginning_of_an_id_is_not_enough_to_destroy(desk: Desk, verb: str) -> None:
    plan = ran(desk, ONE.format(name="Evidence", target="t"))
    before = desk.events()

    done = desk(verb, "evid", *([] if verb == "cancel" else ["--yes"]))

    assert done.code == 3 and plan in done.err, "the whole id is named"
    assert desk.events() == before


# ------------------------------------------------------------------------------- cancelling one job


def test_cancel_of_a_job_cancels_the_job_and_not_the_plan_with_a_name_like_it(desk: Desk) -> None:
    plan = ran(desk, HELD.format(name="API cleanup"), "--detach")

    done = desk("cancel", "api")

    assert done.code == 0 and "Job 'api' is canceled" in done.out and plan in done.out
    assert desk.jobs(plan)["api"] == "canceled" and desk.jobs(plan)["back/docs"] == "ready"


@pytest.mark.parametrize("words", [["PLAN:api"], ["api", "--plan", "PLAN"], ["API cleanup:api"]])
def test_a_job_is_canceled_by_each_way_to_name_it(desk: Desk, words: list[str]) -> None:
    plan = ran(desk, HELD.format(name="API cleanup"), "--detach")
    ran(desk, HELD.format(name="Another"), "--detach")

    done = desk("cancel", *(word.replace("PLAN", plan) for word in words))

    assert done.code == 0, done.talk
    assert desk.jobs(plan)["api"] == "canceled" and len(desk.events("JobCanceled")) == 1


def test_cancel_of_a_group_cancels_what_is_in_it(desk: Desk) -> None:
    plan = ran(desk, HELD.format(name="Grouped"), "--detach")

    assert desk("cancel", "back").code == 0
    assert desk.jobs(plan) == {"api": "ready", "back/docs": "canceled", "back/in/more": "canceled"}


def test_a_name_that_is_a_plan_and_a_job_cancels_neither_and_says_both_commands(desk: Desk) -> None:
    plan = ran(desk, HELD.format(name="api"), "--detach")

    done = desk("cancel", "api")

    assert done.code == 2
    assert f"orchard cancel {plan};" in done.err and f"orchard cancel {plan}:api" in done.err
    assert not desk.events("PlanCanceled") and not desk.events("JobCanceled")


def test_a_job_of_two_plans_under_way_is_canceled_in_neither(desk: Desk) -> None:
    plans = [ran(desk, HELD.format(name=f"Held {n}"), "--detach") for n in (1, 2)]

    done = desk("cancel", "api")

    assert done.code == 2 and all(f"orchard cancel {plan}:api" in done.err for plan in plans)
    assert not desk.events("JobCanceled")


def test_the_beginning_of_a_job_cancels_nothing(desk: Desk) -> None:
    ran(desk, HELD.format(name="Held"), "--detach")

    done, fail = desk("cancel", "ap"), desk("force-fail", "ap")

    assert (done.code, fail.code) == (3, 3)
    assert not desk.events("JobCanceled") and not desk.events("JobFailed")


@pytest.mark.parametrize(
    ("first", "words"),
    [("sleep 60", "goes on."), ("exit 1", "has failed."), ("true", "is canceled as well.")],
)
def test_who_cancels_a_job_is_told_what_the_plan_is_now(desk: Desk, first: str, words: str) -> None:
    work = f'jobs: [{{id: a, work: "{first}", expects_no_changes: true}}, {{id: b, work: "sleep 60"}}]'
    plan = ran(desk, f"name: Two\n{work}\n", "--detach")
    ends = {"sleep 60": "running", "exit 1": "failed", "true": "succeeded"}[first]
    until(lambda: desk.jobs(plan) == {"a": ends, "b": "running"}, "both jobs")

    done = desk("cancel", "b")

    assert done.code == 0 and f"Job 'b' is canceled; plan {plan} {words}" in done.out, done.talk
    desk("delete", plan, "--yes")


def test_who_cancels_a_job_of_a_paused_plan_is_told_that_it_is_paused(desk: Desk) -> None:
    plan = ran(desk, HELD.format(name="Held"), "--detach")

    done = desk("cancel", "api")

    assert f"Job 'api' is canceled; plan {plan} is paused." in done.out, done.talk


def test_of_a_plan_that_ended_because_its_jobs_were_canceled_nobody_says_that_the_plan_was(desk: Desk) -> None:
    plan = ran(desk, 'name: One\njobs: [{id: a, work: "sleep 60"}, {id: b, work: "sleep 60"}]\n', "--detach")
    until(lambda: desk.jobs(plan) == {"a": "running", "b": "running"}, "both jobs")

    desk("cancel", "a")
    desk("cancel", "b")
    shown = desk.status(plan)["plan"]

    assert shown["status"] == "canceled" and shown["error"] == "Its jobs a, b were canceled.", shown["error"]


# --------------------------------------------------------------------------------- a yes is needed


def test_without_a_terminal_a_gate_opens_only_with_a_yes(desk: Desk) -> None:
    plan = ran(desk, APPROVE)

    refused = desk("approve", "bump")
    held = desk.status(plan)["plan"]["waiting"]
    named = refused.err.split("hint: orchard ")[1].split()
    done = desk(*named)

    assert refused.code == 4 and f"orchard approve {plan}:bump --yes" in refused.err
    assert held and done.code == 0 and desk.status(plan)["plan"]["landed"], done.talk


@pytest.mark.parametrize("verb", ["land", "undo", "delete", "purge"])
def test_without_a_terminal_nothing_is_landed_or_removed_without_a_yes(desk: Desk, verb: str) -> None:
    plan = ran(desk, ASK if verb == "land" else ONE.format(name="Done", target="goal"))
    before = desk.fingerprint()

    refused = desk(verb, plan)
    after = desk.fingerprint()
    done = desk(*refused.err.split("hint: orchard ")[1].split())

    assert refused.code == 4 and f"orchard {verb} {plan} --yes" in refused.err
    assert after == before
    assert done.code == 0, done.talk


def test_an_undone_plan_lands_again_only_where_it_is_named_and_a_waiting_one_comes_first(desk: Desk) -> None:
    plan = ran(desk, ONE.format(name="Undone", target="goal"))
    undone = desk("undo", "--yes")

    alone = desk("land", "--yes")
    waiting = ran(desk, ASK)
    landed = desk("land", "--yes")
    again = desk("land", plan, "--yes")

    assert f"Undid plan 'Undone' ({plan})" in undone.out and f"next: orchard land {plan}" in undone.out
    assert alone.code == 3 and f"Plan '{plan}' was undone" in alone.err and f"orchard land {plan}" in alone.err
    assert landed.code == 0 and f"({waiting})" in landed.err and plan not in landed.talk, landed.talk
    assert again.code == 0 and f"Landing plan 'Undone' ({plan}) on 'goal'." in again.err, again.talk


def test_land_asks_on_a_terminal_and_takes_no_for_an_answer(desk: Desk) -> None:
    plan = ran(desk, ASK)
    running, ours = desk.on_a_terminal("land")
    shown = ""
    while "[y/N]" not in shown:
        shown += os.read(ours, 65536).decode()
    os.write(ours, b"n\n")
    code = running.process.wait(60)
    os.close(ours)

    assert code == 4 and plan in shown and "'main'" in shown
    assert not desk.events("Landed")


def test_a_plan_that_is_over_cannot_be_resumed(desk: Desk) -> None:
    plan = ran(desk, ONE.format(name="Fails", target="other").replace("echo Fails", "exit 1; echo"))

    bare, named = desk("resume"), desk("resume", plan)

    assert bare.code == 3 and "No plan here is paused or interrupted" in bare.err
    assert named.code == 2 and "cannot be resumed" in named.err and f"orchard retry --plan {plan}" in named.err


def test_resume_without_a_name_means_the_only_plan_also_while_its_engine_is_about_to_end(desk: Desk) -> None:
    stubborn = "trap '' TERM; touch {}; while :; do sleep 0.1; done"
    begun = desk.folder / "gates" / "begun"
    begun.parent.mkdir()
    desk.open_to_jobs(begun.parent)
    text = ONE.format(name="Stubborn", target="t").replace('"echo Stubborn > t.txt"', f'"{stubborn.format(begun)}"')
    desk.env["ORCHARD_LIMITS_GRACE"] = "2"
    plan = ran(desk, text, "--detach")
    until(begun.exists)

    os.kill(json.loads((desk.state / "daemon.json").read_text())["pid"], signal.SIGTERM)
    done = desk("resume")

    assert done.code == 1 and f"orchard retry --plan {plan}" in done.out, done.talk
    assert "because the engine was stopped while it ran" in done.out


def test_resume_without_a_name_prefers_a_plan_that_is_paused_to_one_that_runs(desk: Desk) -> None:
    paused = ran(desk, HELD.format(name="Held"), "--detach")
    gate = desk.folder / "gates" / "open"
    gate.parent.mkdir()
    desk.open_to_jobs(gate.parent)
    waits = f"until [ -e {gate} ]; do sleep 0.1; done; echo Runs"
    running = ran(desk, ONE.format(name="Runs", target="t").replace("echo Runs", waits), "--detach")

    done = desk("resume", "--detach", "--json")
    gate.touch()

    assert done.code == 0 and done.json["plan"] == paused != running, done.talk
    assert desk("wait", paused).code == 0 and desk("wait", running).code == 0


def test_retry_without_a_name_means_the_newest_plan_or_the_only_one_with_something_to_retry(desk: Desk) -> None:
    failed = ran(desk, ONE.format(name="Fails", target="other").replace("echo Fails", "exit 1; echo"))
    ran(desk, ONE.format(name="Newer", target="t"))

    assert desk("retry").code == 1
    assert desk.status(failed)["jobs"][0]["attempts"] == 2


def test_a_deleted_plan_is_named_with_the_command_that_purges_it(desk: Desk) -> None:
    plan = ran(desk, ONE.format(name="Done", target="goal"))

    assert f"orchard purge {plan}" in desk("delete", "--yes").out


@pytest.mark.parametrize(("wrong", "meant"), [("apj", "api"), ("mroe", "more"), ("bakc", "back"), ("back/mor", "")])
def test_cancel_of_a_name_that_nothing_has_tells_the_nearest_job_or_group(desk: Desk, wrong: str, meant: str) -> None:
    desk("run", desk.plan(HELD.format(name="Held")), "--detach")

    done = desk("cancel", wrong)

    assert done.code != 0 and f"There is no plan or job '{wrong}' under way" in done.talk, done.talk
    assert not meant or f"did you mean '{meant}'?" in done.talk
    assert desk.status()["plan"]["status"] == "paused"


def test_delete_tells_which_folders_stay_and_purge_what_to_do_about_them(desk: Desk) -> None:
    work = "git init -q nested && cd nested && git -c user.name=n -c user.email=e@e commit -q --allow-empty -m n; false"
    plan = ran(desk, f"name: Nested\ntarget: result\njobs:\n  - {{id: a, work: '{work}'}}\n")

    deleted = desk("delete", plan, "--yes")
    (folder,) = desk("delete", plan, "--yes", "--json").json["kept_folders"]
    refused = desk("purge", plan, "--yes")

    assert f"The work in {folder} cannot be saved: there are other git repositories in it" in deleted.talk, deleted.talk
    assert "orchard purge" not in deleted.talk and f"next: orchard delete {plan}" in deleted.talk
    assert refused.code != 0 and f"keep out of {folder}" in refused.talk and "purge again" in refused.talk, refused.talk
    assert f"The work in {folder} cannot be saved" in desk("status", plan).talk
    shutil.rmtree(Path(folder) / "nested")
    assert f"next: orchard purge {plan}" in desk("delete", plan, "--yes").talk
    assert desk("purge", plan, "--yes").code == 0
