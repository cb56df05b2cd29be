"""Next steps are values: each surface writes them in its own way, and they keep their meaning between processes."""

import ast
import json
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from orchard.engine.server.server import decode_error, encode_error
from orchard.errors import Hint, Next, NotFound, hint_from, steps_of
from orchard.operations.operation import Absent
from orchard.operations.table import OPERATIONS
from orchard.surfaces.cli.terminal import error_view
from orchard.surfaces.http.problems import document
from orchard.surfaces.mcp.messages import error_text
from orchard.surfaces.mcp.selection import TOOLSETS, Selection
from orchard.surfaces.mcp.tool import Tool
from orchard.surfaces.mcp.toolbox import tools
from orchard.surfaces.next_steps import COMMANDS, TYPED_ONLY, command_line, in_commands, in_tools, told, tool_call
from tests.surfaces.test_hints import SOURCE, refusal

SAID: Hint = ("Look first: '", Next("get_plan", "p"), "', then '", Next("retry_job", "p", "a/b"), "'.")


@pytest.mark.parametrize(
    ("step", "command", "call"),
    [
        (Next("resume_plan", "p"), "orchard resume p", 'resume_plan(plan="p")'),
        (Next("retry_plan", "p"), "orchard retry --plan p", 'retry_plan(plan="p")'),
        (
            Next("retry_job", "p", "a/b", {"from_phase": "commit"}),
            "orchard retry a/b --plan p --from commit",
            'retry_job(plan="p", job="a/b", from_phase="commit")',
        ),
        (
            Next("send_message", "p", "a", {"message": "Go on; it's fine"}),
            "orchard send a 'Go on; it'\"'\"'s fine' --plan p",
            'send_message(plan="p", job="a", message="Go on; it\'s fine")',
        ),
        (
            Next("update_plan", "p", args={"resolver": "ours"}),
            "orchard reshape p --resolver ours",
            'update_plan(plan="p", resolver="ours")',
        ),
        (Next("list_plans", args={"deleted": True}), "orchard list --deleted", "list_plans(deleted=true)"),
        (Next("list_agents", args={"agent": "mine"}), "orchard agents mine", "list_agents"),
        (Next("get_doctor"), "orchard doctor", "orchard doctor"),
        (Next("of_a_newer_orchard", "p"), "of_a_newer_orchard", "of_a_newer_orchard"),
    ],
    ids=lambda value: value.operation if isinstance(value, Next) else "",
)
def test_a_step_is_a_command_for_a_person_and_a_call_for_a_model(step: Next, command: str, call: str) -> None:
    assert (command_line(step), tool_call(step)) == (command, call)


def test_words_stay_around_steps_and_what_no_tool_does_is_said_to_be_for_a_shell() -> None:
    assert in_commands(SAID) == "Look first: 'orchard status p', then 'orchard retry a/b --plan p'."
    assert in_tools(SAID) == """Look first: 'get_plan(plan="p")', then 'retry_job(plan="p", job="a/b")'."""
    assert in_tools(Next("list_saved_work", "p")) == "In a shell: orchard recover --plan p"


@pytest.mark.parametrize(
    "hint", [None, "In words.", Next("resume_plan", "p"), SAID], ids=["none", "words", "a", "both"]
)
def test_a_hint_is_the_same_after_it_went_to_another_process(hint: Hint | None) -> None:
    sent = json.dumps(encode_error(NotFound("Gone.", hint)))

    heard = decode_error(json.loads(sent))

    assert isinstance(heard, NotFound) and heard.hint == hint


@pytest.mark.parametrize("said", [7, {"plan": "p"}, ["a", 1], [{"operation": 1}]])
def test_what_is_no_hint_is_none(said: object) -> None:
    assert hint_from(said) is None


def test_every_surface_tells_an_error_with_its_next_steps() -> None:
    error = NotFound("There is no such job.", SAID)
    steps = [{"operation": "get_plan", "plan": "p"}, {"operation": "retry_job", "plan": "p", "job": "a/b"}]

    shown = error_view(error, [])
    problem = document(404, error.message, error.hint)

    assert shown["hint"] == problem["hint"] == in_commands(SAID) and told(error).endswith(in_commands(SAID))
    assert shown["next"] == steps and problem["next"] == steps_of(SAID)
    assert error_text("get_job", error) == f"There is no such job.\nNext: {in_tools(SAID)}"


# ----------------------------------------------------------------------------------- what there is


def written() -> Iterator[tuple[str, Next]]:
    """Every step that the source writes down, with where."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "Next"
                and isinstance(node.args[0], ast.Constant)
            ):
                given = dict(zip(("operation", "plan", "job", "args"), node.args, strict=False))
                given |= {one.arg: one.value for one in node.keywords if one.arg}
                args = given.get("args", ast.Dict([], []))
                assert isinstance(args, ast.Dict)
                names = [key.value for key in args.keys if isinstance(key, ast.Constant)]
                plan, job = ("x" if name in given else None for name in ("plan", "job"))
                place = f"{path.relative_to(SOURCE)}:{node.lineno}"
                yield place, Next(str(node.args[0].value), plan, job, dict.fromkeys(map(str, names), "x"))


def test_every_step_in_the_source_can_be_written_with_all_that_it_says() -> None:
    steps = dict(written())
    assert len(steps) > 50, "the search still finds them"

    lost = {place: step for place, step in steps.items() if not _given(step) <= taken(step.operation)}

    assert not lost and {step.operation for step in steps.values()} <= COMMANDS.keys()


def taken(operation: str) -> set[str]:
    """What the command for an operation can say."""
    names = {part.split()[-1].lstrip("-") for part in COMMANDS[operation].replace("]", "").split(" [")[1:]}
    return names - {"worker"} | {"plan", "job"} if "worker" in names else names


@pytest.mark.parametrize("operation", COMMANDS)
def test_every_command_is_one_that_the_command_line_takes(operation: str) -> None:
    words = {"resolver": "ours", "from_phase": "commit", "deleted": True, "question": 1, "step": "continue"}
    given: dict[str, Any] = {name: words.get(name, "x") for name in taken(operation)}
    step = Next(operation, given.pop("plan", None), given.pop("job", None), given)

    said = refusal(shlex.split(command_line(step))[1:])

    assert said is None or "does not exist" in said


@pytest.mark.parametrize("operation", sorted(COMMANDS.keys() & OPERATIONS.keys()))
def test_the_command_for_an_operation_is_its_verb(operation: str) -> None:
    verb, word = OPERATIONS[operation].verb, COMMANDS[operation].split()[0]

    # One without a verb of its own says which other takes it as well.
    assert f"`{word}`" in verb.why if isinstance(verb, Absent) else word == verb.name


@cache
def known() -> dict[str, Tool]:
    return {tool.name: tool for tool in tools(Selection(tuple(TOOLSETS)))}


def test_every_tool_takes_what_the_steps_of_the_source_would_give_it() -> None:
    refused = {
        place: sorted(strange)
        for place, step in written()
        if (tool := known().get(step.operation)) is not None
        and (strange := _given(step) - tool.input.model_fields.keys() - {*TYPED_ONLY.get(step.operation, ())})
    }

    assert not refused


def _given(step: Next) -> set[str]:
    return {*(["plan"] if step.plan else ()), *(["job"] if step.job else ()), *step.args}
