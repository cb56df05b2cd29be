"""What agents are told reaches them: however early a turn is interrupted, and whatever a retry changes."""

import asyncio
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.acp.agent import AcpAgent
from orchard.agents.builtin.agent import BuiltinAgent
from orchard.agents.builtin.model import Hear, Reply, Request
from orchard.agents.cli import CliAgent, Command
from orchard.agents.permissions import Holds
from orchard.agents.protocol import Agent, Heard, Result, Said, Session, Task, Tell, Watch
from orchard.engine.server import session
from orchard.engine.server import start as opening
from orchard.engine.turns import turn as turns
from orchard.errors import UsageError
from orchard.model.agent_rows import AgentRow
from orchard.model.events.plans import AgentHeard, JobFailed, MessagesDelivered
from orchard.model.plan import PlanId
from orchard.process.program import Ended
from orchard.testing import Turn, says
from tests.engine.conftest import Json, Orchard, statuses, until
from tests.engine.scripted import ScriptedAgents, ends, writes
from tests.engine.test_cut_journal import cut_after
from tests.engine.test_workers import PLAIN, TALK, worker

pytestmark = pytest.mark.anyio

TALKER = Path(__file__).with_name("talker.py")


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


def stays(*, hears: bool) -> Turn:
    """A turn that never ends by itself, in which the agent has taken in what it was told, or not yet."""

    async def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Session(task.session or "s1"))
        if hears:
            watch.tell(Heard())
        await asyncio.Event().wait()
        return Result("done")

    return turn


async def interrupt_turn(orchard: Orchard, agent: Any, number: int, *before: tuple[str, Json]) -> Json:
    """Ask for something, and interrupt the turn of this number as soon as the agent has it."""
    app = orchard.app
    plan = app.find_plan(None)
    async with asyncio.timeout(30), app.session() as found:
        for verb, args in before:
            await found.request(verb, plan=plan, job="a", **args)
        await until(lambda: len(agent.tasks) >= number)
        await found.request("interrupt_worker", plan=plan, job="a")
        async for _ in found.follow(plan):
            pass
    return orchard.status()


# -------------------------------------------------------------------------------------- messages


async def test_a_message_whose_turn_is_stopped_before_the_agent_heard_it_is_told_in_the_next_turn(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}), stays(hears=False), writes({"b.txt": "b"}))
    await orchard.run(TALK)

    idle = await interrupt_turn(orchard, agent, 2, ("send_message", {"message": "Now write b."}))
    again = await orchard.ask("send_message", job="a", message="And c.")

    assert (worker(idle)["state"], worker(idle)["queued"]) == ("idle", 1)
    told = agent.tasks[2].instructions
    assert told.index("Now write b.") < told.index("And c.") and agent.tasks[2].session == "s1"
    assert "before it was certain that you had read" in told
    assert (worker(again)["state"], worker(again)["queued"], len(agent.tasks)) == ("idle", 0, 3)


async def test_a_message_that_the_agent_heard_before_its_turn_was_stopped_is_not_told_again(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}), stays(hears=True), writes({"b.txt": "b"}))
    await orchard.run(TALK)

    idle = await interrupt_turn(orchard, agent, 2, ("send_message", {"message": "Now write b."}))
    await orchard.ask("send_message", job="a", message="And c.")

    assert (worker(idle)["state"], worker(idle)["queued"]) == ("idle", 0)
    assert agent.tasks[2].instructions == "And c.\n"
    assert [one.number for one in orchard.events(MessagesDelivered)] == [1, 2]


async def test_a_task_that_was_not_heard_before_the_turn_was_stopped_is_told_with_the_message(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", stays(hears=False), writes({"a.txt": "a"}))

    async def stop(found: session.Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks))
        await found.request("interrupt_worker", plan=plan, job="a")

    await orchard.run(PLAIN, during=stop)
    done = await orchard.ask("send_message", job="a", message="Go on.")

    told = agent.tasks[1].instructions
    assert told.startswith("Write a") and "Go on." in told
    assert done["plan"]["status"] == "succeeded"


async def test_a_message_of_a_turn_that_failed_after_it_was_heard_is_not_told_as_if_it_were_new(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    def fails(task: Task, watch: Watch) -> Result:
        watch.tell(Heard())
        return Result("failed", "It broke.", session="s1")

    agent = agents.add("one", writes({"a.txt": "a"}), fails, writes({"b.txt": "b"}))
    await orchard.run(TALK)
    failed = await orchard.ask("send_message", job="a", message="Now write b.")

    await orchard.ask("retry_plan", jobs=["a"])

    assert (statuses(failed), worker(failed)["queued"]) == ({"a": "failed"}, 0)
    assert "It broke." in agent.tasks[2].instructions and "Now write b." not in agent.tasks[2].instructions


async def test_a_message_is_told_again_after_an_error_that_passes_unless_the_agent_had_heard_it(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    busy = Result("overloaded", "Too busy.", session="s1")

    def heard(task: Task, watch: Watch) -> Result:
        watch.tell(Heard())
        return busy

    agent = agents.add("one", writes({"a.txt": "a"}), ends(busy), heard, writes({"b.txt": "b"}))
    await orchard.run(TALK)

    await orchard.ask("send_message", job="a", message="Now write b.")

    carried = ["Now write b." in task.instructions for task in agent.tasks[1:]]
    assert carried == [True, True, False]


@pytest.mark.parametrize(("last", "again"), [("AgentStarted", True), ("AgentHeard", False)])
async def test_after_a_crash_a_message_is_told_again_only_if_it_was_not_heard(
    orchard: Orchard, agents: ScriptedAgents, last: str, again: bool
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}), writes({"b.txt": "b"}))
    await orchard.run(TALK)
    await orchard.ask("send_message", job="a", message="Now write b.")
    cut_after(orchard, "MessagesDelivered" if last == "AgentHeard" else last)
    del agent.tasks[2:]

    idle = await orchard.ask("retry_plan", jobs=["a"])

    assert ("Now write b." in agent.tasks[2].instructions) is again
    assert (worker(idle)["state"], worker(idle)["queued"]) == ("idle", 0)


async def test_an_agent_without_a_session_is_idle_after_an_interruption_and_hears_everything_next_time(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    async def silent(task: Task, watch: Watch) -> Result:
        await asyncio.Event().wait()
        return Result("done")

    agent = agents.add("one", writes({"a.txt": "a"}, session=None), silent, writes({"b.txt": "b"}, session=None))
    await orchard.run(TALK)

    idle = await interrupt_turn(orchard, agent, 2, ("send_message", {"message": "Now write b."}))
    await orchard.ask("send_message", job="a", message="And c.")

    assert (worker(idle)["state"], worker(idle)["queued"]) == ("idle", 0)
    assert "Now write b." in agent.tasks[2].instructions and "And c." in agent.tasks[2].instructions


# -------------------------------------------------------------------- senders against interrupters


class Remembers:
    """A model that takes its time, and knows what it was told."""

    def __init__(self) -> None:
        self.seen = self.ever_seen = ""

    async def reply(self, request: Request, hear: Hear) -> Reply:
        await asyncio.sleep(random.uniform(0, 0.02))
        self.seen = "\n".join(message.text for message in request.messages if message.role == "user")
        self.ever_seen += self.seen  # what is old is left out of a long conversation
        return says("I am at it.")


class Talker:
    """The backend of a program that remembers."""

    name, program = "talker", sys.executable
    variables: tuple[str, ...] = ()
    holds: Holds = "nothing"

    def __init__(self, memory: Path) -> None:
        self._memory = memory

    def prepare(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        words = (program, str(TALKER), "cli", str(self._memory), *([task.session] if task.session else []))
        return Command(words, stdin=task.instructions.encode())

    def reader(self, task: Task, tell: Tell) -> "TalkerReader":
        return TalkerReader(tell)


class TalkerReader:
    def __init__(self, tell: Tell) -> None:
        self._tell, self._last, self._session = tell, "", ""

    def feed(self, message: Json) -> None:
        if "session" in message:
            self._session = message["session"]
            self._tell(Session(self._session))
        elif "text" in message:
            self._tell(Said(message["text"]))
        else:
            self._last = next(iter(message))

    def result(self, ended: Ended, stray: str) -> Result:
        if self._last == "lost":
            return Result("session-lost", "It is gone.")
        return Result("done" if self._last == "result" else "failed", stray, session=self._session or None)


Heard_ = Callable[[], str]


def builtin(memory: Path) -> tuple[Agent, Heard_]:
    model = Remembers()
    return BuiltinAgent(model=model), lambda: model.ever_seen


def remembered(memory: Path) -> str:
    """What the newest session knows: it goes on with all that the others knew, or was told everything anew."""
    found = sorted(memory.glob("*.txt"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1].read_text() if found else ""


def acp(memory: Path) -> tuple[Agent, Heard_]:
    agent = AcpAgent(f"{sys.executable} {TALKER} acp {memory}", name="acp")
    return agent, lambda: remembered(memory)


def cli(memory: Path) -> tuple[Agent, Heard_]:
    return CliAgent(Talker(memory)), lambda: remembered(memory)


MESSAGES = [f"remark-{sender}-{number}." for sender in range(3) for number in range(16)]


@pytest.mark.parametrize("make", [builtin, acp, cli])
async def test_none_of_48_messages_is_lost_while_others_interrupt_the_agent(
    orchard: Orchard, agents: ScriptedAgents, tmp_path: Path, make: Callable[[Path], tuple[Agent, Heard_]]
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    agent, heard = make(memory)
    agents.agents["one"], agents.default = agent, "one"  # type: ignore[assignment]
    await orchard.run(TALK)
    over = asyncio.Event()
    app = orchard.app
    plan = app.find_plan(None)

    async def send(found: session.Session, texts: list[str]) -> None:
        for text in texts:
            await asyncio.sleep(random.uniform(0, 0.4))
            await found.request("send_message", plan=plan, job="a", message=text)

    async def interrupt(found: session.Session) -> None:
        while not over.is_set():
            await asyncio.sleep(random.uniform(0.05, 0.9))
            with suppress(UsageError):  # there may be no turn just now
                await found.request("interrupt_worker", plan=plan, job="a")

    async with asyncio.timeout(60), app.session() as found:
        interrupters = [asyncio.ensure_future(interrupt(found)) for _ in range(2)]
        await asyncio.gather(*(send(found, MESSAGES[start : start + 16]) for start in (0, 16, 32)))
        over.set()
        await asyncio.gather(*interrupters)
        await until(lambda: worker(orchard.status())["state"] == "idle")
        # What an interrupted turn has told is in the session, what it has not is told now.
        await found.request("send_message", plan=plan, job="a", message="The last word.")
        await until(lambda: "The last word." in heard() and idle_with_nothing_queued(orchard))

    lost = [text for text in MESSAGES if text not in heard()]
    assert lost == [], f"{len(lost)} of {len(MESSAGES)}"
    assert "Write a" in heard()
    assert orchard.events(JobFailed) == []


def idle_with_nothing_queued(orchard: Orchard) -> bool:
    found = worker(orchard.status())
    return (found["state"], found["queued"]) == ("idle", 0)


async def test_what_the_built_in_agent_is_told_is_in_its_session_before_anything_that_takes_time(
    orchard: Orchard, agents: ScriptedAgents, tmp_path: Path
) -> None:
    model = Remembers()
    agents.agents["one"], agents.default = BuiltinAgent(model=model), "one"  # type: ignore[assignment]
    await orchard.run(TALK)

    async def at_once(found: session.Session, plan: PlanId) -> None:
        before = len(orchard.events(AgentHeard))
        await found.request("send_message", plan=plan, job="a", message="Now write b.")
        await until(lambda: len(orchard.events(AgentHeard)) > before)
        await found.request("interrupt_worker", plan=plan, job="a")

    app = orchard.app
    async with asyncio.timeout(30), app.session() as found:
        await at_once(found, app.find_plan(None))
        async for _ in found.follow(app.find_plan(None)):
            pass
    await orchard.ask("send_message", job="a", message="And c.")

    assert model.seen.count("Now write b.") == 1 and "And c." in model.seen


# ---------------------------------------------------------------------------------------- retries


NEW = {"type": "agent", "instructions": "Write only b"}


async def test_a_retry_with_other_instructions_tells_them_to_the_session_that_goes_on(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", ends(Result("done", session="s1")), writes({"b.txt": "b"}))
    await orchard.run(PLAIN)

    done = await orchard.ask("retry_plan", jobs=["a"], work=NEW, phase="work")

    told = agent.tasks[1].instructions
    assert agent.tasks[1].session == "s1"
    assert "Write only b" in told and "new instructions" in told and "failed" in told
    assert done["plan"]["status"] == "succeeded"


async def test_other_instructions_are_told_by_a_later_retry_if_no_agent_heard_them_before(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    unheard = Result("spawn-failed", "It does not start.")
    agent = agents.add("one", ends(Result("done", session="s1")), ends(unheard), writes({"b.txt": "b"}))
    await orchard.run(PLAIN)
    await orchard.ask("retry_plan", jobs=["a"], work=NEW, phase="work")

    await orchard.ask("retry_plan", jobs=["a"])

    assert ["Write only b" in task.instructions for task in agent.tasks] == [False, True, True]


async def test_a_retry_tells_other_checks_and_a_retry_without_changes_does_not_repeat_the_task(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))
    await orchard.run("name: P\njobs: [{id: a, heal: false, work: '@agent Write a', postchecks: 'false # old'}]")

    checks = [{"type": "shell", "command": "false # new"}]
    await orchard.ask("retry_plan", jobs=["a"], postchecks=checks, phase="work")
    await orchard.ask("retry_plan", jobs=["a"], phase="work")

    assert "false # new" in agent.tasks[1].instructions
    assert "new instructions" not in agent.tasks[2].instructions


async def test_every_attempt_shows_the_work_and_the_checks_that_it_ran(orchard: Orchard) -> None:
    await orchard.run("name: P\njobs: [{id: a, heal: false, work: 'echo ONE; exit 3', postchecks: 'true'}]")
    checks = [{"type": "shell", "command": "test -f README.md"}]
    await orchard.ask(
        "retry_plan", jobs=["a"], work={"type": "shell", "command": "echo TWO; exit 4"}, postchecks=checks
    )
    await orchard.ask("retry_plan", jobs=["a"])

    shown = orchard.job("a", None)
    ran = [(one["work"]["command"], one["postchecks"][0]["command"]) for one in shown["attempts_detail"]]

    two = ("echo TWO; exit 4", "test -f README.md")
    assert ran == [("echo ONE; exit 3", "true"), two, two]
    assert shown["configuration"]["work"]["command"] == "echo TWO; exit 4"
    assert shown["configuration"]["postchecks"] == checks
    assert shown["attempts_detail"] == orchard.attempts("a", None)
