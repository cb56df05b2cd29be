"""`orchard events`: the journal as lines or JSON, in pages or followed, and the same in the API and as a tool."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchard.app import open_app
from orchard.model.events.plans import decode
from orchard.surfaces.cli.commands.plans.views import _short, _show_after
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands
from tests.acceptance.program import Desk, desks
from tests.core.test_journal_fixture import plans as fixture_plans
from tests.mcp.toolbench import bench

PLAN = "name: Told\ntarget: goal\njobs:\n  - {id: one, env: {API_TOKEN: s3cr3t-s3cr3t}, work: 'echo 1 > one.txt'}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    for made in desks(tmp_path):
        assert made("run", made.plan(PLAN)).code == 0
        yield made


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_journal_is_shown_a_line_an_event_and_as_objects(desk: Desk) -> None:
    lines = desk("events").out.splitlines()
    found = rows(desk("events", "--json").out)

    assert [int(line.split()[0]) for line in lines] == [one["seq"] for one in found] == list(range(1, len(found) + 1))
    assert found[0]["type"] == "PlanSubmitted" and found[-1]["type"] == "JobSucceeded"
    assert "JobSucceeded" in lines[-1] and "s3cr3t" not in desk("events", "--json").out


def test_a_page_begins_where_it_is_told_and_is_as_long_as_it_is_told(desk: Desk) -> None:
    found = rows(desk("events", "--json", "--since", "3", "--limit", "2").out)

    assert [one["seq"] for one in found] == [4, 5]
    assert desk("events", "--limit", "0").code == 2
    nobody = desk("events", "nope")
    assert nobody.code == 3 and "no plan 'nope'" in nobody.talk


def test_who_follows_sees_everything_and_is_told_when_nothing_more_can_happen(desk: Desk) -> None:
    slow = desk.plan(PLAN.replace("Told", "Slow").replace("echo 1", "sleep 1; echo 2"), "slow.yaml")
    assert desk("run", "--detach", slow).code == 0
    done = desk("events", "--follow", "--json")

    found = rows(done.out)
    assert [one["seq"] for one in found] == [one["seq"] for one in rows(desk("events", "--json").out)]
    assert "nothing more happens" in done.talk


@pytest.mark.anyio
async def test_a_tool_reads_the_journal_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with bench(tmp_path / "repo") as tools:
        made = await tools("create_plan", name="Told", jobs=[{"id": "one", "work": "echo 1 > one.txt"}])
        await tools("wait_plan", plan=made["plan"], until="end", timeout_s=30)
        first = await tools("list_events", plan=made["plan"], limit=2)
        rest = await tools("list_events", since=first["next"])

    assert [one["type"] for one in first["events"]] == ["PlanSubmitted", "PlanStarted"]
    assert rest["events"][0]["seq"] == first["events"][-1]["seq"] + 1 and rest["next"] == rest["events"][-1]["seq"]


def test_what_cannot_be_is_refused(desk: Desk) -> None:
    late, huge = desk("events", "--since", "9999"), desk("events", "--since", str(2**63))
    both = desk("events", "-f", "--limit", "2")

    assert late.code == 2 and "no event 9999 yet" in late.talk
    assert huge.code == 2 and "bug" not in huge.talk
    assert both.code == 2 and "exclude each other" in both.talk


def test_a_line_holds_json_and_no_python(desk: Desk) -> None:
    shown = desk("events").out

    assert "False" not in shown and "True" not in shown and "{'" not in shown and "['" not in shown


def test_what_comes_while_the_journal_is_read_is_shown_once(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_app(desk.repo.path, in_commands)
    seen = _show_after(Terminal(json=True), app, None, 0)
    again = _show_after(Terminal(json=True), app, None, seen)

    assert again == seen == app.reader.last_seq()
    assert [one["seq"] for one in rows(capsys.readouterr().out)] == list(range(1, seen + 1))


@pytest.mark.parametrize("plan", fixture_plans(), ids=lambda plan: str(plan["events"][0][0]))
def test_every_event_that_there_is_can_be_shown_as_a_line(plan: dict[str, Any]) -> None:
    for seq, (plan_id, at, name, body) in enumerate(plan["events"], 1):
        event = decode(name, body)
        for field in event.__struct_fields__:
            assert isinstance(_short(getattr(event, field)), str), (seq, plan_id, at)
