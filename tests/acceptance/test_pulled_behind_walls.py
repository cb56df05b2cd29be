"""A hostile subtask behind a wall, pulled by its parent while that works: nothing outside of the wall obeys it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.process.sandbox.level import walls
from orchard.testing import Repo
from tests.acceptance.program import Desk
from tests.proof.crash_shapes import AGENT, HELPER

LEVELS = [finding.level for finding in walls().findings if finding.works]

HOSTILE = r"""
d=$(git rev-parse --absolute-git-dir)
evil="touch CANARY"
echo '* filter=evil diff=evil merge=evil' > .gitattributes
printf '[core]\n\tfsmonitor = %s\n\thooksPath = %s\n\tpager = %s\n' "$evil" "$d/hooks" "$evil" > evil
printf '[filter "evil"]\n\tclean = "%s; cat"\n\tsmudge = "%s; cat"\n\tprocess = "%s"\n' "$evil" "$evil" "$evil" >> evil
printf '[diff "evil"]\n\ttextconv = %s\n\tcommand = %s\n[merge "evil"]\n\tdriver = %s\n' "$evil" "$evil" "$evil" >> evil
common=$(git rev-parse --path-format=absolute --git-common-dir)
for file in "$d/config.worktree" "$d/config" "$common/config" "$common/config.worktree"; do
    cat evil >> "$file"
done
for folder in "$d/hooks" "$common/hooks"; do
    mkdir -p "$folder"
    for name in post-checkout post-index-change pre-commit post-commit reference-transaction post-merge; do
        printf '#!/bin/sh\n%s\n' "$evil" > "$folder/$name" && chmod +x "$folder/$name"
    done
done
mkdir -p "$d/info"
cp .gitattributes "$d/info/attributes"
cp .gitattributes "$common/info/attributes"
rm evil
"""
SUBMODULE = r"""
git init -q sub
cd sub
unset GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
echo x > x.txt
git add x.txt
git -c user.name=x -c user.email=x@y commit -qm x
git config core.fsmonitor "$evil"
git config filter.evil.clean "$evil"
echo '* filter=evil' > .gitattributes
cd ..
printf '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tupdate = !%s\n' "$evil" > .gitmodules
"""


@pytest.fixture(params=LEVELS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A user whose agent does as its instructions say, at one level of the sandbox."""
    desk = Desk(tmp_path)
    desk.env["ORCHARD_SANDBOX"] = request.param
    marks = tmp_path / "marks"
    marks.mkdir()
    for name, text in (("agent.sh", AGENT), ("help.py", HELPER), ("hostile.sh", HOSTILE), ("nested.sh", SUBMODULE)):
        (marks / name).write_text(text.replace("CANARY", str(tmp_path / "canary")))
    settings = f"agent = 'scribe'\nsandbox.expose = ['{marks}']\n[agents.scribe]\n"
    settings += f'command = "sh {marks}/agent.sh {{prompt_file}} {{mcp_config}}"\n'
    (tmp_path / "config/orchard").mkdir(parents=True)
    (tmp_path / "config/orchard/config.toml").write_text(settings)
    # Settings of a worktree's own are read by git only where the repository says so, as for sparse checkouts.
    desk.repo("config", "core.repositoryFormatVersion", "1")
    desk.repo("config", "extensions.worktreeConfig", "true")
    desk.repo("checkout", "-q", "-b", "work")
    yield desk
    desk.close()


def asks(marks: Path, *, nested: bool) -> str:
    bad = f". {marks}/hostile.sh" + (f"; . {marks}/nested.sh" if nested else "")
    child = f"RUN: {bad}; echo child > child.txt; echo changed >> README.md"
    work = f"RUN: . {marks}/hostile.sh; {sys.executable} {marks}/help.py '{child}'; echo $? > pulled.txt"
    return f'name: n\njobs:\n  - id: a\n    heal: false\n    work: {{type: agent, instructions: "{work}"}}\n'


def of_git(repo: Repo) -> dict[str, str]:
    """Everything that the repository's git obeys."""
    git = repo.path / ".git"
    found = [git / "config", git / "config.worktree", git / "info/attributes", *(git / "hooks").iterdir()]
    return {str(path.relative_to(git)): path.read_text() for path in found if path.exists()}


@pytest.mark.parametrize("nested", [False, True])
def test_settings_filters_hooks_and_submodules_of_a_subtask_are_obeyed_by_nobody(
    desk: Desk, tmp_path: Path, nested: bool
) -> None:
    canary, before = tmp_path / "canary", of_git(desk.repo)

    done = desk("run", desk.plan(asks(tmp_path / "marks", nested=nested)))

    assert not canary.exists(), "a program ran outside of the wall"
    assert of_git(desk.repo) == before
    assert done.code == 0, done.talk
    (subtask,) = next(job["subtasks"] for job in desk.status()["jobs"] if job["id"] == "a")
    # Behind the weaker wall the parent has given itself settings; while they are there, its pull is refused.
    pulled = not nested and desk.env["ORCHARD_SANDBOX"] == "bwrap"
    assert (subtask["status"], subtask["pulled"]) == ("failed" if nested else "completed", pulled), done.talk
    landed = desk.repo.files("work")
    assert ("child.txt" in landed) is pulled and not [name for name in landed if name.startswith("sub")]
    # What landed is text: the user's own git knows no program for it.
    for words in (("status",), ("checkout", "-q", "-f", "HEAD"), ("diff", "HEAD~1"), ("gc", "-q")):
        assert desk.repo.run(*words).status == 0
    assert not canary.exists()
