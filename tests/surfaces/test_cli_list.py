"""`orchard list` is asked often: it knows no more than it shows, and what it shows is what a replay would say."""

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchard.app import open_app
from orchard.git.command import git_program
from orchard.model.events.plans import Recorded
from orchard.model.plan import PlanId
from orchard.store.reader import JournalReader
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.nursery import command

PLAN = 'name: One\ntarget: goal\njobs:\n  - {id: one, work: "echo 1 > one.txt"}\n'
LIST = "import sys; from orchard.surfaces.cli.start import run_command_line as run; run(['list', '--json'])"
LOADED = f"{LIST}; print([name for name in sys.modules if name in ('orchard.app', 'orchard.model.plan', 'asyncio')])"


def python(repo: Repo, *words: str | Path, ends_with: int = 0) -> str:
    if words[:2] == ("-m", "orchard"):
        done = command(*words[2:], cwd=repo.path)
    else:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=repo.path,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == ends_with, done.stderr
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


def test_listing_many_plans_that_are_not_settled_starts_no_git_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = Repo.make(tmp_path / "repo")
    (tmp_path / "plan.yaml").write_text(f"start_paused: true\n{PLAN}")
    for _ in range(3):
        python(repo, "-m", "orchard", "run", tmp_path / "plan.yaml", "--quiet", ends_with=4)
    notes, folder = tmp_path / "asked", tmp_path / "bin"
    folder.mkdir()
    real = git_program(os.environ["PATH"])
    (folder / "git").write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" >> "{notes}"\nexec "{real}" "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    shown = json.loads(python(repo, "-c", LIST))

    assert [plan["status"] for plan in shown] == ["paused"] * 3
    assert max(Counter(notes.read_text().split()).values()) <= 2


@pytest.mark.parametrize("verb", ["job", "attempts", "log_parts", "diff"])
def test_what_is_told_of_a_job_takes_one_replay(landed: Repo, verb: str) -> None:
    app = open_app(landed.path, in_commands)
    asked: list[PlanId | None] = []

    class Counting(JournalReader):
        def events(self, plan: PlanId | None = None, since: int = 0, limit: int | None = None) -> Iterator[Recorded]:
            asked.append(plan)
            return super().events(plan, since, limit)

    app.reader = Counting(landed.path / ".git" / "orchard" / "journal.db")
    getattr(app, verb)("one", None)

    assert len(asked) == 1
