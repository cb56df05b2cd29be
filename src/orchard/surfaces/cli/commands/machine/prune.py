"""`orchard prune`: plans that ended long ago are purged, one by one, as `orchard purge` would."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

import click

from orchard.app import App
from orchard.core.views.documents import PlanSummary
from orchard.engine.server.server import EngineGone
from orchard.errors import EXIT_FAILED, EXIT_WAITING, NeedsPerson, OrchardError, UsageError
from orchard.git.dependencies.kept import Kept, kept_worktrees, let_go_of_all
from orchard.git.folders import weigh
from orchard.git.refs import list_refs
from orchard.git.worktree.job_links import linked_worktrees
from orchard.model.statuses import OVER
from orchard.surfaces.cli.followed import open_session
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.lone_leftovers import end_leftovers, left_refs
from orchard.surfaces.cli.options import app_of, yes_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Piece, safe, table
from orchard.surfaces.cli.terminal import Terminal, error_view
from orchard.surfaces.next_steps import in_commands

OVER_WORDS = frozenset(map(str, OVER))
WIP = "refs/orchard/wip"
WEIGHED_FILES = 1_000_000
"""Files of a worktree that are looked at to say how much it takes."""


def _age(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    from pydantic_core import PydanticCustomError

    from orchard.planfile.rules import seconds

    if value is None:
        return None
    try:
        return seconds(value)
    except PydanticCustomError as error:
        said = error.context["message"] if error.context else error
        raise click.BadParameter(str(said), context, parameter) from None


@verb(
    "prune",
    examples="orchard prune --older-than 30d --dry-run\norchard prune --older-than 12h --yes\n"
    "orchard prune --worktrees",
)
@click.option(
    "--older-than",
    metavar="AGE",
    callback=_age,
    help="Purge plans that ended longer ago than this: 30d, 12h, 90m.",
)
@click.option("--worktrees", is_flag=True, help="Remove the warm worktrees that wait for the next run, of any age.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@yes_option
def prune(terminal: Terminal, older_than: float | None, worktrees: bool, dry_run: bool, yes: bool) -> int:
    """It permanently removes their commits that have not landed, their saved work and their logs; what has landed
    stays. It never touches plans that are under way or wait for you. It also removes warm worktrees that have waited
    that long for the next run. Without a terminal, pass --yes; otherwise it exits with 4.
    """
    app, now = app_of(terminal), time.time()
    if older_than is None and not worktrees:
        raise UsageError("Say what to remove.", "Pass --older-than AGE for plans, --worktrees for warm worktrees.")
    before = None if worktrees or older_than is None else now - older_than
    waiting = [one for one in kept_worktrees(app.repo) if before is None or one.at < before]
    if older_than is None:
        return _answer(terminal, [], _without(app, terminal, waiting, before, dry_run), purged=False)
    old = [plan for plan in app.plans(deleted=True) if _is_old(plan, now - older_than)]
    taken = _worktree_sizes(app, old)
    rows: list[list[Piece]] = [
        [(safe(plan.id), "strong"), text.status_piece("undone" if plan.undone else plan.status),
         (text.when(plan.ended_at, now), "dim"),
         (text.bytes_text(taken[plan.id]) if plan.id in taken else "", "dim"), (safe(plan.name, 60), "")]
        for plan in old
    ]  # fmt: skip
    if not dry_run and left_refs(app):
        asyncio.run(_tidy(app))
    if dry_run or not old:
        gone = _without(app, terminal, waiting, before, dry_run)
        _answer(terminal, old, gone, *table(rows), purged=False)
        freed = f" That frees {text.bytes_text(sum(taken.values()))} of worktrees." if taken else ""
        many = f"{text.many(len(old), 'plan')} would be purged.{freed}"
        terminal.note(text.done(many if old else "No plan is that old."))
        return 0
    question = f"Remove {text.many(len(old), 'plan')} for good, with commits that have not landed, saved work and logs?"
    if not yes:
        if not terminal.can_ask:
            raise NeedsPerson(f"Cannot ask without a terminal: {question}", "Add --yes.")
        terminal.note(*table(rows))
        if not terminal.agreed(question):
            terminal.note(text.done(text.NOTHING_CHANGED))
            return EXIT_WAITING
    left = asyncio.run(_purge(app, old))
    gone = _without(app, terminal, waiting, before, dry_run)
    purged = [plan for plan in old if plan.id not in left]
    told: list[Line] = [text.done(f"Purged plan {plan.id}.") for plan in purged]
    for plan_id, why in left.items():
        hint = f" {in_commands(why.hint)}" if why.hint else ""
        terminal.note(text.warning(f"Plan {plan_id} is left: {safe(why.message + hint, 4000)}"))
    return _answer(terminal, purged, gone, *told, purged=True, left=left)


def _answer(
    terminal: Terminal,
    plans: list[PlanSummary],
    gone: list[Kept],
    *lines: Line,
    purged: bool,
    left: Mapping[str, OrchardError] | None = None,
) -> int:
    """`left`: the plans that were not purged, and why; the exit code tells that there are some."""
    why = [{"plan": plan, **error_view(error, [])} for plan, error in (left or {}).items()]
    paths = [one.path for one in gone]
    terminal.answer({"plans": [plan.id for plan in plans], "purged": purged, "left": why, "worktrees": paths}, *lines)
    return EXIT_FAILED if left else 0


def _without(app: App, terminal: Terminal, waiting: list[Kept], before: float | None, dry_run: bool) -> list[Kept]:
    """Remove the worktrees that wait since before a moment, and say so; returns those that went, or would."""
    root = app.repo.worktree_root(app.settings.config.worktree_root)
    known = {} if dry_run else list_refs(app.repo.git, WIP)
    gone = waiting if dry_run else let_go_of_all(app.repo, root, before)
    many = f"{text.many(len(gone), 'warm worktree')} ({sum(one.size for one in gone) / 2**20:,.0f} MiB)"
    if gone:
        terminal.note(text.done(f"{many} would be removed." if dry_run else f"Removed {many}."))
    elif before is None:
        terminal.note(text.done("No worktree waits for the next run."))
    for ref in sorted(list_refs(app.repo.git, WIP).keys() - known.keys()) if gone and not dry_run else ():
        terminal.note(text.done(f"What lay in one of them is saved: orchard recover {ref} DIR"))
    return gone


def _worktree_sizes(app: App, plans: list[PlanSummary]) -> dict[str, int]:
    """The bytes in worktrees that these plans keep, by plan; those without any are left out."""
    known = linked_worktrees(app.repo.worktree_root(app.settings.config.worktree_root))
    kept = {plan.id: known[plan.id] for plan in plans if plan.id in known}
    return {plan: sum(weigh(place, WEIGHED_FILES)[1] for place in places) for plan, places in kept.items()}


def _is_old(plan: PlanSummary, before: float) -> bool:
    ended = text.moment(plan.ended_at)
    return plan.status in OVER_WORDS and ended is not None and ended < before


async def _tidy(app: App) -> None:
    """Take what a killed `orchard agent` left out of the way, also where it is not old."""
    async with AsyncExitStack() as stack:
        await end_leftovers(app, await open_session(app, stack, work=False))


async def _purge(app: App, plans: list[PlanSummary]) -> dict[str, OrchardError]:
    """Purge each that can be; returns those that are left, and why."""
    left: dict[str, OrchardError] = {}
    async with AsyncExitStack() as stack:
        session = await open_session(app, stack, work=False)
        for plan in plans:
            try:
                await session.request("purge_plan", plan=plan.id)
            except EngineGone:
                raise
            except OrchardError as error:
                left[plan.id] = error
    return left
