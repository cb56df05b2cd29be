"""What the API refuses: each with a status that says whose move it is, and never with a fault of its own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.model import limits
from orchard.testing import Repo
from tests.http.api_world import Json, World, job_path, world

PLAN = b'{"name": "Small", "jobs": [{"id": "a", "work": "true"}]}'

UNREADABLE: dict[str, tuple[bytes, str]] = {
    "broken": (b'{"name": ', "not valid JSON"),
    "empty": (b" ", "is empty"),
    "not UTF-8": (b'{"name": "\xff"}', "UTF-8"),
    "half a surrogate pair": (b'{"name": "\\ud800"}', "surrogate"),
    "NUL": (b'{"name": "\\u0000"}', "NUL"),
    "no number": (b'{"name": "x", "max_parallel": NaN}', "finite"),
    "infinite": (b'{"name": "x", "max_parallel": 1e999}', "finite"),
    "too many digits": (b'{"name": "x", "max_parallel": ' + b"9" * 5000 + b"}", "too many digits"),
    "beyond 64 bits": (b'{"name": "x", "budget": {"tokens": 9223372036854775808}}', "beyond"),
    "a key twice": (b'{"name": "x", "name": "y"}', "given twice"),
    "too deep": (b'{"name": ' + b"[" * 100 + b"]" * 100 + b"}", "64"),
    "far too deep": (b"[" * 200_000, "64"),
    "a list": (b"[]", "an object"),
    "null": (b"null", "an object"),
    "text": (b'"plan"', "an object"),
    "two values": (PLAN + PLAN, "Extra data"),
}

WRONG_PARAMETERS = (
    "limit=0", "limit=201", "limit=1.0", "limit=%201", "limit=1_0", "limit=x", "limit=", "limit=99999999999999999999",
    "limit=1&limit=2", "cursor=x", "cursor=-1", "status=done", "deleted=1", "deleted=True", "nope=1", "limit", "=1",
    "%ff=1", "status=%ff", "&".join(f"a{n}=1" for n in range(60)),
)  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Nothing here starts work, so that one engine does for all."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
            (home / name).mkdir(mode=0o700)
            patch.setenv(name, str(home / name))
        repo = Repo.make(tmp_path_factory.mktemp("repo") / "repo")
        with world(repo.path, work=False) as made:
            yield made


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("path", ["/plans", "/plans/validate", "/plans/x/reshape"])
def test_a_body_that_cannot_be_read_is_the_clients_problem(api: World, path: str, name: str) -> None:
    data, why = UNREADABLE[name]

    told = api.post(path, data, 400)

    assert why in told["detail"], told
    assert told["type"] == "urn:orchard:bad-request"


@pytest.mark.parametrize("query", WRONG_PARAMETERS)
def test_parameters_are_known_given_once_and_of_their_type(api: World, query: str) -> None:
    assert api.get(f"/plans?{query}", 400)["detail"]


def test_a_parameter_that_is_nearly_right_is_named(api: World) -> None:
    assert "did you mean 'limit'" in api.get("/plans?limt=3", 400)["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/json; charset=latin-1", "json", ""])
def test_a_body_is_said_to_be_json(api: World, kind: str) -> None:
    answer = api.ask("POST", "/plans", PLAN, headers={"Content-Type": kind})

    assert answer.status_code == 415, answer.text


def test_a_body_that_is_too_large_is_refused(api: World) -> None:
    told = api.post("/plans", json.dumps({"name": "x" * (limits.PLAN_BYTES + 1)}).encode(), 413)

    assert str(limits.PLAN_BYTES) in told["detail"]


def test_what_takes_no_body_gets_none(api: World) -> None:
    assert api.ask("DELETE", "/plans/x", {"purge": True}).status_code == 400
    assert api.ask("GET", "/plans", {"limit": 1}).status_code == 400


@pytest.mark.parametrize(
    "path", ["", "/", "/nope", "/plans/", "/plans//jobs", "/plans/a/b/c/d/e/f", "/Plans", "/plans/%ff"]
)
def test_paths_that_do_not_exist_are_told_so(api: World, path: str) -> None:
    answer = api.ask("GET", path)

    assert answer.status_code == (400 if "%ff" in path else 404), answer.text


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("PUT", "/plans", "GET, POST"), ("POST", "/plans/x", "DELETE, GET, PATCH"),
    ("PUT", "/plans/validate", "DELETE, GET, PATCH, POST"),
    ("OPTIONS", "/plans", "GET, POST"), ("HEAD", "/plans", "GET, POST"), ("DELETE", "/events", "GET"),
])  # fmt: skip
def test_methods_that_a_path_does_not_have_are_named_beside_those_that_it_has(
    api: World, method: str, path: str, allowed: str
) -> None:
    answer = api.client.request(method, api.url + path, headers={"Authorization": f"Bearer {api.token}"})

    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(("verb", "body"), [
    ("resume", {"budget": {"tokens": 0}}), ("resume", {"budget": {"token": 5}}), ("cancel", {"why": "x"}),
    ("retry", {"jobs": []}), ("retry", {"jobs": "a"}), ("retry", {"phase": "cook"}), ("retry", {"fresh": 1}),
    ("deploy", {}), ("reshape", {}), ("reshape", {"changes": []}), ("pause", {"x": 1}), ("land", []),
])  # fmt: skip
def test_a_field_of_the_wrong_form_is_told_before_the_plan_is_looked_for(api: World, verb: str, body: Json) -> None:
    told = api.post(f"/plans/no-such-plan/{verb}", body, 400)

    assert told["problems"]


def test_what_cannot_be_done_now_says_what_the_plan_is(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "true"}], start_paused=True)

    assert "has nothing to land" in api.post(f"/plans/{plan}/land", None, 422)["detail"]
    assert "has not landed" in api.post(f"/plans/{plan}/undo", None, 422)["detail"]
    assert "not being scaffolded" in api.post(f"/plans/{plan}/finalize", None, 422)["detail"]
    assert "no failed or canceled job" in api.post(f"/plans/{plan}/retry", None, 422)["detail"]
    assert "only a failed" in api.post(f"{job_path(plan, 'a')}/retry", {}, 422)["detail"]
    assert "does not wait" in api.post(f"{job_path(plan, 'a')}/approve", None, 422)["detail"]
    assert "not the work of an agent" in api.post(f"{job_path(plan, 'a')}/send", {"message": "hi"}, 422)["detail"]
    assert "no result yet" in api.get(f"/plans/{plan}/diff", 404)["detail"]
    assert "has no attempt 7" in api.get(f"{job_path(plan, 'a')}/logs", 404, attempt=7)["detail"]
    assert "did you mean" in api.get(f"/plans/{plan[:-1]}zz", 404)["detail"]


def test_changes_are_refused_with_the_fields_of_the_body(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "true"}], start_paused=True)

    wrong = api.ask("PATCH", f"/plans/{plan}", {"land": "perhaps", "nam": "x"})
    fixed = api.ask("PATCH", job_path(plan, "a"), {"id": "b"})
    cloned = api.post(f"/plans/{plan}/clone", {"start_paused": "yes"}, 422)

    assert wrong.status_code == fixed.status_code == 422
    assert {one["path"] for one in wrong.json()["problems"]} == {"land", "nam"}
    assert fixed.json()["problems"][0]["path"] == "id"
    assert cloned["problems"][0]["path"] == "start_paused"


def test_a_fault_of_ours_is_told_without_its_cause(
    api: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(plan: str | None) -> Json:
        raise RuntimeError("the secret cause")

    plan = api.submit([{"id": "a", "work": "true"}], start_paused=True)
    monkeypatch.setattr(api.apps[0], "seen", broken)

    answer = api.client.get(f"{api.url}/plans/{plan}", headers={"Authorization": f"Bearer {api.token}"})

    assert answer.status_code == 500
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert "secret cause" not in answer.text


def test_values_that_look_secret_are_shown_nowhere(api: World, tmp_path: Path) -> None:
    value = "hunter2-hunter2"
    work = {"type": "shell", "command": "true", "env": {"API_TOKEN": value}}
    plan = api.submit(
        [{"id": "a", "work": work, "env": {"DB_PASSWORD": value}}], env={"MY_SECRET": value}, start_paused=True
    )
    api.post(f"/plans/{plan}/reshape", {"changes": [{"op": "update", "id": "a", "set": {"env": {"X_TOKEN": value}}}]})

    shown = [api.ask("GET", path).text for path in (f"/plans/{plan}", job_path(plan, "a"), "/plans", "/config")]
    shown += [json.dumps(one) for one in api.stream("/events", since=0, idle=0)]

    assert value not in "".join(shown)
    assert any("[hidden]" in text for text in shown)
