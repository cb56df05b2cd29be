"""Who looks into the folder of worktrees sees which of them is whose."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.git.worktree.job_links import link_job, sweep_links, unlink_job
from tests.acceptance.program import Desk, desks

PLAN = """
name: Links
target: goal
jobs:
  - {id: good, group: part, work: 'ls -l ../by-job/*/ > ../seen; echo good > good.txt'}
  - {id: bad, work: 'echo half > half.txt; false'}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def links(root: Path) -> dict[str, str]:
    """Every link with the folder that it leads to."""
    found = [path for path in root.glob("by-job/*/*") if path.is_symlink()]
    return {path.name: path.resolve().name for path in found}


def test_a_job_that_runs_or_failed_has_a_link_to_its_worktree_and_one_that_is_done_has_none(desk: Desk) -> None:
    root = desk.repo.path / ".worktrees"
    desk("run", desk.plan(PLAN.replace("../seen", str(desk.folder / "seen"))))
    [plan] = (root / "by-job").iterdir()

    assert "part+good -> ../../w" in (desk.folder / "seen").read_text()
    assert plan.name == desk.status()["plan"]["id"]
    assert links(root) == {"bad": Path(desk("path", "bad").out.strip()).name}
    assert (plan / "bad" / "half.txt").read_text() == "half\n"
    assert desk.repo("status", "--short") == ""

    desk("delete", plan.name, "--yes")
    assert not (root / "by-job").exists()


def test_a_link_follows_the_job_into_another_worktree_and_is_not_taken_for_a_stray(desk: Desk) -> None:
    root = desk.repo.path / ".worktrees"
    desk("run", desk.plan(PLAN.replace("../seen", "/dev/null")))

    again = desk("retry", "bad", "--fresh")

    assert "by-job" not in again.talk and "by-job" not in desk("doctor").talk
    assert set(links(root)) == {"bad"} and Path(desk("path", "bad").out.strip()).name == links(root)["bad"]


def test_a_run_that_was_killed_leaves_no_link_that_leads_nowhere(desk: Desk) -> None:
    root = desk.repo.path / ".worktrees"
    plan = desk.plan("name: One\ntarget: goal\njobs: [{id: a, work: 'echo a > a.txt'}]\n")
    desk("run", plan, ORCHARD_FAILPOINT="worktree.before-release:1:kill")

    desk("resume")

    assert desk.status()["plan"]["status"] == "succeeded"
    assert links(root) == {}


# ------------------------------------------------------------------------------------- the links alone


def test_links_are_made_once_and_go_with_their_folders(tmp_path: Path) -> None:
    for name in ("wone", "wtwo"):
        (tmp_path / name).mkdir()
    link_job(tmp_path / "wone", "plan", "a/b")
    link_job(tmp_path / "wone", "plan", "a/b")
    link_job(tmp_path / "wtwo", "plan", "a/b")
    unlink_job(tmp_path / "wone", "plan", "a/b")  # which is not where it leads any more
    assert links(tmp_path) == {"a+b": "wtwo"}

    unlink_job(tmp_path / "wtwo", "plan", "a/b")
    link_job(tmp_path / "wone", "next", "c")
    assert [path.name for path in (tmp_path / "by-job").iterdir()] == ["next"]

    unlink_job(tmp_path / "wone", "next", "c")
    sweep_links(tmp_path)
    assert not (tmp_path / "by-job").exists()


def test_a_sweep_takes_away_links_to_what_is_gone_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "wone").mkdir()
    link_job(tmp_path / "wone", "plan", "a")
    link_job(tmp_path / "wgone", "plan", "b")
    link_job(tmp_path / "wgone", "other", "c")
    (tmp_path / "by-job" / "plan" / "mine").symlink_to("/nowhere")

    sweep_links(tmp_path)

    assert {path.name for path in tmp_path.glob("by-job/*/*")} == {"a", "mine"}


@pytest.mark.parametrize("where", ["by-job", "by-job/plan"])
def test_no_link_is_made_where_a_link_leads_elsewhere(tmp_path: Path, where: str) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / "wone").mkdir(parents=True)
    place = root / where
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere)

    link_job(root / "wone", "plan", "a")
    link_job(root / "wone", "..", "a")
    unlink_job(root / "wone", "plan", "a")

    assert not [*elsewhere.iterdir()] and place.is_symlink()
