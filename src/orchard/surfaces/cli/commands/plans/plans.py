"""Verbs that ask something of a whole plan."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click
from msgspec.structs import replace

from orchard.core.job_names import job_word
from orchard.core.retry import cut_off
from orchard.core.run import Run
from orchard.errors import InvalidInput, UsageError
from orchard.model import limits
from orchard.model.events.plans import Json, LandingIntended, UndoIntended
from orchard.model.plan import Resolver
from orchard.model.statuses import PlanStatus
from orchard.operations.commands.changes import land_plan, reshape_plan, undo_plan
from orchard.operations.commands.conversation import pause_worker, resume_worker
from orchard.operations.commands.plans import finalize_plan, pause_plan
from orchard.operations.commands.proposals import propose_plan
from orchard.operations.commands.removal import delete_plan, purge_plan
from orchard.operations.commands.resume import resume_plan
from orchard.operations.selection import NAMED
from orchard.surfaces.cli.action import Asked, action, document_in
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_of, find_file, not_empty
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.render.summary import saved_lines, saved_refs
from orchard.surfaces.cli.terminal import Terminal, read_input


@action(
    pause_plan,
    worker=pause_worker,
    examples="""
orchard pause                      # the plan that is under way, if there is only one
orchard pause login-3f2a:api       # the agent of one job: its turn ends, and what is sent to it waits
orchard pause api/subtask-k3x9p    # the agent of a subtask
""",
)
def pause(asked: Asked) -> int:
    """If PLAN names a job or a subtask, only its agent is paused."""
    answer = asked.request()
    if asked.operation is pause_worker:
        said = text.done(f"The agent of '{safe(asked.job)}' is paused.")
        return asked.tell(answer, said, text.next_command(f"orchard resume {asked.plan}:{asked.job}"))
    return asked.tell(
        answer, text.done(f"Plan {asked.plan} is paused."), text.next_command(f"orchard resume {asked.plan}")
    )


@action(finalize_plan, examples="orchard finalize login-3f2a")
def finalize(asked: Asked) -> int:
    """The plan then starts. Such a plan is built through the API or by an AI chat, and waits until you say that it is
    complete.
    """
    return asked.go_on()


@action(
    resume_plan,
    words={
        "budget": "What it may use from now on: tokens, cost, minutes.",
        "again": "Run again what was interrupted while it ran, or let it count as failed; without this you are asked.",
    },
    worker=resume_worker,
    examples="""
orchard resume                                    # the plan that is paused or interrupted, if there is only one
orchard resume login-3f2a --budget tokens=500000  # with another budget; what it used so far does not count
orchard resume login-3f2a --budget cost=5,minutes=60
orchard resume login-3f2a --again                 # after a crash: what was interrupted is run again
orchard resume api/subtask-k3x9p                  # an agent that was paused goes on in its session
""",
)
def resume(asked: Asked) -> int:
    """A plan that has used up its budget gets the same budget again, or the one that --budget names. If PLAN names a
    job or a subtask, its paused agent goes on. After a crash you are asked whether programs run again that it cut off;
    without a terminal they have failed, unless you pass --again.
    """
    if asked.operation is resume_worker:
        if asked.subtask is None:
            return asked.go_on()
        return asked.tell(asked.request(), text.done(f"Subtask '{asked.subtask}' goes on."))
    before = asked.run
    moving = before.moving if before.settled else None
    if asked.values["again"] is None:
        asked.values["again"] = _run_again(asked, before)
    return asked.go_on(lambda answer: [] if moving is None else [_what_became(moving, asked.run)])


def _run_again(asked: Asked, before: Run) -> bool | None:
    """Whether what a crash cut off is run again: a person says so, for it may have done half of something."""
    gone = before.paused is None and asked.summary.status == PlanStatus.PAUSED
    jobs = [job_word(job, before.plan.jobs) for job in cut_off(before)] if gone else []
    if not jobs or not asked.terminal.can_ask:
        return None
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    what = f"Job '{jobs[0]}' was" if len(jobs) == 1 else f"Jobs {', '.join(jobs[:NAMED])}{more} were"
    return asked.terminal.agreed(f"{what} interrupted while running. Run again?")


def _what_became(moving: LandingIntended | UndoIntended, now: Run) -> str:
    """How a landing or an undo ended that was interrupted, and whether the landing stands now."""
    stands = now.landed is not None and now.undone is None
    what = "landing" if isinstance(moving, LandingIntended) else "undo"
    ended = "was completed" if stands is (what == "landing") else "was not completed"
    return (
        f"The interrupted {what} {ended}: the landing on {safe(moving.branch)} {'stands' if stands else 'is undone'}."
    )


@action(land_plan, examples="orchard land\norchard land login-3f2a --yes    # in a script")
def land(asked: Asked) -> int:
    """A plan waits if it says 'land: ask', or if edits in the checkout of the target were in the way. This also lands a
    result again whose landing was undone. Without a terminal, pass --yes; otherwise it exits with 4.
    """
    plan = asked.summary
    where = f" on '{safe(plan.target.branch)}'" if plan.target.branch else ""
    asked.confirm(f"Land plan '{safe(plan.name)}' ({plan.id}){where}?")
    return asked.go_on(lambda answer: [f"Landing plan '{safe(plan.name)}' ({plan.id}){where}."])


@action(
    propose_plan,
    examples="""
orchard pr                    # the plan that waits before landing, or whose result is on a branch of its own
orchard pr login-3f2a --draft
""",
)
def pr(asked: Asked) -> int:
    """The result goes to the remote that git would push the target to, with your own git credentials. Orchard opens the
    pull request on GitHub or GitLab with GH_TOKEN, GITHUB_TOKEN or GITLAB_TOKEN, else with 'gh' or 'glab'. None of your
    branches moves. Run it again to update the same pull request.
    """
    asked.refuse()
    plan = asked.summary
    return asked.go_on(lambda answer: [f"Pull request for plan '{safe(plan.name)}' ({plan.id})."])


@action(
    undo_plan,
    examples="""
orchard undo                      # the last landing
orchard undo login-3f2a --yes
orchard undo login-3f2a --revert  # the branch went on: a new commit takes the landing back
""",
)
def undo(asked: Asked) -> int:
    """The default is the last landing that has not been undone. It refuses if the branch has moved since, unless you
    pass --revert. The plan's commits stay under refs/orchard. Without a terminal, pass --yes; otherwise it exits with
    4.
    """
    plan, landed, revert = asked.summary, asked.run.landed, bool(asked.values.get("revert"))
    question = f"Move '{safe(plan.target.branch)}' back to where it was before plan {plan.id} landed?"
    if revert:
        question = f"Add a commit to '{safe(plan.target.branch)}' that takes back what plan {plan.id} landed?"
    elif landed is not None and landed.old is None:
        question = f"Remove branch '{safe(plan.target.branch)}', which plan {plan.id} made when it landed?"
    asked.confirm(question, needless=plan.undone)
    answer = asked.request()
    branch, commit = safe(answer["branch"]), answer["commit"]
    whose = f"plan '{safe(plan.name)}' ({plan.id})"
    if answer.get("undone_before"):
        said = f"The landing of {whose} had been undone before; nothing was changed now."
    elif revert:
        said = f"Undid {whose}: branch {branch} is at {commit}, a new commit that takes the landing back."
    elif commit is None:
        said = f"Undid {whose}: deleted branch {branch}, which the landing had created."
    else:
        said = f"Undid {whose}: branch {branch} is back at {commit}"
    lines: list[Line] = [[(said, "")]]
    if not answer.get("undone_before") and plan.pushed is not None and plan.pushed.ok:
        still = f"The landing had been pushed: the remote of {branch} still has it until you push again."
        lines.append([(still, "wait")])
    lines += [] if revert or answer.get("undone_before") else [text.next_command(f"orchard land {plan.id}")]
    return asked.tell(answer, *lines)


@action(
    delete_plan,
    words={"purge": ""},  # which is a verb of its own
    examples="orchard delete login-3f2a\norchard delete login-3f2a --yes    # in a script",
)
def delete(asked: Asked) -> int:
    """It stops what the plan runs, saves what is in its worktrees, and removes them. PLAN is a whole id or name; you
    can leave it out if there is only one plan. Without a terminal, pass --yes; otherwise it exits with 4.
    """
    name, plan = safe(asked.summary.name), asked.plan
    asked.confirm(f"Hide plan '{name}' ({plan}) and stop what it runs? Its commits are kept.")
    before = saved_refs(asked.run)
    answer = asked.request()
    left = answer["kept_folders"]
    said = [text.done(f"Plan {plan} is deleted; its commits are kept."), *saved_lines(asked.run, before)]
    said += _left_folders(left, asked.summary.warnings) if left else []
    return asked.tell(answer, *said, text.next_command(f"orchard {'delete' if left else 'purge'} {plan}"))


def _left_folders(folders: Sequence[str], warnings: Sequence[str]) -> list[Line]:
    """Which folders of a deleted plan are still there, why, and how they can go."""
    why = {folder: [one for one in warnings if f" {folder} " in one] for folder in folders}
    said = [why[folder][-1] if why[folder] else f"The work in {folder} cannot be saved." for folder in folders]
    way = "Nothing in there was removed. Move what you want to keep out of it and remove what is in the way."
    return [*(text.warning(one) for one in said), text.done(way)]


@action(purge_plan, examples="orchard purge login-3f2a --yes")
def purge(asked: Asked) -> int:
    """What has landed stays. PLAN is a whole id or name; the default is the plan that was deleted last. Without a
    terminal, pass --yes; otherwise it exits with 4.
    """
    name, plan = safe(asked.summary.name), asked.plan
    asked.confirm(f"Remove plan '{name}' ({plan}) for good, with its commits, saved work and logs?")
    return asked.tell(asked.request(), text.done(f"Purged plan {plan}."))


@verb(
    "reshape",
    examples="""
orchard reshape login-3f2a changes.yaml
orchard reshape login-3f2a --remove docs --set-needs api=models,schema
orchard reshape login-3f2a --resolver theirs   # then: orchard retry
echo '[{"op": "add", "job": {"id": "extra", "work": "make extra"}}]' | orchard reshape login-3f2a -
""",
)
@click.argument("plan", metavar="PLAN", callback=not_empty)
@click.argument("file", metavar="[FILE]", required=False)
@click.option(
    "--remove", metavar="JOB", multiple=True, help="Remove a job; jobs that needed it then need what it needed."
)
@click.option("--set-needs", metavar="JOB=A,B", multiple=True, help="Make a job need exactly these others.")
@click.option(
    "--resolver",
    type=click.Choice(get_args(Resolver)),
    help="Resolve conflicts this way from now on; for any plan under way.",
)
def reshape(
    terminal: Terminal,
    plan: str,
    file: str | None,
    remove: tuple[str, ...],
    set_needs: tuple[str, ...],
    resolver: str | None,
) -> int:
    """FILE holds a list of changes as YAML or JSON: 'add', 'remove', 'set_needs', 'add_before', 'add_after'. Either all
    of them are made, or none.
    """
    app = app_of(terminal)
    found = app.find_plan(plan)
    in_file, list_name = _changes_in(terminal, file)
    changes = [*in_file, *_simple_changes(remove, set_needs)]
    if resolver is not None:
        changes.append({"op": "update_plan", "set": {"resolver": resolver}})
    if not changes:
        raise UsageError("No change is given.", "orchard reshape --help")
    asked = Asked(terminal, app, reshape_plan, found, {"changes": changes})
    made = text.many(len(changes), "change")
    places = [f"{list_name}[{number}]" for number in range(len(in_file))]
    places += [*(f"--remove {job}" for job in remove), *(f"--set-needs {given}" for given in set_needs)]
    try:
        answer = asked.request()
    except InvalidInput as error:
        raise _as_written(error, [*places, "--resolver"]) from None
    return asked.tell(answer, text.done(f"Plan {found} is reshaped: {made}."))


def _as_written(error: InvalidInput, places: Sequence[str]) -> InvalidInput:
    """The same problems where the user wrote the changes: in a file, or as options."""

    def place(path: str) -> str:
        found = re.match(r"changes\[(\d+)\]", path)
        if found is None:
            return ""
        written = places[int(found[1])]
        return written if written.startswith("--") else f"{written}{path[found.end() :]}"

    problems = [replace(one, path=place(one.path)) for one in error.problems]
    return InvalidInput(error.what, problems, error.hint)


def _changes_in(terminal: Terminal, file: str | None) -> tuple[list[Any], str]:
    """The changes in a file, and what their list is called there."""
    if file is None:
        return [], ""
    path = "-" if file == "-" else str(find_file(terminal, file))
    value = document_in(read_input(path, limits.PLAN_BYTES), "changes" if file == "-" else Path(file).name)
    name = ""
    if isinstance(value, dict) and set(value) == {"changes"}:
        value, name = value["changes"], "changes"
    if not isinstance(value, list):
        raise UsageError(f"'{safe(file)}' holds no list of changes.", "orchard reshape --help")
    return value, name


def _simple_changes(remove: Sequence[str], set_needs: Sequence[str]) -> list[Json]:
    changes: list[Json] = [{"op": "remove", "id": job} for job in remove]
    for given in set_needs:
        job, equals, needs = given.partition("=")
        if not equals or not job:
            raise UsageError(f"'{safe(given)}' is not of the form JOB=A,B", "For no needs at all: --set-needs JOB=")
        changes.append({"op": "set_needs", "id": job, "needs": [need for need in needs.split(",") if need]})
    return changes
