"""Agents of the user's own: a command line in the configuration."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from orchard.agents.backends.custom import Custom
from orchard.agents.cli import LONGEST_PROMPT_ARGUMENT, STRAY_LINES, CliAgent
from orchard.agents.protocol import McpServer, Said, Session, Settings, Used
from orchard.model.agent_rows import AgentRow
from orchard.model.limits import Limits
from orchard.surfaces.next_steps import in_commands
from tests.agents.conftest import Desk, Ear
from tests.agents.turns import CANARIES, alive, cancel_while, files, run, seen_by

pytestmark = pytest.mark.anyio

TOOL = f"""#!{sys.executable}
import json, os, sys
seen = {{"argv": sys.argv[1:], "stdin": sys.stdin.read(), "cwd": os.getcwd(), "env": dict(os.environ)}}
with open(os.environ["SEEN"], "w") as file:
    json.dump(seen, file)
print("Working.")
print('{{"type": "result"}}')
print("All done.")
"""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A program of the user's, which writes down how it was started."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return program(folder / "mytool", TOOL)


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def agent(command: str, **more: object) -> CliAgent:
    return CliAgent(Custom("mine"), AgentRow(command=command, **more))  # type: ignore[arg-type]


class Place:
    """A desk with a tool on its PATH."""

    def __init__(self, desk: Desk, tool: Path) -> None:
        self.desk, self.seen_file = desk, tool.parent / "seen.json"
        self.path = os.pathsep.join([str(tool.parent), os.environ["PATH"]])

    async def run(self, mine: CliAgent, ear: Ear, instructions: str = "Be kind.", **more: object) -> dict[str, object]:
        """What the tool saw in a turn that went well."""
        env = {"SEEN": str(self.seen_file)}
        task = self.desk.task(instructions, path=self.path, env=env, **more)  # type: ignore[arg-type]
        result = await run(mine, task, ear)
        assert result.reason == "done", result
        seen = json.loads(self.seen_file.read_text())
        assert isinstance(seen, dict)
        return seen


@pytest.fixture
def place(desk: Desk, tool: Path) -> Place:
    return Place(desk, tool)


async def test_without_a_place_for_them_the_instructions_go_to_its_standard_input(place: Place, ear: Ear) -> None:
    seen = await place.run(agent("mytool --quiet"), ear, "Be kind.\n" * 50_000)
    assert seen["argv"] == ["--quiet"]
    assert seen["stdin"] == "Be kind.\n" * 50_000
    assert seen["cwd"] == str(place.desk.folder)


async def test_a_prompt_is_one_argument_whatever_is_in_it(place: Place, ear: Ear) -> None:
    text = 'It\'s "quoted"; {model} $(touch x) `touch y`\n--flag'
    seen = await place.run(agent("mytool --do {prompt} --in={folder}"), ear, text)
    assert seen["argv"] == ["--do", text, f"--in={place.desk.folder}"]
    assert seen["stdin"] == ""
    assert files(place.desk.folder) == set()


async def test_a_prompt_file_holds_everything_and_only_the_user_can_read_it(place: Place, ear: Ear) -> None:
    text = "Zeile für Zeile.\n" * 30_000
    seen = await place.run(agent("mytool -f {prompt_file}"), ear, text)
    argv = seen["argv"]
    assert isinstance(argv, list)
    file = Path(argv[1])
    assert file.read_text("utf-8") == text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.is_relative_to(place.desk.folder)
    assert seen["stdin"] == ""


async def test_instructions_that_are_too_long_for_an_argument_are_refused_with_a_way_out(
    place: Place, ear: Ear
) -> None:
    task = place.desk.task("x" * (LONGEST_PROMPT_ARGUMENT + 1), path=place.path)
    result = await run(agent("mytool {prompt}"), task, ear)
    assert result.reason == "spawn-failed"
    assert "16 kB" in result.message
    assert "{prompt_file}" in in_commands(result.hint or "")
    assert "standard input" in in_commands(result.hint or "")
    assert ear.started == []


async def test_the_longest_prompt_that_fits_is_taken(place: Place, ear: Ear) -> None:
    seen = await place.run(agent("mytool {prompt}"), ear, "x" * LONGEST_PROMPT_ARGUMENT)
    assert seen["argv"] == ["x" * LONGEST_PROMPT_ARGUMENT]


async def test_a_model_and_a_session_are_filled_in(place: Place, ear: Ear) -> None:
    mine = agent("mytool --model {model} --resume {session} go", model="from-the-row")
    seen = await place.run(mine, ear, session="s-1")
    assert seen["argv"] == ["--model", "from-the-row", "--resume", "s-1", "go"]
    seen = await place.run(mine, ear, settings=Settings(model="from-the-plan"), session="s-1")
    assert seen["argv"] == ["--model", "from-the-plan", "--resume", "s-1", "go"]


async def test_an_option_whose_value_is_empty_is_left_out(place: Place, ear: Ear) -> None:
    seen = await place.run(agent("mytool --model {model} --resume {session} --id={session} go"), ear)
    assert seen["argv"] == ["--id=", "go"]


async def test_arguments_of_the_row_come_first(place: Place, ear: Ear) -> None:
    seen = await place.run(agent("mytool {folder}", args=("--loud", "yes")), ear)
    assert seen["argv"] == ["--loud", "yes", str(place.desk.folder)]


async def test_everything_it_prints_is_what_it_says(place: Place, ear: Ear) -> None:
    env = {"SEEN": str(place.seen_file)}
    result = await run(agent("mytool"), place.desk.task(path=place.path, env=env), ear)
    assert ear.of(Said) == [Said("Working.\n"), Said('{"type": "result"}\n'), Said("All done.\n")]
    assert result.text == 'Working.\n{"type": "result"}\nAll done.'
    assert (ear.of(Session), ear.of(Used)) == ([], [])


async def test_a_talkative_one_is_heard_to_the_end_and_only_its_last_words_are_kept(place: Place, ear: Ear) -> None:
    program(Path(place.path.partition(os.pathsep)[0]) / "chatty", "#!/bin/sh\nseq 1 30000\n")
    result = await run(agent("chatty"), place.desk.task(path=place.path), ear)
    assert len(ear.of(Said)) == 30_000 > STRAY_LINES
    assert result.text.endswith("29999\n30000")
    assert len(result.text) <= 64 * 1024


async def test_a_status_that_is_not_0_is_a_failure_with_its_last_complaint(place: Place, ear: Ear) -> None:
    program(
        Path(place.path.partition(os.pathsep)[0]) / "grumpy", "#!/bin/sh\necho no >&2\necho 'no model' >&2\nexit 3\n"
    )
    result = await run(agent("grumpy"), place.desk.task(path=place.path), ear)
    assert (result.reason, result.exit_code) == ("failed", 3)
    assert "status 3" in result.message
    assert "no model" in result.message


async def test_settings_that_it_has_no_place_for_are_told(place: Place, ear: Ear) -> None:
    settings = Settings(
        model="big",
        effort="high",
        max_turns=3,
        allowed_folders=(place.desk.home,),
        allowed_urls=("example.org",),
        mcp_servers=(McpServer("every", "server"),),
    )
    await place.run(agent("mytool"), ear, settings=settings)
    told = {note.split("'")[1].partition(":")[0] for note in ear.notes("setting")}
    assert told == {"model", "effort", "max_turns", "allowed_folders", "allowed_urls", "mcp_servers"}


@pytest.mark.parametrize("command", ["nosuchtool {prompt}", "'unfinished", "", "   "])
async def test_a_command_line_that_names_no_program_cannot_be_started(command: str, desk: Desk, ear: Ear) -> None:
    result = await run(agent(command), desk.task(), ear)
    assert result.reason == "spawn-failed"
    assert "'mine'" in result.message


async def test_a_folder_that_cannot_be_written_to_is_a_result_and_no_crash(place: Place, ear: Ear) -> None:
    place.desk.scratch.rmdir()
    place.desk.scratch.write_text("in the way")
    result = await run(agent("mytool {prompt_file}"), place.desk.task(path=place.path), ear)
    assert result.reason == "spawn-failed"


async def test_it_sees_only_the_variables_that_its_row_names(place: Place, ear: Ear) -> None:
    mine = agent("mytool", pass_env=("MY_KEY", "SEEN"), env={"MODE": "quiet"})
    host = {"MY_KEY": "mine", "OTHER_KEY": "other", "SEEN": str(place.seen_file)}
    task = place.desk.task(path=place.path, env=seen_by(mine, host))
    assert (await run(mine, task, ear)).ok
    env = json.loads(place.seen_file.read_text())["env"]
    assert (env["MY_KEY"], env["MODE"]) == ("mine", "quiet")
    assert not {"OTHER_KEY", *CANARIES} & set(env)


async def test_canceled_it_leaves_no_process_not_even_one_that_hides(place: Place, ear: Ear) -> None:
    hides = "#!/bin/sh\nsetsid sh -c 'touch begun; sleep 2; touch late' &\nsleep 60\n"
    program(Path(place.path.partition(os.pathsep)[0]) / "hider", hides)
    task = place.desk.task(path=place.path)
    await cancel_while(agent("hider"), task, ear, (place.desk.folder / "begun").exists)
    assert alive(task.launcher.token) == []
    assert files(place.desk.folder) == {"begun"}


async def test_one_that_closes_its_output_is_waited_for(place: Place, ear: Ear) -> None:
    program(Path(place.path.partition(os.pathsep)[0]) / "silent", "#!/bin/sh\nexec >&-\nsleep 1\ntouch done\n")
    task = place.desk.task(path=place.path, limits=Limits(wall=60, grace=0.1))
    result = await run(agent("silent"), task, ear)
    assert result.ok, result
    assert files(place.desk.folder) == {"done"}
