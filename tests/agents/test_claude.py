"""Claude Code as an agent: the real program against a scripted model, and its event stream without it."""

import json
from typing import ClassVar

import pytest

from orchard.agents.backends.claude import RETRIES, Claude
from orchard.agents.cli import Json, judged
from orchard.agents.protocol import Called, McpServer, Noted, Reason, Result, Said, Session, Settings, Used
from orchard.process.program import Ended
from tests.agents.claims import NOWHERE, WRITES, OverHttp
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import Asked, Call, Fail, Say, ScriptedLlm, Shell, steps
from tests.agents.programs import program
from tests.agents.turns import files, run

pytestmark = pytest.mark.anyio

MODEL = "claude-sonnet-4-5"


class TestClaude(OverHttp):
    """The real program."""

    name = "claude"
    write_tool = ("Write", "file_path", "content")
    shell_tool: ClassVar[tuple[str, dict[str, object]]] = ("Bash", {"command": "COMMAND"})
    model = MODEL
    most_requests = RETRIES + 1

    def backend(self) -> Claude:
        return Claude()

    def env(self, url: str) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "not-a-key"}

    def effort_of(self, asked: Asked) -> object:
        return asked.body["output_config"]["effort"]

    async def test_it_tells_what_a_turn_cost_and_not_what_the_session_did(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(WRITES) as llm:
            first = await self.turn(desk, ear, llm)
        again = Ear()
        with ScriptedLlm(WRITES) as llm:
            await self.turn(desk, again, llm, session=first.session)

        assert ear.usage.cost_source == "agent"
        assert ear.usage.cost is not None
        assert ear.usage.cost > 0
        assert again.usage.cost == pytest.approx(ear.usage.cost)

    async def test_without_a_key_the_users_own_home_is_in_use(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(WRITES) as llm:
            path = program("claude").search_path
            result = await run(self.agent(), desk.task(path=path, env={"ANTHROPIC_BASE_URL": llm.url}), ear)

            assert result.reason == "not-logged-in", result
            assert llm.requests == []
        assert ".claude.json" in files(desk.home)
        assert not (desk.private / "claude").exists()

    async def test_an_error_that_passes_is_tried_again_by_the_program_and_told(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(WRITES) as llm:
            llm.fail(529, times=1, retry_after=0.1)
            result = await self.turn(desk, ear, llm)

        assert result.reason == "done"
        assert len(ear.notes("retry")) == 1

    async def test_a_host_that_is_not_there_is_a_matter_of_the_network(self, desk: Desk, ear: Ear) -> None:
        result = await run(self.agent(), self.task(desk, NOWHERE), ear)

        assert result.reason == "network"

    async def test_a_server_that_does_not_start_is_told(self, desk: Desk, ear: Ear) -> None:
        settings = Settings(mcp_servers=(McpServer("broken", "/bin/false"),))
        with ScriptedLlm() as llm:
            result = await self.turn(desk, ear, llm, settings=settings)

        assert result.reason == "done"
        assert any("broken" in note for note in ear.notes("mcp"))

    async def test_a_tool_that_fails_is_told_and_the_turn_goes_on(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(steps(Shell("echo no >&2; exit 3"), Call("NoSuchTool"), Say("Gave up."))) as llm:
            result = await self.turn(desk, ear, llm)

        assert result.reason == "done", result
        assert [call.tool for call in ear.of(Called) if call.failed] == ["Bash", "NoSuchTool"]

    async def test_a_stream_that_breaks_is_no_success(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(steps(Fail(529, midstream=True))) as llm:
            result = await self.turn(desk, ear, llm)

        assert result.reason == "overloaded", result


# ------------------------------------------------------------------------------------------ the event stream alone

ENDED = Ended("exit", 0, None, "It ended.", 1.0)
INIT: Json = {"type": "system", "subtype": "init", "session_id": "s-1", "mcp_servers": []}


def assistant(id: str, *blocks: Json, output: int = 1, model: str = MODEL) -> Json:
    usage = {"input_tokens": 100, "output_tokens": output, "cache_read_input_tokens": 10}
    return {"type": "assistant", "message": {"id": id, "model": model, "content": list(blocks), "usage": usage}}


def final(**more: object) -> Json:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "session_id": "s-1", **more}


def heard(desk: Desk, ear: Ear, *messages: Json, session: str | None = None) -> tuple[Reason, str]:
    reader = Claude().reader(desk.task(session=session), ear.told.append)
    for message in messages:
        reader.feed(json.loads(json.dumps(message)))
    result = reader.result(ENDED, "")
    return result.reason, result.message


def test_the_parts_of_one_message_are_counted_once_even_with_another_in_between(desk: Desk, ear: Ear) -> None:
    word, call = {"type": "text", "text": "Hm."}, {"type": "tool_use", "id": "t", "name": "Read", "input": {}}

    heard(desk, ear, INIT, assistant("a", word), assistant("b", word), assistant("a", call), final())

    assert ear.usage.requests == 2
    assert ear.usage.input == 200


def test_the_result_adds_what_the_messages_did_not_know_yet(desk: Desk, ear: Ear) -> None:
    whole = {"inputTokens": 100, "outputTokens": 48, "cacheReadInputTokens": 10, "costUSD": 0.5}
    side = {"inputTokens": 7, "outputTokens": 3, "costUSD": 0.25}

    heard(desk, ear, INIT, assistant("a"), final(modelUsage={MODEL: whole, "haiku": side}, duration_api_ms=1500))

    assert (ear.usage.input, ear.usage.cached, ear.usage.output) == (107, 10, 51)
    assert ear.usage.cost == 0.75
    assert ear.usage.api_seconds == 1.5


def test_what_the_program_says_in_the_models_name_costs_nothing(desk: Desk, ear: Ear) -> None:
    heard(desk, ear, INIT, assistant("a", {"type": "text", "text": "API Error"}, model="<synthetic>"), final())

    assert ear.of(Used) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (final(), "done"),
        (final(is_error=True, api_error_status=429, result="API Error: rejected"), "rate-limit"),
        (final(is_error=True, result="Not logged in · Please run /login"), "not-logged-in"),
        (final(subtype="error_max_turns", is_error=True, result=None), "max-turns"),
        (final(subtype="error_max_budget_usd", is_error=True, result=None), "budget"),
        (final(subtype="error_during_execution", errors=["It broke."]), "failed"),
        (final(stop_reason="refusal"), "refused"),
        (final(permission_denials=[{"tool_name": "Write"}]), "denied"),
    ],
)
def test_the_result_is_judged_by_its_own_words(message: Json, reason: Reason, desk: Desk, ear: Ear) -> None:
    assert heard(desk, ear, INIT, message)[0] == reason


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("[API Error: 400 bad request]", "failed"),
        ("API Error: 429 too many requests", "rate-limit"),
        ("API Error 401 invalid key", "not-logged-in"),
        ("  api error (529): overloaded", "overloaded"),
        ("API errors are handled now.", "done"),
        ("API Error handling was added.", "done"),
        ("Done. The log had: API Error: 400", "done"),
    ],
)
def test_last_words_that_are_an_error_of_the_models_owner_are_no_success(words: str, reason: Reason) -> None:
    assert judged(Result("done", text=words), ENDED).reason == reason


def test_a_denied_tool_beside_others_that_worked_is_noted_only(desk: Desk, ear: Ear) -> None:
    worked = {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t"}]}}

    reason, _ = heard(desk, ear, INIT, worked, final(permission_denials=[{"tool_name": "WebFetch"}]))

    assert reason == "done"
    assert any("WebFetch" in note for note in ear.notes("denied"))


def test_no_result_is_no_success_whatever_the_exit_status(desk: Desk, ear: Ear) -> None:
    reason, message = heard(desk, ear, INIT, assistant("a", {"type": "text", "text": "All done!"}))

    assert reason == "failed"
    assert "did not say how its work ended" in message


def test_a_result_that_says_success_does_not_outweigh_the_exit_status(desk: Desk, ear: Ear) -> None:
    reader = Claude().reader(desk.task(), ear.told.append)
    reader.feed(final())

    assert reader.result(Ended("exit", 3, None, "It ended with 3.", 1.0), "").reason == "failed"


def test_what_it_complained_of_before_it_began_is_told(desk: Desk, ear: Ear) -> None:
    reader = Claude().reader(desk.task(), ear.told.append)
    desk.log.write_text("error: unknown option '--effort'\n")

    result = reader.result(Ended("exit", 1, None, "It ended with 1.", 1.0), "")

    assert (result.reason, result.message) == ("failed", "error: unknown option '--effort'")


@pytest.mark.parametrize(
    "message",
    [
        {"type": "system", "subtype": "init", "session_id": 7, "mcp_servers": [{"status": "failed", "name": []}, 3]},
        {"type": "assistant", "message": [1]},
        {"type": "assistant", "message": {"content": {"type": "text"}, "usage": 3, "id": {}, "model": None}},
        {"type": "assistant", "message": {"content": [None, {"type": "text", "text": {}}, {"type": "tool_use"}]}},
        {"type": "assistant", "message": {"content": [], "usage": {"input_tokens": -5, "output_tokens": "many"}}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "is_error": True, "content": 5}]}},
        {"type": "result", "modelUsage": {"m": 1, "n": {"costUSD": "much"}}, "errors": "x", "permission_denials": 1},
        {"type": ["result"]},
        {},
    ],
)
def test_a_message_of_any_shape_breaks_nothing(message: Json, desk: Desk, ear: Ear) -> None:
    reason, _ = heard(desk, ear, message)

    assert reason == "failed"
    assert all(isinstance(telling, Said | Called | Used | Session | Noted) for telling in ear.told)
    assert all(used.usage.tokens >= 0 for used in ear.of(Used))


def test_what_is_shown_of_a_tool_is_one_line_without_control_characters(desk: Desk, ear: Ear) -> None:
    call = {"type": "tool_use", "id": "t", "name": "Ba\x1bsh\n", "input": {"command": "echo \x1b[2J\nrm -r x" * 500}}

    heard(desk, ear, INIT, assistant("a", call))

    [called] = ear.of(Called)
    assert (called.tool + called.about).isprintable()
    assert len(called.about) <= 200
