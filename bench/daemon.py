"""The daemon: how soon a chat has its tools, what a question costs, how late news are, and what it takes to do nothing.

Everything goes through the real programs: `orchard serve` and `orchard mcp`, asked over HTTP and over standard input
and output. A daemon that a measure started has ended when the measure has.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench import plans
from bench.jobs import MEGABYTE, run_plan
from bench.repositories import QUICK, SMALL, copy_repository, make_repository
from bench.rest import processor_seconds
from orchard.bench.parts import MILLISECONDS
from orchard.bench.place import Bench, orchard
from orchard.bench.plans import Graph, independent, write_plan
from orchard.bench.rounds import Bar, Figures, Measure
from orchard.config.user_dirs import user_dirs
from orchard.git.repository import find_repository
from orchard.process.stopwatch import Broken, started, timed
from orchard.surfaces.http.daemon.address import read_http_address

PATIENCE = 60.0
LOOK = 0.02
"""Seconds between two looks at something that tells nobody when it is ready."""
FEWEST_TOOLS = 15
PAGE = 200


def mcp(bench: Bench) -> Measure:
    """How long a host waits for the list of tools, from starting `orchard mcp` on, beside starting Python."""
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    repo, times = copy_repository(bench, template), bench.size(7, 1)
    with serving(repo):
        _first_list(repo)  # so that there is a record of what the daemon says first
        _wait(lambda: any((user_dirs().state / "mcp").glob("greeting-*.json")), "no greeting was written down")

    def warm() -> Figures:
        found: dict[str, list[float]] = {"python": [], "warm": []}
        with serving(repo):
            for _ in range(times):
                found["python"].append(timed([sys.executable, "-c", "pass"], repo).wall)
                found["warm"].append(_first_list(repo))
        return {name: MILLISECONDS * median(values) for name, values in found.items()}

    def cold() -> Figures:
        state = find_repository(repo).state
        try:
            with _chat(repo) as taken:
                _wait(lambda: read_http_address(state) is not None, "'orchard mcp' started no daemon")
        finally:
            timed(orchard("stop", "--now"), repo)  # it belongs to no session of ours
        return {"cold": MILLISECONDS * taken}

    what = "tools/list of a fresh 'orchard mcp'"
    return Measure(
        (warm, cold),
        (
            Bar(f"{what}, daemon runs: python -c pass", "warm", "python", most=20, unit="ms"),
            Bar(f"{what}, daemon runs", "warm", most=1000, unit="ms"),
            Bar(f"{what}, no daemon yet: python -c pass", "cold", "python", most=20, unit="ms"),
            Bar(f"{what}, no daemon yet", "cold", most=1000, unit="ms"),
        ),
    )


def daemon(bench: Bench) -> Measure:
    """What a question about a large plan costs, how late an event arrives, and what an idle daemon takes."""
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    jobs, calls, ends, stored = bench.size(1000, 20), bench.size(50, 2), bench.size(40, 3), bench.size(50, 2)
    large = run_plan(bench, template, write_plan(bench.fresh("plan"), plans.layered(jobs), parallel=2))[1]
    filled = copy_repository(bench, template)
    with serving(filled) as served:
        for _ in range(stored):
            served.submit(independent(3))
        _wait(lambda: served.settled() == stored, "plans without work did not end")

    def asked() -> Figures:
        with serving(large) as served:
            (plan,) = served.get("/api/v1/plans")["plans"]
            paths = {"health": "/healthz", "plan": f"/api/v1/plans/{plan['id']}"}
            return {name: MILLISECONDS * served.cost(path, calls) for name, path in paths.items()}

    def changing() -> Figures:
        steps = [f"s{number}" for number in range(calls)]
        with serving(copy_repository(bench, template)) as served:
            plan = served.submit_groups(steps, jobs // calls)
            half = calls // 2
            whole, news = served.changing(plan, steps[:half]), served.changing(plan, steps[half:], since=True)
            return {"changing": MILLISECONDS * whole, "since": MILLISECONDS * news}

    def news() -> Figures:
        with serving(copy_repository(bench, template)) as served:
            return {"news": MILLISECONDS * median(served.lateness(ends))}

    def idle() -> Figures:
        settle, watch = (0.3, 0.2) if bench.quick else (5.0, 20.0)
        with serving(filled) as served:
            served.get(f"/api/v1/plans?limit={PAGE}")
            _first_list(filled)  # a daemon that nobody ever talked to is smaller
            time.sleep(settle)
            before, begin = processor_seconds(served.pid), time.perf_counter()
            time.sleep(watch)
            used, passed = processor_seconds(served.pid) - before, time.perf_counter() - begin
            return {"share": 100 * used / passed, "memory": _resident(served.pid) / MEGABYTE}

    return Measure(
        (asked, changing, news, idle),
        (
            Bar(f"API, a plan of {jobs:,} jobs, processor", "plan", most=30, unit="ms", beside="health"),
            Bar(
                f"API, a plan of {jobs:,} jobs that changes, processor", "changing", most=30, unit="ms", beside="health"
            ),
            Bar("the same with `since`, processor", "since", most=3, unit="ms", beside="health"),
            Bar("from the end of a job to a listener, median", "news", most=50, unit="ms"),
            Bar(f"idle daemon, {stored} plans: processor", "share", most=0.3, unit="%"),
            Bar(f"idle daemon, {stored} plans: memory", "memory", most=120, unit="MB", take=max),
        ),
    )


# ----------------------------------------------------------------------------------- over HTTP


@dataclass(frozen=True, slots=True)
class Served:
    """A daemon that runs, as its clients see it."""

    pid: int
    host: str
    port: int
    token: str

    def connect(self) -> HTTPConnection:
        """A connection of its own."""
        return HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def get(self, path: str, connection: HTTPConnection | None = None) -> Any:
        """What is found at a path."""
        return self._ask("GET", path, None, connection or self.connect())

    def submit(self, graph: Graph, **job: Any) -> str:
        """Hand in a plan of this graph; its id."""
        return self._submit([{"id": name, "needs": needs, **job} for name, needs in graph.items()])

    def submit_groups(self, groups: list[str], jobs: int) -> str:
        """Hand in a plan of groups with so many jobs each, which waits; its id."""
        rows = [{"id": f"j{number}", "group": group} for group in groups for number in range(jobs)]
        return self._submit(rows, start_paused=True)

    def _submit(self, rows: list[dict[str, Any]], **fields: Any) -> str:
        body = {"name": "bench", "base": "main", "max_parallel": 1, "jobs": rows, **fields}
        return str(self.post("/api/v1/plans", body)["plan"])

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Have something done."""
        return self._ask("POST", path, json.dumps(body).encode(), self.connect())

    def settled(self) -> int:
        """How many plans have succeeded."""
        found = self.get(f"/api/v1/plans?limit={PAGE}")["plans"]
        return sum(plan["status"] == "succeeded" for plan in found)

    def cost(self, path: str, calls: int) -> float:
        """Seconds of the daemon's processor for one call, when it knows the way."""
        connection = self.connect()
        self.get(path, connection)
        before = processor_seconds(self.pid)
        for _ in range(calls):
            self.get(path, connection)
        connection.close()
        return (processor_seconds(self.pid) - before) / calls

    def changing(self, plan: str, groups: list[str], *, since: bool = False) -> float:
        """Seconds of the daemon's processor for reading a plan, each time after the jobs of a group were canceled."""
        connection, path, used = self.connect(), f"/api/v1/plans/{plan}", 0.0
        known = self.get(path, connection)["seq"]
        for group in groups:
            self.post(f"{path}/groups/{group}/cancel", {})
            time.sleep(LOOK)
            before = processor_seconds(self.pid)
            found = self.get(f"{path}?since={known}" if since else path, connection)
            used += processor_seconds(self.pid) - before
            shown = {job["id"] for job in found["jobs"] if job["status"] == "canceled" and job["group"] == group}
            if found["seq"] <= known or not shown:
                raise Broken(f"what changed in group {group} was not told")
            known = found["seq"]
        connection.close()
        return used / len(groups)

    def lateness(self, jobs: int) -> list[float]:
        """Seconds from the end of each job of a chain until a listener has heard of it."""
        stream = self.stream()
        plan = self.submit(plans.chain(jobs), work="true", expects_no_changes=True)
        late: list[float] = []
        while len(late) < jobs:
            line = stream.readline()
            if not line:
                raise Broken(f"the events ended after {len(late)} jobs")
            heard = time.time()
            said = json.loads(line[5:]) if line.startswith(b"data:") else {}
            if said.get("plan") == plan and said.get("type") == "JobSucceeded":
                late.append(heard - datetime.fromisoformat(said["at"]).timestamp())
        stream.close()
        return late

    def stream(self, since: int | None = None) -> HTTPResponse:
        """The events as they happen, from now on or after the event of this number."""
        connection = self.connect()
        connection.request("GET", f"/api/v1/events{'' if since is None else f'?since={since}'}", headers=self._headers)
        stream = connection.getresponse()
        if stream.status != 200:
            raise Broken(f"events were answered with {stream.status}")
        return stream

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def _ask(self, method: str, path: str, body: bytes | None, connection: HTTPConnection) -> Any:
        kind = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body, {**self._headers, **kind})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status not in (200, 201):
            raise Broken(f"{method} {path} was answered with {answer.status}: {said[:500].decode(errors='replace')}")
        return json.loads(said)


@contextmanager
def serving(repo: Path) -> Iterator[Served]:
    """A daemon for the time of the block."""
    with started(orchard("serve", "--json"), repo, subprocess.PIPE) as process:
        assert process.stdout is not None
        said = next((line for line in process.stdout if line.startswith("{")), None)
        if said is None:
            raise Broken("the daemon ended before it was ready")
        told = json.loads(said)
        where = urlsplit(told["address"])
        yield Served(told["pid"], str(where.hostname), int(where.port or 0), Path(told["token_file"]).read_text())


def _resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    import psutil

    return int(psutil.Process(pid).memory_info().rss)


# ---------------------------------------------------------------------------------- over stdio


def _first_list(repo: Path) -> float:
    """Seconds from starting `orchard mcp` until it has answered the first questions of a host, which then leaves."""
    with _chat(repo) as taken:
        return taken


@contextmanager
def _chat(repo: Path) -> Iterator[float]:
    """A host with its own `orchard mcp`: how long it took until that had told its tools."""
    who = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    begin = time.perf_counter()
    relay = subprocess.Popen(
        [str(word) for word in orchard("mcp")],
        cwd=repo,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    limit = threading.Timer(PATIENCE, relay.kill)
    limit.daemon = True
    try:
        limit.start()
        _call(relay, {"id": 1, "method": "initialize", "params": who})
        _tell(relay, {"method": "notifications/initialized"})
        tools = _call(relay, {"id": 2, "method": "tools/list", "params": {}})["tools"]
        taken = time.perf_counter() - begin
        limit.cancel()
        if len(tools) < FEWEST_TOOLS:
            raise Broken(f"'orchard mcp' has {len(tools)} tools")
        yield taken
    finally:
        limit.cancel()
        _leave(relay)


def _tell(relay: "subprocess.Popen[bytes]", message: dict[str, Any]) -> None:
    assert relay.stdin is not None
    relay.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    relay.stdin.flush()


def _call(relay: "subprocess.Popen[bytes]", message: dict[str, Any]) -> dict[str, Any]:
    assert relay.stdout is not None
    _tell(relay, message)
    for line in relay.stdout:
        said = json.loads(line)
        if said.get("id") == message["id"] and "method" not in said:
            if "result" not in said:
                raise Broken(f"'orchard mcp' answered {message['method']} with {line[:500].decode(errors='replace')}")
            found: dict[str, Any] = said["result"]
            return found
    raise Broken(f"'orchard mcp' ended before it answered {message['method']}")


def _leave(relay: "subprocess.Popen[bytes]") -> None:
    """Close its input, as a host does; it ends by itself."""
    assert relay.stdin is not None and relay.stdout is not None
    relay.stdin.close()
    try:
        relay.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        relay.kill()
        relay.wait()
    relay.stdout.close()


def _wait(condition: Any, otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Broken(otherwise)
        time.sleep(LOOK)
