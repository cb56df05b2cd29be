"""What changed in a plan, asked for and followed: put into what was known, it is what the plan is now."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from orchard.engine.server.start import OwnEngine
from orchard.model.plan import PlanId
from orchard.surfaces.http.events import Documents, plan_frames
from orchard.surfaces.http.streams import Streams
from orchard.testing import Repo
from tests.http.api_world import Json, World, events_in, job_path, world

JOBS = [{"id": name, "group": "g", "work": f"echo {name} > {name}.txt"} for name in "abcd"]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    return made


@pytest.fixture
def api(repo: Repo) -> Iterator[World]:
    with world(repo.path) as made:
        yield made


def paused(api: World) -> str:
    return api.submit([*JOBS, {"id": "e", "needs": ["g/a"], "work": "true"}], start_paused=True)


def whole(api: World, plan: str) -> Json:
    found: Json = api.get(f"/plans/{plan}")
    return found


def patched(old: Json, news: Json) -> Json:
    """As a client does it that was written in another language."""
    jobs = {job["id"]: job for job in old["jobs"] if job["id"] not in news["removed"]}
    jobs |= {job["id"]: job for job in news["jobs"]}
    return {"plan": news["plan"], "jobs": [jobs[job] for job in news.get("order", jobs)], "seq": news["seq"]}


def ids(news: Json) -> list[str]:
    return [job["id"] for job in news["jobs"]]


# ------------------------------------------------------------------------------------------ asked


def test_only_jobs_that_changed_are_told_and_make_the_old_document_the_new_one(api: World) -> None:
    plan = paused(api)
    before = whole(api, plan)
    api.post(f"{job_path(plan, 'g/a')}/cancel")

    news = api.get(f"/plans/{plan}", since=before["seq"])

    assert ids(news) == ["g/a", "e", "__snapshot-validation__"], "itself, and those that it blocks"
    assert (news["since"], news["removed"], "order" in news) == (before["seq"], [], False)
    assert patched(before, news) == whole(api, plan) != before


def test_nothing_is_told_of_jobs_when_nothing_happened_or_only_to_other_plans(api: World) -> None:
    plan = paused(api)
    answer = api.ask("GET", f"/plans/{plan}")
    paused(api)

    news = api.get(f"/plans/{plan}", since=answer.headers["Orchard-Seq"])

    assert news["jobs"] == []
    assert patched(answer.json(), news) == answer.json()


def test_a_reshape_tells_which_jobs_are_gone_and_where_new_ones_stand(api: World) -> None:
    plan = paused(api)
    before = whole(api, plan)
    changes: list[Json] = [
        {"op": "remove", "id": "e"},
        {"op": "add_before", "id": "g/b", "job": {"id": "f", "work": "true"}},
    ]
    api.post(f"/plans/{plan}/reshape", {"changes": changes})

    news = api.get(f"/plans/{plan}", since=before["seq"])

    assert news["removed"] == ["e"] and "f" in ids(news) and "g/c" not in ids(news)
    assert patched(before, news) == whole(api, plan)


def test_everything_changed_since_before_the_plan(api: World) -> None:
    plan = paused(api)

    news = api.get(f"/plans/{plan}", since=0)

    assert patched({"jobs": []}, news) == whole(api, plan)


def test_a_number_that_no_event_has_yet_is_refused(api: World) -> None:
    plan = paused(api)

    assert "there was no event 999" in api.get(f"/plans/{plan}", 422, since=999)["detail"]
    assert api.get(f"/plans/{plan}", 400, since=-1)
    assert "no event 999" in api.get(f"/plans/{plan}/changes", 422, since=999)["detail"]


def test_a_plan_that_is_over_tells_the_same_to_a_daemon_that_has_just_begun(repo: Repo) -> None:
    with world(repo.path) as api:
        plan = api.submit(JOBS)
        early = whole(api, plan)
        api.until(plan, "succeeded")
    with world(repo.path) as api:
        news = api.get(f"/plans/{plan}", since=early["seq"])
        over = whole(api, plan)
        assert patched(early, news) == over and over["plan"]["status"] == "succeeded"
        assert api.get(f"/plans/{plan}", since=over["seq"])["jobs"] == []


def test_nothing_is_told_of_a_plan_that_is_gone_for_good(api: World) -> None:
    plan = paused(api)
    api.post(f"/plans/{plan}/cancel")
    api.ask("DELETE", f"/plans/{plan}", params={"purge": "true"})

    assert api.get(f"/plans/{plan}", 404, since=1)
    assert api.get(f"/plans/{plan}/changes", 404)


# --------------------------------------------------------------------------------------- followed


def followed(heard: list[Json], known: Json | None = None) -> Json:
    """All changes, one after the other."""
    found = known or {"jobs": []}
    for one in heard:
        assert one["event"] == "changes" and int(one["id"]) == one["data"]["seq"]
        found = patched(found, one["data"])
    return found


def test_a_stream_begins_with_the_whole_plan_and_goes_on_with_what_changes(api: World) -> None:
    plan = api.submit(JOBS)
    heard = []

    for one in api.stream(f"/plans/{plan}/changes", idle=20):
        heard.append(one)
        if one["data"]["plan"]["status"] == "succeeded":
            break

    assert len(heard[0]["data"]["jobs"]) == len(JOBS) + 1
    seen = heard[-1]["id"]
    rest = list(api.stream(f"/plans/{plan}/changes", idle=0, headers={"Last-Event-ID": seen}))
    assert followed([*heard, *rest]) == whole(api, plan)


def test_who_comes_back_gets_what_changed_meanwhile_and_nothing_else(api: World) -> None:
    plan = paused(api)
    (first,) = api.stream(f"/plans/{plan}/changes", idle=0)
    for job in ("g/a", "g/b"):
        api.post(f"{job_path(plan, job)}/cancel")

    (back,) = api.stream(f"/plans/{plan}/changes", since=0, idle=0, headers={"Last-Event-ID": first["id"]})

    assert ids(back["data"]) == ["g/a", "g/b", "e", "__snapshot-validation__"]
    assert followed([first, back]) == whole(api, plan)
    paused(api)
    assert list(api.stream(f"/plans/{plan}/changes", since=back["id"], idle=0)) == [], "that was another plan"


def warn(api: World, plan: str, count: int) -> None:
    session = api.served[0].session
    assert session is not None and isinstance(session.link, OwnEngine) and api.loop is not None
    engine = session.link.engine

    async def record() -> None:
        for number in range(count):
            engine.warn(PlanId(plan), f"look at {number}")
            await engine.durable()

    asyncio.run_coroutine_threadsafe(record(), api.loop).result(30)


def test_what_changes_while_a_client_takes_nothing_is_one_change(api: World) -> None:
    plan = paused(api)
    frames = plan_frames(Documents(), api.served[0], Streams(), PlanId(plan), 0, 20.0)
    first = [taken(api, frames) for _ in range(2)]

    warn(api, plan, 30)
    api.post(f"{job_path(plan, 'g/c')}/cancel")
    second = taken(api, frames)

    assert len(second["data"]["plan"]["warnings"]) == 30
    assert ids(second["data"]) == ["g/c", "__snapshot-validation__"]
    assert followed([first[1], second]) == whole(api, plan)


def taken(api: World, frames: AsyncIterator[bytes]) -> Json:
    """The next frame; the first one only says where the stream begins."""

    async def next_frame() -> bytes:
        return await anext(frames)

    assert api.loop is not None
    text = asyncio.run_coroutine_threadsafe(next_frame(), api.loop).result(30).decode()
    return next(events_in(iter(text.split("\n"))), {})


def test_a_stream_ends_when_its_plan_is_gone_for_good(api: World) -> None:
    plan = paused(api)
    api.post(f"/plans/{plan}/cancel")
    heard: list[Json] = []

    for one in api.stream(f"/plans/{plan}/changes", idle=20):
        if not heard:
            api.ask("DELETE", f"/plans/{plan}", params={"purge": "true"})
            paused(api)  # a purge is no event; this is one
        heard.append(one)

    assert (heard[-1]["event"], heard[-1]["data"]) == ("purged", {"plan": plan})


def test_clients_that_know_the_same_share_what_is_made_for_them(api: World) -> None:
    plan, documents, app = PlanId(paused(api)), Documents(), api.served[0].app

    def ask() -> list[tuple[int, bytes] | None]:
        return [documents.after(app, plan, 0) for _ in range(2)]

    assert api.loop is not None
    one, other = asyncio.run_coroutine_threadsafe(api.served[0].read(ask), api.loop).result(30)

    assert one is not None and other is not None and one[1] is other[1]
    assert json.loads(one[1])["since"] == 0
