"""Agents behind the protocol that have a name: each is a value, and works like any other agent."""

import json
import shlex
import sys
from pathlib import Path, PurePath
from typing import Any

import pytest
from msgspec.structs import replace

from orchard.agents.acp import named
from orchard.agents.acp.agent import AcpAgent
from orchard.agents.cli import CliAgent, backend
from orchard.agents.droppings import droppings_of
from orchard.agents.environment import agent_environment
from orchard.agents.facts.describe import describe
from orchard.agents.facts.known import AcpKnown
from orchard.agents.facts.models import Models
from orchard.agents.facts.programs import acp_known, all_known, known_of, own_folders, traits_of
from orchard.agents.project_settings import read_by
from orchard.agents.protocol import Result
from orchard.agents.registry import Agents, NoAgent
from orchard.config.kinds import agent_name
from orchard.config.layers import Config
from orchard.engine.machine.reach import reach_warning
from orchard.engine.turns.work import given_to
from orchard.model.agent_rows import ACP_AGENTS, BACKENDS, AgentRow, BuiltinRow
from orchard.surfaces.next_steps import in_commands
from tests.agents.conftest import Desk, Ear
from tests.agents.test_table import Machine

AGENT = Path(__file__).with_name("acp_agent.py")
OWN_ROWS = {"goose": AgentRow(command="acp:other --stdio"), "kimi": AgentRow(command="other {prompt}")}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "machine").mkdir()
    return Machine(tmp_path / "machine")


def speaks(machine: Machine, name: str, *, behaviour: str = "write") -> Path:
    """Install a program that speaks the protocol, and writes down how it was started."""
    path = machine.bin / name
    seen = shlex.quote(str(machine.home / "seen"))
    start = shlex.join([sys.executable, str(AGENT), behaviour])
    path.write_text(f'#!/bin/sh\n{{ printf "%s\\n" "$0 $*"; /usr/bin/env; }} > {seen}\nexec {start}\n')
    path.chmod(0o755)
    return path


def started(machine: Machine) -> tuple[list[str], dict[str, str]]:
    """How it was started: its words, and its variables."""
    words, *lines = (machine.home / "seen").read_text().splitlines()
    return words.split(), dict(line.split("=", 1) for line in lines if "=" in line)


# ------------------------------------------------------------------------------------------ the table


@pytest.mark.parametrize("name", ACP_AGENTS)
def test_every_line_leads_to_a_value_that_says_all_that_is_needed(name: str) -> None:
    known = acp_known(name)

    assert known.name == name and agent_name(name) is None
    assert known.vendor and known.program and known.install and known.login
    assert not known.folder[0] or known.folder[0] in known.seen
    assert set(known.obeys) <= set(known.reads) or all(one.startswith(f"{known.reads[0]}/") for one in known.obeys)
    assert known.program not in {one.program for one in all_known() if one is not known}


def test_every_value_has_a_line() -> None:
    values = {value.name for value in vars(named).values() if isinstance(value, AcpKnown)}

    assert values == set(ACP_AGENTS) and not values & set(BACKENDS)


def test_what_nobody_can_be_told_to_leave_out_can_be_agreed_to() -> None:
    for name in ACP_AGENTS:
        for file in acp_known(name).traits.obeys:
            assert any(file == one or file.startswith(f"{one}/") for one in read_by()), file


@pytest.mark.parametrize("name", ACP_AGENTS)
def test_the_page_about_agents_has_each_with_how_to_install_it(name: str) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "agents.md").read_text("utf-8")
    known = acp_known(name)
    row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))

    assert known.install.replace("|", "\\|") in row
    assert shlex.join((known.program, *known.arguments)) in row
    assert all(key in row for key in known.keys[:1])


# -------------------------------------------------------------------------------------------- by name


@pytest.mark.parametrize("name", ACP_AGENTS)
def test_each_is_found_by_its_name_and_is_started_as_it_wants_to_be(name: str, machine: Machine) -> None:
    known = acp_known(name)
    machine.install(known.program)

    agent = machine.agents().find(name)

    assert isinstance(agent, AcpAgent) and agent.name == name
    assert agent._argv == (str(machine.bin / known.program), *known.arguments)
    assert set(agent.variables) == set(known.seen)


def test_one_that_is_not_installed_is_answered_with_how_to_install_it(machine: Machine) -> None:
    with pytest.raises(NoAgent, match="the program 'kimi' is not installed") as caught:
        machine.agents().find("kimi")

    assert caught.value.hint == "To install it: npm install -g @moonshot-ai/kimi-code"


def test_a_program_with_two_names_is_found_by_either_and_rather_by_its_own(machine: Machine) -> None:
    machine.install("agent")
    assert machine.agents().path_of("cursor") == str(machine.bin / "agent")

    machine.install("cursor-agent")
    assert machine.agents().path_of("cursor") == str(machine.bin / "cursor-agent")


def test_a_row_without_a_command_adds_to_what_is_known(machine: Machine) -> None:
    machine.install("goose")
    row = AgentRow(args=("--with-builtin", "developer"), pass_env=("MORE",), model="m")

    agent = machine.agents(Config(agents={"goose": row})).find("goose")

    assert isinstance(agent, AcpAgent)
    assert agent._argv == (str(machine.bin / "goose"), "acp", "--with-builtin", "developer")
    assert {"MORE", "GOOSE_PROVIDER"} <= set(agent.variables) and agent.row.model == "m"


def test_a_row_of_the_users_own_with_the_same_name_wins(machine: Machine) -> None:
    machine.install("goose", "kimi", "other")
    agents = machine.agents(Config(agents=OWN_ROWS))

    goose, kimi = agents.find("goose"), agents.find("kimi")

    assert isinstance(goose, AcpAgent) and goose._argv == ("other", "--stdio") and goose.variables == ()
    assert isinstance(kimi, CliAgent) and kimi.variables == ()
    assert [agents.path_of(name) for name in OWN_ROWS] == [str(machine.bin / "other")] * 2
    assert [agents.install_command(name) for name in OWN_ROWS] == ["", ""]
    assert [agents.known(name) for name in OWN_ROWS] == [None, None]
    assert agents.names.count("goose") == 1


def test_an_own_row_for_the_known_program_gets_what_belongs_to_that_program(machine: Machine) -> None:
    machine.install("auggie", "agent")
    rows = {"mine": AgentRow(command="acp:auggie --acp --quiet"), "other": AgentRow(command="acp:agent x")}
    agents = machine.agents(Config(agents=rows))

    assert agents.find("mine").variables == ("AUGMENT_SESSION_AUTH",)
    assert agents.find("other").variables == ()  # `agent` may be anybody's


# ---------------------------------------------------------------------------------- login and default


@pytest.mark.parametrize("name", ACP_AGENTS)
def test_without_a_key_nobody_says_that_there_is_no_login(name: str, machine: Machine) -> None:
    known = acp_known(name)
    machine.install(known.program)

    assert machine.agents().login(name).state == "unknown"
    for key in known.keys:
        assert machine.agents(**{key: "k"}).login(name).how == f"{key} is set"
        assert machine.agents(**{key: "k"}).login(name).state == "yes"


def test_a_login_is_seen_where_its_program_keeps_it(machine: Machine) -> None:
    machine.install("auggie", "vibe-acp")
    machine.write(".augment/session.json", "{}")
    machine.write(".vibe/.env", "MISTRAL_API_KEY=x")

    assert machine.agents().login("auggie").state == "yes"
    assert machine.agents().login("vibe").how == "~/.vibe/.env may hold a login"


def test_a_program_that_may_be_another_of_its_name_is_not_chosen_by_itself(machine: Machine) -> None:
    """There is a tool for databases that is called goose as well."""
    machine.install("goose", "kimi")

    assert machine.agents(OPENAI_API_KEY="k").default() is None
    assert machine.agents(Config(agent="goose")).find(None).name == "goose"


def test_one_with_a_key_of_its_own_is_chosen_after_all_others(machine: Machine) -> None:
    machine.install("cursor-agent", "mytool", "codex")
    mine = Config(agents={"mine": AgentRow(command="mytool {prompt}")})

    assert machine.agents(CURSOR_API_KEY="k").find(None).name == "cursor"
    assert machine.agents(mine, CURSOR_API_KEY="k").find(None).name == "mine"
    assert machine.agents(CURSOR_API_KEY="k", OPENAI_API_KEY="k").find(None).name == "codex"


def test_agents_are_not_told_of_the_many_that_are_not_there(machine: Machine) -> None:
    machine.install("goose")
    listed = {one["name"]: one for one in machine.agents().listed()}

    assert listed["goose"]["usable"] and not listed["goose"]["default"]
    assert "kimi" not in listed and "claude" in listed


# ---------------------------------------------------------------------------------- what is told of it


def test_a_version_is_asked_only_of_who_is_known_to_tell_one(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("bin", "home")}
    for place in places.values():
        place.mkdir()
    for name in ("kimi", "auggie"):
        program = places["bin"] / name
        program.write_text(f'#!/bin/sh\n[ "$*" = --version ] && echo 2.1.0\necho x >> {tmp_path}/{name}.asked\n')
        program.chmod(0o755)
    agents = Agents(Config(), {"HOME": str(places["home"]), "PATH": f"{places['bin']}:/usr/bin:/bin"})

    kimi, auggie, cline = describe(agents, ["kimi", "auggie", "cline"])

    assert (kimi.version, kimi.installed, kimi.vendor, kimi.logged_in) == ("2.1.0", True, "Moonshot AI", "unknown")
    assert (auggie.version, auggie.installed) == (None, True)
    assert not (tmp_path / "auggie.asked").exists()
    assert (cline.installed, cline.install, cline.login) == (False, "npm install -g cline", "Run 'cline auth'.")


def test_its_models_are_its_own_affair(machine: Machine) -> None:
    machine.install("goose")
    agents = machine.agents()

    found = Models(agents, agents._models._cache).of("goose", refresh=True)

    assert found.problem == "it does not tell which models it has" and not found.complete


def test_what_it_leaves_for_itself_is_known_by_its_name_and_by_its_program() -> None:
    mine = Config(
        agents={"mine": AgentRow(command="acp:claude-agent-acp"), "fast": AgentRow(command="acp:fast-agent-acp")}
    )

    assert droppings_of(Config(), ["goose"]) == (".goose/",)
    assert ".fast-agent/" in droppings_of(mine, ["fast"])
    assert ".claude/settings.local.json" in droppings_of(mine, ["mine"])
    assert droppings_of(Config(), ["acp:cline --acp"]) == (".cline/",)


@pytest.mark.parametrize("folder", own_folders())
def test_a_plan_that_lets_an_agent_write_where_agents_keep_logins_is_told_so(folder: str) -> None:
    home, checkout = PurePath("/home/me"), PurePath("/home/me/work")

    assert "secrets are kept there" in (reach_warning(home / folder / "x", home, checkout, checkout / ".git") or "")
    assert {".claude", ".codex", ".gemini", ".qwen", ".copilot", ".local/share/opencode"} <= set(own_folders())


def test_where_models_come_from_is_decided_by_variables_that_each_backend_names() -> None:
    said = {name: backend(name).known.endpoints for name in BACKENDS}

    assert said["claude"] == ("ANTHROPIC_BASE_URL",) and said["gemini"] == ("GOOGLE_GEMINI_BASE_URL",)
    assert all(set(names) <= set(backend(name).variables) for name, names in said.items())


# -------------------------------------------------------------------------------------- what it may see


@pytest.mark.parametrize("name", [*BACKENDS, *ACP_AGENTS])
def test_a_plan_sets_none_of_the_variables_of_an_agent_that_only_helps(name: str) -> None:
    known = known_of(name)
    assert known is not None
    own = known.seen

    class Helper:
        variables = own

        def __init__(self) -> None:
            self.name = name

    said: Any = Helper()
    env = {**dict.fromkeys(own, "of the plan"), "CI": "1"}

    assert given_to(Config(), said, env) == {"CI": "1"}
    allowed = Config(agents={name: AgentRow(allow_env=own[:1])})
    assert given_to(allowed, said, env) == {"CI": "1", **dict.fromkeys(own[:1], "of the plan")}


def test_what_the_user_hands_on_to_a_helper_the_plan_may_set() -> None:
    class Helper:
        name, variables = "builtin", ("LOCAL_KEY", "DATABASE")

    said: Any = Helper()
    config = Config(builtin=BuiltinRow(pass_env=("DATABASE",)))

    assert given_to(config, said, {"LOCAL_KEY": "x", "DATABASE": "y"}) == {"DATABASE": "y"}


async def turn(machine: Machine, desk: Desk, ear: Ear, agents: Agents, name: str, *, trusted: bool = False) -> Result:
    agent = agents.find(name)
    env = agent_environment(agents.host, agent.variables)
    task = desk.task("Write hello.", env={**env, "SESSIONS": str(desk.private)}, path=env["PATH"])
    return await agent.run(replace(task, trusted_project_settings=trusted), ear.watch)


@pytest.mark.anyio
async def test_a_named_agent_does_a_turn_with_its_own_variables_and_no_others(
    machine: Machine, desk: Desk, ear: Ear
) -> None:
    path = speaks(machine, "goose")
    keys = {"GOOSE_PROVIDER": "openai", "OPENAI_API_KEY": "its-own", "CURSOR_API_KEY": "canary", "CANARY": "canary"}

    result = await turn(machine, desk, ear, machine.agents(**keys), "goose")

    words, env = started(machine)
    assert (result.reason, result.text) == ("done", "I wrote it.")
    assert (desk.folder / "hello.txt").read_text() == "Write hello."
    assert words == [str(path), "acp"]
    assert (env["GOOSE_PROVIDER"], env["OPENAI_API_KEY"], env["HOME"]) == ("openai", "its-own", str(machine.home))
    assert "canary" not in env.values()


@pytest.mark.anyio
async def test_it_is_the_program_of_the_users_path_that_gets_the_keys_not_one_of_the_repository(
    machine: Machine, desk: Desk, ear: Ear
) -> None:
    path = speaks(machine, "droid")
    planted = desk.folder / "droid"
    planted.write_text(f"#!/bin/sh\ntouch {desk.scratch}/planted\n")
    planted.chmod(0o755)
    agents = machine.agents(PATH=f".:{machine.bin}", FACTORY_API_KEY="mine")

    result = await turn(machine, desk, ear, agents, "droid")

    words, env = started(machine)
    assert result.reason == "done" and not (desk.scratch / "planted").exists()
    assert words == [str(path), "exec", "--output-format", "acp"]
    assert (env["FACTORY_API_KEY"], env["DROID_DISABLE_AUTO_UPDATE"]) == ("mine", "true")


@pytest.mark.anyio
async def test_a_home_of_the_jobs_own_is_given_where_a_row_asks_for_it(machine: Machine, desk: Desk, ear: Ear) -> None:
    speaks(machine, "kimi")
    config = Config(agents={"kimi": AgentRow(home="private")})

    await turn(machine, desk, ear, machine.agents(config), "kimi")

    _, env = started(machine)
    assert (env["KIMI_CODE_HOME"], env["HOME"]) == (str(desk.private / "home"), str(machine.home))


@pytest.mark.anyio
@pytest.mark.parametrize("name", [name for name in ACP_AGENTS if acp_known(name).reads])
async def test_it_is_not_started_where_settings_lie_that_nobody_has_agreed_to(
    name: str, machine: Machine, desk: Desk, ear: Ear
) -> None:
    known = acp_known(name)
    speaks(machine, known.program)
    file = known.traits.obeys[0]
    place = desk.folder / file
    place = place if place.suffix else place / "x.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("{}")

    refused = await turn(machine, desk, ear, machine.agents(), name)
    assert (
        refused.reason == "spawn-failed"
        and file in refused.message
        and "orchard trust" in in_commands(refused.hint or "")
    )
    assert not (machine.home / "seen").exists()

    assert (await turn(machine, desk, ear, machine.agents(), name, trusted=True)).reason == "done"


@pytest.mark.anyio
async def test_rules_in_plain_words_keep_no_agent_from_being_started(machine: Machine, desk: Desk, ear: Ear) -> None:
    speaks(machine, "cline")
    (desk.folder / ".clinerules").write_text("Write short functions.\n")

    assert (await turn(machine, desk, ear, machine.agents(), "cline")).reason == "done"


@pytest.mark.anyio
async def test_one_that_is_not_logged_in_says_so_in_its_own_words(machine: Machine, desk: Desk, ear: Ear) -> None:
    speaks(machine, "auggie", behaviour="login")

    result = await turn(machine, desk, ear, machine.agents(), "auggie")

    assert result.reason == "not-logged-in" and "Authentication required" in result.message


def test_a_launcher_is_seen_through_for_what_suits_a_program_but_gets_no_key(machine: Machine) -> None:
    machine.install("npx", "auggie")
    agents = machine.agents(Config(agents={"mine": AgentRow(command="acp:npx @augmentcode/auggie@1 --acp")}))

    assert traits_of(["npx", "@augmentcode/auggie@1", "--acp"]) == acp_known("auggie").traits
    assert agents.find("mine").variables == ()


def test_nothing_secret_of_a_named_agent_is_in_what_is_told(machine: Machine) -> None:
    machine.install("cursor-agent")
    infos = describe(machine.agents(CURSOR_API_KEY="hunter2"))

    assert "hunter2" not in json.dumps([info.as_json() for info in infos])
