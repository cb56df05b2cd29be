"""`orchard plan` with real programs: they look at the copy, are told what is wrong with their plan, and mend it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.agents.llm import Say, ScriptedLlm, Shell, routes, steps
from tests.agents.programs import program

SECONDS = 240.0

GOOD = "name: Greet people\njobs:\n  - id: hello\n    work: echo hello > hello.txt\n"
BAD = "name: Greet\njobs:\n  - id: Hello\n"


def fenced(text: str) -> str:
    return f"Here it is.\n\n```yaml\n{text}```\n"


def keys(name: str, url: str) -> dict[str, str]:
    if name == "claude":
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "not-a-key"}
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "not-a-key"}


@pytest.mark.parametrize(("name", "model"), [("claude", "claude-sonnet-4-5"), ("codex", "gpt-5")])
def test_a_real_program_writes_a_plan_and_mends_it(name: str, model: str, tmp_path: Path) -> None:
    found = program(name)
    repo = Repo.make(tmp_path / "repo", files={"README.md": "# The secret word is pomegranate\n"})
    look = steps(Shell("cat README.md; echo spoiled > README.md"), Say(fenced(BAD)))
    with ScriptedLlm(routes({"'Hello' is not a valid id": steps(Say(fenced(GOOD)))}, otherwise=look)) as llm:
        done = subprocess.run(
            [sys.executable, "-m", "orchard", "plan", "Greet", "--agent", name, "--model", model, "--json"],
            cwd=repo.path,
            env={**os.environ, "PATH": found.search_path, "CANARY_TOKEN": "canary", **keys(name, llm.url)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert (document["agent"], document["plan"]["name"], len(document["problems"])) == (name, "Greet people", 1)
    assert (repo.path / document["file"]).read_text() == GOOD
    assert any("pomegranate" in result for asked in llm.requests for result in asked.results)
    assert any("# How to plan" in prompt for prompt in llm.requests[0].prompts)
    assert model in {asked.model for asked in llm.requests}
    told = llm.usage()
    assert (document["usage"]["tokens"], document["usage"]["output"]) == (told.tokens, told.output)
    assert repo("status", "--porcelain") == "?? greet.yaml\n"
    assert (repo.path / "README.md").read_text() == "# The secret word is pomegranate\n"
