"""Plans that land by a pull request: what is where afterwards, and what is left where it cannot be opened."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchard.errors import NeedsPerson, UsageError
from orchard.model.events.plans import PullRequestAsked, PullRequestIntended, PullRequestOpened
from orchard.process.failpoint import known
from orchard.surfaces.mcp.tools.plans import plan_row
from orchard.testing import Repo
from tests.engine.conftest import Orchard
from tests.forge.scripted import TOKEN, Forge
from tests.nursery import command

pytestmark = pytest.mark.anyio

PLAN = "name: Add login\nland: {land}\n{more}\njobs: [{{id: a, work: 'echo a > a.txt'}}]\n"
Json = dict[str, Any]


def plan(land: str = "pr", more: str = "") -> str:
    return PLAN.format(land=land, more=more)


@pytest.fixture
def orchard(tmp_path: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> Orchard:
    """A clone of what is on the forge, on its default branch, and a user who has a token."""
    repo = Repo.make(tmp_path / "repo", files={"README.md": "# small\n"})
    repo("remote", "add", "origin", forge.address())
    repo("push", "-q", "origin", "main")
    monkeypatch.setenv("GITHUB_SERVER_URL", forge.url)
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    return Orchard(repo)


def without_tools(place: Path) -> Path:
    """A folder of programs, without those of the forges."""
    place.mkdir()
    for folder in os.environ["PATH"].split(":"):
        for program in Path(folder).glob("*"):
            if program.name not in ("gh", "glab") and not (place / program.name).is_symlink():
                (place / program.name).symlink_to(program)
    return place


def heads(repo: Repo) -> str:
    return repo("for-each-ref", "refs/heads", "--format=%(refname) %(objectname)")


async def test_a_result_becomes_a_pull_request_and_nothing_of_the_user_moves(orchard: Orchard, forge: Forge) -> None:
    before = heads(orchard.repo)

    done = (await orchard.run(plan(more="description: Adds a page")))["plan"]

    made = done["pull_request"]
    assert (done["status"], done["landed"], done["target"]["branch"]) == ("succeeded", False, "main")
    assert made["url"] == f"{forge.url}/acme/demo/pull/1", "the forge does not say which page is shown"
    assert made["branch"] == f"orchard/{done['id']}" and made["target"] == "main"
    assert forge.tip(made["branch"]) == made["commit"] == done["result"]["commit"]
    assert forge.requests[1]["title"] == "Add login" and forge.requests[1]["base"] == "main"
    body = forge.requests[1]["body"]
    assert "`Adds a page`" in body and "**Succeeded**" in body and "1 done." in body and "| `a` | ✅" in body
    assert "Nothing landed" not in body and f"`{made['branch']}`" in body
    assert heads(orchard.repo) == before
    assert not (orchard.repo.path / "a.txt").exists()


async def test_asked_again_the_same_request_is_updated(orchard: Orchard, forge: Forge) -> None:
    await orchard.run(plan())

    again = await orchard.ask("propose_plan")

    assert (
        plan_row(orchard.app.status(again["plan"]["id"]).plan)["pull_request"] == again["plan"]["pull_request"]["url"]
    )
    assert list(forge.requests) == [1]
    assert [one.created for one in orchard.events(PullRequestOpened)] == [True, False]
    assert again["plan"]["pull_request"]["number"] == 1


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("no token", "There is no token for GitHub"),
        ("no remote", "There is no remote 'origin'"),
        ("another host", "which Orchard does not know as a forge of yours"),
        ("push", "could not be pushed"),
        ("401", "does not accept the token in GH_TOKEN"),
        ("500", "answered 500"),
    ],
)
async def test_where_it_cannot_be_opened_the_plan_waits_and_can_be_asked_again(
    orchard: Orchard, forge: Forge, monkeypatch: pytest.MonkeyPatch, trouble: str, said: str
) -> None:
    if trouble == "no token":
        monkeypatch.delenv("GH_TOKEN")
        monkeypatch.setenv("PATH", str(without_tools(forge.folder.parent / "bin")))
    elif trouble == "no remote":
        orchard.repo("remote", "rename", "origin", "other")
    elif trouble == "another host":
        monkeypatch.delenv("GITHUB_SERVER_URL")
    elif trouble == "push":
        forge.refuses_push = True
    else:
        forge.answers.append((int(trouble), b"{}"))

    waits = await orchard.run(plan())

    assert waits["plan"]["status"] == "waiting" and said in waits["plan"]["error"], waits["plan"]["error"]
    assert waits["plan"]["hint"] == f"orchard pr {waits['plan']['id']}"
    assert waits["plan"]["waiting"][0]["kind"] == "pr"
    assert not forge.requests
    assert forge.tip(f"orchard/{waits['plan']['id']}") is None, "it was known before the push that this cannot work"
    assert f"here instead: orchard land {waits['plan']['id']})" in waits["plan"]["error"]

    monkeypatch.undo()
    monkeypatch.setenv("GITHUB_SERVER_URL", forge.url)
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    forge.refuses_push = False
    if trouble == "no remote":
        orchard.repo("remote", "rename", "other", "origin")
    done = await orchard.ask("propose_plan")

    assert done["plan"]["status"] == "succeeded" and list(forge.requests) == [1]


async def test_a_plan_without_a_forge_lands_here_where_a_person_asks_for_that(orchard: Orchard, forge: Forge) -> None:
    orchard.repo("remote", "remove", "origin")
    waits = await orchard.run(plan())
    assert waits["plan"]["status"] == "waiting"

    done = await orchard.ask("land_plan")

    assert done["plan"]["status"] == "succeeded" and done["plan"]["landed"]
    assert not forge.requests


@pytest.mark.parametrize("title", ["gh", "token"])
async def test_who_would_open_the_request_is_looked_for_before_jobs_run_and_before_a_push(
    orchard: Orchard, forge: Forge, monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    monkeypatch.delenv("GH_TOKEN")
    bin_folder = without_tools(forge.folder.parent / "bin")
    if title == "gh":  # it is there, and nobody has logged in with it
        (bin_folder / "gh").write_text("#!/bin/sh\necho 'please run: gh auth login' >&2\nexit 4\n")
        (bin_folder / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_folder))

    async with orchard.app.session(work=False) as session:
        told = await session.request("create_plan", plan=orchard.app.parse_plan(None, plan().encode()))
    waits = (await orchard.run(plan()))["plan"]

    (note,) = [one for one in told["notes"] if one.startswith("As things are, no pull request can be opened")]
    assert "gh auth login" in note
    assert waits["error"].startswith("No pull request was opened. ") and "gh auth login" in waits["error"]
    assert forge.tip(f"orchard/{waits['id']}") is None and not orchard.events(PullRequestIntended)


async def test_a_request_that_fails_after_the_push_says_which_branch_is_where(orchard: Orchard, forge: Forge) -> None:
    forge.answers += [(200, b"[]"), (200, b"[]"), (500, b"{}")]

    waits = (await orchard.run(plan()))["plan"]

    branch = f"orchard/{waits['id']}"
    assert forge.tip(branch) is not None
    assert f"pushed to the branch '{branch}' of the remote 'origin', but no pull request was opened" in waits["error"]
    assert "answered 500" in waits["error"]


async def test_a_plan_that_waits_to_land_can_be_proposed_instead(orchard: Orchard, forge: Forge) -> None:
    before = heads(orchard.repo)
    await orchard.run(plan("ask", "target: main"))

    done = (await orchard.ask("propose_plan", draft=True))["plan"]

    assert (done["status"], done["landed"], done["pull_request"]["target"]) == ("succeeded", False, "main")
    assert forge.requests[1]["draft"] is True
    assert heads(orchard.repo) == before
    assert orchard.events(PullRequestAsked) == [PullRequestAsked(draft=True)]


async def test_a_result_on_a_branch_of_its_own_can_be_proposed(orchard: Orchard, forge: Forge) -> None:
    left = (await orchard.run(plan("never")))["plan"]
    done = (await orchard.ask("propose_plan"))["plan"]

    assert done["pull_request"]["branch"] == left["result"]["branch"] == "orchard/add-login"
    assert forge.tip("orchard/add-login") == left["result"]["commit"]


async def test_a_landing_on_a_branch_of_its_own_can_be_proposed(orchard: Orchard, forge: Forge) -> None:
    landed = (await orchard.run(plan("auto")))["plan"]
    done = (await orchard.ask("propose_plan"))["plan"]

    assert landed["landed"] and done["landed"]
    assert (done["pull_request"]["branch"], done["pull_request"]["target"]) == (landed["target"]["branch"], "main")
    assert forge.tip(landed["target"]["branch"]) == landed["result"]["commit"]


async def test_what_cannot_be_proposed_is_refused_and_nothing_is_sent(orchard: Orchard, forge: Forge) -> None:
    sent = len(forge.asked)
    await orchard.run(plan("auto", "target: main"))
    with pytest.raises(UsageError, match="where it began: there is nothing to propose"):
        await orchard.ask("propose_plan")
    await orchard.run("name: Red\nland: pr\njobs: [{id: a, work: exit 1}]")
    with pytest.raises(UsageError, match="is failed, so it has no validated result"):
        await orchard.ask("propose_plan")
    await orchard.run("name: Nothing\nland: pr\njobs: [{id: a, work: 'true'}]")
    with pytest.raises(UsageError, match="has no result to propose"):
        await orchard.ask("propose_plan")

    assert len(forge.asked) == sent and not orchard.events(PullRequestIntended)


async def test_that_no_request_can_be_opened_is_said_before_any_job_runs(orchard: Orchard) -> None:
    app = orchard.app
    async with app.session(work=False) as session:
        fine = await session.request("create_plan", plan=app.parse_plan(None, plan().encode()))
        orchard.repo("remote", "rename", "origin", "other")
        told = await session.request("create_plan", plan=app.parse_plan(None, plan().encode()))

    assert not [one for one in fine["notes"] if "pull request" in one]
    assert [one for one in told["notes"] if one.startswith("As things are, no pull request can be opened")]


@pytest.mark.parametrize(
    ("more", "said"), [("target: nowhere", "does not exist here"), ("base: HEAD~0", "needs a branch")]
)
async def test_a_plan_without_a_branch_to_propose_for_is_refused_at_once(
    orchard: Orchard, more: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        await orchard.run(plan(more=more))
    assert orchard.app.plans() == []


# ------------------------------------------------------------------------------------- the target, others


async def test_a_target_that_moved_is_merged_and_our_branch_is_replaced(orchard: Orchard, forge: Forge) -> None:
    forge.answers += [(200, b"[]"), (200, b"[]"), (500, b"{}")]
    waits = (await orchard.run(plan()))["plan"]
    branch = f"orchard/{waits['id']}"
    first = forge.tip(branch)
    assert first is not None, "it was pushed before the request was opened"
    orchard.repo.commit({"other.txt": "mine"})
    orchard.repo("push", "-q", "origin", "main")

    done = (await orchard.ask("propose_plan"))["plan"]

    assert done["pull_request"]["commit"] == forge.tip(branch) != first
    assert orchard.repo("merge-base", "main", done["pull_request"]["commit"]).strip() == orchard.repo.head("main")


async def test_commits_that_others_added_to_our_branch_are_not_lost(orchard: Orchard, forge: Forge) -> None:
    done = (await orchard.run(plan()))["plan"]
    branch = done["pull_request"]["branch"]
    orchard.repo("checkout", "-q", "--detach", done["pull_request"]["commit"])
    theirs = orchard.repo.commit({"review.txt": "fixed"})
    orchard.repo("push", "-q", "origin", f"HEAD:refs/heads/{branch}")

    with pytest.raises(NeedsPerson, match="which Orchard did not push"):
        await orchard.ask("propose_plan")

    assert forge.tip(branch) == theirs


async def test_what_others_push_in_the_last_instant_is_not_lost_either(orchard: Orchard, forge: Forge) -> None:
    forge.answers.append((500, b"{}"))
    waits = (await orchard.run(plan()))["plan"]
    branch = f"refs/heads/orchard/{waits['id']}"
    theirs = orchard.repo.commit({"other.txt": "theirs"})
    orchard.repo("push", "-q", "origin", "main")
    place = Repo(forge.folder / "acme/demo.git")
    forge.meanwhile.append(lambda: place("update-ref", branch, theirs))

    again = (await orchard.ask("propose_plan"))["plan"]

    assert again["status"] == "waiting" and "stale info" in again["error"], again["error"]
    assert forge.tip(branch.removeprefix("refs/heads/")) == theirs


async def test_from_a_fork_the_request_goes_to_where_the_target_comes_from(orchard: Orchard, forge: Forge) -> None:
    forge.make("me/demo")
    orchard.repo("remote", "add", "fork", forge.address("me/demo"))
    orchard.repo("config", "remote.pushDefault", "fork")

    done = (await orchard.run(plan()))["plan"]["pull_request"]

    assert done["url"] == f"{forge.url}/acme/demo/pull/1"
    assert forge.requests[1]["head"] == f"me:{done['branch']}" and forge.requests[1]["_project"] == "acme/demo"
    assert forge.tip(done["branch"], "me/demo") == done["commit"] and forge.tip(done["branch"]) is None


async def test_a_branch_and_its_request_are_on_one_forge(orchard: Orchard, forge: Forge) -> None:
    orchard.repo("remote", "add", "fork", "git@github.com:me/demo.git")
    orchard.repo("config", "remote.pushDefault", "fork")

    waits = (await orchard.run(plan()))["plan"]

    assert f"go to github.com and the pull request to {forge.host}" in waits["error"] and not forge.asked


# ------------------------------------------------------------------------------------- strangers and secrets


async def test_a_repositorys_own_file_names_no_forge_before_it_is_trusted(
    orchard: Orchard, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_SERVER_URL")
    (orchard.repo.path / "orchard.toml").write_text(f'[forge]\ngithub = ["{forge.url}"]\n')

    waits = await orchard.run(plan())

    assert waits["plan"]["status"] == "waiting" and "does not know as a forge" in waits["plan"]["error"]
    assert not forge.asked, "the token was sent"


async def test_a_job_that_points_the_remote_elsewhere_gets_neither_code_nor_token(
    orchard: Orchard, forge: Forge, tmp_path: Path
) -> None:
    elsewhere = forge.make("evil/demo")
    work = f"git config -f '{orchard.repo.path}/.git/config' remote.origin.url {forge.address('evil/demo')}; echo a > a"

    waits = await orchard.run(f'name: Evil\nland: pr\njobs: [{{id: a, work: "{work}"}}]')

    assert "remote.origin.url changed" in waits["plan"]["error"], waits["plan"]["error"]
    assert not forge.asked and not Repo(elsewhere)("for-each-ref")


async def test_no_token_and_no_password_of_an_address_is_recorded_or_shown(
    orchard: Orchard, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchard.repo("remote", "set-url", "origin", forge.address().replace("http://", "http://me:hunter2secret@"))
    forge.answers.append((422, f'{{"message": "what is {TOKEN}?"}}'.encode()))
    waits = await orchard.run(plan(more=f"description: it is {TOKEN}\nenv: {{MY_TOKEN: tops3cretvalue}}"))
    done = await orchard.ask("propose_plan")
    assert (waits["plan"]["status"], done["plan"]["status"]) == ("waiting", "succeeded")

    journal = b"".join(path.read_bytes() for path in (orchard.repo.path / ".git/orchard").glob("journal*"))
    assert b"PullRequestOpened" in journal or b"pull/1" in journal
    for secret in ("hunter2secret", TOKEN):
        assert secret not in str(waits["plan"]["error"]) + str(done["plan"]["warnings"])
        assert secret not in str(forge.requests)
    assert b"hunter2secret" not in journal


# ------------------------------------------------------------------------------------- crashes


@pytest.mark.parametrize("where", [place for place in known() if place.startswith("pull-request.")])
async def test_an_engine_that_is_killed_meanwhile_leaves_one_request_in_the_end(
    orchard: Orchard, forge: Forge, tmp_path: Path, where: str
) -> None:
    (tmp_path / "plan.yaml").write_text(plan())
    env = {**os.environ, "ORCHARD_FAILPOINT": f"{where}:1:kill"}
    killed = command("run", str(tmp_path / "plan.yaml"), cwd=orchard.repo.path, env=env)
    assert killed.returncode < 0, killed.stderr
    assert len(forge.requests) == (where == "pull-request.after-open")

    done = (await orchard.ask("resume_plan"))["plan"]

    assert done["status"] == "succeeded" and list(forge.requests) == [1]
    assert forge.tip(done["pull_request"]["branch"]) == done["pull_request"]["commit"]


# ------------------------------------------------------------------------------------- the command line


def cli(orchard: Orchard, *args: str) -> subprocess.CompletedProcess[str]:
    return command(*args, cwd=orchard.repo.path, env=dict(os.environ))


def test_the_command_line_shows_the_request_and_says_how_to_go_on(
    orchard: Orchard, forge: Forge, tmp_path: Path
) -> None:
    (tmp_path / "plan.yaml").write_text(plan("auto"))
    forge.answers.append((401, b"{}"))
    waits = cli(orchard, "run", str(tmp_path / "plan.yaml"), "--land", "pr")
    assert waits.returncode == 4 and "next: orchard pr add-login-" in waits.stdout, waits.stdout

    done = cli(orchard, "pr")
    shown = cli(orchard, "status")
    undo = cli(orchard, "undo", orchard.status()["plan"]["id"], "--yes")

    line = f"pull request: {forge.url}/acme/demo/pull/1 (orchard/"
    assert done.returncode == 0 and line in done.stdout, done.stdout + done.stderr
    assert line in shown.stdout
    assert undo.returncode == 2 and "close" in undo.stderr and "/pull/1" in undo.stderr, undo.stderr
