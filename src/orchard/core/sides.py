"""Conflicts that are resolved by taking a side: whose version is kept, in a person's words."""

from collections.abc import Sequence

SIDES = ("ours", "theirs")
"""The ways to resolve a conflict by taking a side; what the other one did is dropped."""


def kept_version(by: str, ours: Sequence[str], theirs: Sequence[str], target: str | None) -> str:
    """Whose version of a conflict is kept and whose is not, where a side was taken; without jobs it is the target's.

    Empty where no side was taken, or where no job is known on either side.
    """
    if by not in SIDES or not (ours or theirs):
        return ""
    the_target = f"the target '{target}'" if target else "the target"
    kept, dropped = (", ".join(side) or the_target for side in ((ours, theirs) if by == "ours" else (theirs, ours)))
    return f"the version of {kept} is kept, that of {dropped} is not"
