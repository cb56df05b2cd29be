"""The document says what the API does: by its own form, and by thousands of requests made up from it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from orchard.planfile.parse import schema as plan_schema
from orchard.surfaces.http.openapi import document, document_bytes
from orchard.surfaces.http.operation import Part
from orchard.surfaces.http.operations import ROUTES
from orchard.testing import Repo
from tests.http.api_fuzz import Fuzzed, ShortStreams, fuzz
from tests.http.api_world import Json, job_path, world

# Reaches into hypothesis and its schemas, which warn about what is theirs.
quiet = pytest.mark.filterwarnings("ignore")


def parts(value: Any) -> list[Any]:
    """A value and everything in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(found for one in inner for found in parts(one))]


# -------------------------------------------------------------------------------------- the document


def test_every_operation_is_in_the_document_once_with_all_it_may_answer() -> None:
    named = [one["operationId"] for path in document()["paths"].values() for one in path.values()]

    assert sorted(named) == sorted(one.name for one in ROUTES)
    for one in ROUTES:
        made = document()["paths"][one.path][one.method.lower()]
        promised = set(made["responses"])
        assert {str(one.status), "400", "401", "403", "404", "409", "421", "422", "431", "503", "504"} <= promised
        assert ({"413", "415"} <= promised) == (one.body is not None)
        assert {found["name"] for found in made["parameters"] if found["in"] == "path"} == set(
            re.findall(r"{(\w+)}", one.path)
        )
        assert (made["summary"] and "requestBody" in made) or one.body is None


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    made = document()

    for found in parts(made):
        if isinstance(found, dict) and isinstance(found.get("$ref"), str):
            place: Any = made
            for word in found["$ref"].removeprefix("#/").split("/"):
                place = place[word]
    for name, schema in made["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert schema.get("description") or schema.get("properties"), name
    assert json.loads(document_bytes()) == made


def test_a_plan_in_the_document_is_a_plan_in_a_file() -> None:
    made, own = document()["components"]["schemas"], plan_schema()

    assert set(made["Plan"]["properties"]) == set(own["properties"])
    assert set(made["JobFields"]["properties"]) == set(own["$defs"]["JobFields"]["properties"])
    assert "id" not in made["JobUpdate"]["properties"] and "jobs" not in made["PlanUpdate"]["properties"]
    assert all(part.name in made for part in (one.body for one in ROUTES) if isinstance(part, Part))


def test_the_table_of_requests_is_made_from_the_operations() -> None:
    made = subprocess.run(
        [sys.executable, "tools/api_reference.py", "--check"],
        cwd=Path(__file__).parent.parent.parent, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert made.returncode == 0, made.stdout + made.stderr


def test_the_page_about_the_api_names_every_path() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "api.md").read_text("utf-8")

    told = set(re.findall(r"`(GET|POST|PATCH|DELETE) (/[\w{}/.-]+)`", page))
    assert told == {(one.method, one.path) for one in ROUTES}


# ------------------------------------------------------------------------------------- made-up requests


def prepared(repo: Repo) -> dict[str, list[str]]:
    """Plans in different states, made by an engine that works; what comes later only looks at them and changes them."""
    jobs: list[Json] = [{"id": "a", "group": "g/h", "work": "echo x > a.txt"}, {"id": "b", "work": "echo y > b.txt"}]
    bad: Json = {"id": "a", "group": "g/h", "work": "false", "heal": False}
    with world(repo.path) as api:
        done, failed = api.submit(jobs, name="first"), api.submit([bad, jobs[1]], name="second")
        asked = api.submit([{"id": "a", "work": "echo q > c.txt", "approve": True}], name="third")
        api.until(done, "succeeded"), api.until(failed, "failed"), api.until(asked, "waiting")
        paused = api.submit(jobs, name="fourth", start_paused=True)
        return {
            "path.plan": [done, failed, asked, paused],
            "path.job": ["g/h/a", "a", "b"],
            "path.group": ["g/h", "g"],
            "query.repo": [api.served[0].id],
        }


def fuzzed(tmp_path: Path, examples: int) -> Fuzzed:
    """Made-up requests to an engine that starts no work: no command that they make up is ever run."""
    repo = Repo.make(tmp_path / "repo")
    repo("checkout", "-q", "-b", "work")
    names = prepared(repo)
    with world(repo.path, work=False, streams=ShortStreams()) as api:
        begun = api.served[0].newest
        found = fuzz(api, names, examples)
        assert api.get("/plans") and api.streams.clients == 0
        plan = api.submit([{"id": "still", "work": "true"}], name="still alive")
        assert api.get(job_path(plan, "still"))["attempts"] == 0
        happened = {one["event"] for one in api.stream("/events", since=begun, idle=0)}
        assert "PlanSubmitted" in happened and "JobStarted" not in happened
        return found


def check(found: Fuzzed, requests: int) -> None:
    assert not found.failures, "\n\n".join(f"{name}: {text}" for name, text in list(found.failures.items())[:5])
    assert found.requests >= requests, found.requests
    assert max(found.statuses) < 500 and 0 not in found.statuses, found.statuses


@quiet
def test_a_thousand_made_up_requests_get_only_answers_that_are_documented(tmp_path: Path) -> None:
    found = fuzzed(tmp_path, 2)

    check(found, 1000)
    assert found.statuses[401] > 50 and found.statuses[405] > 100


@quiet
@pytest.mark.slow
def test_many_made_up_requests_about_plans_in_all_states_get_only_answers_that_are_documented(tmp_path: Path) -> None:
    found = fuzzed(tmp_path, 70)

    check(found, 4000)
    assert len(found.reached) > 30, found.reached


@quiet
@pytest.mark.slow
def test_twenty_thousand_requests_that_cover_every_field_get_only_answers_that_are_documented(tmp_path: Path) -> None:
    check(fuzzed(tmp_path, 0), 20_000)


def test_nothing_is_answered_without_the_token(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    with world(repo.path, work=False) as api:
        for one in ROUTES:
            url = f"{api.url}{re.sub(r'{.*?}', 'x', one.path)}"
            for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {api.token}"}):
                answer = api.client.request(one.method, url, headers=headers)
                assert answer.status_code == 401, (one.name, answer.status_code)
        assert api.client.get(f"{api.url}/plans?token={api.token}").status_code == 401
