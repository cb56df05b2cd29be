"""Everything that can be asked of the API, over real HTTP, of a real engine that runs real jobs."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from orchard.core.run import Run
from orchard.core.views import plans as views
from orchard.core.views.documents import PlanSummary
from orchard.core.views.plans import plan_summary as summed
from orchard.engine.server import start as opening
from orchard.engine.turns import turn as turns
from orchard.errors import Say
from orchard.git.history import CUT, LONGEST_DIFF
from orchard.surfaces.http.operations import ROUTES
from orchard.testing import Repo
from tests.engine.scripted import ScriptedAgents, sleeps, writes
from tests.http.api_world import Json, World, job_path, wait_for, world

WRITE_A: Json = {"id": "a", "work": "echo a > a.txt"}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    return made


@pytest.fixture
def api(repo: Repo) -> Iterator[World]:
    with world(repo.path) as made:
        yield made


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


def job(document: Json, name: str) -> Json:
    found: Json = next(one for one in document["jobs"] if one["id"] == name)
    return found


def blocked_until(path: Path) -> str:
    """A command that goes on when a file is there."""
    return f"while ! test -e {path}; do sleep 0.05; done; echo done > result.txt"


# -------------------------------------------------------------------------------------- the whole


def test_a_repository_that_was_moved_is_said_to_be_gone_and_not_to_have_no_plans(api: World, repo: Repo) -> None:
    plan = api.submit([WRITE_A])
    api.until(plan, "succeeded")
    elsewhere = repo.path.rename(repo.path.with_name("elsewhere"))
    try:
        refused = api.get("/plans", 409)
    finally:
        elsewhere.rename(repo.path)

    assert "is not there any more" in refused["detail"] and "orchard serve" in refused["hint"]
    assert [one["id"] for one in api.get("/plans")["plans"]] == [plan]


def test_a_huge_diff_is_cut_and_says_so(api: World) -> None:
    plan = api.submit([{"id": "a", "work": "yes 0123456789 | head -c 9000000 > big.txt"}])
    api.until(plan, "succeeded")

    for path in (f"/plans/{plan}/diff", f"{job_path(plan, 'a')}/diff"):
        found = api.get(path)
        assert LONGEST_DIFF - 100 < len(found) <= LONGEST_DIFF + len(CUT) + 100
        assert found.endswith(CUT.decode())


def test_a_plan_is_submitted_looked_at_and_landed(api: World, repo: Repo) -> None:
    plan = api.submit([WRITE_A, {"id": "b", "group": "g/h", "needs": ["a"], "work": "cat a.txt > b.txt"}])

    done = api.until(plan, "succeeded")
    assert done["plan"]["landed"] and repo.files("work")["b.txt"] == "a\n"
    assert api.get("/plans")["plans"][0]["id"] == plan
    assert [one["id"] for one in api.get(f"/plans/{plan}/jobs")["jobs"]] == ["a", "g/h/b", "__snapshot-validation__"]
    assert "b.txt" in api.get(f"/plans/{plan}/diff") and "1 +" in api.get(f"/plans/{plan}/diff", stat="true")
    assert "+a" in api.get(f"{job_path(plan, 'g/h/b')}/diff")
    assert api.get(f"/plans/{plan}/usage")["plan"]["id"] == plan
    assert api.get(job_path(plan, "g/h/b"))["configuration"]["needs"] == ["a"]
    assert api.get(f"{job_path(plan, 'a')}/attempts")["attempts"][0]["outcome"] == "succeeded"
    assert api.get(f"{job_path(plan, 'a')}/failure")["failure"] is None
    listed = api.get(f"/plans/{plan}/groups")["groups"]
    assert [api.get(f"/plans/{plan}/groups/{quote(one['path'], safe='')}") for one in listed] == listed
    assert "has no group" in str(api.get(f"/plans/{plan}/groups/none", 404))
    assert listed[1] == {
        "path": "g/h", "status": "succeeded", "counts": {"succeeded": 1, "total": 1}, "jobs": ["g/h/b"],
    }  # fmt: skip


def test_a_graph_is_drawn_in_every_form(api: World) -> None:
    plan = api.submit([WRITE_A, {"id": "b", "needs": ["a"]}], start_paused=True)

    assert api.get(f"/plans/{plan}/graph").startswith("flowchart LR")
    assert api.get(f"/plans/{plan}/graph", format="dot").startswith("digraph")
    assert api.get(f"/plans/{plan}/graph", format="svg").startswith("<svg")
    assert ["a", "b"] in api.get(f"/plans/{plan}/graph", format="json")["edges"]


def test_every_operation_of_the_table_does_what_it_says(
    agents: ScriptedAgents, api: World, repo: Repo, tmp_path: Path
) -> None:
    """One story in which everything is asked for; an operation that is new and not in it fails here."""
    agents.add("one", writes({"one.txt": "1"}), writes({"two.txt": "2"}), sleeps())
    go = tmp_path / "go"
    for path in ("/repos", "/waiting", "/saved-work", "/agents", "/models", "/config", "/doctor", "/capacity"):
        api.get(path)
    installs = {one["name"]: one["install"] for one in api.get("/agents")["agents"]}
    assert installs["goose"] == "brew install block-goose-cli" and installs["claude"].startswith("npm install")
    assert api.get("/openapi.json")["openapi"] == "3.1.0"
    assert api.get("/journal", since="0") == {"events": [], "next": 0}
    whole: Json = {"name": "Whole", "jobs": [WRITE_A]}
    assert api.post("/plans/validate", whole)["leaves"] == ["a"]

    # A plan that is built piece by piece, changed, stopped, and tried again.
    built = api.post("/plans", {"name": "Built"}, 201, scaffolding="true")["plan"]
    api.post(f"/plans/{built}/reshape", {"changes": [{"op": "add", "job": {"id": "slow", "work": blocked_until(go)}}]})
    api.post(f"/plans/{built}/reshape", {"changes": [{"op": "add", "job": {"id": "x", "group": "g", "work": "true"}}]})
    api.ask("PATCH", f"/plans/{built}", {"max_parallel": 1, "land": "ask"}).raise_for_status()
    api.ask("PATCH", job_path(built, "slow"), {"priority": 5, "name": "Slow one"}).raise_for_status()
    assert job(api.get(f"/plans/{built}"), "slow")["name"] == "Slow one"
    api.post(f"/plans/{built}/finalize")
    wait_for(lambda: bool(job(api.get(f"/plans/{built}"), "slow")["status"] == "running"))
    assert api.post(f"/plans/{built}/pause")["status"] in ("paused", "running")
    assert api.get(f"/plans/{built}/groups/g")["jobs"] == ["g/x"]
    assert api.post(f"/plans/{built}/groups/g/cancel", {"reason": "not needed"})["jobs"] == ["g/x"]
    api.post(f"{job_path(built, 'slow')}/cancel")
    go.touch()
    api.post(f"/plans/{built}/retry", {"jobs": ["slow"], "fresh": True})
    api.post(f"{job_path(built, 'g/x')}/retry", {"work": "echo x > x.txt"})
    api.post(f"/plans/{built}/resume")
    assert api.until(built, "waiting")["plan"]["waiting"][0]["kind"] == "landing"
    assert api.get("/waiting")["waiting"][0]["answer"] == "land"
    api.post(f"/plans/{built}/land")
    api.until(built, "succeeded")
    assert repo.files("work")["x.txt"] == "x\n"
    assert api.post(f"/plans/{built}/undo")["branch"] == "work"
    assert "x.txt" not in repo.files("work")

    # A conflict that a person resolves by hand, and a pull request where there is no remote.
    torn = api.submit([{"id": name, "work": f"echo {name} > same.txt"} for name in ("l", "r")], resolver="fail")
    found = next(one["id"] for one in api.until(torn, "failed")["jobs"] if one["status"] == "failed")
    assert api.post(f"{job_path(torn, found)}/resolve", {"step": "open"})["files"][0]["path"] == "same.txt"
    api.post(f"{job_path(torn, found)}/resolve", {"step": "abort"})
    assert "was undone" in str(api.post(f"/plans/{built}/pull-request", {}, 422))

    # A job that waits for a person, one that is failed by one, and what is left afterwards.
    rejected = api.submit([{**WRITE_A, "approve": True}])
    api.until(rejected, "waiting")
    assert not api.post(f"{job_path(rejected, 'a')}/reject", {"reason": "No."})["again"]
    asked = api.submit([{**WRITE_A, "approve": True}, {"id": "bad", "work": "sleep 60"}])
    wait_for(lambda: bool(job(api.get(f"/plans/{asked}"), "a")["waiting"]))
    api.post(f"{job_path(asked, 'a')}/approve")
    api.post(f"{job_path(asked, 'bad')}/force-fail", {"reason": "enough"})
    assert api.until(asked, "failed")["plan"]["counts"]["succeeded"] == 1
    assert api.get(f"{job_path(asked, 'bad')}/failure")["failure"]["reason"] == "forced"
    assert api.get(f"{job_path(asked, 'bad')}/logs")["ended"]
    assert api.get(f"{job_path(asked, 'bad')}/attempts")["attempts"][0]["number"] == 1
    for path in ("graph?format=json", "usage", "groups", "jobs"):
        api.get(f"/plans/{asked}/{path}")
    api.get(job_path(asked, "a"))
    api.get(f"{job_path(asked, 'a')}/diff")
    api.get(f"/plans/{built}/diff")
    cloned = api.post(f"/plans/{asked}/clone", {"name": "Again", "start_paused": True}, 201)["plan"]
    assert api.get(f"/plans/{cloned}")["plan"]["name"] == "Again"
    api.post(f"/plans/{cloned}/cancel", {"reason": "seen enough"})
    api.ask("DELETE", f"/plans/{asked}").raise_for_status()
    api.ask("DELETE", f"/plans/{cloned}?purge=true").raise_for_status()
    api.get(f"/plans/{cloned}", 404)

    # An agent that is talked with, in a plan whose jobs are deployed by hand.
    work = {"type": "agent", "instructions": "Write one", "interactive": True}
    talk = api.submit([{"id": "talk", "work": work}, {"id": "too", "work": "echo 3 > three.txt"}], deploy="manual")
    (saved,) = api.get("/workers", plan=talk)["plans"]
    assert [(one["job"], one["deployed"]) for one in saved["tasks"]] == [("talk", False), ("too", False)]
    api.post(f"/plans/{talk}/deploy", {"jobs": ["talk"]})
    api.post(f"{job_path(talk, 'too')}/deploy")
    wait_for(lambda: (job(api.get(f"/plans/{talk}"), "talk")["worker"] or {}).get("state") == "idle")
    api.post(f"{job_path(talk, 'talk')}/send", {"message": "Now the second file."})
    wait_for(lambda: job(api.get(f"/plans/{talk}"), "talk")["worker"]["turns"] == 2)
    wait_for(lambda: job(api.get(f"/plans/{talk}"), "talk")["worker"]["state"] == "idle")
    api.post(f"{job_path(talk, 'talk')}/send", {"message": "And sleep."})
    wait_for(lambda: job(api.get(f"/plans/{talk}"), "talk")["agent"] is not None)
    wait_for(lambda: api.ask("POST", f"{job_path(talk, 'talk')}/interrupt").status_code == 200)
    wait_for(lambda: job(api.get(f"/plans/{talk}"), "talk")["worker"]["state"] == "idle")
    assert api.post(f"{job_path(talk, 'talk')}/pause")["worker"] == "paused"
    assert [one["state"] for one in api.get("/workers", state="paused", all="true")["workers"]] == ["paused"]
    assert api.post(f"{job_path(talk, 'talk')}/resume")["worker"] == "running"
    wait_for(lambda: job(api.get(f"/plans/{talk}"), "talk")["agent"] is not None)
    api.post(f"{job_path(talk, 'talk')}/complete", {"result": "Two files are enough."})
    api.until(talk, "succeeded")
    said = api.get(f"{job_path(talk, 'talk')}/talk")["entries"]
    assert [one["text"] for one in said if one["sender"] == "person" and one["text"]] == [
        "Write one", "Now the second file.", "And sleep.", "Two files are enough.",
    ]  # fmt: skip
    assert api.get(f"{job_path(talk, 'talk')}/talk", since="0", limit="1")["entries"][0]["kind"] == "task"
    assert repo.files("work")["two.txt"] == "2"

    api.get("/plans")
    list(api.stream("/events", since=0, idle=0))
    list(api.stream(f"/plans/{talk}/changes", idle=0))
    elsewhere = {"allowCall", "denyCall", "getSubtask"}  # see test_api_permissions.py, and test_subtask_life.py
    elsewhere |= {"proposePlan", "draftPlan"}  # which need a forge, and an agent: tests/forge, and test_drafts.py
    assert api.asked | elsewhere == {one.name for one in ROUTES}


# ------------------------------------------------------------------------------------- making plans


def test_a_key_makes_a_plan_only_once(api: World) -> None:
    plan: Json = {"name": "Once", "jobs": [WRITE_A], "start_paused": True}
    headers = {"Idempotency-Key": "abc"}

    first = api.ask("POST", "/plans", plan, headers=headers)
    again = api.ask("POST", "/plans", plan, headers=headers)
    other = api.ask("POST", "/plans", {**plan, "name": "Other"}, headers=headers)

    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert again.json() == {**first.json(), "known": True}
    assert len(api.get("/plans")["plans"]) == 1


def test_a_key_that_is_used_in_another_way_or_has_another_form_is_refused(api: World) -> None:
    plan: Json = {"name": "Once", "jobs": [WRITE_A], "start_paused": True}
    made = api.ask("POST", "/plans", plan, headers={"Idempotency-Key": "abc"}).json()["plan"]

    def asked(path: str, key: str | bytes) -> tuple[int, str]:
        answer = api.ask("POST", path, None if "clone" in path else plan, headers={"Idempotency-Key": key})
        return answer.status_code, answer.json().get("detail", "")

    for path in ("/plans?scaffolding=true", f"/plans/{made}/clone?scaffolding=true"):
        status, said = asked(path, "abc")
        assert status == 422 and "in another way" in said, path
    for key in ("caf\u00e9", "x" * 201, "tab\tinside"):
        status, said = asked("/plans", key.encode("latin-1"))
        assert status == 422 and "has another form" in said, key
    assert len(api.get("/plans")["plans"]) == 1


def test_a_clone_may_wait_to_be_finalized_and_then_to_be_resumed(api: World) -> None:
    plan = api.submit([WRITE_A], start_paused=True)
    clone = api.post(f"/plans/{plan}/clone", {"start_paused": False}, 201, scaffolding="true")["plan"]
    shown = api.get(f"/plans/{clone}")["plan"]["status"]

    ended = api.post(f"/plans/{clone}/finalize", {"start_paused": True})

    assert (shown, ended["status"]) == ("scaffolding", "paused")


def test_everything_wrong_with_a_plan_is_told_at_once_with_the_line_of_the_body(api: World) -> None:
    body = b'{"name": "Bad",\n "jobs": [\n  {"id": "a", "wrk": "true"},\n  {"id": "b", "needs": ["c"]}]}'

    told = api.post("/plans", body, 422)
    checked = api.post("/plans/validate", body, 422)

    assert told["problems"] == checked["problems"]
    assert [(one["path"], one["line"]) for one in told["problems"]] == [("jobs[0].wrk", 3), ("jobs[1].needs[0]", 4)]
    assert "did you mean 'work'" in told["problems"][0]["message"]
    assert api.get("/plans")["plans"] == []


def test_a_plan_is_found_by_id_prefix_and_name_and_a_job_by_its_bare_id(api: World) -> None:
    plan = api.submit([{**WRITE_A, "group": "deep/er"}], name="Find me", start_paused=True)

    for name in (plan, plan[:-2], "Find%20me"):
        assert api.get(f"/plans/{name}")["plan"]["id"] == plan
    assert api.get(job_path(plan, "a"))["id"] == api.get(job_path(plan, "deep/er/a"))["id"] == "deep/er/a"
    assert "%2F" in api.get(f"/plans/{plan}/jobs/deep/er/a", 404)["hint"]


def test_a_plan_may_be_called_like_a_word_in_a_path(api: World) -> None:
    plan = api.submit([WRITE_A], name="validate", start_paused=True)

    assert api.get("/plans/validate")["plan"]["id"] == plan
    assert api.ask("PATCH", "/plans/validate", {"max_parallel": 2}).status_code == 200
    assert api.post("/plans/validate", {"name": "x", "jobs": [WRITE_A]})["valid"] is True
    assert api.ask("PUT", "/plans/validate").headers["allow"] == "DELETE, GET, PATCH, POST"
    assert api.ask("DELETE", "/plans/validate").status_code == 200


def test_a_problem_of_a_change_stands_where_the_client_wrote_it(api: World) -> None:
    plan = api.submit([WRITE_A], start_paused=True)
    changes = [{"op": "remove", "id": "zzz"}, {"op": "add", "job": {"id": "b", "wrk": "x"}}]

    graph = api.post(f"/plans/{plan}/reshape", {"changes": changes}, 422)["problems"]
    api.post(f"{job_path(plan, 'a')}/force-fail")
    late = api.ask("PATCH", job_path(plan, "a"), {"timeout": 5}).json()["problems"]

    assert [one["path"] for one in graph] == ["changes[0].id", "changes[1].job.wrk"]
    assert [one["path"] for one in late] == ["job"]


def test_two_repositories_are_told_apart(repo: Repo, tmp_path: Path) -> None:
    other = Repo.make(tmp_path / "other")
    with world(repo.path, other.path) as api:
        ids = [one["id"] for one in api.get("/repos")["repos"]]
        made = api.post("/plans", {"name": "Here", "jobs": [WRITE_A], "start_paused": True}, 201, repo=ids[1])["plan"]

        assert api.get("/plans", repo=ids[0])["plans"] == []
        assert [one["id"] for one in api.get("/plans", repo="other")["plans"]] == [made]
        assert ids[0] in api.get("/plans", 422)["hint"]
        assert ids[0] in api.get("/plans", 404, repo="nope")["hint"]


# ------------------------------------------------------------------------------------------- pages


def test_plans_come_page_by_page_the_newest_first_even_while_new_ones_are_made(api: World) -> None:
    made = [api.submit([WRITE_A], name=f"Plan {number}", start_paused=True) for number in range(5)]
    api.post(f"/plans/{made[1]}/cancel")

    first = api.get("/plans", limit=2)
    api.submit([WRITE_A], name="Newer", start_paused=True)
    second = api.get("/plans", limit=2, cursor=first["next"])
    third = api.get("/plans", limit=2, cursor=second["next"])

    shown = [one["id"] for page in (first, second, third) for one in page["plans"]]
    assert shown == made[::-1] and third["next"] is None
    assert [one["id"] for one in api.get("/plans", status="canceled")["plans"]] == [made[1]]
    paused = api.get("/plans", status="paused", limit=4)
    assert [one["status"] for one in paused["plans"]] == ["paused"] * 4 and paused["next"] is not None
    assert made[0] in [one["id"] for one in api.get("/plans", status="paused", cursor=paused["next"])["plans"]]


def test_a_plan_in_which_nothing_happened_is_not_summed_up_again(api: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that the page does not show."""
    plans = [api.submit([WRITE_A], name=f"p{number}", start_paused=True) for number in range(3)]
    made: list[str] = []

    def noted(run: Run, say: Say, *, interrupted: bool = False) -> PlanSummary:
        made.append(run.id)
        return summed(run, say, interrupted=interrupted)

    monkeypatch.setattr(views, "plan_summary", noted)

    first = api.get("/plans", limit="2")
    assert [one["id"] for one in first["plans"]] == made == [plans[2], plans[1]]
    assert api.get("/plans", limit="2") == first and len(made) == 2

    api.post(f"/plans/{plans[1]}/cancel")
    assert [one["status"] for one in api.get("/plans", limit="2")["plans"]] == ["paused", "canceled"]


def test_jobs_come_page_by_page_and_are_filtered_by_group_and_status(api: World) -> None:
    jobs: list[Json] = [
        {"id": f"j{number}", "group": "g" if number % 2 else "g/in", "work": "true"} for number in range(9)
    ]
    plan = api.submit([*jobs, {"id": "out", "work": "true"}], start_paused=True)
    api.post(f"{job_path(plan, 'out')}/cancel")

    found, cursor = [], None
    while True:
        page = api.get(f"/plans/{plan}/jobs", limit=4, group="g", **({"cursor": cursor} if cursor else {}))
        assert page["total"] == 9
        found += [one["id"] for one in page["jobs"]]
        cursor = page["next"]
        if cursor is None:
            break

    assert found == [f"g/j{n}" if n % 2 else f"g/in/j{n}" for n in range(9)]
    assert [one["id"] for one in api.get(f"/plans/{plan}/jobs", group="g/in", limit=1)["jobs"]] == ["g/in/j0"]
    assert [one["id"] for one in api.get(f"/plans/{plan}/jobs", status="canceled")["jobs"]] == ["out"]
    assert "g/in" in api.get(f"/plans/{plan}/jobs", 404, group="nope")["hint"]


def test_a_plan_of_a_thousand_jobs_is_read_as_a_whole(api: World) -> None:
    jobs: list[Json] = [{"id": f"j{number}", "work": "true"} for number in range(1000)]
    plan = api.submit(jobs, start_paused=True)

    answer = api.ask("GET", f"/plans/{plan}")

    assert len(answer.json()["jobs"]) == 1001
    assert int(answer.headers["orchard-seq"]) == api.served[0].newest
    assert len(api.get(f"/plans/{plan}/jobs", limit=200)["jobs"]) == 200


# ------------------------------------------------------------------------------------ without an engine


def test_without_an_engine_everything_can_be_looked_at_and_the_rest_says_so(api: World) -> None:
    plan = api.submit([WRITE_A], start_paused=True)
    session, api.served[0].session = api.served[0].session, None

    seen, refused = api.get(f"/plans/{plan}"), api.ask("POST", f"/plans/{plan}/cancel")

    api.served[0].session = session
    assert seen["plan"]["id"] == plan
    assert refused.status_code == 503 and refused.headers["retry-after"]
    assert refused.json()["type"] == "urn:orchard:not-now"
