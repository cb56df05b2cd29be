"""The daemon in numbers, with the package that writes them and without it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.program import Desk, desks, until
from tests.http.daemon import Daemon, served

PLAN = "name: Small\ntarget: t\njobs: [{id: a, work: 'echo 1 > a.txt'}, {id: b, work: 'exit 1'}]"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def numbers(daemon: Daemon) -> dict[str, float]:
    """Every number by its name and labels, without the repository's."""
    answer = daemon.ask("GET", "/metrics", daemon.bearer)
    assert answer.status == 200 and str(answer.header("content-type")).startswith("text/plain"), answer
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            labels = [value for name, value in sorted(sample.labels.items()) if name != "repo"]
            found[" ".join([sample.name, *labels])] = sample.value
    return found


def test_plans_jobs_slots_and_requests_are_counted(desk: Desk) -> None:
    with served(desk) as daemon:
        before = numbers(daemon)
        desk("run", desk.plan(PLAN))
        daemon.ask("GET", "/nothing", daemon.bearer)
        daemon.ask("BREW", "/")
        until(lambda: numbers(daemon)["orchard_slots_used"] == 0, "slots are kept for a moment only")
        after = numbers(daemon)

    assert before["orchard_events_total"] == 0
    assert after["orchard_plans failed"] == 1
    assert (after["orchard_jobs succeeded"], after["orchard_jobs failed"]) == (1, 1)
    assert after["orchard_events_total"] > 5
    assert after["orchard_engine_up"] == 1
    assert (after["orchard_slots_total"], after["orchard_sse_clients"]) == (16, 0)
    assert after["orchard_http_requests_total GET 4xx"] == after["orchard_http_requests_total OTHER 4xx"] == 1
    assert after["orchard_http_requests_total GET 2xx"] >= 1
    assert 10e6 < after["orchard_resident_bytes"] < 1e9
    assert 0 < before["orchard_uptime_seconds"] < after["orchard_uptime_seconds"]


def test_who_follows_events_is_counted_for_as_long_as_that_lasts(desk: Desk) -> None:
    with served(desk) as daemon:
        with daemon.raw() as line:
            rows = (
                "GET /api/v1/events HTTP/1.1",
                f"Host: 127.0.0.1:{daemon.port}",
                f"Authorization: Bearer {daemon.token}",
            )
            line.sendall("".join(f"{row}\r\n" for row in (*rows, "")).encode())
            assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
            during = numbers(daemon)["orchard_sse_clients"]
        daemon.desk("stop")

    assert during == 1


def test_labels_do_not_grow_with_what_clients_say(desk: Desk) -> None:
    with served(desk) as daemon:
        first = set(numbers(daemon))
        for number in range(20):
            daemon.ask(f"BREW{number}", f"/{number}", {"Host": f"127.0.0.1:{daemon.port}"})
        second = set(numbers(daemon))

    assert second - first <= {"orchard_http_requests_total OTHER 4xx", "orchard_http_requests_total GET 2xx"}


def test_without_the_package_it_says_what_to_install(desk: Desk) -> None:
    hidden = desk.folder / "hidden"
    hidden.mkdir()
    (hidden / "prometheus_client.py").write_text("raise ImportError('hidden')\n")
    desk.env["PYTHONPATH"] = f"{hidden}:{desk.env.get('PYTHONPATH', '')}"
    with served(desk) as daemon:
        answer = daemon.ask("GET", "/metrics", daemon.bearer)

    assert answer.status == 501
    assert answer.header("content-type") == "application/problem+json"
    assert "orchard-agents[metrics]" in answer.json["hint"]
