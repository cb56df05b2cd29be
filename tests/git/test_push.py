"""A landed branch is handed on to a remote, or the failure is told."""

from pathlib import Path

from orchard.git.landing import push
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
