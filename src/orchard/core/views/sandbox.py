"""What the wall around a job's programs kept them from, as documents show it."""

from typing import Annotated

from msgspec import Meta, Struct

from orchard.core.records import Attempt


class RefusalView(Struct, frozen=True, kw_only=True):
    """Something that the wall kept a program of the job from."""

    kind: Annotated[str, Meta(description="`network` or `file`.")]
    name: Annotated[str, Meta(description="A host and port, or a path.")]
    reason: str
    setting: Annotated[str | None, Meta(description="The line of configuration or plan that opens exactly this.")]
    count: Annotated[int, Meta(description="How often, by its order of magnitude: 1, 10, 100.")]
    phase: str
    subtask: str | None = None


def refusals(attempt: Attempt) -> list[RefusalView]:
    return [
        RefusalView(
            kind=one.kind,
            name=one.name,
            reason=one.reason,
            setting=one.setting,
            count=one.count,
            phase=one.phase.value,
            subtask=one.subtask,
        )
        for one in attempt.refused.values()
    ]
