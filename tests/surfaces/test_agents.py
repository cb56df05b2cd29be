"""`orchard agents`, `orchard models` and the rows in `orchard config show`, as a user meets them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchard.testing import Repo
from tests.nursery import command

SECONDS = 120

FAKE = """#!/bin/sh
case "$*" in
  --version) echo "{name} 1.2.3";;
  "debug models") echo '{{"models": [{{"slug": "gpt-6-sol"}}, {{"slug": "gpt-6-mini"}}]}}';;
  "login status") exit 1;;
  *) exit 9;;
esac
"""

ROWS = """
agent = "mine"
[agents.mine]
command = "mytool {prompt_file}"
env = { MY_API_KEY = "hunter2-env", PLAIN = "shown" }
[agents.builtin]
provider = "openai"
base_url = "http://me:hunter2-url@127.0.0.1:1/v1"
[mcp_servers.docs]
url = "https://docs.example/mcp"
headers = { Authorization = "Bearer hunter2-header", X-Plain = "shown", X-Token = "${MY_TOKEN}" }
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Desk:
    """A user with folders and programs of his own, in a folder that is no repository."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        for name in ("bin", "home", "here", "config/orchard"):
            (folder / name).mkdir(parents=True)
        (folder / "run").mkdir(mode=0o700)
        # Only what the programs of the test need, so that no agent of this machine is found.
        for name in ("git", "sh", "cat", "env"):
            (self.bin / name).symlink_to(_which(name))
        self.env = {
            "PATH": str(self.bin),
            "ORCHARD_SANDBOX": "off",
            "HOME": str(folder / "home"),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
        }

    def install(self, *names: str) -> None:
        for name in names:
            (self.bin / name).write_text(FAKE.format(name=name))
            (self.bin / name).chmod(0o755)

    def configure(self, text: str) -> None:
        (self.folder / "config" / "orchard" / "config.toml").write_text(text)

    def orchard(self, *words: str, cwd: Path | None = None, **env: str) -> Done:
        done = command(*words, cwd=cwd or self.folder / "here", env={**self.env, **env}, seconds=SECONDS)
        return Done(done.returncode, done.stdout, done.stderr)


def _which(name: str) -> Path:
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    return next(folder / name for folder in folders if os.access(folder / name, os.X_OK))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_where_nothing_is_installed_it_says_what_to_do(desk: Desk) -> None:
    done = desk.orchard("agents")

    assert (done.code, done.err) == (0, "")
    assert "No agent can be used here yet" in done.out
    assert "npm install -g @anthropic-ai/claude-code" in done.out
    assert "Set ANTHROPIC_API_KEY" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 80
    assert "\x1b" not in done.out


def test_agents_are_listed_with_version_login_and_abilities(desk: Desk) -> None:
    desk.install("claude", "codex")

    done = desk.orchard("agents", OPENAI_API_KEY="hunter2")

    rows = {row.split()[0]: row.split()[1:] for row in done.out.splitlines() if row}
    assert rows["codex"][:3] == ["*", "1.2.3", "yes"]
    assert rows["claude"][:2] == ["1.2.3", "no"]
    assert rows["gemini"] == ["not", "installed"]
    assert max(len(line) for line in done.out.splitlines()) <= 80
    assert "hunter2" not in done.out + done.err


def test_agents_as_json_are_a_document(desk: Desk) -> None:
    desk.install("codex")

    document = desk.orchard("agents", "--json", OPENAI_API_KEY="k").json

    assert document["default"] == "codex"
    found = {agent["name"]: agent for agent in document["agents"]}
    known = ["builtin", "claude", "codex", "copilot", "gemini", "qwen", "opencode"]
    speaking = [
        "cursor",
        "kiro",
        "droid",
        "kimi",
        "goose",
        "cline",
        "vibe",
        "openhands",
        "auggie",
        "qoder",
        "fast-agent",
    ]
    assert list(found) == known + speaking
    codex = found["codex"]
    assert (codex["installed"], codex["version"], codex["logged_in"]) == (True, "1.2.3", "yes")
    assert codex["abilities"] == {
        "resume": True,
        "mcp": True,
        "effort": True,
        "max_turns": False,
        "usage": True,
        "cost": False,
        "models": True,
    }


def test_one_agent_is_shown_with_how_to_log_in(desk: Desk) -> None:
    desk.install("codex")

    done = desk.orchard("agents", "codex")

    assert done.code == 0
    assert "Run 'codex login'" in done.out and "no key is set" in done.out
    assert str(desk.bin / "codex") in done.out


def test_an_unknown_agent_is_not_found(desk: Desk) -> None:
    for words in (["agents", "cladue"], ["models", "--agent", "cladue"]):
        done = desk.orchard(*words)

        assert (done.code, done.out) == (3, "")
        assert "did you mean 'claude'?" in done.err


def test_agents_of_a_repository_are_listed_only_once_they_are_trusted(desk: Desk) -> None:
    repo = Repo.make(desk.folder / "repo")
    (repo.path / "orchard.toml").write_text('[agents.mine]\ncommand = "sh"\n')

    before = desk.orchard("agents", cwd=repo.path)
    digest = json.loads(desk.orchard("trust", "--show", "--json", cwd=repo.path).out)["digest"]
    desk.orchard("trust", "--yes", digest, cwd=repo.path)
    after = desk.orchard("agents", cwd=repo.path)

    assert "mine" not in before.out and "agents" in before.err
    assert "mine" in after.out and after.err == ""


def test_models_are_listed_with_vendor_and_tier_and_remembered(desk: Desk) -> None:
    desk.install("codex")

    first = desk.orchard("models", "--agent", "codex")
    (desk.bin / "codex").unlink()
    desk.install("claude")
    document = desk.orchard("models", "--json").json

    assert [row.split() for row in first.out.splitlines()] == [
        ["agent", "tier", "vendor", "model"],
        ["codex", "standard", "OpenAI", "gpt-6-sol"],
        ["codex", "fast", "OpenAI", "gpt-6-mini"],
    ]
    assert [(row["agent"], row["model"], row["tier"]) for row in document["models"]] == [
        ("claude", "haiku", "fast"),
        ("claude", "sonnet", "standard"),
        ("claude", "opus", "premium"),
    ]
    assert document["agents"]["builtin"]["problem"] == "ANTHROPIC_API_KEY is not set"
    assert (desk.folder / "cache" / "orchard" / "agents.json").stat().st_mode & 0o777 == 0o600


def test_models_that_cannot_be_known_are_said_to_be_so_beside_the_answer(desk: Desk) -> None:
    done = desk.orchard("models")

    assert (done.code, done.out) == (0, "")
    assert "builtin: its models are not known: ANTHROPIC_API_KEY is not set" in done.err


def test_the_default_agent_can_be_set_by_a_variable(desk: Desk) -> None:
    desk.install("claude", "codex")

    document = desk.orchard("agents", "--json", ORCHARD_AGENT="claude", OPENAI_API_KEY="k").json

    assert document["default"] == "claude"


def test_config_shows_rows_with_their_origin_and_hides_secrets(desk: Desk) -> None:
    repo = Repo.make(desk.folder / "repo")
    desk.configure(ROWS)

    shown = desk.orchard("config", "show", "--origin", cwd=repo.path)
    document = desk.orchard("config", "show", "--json", cwd=repo.path).json

    assert 'agents.mine.command = "mytool {prompt_file}"' in shown.out
    assert "config.toml" in next(row for row in shown.out.splitlines() if row.startswith("agents.mine.command"))
    assert document["agents.mine.env"]["value"] == {"MY_API_KEY": "[redacted]", "PLAIN": "shown"}
    assert document["mcp_servers.docs.headers"]["value"] == {
        "Authorization": "[redacted]",
        "X-Plain": "shown",
        "X-Token": "${MY_TOKEN}",
    }
    assert document["agent"]["value"] == "mine"
    assert "hunter2" not in shown.out + json.dumps(document)


def test_asking_about_agents_imports_no_sdk(desk: Desk) -> None:
    code = "import sys; from orchard.surfaces.cli.start import run_command_line as run; run(['agents'])"
    heavy = (
        "print('loaded', [name for name in ('anthropic', 'openai', 'mcp', 'acp', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {heavy}"],
        cwd=desk.folder / "here",
        env=desk.env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.stdout.splitlines()[-1] == "loaded []", done.stderr


# ------------------------------------------------------------------------ agents that speak the protocol

SPEAKER = Path(__file__).parent.parent / "agents" / "acp_agent.py"
GOOSE_PLAN = """
name: Goose
target: main
jobs:
  - id: a
    heal: false
    work: {type: agent, agent: goose, instructions: Write hello.}
"""


def speaks(desk: Desk, name: str) -> Path:
    """Install a program that speaks the protocol, and tells how it was started."""
    seen = desk.folder / "seen"
    start = f'env > {seen}.env; echo "$0 $*" > {seen}; SESSIONS={desk.folder} exec {sys.executable} {SPEAKER} write'
    program = desk.bin / name
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{name} 1.40.0" && exit\n{start}\n')
    program.chmod(0o755)
    return seen


def test_a_plan_names_an_agent_that_speaks_the_protocol_and_its_work_lands(desk: Desk) -> None:
    repo = Repo.make(desk.folder / "repo")
    seen = speaks(desk, "goose")
    (desk.folder / "plan.yaml").write_text(GOOSE_PLAN)

    done = desk.orchard(
        "run", str(desk.folder / "plan.yaml"), cwd=repo.path, GOOSE_PROVIDER="openai", CURSOR_API_KEY="hunter2"
    )

    assert done.code == 0, done.err
    assert "Write hello." in repo.files("main")["hello.txt"]
    assert seen.read_text().split() == [str(desk.bin / "goose"), "acp"]
    env = seen.with_suffix(".env").read_text()
    assert "GOOSE_PROVIDER=openai" in env and "hunter2" not in env


def test_a_plan_that_names_one_that_is_not_installed_is_told_how_to_get_it(desk: Desk) -> None:
    repo = Repo.make(desk.folder / "repo")
    (desk.folder / "plan.yaml").write_text(GOOSE_PLAN)

    done = desk.orchard("run", str(desk.folder / "plan.yaml"), cwd=repo.path)

    assert done.code == 2
    assert "the program 'goose' is not installed" in done.err and "brew install block-goose-cli" in done.err


def test_agents_that_speak_the_protocol_are_listed_and_shown_like_the_others(desk: Desk) -> None:
    speaks(desk, "goose")

    rows = {row.split()[0]: row.split()[1:] for row in desk.orchard("agents").out.splitlines() if row}
    kimi = desk.orchard("agents", "kimi").out
    goose = desk.orchard("agents", "goose", "--json").json

    assert rows["goose"] == ["1.40.0", "unknown"]
    assert rows["kimi"] == ["not", "installed"]
    assert "npm install -g @moonshot-ai/kimi-code" in kimi and "/login" in kimi
    assert (goose["installed"], goose["version"], goose["default"]) == (True, "1.40.0", False)
    assert goose["program"] == str(desk.bin / "goose")


def test_a_row_of_the_users_own_that_is_called_like_one_of_them_stays_what_it_was(desk: Desk) -> None:
    desk.install("mytool")
    speaks(desk, "goose")
    desk.configure('[agents.goose]\ncommand = "mytool {prompt_file}"\n[agents.kimi]\nmodel = "k"\n')

    goose = desk.orchard("agents", "goose", "--json").json

    assert (goose["program"], goose["install"], goose["version"]) == (str(desk.bin / "mytool"), "", None)
    assert goose["default"]
    assert not (desk.folder / "seen").exists()


def test_names_of_agents_are_completed_here_and_outside_of_a_repository(desk: Desk) -> None:
    desk.configure('[agents.good]\ncommand = "sh"\n')
    repo = Repo.make(desk.folder / "repo")

    def completed(words: str, at: int, cwd: Path | None = None) -> list[str]:
        env = {"_ORCHARD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        return [line.partition(",")[2] for line in desk.orchard(cwd=cwd, **env).out.splitlines()]

    assert completed("orchard agents go", 2) == ["goose", "good"]
    assert completed("orchard agents go", 2, repo.path) == ["goose", "good"]
    repo.commit({".claude/agents/gopher.md": "---\nname: gopher\ndescription: Digs\n---\nDig.\n"})
    assert completed("orchard agents go", 2, repo.path) == ["goose", "good", "gopher"], "definitions are offered, too"
    assert completed("orchard models --agent cur", 3) == ["cursor"]
    assert completed("orchard plan --agent op", 3) == ["opencode", "openhands"]
