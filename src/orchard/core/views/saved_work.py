"""What Orchard saved of folders before it reset or removed them, as surfaces show it."""

from typing import Annotated

from msgspec import Meta, Struct


class SavedRef(Struct, frozen=True):
    """Work that was saved of a job's folder."""

    ref: str
    commit: str
    why: str


class SavedWorkView(Struct, frozen=True, kw_only=True):
    """What was saved of a folder."""

    ref: str
    commit: str
    plan: str | None
    job: str | None
    at: Annotated[int, Meta(description="Seconds since 1970.")]
    subject: str
    files: int


class Restored(Struct, frozen=True):
    """Saved work, written into a folder."""

    folder: str
    commit: str
