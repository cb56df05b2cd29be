"""`orchard run`, and `orchard plan`: an agent proposes a plan, which runs only when the user says so."""

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from orchard.agents.protocol import Called, Noted, Telling, Used
from orchard.app import App
from orchard.engine.server.session import Session
from orchard.errors import NeedsPerson, UsageError
from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.plan import VALIDATION, JobId, Plan, PlanId, part_of
from orchard.model.sandbox import stricter
from orchard.model.usage import Usage
from orchard.operations.commands.goals import LONGEST, SECONDS, Draft, Drafting, DraftPlan
from orchard.operations.commands.plans import create_plan
from orchard.store.redact import redact_text
from orchard.surfaces.cli.editor_schemas import refresh_schemas
from orchard.surfaces.cli.followed import act_and_follow
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.interruption import until_stopped
from orchard.surfaces.cli.options import (
    app_for_work,
    app_of,
    complete_agents,
    detach_option,
    env_option,
    find_file,
    landing_options,
    not_empty,
    options_of,
    params_option,
    plan_file_argument,
    yes_option,
)
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.reports import Reports, report_options
from orchard.surfaces.cli.terminal import Terminal, read_input
from orchard.text import did_you_mean


@verb(
    "run",
    examples="""
orchard run                           # plan.yaml in this folder
orchard run plan.yaml --dry-run       # what would run, in which order, by whom
orchard run plan.yaml --only api      # that job, and what it needs
orchard run plan.yaml -e DEBUG=1 -p version=2.1
orchard run plan.yaml --target feature/login --land ask
orchard run plan.yaml --detach        # then: orchard watch
generate-plan | orchard run -         # a plan from stdin
orchard run plan.yaml --json          # every event as a JSON line, the result last
orchard run --summary summary.md --junit jobs.xml     # for a CI server
""",
)
@plan_file_argument
@click.option("-n", "--dry-run", is_flag=True, help="Show what would run, and start nothing.")
@click.option(
    "--only", metavar="JOB", multiple=True, help="Run only this job or group, and what it needs; may be repeated."
)
@env_option
@params_option
@landing_options
@click.option(
    "--max-parallel",
    metavar="N",
    type=click.IntRange(0, limits.MAX_PARALLEL),
    help="Run at most N jobs at once; 0 means no limit.",
)
@click.option(
    "--heal/--no-heal", default=None, help="Whether an agent may heal jobs that do not set 'heal' themselves."
)
@click.option("--push/--no-push", default=None, help="Whether to push the target branch after landing.")
@click.option("--start-paused", is_flag=True, help="Submit the plan paused; start it with 'orchard resume'.")
@options_of(create_plan, {"file": "", "scaffolding": ""})
@report_options
@detach_option
def run(
    terminal: Terminal,
    file: str,
    dry_run: bool,
    only: tuple[str, ...],
    env: dict[str, str],
    params: dict[str, str],
    summary: Path | None,
    junit: Path | None,
    detach: bool,
    idempotency_key: str | None,
    **changes: Any,
) -> int:
    """PLAN is a YAML, JSON or TOML file; '-' reads it from stdin. The default is plan.yaml. The exit code is 0 if the
    plan succeeds, 1 if it fails, 4 if it waits for you, and 130 if it is canceled. In a terminal, ctrl-c cancels the
    plan; ctrl-d leaves it running in the background, and so does closing the terminal.
    """
    reports = Reports(summary, junit)
    reports.check(detach=detach)
    app = app_of(terminal) if dry_run else app_for_work(terminal)
    plan = changed(read_plan(terminal, app, file, params), **changes)
    plan = replace(part_of(plan, jobs_meant(plan, only)) if only else plan, env={**plan.env, **env})
    if dry_run:
        from orchard.surfaces.cli.dry_run import show_rehearsal  # only a rehearsal needs it

        return show_rehearsal(terminal, app, plan)
    asked = submit(terminal, app, plan, file, idempotency_key)
    return act_and_follow(terminal, app, asked, detach=detach, reports=reports)


def read_plan(terminal: Terminal, app: App, file: str, params: Mapping[str, str]) -> Plan:
    """The plan in a file, or on stdin; all its problems are reported at once."""
    if file == "-":
        return app.parse_plan(None, read_input("-", limits.PLAN_BYTES), params)
    return app.parse_plan(find_file(terminal, file), params=params)


def jobs_meant(plan: Plan, names: Iterable[str]) -> list[JobId]:
    """The jobs that words name: by full id, by an id that is unique, or all of a group."""
    jobs = [job for job in plan.jobs.values() if job.id != VALIDATION]
    found: list[JobId] = []
    for name in (one.rstrip("/") or one for one in names):
        exact = [job.id for job in jobs if job.id == name]
        group = [job.id for job in jobs if job.group == name or (job.group or "").startswith(f"{name}/")]
        own = [job.id for job in jobs if job.id.rpartition("/")[2] == name]
        meant = exact or group or own
        if not meant or (meant is own and len(own) > 1):
            which = (
                f"could be any of {', '.join(own)}"
                if own
                else f"is no job{did_you_mean(name, [job.id for job in jobs]) or ''}"
            )
            raise UsageError(f"--only: '{safe(name)}' {which}", "The jobs: " + ", ".join(job.id for job in jobs[:20]))
        found += meant
    return found


def changed(plan: Plan, *, start_paused: bool, heal: bool | None = None, **given: Any) -> Plan:
    said = {name: value for name, value in given.items() if value is not None}
    if heal is not None:
        said["jobs"] = {name: replace(job, heal=heal) if job.heal is None else job for name, job in plan.jobs.items()}
    return replace(plan, start_paused=plan.start_paused or start_paused, **said)


def submit(terminal: Terminal, app: App, plan: Plan, file: str, key: str | None = None) -> Any:
    repo, config = app.repo, app.settings.config

    async def ask(session: Session) -> PlanId:
        given = {"file": None if file == "-" else file, "idempotency_key": key}
        answer = await session.request("create_plan", plan=plan, **given)
        refresh_schemas(repo)
        off = stricter(config.sandbox.level, plan.sandbox) == "off"
        wall = [(", ", ""), text.wall("off")] if off else []
        terminal.say([("Plan ", ""), (safe(plan.name), "name"), (" is ", ""), (safe(answer["plan"]), "strong"), *wall])
        if answer["known"]:
            terminal.note(text.done("It was made with this key before; nothing new was made."))
        if not terminal.quiet:
            from orchard.surfaces.cli.premises import premises  # who wants few words needs none

            terminal.note(*premises(app, plan))
        terminal.note(*[text.warning(note) for note in answer.get("notes", [])])
        return PlanId(answer["plan"])

    return ask


SUFFIXES = (".yaml", ".yml")


@verb(
    "plan",
    examples="""
orchard plan "Export reports as CSV"
orchard plan "Move to the new logging interface" --agent claude --file logging.yaml
orchard plan "Fix the flaky tests" --run      # shows the plan and asks before it runs
orchard plan - < goal.md                      # a long goal from stdin
orchard help planning                         # what agents are told about good plans
""",
)
@click.argument("goal", metavar="GOAL")
@click.option(
    "--agent",
    metavar="NAME",
    callback=not_empty,
    shell_complete=complete_agents,
    help="The agent to ask (default: your default agent).",
)
@click.option("--model", metavar="MODEL", callback=not_empty, help="The model, as the agent names it.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, LONGEST),
    metavar="SECONDS",
    default=SECONDS,
    help="Stop the agent after this long (default: 1800).",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the plan here (default: a file named after the goal).",
)
@click.option("--run", is_flag=True, help="Run the plan afterwards, if you agree to it.")
@yes_option
def plan(
    terminal: Terminal,
    goal: str,
    agent: str | None,
    model: str | None,
    timeout: float,
    file: Path | None,
    run: bool,
    yes: bool,
) -> int:
    """The agent works on a copy of the last commit and changes nothing. Orchard checks its plan, and up to three times
    sends it back with what is wrong. Nothing runs until you agree: without a terminal, --run needs --yes; otherwise it
    exits with 4.
    """
    if run and not yes and not terminal.can_ask:
        raise NeedsPerson("Cannot ask without a terminal whether the plan may run.", "Add --yes, or leave --run out.")
    wanted = read_words(goal, "goal", 'orchard plan "Export reports as CSV"')
    app = app_for_work(terminal)
    place = place_for(terminal, file, wanted, yes=yes)
    made = ask_agent(terminal, app, DraftPlan(goal=wanted, agent=agent, model=model, timeout=timeout))
    save(place, made.text, replace=file is not None)
    document = plan_document(made, place)
    if terminal.json:
        (terminal.row if run else terminal.data)({"type": "plan", **document})
    from orchard.surfaces.cli.render.proposal import proposal_lines  # a plan that is there already needs none

    terminal.show(*proposal_lines(made.plan))
    terminal.say(plan_author(made), [("Saved as ", ""), (safe(place), "strong")])
    if run and (yes or terminal.agreed(f"Run these {text.many(len(made.plan.jobs) - 1, 'job')} now?")):
        return act_and_follow(terminal, app, submit(terminal, app, made.plan, str(place)))
    terminal.say(text.next_command(f"orchard run {shlex.quote(str(place))}"))
    return 0


def plan_document(draft: Draft, place: Path) -> Json:
    from orchard.core.views.graph import edges, mermaid
    from orchard.core.views.usage import agents_usage
    from orchard.model.plan_codec import plan_json

    return {
        "plan": plan_json(draft.plan),
        "file": str(place),
        "agent": draft.agent,
        "problems": [list(one) for one in draft.repaired],
        "usage": agents_usage(draft.used),
        "edges": [[need, job] for need, job in edges(draft.plan)],
        "graph": mermaid(draft.plan),
    }


def plan_author(draft: Draft) -> Line:
    from orchard.model.usage import total
    from orchard.surfaces.cli.render.usage import brief

    used = f" ({brief(total(draft.used))})" if draft.used else ""
    times = len(draft.repaired)
    again = f", corrected {text.many(times, 'time')}" if times else ""
    return [(f"Written by {safe(draft.agent)}{again}{used}", "dim")]


def read_words(given: str, what: str, example: str) -> str:
    """What an agent is to do, which may come from stdin."""
    if given == "-":
        given = read_input("-", limits.STRING_BYTES).decode(errors="replace")
    if not given.strip():
        raise UsageError(f"The {what} is empty.", f"Say what is wanted: {example}")
    if len(given.encode(errors="replace")) > limits.STRING_BYTES:
        raise UsageError(
            f"The {what} is longer than {limits.STRING_BYTES // 1024} KiB.", "Put the details into a file."
        )
    return given


def place_for(terminal: Terminal, file: Path | None, goal: str, *, yes: bool) -> Path:
    """Where the plan is saved, decided before an agent is paid for it; what is there is not replaced unasked."""
    from orchard.engine.plans.refs import slug

    if file is None:
        name, number = slug(goal), 1
        place = terminal.repo / f"{name}.yaml"
        while place.exists() or place.is_symlink():
            number += 1
            place = terminal.repo / f"{name}-{number}.yaml"
        return place
    if file.suffix.lower() not in SUFFIXES:
        raise UsageError(f"'{safe(file)}' does not end in .yaml, and the plan is YAML.", f"--file {safe(file)}.yaml")
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder '{safe(file.parent)}' to save the plan in.")
    if (file.exists() or file.is_symlink()) and not yes:
        if not terminal.can_ask:
            raise NeedsPerson(f"'{safe(file)}' exists already.", "Add --yes to replace it, or name another file.")
        if not terminal.agreed(f"'{file}' exists already. Replace it when the plan is there?"):
            raise UsageError(f"'{safe(file)}' exists already.", "Name another file with --file.")
    return file


def save(place: Path, content: str, *, replace: bool) -> None:
    """Write the plan; a name that was chosen by us is never one that exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if replace else os.O_EXCL)
    try:
        handle = os.open(place, flags, 0o666)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"Cannot write '{safe(place)}': {error.strerror}.") from error


# ------------------------------------------------------------------------------------ asking


def ask_agent(terminal: Terminal, app: App, args: DraftPlan) -> Draft:
    """A valid plan for the goal, by an agent of the user's; it ends with us, however we end. None: the default one."""
    drafting = Drafting(app, args)
    screen = Screen(terminal, drafting.secrets)
    terminal.say([(f"Asking {safe(drafting.agent)} for a plan. It looks at a copy of what is committed.", "")])
    return until_stopped(lambda: drafting.draft(screen.tell))


class Screen:
    """Shows what an agent does while it works, and adds up what it uses."""

    WIDTHS = (40, 100)
    """Characters of a tool's name, and of what it is called for."""

    def __init__(self, terminal: Terminal, secrets: list[str]) -> None:
        self.terminal, self.secrets = terminal, secrets
        self.used: list[Usage] = []

    def tell(self, telling: Telling) -> None:
        """Show what happened; what the agent says is in its answer and not shown twice."""
        if isinstance(telling, Used):
            self.used.append(telling.usage)
        elif isinstance(telling, Called):
            tool, about = (self.shown(*one) for one in zip((telling.tool, telling.about), self.WIDTHS, strict=True))
            self.terminal.note([(f"  {tool}{' failed' if telling.failed else ''}  {about}", "dim")])
        elif isinstance(telling, Noted):
            self.terminal.note(text.warning(self.shown(telling.message, 2000)))

    def shown(self, said: str, most: int) -> str:
        return safe(redact_text(said[:10_000], self.secrets), most)
