"""An agent of the user's own: a command line in a row of the configuration.

    [agents.mine]
    command = "mytool --model {model} --file {prompt_file}"

    {prompt}        the instructions themselves, as one argument; only where they are short
    {prompt_file}   a file that holds them
    {model}         the model that the plan or the row names; empty where none is named
    {folder}        where it works; its current directory as well
    {session}       the session to go on with; empty at first. The program decides what that means
    {mcp_config}    a file that names MCP servers, in the form that most programs read: {"mcpServers": {NAME: {...}}}

Without `{prompt}` and `{prompt_file}` the instructions go to its standard input. Everything it prints is what it says,
and exit status 0 is success: there is no better word from it. An argument that is nothing but an empty `{model}` or
`{session}` is left out, together with the option before it.
"""

import re
import shlex

from orchard.agents.backends.stream import Complaints, sentence, servers_file, write_private
from orchard.agents.cli import LONGEST_PROMPT_ARGUMENT, Command, no_effect, options
from orchard.agents.permissions import Holds
from orchard.agents.protocol import Reason, Result, Said, Task, Tell
from orchard.errors import OrchardError
from orchard.model.agent_rows import AgentRow
from orchard.process.program import Ended

PLACES = ("prompt", "prompt_file", "model", "folder", "session", "mcp_config")
_PLACE = re.compile(r"\{(" + "|".join(PLACES) + r")\}")
_KEPT = 64 * 1024
"""Characters of its last words that are kept."""


class Custom:
    program = ""
    variables: tuple[str, ...] = ()
    holds: Holds = "nothing"

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        words = shlex.split(row.command or "")[1:]
        used = {place for word in words for place in _PLACE.findall(word)}
        if "prompt" in used and len(task.instructions.encode()) > LONGEST_PROMPT_ARGUMENT:
            raise OrchardError(
                f"its instructions are longer than the {LONGEST_PROMPT_ARGUMENT // 1024} kB that {{prompt}} may hold.",
                f"Use {{prompt_file}} in [agents.{self.name}], or neither: then it reads its standard input.",
            )
        if "prompt" in used and "\0" in task.instructions:
            raise OrchardError("its instructions hold a NUL byte, which no argument can.")
        self._note(used, task, tell)
        values = {
            "prompt": task.instructions,
            "model": task.settings.model or row.model or "",
            "folder": str(task.folder),
            "session": task.session or "",
        }
        if "prompt_file" in used:
            values["prompt_file"] = str(write_private(task.scratch, "instructions.md", task.instructions))
        if "mcp_config" in used:
            values["mcp_config"] = str(servers_file(task.scratch, "mcp.json", task.settings.mcp_servers))
        filled = _filled(words, values)
        stdin = b"" if used & {"prompt", "prompt_file"} else task.instructions.encode()
        return Command((program, *row.args, *filled), stdin=stdin)

    def reader(self, task: Task, tell: Tell) -> "CustomReader":
        return CustomReader(self.name, task, tell)

    def _note(self, used: set[str], task: Task, tell: Tell) -> None:
        settings = task.settings
        own = {"model": None} if "model" in used else {}
        options(self.name, task, tell, {**own, "allowed_folders": None, "allowed_urls": None})
        for folder in settings.allowed_folders if not task.walled else ():
            no_effect(tell, self.name, "allowed_folders", folder)
        for url in settings.allowed_urls if not task.walled else ():
            no_effect(tell, self.name, "allowed_urls", url)
        for server in settings.mcp_servers:
            if "mcp_config" not in used and not server.offered:
                no_effect(tell, self.name, "mcp_servers", server.name)


def _filled(words: list[str], values: dict[str, str]) -> list[str]:
    """The words with what stands for their places; `--model {model}` goes where there is no model."""
    found: list[str] = []
    for word in words:
        place = _PLACE.fullmatch(word)
        if place is not None and not values.get(place[1], ""):
            if found and found[-1].startswith("-"):
                found.pop()
            continue
        found.append(_PLACE.sub(lambda place: values[place[1]], word))
    return found


class CustomReader:
    def __init__(self, name: str, task: Task, tell: Tell) -> None:
        self._name, self._tell, self._session = name, tell, task.session
        self._complaints = Complaints(task.log)
        self._words = ""

    def hear(self, line: str) -> None:
        self._tell(Said(line + "\n"))
        self._words = f"{self._words}{line}\n"[-_KEPT:]

    def result(self, ended: Ended, stray: str) -> Result:
        said = self._words.strip()
        if ended.ok:
            return Result("done", text=said, session=self._session)
        reason: Reason = "signal" if ended.reason == "signal" else "failed"
        complaint = _last_line(self._complaints.read()) or _last_line(said)
        message = f"{ended.message} {complaint}".strip()
        return Result(reason, message, said, self._session)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return sentence(lines[-1]) if lines else ""
