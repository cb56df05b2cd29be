"""Plans with `submodules: true`: worktrees have them, a job moves one and it lands, and nothing old is seen again."""

from pathlib import Path
from typing import Any

import pytest

from orchard.engine.server import start as opening
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.helpers import Asker, Line, by_task, run
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio

ALLOWED = ("-c", "protocol.file.allow=always")
OWN = "git -c user.name=x -c user.email=x@y commit -q --allow-empty -m own"


class Place:
    """The repository with the submodule `sub` (and `deep` in that), which the user has checked out."""

    def __init__(self, orchard: Orchard, folder: Path) -> None:
        self.orchard = orchard
        deep = Repo.make(folder / "deep", files={"deep.txt": "deep\n"})
        self.library = Repo.make(folder / "library", files={"lib.txt": "1\n"})
        for into, what, name in ((self.library, deep, "deep"), (orchard.repo, self.library, "sub")):
            into(*ALLOWED, "submodule", "--quiet", "add", str(what.path), name)
            into.commit()
        orchard.repo(*ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
        self.first = self.library.head()
        self.later = self.library.commit({"lib.txt": "2\n"})

    def named(self, commit: str) -> str:
        return self.orchard.repo("ls-tree", commit, "sub").split()[2]

    def read(self, place: str) -> str:
        """`branch:path`"""
        return self.orchard.repo("cat-file", "blob", place)

    def settings(self) -> bytes:
        return (self.orchard.repo.path / ".git/config").read_bytes()

    def worktrees(self) -> list[Path]:
        rows = self.orchard.repo("worktree", "list", "--porcelain").splitlines()
        return [Path(row.removeprefix("worktree ")) for row in rows if row.startswith("worktree ")][1:]


@pytest.fixture
def place(orchard: Orchard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    # Git clones no submodule from a folder of this machine unless the user says so.
    (tmp_path / "gitconfig").write_text('[protocol "file"]\n\tallow = always\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    return Place(orchard, tmp_path)


def plan(*jobs: str, more: str = "submodules: true") -> str:
    rows = "\n".join(f"  - {row}" for row in jobs)
    return f"name: n\nmax_parallel: 1\n{more}\njobs:\n{rows}\n"


async def test_a_job_moves_a_submodule_and_it_lands_without_touching_the_users(place: Place) -> None:
    orchard, users = place.orchard, Repo(place.orchard.repo.path / "sub")
    (users.path / "draft").write_text("the user is typing")
    settings, before = place.settings(), users("status", "--porcelain")

    status = await orchard.run(
        plan(
            "{id: move, work: 'cat sub/lib.txt sub/deep/deep.txt > seen.txt; git -C sub checkout -q origin/main'}",
            "{id: beside, work: 'cat sub/lib.txt > beside.txt'}",
            "{id: after, needs: [move], work: 'cat sub/lib.txt > after.txt'}",
            more="submodules: true\nverify: 'grep -q 2 sub/lib.txt'",
        )
    )

    assert set(statuses(status).values()) == {"succeeded"}, status
    found = tuple(place.read(f"work:{name}.txt") for name in ("seen", "beside", "after"))
    assert found == ("1\ndeep\n", "1\n", "2\n")
    assert place.named("work") == place.later
    assert (users.head(), users("status", "--porcelain")) == (place.first, before)
    assert (users.path / "draft").read_text() == "the user is typing"
    assert place.settings() == settings, "no setting of the user's was changed"
    assert place.worktrees() == [] and orchard.saved_work() == []


async def test_the_configuration_says_it_for_plans_that_do_not(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHARD_WORKTREE_SUBMODULES", "true")
    row = "{id: a, work: 'ls sub > a.txt'}"

    with_them = await place.orchard.run(plan(row, more="target: one"))
    without = await place.orchard.run(plan(row, more="submodules: false\ntarget: two"))

    assert (with_them["plan"]["status"], without["plan"]["status"]) == ("succeeded", "succeeded")
    assert place.read("one:a.txt") == "deep\nlib.txt\n"
    assert place.read("two:a.txt") == ""


async def test_a_warm_worktree_never_shows_the_submodule_of_an_earlier_job(place: Place) -> None:
    """Also where a plan's own setup has put it there."""
    rows = ["{id: a, work: 'echo > a.txt'}", "{id: b, needs: [a], work: 'ls sub > b.txt; echo $PWD > where.txt'}"]
    setup = "case $ORCHARD_JOB in a) git -c submodule.active=. submodule update;; esac"

    status = await place.orchard.run(plan(*rows, more=f"setup: '{setup}'"))

    assert status["plan"]["status"] == "succeeded"
    assert place.read("work:b.txt") == ""


async def test_a_commit_that_was_not_pushed_is_refused_and_kept(place: Place) -> None:
    status = await place.orchard.run(plan(f"{{id: a, work: 'cd sub; {OWN}'}}"))

    failed = job(status, "a")
    assert failed["status"] == "failed" and "which no remote of it has" in failed["error"], failed
    assert "Push it" in failed["hint"]
    (kept,) = place.worktrees()
    own = Repo(kept / "sub").head()
    assert own != place.first

    Repo(kept / "sub")("push", "-q", "origin", "HEAD:refs/heads/topic")
    again = await place.orchard.ask("retry_plan", jobs=["a"], from_phase="commit")

    assert again["plan"]["status"] == "succeeded", again
    assert place.named("work") == own


async def test_edits_inside_a_submodule_are_refused_and_kept(place: Place) -> None:
    status = await place.orchard.run(plan("{id: a, work: 'echo edit > sub/lib.txt; echo > a.txt'}"))

    assert "has changes" in job(status, "a")["error"]
    (kept,) = place.worktrees()
    await place.orchard.ask("cancel_plan")
    assert (kept / "sub/lib.txt").read_text() == "edit\n"


async def test_submodules_that_cannot_be_had_are_a_failed_setup_with_a_hint(place: Place, tmp_path: Path) -> None:
    place.library.path.rename(tmp_path / "gone")

    status = await place.orchard.run(plan("{id: a, work: 'echo > a.txt'}"))

    failed = job(status, "a")
    assert failed["status"] == "failed"
    assert "submodules of the worktree could not be checked out" in failed["error"]
    assert ".gitmodules" in failed["hint"]

    (tmp_path / "gone").rename(place.library.path)
    again = await place.orchard.ask("retry_plan", jobs=["a"])
    assert again["plan"]["status"] == "succeeded"


# ------------------------------------------------------------------------------------------- subtasks


async def test_a_subtask_has_the_parents_submodules_and_what_it_moved_is_for_the_parent_to_move(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents, line, seen = ScriptedAgents(), Line(), dict[str, Any]()
    monkeypatch.setattr(opening, "Agents", lambda config, host: agents)

    async def parent(asker: Asker) -> str:
        spawned = await asker.spawn("Child")
        await asker.wait(spawned["id"])
        seen["first"] = await asker.pull(spawned["id"])
        Repo(asker.task.folder / "sub")("checkout", "-q", place.later)
        seen["second"] = await asker.pull(spawned["id"])
        return "Done."

    async def child(asker: Asker) -> str:
        sub = Repo(asker.task.folder / "sub")
        seen["child"] = sub.head()
        sub("checkout", "-q", place.later)
        asker.write(child="child")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    status = await run(place.orchard, line, plan("{id: a, work: '@one Parent'}"))

    assert status["plan"]["status"] == "succeeded", status
    assert seen["child"] == place.first
    (told,) = seen["first"]["conflicts"]
    assert told["path"] == "sub" and place.later in told["kind"]
    assert seen["second"]["status"] == "merged" and seen["second"]["files"] == ["child.txt"]
    assert place.named("work") == place.later
    assert place.read("work:child.txt") == "child"


@pytest.mark.parametrize(
    ("work", "more", "hinted"),
    [
        ("cat sub/lib.txt", "", True),
        ("echo lib.txt: No such file >&2; exit 1", "", True),
        ("echo 2 is not 3; exit 1", "", False),
        ("cat sub/lib.txt", "submodules: false", False),
    ],
)
async def test_a_job_that_fails_for_want_of_a_submodule_is_told_how_to_have_it(
    place: Place, work: str, more: str, hinted: bool
) -> None:
    status = await place.orchard.run(plan(f"{{id: a, heal: false, work: '{work}'}}", more=more))

    hint = job(status, "a")["hint"] or ""
    told = (
        "Submodule 'sub' is an empty folder in the job's worktree. 'submodules: true' in the plan has git check it out."
    )
    assert job(status, "a")["status"] == "failed" and (told in hint) is hinted, hint
