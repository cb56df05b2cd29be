"""Real agents that are talked to: a message goes on in their own session, also after their turn was interrupted."""

import asyncio
from pathlib import Path

import pytest

from orchard.engine.server.session import Session
from orchard.model.events.plans import AgentNoted
from orchard.model.plan import PlanId
from orchard.testing import Repo
from tests.agents.llm import Asked, Hang, Reply, Say, ScriptedLlm, Shell, routes, steps
from tests.agents.test_plans import BUILTIN, CLAUDE, CODEX, Kind, asks, carrying, install
from tests.engine.conftest import Orchard, job

pytestmark = pytest.mark.anyio

KINDS = (BUILTIN, CLAUDE, CODEX)


@pytest.fixture
def orchard(tmp_path: Path) -> Orchard:
    repo = Repo.make(tmp_path / "repo")
    repo("checkout", "-q", "-b", "work")
    return Orchard(repo)


def after_message(asked: Asked) -> Reply:
    """What the model does with the message, whatever stood before it in a session that was cut off."""
    return Say("Wrote b.") if asked.results_since("SECOND") or not asked.tools else Shell("echo b > b.txt")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
async def test_a_message_goes_on_in_the_session_of_an_idle_agent(
    kind: Kind, orchard: Orchard, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    script = routes(
        {"SECOND": steps(Shell("echo b > b.txt"), Say("Wrote b."))},
        otherwise=steps(Shell("echo a > a.txt"), Say("Wrote a. And now?")),
    )
    with ScriptedLlm(script) as llm:
        install(monkeypatch, private_home, llm, kind)
        work = asks(kind, "FIRST").replace("{type", "{interactive: true, type", 1)
        idle = await orchard.run(f"name: Talk\njobs: [{{id: a, work: {work}}}]")
        assert job(idle, "a")["worker"]["state"] == "idle", job(idle, "a")["error"]
        assert job(idle, "a")["worker"]["said"] == "Wrote a. And now?"
        before = len(llm.requests)

        again = await orchard.ask("send_message", job="a", message="SECOND")
        done = await orchard.ask("complete_task", job="a")

        assert job(again, "a")["worker"]["said"] == "Wrote b.", job(again, "a")["error"]
        first, second = orchard.attempts("a", None)[0]["turns"]
        assert second["resumed"] and second["session"] == first["session"]
        told = [asked for asked in llm.requests[before:] if asked.tools]
        assert any("FIRST" in prompt for prompt in told[0].prompts[:-1]), "the session's history was sent again"
        assert done["plan"]["status"] == "succeeded"
        assert {"a.txt", "b.txt"} <= orchard.repo.files("work").keys()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
async def test_an_interrupted_agent_is_gone_and_hears_a_message_afterwards(
    kind: Kind, orchard: Orchard, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    script = routes(
        {"SECOND": after_message},
        otherwise=steps(Shell("echo a > a.txt"), Hang(Shell("echo late > late.txt")), Say("Never said.")),
    )
    with ScriptedLlm(script) as llm:
        install(monkeypatch, private_home, llm, kind)
        monkeypatch.setenv("ORCHARD_GRACE", "1")

        async def stop(session: Session, plan: PlanId) -> None:
            await asyncio.to_thread(llm.wait_hanging, 120.0)
            answer = await session.request("interrupt_worker", plan=plan, job="a")
            assert answer["worker"] == "idle"
            assert not carrying(f"{plan}:a:1")
            llm.release()

        await orchard.run(f"name: Stop\njobs: [{{id: a, work: {asks(kind, 'FIRST')}}}]", during=stop)
        done = await orchard.ask("send_message", job="a", message="SECOND")

        assert done["plan"]["status"] == "succeeded", job(done, "a")["error"]
        files = orchard.repo.files("work")
        assert (files["a.txt"], files["b.txt"], "late.txt" in files) == ("a\n", "b\n", False)
        notes = [one.message for one in orchard.events(AgentNoted) if one.kind == "session"]
        first, *rest = orchard.attempts("a", None)[0]["turns"]
        assert first["outcome"] == "stopped"
        assert rest[-1]["outcome"] == "done" and (rest[-1]["session"] == first["session"] or notes)
