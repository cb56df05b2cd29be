"""Many built-in agents at once: what they take together, and that none of them starves."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agents.llm import Call, Reply, Say, ScriptedLlm, steps

ROOT = Path(__file__).parents[3]
AGENTS = 50
MOST_MB = 400
TURN: list[Reply | Sequence[Reply]] = [
    Call("write_file", {"path": "a.txt", "content": "line\n" * 500}),
    [Call("read_file", {"path": "a.txt"}), Call("list_files", {"path": "."})],
    Call("bash", {"command": "wc -l a.txt > b.txt"}),
    Call("edit_file", {"path": "b.txt", "old_text": "500", "new_text": "five hundred"}),
    Call("read_file", {"path": "b.txt"}),
    Say("It is done."),
]


@pytest.mark.slow
def test_fifty_agents_at_once_take_little_memory_and_all_of_them_come_to_an_end(tmp_path: Path) -> None:
    with ScriptedLlm(steps(*TURN)) as llm:
        done = subprocess.run(
            [sys.executable, "-m", "tests.agents.builtin.many", llm.url, str(AGENTS), str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        figures = json.loads(done.stdout)
        print(f"\n{AGENTS} built-in agents at once: {figures}")
        counted = llm.usage()

    assert figures["done"] == AGENTS, figures
    assert len(list(tmp_path.glob("folder-*/b.txt"))) == AGENTS
    assert (figures["tokens"], figures["requests"]) == (counted.tokens, counted.requests)
    assert figures["peak_mb"] <= MOST_MB
    # Nobody else of the process is kept waiting, and no agent gets its turn only when the others have finished.
    assert figures["longest_lag"] < 3
    assert figures["first_end"] > figures["last_end"] / 4
