"""What is left out of a conversation, and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.agents.builtin.memory import (
    FEWEST,
    closed,
    compacted,
    fitted,
    is_whole,
    lightened,
    middle,
    transcript,
)
from orchard.agents.builtin.model import Message, merged, result_block, said, text_block
from tests.examples import examples


def asked(*ids: str, text: str = "") -> Message:
    """The model calls tools."""
    uses = [{"type": "tool_use", "id": one, "name": "echo", "input": {"text": one}} for one in ids]
    return Message("assistant", (*((text_block(text),) if text else ()), *uses))


def answered(*ids: str) -> Message:
    return Message("user", tuple(result_block(one, f"about {one}") for one in ids))


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Any conversation that can happen: calls with their answers, words of either side, summaries in between."""
    messages = [said("the task")]
    number = 0
    for kind in draw(st.lists(st.sampled_from(["calls", "words", "ours", "summary", "words and ours"]), max_size=60)):
        if kind == "calls":
            count = draw(st.integers(1, 4))
            # Some servers use the same ids in every message.
            names = [f"call_{number + one if draw(st.booleans()) else one}" for one in range(count)]
            names = list(dict.fromkeys(names))
            number += count
            messages += [asked(*names), answered(*names)]
        if kind.startswith("words"):
            messages.append(Message("assistant", (text_block("I think."),)))
        if kind.endswith("ours"):
            messages.append(said("Go on."))
        if kind == "summary":
            messages.insert(1, Message("user", (text_block("so far"),), summary=True))
    return messages


@given(conversations(), st.integers(0, 50))
def test_whatever_is_left_out_the_first_message_stays_and_every_call_has_its_answer(
    messages: list[Message], most: int
) -> None:
    short = fitted(messages, most)

    assert short[0] == messages[0]
    assert short[-1] == messages[-1]
    assert len(short) <= max(most, FEWEST)
    assert is_whole(short)


@given(conversations(), st.integers(0, 50))
def test_whatever_is_summarised_the_first_message_stays_and_every_call_has_its_answer(
    messages: list[Message], keep: int
) -> None:
    end = middle(messages, keep)
    short = compacted(messages, end, "what was done") if end else messages

    assert short[0] == messages[0]
    assert short[-1] == messages[-1]
    assert len(short) <= len(messages)
    assert not end or len(short) <= max(keep, 2) + 2
    assert is_whole(short)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=120), st.integers(4, 40), st.integers(1, 30))
@examples(60)
def test_growing_and_shortening_in_any_order_keeps_a_conversation_whole(
    steps: list[tuple[bool, int]], most: int, keep: int
) -> None:
    messages = [said("the task")]
    for number, (compact, count) in enumerate(steps):
        names = [f"{number}-{one}" for one in range(count)]
        messages += [asked(*names), answered(*names)]
        if compact and (end := middle(messages, keep)):
            messages = compacted(messages, end, "so far")
        messages = fitted(messages, most)
        assert is_whole(messages) and messages[0] == said("the task") and len(messages) <= most


@given(conversations(), st.integers(0, 4))
def test_a_conversation_cut_off_anywhere_can_go_on(messages: list[Message], lost: int) -> None:
    cut = messages[: max(1, len(messages) - lost)]

    whole = closed(cut)

    assert is_whole(whole)
    assert whole[: len(cut)] == cut


def test_a_call_without_its_answer_and_an_answer_without_its_call_are_seen() -> None:
    first = said("the task")

    assert is_whole([first, asked("a"), answered("a")])
    assert not is_whole([first, asked("a")])
    assert not is_whole([first, asked("a"), said("well"), answered("a")])
    assert not is_whole([first, answered("a")])
    assert not is_whole([first, asked("a", "b"), answered("a")])
    assert not is_whole([asked("a"), answered("a")])
    assert not is_whole([])


def test_a_summary_outlives_what_is_left_out_later() -> None:
    messages = compacted([said("the task"), *[asked("a"), answered("a")] * 9], 15, "what was done")
    messages += [asked("b"), answered("b")] * 10

    short = fitted(messages, 10)

    assert short[0].text == "the task" and "what was done" in short[1].text
    assert len(short) <= 10


def test_messages_of_one_side_become_one_with_answers_first() -> None:
    turns = merged([said("task"), asked("a"), answered("a"), said("and now this")])

    assert [turn.role for turn in turns] == ["user", "assistant", "user"]
    assert [block["type"] for block in turns[-1].blocks] == ["tool_result", "text"]


def test_answers_are_made_shorter_and_nothing_else() -> None:
    long = Message("user", (result_block("a", "x" * 50_000),))

    light = lightened([said("y" * 50_000), asked("a"), long])

    assert light[0] == said("y" * 50_000)
    assert len(light[2].blocks[0]["content"]) < 9_000
    assert is_whole(light)


@pytest.mark.parametrize("count", [1, 4_000])
def test_a_conversation_as_text_is_bounded(count: int) -> None:
    text = transcript([asked("a", text="z" * 9_000), Message("user", (result_block("a", "x" * 90_000),))] * count)

    assert len(text) < 130_000
    assert "[call echo]" in text and "[answer]" in text
