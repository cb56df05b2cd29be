"""Random histories: whatever happens to the page, the network and the daemon, the page knows what the program says."""

import json
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Error, expect

from tests.acceptance.program import Desk, desks, until
from tests.http.daemon import Daemon, serve
from tests.web.browser import Tab, needs_browser, tabs

pytestmark = needs_browser

HISTORIES = 50
EVERYDAY = 3
STEPS = 9
SECONDS = 20.0
KNOWN = """() => {
  const { connection, open, plans, waiting } = orchard.store.state;
  return {
    connection: connection.is,
    open: [...open.values()].map(({ plan, jobs, order, seq }) => ({ plan, jobs: order.map(id => jobs.get(id)), seq })),
    plans: [...plans.values()].flat(),
    waiting: waiting.map(({ repo, ...one }) => one),
  }
}"""


@dataclass
class World:
    """A daemon that can be killed, a tab before it, and the plans of one history."""

    tab: Tab
    chance: random.Random
    plans: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    offline: bool = False

    @property
    def desk(self) -> Desk:
        return self.tab.desk

    def ask(self, path: str, body: Any = None) -> None:
        """Ask for something that the daemon may refuse: a history knows no rules."""
        headers = {**self.tab.daemon.bearer, "Content-Type": "application/json"}
        sent = b"" if body is None else json.dumps(body).encode()
        self.tab.daemon.ask("POST", f"/api/v1/plans{path}", headers, sent or None)

    # ------------------------------------------------------------------------------- what may happen

    def submit(self) -> None:
        number, count = len(self.told), self.chance.randint(1, 5)
        name = f"History {self.chance.randrange(10**9)}"
        jobs = []
        for at in range(count):
            work = self.chance.choice(
                [
                    f"echo {at} > f{at}",
                    "exit 1",
                    f"echo {at} > f{at}; sleep 0.{self.chance.randrange(9)}",
                    f"while [ ! -e {self.desk.folder}/gate ]; do sleep 0.05; done; echo {at} > f{at}",
                ]
            )
            needs = [f"j{before}" for before in range(at) if self.chance.random() < 0.4]
            jobs.append(
                {"id": f"j{at}", "work": work, "needs": needs, "heal": False, "approve": self.chance.random() < 0.15}
            )
        body = {"name": name, "target": f"t{number}-{name[8:]}", "jobs": jobs}
        headers = {**self.tab.daemon.bearer, "Content-Type": "application/json"}
        made = self.tab.daemon.ask("POST", "/api/v1/plans", headers, json.dumps(body).encode())
        assert made.status == 201, made.body
        self.plans.append(made.json["plan"])
        self.look()

    def look(self) -> None:
        plan = self.chance.choice(self.plans)
        where = self.chance.choice(["", "jobs", "events", "jobs/j0/log", "timeline"])
        address = f"/r/{self.repo}/{plan}/{where}" if self.chance.random() < 0.8 else "/"
        self.tab.go(address)

    def act(self) -> None:
        plan, job = self.chance.choice(self.plans), f"j{self.chance.randrange(5)}"
        what = self.chance.choice(
            ["pause", "resume", "cancel", "retry", "land", "jobs/{}/retry", "jobs/{}/approve", "jobs/{}/cancel", "new"]
        )
        if what == "new":
            added = {"op": "add", "job": {"id": f"n{self.chance.randrange(10**6)}", "work": "echo n > n"}}
            self.ask(f"/{plan}/reshape", {"changes": [added]})
        else:
            self.ask(f"/{plan}/{what.format(job)}", {})

    def gate(self) -> None:
        gate = self.desk.folder / "gate"
        gate.unlink() if gate.exists() else gate.touch()

    def reload(self) -> None:
        if not self.offline:  # a browser without a network shows a page of its own
            self.tab.page.reload()

    def cut(self) -> None:
        self.offline = not self.offline
        self.tab.page.context.set_offline(self.offline)

    def pause(self) -> None:
        time.sleep(self.chance.random())

    def kill(self) -> None:
        """The daemon dies, and comes back at the same address; its sessions died with it."""
        daemon = self.tab.daemon
        process = psutil.Process(daemon.said["pid"])
        process.kill()
        assert daemon.running is not None
        daemon.running.process.wait(SECONDS)
        if self.chance.random() < 0.3:
            time.sleep(1.5)
        back = serve(daemon.desk, "--port", str(daemon.port))
        daemon.said, daemon.running = back.said, back.running

    def step(self) -> None:
        steps = [
            self.submit,
            self.look,
            self.act,
            self.act,
            self.act,
            self.gate,
            self.reload,
            self.cut,
            self.pause,
            self.kill,
        ]
        weights = [2, 2, 2, 2, 2, 2, 2, 3, 2, 1]
        chosen = self.chance.choices(steps, weights)[0]
        self.told.append(chosen.__name__)
        chosen()

    # ------------------------------------------------------------------------------- what has to hold

    @property
    def repo(self) -> str:
        return str(self.tab.page.evaluate("orchard.store.state.repos[0].id"))

    def check(self) -> None:
        """With a network and a daemon the page comes back by itself, or says what to run, and then is right."""
        if self.offline:
            self.cut()
        page = self.tab.page
        until(lambda: page.evaluate(KNOWN)["connection"] in ("live", "locked"), f"it comes back: {self.told}", SECONDS)
        time.sleep(0.05)
        if page.evaluate(KNOWN)["connection"] == "locked":
            expect(page.get_by_text("This tab needs a new link")).to_be_visible()
            expect(page.get_by_text("orchard serve", exact=True)).to_be_visible()
            page.goto(f"http://127.0.0.1:{self.tab.daemon.port}/#code={self.tab.daemon.new_code()}")
            until(self.is_live, f"the new link opens it: {self.told}", SECONDS)
        for plan in self.plans[-2:]:
            self.tab.go(f"/r/{self.repo}/{plan}/jobs")
            differs: list[str] = []
            try:
                until(partial(self.is_same, plan, differs), seconds=SECONDS)
            except AssertionError:
                raise AssertionError(f"{self.told}: {plan}\n" + "\n".join(differs)) from None

    def is_live(self) -> bool:
        try:
            return bool(self.tab.page.evaluate(KNOWN)["connection"] == "live")
        except Error:  # the page is on its way
            return False

    def is_same(self, plan: str, differs: list[str]) -> bool:
        """Whether the page and the program know the same, field by field."""
        said, listed = self.desk.status(plan), self.desk("list", "--json").json
        waits = self.desk("waiting", "--json").json
        known = self.tab.page.evaluate(KNOWN)
        differs.clear()
        shown = next((one for one in known["open"] if one["plan"]["id"] == plan), None)
        compare(f"status {plan}", said, shown, differs)
        by_id = {one["id"]: one for one in known["plans"]}
        for one in (one for one in listed if one["id"] in self.plans):
            # The page may know more of a plan that was open than the list tells.
            its = by_id.get(one["id"], {})
            compare(f"list {one['id']}", one, {name: its[name] for name in one if name in its}, differs)
        compare("waiting", sorted(map(str, waits)), sorted(map(str, known["waiting"])), differs)
        return not differs


def compare(where: str, said: Any, shown: Any, differs: list[str]) -> None:
    """Note each field that is not the same."""
    if isinstance(said, dict) and isinstance(shown, dict):
        for name in said.keys() | shown.keys():
            compare(f"{where}.{name}", said.get(name), shown.get(name), differs)
    elif isinstance(said, list) and isinstance(shown, list) and len(said) == len(shown):
        for at, (one, other) in enumerate(zip(said, shown, strict=True)):
            compare(f"{where}[{at}]", one, other, differs)
    elif said != shown:
        differs.append(f"{where}: the program says {said!r}, the page knows {shown!r}")


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon at a port that is known, so that another can take its place."""
    for desk in desks(tmp_path_factory.mktemp("histories")):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        daemon = serve(desk, "--port", str(port))
        yield daemon
        desk("stop", "--now", "--all")
        assert daemon.running is not None
        daemon.running.process.wait(SECONDS)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed < EVERYDAY else pytest.mark.slow) for seed in range(HISTORIES)]
)
def test_after_any_history_the_page_knows_what_the_program_says(browser: Browser, mortal: Daemon, seed: int) -> None:
    with tabs(browser, mortal) as tab:
        world = World(tab, random.Random(seed))
        world.submit()
        for _ in range(STEPS):
            world.step()
            if world.told[-1] in ("kill", "reload") and world.chance.random() < 0.5:
                world.check()
        world.check()
        for plan in world.plans:
            world.ask(f"/{plan}/cancel", {})
        (mortal.desk.folder / "gate").unlink(missing_ok=True)
        tab.errors.clear()
