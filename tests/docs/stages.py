"""What a reader has before typing a block: files of the page, plans that run, agents, a forge.

A page's blocks are run in their order, in one shell. Where the page takes for granted that something is there, its
stage makes it; where a command is meant to fail or to go on until the reader ends it, the stage says so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from orchard.testing import Repo
from tests.docs.pages import ROOT, blocks
from tests.docs.shell import Shell

Before = Callable[[Shell], None]

AGENT = """\
case "$(cat)" in
  *test_lines.py*) printf 'import unittest\\nimport lines\\n\\nclass T(unittest.TestCase):\\n' > test_lines.py
    printf '    def test(self):\\n        self.assertEqual(lines.count_lines("a"), 1)\\n' >> test_lines.py;;
  *"Add login"*|*"Export reports"*)
    printf 'name: Made\njobs:\n  - {id: one, work: "echo one > one.txt", changes: optional}\n'; exit;;
  *docstring*) sed -i.old 's/^    return len.*/    "Count."\\n&/' tally.py; rm ./*.old;;
  *) echo "$ORCHARD_JOB" > "$ORCHARD_JOB.txt";;
esac
echo Done.
"""
SETTINGS = 'agent = "mine"\n[agents.mine]\ncommand = "mine"\n'


@dataclass(frozen=True)
class Stage:
    """How the blocks of a page are run; they are counted from 0, those that are not run among them."""

    before: dict[int, Before] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    """The exit code of a command that begins so, where it is not 0."""
    until: dict[str, str] = field(default_factory=dict)
    """The words after which the reader ends a command that begins so."""

    def code(self, command: str) -> int:
        return next((code for start, code in self.codes.items() if command.startswith(start)), 0)

    def ends(self, command: str) -> str | None:
        return next((words for start, words in self.until.items() if command.startswith(start)), None)


def plan_of(page: str, number: int = 0, name: str = "plan.yaml") -> Before:
    """A plan of the page, saved as the page says."""
    return lambda shell: shell.write(name, [one for one in blocks(ROOT / page) if one.language == "yaml"][number].text)


def with_agent(shell: Shell) -> None:
    """An agent that is a program of the reader's own."""
    shell.program("mine", AGENT)
    shell.settings(SETTINGS)


PLAN = "name: {name}\ntarget: goal\n{more}jobs:\n{jobs}"
SLOW = "  - {id: list, work: echo list > list.txt}\n  - {id: count, needs: [list], work: echo counting; sleep 60}\n"
FAILING = "  - {id: count, work: 'test -e made && echo x > x.txt', heal: false}\n"
CONFLICT = "  - {id: a, work: echo one > shared.txt}\n  - {id: b, work: 'sleep 1; echo two > shared.txt'}\n"


def begun(name: str, jobs: str, more: str = "", code: int = 0, option: str = "") -> Before:
    """A plan that the reader has run."""

    def go(shell: Shell) -> None:
        shell.write("begun.yaml", PLAN.format(name=name, jobs=jobs, more=more))
        found, said = shell.run(f"orchard run begun.yaml {option}")
        assert found == code, said
        shell.names["greet-k3x9p"] = shell.names["login-3f2a"] = shell.names["PLAN"] = newest(shell)

    return go


def newest(shell: Shell) -> str:
    return str(shell.desk("list", "--json", cwd=shell.folder).json[-1]["id"])


def named_plan(shell: Shell) -> None:
    shell.names["PLAN"] = newest(shell)


def landed_twice(shell: Shell) -> None:
    """A landing that something was added to, and one that was not."""
    shell.run("orchard cancel --yes; orchard retry --yes")
    for name in ("first", "second"):
        begun(name, f"  - {{id: {name}, work: echo {name} > {name}.txt}}\n")(shell)


def talking(shell: Shell) -> None:
    """An agent that waits for an answer."""
    begun("Login", "  - {id: api, work: {instructions: Build it, interactive: true}}\n", code=4)(shell)


def conflicting(name: str) -> Before:
    return begun(name, CONFLICT, "resolver: fail\n", code=1)


def edited(shell: Shell) -> None:
    """The reader has resolved the conflict in the worktree."""
    shell.run("orchard shell b -- sh -c 'echo both > shared.txt'")


def own_log(shell: Shell) -> None:
    shell.names["~/.local/state"] = shell.desk.env["XDG_STATE_HOME"]


def folders(*names: str) -> Before:
    def go(shell: Shell) -> None:
        for name in names:
            (shell.desk.folder / name).mkdir(parents=True, exist_ok=True)

    return go


def opened(shell: Shell) -> None:
    """The reader has begun to resolve the conflict."""
    shell.run("orchard resolve b")


def neighbours(shell: Shell) -> None:
    """Two other repositories beside this one."""
    for name in ("a", "b"):
        Repo.make(shell.desk.folder / name)


def both(*steps: Before) -> Before:
    def go(shell: Shell) -> None:
        for step in steps:
            step(shell)

    return go


STAGES: dict[str, Stage] = {
    "README.md": Stage(
        before={1: plan_of("README.md"), 2: with_agent, 3: talking},
        codes={"orchard send": 4},
    ),
    "docs/agents.md": Stage(),
    "docs/api.md": Stage(until={"curl -sN": "event: Landed"}),
    "docs/ci.md": Stage(before={0: plan_of("README.md")}),
    "docs/configuration.md": Stage(before={0: both(plan_of("README.md"), own_log)}),
    "docs/conflicts.md": Stage(
        before={0: conflicting("Greet"), 1: edited, 2: both(conflicting("Again"), opened), 3: conflicting("Side")},
    ),
    "docs/daemon.md": Stage(
        before={0: neighbours},
        until={"orchard serve ": "Orchard serves"},
    ),
    "docs/install.md": Stage(
        before={1: folders(".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions")},
    ),
    "docs/mcp.md": Stage(),
    "docs/planning.md": Stage(before={0: with_agent}),
    "docs/pull-requests.md": Stage(
        before={0: begun("Add login", "  - {id: a, work: echo a > a.txt}\n", "land: ask\n", code=4)},
    ),
    "docs/quickstart.md": Stage(
        before={
            2: plan_of("docs/quickstart.md"),
            3: begun("Slow", SLOW, option="--detach"),
            4: begun("Failing", FAILING, code=1),
            5: landed_twice,
        },
        codes={"orchard retry count": 1},
        until={"orchard logs count -f": "counting"},
    ),
    "docs/tutorial.md": Stage(
        before={
            0: lambda shell: shell.go(shell.desk.folder),
            2: plan_of("docs/tutorial.md"),
            7: with_agent,
            11: named_plan,
        },
        codes={"orchard run lines.yaml": 1},
    ),
}
