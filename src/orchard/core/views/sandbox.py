"""What the wall around a job's programs kept them from, as documents show it."""

from typing import Annotated

from msgspec import Meta, Struct


class RefusalView(Struct, frozen=True, kw_only=True):
    """Something that the wall kept a program of the job from."""

    kind: Annotated[str, Meta(description="`network`, `file` or `limit`.")]
    name: Annotated[str, Meta(description="A host and port, a path, or what is limited.")]
    reason: str
    setting: Annotated[str | None, Meta(description="The line of configuration or plan that opens exactly this.")]
    count: Annotated[int, Meta(description="How often, by its order of magnitude: 1, 10, 100.")]
    phase: str
    subtask: str | None = None
    program: Annotated[str | None, Meta(description="Who was kept from it, where that can be told.")] = None
    how: Annotated[str | None, Meta(description="Where that line belongs, fit to what stands there now.")] = None
