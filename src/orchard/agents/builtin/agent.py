"""The agent that comes with us: a model, tools, and the loop between them, without any program of somebody else's.

agent = BuiltinAgent(BuiltinRow(provider="anthropic"))
result = await agent.run(task, watch)
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from orchard.agents.builtin import sessions
from orchard.agents.builtin.calls import Calls
from orchard.agents.builtin.chat_api import open_chat_model
from orchard.agents.builtin.clients import load
from orchard.agents.builtin.commands import expanded
from orchard.agents.builtin.governor import Governor, shared_governor
from orchard.agents.builtin.loop import Loop
from orchard.agents.builtin.memory import Bounds
from orchard.agents.builtin.messages_api import open_messages_model
from orchard.agents.builtin.model import Hear, Message, Model, ModelError, Reply, Request, said
from orchard.agents.builtin.prompts import system_prompt, top_of
from orchard.agents.builtin.tool import ToolContext, in_thread
from orchard.agents.builtin.toolbox import open_toolbox
from orchard.agents.builtin.tools.skills import READ_SKILL
from orchard.agents.cli import no_effect
from orchard.agents.definitions.skills import skills_for, skills_text
from orchard.agents.endpoints import Ways
from orchard.agents.facts.known import BUILTIN_KEYS, BUILTIN_SERVERS, key_variable
from orchard.agents.permissions import Holds
from orchard.agents.protocol import Heard, Noted, Permit, Result, Session, Task, Tell, Used, Wanted, Watch
from orchard.model.agent_rows import BuiltinRow
from orchard.model.limits import Limits
from orchard.model.permissions import narrowed
from orchard.model.plan import Tier

_FINEST = 0.5
"""Seconds by which the silence of a model may be told too long: a timer is not set anew with each syllable."""


class Patience:
    """Of whoever runs a turn. Silence counts while a model is asked; tools, and waiting for one's turn, have limits of
    their own."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ends: float | None = None
        self._set_at: float | None = None
        self._timer = asyncio.timeout(None)
        self._paused = 0

    async def wait(self, work: Awaitable[Result]) -> Result:
        loop = asyncio.get_running_loop()
        if self._limits.wall is not None:
            self._ends = loop.time() + self._limits.wall
        try:
            async with self._timer:
                self._timer.reschedule(self._ends)
                return await work
        except TimeoutError:
            if not self._timer.expired():
                raise
        if self._ends is not None and loop.time() >= self._ends:
            return Result("timeout", f"The agent was stopped: it worked longer than {self._limits.wall:g} s.")
        return Result("idle", f"The agent was stopped: the model said nothing for {self._limits.idle:g} s.")

    def heard(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._limits.idle is None or self._timer.expired():
            return
        if self._set_at is None or now - self._set_at > min(_FINEST, self._limits.idle / 8):
            self._set_at = now
            silent = now + self._limits.idle
            self._timer.reschedule(silent if self._ends is None else min(silent, self._ends))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing runs out during the block, however many such blocks there are at once."""
        began = asyncio.get_running_loop().time()
        self._paused += 1
        if not self._timer.expired():
            self._timer.reschedule(None)
        try:
            yield
        finally:
            self._paused -= 1
            if not self._paused and self._ends is not None:
                self._ends += asyncio.get_running_loop().time() - began
            if not self._paused and not self._timer.expired():
                self._timer.reschedule(self._ends)

    def rest(self) -> None:
        self._set_at = None
        if not self._timer.expired():
            self._timer.reschedule(self._ends)


TOKENS = ("GH_TOKEN", "GITHUB_TOKEN")
GITHUB = (*TOKENS, "GITHUB_API_URL", "GITHUB_SERVER_URL", "GH_HOST")

TIERS: dict[str, dict[Tier, str]] = {
    "anthropic": {"fast": "claude-haiku-5-5", "standard": "claude-sonnet-5-5", "premium": "claude-opus-5-5"},
    "openai": {},
}
"""Which model a tier means. Behind Chat Completions can be any server: there a model has to be named."""


class BuiltinAgent:
    """Our own. With `model` it asks that one, and needs no key."""

    name = "builtin"
    takes_servers = is_within = True
    holds: Holds = "calls"

    def __init__(
        self, row: BuiltinRow | None = None, *, model: Model | None = None, governor: Governor | None = None
    ) -> None:
        self.row = row or BuiltinRow()
        self._model = model
        self._governor = governor or shared_governor()

    @property
    def variables(self) -> tuple[str, ...]:
        return (key_variable(self.row), BUILTIN_SERVERS[self.row.provider], *GITHUB, *self.row.pass_env)

    def ways(self, env: Mapping[str, str]) -> Ways:
        """Its model is called from our own process: the programs that it starts need nothing."""
        return Ways((), env=env)

    async def run(self, task: Task, watch: Watch) -> Result:
        env = {**task.env, "TMPDIR": str(task.scratch), **self.row.env}
        key = env.get(key_variable(self.row), "")
        if not key and self._model is None:
            return Result("not-logged-in", f"The built-in agent has no key: {key_variable(self.row)} is not set.")
        model = self._chosen_model(task, watch.tell)
        if model is None:
            return Result("failed", "No model is named: say 'model' in [agents.builtin], or in the job's work.")
        session = task.session or sessions.new_id()
        before = await in_thread(sessions.read, task.private, session) if task.session is not None else []
        if before is None:
            return Result("session-lost", f"Session {session} is not there any more, or cannot be read.")
        top = None if task.judges else await in_thread(top_of, task.folder)
        home = Path(env.get("HOME") or Path.home())
        told = await in_thread(expanded, task.instructions, top, home)
        for note in told.notes:
            watch.tell(Noted("setting", note))
        messages = [*before, said(told.text)]
        watch.tell(Session(session))
        server = self.row.base_url or env.get(BUILTIN_SERVERS[self.row.provider]) or None
        turn = _Turn(task, watch, session, self._governor, _lane(server, key, model))
        hidden = {key_variable(self.row), *BUILTIN_KEYS.values()}
        context = ToolContext(
            folder=task.folder,
            env={name: value for name, value in env.items() if name not in hidden},
            withheld=frozenset(TOKENS) - {*self.row.pass_env, *self.row.env},
            allowed_folders=task.settings.allowed_folders,
            scratch=task.scratch,
            shell_seconds=self.row.bash_seconds,
            shell_most_seconds=self.row.bash_max_seconds,
            launcher=task.launcher,
            on_start=watch.on_start,
            hurry=watch.hurry,
            skills=await in_thread(skills_for, top, home),
        )
        # Before anything that takes time: what is in the session is not lost, however soon the turn is stopped.
        await turn.take_in(messages)
        result = await turn.patience.wait(self._work(turn, context, Request(model, "", messages), key, server))
        return replace(result, session=session)

    async def _work(
        self, turn: "_Turn", context: ToolContext, request: Request, key: str, server: str | None
    ) -> Result:
        row, task, watch = self.row, turn.task, turn.watch
        permitted = narrowed(row.permissions, task.settings.tools)
        await load("jsonschema")
        async with (
            self._open_model(key, server) as model,
            open_toolbox(context, task.settings.mcp_servers, permitted, watch.tell) as tools,
        ):
            readable = skills_text(context.skills) if any(tool.name == READ_SKILL for tool in tools) else None
            system = await in_thread(system_prompt, task.folder, readable)
            request = replace(request, system=system, max_tokens=row.max_tokens, effort=task.settings.effort)
            person = turn.asked if watch.person is not None else None
            calls = Calls(tools, context, watch.tell, permitted=permitted, person=person)
            bounds = Bounds(row.max_messages, row.compact, row.compact_threshold, row.compact_keep_recent)
            left = row.max_iterations - task.calls_before
            if left <= 0:
                return Result(
                    "max-turns", f"The agent called the model {task.calls_before} times without coming to an end."
                )
            turns = min(left, task.settings.max_turns or left)
            return await Loop(partial(turn.ask, model), request, calls, bounds, watch, turn.keep, turns).run()

    @asynccontextmanager
    async def _open_model(self, key: str, server: str | None) -> AsyncIterator[Model]:
        if self._model is not None:
            yield self._model
            return
        opened = open_chat_model if self.row.provider == "openai" else open_messages_model
        async with opened(key, server) as model:
            yield model

    def _chosen_model(self, task: Task, tell: Tell) -> str | None:
        """The model of this turn: named by the work, by its tier, by the configuration, or the usual one."""
        settings, tiers = task.settings, TIERS[self.row.provider]
        if settings.allowed_urls and not task.walled:
            no_effect(tell, self.name, "allowed_urls", ", ".join(settings.allowed_urls))
        if settings.model is not None:
            return settings.model
        if settings.tier is not None and settings.tier in tiers:
            return tiers[settings.tier]
        if settings.tier is not None:
            tell(Noted("setting", f"'tier: {settings.tier}' has no effect: {self.name} knows no such model here."))
        return self.row.model or tiers.get("standard") or (None if self._model is None else "scripted")


def _lane(server: str | None, key: str, model: str) -> str:
    """Calls that count against the same limit."""
    return f"{server} {model} {hashlib.sha256(key.encode()).hexdigest()[:16]}"


class _Turn:
    def __init__(self, task: Task, watch: Watch, session: str, governor: Governor, lane: str) -> None:
        self.task, self.watch, self._session = task, watch, session
        self._governor, self._lane = governor, lane
        self.patience = Patience(task.limits)
        self._unsaved = False

    async def asked(self, wanted: Wanted) -> Permit:
        """A person's answer; the time that it takes is not the agent's."""
        assert self.watch.person is not None
        with self.patience.paused():
            return await self.watch.person(wanted)

    async def take_in(self, messages: Sequence[Message]) -> None:
        """Save the conversation with what this turn says, and tell that it is there, also if we are stopped then."""
        saved: list[bool] = []

        def save() -> None:
            sessions.save(self.task.private, self._session, list(messages), durable=True)
            saved.append(True)

        try:
            await self._kept(save)
        finally:
            if saved:
                self.watch.tell(Heard())

    async def keep(self, messages: Sequence[Message]) -> None:
        """Save the conversation; where that fails the work goes on, and only cannot be resumed."""
        await self._kept(partial(sessions.save, self.task.private, self._session, list(messages)))

    async def _kept(self, save: Callable[[], None]) -> None:
        try:
            await in_thread(save)
        except OSError as error:
            if not self._unsaved:
                self.watch.tell(Noted("session", f"The session cannot be saved: {error.strerror}."))
            self._unsaved = True

    async def ask(self, model: Model, request: Request, hear: Hear) -> Reply:
        def heard(text: str) -> None:
            self.patience.heard()
            hear(text)

        async def once() -> Reply:
            self.patience.heard()
            try:
                reply = await model.reply(request, heard)
            except ModelError as error:
                if error.usage is not None and error.usage.tokens:
                    self.watch.tell(Used(error.usage))
                raise
            finally:
                self.patience.rest()
            self.watch.tell(Used(reply.usage))
            return reply

        return await self._governor.reply(self._lane, once, lambda said: self.watch.tell(Noted("retry", said)))
