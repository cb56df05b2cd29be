"""Small things that backends share: reading messages that nobody vouches for, and a private place for settings."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec.json import decode
from msgspec.structs import replace

from orchard.agents.cli import Json, reason_of
from orchard.agents.permissions import denied_of_server, of_server
from orchard.agents.protocol import Called, McpServer, Noted, Reason, Result, Said, Session, Task, Tell, digest
from orchard.files import made_below, read_below, write_below
from orchard.model.agent_rows import AgentRow
from orchard.model.permissions import Tools
from orchard.process.program import Ended
from orchard.store.logs import log_size, opened
from orchard.text import one_line

MOST_SESSIONS = 100
MOST_BYTES = 256 * 1024

Counts = dict[str, int]


class Totals:
    """What was told of each session, in a file of the job's own; one that is damaged is as good as none."""

    def __init__(self, private: Path, name: str) -> None:
        self._private, self._name = private, name
        try:
            self._sessions = decode(read_below(private, name, MOST_BYTES), type=dict[str, Counts])
        except (OSError, ValueError):
            self._sessions = {}

    def told(self, session: str | None) -> Counts | None:
        return self._sessions.get(session) if session is not None else None

    def remember(self, session: str, counts: Mapping[str, int]) -> None:
        self._sessions.pop(session, None)
        self._sessions[session] = dict(counts)
        newest = dict(list(self._sessions.items())[-MOST_SESSIONS:])
        write_private(self._private, self._name, json.dumps(newest))


LONGEST_ABOUT = 200
LONGEST_MESSAGE = 400
LONGEST_TEXT = 256 * 1024
"""Characters of an agent's last words that are kept."""
MOST_OPEN_CALLS = 1000
TAIL = 64 * 1024
"""Bytes of a program's standard error that are looked at."""
MOST_TOKENS = 1 << 53
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TELLING = ("command", "cmd", "file_path", "filePath", "path", "url", "query", "pattern", "description", "prompt")


def part(value: Any, *names: str) -> Json:
    """A part of a message; empty where there is none, or something else in its place."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    """A number of tokens or requests; what is no such number is 0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS else 0


def amount(value: Any) -> float:
    """Money or seconds; what is none is 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value < MOST_TOKENS else 0.0


def about(arguments: Any) -> str:
    given = part(arguments)
    chosen = next((given[name] for name in _TELLING if isinstance(given.get(name), str) and given[name]), None)
    if chosen is None:
        chosen = json.dumps(given, ensure_ascii=False)[: 2 * LONGEST_ABOUT] if given else ""
    return one_line(chosen, LONGEST_ABOUT)


def sentence(message: str) -> str:
    return one_line(" ".join(_COLOUR.sub("", message[: 4 * LONGEST_MESSAGE]).split()), LONGEST_MESSAGE)


def is_private(row: AgentRow, env: Mapping[str, str], keys: Iterable[str]) -> bool:
    """Whether the agent gets a home of the job's own: it is asked for, or a key is all that it needs."""
    if row.home == "auto":
        return any(env.get(key) for key in keys)
    return row.home == "private"


def write_private(folder: Path, name: str, content: str) -> Path:
    """Write a file that only the user can read to a folder of the agent's, whatever an earlier turn has put there."""
    return write_below(folder, name, content.encode())


def private_home(task: Task, name: str) -> str:
    with made_below(task.private, name):
        return str(task.private / name)


def server_row(server: McpServer, url: str = "url") -> Json:
    if server.url is not None:
        return {url: server.url, "headers": dict(server.headers)}
    return {"command": server.command or "", "args": list(server.args), "env": dict(server.env)}


def trusted_server(server: McpServer) -> Json:
    """A server whose tools may be used without a question, as Gemini CLI and what was made from it want it."""
    return {**server_row(server, "httpUrl"), "trust": True}


def limited_server(tools: Tools, server: McpServer) -> Json:
    """The same, with the tools of it that may be used."""
    named = None if server.offered else of_server(tools, server.name)
    only: Json = {} if named is None else {"includeTools": list(named)}
    denied = denied_of_server(tools, server.name)
    return {**trusted_server(server), **only, **({"excludeTools": list(denied)} if denied else {})}


def servers_file(
    folder: Path, name: str, servers: Iterable[McpServer], row: Callable[[McpServer], Json] = server_row
) -> Path:
    """The file that names servers to a program, in the form that most programs read."""
    return write_private(folder, name, json.dumps({"mcpServers": {server.name: row(server) for server in servers}}))


class Calls:
    """Tools that were called and have not answered yet, as many as are kept."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._open: dict[str, Called] = {}
        self.worked = False
        self._denied: str | None = None

    def begin(self, id: str, tool: str, arguments: Any) -> None:
        called = Called(sentence(tool) or "a tool", about(arguments), input=digest(arguments))
        if len(self._open) < MOST_OPEN_CALLS:
            self._open[id] = called
        self._tell(called)

    def end(self, id: str, *, failed: bool = False, denied: bool = False, why: str | None = None) -> None:
        """`why`: what the failed call answered, told in place of what it was about, also of a call that nobody kept."""
        called = self._open.pop(id, Called("a tool") if why is not None else None)
        if called is None:
            return
        if not failed and not denied:
            self.worked = True
            return
        self._tell(replace(called, about=called.about if why is None else why, failed=True))
        if denied:
            self._denied = called.tool
            self._tell(Noted("denied", f"It was not allowed to use {called.tool}: {called.about}"))

    def judge(self, done: Result) -> Result:
        """A turn that is done; one in which nothing was possible because it was not allowed is not."""
        if self._denied is None or self.worked:
            return done
        return replace(
            done, reason="denied", message=f"It was not allowed to use {self._denied}, and did nothing else."
        )


class Complaints:
    """What a program prints to its standard error, which goes to the log. Made before the program starts."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._start = log_size(log) or 0

    def read(self) -> str:
        try:
            with opened(self._log) as (file, end):
                if file is None:
                    return ""
                return os.pread(file, TAIL, max(self._start, end - TAIL)).decode(errors="replace")
        except OSError:
            return ""


class StreamReader:
    """What readers share: whom they tell, the session of the turn, its calls and the last words of the agent."""

    name: ClassVar[str] = "The agent"
    lost_words: ClassVar[tuple[str, ...]] = ()
    """By which it says that it does not know the session."""
    statuses: ClassVar[Mapping[int, Reason]] = {}
    """Of its end without a result, where they mean something."""

    def __init__(self, task: Task, tell: Tell) -> None:
        self._task, self._tell = task, tell
        self._complaints = Complaints(task.log)
        self.session: str | None = None
        self._calls = Calls(tell)
        self._words = ""

    def _name_session(self, id: str) -> None:
        if id and id != self.session:
            self.session = id
            self._tell(Session(id))

    def _say(self, said: str) -> None:
        if said.strip():
            line = said if said.endswith("\n") else said + "\n"
            self._words = (self._words + line)[-LONGEST_TEXT:]
            self._tell(Said(line))

    def _unfinished(self, ended: Ended, stray: str) -> Result:
        said = f"{self._complaints.read()}\n{stray}"
        if self._task.session is not None and self.session is None and any(lost in said for lost in self.lost_words):
            return Result("session-lost", telling_line(said))
        if ended.exit_code is not None and ended.exit_code in self.statuses:
            return Result(self.statuses[ended.exit_code], telling_line(said), session=self.session)
        # Only what it said before it began can be about the way to the model; later it may be anything.
        why = telling_line(said) if self.session is None else ""
        message = why or f"{self.name} did not say how its work ended. {ended.message}"
        return Result(self._reason(why) if why else "failed", message, self._words, self.session)

    def _reason(self, message: str) -> Reason:
        return reason_of(message)


def telling_line(complaints: str) -> str:
    """The line of a program's complaints that says most: the first that names an error, else the last."""
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    named = next((line for line in lines if "error" in line.lower()), None)
    return sentence(named or (lines[-1] if lines else ""))
