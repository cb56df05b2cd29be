"""What jobs need is brought together once, and without a process for each need."""

import os
from collections import Counter
from pathlib import Path

import pytest

from orchard.engine.merges.memory import Gathered
from orchard.engine.outcome import Failed
from orchard.git.command import git_program
from orchard.model.events.plans import NeedsConsumed
from tests.engine.conftest import Orchard, statuses

pytestmark = pytest.mark.anyio


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git that notes what it is asked before it does it; the file that it notes that in."""
    notes, folder = tmp_path / "asked", tmp_path / "bin"
    folder.mkdir()
    real = git_program(os.environ["PATH"])
    (folder / "git").write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" >> "{notes}"\nexec "{real}" "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return notes


def joins(needs: int, joined: int) -> str:
    named = ", ".join(f"j{number}" for number in range(needs))
    rows = [f"  - {{id: j{number}, work: 'echo {number} > {number}.txt'}}" for number in range(needs)]
    rows += [f"  - {{id: k{number}, needs: [{named}], work: 'ls > k{number}.txt'}}" for number in range(joined)]
    return "name: joins\nmax_parallel: 4\njobs:\n" + "\n".join(rows) + "\n"


async def test_gathering_starts_no_process_for_each_need(orchard: Orchard, counted: Path) -> None:
    status = await orchard.run(joins(12, 3))

    assert set(statuses(status).values()) == {"succeeded"}
    assert Counter(counted.read_text().split())["merge-base"] <= 3
    assert set(orchard.repo.files("work")) >= {"0.txt", "11.txt", "k0.txt", "k2.txt"}


async def test_leaves_that_conflict_start_no_process_for_each_pair_of_them(orchard: Orchard, counted: Path) -> None:
    jobs = "".join(f"  - {{id: j{number}, work: 'echo {number} > README.md'}}\n" for number in range(12))
    status = await orchard.run(f"name: pairs\nresolver: theirs\nmax_parallel: 4\njobs:\n{jobs}")

    assert set(statuses(status).values()) == {"succeeded"}
    met = {one["job"]: len(one["ours"]) for one in status["plan"]["resolutions"]}
    assert sorted(met.values()) == list(range(1, 12))
    assert Counter(counted.read_text().split())["merge-base"] <= 3 * 12


async def test_jobs_that_need_the_same_begin_at_the_same_commit(orchard: Orchard) -> None:
    await orchard.run(joins(5, 3))
    repo = orchard.repo
    bases = {repo("rev-parse", ref).strip() for ref in repo.refs("refs/orchard/base")}

    assert len(orchard.events(NeedsConsumed)) >= 3
    assert len(bases) == 1


def test_a_merge_is_made_once_for_each_plan_and_way_to_resolve() -> None:
    gathered, made = Gathered(), []

    def merge() -> str:
        made.append("merge")
        return f"commit{len(made)}"

    assert gathered.merged(("p", "agent", "a", "b"), merge) == "commit1"
    assert gathered.merged(("p", "agent", "a", "b"), merge) == "commit1"
    assert gathered.merged(("p", "ours", "a", "b"), merge) == "commit2"
    assert gathered.merged(("q", "agent", "a", "b"), merge) == "commit3"
    assert gathered.merged(("p", "agent", "b", "a"), merge) == "commit4"
    gathered.forget()
    assert gathered.merged(("p", "agent", "a", "b"), merge) == "commit5"


def test_a_merge_that_failed_is_tried_again() -> None:
    gathered = Gathered()

    assert isinstance(gathered.merged(("p", "agent", "a", "b"), lambda: Failed("conflict", "no")), Failed)
    assert gathered.merged(("p", "agent", "a", "b"), lambda: "commit") == "commit"
