"""The loop: every way in which a model can stop, every way in which a tool can behave."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchard.agents.builtin.calls import Calls
from orchard.agents.builtin.loop import Loop, Voice
from orchard.agents.builtin.memory import Bounds, is_whole
from orchard.agents.builtin.model import Message, ModelError, Reply, Request, TooLong, said, text_block
from orchard.agents.builtin.tool import LONGEST_ANSWER, Answer, Json, Tool, ToolContext
from orchard.agents.protocol import Called, Result
from orchard.model.usage import Usage
from orchard.process.launcher import Launcher
from orchard.testing import ScriptedModel, Step, calls, says
from tests.agents.builtin.canned import Canned
from tests.agents.builtin.conftest import crashes, echo, floods, hangs, refuses, small_tool
from tests.agents.conftest import Ear

pytestmark = pytest.mark.anyio


class Talk:
    """A loop with a scripted model, and what came of it."""

    def __init__(self, folder: Path, ear: Ear, steps: Sequence[Step], tools: Sequence[Tool] = ()) -> None:
        self.model, self.ear = ScriptedModel(steps), ear
        self.calls = Calls(tools or [echo()], ToolContext(folder, Launcher()), ear.told.append)
        self.kept: list[list[Message]] = []

    async def keep(self, messages: Sequence[Message]) -> None:
        self.kept.append(list(messages))

    async def run(self, bounds: Bounds | None = None, turns: int = 50) -> Result:
        request = Request("scripted", "be good", (said("the task"),))
        loop = Loop(self.model.reply, request, self.calls, bounds or Bounds(), self.ear.watch, self.keep, turns)
        async with asyncio.timeout(60):
            return await loop.run()

    @property
    def last_sent(self) -> Sequence[Message]:
        return self.model.requests[-1].messages

    def answer(self) -> Json:
        """The last answer of a tool that the model was given."""
        return [block for message in self.last_sent for block in message.blocks if block["type"] == "tool_result"][-1]


async def test_tools_are_run_and_their_answers_sent_until_the_model_is_done(tmp_path: Path, ear: Ear) -> None:
    talk = Talk(tmp_path, ear, [calls(("echo", {"text": "hi"}), text="Let me see."), says("All done.")])

    result = await talk.run()

    assert result.ok and result.text == "All done."
    assert talk.answer()["content"] == "you said hi"
    assert ear.of(Called) == [Called("echo", "hi")]
    assert ear.text == "Let me see.\nAll done.\n"
    assert is_whole(talk.kept[-1])


async def test_all_answers_to_one_message_are_in_one_message_in_order(tmp_path: Path, ear: Ear) -> None:
    wanted = [("echo", {"text": str(number)}) for number in range(12)]
    talk = Talk(tmp_path, ear, [calls(*wanted), says("ok")])

    await talk.run()

    answers = talk.last_sent[-1].blocks
    assert [block["content"] for block in answers] == [f"you said {number}" for number in range(12)]
    assert talk.last_sent[-1].answers == tuple(call["id"] for call in talk.last_sent[-2].calls)


async def test_tools_that_change_nothing_run_at_once_and_others_wait_for_their_turn(tmp_path: Path, ear: Ear) -> None:
    story: list[str] = []
    both = asyncio.Barrier(2)

    async def read(arguments: Json) -> Answer:
        await both.wait()  # two of them have to be under way, or this never ends
        story.append("read")
        return Answer("read")

    async def write(arguments: Json) -> Answer:
        story.append("write begins")
        await asyncio.sleep(0)
        story.append("write ends")
        return Answer("written")

    tools = [small_tool("read", read, parallel=True), small_tool("write", write)]
    script = [calls(("read", {}), ("read", {}), ("write", {}), ("write", {}), ("read", {}), ("read", {})), says("ok")]

    result = await Talk(tmp_path, ear, script, tools).run()

    assert result.ok
    assert story == ["read", "read", *["write begins", "write ends"] * 2, "read", "read"]


@pytest.mark.parametrize("stop", ["max_tokens", "end_turn", "refusal", "other", "stop_sequence"])
async def test_tools_of_a_message_that_stopped_for_another_reason_are_never_run(
    tmp_path: Path, ear: Ear, stop: str
) -> None:
    ran: list[Json] = []

    async def do(arguments: Json) -> Answer:
        ran.append(arguments)
        return Answer("done")

    half = calls(("write", {"path": "a"}), stop=stop)  # type: ignore[arg-type]
    talk = Talk(tmp_path, ear, [half, says("ok")], [small_tool("write", do)])

    await talk.run()

    assert not ran
    assert all(is_whole(kept) for kept in talk.kept)


async def test_a_message_that_was_cut_off_goes_on_and_its_calls_are_answered_as_not_run(
    tmp_path: Path, ear: Ear
) -> None:
    talk = Talk(tmp_path, ear, [calls(("echo", {}), stop="max_tokens"), says("half", "max_tokens"), says("rest")])

    result = await talk.run()

    assert result.ok and result.text == "rest"
    assert "cut off" in talk.model.requests[1].messages[-1].blocks[0]["content"]
    assert "cut off" in talk.last_sent[-1].text


async def test_messages_that_are_cut_off_again_and_again_end_the_turn(tmp_path: Path, ear: Ear) -> None:
    talk = Talk(tmp_path, ear, [says("and then", "max_tokens")])

    result = await talk.run()

    assert result.reason == "failed" and "cut off" in result.message
    assert len(talk.model.requests) == 3


async def test_a_paused_turn_is_sent_again_as_it_is(tmp_path: Path, ear: Ear) -> None:
    talk = Talk(tmp_path, ear, [says("searching", "pause_turn"), says("found")])

    result = await talk.run()

    assert result.ok
    assert [message.role for message in talk.last_sent] == ["user", "assistant"]


async def test_a_refusal_ends_the_turn_with_its_reason(tmp_path: Path, ear: Ear) -> None:
    result = await Talk(tmp_path, ear, [says("no", "refusal", detail="It is not allowed.")]).run()

    assert result.reason == "refused" and "It is not allowed." in result.message


async def test_a_stop_that_nobody_knows_is_not_taken_for_success(tmp_path: Path, ear: Ear) -> None:
    result = await Talk(tmp_path, ear, [says("hm", "other", detail="moon_phase")]).run()

    assert result.reason == "failed" and "moon_phase" in result.message


async def test_an_empty_end_keeps_what_was_said_before(tmp_path: Path, ear: Ear) -> None:
    talk = Talk(tmp_path, ear, [calls(("echo", {"text": "x"}), text="I changed a.txt."), says("")])

    result = await talk.run()

    assert result.ok and result.text == "I changed a.txt."
    assert is_whole(talk.kept[-1])


async def test_the_limit_of_turns_ends_it_after_so_many_calls(tmp_path: Path, ear: Ear) -> None:
    talk = Talk(tmp_path, ear, [calls(("echo", {"text": "again"}))])

    result = await talk.run(turns=7)

    assert result.reason == "max-turns" and "7 times" in result.message
    assert len(talk.model.requests) == 7
    assert is_whole(talk.kept[-1])


async def test_a_budget_that_is_used_up_is_asked_before_every_call(tmp_path: Path, ear: Ear) -> None:
    talk = Talk(tmp_path, ear, [calls(("echo", {"text": "again"}))])
    ear.stop = lambda: "The plan's tokens are used up." if len(talk.model.requests) >= 3 else None

    result = await talk.run()

    assert result == Result("budget", "The plan's tokens are used up.", "")
    assert len(talk.model.requests) == 3


# ------------------------------------------------------------------------------------------ tools that misbehave


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("nothing", {}, "There is no tool 'nothing'"),
        ("ecco", {"text": "a"}, "did you mean 'echo'"),
        ("echo", {}, "'text' is a required property"),
        ("echo", {"text": 5}, "$.text: 5 is not of type 'string'"),
        ("echo", {"text": "a", "loud": True}, "'loud' was unexpected"),
    ],
)
async def test_a_call_that_is_wrong_is_answered_with_what_is_wrong(
    tmp_path: Path, ear: Ear, name: str, given: Json, words: str
) -> None:
    talk = Talk(tmp_path, ear, [calls((name, given)), says("I see.")])

    result = await talk.run()

    assert result.ok
    assert talk.answer()["is_error"] is True and words in talk.answer()["content"]
    assert ear.of(Called)[-1].failed


async def test_input_that_is_no_json_is_answered_with_what_is_wrong(tmp_path: Path, ear: Ear) -> None:
    block = {"type": "tool_use", "id": "t1", "name": "echo", "input": {}}
    broken = Reply(Message("assistant", (block,)), "tool_use", Usage(), {"t1": "The input is not valid JSON: line 1"})
    talk = Talk(tmp_path, ear, [broken, says("I see.")])

    await talk.run()

    assert talk.answer()["is_error"] is True and "not valid JSON" in talk.answer()["content"]


async def test_a_tool_that_crashes_is_told_and_the_others_go_on(tmp_path: Path, ear: Ear) -> None:
    script = [calls(("crash", {}), ("echo", {"text": "still here"}), ("refuse", {})), says("ok")]
    talk = Talk(tmp_path, ear, script, [crashes(), echo(), refuses()])

    result = await talk.run()

    crash, fine, refused = talk.last_sent[-1].blocks
    assert result.ok
    assert crash["is_error"] and "ZeroDivisionError" in crash["content"]
    assert fine["content"] == "you said still here" and "is_error" not in fine
    assert refused["is_error"] and refused["content"] == "There is no such line."
    assert any("crash" in note for note in ear.notes("warning"))


async def test_a_tool_that_hangs_is_ended_by_its_limit(tmp_path: Path, ear: Ear) -> None:
    talk = Talk(tmp_path, ear, [calls(("hang", {})), says("ok")], [hangs()])
    talk.calls = Calls([hangs()], ToolContext(tmp_path, Launcher()), ear.told.append, seconds=0.2)

    result = await talk.run()

    assert result.ok
    assert talk.answer()["is_error"] and "longer than 0.2 s" in talk.answer()["content"]


async def test_a_tool_that_floods_is_cut_in_the_middle(tmp_path: Path, ear: Ear) -> None:
    talk = Talk(tmp_path, ear, [calls(*[("flood", {})] * 10), says("ok")], [floods()])

    await talk.run()

    answers = [block["content"] for block in talk.last_sent[-1].blocks]
    assert all(text.startswith("begin") and text.endswith("end") for text in answers)
    assert sum(map(len, answers)) <= 4 * LONGEST_ANSWER


async def test_answers_with_broken_characters_can_be_sent(tmp_path: Path, ear: Ear) -> None:
    async def do(arguments: Json) -> Answer:
        return Answer("half a pair: \ud83d")

    talk = Talk(tmp_path, ear, [calls(("odd", {})), says("ok")], [small_tool("odd", do)])

    await talk.run()

    talk.answer()["content"].encode("utf-8")


async def test_a_schema_of_a_stranger_fetches_nothing_and_runs_no_pattern(tmp_path: Path, ear: Ear) -> None:
    async def do(arguments: Json) -> Answer:
        return Answer("fine")

    slow = small_tool("slow", do, {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    bad = small_tool("bad", do, {"type": "no such type"})
    given = {"a": "a" * 40 + "b"}
    with Canned() as server:
        far = small_tool("far", do, {"type": "object", "properties": {"a": {"$ref": f"{server.url}/schema.json"}}})
        script = [calls(("slow", given), ("bad", given), ("far", given)), says("ok")]
        talk = Talk(tmp_path, ear, script, [far, slow, bad])
        result = await talk.run()

    assert result.ok and server.fetched == []
    assert [block["content"] for block in talk.last_sent[-1].blocks] == ["fine", "fine", "fine"]


async def test_cancellation_ends_all_tools_before_it_is_raised(tmp_path: Path, ear: Ear) -> None:
    begun, ended = asyncio.Barrier(3), []

    async def do(arguments: Json) -> Answer:
        try:
            await begun.wait()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)
            ended.append(True)
        return Answer("never")

    talk = Talk(tmp_path, ear, [calls(("wait", {}), ("wait", {}))], [small_tool("wait", do, parallel=True)])
    turn = asyncio.ensure_future(talk.run())
    async with asyncio.timeout(60):
        await begun.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    assert ended == [True, True]


# ------------------------------------------------------------------------------------------ long conversations


async def test_two_hundred_turns_stay_under_the_limit_and_remember_by_summaries(tmp_path: Path, ear: Ear) -> None:
    def script(request: Request) -> Reply:
        if not request.tools:
            assert "the task" in request.messages[0].text
            return says(f"## Task\nsummary of {request.messages[0].text.count('[call')} calls")
        assert len(request.messages) <= 40 and is_whole(request.messages)
        assert request.messages[0] == said("the task")
        return calls(("echo", {"text": "again"}))

    talk = Talk(tmp_path, ear, [script])

    result = await talk.run(turns=200)

    assert result.reason == "max-turns"
    assert max(len(request.messages) for request in talk.model.requests) <= 31
    assert any(message.summary for message in talk.last_sent)
    assert len(ear.notes("compacted")) >= 10
    assert all(is_whole(kept[:-1]) or is_whole(kept) for kept in talk.kept)


@pytest.mark.parametrize("failing", ["error", "empty", "cut", "off"])
async def test_without_a_summary_two_hundred_turns_stay_under_the_limit_all_the_same(
    tmp_path: Path, ear: Ear, failing: str
) -> None:
    def script(request: Request) -> Reply | ModelError:
        if not request.tools:
            if failing == "error":
                return ModelError("failed", "no")
            return says("") if failing == "empty" else says("half a summ", "max_tokens")
        assert len(request.messages) <= 40 and is_whole(request.messages)
        assert request.messages[0] == said("the task")
        return calls(("echo", {"text": "again"}))

    talk = Talk(tmp_path, ear, [script])

    result = await talk.run(Bounds(compact=failing != "off"), turns=200)

    assert result.reason == "max-turns"
    assert 25 < max(len(request.messages) for request in talk.model.requests) <= 40
    assert ear.notes("compacted")
    assert sum(not request.tools for request in talk.model.requests) < 40  # not one with each message


@pytest.mark.parametrize("how", ["error", "stop"])
async def test_a_full_window_is_made_room_in_once_and_then_it_is_over(tmp_path: Path, ear: Ear, how: str) -> None:
    full: Step = TooLong("prompt is too long") if how == "error" else says("", "context")
    grown: list[Step] = [calls(("echo", {"text": "x"})) for _ in range(8)]

    talk = Talk(tmp_path, ear, [*grown, full, says("a summary"), says("made it")])
    result = await talk.run()

    assert result.ok and result.text == "made it"
    assert [message.summary for message in talk.last_sent] == [False, True, False, False]
    assert is_whole(talk.last_sent)

    again = Talk(tmp_path, ear, [*grown, full, says("a summary"), full])
    result = await again.run()

    assert result.reason == "failed"


async def test_a_single_answer_that_fills_the_window_is_made_smaller(tmp_path: Path, ear: Ear) -> None:
    def script(request: Request) -> Reply | ModelError:
        if not request.tools:
            return says("a summary")
        if len(request.messages) == 1:
            return calls(("flood", {}))
        size = len(str(request.messages))
        return TooLong("prompt is too long") if size > 20_000 else says("read it")

    result = await Talk(tmp_path, ear, [script], [floods()]).run()

    assert result.text == "read it"


async def test_what_fails_for_a_moment_ends_as_what_it_is(tmp_path: Path, ear: Ear) -> None:
    result = await Talk(tmp_path, ear, [ModelError("rate-limit", "Not now.", retry_after=90)]).run()

    assert (result.reason, result.message, result.retry_after) == ("rate-limit", "Not now.", 90)


def test_what_is_said_comes_in_lines_and_ends_with_one(ear: Ear) -> None:
    voice = Voice(ear.told.append, lambda: None)

    for part in ("He", "llo", " there\nand", " more", "\n", "\n", "", "x" * 500):
        voice.hear(part)
    voice.end()

    assert ear.text == "Hello there\nand more\n" + "x" * 500 + "\n"
    assert len(ear.told) == 4


def test_a_message_of_a_model_may_hold_more_than_text() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}

    assert Message("assistant", (thinking, text_block("yes"))).text == "yes"
