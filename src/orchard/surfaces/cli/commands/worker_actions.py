"""Verbs about workers: deploying jobs by hand, and talking with the agents that work on jobs."""

import click

from orchard.app import App
from orchard.errors import NotFound
from orchard.model.plan import JobId, PlanId
from orchard.operations.workers import MESSAGE_BYTES
from orchard.surfaces.cli.commands.plan_actions import ask_engine, go_on
from orchard.surfaces.cli.commands.retry import meant
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import (
    app_for_work,
    app_of,
    detach_option,
    job_argument,
    jobs_argument,
    plan_option,
)
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.terminal import Terminal, read_input


@verb("deploy", examples="orchard deploy models api\norchard deploy docs --plan login-3f2a --detach")
@jobs_argument
@plan_option
@detach_option
def deploy(terminal: Terminal, jobs: tuple[str, ...], plan: str | None, detach: bool) -> int:
    """Let jobs run of a plan that says 'deploy: manual'.

    Each starts when what it needs has succeeded. Without JOB, all that wait to be deployed are.
    """
    app = app_for_work(terminal)
    found, wanted = meant(app, jobs, plan)
    waiting = wanted if wanted is not None else app.run_of(found).to_deploy
    if not waiting:
        raise NotFound(f"No job of plan '{found}' waits to be deployed.", f"orchard status {found}")
    return go_on(terminal, app, found, "deploy_jobs", detach=detach, jobs=waiting)


@verb(
    "send",
    examples="""
orchard send api "Use the helper in web/forms.py"
orchard send login-3f2a:api - < remarks.md         # a long message from stdin
orchard send api "And now the tests" --detach      # do not wait for its answer
""",
)
@job_argument
@click.argument("message", metavar="MESSAGE")
@plan_option
@detach_option
def send(terminal: Terminal, job: str, message: str, plan: str | None, detach: bool) -> int:
    """Say something to the agent that works on JOB.

    An idle agent goes on at once, in its session, and what it answers is shown. One that is at work is given MESSAGE
    when its turn ends; 'orchard interrupt' ends it now. MESSAGE '-' is read from stdin.
    """
    app = app_for_work(terminal)
    found, job_id = app.find_job(job, plan)
    said = _read(message)
    if _is_idle(app, found, job_id):
        return go_on(terminal, app, found, "send_message", detach=detach, job=job_id, message=said)
    answer = ask_engine(app, "send_message", plan=found, job=job_id, message=said)
    terminal.answer({"plan": found, **answer}, text.done(f"The agent of job '{job_id}' gets it when its turn ends."))
    return 0


def _read(message: str) -> str:
    return read_input("-", MESSAGE_BYTES).decode(errors="replace") if message == "-" else message


def _is_idle(app: App, plan: PlanId, job: JobId) -> bool:
    worker = app.job(job, plan).worker
    return worker is not None and worker.state == "idle"


@verb("interrupt", examples="orchard interrupt api && orchard send api 'Leave the database alone'")
@job_argument
@plan_option
def interrupt(terminal: Terminal, job: str, plan: str | None) -> None:
    """End the present turn of the agent that works on JOB.

    Nothing fails and nothing is lost: it is idle then, with its session and its files, and waits for a message. If
    one was sent already, it goes on with that.
    """
    app = app_of(terminal)
    found, job_id = app.find_job(job, plan)
    answer = ask_engine(app, "interrupt_worker", plan=found, job=job_id)
    idle = answer["worker"] == "idle"
    done = "is interrupted and idle." if idle else "is interrupted, and goes on with what was sent to it."
    lines = [text.done(f"The agent of job '{job_id}' {done}")]
    lines += (
        [
            text.next_command(
                f"orchard send {job_id} MESSAGE --plan {found}; or: orchard complete {job_id} --plan {found}"
            )
        ]
        if idle
        else []
    )
    terminal.answer({"plan": found, **answer}, *lines)


@verb("complete", examples="orchard complete api\norchard complete login-3f2a:api --detach")
@job_argument
@plan_option
@detach_option
def complete(terminal: Terminal, job: str, plan: str | None, detach: bool) -> int:
    """Say that the work of an idle agent is done.

    What lies in the worktree of JOB is committed, checked and merged like any other work.
    """
    app = app_for_work(terminal)
    found, job_id = app.find_job(job, plan)
    return go_on(terminal, app, found, "complete_task", detach=detach, job=job_id)
