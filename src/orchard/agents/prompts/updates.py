"""What an agent is told at the beginning of a turn about its subtasks, and about itself."""

from collections.abc import Sequence

from msgspec import Struct

from orchard.agents.prompts.quote import code, data

UPDATES = 50
"""Updates that one turn tells in full; of more only the number is told."""
TEXT = 2_000

_HEADS = {"error": "Something is wrong", "idle_response": "It waits", "progress": "How far it is"}
_AGAIN = "It is not certain whether you were told some of this in a turn that was stopped."


class Update(Struct, frozen=True):
    kind: str
    """`error`, `idle_response` or `progress`."""
    text: str
    about: str | None = None
    """The subtask; None: the agent itself, of which something is asked."""


def with_updates(instructions: str, updates: Sequence[Update], *, again: bool = False) -> str:
    """These instructions, and below them what happened meanwhile: in the order in which it is given."""
    if not updates:
        return instructions
    asked = [one.text for one in updates if one.about is None]
    told = [one for one in updates if one.about is not None]
    parts = [instructions.strip()] if instructions.strip() else []
    if told:
        many = f"\n\nAnd {len(told) - UPDATES} more." if len(told) > UPDATES else ""
        head = "## What happened to your subtasks meanwhile\n\nThe orchestrator tells you this; no person wrote it."
        head += f" {_AGAIN}" if again else ""
        parts.append(head + "\n\n" + "\n\n".join(_told(one) for one in told[:UPDATES]) + many)
    if asked:
        parts.append("## What the orchestrator asks you\n\n" + "\n\n".join(asked))
    return "\n\n".join(parts) + "\n"


def _told(update: Update) -> str:
    head = f"### {code(update.about)}: {_HEADS.get(update.kind, update.kind)}"
    return f"{head}\n\n{data(update.kind, update.text, TEXT)}"
