"""What takes a plan further whose jobs met conflicts: to resolve them by hand, or to take a side."""

from orchard.core.run import Run
from orchard.core.sides import SIDES
from orchard.core.states import JobState
from orchard.errors import Hint, Next, hint_from, steps_of
from orchard.model.events.plans import JobFailed
from orchard.model.plan import JobId

TAKE_SIDE = "--resolver"
"""What the text of a hint in an older journal holds that advises to settle a conflict by taking a side."""


def take_side(plan: str, side: str) -> Next:
    return Next("update_plan", plan, args={"resolver": side})


def resolve_step(run: Run, job: JobId) -> Next | None:
    """What resolves the conflict of a job by hand, or goes on with that; None: it has none that could be."""
    record = run.records[job]
    if record.failure is None or not record.failure.merge:
        return None
    if is_open(run, job):
        return Next("resolve_conflict", run.id, job, {"step": "continue"})
    return Next("resolve_conflict", run.id, job)


def is_open(run: Run, job: JobId) -> bool:
    """Whether somebody resolves the very conflict by hand that the job failed with."""
    record = run.records[job]
    opened, failure = record.conflict, record.failure
    return opened is not None and failure is not None and failure.merge == (opened.ours, opened.theirs)


def in_conflict(run: Run) -> list[JobId]:
    """The jobs whose conflicts can be resolved by hand now."""
    return [job for job in run.records if resolve_step(run, job) is not None]


def conflict_hint(run: Run) -> Hint | None:
    """What takes a failed plan further, if all that failed met conflicts that come again with every retry."""
    failed = {job: record.failure for job, record in run.records.items() if record.state is JobState.FAILED}
    if not all(one is not None and one.reason == "conflict" for one in failed.values()):
        return None
    steps = [step for job in failed if (step := resolve_step(run, job)) is not None]
    if steps:
        return next((step for step in steps if step.args), steps[0])
    if run.plan.resolver in SIDES or not all(one is not None and _takes_side(one) for one in failed.values()):
        return None
    return take_side(run.id, "theirs"), " && ", Next("retry_plan", run.id), "  # or: --resolver ours"


def advised_steps(failure: JobFailed | None) -> list[Next]:
    """The steps that a failure was recorded with; an older journal has none of them."""
    return steps_of(hint_from(failure.advice)) if failure is not None and failure.advice else []


def steps_of_failure(run: Run, job: JobId) -> list[Next]:
    """What takes a failed or canceled job further."""
    record, again = run.records[job], Next("retry_job", run.id, job)
    advised, by_hand = advised_steps(record.failure), resolve_step(run, job)
    if by_hand is not None:
        advised = [by_hand, *(step for step in advised if step.operation != by_hand.operation)]
    covered = again in advised or any(step.operation == "retry_plan" for step in advised)
    return advised if covered else [*advised, again]


def _takes_side(failure: JobFailed) -> bool:
    """Whether it was advised to take a side; an older journal has only the text of that."""
    steps = advised_steps(failure)
    return any(step.operation == "update_plan" for step in steps) if steps else TAKE_SIDE in (failure.hint or "")
