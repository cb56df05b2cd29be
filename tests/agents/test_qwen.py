"""Qwen Code as an agent: the real program against a scripted model, and its event stream without it.

It speaks like Claude Code, whose tests hold what both share.
"""

import json
from typing import ClassVar

import pytest

from orchard.agents.backends.qwen import Qwen
from orchard.agents.cli import Json
from orchard.agents.protocol import Called, Reason, Used
from orchard.model.agent_rows import AgentRow
from orchard.process.program import Ended
from tests.agents.claims import OverHttp
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import Asked
from tests.agents.turns import files

pytestmark = pytest.mark.anyio

MODEL = "fake-model"


class TestQwen(OverHttp):
    """The real program."""

    name = "qwen"
    write_tool = ("write_file", "file_path", "content")
    shell_tool: ClassVar[tuple[str, dict[str, object]]] = (
        "run_shell_command",
        {"command": "COMMAND", "is_background": False},
    )
    model = MODEL
    most_requests = 7
    unsupported = frozenset({"allowed_urls", "effort"})

    def backend(self) -> Qwen:
        return Qwen()

    def env(self, url: str) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "not-a-key"}

    def effort_of(self, asked: Asked) -> object:
        return None

    # It tries 7 times by itself, for more than a minute.
    @pytest.mark.slow
    async def test_too_many_requests_are_a_rate_limit(self, desk: Desk, ear: Ear) -> None:
        await super().test_too_many_requests_are_a_rate_limit(desk, ear)

    @pytest.mark.slow
    async def test_an_error_of_the_server_is_an_overload(self, desk: Desk, ear: Ear) -> None:
        await super().test_an_error_of_the_server_is_an_overload(desk, ear)


# ------------------------------------------------------------------------------------------ the event stream alone

INIT: Json = {"type": "system", "subtype": "init", "session_id": "s-1", "tools": ["edit"], "mcp_servers": []}
FINAL: Json = {
    "type": "result", "subtype": "success", "session_id": "s-1", "is_error": False, "duration_api_ms": 1627,
    "num_turns": 2, "result": "Done.", "permission_denials": [],
    "usage": {"input_tokens": 234, "output_tokens": 48, "cache_read_input_tokens": 25, "total_tokens": 282},
}  # fmt: skip


def assistant(id: str, prompt: int, cached: int, output: int, *blocks: Json) -> Json:
    usage = {"input_tokens": prompt, "output_tokens": output, "cache_read_input_tokens": cached}
    return {"type": "assistant", "message": {"id": id, "model": MODEL, "content": list(blocks), "usage": usage}}


def heard(desk: Desk, ear: Ear, *messages: Json, status: int = 0, session: str | None = None) -> tuple[Reason, str]:
    reader = Qwen().reader(desk.task(session=session), ear.told.append)
    for message in messages:
        reader.feed(json.loads(json.dumps(message)))
    result = reader.result(Ended("exit", status, None, f"It ended with {status}.", 1.0), "")
    return result.reason, result.message


def test_what_was_read_from_a_cache_is_not_counted_as_input_too(desk: Desk, ear: Ear) -> None:
    call = {"type": "tool_use", "id": "c", "name": "run_shell_command", "input": {"command": "make"}}

    reason, _ = heard(desk, ear, INIT, assistant("a", 112, 11, 23, call), assistant("b", 122, 14, 25), FINAL)

    assert reason == "done"
    assert (ear.usage.input, ear.usage.cached, ear.usage.output, ear.usage.requests) == (209, 25, 48, 2)
    assert (ear.usage.model, ear.usage.api_seconds, ear.usage.cost) == (MODEL, 1.627, None)
    assert ear.of(Called) == [Called("run_shell_command", "make")]


def test_what_only_the_result_knows_of_is_told_with_it(desk: Desk, ear: Ear) -> None:
    heard(desk, ear, INIT, assistant("a", 112, 11, 23), FINAL)

    assert (ear.usage.input, ear.usage.cached, ear.usage.output) == (209, 25, 48)


def test_a_session_that_goes_on_tells_its_sum_and_each_turn_what_it_added(desk: Desk, ear: Ear) -> None:
    heard(desk, ear, INIT, assistant("a", 112, 11, 23), assistant("b", 122, 14, 25), FINAL)
    more = {"input_tokens": 534, "output_tokens": 108, "cache_read_input_tokens": 75}
    again = Ear()
    heard(desk, again, INIT, assistant("c", 200, 30, 40), {**FINAL, "usage": more}, session="s-1")

    assert (again.usage.input, again.usage.cached, again.usage.output) == (250, 50, 60)


def test_a_turn_that_was_cut_off_is_not_counted_again_by_the_next(desk: Desk, ear: Ear) -> None:
    heard(desk, ear, INIT, assistant("a", 112, 11, 23))
    again = Ear()
    heard(desk, again, INIT, assistant("b", 122, 14, 25), FINAL, session="s-1")

    assert ear.usage.tokens + again.usage.tokens == 282


def test_of_a_session_that_began_elsewhere_only_messages_count(desk: Desk, ear: Ear) -> None:
    heard(desk, ear, INIT, assistant("a", 112, 11, 23), FINAL, session="s-1")

    assert ear.usage.tokens == 135


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("[API Error: 401 scripted 401]", "not-logged-in"),
        ("[API Error: 429 scripted 429]\nPossible quota limitations in place", "rate-limit"),
        ("[API Error: 500 scripted 500]", "overloaded"),
        ("[API Error: Connection error. (cause: fetch failed)]", "network"),
        ("It broke.", "failed"),
    ],
)
def test_an_error_is_judged_by_its_words(message: str, reason: Reason, desk: Desk, ear: Ear) -> None:
    error = {"subtype": "error_during_execution", "is_error": True, "error": {"message": message}}
    broken = {**FINAL, "result": None, "usage": {}, **error}

    assert heard(desk, ear, INIT, broken, status=1)[0] == reason
    assert ear.of(Used) == []


def test_too_many_turns_are_told_by_the_exit_status_alone(desk: Desk, ear: Ear) -> None:
    assert heard(desk, ear, INIT, assistant("a", 112, 11, 23), status=53)[0] == "max-turns"


def test_a_session_is_lost_only_where_one_was_asked_for(desk: Desk, ear: Ear) -> None:
    def complains(session: str | None) -> Reason:
        reader = Qwen().reader(desk.task(session=session), ear.told.append)
        desk.log.write_text("No saved session found with ID x.\n")
        return reader.result(Ended("exit", 1, None, "It ended with 1.", 1.0), "").reason

    assert complains("x") == "session-lost"
    desk.log.unlink()
    assert complains(None) == "failed"


def test_settings_that_keep_it_from_calling_home_are_in_the_private_folder_only_with_a_key(
    desk: Desk, ear: Ear
) -> None:
    Qwen().prepare("qwen", AgentRow(), desk.task(), ear.told.append)
    assert files(desk.private) == set()

    command = Qwen().prepare("qwen", AgentRow(), desk.task(env={"OPENAI_API_KEY": "x"}), ear.told.append)
    settings = json.loads((desk.private / "qwen" / "settings.json").read_text())

    assert settings["privacy"]["usageStatisticsEnabled"] is False
    assert command.env["QWEN_HOME"] == str(desk.private / "qwen")
