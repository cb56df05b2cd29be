"""GitHub Copilot's CLI as an agent: the real program against a scripted model, and its event stream without it."""

import json
import os
import shlex
import stat
from pathlib import Path
from typing import ClassVar

import pytest
from msgspec.structs import replace

from orchard.agents.backends.copilot import RETRIES, Copilot, CopilotReader
from orchard.agents.cli import CliAgent, Enough, Json
from orchard.agents.protocol import Called, McpServer, Noted, Said, Session, Settings, Used
from orchard.model.agent_rows import AgentRow
from orchard.model.limits import Limits
from orchard.model.usage import Usage, total
from orchard.process.program import Ended
from tests.agents.claims import NOWHERE, Claims
from tests.agents.conftest import Desk, Ear
from tests.agents.hostile import spoiled
from tests.agents.llm import Asked, Call, Say, ScriptedLlm, Shell, steps
from tests.agents.turns import cancel_while, files, run

pytestmark = pytest.mark.anyio


class TestCopilot(Claims):
    """The real program."""

    name = "copilot"
    write_tool = ("create", "path", "file_text")
    shell_tool: ClassVar[tuple[str, dict[str, object]]] = ("bash", {"command": "COMMAND", "description": "write"})
    model = "fake-model"
    most_requests = RETRIES + 1
    unsupported = frozenset({"max_turns"})

    def backend(self) -> Copilot:
        return Copilot()

    def env(self, url: str) -> dict[str, str]:
        return {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
            "COPILOT_PROVIDER_API_KEY": "not-a-key",
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "1000000",
        }

    def effort_of(self, asked: Asked) -> object:
        return asked.body["reasoning_effort"]

    def keeps_to_its_folder(self, desk: Desk, session: str) -> None:
        # What it unpacks from its package at its first start is no setting, and serves every job.
        assert {name for name in files(desk.home) if not name.startswith(".cache/")} == set()
        assert f"copilot/session-state/{session}/events.jsonl" in files(desk.private)

    async def test_what_a_cancelled_turn_used_is_told_and_not_told_again(self, desk: Desk, ear: Ear) -> None:
        script = steps(Shell("touch begun; sleep 60"), Say("Done."))
        with ScriptedLlm(script) as llm:
            await cancel_while(self.agent(), self.task(desk, llm.url), ear, (desk.folder / "begun").exists)
            assert ear.session is not None
            self.same_usage(ear.usage, llm.usage())
            again = Ear()
            llm.script = steps(Say("Went on."))
            result = await self.turn(desk, again, llm, session=ear.session)

            assert result.reason == "done", result
            self.same_usage(total((ear.usage, again.usage)), llm.usage())

    async def test_a_host_that_is_not_there_is_a_matter_of_the_network(self, desk: Desk, ear: Ear) -> None:
        result = await run(self.agent(), self.task(desk, NOWHERE, limits=Limits(wall=240, grace=1)), ear)

        assert result.reason == "network", result
        assert ear.notes("retry")

    async def test_a_folder_that_is_not_allowed_cannot_be_read_and_that_is_told(self, desk: Desk, ear: Ear) -> None:
        other = desk.home.parent / "other"
        other.mkdir()
        (other / "note.txt").write_text("hidden words")
        script = steps(Call("view", {"path": str(other / "note.txt")}), Say("Done."))
        with ScriptedLlm(script) as llm:
            result = await self.turn(desk, ear, llm)
            assert result.reason == "denied", result
            assert ear.notes("denied")
            assert not any("hidden words" in heard for heard in llm.requests[-1].results)

            again = Ear()
            result = await self.turn(desk, again, llm, settings=Settings(allowed_folders=(other,)))
            assert result.reason == "done", result
            assert any("hidden words" in heard for heard in llm.requests[-1].results)

    async def test_nobody_logged_in_is_said_with_what_to_do(self, desk: Desk, ear: Ear) -> None:
        result = await run(self.agent(), replace(self.task(desk, NOWHERE), env=self.without_provider(desk)), ear)

        assert result.reason == "not-logged-in", result
        assert "COPILOT_GITHUB_TOKEN" in result.message

    def without_provider(self, desk: Desk) -> dict[str, str]:
        """Nothing to call a model with, and no way out."""
        env = {name: value for name, value in self.task(desk, NOWHERE).env.items() if not name.startswith("COPILOT_")}
        return {**env, "HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE}


# ------------------------------------------------------------------------------------------ the event stream alone

ENDED = Ended("exit", 0, None, "It ended.", 1.0)
SESSION = "15f8467e-be6c-4f3c-b50e-3c88770f25b2"
LINES: tuple[Json, ...] = (
    {"type": "session.tools_updated", "data": {"model": "m"}, "ephemeral": True},
    {"type": "user.message", "data": {"content": "Do it.", "interactionId": "i", "turnId": "0"}},
    {"type": "assistant.turn_start", "data": {"turnId": "0"}},
    {"type": "assistant.message", "data": {"content": "I will look.", "toolRequests": [{"toolCallId": "c1"}]}},
    {"type": "tool.execution_start", "data": {"toolCallId": "c1", "toolName": "bash", "arguments": {"command": "ls"}}},
    {"type": "tool.execution_complete", "data": {"toolCallId": "c1", "success": True, "result": {"content": "a"}}},
    {"type": "tool.execution_start", "data": {"toolCallId": "c2", "toolName": "edit", "arguments": {"path": "a.py"}}},
    {"type": "tool.execution_complete", "data": {"toolCallId": "c2", "success": False, "error": {"message": "no"}}},
    {"type": "session.compaction_complete", "data": {"success": True}},
    {"type": "assistant.message", "data": {"content": "It is done.", "toolRequests": []}},
    {"type": "assistant.turn_end", "data": {"turnId": "1"}},
)
END: Json = {"type": "result", "sessionId": SESSION, "exitCode": 0, "usage": {"premiumRequests": 0}}
FAILURE: Json = {
    "type": "model.call_failure",
    "data": {"statusCode": 503, "retryAttempt": 0, "errorMessage": '{"type":"api_error","message":"come back later"}'},
}


def reader(desk: Desk, ear: Ear, session: str | None = None, env: dict[str, str] | None = None) -> CopilotReader:
    task = desk.task(session=session, env=env)
    backend = Copilot()
    backend.prepare("copilot", AgentRow(), task, ear.told.append)
    return backend.reader(task, ear.told.append)


def usage_file(desk: Desk) -> Path:
    (file,) = desk.private.glob("copilot-usage-*.json")
    return file


def counted(prompt: int, cached: int, output: int, requests: int) -> str:
    usage = {"inputTokens": prompt, "outputTokens": output, "cacheReadTokens": cached, "cacheWriteTokens": 0}
    return json.dumps(
        {"totalApiDurationMs": 1500, "modelMetrics": {"m": {"requests": {"count": requests}, "usage": usage}}}
    )


def test_calls_are_told_as_the_record_of_the_session_grows(desk: Desk, ear: Ear) -> None:
    hearing = reader(desk, ear, SESSION, env={"COPILOT_PROVIDER_BASE_URL": "x"})
    record = desk.private / "copilot" / "session-state" / SESSION / "events.jsonl"
    record.parent.mkdir(parents=True)
    usage = {"model": "m", "inputTokens": 10, "cacheReadTokens": 4, "outputTokens": 5, "duration": 500}
    line = json.dumps({"type": "session.usage_record", "data": {"usage": usage}})
    record.write_text(f"{line}\n{line[:20]}")
    hearing.feed(LINES[3])
    assert ear.of(Used) == [Used(Usage("m", 6, 4, 0, 5, 1, api_seconds=0.5))]
    record.write_text(f"{line}\n{line}\nno JSON, though it says session.usage_record\n")
    hearing.feed(LINES[5])
    hearing.feed(END)
    hearing.result(ENDED, "")
    assert len(ear.of(Used)) == 2
    assert ear.notes("warning") == []


@pytest.mark.parametrize(
    ("before", "after", "last", "told"),
    [
        (None, None, 2, 2.0),
        (None, None, 0.33, 0.33),
        (None, None, -1, 0.0),
        (None, None, "many", 0.0),
        (3, 4.5, 4.5, 1.5),
        (3, 3, 3, 0.0),
    ],
)
def test_premium_requests_are_counted_once_per_turn(
    before: float | None, after: float | None, last: object, told: float, desk: Desk, ear: Ear
) -> None:
    def file(whole: float | None) -> str:
        return json.dumps({"totalPremiumRequests": whole} if whole is not None else {})

    session = reader(desk, ear)._session
    usage_file(desk).write_text(file(before))
    hearing = reader(desk, ear, session)
    hearing.feed(LINES[0])
    usage_file(desk).write_text(file(after))
    hearing.feed({**END, "usage": {"premiumRequests": last}})
    hearing.result(ENDED, "")

    assert ear.of(Used) == ([Used(Usage("m", premium_requests=told))] if told else [])


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_something_else_in_the_place_of_the_record_leads_nowhere(kind: str, desk: Desk, ear: Ear) -> None:
    hearing = reader(desk, ear, SESSION, env={"COPILOT_PROVIDER_BASE_URL": "x"})
    record = desk.private / "copilot" / "session-state" / SESSION / "events.jsonl"
    record.parent.mkdir(parents=True)
    if kind == "link":
        other = desk.home / "other"
        usage = {"model": "m", "inputTokens": 10}
        other.write_text(json.dumps({"type": "session.usage_record", "data": {"usage": usage}}) + "\n")
        record.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(record)
    else:
        record.mkdir()
    hearing.feed(LINES[3])
    assert ear.of(Used) == []


def test_its_lines_are_told_in_our_words(desk: Desk, ear: Ear) -> None:
    hearing = reader(desk, ear)
    for line in LINES:
        hearing.feed(line)
    usage_file(desk).write_text(counted(100, 30, 20, 2))
    hearing.feed(END)
    result = hearing.result(ENDED, "")

    assert (result.reason, result.text) == ("done", "It is done.")
    assert len(ear.of(Session)) == 1
    assert ear.told[1:] == [
        Said("I will look.\n"),
        Called("bash", "ls"),
        Called("edit", "a.py"),
        Called("edit", "a.py", failed=True),
        Noted("compacted", "Copilot has summarised the conversation so far."),
        Said("It is done.\n"),
        Used(Usage("m", 70, 30, 0, 20, 2, api_seconds=1.5)),
    ]


def test_a_session_from_elsewhere_is_not_counted_as_if_it_were_ours(desk: Desk, ear: Ear) -> None:
    hearing = reader(desk, ear, SESSION)
    task = desk.task(session=SESSION)
    argv = Copilot().prepare("copilot", AgentRow(), task, ear.told.append).argv
    Path(argv[argv.index("--usage-output-file") + 1]).write_text(counted(100, 30, 20, 2))
    hearing.feed(END)
    hearing.result(ENDED, "")
    assert ear.of(Used) == []
    assert any("is not known" in note for note in ear.notes("warning"))


def test_a_session_that_was_begun_by_a_turn_is_told_though_it_is_stopped(desk: Desk, ear: Ear) -> None:
    hearing = reader(desk, ear)
    hearing.feed(LINES[1])
    result = hearing.result(replace(ENDED, exit_code=143), "")
    assert ear.session is not None
    assert (result.reason, result.session) == ("failed", ear.session)


def test_a_program_that_asks_again_and_again_is_stopped_and_the_reason_is_known(desk: Desk, ear: Ear) -> None:
    hearing = reader(desk, ear)
    for _ in range(RETRIES):
        hearing.feed(FAILURE)
        hearing.feed({"type": "assistant.turn_retry", "data": {"reason": "api_error"}})
    with pytest.raises(Enough):
        hearing.feed(FAILURE)
    result = hearing.result(replace(ENDED, exit_code=143), "")
    assert (result.reason, result.message) == ("overloaded", "come back later")
    assert len(ear.notes("retry")) == RETRIES


def test_an_answer_in_between_lets_it_ask_again_from_the_start(desk: Desk, ear: Ear) -> None:
    hearing = reader(desk, ear)
    for _ in range(10):
        hearing.feed(FAILURE)
        hearing.feed(LINES[3])
    hearing.feed(END)
    assert hearing.result(ENDED, "").ok


def test_it_lives_through_whatever_it_is_sent(desk: Desk, ear: Ear) -> None:
    hearing = reader(desk, ear)
    for line in spoiled((*LINES, END, {"type": "session.error", "data": {"message": "no", "statusCode": 500}})):
        hearing.feed(line)
    for broken in (
        "",
        "[",
        "[1]",
        '{"modelMetrics": {"m": 3}}',
        '{"modelMetrics": {"m": {"usage": []}}}',
        "[" * 100_000,
    ):
        usage_file(desk).write_text(broken)
        hearing.result(ENDED, "")
    assert ear.of(Used) == []


def test_its_settings_are_flags_and_secrets_are_in_no_argument(desk: Desk, ear: Ear) -> None:
    servers = (
        McpServer("one", "server", ("--x",), {"KEY": "secret-one"}),
        McpServer("two", url="http://127.0.0.1:1/mcp", headers={"Authorization": "secret-two"}),
    )
    settings = Settings("big", None, "high", 5, (desk.home,), ("example.org",), servers)
    task = desk.task("The instructions.", settings=settings, env={"COPILOT_GITHUB_TOKEN": "secret-three"})
    command = Copilot().prepare("copilot", AgentRow(args=("--banner",)), task, ear.told.append)
    line = shlex.join(command.argv)
    for words in (
        "copilot --banner",
        "--model big",
        "--reasoning-effort high",
        f"--add-dir {desk.home}",
        "--allow-url=example.org",
    ):
        assert words in line
    assert "secret" not in line.replace("--secret-env-vars", "")
    assert command.stdin == b"The instructions."
    assert command.env == {"COPILOT_HOME": str(desk.private / "copilot"), "COPILOT_ALLOW_ALL": "1"}
    file = Path(command.argv[-1].removeprefix("@"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = json.loads(file.read_text())["mcpServers"]
    assert told["one"] == {"type": "local", "command": "server", "args": ["--x"], "env": servers[0].env, "tools": ["*"]}
    assert told["two"] == {"type": "http", "url": servers[1].url, "headers": servers[1].headers, "tools": ["*"]}
    assert ear.notes("setting") == ["'max_turns: 5' has no effect: copilot has no such option."]


@pytest.mark.parametrize(
    ("home", "env", "private"),
    [
        ("auto", {}, False),
        ("auto", {"COPILOT_PROVIDER_BASE_URL": "x"}, True),
        ("user", {"COPILOT_GITHUB_TOKEN": "x"}, False),
        ("private", {}, True),
    ],
)
def test_whose_home_it_uses(home: str, env: dict[str, str], private: bool, desk: Desk, ear: Ear) -> None:
    row = AgentRow(home=home)  # type: ignore[arg-type]
    command = Copilot().prepare("copilot", row, desk.task(env=env), ear.told.append)
    assert ("COPILOT_HOME" in command.env) is private


async def test_a_row_with_a_command_only_replaces_the_program(desk: Desk, ear: Ear, tmp_path: Path) -> None:
    stub = tmp_path / "pilot"
    lines = "\n".join(json.dumps(line) for line in (*LINES, END))
    stub.write_text(f"#!/bin/sh\ncat > told\nprintf '%s\\n' \"$@\" > flags\ncat <<'EOF'\n{lines}\nEOF\n")
    stub.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    result = await run(CliAgent(Copilot(), AgentRow(command="pilot")), desk.task("Go.", path=path), ear)
    assert (result.reason, result.session) == ("done", SESSION)
    assert (desk.folder / "told").read_text() == "Go."
    assert "--allow-all-tools" in (desk.folder / "flags").read_text()
