"""Events over HTTP: all of them, each once, in order, for everybody who listens, however slow they are."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchard.app import open_app
from orchard.engine.server.start import OwnEngine
from orchard.model.events.plans import Event, PlanReshaped, PlanSubmitted, Recorded, Warned
from orchard.model.plan import PlanId
from orchard.surfaces.http import events
from orchard.surfaces.http.events import Feed, sent
from orchard.surfaces.http.streams import Streams
from orchard.surfaces.next_steps import in_commands
from orchard.surfaces.served import Served
from orchard.testing import Repo
from tests.http.api_world import Json, World, events_in, wait_for, world


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    return made


@pytest.fixture
def api(repo: Repo) -> Iterator[World]:
    with world(repo.path, streams=Streams(most=3, stalled=0.5, ping=0.2)) as made:
        yield made


def warn(api: World, plan: str, count: int, size: int = 10) -> None:
    """Have the engine record some events."""
    session = api.served[0].session
    assert session is not None and isinstance(session.link, OwnEngine) and api.loop is not None
    engine = session.link.engine

    async def record() -> None:
        for number in range(count):
            engine.warn(PlanId(plan), f"{number} {'x' * size}")
        await engine.durable()

    asyncio.run_coroutine_threadsafe(record(), api.loop).result(30)


def numbers(heard: list[Json]) -> list[int]:
    assert all(int(one["id"]) == one["data"]["seq"] and one["event"] == one["data"]["type"] for one in heard)
    return [one["data"]["seq"] for one in heard]


def in_journal(api: World, plan: str | None = None, since: int = 0) -> list[int]:
    reader = open_app(api.apps[0].repo.common_dir.parent, in_commands).reader
    return [one.seq for one in reader.events(PlanId(plan) if plan else None, since)]


# ------------------------------------------------------------------------------------------ replay


def test_a_replay_is_the_journal(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "echo a > a.txt"}])
    api.until(plan, "succeeded")

    heard = list(api.stream("/events", since=0, idle=0))

    assert numbers(heard) == in_journal(api)
    names = [one["event"] for one in heard]
    assert names[0] == "PlanSubmitted" and "JobSucceeded" in names and "Landed" in names
    first = heard[0]["data"]
    assert (first["plan"], first["name"], first["jobs"]) == (plan, "Small plan", 1)


def test_a_replay_of_many_more_events_than_are_kept_is_whole(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "true"}], start_paused=True)
    warn(api, plan, 2500)

    assert numbers(list(api.stream("/events", since=0, idle=0))) == in_journal(api)
    assert numbers(list(api.stream("/events", since=2000, idle=0))) == in_journal(api, since=2000)


def test_one_plan_can_be_listened_to(api: World) -> None:
    one, two = (api.submit([{"id": "a", "work": "true"}], name=name, start_paused=True) for name in ("One", "Two"))
    warn(api, one, 300)
    warn(api, two, 300)

    for plan in (one, two):
        assert numbers(list(api.stream("/events", since=0, idle=0, plan=plan))) == in_journal(api, plan)
        late = in_journal(api, plan)[-3]
        assert numbers(list(api.stream("/events", since=late, idle=0, plan=plan))) == in_journal(api, plan)[-2:]
    assert api.get("/events", 404, plan="nope")["hint"] == "orchard list"


def test_what_a_purge_took_away_leaves_no_hole_to_wait_in(api: World) -> None:
    gone, stays = (
        api.submit([{"id": "a", "work": "true"}], name=name, start_paused=True) for name in ("Gone", "Stays")
    )
    warn(api, gone, 700)
    api.ask("DELETE", f"/plans/{gone}?purge=true").raise_for_status()
    warn(api, stays, 3)

    heard = list(api.stream("/events", since=0, idle=0.1))

    assert numbers(heard) == in_journal(api)
    assert heard[-1]["data"]["message"].startswith("2 ")

    last = api.submit([{"id": "a", "work": "true"}], name="Last", start_paused=True)
    api.ask("DELETE", f"/plans/{last}?purge=true").raise_for_status()

    assert numbers(list(api.stream("/events", since=0, idle=0.1))) == in_journal(api)


@pytest.mark.parametrize("given", [b"x", b"-1", b"1.5", b"\xb2", b"\xef\xbc\x91", b"9" * 30])
def test_a_last_event_that_is_none_is_refused(api: World, given: bytes) -> None:
    assert api.ask("GET", "/events", headers={"Last-Event-ID": given}).status_code == 400


def test_an_event_that_is_still_to_come_cannot_have_been_seen(api: World) -> None:
    assert "has no event 999" in api.get("/events", 422, since=999)["detail"]


# -------------------------------------------------------------------------------------------- live


def test_what_happens_after_the_replay_follows_without_a_gap_or_twice(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "true"}], start_paused=True)
    warn(api, plan, 10)
    heard: list[Json] = []

    for one in api.stream("/events", since=0, idle=5):
        heard.append(one)
        if len(heard) in (5, 12, 100, 700):
            warn(api, plan, 300)
        if len(heard) == in_journal(api)[-1] and len(heard) > 1000:
            break

    assert numbers(heard) == in_journal(api)


def test_a_client_that_comes_back_gets_what_it_missed(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "true"}], start_paused=True)
    seen = in_journal(api)[-1]
    warn(api, plan, 40)

    back = list(api.stream("/events", since=0, idle=0, headers={"Last-Event-ID": str(seen)}))

    assert numbers(back) == in_journal(api, since=seen)


def test_who_hears_nothing_before_the_connection_breaks_still_knows_where_it_was(api: World) -> None:
    api.submit([{"id": "a", "work": "true"}], start_paused=True)

    with api.client.stream("GET", f"{api.url}/events", headers={"Authorization": f"Bearer {api.token}"}) as answer:
        lines = answer.iter_lines()
        begun = [next(lines), next(lines), next(lines)]
        beat = next(line for line in lines if line)

    assert begun == [f"id: {in_journal(api)[-1]}", "retry: 1000", ""]
    assert beat.startswith(":")


def test_a_clients_place_is_free_again_when_it_goes(api: World) -> None:
    for _ in range(5):
        with api.client.stream("GET", f"{api.url}/events", headers={"Authorization": f"Bearer {api.token}"}) as answer:
            assert answer.status_code == 200
            wait_for(lambda: api.streams.clients == 1)
        wait_for(lambda: api.streams.clients == 0)


def test_one_more_than_there_is_room_for_is_told_to_come_later(api: World) -> None:
    headers = {"Authorization": f"Bearer {api.token}"}
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(api.client.stream("GET", f"{api.url}/events", headers=headers))
        wait_for(lambda: api.streams.clients == 3)
        refused = api.ask("GET", "/events")

    assert refused.status_code == 503 and refused.headers["retry-after"]
    wait_for(lambda: api.streams.clients == 0)
    assert list(api.stream("/events", since=0, idle=0)) == []


def test_a_client_that_takes_nothing_is_cut_off_and_can_go_on_where_it_was(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "true"}], start_paused=True)
    host, port = api.url.removeprefix("http://").removesuffix("/api/v1").split(":")
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stalled.connect((host, int(port)))
    head = f"GET /api/v1/events?since=0 HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {api.token}\r\n\r\n"
    stalled.sendall(head.encode())
    wait_for(lambda: api.streams.clients == 1)

    warn(api, plan, 160, size=50_000)

    wait_for(lambda: api.streams.clients == 0)
    got = _lines_of(stalled)
    before = list(events_in(iter(got)))
    rest = list(api.stream("/events", since=0, idle=0, headers={"Last-Event-ID": before[-1]["id"]}))
    assert numbers([*before, *rest]) == in_journal(api)
    assert rest


def _lines_of(connection: socket.socket) -> list[str]:
    """What had been sent before it was cut off: whole frames of a chunked body."""
    connection.settimeout(10)
    data = b""
    while part := connection.recv(1 << 16):
        data += part
    connection.close()
    body, out = data.partition(b"\r\n\r\n")[2], b""
    while b"\r\n" in body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        out, body = out + body[:length], body[length + 2 :]
    whole = out[: out.rfind(b"\n\n") + 2]
    return whole.decode().split("\n")


# ------------------------------------------------------------------------------------- what is kept


class Quiet(Served):
    """A repository whose news are told by the test."""

    reads = 0

    async def read(self, question, *args, **kwargs):  # type: ignore[no-untyped-def]
        Quiet.reads += 1
        return await super().read(question, *args, **kwargs)


@pytest.mark.anyio
async def test_a_hundred_who_keep_up_cost_one_read(repo: Repo) -> None:
    app = open_app(repo.path, in_commands)
    plan = app.parse_plan(None, b"name: Small\nstart_paused: true\njobs: [{id: a, work: 'true'}]")
    async with app.session(work=False) as session:
        made = (await session.request("create_plan", plan=plan))["plan"]
        served = Quiet(app, session)
        served.tell(app.reader.last_seq())
        feed = Feed(served)
        begin = served.newest
        assert isinstance(session.link, OwnEngine)
        for number in range(20):
            session.link.engine.warn(PlanId(made), str(number))
        await session.link.engine.durable()
        served.tell(app.reader.last_seq())
        Quiet.reads = 0

        answers = await asyncio.gather(*(feed.after(begin, None) for _ in range(100)))

        assert Quiet.reads == 1
        assert len({data for data, _ in answers}) == 1
        assert answers[0][1] == served.newest
        served.close()


@pytest.mark.anyio
@pytest.mark.parametrize("size", [10, 5_000])
async def test_what_is_kept_is_bounded_and_who_falls_behind_reads_the_journal(repo: Repo, size: int) -> None:
    app = open_app(repo.path, in_commands)
    plan = app.parse_plan(None, b"name: Small\nstart_paused: true\njobs: [{id: a, work: 'true'}]")
    async with app.session(work=False) as session:
        made = (await session.request("create_plan", plan=plan))["plan"]
        served = Served(app, session)
        served.tell(app.reader.last_seq())
        feed = Feed(served)
        places = {"fast": served.newest, "slow": served.newest}
        heard: dict[str, bytes] = {"fast": b"", "slow": b""}
        assert isinstance(session.link, OwnEngine)
        for block in range(6):
            for number in range(400):
                session.link.engine.warn(PlanId(made), f"{block}.{number} {'x' * size}")
            await session.link.engine.durable()
            served.tell(app.reader.last_seq())
            for name in ("fast", "slow") if block == 5 else ("fast",):
                while places[name] < served.newest:
                    data, places[name] = await feed.after(places[name], None)
                    heard[name] += data
                    assert len(data) <= events.CHUNK_BYTES
            assert len(feed._kept) <= events.KEPT and feed._size <= events.KEPT_BYTES

        assert heard["fast"] == heard["slow"]
        assert heard["fast"].count(b"\nevent: Warned\n") == 2400
        served.close()


def test_an_event_tells_its_fields_but_neither_plans_nor_secrets() -> None:
    body: Json = {"name": "n", "jobs": [{"id": "a", "env": {"TOKEN": "s3cret"}}]}
    change = {"op": "add", "job": {"id": "b", "env": {"API_KEY": "s3cret", "PLAIN": "shown"}}}

    def told(event: Event) -> Json:
        lines = sent(Recorded(7, 0.0, PlanId("p"), event)).data.decode().split("\n")
        assert lines[:2] == ["id: 7", f"event: {type(event).__name__}"] and lines[3:] == ["", ""]
        found: Json = json.loads(lines[2].removeprefix("data: "))
        return found

    assert told(PlanSubmitted(body))["jobs"] == 1
    shaped = told(PlanReshaped((change,), body))
    assert shaped["plan"] == "p" and shaped["changes"][0]["job"]["env"] == {"API_KEY": "[hidden]", "PLAIN": "shown"}
    assert told(Warned("two\nlines\r and \u2028 more"))["message"] == "two\nlines\r and \u2028 more"
