"""Logs over HTTP: any page of them, nothing secret, no character cut, and as they grow."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.operations.queries.log_pages import read_page
from orchard.store.redact import Redactor
from orchard.surfaces.http.logs import Place
from orchard.testing import Repo
from tests.examples import examples
from tests.http.api_world import Json, World, job_path, wait_for, world

TOKEN = "sk-abcdefghijklmnopqrstuvwxyz"
KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBg\n" * 20 + "-----END PRIVATE KEY-----\n"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[World]:
    repo = Repo.make(tmp_path / "repo")
    repo("checkout", "-q", "-b", "work")
    with world(repo.path) as made:
        yield made


def pages(path: Path, limit: int, secrets: list[str], *, ended: bool = True) -> tuple[str, int]:
    """A log as somebody reads it who always goes on where the page before ended."""
    text, offset = "", 0
    while True:
        part, (begin, after, _) = read_page(path, offset, limit, Redactor(secrets), ended=ended)
        assert begin == offset
        if after == offset:
            return text, offset
        text, offset = text + part, after


PIECES = ("häuser ", "日本語", "🌳", "plain ", "\n", f"key {TOKEN} ", "hunter2!", KEY, "x" * 200)


@examples(60)
@given(
    st.lists(st.sampled_from(PIECES), min_size=20),
    st.integers(64, 400),
    st.booleans(),
)
def test_pages_of_any_size_give_the_same_text_without_secrets_and_cut_no_character(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], limit: int, ended: bool
) -> None:
    log = tmp_path_factory.mktemp("log") / "work.log"
    log.write_bytes("".join(pieces).encode())

    text, read = pages(log, limit, ["hunter2!"], ended=ended)

    assert "�" not in text and "hunter2!" not in text and TOKEN not in text and "MIIEvQ" not in text
    if ended:
        assert text == Redactor(["hunter2!"]).whole(log.read_bytes()).decode()
        assert read == log.stat().st_size


@pytest.mark.parametrize("limit", range(64, 100))
def test_neither_a_character_nor_a_secret_is_cut_where_a_page_ends(tmp_path: Path, limit: int) -> None:
    log = tmp_path / "work.log"
    log.write_text(f"日本語 {TOKEN} 🌳🌳🌳 {TOKEN} äöü {TOKEN} " * 20)

    text, _ = pages(log, limit, [])

    assert text == "日本語 [redacted] 🌳🌳🌳 [redacted] äöü [redacted] " * 20


@pytest.mark.parametrize("offset", range(40))
def test_a_secret_is_hidden_wherever_a_page_begins(tmp_path: Path, offset: int) -> None:
    log = tmp_path / "work.log"
    log.write_text(f"xx {TOKEN} yy\n")

    text, _ = read_page(log, offset, 64, Redactor(), ended=True)

    assert not any(part in text for part in ("abcdef", "klmnop", "uvwxyz"))


def test_the_unfinished_line_of_a_log_that_grows_is_held_back(tmp_path: Path) -> None:
    log = tmp_path / "work.log"
    log.write_bytes(b"whole\nsk-abcdefghijk")

    growing, (_, after, size) = read_page(log, 0, 1000, Redactor(), ended=False)
    with log.open("ab") as file:
        file.write(b"lmnopqrstuvwxyz\n")
    rest, _ = read_page(log, after, 1000, Redactor(), ended=False)

    assert (growing, after, size) == ("whole\n", 6, 20)
    assert rest == "[redacted]\n"


def test_a_line_without_end_is_not_held_back_for_ever(tmp_path: Path) -> None:
    log = tmp_path / "work.log"
    log.write_bytes(b"x" * 200_000)

    text, offset = pages(log, 30_000, [], ended=False)

    assert len(text) == offset > 150_000


def test_what_is_no_log_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/hostname")

    for name in ("fifo", "link", "missing"):
        assert read_page(tmp_path / name, 5, 100, Redactor(), ended=True) == ("", (0, 0, 0))


@pytest.mark.parametrize(
    "text", ["", "1", "1.work", "x.work.1", "1.cook.1", "1.work.-1", "1.work.1.1", "\uff11.work.1", "9" * 80]
)
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="no place in a log"):
        Place.parse(text)


def test_a_place_is_read_back() -> None:
    place = Place.parse("2.merge-fi.77")

    assert str(place) == "2.merge-fi.77"


# --------------------------------------------------------------------------------------- over HTTP


def test_a_log_is_read_page_by_page_over_http(api: World) -> None:
    work = f"for n in 1 2 3 4 5 6 7 8 9; do echo line $n äöü; done; echo {TOKEN}; echo x > x.txt"
    plan = api.submit([{"id": "a", "group": "g", "work": work, "postchecks": "echo checked"}])
    api.until(plan, "succeeded")
    path = f"{job_path(plan, 'g/a')}/logs"

    found, offset = "", 0
    while True:
        page = api.get(path, phase="work", attempt=1, offset=offset, limit=64)
        found, offset = found + page["data"], page["next_offset"]
        if offset == page["size"]:
            break

    assert found == "".join(f"line {n} äöü\n" for n in range(1, 10)) + "[redacted]\n"
    assert page["ended"]
    assert api.get(path)["phase"] == "postchecks" and api.get(path)["data"] == "checked\n"
    beyond = api.get(path, phase="work", offset=10_000)
    assert (beyond["data"], beyond["offset"], beyond["next_offset"]) == ("", beyond["size"], beyond["size"])
    assert api.get(path, phase="setup")["data"] == ""


def test_a_log_is_followed_as_it_grows_through_all_phases_to_the_end(api: World, tmp_path: Path) -> None:
    go = tmp_path / "go"
    work = f"echo begun; while ! test -e {go}; do sleep 0.02; done; echo {TOKEN}; echo x > x.txt"
    plan = api.submit([{"id": "a", "work": work, "postchecks": "echo checked"}])

    heard: list[Json] = []
    for one in api.stream(f"{job_path(plan, 'a')}/logs", follow="true"):
        heard.append(one)
        if "begun" in str(one["data"]):
            go.touch()

    told = [(one["data"]["phase"], one["data"]["data"]) for one in heard if one["event"] == "log"]
    text = "".join(data for phase, data in told if phase == "work")
    assert text == "begun\n[redacted]\n"
    assert told[-1] == ("postchecks", "checked\n")
    assert heard[-1]["event"] == "end" and heard[-1]["data"]["status"] == "succeeded"


def test_a_follower_that_comes_back_goes_on_where_it_was(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "echo one; echo two; echo x > x.txt", "postchecks": "echo checked"}])
    api.until(plan, "succeeded")
    path = f"{job_path(plan, 'a')}/logs"
    whole = list(api.stream(path, follow="true", phase="work"))

    again = list(api.stream(path, follow="true", headers={"Last-Event-ID": "1.work.4"}))

    assert [one["data"]["data"] for one in whole if one["event"] == "log"] == ["one\ntwo\n"]
    assert [one["data"]["data"] for one in again if one["event"] == "log"] == ["two\n", "checked\n"]
    assert api.get(path, 422, follow="true", offset=5)["hint"] == "Give 'phase' as well."


def test_following_a_job_that_has_not_begun_waits_for_it(api: World, tmp_path: Path) -> None:
    plan = api.submit([{"id": "a", "work": "echo hello; echo x > x.txt"}], start_paused=True)
    assert list(api.stream(f"{job_path(plan, 'a')}/logs", follow="true", idle="0.2")) == []
    assert api.get(f"{job_path(plan, 'a')}/logs") == {
        "attempt": None, "phase": None, "data": "", "offset": 0, "next_offset": 0, "size": 0, "ended": False,
    }  # fmt: skip

    heard: list[Json] = []
    with api.client.stream(
        "GET",
        f"{api.url}{job_path(plan, 'a')}/logs?follow=true",
        headers={"Authorization": f"Bearer {api.token}"},
    ) as answer:
        wait_for(lambda: api.streams.clients == 1)
        api.post(f"/plans/{plan}/resume")
        heard = [line for line in answer.iter_lines() if line.startswith("data")]  # type: ignore[misc]

    assert any("hello" in str(line) for line in heard)


def test_a_canceled_job_that_never_ran_ends_at_once(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "true"}], start_paused=True)
    api.post(f"/plans/{plan}/cancel")

    (only,) = api.stream(f"{job_path(plan, 'a')}/logs", follow="true")

    assert (only["event"], only["data"]) == ("end", {"status": "canceled"})
