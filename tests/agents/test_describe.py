"""What is told about each agent: programs are asked, quickly and once, and leave nothing behind."""

import json
import os
import time
from pathlib import Path

import psutil
import pytest

from orchard import __version__
from orchard.agents.cli import backend
from orchard.agents.facts.cache import HOUR, Cache
from orchard.agents.facts.describe import AgentInfo, describe
from orchard.agents.facts.known import program_login
from orchard.agents.facts.probe import Question, ask
from orchard.agents.registry import Agents
from orchard.config.layers import Config
from orchard.model.agent_rows import BACKENDS, AgentRow

PATH = os.environ["PATH"]
TODAY = 1_700_000_000.0


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def agents(folder: Path, config: Config | None = None, **env: str) -> Agents:
    (folder / "home").mkdir(exist_ok=True)
    host = {"HOME": str(folder / "home"), "PATH": f"{folder / 'bin'}:{PATH}", **env}
    return Agents(config or Config(), host)


def one(found: Agents, name: str, cache: Cache | None = None) -> AgentInfo:
    (info,) = describe(found, [name], cache)
    return info


# ----------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("2.1.325 (Claude Code)", "2.1.325"),
        ("codex-cli 0.166.0", "0.166.0"),
        ("GitHub Copilot CLI 1.0.102.\nRun 'copilot update'", "1.0.102"),
        ("1.2.3-beta.4", "1.2.3-beta.4"),
        ("nothing to see", None),
        ("\x1b[31m1.2.3\x1b[0m", "1.2.3"),
    ],
)
def test_the_version_is_found_in_what_a_program_prints(tmp_path: Path, printed: str, version: str | None) -> None:
    (tmp_path / "said").write_text(printed)
    program(tmp_path / "bin" / "codex", f'[ "$1" = --version ] && cat {tmp_path}/said')

    info = one(agents(tmp_path), "codex")

    assert (info.installed, info.version) == (True, version)


def test_what_is_not_installed_is_asked_nothing_and_told_how_to_get(tmp_path: Path) -> None:
    info = one(Agents(Config(), {"PATH": str(tmp_path), "HOME": str(tmp_path)}), "claude")

    assert (info.installed, info.version, info.program) == (False, None, None)
    assert info.install == "npm install -g @anthropic-ai/claude-code"


def test_a_long_number_that_a_program_prints_takes_no_time(tmp_path: Path) -> None:
    (tmp_path / "said").write_text("1" * 1_000_000)
    program(tmp_path / "bin" / "codex", f'[ "$1" = --version ] && cat {tmp_path}/said')
    begun = time.monotonic()

    info = one(agents(tmp_path), "codex")

    assert (info.installed, info.version) == (True, None)
    assert time.monotonic() - begun < 5


def test_a_version_is_asked_once_for_a_program_and_again_for_its_successor(tmp_path: Path) -> None:
    count = f"echo x >> {tmp_path}/asked; echo"
    path = program(tmp_path / "bin" / "gemini", f"{count} 1.0.0")
    found, cache = agents(tmp_path, GEMINI_API_KEY="k"), Cache(tmp_path / "cache" / "agents.json")

    first = [one(found, "gemini", cache).version for _ in range(3)]
    program(path, f"{count} 2.0.0")
    os.utime(path, (1, 1))

    assert first == ["1.0.0"] * 3
    assert one(found, "gemini", cache).version == "2.0.0"
    assert (tmp_path / "asked").read_text().count("x") == 2


def test_the_built_in_agent_has_the_version_of_orchard(tmp_path: Path) -> None:
    assert one(agents(tmp_path), "builtin").version == __version__


def test_programs_are_asked_at_the_same_time(tmp_path: Path) -> None:
    """Each of the two waits for the other; one after the other they would never answer."""
    for me, other in (("gemini", "qwen"), ("qwen", "gemini")):
        wait = f"touch {tmp_path}/{me}; while [ ! -e {tmp_path}/{other} ]; do sleep 0.02; done; echo 1.0.0"
        program(tmp_path / "bin" / me, wait)

    infos = describe(agents(tmp_path), ["gemini", "qwen"])

    assert [info.version for info in infos] == ["1.0.0", "1.0.0"]


def test_a_program_writes_to_an_empty_home_of_its_own_when_asked_for_its_version(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "codex", '[ "$1" = --version ] && touch "$CODEX_HOME/dropped" && echo 1.0.0')
    mine = tmp_path / "mine"
    mine.mkdir()

    assert one(agents(tmp_path, CODEX_HOME=str(mine)), "codex").version == "1.0.0"
    assert not list(mine.iterdir())


def test_a_program_sees_nothing_of_the_users_that_is_not_its_own(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "gemini", f"env > {tmp_path}/seen; echo 1.0.0")

    one(agents(tmp_path, CANARY_TOKEN="canary", GEMINI_API_KEY="mine"), "gemini")

    seen = (tmp_path / "seen").read_text()
    assert "mine" in seen and "canary" not in seen


def test_our_own_agent_has_the_version_of_the_package_it_speaks_through(tmp_path: Path) -> None:
    info = one(agents(tmp_path, ANTHROPIC_API_KEY="hunter2"), "builtin")

    assert info.installed and info.version and info.version[0].isdigit()
    assert (info.logged_in, info.how_known) == ("yes", "ANTHROPIC_API_KEY is set")
    assert info.default


def test_nothing_secret_is_in_what_is_told(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "claude", "echo 1.0.0")
    config = Config(agents={"claude": AgentRow(env={"ANTHROPIC_AUTH_TOKEN": "hunter2-one"})})

    infos = describe(agents(tmp_path, config, OPENAI_API_KEY="hunter2-two"))

    assert "hunter2" not in json.dumps([info.as_json() for info in infos])


# -------------------------------------------------------------------------------------------- login


@pytest.mark.parametrize("name", BACKENDS)
def test_a_key_is_a_login(name: str, tmp_path: Path) -> None:
    for key in backend(name).known.keys:
        login = program_login(backend(name).known, {"HOME": str(tmp_path), key: "k"})
        assert (login.state, login.how) == ("yes", f"{key} is set")


@pytest.mark.parametrize(
    ("name", "file", "text", "state"),
    [
        ("claude", ".claude/.credentials.json", "", "yes"),
        ("claude", ".claude/settings.json", '{"apiKeyHelper": "x"}', "unknown"),
        ("claude", ".claude/settings.json", "{}", "no"),
        ("codex", ".codex/auth.json", "", "yes"),
        ("codex", ".codex/config.toml", 'model_provider = "x"', "unknown"),
        ("copilot", ".copilot/config.json", '{"loggedInUsers": []}', "unknown"),
        ("gemini", ".gemini/oauth_creds.json", "", "yes"),
        ("gemini", ".gemini/projects.json", "{}", "no"),
        ("qwen", ".qwen/oauth_creds.json", "", "yes"),
        ("opencode", ".local/share/opencode/auth.json", "", "yes"),
        ("opencode", ".config/opencode/opencode.json", '{"provider": {}}', "unknown"),
        ("opencode", ".config/opencode/opencode.jsonc", '{"$schema": "x"}', "no"),
    ],
)
def test_a_login_is_found_where_the_program_keeps_it(
    name: str, file: str, text: str, state: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)

    login = program_login(backend(name).known, {"HOME": str(tmp_path)})

    assert login.state == state
    assert state == "no" or f"~/{file}" in login.how


def test_a_folder_that_a_variable_names_is_where_the_login_is(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "auth.json").touch()

    login = program_login(backend("codex").known, {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path / "elsewhere")})

    assert login.state == "yes"


def test_a_pipe_in_place_of_settings_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    os.mkfifo(tmp_path / ".claude" / "settings.json")

    assert program_login(backend("claude").known, {"HOME": str(tmp_path)}).state == "no"


@pytest.mark.parametrize(("status", "state"), [(0, "yes"), (1, "no")])
def test_a_program_that_knows_whether_it_is_logged_in_is_asked(tmp_path: Path, status: int, state: str) -> None:
    program(tmp_path / "bin" / "codex", f'[ "$1 $2" = "login status" ] && exit {status}; echo 1.0.0')
    found = agents(tmp_path)
    (tmp_path / "home" / ".codex").mkdir()
    (tmp_path / "home" / ".codex" / "config.toml").write_text("model_provider = 'x'")

    info = one(found, "codex")

    assert (info.logged_in, info.how_known) == (state, "'login status' says so")


# ------------------------------------------------------------------------------------------- asking


def test_a_program_that_hangs_floods_or_fails_is_contained(tmp_path: Path) -> None:
    scripts = {
        "hangs": f"sleep 300 & echo $! > {tmp_path}/child; sleep 300",
        "floods": "yes 1.2.3",
        "fails": "echo 1.2.3; exit 3",
        "answers": "echo 1.2.3",
    }
    paths = [program(tmp_path / "bin" / name, script) for name, script in scripts.items()]
    begun = time.monotonic()

    hung, flooded, failed, answered = ask([Question((str(path),), {"PATH": PATH}) for path in paths], seconds=3)

    assert time.monotonic() - begun < 30
    assert not _runs(int((tmp_path / "child").read_text()))
    assert (hung.exit_code, flooded.exit_code) == (None, None)
    assert len(flooded.text) < 20_000_000
    assert (failed.ok, failed.exit_code) == (False, 3)
    assert (answered.ok, answered.text) == (True, "1.2.3\n")


def _runs(pid: int) -> bool:
    """A process whose end nobody has asked for yet runs no more."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_program_that_is_not_there_answers_nothing(tmp_path: Path) -> None:
    (answer,) = ask([Question((str(tmp_path / "nothing"),), {})])

    assert (answer.text, answer.ok) == ("", False)


# ---------------------------------------------------------------------------------------- the cache


def test_what_is_remembered_is_forgotten_after_an_hour(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "cache.json"
    Cache(file, lambda: TODAY).put({"a": 1})
    Cache(file, lambda: TODAY + 60).put({"b": [2], "c": 3}, 10)

    assert Cache(file, lambda: TODAY + HOUR - 1).get("a") == 1
    assert Cache(file, lambda: TODAY + HOUR).get("a") is None
    assert Cache(file, lambda: TODAY - 1).get("a") is None
    assert Cache(file, lambda: TODAY + 69).get("b") == [2]
    assert Cache(file, lambda: TODAY + 70).get("b") is None
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["cache.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"a": 1}',
        b'{"a": {"at": "x", "for": 1, "value": 1}}',
        b'{"a": {"at": 1}}',
        b"[" * 50_000,
        b" " * 5_000_000 + b"{}",
    ],
    ids=["empty", "list", "bytes", "number", "time", "no-value", "deep", "long"],
)
def test_a_damaged_cache_knows_nothing_and_is_mended(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "cache.json"
    file.write_bytes(content)
    cache = Cache(file)

    assert cache.get("a") is None
    cache.put({"a": 2})
    assert cache.get("a") == 2


def test_a_cache_that_others_can_write_to_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "cache.json"
    Cache(file).put({"a": 1})
    assert Cache(file).get("a") == 1

    file.chmod(0o666)

    assert Cache(file).get("a") is None


def test_where_no_cache_can_be_written_only_this_process_remembers(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    times = [TODAY]
    cache = Cache(tmp_path / "file" / "cache.json", lambda: times[-1])

    cache.put({"a": 1})

    assert cache.get("a") == 1
    assert Cache(tmp_path / "file" / "cache.json").get("a") is None
    times.append(TODAY + HOUR)
    assert cache.get("a") is None
