"""A goal becomes a plan: an agent is asked, its answer is checked, and what is wrong is told it until it is right.

A plan that an agent wrote is a proposal: it is parsed, never run from here.
"""

import asyncio
import fcntl
import os
import re
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import ParamSpec

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.agents.prompts.plan import planning_guide
from orchard.agents.prompts.quote import code, data, plain_text, verbatim
from orchard.agents.prompts.work import go_on_instructions
from orchard.agents.protocol import TRANSIENT, Agent, Result, Settings, Task, Watch
from orchard.errors import InvalidInput, Next, NotFound, OrchardError, Problem
from orchard.files import open_plain, read_plain
from orchard.git.folders import remove_tree
from orchard.git.repository import Repository
from orchard.git.worktree.save import restore
from orchard.model import limits
from orchard.model.limits import Limits
from orchard.model.plan import AgentWork, Plan, Work
from orchard.process.background import to_its_end
from orchard.process.families.family import end_family_now
from orchard.process.launcher import Launcher

P = ParamSpec("P")

REPAIRS = 3
PROBLEMS = 30
CANDIDATES = 20
PLAN_FILE = "orchard-plan.yaml"
"""Where an agent may write its plan instead of saying it."""
PATIENCE = 3
"""How often a turn is tried that failed for a reason that may pass."""
LONGEST_WAIT = 60.0
ANSWER = 100_000
"""Characters of an answer that an agent without a memory is reminded of."""

_FENCE = "~" * 40

Ask = Callable[[str], Awaitable[str]]
Check = Callable[[bytes], Plan]


class Planned(Struct, frozen=True):
    plan: Plan
    text: str
    repaired: tuple[tuple[str, ...], ...] = ()
    """What was wrong with each answer before this one."""


class NoPlan(OrchardError):
    """The agent gave no plan that could be used, however often it was told what is wrong."""

    def __init__(self, tries: Sequence[tuple[str, ...]]) -> None:
        rows = [f"answer {number}: {problem}" for number, found in enumerate(tries, 1) for problem in found]
        super().__init__(
            f"The agent gave no valid plan in {len(tries)} answers.\n" + "\n".join(rows),
            hint=(
                "Say the goal in other words, ask another agent, or write the plan yourself ('",
                Next("init_plan"),
                "').",
            ),
        )
        self.tries = tuple(tries)


async def make_plan(goal: str, ask: Ask, check: Check) -> Planned:
    """Ask until there is a plan that passes the check; raises NoPlan with everything that was wrong."""
    prompt = plan_instructions(goal)
    tries: list[tuple[str, ...]] = []
    for _ in range(1 + REPAIRS):
        answer = await ask(prompt)
        found = await asyncio.to_thread(_checked, answer, check)  # a long plan takes seconds to read
        if isinstance(found, Planned):
            return replace(found, repaired=tuple(tries))
        tries.append(found)
        prompt = repair_instructions(found)
    raise NoPlan(tries)


def plan_instructions(goal: str) -> str:
    return "\n\n".join(
        [
            "# Write a plan\n\nThe user wants to reach a goal in the project that is in your current folder. Write a "
            "plan for it: which jobs, in which order, and how to tell that each is done. Others will do the work.",
            f"## The goal\n\n{verbatim(goal).strip()}",
            "## Rules\n\n"
            "- Look at the project as much as you need. It is a copy: change nothing in it, build nothing, and do none "
            "of the work.\n"
            "- Decide by yourself: no person answers. What had to be assumed belongs into the `task` of a job.\n"
            "- Write every task out in `instructions`; do not use `instructions_file`.\n"
            "- Answer with the complete plan in **one** block that begins with ```` ```yaml ````, and with nothing "
            f"after it. A plan that is too long for an answer goes into the file `{PLAN_FILE}` in your current folder.",
            "---",
            planning_guide(),
        ]
    )


def repair_instructions(problems: Sequence[str]) -> str:
    rows = "\n".join(f"- {problem}" for problem in problems)
    return (
        "Your answer holds no plan that can be used. These are all the problems that were found:\n\n"
        f"{data('problems', rows, 20_000)}\n\n"
        "Mend all of them, keep the rest, and answer with the **complete** plan again, in one block that begins with "
        f"```` ```yaml ````, or in the file `{PLAN_FILE}`."
    )


def _checked(answer: str, check: Check) -> Planned | tuple[str, ...]:
    """The last text of an answer that is a valid plan, else what is wrong with the one that was likely meant."""
    refused: tuple[str, ...] = ()
    for text in reversed(find_plans(answer)):
        try:
            return Planned(check(text.encode(errors="replace")), text)
        except InvalidInput as error:
            found = [plain_text(str(problem)).replace("\n", " ")[:500] for problem in error.problems]
            more = [f"and {len(found) - PROBLEMS} more"] if len(found) > PROBLEMS else []
            refused = refused or (*found[:PROBLEMS], *more)
    return refused or ("there is no plan in the answer: no block of YAML with 'name' and 'jobs'",)


def find_plans(answer: str) -> list[str]:
    """The parts of an answer that look like a plan, in their order; an answer without blocks may be one itself."""
    if len(answer) > 4 * limits.PLAN_BYTES:
        answer = answer[-4 * limits.PLAN_BYTES :]
    found = [text for text in _blocks(answer) if _looks_like_a_plan(text)]
    if not found and _looks_like_a_plan(answer):
        found = [answer[_beginning(answer) :]]
    return found[-CANDIDATES:]


def _blocks(answer: str) -> Iterator[str]:
    """Fenced blocks. One ends at a fence that stands as far left as the one that opened it: those within a plan's own
    texts stand further right."""
    opened: _Fence | None = None
    inside: list[str] = []
    for line in answer.splitlines():
        if opened is None:
            if (fence := _fence(line)) is not None and "`" not in fence.rest:
                opened, inside = fence, []
        elif _ends(line, opened):
            yield "\n".join(inside) + "\n"
            opened = None
        else:
            inside.append(line.removeprefix(opened.indent))
    if opened is not None:  # an answer that was cut off; the parser says what is missing
        yield "\n".join(inside) + "\n"


class _Fence(Struct, frozen=True):
    indent: str
    marks: str
    rest: str


def _fence(line: str) -> _Fence | None:
    """What a line that begins with a fence is made of. No regular expression: those look at a long line again and
    again, and hold everybody up while they do."""
    begun = line.lstrip(" \t")
    if not begun.startswith(("```", "~~~")):
        return None
    rest = begun.lstrip(begun[0])
    return _Fence(line[: len(line) - len(begun)], begun[: len(begun) - len(rest)], rest)


def _ends(line: str, opened: _Fence) -> bool:
    if not line.startswith(opened.marks, len(opened.indent)):
        return False
    fence = _fence(line)
    return fence is not None and fence.indent == opened.indent and not fence.rest.strip(" \t")


_PLAN_KEY = re.compile(r"""^[ \t{]*["']?(?:jobs|groups)["']?[ \t]*:|[{,]\s*"(?:jobs|groups)"\s*:""", re.MULTILINE)


def _looks_like_a_plan(text: str) -> bool:
    return _PLAN_KEY.search(text) is not None


def _beginning(answer: str) -> int:
    """Where a plan that stands in an answer without a fence begins: talk before it is left out."""
    start = re.search(r"^(?:name[ \t]*:|\{)", answer, re.MULTILINE)
    return start.start() if start else 0


def check_for_here(plan: Plan, agents: Collection[str], name: str = "plan") -> Plan:
    """The plan, unless it names agents that nobody has here or tasks in files that nobody wrote."""
    problems: list[Problem] = []
    for place, work in _works(plan):
        if not isinstance(work, AgentWork):
            continue
        if work.agent is not None and work.agent not in agents and not work.agent.startswith("acp:"):
            known = ", ".join(sorted(agents))
            problems.append(
                Problem(f"there is no agent {code(work.agent)} here; leave 'agent' out, or use one of: {known}", place)
            )
        if work.instructions_file is not None:
            problems.append(Problem("write the task out in 'instructions': there is no such file yet", place))
    if problems:
        raise InvalidInput(name, problems)
    return plan


def _works(plan: Plan) -> Iterator[tuple[str, Work]]:
    if plan.verify is not None:
        yield "verify", plan.verify
    for job in plan.jobs.values():
        if job.work is not None and job.work is not plan.verify:
            yield f"job '{job.id}', work", job.work
        for word, checks in (("prechecks", job.prechecks), ("postchecks", job.postchecks)):
            for check in checks:
                yield f"job '{job.id}', {word}", check


# ------------------------------------------------------------------------------------ asking an agent


class Seat(Struct, frozen=True):
    agent: Agent
    env: Mapping[str, str]
    settings: Settings = field(default_factory=Settings)
    limits: Limits = field(default_factory=Limits)


class Desk(Struct):
    seat: Seat
    watch: Watch
    place: Path
    launcher: Launcher = field(default_factory=Launcher)
    session: str | None = None
    heard: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.place / "project"

    async def ask(self, prompt: str) -> str:
        """The agent's answer: the file it wrote, else what it said last."""
        written = self.folder / PLAN_FILE
        with suppress(OSError):  # what is there from before is not an answer
            written.unlink()
        told = prompt if self.session is not None else "\n\n".join([*self.heard, prompt])
        self.heard.append(prompt)
        result = await self._turn(told)
        for number in range(1, PATIENCE):
            if result.reason == "session-lost" and self.session is not None:
                self.session = None
                told = "\n\n".join(self.heard)
            elif result.reason in TRANSIENT:
                await asyncio.sleep(min(LONGEST_WAIT, result.retry_after or 2.0**number))
                told = go_on_instructions(result.reason) if self.session is not None else "\n\n".join(self.heard)
            else:
                break
            result = await self._turn(told)
        if not result.ok:
            why = result.message or "it did not say why."
            raise OrchardError(
                f"Agent '{self.seat.agent.name}' gave no plan ({result.reason}): {why}",
                hint=result.hint
                or ("Run '", Next("list_agents"), "' to see whether it can be used, or ask another agent."),
            )
        answer = _written(written) or result.text
        self.heard.append(data("Your answer was", answer, ANSWER))
        return answer

    async def _turn(self, instructions: str) -> Result:
        task = Task(
            instructions=instructions,
            folder=self.folder,
            env=self.seat.env,
            private=self.place / "private",
            scratch=self.place / "scratch",
            log=self.place / "log",
            launcher=self.launcher,
            settings=self.seat.settings,
            session=self.session,
            limits=self.seat.limits,
        )
        result = await self.seat.agent.run(task, self.watch)
        self.session = result.session or self.session
        return result


@asynccontextmanager
async def open_desk(repo: Repository, seat: Seat, watch: Watch) -> AsyncIterator[Desk]:
    """A desk with a copy of what is committed; it is gone afterwards, with all that the agent left there."""
    made = TemporaryDirectory(prefix=_DESK, ignore_cleanup_errors=True)
    try:
        desk = Desk(seat, watch, Path(made.name).resolve())
        with _owned(desk):
            await _in_thread(_lay, repo, desk)
            yield desk
    finally:
        await _in_thread(made.cleanup)


_DESK, _OWNER = "orchard-plan-", "owner"
_TOKEN = 32
"""Characters of a launcher's token."""


@contextmanager
def _owned(desk: Desk) -> Iterator[None]:
    """Hold the lock of a desk: it is free as soon as we have ended, in whatever way."""
    with (desk.place / _OWNER).open("xb", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(desk.launcher.token.encode())
        yield


def clear_desks() -> None:
    """End the agents whose owners were killed while they wrote plans, and remove their desks."""
    for place in Path(gettempdir()).glob(f"{_DESK}*"):
        with suppress(OSError):  # another user's, gone by now, or locked: its owner lives
            found = place.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            with open_plain(place / _OWNER) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                token = file.read(_TOKEN + 1).decode(errors="replace")
                if len(token) == _TOKEN and token.isalnum():
                    end_family_now(token, None, place / "log")
                    remove_tree(place)


def _lay(repo: Repository, desk: Desk) -> None:
    for name in ("project", "private", "scratch"):
        (desk.place / name).mkdir(mode=0o700)
    with suppress(NotFound):  # a branch without commits: there is nothing to look at yet
        restore(repo, "HEAD", desk.folder)


async def _in_thread(step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Copying and removing a large project takes seconds, which the loop has not; each step ends before we do."""
    await to_its_end(asyncio.get_running_loop().run_in_executor(None, partial(step, *args, **kwargs)))


def _written(file: Path) -> str | None:
    """The plan that an agent wrote to a file; what is no plain file is neither followed nor waited for."""
    try:
        text = read_plain(file, limits.PLAN_BYTES + 1).decode(errors="replace")
    except OSError:
        return None
    return f"{_FENCE}\n{text}\n{_FENCE}\n" if text.strip() else None
