"""One turn with an agent over the protocol: who are you, a session, its settings, the prompt, the end.

The package's connection carries the messages. It is used bare, with a handler that never fails: what the layers above
it cannot make sense of they print, and what an agent writes must not reach the screen like that.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from orchard import __version__
from orchard.agents.acp.failures import ASKED_FOR, from_error, from_words
from orchard.agents.acp.lines import Json, Lines
from orchard.agents.acp.permission import asked_about, choice, objection, tool_of_call
from orchard.agents.acp.settings import Offer, apply_settings, server_list
from orchard.agents.acp.updates import Finished, VersionOne, dollars, note_spent, spent_before
from orchard.agents.backends.stream import part, text
from orchard.agents.cli import STRAY_LINES
from orchard.agents.protocol import Heard, Noted, Permit, Reason, Result, Said, Session, Task, Wanted, Watch
from orchard.process.pipes import Pipes
from orchard.text import laid_open, one_line

VERSION = 1
"""Of the protocol, that we offer; an agent that answers with another one is not talked with."""
ANSWER_WITHIN = 120.0
"""Seconds for everything but the turn itself: an agent that starts servers of its own is slow."""
COURTESY = 2.0
"""Seconds that an agent has to end a turn that was called off, before it is ended itself; a part of its grace."""
MOST_DENIALS = 50
"""One that goes on asking for what it does not get is stopped."""
MOST_QUESTIONS = 10_000
LONGEST_STRAY = 2000

_ANSWERS = frozenset(
    {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"}
)
"""Updates that come of a prompt: an agent that sends one has taken the prompt into its session."""

_ENDS: dict[str, tuple[Reason, str]] = {
    "end_turn": ("done", ""),
    "max_tokens": ("failed", "The model's answer was cut off: it came to its limit of tokens."),
    "max_turn_requests": ("max-turns", "The agent came to its limit of model calls in one turn."),
    "refusal": ("refused", "The model refused to go on."),
    "cancelled": ("failed", "The agent says that the turn was called off, but Orchard did not call it off."),
}


class Over(Exception):
    def __init__(self, result: Result) -> None:
        super().__init__(result.message)
        self.result = result


class Abilities(Struct, frozen=True):
    name: str = ""
    resumes: bool = False
    loads: bool = False
    """It can go on with a session too, but tells the whole story again meanwhile."""
    more_folders: bool = False
    http_servers: bool = False
    key_method: str | None = None


class Conversation:
    """Talks with one agent, for one turn. `result` is how it ended; None: the agent left in the middle of it."""

    def __init__(self, name: str, model: str | None, task: Task, watch: Watch, answer_within: float) -> None:
        self.courtesy = min(COURTESY, task.limits.grace / 2)
        self.result: Result | None = None
        self.text = ""
        self.session: str | None = None
        self._name, self._model, self._task, self._watch = name, model, task, watch
        self._answer_within = answer_within
        self._strays = self._questions = self._denials = 0
        self._connection: Any = None
        """The package's connection, which is imported late."""
        self._decoder: VersionOne | None = None
        self._prompting: asyncio.Future[Any] | None = None
        self._over: asyncio.Future[Finished | Result] = asyncio.get_running_loop().create_future()
        self._called_off = False
        self._asking: set[asyncio.Future[Permit]] = set()
        self._agent = Abilities()
        self._offer = Offer()
        self._spent: float | None = None
        self._taken_in = False

    # ------------------------------------------------------------------------- the course of a turn

    async def converse(self, pipes: Pipes) -> None:
        # Slow to import, and the agent is slow to start: both at once, and nobody else waits.
        await asyncio.to_thread(_import)
        from acp.connection import Connection

        lines = Lines(pipes, self._stray)
        self._connection = Connection(self._handle, lines)
        try:
            self.result = await self._turn(lines)
        except Over as over:
            self.result = over.result
        except ConnectionError:
            # It is gone. How, is told by its process.
            self.result = None
        finally:
            if self._decoder is not None and self.session is not None:
                self.text = self._decoder.text
                note_spent(self._task.private, self.session, self._decoder.spent)
            await self._connection.close()
        if lines.too_much is not None:
            raise lines.too_much

    async def call_off(self) -> None:
        """Ask the agent to end the turn, and wait a moment until it has."""
        self._called_off = True
        for asking in self._asking:
            asking.cancel()
        if self._connection is None or self._prompting is None or self._prompting.done():
            return
        hurry = asyncio.ensure_future(self._watch.hurry.wait())
        cancel = self._connection.send_notification("session/cancel", {"sessionId": self.session})
        sending = asyncio.ensure_future(cancel)
        sending.add_done_callback(_looked_at)
        try:
            await _first(self._prompting, hurry, within=self.courtesy)
        finally:
            hurry.cancel()
            sending.cancel()

    async def _turn(self, lines: Lines) -> Result:
        from acp.schema import PromptRequest, TextContentBlock

        try:
            self._agent = _abilities(await self._ask("initialize", _greeting()), self._task.env)
        except ValueError as error:
            raise Over(Result("failed", f"{self._name} {error}.")) from None
        self.session, offered = await self._open_session()
        self._watch.tell(Session(self.session))
        self._offer.take(offered.get("configOptions"))
        await apply_settings(self._offer, self._try, self._name, self._model, self._task.settings, self._note)
        if (why := self._watch.stop()) is not None:
            return Result("budget", why)
        if self._spent is None:
            self._spent = spent_before(self._task.private, self.session)
        self._decoder = VersionOne(self._watch.tell, lambda: self._offer.model, self._spent)
        text = TextContentBlock(type="text", text=self._task.instructions)
        prompt = _wire(PromptRequest(session_id=self.session, prompt=[text]))
        self._prompting = asyncio.ensure_future(self._ask("session/prompt", prompt, patient=True))
        self._prompting.add_done_callback(_looked_at)
        gone = asyncio.ensure_future(lines.ended.wait())
        try:
            await _first(self._prompting, self._over)
            if self._prompting.done():
                self._finish(self._decoder.answered(self._prompting.result()))
            await _first(self._over, gone)
            if not self._over.done():
                raise ConnectionError
            return await self._ended(self._over.result())
        finally:
            gone.cancel()
            self._prompting.cancel()

    async def _open_session(self) -> tuple[str, Json]:
        from acp.schema import LoadSessionRequest, NewSessionRequest, ResumeSessionRequest

        can, settings = self._agent, self._task.settings
        servers = server_list(
            settings.mcp_servers,
            http=can.http_servers,
            path=self._task.env.get("PATH"),
            cannot=lambda server, why: self._note("mcp", f"MCP server '{server}' is left out: {self._name} {why}."),
        )
        folders = [str(folder) for folder in settings.allowed_folders]
        if folders and not can.more_folders:
            self._note("setting", f"'allowed_folders' cannot be told to {self._name}: it has one folder only.")
            folders = []
        shared: Json = {
            "cwd": str(self._task.folder),
            "mcp_servers": servers,
            "additional_directories": folders or None,
        }
        session = self._task.session
        if session is None:
            answer = await self._new_session(_wire(NewSessionRequest(**shared)))
            found = answer.get("sessionId")
            if not isinstance(found, str) or not found:
                raise Over(Result("failed", f"{self._name} opened a session without an id."))
            return found, answer
        if can.resumes:
            method, request = "session/resume", _wire(ResumeSessionRequest(session_id=session, **shared))
        elif can.loads:
            # Nobody listens to the old story: the decoder is made when the turn begins.
            method, request = "session/load", _wire(LoadSessionRequest(session_id=session, **shared))
        else:
            raise Over(Result("session-lost", f"{self._name} cannot go on with an earlier session."))
        return session, await self._ask(method, request, lost=True)

    async def _new_session(self, request: Json) -> Json:
        """A new session. Some agents want to be told to use the key that is in their environment."""
        try:
            return await self._ask("session/new", request)
        except Over as over:
            if over.result.reason != "not-logged-in" or self._agent.key_method is None:
                raise
            try:
                await self._ask("authenticate", {"methodId": self._agent.key_method})
            except Over:
                raise over from None
        return await self._ask("session/new", request)

    async def _ended(self, how: Finished | Result) -> Result:
        if isinstance(how, Result):
            # We ended it: the agent is told, and what it still says does not count.
            await self.call_off()
            return how
        denied = self._denials > 0
        failure = how.failure or from_words(self._agent.name, how.last, used=how.used, denied=denied)
        if how.stop == "end_turn" and failure is not None:
            return Result(failure[0], f"{self._name}: {failure[1]}")
        reason, message = _ENDS.get(how.stop, ("failed", f"The turn ended as '{one_line(how.stop, 40)}'."))
        return Result(reason, message)

    def _finish(self, how: Finished | Result) -> None:
        if not self._over.done():
            self._over.set_result(how)

    # ------------------------------------------------------------------------- what we ask

    async def _try(self, method: str, params: Json) -> Json | None:
        """The answer to a request about the session; None: the agent would not."""
        try:
            return await self._ask(method, {"sessionId": self.session, **params})
        except Over as over:
            if over.result.reason == "timeout":
                raise
            return None

    async def _ask(self, method: str, request: Json, *, patient: bool = False, lost: bool = False) -> Json:
        """The agent's answer, for which the `patient` wait as long as it takes.

        An error is raised as `Over`; `lost`: it means that the session is.
        """
        from acp.exceptions import RequestError

        assert self._connection is not None
        limit = None if patient else self._answer_within
        try:
            async with asyncio.timeout(limit):
                answer = await self._connection.send_request(method, request)
        except RequestError as error:
            session = self._task.session if lost else None
            raise Over(from_error(self._name, error.code, str(error), error.data, session=session)) from None
        except TimeoutError:
            words = f"{self._name} did not answer '{method}' within {limit:g} s"
            hint = (
                ": is it an agent that speaks the protocol on its standard output?" if method == "initialize" else "."
            )
            raise Over(Result("timeout", words + hint)) from None
        if answer is not None and not isinstance(answer, dict):
            raise Over(Result("failed", f"{self._name} answered '{method}' with something that is no answer."))
        return answer or {}

    # ------------------------------------------------------------------------- what we are asked and told

    async def _handle(self, method: str, params: Any, notification: bool) -> Any:
        from acp.exceptions import RequestError

        if method == "session/update":
            self._heard(params)
            return None
        if notification:
            return None
        if method == "session/request_permission":
            answer = await self._permission(params)
            if answer is None:
                raise RequestError.invalid_params()
            return answer
        raise RequestError.method_not_found(one_line(method, 80))

    def _heard(self, params: Any) -> None:
        update = part(params, "update")
        if not update:
            return
        self._watch.alive()
        if update.get("sessionUpdate") == "config_option_update":
            self._offer.take(update.get("configOptions"))
        if self._decoder is None:
            self._spent = self._spent if (told := dollars(update)) is None else told
        elif not self._over.done():
            if not self._taken_in and update.get("sessionUpdate") in _ANSWERS:
                self._taken_in = True
                self._watch.tell(Heard())
            self._decoder.update(update)
            if update.get("sessionUpdate") in ("tool_call", "usage_update") and (why := self._watch.stop()) is not None:
                self._finish(Result("budget", why))

    async def _permission(self, params: Any) -> Json | None:
        """Our answer to a request for permission; None: it is no such request."""
        call, options = part(params).get("toolCall"), part(params).get("options")
        if not isinstance(call, dict) or not isinstance(options, list):
            return None
        self._questions += 1
        if self._is_over():
            return _outcome(None)
        if self._questions > MOST_QUESTIONS:
            self._finish(Result("failed", f"{self._name} asked for permission more than {MOST_QUESTIONS:,} times."))
            return _outcome(None)
        why = objection(call, self._task) or await self._refused(call)
        if self._is_over():  # while somebody thought about it
            return _outcome(None)
        chosen = choice([option for option in options if isinstance(option, dict)], allow=why is None)
        if why is not None or chosen is None:
            self._deny(call, why or "it offers no way to allow it")
        return _outcome(chosen)

    def _is_over(self) -> bool:
        return self._called_off or self._over.done()

    async def _refused(self, call: Json) -> str | None:
        """Why a person does not want a call; None: nobody has to be asked, or it may be made."""
        settings = self._task.settings
        own = [server.name for server in settings.mcp_servers if server.offered]
        if not asked_about(call, settings.tools, own):
            return None
        if self._watch.person is None:
            return "a person would have to be asked, and this job has no way to ask one"
        title = one_line(laid_open(" ".join(text(call.get("title")).split())), 200)
        given = call.get("rawInput") or call.get("content") or call.get("locations")
        shown = json.dumps(given, ensure_ascii=False, default=str) if given else ""
        asking = asyncio.ensure_future(self._watch.person(Wanted(tool_of_call(call, title), title, shown)))
        self._asking.add(asking)
        try:
            await asyncio.wait({asking})
        finally:
            self._asking.discard(asking)
            asking.cancel()
            await asyncio.wait({asking})  # that it was taken back is recorded before its turn is over
        if asking.cancelled():
            return "the turn was called off"
        answer = asking.result()
        return None if answer.allowed else answer.why

    def _deny(self, call: Json, why: str) -> None:
        self._denials += 1
        title = text(call.get("title"))
        about = one_line(" ".join(title.split()), 80) if title else "a tool"
        if self._denials <= MOST_DENIALS:
            self._note("denied", f"{about}: {why}.")
        else:
            message = f"{self._name} went on asking for what it was denied {MOST_DENIALS} times."
            self._finish(Result("denied", message))

    def _stray(self, line: bytes) -> None:
        if line.strip() and self._strays < STRAY_LINES:
            self._strays += 1
            self._watch.tell(Said(line[:LONGEST_STRAY].decode(errors="replace") + "\n"))

    def _note(self, kind: str, message: str) -> None:
        self._watch.tell(Noted(kind, message))


_KEY = re.compile(r"\bapi.?key\b", re.I)


def _greeting() -> Json:
    """What we say first. Files and terminals are the agent's own affair: it works in a folder on this machine."""
    from acp.schema import ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest

    can = ClientCapabilities(
        fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False, field_meta=ASKED_FOR
    )
    us = Implementation(name="orchard", title="Orchard", version=__version__)
    return _wire(InitializeRequest(protocol_version=VERSION, client_capabilities=can, client_info=us))


def _abilities(answer: Json, env: Mapping[str, str]) -> Abilities:
    """What the agent answers; `ValueError` says why it cannot be talked with."""
    from acp.schema import InitializeResponse
    from pydantic import ValidationError

    version = answer.get("protocolVersion")
    if version != VERSION:
        said = f"version {version}" if type(version) is int else "no version that we know"
        raise ValueError(f"speaks {said} of the Agent Client Protocol; we speak version {VERSION}")
    try:
        agent = InitializeResponse.model_validate(answer)
    except (ValidationError, RecursionError):
        raise ValueError("answered 'initialize' with something that is no answer") from None
    can = agent.agent_capabilities
    session = can.session_capabilities if can is not None else None
    servers = can.mcp_capabilities if can is not None else None
    return Abilities(
        name=agent.agent_info.name if agent.agent_info is not None else "",
        resumes=session is not None and session.resume is not None,
        loads=can is not None and bool(can.load_session),
        more_folders=session is not None and session.additional_directories is not None,
        http_servers=servers is not None and bool(servers.http),
        key_method=_key_method(agent.auth_methods, env),
    )


def _key_method(methods: Iterable[Any] | None, env: Mapping[str, str]) -> str | None:
    """The way to log in that needs nobody: it takes a key from the environment. None: a person has to log in."""
    for method in methods or ():
        kind = getattr(method, "type", None)
        names = [each.name for each in getattr(method, "vars", None) or ()]
        if kind == "env_var" and names and all(name in env for name in names):
            return str(method.id)
        if kind in (None, "agent") and _KEY.search(str(method.id)):
            return str(method.id)
    return None


def _wire(request: Any) -> Json:
    params: Json = request.model_dump(mode="json", by_alias=True, exclude_none=True)
    return params


def _import() -> None:
    import acp.connection
    import acp.schema  # noqa: F401


async def _first(*futures: asyncio.Future[Any], within: float | None = None) -> None:
    await asyncio.wait(futures, timeout=within, return_when="FIRST_COMPLETED")


def _looked_at(future: asyncio.Future[Any]) -> None:
    # A turn that we have ended ourselves may still fail, and nobody minds.
    if not future.cancelled():
        future.exception()


def _outcome(chosen: str | None) -> Json:
    if chosen is None:
        return {"outcome": {"outcome": "cancelled"}}
    return {"outcome": {"outcome": "selected", "optionId": chosen}}
