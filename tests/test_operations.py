"""The table of operations: each is found in every surface, or says why not, and its example is one that it takes."""

from collections.abc import Callable, Iterator, Mapping

import click
import pytest

from orchard.errors import UsageError
from orchard.operations.arguments import by_own_names, read_arguments
from orchard.operations.command import Command
from orchard.operations.operation import Absent, Alias, Argument, Operation, arguments_of
from orchard.operations.query import Query
from orchard.operations.table import OPERATIONS
from orchard.surfaces.cli.group import cli
from orchard.surfaces.cli.verbs import VERBS
from orchard.surfaces.http.operation import Part
from orchard.surfaces.http.operations import ROUTES
from orchard.surfaces.mcp.argument_fixes import Repair
from orchard.surfaces.mcp.schemas import input_schema
from orchard.surfaces.mcp.selection import TOOLSETS
from orchard.surfaces.mcp.toolbox import every_tool

ALL = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda one: one.name)


@ALL
def test_an_operation_is_a_route_or_says_why_not(operation: Operation) -> None:
    if isinstance(operation.route, Absent):
        assert operation.route.why.endswith(".")
    else:
        assert (operation.route.method, operation.route.path) in {(one.method, one.path) for one in ROUTES}


@ALL
def test_an_operation_is_a_tool_of_its_toolset_or_says_why_not(operation: Operation) -> None:
    if isinstance(operation.tool, Absent):
        assert operation.tool.why.endswith(".")
    else:
        name = operation.tool.name or operation.name
        assert (name, operation.tool.toolset) in {(one.name, one.toolset) for one in every_tool()}
        assert name in TOOLSETS[operation.tool.toolset], "its name stands in surfaces/mcp/selection.py"


@ALL
def test_an_operation_is_a_command_or_says_why_not(operation: Operation) -> None:
    if isinstance(operation.verb, Absent):
        assert operation.verb.why.endswith(".")
    else:
        assert operation.verb.name in VERBS
        assert cli.get_command(click.Context(cli), operation.verb.name) is not None


@ALL
def test_what_an_operation_says_is_a_sentence(operation: Operation) -> None:
    assert operation.sentence[0].isupper() and operation.sentence.endswith(".")


@ALL
def test_an_operation_knows_which_operations_usually_follow(operation: Operation) -> None:
    tools = {one.name for one in every_tool()}
    assert not [name for name in operation.next if name not in OPERATIONS and name not in tools]


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS.values() if isinstance(one, Command)], ids=lambda one: one.name
)
def test_a_command_refuses_an_argument_that_it_does_not_have(operation: Command) -> None:
    with pytest.raises(UsageError, match="has no argument 'nonsense'"):
        read_arguments(operation, {"nonsense": 1})


def test_an_alias_names_an_operation_that_takes_its_arguments() -> None:
    for one in OPERATIONS.values():
        if isinstance(one, Alias):
            given = {"plan": "p", "job": "j", "group": "g", "fields": {}}
            name, args = one.becomes({name: given[name] for name in one.args.__struct_fields__ if name in given})
            read_arguments(OPERATIONS[name], args)


def test_every_tool_is_an_operations() -> None:
    declared = {
        (one.tool.name or one.name, one.tool.toolset) for one in OPERATIONS.values() if not isinstance(one.tool, Absent)
    }
    assert {(tool.name, tool.toolset) for tool in every_tool()} == declared


def test_every_route_is_an_operations_but_that_of_the_document() -> None:
    declared = {(one.route.method, one.route.path) for one in OPERATIONS.values() if not isinstance(one.route, Absent)}
    assert {(one.method, one.path) for one in ROUTES} - declared == {("GET", "/openapi.json")}


def test_a_tool_says_of_itself_what_its_operation_does() -> None:
    """A query only looks; a command never does, and one that has a person asked first is one to be careful with."""
    found = {(one.name, one.toolset): one for one in every_tool()}
    for one in OPERATIONS.values():
        assert one.reads or not isinstance(one, Query)
        assert not (one.reads and isinstance(one, Command | Alias)), one.name
        assert not (one.reads and one.destructive) and (one.repeatable or not one.reads), one.name
        if not isinstance(one.route, Absent):
            assert one.reads is (one.route.method == "GET" or one.name == "validate_plan"), one.name
        if not isinstance(one.tool, Absent):
            tool = found[one.tool.name or one.name, one.tool.toolset]
            assert tool.read_only is one.reads
            assert tool.destructive is (one.destructive or one.tool.asks)
            assert tool.idempotent is (one.repeatable and not one.reads)


@pytest.mark.parametrize(
    "name", ["await_subtasks", "spawn_subtask", "report_progress", "finalize_plan", "reshape_plan"]
)
def test_what_changes_something_is_not_said_to_be_reading(name: str) -> None:
    assert not OPERATIONS[name].reads


def test_an_alias_is_as_careful_as_what_it_becomes() -> None:
    for one in OPERATIONS.values():
        if isinstance(one, Alias) and one.name not in ("update_plan", "update_job"):  # which remove nothing
            given = {"plan": "p", "job": "j", "group": "g"}
            name, _ = one.becomes({name: given[name] for name in one.args.__struct_fields__ if name in given})
            assert one.destructive is OPERATIONS[name].destructive, one.name
            assert one.whole_names is OPERATIONS[name].whole_names, one.name


OF_THE_TERMINAL = {
    "do": "writes the plan that `create_plan` is asked for",
    "demo": "a show", "init": "writes a file", "agent": "an agent, here and now",
    "serve": "the daemon itself", "stop": "the daemon itself", "trust": "a person's consent", "skill": "writes a file",
    "mcp": "a server", "schema": "prints a file", "bench": "measures this machine", "help": "words",
    "completion": "for a shell", "path": "is the `worktree` of `get_job`", "shell": "takes the terminal over",
    "attach": "takes the terminal over",
    "prune": "asks `purge_plan` for plan after plan",
}  # fmt: skip


def test_every_verb_is_an_operations_but_those_that_only_a_terminal_can_have() -> None:
    declared = {one.verb.name for one in OPERATIONS.values() if not isinstance(one.verb, Absent)}
    assert set(VERBS) - declared == set(OF_THE_TERMINAL)


# ------------------------------------------------------------------------------------------- arguments

IN_A_FILE = ("plan", "changes")
"""What the command line reads from the file that is named."""
WHOLE = ("plan", "plan_update", "plan_clone", "job", "job_update")
"""A plan, a job or fields of one: a body is that and nothing else, and a tool has its fields for arguments."""


def in_route(operation: Operation) -> set[str]:
    """What a request can say: by its path, its parameters, its headers and its body."""
    assert not isinstance(operation.route, Absent)
    path = (operation.route.method, operation.route.path)
    route = next(one for one in ROUTES if (one.method, one.path) == path)
    found = {part[1:-1] for part in route.parts if part.startswith("{")} | set(route.query.model_fields) - {"repo"}
    found |= {name for name, header in operation.route.headers.items() if header in route.headers}
    if isinstance(route.body, Part):
        return found | {one.name for one in arguments_of(operation.args) if one.form in WHOLE}
    return found | set(route.body.model_fields if route.body is not None else ())


def in_tool(operation: Operation) -> set[str]:
    assert not isinstance(operation.tool, Absent)
    key = (operation.tool.name or operation.name, operation.tool.toolset)
    found = set(next(one for one in every_tool() if (one.name, one.toolset) == key).input.model_fields)
    return found | {one.name for one in arguments_of(operation.args) if one.form in WHOLE}


def in_verb(operation: Operation) -> set[str]:
    """What a command line can say: by words in their places, and by options of an argument's name."""
    assert not isinstance(operation.verb, Absent)
    command = cli.get_command(click.Context(cli), operation.verb.name)
    assert command is not None
    found = {one.name or "" for one in command.params if isinstance(one, click.Argument)}
    options = {word for one in command.params if isinstance(one, click.Option) for word in one.opts}
    for one in arguments_of(operation.args):
        names = {one.name, one.name.removesuffix("s") if one.form == "works" else one.name}
        if options & {f"--{name.replace('_', '-')}" for name in names}:
            found.add(one.name)
        if one.form in IN_A_FILE and {"file", "files"} & {*found}:
            found.add(one.name)
        if one.name in ("plan", "job") and found & {"names", "jobs"}:
            found.add(one.name)
    return found


SURFACES: Mapping[str, Callable[[Operation], set[str]]] = {"route": in_route, "tool": in_tool, "verb": in_verb}


def places() -> Iterator[tuple[str, Operation]]:
    for operation in OPERATIONS.values():
        yield from ((name, operation) for name in SURFACES if not isinstance(getattr(operation, name), Absent))


@pytest.mark.parametrize(("surface", "operation"), [*places()], ids=lambda one: getattr(one, "name", one))
def test_every_argument_is_found_in_a_surface_that_has_its_operation_or_says_why_not(
    surface: str, operation: Operation
) -> None:
    found = SURFACES[surface](operation)
    for one in arguments_of(operation.args):
        why = one.absent.get(surface)
        assert (one.name in found) is (why is None), (one.name, why)
        assert why is None or why.endswith("."), one.name


MORE: Mapping[str, Mapping[str, str]] = {
    "limit": {"list_workers": "pages", "get_plan": "pages", "list_groups": "pages", "get_group": "pages",
              "get_plan_graph": "pages", "get_job_attempts": "pages"},
    "cursor": {"list_workers": "pages", "get_plan": "pages", "list_groups": "pages", "get_group": "pages",
               "get_plan_graph": "pages", "get_job_attempts": "pages"},
    "attempt": {"get_job_attempts": "one of them in full"},
    "offset": {"get_job_diff": "pages"},
    "max_bytes": {"get_job_diff": "pages", "get_job_logs": "pages"},
    "tail": {"get_job_logs": "the end, which a model reads first"},
}  # fmt: skip
"""What tools have beside the arguments of their operation, because a model is given pages."""


@pytest.mark.parametrize(
    ("surface", "operation"), [one for one in places() if one[0] != "verb"], ids=lambda one: getattr(one, "name", one)
)
def test_a_surface_has_no_argument_that_is_not_declared(surface: str, operation: Operation) -> None:
    own = arguments_of(operation.args)
    if surface == "tool" and any(one.form in WHOLE for one in own):
        return  # its arguments are the fields of a plan
    more = SURFACES[surface](operation) - {one.name for one in own}
    assert not [name for name in more if surface == "route" or operation.name not in MORE.get(name, {})]


def older_names() -> Iterator[tuple[Operation, Argument, str]]:
    for operation in OPERATIONS.values():
        yield from ((operation, one, old) for one in arguments_of(operation.args) for old in one.also)


@pytest.mark.parametrize(("operation", "argument", "old"), [*older_names()], ids=lambda one: getattr(one, "name", one))
def test_every_surface_takes_the_older_names_of_an_argument(operation: Operation, argument: Argument, old: str) -> None:
    assert old in by_own_names(operation.args, {old: 1, argument.name: 1}), "both are given: one is too many"
    assert by_own_names(operation.args, {old: 1}) == {argument.name: 1}
    if not isinstance(operation.tool, Absent):
        key = (operation.tool.name or operation.name, operation.tool.toolset)
        schema = input_schema(next(one for one in every_tool() if (one.name, one.toolset) == key))
        value = True if argument.kind is bool else 5 if argument.kind is float else "work"
        assert Repair(schema.get("$defs", {})).value({old: value}, schema, "") == {argument.name: value}
    if not isinstance(operation.route, Absent) and argument.name not in operation.route.headers:
        path = (operation.route.method, operation.route.path)
        route = next(one for one in ROUTES if (one.method, one.path) == path)
        if argument.name in route.query.model_fields:
            return  # which had no older name
        assert isinstance(route.body, type)
        assert getattr(route.body.model_validate({old: "work"}), argument.name) == "work"
