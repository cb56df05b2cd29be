"""One merge or one commit, for tests that do not keep a Merger."""

from collections.abc import Sequence

from orchard.git.merge.conflicts import Merge
from orchard.git.merge.merge import Merger
from orchard.git.objects.reader import Objects
from orchard.git.repository import Repository


def merge_commits(repo: Repository, ours: str, theirs: str) -> Merge:
    with Objects(repo.git) as objects, Merger(repo, objects) as merger:
        return merger.merge(ours, theirs)


def commit_tree(
    repo: Repository, tree: str, parents: Sequence[str], message: str, *, when: int, sign: bool = False
) -> str:
    with Objects(repo.git) as objects, Merger(repo, objects) as merger:
        return merger.commit(tree, parents, message, when=when, sign=sign)
