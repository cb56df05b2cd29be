"""`orchard init`: a file to start from, with every line explained; nothing that exists is replaced."""

import os
from pathlib import Path

from orchard.config.keys import KEYS
from orchard.config.layers import Config, flatten
from orchard.errors import UsageError
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal

PLAN_NAME = "plan.yaml"
CONFIG_NAME = "orchard.toml"

STARTER = """\
# A plan: jobs, and which jobs each of them needs. Every job works in a folder of its own (a git
# worktree), so jobs run side by side without seeing each other's half-done files.
#
#   orchard validate plan.yaml     check it
#   orchard graph plan.yaml        draw it
#   orchard run plan.yaml          run it and land the result
#
# Every field is explained in docs/plan-file.md; `orchard schema` serves editors.
name: My plan

# Where the result goes. Left out: the branch you are on, or a new branch `orchard/my-plan` if you
# are on the default branch.
# target: my-branch

# Runs on everything together before it lands; nothing lands unless it passes.
# verify: make test

jobs:
  - id: hello
    work: echo "hello" > hello.txt

  # These two need the first one, and run at the same time.
  - id: shout
    needs: [hello]
    work: tr a-z A-Z < hello.txt > shout.txt
    postchecks: grep HELLO shout.txt # must pass on what was committed

  - id: count
    needs: [hello]
    work: wc -c < hello.txt > count.txt

  # This one starts from a merge of both. It only looks: leaving a change would be a failure.
  - id: look
    needs: [shout, count]
    work: cat shout.txt count.txt
    expects_no_changes: true
"""

ROWS = """\
## Agents and MCP servers are rows with a name (trust); docs/configuration.md has all that they may hold:
##
## [agents.claude]
## model = "opus"
##
## [agents.mine]                 # an agent of your own: '@mine do this' in a plan
## command = "mytool --model {model} --file {prompt_file}"
##
## [mcp_servers.docs]            # a work names it: mcp_servers: [docs]
## url = "https://docs.example/mcp"
## headers = { Authorization = "Bearer ${DOCS_TOKEN}" }
"""


def run_init(terminal: Terminal, folder: Path, *, config: bool = False, name: str | None = None) -> int:
    """Write a plan file (or settings, with `config`) into a folder, and say what to do next."""
    path = folder / (name or (CONFIG_NAME if config else PLAN_NAME))
    _create(path, starter_config() if config else STARTER)
    shown = safe(os.path.relpath(path))
    command = "orchard config show --origin" if config else f"orchard run {shown}"
    lines: list[Line] = [[("Wrote ", ""), (shown, "name")], [("next: ", "wait"), (command, "strong")]]
    terminal.answer({"file": str(path.absolute()), "next": command}, *lines)
    return 0


def starter_config() -> str:
    """Every setting with what it means, commented out at its default."""
    defaults = flatten(Config())
    lines = [
        "# Settings of Orchard for this repository. Every line shows a default; remove the '#' to change it.",
        "# What is marked with 'trust' runs programs or loosens safety: it counts after 'orchard trust'. What is",
        "# marked with 'stricter' does so only where it is looser than what you have set for yourself.",
    ]
    section = ""
    for key in KEYS.values():
        table, _, own = key.name.rpartition(".")
        if table != section:
            lines += ["", f"[{table}]"]
            section = table
        elif not table:
            lines.append("")
        lines += [
            f"# {key.meaning}{' (trust)' if key.needs_trust else ' (stricter)' if key.loosens else ''}",
            f"# {own} = {_toml(defaults[key.name], key.nothing)}",
        ]
    return "\n".join([*lines, "", ROWS])


def _toml(value: object, nothing: int | str) -> str:
    """A default as TOML writes it, which has no word for nothing."""
    if value is None:
        return _toml(nothing, 0)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def _create(path: Path, content: str) -> None:
    try:
        # O_EXCL also refuses a link that points nowhere, which would be written through otherwise.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise UsageError(f"'{safe(path)}' exists already; it was left as it is.", "Name another file.") from None
    except OSError as error:
        raise UsageError(f"Cannot write '{safe(path)}': {error.strerror}.") from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)
