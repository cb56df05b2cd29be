"""A failure for want of dependencies that the checkout has names the setting that copies them into worktrees."""

from pathlib import Path

import pytest

from orchard.git.dependencies.absences import missing_folders
from orchard.git.repository import find_repository
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job

pytestmark = pytest.mark.anyio

FILES = (
    "node_modules/left-pad/index.js",
    "node_modules/@scope/part/index.js",
    "node_modules/.bin/jest",
    "web/node_modules/react/index.js",
    ".venv/lib/python3.11/site-packages/six.py",
    ".venv/lib/python3.11/site-packages/yaml/__init__.py",
    ".venv/bin/pytest",
    "vendored/bin/tool",
)


def with_dependencies(repo: Repo) -> None:
    repo.commit({".gitignore": "node_modules\n.venv\n", "web/a.js": "", "package.json": "{}"})
    for name in FILES:
        (repo.path / name).parent.mkdir(parents=True, exist_ok=True)
        (repo.path / name).write_text("x\n")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Error: Cannot find module 'left-pad'\nRequire stack:", ["node_modules"]),
        ("Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@scope/part' imported from /x/a.mjs", ["node_modules"]),
        ("sh: 1: jest: not found", ["node_modules"]),
        ("bash: line 1: jest: command not found", ["node_modules"]),
        ("zsh: command not found: jest", ["node_modules"]),
        ("sh: 1: ./node_modules/.bin/jest: not found", ["node_modules"]),
        ("Module not found: Error: Can't resolve 'react' in '/x/web'", ["web/node_modules"]),
        ("ModuleNotFoundError: No module named 'six'", [".venv"]),
        ("ModuleNotFoundError: No module named 'yaml.nodes'", [".venv"]),
        ("/usr/bin/python3: No module named yaml", [".venv"]),
        ("env: '.venv/bin/pytest': No such file or directory", [".venv"]),
        ("sh: 1: jest: not found\nNo module named six", [".venv", "node_modules"]),
        ("Error: Cannot find module './left-pad'", []),
        ("Error: Cannot find module 'right-pad'", []),
        ("ModuleNotFoundError: No module named 'mine'", []),
        ("sh: 1: tool: not found", []),
        ("assert 1 == 2", []),
    ],
)
def test_what_a_program_missed_is_found_in_the_checkout(tmp_path: Path, said: str, found: list[str]) -> None:
    repo = Repo.make(tmp_path / "repo")
    with_dependencies(repo)
    (tmp_path / "worktree" / "web").mkdir(parents=True)
    folder = tmp_path / "worktree"

    assert missing_folders(find_repository(repo.path), said, folder, folder) == found
    for name in found:
        (folder / name).mkdir(parents=True)
    assert missing_folders(find_repository(repo.path), said, folder, folder / "web") == [], "the worktree has it"


def test_a_folder_that_git_tracks_is_not_advised(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo", files={"node_modules/left-pad/index.js": "x\n"})
    (tmp_path / "worktree").mkdir()
    said = "Error: Cannot find module 'left-pad'"

    assert missing_folders(find_repository(repo.path), said, tmp_path / "worktree", tmp_path / "worktree") == []


async def test_the_first_failure_names_the_line_that_a_retry_then_works_with(orchard: Orchard) -> None:
    with_dependencies(orchard.repo)
    (orchard.repo.path / "node_modules/.bin/jest").write_text("#!/bin/sh\necho tested > tested.txt\n")
    (orchard.repo.path / "node_modules/.bin/jest").chmod(0o755)
    failed = await orchard.run('name: Node\njobs: [{id: a, heal: false, work: "node_modules/.bin/jest"}]')
    line = 'worktree.copy = ["node_modules"]'

    hint = job(failed, "a")["hint"]
    assert "has no 'node_modules', which git ignores" in hint and f"put {line} at the top of orchard.toml" in hint

    (orchard.repo.path / "orchard.toml").write_text(f"{line}\n")
    orchard.trust()
    assert (await orchard.ask("retry_plan"))["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["tested.txt"] == "tested\n"
