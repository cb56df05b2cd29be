"""That a job failed, in a person's words."""

from collections.abc import Mapping

from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION

VALIDATION_FAILED: Mapping[Phase, str] = {
    Phase.MERGE_FI: "merging the results failed",
    Phase.PRECHECKS: "merging onto the target failed",
    Phase.SETUP: "setup for verify failed",
    Phase.WORK: "verify failed",
    Phase.COMMIT: "verify failed",
    Phase.POSTCHECKS: "looking at the target before landing failed",
    Phase.MERGE_RI: "landing failed",
}
"""What the phases of the validation job do: only one of them runs `verify`."""


def failed_words(job: str, phase: str | None) -> str:
    """That a job failed, and where: the subject and the verb of a sentence."""
    if job == VALIDATION:
        return VALIDATION_FAILED[Phase(phase) if phase else Phase.WORK]
    return f"Job '{job}' failed{f' in {phase}' if phase else ''}"
