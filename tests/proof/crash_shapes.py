"""The plans that are killed in the crash matrix, and what has to be there when each is over."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Goal = Literal["landed", "branched", "undone", "canceled", "deleted", "purged"]

LINES = "".join(f"{number}\n" for number in range(1, 21))
BEFORE = {"README.md": "# small\n", "shared.txt": LINES, ".gitignore": "*.log\n"}
ATTEMPT = "(any attempt)"
"""In place of a content: the number of the attempt that wrote it."""


@dataclass(frozen=True)
class Shape:
    """A plan, what the user does with it, and what it brings."""

    name: str
    fields: Mapping[str, Any]
    files: Mapping[str, str]
    """What the landing adds or changes."""
    leaves: int
    """How many commits land: one for each leaf that brings something."""
    empty: int = 0
    """So many of them bring nothing if they are merged after another one, which a slow machine or a crash may do."""
    goals: tuple[Goal, ...] = ("landed",)
    checkout: str = "work"
    target: str = "work"
    changes: tuple[Mapping[str, Any], ...] = ()
    """What `orchard reshape` is given before the plan may go on."""
    fresh: bool = False
    """The user tries again in a new worktree."""
    tags: frozenset[str] = field(default_factory=frozenset)
    config: str = ""
    """The user's configuration."""

    def plan(self, marks: Path) -> str:
        """The plan file; jobs note outside of the repository that they ran."""
        text = json.dumps({"name": f"Crash {self.name}", **self.fields})
        return text.replace("MARKS", str(marks)).replace("PYTHON", sys.executable)


def ran(phase: str) -> str:
    """The shell words that note which program ran, for whom, in which attempt."""
    return f"set -e; echo {phase} $ORCHARD_JOB $ORCHARD_ATTEMPT >> MARKS/ran"


def job(name: str, *commands: str, needs: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    work = {"work": "; ".join((ran("work"), *commands))} if commands else {}
    return {"id": name, "needs": list(needs), **work, **more}


def writes(name: str) -> str:
    return f"echo {name} > {name}.txt"


def line(number: int, text: str) -> str:
    return f"sed -i 's/^{number}$/{text}/' shared.txt"


def made(*names: str) -> dict[str, str]:
    return {f"{name}.txt": f"{name}\n" for name in names}


def shared(**texts: str) -> dict[str, str]:
    """The shared file with these lines (`l5="five"`) in place of theirs."""
    return {"shared.txt": "".join(texts.get(f"l{row}", row) + "\n" for row in LINES.split())}


SINGLE = Shape("single", {"jobs": [job("a", writes("a"))]}, made("a"), 1)

CHAIN = Shape(
    "chain",
    {
        "target": "goal",
        "merge": "merge",
        "jobs": [
            job("a", writes("a"), line(1, "one")),
            job("b", writes("b"), line(7, "seven"), needs=("a",)),
            job("c", writes("c"), line(14, "fourteen"), needs=("b",)),
        ],
    },
    {**made("a", "b", "c"), **shared(l1="one", l7="seven", l14="fourteen")},
    1,
    target="goal",
)

DIAMOND = Shape(
    "diamond",
    {
        "jobs": [
            job("a", writes("a"), line(10, "ten")),
            job("b", writes("b"), line(1, "one"), needs=("a",)),
            job("c", writes("c"), line(20, "twenty"), needs=("a",)),
            job("d", "cat a.txt b.txt c.txt > d.txt", needs=("b", "c")),
        ],
    },
    {**made("a", "b", "c"), "d.txt": "a\nb\nc\n", **shared(l1="one", l10="ten", l20="twenty")},
    1,
    checkout="main",
    target="orchard/crash-diamond",
)

WIDE = Shape(
    "wide",
    {
        "max_parallel": 3,
        "verify": f"{ran('verify')}; cat w1.txt w2.txt w3.txt w4.txt w5.txt w6.txt",
        "jobs": [job(f"w{n}", writes(f"w{n}"), line(3 * n, f"w{n}")) for n in range(1, 7)],
    },
    {**made(*(f"w{n}" for n in range(1, 7))), **shared(**{f"l{3 * n}": f"w{n}" for n in range(1, 7)})},
    6,
)

JOINS = Shape(
    "joins",
    {
        "resolver": "theirs",
        "jobs": [
            job("x", writes("x"), line(10, "x")),
            job("y", writes("y"), line(10, "y"), line(4, "four")),
            job("z", writes("z"), line(17, "z")),
            job("j", writes("j"), needs=("x", "y")),
            job("k", writes("k"), needs=("x", "y", "z")),
        ],
    },
    {**made("x", "y", "z", "j", "k"), **shared(l4="four", l10="y", l17="z")},
    2,
)

CHECKS = Shape(
    "checks",
    {
        "setup": [f"{ran('setup')}; echo ready > ready.log"],
        "verify": f"{ran('verify')}; test -f ready.log; grep -q b b.txt",
        "jobs": [
            job(
                "a",
                writes("a"),
                prechecks=[f"{ran('pre')}; test ! -e a.txt"],
                postchecks=[f"{ran('post')}; cat a.txt"],
            ),
            job("lint", "cat a.txt", needs=("a",), changes="forbidden"),
            job(
                "b",
                writes("b"),
                needs=("lint",),
                postchecks=[f"{ran('post1')}; cat b.txt", f"{ran('post2')}; echo stray > made-by-check.txt"],
            ),
            job(
                "told",
                'echo \'{"summary": "looked", "type": "analysis"}\' > "$ORCHARD_EVIDENCE"',
                needs=("a",),
            ),
        ],
    },
    made("a", "b"),
    2,
    1,
)  # fmt: skip

FLAKY = Shape(
    "flaky",
    {
        "jobs": [
            job("a", writes("a"), "echo $ORCHARD_ATTEMPT > attempt-a.txt"),
            job(
                "b",
                "echo $ORCHARD_ATTEMPT > attempt-b.txt",
                "echo draft > draft-$ORCHARD_ATTEMPT.log",
                "test -e MARKS/failed || { touch MARKS/failed; exit 3; }",
                writes("b"),
                needs=("a",),
            ),
        ],
    },
    {**made("a", "b"), "attempt-a.txt": ATTEMPT, "attempt-b.txt": ATTEMPT},
    1,
    fresh=True,
)

GROUPS = Shape(
    "groups",
    {
        "land": "ask",
        "groups": [
            {"name": "front", "jobs": [job("ui", writes("ui")), job("all", needs=("ui", "back/api/all"))]},
            {
                "name": "back",
                "groups": [
                    {
                        "name": "api",
                        "jobs": [
                            job("one", writes("one")),
                            {
                                "id": "two",
                                "work": {"type": "process", "executable": "touch", "args": ["two.txt"]},
                            },
                            job("all", needs=("one", "two")),
                        ],
                    }
                ],
            },
        ],
    },
    {**made("ui", "one"), "two.txt": ""},
    1,
)

MOVED = Shape(
    "moved",
    {
        "target": "goal",
        "verify": "; ".join((
            ran("verify"),
            "touch MARKS/asked; until test -s MARKS/moved; do sleep 0.02; done",
        )),
        "jobs": [job("a", writes("a")), job("b", writes("b"))],
    },
    made("a", "b"),
    2,
    target="goal",
)  # fmt: skip

UNDO = Shape(
    "undo", {"jobs": [job("a", writes("a"), line(2, "two"))]}, {**made("a"), **shared(l2="two")}, 1,
    goals=("landed", "undone", "landed"),
)  # fmt: skip

APART = Shape(
    "apart", {"target": "goal", "jobs": [job("a", writes("a"))]}, made("a"), 1,
    goals=("landed", "undone", "deleted", "purged"), target="goal",
)  # fmt: skip

NEVER = Shape(
    "never", {"land": "never", "jobs": [job("a", writes("a"))]}, made("a"), 1,
    goals=("branched",), target="orchard/crash-never",
)  # fmt: skip

_SLEEPER = job(
    "b", "echo $ORCHARD_ATTEMPT > attempt-b.txt", "touch MARKS/started",
    "test -e MARKS/go || { sleep 300; }", writes("b"), needs=("a",),
)  # fmt: skip

CANCEL = Shape(
    "cancel", {"jobs": [job("a", writes("a")), _SLEEPER]}, {**made("a", "b"), "attempt-b.txt": ATTEMPT}, 1,
    goals=("canceled", "landed"), fresh=True,
)  # fmt: skip

DELETE = Shape(
    "delete", {"jobs": [job("a", writes("a")), _SLEEPER]}, {}, 0, goals=("canceled", "deleted", "purged"),
)  # fmt: skip

RESHAPE = Shape(
    "reshape",
    {"start_paused": True, "jobs": [job("a", writes("a")), job("gone", writes("gone"))]},
    made("a", "new"),
    1,
    changes=(
        {"op": "add", "job": job("new", writes("new"), needs=("a",))},
        {"op": "remove", "id": "gone"},
    ),
)

AGENT = """
set -e
MCP=$2
export MCP
if grep -q '^# Resolve a merge conflict' "$1"; then
    awk '/^<<<<<<</ {print "both"; skip = 1} !skip {print} /^>>>>>>>/ {skip = 0}' 1.merged > "${TMPDIR:-/tmp}/settled"
    cat "${TMPDIR:-/tmp}/settled" > 1.merged
elif grep -q '^# Mend what makes' "$1"; then
    if grep -q mended.txt "$1"; then echo mended > mended.txt; else echo good > c.txt; fi
else
    sed -n '/^RUN: /{s///p;q;}' "$1" | sh
fi
"""
"""An agent: does what its instructions say, settles every conflict in one way, and mends what there is to mend."""


def asks(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "work": {"type": "agent", "instructions": f"RUN: {'; '.join((ran('work'), *commands))}"},
        **more,
    }


AGENTS = Shape(
    "agents",
    {
        "verify": "grep -q mended mended.txt",
        "jobs": [
            asks("a", writes("a"), line(10, "a")),
            asks("b", writes("b"), line(10, "b")),
            asks("c", "echo bad > c.txt", postchecks=["grep -q good c.txt"]),
        ],
    },
    {**made("a", "b"), "c.txt": "good\n", "mended.txt": "mended\n", **shared(l10="both")},
    4,
    config="agent = 'scribe'\n[agents.scribe]\ncommand = \"sh MARKS/agent.sh {prompt_file}\"\n",
)

HELPER = """
import json, os, subprocess, sys

(server,) = json.load(open(os.environ["MCP"]))["mcpServers"].values()
relay = subprocess.Popen([server["command"], *server["args"]], stdin=-1, stdout=-1, stderr=-3, text=True)
hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "scribe", "version": "1"}}


def ask(id, method, params):
    relay.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\\n")
    relay.stdin.flush()
    for line in relay.stdout:
        answer = json.loads(line)
        if answer.get("id") == id:
            return answer["result"]
    sys.exit("the engine is gone")


def call(name, **arguments):
    result = ask(name, "tools/call", {"name": name, "arguments": arguments})
    if result.get("isError"):
        sys.exit(str(result["content"]))
    return result["structuredContent"]


ask("hello", "initialize", hello)
spawned = call("spawn_subtask", instructions=sys.argv[1])["subtask"]["id"]
while call("await_subtasks", ids=[spawned])["running"]:
    pass
pulled = call("pull_subtask_changes", id=spawned)
sys.exit(0 if pulled["status"] in ("merged", "nothing") else str(pulled))
"""
"""What an agent runs to have a part of its work done by another, and to take that over."""

_CHILD = "RUN: echo child $ORCHARD_JOB $ORCHARD_ATTEMPT >> MARKS/ran; cat a.txt > child.txt"

SUBTASKS = Shape(
    "subtasks",
    {
        "jobs": [
            asks(
                "a",
                writes("a"),
                f"PYTHON MARKS/help.py '{_CHILD}'",
                line(3, "three"),
                heal=False,
                postchecks=[f"{ran('post')}; cat child.txt"],
            )
        ]
    },
    {**made("a"), "child.txt": "a\n", **shared(l3="three")},
    1,
    config="agent = 'scribe'\n[agents.scribe]\ncommand = \"sh MARKS/agent.sh {prompt_file} {mcp_config}\"\n",
)

SHAPES: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        SINGLE, CHAIN, DIAMOND, WIDE, JOINS, CHECKS, FLAKY, GROUPS, MOVED, UNDO, APART, NEVER, CANCEL, DELETE, RESHAPE,
        AGENTS, SUBTASKS,
    )
}  # fmt: skip
