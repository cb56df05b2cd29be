"""What a tool of the built-in agent is, and what tools are made of: schemas, threads, answers short and plain."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct, field

from orchard.agents.definitions.skills import Skill
from orchard.files import open_below
from orchard.git.folders import remove_tree
from orchard.model.limits import Limits
from orchard.model.permissions import Kind, Tools, kind_of
from orchard.process.background import to_its_end
from orchard.process.families.identity import Identity
from orchard.process.launcher import Launcher
from orchard.process.pipes import Pipes
from orchard.process.program import Ended, run_program
from orchard.text import shortened

Json = dict[str, Any]

LONGEST_ANSWER = 60_000
"""Characters of a tool's answer that reach the model; the middle of a longer one is left out."""


class ToolError(Exception):
    """Something that the model can read and act on: the tool's answer is this text, marked as an error."""


class Answer(Struct, frozen=True):
    text: str
    failed: bool = False


def plain_answer(said: str | bytes, nothing: str = "(no output)", *, failed: bool = False) -> Answer:
    """What others have said, made plain and cut to what reaches the model."""
    shown = plain_text(said)
    return Answer(shortened(shown, LONGEST_ANSWER) if shown.strip() else nothing, failed)


async def _nobody(_: Identity) -> None:
    return


class ToolContext(Struct, frozen=True):
    folder: Path
    """Paths of tools are relative to it, and stay in it (links followed) or in `allowed_folders`."""
    launcher: Launcher
    env: Mapping[str, str] = field(default_factory=dict)
    """For programs that a tool starts; the model's key is not in it."""
    withheld: frozenset[str] = frozenset()
    """Of `env`: what tools of ours use and no command gets, such as a token that may do much more."""
    allowed_folders: tuple[Path, ...] = ()
    scratch: Path | None = None
    shell_seconds: float = 60.0
    shell_most_seconds: float = 300.0
    on_start: Callable[[Identity], Awaitable[None]] = _nobody
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    skills: tuple[Skill, ...] = ()

    async def run(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        log: Path,
        limits: Limits,
        converse: Callable[[Pipes], Awaitable[None]] | None = None,
    ) -> Ended:
        """Run a program for one call of a tool, by itself, so that it ends with that call."""
        launch = self.launcher.apart().launch(argv, self.folder, env, log, limits, pipes=converse is not None)
        return await run_program(launch, self.on_start, self.hurry, converse)

    @property
    def for_commands(self) -> dict[str, str]:
        return {name: value for name, value in self.env.items() if name not in self.withheld}


class Tool(Struct, frozen=True):
    name: str
    """`^[a-zA-Z0-9_-]{1,64}$`."""
    description: str
    schema: Json
    """JSON Schema of the input; what does not fit it is answered as an error, and `execute` is not called."""
    execute: Callable[[ToolContext, Json], Awaitable[Answer]]
    """Does it; ToolError for what the model can correct. A hang is ended by cancellation."""
    parallel: bool = False
    """Whether it may run beside other tools: it changes nothing."""
    known_as: str = ""
    """What permissions call it, where that is not its name: a name that is too long for a model is cut."""
    own: bool = False
    """Whether it asks something of the orchestrator, which narrows what it hands on."""

    @property
    def kind(self) -> Kind:
        return "own" if self.own else kind_of(self.name)

    def permitted(self, tools: Tools) -> bool:
        """Whether it may be used, by its name and by the one that was cut."""
        return all(tools.permits(name, self.kind) for name in {self.name, self.known_as or self.name})

    def asked_about(self, tools: Tools) -> bool:
        return any(tools.asks(name, self.kind) for name in {self.name, self.known_as or self.name})


P = ParamSpec("P")
T = TypeVar("T")

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,16}[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def schema(required: tuple[str, ...] = (), **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def text(description: str, **more: object) -> Json:
    return {"type": "string", "description": description, **more}


def whole(description: str, least: int, most: int) -> Json:
    return {"type": "integer", "description": description, "minimum": least, "maximum": most}


def flag(description: str) -> Json:
    return {"type": "boolean", "description": description}


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run something short to its end in a thread; a cancellation waits for that, so that nothing comes late."""
    return await to_its_end(asyncio.get_running_loop().run_in_executor(None, lambda: function(*args, **kwargs)))


def plain_text(said: str | bytes) -> str:
    """Text of many lines without colours and other control sequences; of a line that was written over, what stayed."""
    if isinstance(said, bytes):
        said = said.decode(errors="replace")
    said = _ESCAPES.sub("", said.replace("\r\n", "\n"))
    if "\r" in said:
        said = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in said.split("\n"))
    return _CONTROLS.sub("", said)


@contextmanager
def scratch_file(context: ToolContext) -> Iterator[Path]:
    """A place for what a program says: beside the folder for temporary files, not in it, since a second command could
    put a link in the place of a folder there before the log is opened. The two are swept together by their name."""
    beside = context.scratch
    prefix, around = ("orchard-tool-", None) if beside is None else (f"{beside.name}-tool-", beside.parent)
    folder = Path(mkdtemp(prefix=prefix, dir=around))
    try:
        yield folder / "output"
    finally:
        remove_tree(folder)


def head_and_tail(path: Path, most: int) -> bytes:
    """The beginning and the end of a file, and between them how many bytes are left out.

    The program that wrote it may have put a link in its place, or in that of its folder: nothing is read there.
    """
    try:
        with open_below(Path(os.path.realpath(path.parent.parent)), f"{path.parent.name}/{path.name}") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= most:
                return file.read(most)
            half = most // 2
            head = file.read(half)
            file.seek(size - half)
            return head + f"\n[... {size - 2 * half:,} bytes left out ...]\n".encode() + file.read(half)
    except OSError:
        return b""
