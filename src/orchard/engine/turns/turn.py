"""A turn of an agent inside an attempt: everything it tells is recorded, and what passes is tried again.

The journal gets what matters later (session, usage, notes, the end), the attempt's log gets what people read. Errors of
the model's owner that pass (rate limits, overload, the network) are waited for here, a bounded number of times and
visibly; a session that the agent lost is told, and the turn begins anew with all that there is to know.
"""

import asyncio
import os
import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.agents import protocol
from orchard.agents.prompts.work import go_on_instructions, repeated
from orchard.engine.context import Context
from orchard.engine.interruption import Interruptible
from orchard.engine.programs import redacted
from orchard.engine.turns.health import Watched
from orchard.engine.turns.questions import Person
from orchard.engine.turns.scope import at_desk, scope_of, with_server
from orchard.engine.turns.updates import joined
from orchard.engine.turns.wall import Seat, enclosed
from orchard.errors import Next
from orchard.git.folders import remove_tree
from orchard.model.events import plans as events
from orchard.model.limits import Limits
from orchard.model.permissions import Source, all_of, narrowed
from orchard.model.phases import Phase
from orchard.model.plan import JobId, PlanId, Work
from orchard.model.usage import Usage, add, believed
from orchard.process.failpoint import failpoint
from orchard.text import ending

WAITS = (2.0, 5.0, 15.0, 45.0, 90.0)
"""Seconds before each further try of a turn that met an error which passes."""
LONGEST_WAIT = 600.0
"""Nobody is waited for longer than this, whatever they ask for."""
RECORDED_NOTES = 200
RECORDED_USAGES = 500
"""So many of a turn are recorded one by one; what comes after is added up, or left to the log."""
NOTE = 2000
LAST_WORDS = 4000
"""Characters of an agent's summary that are kept."""


class Asked(Struct, frozen=True):
    agent: protocol.Agent
    purpose: str
    """`work`, `check`, `heal`, `resolve` or `subtask`."""
    instructions: str
    folder: Path
    env: Mapping[str, str]
    limits: Limits
    settings: protocol.Settings = field(default_factory=protocol.Settings)
    session: str | None = None
    whole: str = ""
    """What it is told where `session` is lost: the same and everything that the session knew."""
    number: int = 1
    sources: tuple[Source, ...] = ()
    """Who says what it may use; what comes of it is in the settings."""
    work: Work | None = None
    """What of the plan it is for: what the plan sets for it holds for its subtasks as well."""
    messages: int = 0
    """The number of the last message of a person's that the instructions tell; 0: none."""
    updates: int = 0
    """The number of the last update that the instructions tell; 0: none. Each try of a turn adds those that wait."""
    definition: str | None = None
    """The name of the definition by which it works."""


async def run_turn(context: Context, asked: Asked) -> protocol.Result:
    """The result is how the turn ended in the end; subtasks that it hands out go on."""
    if asked.purpose == "resolve":
        return await _tried(context, asked)
    context.workspace.repair()
    tools = all_of(asked.sources)
    asked = replace(asked, settings=replace(asked.settings, tools=narrowed(asked.settings.tools, tools)))
    with at_desk(context, asked.agent.name, asked.settings, asked.work):
        if not asked.settings.tools.only_reads or not context.workspace.is_open:
            return await _tried(context, asked)
        before = await context.workspace.state(context.droppings)
        result = await _tried(context, asked)
        return await _unchanged(context, before, result)


async def _unchanged(context: Context, before: str, result: protocol.Result) -> protocol.Result:
    """The result of a turn that may only read; if the worktree is another one afterwards, it has failed.

    Not every agent can be held to what it may use, and what a program does cannot be seen from outside.
    """
    if not result.ok or before == await context.workspace.state(context.droppings):
        return result
    message = "The agent may only read, but the worktree is not as it was before its turn. What is there is kept."
    return replace(result, reason="denied", message=message)


async def _tried(context: Context, asked: Asked) -> protocol.Result:
    waits = iter(WAITS)
    while True:
        why = context.engine.budgets.used_up(context.run)
        if why is not None:
            return protocol.Result("budget", why, session=asked.session)
        calls = _calls_before(context, asked)
        most = asked.settings.max_turns
        if most is not None and calls >= most:
            return protocol.Result(
                "max-turns", f"The agent called the model {calls} times, {most} are allowed.", session=asked.session
            )
        result, heard = await _once(context, asked, calls)
        if result.reason == "session-lost" and asked.session is not None:
            message = f"The session {asked.session} cannot be gone on with ({result.message}): a new one begins."
            _note(context, asked, protocol.Noted("session", message))
            asked = replace(asked, session=None, instructions=asked.whole or asked.instructions)
            continue
        wait = next(waits, None)
        if result.reason not in protocol.TRANSIENT or wait is None:
            return result
        wait = min(max(wait * random.uniform(0.8, 1.2), result.retry_after or 0.0), LONGEST_WAIT)
        _note(context, asked, protocol.Noted("retry", f"{result.message} The turn is tried again in {wait:.0f} s."))
        await asyncio.sleep(wait)
        asked = replace(asked, number=asked.number + 1)
        if result.session is not None:
            told, whole = go_on_instructions(result.reason), asked.whole or asked.instructions
            told = told if heard else repeated(told, asked.instructions)
            asked = replace(asked, session=result.session, instructions=told, whole=whole)


def _calls_before(context: Context, asked: Asked) -> int:
    """Calls of the model in the part of this turn that a budget, an error that passes or a crash cut off."""
    calls = 0
    turns = context.state.last.turns if context.state.last is not None else []
    for turn in reversed(turns):
        if (turn.purpose, turn.subtask, turn.phase) != (asked.purpose, context.subtask, context.phase):
            continue
        if turn.reason is not None and turn.reason not in (*protocol.TRANSIENT, "budget", "session-lost"):
            break
        calls += sum(usage.requests for usage in turn.used.values())
    return calls


async def _once(context: Context, asked: Asked, calls: int) -> tuple[protocol.Result, bool]:
    """One try at a turn: how it ended, and whether the agent has taken in what it was told."""
    agent, most = asked.agent, asked.settings.max_turns
    log = context.make_log()
    told, updates = joined(context.state, context.subtask, asked.purpose, asked.instructions)
    asked = replace(asked, instructions=told, updates=updates)
    begun = events.AgentStarted(*context.now, agent.name, asked.purpose, asked.settings.model, asked.session)
    begun = replace(begun, number=asked.number, subtask=context.subtask, definition=asked.definition)
    context.record(replace(begun, messages=asked.messages, updates=updates, tools=asked.sources))
    # At most once per attempt: that it began must outlive us before it begins.
    await context.engine.durable()
    failpoint("agent.before-turn")
    trusted = await _project_settings_trusted(context, asked)
    with (
        _scratch(context) as scratch,
        with_server(context, agent, asked.purpose, asked.settings, scratch) as settings,
        _Hearing(context, asked, log) as hearing,
        context.in_trace(),
        _watched(context) as watched,
    ):
        given = settings if most is None else replace(settings, max_turns=most - calls)
        private = private_folder(context, agent.name)
        seat = Seat(agent, asked.folder, private, scratch, asked.env)
        async with enclosed(context, seat, given) as behind:
            task = protocol.Task(
                instructions=asked.instructions,
                folder=asked.folder,
                env=context.traced(asked.env),
                private=private,
                scratch=scratch,
                log=log,
                launcher=behind.launcher,
                settings=behind.settings,
                replaced=behind.replaced,
                routes=behind.routes,
                session=asked.session,
                calls_before=calls,
                limits=asked.limits,
                judges=asked.purpose in ("check", "heal"),
                trusted_project_settings=trusted,
            )
            result = await _performed(context, asked, task, hearing, watched)
    failpoint("agent.after-turn")
    if result.leftovers:
        context.notes.append(f"{result.leftovers} background processes were still running and were ended")
    return result, hearing.heard


async def _performed(
    context: Context, asked: Asked, task: protocol.Task, hearing: "_Hearing", watched: Watched
) -> protocol.Result:
    """The agent does the task, heard and watched."""
    result: protocol.Result | None = None
    watch = protocol.Watch(
        hearing.tell,
        context.workspace.note_start(context.phase),
        context.hurry,
        lambda: context.engine.budgets.used_up(context.run),
        alive=lambda: context.engine.activity.touch(watched.scope, "traffic"),
        person=Person(context, asked.agent.name).ask if asked.purpose != "resolve" else None,
    )
    try:
        result = await watched.part.run(asked.agent.run(task, watch))
        if result is None:
            result = protocol.Result("health", watched.verdict or "")
        if result.hint:
            result = replace(result, message=f"{result.message} {context.world.say(result.hint)}", hint=None)
    finally:
        hearing.end(result)
    return result


def _watched(context: Context) -> AbstractContextManager[Watched]:
    """The health monitor looks after the turn, and can end it."""
    token = context.workspace.launcher.token
    return context.engine.activity.watching(context.run, scope_of(context), token, Interruptible())


async def _project_settings_trusted(context: Context, asked: Asked) -> bool:
    """Whether settings for the agent's own program in its folder count; where they do not, that is said once a plan."""
    workspace, agent = context.workspace, asked.agent.name
    if not workspace.is_open or not asked.folder.is_relative_to(workspace.folder):
        return False
    found, trusted = await context.world.in_thread(context.world.project_settings, workspace.folder, asked.folder)
    told = (context.run.id, agent)
    if not trusted and found.read_by(agent) and told not in context.world.told_of_settings:
        context.world.told_of_settings.add(told)
        why = f" ({found.odd})" if found.odd is not None else ""
        ignored = f"The project settings of {agent} in this repository are ignored until you run: "
        message = context.world.say((ignored, Next("trust_repository"), why))
        _note(context, asked, protocol.Noted("setting", message))
    return trusted


class _Hearing:
    def __init__(self, context: Context, asked: Asked, log: Path) -> None:
        self._context, self._asked, self._log = context, asked, log
        self._fd = -1
        self._left = asked.limits.log_bytes
        self._notes = self._usages = 0
        self._pending: dict[str, Usage] = {}
        self._line_is_open = False
        self._session: str | None = None
        self._scope = scope_of(context)
        self.heard = False

    def __enter__(self) -> "_Hearing":
        self._fd = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def tell(self, told: protocol.Telling) -> None:
        context = self._context
        if context.engine.tracing is not None:
            context.engine.tracing.told(context.run.id, context.job_id, told, context.subtask)
        context.engine.activity.told(self._scope, told)
        if isinstance(told, protocol.Said):
            self._write(told.text)
        elif isinstance(told, protocol.Called):
            mark = "✗" if told.failed else "→"
            self._write_line(f"{mark} {told.tool}{': ' if told.about else ''}{told.about}")
        elif isinstance(told, protocol.Used):
            self._count(told.usage)
        elif isinstance(told, protocol.Session):
            if told.id != self._session:
                self._session = told.id
                self._record(events.AgentSession(*self._where, self._asked.purpose, told.id, self._context.subtask))
        elif isinstance(told, protocol.Heard):
            self._take_in()
        else:
            self._write_line(f"[{told.kind}] {told.message}")
            self._notes += 1
            if self._notes <= RECORDED_NOTES:
                _note(self._context, self._asked, told)

    def end(self, result: protocol.Result | None) -> None:
        for usage in self._pending.values():
            self._record_usage(usage)
        self._pending.clear()
        if result is not None and result.session is not None:
            self.tell(protocol.Session(result.session))
        if result is not None and result.ok:
            self._take_in()
        reason, message = (result.reason, _clean(self._context, result.message)) if result else ("stopped", "")
        text = ending(_clean(self._context, result.text), LAST_WORDS) if result is not None else ""
        if message:
            self._write_line(f"[{reason}] {message}")
        self._record(events.AgentEnded(*self._where, self._asked.purpose, reason, message, text, self._context.subtask))

    def _take_in(self) -> None:
        """Record that the agent knows what it was told: nobody has to tell it again."""
        if self.heard:
            return
        self.heard = True
        context, asked = self._context, self._asked
        self._record(events.AgentHeard(*self._where, asked.purpose, context.subtask))
        if asked.messages:
            self._record(events.MessagesDelivered(context.job_id, context.number, asked.messages, context.subtask))
        if asked.updates:
            self._record(events.UpdatesDelivered(context.job_id, context.number, asked.updates, context.subtask))

    @property
    def _where(self) -> tuple[JobId, int, Phase, str]:
        return *self._context.now, self._asked.agent.name

    def _record(self, event: events.JobFact) -> None:
        self._context.record(event)

    def _record_usage(self, usage: Usage) -> None:
        self._record(events.AgentUsed(*self._where, self._asked.purpose, usage.as_json(), self._context.subtask))

    def _count(self, usage: Usage) -> None:
        self._usages += 1
        usage = believed(usage)
        if self._usages <= RECORDED_USAGES:
            self._record_usage(usage)
            self._context.engine.budgets.check(self._context.run)
        else:
            known = self._pending.get(usage.model)
            self._pending[usage.model] = usage if known is None else add(known, usage)

    def _write_line(self, text: str) -> None:
        line = " ".join(text.split())[:1000]
        self._write(("\n" if self._line_is_open else "") + line + "\n")

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")[: max(0, self._left)]
        self._left -= len(data)
        if data:
            os.write(self._fd, data)
            self._line_is_open = not data.endswith(b"\n")


def _note(context: Context, asked: Asked, told: protocol.Noted) -> None:
    message = _clean(context, told.message[:NOTE])
    context.record(events.AgentNoted(*context.now, asked.agent.name, told.kind, message, context.subtask))


def _clean(context: Context, text: str) -> str:
    """An agent's words as others may read them: people, and the agents after it."""
    return redacted(text, context.world.hidden_in, context.run)


def private_folder(context: Context, agent: str) -> Path:
    """Where an agent keeps its settings and sessions for this job, from one attempt to the next."""
    folder = private_place(context.world.repo.state, context.run.id, context.job_id, agent, context.subtask)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def private_place(state: Path, plan: PlanId, job: JobId, agent: str, subtask: str | None = None) -> Path:
    whose = f"{job} {agent}" + (f" {subtask}" if subtask is not None else "")
    return state / "agents" / plan / sha256(whose.encode()).hexdigest()[:16]


def scratch_prefix(state: Path) -> str:
    """How the temporary folders of a repository's agents begin."""
    return f"orchard-agent-{sha256(os.fsencode(state)).hexdigest()[:12]}-"


def remove_scratch(state: Path) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{scratch_prefix(state)}*"):
        if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
            remove_tree(folder)


def remove_private(state: Path, plan: PlanId) -> None:
    folder = state / "agents" / plan
    if folder.is_dir() and not folder.is_symlink():
        remove_tree(folder)


@contextmanager
def _scratch(context: Context) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=scratch_prefix(context.world.repo.state)))
    try:
        yield folder
    finally:
        remove_tree(folder)
        with suppress(OSError):  # behind a wall it was mounted in the job's own /tmp, on an empty folder
            (context.workspace.enclosure.folders.temporary / folder.name).rmdir()
