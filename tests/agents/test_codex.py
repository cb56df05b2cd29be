"""Codex as an agent: the real program against a scripted model, and its event stream without it."""

import json
import tomllib
from itertools import pairwise
from typing import ClassVar

import pytest

from orchard.agents.backends import codex
from orchard.agents.backends.codex import RETRIES, Codex
from orchard.agents.cli import Enough, Json
from orchard.agents.protocol import Called, McpServer, Noted, Reason, Said, Session, Settings, Used
from orchard.model.agent_rows import AgentRow
from orchard.model.limits import Limits
from orchard.process.program import Ended
from tests.agents.claims import NOWHERE, WRITES, OverHttp
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import Asked, Fail, Say, ScriptedLlm, Shell, steps
from tests.agents.turns import run

pytestmark = pytest.mark.anyio

MODEL = "gpt-5"


class TestCodex(OverHttp):
    """The real program."""

    name = "codex"
    write_tool = None
    shell_tool: ClassVar[tuple[str, dict[str, object]]] = ("exec_command", {"cmd": "COMMAND"})
    model = MODEL
    most_requests = (RETRIES + 1) ** 2
    unsupported = frozenset({"allowed_urls", "max_turns"})
    counts_requests = False

    def backend(self) -> Codex:
        return Codex()

    def env(self, url: str) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "not-a-key"}

    def effort_of(self, asked: Asked) -> object:
        return asked.body["reasoning"]["effort"]

    async def test_a_host_that_is_not_there_is_a_matter_of_the_network(self, desk: Desk, ear: Ear) -> None:
        result = await run(self.agent(), self.task(desk, NOWHERE, limits=Limits(wall=240, grace=1)), ear)

        assert result.reason == "network", result
        assert ear.notes("retry")

    async def test_what_a_session_used_that_began_elsewhere_is_not_guessed(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(WRITES) as llm:
            first = await self.turn(desk, ear, llm)
        (desk.private / "codex-usage.json").unlink()
        again = Ear()
        with ScriptedLlm(WRITES) as llm:
            await self.turn(desk, again, llm, session=first.session)

        assert again.of(Used) == []
        assert any("is not known" in note for note in again.notes("warning"))

    async def test_a_command_that_fails_is_told_and_the_turn_goes_on(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(steps(Shell("exit 3"), Say("Gave up."))) as llm:
            result = await self.turn(desk, ear, llm)

        assert result.reason == "done", result
        assert [call.tool for call in ear.of(Called) if call.failed] == ["shell"]

    async def test_a_stream_that_breaks_is_no_success(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(steps(Fail(500, midstream=True))) as llm:
            result = await self.turn(desk, ear, llm)

        assert result.reason != "done", result


# ------------------------------------------------------------------------------------------ the event stream alone

ENDED = Ended("exit", 0, None, "It ended.", 1.0)
STARTED: Json = {"type": "thread.started", "thread_id": "t-1"}


def usage(prompt: int, cached: int, output: int) -> Json:
    row = {"input_tokens": prompt, "cached_input_tokens": cached, "output_tokens": output, "reasoning_output_tokens": 1}
    return {"type": "turn.completed", "usage": row}


def item(kind: str, event: str = "item.completed", **more: object) -> Json:
    return {"type": event, "item": {"id": "item_1", "type": kind, **more}}


def heard(desk: Desk, ear: Ear, *messages: Json, session: str | None = None) -> tuple[Reason, str]:
    reader = Codex().reader(desk.task(session=session, settings=Settings(model=MODEL)), ear.told.append)
    for message in messages:
        reader.feed(json.loads(json.dumps(message)))
    result = reader.result(ENDED, "")
    return result.reason, result.message


def test_the_sum_of_a_session_is_told_as_what_each_turn_added(desk: Desk, ear: Ear) -> None:
    heard(desk, ear, STARTED, usage(100, 10, 20))
    heard(desk, ear, STARTED, usage(350, 60, 50), session="t-1")

    told = [(used.usage.input, used.usage.cached, used.usage.output) for used in ear.of(Used)]
    assert told == [(90, 10, 20), (200, 50, 30)]
    assert ear.usage.model == MODEL


def test_a_damaged_note_of_what_was_told_breaks_nothing(desk: Desk, ear: Ear) -> None:
    (desk.private / "codex-usage.json").write_bytes(b'{"t-1": [\xff')

    reason, _ = heard(desk, ear, STARTED, usage(100, 10, 20), session="t-1")

    assert reason == "done"
    assert ear.of(Used) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("unexpected status 401 Unauthorized: bad key, url: http://x/v1/responses", "not-logged-in"),
        ("Missing environment variable: `OPENAI_API_KEY`.", "not-logged-in"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate-limit"),
        ("We’re currently experiencing high demand, which may cause temporary errors.", "overloaded"),
        ("unexpected status 529 <unknown status code>: busy", "overloaded"),
        ("stream disconnected before completion: Connection reset by peer", "network"),
        ("the context is too long", "failed"),
    ],
)
def test_a_turn_that_failed_is_judged_by_its_words(message: str, reason: Reason, desk: Desk, ear: Ear) -> None:
    assert heard(desk, ear, STARTED, {"type": "turn.failed", "error": {"message": message}})[0] == reason


def test_an_item_that_is_an_error_is_a_warning_in_a_turn_that_succeeds(desk: Desk, ear: Ear) -> None:
    reason, _ = heard(desk, ear, STARTED, item("error", message="Model metadata not found."), usage(1, 0, 1))

    assert reason == "done"
    assert ear.notes("warning") == ["codex: Model metadata not found."]


def test_a_tool_is_told_once_when_it_begins_and_once_more_when_it_failed(desk: Desk, ear: Ear) -> None:
    call: Json = {"command": "make", "status": "in_progress"}
    edit: Json = {"changes": [{"path": "a.py", "kind": "add"}], "status": "completed", "id": "item_2"}
    heard(
        desk, ear, STARTED, item("command_execution", "item.started", **call),
        item("command_execution", **{**call, "status": "failed"}), item("file_change", **edit),
        item("mcp_tool_call", server="every", tool="echo", arguments={"path": "x"}, id="item_3"),
        item("reasoning", text="Hm.", id="item_4"),
    )  # fmt: skip

    assert ear.of(Called) == [
        Called("shell", "make"), Called("shell", "make", failed=True), Called("edit", "a.py"), Called("every/echo", "x")
    ]  # fmt: skip


def test_a_program_that_waits_for_the_network_for_ever_is_ended(desk: Desk, ear: Ear) -> None:
    waiting = {"type": "error", "message": "Reconnecting... waiting for network (Connection failed)"}
    reader = Codex().reader(desk.task(), ear.told.append)
    reader.feed(waiting)

    with pytest.raises(Enough):
        reader.feed(waiting)

    assert reader.result(Ended("signal", None, 15, "It was ended.", 1.0), "").reason == "network"


def test_no_last_word_is_no_success_whatever_the_exit_status(desk: Desk, ear: Ear) -> None:
    reason, message = heard(desk, ear, STARTED, item("agent_message", text="All done!"))

    assert reason == "failed"
    assert "did not say how its work ended" in message


@pytest.mark.parametrize(
    "message",
    [
        {"type": "thread.started", "thread_id": 5},
        {"type": "item.completed", "item": [1]},
        {"type": "item.completed", "item": {"type": ["x"], "id": {}}},
        {"type": "item.completed", "item": {"type": "file_change", "changes": [1, {"path": 2}]}},
        {"type": "item.started", "item": {"type": "mcp_tool_call", "server": 1, "tool": None, "arguments": [1]}},
        {"type": "error", "message": {"no": "text"}},
        {"type": "turn.failed", "error": "text"},
        {},
    ],
)
def test_a_message_of_any_shape_breaks_nothing(message: Json, desk: Desk, ear: Ear) -> None:
    reason, _ = heard(desk, ear, message)

    assert reason == "failed"
    assert all(isinstance(telling, Said | Called | Used | Session | Noted) for telling in ear.told)


def test_tokens_that_are_no_numbers_count_for_nothing(desk: Desk, ear: Ear) -> None:
    broken = {"type": "turn.completed", "usage": {"input_tokens": -5, "output_tokens": "x", "cached_input_tokens": 9}}

    heard(desk, ear, STARTED, broken)

    assert (ear.usage.input, ear.usage.output) == (0, 0)


def test_what_may_be_secret_of_a_server_is_not_an_argument(desk: Desk, ear: Ear) -> None:
    servers = (
        McpServer("local", "serve", (), {"TOKEN": "hidden-1", "PATH": "/opt/bin"}),
        McpServer("far", url="http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer hidden-2"}),
    )
    task = desk.task(settings=Settings(mcp_servers=servers))

    command = Codex().prepare("codex", AgentRow(), task, ear.told.append)

    assert "hidden" not in " ".join(command.argv)
    assert {"hidden-1", "Bearer hidden-2"} <= set(command.env.values())
    assert command.env.get("PATH") is None


def configured(argv: tuple[str, ...]) -> Json:
    """What the arguments say of one table each, as Codex reads it."""
    said = [value for flag, value in pairwise(argv) if flag == "--config"]
    return {one.partition("=")[0]: tomllib.loads(f"it={one.partition('=')[2]}")["it"] for one in said}


def test_in_its_sandbox_the_tools_of_the_servers_wait_for_nobody(
    desk: Desk, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codex, "without_namespaces", lambda: None)
    servers = (McpServer("local", "serve"), McpServer("far", url="http://127.0.0.1:1/mcp"))

    command = Codex().prepare("codex", AgentRow(), desk.task(settings=Settings(mcp_servers=servers)), ear.told.append)

    told = configured(command.argv)
    assert command.argv[command.argv.index("--sandbox") + 1] == "workspace-write"
    assert told["approval_policy"] == "never"
    assert {row["default_tools_approval_mode"] for row in told["mcp_servers"].values()} == {"approve"}
    assert ear.notes("warning") == []


def test_where_its_sandbox_cannot_work_it_runs_without_and_that_is_noted(
    desk: Desk, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codex, "without_namespaces", lambda: "/proc/sys/user/max_user_namespaces is 0")

    command = Codex().prepare("codex", AgentRow(), desk.task(), ear.told.append)

    assert "--dangerously-bypass-approvals-and-sandbox" in command.argv and "--sandbox" not in command.argv
    (note,) = ear.notes("warning")
    assert "without its own sandbox (/proc/sys/user/max_user_namespaces is 0)" in note
