"""Verbs that ask something of jobs, and of the agents that work on them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import click

from orchard.app import App
from orchard.core.job_names import find_job, job_word, jobs_called, jobs_in_group
from orchard.core.run import Run
from orchard.engine.server.session import Session
from orchard.errors import Next, NotFound, UsageError
from orchard.model.events.plans import Json
from orchard.model.plan import VALIDATION, Job, JobId, PlanId
from orchard.operations.commands.completion import complete_task
from orchard.operations.commands.conversation import MESSAGE_BYTES, interrupt_worker, send_message
from orchard.operations.commands.jobs import approve_job, cancel_jobs, force_fail_job, reject_job
from orchard.operations.commands.permissions import allow_call, deny_call
from orchard.operations.commands.plans import cancel_plan
from orchard.operations.commands.retry import retry_plan
from orchard.operations.commands.workers import deploy_jobs
from orchard.operations.operation import Verb
from orchard.operations.selection import NAMED, find_plan, named
from orchard.surfaces.cli.action import Asked, action
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_of, complete_plans_and_jobs, not_empty, options_of, plan_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe, safe_lines
from orchard.surfaces.cli.render.summary import saved_lines, saved_refs
from orchard.surfaces.cli.terminal import Terminal, read_input
from orchard.surfaces.next_steps import in_commands


@action(
    retry_plan,
    words={
        "from_phase": "Begin at this phase.",
        "fresh": "Use a new worktree.",
        "keep": "Go on with what the last attempt left in the worktree.",
        "fresh_session": "Agents begin a new session instead of going on in the last one.",
        "work": "Replace the job's work.",
        "prechecks": "Run this check before the work.",
        "postchecks": "Run this check after the work.",
    },
    examples="""
orchard retry                          # all failed jobs of the newest plan, or of the only one that has some
orchard retry login-3f2a               # all failed jobs of that plan
orchard retry backend/api --from work
orchard retry api --work 'make fix'    # with another command
orchard retry api --work @fix.yaml     # with the work in a file
orchard retry api --fresh              # in a new worktree; what lies in the old one is saved
orchard retry api --keep               # on with what a failed command left; else it begins clean
orchard retry api --fresh-session      # its agent is told everything anew
""",
)
def retry(asked: Asked) -> int:
    """A new attempt begins where the last one failed. A command that failed begins in a clean worktree, unless you have
    edited the one it worked in; an agent goes on in its own. 'retry' says which. Jobs that were blocked by it go on
    by themselves. Retrying also resumes a paused plan.
    """
    paused = asked.run.paused is not None

    def told(answer: Json) -> list[str]:
        goes_on = paused and asked.run.paused is None
        said = [f"Plan {asked.plan} was paused; it goes on now."] if goes_on else []
        return [*said, *beginnings(asked.run, answer.get("begins", []))]

    return asked.go_on(told)


def beginnings(run: Run, begins: Sequence[Json]) -> list[str]:
    """In which worktrees jobs begin that are tried again: clean ones, or those that their last attempts left."""
    clean = [one for one in begins if one["worktree"] == "clean"]
    edited = [one for one in begins if one["worktree"] == "kept" and one["edited"]]
    kept = [one for one in begins if one["worktree"] == "kept" and not one["edited"]]
    said = []
    if clean:
        said.append(
            f"{_begin(run, clean, 'begins', 'begin')} clean; {_left(clean, 'anything')} is saved, except ignored "
            f"files: orchard recover --plan {run.id}"
        )
    if edited:
        said.append(f"{_begin(run, edited, 'goes', 'go')} on with what you edited; --fresh begins clean.")
    if kept:
        said.append(f"{_begin(run, kept, 'goes', 'go')} on with {_left(kept)}; --fresh begins clean.")
    return said


def _begin(run: Run, jobs: Sequence[Json], one: str, several: str) -> str:
    names = [job_word(each["job"], run.plan.jobs) for each in jobs]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"Job '{names[0]}' {one}" if len(names) == 1 else f"Jobs {', '.join(names[:NAMED])}{more} {several}"


def _left(jobs: Sequence[Json], what: str = "what") -> str:
    return f"{what} attempt {jobs[0]['attempt']} left" if len(jobs) == 1 else f"{what} their last attempts left"


@action(force_fail_job, examples="orchard force-fail backend/api --reason 'it loops'")
def force_fail(asked: Asked) -> int:
    answer = asked.request()
    failed = text.done(f"Job '{job_word(asked.job, asked.run.plan.jobs)}' is marked as failed.")
    return asked.tell({"job": asked.job, **answer}, failed, text.next_retry(asked.plan, asked.job))


@action(approve_job, examples="orchard approve api\norchard approve login-3f2a:api --yes    # in a script")
def approve(asked: Asked) -> int:
    """It first shows what the job changed, then asks. Without a terminal, pass --yes; otherwise it exits with 4."""
    _only_a_person(asked)
    asked.refuse()
    stat = asked.app.diff(asked.job, asked.plan, stat=True).decode(errors="replace")
    asked.terminal.note(*[text.raw(row) for row in safe_lines(stat) if row])
    asked.confirm(f"Approve the changes of job '{safe(asked.job)}'?")
    return asked.go_on()


@action(reject_job, examples="orchard reject api 'The session must end after an hour'")
def reject(asked: Asked) -> int:
    """The agent goes back to work in its session; a job without an agent fails. The rejected work is kept."""
    return asked.go_on()


@action(allow_call, examples="orchard allow api\norchard allow login-3f2a:api --question 2 --always")
def allow(asked: Asked) -> int:
    """'orchard waiting' shows what the agent would do. It goes on at once."""
    _only_a_person(asked)
    answer = asked.request()
    more = " It is not asked about again." if asked.values["always"] else ""
    return asked.tell(answer, text.done(f"The agent of job '{asked.job}' uses {_call(answer)}.{more}"), *_input(answer))


@action(deny_call, examples="orchard deny api\norchard deny api --reason 'Use the test database'")
def deny(asked: Asked) -> int:
    _only_a_person(asked)
    answer = asked.request()
    return asked.tell(answer, text.done(f"The agent of job '{asked.job}' goes on without {_call(answer)}."))


def _only_a_person(asked: Asked) -> None:
    """Nothing that a job has started answers what a person is asked."""
    from orchard.surfaces.cli.consent import refuse_in_job  # brings what only `trust` needs beside it

    assert isinstance(asked.operation.verb, Verb)
    meant = f"orchard {asked.operation.verb.name} {asked.plan}:{asked.job}"
    refuse_in_job(asked.app, "answer what a person is asked", meant)


def _input(answer: Mapping[str, object]) -> list[Line]:
    """What the call is made with, whole: what it is about is said by the agent."""
    given = str(answer["input"])
    return [[("    ", ""), (row, "dim")] for row in safe_lines(given, len(given) * 4)] if given else []


def _call(answer: Mapping[str, object]) -> str:
    tool, about = str(answer["tool"]), str(answer["about"])
    more = f" ({safe(about, 200)})" if about and not tool.endswith(f": {about}") else ""
    return f"{safe(tool)}{more}"


# ------------------------------------------------------------------------------------------- workers


@action(deploy_jobs, examples="orchard deploy models api\norchard deploy docs --plan login-3f2a --detach")
def deploy(asked: Asked) -> int:
    """Each job starts when the jobs it needs have succeeded. Without JOB, all jobs that wait to be deployed start."""
    if asked.values["jobs"] is None:
        asked.values["jobs"] = asked.run.to_deploy
    if not asked.values["jobs"]:
        raise NotFound(f"No job of plan '{asked.plan}' waits to be deployed.", f"orchard status {asked.plan}")
    return asked.go_on()


@action(
    send_message,
    examples="""
orchard send api "Use the helper in web/forms.py"
orchard send login-3f2a:api - < remarks.md         # a long message from stdin
orchard send api "And now the tests" --detach      # do not wait for its answer
orchard send api/subtask-k3x9p "Only the parser"   # to the agent of a subtask
""",
)
def send(asked: Asked) -> int:
    """An idle agent goes on at once in its session, and its answer is shown. A busy agent gets MESSAGE when its turn
    ends ('orchard interrupt' ends the turn now), a paused one when you resume it. JOB may be a subtask. '-' reads
    MESSAGE from stdin.
    """
    if asked.values["message"] == "-":
        asked.values["message"] = read_input("-", MESSAGE_BYTES).decode(errors="replace")
    if (subtask := asked.subtask) is not None:
        asked.request(partial(_sent_to_subtask, asked, subtask, asked.app.reader.last_seq()))
        return 0
    worker = asked.app.job(asked.job, asked.plan).worker
    if worker is not None and worker.state == "idle":
        return asked.go_on()
    answer = asked.request()
    if asked.run.records[JobId(asked.job)].is_paused and answer["worker"] == "paused":
        return asked.tell(answer, *_waits_for_resumption(asked, f"The agent of job '{asked.job}'"))
    when = "it goes on" if answer["worker"] == "paused" else "its turn ends"
    return asked.tell(answer, text.done(f"The agent of job '{asked.job}' gets it when {when}."))


async def _sent_to_subtask(asked: Asked, subtask: str, seen: int, session: Session, answer: Json) -> None:
    """Say what becomes of the message; where the agent goes on with it at once, show what it answers."""
    from orchard.surfaces.cli.commands.jobs.workers import show_answer

    if answer["queued"] and answer["worker"] == "paused":
        asked.tell(answer, *_waits_for_resumption(asked, f"Subtask '{subtask}'"))
    elif answer["queued"] or asked.detach:
        said = "gets it when its turn ends" if answer["queued"] else "goes on with it"
        shown = text.next_command(f"orchard talk {asked.job} --plan {asked.plan} -f")
        asked.tell(answer, text.done(f"Subtask '{subtask}' {said}. What it answers is shown by 'talk'."), shown)
    else:
        asked.tell(answer, text.done(f"Subtask '{subtask}' goes on with it."))
        await show_answer(asked.terminal, asked.app, session, asked.plan, asked.job, seen)


def _waits_for_resumption(asked: Asked, who: str) -> tuple[Line, Line]:
    resume = in_commands(Next("resume_worker", asked.plan, asked.job))
    return text.done(f"{who} is paused: the message waits until it is resumed."), text.next_command(resume)


@action(interrupt_worker, examples="orchard interrupt api && orchard send api 'Leave the database alone'")
def interrupt(asked: Asked) -> int:
    """Nothing fails and nothing is lost: the agent keeps its session and its files, and waits for a message. If you
    have sent one already, it goes on with that.
    """
    answer, job = asked.request(), asked.job
    who = f"subtask '{asked.subtask}'" if asked.subtask is not None else f"job '{job}'"
    if answer["worker"] != "idle":
        goes_on = f"The agent of {who} is interrupted, and goes on with what was sent to it."
        return asked.tell(answer, text.done(goes_on))
    steps = f"orchard send {job} MESSAGE --plan {asked.plan}; or: orchard complete {job} --plan {asked.plan}"
    done = text.done(f"The agent of {who} is interrupted and idle.")
    return asked.tell(answer, done, text.next_command(steps))


@action(complete_task, examples="orchard complete api\norchard complete login-3f2a:api --detach")
def complete(asked: Asked) -> int:
    """Orchard commits, checks and merges what is in the worktree of JOB, like any other work. A subtask ends, and the
    agent that asked for it can take over what it changed.
    """
    if (subtask := asked.subtask) is not None:
        return asked.tell(asked.request(), text.done(f"Subtask '{subtask}' is completed."), _see(asked))
    return asked.go_on()


def _see(asked: Asked) -> Line:
    return text.next_command(f"orchard subtask {asked.job} --plan {asked.plan}")


# ---------------------------------------------------------------------------------------- canceling

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
orchard cancel                    # the plan that is under way, if there is only one
orchard cancel login-3f2a         # that plan
orchard cancel login-3f2a:api     # one job of it; what needs the job is blocked
orchard cancel api docs           # two jobs of the plan that is under way
orchard cancel backend --plan login-3f2a   # all jobs of a group
""",
)
@click.argument("names", metavar="[PLAN|JOB|GROUP]...", nargs=-1, shell_complete=complete_plans_and_jobs,
                callback=not_empty)  # fmt: skip
@plan_option
@options_of(cancel_plan)
def cancel(terminal: Terminal, names: tuple[str, ...], plan: str | None, reason: str) -> int:
    """Name plans, jobs and groups in full; the beginning of a name is not enough. If a name fits both a plan and a job,
    nothing is canceled. Write a group that has the name of a job with a slash: 'backend/'.
    """
    app = app_of(terminal)
    found, jobs = _meant(app, names, plan)
    if jobs is None:
        whole = Asked(terminal, app, cancel_plan, found, {"reason": reason})
        before = saved_refs(whole.run)
        answer = whole.request()
        told = [text.done(f"Plan {found} is canceled."), *saved_lines(whole.run, before)]
        return whole.tell(answer, *told, text.next_retry(found))
    some = Asked(terminal, app, cancel_jobs, found, {"jobs": jobs, "reason": reason})
    before = saved_refs(some.run)
    answer = some.request()
    done = answer["jobs"]
    what = f"Job '{safe(done[0])}' is" if len(done) == 1 else f"Jobs {safe(', '.join(done))} are"
    said = text.done(f"{what} canceled; plan {found} {NOW[app.summary(found).status]}.")
    return some.tell(answer, said, *saved_lines(some.run, before), text.next_retry(found, " ".join(done)))


def _meant(app: App, names: Sequence[str], plan: str | None) -> tuple[PlanId, Jobs]:
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
    wanted = [job for name in names for job in _of_group(jobs, name) or [find_job(plan_id, jobs, name, exact=True)]]
    return plan_id, list(dict.fromkeys(wanted))


def _one(app: App, name: str) -> tuple[PlanId, Jobs]:
    """A plan, a job or a group, by one word; of jobs, those of plans that are under way are looked at."""
    if app.reader.plan(PlanId(name)) is not None:
        return PlanId(name), None
    if ":" in name:
        plan, _, job = name.partition(":")
        return _meant(app, [job], plan)
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
    if len(jobs) > 1 and not _of_group(app.run_of(plan_id).plan.jobs, name):
        raise NotFound(f"'{safe(name)}' could be any of these jobs: {named(jobs)}", hint="Give the full id.")
    return plan_id, jobs


def _of_group(jobs: Mapping[JobId, Job], name: str) -> list[JobId]:
    """The jobs of a group; a job with the group's name is meant itself, unless a slash follows: `backend/`."""
    return [] if JobId(name) in jobs else jobs_in_group(jobs, name)


def _holders(app: App, name: str) -> dict[PlanId, list[JobId]]:
    """The plans under way with a job or a group of this name, and which jobs those are."""
    found = {}
    for plan, jobs in _under_way(app):
        if called := _of_group(jobs, name) or jobs_called(jobs, name):
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
