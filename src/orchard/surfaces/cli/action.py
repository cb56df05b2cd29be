"""Verbs that ask the engine for an operation: what they take is derived from it, and so is most of what they do."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import click
from msgspec import Struct

from orchard.app import App
from orchard.core.run import Run
from orchard.core.views.documents import PlanSummary
from orchard.engine.server.session import Session
from orchard.errors import EXIT_WAITING, NeedsPerson, NotFound, UsageError
from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.operations.operation import Argument, Operation, Verb, arguments_of
from orchard.surfaces.cli.followed import act_and_follow, open_session
from orchard.surfaces.cli.group import VerbCommand, verb
from orchard.surfaces.cli.options import (
    app_for_work,
    app_of,
    detach_option,
    find_file,
    job_argument,
    jobs_argument,
    option_name,
    options_of,
    plan_argument,
    plan_option,
    yes_option,
)
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal, read_input


class Asked(Struct):
    """An operation that is asked for, with the plan and the job that are meant."""

    terminal: Terminal
    app: App
    operation: Operation
    plan: PlanId
    values: dict[str, Any]
    """The other arguments."""
    yes: bool = False
    detach: bool = False

    @property
    def job(self) -> JobId:
        return JobId(self.values["job"])

    @property
    def subtask(self) -> str | None:
        """The subtask that `job` names, if it names one."""
        last = self.job.rpartition("/")[2]
        return last if last.startswith("subtask-") and self.job not in self.run.records else None

    @property
    def run(self) -> Run:
        return self.app.run_of(self.plan)

    @property
    def summary(self) -> PlanSummary:
        return self.app.status(self.plan).plan

    def confirm(self, question: str, *, needless: bool = False) -> None:
        """End here unless a person says yes, now or by `--yes`; `needless`: nothing will be changed by it.

        What is impossible is refused before a person is asked.
        """
        self.refuse()
        assert isinstance(self.operation.verb, Verb)
        meant = f"{self.plan}:{self.job}" if "job" in self.values else self.plan
        yes = self.yes or needless
        if not yes and not self.terminal.can_ask:
            given = [one for one in arguments_of(self.operation.args) if self.values.get(one.name) is True]
            flags = [option_name(one) for one in given]
            hint = " ".join(["orchard", self.operation.verb.name, meant, *flags, "--yes"])
            raise NeedsPerson(f"Cannot ask without a terminal: {question}", hint)
        if not yes and not self.terminal.agreed(question):
            self.terminal.note(text.done(text.NOTHING_CHANGED))
            raise click.exceptions.Exit(EXIT_WAITING)

    def refuse(self) -> None:
        """Refuse what can be seen to be impossible."""
        if self.operation.refuses is not None:
            self.operation.refuses(self.run, self.values.get("job", ""))
        if self.operation.refuses_here is not None:
            self.operation.refuses_here(self.app.repo, self.run, self.values)

    def request(self, then: Callable[[Session, Json], Awaitable[None]] | None = None) -> Json:
        """Ask for it where it starts no work: of the engine that runs, or without one. `then`: what follows the answer
        while the engine is there."""

        async def ask() -> Json:
            async with AsyncExitStack() as stack:
                session = await open_session(self.app, stack, work=False)
                answer: Json = await session.request(self.operation.name, plan=self.plan, **self.values)
                if then is not None:
                    await then(session, answer)
                return answer

        return asyncio.run(ask())

    def tell(self, answer: Json, *lines: Line) -> int:
        self.terminal.answer({"plan": self.plan, **answer}, *lines)
        return 0

    def go_on(self, told: Callable[[Json], Sequence[str]] = lambda answer: ()) -> int:
        """Ask for it and stay with the work that goes on; `told` is said as soon as it is granted."""
        answer: Json = {}

        async def act(session: Session) -> PlanId:
            answer.update(await session.request(self.operation.name, plan=self.plan, **self.values))
            self.terminal.note(*map(text.done, told(answer)))
            return self.plan

        return act_and_follow(self.terminal, self.app, act, self.plan, detach=self.detach, answer=answer)


FOLLOWS = "The exit code is the same as for 'orchard run': 4 if the plan waits for you."
"""Stands in the help of every verb that stays with the work that goes on."""


def action(
    operation: Operation,
    *,
    examples: str = "",
    words: Mapping[str, str] | None = None,
    worker: Operation | None = None,
) -> Callable[[Callable[[Asked], int]], VerbCommand]:
    """The verb of an operation; see `options_of` for `words`. The function gets what is asked for, all names found.

    `worker`: the operation that is meant where PLAN is no plan, but a job or a subtask.
    """
    form = operation.verb
    assert isinstance(form, Verb)
    arguments = {one.name: one for one in arguments_of(operation.args)}
    if "job" in arguments or "jobs" in arguments:
        about = [job_argument if "job" in arguments else jobs_argument, plan_option]
    else:
        about = [plan_argument]
    gates = [yes_option] * form.asks + [detach_option] * form.follows

    def wrap(function: Callable[[Asked], int]) -> VerbCommand:
        def carry_out(terminal: Terminal, yes: bool = False, detach: bool = False, **given: Any) -> int:
            app = app_for_work(terminal) if form.follows else app_of(terminal)
            read = {name: _read(terminal, arguments[name], value) for name, value in given.items() if name not in NAMES}
            if worker is not None and (found := _worker(app, worker, given["plan"])) is not None:
                if any(value is not None for value in read.values()):
                    raise UsageError("The options of this command are for plans.", "Leave them out.")
                return function(Asked(terminal, app, worker, found[0], {"job": found[1]}, yes, detach))
            plan, names = _meant(app, operation, given)
            return function(Asked(terminal, app, operation, plan, {**names, **read}, yes, detach))

        carry_out.__doc__ = " ".join(filter(None, [(function.__doc__ or "").strip(), FOLLOWS if form.follows else ""]))
        made: Any = carry_out
        for parameter in reversed([*about, options_of(operation, words), *gates]):
            made = parameter(made)
        return verb(form.name, examples=examples)(made)

    return wrap


# ----------------------------------------------------------------------------------------------- names

NAMES = ("plan", "job", "jobs")


def _meant(app: App, operation: Operation, given: Mapping[str, Any]) -> tuple[PlanId, dict[str, Any]]:
    """The plan, and the job or the jobs, that the words name."""
    if "job" in given:
        plan, job = app.find_worker(given["job"], given["plan"], operation.name)
        return plan, {"job": job}
    if "jobs" in given:
        plan, jobs = _plan_and_jobs(app, given["jobs"], given["plan"], operation.name)
        return plan, {"jobs": jobs}
    return app.find_plan(given["plan"], operation.name), {}


def _worker(app: App, operation: Operation, name: str | None) -> tuple[PlanId, JobId] | None:
    """The job or the subtask that a word names; None: it is left out, or names a plan."""
    if name is None:
        return None
    try:
        app.find_plan(name)
    except NotFound:
        try:
            return app.find_worker(name, None, operation.name)
        except NotFound:
            return None  # that there is no such plan is told
    return None


def _plan_and_jobs(
    app: App, names: Sequence[str], plan: str | None, operation: str
) -> tuple[PlanId, list[JobId] | None]:
    """The plan and the jobs that the words mean; None: no jobs are named.

    One word may name a job of the newest plan or a whole plan; a job is looked for first, except that
    nothing but a plan can have a plan's exact id.
    """
    if not names:
        return app.find_plan(plan, operation), None
    if len(names) == 1 and plan is None and (whole := _whole_plan(app, names[0])) is not None:
        return whole, None
    found = [app.find_job(name, plan) for name in names]
    if len({one for one, _ in found}) > 1:
        raise UsageError("These jobs are of different plans.", "Name jobs of one plan at a time.")
    return found[0][0], list(dict.fromkeys(job for _, job in found))


def _whole_plan(app: App, name: str) -> PlanId | None:
    try:
        plan = app.find_plan(name)
    except NotFound:
        return None
    if plan == name:
        return plan
    try:
        app.find_job(name, None)
    except NotFound:
        return plan
    return None


# ---------------------------------------------------------------------------------------------- values


def _read(terminal: Terminal, argument: Argument, value: Any) -> Any:
    """The value that a word means, checked like that of a plan file; None: the option was not given."""
    if argument.form == "budget" and value is not None:
        return read_budget(value)
    if argument.form == "work" and value is not None:
        return _work(terminal, value, option_name(argument))
    if argument.form == "works":
        return [_work(terminal, one, option_name(argument)) for one in value] or None
    return value


def read_budget(given: str) -> Json:
    """The budget that an option says: `tokens=500000,cost=2.5`."""
    found: Json = {}
    for part in given.split(","):
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


def _work(terminal: Terminal, value: str, option: str) -> Json:
    from orchard.model.plan_codec import work_json
    from orchard.planfile.parse import parse_work  # few options need the parser

    return work_json(parse_work(_work_value(terminal, value), option))


def _work_value(terminal: Terminal, value: str) -> object:
    """A work as it was given; `@FILE` has no blank in it, `@agent do this` has."""
    if not value.startswith("@") or len(value.split()) != 1:
        return value
    path = find_file(terminal, value[1:])
    data = read_input(str(path), limits.STRING_BYTES)
    if path.suffix in (".yaml", ".yml", ".json", ".toml"):
        return document_in(data, str(path))
    return data.decode(errors="replace")


def document_in(data: bytes, name: str) -> object:
    from orchard.planfile.document import read_document  # brings the YAML parser

    return read_document(data, name, None).value
