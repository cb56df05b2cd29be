"""`orchard cancel`: a whole plan, or some of its jobs; never the one where the other was meant."""

from collections.abc import Iterator, Mapping, Sequence

import click

from orchard.app import App
from orchard.core.job_names import find_job, jobs_called, jobs_in_group
from orchard.errors import NotFound, UsageError
from orchard.model.plan import VALIDATION, Job, JobId, PlanId
from orchard.operations.selection import find_plan, named
from orchard.surfaces.cli.commands.plan_actions import ask_engine
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_of, complete_plans_and_jobs, not_empty, plan_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import safe
from orchard.surfaces.cli.terminal import Terminal

Jobs = list[JobId] | None
"""The jobs to cancel; None: the whole plan."""

NOW: Mapping[str, str] = {
    "scaffolding": "is still being scaffolded",
    "pending": "has not started",
    "running": "goes on",
    "paused": "is paused",
    "waiting": "waits",
    "succeeded": "has succeeded",
    "failed": "has failed",
    "canceled": "is canceled as well",
}
"""What a plan is after some of its jobs were canceled."""


@verb(
    "cancel",
    examples="""
orchard cancel                    # the plan that is under way, if there is one only
orchard cancel login-3f2a         # that plan
orchard cancel login-3f2a:api     # one job of it; what needs the job is blocked
orchard cancel api docs           # two jobs of the plan that is under way
orchard cancel backend --plan login-3f2a   # all jobs of a group
""",
)
@click.argument("names", metavar="[PLAN|JOB|GROUP]...", nargs=-1, shell_complete=complete_plans_and_jobs,
                callback=not_empty)  # fmt: skip
@plan_option
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who read the plan later.")
def cancel(terminal: Terminal, names: tuple[str, ...], plan: str | None, reason: str) -> None:
    """Stop a plan, or some of its jobs; what they wrote is kept.

    Plans, jobs and groups are named in full: the beginning of a name is not enough. Where a name is that of a plan
    and of a job, nothing is canceled.
    """
    app = app_of(terminal)
    found, jobs = meant(app, names, plan)
    if jobs is None:
        answer = ask_engine(app, "cancel_plan", plan=found, reason=reason)
        terminal.answer({"plan": found, **answer}, text.done(f"Plan {found} is canceled."), text.next_retry(found))
        return
    answer = ask_engine(app, "cancel_jobs", plan=found, jobs=jobs, reason=reason)
    done = answer["jobs"]
    what = f"Job '{safe(done[0])}' is" if len(done) == 1 else f"Jobs {safe(', '.join(done))} are"
    terminal.answer(
        {"plan": found, **answer},
        text.done(f"{what} canceled; plan {found} {NOW[app.summary(found).status]}."),
        text.next_retry(found, " ".join(done)),
    )


def meant(app: App, names: Sequence[str], plan: str | None) -> tuple[PlanId, Jobs]:
    """What the words mean: a plan, or jobs of one plan."""
    if not names:
        return app.find_plan(plan, "cancel_plan"), None
    if plan is None and len(names) == 1:
        return _one(app, names[0])
    if plan is None:
        found = [_one(app, name) for name in names]
        if any(jobs is None for _, jobs in found) or len({one for one, _ in found}) > 1:
            raise UsageError("These are not jobs of one plan.", hint="orchard cancel JOB... --plan PLAN")
        return found[0][0], list(dict.fromkeys(job for _, jobs in found for job in jobs or ()))
    plan_id = app.find_plan(plan, "cancel_plan")
    jobs = app.run_of(plan_id).plan.jobs
    wanted = [job for name in names for job in jobs_in_group(jobs, name) or [find_job(plan_id, jobs, name, exact=True)]]
    return plan_id, list(dict.fromkeys(wanted))


def _one(app: App, name: str) -> tuple[PlanId, Jobs]:
    """A plan, a job or a group, by one word; of jobs, those of plans that are under way are looked at."""
    if app.reader.plan(PlanId(name)) is not None:
        return PlanId(name), None
    if ":" in name:
        plan, _, job = name.partition(":")
        return meant(app, [job], plan)
    plans = [row.id for row in app.reader.plans() if row.name == name]
    holders = _holders(app, name)
    if not holders:
        return find_plan(app.reader.plans(), name, exact=True, jobs=_names_under_way(app)), None
    if plans or len(holders) > 1:
        commands = [f"orchard cancel {plan}" for plan in plans] + [f"orchard cancel {plan}:{name}" for plan in holders]
        what = "a plan and of a job" if plans else f"a job in {len(holders)} plans"
        raise UsageError(
            f"'{safe(name)}' is the name of {what}; nothing was canceled.", hint=f"One of: {'; '.join(commands)}"
        )
    plan_id, jobs = next(iter(holders.items()))
    if len(jobs) > 1 and not jobs_in_group(app.run_of(plan_id).plan.jobs, name):
        raise NotFound(f"'{safe(name)}' could be any of these jobs: {named(jobs)}", hint="Give the full id.")
    return plan_id, jobs


def _holders(app: App, name: str) -> dict[PlanId, list[JobId]]:
    """The plans under way with a job or a group of this name, and which jobs those are."""
    found = {}
    for plan, jobs in _under_way(app):
        if called := jobs_in_group(jobs, name) or jobs_called(jobs, name):
            found[plan] = called
    return found


def _names_under_way(app: App) -> list[str]:
    """Every word for a job, or for a group of jobs, that a plan under way knows."""
    jobs = [job for _, known in _under_way(app) for job in known.values() if job.id != VALIDATION]
    words = ((job.id, job.id.rpartition("/")[2], job.name, job.group) for job in jobs)
    return [word for some in words for word in some if word]


def _under_way(app: App) -> Iterator[tuple[PlanId, Mapping[JobId, Job]]]:
    for row in app.reader.plans():
        if not row.settled and not row.summary.deleted:
            yield row.id, app.run_of(row.id).plan.jobs
