"""What a person reads while resolving a conflict: where it is, what to do, and the command that goes on."""

import json
from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.nursery import command

PLAN = {
    "name": "Met",
    "resolver": "fail",
    "max_parallel": 1,
    "jobs": [{"id": one, "work": f"echo {one} > same.txt"} for one in ("one", "two")],
}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo", files={"same.txt": "0\n"})
    made("checkout", "-q", "-b", "work")
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    assert command("run", str(tmp_path / "plan.json"), cwd=made.path).returncode == 1
    return made


def test_a_conflict_is_resolved_by_what_the_commands_say(repo: Repo) -> None:
    def cli(*words: str) -> str:
        done = command(*words, cwd=repo.path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "next: orchard resolve two --plan met-" in cli("status")
    opened = cli("resolve")
    folder = cli("path", "two").strip()
    assert f"Resolve it in: {folder}" in opened and "same.txt  both changed the same lines" in opened
    step = next(line for line in opened.splitlines() if line.startswith("next: "))
    assert step.endswith(" --continue")
    assert f"being resolved in {folder}" in cli("status") and step in cli("status")
    assert folder in cli("job", "two")
    refused = command("resolve", "two", "--continue", cwd=repo.path)
    assert refused.returncode == 2 and "same.txt has conflict markers (line 1)" in refused.stderr
    (Path(folder) / "same.txt").write_text("both\n")
    done = command(*step.removeprefix("next: orchard ").split(), cwd=repo.path)
    assert done.returncode == 0, done.stderr
    assert "Resolved: same.txt." in done.stdout + done.stderr and "conflict resolved by hand in two" in done.stdout
    assert repo.files("work")["same.txt"] == "both\n"
    assert command("resolve", cwd=repo.path).returncode in (2, 3)


def test_what_is_given_up_is_told_with_the_command_that_brings_it_back(repo: Repo, tmp_path: Path) -> None:
    answer = json.loads(command("--json", "resolve", "two", cwd=repo.path).stdout)
    assert [one["path"] for one in answer["files"]] == ["same.txt"]
    (Path(answer["folder"]) / "same.txt").write_text("half\n")

    given_up = command("resolve", "two", "--abort", cwd=repo.path).stdout

    (edited,) = [row for row in given_up.splitlines() if "What you edited is saved: orchard recover" in row]
    (ref,) = [word for word in edited.split() if word.startswith("refs/orchard/wip/")]
    (noted,) = [row for row in given_up.splitlines() if row.startswith("What git had noted there")]
    assert ref not in noted and "orchard recover refs/orchard/wip/" in noted
    assert command("recover", ref, str(tmp_path / "back"), cwd=repo.path).returncode == 0
    assert (tmp_path / "back" / "same.txt").read_text() == "half\n"
    assert command("resolve", "two", "--abort", "--continue", cwd=repo.path).returncode == 2
