"""`orchard mcp` as a process: it starts what it needs, survives what dies, and leaves nothing hanging."""

import asyncio
import json
import os
import signal
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from orchard.app import open_app
from orchard.engine.server.session import Session
from orchard.engine.server.start import OwnEngine
from orchard.engine.turns.job_tokens import JobTokens, Scope
from orchard.model.plan import JobId, PlanId
from orchard.surfaces.mcp.relay.engine_connection import NoDaemon, Wanted
from orchard.surfaces.mcp.relay.relay import Relay
from orchard.surfaces.mcp_channel import teach
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.acceptance.program import Desk, until
from tests.http.daemon import served
from tests.mcp.wires import HELLO, Talk, daemon_pid, talk
from tests.test_layers import imported_by

SLOW = {"name": "slow", "jobs": [{"id": "s", "work": "sleep 3; echo s > s.txt"}]}
UNTRUSTED = 'setup = ["echo hello"]\n'


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A user whose daemons are ended afterwards."""
    desk = Desk(tmp_path / "desk")
    yield desk
    pid = daemon_pid(desk)
    desk.close()
    if pid is not None:
        until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The record that a daemon writes when it is spoken to for the first time."""
    desk = Desk(tmp_path_factory.mktemp("recorded"))
    with talk(desk) as host:
        host.ask(1, "tools/list")
        assert len(host.result(1)["tools"]) == 17
        folder = desk.folder / "state" / "orchard" / "mcp"
        yield until(lambda: next(iter(folder.glob("*.json")), None), "the record is written")
    desk.close()


def put_record(desk: Desk, recorded: Path) -> Path:
    place = desk.folder / "state" / "orchard" / "mcp" / recorded.name
    place.parent.mkdir(parents=True, mode=0o700)
    place.write_bytes(recorded.read_bytes())
    place.chmod(0o600)
    return place


def forbid_daemons(desk: Desk) -> None:
    """Have the repository ask for consent that nobody gives."""
    (desk.repo.path / "orchard.toml").write_text(UNTRUSTED)


def kill_daemon(desk: Desk) -> int:
    pid = until(lambda: daemon_pid(desk), "a daemon is there")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "it is dead")
    return int(pid)


# ------------------------------------------------------------------------------------ beginning


def test_it_starts_a_daemon_where_there_is_none_and_the_daemon_outlives_it(desk: Desk) -> None:
    with talk(desk) as host:
        host.send(id=1, method="initialize", params=HELLO)
        assert host.result(1)["serverInfo"]["name"] == "orchard"
        host.send(method="notifications/initialized")
        host.send(id=2, method="tools/list")
        assert len(host.result(2)["tools"]) == 17
        began = time.monotonic()
        assert host.close() == 0
        assert time.monotonic() - began < 5
    pid = daemon_pid(desk)
    assert pid is not None and psutil.pid_exists(pid)
    assert desk("stop").code == 0


def test_the_record_is_only_for_its_user(recorded: Path) -> None:
    assert stat.S_IMODE(recorded.stat().st_mode) == 0o600
    assert stat.S_IMODE(recorded.parent.stat().st_mode) == 0o700


def test_with_a_record_a_host_is_answered_though_there_is_no_daemon_yet(desk: Desk, recorded: Path) -> None:
    put_record(desk, recorded)
    forbid_daemons(desk)
    with talk(desk) as host:
        host.send(id=1, method="initialize", params=HELLO)
        assert host.result(1)["protocolVersion"] == HELLO["protocolVersion"]
        host.send(method="notifications/initialized")
        for id, method in enumerate(("tools/list", "prompts/list", "resources/templates/list"), 2):
            host.send(id=id, method=method)
            assert host.result(id)
    with talk(desk) as host:
        host.ask(1, "server/discover")
        assert host.result(1)["supportedVersions"] == ["2026-07-28"]
        host.ask(2, "tools/list")
        assert len(host.result(2)["tools"]) == 17


def test_what_needs_consent_is_told_and_goes_on_once_it_is_given(desk: Desk, recorded: Path) -> None:
    put_record(desk, recorded)
    forbid_daemons(desk)
    with talk(desk) as host:
        host.call(1, "list_plans")
        error = host.answer(1)["error"]
        assert "orchard trust" in error["message"] and "setup" in error["message"]
        assert daemon_pid(desk) is None
        assert desk("trust", "--yes", desk("trust", "--show", "--json").json["digest"]).code == 0
        assert host.tool(2, "list_plans") == {"plans": []}


def test_without_a_record_the_handshake_itself_says_what_is_wrong(desk: Desk) -> None:
    forbid_daemons(desk)
    with talk(desk) as host:
        host.send(id=1, method="initialize", params=HELLO)
        assert "orchard trust" in host.answer(1)["error"]["message"]


@pytest.mark.parametrize("words", [["--toolsets", "all"], ["--read-only"], ["--exclude-tools", "add_job"]])
def test_a_record_is_for_one_selection_of_tools(desk: Desk, recorded: Path, words: list[str]) -> None:
    put_record(desk, recorded)
    forbid_daemons(desk)
    with talk(desk, *words) as host:
        host.ask(1, "tools/list")
        assert "error" in host.answer(1)


@pytest.mark.parametrize("harm", ["others can read it", "it is a link", "it is broken", "another version"])
def test_a_record_that_cannot_be_relied_on_is_not_used(desk: Desk, recorded: Path, harm: str) -> None:
    place = put_record(desk, recorded)
    forbid_daemons(desk)
    if harm == "others can read it":
        place.chmod(0o644)
    elif harm == "it is a link":
        place.rename(place.with_suffix(".real"))
        place.symlink_to(place.with_suffix(".real"))
    elif harm == "it is broken":
        place.write_bytes(place.read_bytes()[:-7])
    else:
        place.write_text(json.dumps({**json.loads(place.read_text()), "orchard": "0.0.0"}))
    with talk(desk) as host:
        host.ask(1, "tools/list")
        assert "error" in host.answer(1)


def test_what_was_answered_is_heard_though_the_host_has_closed_its_end(desk: Desk, recorded: Path) -> None:
    put_record(desk, recorded)
    forbid_daemons(desk)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    done = desk("mcp", stdin=b"".join(json.dumps(one).encode() + b"\n" for one in (hello, asked)))

    assert done.code == 0
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [1, 2]


def test_outside_of_a_repository_the_host_hears_that(desk: Desk, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with talk(desk, "--repo", str(elsewhere)) as host:
        host.send(id=1, method="initialize", params=HELLO)
        assert "repository" in host.answer(1)["error"]["message"]


@pytest.mark.parametrize("words", [["--toolsets", "cores"], ["--tools", "make_tea"], ["--nonsense"], ["--toolsets"]])
def test_a_wrong_option_is_refused_at_once(desk: Desk, words: list[str]) -> None:
    done = desk("mcp", *words)

    assert done.code == 2 and done.out == "" and "error:" in done.err


def test_a_selection_holds_over_the_wire(desk: Desk) -> None:
    with talk(desk, "--toolsets", "core,jobs", "--read-only", "--exclude-tools", "get_job_diff") as host:
        host.ask(1, "tools/list")
        names = {tool["name"] for tool in host.result(1)["tools"]}
        host.call(2, "cancel_plan", plan="x")
        refused = host.result(2)

    assert {"get_plan", "list_jobs"} <= names and not {"cancel_plan", "get_job_diff"} & names
    assert refused["isError"]


def test_the_process_that_hosts_start_imports_nothing_slow() -> None:
    found = imported_by("-c", "import orchard.surfaces.mcp.relay.relay")

    assert not found & {"pydantic", "ruamel", "rich", "psutil", "asyncio", "click", "mcp", "mcp_types", "anyio"}


# ------------------------------------------------------------------------------- what is killed


def test_a_plan_goes_on_when_the_process_of_the_host_is_killed(desk: Desk) -> None:
    with talk(desk) as host:
        plan = host.tool(1, "create_plan", **SLOW)["plan"]
        host.call(2, "wait_plan", plan=plan, until="end")
        host.kill()
    with talk(desk) as other:
        assert other.tool(1, "wait_plan", plan=plan, until="end", timeout_s=45)["status"] == "succeeded"


def test_a_daemon_that_is_killed_is_replaced_and_what_is_safe_is_asked_again(desk: Desk) -> None:
    with talk(desk) as host:
        plan = host.tool(1, "create_plan", **SLOW)["plan"]
        host.call(2, "wait_plan", plan=plan, until="end", timeout_s=45)
        until(lambda: desk.events("ProgramStarted"), "the job runs")
        first = kill_daemon(desk)
        ended = host.result(2)
        assert not ended.get("isError"), ended
        second = daemon_pid(desk)
        assert second not in (None, first)
        # P7: what was running when the engine died is reported, not silently run again.
        assert ended["structuredContent"]["status"] == "failed"
        assert host.tool(3, "get_job_failure", plan=plan, job="s")["reason"] == "interrupted"
        host.tool(4, "retry_job", plan=plan, job="s")
        assert host.tool(5, "wait_plan", plan=plan, until="end", timeout_s=45)["status"] == "succeeded"


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_session_goes_on_after_the_daemon_was_stopped(desk: Desk, era: str) -> None:
    with talk(desk) as host:

        def call(id: int) -> None:
            if era == "modern":
                host.call(id, "list_plans")
            else:
                host.send(id=id, method="tools/call", params={"name": "list_plans", "arguments": {}})

        if era == "legacy":
            host.send(id=0, method="initialize", params=HELLO)
            host.result(0)
            host.send(method="notifications/initialized")
        call(1)
        assert "structuredContent" in host.result(1)
        assert desk("stop").code == 0
        for id in (2, 3):
            call(id)
            assert "structuredContent" in host.result(id)
        assert not [one for one in host.seen if one.get("id") is not None]


@pytest.mark.parametrize("key", ["k-1", None])
def test_a_plan_whose_daemon_dies_before_it_answers_is_made_once(desk: Desk, key: str | None) -> None:
    daemon = desk.start("serve", "--json", ORCHARD_FAILPOINT="request.after-durable:1:kill")
    daemon.shows("\n")
    with talk(desk) as host:
        host.call(1, "create_plan", **SLOW, **({"idempotency_key": key} if key else {}))
        answer = host.answer(1)
        if key is None:
            assert "went away" in answer["error"]["message"]
        else:
            assert not answer["result"].get("isError"), answer
        assert daemon.process.wait(10) == -signal.SIGKILL
        plans = host.tool(2, "list_plans")["plans"]

    assert len(plans) == 1
    assert len(desk.events("PlanSubmitted")) == 1


def test_a_daemon_that_is_killed_before_it_did_anything_is_not_told_as_done(desk: Desk) -> None:
    daemon = desk.start("serve", "--json", ORCHARD_FAILPOINT="request.before:1:kill")
    daemon.shows("\n")
    with talk(desk) as host:
        host.call(1, "create_plan", **SLOW)
        assert "went away" in host.answer(1)["error"]["message"]
        assert host.tool(2, "list_plans")["plans"] == []


def test_what_is_watched_is_told_again_after_the_daemon_was_killed(desk: Desk) -> None:
    with talk(desk) as host:
        uri = "orchard://plans"
        host.ask("s", "subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
        assert host.line()["method"] == "notifications/subscriptions/acknowledged"
        kill_daemon(desk)
        until(lambda: "went away" in host.errors, "it has seen that")
        plan = host.tool(1, "create_plan", **SLOW)["plan"]
        told = [one for one in [*host.seen, host.line()] if one.get("method") == "notifications/resources/updated"]
        assert told and told[0]["params"]["uri"] == uri
        assert told[0]["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "s"}
        assert plan
        assert not [one for one in host.seen if one.get("method", "").endswith("acknowledged")]


def test_a_look_that_finds_no_daemon_takes_nothing_from_who_waits_for_one(desk: Desk) -> None:
    """A listener's look may be under way when somebody asks for something: then a daemon is started after it."""
    relay = Relay(Wanted(desk.repo.path))
    relay._desk.hear(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    for only_looked, said in ((True, b""), (False, b"none here")):
        relay._only_looked = only_looked
        relay._found.append(NoDaemon("none here"))
        os.write(relay._wake, b"!")
        relay._take_found()
        assert said in relay._desk.out and bool(said) == bool(relay._desk.out)


def test_it_joins_an_engine_in_somebodys_terminal_and_starts_its_own_when_that_ends(desk: Desk) -> None:
    plan = desk.plan("name: mine\njobs: [{id: a, work: sleep 6; echo a > a.txt}]")
    run = desk.start("run", plan)
    until(lambda: desk.events("ProgramStarted"), "the plan runs in a terminal")
    with talk(desk) as host:
        plans = host.tool(1, "list_plans")["plans"]
        assert [one["name"] for one in plans] == ["mine"] and daemon_pid(desk) == run.pid
        assert host.tool(2, "wait_plan", plan=plans[0]["plan"], until="end")["status"] == "succeeded"
        assert run.end().code == 0
        assert host.tool(3, "list_plans")["plans"][0]["status"] == "succeeded"
        assert daemon_pid(desk) not in (None, run.pid)


def test_many_hosts_are_served_at_once(desk: Desk) -> None:
    with served(desk):
        hosts = [Talk(desk) for _ in range(6)]
        try:
            for host in hosts:
                host.call(1, "list_plans")
            for host in hosts:
                assert host.result(1)["structuredContent"] == {"plans": []}
        finally:
            codes = [host.close() for host in hosts]

    assert codes == [0] * 6


# -------------------------------------------------------------------------------------- job_tokens


@asynccontextmanager
async def engine(repo: Repo) -> AsyncIterator[tuple[Session, JobTokens]]:
    """An engine in this process, whose door speaks MCP."""
    app = open_app(repo.path, in_commands)
    teach(app)
    async with app.session() as session:
        assert isinstance(session.link, OwnEngine)
        yield session, session.link.engine.job_tokens


def pass_file(folder: Path, socket: str | None, secret: str) -> Path:
    path = folder / "pass.json"
    path.write_text(json.dumps({"socket": socket, "pass": secret}))
    path.chmod(0o600)
    return path


@pytest.mark.anyio
async def test_an_agent_sees_its_own_plan_and_nothing_else(tmp_path: Path, private_home: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    desk = Desk(tmp_path, repo, dict(os.environ))
    async with engine(repo) as (session, job_tokens):
        own, other = [
            (await session.request("create_plan", plan=_plan(name), scaffolding=True))["plan"]
            for name in ("own", "other")
        ]
        with job_tokens.issued(Scope(PlanId(own), JobId("a"), 1)) as secret:
            path = pass_file(tmp_path, job_tokens.socket, secret)
            await asyncio.to_thread(_speak_as_agent, desk, path, own, other)
        # The pass died with the turn.
        await asyncio.to_thread(_refused, desk, path, "does not take it")
        await asyncio.to_thread(_refused, desk, pass_file(tmp_path, job_tokens.socket, "0" * 64), "does not take it")
        path.unlink()
        await asyncio.to_thread(_refused, desk, path, "no pass")
        assert "a wrong secret" in (repo.path / ".git" / "orchard" / "refused.log").read_text()
        await session.request("cancel_plan", plan=own)
        await session.request("cancel_plan", plan=other)


def _plan(name: str) -> object:
    from orchard.planfile.parse import parse_value

    return parse_value({"name": name, "jobs": [{"id": "a", "work": "true"}]}, "test", scaffolding=True)


AGENT = ["-m", "orchard.surfaces.mcp.relay.relay"]


def _speak_as_agent(desk: Desk, path: Path, own: str, other: str) -> None:
    with talk(desk, "--pass", str(path), "--toolsets", "all", argv=AGENT) as host:
        host.ask(1, "tools/list")
        names = {tool["name"] for tool in host.result(1)["tools"]}
        assert "get_plan" in names and not names & {"create_plan", "land_plan", "list_plans", "cancel_plan"}
        assert host.tool(2, "get_plan")["plan"]["plan"] == own
        for id, (name, arguments) in enumerate(
            [("get_plan", {"plan": other}), ("create_plan", {}), ("cancel_plan", {"plan": own}), ("list_plans", {})], 4
        ):
            host.call(id, name, **arguments)
            assert host.result(id)["isError"], name
        foreign = f"orchard://plans/{other}"
        for id, uri in enumerate(("orchard://plans", foreign, f"{foreign}/jobs/a", f"{foreign}/jobs/a/log"), 10):
            host.ask(id, "resources/read", {"uri": uri})
            assert "error" in host.answer(id), uri
        host.ask(20, "resources/read", {"uri": f"orchard://plans/{own}/jobs/a"})
        assert own in host.result(20)["contents"][0]["text"]
        host.ask(21, "resources/list")
        assert other not in str(host.result(21))
        host.ask(22, "prompts/list")
        assert host.result(22)["prompts"] == []
        ref = {"type": "ref/resource", "uri": "orchard://plans/{plan}"}
        host.ask(23, "completion/complete", {"ref": ref, "argument": {"name": "plan", "value": ""}})
        assert host.result(23)["completion"]["values"] == [own]
        wanted = {"resourceSubscriptions": ["orchard://plans", f"orchard://plans/{other}", f"orchard://plans/{own}"]}
        host.ask(24, "subscriptions/listen", {"notifications": {**wanted, "resourcesListChanged": True}})
        honoured = host.line()["params"]["notifications"]
        assert honoured == {"resourceSubscriptions": [f"orchard://plans/{own}"]}


def _refused(desk: Desk, path: Path, why: str) -> None:
    before = daemon_pid(desk)
    with talk(desk, "--pass", str(path), argv=AGENT) as host:
        host.ask(1, "tools/list")
        assert why in host.answer(1)["error"]["message"]
    assert daemon_pid(desk) == before
