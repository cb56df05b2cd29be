"""Commands import only what they use: an SDK costs seconds, and much that is small costs as much as a short run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.agents.llm import Say, ScriptedLlm, steps
from tests.nursery import command

SDKS = ("anthropic", "openai", "httpx2", "mcp", "acp", "jsonschema", "starlette", "uvicorn", "opentelemetry")
UNUSED_BY_A_SHELL_PLAN = (
    *SDKS, "pydantic", "pydantic_core", "annotated_types", "urllib.request", "http.client",
    "email", "html", "tomllib", "rich", "psutil", "tomlkit", "textual",
    "orchard.planfile.fields", "orchard.planfile.problems", "orchard.operations.table", "orchard.engine.pull_requests",
    "orchard.forge.channel", "orchard.surfaces.cli.dry_run", "orchard.agents.planner", "orchard.agents.builtin.loop",
)  # fmt: skip
"""What a run of commands, in a plan without problems, has no use for."""
LOADED = (
    "import sys; from orchard.surfaces.cli.start import run_command_line as run; code = run({words!r}); "
    "print('loaded', [name for name in {names!r} if name in sys.modules], 'code', code)"
)
PLAN = "name: Talk\njobs: [{id: a, work: {instructions: Write a, interactive: true}}]\n"
COMMANDS = (
    "workers", "workers --json", "status", "list", "waiting", "job a", "talk a", "logs a", "agents", "agents builtin",
    "validate plan.yaml", "events", "capacity", "diff a", "attempts a", "usage", "complete a --result enough",
)  # fmt: skip


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    (made.path / "plan.yaml").write_text(PLAN)
    return made


def test_commands_beside_a_worker_of_the_built_in_agent_import_no_sdk(repo: Repo) -> None:
    with ScriptedLlm(steps(Say("Shall I begin?"))) as llm:
        config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f"agent = 'builtin'\n[agents.builtin]\nbase_url = '{llm.url}'\nmodel = 'fake-model'\n")
        env = {**os.environ, "ANTHROPIC_API_KEY": "not-a-key"}
        begun = command("run", "plan.yaml", cwd=repo.path, env=env, seconds=120)
        assert begun.returncode == 4, begun.stderr

        found = {words: _loaded(words, repo.path, env) for words in COMMANDS}

    assert found == dict.fromkeys(COMMANDS, "loaded [] code 0") | {"waiting": "loaded [] code 4"}


def test_a_run_of_commands_imports_nothing_that_it_does_not_use(repo: Repo) -> None:
    plan = (
        "name: one\ntarget: result\njobs: [{id: a, work: echo hi > x.txt}, {id: b, needs: a, work: echo ho > y.txt}]\n"
    )
    (repo.path / "plan.yaml").write_text(plan)

    found = _loaded("run plan.yaml --quiet", repo.path, dict(os.environ), UNUSED_BY_A_SHELL_PLAN)

    assert found == "loaded [] code 0"
    assert repo("show", "result:y.txt") == "ho\n"


def _loaded(words: str, cwd: Path, env: dict[str, str], names: tuple[str, ...] = SDKS) -> str:
    code = LOADED.format(words=words.split(), names=names)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    return (done.stdout.splitlines() or [done.stderr])[-1]
