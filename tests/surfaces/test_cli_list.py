"""`orchard list` is asked often: it knows no more than it shows, and what it shows is what a replay would say."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from orchard.testing import Repo

PLAN = 'name: One\ntarget: goal\njobs:\n  - {id: one, work: "echo 1 > one.txt"}\n'
LIST = "import sys; from orchard.surfaces.cli.start import run_command_line as run; run(['list', '--json'])"
LOADED = f"{LIST}; print([name for name in sys.modules if name in ('orchard.app', 'orchard.core.plan', 'asyncio')])"


def python(repo: Repo, *words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=repo.path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """A repository in which a plan has landed."""
    folder = tmp_path_factory.mktemp("list")
    repo = Repo.make(folder / "repo")
    (folder / "plan.yaml").write_text(PLAN)
    python(repo, "-m", "orchard", "run", folder / "plan.yaml", "--quiet")
    return repo


def test_listing_settled_plans_imports_neither_plans_nor_the_engine(landed: Repo) -> None:
    answer, loaded = python(landed, "-c", LOADED).splitlines()

    assert [plan["name"] for plan in json.loads(answer)] == ["One"]
    assert loaded == "[]"


def test_a_plan_that_is_not_settled_is_replayed_and_shown_the_same(landed: Repo) -> None:
    before = python(landed, "-c", LIST)
    with closing(sqlite3.connect(landed.path / ".git" / "orchard" / "journal.db")) as journal, journal:
        journal.execute("UPDATE plans SET settled = 0, summary = '{}'")

    answer, loaded = python(landed, "-c", LOADED).splitlines()

    assert answer == before.strip()
    assert "orchard.app" in loaded
