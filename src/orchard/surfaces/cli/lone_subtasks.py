"""The help that an agent without a plan can ask for: each of its subtasks is a plan of one job.

`orchard agent` works in the user's own folder, where no job is. What it hands out begins with a picture of that folder
and runs as any plan does: in a worktree, within the slots, in the journal, shown by every surface. The plan lands by
itself nowhere: the agent pulls what it wants, as an agent in a job does. The job may not use `spawn_subtask` itself, so
the depth is 1. When the agent is done its plans are deleted: what still runs is stopped, and commits are kept until the
plan is purged.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct, field

from orchard.agents.builtin.tool import flag, schema
from orchard.agents.builtin.tool import text as words
from orchard.agents.permissions import check_handed
from orchard.agents.protocol import McpServer, Tell, Used
from orchard.agents.registry import Agents
from orchard.app import App
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.core.states import ENDED, JobState
from orchard.core.views.workers import worker_view
from orchard.engine.server.session import Session
from orchard.engine.turns.subtask import LISTED_PATHS, SUMMARY, conflicts_of
from orchard.engine.turns.work import summary_of
from orchard.errors import NotFound, OrchardError, UsageError
from orchard.git.command import GitError
from orchard.git.history import files, show_path
from orchard.git.objects.processes import Live
from orchard.git.refs import delete_refs, wip_ref
from orchard.git.repository import Checkout
from orchard.git.worktree.transfer import is_busy, picture_of, transfer, write_changes
from orchard.model.agent_rows import BUILTIN
from orchard.model.events.plans import Json
from orchard.model.permissions import Tools, made, narrowed, wrong
from orchard.model.plan import AgentWork, Job, Plan, PlanId, with_validation
from orchard.operations.commands.subtasks import LONGEST_WAIT, NAME_LENGTH
from orchard.process.families.table import inside_job
from orchard.surfaces.cli.followed import open_session
from orchard.surfaces.cli.lone_leftovers import AGENT, JOB, owner_name
from orchard.surfaces.next_steps import in_commands
from orchard.text import quoted, shortened

NAME = "orchard"
PLAN = "Subtask"
ALONE = made(None, ("mcp__orchard__spawn_subtask",))
"""What takes the depth away: a helper hands out nothing itself."""
LINE_BYTES = 4 * 1024 * 1024
STEERING = {
    "send": "send_message",
    "interrupt": "interrupt_worker",
    "pause": "pause_worker",
    "resume": "resume_worker",
    "complete": "complete_task",
}


class Helper(Struct, eq=False):
    """One subtask: the plan that it runs as, and what it began with."""

    plan: PlanId
    name: str
    base: str
    run: Run
    watching: "asyncio.Task[None] | None" = None
    pulled: bool = False

    @property
    def known(self) -> bool:
        """Whether anything was heard of it so far."""
        return self.run.seq > 0

    @property
    def over(self) -> bool:
        return self.known and self.run.records[JOB].state in ENDED

    @property
    def waits(self) -> bool:
        """Whether it goes on only when somebody says something."""
        return self.known and self.run.records[JOB].hold is not None

    @property
    def status(self) -> str:
        if self.over:
            return "completed" if self.run.records[JOB].state is JobState.SUCCEEDED else "failed"
        worker = worker_view(self.run, JOB) if self.known else None
        return "waiting" if worker is None or worker.state == "created" else worker.state


class LoneSubtasks(Struct, eq=False):
    app: App
    checkout: Checkout
    model: str | None
    """Of the agent; a helper that is the same agent has it, too."""
    tools: Tools
    """What the agent may use; its helpers have no more."""
    tell: Tell
    helpers: dict[str, Helper] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    """Of the pictures that were taken, so that no `git gc` takes them away meanwhile."""
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    opened: "asyncio.Future[Session]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    folder: asyncio.Lock = field(default_factory=asyncio.Lock)
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, when something was heard of a subtask."""
    answering: "set[asyncio.Task[None]]" = field(default_factory=set)

    # ------------------------------------------------------------------------------- how it is asked

    @property
    def server(self) -> McpServer:
        return McpServer(NAME, offered=True, dial=self._dial)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection for one question, as to the door of an engine."""
        near, far = socket.socketpair()
        task = asyncio.get_running_loop().create_task(self._answer(far))
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)
        return await asyncio.open_connection(sock=near, limit=LINE_BYTES)

    async def _answer(self, far: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=far, limit=LINE_BYTES)
        with suppress(OSError):
            try:
                asked = json.loads(await reader.readline())
                writer.write(json.dumps(await self._answered(asked)).encode() + b"\n")
                await writer.drain()
            finally:
                writer.close()

    async def _answered(self, asked: Json) -> Json:
        if "call" not in asked:
            return {"tools": [{"name": name, **shown} for name, (_, shown) in TOOLS.items()]}
        call, _ = TOOLS[asked["call"]]
        try:
            return {"text": json.dumps(await call(self, **asked["arguments"]), indent=1), "failed": False}
        except OrchardError as error:
            return {"text": f"{error.message} {in_commands(error.hint or '')}".strip(), "failed": True}

    # --------------------------------------------------------------------------------- what it does

    async def keep(self) -> None:
        """Have a session with the engine from the first question on, in a task of its own that opens and closes it."""
        await self.wanted.wait()
        if self.closing.is_set():
            return
        async with AsyncExitStack() as stack:
            try:
                session = await open_session(self.app, stack)
            except OrchardError as error:
                self.opened.set_exception(error)
                return
            self.opened.set_result(session)
            await self.closing.wait()
            await self._end(session)
            if session.owns_engine:
                await session.wait_idle()  # others may have handed in plans of their own

    async def _end(self, session: Session) -> None:
        for one in self.helpers.values():
            if one.watching is not None:
                one.watching.cancel()
            with suppress(OrchardError):  # somebody may have deleted it
                await session.request("delete_plan", plan=one.plan)
        await asyncio.to_thread(delete_refs, self.app.repo.git, self.refs, "orchard: the agent is done")

    async def _session(self) -> Session:
        self.wanted.set()
        return await asyncio.shield(self.opened)

    async def _picture(self) -> str:
        ref = wip_ref(AGENT, f"{owner_name()}_{id(self)}", len(self.refs) + 1)
        message = "orchard: the folder of an agent that works alone"
        self.refs[ref] = await asyncio.to_thread(picture_of, self.app.repo, self.checkout, ref, message)
        return self.refs[ref]

    async def spawn(
        self,
        instructions: str,
        agent: str | None = None,
        name: str = "",
        blocking: bool = False,
        interactive: bool = False,
        tools: str | list[str] | None = None,
    ) -> Json:
        if tools is not None and (problem := wrong(tools, modes=True)) is not None:
            raise UsageError(f"'tools' {problem}.")
        most = self.app.settings.config.limits.subtasks_per_job
        if len(self.helpers) >= most:
            raise UsageError(
                f"You have had your {most} subtasks ('limits.subtasks_per_job').", hint="Do the rest yourself."
            )
        whom, is_same = await asyncio.to_thread(self._whom, agent)
        session = await self._session()
        async with self.folder:
            base = await self._picture()
        called = " ".join(name.split())[:NAME_LENGTH]
        permitted = narrowed(narrowed(self.tools, made(tools)), ALONE)
        model = self.model if is_same else None
        work = AgentWork(instructions=instructions, agent=whom, model=model, interactive=interactive)
        titled = called or "Subtask of an agent that works alone"
        job = Job(id=JOB, name=titled, work=work, tools=permitted, changes="optional")  # a question needs no change
        plan = with_validation(
            Plan(name=PLAN, jobs={JOB: job}, description=called, base=base, target=f"orchard/{base[:12]}", land="ask")
        )
        answer = await session.request("create_plan", plan=plan, file=None, idempotency_key=None)
        one = Helper(PlanId(answer["plan"]), called, base, Run(PlanId(answer["plan"])))
        self.helpers[one.plan] = one
        one.watching = asyncio.get_running_loop().create_task(self._watch(session, one))
        if blocking:
            await self._wait([one], LONGEST_WAIT)
        return await self._told(one)

    def _whom(self, agent: str | None) -> tuple[str, bool]:
        """Who helps, and whether that is the agent that asks; one by a definition is, where no other agent is named."""
        name = (agent or BUILTIN).removeprefix("@")
        agents = Agents(self.app.settings.config, os.environ)
        if name.partition(":")[0] not in agents.names:
            name = f"{BUILTIN}:{name}"
        check_handed(agents, BUILTIN, name.partition(":")[0], self.tools)
        return name, name.partition(":")[0] == BUILTIN

    async def _watch(self, session: Session, one: Helper) -> None:
        """Know how a subtask stands, until it is over; what it used counts for whoever asked for it."""
        while not one.over:
            newest = self.app.reader.last_seq()
            async for batch in session.follow(one.plan, one.run):
                for recorded in batch:
                    apply(one.run, recorded)
                self._tell()
                if one.over:
                    break
            if not one.over:
                await session.link.grown(newest)
        for attempt in one.run.records[JOB].attempts:
            for turn in attempt.turns:
                for used in turn.used.values():
                    self.tell(Used(used))

    def _tell(self) -> None:
        grown, self.grown = self.grown, asyncio.Event()
        grown.set()

    async def wait(self, ids: list[str] | None = None, timeout_s: float = LONGEST_WAIT) -> Json:
        found = [self._found(id) for id in dict.fromkeys(ids or self.helpers)]
        if not found:
            raise UsageError("There is no subtask to wait for.", hint="spawn_subtask hands work to another agent.")
        await self._wait(found, timeout_s)
        return {
            "ended": [await self._told(one) for one in found if one.over],
            "idle": [await self._told(one) for one in found if one.waits],
            "running": [one.plan for one in found if not one.over and not one.waits],
        }

    async def _wait(self, found: list[Helper], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, LONGEST_WAIT)):
                while not all(one.over or one.waits for one in found):
                    await self.grown.wait()

    async def pull(self, id: str) -> Json:
        one = self._found(id)
        if not (self.tools.may_edit or self.tools.may_run):
            raise UsageError(f"You may not change files here, so you can pull no changes ({self.tools.words}).")
        if not one.over:
            raise UsageError(f"Subtask '{id}' is {one.status}.", hint="await_subtasks waits for it.")
        commit = one.run.records[JOB].commit
        answer: Json = {"id": id, "status": "nothing", "files": [], "conflicts": []}
        if commit is None or commit == one.base:
            return answer
        async with self.folder:
            ours = await self._picture()
            done = await asyncio.to_thread(self._pulled, one.base, ours, commit)
        one.pulled = done["status"] == "merged"
        return {**answer, **done}

    def _pulled(self, base: str, ours: str, commit: str) -> Json:
        with Live(self.app.repo) as live:
            found = transfer(live, self.checkout.path, base, ours, commit)
            if conflicts := conflicts_of(found):
                return {"status": "conflict", "conflicts": conflicts}
            try:
                write_changes(live, self.app.repo.checkout_git(self.checkout), ours, found.merge.tree)
            except GitError as error:
                if not is_busy(error):
                    raise
                return {"status": "busy"}
            return {"status": "merged", "files": [show_path(one.path) for one in found.changes[:LISTED_PATHS]]}

    async def steer(self, id: str, action: str, message: str = "") -> Json:
        one = self._found(id)
        if (action == "send") != bool(message.strip()):
            raise UsageError("'send' needs a 'message', and nothing else has one.")
        given = {"message": message} if action == "send" else {}
        session = await self._session()
        await session.request(STEERING[action], plan=one.plan, job=JOB, **given)
        return await self._told(one)

    def _found(self, id: str) -> Helper:
        found = self.helpers.get(id)
        if found is None:
            listed = f"Yours are: {', '.join(self.helpers)}" if self.helpers else "You have none yet."
            raise NotFound(f"You have no subtask {quoted(id)}.", hint=listed)
        return found

    async def _told(self, one: Helper) -> Json:
        if not one.known:
            return {"id": one.plan, "status": one.status, "pulled": False}
        record = one.run.records[JOB]
        said = summary_of(record)
        paths: list[str] = []
        if record.commit is not None and record.commit != one.base:
            changed = await asyncio.to_thread(files, self.app.repo, one.base, record.commit)
            paths = [file.shown for file in changed[:LISTED_PATHS]]
        failure = record.failure.message if one.over and record.failure is not None else ""
        rows: Json = {
            "id": one.plan,
            "name": one.name,
            "status": one.status,
            "summary": shortened(said, SUMMARY),
            "cut": f"The whole is shown by: orchard talk {one.plan}:{JOB}" if len(said) > SUMMARY else "",
            "message": failure or (in_commands(record.hold.reason) if record.hold is not None else ""),
            "files": paths,
            "pulled": one.pulled,
        }
        return {name: value for name, value in rows.items() if value or name == "pulled"}


_ID = {"id": words("As spawn_subtask gave it.")}
_TOOLS: Json = {"description": "What it may use, of what you may: `read-only`, `edit`, `all`, or a list of tools."}


def _shown(description: str, given: Json, *, reads: bool = False) -> Json:
    return {"description": description, "input_schema": given, "read_only": reads}


TOOLS: Mapping[str, tuple[Callable[..., Awaitable[Json]], Json]] = {
    "spawn_subtask": (
        LoneSubtasks.spawn,
        _shown(
            "Hand a large, independent part of your work to another agent, which works in its own copy of your folder. "
            "Await it: what still runs when you are done is stopped.",
            schema(
                ("instructions",),
                instructions=words("The whole task: it knows nothing of what you know, and cannot ask.", minLength=1),
                agent=words("An agent or a definition, as 'orchard agents' lists them. Left out: one like you."),
                name=words("For people."),
                blocking=flag("Wait for its end, up to 45 seconds."),
                interactive=flag("After its turn it waits for steer_subtask."),
                tools=_TOOLS,
            ),
        ),
    ),
    "await_subtasks": (
        LoneSubtasks.wait,
        _shown(
            "Wait for your subtasks, for at most 45 seconds, and learn what each came to; then call again.",
            schema(
                ids={"type": "array", "items": {"type": "string"}, "description": "Left out: all of yours."},
                timeout_s={"type": "number", "minimum": 0, "maximum": LONGEST_WAIT},
            ),
            reads=True,
        ),
    ),
    "pull_subtask_changes": (
        LoneSubtasks.pull,
        _shown(
            "Merge what a subtask changed into your folder; on a conflict nothing is written.", schema(("id",), **_ID)
        ),
    ),
    "steer_subtask": (
        LoneSubtasks.steer,
        _shown(
            "Say something to a subtask of yours, interrupt, pause, resume or complete it.",
            schema(
                ("id", "action"),
                **_ID,
                action={"type": "string", "enum": list(STEERING)},
                message=words("To `send`: its next turn."),
            ),
        ),
    ),
}


@asynccontextmanager
async def lone_subtasks(
    app: App | None, folder: Path, model: str | None, tools: Tools, tell: Tell
) -> AsyncIterator[tuple[McpServer, ...]]:
    """The server through which an agent in this folder asks for help; none where no help can be had."""
    checkout = await asyncio.to_thread(_checkout_of, app, folder) if app is not None else None
    if app is None or checkout is None:
        yield ()
        return
    help = LoneSubtasks(app, checkout, model, tools, tell)
    keeper = asyncio.get_running_loop().create_task(help.keep())
    try:
        yield (help.server,)
    finally:
        help.closing.set()
        help.wanted.set()
        await keeper


def _checkout_of(app: App, folder: Path) -> Checkout | None:
    """The checkout that a folder lies in; None where work is no agent's to hand out: in a job, or without a commit."""
    if not app.settings.config.agent_tools or inside_job():
        return None
    found = [one for one in app.repo.checkouts() if not one.bare and folder.is_relative_to(one.path.resolve())]
    nearest = max(found, key=lambda one: len(one.path.parts), default=None)
    return nearest if nearest is not None and nearest.head is not None and not nearest.ours else None
