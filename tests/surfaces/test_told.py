"""What a person is told who does nothing but read: each thing once, in time, with what to do about it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.surfaces.cli.verbs import OF_OTHERS, VERBS
from tests.acceptance.program import Desk, desks, until


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def test_each_further_run_of_work_that_failed_has_a_line_with_its_reason(desk: Desk, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    work = f"test -e {mark} || {{ touch {mark}; exit 3; }}; echo a > a.txt"

    done = desk("run", desk.plan(f'name: Flaky\ntarget: goal\njobs: [{{id: a, retries: 2, work: "{work}"}}]\n'))

    assert done.code == 0
    (line,) = [line for line in done.talk.splitlines() if " of 3 starts: " in line]
    assert "a  work  run 2 of 3 starts: " in line and line.endswith("exited with 3."), line


TASKS = """
name: Tasks
jobs:
  - {{id: a, work: {{instructions_file: {file}, agent: mine}}}}
  - {{id: b, needs: [a], work: {{instructions_file: made-by-a.md, agent: mine}}}}
"""


def test_validate_finds_files_with_tasks_that_are_not_in_what_their_job_starts_from(desk: Desk) -> None:
    desk.repo.commit({"task.md": "Do it.\n", "orchard.toml": ""})
    desk.repo.write({"draft.md": "Perhaps.\n"})
    config = Path(desk.env["XDG_CONFIG_HOME"]) / "orchard"
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text('[agents.mine]\ncommand = "true"\n')

    def told(file: str) -> tuple[int, str]:
        done = desk("validate", desk.plan(TASKS.format(file=file)))
        return done.code, done.talk

    assert told("task.md")[0] == 0, told("task.md")
    assert told("./task.md")[0] == 0
    code, said = told("nowhere.md")
    assert code == 2 and ":4:" in said and "'nowhere.md' is not in commit" in said and "no such file" in said, said
    assert "commit it first" in told("draft.md")[1]
    assert "outside of the repository" in told("../task.md")[1]


@pytest.mark.parametrize(("word", "ours"), OF_OTHERS.items())
def test_a_word_of_another_tool_is_answered_with_ours(word: str, ours: str, desk: Desk) -> None:
    assert ours == "--version" or ours in VERBS
    assert word not in VERBS and f"Did you mean '{ours}'?" in desk(word).err


def test_a_field_of_another_tool_is_answered_with_ours(desk: Desk) -> None:
    said = desk("validate", desk.plan("name: x\njobs:\n  - {id: a, depends_on: [b]}\n  - {id: b, run: make}\n")).err

    assert "'depends_on'; did you mean 'needs'?" in said and "'run'; did you mean 'work'?" in said


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_whoever_ends_a_plan_is_told_where_the_work_of_its_jobs_is_saved(desk: Desk, verb: str) -> None:
    slow = "name: Slow\ntarget: goal\njobs: [{id: a, work: 'echo 1 > half.txt; sleep 60'}]\n"
    desk("run", "--detach", desk.plan(slow))
    until(lambda: "half" in desk("diff", "a").out)

    done = desk(*([verb] if verb == "cancel" else [verb, "--yes"]))

    assert done.code == 0 and "What lay in the worktree of job 'a' is saved: orchard recover " in done.out
    words = done.out.partition("is saved: orchard ")[2].split("\n")[0].split()
    if words[-1] != "DIR":  # it was saved when the job was stopped, and again before its worktree went
        words = ["recover", desk(*words).out.split()[0], "DIR"]
    assert desk(*words[:-1], str(desk.folder / "back")).code == 0
    assert (desk.folder / "back" / "half.txt").read_text() == "1\n"
