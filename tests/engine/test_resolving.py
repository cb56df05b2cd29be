"""Conflicts that a person resolves: in a worktree, whatever becomes of the engine meanwhile; nothing edited is lost."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from orchard.errors import UsageError
from orchard.model.events.plans import ConflictClosed, ConflictOpened, ConflictSettled, WorkSaved
from orchard.model.plan import VALIDATION, PlanId
from tests.engine.conftest import LONGEST, Json, Orchard, job, statuses
from tests.nursery import command

pytestmark = pytest.mark.anyio

MERGED = "1\n2\n3\n4\none and two\n6\n7\n8\n9\n"
TWO = """
    name: Conflict
    resolver: {resolver}
    max_parallel: 1
    jobs:
      - {{id: a, work: "sed -i s/5/one/ shared.txt"}}
      - {{id: b, work: "sed -i s/5/two/ shared.txt"}}
"""


async def step(orchard: Orchard, name: str, what: str = "open") -> Json:
    """Ask an engine of its own, as each command does; the answer."""
    app = orchard.app
    plan = app.find_plan(None)
    async with asyncio.timeout(LONGEST), app.session() as session:
        answer: Json = await session.request("resolve_conflict", plan=plan, job=name, step=what)
        if what == "continue":
            async for _ in session.follow(PlanId(plan)):
                pass
    return answer


def failed(status: Json) -> str:
    found: str = next(one["id"] for one in status["jobs"] if one["status"] == "failed")
    return found


@pytest.mark.parametrize("resolver", ["fail", "agent"])
async def test_a_conflict_of_two_leaves_is_resolved_in_a_worktree_and_the_plan_goes_on(
    orchard: Orchard, resolver: str
) -> None:
    loser = failed(await orchard.run(TWO.format(resolver=resolver)))

    opened = await step(orchard, loser)
    folder = Path(opened["folder"])
    marked = (folder / "shared.txt").read_text()
    assert "<<<<<<< job 'a'\none\n=======\ntwo\n>>>>>>> job 'b'\n" in marked
    assert [one["path"] for one in opened["files"]] == ["shared.txt"]
    assert orchard.repo("-C", str(folder), "diff", "--name-only", "--diff-filter=U").split() == ["shared.txt"]
    (folder / "shared.txt").write_text(MERGED)
    await step(orchard, loser, "continue")

    status = orchard.status()
    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["shared.txt"] == MERGED
    (settled,) = orchard.events(ConflictSettled)
    assert (settled.by, settled.paths, settled.job) == ("hand", ("shared.txt",), loser)
    assert [one["by"] for one in status["plan"]["resolutions"]] == ["hand"]
    assert not folder.exists() and len(orchard.events(ConflictClosed)) == 1
    assert orchard.repo("status", "--porcelain") == ""


async def test_two_needs_that_conflict_are_resolved_one_after_the_other_before_the_work_begins(
    orchard: Orchard,
) -> None:
    plan = """
        name: Three
        resolver: fail
        jobs:
          - {id: a, work: "sed -i s/5/one/ shared.txt"}
          - {id: b, work: "sed -i s/5/two/ shared.txt"}
          - {id: c, work: "sed -i s/5/three/ shared.txt"}
          - {id: d, needs: [a, b, c], work: "cp shared.txt copy.txt"}
    """
    status = await orchard.run(plan)
    assert failed(status) == "d"
    assert "Job 'a' and job 'b', which job 'd' needs, conflict" in job(status, "d")["error"]

    for number, content in enumerate(["1\n2\n3\n4\none two\n6\n7\n8\n9\n", "1\n2\n3\n4\nall\n6\n7\n8\n9\n"]):
        orchard.repo("gc", "--prune=now", "-q")  # days may pass
        opened = await step(orchard, "d")
        assert (number == 1) == ("one two" in (Path(opened["folder"]) / "shared.txt").read_text())
        (Path(opened["folder"]) / "shared.txt").write_text(content)
        await step(orchard, "d", "continue")

    assert orchard.status()["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["copy.txt"] == "1\n2\n3\n4\nall\n6\n7\n8\n9\n"
    assert [one.by for one in orchard.events(ConflictSettled)] == ["hand", "hand"]


async def test_a_conflict_with_a_target_that_moved_is_resolved_for_the_validation_job(orchard: Orchard) -> None:
    top = orchard.repo.path
    plan = f"""
        name: Moved
        resolver: fail
        jobs: [{{id: a, work: "sed -i s/5/one/ shared.txt"}}]
        verify: "git -C {top} log work | grep mine || (cd {top}; sed -i s/5/mine/ shared.txt; git commit -qam mine)"
    """
    status = await orchard.run(plan)

    assert failed(status) == VALIDATION
    assert status["plan"]["next"][0]["operation"] == "resolve_conflict"
    assert "orchard resolve --plan" in job(status, VALIDATION)["hint"]
    opened = await step(orchard, "verify")
    folder = Path(opened["folder"])
    assert (
        "the target branch 'work'" in opened["ours"]
        and "<<<<<<< the target branch" in (folder / "shared.txt").read_text()
    )
    (folder / "shared.txt").write_text(MERGED)
    await step(orchard, "verify", "continue")

    assert orchard.status()["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["shared.txt"] == MERGED


async def test_what_is_not_resolved_is_refused_and_named(orchard: Orchard) -> None:
    plan = """
        name: Kinds
        resolver: fail
        max_parallel: 1
        jobs:
          - {id: a, work: "sed -i s/5/one/ shared.txt; rm README.md; printf 'x\\\\0one' > bin"}
          - {id: b, work: "sed -i s/5/two/ shared.txt; echo more >> README.md; printf 'x\\\\0two' > bin"}
    """
    loser = failed(await orchard.run(plan))
    folder = Path((await step(orchard, loser))["folder"])

    with pytest.raises(UsageError) as refused:
        await step(orchard, loser, "continue")
    assert "shared.txt has conflict markers (line 5)" in refused.value.message
    assert "README.md is as the merge left it" in refused.value.message
    assert "bin is as the merge left it" in refused.value.message
    assert orchard.events(ConflictSettled) == [] and orchard.events(WorkSaved) == []

    (folder / "shared.txt").write_text(MERGED)
    (folder / "README.md").unlink()
    with pytest.raises(UsageError) as refused:
        await step(orchard, loser, "continue")
    assert "shared.txt" not in refused.value.message and "README.md" not in refused.value.message

    orchard.repo("-C", str(folder), "checkout", "--theirs", "bin")
    (folder / "beside.txt").write_text("the merge needs this too\n")
    answer = await step(orchard, loser, "continue")

    assert answer["beside"] == ["beside.txt"]
    files = orchard.repo.files("work")
    assert files["shared.txt"] == MERGED and "README.md" not in files and files["beside.txt"]
    assert orchard.repo("cat-file", "blob", "work:bin").endswith("two")


async def test_a_file_without_markers_is_kept_as_it_is_with_git_add(orchard: Orchard) -> None:
    plan = """
        name: Kinds
        resolver: fail
        max_parallel: 1
        jobs:
          - {id: a, work: "printf 'x\\\\0one' > bin"}
          - {id: b, work: "printf 'x\\\\0two' > bin"}
    """
    loser = failed(await orchard.run(plan))
    folder = Path((await step(orchard, loser))["folder"])
    orchard.repo("-C", str(folder), "add", "bin")
    again = await step(orchard, loser)
    assert Path(again["folder"]) == folder and [one["done"] for one in again["files"]] == [True]
    await step(orchard, loser, "continue")

    assert orchard.status()["plan"]["status"] == "succeeded"
    assert orchard.repo("cat-file", "blob", "work:bin").endswith("one")


async def test_giving_up_saves_what_was_edited_and_leaves_the_conflict(orchard: Orchard) -> None:
    loser = failed(await orchard.run(TWO.format(resolver="fail")))
    folder = Path((await step(orchard, loser))["folder"])
    (folder / "shared.txt").write_text("half done\n")

    answer = await step(orchard, loser, "abort")

    assert answer["folder"] is None and answer["saved"] and not folder.exists()
    assert orchard.repo.files(answer["edited"])["shared.txt"] == "half done\n" and answer["edited"] in answer["saved"]
    assert statuses(orchard.status())[loser] == "failed"
    with pytest.raises(UsageError, match="no worktree for its conflict"):
        await step(orchard, loser, "continue")
    with pytest.raises(UsageError, match="no conflict that you are resolving"):
        await step(orchard, loser, "abort")
    assert "<<<<<<<" in (Path((await step(orchard, loser))["folder"]) / "shared.txt").read_text()


async def test_deleting_the_plan_saves_what_was_edited_and_says_so(orchard: Orchard) -> None:
    loser = failed(await orchard.run(TWO.format(resolver="fail")))
    folder = Path((await step(orchard, loser))["folder"])
    (folder / "shared.txt").write_text("half done\n")

    plan = orchard.status()["plan"]["id"]
    async with orchard.app.session() as session:
        await session.request("delete_plan", plan=plan)

    assert not folder.exists()
    assert any(
        orchard.repo.files(ref).get("shared.txt") == "half done\n" for ref in orchard.repo.refs("refs/orchard/wip")
    )
    async with orchard.app.session() as session:
        with pytest.raises(UsageError, match="was deleted; what was edited"):
            await session.request("resolve_conflict", plan=plan, job=loser, step="continue")


async def test_a_plan_that_was_canceled_meanwhile_goes_on_with_the_resolution(orchard: Orchard) -> None:
    more = "      - {id: c, needs: [a, b], work: 'true'}\n      - {id: e, needs: [c], work: 'true'}\n"
    loser = failed(await orchard.run(TWO.format(resolver="fail") + more))
    assert loser == "c"
    folder = Path((await step(orchard, loser))["folder"])
    (folder / "shared.txt").write_text(MERGED)
    plan = orchard.status()["plan"]["id"]
    async with orchard.app.session() as session:
        await session.request("cancel_plan", plan=plan)
    assert folder.exists()

    await step(orchard, loser, "continue")

    assert orchard.status()["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["shared.txt"] == MERGED


async def test_another_plan_of_the_repository_is_not_asked_about_the_same_conflict_again(orchard: Orchard) -> None:
    loser = failed(await orchard.run(TWO.format(resolver="agent") + "    base: main\n    target: one\n"))
    folder = Path((await step(orchard, loser))["folder"])
    (folder / "shared.txt").write_text(MERGED)
    await step(orchard, loser, "continue")

    status = await orchard.run(TWO.format(resolver="agent") + "    base: main\n    target: two\n")

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("two")["shared.txt"] == MERGED


async def test_a_job_without_a_conflict_has_nothing_to_resolve(orchard: Orchard) -> None:
    await orchard.run("name: x\njobs: [{id: a, work: 'exit 3'}, {id: b, work: 'echo > x'}]\n")

    with pytest.raises(UsageError, match="did not fail with a conflict"):
        await step(orchard, "a")
    with pytest.raises(UsageError, match="only the conflict of a failed job"):
        await step(orchard, "b")


async def test_files_with_hostile_names_are_resolved_like_others(orchard: Orchard) -> None:
    names = ["-rf \x1b[31m\nq", "--", ":(top)x"]
    works = {one: "; ".join(f"printf %s {one} > './{name}'" for name in names) for one in ("one", "two")}
    jobs = [{"id": "a", "work": works["one"]}, {"id": "b", "work": works["two"]}]
    asked = {"name": "hostile", "resolver": "fail", "max_parallel": 1, "jobs": jobs}

    loser = failed(await orchard.run(json.dumps(asked)))
    opened = await step(orchard, loser)
    assert all("\x1b" not in one["path"] and "\n" not in one["path"] for one in opened["files"])
    for name in names:
        (Path(opened["folder"]) / name).write_text("both\n")
    await step(orchard, loser, "continue")

    files = orchard.repo.files("work")
    assert {name for name, content in files.items() if content == "both\n"} >= {"--", ":(top)x"}
    assert len(orchard.events(ConflictOpened)) == 1


PLACES = [
    ("open", "worktree.after-take"),
    ("open", "conflict.before-unmerge"),
    ("open", "request.after-durable"),
    ("--continue", "wip.after-save"),
    ("--continue", "conflict.saved"),
    ("--continue", "conflict.remembered"),
    ("--continue", "worktree.before-release"),
    ("--abort", "worktree.before-release"),
]


@pytest.mark.parametrize(("which", "place"), PLACES)
async def test_an_engine_that_dies_while_a_conflict_is_resolved_loses_nothing(
    orchard: Orchard, which: str, place: str
) -> None:
    work = "printf 'x\\\\0{}' > bin; sed -i s/5/{}/ shared.txt"
    jobs = [{"id": one, "work": work.format(one, one)} for one in ("one", "two")]
    loser = failed(await orchard.run(json.dumps({"name": "Dies", "resolver": "fail", "max_parallel": 1, "jobs": jobs})))

    def cli(*words: str, dies: str = "") -> int:
        env = {**os.environ, "ORCHARD_FAILPOINT": f"{dies}:1:kill" if dies else ""}
        return command("resolve", loser, *words, cwd=orchard.repo.path, env=env).returncode

    if which == "open":
        assert cli(dies=place) < 0
    assert cli() == 0
    assert cli("--continue") == 2, "nothing is decided yet, the file without markers either"
    folder = Path(job(orchard.status(), loser)["conflict"])
    (folder / "shared.txt").write_text(MERGED)
    orchard.repo("-C", str(folder), "checkout", "--theirs", "bin")
    if which != "open":
        assert cli(which, dies=place) < 0
    status = orchard.status()
    if which == "--abort" or status["plan"]["status"] == "failed":
        assert folder.exists() or any(orchard.repo.files(one.ref).get("shared.txt") == MERGED for one in saved(orchard))
    if status["plan"]["status"] != "failed":
        status = await orchard.ask("resume_plan")
    elif which == "--abort":
        assert cli("--abort") in (0, 2) and job(orchard.status(), loser)["conflict"] is None
        return
    else:
        assert cli("--continue") == 0

    assert orchard.status()["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["shared.txt"] == MERGED
    assert [one.by for one in orchard.events(ConflictSettled)] == ["hand"]


def saved(orchard: Orchard) -> list[WorkSaved]:
    return orchard.events(WorkSaved)
