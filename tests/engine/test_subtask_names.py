"""Whom an agent can hand work to: agents that have a name here, and definitions of the repository; nobody else."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from orchard.agents.protocol import Agent
from orchard.engine.server import start as opening
from orchard.errors import OrchardError
from tests.engine.conftest import Orchard
from tests.engine.helpers import Asker, Line, by_task, run
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio

ATTACKS = (
    "acp:sh", "acp:sh -c 'touch /tmp/pwned'", "acp: sh", "acp:", "acp::", "ACP:sh", "Acp:sh -c id", " acp:sh",
    "\tacp:sh",
    "\nacp:sh", "acp :sh", "acp\uff1ash", "acp\u02d0sh", "acp\ua789sh", "acp:/bin/sh", "acp:./sh", "acp:../../bin/sh",
    "acp:~/evil", "acp:$HOME/evil", "acp:claude-agent-acp", "acp:/tmp/claude-agent-acp", "acp:one", "one:acp", "one:",
    ":one", "mcp:one", "file:///bin/sh", "http://127.0.0.1/agent", "npm:evil", "/bin/sh", "/usr/bin/env", "./one",
    "../one", "one/../two", "one/", "/one", "one/two", "~/one", "..", ".", "one\0", "\0", "one\0two", "One", "ONE",
    "oNe",
    "\uff4fne", "\u043ene", "on\u0435", "one\u200b", "\u200bone", "one\ufeff", "one\u0301", "\u202eone", "one ", " one",
    "one\n", "one\r\n", "one\t", "one;sh", "one|sh", "one&&sh", "`sh`", "$(sh)", "${SHELL}", "%SystemRoot%", "one sh",
    "--help", "-c", "@@one", "@one:evil", "@acp:sh", "@", "*", "on?", "[o]ne", "", " ", "\n", "null", "None", "true",
    "0", "agent", "sh", "bash",
    "python3", "claude", "builtin", "the-server", "evil", "evil-command", "evil/command", "../evil", "x" * 5000,
)  # fmt: skip
"""Names that no agent may be given work by: commands, paths, look-alikes, and names of other things."""

_EVIL = "---\nname: {name}\ndescription: x\ncommand: sh -c id\nmodel: '--help'\n---\nDo it.\n"
DEFINITIONS = {
    ".claude/agents/evil-command.md": _EVIL.format(name="acp:sh -c id"),
    ".claude/agents/evil.md": _EVIL.format(name="/bin/sh"),
    ".claude/agents/path.md": _EVIL.format(name="../evil"),
    ".claude/agents/slash.md": _EVIL.format(name="evil/command"),
}


@dataclass
class Open(ScriptedAgents):
    """A table that takes any command for an agent, as the real one does for people, and remembers what it was asked."""

    found: list[str | None] = field(default_factory=list)

    def find(self, name: str | None) -> Agent:
        self.found.append(name)
        return self.agents[name] if name in self.agents else self.agents["one"]


async def test_no_other_name_gives_work_to_anybody(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    agents, line = Open(), Line()
    monkeypatch.setattr(opening, "Agents", lambda config, host: agents)
    through: list[Any] = []

    async def parent(asker: Asker) -> str:
        for name, content in DEFINITIONS.items():
            file = asker.task.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        before = len(agents.found)
        for name in ATTACKS:
            try:
                through.append((name, await asker.ask("spawn_subtask", instructions="x", agent=name)))
            except OrchardError:
                continue
        assert agents.found[before:] == []
        asker.write(done="done")
        return "Done."

    agents.add("one", by_task(line, parent=parent))
    await run(orchard, line, "name: Help\njobs: [{id: a, work: '@one Parent'}]")

    assert len(ATTACKS) > 80
    assert through == []
