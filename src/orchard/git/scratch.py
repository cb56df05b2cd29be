"""Indexes of our own, for the time of a step, and commits that are made from them."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchard.git.command import Git
from orchard.git.repository import FALLBACK_IDENTITY, Repository


@contextmanager
def private_index(repo: Repository) -> Iterator[Path]:
    """A place for an index of our own, for the time of the block."""
    folder = repo.state / "tmp"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    index = folder / f"index-{secrets.token_hex(8)}"
    try:
        yield index
    finally:
        index.unlink(missing_ok=True)
        index.with_name(f"{index.name}.lock").unlink(missing_ok=True)


def commit_index(git: Git, parents: list[str], message: str) -> str:
    """Commit what the index that `git` names holds."""
    name, email = FALLBACK_IDENTITY
    named = git.with_environment(
        GIT_AUTHOR_NAME=name, GIT_AUTHOR_EMAIL=email, GIT_COMMITTER_NAME=name, GIT_COMMITTER_EMAIL=email
    )
    tree = git("write-tree").text
    words = [word for parent in parents for word in ("-p", parent)]
    text = message.replace("\0", " ").encode(errors="replace") or b"saved work"
    return named("commit-tree", tree, *words, "-F", "-", stdin=text).text
