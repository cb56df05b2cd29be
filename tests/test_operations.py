"""The table of operations: each is found in every surface, or says why not, and its example is one that it takes."""

import click
import pytest

from orchard.errors import UsageError
from orchard.operations.arguments import read_arguments
from orchard.operations.command import Command
from orchard.operations.operation import Absent, Alias, Operation
from orchard.operations.table import OPERATIONS
from orchard.surfaces.cli.group import cli
from orchard.surfaces.cli.verbs import VERBS
from orchard.surfaces.http.operations import ROUTES
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


OF_THE_TERMINAL = {
    "demo": "a show", "init": "writes a file", "plan": "an agent writes a file", "agent": "an agent, here and now",
    "serve": "the daemon itself", "stop": "the daemon itself", "trust": "a person's consent", "skill": "writes a file",
    "mcp": "a server", "schema": "prints a file", "bench": "measures this machine", "help": "words",
    "completion": "for a shell",
}  # fmt: skip


def test_every_verb_is_an_operations_but_those_that_only_a_terminal_can_have() -> None:
    declared = {one.verb.name for one in OPERATIONS.values() if not isinstance(one.verb, Absent)}
    assert set(VERBS) - declared == set(OF_THE_TERMINAL)
