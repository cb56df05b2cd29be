"""Every work of a plan with the place where its file has it: what is wrong with one is said there."""

from collections.abc import Iterator, Mapping

from orchard.model.plan import VALIDATION, AgentWork, JobId, Plan, Work
from orchard.planfile.places import Finding, Path

Paths = Mapping[JobId, Path]
"""Where the jobs of a plan stand in its file."""


def named(plan: Plan) -> Paths:
    """Ways to the jobs of a plan that came by no file: they go by their names."""
    return {job: (f"job '{job}'",) for job in plan.jobs}


def spoken(path: Path) -> str:
    """Such a way in words: `job 'a'.postchecks[0].env.PATH`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def works_of(plan: Plan, paths: Paths) -> Iterator[tuple[Path, Work, bool]]:
    """Each work, where it stands, and whether it is the work of a job: not a check, a setup or the plan's `verify`."""
    for number, work in enumerate(plan.setup or ()):
        yield ("setup", number), work, False
    if plan.verify is not None:
        yield ("verify",), plan.verify, False
    for job in plan.jobs.values():
        if job.id == VALIDATION:
            continue
        path = paths.get(job.id, ())
        if job.work is not None:
            yield (*path, "work"), job.work, True
        for name, works in (("setup", job.setup), ("prechecks", job.prechecks), ("postchecks", job.postchecks)):
            for number, work in enumerate(works or ()):
                yield (*path, name, number), work, False


def interactive_findings(plan: Plan, paths: Paths) -> list[Finding]:
    """Works that nobody could talk to: what is not the work of a job decides by itself."""
    return [
        Finding((*path, "interactive"), "a check or a setup is interactive; only the work of a job can be")
        for path, work, own in works_of(plan, paths)
        if not own and isinstance(work, AgentWork) and work.interactive
    ]
