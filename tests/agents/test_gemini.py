"""Google's Gemini CLI as an agent: the real program against a scripted model, and its event stream without it."""

import json
import shlex
import stat
from typing import ClassVar

import pytest
from msgspec.structs import replace

from orchard.agents.backends.gemini import Gemini
from orchard.agents.cli import Json
from orchard.agents.protocol import Called, McpServer, Noted, Said, Session, Settings, Used
from orchard.model.agent_rows import AgentRow
from orchard.model.usage import Usage
from orchard.process.program import Ended
from tests.agents.claims import NOWHERE, Claims
from tests.agents.conftest import Desk, Ear
from tests.agents.hostile import spoiled
from tests.agents.llm import Asked
from tests.agents.turns import files, run

pytestmark = pytest.mark.anyio


class TestGemini(Claims):
    """The real program."""

    name = "gemini"
    write_tool = ("write_file", "file_path", "content")
    shell_tool: ClassVar[tuple[str, dict[str, object]]] = ("run_shell_command", {"command": "COMMAND"})
    model = "gemini-2.5-flash"
    other_model = "gemini-2.5-pro"
    most_requests = 1
    unsupported = frozenset({"allowed_urls", "effort"})
    counts_requests = False

    def backend(self) -> Gemini:
        return Gemini()

    def env(self, url: str) -> dict[str, str]:
        return {"GEMINI_API_KEY": "not-a-key", "GOOGLE_GEMINI_BASE_URL": url}

    def effort_of(self, asked: Asked) -> object:
        raise NotImplementedError

    def keeps_to_its_folder(self, desk: Desk, session: str) -> None:
        assert files(desk.home) == set()
        assert any(name.endswith(f"-{session[:8]}.jsonl") for name in files(desk.private))

    async def test_nobody_logged_in_is_said(self, desk: Desk, ear: Ear) -> None:
        task = self.task(desk, NOWHERE)
        bare = {name: value for name, value in task.env.items() if name in ("PATH", "HOME")}
        result = await run(self.agent(), replace(task, env=bare), ear)

        assert result.reason == "not-logged-in", result

    async def test_a_host_that_is_not_there_is_a_matter_of_the_network(self, desk: Desk, ear: Ear) -> None:
        result = await run(self.agent(), self.task(desk, NOWHERE), ear)

        assert result.reason == "network", result


# ------------------------------------------------------------------------------------------ the event stream alone

ENDED = Ended("exit", 0, None, "It ended.", 1.0)
TOKENS: Json = {"total_tokens": 150, "input_tokens": 100, "output_tokens": 20, "cached": 40, "input": 60}
LINES: tuple[Json, ...] = (
    {"type": "init", "session_id": "s-1", "model": "g"},
    {"type": "message", "role": "user", "content": "Do it."},
    {"type": "message", "role": "assistant", "content": "I will ", "delta": True},
    {"type": "message", "role": "assistant", "content": "look.", "delta": True},
    {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "t1", "parameters": {"command": "ls"}},
    {"type": "tool_result", "tool_id": "t1", "status": "success", "output": "a"},
    {"type": "tool_use", "tool_name": "replace", "tool_id": "t2", "parameters": {"file_path": "a.py"}},
    {"type": "tool_result", "tool_id": "t2", "status": "error", "error": {"type": "x", "message": "no"}},
    {"type": "error", "severity": "warning", "message": "Loop detected."},
    {"type": "message", "role": "assistant", "content": "It is ", "delta": True},
    {"type": "message", "role": "assistant", "content": "done.", "delta": True},
)
END: Json = {"type": "result", "status": "success", "stats": {**TOKENS, "tool_calls": 2, "models": {"g": TOKENS}}}
FAILED: Json = {
    "type": "result",
    "status": "error",
    "error": {"type": "unknown", "message": "[API Error: no]"},
    "stats": {},
}


def test_its_lines_are_told_in_our_words(desk: Desk, ear: Ear) -> None:
    hearing = Gemini().reader(desk.task(), ear.told.append)
    for line in (*LINES, END):
        hearing.feed(line)
    result = hearing.result(ENDED, "")

    assert (result.reason, result.text, result.session) == ("done", "It is done.", "s-1")
    assert ear.told == [
        Session("s-1"),
        Said("I will "),
        Said("look."),
        Said("\n"),
        Called("run_shell_command", "ls"),
        Called("replace", "a.py"),
        Called("replace", "a.py", failed=True),
        Noted("warning", "Loop detected."),
        Said("It is "),
        Said("done."),
        Said("\n"),
        # What it thought is in the total only.
        Used(Usage("g", 60, 40, 0, 50)),
    ]


@pytest.mark.parametrize(
    ("exit_code", "reason"),
    [(145, "not-logged-in"), (147, "not-logged-in"), (173, "rate-limit"), (244, "overloaded"), (247, "overloaded"),
     (144, "failed"), (1, "failed"), (41, "not-logged-in"), (53, "max-turns")],
)  # fmt: skip
def test_its_exit_code_tells_the_status_that_the_models_owner_gave(
    exit_code: int, reason: str, desk: Desk, ear: Ear
) -> None:
    hearing = Gemini().reader(desk.task(), ear.told.append)
    for line in (LINES[0], FAILED):
        hearing.feed(line)
    result = hearing.result(replace(ENDED, exit_code=exit_code), "")
    assert result.reason == reason
    assert result.session == "s-1"


def test_an_end_without_its_last_line_is_no_success(desk: Desk, ear: Ear) -> None:
    hearing = Gemini().reader(desk.task(), ear.told.append)
    for line in LINES:
        hearing.feed(line)
    result = hearing.result(ENDED, "")
    assert result.reason == "failed"
    assert "without saying" in result.message


def test_it_lives_through_whatever_it_is_sent(desk: Desk, ear: Ear) -> None:
    hearing = Gemini().reader(desk.task(), ear.told.append)
    for line in spoiled((*LINES, END, FAILED)):
        hearing.feed(line)
        hearing.result(ENDED, "")
    assert all(used.usage.tokens < 1 << 60 for used in ear.of(Used))


def test_its_settings_are_a_private_file_and_flags(desk: Desk, ear: Ear) -> None:
    servers = (
        McpServer("one", "server", ("--x",), {"KEY": "secret-one"}),
        McpServer("two", url="http://127.0.0.1:1/mcp", headers={"Authorization": "secret-two"}),
    )
    settings = Settings("big", None, "high", 5, (desk.home,), ("example.org",), servers)
    task = desk.task("The instructions.", settings=settings, session="s-1", env={"GEMINI_API_KEY": "secret-three"})
    command = Gemini().prepare("gemini", AgentRow(), task, ear.told.append)
    line = shlex.join(command.argv)
    for words in ("--model=big", "--resume=s-1", f"--include-directories={desk.home}", "--approval-mode yolo"):
        assert words in line
    assert "secret" not in line
    assert command.stdin == b"The instructions."
    file = desk.private / "gemini" / ".gemini" / "settings.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written = json.loads(file.read_text())
    assert written["model"] == {"maxSessionTurns": 5}
    assert written["security"] == {"auth": {"selectedType": "gemini-api-key"}}
    assert written["mcpServers"] == {
        "one": {"command": "server", "args": ["--x"], "env": {"KEY": "secret-one"}, "trust": True},
        "two": {"httpUrl": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "secret-two"}, "trust": True},
    }
    assert [note.split("'")[1] for note in ear.notes("setting")] == ["effort: high", "allowed_urls: example.org"]


def test_in_the_users_own_home_what_only_settings_can_say_is_told(desk: Desk, ear: Ear) -> None:
    settings = Settings(max_turns=5, mcp_servers=(McpServer("one", "server"),))
    command = Gemini().prepare("gemini", AgentRow(), desk.task(settings=settings), ear.told.append)
    assert command.env == {}
    assert files(desk.private) == set()
    assert "max_turns: 5" in ear.notes("setting")[0]
    assert "'one'" in ear.notes("mcp")[0]


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        ({"GEMINI_API_KEY": "x"}, "gemini-api-key"),
        ({"GOOGLE_API_KEY": "x"}, "vertex-ai"),
        ({"GEMINI_API_KEY": "x", "GOOGLE_GENAI_USE_VERTEXAI": "true"}, "vertex-ai"),
    ],
)
def test_the_way_it_logs_in_is_that_of_its_key(env: dict[str, str], kind: str, desk: Desk, ear: Ear) -> None:
    Gemini().prepare("gemini", AgentRow(), desk.task(env=env), ear.told.append)
    written = json.loads((desk.private / "gemini" / ".gemini" / "settings.json").read_text())
    assert written["security"]["auth"]["selectedType"] == kind
