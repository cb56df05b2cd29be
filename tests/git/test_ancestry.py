"""How commits relate is told as git tells it, without asking git."""

import random
import secrets

import pytest

from orchard.git.history import Line, Unclear, is_ancestor, merge_bases
from orchard.git.objects.reader import Objects
from orchard.git.repository import Repository
from orchard.testing import Repo


def commit(repo: Repo, *parents: str) -> str:
    words = [word for parent in parents for word in ("-p", parent)]
    return repo("commit-tree", repo("rev-parse", "HEAD^{tree}").strip(), *words, "-m", secrets.token_hex(8)).strip()


@pytest.mark.parametrize("seed", range(6))
def test_a_line_grows_as_git_would_say(repo: Repo, repository: Repository, seed: int) -> None:
    chance = random.Random(seed)
    floor = repo.head()
    commits = [floor]
    for _ in range(14):
        commits.append(commit(repo, *chance.sample(commits, min(len(commits), chance.choice((1, 1, 2))))))
    needs = chance.sample(commits, 7)
    met = []
    with Objects(repository.git) as objects:
        line = Line(objects, floor, needs[0])
        for other in needs[1:]:
            meeting = line.meet(other)
            assert (not meeting.fresh) == is_ancestor(repository, other, line.tip)
            assert line.is_behind(meeting) == is_ancestor(repository, line.tip, other)
            if not meeting.fresh or line.is_behind(meeting):
                line.grow(meeting, line.tip if not meeting.fresh else other)
                continue
            bases = set(merge_bases(repository, line.tip, other))
            assert bases <= meeting.met
            met.append(len(meeting.met))
            if len(meeting.met) == 1:
                assert meeting.met == bases
            line.grow(meeting, commit(repo, line.tip, other))


def test_a_history_that_leads_past_the_floor_is_left_to_git(repo: Repo, repository: Repository) -> None:
    first = repo.head()
    floor = repo.commit({"a.txt": "a"})
    beside = commit(repo, first)
    with Objects(repository.git) as objects:
        line = Line(objects, floor, commit(repo, floor))
        with pytest.raises(Unclear):
            line.meet(beside)
        with pytest.raises(Unclear):
            Line(objects, floor, commit(repo))
