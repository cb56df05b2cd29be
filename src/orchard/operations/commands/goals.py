"""A goal becomes a plan: an agent of the user's writes it, and nothing of it runs before a person says so.

It is about no plan that exists and records nothing, so no engine is asked. The command or
the daemon that is asked for it has the agent work in a copy of what is committed.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Annotated, Literal

from msgspec import Struct
from msgspec.structs import replace

from orchard.agents.protocol import Called, Noted, Settings, Tell, Telling, Used, Watch
from orchard.config.layers import tools_of
from orchard.core.views.figures import AgentUsage
from orchard.errors import InvalidInput, OrchardError, Problem, TimedOut
from orchard.model import limits
from orchard.model.plan import Plan
from orchard.model.usage import Usage
from orchard.operations.library import Library
from orchard.operations.operation import Absent, Args, Operation, Route, Verb, says
from orchard.process.families.identity import Identity
from orchard.store.redact import Redactor, redact_text

SECONDS = 1800.0
LONGEST = 6 * 3600.0
SECRET = 12
"""Characters from which on a secret in a plan is no chance."""
NAME = "plan.yaml"
"""What a plan that is no file yet is called in messages."""
WIDTHS = (40, 200, 2000)
"""Characters of a tool's name, of what it is called for, and of a note."""


class DraftPlan(Args, frozen=True, kw_only=True):
    goal: Annotated[str, says("What is to be reached, in words.", min_length=1, max_length=limits.STRING_BYTES)]
    agent: Annotated[str | None, says("The agent to ask (default: yours).", min_length=1, max_length=200)] = None
    model: Annotated[
        str | None, says("The model, by the name the agent knows it by.", min_length=1, max_length=200)
    ] = None
    timeout: Annotated[float, says("Seconds after which the agent is stopped.", ge=1, le=LONGEST)] = SECONDS
    follow: Annotated[
        bool,
        says(
            "Whether to tell what the agent does, as a stream of events: each `step`, and at the end the `plan` or why "
            "it `failed`.",
            absent={"verb": "The command shows it."},
        ),
    ] = False


class Drafted(Struct, frozen=True):
    """A plan that an agent wrote for a goal. It was checked, and nothing of it runs."""

    text: Annotated[str, says("The plan, as a plan file has it.")]
    name: str
    jobs: int
    agent: str
    problems: Annotated[list[list[str]], says("What was wrong with each answer before this one.")]
    usage: AgentUsage


class Step(Struct, frozen=True):
    """What happened while an agent wrote a plan."""

    kind: Literal["call", "note", "again"]
    text: str
    about: str = ""
    failed: bool = False


draft_plan = Operation(
    name="draft_plan",
    sentence="Have an agent write a plan for a goal; nothing of it runs.",
    details="The agent looks at a copy of what is committed. Its plan is checked, and it is told what is wrong with it "
    "at most three times. It ends when the client goes away.",
    args=DraftPlan,
    answer=Drafted,
    example={"goal": "Export reports as CSV", "agent": "builtin"},
    route=Route("POST", "/drafts", query=frozenset({"follow"})),
    tool=Absent("An agent that calls tools writes the plan itself; the prompt `plan_this` says how."),
    verb=Verb("plan"),
    next=("validate_plan", "create_plan"),
)


# ---------------------------------------------------------------------------------------- doing it


class Draft(Struct, frozen=True):
    """What an agent made of a goal."""

    plan: Plan
    text: str
    agent: str
    repaired: tuple[tuple[str, ...], ...]
    used: list[Usage]

    def document(self) -> Drafted:
        from orchard.core.views.usage import agents_usage

        problems, jobs = [list(one) for one in self.repaired], len(self.plan.jobs) - 1
        return Drafted(self.text, self.plan.name, jobs, self.agent, problems, agents_usage(self.used))


class Drafting:
    """A goal, the agent that is asked, and all that has to be known for that; what cannot be is refused here.

    Making one may ask the agent's program for its models, so it belongs into a thread.
    """

    def __init__(self, library: Library, args: DraftPlan) -> None:
        from orchard.agents.environment import agent_environment
        from orchard.agents.planner import Seat
        from orchard.agents.registry import Agents
        from orchard.operations.queries.definitions import described_here

        if not args.goal.strip():
            raise InvalidInput("goal", [Problem("is empty", "goal")], "Say what is wanted: Export reports as CSV")
        config = library.settings.config
        agents = Agents(config, os.environ)
        agent = agents.find(args.agent)
        model = agents.model_for(agent.name, args.model, None)
        env = agent_environment(os.environ, (*agent.variables, *config.pass_env))
        described = described_here(library.repo, agents)
        named = (f"{each}:{one}" for each in agents.names for one in described.used)
        self.names = (*agents.names, *described.used, *named)
        self.seat = Seat(agent, env, Settings(model=model, tools=tools_of(config, agent.name)), config.limits)
        self.repo, self.args, self.secrets = library.repo, args, library.secrets()

    @property
    def agent(self) -> str:
        return self.seat.agent.name

    async def draft(self, tell: Tell, again: Callable[[int], None] = lambda number: None) -> Draft:
        """Let it write the plan; all that it started has ended when this returns or raises. `again` is told when it
        was wrong and is asked once more."""
        seconds = self.args.timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._draft(tell, again)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(
                f"Agent '{self.agent}' wrote no plan in {seconds:g} seconds, and was stopped.",
                "Ask for less at once, ask another agent, or allow more time.",
            ) from None
        except OrchardError as error:
            error.message = redact_text(error.message, self.secrets)  # it may quote the agent
            raise

    async def _draft(self, tell: Tell, again: Callable[[int], None]) -> Draft:
        from orchard.agents.planner import make_plan, open_desk

        used: list[Usage] = []
        answers = 0

        def heard(telling: Telling) -> None:
            if isinstance(telling, Used):
                used.append(telling.usage)
            tell(telling)

        async def ask(prompt: str) -> str:
            nonlocal answers
            answers += 1
            if answers > 1:
                again(answers)
            return await desk.ask(prompt)

        async with open_desk(self.repo, self.seat, Watch(heard, not_remembered, asyncio.Event())) as desk:
            planned = await make_plan(self.args.goal, ask, self._check)
        return Draft(planned.plan, planned.text, self.agent, planned.repaired, used)

    def _check(self, content: bytes) -> Plan:
        from orchard.agents.planner import check_for_here
        from orchard.planfile.document import read_document
        from orchard.planfile.parse import parse

        try:
            if self._tells(content.decode(errors="replace")):
                raise InvalidInput("plan", [_SECRET_INSIDE])
            if any(map(self._tells, _strings(read_document(content, NAME, None).value))):  # YAML has escapes
                raise InvalidInput("plan", [_SECRET_INSIDE])
            return check_for_here(parse(content, NAME), self.names)
        except InvalidInput as error:  # it quotes the agent
            hide = Redactor(self.secrets).text
            found = [replace(one, message=hide(one.message), path=hide(one.path)) for one in error.problems]
            raise InvalidInput(error.what, found, error.hint) from None

    def _tells(self, text: str) -> bool:
        """Whether a text holds a secret."""
        return any(one in text for one in self.secrets if len(one.strip()) >= SECRET)

    def step(self, telling: Telling) -> Step | None:
        """What a person is shown of what the agent tells, without secrets; None: what it says is in its answer."""
        if isinstance(telling, Called):
            tool, about = (self._shown(*one) for one in zip((telling.tool, telling.about), WIDTHS, strict=False))
            return Step("call", tool, about, telling.failed)
        return Step("note", self._shown(telling.message, WIDTHS[2])) if isinstance(telling, Noted) else None

    def _shown(self, said: str, most: int) -> str:
        return redact_text(said[:10_000], self.secrets)[:most]


_SECRET_INSIDE = Problem("holds the value of a secret; name the variable instead: $NAME")


def _strings(value: object) -> Iterator[str]:
    """All texts of a document, the names of its fields included."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += one


async def not_remembered(identity: Identity) -> None:
    """What is told of each program that an agent starts: here they all end before its turn does."""
