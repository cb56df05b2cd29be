"""What a repository that a job wrote can add to a filter that the user has."""

import sys
from pathlib import Path

import pytest

from orchard.git.command import Git
from orchard.git.filters import block_filters
from orchard.git.repository import find_repository
from orchard.git.worktree.commit import Committed, commit_work
from orchard.git.worktree.worktrees import Worktrees
from orchard.testing import Repo
from tests.git.test_hazards_worktree import info, save

SHOWN = 'sh "$(git rev-parse --show-toplevel)/tools/up.sh"'


@pytest.mark.parametrize("key", ["process", "clean", "smudge"])
def test_a_repository_adds_no_program_to_a_filter_of_the_user_s(repo: Repo, tmp_path: Path, key: str) -> None:
    mark = tmp_path / "ran"
    users = {"process": "", "clean": "cat", "smudge": "cat"} | {key: ""}
    trusted = tuple((f"filter.crypt.{name}", value) for name, value in users.items() if value)
    repo("config", f"filter.crypt.{key}", f"touch {mark}; cat")
    repo.write({".gitattributes": "*.txt filter=crypt\n", "a.txt": "one\n"})
    folder = repo.path / ".git"
    git = block_filters(Git(folder, folder, cwd=repo.path, work_tree=repo.path), trusted)

    git("add", "a.txt", ok=(0, 1, 128))
    git("checkout-index", "-f", "a.txt", ok=(0, 1, 128))

    assert not mark.exists()


@pytest.mark.parametrize("command", ["sh tools/up.sh", "{python} -m up", "./tools/up.sh %f", SHOWN])
def test_a_filter_runs_the_user_s_script_and_never_the_one_that_a_job_wrote(
    repo: Repo, tmp_path: Path, command: str
) -> None:
    mark = tmp_path / "ran"
    mine = {
        "tools/up.sh": "#!/bin/sh\nexec tr a-z A-Z\n",
        "up.py": "import sys; sys.stdout.write(sys.stdin.read().upper())\n",
    }
    theirs = {
        "tools/up.sh": f"#!/bin/sh\ntouch {mark}; exec tr a-z A-Z\n",
        "up.py": f"import sys; open({str(mark)!r}, 'w'); sys.stdout.write(sys.stdin.read().upper())\n",
    }
    repo("config", "filter.up.clean", command.format(python=sys.executable))
    base = repo.commit({".gitattributes": "*.up filter=up\n", **mine})
    (repo.path / "tools/up.sh").chmod(0o755)
    found = find_repository(repo.path)
    trees = Worktrees(found, found.worktree_root(".worktrees"))
    worktree = trees.add(base, "job")
    Repo(worktree.path).write({"x.up": "hello\n", **theirs})
    (worktree.path / "tools/up.sh").chmod(0o755)

    saved = save(trees, worktree, base)
    done = commit_work(found, worktree, base, info())

    assert not mark.exists()
    assert isinstance(done, Committed)
    assert repo.files(done.commit)["x.up"] == "HELLO\n"
    assert saved.commit is not None and repo.files(saved.commit)["x.up"] == "HELLO\n"
