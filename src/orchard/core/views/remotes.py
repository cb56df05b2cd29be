"""What of a plan is on a remote, or should be."""

from typing import Annotated

from msgspec import Meta, Struct


class Push(Struct, frozen=True):
    """What became of the push."""

    ok: bool
    message: str


class PullRequest(Struct, frozen=True):
    """The pull request that asks to merge the result."""

    url: str
    number: int
    branch: Annotated[str, Meta(description="The branch of the remote that holds the result.")]
    target: Annotated[str, Meta(description="The branch that it is to be merged into.")]
    commit: str
