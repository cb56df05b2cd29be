"""Plans on the whole screen: what is drawn at which size, what keys ask the engine for, and text that is only text."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from orchard.app import App, open_app
from orchard.model.plan import PlanId
from orchard.surfaces.cli.render.text import ASCII_MARKS
from orchard.surfaces.cli.watch.actions import ACTIONS
from orchard.surfaces.cli.watch.watcher import Watcher
from orchard.surfaces.next_steps import in_commands
from tests.acceptance.program import Desk, desks

pytestmark = pytest.mark.anyio

SIZES = [(80, 24), (120, 40), (200, 50)]
SECRET = "hunter2-hunter2-hunter2"
EVIL = r"\033]0;owned\007\033[2J[bold red]x[/]"


def jobs(gate: Path) -> str:
    """A job that is done, one that runs until the gate is open, one that needs it, and one that failed."""
    return f"""
name: "Evil [reverse]name[/] [@click=app.quit]here[/]"
target: goal
env: {{API_TOKEN: {SECRET}}}
jobs:
  - {{id: quick, work: "echo 1 > quick.txt; printf '{EVIL.replace(chr(92), chr(92) * 2)}\\n'"}}
  - {{id: slow, group: back, name: "[red]slow[/red]",
      work: "echo half > slow.txt; echo the token is $API_TOKEN; until [ -e {gate} ]; do sleep 0.1; done; echo rest"}}
  - {{id: bad, group: back, heal: false, work: "echo oh no; test -e {gate}"}}
  - {{id: after, group: front, needs: [back/slow], work: "echo 3 > after.txt"}}
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for found in desks(tmp_path):
        for name, value in found.env.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def gate(desk: Desk) -> Path:
    folder = desk.folder / "gates"
    folder.mkdir()
    desk.open_to_jobs(folder)
    return folder / "open"


class Person:
    """Who sits before the screen."""

    def __init__(self, watcher: Watcher, pilot: Pilot[None]) -> None:
        self.watcher, self.pilot = watcher, pilot

    @property
    def screen(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.watcher.screen._compositor.render_strips())

    async def sees(self, *words: str) -> str:
        await self.until(lambda: all(word in self.screen for word in words), lambda: f"{words} in:\n{self.screen}")
        return self.screen

    async def until(self, holds: Callable[[], bool], said: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(30):
                while not holds():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(said()) from None

    async def presses(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def chooses(self, job: str) -> None:
        tree = self.watcher.part("tree")
        await self.until(lambda: job in tree.names, lambda: f"{job} in {tree.names}")
        await self.presses("home", *["down"] * tree.names.index(job))
        assert tree.chosen == job


def opened(desk: Desk) -> App:
    return open_app(desk.repo.path, in_commands)


@asynccontextmanager
async def watched(*apps: App, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Person]:
    watcher = Watcher(apps, apps[0].find_plan(None), colored=True, marks=ASCII_MARKS)
    async with watcher.run_test(size=size) as pilot:
        yield Person(watcher, pilot)


def begin(desk: Desk, text: str) -> PlanId:
    done = desk("run", desk.plan(text), "--detach", "--json")
    assert done.code == 0, done.err
    return PlanId(done.json["plan"])


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_plan_under_way_is_shown_with_its_tree_its_log_its_diff_and_its_details(
    desk: Desk, gate: Path, size: tuple[int, int]
) -> None:
    plan = begin(desk, jobs(gate))
    async with watched(opened(desk), size=size) as person:
        shown = await person.sees("running work", "failed: work", "1 done", "sandbox off", "the token is [red")
        assert "Evil [reverse]name[/] [@click=app.quit]here[/]  running" in shown, "names are text"
        assert "-------------- 1/4" in shown and "front/" in shown and "(validation)" in shown
        assert len(shown.split("\n")) == size[1] and max(map(len, shown.split("\n"))) <= size[0]

        await person.chooses("quick")
        shown = await person.sees("--- work, attempt 1 ---", "[bold red]x[/]")
        assert SECRET not in shown and "\x1b" not in shown and "owned" not in shown

        await person.chooses("back/slow")
        await person.sees("[l] LOG", "the token is [redacted]")
        await person.presses("d")
        await person.sees("[d] DIFF", "+++ b/slow.txt", "+half")
        await person.presses("i")
        await person.sees("[i] DETAILS", "> back/slow", "[red]slow[/red]")
        await person.presses("l")

        gate.touch()
        await person.sees(f"Plan {plan} is over: it failed.", "rest")
        await person.sees("3 done, 1 failed")
        assert person.watcher.is_running, "a plan that ended stays on the screen"


async def test_groups_are_folded_by_a_key_and_by_the_arrows(desk: Desk, gate: Path) -> None:
    begin(desk, jobs(gate))
    async with watched(opened(desk)) as person:
        await person.chooses("back/")
        await person.presses("space")
        await person.until(lambda: "back/slow" not in person.watcher.rows, lambda: person.screen)
        assert "2 jobs" in await person.sees("2 jobs")
        await person.presses("right")
        await person.until(lambda: "back/slow" in person.watcher.rows, lambda: person.screen)
        await person.presses("left")
        await person.until(lambda: "back/slow" not in person.watcher.rows, lambda: person.screen)
        gate.touch()


async def test_a_job_is_canceled_after_a_yes_only_and_is_tried_again_by_a_key(desk: Desk, gate: Path) -> None:
    begin(desk, jobs(gate))
    async with watched(opened(desk)) as person:
        await person.sees("running work", "failed: work")
        await person.chooses("back/slow")
        for no in ("n", "escape", "enter"):
            await person.presses("c")
            await person.sees("Cancel job 'back/slow'?")
            await person.presses(no)
            await person.sees("Nothing was changed.")
        assert desk.jobs()["back/slow"] == "running"

        await person.presses("c")
        await person.sees("Cancel job 'back/slow'?")
        await person.presses("y")
        await person.until(lambda: desk.jobs()["back/slow"] == "canceled", lambda: person.screen)
        await person.sees("canceled")

        gate.touch()
        await person.presses("R")
        await person.until(lambda: set(desk.jobs().values()) == {"succeeded"}, lambda: person.screen)
        await person.sees("it succeeded")
    assert desk.repo.files("goal")["after.txt"] == "3\n"


async def test_a_plan_is_paused_goes_on_and_is_canceled_by_keys_and_leaving_ends_nothing(
    desk: Desk, gate: Path
) -> None:
    begin(desk, jobs(gate))
    async with watched(opened(desk)) as person:
        await person.sees("running work", "failed: work")
        await person.presses("p")
        await person.sees("is paused: running jobs finish")
        assert desk.status()["plan"]["paused"]
        await person.presses("p")
        await person.sees("goes on.")
        assert not desk.status()["plan"]["paused"]
        await person.presses("q")
        await person.until(lambda: not person.watcher.is_running, lambda: person.screen)
    assert desk.jobs()["back/slow"] == "running"

    async with watched(opened(desk)) as person:
        await person.sees("running work")
        await person.presses("C")
        await person.sees("Cancel plan 'Evil [reverse]name[/]")
        await person.presses("y")
        await person.until(lambda: desk.status()["plan"]["status"] == "canceled", lambda: person.screen)


async def test_what_was_told_stays_until_a_person_chooses_another_row(desk: Desk, gate: Path) -> None:
    begin(desk, jobs(gate))
    async with watched(opened(desk)) as person:
        await person.sees("running work", "failed: work", "Evil [reverse]name[/] [@click")
        await person.chooses("back/bad")
        person.watcher.say("It is told.")
        person.watcher.folded["back"] = True  # the chosen row is gone, and another one is chosen by nobody
        person.watcher._changed.set()
        await person.until(lambda: "back/bad" not in person.watcher.rows, lambda: person.screen)
        await person.pilot.pause()
        await person.sees("It is told.")
        await person.presses("up")
        await person.until(lambda: "It is told." not in person.screen, lambda: person.screen)
        gate.touch()


WAITS = """
name: Waits
target: goal
land: ask
jobs:
  - {id: api, approve: true, work: "echo 1 > api.txt"}
"""


async def test_changes_are_approved_and_the_plan_is_landed_by_keys_also_without_an_engine(desk: Desk) -> None:
    plan = desk.plan(WAITS)
    assert desk("run", plan).code == 4
    async with watched(opened(desk), size=(80, 24)) as person:
        await person.sees("waiting")
        await person.presses("L")
        await person.until(lambda: person.watcher._told is not None, lambda: person.screen)
        assert person.watcher.screen_stack == [person.watcher.screen], "refused before a person is asked"

        await person.chooses("api")
        await person.presses("a")
        await person.sees("Approve the changes of job 'api'?")
        await person.presses("y")
        await person.until(lambda: desk.jobs()["api"] == "succeeded", lambda: person.screen)
        await person.until(lambda: desk.status()["plan"]["status"] == "waiting", lambda: person.screen)
        await person.sees("1 done")
        await person.presses("L")
        await person.sees("Land plan 'Waits'")
        await person.presses("y")
        await person.sees("it succeeded")
    assert desk.repo.files("goal")["api.txt"] == "1\n"


async def test_what_is_refused_is_said_in_the_foot(desk: Desk) -> None:
    assert desk("run", desk.plan(WAITS.replace("approve: true, ", "").replace("land: ask", ""))).code == 0
    async with watched(opened(desk)) as person:
        await person.chooses("api")
        over = "is over: it succeeded. There is nothing to cancel."
        for key, said in (("a", "does not wait for approval"), ("L", "land"), ("r", "api"), ("c", over), ("C", over)):
            await person.presses(key)
            await person.until(lambda: (person.watcher._told or [("", "")])[0][1] == "bad", lambda: person.screen)
            assert person.watcher._told is not None and said in person.watcher._told[0][0]
            assert person.watcher._told[0][1] == "bad"
            person.watcher._told = None
    assert len(desk.events("Landed")) == 1


async def test_plans_of_all_repositories_are_listed_and_one_that_comes_is_seen(desk: Desk, gate: Path) -> None:
    other = desk.beside("other")
    begin(desk, jobs(gate))
    assert other("run", other.plan(WAITS.replace("Waits", "Elsewhere"))).code == 4
    app = opened(desk)
    async with watched(app, *app.others()) as person:
        await person.sees("Evil", "Elsewhere")
        await person.presses("right_square_bracket")
        await person.sees("Elsewhere  waiting", "waiting: approval")
        begin(desk, WAITS.replace("Waits", "Comes later"))
        await person.sees("Comes later")
        assert "Elsewhere  waiting" in person.screen, "and the one that is looked at stays"
        gate.touch()
        other.close()


async def test_the_list_of_plans_shows_whole_ids_however_long_names_are(desk: Desk) -> None:
    names = [f"A name that begins like others and goes on for long, number {number}" for number in (1, 2)]
    for name in names:
        assert desk("run", desk.plan(WAITS.replace("Waits", name))).code == 4
    ids = [plan["id"] for plan in desk("list", "--json").json]
    async with watched(opened(desk), size=(120, 40)) as person:
        shown = await person.sees(*ids)
        assert len(ids) == 2 and f"? {ids[0]}" in shown


async def test_the_list_of_keys_names_every_action(desk: Desk) -> None:
    assert desk("run", desk.plan(WAITS)).code == 4
    async with watched(opened(desk), size=(80, 24)) as person:
        await person.sees("waiting")
        await person.presses("question_mark")
        await person.sees(*(action.does for action in ACTIONS), "quit (also ctrl-c)")
        await person.presses("q")
        await person.sees("[l] LOG")
        assert person.watcher.is_running, "a key closes the list and does nothing else"
        await person.presses("ctrl+c")
        await person.until(lambda: not person.watcher.is_running, lambda: person.screen)


def test_without_the_extra_one_plan_is_watched_and_all_of_them_are_refused(desk: Desk) -> None:
    assert desk("run", desk.plan(WAITS)).code == 4
    hides = desk.folder / "hides"
    hides.mkdir()
    code = "u.find_spec = lambda name, package=None: None if name == 'textual' else found(name, package)"
    (hides / "sitecustomize.py").write_text(f"import importlib.util as u\nfound = u.find_spec\n{code}\n")
    desk.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(hides), desk.env.get("PYTHONPATH", "")]))

    for words, key, said in ((["watch", "--all"], b"", b"[watch]"), (["watch"], b"q", b"q quits")):
        running, terminal = desk.on_a_terminal(*words)
        shown = b""
        while said not in shown:
            shown += os.read(terminal, 65536)
        os.write(terminal, key)
        assert running.process.wait(30) == (0 if key else 2)
        os.close(terminal)


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_move_is_refused(desk: Desk, term: str) -> None:
    assert desk("run", desk.plan(WAITS)).code == 4
    desk.env["TERM"] = term or "dumb"

    running, terminal = desk.on_a_terminal("watch") if term else (desk.start("watch"), -1)
    assert running.process.wait(30) == 2
    shown = os.read(terminal, 65536).decode() if term else running.talk
    assert "A plan can be watched on a terminal only" in shown
