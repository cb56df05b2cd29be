"""Whenever the engine works in a folder in which programs of a job are at work, none of those runs meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from orchard.engine.server import start as opening
from orchard.git.objects import large
from orchard.git.objects.quarantine import Brought
from orchard.model.limits import Limits
from orchard.process.program import run_program
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.helpers import Asker, Line, by_task, run
from tests.engine.scripted import ScriptedAgents
from tests.process.zoo import nap, survivors, until

pytestmark = pytest.mark.anyio

PLAN = "name: Help\njobs: [{id: a, work: '@one Parent'}]"
# A program, and one that has left its session and its environment; both work without end.
BUSY = "env -i setsid sh -c 'while :; do : NAP; done' & while :; do : NAP; done"


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


class Eyes:
    """Sees what the programs of a turn do in the middle of a step of the engine's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self.number, self.seen = monkeypatch, nap(), dict[str, list[str]]()

    def on(self, where: str, instead: Callable[..., Any] | None = None) -> None:
        """Look whenever the function at this place is called; `instead`: then do this."""
        module, _, name = where.rpartition(".")
        known = instead or getattr(__import__(module, fromlist=[name]), name)

        @wraps(known)
        def looks(*args: Any, **kwargs: Any) -> Any:
            if survivors(self.number):
                self.seen.setdefault(name, []).append(self.states())
            return known(*args, **kwargs)

        self._patch.setattr(where, looks)

    def states(self) -> str:
        found = []
        for pid in survivors(self.number):
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        return "".join(found)

    @asynccontextmanager
    async def busy(self, asker: Asker) -> AsyncIterator[None]:
        """With two programs at work in the folder of a turn, as those that an agent starts."""
        task, argv = asker.task, ("sh", "-c", BUSY.replace("NAP", self.number))
        launch = task.launcher.launch(argv, task.folder, {"PATH": "/usr/bin:/bin"}, task.log, Limits(grace=0.2))
        running = asyncio.ensure_future(run_program(launch))
        try:
            await until(lambda: len(survivors(self.number)) == 2)
            yield
            assert "T" not in self.states() and len(survivors(self.number)) == 2
        finally:
            running.cancel()
            await asyncio.wait({running})


@pytest.fixture
def eyes(monkeypatch: pytest.MonkeyPatch) -> Eyes:
    return Eyes(monkeypatch)


async def _child(asker: Asker) -> str:
    asker.write(child="from the child")
    return "Done."


async def test_programs_stand_still_while_a_picture_is_taken_and_while_changes_are_written(
    orchard: Orchard, agents: ScriptedAgents, eyes: Eyes
) -> None:
    line = Line()
    eyes.on("orchard.engine.workspace.ensure_saved")
    eyes.on("orchard.engine.workspace.write_changes")

    async def parent(asker: Asker) -> str:
        async with eyes.busy(asker):
            spawned = await asker.spawn("Child: write a file", blocking=True)
            assert (await asker.pull(spawned["id"]))["status"] == "merged"
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=_child))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert len(eyes.seen["ensure_saved"]) >= 2 and len(eyes.seen["write_changes"]) == 1
    assert all(set(states) == {"T"} for seen in eyes.seen.values() for states in seen), eyes.seen


async def test_programs_stand_still_while_what_their_git_wrote_is_brought_in(
    orchard: Orchard, agents: ScriptedAgents, eyes: Eyes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = Line()
    monkeypatch.setattr("orchard.engine.enclosure.is_empty", lambda folder: False)
    monkeypatch.setattr(large, "is_empty", lambda folder: False)
    monkeypatch.setattr(large, "store", lambda repo: tmp_path)
    eyes.on("orchard.engine.enclosure.bring_in", lambda repo, folder: Brought())
    eyes.on("orchard.git.objects.large.bring_in", lambda *args: [])

    async def parent(asker: Asker) -> str:
        async with eyes.busy(asker):
            await asker.spawn("Child: write a file", blocking=True)
        asker.write(done="done")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=_child))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert len(eyes.seen["bring_in"]) >= 2
    assert all(set(states) == {"T"} for states in eyes.seen["bring_in"]), eyes.seen


async def test_programs_stand_still_while_another_process_is_shown_what_they_changed(
    orchard: Orchard, agents: ScriptedAgents, eyes: Eyes
) -> None:
    line, shown = Line(), list[bytes]()
    eyes.on("orchard.operations.commands.system.tree_now")
    eyes.on("orchard.git.worktree.transfer.tree_now", lambda *args: pytest.fail("read without the engine"))

    async def parent(asker: Asker) -> str:
        asker.write(done="done")
        async with eyes.busy(asker):
            shown.append(await asyncio.to_thread(partial(orchard.app.diff, "a", None)))
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=_child))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert b"+done" in shown[0]
    assert len(eyes.seen["tree_now"]) == 1 and set(eyes.seen["tree_now"][0]) == {"T"}, eyes.seen


async def test_a_picture_of_a_folder_whose_programs_cannot_be_held_is_refused_and_they_go_on(
    orchard: Orchard, agents: ScriptedAgents, eyes: Eyes, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, refused = Line(), list[str]()
    monkeypatch.setattr("orchard.process.families.stillness.Hold.stop.__defaults__", (0.1,))

    async def parent(asker: Asker) -> str:
        async with eyes.busy(asker):
            with monkeypatch.context() as patch:
                patch.setattr("orchard.process.families.stillness.thread_states", lambda pid: "R")
                with pytest.raises(Exception, match="did not stand still") as error:
                    await asker.spawn("Child: write a file")
            refused.append(str(error.value))
        asker.write(done="done")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=_child))
    status = await run(orchard, line, PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert refused
