"""Whole plans whose jobs leave git in odd states: nothing half-done lands, nothing is lost, nothing hangs."""

import asyncio
from pathlib import Path

import pytest

from orchard.app import open_app
from orchard.engine.server.session import Session
from orchard.model.plan import PlanId
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job, until

pytestmark = pytest.mark.anyio

CONFLICT = (
    "git checkout -q --detach; echo theirs > shared.txt; git commit -qam theirs; t=$(git rev-parse HEAD); "
    "git checkout -q HEAD~1; echo ours > shared.txt; git commit -qam ours; "
    "echo p > precious.txt; git add .; git commit -qm precious; git rev-parse HEAD > '{here}/sha'; "
)
IDENTITY = "git config user.name u; git config user.email u@x; "


def plan(orchard: Orchard, work: str, more: str = "") -> str:
    text = (IDENTITY + CONFLICT + work).format(here=orchard.repo.path / ".git").replace('"', '\\"')
    return f'name: P\ntarget: work\njobs: [{{id: a, work: "{text}", heal: false{more}}}]'


@pytest.mark.parametrize("work", ["git merge $t", "git rebase $t", "git cherry-pick $t", "git rebase -x false HEAD~2"])
async def test_work_that_ends_in_the_middle_of_something_lands_nothing_and_loses_nothing(
    orchard: Orchard, work: str
) -> None:
    before = orchard.repo.head("work")

    status = await orchard.run(plan(orchard, f"{work} || true"))

    failed = job(status, "a")
    assert failed["status"] == "failed" and "in the middle of a git" in failed["error"]
    assert orchard.repo.head("work") == before
    await orchard.ask("delete_plan")
    sha = (orchard.repo.path / ".git" / "sha").read_text().strip()
    orchard.repo("reflog", "expire", "--expire=now", "--all")
    orchard.repo("gc", "-q", "--prune=now")
    assert orchard.repo.files(sha)["precious.txt"] == "p\n"
    assert sha in {one["commit"] for one in orchard.saved_work()} or orchard.repo(
        "for-each-ref", f"--contains={sha}", "refs/orchard/wip"
    )


async def test_a_pipe_called_gitignore_fails_the_job_by_name_and_cancel_returns_at_once(orchard: Orchard) -> None:
    async with asyncio.timeout(30):
        status = await orchard.run("name: P\njobs: [{id: a, work: echo x > x.txt; mkfifo .gitignore, heal: false}]")
    assert job(status, "a")["status"] == "failed" and ".gitignore" in job(status, "a")["error"]

    here = orchard.repo.path / ".git"

    async def during(session: Session, plan_id: PlanId) -> None:
        await until((here / "in").exists)
        async with asyncio.timeout(20):
            await session.request("cancel_plan", plan=plan_id)

    work = f"echo x > x.txt; mkfifo .gitattributes; touch {here}/in; sleep 60"
    async with asyncio.timeout(40):
        canceled = await orchard.run(f"name: Q\njobs: [{{id: a, work: '{work}'}}]", during)

    assert canceled["plan"]["status"] == "canceled"
    assert any("x.txt" in orchard.repo.files(one["ref"]) for one in orchard.saved_work())


async def test_what_a_person_puts_into_a_worktree_that_no_job_has_is_saved(orchard: Orchard) -> None:
    app = open_app(orchard.repo.path, in_commands)
    here = orchard.repo.path / ".git"
    first = f"name: A\ntarget: work\njobs: [{{id: a, work: 'pwd > {here}/where; echo a > a.txt'}}]"
    second = f"name: B\ntarget: work\njobs: [{{id: b, work: 'pwd > {here}/then; echo b > b.txt'}}]"

    async with asyncio.timeout(60), app.session() as session:
        for text in (first, second):
            asked = app.parse_plan(None, text.encode())
            plan_id = PlanId((await session.request("create_plan", plan=asked))["plan"])
            async for _ in session.follow(plan_id):
                pass
            if text is first:
                await session.wait_idle()
                folder = Path((here / "where").read_text().strip())
                (folder / "precious.txt").write_text("written down\n")
                (folder / "README.md").write_text("edited\n")

    assert (here / "then").read_text() == (here / "where").read_text()
    assert "precious.txt" not in orchard.repo.files("work")
    found = [orchard.repo.files(one["ref"]) for one in orchard.saved_work()]
    assert any(files.get("precious.txt") == "written down\n" and files["README.md"] == "edited\n" for files in found)


async def test_names_that_git_ignores_fail_the_job_and_are_in_the_saved_work(orchard: Orchard) -> None:
    work = "echo x > x.txt; ln -s x.txt link; echo precious > git~1"
    status = await orchard.run(f"name: P\njobs: [{{id: a, work: '{work}', heal: false}}]")
    assert "git~1" in job(status, "a")["error"]

    await orchard.ask("delete_plan")

    [saved] = orchard.saved_work()
    assert orchard.repo.files(saved["ref"])[".orchard-saved/git%7E1"] == "precious\n"
    assert "precious.txt" not in Repo(orchard.repo.path).files("work")
