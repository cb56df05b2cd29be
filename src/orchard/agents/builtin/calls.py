"""Running the tools that a model asks for: checked first, bounded in time and size, side by side where that is safe.

Whatever a tool does, the model hears of it as an answer: input that does not fit, a tool that does not exist, one that
hangs, floods or crashes. Only cancellation goes through.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import groupby

from orchard.agents.builtin.model import Json, Message, Reply, result_block
from orchard.agents.builtin.tool import LONGEST_ANSWER, Answer, Tool, ToolContext, ToolError
from orchard.agents.builtin.tools.mcp_content import BadTool, cleaned
from orchard.agents.protocol import Called, Noted, Person, Tell, Wanted, digest
from orchard.model.permissions import ALL, KINDS, Tools, canonical
from orchard.text import did_you_mean, one_line, quoted, shortened

AT_ONCE = 8
MOST_TOGETHER = 4 * LONGEST_ANSWER
"""Characters of all answers to one message."""
SPARE_SECONDS = 30.0
"""Beyond the longest that a command may take: a tool that has not ended by itself then is ended."""
_TELLING = ("command", "path", "pattern", "query", "message", "name", "url")
_SHOWN_ERRORS = 3
_NOTED_DENIALS = 50


class Calls:
    def __init__(
        self,
        tools: Sequence[Tool],
        context: ToolContext,
        tell: Tell,
        seconds: float | None = None,
        *,
        permitted: Tools = ALL,
        person: Person | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools if tool.permitted(permitted)}
        self._permitted, self._person, self._denials = permitted, person, 0
        self._context, self._tell = context, tell
        self._seconds = context.shell_most_seconds + SPARE_SECONDS if seconds is None else seconds
        self._free = asyncio.Semaphore(AT_ONCE)

    @property
    def offered(self) -> list[Json]:
        """The tools as a model is told of them, always in the same order."""
        found = [self._tools[name] for name in sorted(self._tools)]
        return [{"name": one.name, "description": one.description, "input_schema": one.schema} for one in found]

    async def run(self, reply: Reply) -> Message:
        calls = reply.message.calls
        answers: list[Answer] = []
        for parallel, group in groupby(calls, key=self._is_parallel):
            some = list(group)
            for batch in [some] if parallel else [[one] for one in some]:
                answers += await self._together(batch, reply)
        room = max(2_000, min(LONGEST_ANSWER, MOST_TOGETHER // max(1, len(calls))))
        return Message(
            "user",
            tuple(
                result_block(call["id"], shortened(answer.text, room), failed=answer.failed)
                for call, answer in zip(calls, answers, strict=True)
            ),
        )

    def _is_parallel(self, call: Json) -> bool:
        tool = self._tools.get(call["name"])
        return tool is None or tool.parallel

    async def _together(self, calls: Sequence[Json], reply: Reply) -> list[Answer]:
        # With `return_exceptions` all of them have ended when this returns, also when we are canceled.
        ends = await asyncio.gather(*(self._one(call, reply) for call in calls), return_exceptions=True)
        return [self._told(call, end) for call, end in zip(calls, ends, strict=True)]

    async def _one(self, call: Json, reply: Reply) -> Answer:
        name, arguments = call["name"], call.get("input") or {}
        self._tell(Called(name, about(arguments), input=digest(arguments)))
        if (wrong := reply.malformed.get(call["id"]) or self._wrong(name, arguments)) is not None:
            return Answer(wrong, failed=True)
        if (refused := await self._refused(self._tools[name], arguments)) is not None:
            return Answer(refused, failed=True)
        timer = asyncio.timeout(self._seconds)
        try:
            async with self._free, timer:
                return await self._tools[name].execute(self._context, arguments)
        except ToolError as error:
            return Answer(str(error), failed=True)
        except TimeoutError:
            if not timer.expired():
                raise
            return Answer(f"{name} was stopped: it ran longer than {self._seconds:g} s.", failed=True)

    def _told(self, call: Json, end: Answer | BaseException) -> Answer:
        name = call["name"]
        if isinstance(end, BaseException):
            what = one_line(f"{type(end).__name__}: {end}", 300)
            self._tell(Noted("warning", f"The tool {name} broke: {what}"))
            end = Answer(f"{name} broke, through no fault of yours: {what}", failed=True)
        if end.failed:
            self._tell(Called(name, about(call.get("input") or {}), failed=True))
        return end

    async def _refused(self, tool: Tool, arguments: Json) -> str | None:
        """Why a person does not want this call; None: it may be made. Time goes by only while somebody thinks."""
        if not tool.asked_about(self._permitted):
            return None
        if self._person is None:
            why = "a person would have to be asked, and this job has no way to ask one"
        else:
            given = json.dumps(arguments, ensure_ascii=False) if arguments else ""
            answer = await self._person(Wanted(tool.name, _telling(arguments), given))
            if answer.allowed:
                return None
            why = answer.why
        self._note_denial(tool.name, why)
        return f"{tool.name} was not run: {why}"

    def _note_denial(self, name: str, why: str) -> None:
        self._denials += 1
        if self._denials <= _NOTED_DENIALS:
            self._tell(Noted("denied", f"{name}: {why}"))

    def _wrong(self, name: str, arguments: Json) -> str | None:
        known = canonical(name) in KINDS or name.startswith("mcp__")
        if name not in self._tools and known and not self._permitted.permits(name):
            why = f"the tools of this work are: {self._permitted.words}"
            self._note_denial(one_line(name, 100), why)
            return f"You may not use {quoted(name)}: {why}."
        if name not in self._tools:
            near = did_you_mean(name, self._tools)
            return f"There is no tool {quoted(name)}{near or '.'} The tools are: {', '.join(sorted(self._tools))}."
        wrong = _checker(json.dumps(self._tools[name].schema))(arguments)
        return "\n".join([f"The input does not fit {name}:", *wrong]) if wrong else None


def about(arguments: Json) -> str:
    return one_line(" ".join(_telling(arguments)[:1000].split()), 160)


def _telling(arguments: Json) -> str:
    """The argument that tells most about a call, as it is."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str) and value.strip()}
    return next((texts[name] for name in _TELLING if name in texts), None) or next(iter(texts.values()), "")


@lru_cache(256)
def _checker(text: str) -> Callable[[Json], list[str]]:
    """What says in how far input does not fit a schema. A schema that cannot be used finds nothing wrong: then the tool
    has to see for itself.

    Schemas of MCP servers are a stranger's. A registry of our own holds nothing, so no reference is fetched from
    anywhere; patterns are left out, since one that never comes to an end would hold the whole process. Looking through
    a schema takes 20 ms, and fifty agents have the same tools: what was made is kept, by the schema's text.
    """
    schema: Json = json.loads(text)
    jsonschema, referencing = import_module("jsonschema"), import_module("referencing")
    useless = (
        jsonschema.exceptions.SchemaError,
        jsonschema.exceptions.UnknownType,
        referencing.exceptions.Unresolvable,
        RecursionError,
        BadTool,
    )
    try:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
        validator = kind(cleaned(schema), registry=referencing.Registry())
    except useless:
        return lambda arguments: []

    def check(arguments: Json) -> list[str]:
        try:
            errors = sorted(validator.iter_errors(arguments), key=lambda error: str(error.json_path))
        except useless:
            return []
        return [
            f"- {one_line(error.json_path, 100)}: {one_line(error.message, 300)}" for error in errors[:_SHOWN_ERRORS]
        ]

    return check
