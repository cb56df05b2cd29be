"""The steps of an attempt, in their order."""

from enum import StrEnum


class Phase(StrEnum):
    """One step of an attempt."""  # the API describes it so

    MERGE_FI = "merge-fi"
    SETUP = "setup"
    PRECHECKS = "prechecks"
    WORK = "work"
    COMMIT = "commit"
    POSTCHECKS = "postchecks"
    MERGE_RI = "merge-ri"


PHASES: tuple[Phase, ...] = tuple(Phase)
_SHOWN = {Phase.MERGE_FI: "preparing", Phase.MERGE_RI: "merging"}


def shown_phase(phase: str) -> str:
    """What people read of a phase; programs are told its id."""
    return _SHOWN.get(Phase(phase), Phase(phase).value)


def phase_of_words(words: str) -> Phase | None:
    """The phase that a person means: by what is shown of it, or by its id."""
    return next((phase for phase in PHASES if words in (phase.value, shown_phase(phase))), None)


# What these phases do runs once per attempt: a program of the user's may have had effects that
# we cannot see. The other phases are ours, idempotent and checked against git, so a crash in one
# of them is continued rather than reported.
RUNS_PROGRAMS = frozenset({Phase.SETUP, Phase.PRECHECKS, Phase.WORK, Phase.POSTCHECKS})


def at_or_after(phase: Phase, first: Phase) -> bool:
    """Whether `phase` still has to run when an attempt begins at `first`."""
    return PHASES.index(phase) >= PHASES.index(first)
