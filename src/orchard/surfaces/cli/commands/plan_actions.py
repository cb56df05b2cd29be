"""Verbs that ask something of a plan: one request each."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from orchard.app import App
from orchard.core.job_names import job_word
from orchard.core.run import Run
from orchard.core.views.documents import PlanSummary, SavedWorkView
from orchard.engine.server.session import Session
from orchard.errors import UsageError
from orchard.model.events.plans import Json, LandingIntended, UndoIntended
from orchard.model.plan import JobId, PlanId
from orchard.surfaces.cli.followed import act_and_follow, open_session
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import (
    app_for_work,
    app_of,
    confirm,
    detach_option,
    job_argument,
    plan_argument,
    plan_document,
    plan_option,
    yes_option,
)
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Piece, safe, safe_lines, table
from orchard.surfaces.cli.terminal import Terminal


def ask_engine(app: App, request: str, **values: Any) -> Json:
    """One request that starts no work: to the engine that runs, or done without one."""

    async def ask() -> Json:
        async with AsyncExitStack() as stack:
            session = await open_session(app, stack, work=False)
            answer: Json = await session.request(request, **values)
            return answer

    return asyncio.run(ask())


def go_on(terminal: Terminal, app: App, plan: PlanId, request: str, *, detach: bool, **values: Any) -> int:
    """One request that makes a plan's work go on, and that work."""

    async def act(session: Session) -> PlanId:
        await session.request(request, plan=plan, **values)
        return plan

    return act_and_follow(terminal, app, act, plan, detach=detach)


@verb("pause")
@plan_argument
def pause(terminal: Terminal, plan: str | None) -> None:
    """Let running jobs finish and start nothing new."""
    app = app_of(terminal)
    found = app.find_plan(plan, "pause_plan")
    answer = ask_engine(app, "pause_plan", plan=found)
    terminal.answer({"plan": found, **answer}, text.done(f"Plan {found} is paused."), text.next_resume(found))


@verb("finalize", examples="orchard finalize login-3f2a")
@plan_argument
@detach_option
def finalize(terminal: Terminal, plan: str | None, detach: bool) -> int:
    """Declare a plan complete that a program builds job by job: it starts.

    Such a plan is made through the API or an AI chat, and waits until somebody says that it is complete.
    """
    app = app_for_work(terminal)
    return go_on(terminal, app, app.find_plan(plan, "finalize_plan"), "finalize_plan", detach=detach)


@verb(
    "resume",
    examples="""
orchard resume                                    # the plan that is paused, if there is one only
orchard resume login-3f2a --budget tokens=500000  # with another budget; what it used so far does not count
orchard resume login-3f2a --budget cost=5,minutes=60
""",
)
@plan_argument
@click.option("--budget", metavar="KIND=N,...", help="What it may use from now on: tokens, cost, minutes.")
@detach_option
def resume(terminal: Terminal, plan: str | None, budget: str | None, detach: bool) -> int:
    """Let a paused or interrupted plan go on.

    A plan that waits because its budget is used up may use as much again, or what '--budget' says.
    """
    app = app_for_work(terminal)
    asked = {"budget": read_budget(budget)} if budget is not None else {}
    found = app.find_plan(plan, "resume_plan")
    before = app.run_of(found)

    async def act(session: Session) -> PlanId:
        await session.request("resume_plan", plan=found, **asked)
        if before.settled and before.moving is not None:
            terminal.note(text.done(what_became(before.moving, app.run_of(found))))
        return found

    return act_and_follow(terminal, app, act, found, detach=detach)


def what_became(moving: LandingIntended | UndoIntended, now: Run) -> str:
    """How a landing or an undo ended that was interrupted, and whether the landing stands now."""
    stands = now.landed is not None and now.undone is None
    what = "landing" if isinstance(moving, LandingIntended) else "undo"
    ended = "was completed" if stands is (what == "landing") else "was not completed"
    return (
        f"The interrupted {what} {ended}: the landing on {safe(moving.branch)} {'stands' if stands else 'is undone'}."
    )


def read_budget(text_: str) -> Json:
    """The budget that an option says: `tokens=500000,cost=2.5`."""
    found: Json = {}
    for part in text_.split(","):
        kind, _, amount = (piece.strip() for piece in part.partition("="))
        if kind not in ("tokens", "cost", "minutes") or kind in found:
            raise UsageError(f"'{safe(part)}' is no budget.", "For example: --budget tokens=500000,cost=5,minutes=60")
        try:
            value = float(amount.replace("_", ""))
        except ValueError:
            value = 0.0
        if not 0 < value < 1e15 or (kind == "tokens" and value != int(value)):
            raise UsageError(f"'{safe(amount)}' is no amount of {kind}.", "It must be a number above 0.")
        found[kind] = int(value) if kind == "tokens" else value
    return found


@verb("force-fail", examples="orchard force-fail backend/api --reason 'it loops'")
@job_argument
@plan_option
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who read the plan later.")
def force_fail(terminal: Terminal, job: str, plan: str | None, reason: str) -> None:
    """Stop a job and count it as failed."""
    app = app_of(terminal)
    found, job_id = app.find_job(job, plan, "force_fail_job")
    answer = ask_engine(app, "force_fail_job", plan=found, job=job_id, reason=reason)
    document = {"plan": found, "job": job_id, **answer}
    terminal.answer(
        document, text.done(f"Job '{job_word(job_id)}' is marked as failed."), text.next_retry(found, job_id)
    )


@verb("approve", examples="orchard approve api\norchard approve login-3f2a:api --yes    # in a script")
@job_argument
@plan_option
@yes_option
@detach_option
def approve(terminal: Terminal, job: str, plan: str | None, yes: bool, detach: bool) -> int:
    """Approve the changes of a job that waits for a person.

    Shows what the job changed first, and asks. Without a terminal, pass --yes; otherwise it exits with 4.
    """
    app = app_for_work(terminal)
    found, job_id = app.find_job(job, plan, "approve_job")
    show_stat(terminal, app, found, job_id)
    waits = app.run_of(found).records[job_id].hold is not None  # if not, the engine says so and nobody is asked
    command = f"orchard approve {found}:{job_id} --yes"
    if not confirm(terminal, text.ask_approve(job_id), command, yes=yes or not waits):
        return 4
    return go_on(terminal, app, found, "approve_job", detach=detach, job=job_id)


def show_stat(terminal: Terminal, app: App, plan: PlanId, job: JobId) -> None:
    """What a job changed, file by file."""
    stat = app.diff(job, plan, stat=True).decode(errors="replace")
    terminal.note(*[text.raw(row) for row in safe_lines(stat) if row])


@verb("land", examples="orchard land\norchard land login-3f2a --yes    # in a script")
@plan_argument
@yes_option
@detach_option
def land(terminal: Terminal, plan: str | None, yes: bool, detach: bool) -> int:
    """Land a plan that waits before landing.

    It waits because the plan says 'land: ask', or because the checkout of the target had edits in the way. A landing
    that was undone lands again. Without a terminal, pass --yes; otherwise it exits with 4.
    """
    from orchard.operations.changes import landable

    app = app_for_work(terminal)
    found = app.find_plan(plan, "land_plan")
    document = plan_document(app, found)
    question = text.ask_land(document.name, found, document.target.branch)
    waits = landable(document)  # if not, the engine says so and nobody is asked
    if not confirm(terminal, question, f"orchard land {found} --yes", yes=yes or not waits):
        return 4
    return go_on(terminal, app, found, "land_plan", detach=detach)


@verb("undo", examples="orchard undo                      # the last landing\norchard undo login-3f2a --yes")
@plan_argument
@yes_option
def undo(terminal: Terminal, plan: str | None, yes: bool) -> int:
    """Take a landing back: move the target branch to where it was.

    Without PLAN the last landing that is not undone is meant. Refused when the branch has moved since. The plan's
    commits are kept under refs/orchard. Without a terminal, pass --yes; otherwise it exits with 4.
    """
    app = app_of(terminal)
    found = app.find_plan(plan, "undo_plan")
    document = plan_document(app, found)
    refuse_unlanded(document)
    landed = app.run_of(found).landed
    question = text.ask_undo(document.target.branch, found, made=landed is not None and landed.old is None)
    if not confirm(terminal, question, f"orchard undo {found} --yes", yes=yes or document.undone):
        return 4
    answer = ask_engine(app, "undo_plan", plan=found)
    said = [text.undone(answer["branch"], answer["commit"])]
    if answer.get("undone_before"):
        said = [text.undone_before(found)]
    elif document.pushed is not None and document.pushed.ok:
        said.append(text.still_pushed(answer["branch"]))
    terminal.answer({"plan": found, **answer}, *said)
    return 0


def refuse_unlanded(plan: PlanSummary) -> None:
    """Say that there is nothing to take back before anybody is asked about it."""
    if not plan.landed and not plan.undone:
        raise UsageError(
            f"Plan '{plan.id}' has not landed, so there is nothing to undo.", hint=f"orchard status {plan.id}"
        )


@verb("delete", examples="orchard delete login-3f2a\norchard delete login-3f2a --yes    # in a script")
@plan_argument
@yes_option
def delete(terminal: Terminal, plan: str | None, yes: bool) -> int:
    """Take a plan out of the way; its commits are kept until purged.

    Stops what it runs, saves what its worktrees hold, and removes them. PLAN is a whole id or name, and may be left
    out where there is one plan only. Without a terminal, pass --yes; otherwise it exits with 4.
    """
    app = app_of(terminal)
    found = app.find_plan(plan, "delete_plan")
    question = text.ask_delete(plan_document(app, found).name, found)
    if not confirm(terminal, question, f"orchard delete {found} --yes", yes=yes):
        return 4
    answer = ask_engine(app, "delete_plan", plan=found)
    said = [text.done(f"Plan {found} is deleted; its commits are kept.")]
    if answer["kept_folders"]:
        said += _left_folders(answer["kept_folders"], plan_document(app, found).warnings)
    next_verb = "delete" if answer["kept_folders"] else "purge"
    terminal.answer({"plan": found, **answer}, *said, text.next_command(f"orchard {next_verb} {found}"))
    return 0


def _left_folders(folders: Sequence[str], warnings: Sequence[str]) -> list[Line]:
    """Which folders of a deleted plan are still there, why, and how they can go."""
    why = {folder: [one for one in warnings if f" {folder} " in one] for folder in folders}
    said = [why[folder][-1] if why[folder] else f"The work in {folder} cannot be saved." for folder in folders]
    way = "Nothing in there was removed. Move what you want to keep out of it and remove what is in the way."
    return [*(text.warning(one) for one in said), text.done(way)]


@verb("purge", examples="orchard purge login-3f2a --yes")
@plan_argument
@yes_option
def purge(terminal: Terminal, plan: str | None, yes: bool) -> int:
    """Remove a plan for good: its refs, saved work and logs.

    What has landed stays. PLAN is a whole id or name; without it the plan that was deleted last is meant. Without a
    terminal, pass --yes; otherwise it exits with 4.
    """
    app = app_of(terminal)
    found = app.find_plan(plan, "purge_plan")
    question = text.ask_purge(plan_document(app, found).name, found)
    if not confirm(terminal, question, f"orchard purge {found} --yes", yes=yes):
        return 4
    answer = ask_engine(app, "purge_plan", plan=found)
    terminal.answer({"plan": found, **answer}, text.done(f"Purged plan {found}."))
    return 0


@verb("recover", examples="orchard recover\norchard recover refs/orchard/wip/login-3f2a/api/1 ../rescued")
@click.argument("ref", required=False)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--list", "listing", is_flag=True, help="List what was saved (as without arguments).")
@plan_option
def recover(terminal: Terminal, ref: str | None, folder: Path | None, listing: bool, plan: str | None) -> None:
    """List saved work, or restore it into a folder.

    Everything that lay in a worktree before it was removed or reset is saved; REF is one line of the list.
    """
    if listing and ref is not None:
        raise UsageError("'--list' takes no REF.", f"orchard recover {safe(ref)} FOLDER")
    app = app_of(terminal)
    if ref is None or listing:
        rows = app.saved_work(plan)
        terminal.answer(rows, *(saved_lines(rows) or [text.done(text.NOTHING_SAVED)]))
    elif folder is None:
        raise UsageError("A folder is needed to restore into.", f"orchard recover {safe(ref)} FOLDER")
    else:
        done = app.restore(ref, folder)
        terminal.answer(done, text.done(f"Restored {safe(ref)} into {safe(folder)}"))


def saved_lines(rows: list[SavedWorkView]) -> list[Line]:
    """Saved work, a line each."""
    return table([_saved_row(row) for row in rows], 90)


def _saved_row(row: SavedWorkView) -> list[Piece]:
    return [(safe(row.ref), "strong"), (text.moment_text(row.at), "dim"), (safe(row.subject), "")]
