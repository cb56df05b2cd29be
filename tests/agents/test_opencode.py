"""opencode as an agent: the real program against a scripted model, and its event stream without it."""

import json
import shlex
from pathlib import Path
from typing import ClassVar

import pytest
from msgspec.structs import replace

from orchard.agents.backends.opencode import Opencode
from orchard.agents.cli import Json
from orchard.agents.protocol import Called, McpServer, Said, Session, Settings, Used
from orchard.model.agent_rows import AgentRow
from orchard.model.usage import Usage
from orchard.process.program import Ended
from tests.agents.claims import NOWHERE, WRITES, Claims
from tests.agents.conftest import Desk, Ear
from tests.agents.hostile import spoiled
from tests.agents.llm import Asked, Call, Say, ScriptedLlm, steps
from tests.agents.turns import files

pytestmark = pytest.mark.anyio


class TestOpencode(Claims):
    """The real program."""

    name = "opencode"
    write_tool = ("write", "filePath", "content")
    shell_tool: ClassVar[tuple[str, dict[str, object]]] = ("bash", {"command": "COMMAND", "description": "write"})
    model = "scripted/fake-model"
    other_model = "scripted/claude-opus-4-5"
    most_requests = 6
    unsupported = frozenset({"allowed_urls", "max_turns"})

    @pytest.fixture(autouse=True)
    def providers(self, tmp_path: Path) -> None:
        """A configuration of the user's that names a provider."""
        self.config = tmp_path / "providers.json"

    def backend(self) -> Opencode:
        return Opencode()

    def env(self, url: str) -> dict[str, str]:
        price = {"input": 1, "output": 2, "cache_read": 0.5}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Scripted",
            "options": {"baseURL": f"{url}/v1", "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {"fake-model": {"cost": price}, "claude-opus-4-5": {"reasoning": True}},
        }
        self.config.write_text(json.dumps({"provider": {"scripted": provider}}))
        return {
            "OPENAI_API_KEY": "not-a-key",
            "OPENCODE_CONFIG": str(self.config),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            # It looks for packages of its own at every start.
            "NPM_CONFIG_REGISTRY": NOWHERE,
        }

    def effort_of(self, asked: Asked) -> object:
        return asked.body.get("reasoning_effort")

    def keeps_to_its_folder(self, desk: Desk, session: str) -> None:
        assert files(desk.home) == set()
        assert "opencode/data/opencode/opencode.db" in files(desk.private)

    async def test_it_tells_what_it_cost(self, desk: Desk, ear: Ear) -> None:
        with ScriptedLlm(WRITES) as llm:
            await self.turn(desk, ear, llm)
            used = llm.usage()
        assert ear.usage.cost == pytest.approx((used.input + 2 * used.output + 0.5 * used.cached) / 1_000_000)
        assert ear.usage.cost_source == "agent"

    async def test_a_folder_that_is_not_allowed_cannot_be_read_and_that_is_told(self, desk: Desk, ear: Ear) -> None:
        other = desk.home.parent / "other"
        other.mkdir()
        (other / "note.txt").write_text("hidden words")
        script = steps(Call("read", {"filePath": str(other / "note.txt")}), Say("Done."))
        with ScriptedLlm(script) as llm:
            result = await self.turn(desk, ear, llm)
            assert result.reason == "denied", result
            assert ear.notes("denied")
            assert not any("hidden words" in heard for heard in llm.requests[-1].results)

            again = Ear()
            result = await self.turn(desk, again, llm, settings=Settings(allowed_folders=(other,)))
            assert result.reason == "done", result
            assert any("hidden words" in heard for heard in llm.requests[-1].results)


# ------------------------------------------------------------------------------------------ the event stream alone

ENDED = Ended("exit", 0, None, "It ended.", 1.0)


def event(kind: str, **part: object) -> Json:
    return {"type": kind, "timestamp": 1, "sessionID": "ses_1", "part": {"sessionID": "ses_1", **part}}


def step(reason: str, **tokens: object) -> Json:
    counted = {"total": 150, "input": 60, "output": 30, "reasoning": 20, "cache": {"read": 40, "write": 0}, **tokens}
    return event("step_finish", reason=reason, tokens=counted, cost=0.25)


def tool(name: str, given: Json, **state: object) -> Json:
    return event("tool_use", tool=name, callID=f"c-{name}", state={"input": given, **state})


def error(**data: object) -> Json:
    return {"type": "error", "sessionID": "ses_1", "error": {"name": "APIError", "data": data}}


LINES: tuple[Json, ...] = (
    event("step_start"),
    event("text", text="I will look."),
    tool("bash", {"command": "ls"}, status="completed", output="a"),
    tool("edit", {"filePath": "a.py"}, status="error", error="no such file"),
    step("tool-calls"),
    event("step_start"),
    event("text", text="It is done."),
    step("stop"),
)


def test_its_lines_are_told_in_our_words(desk: Desk, ear: Ear) -> None:
    hearing = Opencode().reader(desk.task(settings=Settings(model="some/model")), ear.told.append)
    for line in LINES:
        hearing.feed(line)
    result = hearing.result(ENDED, "")

    assert (result.reason, result.text, result.session) == ("done", "It is done.", "ses_1")
    used = Used(Usage("model", 60, 40, 0, 50, 1, 0.25, "agent"))
    assert ear.told == [
        Session("ses_1"),
        Said("I will look.\n"),
        Called("bash", "ls"),
        Called("edit", "a.py"),
        Called("edit", "a.py", failed=True),
        used,
        Said("It is done.\n"),
        used,
    ]


@pytest.mark.parametrize(
    ("lines", "exit_code", "reason"),
    [
        (LINES[:5], 0, "failed"),
        (LINES, 1, "failed"),
        ((*LINES[:5], step("length")), 0, "failed"),
        ((*LINES[:5], step("content-filter")), 0, "refused"),
        ((), 0, "failed"),
        ((*LINES, error(message="gone", statusCode=503)), 0, "overloaded"),
        ((error(message="Unable to connect. ECONNREFUSED"),), 1, "network"),
        ((error(message="Too many requests", statusCode=429), *LINES), 0, "done"),
    ],
)
def test_its_last_step_and_its_exit_code_tell_how_it_ended(
    lines: tuple[Json, ...], exit_code: int, reason: str, desk: Desk, ear: Ear
) -> None:
    hearing = Opencode().reader(desk.task(), ear.told.append)
    for line in lines:
        hearing.feed(line)
    result = hearing.result(replace(ENDED, exit_code=exit_code), "")
    assert result.reason == reason
    assert bool(result.message) is (reason != "done")


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("soon", None), ("-1", 0.0), ("nan", 0.0), ("inf", 0.0)])
def test_how_long_to_wait_is_what_the_models_owner_asks_for(
    header: str, seconds: float | None, desk: Desk, ear: Ear
) -> None:
    hearing = Opencode().reader(desk.task(), ear.told.append)
    hearing.feed(error(message="no", statusCode=429, responseHeaders={"retry-after": header}))
    assert hearing.result(ENDED, "").retry_after == seconds


def test_it_lives_through_whatever_it_is_sent(desk: Desk, ear: Ear) -> None:
    hearing = Opencode().reader(desk.task(), ear.told.append)
    for line in spoiled((*LINES, error(message="no", statusCode=500, responseHeaders={"retry-after": "1"}))):
        hearing.feed(line)
        hearing.result(ENDED, "")
    assert all(used.usage.tokens < 1 << 60 for used in ear.of(Used))


def test_its_settings_are_flags_and_a_configuration_on_top_of_all_others(desk: Desk, ear: Ear) -> None:
    servers = (
        McpServer("one", "server", ("--x",), {"KEY": "value"}),
        McpServer("two", url="http://127.0.0.1:1/mcp", headers={"Authorization": "value"}),
    )
    settings = Settings("some/model", None, "high", 5, (desk.home,), ("example.org",), servers)
    task = desk.task("The instructions.", settings=settings, session="ses_1", env={"OPENAI_API_KEY": "x"})
    command = Opencode().prepare("opencode", AgentRow(args=("--print-logs",)), task, ear.told.append)
    line = shlex.join(command.argv)
    for words in ("opencode --print-logs run", "--model some/model", "--variant high", "--session ses_1", "--pure"):
        assert words in line
    assert command.stdin == b"The instructions."
    config = json.loads(command.env["OPENCODE_CONFIG_CONTENT"])
    assert (config["share"], config["autoupdate"]) == ("disabled", False)
    folders = {"*": "deny", f"{desk.scratch}/*": "allow", f"{desk.home}/*": "allow"}
    assert config["permission"] == {"external_directory": folders, "webfetch": "allow"}
    assert config["mcp"] == {
        "one": {"type": "local", "command": ["server", "--x"], "environment": {"KEY": "value"}, "enabled": True},
        "two": {"type": "remote", "url": servers[1].url, "headers": {"Authorization": "value"}, "enabled": True},
    }
    assert [note.split("'")[1] for note in ear.notes("setting")] == ["max_turns: 5", "allowed_urls: example.org"]


@pytest.mark.parametrize(
    ("home", "key", "by_hand", "private"),
    [
        ("auto", True, False, True),
        ("auto", False, False, False),
        ("auto", True, True, False),
        ("private", True, True, True),
        ("user", True, False, False),
    ],
)
def test_a_key_makes_a_home_of_the_jobs_own_unless_there_is_a_configuration_by_hand(
    home: str, key: bool, by_hand: bool, private: bool, desk: Desk, ear: Ear
) -> None:
    if by_hand:
        config = desk.home / ".config" / "opencode" / "opencode.json"
        config.parent.mkdir(parents=True)
        config.write_text("{}")
    task = desk.task(env={"ANTHROPIC_API_KEY": "x"} if key else {})
    command = Opencode().prepare("opencode", AgentRow(home=home), task, ear.told.append)  # type: ignore[arg-type]
    assert ("XDG_DATA_HOME" in command.env) is private
    assert ("--pure" in command.argv) is private
