"""What an agent may do: modes, lists, and that whatever is handed on has never more than whoever hands it on."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.json import decode, encode

from orchard.model.permissions import (
    ALL,
    ASK,
    KINDS,
    MODES,
    Kind,
    Tools,
    canonical,
    made,
    named,
    narrowed,
    written,
    wrong,
)

NAMES = (*KINDS, "mcp__docs__read", "mcp__docs__write", "mcp__Docs2__do_it", "mcp__x__y", "something_new")

rules = st.sampled_from(
    [*NAMES, *MODES, "*", "mcp__*", "mcp__docs__*", "git_*", "b*", "Read", "BASH", "Write", "grep", "edit_*", "Edit"]
)
tools = st.builds(
    made,
    st.one_of(st.none(), st.sampled_from([*MODES, ASK]), st.lists(st.one_of(rules, st.just(ASK)), max_size=4)),
    st.lists(rules, max_size=3),
    st.lists(rules, max_size=3),
)


@pytest.mark.parametrize(
    ("mode", "kinds"), [("read-only", {"read"}), ("edit", {"read", "edit"}), ("all", {"read", "edit", "run", "other"})]
)
def test_a_mode_is_what_its_word_says(mode: str, kinds: set[Kind]) -> None:
    found = {name for name in KINDS if made(mode).permits(name)}
    assert found == {name for name, kind in KINDS.items() if kind in kinds}
    assert made(mode).mode == mode
    assert made(mode).permits("mcp__docs__read") == (mode == "all")


@given(tools, tools, st.sampled_from(NAMES))
def test_a_child_never_has_more_than_its_parent(parent: Tools, child: Tools, name: str) -> None:
    found = narrowed(parent, child)

    assert found.permits(name) == (parent.permits(name) and child.permits(name))
    assert found.asks(name) == (parent.asks(name) or child.asks(name))
    assert narrowed(found, ALL) == found
    assert narrowed(found, parent).permits(name) == found.permits(name)


@given(tools, tools, tools, st.sampled_from(NAMES))
def test_it_does_not_matter_who_says_what(a: Tools, b: Tools, c: Tools, name: str) -> None:
    one, other = narrowed(narrowed(a, b), c), narrowed(c, narrowed(b, a))

    assert one.permits(name) == other.permits(name)
    assert one.asks(name) == other.asks(name)
    assert one.mode == other.mode


@given(tools, tools)
def test_a_server_is_left_out_only_where_none_of_its_tools_is_permitted(parent: Tools, child: Tools) -> None:
    found = narrowed(parent, child)
    if any(found.permits(f"mcp__docs__{tool}") for tool in ("read", "write", "anything")):
        assert found.permits_server("docs")
    assert not (found.permits_server("docs") and not parent.permits_server("docs"))


@given(tools, tools)
def test_what_only_reads_permits_nothing_that_changes_a_file(parent: Tools, child: Tools) -> None:
    found = narrowed(parent, child)
    if parent.only_reads:
        assert found.only_reads
    if found.only_reads:
        assert not any(found.permits(name) for name in NAMES if KINDS.get(name, "other") in ("edit", "run"))
        assert not found.permits("mcp__docs__write")


@given(tools)
def test_the_journal_gives_back_what_it_was_given(value: Tools) -> None:
    assert decode(encode(value), type=Tools) == value


@example(made([ASK, ASK]))
@example(made([], ask=[ASK]))
@given(tools)
def test_what_is_written_down_means_the_same(value: Tools) -> None:
    said = written(value)
    found = made(said.get("tools"), said.get("deny_tools", ()), said.get("ask_tools", ()))
    assert (found.lists, found.deny, {*found.ask}) == (value.lists, value.deny, {*value.ask})


@pytest.mark.parametrize("name", ["Bash", "BASH", "bash", "shell", "run_shell_command", "RunShellCommand", "KillShell"])
def test_odd_names_and_odd_letters_mean_the_same_tool(name: str) -> None:
    assert canonical(name) == "bash"
    assert not made(deny=[name]).permits("bash")
    assert not made("edit").permits(name)


def test_a_server_s_tool_is_the_same_in_whatever_letters() -> None:
    denied = made(deny=["mcp__GitHub__Push"])
    assert not denied.permits("mcp__github__push")
    assert not made(deny=["mcp__my.server__do it".replace(" ", "_")]).permits("mcp__my_server__do_it")
    assert not made(deny=["MCP__*"]).permits("mcp__github__push")


def test_a_server_cannot_take_the_name_of_a_tool_of_ours() -> None:
    """`canonical` translates what programs call their tools, and never what belongs to a server."""
    assert canonical("mcp__x__read") == "mcp__x__read"
    assert not made("read-only").permits("mcp__read_file__read_file")


def test_lists_take_words_and_beginnings() -> None:
    value = made(["read-only", "mcp__docs__*"])
    assert value.permits("git_log") and value.permits("mcp__docs__find")
    assert not value.permits("write_file") and not value.permits("mcp__other__find")
    assert value.permits_server("docs") and not value.permits_server("other")


def test_no_word_is_a_mode_in_a_list_that_was_written_for_another_program() -> None:
    value, left_out = named(["Read", "Edit", "Bash(git log:*)"])
    assert value == Tools((("read_file", "edit_file"),))
    assert left_out == ("Bash(git log:*)",)
    assert not value.permits("write_file") and not value.permits("bash")


def test_asking_is_about_what_does_more_than_read() -> None:
    value = made(ASK)
    assert value.permits("bash") and value.asks("bash") and value.asks("mcp__x__y")
    assert not value.asks("read_file")
    assert made(ask=["bash"]).asks("Bash") and not made(ask=["bash"]).asks("write_file")


def test_what_is_orchard_s_own_is_there_unless_it_is_denied() -> None:
    assert made("read-only").permits("mcp__orchard__report_progress", "own")
    assert made([]).permits("mcp__orchard__report_progress", "own")
    assert not made(deny=["mcp__orchard__*"]).permits("mcp__orchard__report_progress", "own")
    assert not made(ASK).asks("mcp__orchard__report_progress", "own")


@pytest.mark.parametrize("given", ["Edit", "readonly", "", "edits", 3, {"a": 1}, ["Read-Only"], ["Bash(git:*)"], [""]])
def test_what_cannot_be_meant_is_said(given: object) -> None:
    assert wrong(given, modes=True) is not None


@pytest.mark.parametrize("given", ["edit", "ask", [], ["Read"], ["edit", "bash", "mcp__x__*"], ["*"]])
def test_what_can_be_meant_is_taken(given: object) -> None:
    assert wrong(given, modes=True) is None


def test_words_for_people() -> None:
    assert ALL.words == "all"
    assert made("edit", ["git_commit"], ["git_add"]).words == "edit, without git_commit; asks before git_add"
    assert narrowed(made("edit"), made(["bash"])).words == "edit and only bash"
