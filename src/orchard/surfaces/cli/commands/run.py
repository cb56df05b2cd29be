"""`orchard run`."""

import os
from typing import Any, Literal

import click
from msgspec.structs import replace

from orchard.app import App
from orchard.config.layers import Config
from orchard.config.reach import RIGHTS, asks_agents, may_ask_agents
from orchard.engine.server.session import Session
from orchard.model import limits
from orchard.model.plan import Plan, PlanId
from orchard.surfaces.cli.followed import act_and_follow
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_for_work, branch_text, detach_option, find_file
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.terminal import Terminal, read_input


@verb(
    "run",
    examples="""
orchard run plan.yaml
orchard run plan.yaml --target feature/login --land ask
orchard run plan.yaml --detach        # then: orchard watch
generate-plan | orchard run -         # a plan from stdin
orchard run plan.yaml --json          # every event as a JSON line, the result last
""",
)
@click.argument("file", metavar="PLAN", type=click.Path(allow_dash=True))
@click.option("--base", metavar="BRANCH", callback=branch_text, help="Start from this branch or commit.")
@click.option("--target", metavar="BRANCH", callback=branch_text, help="Land on this branch.")
@click.option("--land", type=click.Choice(["auto", "ask", "never"]), help="Land by itself, after asking, or not.")
@click.option(
    "--max-parallel", metavar="N", type=click.IntRange(0, limits.MAX_PARALLEL), help="Jobs at once; 0: no limit."
)
@click.option("--start-paused", is_flag=True, help="Take the plan in, and start it with 'orchard resume'.")
@detach_option
def run(terminal: Terminal, file: str, detach: bool, **changes: Any) -> int:
    """PLAN is YAML, JSON or TOML; '-' reads it from stdin. The exit code is 0 when the plan has succeeded, 1 when
    it failed, 4 when it waits for a person, and 130 when it was canceled.
    """
    app = app_for_work(terminal)
    plan = changed(read_plan(terminal, app, file), **changes)
    return act_and_follow(terminal, app, submit(terminal, plan, file, app.settings.config), detach=detach)


def read_plan(terminal: Terminal, app: App, file: str) -> Plan:
    """The plan in a file, or on stdin; all its problems are reported at once."""
    if file == "-":
        return app.parse_plan(None, read_input("-", limits.PLAN_BYTES))
    return app.parse_plan(find_file(terminal, file))


def changed(
    plan: Plan,
    *,
    base: str | None,
    target: str | None,
    land: Literal["auto", "ask", "never"] | None,
    max_parallel: int | None,
    start_paused: bool,
) -> Plan:
    """The plan with what the command line says instead."""
    return replace(
        plan,
        base=plan.base if base is None else base,
        target=plan.target if target is None else target,
        land=plan.land if land is None else land,
        max_parallel=plan.max_parallel if max_parallel is None else max_parallel,
        start_paused=plan.start_paused or start_paused,
    )


def submit(terminal: Terminal, plan: Plan, file: str, config: Config) -> Any:
    """What asks an engine to take the plan in."""

    async def ask(session: Session) -> PlanId:
        answer = await session.request("create_plan", plan=plan, file=None if file == "-" else file)
        terminal.say(text.submitted(plan.name, answer["plan"]))
        if asks_agents(plan):
            terminal.note(text.warning(RIGHTS))
        elif not terminal.quiet and may_ask_agents(plan, config) and _usable(config):
            terminal.note(text.warning(f"If a job fails or a merge conflicts, an agent may be asked to help. {RIGHTS}"))
        terminal.note(*[text.warning(note) for note in answer.get("notes", [])])
        return PlanId(answer["plan"])

    return ask


def _usable(config: Config) -> bool:
    """Whether there is an agent here that could heal or resolve."""
    from orchard.agents.registry import Agents

    return Agents(config, os.environ).any_usable()
