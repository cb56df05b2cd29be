"""What an agent is told when people talk to it while it works; the rest of what agents are told is in `context`.

A message is a person's own text, so it stands as it is. A session that goes on is given the new ones only; one that
begins anew gets the task and everything that was said since.
"""

from collections.abc import Sequence

from orchard.agents.prompts.quote import verbatim

_AGAIN = (
    "Your last turn was stopped before it was certain that you had read what follows. What of it you have done "
    "already, do not do again."
)


def message_instructions(messages: Sequence[str], *, again: bool = False) -> str:
    """Messages for a session that goes on; `again`: it may have heard some of them."""
    return "\n\n---\n\n".join([*([_AGAIN] if again else []), *(verbatim(text) for text in messages)]) + "\n"


def with_messages(instructions: str, messages: Sequence[str], *, again: bool = False) -> str:
    """These instructions, and below them what people have said since the task was given."""
    if not messages:
        return instructions
    head = "## What you were told since\n\nMessages from the person you work for, the newest last: part of your task."
    return f"{instructions.rstrip()}\n\n{head}\n\n{message_instructions(messages, again=again)}"
