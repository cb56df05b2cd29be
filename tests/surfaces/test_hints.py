"""Every command that the program can advise is one that it understands, and says which plan it is about."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from orchard.surfaces.cli.group import cli
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.cli.verbs import VERBS
from tests.acceptance.program import Desk, desks

SOURCE = Path(__file__).parent.parent.parent / "src" / "orchard"
COMMAND = re.compile(r"(?:^|['`(]|[:;,] |then |and )orchard (?P<rest>[a-z-][^'`;\n]*)", re.MULTILINE)
"""A command where a person would take it for one: at the beginning, in quotes, after a colon."""
END = re.compile(r"\s(?:#|ends |&&|\||<|>|\S*\(|to |for |in |and |or )|, |\.$|\. |,$|\)|  ")
"""Where the command ends and the sentence goes on."""
NOT_ADVICE = (
    "bench/",
    "surfaces/cli/commands/machine/bench.py",
    "surfaces/mcp/relay/relay.py",
    "surfaces/mcp/messages.py",
)
"""Where such words are the names of measurements, of a program in its log, or patterns."""
PROSE = ("does", "must", "was", "is", "--help", "trustAPLAN")
OF_HERE = ("does not exist", "is not one of")
"""What depends on the folder, or stands for one of a list."""
OF_JOB = ("job", "logs", "attempts", "approve", "retry", "force-fail", "send", "interrupt", "complete", "deploy")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every text of a module but its docstrings, with what is put into it as a word that tells what it is."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    quiet = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in parts or id(node) in quiet:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_word(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, re.sub(r"\{\{?([\w.\[\]']*)\}?\}", lambda found: _named(found[1]), node.value)


def _word(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    return _named(ast.unparse(part.value))


def _named(expression: str) -> str:
    return "AJOB" if "job" in expression.lower() else "refs/x" if "ref" in expression else "APLAN"


@cache
def advised() -> list[tuple[str, str]]:
    """Every command in the source, with where it stands."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for line, text in texts(ast.parse(path.read_text("utf-8"))):
            for command in COMMAND.finditer(text):
                rest = END.split(command["rest"], maxsplit=1)[0].strip(" .,")
                place = f"{path.relative_to(SOURCE)}:{line}"
                quoted = command["rest"].endswith(" ") and text[command.end() : command.end() + 1] == "'"
                if not quoted and not place.startswith(NOT_ADVICE) and rest.split()[:1] not in [[one] for one in PROSE]:
                    found.append((place, rest))
    return found


def refusal(words: list[str]) -> str | None:
    """What the command line says against these words, without doing what they say."""
    if words[:1] == ["-C"]:
        words = words[2:]
    if not words or words[0] not in VERBS:
        return f"there is no command '{' '.join(words[:1])}'"
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    while isinstance(command, click.Group) and len(words) > 1 and words[1] in command.commands:
        words, command = words[1:], command.commands[words[1]]
    try:
        command.make_context(words[0], list(words[1:]), obj=Terminal())
    except click.exceptions.Exit:  # --help
        return None
    except click.ClickException as error:
        missing = isinstance(error, click.MissingParameter)
        return None if missing and len(words) == 1 else error.format_message()  # a verb named in a sentence
    return None


def test_every_command_in_the_source_is_one_that_the_command_line_takes() -> None:
    commands = advised()
    assert len(commands) > 120, "the search still finds them"

    wrong = {}
    for place, command in commands:
        try:
            said = refusal(shlex.split(command))
        except ValueError:
            continue  # a piece of an example with a quote that ends elsewhere
        if said is not None and not any(words in said for words in OF_HERE):
            wrong[place] = f"orchard {command}: {said}"

    assert not wrong


def test_every_command_about_a_job_says_which_plan_it_is_of() -> None:
    nameless = {
        place: command
        for place, command in advised()
        if "AJOB" in command.split() and command.split()[0] in OF_JOB and "--plan" not in command
    }

    # In the repository that the demo makes there is one plan only.
    assert not {place: command for place, command in nameless.items() if "/demo.py" not in place}


# ------------------------------------------------------------------------------- what is printed

OLD = """
name: Old
verify: grep -x good a.txt
target: goal
jobs:
  - {id: a, heal: false, work: "echo bad > a.txt"}
"""
FAILED = """
name: Failed
jobs:
  - {id: bad, heal: false, work: "echo why; exit 1"}
  - {id: next, needs: [bad], work: "true"}
"""
APPROVE = """
name: Look
jobs:
  - {id: bump, approve: true, work: "echo a > a.txt"}
"""
NEW = """
name: New
target: other
jobs:
  - {id: z, work: "echo z > z.txt"}
"""
PRINTED = re.compile(r"(?:hint: |next: |full log: |attempts?: |or: |'|; )orchard (?P<rest>[a-z-][^';\n]*)")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


@pytest.mark.parametrize(("text", "job"), [(OLD, "verify"), (FAILED, "bad"), (APPROVE, "bump")])
def test_what_is_printed_about_a_plan_that_is_not_the_newest_works_when_it_is_pasted(
    desk: Desk, text: str, job: str
) -> None:
    ran = desk("run", desk.plan(text))
    plan = desk.status()["plan"]["id"]
    desk("run", desk.plan(NEW))
    said = [ran, desk("status", plan), desk("job", job, "--plan", plan), desk("waiting"), desk("resume", plan)]
    said += [desk("approve", f"{plan}:{job}"), desk("retry", "nothing", "--plan", plan), desk("undo", plan)]

    commands = {found["rest"].strip(" .") for done in said for found in PRINTED.finditer(done.talk)}

    assert len(commands) >= 2
    for command in commands - {"list"}:
        assert plan in command, command
        assert refusal(shlex.split(command)) is None, command
    tried = {command: desk(*shlex.split(command)) for command in sorted(commands)}
    assert not {command: done.talk for command, done in tried.items() if done.code in (2, 3, 70)}
