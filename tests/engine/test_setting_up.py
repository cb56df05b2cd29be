"""A warm worktree is set up again only where that could leave something else."""

from pathlib import Path

import pytest

from orchard.model.events.plans import PhaseEnded, Warned
from orchard.model.phases import Phase
from tests.engine.conftest import Orchard, job, statuses

pytestmark = pytest.mark.anyio

IGNORE = {".gitignore": "installed/\n.env\n*.cache\n", "lock.txt": "1\n"}


def plan(root: Path, *jobs: str, setup: str = "mkdir -p installed; cat lock.txt > installed/packages") -> str:
    counted = f"echo $ORCHARD_JOB >> {root}/ran; {setup}"
    rows = "\n".join(f"  - {row}" for row in jobs)
    return f"name: n\nmax_parallel: 1\nsetup: '{counted}'\njobs:\n{rows}\n"


def ran(root: Path) -> list[str]:
    return (root / "ran").read_text().split()


@pytest.fixture
def root(orchard: Orchard, tmp_path: Path) -> Path:
    orchard.repo.commit(IGNORE)
    return tmp_path


async def test_setup_runs_once_for_jobs_that_begin_alike_in_the_same_worktree(orchard: Orchard, root: Path) -> None:
    work = "'cat installed/packages > {0}.txt; test ! -e junk.cache; echo > junk.cache'"
    rows = [f"{{id: {name}, work: {work.format(name)}}}" for name in ("a", "b", "c")]

    status = await orchard.run(plan(root, *rows))

    assert status["plan"]["status"] == "succeeded"
    assert len(ran(root)) == 1
    assert {name: orchard.repo.files("work")[f"{name}.txt"] for name in "abc"} == {"a": "1\n", "b": "1\n", "c": "1\n"}


@pytest.mark.parametrize("how", ["update-index --split-index", "update-index --index-version 4", "status"])
async def test_an_ignored_file_that_a_job_added_to_its_own_index_is_not_there_for_the_next(
    orchard: Orchard, root: Path, how: str
) -> None:
    hides = f"echo x > installed/evil; git add -f installed/evil; git {how} > /dev/null"
    victim = "if test -e installed/evil; then exit 3; fi; cat installed/packages > b.txt"
    rows = [f"{{id: a, work: 'echo a > a.txt', postchecks: '{hides}'}}", f"{{id: b, work: '{victim}'}}"]

    status = await orchard.run(plan(root, *rows))

    assert statuses(status)["b"] == "succeeded"


async def test_setup_runs_again_where_a_job_touched_what_it_left(orchard: Orchard, root: Path) -> None:
    rows = [
        f"{{id: {name}, work: 'cat installed/packages > {name}.txt; echo bad > installed/packages'}}" for name in "ab"
    ]

    await orchard.run(plan(root, *rows))

    assert sorted(ran(root)) == ["a", "b"]
    assert orchard.repo.files("work")["b.txt"] == orchard.repo.files("work")["a.txt"] == "1\n"


async def test_setup_runs_again_for_a_job_that_begins_at_other_files_or_is_set_up_otherwise(
    orchard: Orchard, root: Path
) -> None:
    await orchard.run(
        plan(
            root,
            "{id: a, work: 'echo 2 > lock.txt'}",
            "{id: b, needs: [a], work: 'cat installed/packages > b.txt'}",
            f"{{id: c, setup: 'echo $ORCHARD_JOB >> {root}/ran', work: 'test ! -e installed; echo c > c.txt'}}",
            "{id: d, env: {MODE: x}, work: 'echo d > d.txt'}",
        )
    )

    assert sorted(ran(root)) == ["a", "b", "c", "d"]
    assert orchard.repo.files("work")["b.txt"] == "2\n"


async def test_setup_that_changes_more_than_ignored_files_runs_for_each_job(orchard: Orchard, root: Path) -> None:
    rows = [f"{{id: {name}, work: 'cat made.txt > {name}.txt'}}" for name in "ab"]

    await orchard.run(plan(root, *rows, setup="echo made > made.txt"))

    assert sorted(ran(root)) == ["a", "b"]


async def test_setup_that_failed_runs_again_on_a_retry(orchard: Orchard, root: Path) -> None:
    setup = f"mkdir -p installed; test -e {root}/fixed"
    status = await orchard.run(plan(root, "{id: a, heal: false, work: 'echo a > a.txt'}", setup=setup))
    assert job(status, "a")["status"] == "failed"
    (root / "fixed").touch()

    status = await orchard.ask("retry_plan", jobs=["a"])

    assert job(status, "a")["status"] == "succeeded" and len(ran(root)) == 2


async def test_included_files_are_copied_again_only_when_they_change(orchard: Orchard, root: Path) -> None:
    top = orchard.repo.path
    (top / ".worktreeinclude").write_text(".env\n")
    orchard.trust()
    (top / ".env").write_text("one")
    # The time of its last change tells a copy from the same file; its number alone may be given out again.
    change = "stat -c %i-%z .env > $ORCHARD_JOB.txt; cat .env >> $ORCHARD_JOB.txt"
    text = (
        "name: n\nmax_parallel: 1\njobs:\n"
        f"  - {{id: a, priority: 3, work: '{change}'}}\n"
        f"  - {{id: b, priority: 2, work: '{change}; echo two > {top}/.env'}}\n"
        f"  - {{id: c, priority: 1, work: '{change}'}}\n"
    )

    await orchard.run(text)
    files = orchard.repo.files("work")
    notes = {one.job: one.note for one in orchard.events(PhaseEnded) if one.phase is Phase.SETUP}

    again = "the worktree was set up for an earlier job"
    assert [notes[name] for name in "abc"] == ["copied 1 ignored files", again, "copied 1 ignored files"]
    assert files["a.txt"] == files["b.txt"] and files["a.txt"].endswith("one")
    assert files["c.txt"].endswith("two\n")


async def test_copies_of_folders_are_the_jobs_own_and_made_again_only_when_they_or_the_originals_change(
    orchard: Orchard, root: Path
) -> None:
    top = orchard.repo.path
    (top / "orchard.toml").write_text("[worktree]\ncopy = ['installed', 'missing']\n")
    orchard.trust()
    (top / "installed").mkdir()
    (top / "installed/packages").write_text("one\n")
    text = (
        "name: n\nmax_parallel: 1\njobs:\n"
        "  - {id: a, priority: 3, work: 'cat installed/packages > a.txt'}\n"
        "  - {id: b, priority: 2, work: 'cat installed/packages > b.txt; echo bad >> installed/packages'}\n"
        "  - {id: c, priority: 1, work: 'cat installed/packages > c.txt'}\n"
    )

    await orchard.run(text)
    files = orchard.repo.files("work")
    notes = {one.job: one.note for one in orchard.events(PhaseEnded) if one.phase is Phase.SETUP}

    told = "copied installed (1 file); did not copy missing: there is no such folder or file in the checkout"
    assert [notes[name] for name in "abc"] == [told, "the worktree was set up for an earlier job", told]
    assert [files[f"{name}.txt"] for name in "abc"] == ["one\n"] * 3
    assert (top / "installed/packages").read_text() == "one\n"
    assert [one.message for one in orchard.events(Warned)] == [
        "'missing' of 'worktree.copy' is not copied into worktrees: there is no such folder or file in the checkout."
    ]
