"""The life of a daemon, by real processes: it begins, is found, runs plans, takes over, and ends as it was told."""

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import psutil
import pytest

from orchard.surfaces.http.daemon.address import read_http_address
from tests.acceptance.program import Desk, desks, until
from tests.acceptance.test_control import begun, gate, open_gate, two_in_a_row
from tests.http.daemon import Daemon, serve, served


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    for one in desks(tmp_path):
        yield one
        one("stop", "--now", "--all")


def engine_pid(desk: Desk) -> int | None:
    """Which process is the engine of the repository, if there is one that lives."""
    try:
        pid = int(json.loads((desk.state / "daemon.json").read_text())["pid"])
    except (OSError, ValueError):
        return None
    return pid if psutil.pid_exists(pid) and not is_gone(psutil.Process(pid)) else None


def at_work(desk: Desk, *words: str) -> Daemon:
    """A daemon with a job that waits at its gate, and one after it."""
    daemon = serve(desk, *words)
    assert desk("run", two_in_a_row(desk), "--detach").code == 0
    begun(desk, "Row-first")
    return daemon


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended; nobody may have waited for it yet."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def ended(daemon: Daemon) -> int:
    assert daemon.running is not None
    return daemon.running.end().code


def failure(desk: Desk) -> str:
    return str(desk("job", "first", "--json").json["error"])


# --------------------------------------------------------------------------------------- beginning


def test_it_says_where_it_is_in_one_line(desk: Desk) -> None:
    running = desk.start("serve")
    running.shows("\n")

    line = running.out.splitlines()[0]
    running.signal(signal.SIGTERM)

    assert line.startswith("Orchard serves 1 repository at http://127.0.0.1:") and "/#code=" in line
    assert running.end().code == 0


def test_every_verb_finds_the_daemon_and_works_through_it(desk: Desk) -> None:
    with served(desk) as daemon:
        ran = desk("run", desk.plan("name: Small\ntarget: t\njobs: [{id: a, work: 'echo 1 > a.txt'}]"))

        assert ran.code == 0, ran.talk
        assert engine_pid(desk) == daemon.said["pid"]
        assert desk("list").code == desk("status").code == 0
        assert desk.repo.files("t")["a.txt"] == "1\n"


def test_in_the_background_it_is_ready_when_the_command_returns_and_gone_when_stop_returns(desk: Desk) -> None:
    started = desk("serve", "--background", "--json")
    daemon = Daemon(desk, started.json)

    page = daemon.ask("GET", "/", daemon.bearer)
    process = daemon.process
    stopped = desk("stop", "--json")

    assert started.code == stopped.code == 0, started.talk
    assert page.status == 200 and b"<title>Orchard</title>" in page.body
    assert [one["pid"] for one in stopped.json["stopped"]] == [daemon.said["pid"]]
    assert is_gone(process)
    assert not (desk.state / "http.json").exists() and not (desk.state / "daemon.json").exists()
    assert not Path(daemon.said["token_file"]).parent.exists()


def test_what_is_served_is_not_served_twice_but_a_new_link_is_given(desk: Desk) -> None:
    with served(desk) as daemon:
        again, background = desk("serve", "--json"), desk("serve", "--background", "--json")

        assert again.code == background.code == 0
        for said in (again.json, background.json):
            assert (said["pid"], said["already"]) == (daemon.said["pid"], True)
            assert daemon.exchange(said["url"].partition("#code=")[2]).status == 200


def test_two_that_begin_at_once_become_one(desk: Desk) -> None:
    both = [desk.start("serve", "--json") for _ in range(2)]
    until(lambda: all("\n" in one.out for one in both), "both say where")

    said = [json.loads(one.out) for one in both]

    assert said[0]["pid"] == said[1]["pid"]
    assert sorted(one["already"] for one in said) == [False, True]
    desk("stop")
    assert [one.end().code for one in both] == [0, 0]


def test_what_a_dead_daemon_left_is_passed_over(desk: Desk) -> None:
    with served(desk):
        address = json.loads((desk.state / "http.json").read_text())
    (desk.state / "http.json").write_text(json.dumps({**address, "started": address["started"] - 1}))

    assert desk("stop").code == 0
    with served(desk) as daemon:
        assert daemon.said["already"] is False
        assert daemon.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize("left", ["", "{", "[]", "7", "{}", '{"pid": 1}', "\0", "[" * 100_000])
def test_what_is_no_address_is_nobody(tmp_path: Path, left: str) -> None:
    (tmp_path / "http.json").write_text(left)

    assert read_http_address(tmp_path) is None


def test_several_repositories_are_served_by_one(desk: Desk) -> None:
    other = desk.beside("other")
    with served(
        desk, "--repo", desk.repo.path, "--repo", other.repo.path, "--repo", other.repo.path / ".git"
    ) as daemon:
        repos = daemon.ask("GET", "/api/v1/repos", daemon.bearer)
        ran = [one("run", one.plan("name: S\ntarget: t\njobs: [{id: a, work: 'echo 1 > a'}]")) for one in (desk, other)]

        assert len(daemon.said["repositories"]) == 2
        assert repos.status == 200 and len(repos.json["repos"]) == 2, repos
        assert [one.code for one in ran] == [0, 0]
        assert engine_pid(desk) == engine_pid(other) == daemon.said["pid"]


def test_all_serves_what_was_used_before_and_passes_over_what_is_gone(desk: Desk) -> None:
    other, gone = desk.beside("other"), desk.beside("gone")
    for one in (desk, other, gone):
        one("run", one.plan("name: S\ntarget: t\njobs: [{id: a, work: 'echo 1 > a'}]"))
    gone.repo.path.rename(gone.repo.path.with_name("elsewhere"))

    with served(desk, "--all") as daemon:
        assert set(daemon.said["repositories"]) == {str(desk.repo.path), str(other.repo.path)}


def test_one_that_is_served_already_is_left_to_its_daemon(desk: Desk) -> None:
    other = desk.beside("other")
    with served(other), served(desk, "--repo", desk.repo.path, "--repo", other.repo.path) as daemon:
        assert daemon.said["repositories"] == [str(desk.repo.path)]
        assert daemon.running is not None and "served by another daemon" in daemon.running.talk


def test_the_rest_of_one_repository_does_not_end_the_jobs_of_another(desk: Desk) -> None:
    other = desk.beside("other")
    with served(desk, "--repo", desk.repo.path, "--repo", other.repo.path):
        desk("run", two_in_a_row(desk), "--detach")
        begun(desk, "Row-first")
        other("run", other.plan("name: S\ntarget: t\njobs: [{id: a, work: 'echo 1 > a'}]"))
        # Two seconds after its last job an engine ends orphans; whoever belongs to somebody is none.
        waited = desk("wait", "--timeout", "3").code

        open_gate(desk, "Row-first")

        assert waited == 124
        assert desk("wait").code == 0
        assert desk.jobs() == {"first": "succeeded", "second": "succeeded"}


# ------------------------------------------------------------------------------------------ ending


def test_it_lets_running_jobs_finish_and_starts_nothing_new(desk: Desk) -> None:
    daemon = at_work(desk)

    os.kill(daemon.said["pid"], signal.SIGTERM)
    until(lambda: json.loads((desk.state / "http.json").read_text())["stopping"])
    still = desk.jobs()["first"]
    healthy = daemon.ask("GET", "/healthz").status
    open_gate(desk, "Row-first")

    assert ended(daemon) == 0
    assert (still, healthy) == ("running", 200)
    assert desk.jobs() == {"first": "succeeded", "second": "ready"}
    assert desk("resume").code == 0
    assert set(desk.repo.files("row")) == {"README.md", "first.txt", "second.txt"}


def test_it_stops_running_jobs_where_it_was_told_so_and_nothing_is_lost(desk: Desk) -> None:
    daemon = at_work(desk, "--on-stop", "stop")

    os.kill(daemon.said["pid"], signal.SIGINT)

    assert ended(daemon) == 0
    desk.check_nothing_runs()
    with served(desk):
        assert desk.jobs() == {"first": "failed", "second": "blocked"}
        assert "interrupted" in failure(desk)
        assert len(desk.events("WorkSaved")) == 1
        saved = desk("recover", "--json").json[0]["ref"]
        assert desk.repo("show", f"{saved}:first.txt") == "1\n"


def test_a_second_signal_stops_what_was_left_to_finish(desk: Desk) -> None:
    daemon = at_work(desk)

    os.kill(daemon.said["pid"], signal.SIGTERM)
    until(lambda: json.loads((desk.state / "http.json").read_text())["stopping"])
    os.kill(daemon.said["pid"], signal.SIGTERM)

    assert ended(daemon) == 0
    desk.check_nothing_runs()
    assert not (desk.folder / "Row-first.go").exists()


def test_a_third_signal_does_not_wait_for_those_who_will_not_go(desk: Desk) -> None:
    config = desk.folder / "config" / "orchard" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("[limits]\ngrace = 50\n")
    daemon = serve(desk)
    stubborn = f"trap '' TERM; {gate(desk, 'stubborn')}; sleep 100"
    desk("run", desk.plan(f'name: S\njobs: [{{id: a, work: "{stubborn}"}}]'), "--detach")
    begun(desk, "stubborn")
    assert daemon.running is not None

    for words in ("running jobs finish", "Stopping running jobs", "at once"):
        os.kill(daemon.said["pid"], signal.SIGTERM)
        until(lambda words=words: words in daemon.running.talk, words)  # type: ignore[misc]

    daemon.running.end(20)
    desk.check_nothing_runs()


def test_stop_may_be_said_twice_and_still_waits_for_the_jobs(desk: Desk) -> None:
    daemon = at_work(desk)

    stops = [desk.start("stop") for _ in range(3)]
    until(lambda: all("Waiting for running jobs" in one.talk for one in stops), "all wait")
    running = desk.jobs()["first"]
    open_gate(desk, "Row-first")

    assert running == "running"
    assert [one.end().code for one in stops] == [0, 0, 0]
    assert ended(daemon) == 0
    assert desk.jobs()["first"] == "succeeded"


def test_stop_now_stops_the_jobs(desk: Desk) -> None:
    daemon = at_work(desk)

    stopped = desk("stop", "--now")

    assert stopped.code == 0 and ended(daemon) == 0
    desk.check_nothing_runs()


def test_stop_all_ends_every_daemon_and_without_one_there_is_nothing_to_do(desk: Desk) -> None:
    other = desk.beside("other")
    first, second = serve(desk), serve(other)

    done, again = desk("stop", "--all", "--json"), desk("stop", "--all")

    assert {one["pid"] for one in done.json["stopped"]} == {first.said["pid"], second.said["pid"]}
    assert (ended(first), ended(second)) == (0, 0)
    assert again.code == 0 and "No daemon" in again.out


def test_who_is_connected_does_not_keep_it_from_ending(desk: Desk) -> None:
    with served(desk) as daemon, daemon.raw() as line:
        rows = (
            "GET /api/v1/events HTTP/1.1",
            f"Host: 127.0.0.1:{daemon.port}",
            f"Authorization: Bearer {daemon.token}",
        )
        line.sendall("".join(f"{row}\r\n" for row in (*rows, "")).encode())
        assert line.recv(65536).startswith(b"HTTP/1.1 200 ")

        desk("stop")

        assert ended(daemon) == 0


def test_it_ends_by_itself_when_nobody_needs_it(desk: Desk) -> None:
    daemon = serve(desk, "--until-idle", "0.5")

    assert ended(daemon) == 0
    assert not (desk.state / "http.json").exists()


def test_who_speaks_mcp_at_the_engine_keeps_it_from_being_idle(desk: Desk) -> None:
    daemon = serve(desk, "--until-idle", "1")
    assert daemon.running is not None
    address = json.loads((desk.state / "daemon.json").read_text())
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address["socket"])
        said: list[Any] = [{"nonce": address["nonce"]}, {"op": "channel", "name": "mcp", "args": {}}]
        line.sendall("".join(json.dumps(one) + "\n" for one in said).encode())
        answer = line.recv(1000)

        with pytest.raises(subprocess.TimeoutExpired):
            daemon.running.process.wait(3)

    assert answer == b'{"ok":{}}\n'
    assert ended(daemon) == 0


def test_work_and_connections_keep_it_from_being_idle(desk: Desk) -> None:
    daemon = serve(desk, "--until-idle", "3")
    desk("run", two_in_a_row(desk), "--detach")
    begun(desk, "Row-first")
    assert daemon.running is not None

    with pytest.raises(subprocess.TimeoutExpired):
        daemon.running.process.wait(5)
    open_gate(desk, "Row-first")

    assert ended(daemon) == 0
    assert desk.jobs() == {"first": "succeeded", "second": "succeeded"}


# ------------------------------------------------------------------------------------- taking over


def test_after_a_kill_the_next_one_recovers(desk: Desk) -> None:
    daemon = at_work(desk)

    process = daemon.process
    process.kill()
    until(lambda: is_gone(process))
    with served(desk) as second:
        assert second.said["already"] is False
        desk.check_nothing_runs()
        assert "interrupted" in failure(desk)
        open_gate(desk, "Row-first")
        assert desk("retry").code == 0
    assert len(desk.events("Landed")) == 1


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_it_joins_an_engine_that_runs_elsewhere_and_takes_over_when_that_one(desk: Desk, how: str) -> None:
    owner = desk.start("run", two_in_a_row(desk))
    begun(desk, "Row-first")
    with served(desk) as daemon:
        before = engine_pid(desk)
        asked = desk("pause").code, desk("resume", "--detach").code

        if how == "ends":
            open_gate(desk, "Row-first")
            assert owner.end().code == 0
        else:
            owner.process.kill()
            owner.process.wait()
        until(lambda: engine_pid(desk) == daemon.said["pid"], "the daemon is the engine")

        assert (before, asked) == (owner.pid, (0, 0))
        if how == "is killed":
            until(lambda: desk.jobs()["first"] == "failed")
            open_gate(desk, "Row-first")
            assert desk("retry").code == 0
        assert desk.jobs() == {"first": "succeeded", "second": "succeeded"}


def test_an_engine_that_fails_is_opened_again_and_recovers(desk: Desk) -> None:
    plan = desk.plan("name: Small\ntarget: t\njobs: [{id: a, work: 'echo 1 > a.txt', retry_on_interrupt: true}]")
    desk.env["ORCHARD_FAILPOINT"] = "journal.before-commit:3:error"
    with served(desk) as daemon:
        del desk.env["ORCHARD_FAILPOINT"]
        desk("run", plan)
        until(lambda: daemon.ask("GET", "/api/v1/repos", daemon.bearer).json["repos"][0]["engine"], "an engine")

        until(lambda: desk("list", "--json").json or desk("run", plan).code == 0, "the plan was taken in")
        desk("wait")

        assert desk.status()["plan"]["status"] == "succeeded"
        assert engine_pid(desk) == daemon.said["pid"]
        assert daemon.running is not None and "Traceback" not in daemon.running.talk
    assert len(desk.events("Landed")) == 1


def test_the_end_of_one_that_only_joined_leaves_the_engine_alone(desk: Desk) -> None:
    owner = desk.start("run", two_in_a_row(desk))
    begun(desk, "Row-first")
    daemon = serve(desk)

    assert desk("stop", "--now").code == 0 and ended(daemon) == 0
    assert desk.jobs()["first"] == "running"
    open_gate(desk, "Row-first")

    assert owner.end().code == 0


def test_without_an_engine_plans_can_be_read_and_who_asks_is_told_why(desk: Desk) -> None:
    desk("run", desk.plan("name: Small\ntarget: t\njobs: [{id: a, work: 'echo 1 > a.txt'}]"))
    with filelock.FileLock(desk.state / "engine.lock"):
        daemon = serve(desk)
        plans = daemon.ask("GET", "/api/v1/plans", daemon.bearer)
        plan = plans.json["plans"][0]["id"]
        refused = daemon.ask("POST", f"/api/v1/plans/{plan}/cancel", daemon.bearer)

        assert plans.status == 200
        assert refused.status == 503 and "is starting" in refused.json["detail"], refused
    desk("stop")
    ended(daemon)


# ------------------------------------------------------------------------------------- bad requests


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--host", "0.0.0.0"), "encrypted"),
        (("--host", "::"), "encrypted"),
        (("--host", "no-such-host.invalid"), "no address"),
        (("--tls-cert", "README.md"), "both"),
        (("--tls-key", "README.md"), "both"),
        (("--tls-cert", "README.md", "--tls-key", "README.md"), "cannot be used"),
        (("--port", "70000"), "70000"),
        (("--name", "a b"), "name of a host"),
        (("--on-stop", "maybe"), "maybe"),
        (("--until-idle", "-1"), "-1"),
        (("--repo", "nowhere"), "nowhere"),
        (("more",), "more"),
    ],
)
@pytest.mark.parametrize("background", [(), ("--background",)])
def test_bad_usage_is_refused_without_a_trace(desk: Desk, words: Any, says: str, background: tuple[str, ...]) -> None:
    done = desk("serve", *words, *background)

    assert done.code == 2, done.talk
    assert says in done.err and "hint: " in done.err
    assert not (desk.state / "http.json").exists() and not list(desk.runtime.glob("orchard/http-*"))


def test_a_port_that_is_taken_is_told_from_the_background_too(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = [desk("serve", "--port", port, *words) for words in ((), ("--background",))]

    assert [one.code for one in done] == [1, 1]
    assert all(f"Port {port}" in one.err for one in done)


def test_a_repository_whose_settings_need_consent_is_not_served_unasked(desk: Desk) -> None:
    (desk.repo.path / "orchard.toml").write_text('setup = ["touch owned"]\n')

    refused = desk("serve")
    every = desk("serve", "--all")

    assert refused.code == 4 and "orchard trust" in refused.err
    assert every.code == 3


def test_a_plan_that_runs_with_older_settings_than_the_files_have_says_so(desk: Desk) -> None:
    user = desk.folder / "config" / "orchard" / "config.toml"
    user.parent.mkdir(parents=True, exist_ok=True)
    plan = desk.plan("name: Old\njobs: [{id: a, work: 'date > a.txt'}]")
    with served(desk):
        before = desk("run", plan)
        (desk.repo.path / "orchard.toml").write_text("max_parallel = 3\n")
        after = desk("run", plan)
        user.write_text("[limits]\ngrace = 5\n")
        both = desk("run", plan)
    again = desk("run", plan)

    assert "orchard.toml" not in before.talk and "orchard.toml" not in again.talk
    told = "orchard.toml was changed after the engine of this repository started. It keeps the settings it began with"
    assert after.talk.count(told) == 1 and "orchard stop, then orchard serve" in after.talk
    assert f"{user} and orchard.toml were changed" in both.talk


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is nothing here to make a certificate with")
def test_other_machines_are_let_in_with_tls_and_by_given_names_only(desk: Desk) -> None:
    cert, key = desk.folder / "cert.pem", desk.folder / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=box.example.org",
            "-keyout", str(key), "-out", str(cert), "-addext", "subjectAltName=DNS:box.example.org"]  # fmt: skip
    subprocess.run(make, check=True, capture_output=True, timeout=60)
    words = ("--host", "0.0.0.0", "--name", "box.example.org", "--tls-cert", cert, "--tls-key", key)
    context = ssl.create_default_context(cafile=str(cert))
    with served(desk, *words) as daemon:

        def ask(host: str, path: str, **headers: str) -> int:
            raw = socket.create_connection(("127.0.0.1", daemon.port), timeout=30)
            line = http.client.HTTPConnection("127.0.0.1", daemon.port)
            line.sock = context.wrap_socket(raw, server_hostname="box.example.org")
            line.request("GET", path, headers={"Host": f"{host}:{daemon.port}", **headers})
            answer = line.getresponse()
            answer.read()
            line.close()
            return answer.status

        assert daemon.said["url"].startswith(f"https://box.example.org:{daemon.port}/#code=")
        assert ask("box.example.org", "/api/v1/repos") == 401
        assert ask("box.example.org", "/api/v1/repos", **daemon.bearer) == 200
        assert ask("other.example.org", "/", **daemon.bearer) == 421
        assert ask("0.0.0.0", "/", **daemon.bearer) == 421
