"""What the built-in agent may do is all that it can do, whatever a model calls."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.builtin.agent import BuiltinAgent
from orchard.agents.builtin.calls import Calls
from orchard.agents.builtin.model import Message, Reply
from orchard.agents.builtin.tool import Answer, Tool, ToolContext, schema
from orchard.agents.builtin.tools.mcp_content import full_name, tool_name
from orchard.agents.protocol import McpServer, Noted, Permit, Telling, Wanted
from orchard.model.agent_rows import BuiltinRow
from orchard.model.permissions import ALL, KINDS, Tools, made, narrowed
from orchard.model.usage import Usage
from orchard.process.launcher import Launcher
from tests.agents.builtin.kit import open_box
from tests.agents.builtin.test_mcp import small
from tests.agents.builtin.test_toolbox import OWN
from tests.agents.conftest import Desk, Ear
from tests.agents.llm import Call, Say, ScriptedLlm, steps

pytestmark = pytest.mark.anyio

READ = {name for name in OWN if KINDS[name] == "read"}
EDIT = READ | {"write_file", "edit_file", "git_add", "git_commit"}


def reply(*calls: tuple[str, dict[str, Any]]) -> Reply:
    blocks = [
        {"type": "tool_use", "id": f"c{n}", "name": name, "input": given} for n, (name, given) in enumerate(calls)
    ]
    return Reply(Message("assistant", tuple(blocks)), "tool_use", Usage())


async def answers(message: Message) -> list[str]:
    return [str(block["content"]) for block in message.blocks]


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (made("read-only"), READ),
        (made("edit"), EDIT),
        (ALL, set(OWN)),
        (made(["Read", "GREP", "bash"]), {"read_file", "search_files", "bash"}),
        (made(["read-only", "bash"], ["git_*"]), {*READ, "bash"} - {"git_status", "git_diff", "git_log"}),
        (narrowed(made("read-only"), ALL), READ),
        (narrowed(made("edit"), made(["bash", "write_file"])), {"write_file"}),
        (made([]), set()),
        (made(deny=["*"]), set()),
    ],
)
async def test_only_what_is_permitted_is_there(tmp_path: Path, tools: Tools, names: set[str]) -> None:
    async with open_box(tmp_path, tools=tools) as box:
        assert set(box.names) == names


HOSTILE: list[tuple[str, str, dict[str, Any]]] = [
    ("read-only", "write_file", {"path": "a.txt", "content": "x"}),
    ("read-only", "WRITE_FILE", {"path": "a.txt", "content": "x"}),
    ("read-only", "Write", {"path": "a.txt", "content": "x"}),
    ("read-only", "edit_file", {"path": "b.txt", "old_text": "b", "new_text": "c"}),
    ("read-only", "bash", {"command": "touch a.txt"}),
    ("read-only", "git_commit", {"message": "x", "all": True}),
    ("edit", "bash", {"command": "touch a.txt"}),
    ("edit", "Bash", {"command": "touch a.txt"}),
    ("edit", "bash ", {"command": "touch a.txt"}),
    ("edit", "mcp__small__echo", {"text": "x"}),
    ("edit", "mcp__orchard__bash", {"command": "touch a.txt"}),
]


@pytest.mark.parametrize(("tools", "name", "given"), HOSTILE)
async def test_a_model_that_calls_what_it_was_not_offered_is_refused(
    tmp_path: Path, tools: str, name: str, given: dict[str, Any]
) -> None:
    (tmp_path / "b.txt").write_text("b")
    permitted = made(tools)
    async with open_box(tmp_path, tools=permitted) as box:
        calls = Calls(box.tools, box.context, box.told.append, permitted=permitted)
        said = await answers(await calls.run(reply((name, given))))

    assert "You may not use" in said[0] or "There is no tool" in said[0]
    assert not (tmp_path / "a.txt").exists()
    assert (tmp_path / "b.txt").read_text() == "b"


async def test_a_tool_that_slipped_into_the_list_is_still_not_run(tmp_path: Path) -> None:
    """Two locks: the toolbox offers nothing that is not permitted, and the one who runs calls looks as well."""
    async with open_box(tmp_path) as box:
        calls = Calls(box.tools, box.context, box.told.append, permitted=made("edit"))
        said = await answers(await calls.run(reply(("bash", {"command": "touch a.txt"}))))

    assert said[0] == "You may not use 'bash': the tools of this work are: edit."
    assert "bash" not in [one["name"] for one in calls.offered]
    assert not (tmp_path / "a.txt").exists()
    assert [one.message for one in box.told if isinstance(one, Noted) and one.kind == "denied"]


async def test_servers_that_none_of_the_lists_reaches_are_not_started(tmp_path: Path) -> None:
    missing = McpServer("missing", command="no-such-program")
    async with open_box(tmp_path, [missing, small()], tools=made(["read-only", "mcp__SMALL__echo"])) as box:
        names = [name for name in box.names if name.startswith("mcp__")]

    assert names == ["mcp__small__echo"]
    assert box.notes == []


async def test_a_name_that_was_cut_for_a_model_is_denied_by_its_whole_length(tmp_path: Path) -> None:
    long = "do_" + "x" * 80
    name = tool_name("docs", long, ())

    async def run(_: ToolContext, arguments: dict[str, Any]) -> Answer:
        return Answer("done")

    tool = Tool(name, "d", schema(), run, known_as=full_name("docs", long))
    assert len(name) == 64
    assert not tool.permitted(made(deny=[f"mcp__docs__{long}"]))
    assert not tool.permitted(made(deny=[name]))
    assert tool.permitted(made(["mcp__docs__*"]))


async def test_a_name_that_means_no_tool_is_told(tmp_path: Path) -> None:
    async with open_box(tmp_path, tools=made(["read-only", "wrte_file"], ["bsh"], ["gti_commit"])) as box:
        pass

    assert box.notes == [
        "'tools: wrte_file' has no effect: there is no such tool.",
        "'deny_tools: bsh' has no effect: there is no such tool.",
        "'ask_tools: gti_commit' has no effect: there is no such tool.",
    ]


# --------------------------------------------------------------------------------------------- asking


class Somebody:
    """A person, who is asked and answers."""

    def __init__(self, *answers: Permit) -> None:
        self.asked: list[Wanted] = []
        self._answers = list(answers)

    async def __call__(self, wanted: Wanted) -> Permit:
        self.asked.append(wanted)
        await asyncio.sleep(0)
        return self._answers.pop(0)


async def test_a_person_is_asked_before_what_does_more_than_read(tmp_path: Path) -> None:
    person = Somebody(Permit(True), Permit(False, "not that one"))
    tools = made("ask")
    async with open_box(tmp_path, tools=tools) as box:
        calls = Calls(box.tools, box.context, box.told.append, permitted=tools, person=person)
        said = await answers(
            await calls.run(
                reply(
                    ("write_file", {"path": "a.txt", "content": "x"}),
                    ("read_file", {"path": "a.txt"}),
                    ("bash", {"command": "touch b.txt"}),
                )
            )
        )

    assert [one.tool for one in person.asked] == ["write_file", "bash"]
    assert person.asked[1].about == "touch b.txt" and "touch b.txt" in person.asked[1].input
    assert said[2] == "bash was not run: not that one"
    assert (tmp_path / "a.txt").exists() and not (tmp_path / "b.txt").exists()


async def test_input_that_does_not_fit_asks_nobody(tmp_path: Path) -> None:
    person, tools = Somebody(), made("ask")
    async with open_box(tmp_path, tools=tools) as box:
        calls = Calls(box.tools, box.context, box.told.append, permitted=tools, person=person)
        await calls.run(reply(("bash", {"comand": "ls"})))

    assert person.asked == []


async def test_where_nobody_can_be_asked_the_call_is_refused(tmp_path: Path) -> None:
    tools, told = made("ask"), list[Telling]()
    async with open_box(tmp_path, tools=tools) as box:
        calls = Calls(box.tools, ToolContext(tmp_path, Launcher()), told.append, permitted=tools)
        said = await answers(await calls.run(reply(("bash", {"command": "touch a.txt"}))))

    assert "this job has no way to ask one" in said[0]
    assert not (tmp_path / "a.txt").exists()


# ----------------------------------------------------------------------------- how long commands may run


async def test_the_time_of_commands_is_a_setting(desk: Desk, ear: Ear) -> None:
    script = steps(Call("bash", {"command": "sleep 20"}), Call("bash", {"command": "true", "timeout": 900}), Say("ok"))
    with ScriptedLlm(script) as llm:
        row = BuiltinRow(base_url=llm.url, model="fake", bash_seconds=0.3, bash_max_seconds=600)
        await BuiltinAgent(row).run(desk.task(env={"ANTHROPIC_API_KEY": "x"}), ear.watch)
        first, second = llm.requests[-1].results

    assert "it ran longer than 0.3 s" in first
    assert "600" in second and "900" in second, "the most that can be asked for"
