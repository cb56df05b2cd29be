"""How agents get to their models behind a wall: which hosts are known, and whose key the proxy adds."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from orchard.agents.backends.claude import KNOWN as CLAUDE
from orchard.agents.cli import backend
from orchard.agents.endpoints import PLACEHOLDER, Ways, ways_of
from orchard.agents.facts.programs import all_known
from orchard.agents.home import make_home, places_of
from orchard.model.agent_rows import BACKENDS, AgentRow
from orchard.model.endpoints import problem

KEYS = {
    "claude": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com", "x-api-key"),
    "codex": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1", "Authorization"),
    "gemini": (
        "GEMINI_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        "https://generativelanguage.googleapis.com",
        "x-goog-api-key",
    ),
    "qwen": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1", "Authorization"),
}


def ways(name: str, env: Mapping[str, str], row: AgentRow | None = None) -> Ways:
    return ways_of(backend(name).known, row or AgentRow(), {"HOME": "/nowhere", **env}, None)


def told(found: Ways) -> dict[str, str]:
    return found.replaced(lambda name: f"http://door/{name}")


@pytest.mark.parametrize("name", KEYS)
def test_a_key_in_a_variable_is_the_proxys_and_the_host_of_the_model_is_not_on_the_list(name: str) -> None:
    key, address, usual, header = KEYS[name]
    found = ways(name, {key: "secret"})

    (one,) = found.keyed
    assert (one.route.url, one.route.header, found.hosts, found.own) == (usual, header, (), ())
    assert told(found) == {key: PLACEHOLDER, address: "http://door/model"}


@pytest.mark.parametrize("name", KEYS)
def test_a_row_gives_the_key_back_and_then_the_host_is_on_the_list(name: str) -> None:
    key, address, _, _ = KEYS[name]
    found = ways(name, {key: "secret", address: "https://gateway.example/v1"}, AgentRow(key="env"))

    assert (found.keyed, found.own) == ((), ("https://gateway.example/v1",))
    assert found.hosts == backend(name).known.hosts


@pytest.mark.parametrize("name", KEYS)
def test_an_address_of_this_machine_goes_through_the_door_in_any_case(name: str) -> None:
    key, address, _, _ = KEYS[name]
    found = ways(name, {key: "secret", address: "http://127.0.0.1:11434/v1"}, AgentRow(key="env"))

    assert told(found) == {address: "http://door/model"}
    assert found.keyed[0].route.endpoint == ("127.0.0.1", 11434)


def test_a_key_that_a_row_brings_and_other_logins_for_the_same_are_withheld_as_well() -> None:
    row = AgentRow(env={"ANTHROPIC_API_KEY": "of the row"})
    found = ways("claude", {"CLAUDE_CODE_OAUTH_TOKEN": "a token"}, row)

    assert told(found)["ANTHROPIC_API_KEY"] == PLACEHOLDER
    assert told(found)["CLAUDE_CODE_OAUTH_TOKEN"] == ""


@pytest.mark.parametrize("name", BACKENDS)
def test_without_a_key_the_hosts_of_every_backend_are_known(name: str) -> None:
    found = ways(name, {})

    assert found.hosts == backend(name).known.hosts != ()
    assert not found.keyed and not told(found)


def test_who_asks_somebody_else_reaches_what_is_public_unless_the_row_says_where() -> None:
    env = {"CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_API_KEY": "secret"}
    row = AgentRow(endpoints=("bedrock-runtime.us-east-1.amazonaws.com",))

    assert ways("claude", env).hosts is None
    assert (ways("claude", env, row).hosts, ways("claude", env, row).own) == ((), row.endpoints)
    assert ways_of(None, AgentRow(), {}, None).hosts is None
    assert ways_of(None, row, {}, None).hosts == ()


def test_every_host_that_is_known_can_be_on_a_list() -> None:
    assert not [said for known in all_known() for host in known.hosts if (said := problem(host)) is not None]


def test_addresses_in_the_settings_of_a_program_are_reached(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text("model_provider = 'x'\nbase_url = 'https://gateway.example/v1'\n")

    assert ways("codex", {"HOME": str(tmp_path)}).own == ("https://gateway.example",)


def test_a_login_follows_no_link_that_a_turn_put_in_the_place_of_its_home(tmp_path: Path) -> None:
    users, elsewhere = tmp_path / "users", tmp_path / "elsewhere"
    (users / ".claude").mkdir(parents=True)
    (users / ".claude/.credentials.json").write_text("{}")
    elsewhere.mkdir()
    (tmp_path / "home").symlink_to(elsewhere)

    make_home(ways_of(CLAUDE, AgentRow(), {"HOME": str(users)}, None), tmp_path / "home")

    assert not list(elsewhere.iterdir())
    assert (tmp_path / "home/.claude/.credentials.json").read_text() == "{}"


def test_a_login_is_copied_only_where_the_proxy_has_no_key(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "user")}
    (tmp_path / "user/.claude").mkdir(parents=True)
    (tmp_path / "user/.claude/.credentials.json").write_text("{}")

    make_home(ways_of(CLAUDE, AgentRow(), {**home, "ANTHROPIC_API_KEY": "x"}, None), tmp_path / "one")
    make_home(ways_of(CLAUDE, AgentRow(), home, None), tmp_path / "two")

    assert not (tmp_path / "one/.claude").exists()
    assert (tmp_path / "two/.claude/.credentials.json").read_text() == "{}"


def test_of_opencode_each_provider_has_a_way_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text('{"provider": {"mine": {"options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "literal"}}}}')
    found = ways("opencode", {"OPENCODE_CONFIG": str(file), "ANTHROPIC_API_KEY": "secret"})

    assert {one.route.name: one.route.url for one in found.keyed} == {
        "anthropic": "https://api.anthropic.com/v1",
        "mine": "http://127.0.0.1:9/v1",
    }
    assert told(found) == {"ANTHROPIC_API_KEY": PLACEHOLDER}
    assert found.routes(lambda name: f"http://door/{name}")["mine"] == "http://door/mine"


def test_an_address_of_a_provider_in_the_users_file_keeps_the_key_of_its_variable_away(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text('{"provider": {"anthropic": {"options": {"baseURL": "https://gateway.example/v1"}}}}')
    found = ways("opencode", {"OPENCODE_CONFIG": str(file), "ANTHROPIC_API_KEY": "secret"})

    (one,) = found.keyed
    assert (one.route.url, one.route.header, bool(one.route.key)) == ("https://gateway.example/v1", "x-api-key", True)
    assert told(found) == {"ANTHROPIC_API_KEY": PLACEHOLDER}


def test_a_program_is_seen_with_the_packages_beside_it(tmp_path: Path) -> None:
    package = tmp_path / "lib/node_modules/agent/cli.js"
    package.parent.mkdir(parents=True)
    package.write_text("")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/agent").symlink_to(package)

    assert tmp_path / "lib/node_modules" in places_of(str(tmp_path / "bin/agent"))
    assert places_of(str(package.parent)) and tmp_path not in places_of(str(tmp_path / "bin/agent"))
