"""What commands mean without a plan's name, and options that other surfaces have as arguments."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from orchard.__main__ import STAY_WITH_WORK
from orchard.app import open_app
from orchard.surfaces.cli.group import cli
from orchard.surfaces.next_steps import in_commands
from tests.acceptance.program import Desk, desks

DRAFT = """
name: {name}
target: {name}
deploy: {deploy}
jobs:
  - {{id: a, work: "echo a > {name}.txt"}}
"""
HELD = 'name: Held\nstart_paused: true\njobs: [{id: a, work: "echo a > a.txt"}]\n'


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def drafted(desk: Desk, name: str, *, deploy: str = "auto", scaffolding: bool = True) -> str:
    """A plan as a program hands it in."""

    async def ask() -> str:
        app = open_app(desk.repo.path, in_commands)
        plan = app.parse_plan(None, DRAFT.format(name=name, deploy=deploy).encode())
        async with app.session() as session:
            answer = await session.request("create_plan", plan=plan, scaffolding=scaffolding)
            return str(answer["plan"])

    return asyncio.run(ask())


def status(desk: Desk, plan: str) -> str:
    return str(desk("status", plan, "--json").json["plan"]["status"])


# ----------------------------------------------------------------------------- the plan that is meant


def test_finalize_without_a_name_means_the_only_plan_that_is_being_scaffolded(desk: Desk) -> None:
    none = desk("finalize")
    drafted(desk, "over", scaffolding=False)
    first, second = drafted(desk, "one"), drafted(desk, "two")
    several = desk("finalize")
    desk("finalize", first)

    only, left = desk("finalize"), desk("finalize")

    assert none.code == 3
    assert several.code == 2 and first in several.err and second in several.err
    assert only.code == 0 and status(desk, second) == "succeeded"
    assert left.code == 3 and "No plan here is being scaffolded" in left.err


def test_deploy_without_a_name_means_the_only_plan_whose_jobs_wait_for_it(desk: Desk) -> None:
    drafted(desk, "by-itself")
    plan = drafted(desk, "by-hand", deploy="manual", scaffolding=False)
    other = drafted(desk, "other", deploy="manual", scaffolding=False)
    several = desk("deploy")
    desk("delete", other, "--yes")

    only, left = desk("deploy"), desk("deploy")

    assert several.code == 2 and plan in several.err and other in several.err
    assert only.code == 0 and status(desk, plan) == "succeeded"
    assert left.code == 3 and "No plan here waits to be deployed" in left.err


# --------------------------------------------------------------------------------------------- options


def test_a_finalized_plan_waits_to_be_resumed_or_does_not_wait_as_the_option_says(desk: Desk) -> None:
    plan = drafted(desk, "waits")

    desk("finalize", plan, "--start-paused")

    assert status(desk, plan) == "paused"
    assert desk("resume", plan).code == 0


def test_a_plan_file_that_is_run_again_with_its_key_makes_no_second_plan(desk: Desk) -> None:
    file = desk.plan(HELD)

    first, again = (desk("run", file, "--idempotency-key", "k", "--json") for _ in range(2))
    other = desk("run", desk.plan(HELD.replace("Held", "Other")), "--idempotency-key", "k")
    odd = desk("run", file, "--idempotency-key", "k ")

    ids = [json.loads(one.out.splitlines()[-1])["plan"]["id"] for one in (first, again)]
    assert ids[0] == ids[1] and len(desk("list", "--json").json) == 1
    assert other.code == 2 and "in another way" in other.err
    assert odd.code == 2 and "another form" in odd.err


def test_problems_of_changes_stand_where_they_were_written(desk: Desk) -> None:
    plan = drafted(desk, "draft")
    changes = desk.plan('[{op: add, job: {id: b, wrk: "true"}}]', "changes.yaml")
    inside = desk.plan('changes: [{op: add, job: {id: b, wrk: "true"}}]', "inside.yaml")

    both = desk("reshape", plan, changes, "--remove", "zzz", "--set-needs", "yyy=a")
    named = desk("reshape", plan, inside)

    assert "[0].job.wrk: unknown field 'wrk'" in both.err and "changes[" not in both.err
    assert "--remove zzz: there is no job 'zzz'" in both.err and "--set-needs yyy=a: there is no job" in both.err
    assert "changes[0].job.wrk: unknown field 'wrk'" in named.err


def test_a_list_holds_only_plans_of_the_status_that_is_asked_for(desk: Desk) -> None:
    drafted(desk, "draft")
    desk("run", desk.plan(HELD), "-q")

    assert [one["name"] for one in desk("list", "--status", "paused", "--json").json] == ["Held"]
    assert desk("list", "--status", "succeeded", "--json").json == []


def test_phases_are_shown_in_plain_words_and_known_by_their_ids_as_well(desk: Desk) -> None:
    plan = {"name": "Clash", "jobs": [{"id": one, "work": f"echo {one} > same.txt"} for one in ("a", "b")]}
    ran = desk("run", desk.plan(json.dumps(plan)))
    job = "b" if "b  failed" in ran.out else "a"

    assert f"{job}  failed in merging" in ran.out and f"Job '{job}' failed in merging" in ran.out
    shown = desk("job", job).out
    assert "preparing   passed" in shown and "merging     failed" in shown and "merge-" not in shown
    assert desk("status", "--json").json["jobs"][{"a": 0, "b": 1}[job]]["failed_phase"] == "merge-ri"
    for words in ("merging", "merge-ri"):
        assert "--phase" not in desk("logs", job, "--phase", words).err
    refused = desk("logs", job, "--phase", "MERGE")
    assert refused.code == 2 and "'preparing', 'setup'" in refused.err


def test_every_verb_that_can_run_in_the_background_can_be_left_while_it_runs() -> None:
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    detach = {name for name, one in commands.items() if one and "--detach" in {w for p in one.params for w in p.opts}}

    assert detach <= STAY_WITH_WORK <= commands.keys()
    assert "run" in detach and "status" not in STAY_WITH_WORK
