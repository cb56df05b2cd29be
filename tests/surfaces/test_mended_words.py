"""What a person reads whose edits of a merged result do not count, because the target has moved."""

import json
import re
from pathlib import Path

from orchard.testing import Repo
from tests.nursery import command

PLAN = {
    "name": "Mended",
    "target": "work",
    "verify": {"command": "grep -q good a.txt", "on_failure": {"heal": False}},
    "jobs": [{"id": "a", "work": "echo bad > a.txt"}],
}


def test_edits_that_the_target_left_behind_come_back_by_the_command_that_is_told(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo", files={"README.md": "small\n"})
    repo("checkout", "-q", "-b", "work")
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    assert command("run", str(tmp_path / "plan.json"), cwd=repo.path).returncode == 1
    folder = Path(command("path", "verify", cwd=repo.path).stdout.strip())
    (folder / "a.txt").write_text("good\n")
    repo.commit({"other.txt": "moved\n"})

    again = command("retry", cwd=repo.path)

    told = again.stdout + again.stderr
    assert again.returncode == 1 and "the target moved meanwhile" in told, told
    kept = re.search(r"That is kept: orchard (recover \S+) DIR\.", told)
    back = re.search(r"this brings it back: orchard (shell verify .*)$", told, re.MULTILINE)
    assert kept and back, told
    assert command(*kept[1].split(), str(tmp_path / "back"), cwd=repo.path).returncode == 0
    assert (tmp_path / "back" / "a.txt").read_text() == "good\n"
    picked = command(*back[1].split(), cwd=repo.path)
    assert picked.returncode == 0, picked.stderr
    done = command("retry", cwd=repo.path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert repo.files("work")["a.txt"] == "good\n" and repo.files("work")["other.txt"] == "moved\n"
