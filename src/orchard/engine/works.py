"""Running works of the plan in a worktree, one after the other: programs, and agents; and setting a new worktree up."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from orchard.engine.context import Context
from orchard.engine.machine.advice import Failure
from orchard.engine.outcome import Failed, Held, Outcome, Passed, Skipped
from orchard.engine.plans.setup import UPDATE_SUBMODULES, Filled, empty_submodules, setup_works
from orchard.engine.programs import TAIL_LINES, command_line, environment, failure, folder_of, limits_of, redacted
from orchard.engine.turns.work import run_agent_work
from orchard.errors import parts_of
from orchard.git.dependencies.absences import missing_folders
from orchard.model.phases import Phase, at_or_after
from orchard.model.plan import AgentWork, Work
from orchard.patterns import later
from orchard.store.logs import tail
from orchard.text import escaped

NOT_COPIED = "links that lead out of the checkout, pipes and sockets, repositories, and what is mounted there"
SETTINGS_CHANGED = "what plan or settings say about setting it up has changed: the worktree is set up again"
_NOT_THERE = later("no such file|not found|cannot find|could not find|no module|does not exist|missing", re.IGNORECASE)
_NO_SUBMODULES = (
    "Git has to reach the remotes that '.gitmodules' names, without being asked for a password. See whether 'git "
    "submodule update --init --recursive' works in a new clone, then retry the job."
)


async def setup(context: Context) -> Outcome:
    workspace = context.workspace
    was_set_up = at_or_after(context.first_phase, Phase.PRECHECKS) and not workspace.is_new
    if was_set_up and workspace.is_outdated:
        context.notes.append(SETTINGS_CHANGED)
        was_set_up = False
    if not workspace.is_open or was_set_up:
        return Skipped()
    if workspace.is_set_up:
        return Passed("the worktree was set up for an earlier job")
    filled = await workspace.fill()
    world = context.world
    works = await world.in_thread(setup_works, context.plan, context.job, world, context.base)
    failed = await run_works(context, works)
    if failed is not None:
        workspace.note_setup_failed()
    if isinstance(failed, Failed) and workspace.is_outdated:
        failed = replace(failed, resume_from=failed.resume_from or context.first_phase)
    if isinstance(failed, Failed) and failed.command == " ".join(command_line(UPDATE_SUBMODULES)):
        return replace(failed, hint=_NO_SUBMODULES)
    if failed is not None:
        return failed
    await workspace.note_set_up()
    return Passed("; ".join(_told(context, filled)))


def _told(context: Context, filled: Filled) -> Iterator[str]:
    """What a worktree got besides its commit; what it did not get is a warning of the plan's."""
    copies, linked = filled.copies, filled.linked
    if copies.copied:
        yield f"copied {', '.join(copies.copied)} ({copies.files:,} file{'s' * (copies.files != 1)})"
    if filled.included:
        yield f"copied {len(filled.included)} ignored files"
    if linked.linked:
        yield f"linked {', '.join(linked.linked)}"
    yield from (f"did not copy {name}: {why}" for name, why in copies.skipped)
    yield from (f"did not link {name}: {why}" for name, why in linked.skipped)
    told = [f"'{name}' of 'worktree.copy' is not copied into worktrees: {why}." for name, why in copies.skipped]
    told += [f"Copies of '{name}' lack what is not copied: {what} ({NOT_COPIED})." for name, what in copies.partly]
    told += [f"'{name}' of 'worktree.link' is not linked into worktrees: {why}." for name, why in linked.skipped]
    for warning in told:
        context.engine.warn(context.run.id, warning)


async def run_works(context: Context, works: Iterable[Work]) -> Failed | Held | None:
    for one in works:
        failed = await _run_work(context, one)
        if failed is not None:
            return failed
    return None


async def _run_work(context: Context, one: Work) -> Failed | Held | None:
    if isinstance(one, AgentWork):
        return await run_agent_work(context, one)
    world, place = context.world, context.place
    folder = folder_of(one, place)
    if isinstance(folder, Failed):
        return folder
    ended = await context.workspace.run(
        argv=command_line(one),
        folder=folder,
        env=context.traced(environment(world.seen_by_programs, context.plan, context.job, one, place)),
        log=context.make_log(),
        limits=limits_of(one, context.job, world.config.limits),
        phase=context.phase,
        hurry=context.hurry,
    )
    if ended.leftovers:
        context.notes.append(f"{ended.leftovers} background processes were still running and were ended")
    if ended.ok:
        return None
    said = redacted(tail(context.log, TAIL_LINES), world.hidden_in, context.run)
    failed = failure(ended, one, said)
    told_of = (*command_line(one), *context.plan.env.values(), *context.job.env.values(), *one.env.values())
    code = -ended.signal if ended.signal is not None else ended.exit_code
    where = (context.number, context.phase, context.subtask)
    lacks = await world.in_thread(_lacks_dependencies, context, said, folder)
    hint = lacks or context.workspace.enclosure.kept_from(Failure(said, told_of, code), *where)
    hint = hint or await world.in_thread(_lacks_submodules, context, said, told_of)
    return failed if hint is None else replace(failed, hint=(*parts_of(failed.hint), hint))


def _lacks_dependencies(context: Context, said: str, folder: Path) -> str | None:
    """That the worktree has no dependencies where the user's checkout has them, and the line that copies them."""
    world = context.world
    found = missing_folders(world.repo, said, context.place.folder, folder)
    if not found:
        return None
    names, it = " and ".join(f"'{escaped(name)}'" for name in found), "it" if len(found) == 1 else "them"
    how = world.opening_line("worktree.copy", ", ".join(f'"{name}"' for name in found))
    return (
        f"The job's worktree has no {names}, which git ignores. To copy {it} from your checkout: {how}. Or let 'setup' "
        f"install {it}."
    )


def _lacks_submodules(context: Context, said: str, told_of: Sequence[str]) -> str | None:
    """What to do where the failure may come from a submodule that is an empty folder: a program was told of it or names
    it, or something is not there."""
    names = empty_submodules(context.plan, context.world, context.base, context.place.folder)
    named = [name for name in names if any(name in text for text in (said, *told_of))]
    if not names or not (named or _NOT_THERE.search(said)):
        return None
    many = len(named or names) > 1
    listed = ", ".join(f"'{escaped(name)}'" for name in (named or names)[:3])
    are = f"Submodules {listed} are empty folders" if many else f"Submodule {listed} is an empty folder"
    return f"{are} in the job's worktree. 'submodules: true' in the plan has git check {'them' if many else 'it'} out."
