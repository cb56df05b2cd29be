"""The wall around a plan is the one that its creator asks for, whoever started the engine that runs it."""

import asyncio
import json
from pathlib import Path

import psutil
import pytest

from orchard.app import open_app
from orchard.engine.server.address import read_address
from orchard.engine.server.server import Caller, connect
from orchard.engine.server.session import ASKS, Session
from orchard.engine.server.start import OwnEngine
from orchard.engine.turns.job_tokens import Scope
from orchard.errors import UsageError
from orchard.model.events.plans import PlanSubmitted, SandboxAsked, SandboxSet
from orchard.model.plan import JobId, PlanId
from orchard.model.plan_codec import plan_json
from orchard.process.sandbox.level import walls
from orchard.surfaces.cli.render.event_lines import event_lines
from orchard.surfaces.mcp_channel import teach
from orchard.surfaces.next_steps import in_commands
from tests.acceptance.program import Desk, until
from tests.engine.conftest import Orchard
from tests.http.daemon import served
from tests.mcp.wires import HELLO, daemon_pid, talk

pytestmark = pytest.mark.anyio

LEVELS = [finding.level for finding in walls().findings if finding.works]
WALL = LEVELS[0]
WORKS = "name: n\njobs:\n  - {id: a, work: touch a}\n"
FAILS = "name: f\njobs:\n  - {id: a, heal: false, work: 'false'}\n"
PAUSED = "name: p\nstart_paused: true\njobs:\n  - {id: a, work: touch p}\n"


async def create(session: Session, orchard: Orchard, text: str) -> str:
    asked = orchard.app.parse_plan(None, text.encode())
    return str((await session.request("create_plan", plan=asked))["plan"])


async def end(session: Session, plan: str) -> None:
    async for _ in session.follow(PlanId(plan)):
        pass


def wall(orchard: Orchard, plan: str) -> str:
    return str(orchard.status(plan)["plan"]["sandbox"])


@pytest.mark.parametrize(("first", "second"), [("off", None), (None, "off"), ("off", "landlock")])
async def test_each_client_of_an_engine_gets_the_wall_that_it_asks_for(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, first: str | None, second: str | None
) -> None:
    def ask_for(level: str | None) -> None:
        monkeypatch.setenv("ORCHARD_SANDBOX", level or "")

    named = {None: WALL, "off": "off", "landlock": "landlock"}
    ask_for(first)
    async with asyncio.timeout(60), orchard.app.session() as owner:
        ask_for(second)
        async with orchard.app.session() as joined:
            assert owner.owns_engine and not joined.owns_engine
            theirs = await create(joined, orchard, WORKS)
            ours = await create(owner, orchard, WORKS)
            await end(joined, theirs)
            await end(owner, ours)

    assert (wall(orchard, ours), wall(orchard, theirs)) == (named[first], named[second])


async def test_who_resumes_or_retries_a_plan_asks_anew_and_the_change_is_told(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "off")
    async with asyncio.timeout(60), orchard.app.session() as owner:
        failed = await create(owner, orchard, FAILS)
        await end(owner, failed)
        assert wall(orchard, failed) == "off"
        monkeypatch.delenv("ORCHARD_SANDBOX")
        async with orchard.app.session() as joined:
            await joined.request("retry_plan", plan=failed)
            await end(joined, failed)
            assert wall(orchard, failed) == WALL, "nobody inherits another's off"
            paused = await create(joined, orchard, PAUSED)
        await owner.request("resume_plan", plan=paused)
        await end(owner, paused)

    assert wall(orchard, paused) == "off" and orchard.events(SandboxAsked, paused) == [SandboxAsked("off")]
    assert orchard.events(SandboxAsked, failed) == [SandboxAsked("auto")]
    assert [one.sandbox for one in orchard.events(SandboxSet, failed)] == [WALL]
    app = orchard.app
    (told,) = (one for one in app.reader.events(PlanId(paused)) if isinstance(one.event, SandboxAsked))
    (line,) = event_lines(app.run_of(PlanId(paused)), told)
    assert ("sandbox off", "bad") in line


async def test_a_plan_that_a_new_engine_takes_up_never_loses_its_wall_and_gets_the_stricter_one(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ORCHARD_SANDBOX")
    async with asyncio.timeout(60), orchard.app.session() as session:
        walled = await create(session, orchard, PAUSED)
    monkeypatch.setenv("ORCHARD_SANDBOX", "off")
    async with asyncio.timeout(60), orchard.app.session() as session:
        bare = await create(session, orchard, PAUSED.replace("touch p", "touch q"))
    assert not orchard.events(SandboxAsked, walled), "an engine that was started with off changes no other plan"

    monkeypatch.delenv("ORCHARD_SANDBOX")
    async with asyncio.timeout(60), orchard.app.session():
        pass

    assert orchard.events(SandboxAsked, bare) == [SandboxAsked("auto")]


async def test_a_request_that_names_no_wall_gets_one_although_the_engine_was_started_without(orchard: Orchard) -> None:
    """Such as one of an older Orchard; and what is no level is refused."""
    app = orchard.app
    asked = {"plan": plan_json(app.parse_plan(None, WORKS.encode()))}
    async with asyncio.timeout(60), app.session() as owner:
        address = read_address(app.repo.state)
        assert owner.owns_engine and address is not None
        line = await connect(address)
        plan = (await line.request("create_plan", asked))["plan"]
        with pytest.raises(UsageError, match="one of its levels"):
            await line.request("create_plan", asked, "none")  # type: ignore[arg-type]
        line.close()
        await end(owner, plan)

    assert wall(orchard, plan) == WALL


async def test_an_agent_that_speaks_at_the_door_cannot_ask_for_a_wall(orchard: Orchard) -> None:
    """Requests that are made for it say nothing about the wall; whatever they made would have one."""
    async with asyncio.timeout(60), orchard.app.session() as owner:
        before = ASKS.set(None)
        plan = await create(owner, orchard, WORKS)
        ASKS.reset(before)
        await end(owner, plan)

    assert orchard.events(PlanSubmitted, plan)[0].sandbox == "auto" and wall(orchard, plan) == WALL


async def test_who_shows_the_pass_of_a_job_asks_for_nothing_whatever_it_says(orchard: Orchard) -> None:
    heard: list[object] = []

    async def note(session: Session, caller: Caller) -> None:
        heard.append(ASKS.get("unset"))

    app = orchard.app
    app.channels["note"] = note
    asks = {"op": "channel", "name": "note", "args": {"variables": {"ORCHARD_SANDBOX": "off"}}}
    async with asyncio.timeout(60), app.session(work=False) as owner:
        assert isinstance(owner.link, OwnEngine)
        address = read_address(app.repo.state)
        assert address is not None
        with owner.link.engine.job_tokens.issued(Scope(PlanId("p"), JobId("j"), 1)) as secret:
            for shown in ({"pass": secret}, {"nonce": address.nonce}):
                reader, writer = await asyncio.open_unix_connection(address.socket)
                writer.write(f"{json.dumps(shown)}\n{json.dumps(asks)}\n".encode())
                await reader.read()
                writer.close()

    assert heard == [None, "off"]


def test_a_host_of_mcp_gets_the_wall_that_its_own_variables_ask_for(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    try:
        made = {}
        for level in ("off", ""):
            with talk(desk, ORCHARD_SANDBOX=level) as host:
                host.send(id=1, method="initialize", params=HELLO)
                host.result(1)
                host.send(method="notifications/initialized")
                plan = {"name": f"n{level}", "jobs": [{"id": "a", "work": f"touch a{level}"}]}
                host.send(id=2, method="tools/call", params={"name": "create_plan", "arguments": plan})
                made[level] = host.result(2)["structuredContent"]["plan"]
        pid = daemon_pid(desk)
        assert pid is not None, "the one that the first host started serves both"
        assert "ORCHARD_SANDBOX" not in psutil.Process(pid).environ(), "nor do others who ask it inherit anything"
        for level, name in (("off", "off"), ("", WALL)):
            until(lambda: desk.status(made[level])["plan"]["status"] == "succeeded", "it is done")  # noqa: B023
            assert desk.status(made[level])["plan"]["sandbox"] == name
        assert desk("stop").code == 0
    finally:
        desk.close()


def test_a_command_beside_a_daemon_that_was_started_without_a_wall_gets_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk")
    try:
        with served(desk):
            done = desk("run", desk.plan(WORKS), ORCHARD_SANDBOX=None)
            assert done.code == 0 and f"sandbox {WALL}" in done.out and "sandbox off" not in done.out, done.out
    finally:
        desk.close()


async def test_a_channel_knows_the_wall_of_its_caller(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_app(orchard.repo.path, in_commands)
    teach(app)
    place = app._place()
    monkeypatch.setenv("ORCHARD_SANDBOX", "off")
    assert place.wall_with({}) == "auto", "what was said to the engine counts for nothing"
    assert place.wall_with({"ORCHARD_SANDBOX": "landlock"}) == "landlock"
    assert place.wall_with({"ORCHARD_SANDBOX": "nonsense"}) == "auto"


MANUAL = "name: m\ndeploy: manual\njobs:\n  - {id: a, work: touch a}\n"
ADDED = [{"op": "add", "job": {"id": "b", "work": "touch b"}}]


@pytest.mark.parametrize(
    ("text", "operation", "args"),
    [
        (PAUSED, "reshape_plan", {"changes": ADDED}),
        (PAUSED, "reshape_plan", {"changes": [{"op": "update", "id": "a", "set": {"work": "touch q"}}]}),
        (MANUAL, "deploy_jobs", {"jobs": ["a"]}),
    ],
)
async def test_who_gives_work_to_a_plan_without_a_wall_puts_one_up_and_never_takes_one_away(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, text: str, operation: str, args: dict[str, object]
) -> None:
    levels: tuple[tuple[str, str, list[SandboxAsked]], ...] = (
        ("off", "auto", [SandboxAsked("auto")]),
        ("auto", "off", []),
        ("off", "off", []),
        ("landlock", "bwrap", [SandboxAsked("bwrap")]),
    )
    for first, second, asked in levels:
        monkeypatch.setenv("ORCHARD_SANDBOX", first)
        async with asyncio.timeout(60), orchard.app.session(work=False) as owner:
            plan = await create(owner, orchard, text)
            monkeypatch.setenv("ORCHARD_SANDBOX", second)
            async with orchard.app.session() as joined:
                await joined.request(operation, plan=plan, **args)
        assert orchard.events(SandboxAsked, plan) == asked, (first, second)


async def test_a_job_that_another_adds_to_a_plan_without_a_wall_runs_behind_one(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "off")
    async with asyncio.timeout(60), orchard.app.session() as owner:
        plan = await create(owner, orchard, MANUAL)
        monkeypatch.delenv("ORCHARD_SANDBOX")
        async with orchard.app.session() as joined:
            await joined.request("reshape_plan", plan=plan, changes=ADDED)
        monkeypatch.setenv("ORCHARD_SANDBOX", "off")
        await owner.request("deploy_jobs", plan=plan, jobs=["a", "b"])
        await end(owner, plan)

    assert wall(orchard, plan) == WALL
