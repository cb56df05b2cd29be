"""`orchard plan`: an agent proposes a plan; it is shown and saved, and runs only when the user says so."""

import asyncio
import os
import shlex
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import click
from msgspec import Struct, field

from orchard.agents.protocol import Called, Noted, Telling, Used
from orchard.app import App
from orchard.errors import NeedsPerson, UsageError
from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.plan import Plan
from orchard.model.usage import Usage
from orchard.process.identity import Identity
from orchard.store.redact import redact_text
from orchard.surfaces.cli.commands.proposal import proposal_lines
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_for_work, complete_agents, not_empty, yes_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal, read_input

Answer = TypeVar("Answer")

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
    help="The agent to ask; else the default one.",
)
@click.option("--model", metavar="MODEL", callback=not_empty, help="The model, by the name the agent knows it by.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the plan here; else it is named after the goal.",
)
@click.option("--run", is_flag=True, help="Run the plan afterwards, once you have agreed to it.")
@yes_option
def plan(
    terminal: Terminal, goal: str, agent: str | None, model: str | None, file: Path | None, run: bool, yes: bool
) -> int:
    """The agent looks at a copy of what is committed and changes nothing. Its plan is checked, and it is told what is
    wrong with it at most three times. Nothing runs until you say so.
    """
    if run and not yes and not terminal.can_ask:
        raise NeedsPerson("Cannot ask without a terminal whether the plan may run.", "Add --yes, or leave --run out.")
    wanted = read_goal(goal)
    app = app_for_work(terminal)
    place = place_for(terminal, file, wanted, yes=yes)
    made = ask_agent(terminal, app, wanted, Choice(agent, model))
    save(place, made.text, replace=file is not None)
    document = made.document(place)
    if terminal.json:
        (terminal.row if run else terminal.data)({"type": "plan", **document})
    terminal.show(*proposal_lines(made.plan))
    terminal.say(*made.talk(), [("Saved as ", ""), (safe(place), "strong")])
    if run and (yes or terminal.agreed(f"Run these {text.many(len(made.plan.jobs) - 1, 'job')} now?")):
        return _run(terminal, app, made.plan, place)
    terminal.say(text.next_command(f"orchard run {shlex.quote(str(place))}"))
    return 0


class Choice(Struct, frozen=True):
    """Which agent is asked, and with which model; None: the default one."""

    agent: str | None = None
    model: str | None = None


class Made(Struct):
    """A plan, and what it took to get it."""

    plan: Plan
    text: str
    agent: str
    repaired: tuple[tuple[str, ...], ...]
    used: list[Usage] = field(default_factory=list)

    def document(self, place: Path) -> Json:
        """All of it for programs."""
        from orchard.core.views.graph import edges, mermaid
        from orchard.core.views.plans import agents_usage
        from orchard.model.plan_codec import plan_json

        return {
            "plan": plan_json(self.plan),
            "file": str(place),
            "agent": self.agent,
            "problems": [list(one) for one in self.repaired],
            "usage": agents_usage(self.used),
            "edges": [[need, job] for need, job in edges(self.plan)],
            "graph": mermaid(self.plan),
        }

    def talk(self) -> list[Line]:
        """Who wrote it and what that took, in a line."""
        from orchard.model.usage import total
        from orchard.surfaces.cli.render.usage import brief

        used = f" ({brief(total(self.used))})" if self.used else ""
        times = len(self.repaired)
        again = f", mended {text.many(times, 'time')}" if times else ""
        return [[(f"Written by {safe(self.agent)}{again}{used}", "dim")]]


def read_goal(goal: str) -> str:
    """The goal, which may come from stdin."""
    if goal == "-":
        goal = read_input("-", limits.STRING_BYTES).decode(errors="replace")
    if not goal.strip():
        raise UsageError("The goal is empty.", 'Say what is wanted: orchard plan "Export reports as CSV"')
    if len(goal.encode(errors="replace")) > limits.STRING_BYTES:
        raise UsageError(f"The goal is longer than {limits.STRING_BYTES // 1024} KiB.", "Put the details into a file.")
    return goal


def place_for(terminal: Terminal, file: Path | None, goal: str, *, yes: bool) -> Path:
    """Where the plan is saved, decided before an agent is paid for it; what is there is not replaced unasked."""
    from orchard.engine.refs_of_plan import slug

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


def ask_agent(terminal: Terminal, app: App, goal: str, choice: Choice) -> Made:
    """A valid plan for the goal, by an agent of the user's; it ends with us, however we end."""
    from orchard.agents.environment import agent_environment
    from orchard.agents.planner import Seat, check_for_here, make_plan, open_desk
    from orchard.agents.protocol import Settings, Watch
    from orchard.agents.registry import Agents
    from orchard.planfile.parse import parse

    config = app.settings.config
    agents = Agents(config, os.environ)
    agent = agents.find(choice.agent)
    seat = Seat(
        agent,
        agent_environment(os.environ, (*agent.variables, *config.pass_env)),
        Settings(model=agents.model_for(agent.name, choice.model, None)),
        config.limits,
    )
    screen = Screen(terminal, app.secrets())
    terminal.say([(f"Asking {safe(agent.name)} for a plan. It looks at a copy of what is committed.", "")])

    async def ask() -> Made:
        with open_desk(app.repo, seat, Watch(screen.tell, _started, asyncio.Event())) as desk:
            planned = await make_plan(
                goal, desk.ask, lambda content: check_for_here(parse(content, "plan.yaml"), agents.names)
            )
        return Made(planned.plan, planned.text, agent.name, planned.repaired, screen.used)

    return until_stopped(ask)


async def _started(identity: Identity) -> None:
    """Nobody has to remember the agent's programs: they end before `ask_agent` does."""


def until_stopped(work: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
    """Run to the end; a signal that ends us cancels the work first, so that nothing of it goes on."""

    async def run() -> Answer:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await work()

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


class Screen:
    """Shows what an agent does while it works, and adds up what it uses."""

    def __init__(self, terminal: Terminal, secrets: list[str]) -> None:
        self.terminal, self.secrets = terminal, secrets
        self.used: list[Usage] = []

    def tell(self, telling: Telling) -> None:
        """One thing that happened; what the agent says is in its answer and not shown twice."""
        if isinstance(telling, Used):
            self.used.append(telling.usage)
        elif isinstance(telling, Called):
            failed = " failed" if telling.failed else ""
            self.terminal.note(
                [(f"  {self._shown(telling.tool, 40)}{failed}  {self._shown(telling.about, 100)}", "dim")]
            )
        elif isinstance(telling, Noted):
            self.terminal.note(text.warning(self._shown(telling.message, 2000)))

    def _shown(self, said: str, most: int) -> str:
        return safe(redact_text(said[:10_000], self.secrets), most)


def _run(terminal: Terminal, app: App, plan: Plan, place: Path) -> int:
    from orchard.surfaces.cli.commands.run import submit
    from orchard.surfaces.cli.followed import act_and_follow

    return act_and_follow(terminal, app, submit(terminal, plan, str(place), app.settings.config))
