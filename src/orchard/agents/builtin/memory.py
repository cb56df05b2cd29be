"""What of a conversation is sent to the model: all of it while it is short, the beginning and the end later on.

Two rules hold after whatever is left out: the first message is there, and every call of a tool has its answer in the
message after it, with no answer to a call that is gone. A cut is made before a message that answers nothing, so the
two are never torn apart.
"""

import json
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from orchard.agents.builtin.model import Json, Message, result_block, said

LEFT_OUT = "(Messages from here on were left out to keep the conversation short. The files show what was done.)"
INTERRUPTED = "Interrupted: it is not known whether this was done. Look before you do it again."
SUMMARY = "Summary of the work so far. The messages it stands for were left out:\n\n"

FEWEST = 4
"""The first message, what stands for the missing ones, and the last call with its answer."""
TRANSCRIPT = 120_000
"""Characters of a conversation that are given to whoever summarises it."""
_PART = 2_000
LIGHT = 8_000
"""Characters of an answer that stay where a conversation has to be as small as possible."""


class Bounds(Struct, frozen=True):
    most: int = 40
    compact: bool = True
    threshold: int = 30
    keep_recent: int = 10


def fitted(messages: Sequence[Message], most: int) -> list[Message]:
    """At most `most` messages, and never fewer than four: the first, the summary if there is one, and the newest.

    More than needed goes at once: each cut costs the model's cache, so it should not happen with every message.
    """
    most = max(most, FEWEST)
    if len(messages) <= most:
        return list(messages)
    head = list(messages[:2]) if messages[1].summary else [messages[0], said(LEFT_OUT)]
    at = _cut(messages, len(messages) - max(1, most * 3 // 4 - len(head)))
    return [*head, *messages[at:]]


def middle(messages: Sequence[Message], keep_recent: int) -> int:
    """Where the messages end that a summary would stand for: they begin after the first. 0 if nothing is gained."""
    end = _cut(messages, len(messages) - max(1, keep_recent))
    return end if end > 2 else 0


def compacted(messages: Sequence[Message], end: int, summary: str) -> list[Message]:
    """The conversation with a summary in the place of what came before `end`; the first message stays."""
    note = Message("user", said(SUMMARY + summary).blocks, summary=True)
    return [messages[0], note, *messages[end:]]


def _cut(messages: Sequence[Message], at: int) -> int:
    """A place near `at` where nothing is torn: before a message that answers no call. Of two neighbours one is so."""
    at = min(max(1, at), len(messages))
    after = next((one for one in range(at, len(messages)) if not messages[one].answers), None)
    return after if after is not None else max(1, at - 1)


def lightened(messages: Sequence[Message], most: int = LIGHT) -> list[Message]:
    """The same messages with only the beginning and the end of long answers."""
    return [replace(message, blocks=tuple(_light(block, most) for block in message.blocks)) for message in messages]


def _light(block: Json, most: int) -> Json:
    content = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(content, str) or len(content) <= most:
        return block
    return {**block, "content": _shortened(content, most)}


def closed(messages: Sequence[Message]) -> list[Message]:
    """The conversation with an answer to every call that was open when it was interrupted."""
    found = list(messages)
    if found and found[-1].role == "assistant" and (calls := found[-1].calls):
        found.append(Message("user", tuple(result_block(call["id"], INTERRUPTED, failed=True) for call in calls)))
    return found


def is_whole(messages: Sequence[Message]) -> bool:
    """Whether a conversation can go on: it begins with us, and every call is answered once, in the message after it."""
    asked: list[str] = []
    for message in messages:
        calls = [call["id"] for call in message.calls]
        if sorted(message.answers) != sorted(asked) or (message.role == "assistant" and message.answers):
            return False
        if calls and (message.role == "user" or len(set(calls)) < len(calls)):
            return False
        asked = calls
    return bool(messages) and messages[0].role == "user" and not asked


def transcript(messages: Sequence[Message]) -> str:
    """A conversation as text, for whoever summarises it: long parts are cut, and of a long whole the oldest goes."""
    rows = [_row(message.role, block) for message in messages for block in message.blocks]
    kept: list[str] = []
    size = 0
    for row in reversed([row for row in rows if row]):
        size += len(row)
        if size > TRANSCRIPT:
            kept.append("(Older parts were left out.)")
            break
        kept.append(row)
    return "\n\n".join(reversed(kept))


def _row(role: str, block: Json) -> str:
    kind = block.get("type")
    if kind == "text":
        return f"[{role}] {_shortened(str(block['text']))}"
    if kind == "tool_use":
        return f"[call {block['name']}] {_shortened(json.dumps(block.get('input'), ensure_ascii=False))}"
    if kind == "tool_result":
        return f"[{'error' if block.get('is_error') else 'answer'}] {_shortened(str(block.get('content')))}"
    return ""


def _shortened(text: str, most: int = _PART) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}\n[...]\n{text[-most // 2 :]}"
