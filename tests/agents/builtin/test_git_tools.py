"""Git for the model: in real repositories, and in repositories that somebody has laid traps in."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.builtin.tool import LONGEST_ANSWER, ToolError
from orchard.agents.builtin.tools import git as git_module
from orchard.agents.builtin.tools.git import ask, find_checkout
from orchard.git.command import start_git
from orchard.git.repository import LOCK_REASON
from orchard.model.limits import Limits
from orchard.process.families.family import members
from orchard.process.program import run_program
from orchard.testing import Repo
from tests.agents.builtin.kit import Box, make_context, open_box
from tests.process.zoo import nap, survivors, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "repo", files={"a.txt": "one\n", "src/b.txt": "b\n"})


@pytest.fixture
async def box(repo: Repo) -> AsyncIterator[Box]:
    async with open_box(repo.path) as opened:
        yield opened


async def test_a_change_is_seen_staged_committed_and_logged(box: Box, repo: Repo) -> None:
    repo.write({"a.txt": "two\n", "new.txt": "new\n"})

    status = await box.use("git_status")
    diff = await box.use("git_diff")
    added = await box.use("git_add", paths=["a.txt", "new.txt"])
    staged = await box.use("git_diff", staged=True, stat=True)
    committed = await box.use("git_commit", message="Two\n\n# not a comment")
    log = await box.use("git_log", count=1)
    clean = await box.use("git_diff")

    assert status.text.splitlines() == ["## main", " M a.txt", "?? new.txt"]
    assert "-one\n+two" in diff.text
    assert "new.txt" not in diff.text
    assert added.text.split() == ["M", "a.txt", "A", "new.txt"]
    assert "2 files changed" in staged.text
    assert "Two" in committed.text
    assert "2 files changed" in committed.text
    assert "Ada Tester" in log.text
    assert "    Two" in log.text
    assert clean.text == "No difference."
    assert repo("log", "-1", "--format=%B") == "Two\n\n# not a comment\n\n"
    assert repo.files()["new.txt"] == "new\n"


async def test_a_difference_can_be_asked_for_by_revision_and_path(box: Box, repo: Repo) -> None:
    first = repo.head()
    repo.commit({"a.txt": "two\n", "src/b.txt": "c\n"})

    both = await box.use("git_diff", revision=f"{first}..HEAD")
    one = await box.use("git_diff", revision="HEAD~1", path="src")
    unknown = await box.use("git_diff", revision="no-such-branch")

    assert "a/a.txt" in both.text
    assert "a/src/b.txt" in both.text
    assert "a/a.txt" not in one.text
    assert unknown.failed
    assert "no-such-branch" in unknown.text


@pytest.mark.parametrize("revision", ["--output=stolen", "-O/etc/passwd", "HEAD --output=x", "a:b", "x\0y", ":/x"])
async def test_a_revision_is_never_an_option(revision: str, box: Box, repo: Repo) -> None:
    for name in ("git_diff", "git_log"):
        answer = await box.use(name, revision=revision)
        assert answer.failed
        assert "not a revision" in answer.text
    assert not (repo.path / "stolen").exists()


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/passwd", "src/../../outside.txt", "a\0b"])
async def test_paths_outside_of_the_work_folder_are_refused(path: str, box: Box, repo: Repo) -> None:
    (repo.path.parent / "outside.txt").write_text("secret")

    answers = [
        await box.use("git_add", paths=[path]),
        await box.use("git_diff", path=path),
        await box.use("git_log", path=path),
    ]

    assert all(answer.failed for answer in answers)
    assert repo("status", "--porcelain") == ""


async def test_files_behind_a_link_are_not_staged(box: Box, repo: Repo) -> None:
    outside = repo.path.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (repo.path / "link").symlink_to(outside)

    answer = await box.use("git_add", paths=["link/secret.txt"])

    assert answer.failed
    assert repo("ls-files", "--cached").split() == ["a.txt", "src/b.txt"]


async def test_a_work_folder_below_the_top_is_all_there_is(repo: Repo) -> None:
    repo.write({"a.txt": "two\n", "src/b.txt": "c\n"})

    async with open_box(repo.path / "src") as box:
        up = await box.use("git_add", paths=["../a.txt"])
        here = await box.use("git_add", paths=["."])

    assert up.failed
    assert here.text.split() == ["M", "src/b.txt"]


async def test_names_are_taken_as_they_are_and_not_as_patterns(box: Box, repo: Repo) -> None:
    repo.write({"*": "star\n", "other.txt": "x\n", ":(top)": "odd\n"})

    answer = await box.use("git_add", paths=["*", ":(top)"])

    assert not answer.failed
    assert repo("diff", "--cached", "--name-only").split() == ["*", ":(top)"]


async def test_nothing_to_commit_is_an_error_in_words(box: Box) -> None:
    nothing = await box.use("git_commit", message="nothing")
    empty = await box.use("git_commit", message="  ")

    assert nothing.failed
    assert "nothing to commit" in nothing.text
    assert empty.failed


async def test_a_commit_without_an_identity_gets_a_neutral_one(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    for key in ("user.name", "user.email"):
        repo("config", "--unset", key)
    repo.write({"a.txt": "x"})

    async with open_box(repo.path) as box:
        await box.use("git_add", paths=["."])
        committed = await box.use("git_commit", message="x")

    assert not committed.failed
    assert repo("log", "-1", "--format=%an %cn").split() == ["Orchard", "Orchard"]


async def test_branches_are_listed_made_and_switched_to(box: Box, repo: Repo) -> None:
    made = await box.use("git_branch", action="create", name="feature/x")
    again = await box.use("git_branch", action="create", name="feature/x")
    switched = await box.use("git_branch", action="switch", name="feature/x")
    listed = await box.use("git_branch")
    bad = [await box.use("git_branch", action="create", name=name) for name in ("", "-d", "a..b", "@{-1}")]
    missing = await box.use("git_branch", action="switch", name="nowhere")

    assert not made.failed
    assert again.failed
    assert not switched.failed
    assert "* feature/x" in listed.text
    assert "  main" in listed.text
    assert all(answer.failed for answer in bad)
    assert missing.failed
    assert repo("symbolic-ref", "HEAD").strip() == "refs/heads/feature/x"


async def test_in_a_folder_of_the_orchestrators_no_branch_is_made_or_moved(repo: Repo, tmp_path: Path) -> None:
    repo("branch", "theirs")
    place = tmp_path / "worktree"
    repo("worktree", "add", "-q", "--detach", "--lock", "--reason", LOCK_REASON, str(place))

    async with open_box(place) as box:
        made = await box.use("git_branch", action="create", name="mine")
        switched = await box.use("git_branch", action="switch", name="theirs")
        (place / "a.txt").write_text("two\n")
        await box.use("git_add", paths=["a.txt"])
        committed = await box.use("git_commit", message="in the worktree")

    assert made.failed
    assert switched.failed
    assert "orchestrator" in switched.text
    assert not committed.failed
    assert repo("branch", "--format=%(refname:short)").split() == ["main", "theirs"]
    assert repo("log", "-1", "--format=%s", "main").strip() == "first"


async def test_without_a_repository_every_tool_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    calls: dict[str, dict[str, object]] = {
        "git_status": {}, "git_diff": {}, "git_log": {}, "git_add": {"paths": ["."]}, "git_commit": {"message": "x"},
        "git_branch": {},
    }  # fmt: skip

    async with open_box(folder) as box:
        answers = [await box.use(name, **arguments) for name, arguments in calls.items()]

    assert all(answer.failed for answer in answers)
    assert all("is not in a git repository" in answer.text for answer in answers)


async def test_a_huge_difference_is_cut(box: Box, repo: Repo) -> None:
    repo.write({"a.txt": "".join(f"line {number}\n" for number in range(200_000))})

    answer = await box.use("git_diff")

    assert len(answer.text) <= LONGEST_ANSWER
    assert "there is more" in answer.text
    assert not (repo.path / ".git" / "index.lock").exists()


# ---------------------------------------------------------------------------------------- traps


def alarm(folder: Path, name: str) -> str:
    """A program that leaves a mark when it runs."""
    script = folder / f"{name}.sh"
    script.write_text(f'#!/bin/sh\ntouch "{folder}/{name}.ran"\ncat\n')
    script.chmod(0o755)
    return str(script)


async def test_no_program_that_the_repository_names_is_run(repo: Repo, tmp_path: Path) -> None:
    traps = tmp_path / "traps"
    traps.mkdir()
    async with open_box(repo.path) as box:
        # The model lays the traps, after the toolbox was opened.
        hooks = repo.path / ".git" / "hooks"
        hooks.mkdir(exist_ok=True)
        for hook in (
            "pre-commit",
            "prepare-commit-msg",
            "commit-msg",
            "post-commit",
            "post-checkout",
            "post-index-change",
        ):
            shutil.copy(alarm(traps, hook), hooks / hook)
        for key, name in {
            "core.fsmonitor": "fsmonitor", "diff.external": "external", "diff.trap.textconv": "textconv",
            "diff.trap.command": "command", "filter.trap.clean": "clean", "filter.trap.smudge": "smudge",
            "core.editor": "editor", "core.pager": "pager", "gpg.program": "gpg", "core.sshCommand": "ssh",
        }.items():  # fmt: skip
            repo("config", key, alarm(traps, name))
        repo("config", "commit.gpgSign", "true")
        repo.write({".gitattributes": "*.txt diff=trap\n*.bin filter=trap\n", "a.txt": "two\n"})
        answers = [
            await box.use("git_status"),
            await box.use("git_diff"),
            await box.use("git_add", paths=["a.txt", ".gitattributes"]),
            await box.use("git_diff", staged=True),
            await box.use("git_commit", message="x"),
            await box.use("git_log"),
            await box.use("git_branch", action="create", name="x"),
            await box.use("git_branch", action="switch", name="x"),
        ]
        repo.write({"a.bin": "x"})
        filtered = await box.use("git_add", paths=["a.bin"])
        listed = await box.use("list_files")

    assert [path.name for path in traps.iterdir() if path.suffix == ".ran"] == []
    assert [answer.text for answer in answers if answer.failed] == []
    assert filtered.failed
    assert "a.bin" in listed.text


async def test_a_git_file_that_is_replaced_meanwhile_points_nowhere_else(repo: Repo, tmp_path: Path) -> None:
    other = Repo.make(tmp_path / "other", files={"secret.txt": "secret\n"})
    place = tmp_path / "worktree"
    repo("worktree", "add", "-q", "--detach", str(place))

    async with open_box(place) as box:
        (place / ".git").write_text(f"gitdir: {other.path}/.git\n")
        log = await box.use("git_log")
        (place / "a.txt").write_text("two\n")
        await box.use("git_add", paths=["a.txt"])
        await box.use("git_commit", message="mine")

    assert not log.failed
    assert other("log", "--format=%s").split() == ["first"]
    assert other("status", "--porcelain") == ""
    assert repo("log", "-1", "--format=%s", "--all", "--reflog").strip() == "mine"


async def test_a_work_tree_that_the_settings_name_is_not_used(box: Box, repo: Repo) -> None:
    outside = repo.path.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    repo("config", "core.worktree", str(outside))

    status = await box.use("git_status")
    listed = await box.use("list_files")

    assert "secret" not in status.text + listed.text


async def test_a_git_that_hangs_is_ended_with_the_turn(repo: Repo, tmp_path: Path) -> None:
    context = make_context(repo.path)
    checkout = find_checkout(repo.path)
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    git = checkout.git(context).with_config(alias__hang=f"!echo > {begun}; sleep 300")
    running = asyncio.ensure_future(ask(git, "hang"))
    await asyncio.wait_for(asyncio.to_thread(begun.read_text), 20)
    assert members(context.launcher.token) != []

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 30)

    assert members(context.launcher.token) == []


async def test_a_git_that_takes_too_long_is_stopped(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_module, "SECONDS", 0.5)
    context = make_context(repo.path)
    git = find_checkout(repo.path).git(context).with_config(alias__hang="!sleep 300")

    with pytest.raises(ToolError, match=r"took longer than 0\.5 s"):
        await asyncio.wait_for(ask(git, "hang"), 30)

    assert members(context.launcher.token) == []


async def test_a_git_that_never_ends_to_talk_is_stopped_when_it_has_said_enough(repo: Repo) -> None:
    context = make_context(repo.path)
    git = find_checkout(repo.path).git(context).with_config(alias__talk="!yes")

    told = await asyncio.wait_for(ask(git, "talk", most=100_000), 30)

    assert told.cut
    assert len(told.stdout) == 100_000
    assert members(context.launcher.token) == []


async def test_the_models_commands_stand_still_while_git_works(
    box: Box, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, number, start = list[str](), nap(), start_git

    def looks(*args: Any, **kwargs: Any) -> Any:
        (pid,) = survivors(number)
        seen.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        return start(*args, **kwargs)

    monkeypatch.setattr(git_module, "start_git", looks)
    argv = ("sh", "-c", f"while :; do : {number}; done")
    launch = box.context.launcher.apart().launch(argv, repo.path, {}, repo.path.parent / "log", Limits(grace=0.2))
    running = asyncio.ensure_future(run_program(launch))
    await until(lambda: bool(survivors(number)))

    told = await box.use("git_status")
    await box.use("list_files", glob="*.txt")

    assert not told.failed and set(seen) == {"T"} and len(seen) == 2
    running.cancel()
    await asyncio.wait({running})


async def test_what_git_saw_while_a_command_of_the_models_went_on_is_not_told(
    box: Box, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, start = nap(), start_git

    def wakes(*args: Any, **kwargs: Any) -> Any:
        os.kill(survivors(number)[0], signal.SIGCONT)
        return start(*args, **kwargs)

    monkeypatch.setattr(git_module, "start_git", wakes)
    argv = ("sh", "-c", f"while :; do : {number}; done")
    launch = box.context.launcher.apart().launch(argv, repo.path, {}, repo.path.parent / "log", Limits(grace=0.2))
    running = asyncio.ensure_future(run_program(launch))
    await until(lambda: bool(survivors(number)))

    told = await box.use("git_status")

    assert told.failed and "while they were held still" in told.text
    running.cancel()
    await asyncio.wait({running})
