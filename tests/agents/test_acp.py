"""The Agent Client Protocol, with a small agent of our own: what is told, asked and answered, and what goes wrong."""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orchard.agents.acp import conversation
from orchard.agents.acp.agent import AcpAgent
from orchard.agents.protocol import Called, Heard, McpServer, Result, Said, Settings, Task, Telling, Used
from orchard.errors import OrchardError
from orchard.model.agent_rows import AgentRow
from orchard.model.limits import Limits
from orchard.model.usage import Usage
from orchard.process.families.family import members
from orchard.surfaces.next_steps import in_commands
from tests.agents.conftest import Desk, Ear

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).with_name("acp_agent.py")


def agent(behaviour: str = "write", value: str = "", *, row: AgentRow | None = None, within: float = 60.0) -> AcpAgent:
    given = row or AgentRow()
    args = (str(PROGRAM), behaviour, *([value] if value else []))
    return AcpAgent(sys.executable, AgentRow(args=args, model=given.model, env=given.env), answer_within=within)


def task_at(desk: Desk, **more: Any) -> Task:
    env = {"SESSIONS": str(desk.private), "RECORD": str(desk.scratch / "record"), **more.pop("env", {})}
    return desk.task(more.pop("instructions", "Write hello."), env=env, **more)


def heard(desk: Desk, method: str) -> list[Mapping[str, Any]]:
    """What the agent was asked by a method."""
    messages = [json.loads(line) for line in (desk.scratch / "record").read_text().splitlines()]
    return [message["params"] for message in messages if message.get("method") == method]


async def run(desk: Desk, ear: Ear, behaviour: str, value: str = "", **more: Any) -> Result:
    async with asyncio.timeout(60):
        return await agent(behaviour, value).run(task_at(desk, **more), ear.watch)


# ----------------------------------------------------------------------------- a turn


async def test_a_turn_is_told_in_our_words_and_its_work_is_there(desk: Desk, ear: Ear) -> None:
    result = await run(desk, ear, "write", instructions="Write hello.")

    assert (result.reason, result.message, result.text, result.exit_code) == ("done", "", "I wrote it.", 0)
    assert (desk.folder / "hello.txt").read_text() == "Write hello."
    assert result.session == ear.session is not None
    expected: list[Telling] = [
        Heard(),
        Said("I will write "),
        Said("a file."),
        Said("\n"),
        Called("edit", f"Write a file {desk.folder / 'hello.txt'}"),
        Called("Shell", "make x"),
        Called("Shell", "make x", failed=True),
        Used(Usage(cost=0.25, cost_source="agent")),
        Used(Usage(cost=0.5, cost_source="agent")),
        Said("I wrote it."),
        Used(Usage(input=500, cached=300, cache_writes=200, output=111)),
    ]
    assert ear.told[1:] == expected


async def test_the_agent_gets_version_one_its_folder_and_no_help_with_files_or_terminals(desk: Desk, ear: Ear) -> None:
    await run(desk, ear, "write")

    (initialize,) = heard(desk, "initialize")
    assert initialize["protocolVersion"] == 1
    assert initialize["clientCapabilities"]["fs"] == {"readTextFile": False, "writeTextFile": False}
    assert initialize["clientCapabilities"]["terminal"] is False
    assert heard(desk, "session/new") == [{"cwd": str(desk.folder), "mcpServers": []}]


async def test_long_instructions_arrive_whole(desk: Desk, ear: Ear) -> None:
    long = "Write this: äöü " + "x" * 400_000

    await run(desk, ear, "write", instructions=long)

    assert (desk.folder / "hello.txt").read_text() == long


async def test_the_environment_is_the_tasks_own_and_what_the_configuration_adds(
    desk: Desk, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "sings")
    show = "import os, json; print(json.dumps(dict(os.environ)), file=__import__('sys').stderr)"
    showing = AcpAgent(sys.executable, AgentRow(args=("-c", show), env={"MINE": "1"}, home="private"))

    await showing.run(task_at(desk), ear.watch)

    env = json.loads(desk.log.read_text())
    assert "CANARY" not in env
    assert (env["MINE"], env["TMPDIR"], env["HOME"]) == ("1", str(desk.scratch), str(desk.private / "home"))


async def test_agents_that_are_known_get_a_home_of_the_jobs_own_and_no_key_by_their_name(desk: Desk, ear: Ear) -> None:
    show = desk.home / "claude-agent-acp"
    show.write_text("#!/bin/sh\nenv >&2\n")
    show.chmod(0o700)
    known = AcpAgent(f"{show} --any", AgentRow(pass_env=("MINE",)))

    await known.run(task_at(desk, env={"ANTHROPIC_API_KEY": "test-key"}), ear.watch)

    assert known.variables == ("MINE",)
    lines = desk.log.read_text().splitlines()
    assert f"CLAUDE_CONFIG_DIR={desk.private / 'home'}" in lines
    assert f"HOME={desk.home}" in lines


@pytest.mark.parametrize(
    ("program", "file"),
    [
        ("claude-agent-acp", ".claude/settings.json"),
        ("claude-agent-acp", ".mcp.json"),
        ("codex-acp", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("qwen", ".env"),
        ("opencode", "opencode.json"),
    ],
)
@pytest.mark.parametrize("trusted", [False, True])
async def test_behind_the_protocol_a_folder_with_settings_that_nobody_trusts_is_refused(
    program: str, file: str, trusted: bool, desk: Desk, ear: Ear
) -> None:
    show = desk.home / program
    show.write_text("#!/bin/sh\ntouch ran\n")
    show.chmod(0o700)
    (desk.folder / file).parent.mkdir(exist_ok=True)
    (desk.folder / file).write_text("OPENAI_BASE_URL=http://evil\n")

    result = await AcpAgent(str(show)).run(replace(task_at(desk), trusted_project_settings=trusted), ear.watch)

    assert (desk.folder / "ran").exists() == trusted
    assert trusted or (result.reason == "spawn-failed" and "orchard trust" in in_commands(result.hint or ""))


async def test_an_agent_that_takes_no_commands_over_the_protocol_gets_them_in_a_file(desk: Desk, ear: Ear) -> None:
    show = desk.home / "copilot"
    show.write_text('#!/bin/sh\necho "$@" >&2\n')
    show.chmod(0o700)
    server = McpServer("ours", command="sh", args=("-c", "x"), env={"TOKEN": "secret"})

    await AcpAgent(f"{show} --acp").run(task_at(desk, settings=Settings(mcp_servers=(server,))), ear.watch)

    file = desk.private / "acp-mcp.json"
    assert desk.log.read_text().split() == ["--acp", "--additional-mcp-config", f"@{file}"]
    assert json.loads(file.read_text())["mcpServers"]["ours"]["command"] == "sh"
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "done"),
        ("max_tokens", "failed"),
        ("max_turn_requests", "max-turns"),
        ("refusal", "refused"),
        ("cancelled", "failed"),
        ("tired", "failed"),
    ],
)
async def test_every_way_to_stop_has_its_reason(desk: Desk, ear: Ear, stop: str, reason: str) -> None:
    result = await run(desk, ear, "stop", stop)

    assert result.reason == reason
    assert (result.message == "") == result.ok


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("API Error: 429 rate limited", "rate-limit"),
        ("529 overloaded", "overloaded"),
        ("401 invalid key", "not-logged-in"),
        ("fetch failed: ECONNREFUSED", "network"),
        ("\x1b[31mwhatever", "failed"),
    ],
)
async def test_an_error_is_judged_by_its_words(desk: Desk, ear: Ear, words: str, reason: str) -> None:
    result = await run(desk, ear, "error", words)

    assert result.reason == reason
    assert words.removeprefix("\x1b") in result.message
    assert "\x1b" not in result.message


async def test_an_agent_that_wants_a_login_says_so(desk: Desk, ear: Ear) -> None:
    result = await run(desk, ear, "login")

    assert result.reason == "not-logged-in"
    assert "run `agent login`" in result.message


async def test_an_agent_that_takes_a_key_is_told_to_take_it(desk: Desk, ear: Ear) -> None:
    result = await run(desk, ear, "key")

    assert result.ok
    assert heard(desk, "authenticate") == [{"methodId": "my-api-key"}]


# ----------------------------------------------------------------------------- sessions


@pytest.mark.parametrize("way", ["resume", "load"])
async def test_a_session_goes_on_and_only_what_is_new_is_told(desk: Desk, ear: Ear, way: str) -> None:
    first = await run(desk, Ear(), "write", instructions="one")

    result = await run(desk, ear, way, session=first.session)

    assert result.ok
    assert result.session == first.session
    assert result.text == "I remember: ['one']"
    assert ear.of(Called) == []
    # The session has cost 1.00. The first turn told 0.75; one that loads a session says itself what it had cost.
    assert ear.usage.cost == pytest.approx(0.25 if way == "resume" else 0.5)


async def test_an_agent_that_counts_anew_after_a_restart_is_understood(desk: Desk, ear: Ear) -> None:
    first = await run(desk, Ear(), "write", instructions="one")
    (desk.private / "acp-cost.json").write_text(
        json.dumps({"session": first.session, "amount": 7.0, "currency": "USD"})
    )

    await run(desk, ear, "resume", session=first.session)

    assert ear.usage.cost == pytest.approx(1.0)


@pytest.mark.parametrize("content", ["", "[]", "[" * 60_000, '{"session": 3}'])
async def test_a_spoiled_note_of_the_cost_harms_nobody(desk: Desk, ear: Ear, content: str) -> None:
    first = await run(desk, Ear(), "write", instructions="one")
    (desk.private / "acp-cost.json").write_text(content)

    result = await run(desk, ear, "resume", session=first.session)

    assert result.ok
    assert ear.usage.cost == pytest.approx(1.0)


@pytest.mark.parametrize("behaviour", ["lost", "write"])
async def test_a_session_that_cannot_go_on_is_lost(desk: Desk, ear: Ear, behaviour: str) -> None:
    result = await run(desk, ear, behaviour, session="gone")

    assert result.reason == "session-lost"
    assert heard(desk, "session/prompt") == []


# ----------------------------------------------------------------------------- settings


async def test_model_and_effort_are_chosen_where_they_are_offered(desk: Desk, ear: Ear) -> None:
    result = await run(desk, ear, "options", settings=Settings(model="large one", effort="high"))

    assert result.ok
    chosen = {(one["configId"], one["value"]) for one in heard(desk, "session/set_config_option")}
    assert chosen == {("m", "large"), ("e", "high")}
    assert ear.notes("setting") == []
    assert {used.usage.model for used in ear.of(Used)} == {"large"}


async def test_what_is_chosen_already_is_left_alone(desk: Desk, ear: Ear) -> None:
    await run(desk, ear, "options", settings=Settings(model="small", effort="low"))

    assert heard(desk, "session/set_config_option") == []


@pytest.mark.parametrize(
    ("behaviour", "words"), [("options", "offers small, large"), ("stubborn", "would not"), ("write", "does not offer")]
)
async def test_a_setting_that_has_no_effect_is_noted(desk: Desk, ear: Ear, behaviour: str, words: str) -> None:
    model = "large" if behaviour == "stubborn" else "huge"

    result = await run(desk, ear, behaviour, settings=Settings(model=model, max_turns=3))

    assert result.ok
    turns, model_note = ear.notes("setting")
    assert "max_turns: 3" in turns
    assert f"'model: {model}' has no effect" in model_note
    assert words in model_note


async def test_servers_are_handed_over_and_one_that_cannot_be_is_noted(desk: Desk, ear: Ear) -> None:
    servers = (
        McpServer("ours", command="sh", args=("-c", "x"), env={"A": "b"}),
        McpServer("missing", command="no-such-program"),
        McpServer("far", url="http://127.0.0.1:1/mcp", headers={"X": "y"}),
    )

    await run(desk, ear, "write", settings=Settings(mcp_servers=servers))
    await run(desk, ear, "http", settings=Settings(mcp_servers=servers))

    plain, http = (one["mcpServers"] for one in heard(desk, "session/new"))
    assert [one["name"] for one in plain] == ["ours"]
    assert Path(plain[0]["command"]).is_absolute()
    assert (plain[0]["args"], plain[0]["env"]) == (["-c", "x"], [{"name": "A", "value": "b"}])
    assert http[1:] == [
        {"type": "http", "name": "far", "url": "http://127.0.0.1:1/mcp", "headers": [{"name": "X", "value": "y"}]}
    ]
    assert [note.split("'")[1] for note in ear.notes("mcp")] == ["missing", "far", "missing"]


async def test_more_folders_are_told_to_who_takes_them(desk: Desk, ear: Ear, tmp_path: Path) -> None:
    settings = Settings(allowed_folders=(tmp_path,))

    await run(desk, ear, "folders", settings=settings)
    assert ear.notes("setting") == []
    await run(desk, ear, "write", settings=settings)

    assert [one.get("additionalDirectories") for one in heard(desk, "session/new")] == [[str(tmp_path)], None]
    assert "allowed_folders" in ear.notes("setting")[0]


async def test_no_turn_begins_when_the_budget_is_used_up(desk: Desk, ear: Ear) -> None:
    ear.stop = lambda: "used up"

    result = await run(desk, ear, "write")

    assert (result.reason, result.message) == ("budget", "used up")
    assert heard(desk, "session/prompt") == []


async def test_a_turn_that_uses_up_the_budget_is_called_off(desk: Desk, ear: Ear) -> None:
    ear.stop = lambda: "used up" if ear.of(Used) else None

    result = await run(desk, ear, "write")

    assert result.reason == "budget"
    assert len(ear.of(Used)) == 1
    assert heard(desk, "session/cancel") == [{"sessionId": result.session}]


# ----------------------------------------------------------------------------- permission


def asked(desk: Desk, path: str) -> dict[str, Any]:
    return {"toolCallId": "1", "title": "Do it", "kind": "edit", "locations": [{"path": path}]}


@pytest.mark.parametrize(
    ("call", "allowed"),
    [
        ({"locations": [{"path": "inside.txt"}]}, True),
        ({"locations": [{"path": "{folder}/a/../b"}]}, True),
        ({"locations": [{"path": "{scratch}/x"}]}, True),
        ({"locations": [{"path": "{more}/x"}]}, True),
        ({"rawInput": {"command": "make test", "cwd": "{folder}"}}, True),
        ({"content": [{"type": "diff", "path": "{folder}/x", "newText": "see /etc/passwd"}]}, True),
        ({"rawInput": {"url": "https://docs.example.com/a/b"}}, True),
        ({"locations": [{"path": "{folder}/ok"}, {"path": "/etc/passwd"}]}, False),
        ({"locations": [{"path": "../elsewhere"}]}, False),
        ({"locations": [{"path": "{folder}-not"}]}, False),
        ({"locations": [{"path": "link/passwd"}]}, False),
        ({"locations": [{"path": "{private}/config.toml"}]}, False),
        ({"locations": [{"path": "~/.ssh/id_rsa"}]}, False),
        ({"locations": [{"path": "~root/x"}]}, False),
        ({"locations": [{"path": "a\0b"}]}, False),
        ({"content": [{"type": "diff", "path": "/etc/hosts", "newText": ""}]}, False),
        ({"rawInput": {"filePath": "/etc/hosts"}}, False),
        ({"rawInput": {"changes": {"/etc/hosts": {"add": ""}}}}, False),
        ({"rawInput": {"command": "make", "workingDirectory": "/etc"}}, False),
        ({"rawInput": {"uri": "file:///etc/hosts"}}, False),
        ({"rawInput": {"files": ["a"] * 1000}}, False),
        ({"rawInput": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"path": "/etc"}}}}}}}}}, False),
        ({"rawInput": {"url": "https://docs.example.com.evil.org/"}}, False),
        ({"rawInput": {"url": "https://docs.example.com/abc"}}, False),
        ({"rawInput": {"url": "http://[bad"}}, False),
    ],
)
async def test_what_stays_inside_is_allowed_once_and_what_leaves_is_denied(
    desk: Desk, ear: Ear, tmp_path: Path, call: dict[str, Any], allowed: bool
) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (desk.folder / "link").symlink_to("/etc")
    places = {"folder": desk.folder, "scratch": desk.scratch, "private": desk.private, "more": more}
    text = json.dumps({"toolCallId": "1", "title": "Do it", **call})
    for name, place in places.items():
        text = text.replace(f"{{{name}}}", str(place))
    settings = Settings(allowed_folders=(more,), allowed_urls=("https://docs.example.com/a",))

    result = await run(desk, ear, "outside", text, settings=settings)

    assert result.ok
    outcome = json.loads(result.text)
    assert outcome == {"outcome": "selected", "optionId": "yes" if allowed else "no"}
    assert bool(ear.notes("denied")) is not allowed


async def test_an_agent_that_goes_on_asking_for_what_is_denied_is_stopped(desk: Desk, ear: Ear) -> None:
    result = await run(desk, ear, "insist")

    assert result.reason == "denied"
    assert len(ear.notes("denied")) == conversation.MOST_DENIALS


async def test_an_agent_that_asks_for_ever_is_stopped(desk: Desk, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MOST_QUESTIONS", 300)

    result = await run(desk, ear, "insist", "inside.txt")

    assert result.reason == "failed"
    assert "more than 300 times" in result.message


async def test_an_agent_that_asks_and_does_not_listen_is_not_read_any_further(desk: Desk, ear: Ear) -> None:
    result = await run(desk, ear, "deaf", limits=Limits(idle=2.0, wall=50.0, grace=1.0))

    assert result.reason == "idle"


# ----------------------------------------------------------------------------- what goes wrong


async def test_lines_that_are_no_messages_are_shown_and_the_turn_goes_on(
    desk: Desk, ear: Ear, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        result = await run(desk, ear, "noise")

    assert result.ok
    assert result.text == "answers: [-32601, -32601, -32602]"
    assert "not json\n" in ear.text
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert capfd.readouterr().err == ""


async def test_a_flood_ends_at_the_limit(desk: Desk, ear: Ear) -> None:
    ear.told = type(ear.told)()
    told = 0

    def count(telling: Telling) -> None:
        nonlocal told
        told += len(telling.text) if isinstance(telling, Said) else 0

    watch = ear.watch.__class__(count, ear.watch.on_start, ear.hurry)
    result = await agent("flood").run(task_at(desk, limits=Limits(log_bytes=3_000_000, grace=1.0)), watch)

    assert result.reason == "output-limit"
    assert told < 3_100_000
    assert len(result.text) <= 64 * 1024


async def test_a_line_that_is_too_long_is_left_out(desk: Desk, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchard.process.pipes.LONGEST_LINE", 1_000_000)

    result = await run(desk, ear, "long-line", "3000000")

    assert result.ok
    assert ear.text == "done"


@pytest.mark.parametrize(("how", "reason"), [("exit", "failed"), ("signal", "signal")])
async def test_an_agent_that_dies_in_mid_turn_has_failed(desk: Desk, ear: Ear, how: str, reason: str) -> None:
    result = await run(desk, ear, "die", how)

    assert result.reason == reason
    assert "left before its turn was over" in result.message
    assert result.text == "half a sen"
    assert desk.log.read_text() == "it hurts\n"


async def test_an_agent_that_never_answers_is_given_up(desk: Desk, ear: Ear) -> None:
    task = task_at(desk, limits=Limits(wall=50.0, grace=1.0))

    result = await agent("never-initialize", within=0.5).run(task, ear.watch)

    assert result.reason == "timeout"
    assert "did not answer 'initialize'" in result.message
    assert members(task.launcher.token, None, task.log) == []


async def test_the_limits_of_programs_hold(desk: Desk, ear: Ear) -> None:
    result = await run(desk, ear, "until-canceled", limits=Limits(wall=1.5, grace=1.0))

    assert result.reason == "timeout"
    assert "ran longer than 1.5 s" in result.message


async def test_another_version_of_the_protocol_is_refused(desk: Desk, ear: Ear) -> None:
    result = await run(desk, ear, "version", "2")

    assert result.reason == "failed"
    assert "version 2" in result.message
    assert heard(desk, "session/new") == []


async def test_a_program_that_is_not_there_or_is_no_agent_is_told(desk: Desk, ear: Ear) -> None:
    missing = await AcpAgent("no-such-agent --acp").run(task_at(desk), ear.watch)
    other = await AcpAgent("true").run(task_at(desk), ear.watch)

    assert missing.reason == "spawn-failed"
    assert "no-such-agent" in missing.message
    assert other.reason == "failed"
    assert "'true' ended with status 0" in other.message


@pytest.mark.parametrize("command", ["", "  ", "agent 'unfinished"])
async def test_a_command_that_cannot_be_read_is_an_error_with_a_hint(command: str) -> None:
    with pytest.raises(OrchardError) as caught:
        AcpAgent(command)

    assert caught.value.hint


async def test_an_agent_that_does_not_leave_is_ended_and_has_done_its_work(
    desk: Desk, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchard.agents.acp.agent.FAREWELL", 0.3)
    task = task_at(desk, limits=Limits(wall=50.0, grace=30.0))

    async with asyncio.timeout(20):
        result = await agent("stay").run(task, ear.watch)

    assert result.ok
    assert members(task.launcher.token, None, task.log) == []


# ----------------------------------------------------------------------------- cancellation


async def started(ear: Ear, running: "asyncio.Task[Result]") -> None:
    """Wait until the agent works."""
    async with asyncio.timeout(30):
        while "working" not in ear.text:
            assert not running.done()
            await asyncio.sleep(0.01)


async def test_cancellation_is_told_to_the_agent_and_what_it_asks_then_is_canceled(desk: Desk, ear: Ear) -> None:
    task = task_at(desk)
    running = asyncio.ensure_future(agent("until-canceled").run(task, ear.watch))
    await started(ear, running)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert heard(desk, "session/cancel") == [{"sessionId": ear.session}]
    assert json.loads((desk.folder / "canceled.txt").read_text()) == {"outcome": "cancelled"}
    assert members(task.launcher.token, None, task.log) == []


@pytest.mark.parametrize("impatient", ["again", "hurry", "no"])
async def test_an_agent_that_does_not_care_is_ended_with_its_family(
    desk: Desk, ear: Ear, impatient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "COURTESY", 0.5 if impatient == "no" else 60.0)
    task = task_at(desk, limits=Limits(grace=0.5 if impatient == "no" else 60.0))
    running = asyncio.ensure_future(agent("work-on").run(task, ear.watch))
    await started(ear, running)

    running.cancel()
    if impatient == "hurry":
        ear.hurry.set()
    if impatient == "again":
        for _ in range(2):
            await asyncio.sleep(0.2)
            running.cancel()
    async with asyncio.timeout(15):
        with pytest.raises(asyncio.CancelledError):
            await running

    assert members(task.launcher.token, None, task.log) == []
    assert not (desk.folder / "late.txt").exists()
