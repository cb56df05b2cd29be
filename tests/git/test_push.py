"""A landed branch is handed on to a remote, or the failure is told."""

from pathlib import Path

import pytest

from orchard.git.remote_branches import push
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

    assert not done and "nothing was pushed" in said and "git push origin main" in said
    assert not Path(places["canary"]).exists()
    assert [Repo(Path(places[name])).refs("refs/heads") for name in ("origin", "elsewhere")] == [{}, {}]
    assert push(find_repository(repo.path), "main", None)[0] or "vcs" in key or "receivepack" in key
