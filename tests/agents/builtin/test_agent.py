"""The built-in agent as a whole, against the scripted LLM on this machine: its own tools, its sessions, its limits."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from orchard.agents.builtin import sessions
from orchard.agents.builtin.agent import BuiltinAgent
from orchard.agents.builtin.governor import Governor
from orchard.agents.builtin.memory import INTERRUPTED, is_whole
from orchard.agents.builtin.model import Message, said
from orchard.agents.protocol import Called, Settings
from orchard.model.agent_rows import BuiltinRow
from orchard.model.limits import Limits
from orchard.testing import ScriptedModel, calls, says
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import Call, Fail, Hang, Say, ScriptedLlm, routes, steps

pytestmark = pytest.mark.anyio

KEY = {"ANTHROPIC_API_KEY": "test-key"}


async def soon(seconds: float) -> None:
    """Waits are not waited for here."""
    await asyncio.sleep(0)


def agent(llm: ScriptedLlm, **row: object) -> BuiltinAgent:
    return BuiltinAgent(
        BuiltinRow(base_url=llm.url, model="fake-model", **row),  # type: ignore[arg-type]
        governor=Governor(sleep=soon, clock=_Hurried()),
    )


class _Hurried:
    """A clock on which every wait is over when it is looked at again."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1000.0
        return self.now


def openai(llm: ScriptedLlm) -> BuiltinAgent:
    row = BuiltinRow(provider="openai", base_url=f"{llm.url}/v1", model="fake-model", api_key_env="MY_KEY")
    return BuiltinAgent(row, governor=Governor(sleep=soon, clock=_Hurried()))


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_it_does_a_task_with_its_tools_and_tells_of_it(desk: Desk, ear: Ear, provider: str) -> None:
    script = steps(
        [Say("I will look."), Call("list_files", {"path": "."}), Call("read_file", {"path": "a.txt"})],
        Call("write_file", {"path": "b.txt", "content": "new\n"}),
        Call("bash", {"command": "cat a.txt b.txt > c.txt"}),
        Say("I wrote b.txt and c.txt."),
    )
    (desk.folder / "a.txt").write_text("old\n")
    with ScriptedLlm(script) as llm:
        it = agent(llm) if provider == "anthropic" else openai(llm)
        result = await it.run(desk.task(env={**KEY, "MY_KEY": "k"}), ear.watch)

        assert result.ok, result
        assert result.text == "I wrote b.txt and c.txt." and "I will look.\n" in ear.text
        assert (desk.folder / "c.txt").read_text() == "old\nnew\n"
        assert [call.tool for call in ear.of(Called)] == ["list_files", "read_file", "write_file", "bash"]
        counted, used = llm.usage(), ear.usage
        assert (used.input, used.cached, used.cache_writes, used.output, used.requests) == (
            counted.input,
            counted.cached,
            counted.cache_writes,
            counted.output,
            counted.requests,
        )
        assert result.session is not None and result.session == ear.session


async def test_without_a_key_it_says_which_variable_is_missing(desk: Desk, ear: Ear) -> None:
    result = await BuiltinAgent(BuiltinRow(api_key_env="MY_KEY")).run(desk.task(), ear.watch)

    assert result.reason == "not-logged-in" and "MY_KEY" in result.message


async def test_the_key_of_the_model_is_not_in_the_environment_of_its_tools(desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Call("bash", {"command": "env"}), Say("ok"))) as llm:
        env = {**KEY, "OPENAI_API_KEY": "other-key", "GH_TOKEN": "for-github"}
        await agent(llm, env={"EXTRA": "of the row"}).run(desk.task(env=env), ear.watch)

        (shown,) = llm.requests[-1].results
    assert "test-key" not in shown and "other-key" not in shown
    assert "EXTRA=of the row" in shown and f"TMPDIR={desk.scratch}" in shown


def test_it_names_the_variables_that_it_may_see() -> None:
    assert {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GH_TOKEN", "MINE"} <= set(
        BuiltinAgent(BuiltinRow(pass_env=("MINE",))).variables
    )
    assert BuiltinAgent(BuiltinRow(provider="openai", api_key_env="K")).variables[0] == "K"


@pytest.mark.parametrize(
    ("status", "reason", "requests"),
    [(401, "not-logged-in", 1), (400, "failed", 1), (429, "rate-limit", 6), (500, "overloaded", 6)],
)
async def test_errors_of_the_server_end_as_what_they_are(
    desk: Desk, ear: Ear, status: int, reason: str, requests: int
) -> None:
    with ScriptedLlm(steps(Fail(status))) as llm:
        result = await agent(llm).run(desk.task(env=KEY), ear.watch)

        assert result.reason == reason and f"scripted {status}" in result.message
        assert len(llm.requests) == requests
    assert len(ear.notes("retry")) >= requests - 1
    assert result.session == ear.session


async def test_trouble_that_passes_is_lived_through_and_seen(desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Call("bash", {"command": "echo hi > a.txt"}), Say("ok"))) as llm:
        llm.fail(529, times=2)
        result = await agent(llm).run(desk.task(env=KEY), ear.watch)

        assert result.ok and (desk.folder / "a.txt").exists()
        assert llm.statuses() == [529, 529, 200, 200]
        assert ear.usage.input == llm.usage().input
    assert len(ear.notes("retry")) >= 2


# ------------------------------------------------------------------------------------------ sessions


async def test_a_session_goes_on_with_everything_that_was_said(desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Call("bash", {"command": "echo one > a.txt"}), Say("first done"))) as llm:
        first = await agent(llm).run(desk.task("Do the first thing.", env=KEY), ear.watch)
        again = await agent(llm).run(desk.task("Now the second.", env=KEY, session=first.session), ear.watch)

        assert again.ok and again.session == first.session
        assert llm.requests[-1].prompts == ["Do the first thing.", "Now the second."]
        assert len(llm.requests[-1].results) == 2


async def test_a_session_is_a_file_that_only_the_user_can_read(desk: Desk, ear: Ear) -> None:
    result = await BuiltinAgent(model=ScriptedModel([says("ok")])).run(desk.task(), ear.watch)

    (file,) = (desk.private / sessions.FOLDER).iterdir()
    assert result.session is not None and file.stem == result.session
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_session_that_cannot_be_saved_is_told_once_and_stops_nothing(desk: Desk, ear: Ear) -> None:
    desk.private.rmdir()
    desk.private.write_text("in the way")
    model = ScriptedModel([calls(("write_file", {"path": "a.txt", "content": "a"})), says("ok")])

    result = await BuiltinAgent(model=model).run(desk.task(), ear.watch)

    assert result.ok and (desk.folder / "a.txt").exists()
    assert len(ear.notes("session")) == 1


@pytest.mark.parametrize("damage", ["missing", "half", "no json", "another shape", "torn", "huge id", "escape"])
async def test_a_session_that_is_gone_or_damaged_is_lost_and_no_model_is_asked(
    desk: Desk, ear: Ear, damage: str
) -> None:
    model = ScriptedModel([says("ok")])
    session = sessions.new_id()
    sessions.save(desk.private, session, [said("task"), says("done").message])
    path = desk.private / sessions.FOLDER / f"{session}.json"
    if damage == "missing":
        path.unlink()
    elif damage == "half":
        path.write_bytes(path.read_bytes()[:40])
    elif damage == "no json":
        path.write_bytes(b"\xff\x00 what")
    elif damage == "another shape":
        path.write_text(json.dumps({"version": 1, "messages": [{"role": "user", "content": "text"}]}))
    elif damage == "torn":
        sessions.save(desk.private, session, [said("task"), calls(("a", {})).message, said("no answer")])
    elif damage == "huge id":
        session = "x" * 10_000
    else:
        sessions.save(desk.folder, session, [said("task"), says("done").message])
        session = f"../../{desk.folder.name}/{sessions.FOLDER}/{session}"

    result = await BuiltinAgent(model=model).run(desk.task(session=session), ear.watch)

    assert result.reason == "session-lost"
    assert not model.requests and ear.session is None


async def test_a_turn_that_was_cut_off_in_a_tool_goes_on_with_an_answer_to_the_open_call(desk: Desk, ear: Ear) -> None:
    script = [calls(("bash", {"command": "touch begun; sleep 300"}))]
    turn = asyncio.ensure_future(BuiltinAgent(model=ScriptedModel(script)).run(desk.task(), ear.watch))
    async with asyncio.timeout(60):
        while not (desk.folder / "begun").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
    model = ScriptedModel([says("I looked first.")])

    result = await BuiltinAgent(model=model).run(desk.task("Go on.", session=ear.session), ear.watch)

    sent = model.requests[0].messages
    assert result.ok and is_whole(sent)
    assert sent[-2].blocks[0]["content"] == INTERRUPTED and sent[-2].blocks[0]["is_error"]
    assert sent[-1].text == "Go on."


# ------------------------------------------------------------------------------------------ limits and settings


async def test_cancellation_in_the_middle_of_an_answer_ends_it_and_leaves_nothing(desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Hang(Call("bash", {"command": "touch late.txt"})))) as llm:
        turn = asyncio.ensure_future(agent(llm).run(desk.task(env=KEY), ear.watch))
        await asyncio.to_thread(llm.wait_hanging)
        turn.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await turn
        llm.release()
    assert not (desk.folder / "late.txt").exists()


async def test_a_turn_that_takes_too_long_is_stopped(desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Hang())) as llm:
        result = await agent(llm).run(desk.task(env=KEY, limits=Limits(wall=2.5)), ear.watch)
        llm.release()

    assert result.reason == "timeout" and "2.5 s" in result.message
    assert result.session == ear.session


async def test_a_model_that_says_nothing_for_too_long_is_stopped(desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Hang())) as llm:
        result = await agent(llm).run(desk.task(env=KEY, limits=Limits(wall=120, idle=1)), ear.watch)
        llm.release()

    assert result.reason == "idle" and "1 s" in result.message


async def test_a_tool_that_takes_its_time_is_not_silence_of_the_model(desk: Desk, ear: Ear) -> None:
    model = ScriptedModel([calls(("bash", {"command": "sleep 1.5"})), says("ok")])

    result = await BuiltinAgent(model=model).run(desk.task(limits=Limits(wall=120, idle=1)), ear.watch)

    assert result.ok, result


@pytest.mark.parametrize(("asked", "configured", "turns"), [(3, 50, 3), (50, 2, 2), (None, 4, 4)])
async def test_the_smaller_limit_of_turns_holds(
    desk: Desk, ear: Ear, asked: int | None, configured: int, turns: int
) -> None:
    model = ScriptedModel([calls(("list_files", {"path": "."}))])
    it = BuiltinAgent(BuiltinRow(max_iterations=configured), model=model)

    result = await it.run(desk.task(settings=Settings(max_turns=asked)), ear.watch)

    assert result.reason == "max-turns" and len(model.requests) == turns


@pytest.mark.parametrize(
    ("row", "settings", "model"),
    [
        (BuiltinRow(), Settings(), "claude-sonnet-5-5"),
        (BuiltinRow(), Settings(tier="fast"), "claude-haiku-5-5"),
        (BuiltinRow(model="mine"), Settings(tier="premium"), "claude-opus-5-5"),
        (BuiltinRow(model="mine"), Settings(), "mine"),
        (BuiltinRow(model="mine"), Settings(model="other", tier="fast"), "other"),
        (BuiltinRow(provider="openai", model="mine"), Settings(tier="fast"), "mine"),
    ],
)
async def test_the_model_is_chosen_by_the_work_then_its_tier_then_the_settings(
    desk: Desk, ear: Ear, row: BuiltinRow, settings: Settings, model: str
) -> None:
    scripted = ScriptedModel([says("ok")])

    await BuiltinAgent(row, model=scripted).run(desk.task(settings=settings), ear.watch)

    assert scripted.requests[0].model == model
    assert bool(ear.notes("setting")) == (row.provider == "openai")


async def test_a_server_of_anybody_needs_the_name_of_a_model(desk: Desk, ear: Ear) -> None:
    result = await BuiltinAgent(BuiltinRow(provider="openai")).run(desk.task(env={"OPENAI_API_KEY": "k"}), ear.watch)

    assert result.reason == "failed" and "[agents.builtin]" in result.message


async def test_tools_that_are_denied_are_neither_offered_nor_run(desk: Desk, ear: Ear) -> None:
    with ScriptedLlm(steps(Call("bash", {"command": "touch a.txt"}), Say("ok"))) as llm:
        await agent(llm, deny_tools=("bash", "github_*")).run(desk.task(env=KEY), ear.watch)

        assert (
            "You may not use 'bash': the tools of this work are: all, without bash, github_*."
            in llm.requests[-1].results[0]
        )
        assert "read_file" in llm.offered() and not {"bash", "github_get_issue"} & llm.offered()
    assert not (desk.folder / "a.txt").exists()


async def test_tools_and_system_prompt_are_the_same_for_every_call_and_every_job(
    desk: Desk, ear: Ear, tmp_path: Path
) -> None:
    (desk.folder / "AGENTS.md").write_text("Use tabs.")
    other = Desk(tmp_path / "other", desk.private, desk.scratch, desk.log, desk.home)
    other.folder.mkdir()
    (other.folder / "AGENTS.md").write_text("Use tabs.")
    model = ScriptedModel([calls(("list_files", {"path": "."})), says("ok"), says("ok")])

    await BuiltinAgent(model=model).run(desk.task(), ear.watch)
    await BuiltinAgent(model=model).run(other.task(), ear.watch)

    first, second, third = model.requests
    assert first.system == second.system == third.system and "Use tabs." in first.system
    assert list(first.tools) == list(second.tools) == list(third.tools)
    assert [tool["name"] for tool in first.tools] == sorted(tool["name"] for tool in first.tools)


async def test_many_agents_of_one_process_share_what_they_can(desk: Desk, ear: Ear) -> None:
    scripts = {
        f"job {number} ": steps(Call("bash", {"command": f"echo {number} > {number}.txt"}), Say(f"{number} done"))
        for number in range(6)
    }
    with ScriptedLlm(routes(scripts)) as llm:
        it = agent(llm)
        turns = [it.run(desk.task(f"job {number} here", env=KEY), Ear().watch) for number in range(6)]
        async with asyncio.timeout(120):
            results = await asyncio.gather(*turns)

    assert [result.text for result in results] == [f"{number} done" for number in range(6)]
    assert sorted(path.name for path in desk.folder.iterdir()) == [f"{number}.txt" for number in range(6)]
    assert len({result.session for result in results}) == 6


def test_a_summary_survives_being_saved(tmp_path: Path) -> None:
    session = sessions.new_id()
    messages = [said("task"), Message("user", said("so far").blocks, summary=True), says("ok").message]

    sessions.save(tmp_path, session, messages)

    assert sessions.read(tmp_path, session) == messages
