"""A definition of an agent as a document that every surface shows."""

from typing import Annotated

from msgspec import Meta, Struct


class DefinitionItem(Struct, frozen=True):
    """One definition: how an agent is to work, in somebody's words."""

    name: str
    description: str
    origin: Annotated[str, Meta(description="`config`, `repository` or `user`.")]
    file: Annotated[str, Meta(description="Where it stands.")]
    model: str | None
    tools: Annotated[list[str] | None, Meta(description="Those that it leaves an agent; none said: all.")]
    agent: Annotated[str | None, Meta(description="Who works by it; none said: who would get the work anyway.")]
    usable: Annotated[bool, Meta(description="Whether its name means it.")]
    why_not: str | None
