"""A landed branch is handed on to a remote, or the failure is told."""

from pathlib import Path

import pytest

from orchard.errors import OrchardError
from orchard.git.remote_branches import push, push_commit, remote_named
from orchard.git.repository import find_repository
from orchard.testing import Repo


def test_push_hands_the_branch_on_and_reports_failure(repo: Repo, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    repo("init", "-q", "--bare", str(remote))
    repo("remote", "add", "origin", str(remote))
    repository = find_repository(repo.path)

    sent = push(repository, "main", None)
    refused = push(repository, "main", "--upload-pack=touch /tmp/x")

    assert sent[0]
    assert Repo(remote).head("main") == repo.head()
    assert not refused[0] and refused[1]


@pytest.fixture
def remotes(repo: Repo, tmp_path: Path) -> dict[str, Repo]:
    """Two remotes that lie empty."""
    for name in ("origin", "fork"):
        repo("init", "-q", "--bare", str(tmp_path / f"{name}.git"))
        repo("remote", "add", name, str(tmp_path / f"{name}.git"))
    return {name: Repo(tmp_path / f"{name}.git") for name in ("origin", "fork")}


@pytest.mark.parametrize(
    "settings",
    [
        {"remote.pushDefault": "fork"},
        {"branch.main.pushRemote": "fork"},
        {"branch.main.pushRemote": "fork", "remote.pushDefault": "origin"},
        {"remote.pushDefault": "fork", "branch.main.remote": "origin"},
        {"branch.main.remote": ".", "branch.main.pushRemote": "fork"},
        {"branch.main.remote": "fork"},
    ],
)
def test_a_branch_goes_where_git_would_push_it(repo: Repo, remotes: dict[str, Repo], settings: dict[str, str]) -> None:
    for key, value in settings.items():
        repo("config", key, value)

    assert push(find_repository(repo.path), "main")[0]

    assert remotes["fork"].head("main") == repo.head()
    assert not remotes["origin"].exists("main")


def test_a_branch_that_follows_a_local_one_is_not_called_pushed(repo: Repo, remotes: dict[str, Repo]) -> None:
    repo("checkout", "-q", "--track", "-b", "work", "main")
    repo.commit({"a": "a"})

    ok, said = push(find_repository(repo.path), "work")

    assert not ok and "branch.work.pushRemote" in said
    assert not any(remote.exists("work") for remote in remotes.values())


def test_a_remote_that_lies_beside_the_checkout_is_found_as_git_finds_it(repo: Repo, tmp_path: Path) -> None:
    repo("init", "-q", "--bare", str(tmp_path / "beside.git"))
    repo("remote", "add", "origin", "../beside.git")

    ok, said = push(find_repository(repo.path), "main")

    assert ok, said
    assert Repo(tmp_path / "beside.git").head("main") == repo.head()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("remote.origin.receivepack", "touch '{canary}'; git-receive-pack"),
        ("remote.origin.pushurl", "{elsewhere}"),
        ("url.{elsewhere}.pushInsteadOf", "{origin}"),
        ("remote.origin.vcs", "hack"),
        ("credential.helper", "!touch '{canary}'"),
    ],
)
def test_a_remote_that_changed_since_the_repository_was_opened_is_not_pushed_to(
    repo: Repo, tmp_path: Path, key: str, value: str
) -> None:
    places = {name: str(tmp_path / name) for name in ("origin", "elsewhere", "canary")}
    for name in ("origin", "elsewhere"):
        repo("init", "-q", "--bare", places[name])
    repo("remote", "add", "origin", f"file://{places['origin']}")
    repository = find_repository(repo.path)
    repo("config", key.format(**places), value.format(**places))

    done, said = push(repository, "main", None)

    assert not done and "nothing is pushed" in said and "git push origin main" in said
    assert not Path(places["canary"]).exists()
    assert [Repo(Path(places[name])).refs("refs/heads") for name in ("origin", "elsewhere")] == [{}, {}]
    assert push(find_repository(repo.path), "main", None)[0] or "vcs" in key or "receivepack" in key


# -------------------------------------------------------------------------- a branch for a pull request


def test_a_commit_is_pushed_to_a_new_branch_and_the_branch_moves_with_the_next_one(
    repo: Repo, remotes: dict[str, Repo]
) -> None:
    first = repo.commit({"a": "a"})
    repo("reset", "-q", "--hard", "HEAD~1")
    second = repo.commit({"b": "b"})
    repository = find_repository(repo.path)

    push_commit(repository, "origin", first, "orchard/x", ())
    push_commit(repository, "origin", first, "orchard/x", ())
    assert remotes["origin"].head("orchard/x") == first
    push_commit(repository, "origin", second, "orchard/x", (first,))

    assert remotes["origin"].head("orchard/x") == second, "what we pushed before is ours to replace"
    assert not repo.exists("orchard/x"), "nothing of the user's is made here"


def test_what_others_pushed_to_the_branch_is_left_alone(repo: Repo, remotes: dict[str, Repo]) -> None:
    first = repo.commit({"a": "a"})
    theirs = repo.commit({"b": "b"})
    repo("push", "-q", "origin", f"{theirs}:refs/heads/orchard/x")
    repo("reset", "-q", "--hard", "HEAD~2")
    other = repo.commit({"c": "c"})

    with pytest.raises(OrchardError, match="which Orchard did not push"):
        push_commit(find_repository(repo.path), "origin", other, "orchard/x", (first,))

    assert remotes["origin"].head("orchard/x") == theirs


def test_a_commit_of_others_that_the_result_builds_on_is_gone_on_from(repo: Repo, remotes: dict[str, Repo]) -> None:
    theirs = repo.commit({"a": "a"})
    repo("push", "-q", "origin", f"{theirs}:refs/heads/orchard/x")
    ours = repo.commit({"b": "b"})

    push_commit(find_repository(repo.path), "origin", ours, "orchard/x", ())

    assert remotes["origin"].head("orchard/x") == ours


def test_a_push_that_the_remote_refuses_is_told_with_its_reason(repo: Repo, remotes: dict[str, Repo]) -> None:
    hook = remotes["origin"].path / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho protected for good >&2\nexit 1\n")
    hook.chmod(0o755)

    with pytest.raises(OrchardError, match="protected for good"):
        push_commit(find_repository(repo.path), "origin", repo.head(), "orchard/x", ())


def test_settings_of_remotes_that_changed_meanwhile_stop_it(repo: Repo, remotes: dict[str, Repo]) -> None:
    repository = find_repository(repo.path)
    repo("config", "remote.origin.url", str(remotes["fork"].path))

    with pytest.raises(OrchardError, match=r"remote\.origin\.url changed"):
        push_commit(repository, "origin", repo.head(), "orchard/x", ())

    assert not remotes["fork"].exists("orchard/x")


@pytest.mark.parametrize("scheme", ["http", "git"])
def test_a_failed_push_tells_no_password_of_an_address(repo: Repo, scheme: str) -> None:
    repo("remote", "add", "origin", f"{scheme}://me:hunter2@127.0.0.1:1/x.git")
    repository = find_repository(repo.path)

    ok, said = push(repository, "main")
    with pytest.raises(OrchardError) as refused:
        push_commit(repository, "origin", repo.head(), "orchard/x", ())

    assert not ok and "127.0.0.1" in said
    assert "127.0.0.1" in refused.value.message
    assert "hunter2" not in f"{said} {refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize("name", ["origin", "--upload-pack=touch x", "nobody"])
def test_a_remote_that_is_none_is_said_to_be(repo: Repo, name: str) -> None:
    with pytest.raises(OrchardError, match="There is no remote"):
        remote_named(find_repository(repo.path), name)
