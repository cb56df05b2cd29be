"""Warm worktrees wait for the next run; it finds what a new worktree would hold, and nothing that a job left."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from orchard.engine.machine import pool
from orchard.engine.server import start as opening
from orchard.git.dependencies import kept
from orchard.git.dependencies.kept import Kept, kept_worktrees, note_kept, ready_of
from orchard.git.repository import find_repository
from orchard.git.worktree import status as look
from orchard.model.events.plans import Warned, WorktreeTaken
from orchard.testing import Repo
from tests.engine.conftest import Orchard
from tests.engine.scripted import ScriptedAgents, writes

pytestmark = pytest.mark.anyio

SETUP = "mkdir -p installed/sub; echo good > installed/sub/tool; echo x > .env"


@pytest.fixture
def root(orchard: Orchard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pool, "WORTH", 1)
    orchard.repo.commit({".gitignore": "installed/\n.env\n*.cache\n"})
    return tmp_path


def plan(root: Path, *works: str, setup: str = SETUP) -> str:
    rows = "\n".join(f"  - {{id: j{number}, work: '{work}'}}" for number, work in enumerate(works))
    counted = f"echo >> {root}/ran; {setup}"
    return f"name: n\nmax_parallel: 1\ntarget: side-{os.urandom(4).hex()}\nsetup: '{counted}'\njobs:\n{rows}\n"


def setups(root: Path) -> int:
    return len((root / "ran").read_text().splitlines())


def waiting(orchard: Orchard) -> list[Kept]:
    return kept_worktrees(find_repository(orchard.repo.path))


async def found(orchard: Orchard, text: str) -> tuple[str, str]:
    """Run a plan that must succeed; the worktree of its first job, and what that job wrote to `seen`."""
    status = await orchard.run(text)
    assert status["plan"]["status"] == "succeeded"
    name = orchard.events(WorktreeTaken)[0].worktree
    return name, orchard.repo("show", f"{status['plan']['target']['branch']}:seen")


LOOK = 'all=$(find . ! -path "./.git*" ! -path . | sort; cat installed/sub/tool); echo "$all" > seen'
CLEAN = ["./.env", "./README.md", "./installed", "./installed/sub", "./installed/sub/tool", "./shared.txt", "good"]


async def test_the_next_run_finds_the_worktree_of_the_last_one_set_up_already(orchard: Orchard, root: Path) -> None:
    first, seen = await found(orchard, plan(root, LOOK))
    (kept_one,) = waiting(orchard)
    assert kept_one.name == first and kept_one.size > 0 and setups(root) == 1

    again, seen_again = await found(orchard, plan(root, LOOK))

    assert (again, setups(root)) == (first, 1)
    assert seen.split() == seen_again.split() == CLEAN
    assert [one.name for one in waiting(orchard)] == [first]
    assert orchard.saved_work() == []


@pytest.mark.parametrize(
    ("left", "sets_up"),
    [
        ("echo evil > installed/sub/tool", True),
        ("echo evil >> installed/sub/tool; touch -r shared.txt installed/sub/tool", True),
        (
            "echo evil > installed/new; echo evil > j.cache; mkdir -p installed/deep; echo > installed/deep/x.cache",
            False,
        ),
        ("rm -r installed", True),
        ("echo new > new.txt; echo changed > shared.txt; mkdir empty; rm README.md", False),
        ("mkfifo pipe; echo > own.txt; git add own.txt; git commit -qm own", False),
    ],
)
async def test_nothing_that_a_job_left_is_there_in_the_next_run(
    orchard: Orchard, root: Path, left: str, sets_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_WORKTREE_KEEP", "*.cache,installed")
    await orchard.run(plan(root, left))

    _, seen = await found(orchard, plan(root, LOOK))

    assert seen.split() == CLEAN
    assert setups(root) == 1 + sets_up


async def test_a_worktree_with_other_rights_than_git_gives_is_not_kept(
    orchard: Orchard, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "PICTURED", 0)  # as in a large worktree, at which git alone looks
    await orchard.run(plan(root, "chmod 666 README.md; echo > a.txt"))

    assert waiting(orchard) == []
    assert not (orchard.repo.path / ".worktrees").exists()


async def test_what_a_person_puts_into_a_worktree_that_waits_is_saved(orchard: Orchard, root: Path) -> None:
    name, _ = await found(orchard, plan(root, LOOK))
    folder = orchard.repo.path / ".worktrees" / name
    (folder / "mine.txt").write_text("mine")
    (folder / "shared.txt").write_text("edited")

    again, seen = await found(orchard, plan(root, LOOK))

    assert again == name and seen.split() == CLEAN
    (saved,) = orchard.saved_work()
    assert orchard.repo("show", f"{saved['ref']}:mine.txt") == "mine"


def staged(orchard: Orchard, one: Kept) -> None:
    (Path(one.path) / "mine.txt").write_text("mine")
    Repo(Path(one.path))("add", "mine.txt")


def moved_head(orchard: Orchard, one: Kept) -> None:
    Repo(Path(one.path))("checkout", "-q", "--detach", "HEAD~1")


def without_notes(orchard: Orchard, one: Kept) -> None:
    (orchard.repo.path / ".git/orchard/kept" / one.name).unlink()


def half_a_note(orchard: Orchard, one: Kept) -> None:
    (orchard.repo.path / ".git/orchard/kept" / one.name).write_bytes(msgspec.json.encode(one)[:-9])


def other_line_ends(orchard: Orchard, one: Kept) -> None:
    orchard.repo("config", "core.autocrlf", "input")


def long_ago(orchard: Orchard, one: Kept) -> None:
    repo = find_repository(orchard.repo.path)
    note_kept(repo, replace(one, at=time.time() - 8 * 86_400), ready_of(repo, one.name))


def too_large(orchard: Orchard, one: Kept) -> None:
    repo = find_repository(orchard.repo.path)
    note_kept(repo, replace(one, size=1 << 40), ready_of(repo, one.name))


def elsewhere(orchard: Orchard, one: Kept) -> None:
    repo = find_repository(orchard.repo.path)
    note_kept(repo, replace(one, path=f"/nowhere/{one.name}"), ready_of(repo, one.name))


@pytest.mark.parametrize(
    "happened",
    [staged, moved_head, without_notes, half_a_note, other_line_ends, long_ago, too_large, elsewhere],
    ids=lambda one: one.__name__,
)
async def test_a_worktree_that_is_not_as_its_note_says_is_not_used(
    orchard: Orchard, root: Path, happened: Callable[[Orchard, Kept], None]
) -> None:
    """A crash, too, leaves a worktree without a note, or a note whose worktree went on."""
    name, _ = await found(orchard, plan(root, LOOK))
    happened(orchard, waiting(orchard)[0])

    other, seen = await found(orchard, plan(root, LOOK))

    assert other != name and seen.split() == CLEAN and setups(root) == 2
    assert not (orchard.repo.path / ".worktrees" / name).exists()
    assert len(orchard.saved_work()) == (happened in (staged, moved_head))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ORCHARD_SANDBOX_NETWORK", "off"),
        ("ORCHARD_PASS_ENV", "SOME_TOKEN"),
        ("CC", "other-compiler"),
    ],
)
async def test_what_was_set_up_behind_another_wall_or_by_other_variables_is_set_up_again(
    orchard: Orchard, root: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    name, _ = await found(orchard, plan(root, LOOK))
    monkeypatch.setenv(variable, value)

    again, seen = await found(orchard, plan(root, LOOK))

    assert again == name and setups(root) == 2 and seen.split() == CLEAN


async def test_what_an_agent_left_that_mended_the_setup_is_for_no_other_job(
    orchard: Orchard, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: agents)
    agents.add("medic", writes({"installed/mended": "evil"}, says="Mended."))
    monkeypatch.setenv("ORCHARD_HEAL_AGENT", "medic")
    setup = f"{SETUP}; test -e installed/mended || test -e {root}/well"

    await orchard.run(plan(root, LOOK, setup=setup))
    assert orchard.status()["plan"]["status"] == "succeeded" and waiting(orchard), "it was mended"
    (root / "well").touch()
    _, seen = await found(orchard, plan(root, LOOK, setup=setup))

    assert seen.split() == CLEAN


async def test_a_worktree_that_another_process_has_claimed_is_not_used(
    orchard: Orchard, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _ = await found(orchard, plan(root, LOOK))
    repo = find_repository(orchard.repo.path)
    monkeypatch.setattr(pool, "claim", lambda repo, name: kept.claim(repo, name) and kept.claim(repo, name))

    other, _ = await found(orchard, plan(root, LOOK))

    assert other != name and name not in [one.name for one in kept_worktrees(repo)]


@pytest.mark.parametrize(("variable", "value"), [("KEEP_SIZE", "0"), ("POOL", "0"), ("KEEP_SIZE", "1")])
async def test_the_settings_say_how_many_wait_and_how_large_they_are(
    orchard: Orchard, root: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    name, _ = await found(orchard, plan(root, LOOK))
    monkeypatch.setenv(f"ORCHARD_WORKTREE_{variable}", value)

    other, _ = await found(orchard, plan(root, LOOK))

    assert other != name and waiting(orchard) == []
    assert not (orchard.repo.path / ".worktrees").exists()


async def test_small_worktrees_are_not_kept(orchard: Orchard, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "WORTH", kept.WORTH)

    await orchard.run(plan(root, LOOK))

    assert waiting(orchard) == [] and not (orchard.repo.path / ".worktrees").exists()


async def test_copies_stay_for_a_run_that_begins_at_other_files_unless_git_no_longer_ignores_them(
    orchard: Orchard, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_WORKTREE_COPY", "installed")
    orchard.repo("checkout", "-q", "-b", "bare")
    orchard.repo.commit({".gitignore": "*.cache\n"})
    orchard.repo("checkout", "-q", "work")
    orchard.repo.write({"installed/a": "a"})
    work = "stat -c %z installed/a > seen; git status --porcelain >> seen"
    text = f"name: n\ntarget: {{}}\njobs: [{{{{id: a, work: '{work}'}}}}]\n"
    name, first = await found(orchard, text.format("one"))

    orchard.repo.commit({"other.txt": "x"})
    again, second = await found(orchard, text.format("two"))
    status = await orchard.run("base: bare\n" + text.format("three"))

    assert again == name and first == second, "the same copy"
    assert status["plan"]["status"] == "succeeded"
    changed = orchard.repo("diff", "--name-only", "bare", "three").split()
    assert changed == ["seen"], "what git would add did not stay"
    assert "'installed' of 'worktree.copy' is not copied" in orchard.events(Warned)[0].message, "nor is it relied on"
