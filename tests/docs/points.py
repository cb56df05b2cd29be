"""What a newcomer once found wrong or missing, point by point, and what has to be so now.

B1 to B10 were bugs, M1 to M17 were missing. A point without a check says why it has none.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.docs.day import Day
from tests.docs.pages import ROOT

ONE = "{id: a, work: echo a > a.txt}"
SLOW = "{id: api, work: 'echo first > page.txt; echo written; sleep 60'}\n{id: docs, work: sleep 60}"
FAILS = "{id: a, work: 'echo broken; exit 3'}"


@dataclass(frozen=True)
class Point:
    """One thing that was noticed; `note` says why there is no check, or what the check leaves out."""

    name: str
    words: str
    check: Callable[[Day], None] | None = None
    note: str = ""


def purge_means_what_was_deleted(day: Day) -> None:
    day.run(ONE, "First")
    day.run("{id: b, work: echo b > b.txt}", "Second")
    day("orchard delete Second")
    day("orchard purge")
    assert [one["name"] for one in day.data("list --deleted")] == ["First"]


def cancel_of_a_job_leaves_the_plan(day: Day) -> None:
    day.run(SLOW, "API cleanup", options="--detach")
    day.until("orchard logs api", "written")
    day("orchard cancel api")
    jobs = {one["id"]: one["status"] for one in day.data("status")["jobs"]}
    assert jobs["api"] == "canceled" and jobs["docs"] == "running", jobs
    day("orchard delete api-cl", code=3)
    day("orchard purge api-cl -y", code=3)
    day("orchard cancel --yes; orchard cancel", None)


def the_hint_about_another_owner_helps(day: Day) -> None:
    for place in (day.top, day.top / ".git"):
        os.chown(place, 1001, -1)
    said = day("orchard list", None)
    hint = next(line for line in said.splitlines() if "safe.directory" in line)
    day(hint.partition("run: ")[2])
    day("orchard list")
    for place in (day.top, day.top / ".git"):
        os.chown(place, os.getuid(), -1)


def quiet_says_why(day: Day) -> None:
    day.has(day.run(FAILS, code=1, options="-q"), "a", "3")
    day.has(day("orchard retry -q", 1), "a", "3")


def names_of_the_validation_are_taken(day: Day) -> None:
    said = day.run(ONE, more="verify: 'echo seen; exit 1'\n", code=1)
    day.has(said, "verify")
    day.lacks(said, "__snapshot-validation__", "failed in work")
    for name in ("verify", "validation", "'(validation)'"):
        day.has(day(f"orchard logs {name}"), "seen")


def edits_after_a_failed_verify_count(day: Day) -> None:
    day.run(ONE, more="verify: grep -q fixed a.txt\n", code=1)
    day("orchard shell verify -- sh -c 'echo fixed > a.txt'")
    day("orchard retry")
    assert day.repo.files("work")["a.txt"] == "fixed\n"


def undo_does_not_ask_in_vain(day: Day) -> None:
    day.run(FAILS, code=1)
    day.lacks(day("orchard undo", None), "[y/N]")
    day.run(ONE, "Landed")
    day.run(FAILS, "Later", code=1)
    day("orchard undo")
    assert "a.txt" not in day.repo.files("work")


def a_duration_does_not_grow(day: Day) -> None:
    day.run(ONE)
    before = day.data("status")["plan"]["ended_at"]
    time.sleep(1.5)
    day("orchard undo")
    assert day.data("status")["plan"]["ended_at"] == before


def pages_say_what_happens(day: Day) -> None:
    day("orchard run nofile.yaml", 2)
    day("orchard validate nofile.yaml", 2)
    day.run(ONE)
    for verb in ("purge", "undo", "delete"):
        day(f"orchard {verb} Day < /dev/null", 4)
    (day.top / "more.txt").write_text("more\n")
    day("git add more.txt && git commit -q -m more")
    day.has(day("orchard undo", None), "--revert")
    assert "### Evidence" in (ROOT / "docs" / "plan-file.md").read_text("utf-8")


def small_things(day: Day) -> None:
    printed = day("orchard mcp install --host claude --print 2> /dev/null")
    assert json.loads(printed)
    day.run("{id: move, work: 'git mv README.md ABOUT.md'}") if (day.top / "README.md").exists() else day.run(ONE)
    files = [line for line in day("orchard diff --stat").splitlines() if "changed" in line]
    assert files and files[0].split()[0] == "1", files
    codes = {verb: day.shell.run(f"orchard {verb} Day")[0] for verb in ("resume", "pause", "cancel")}
    assert codes["pause"] == codes["cancel"] == 2, codes
    day.plan("{id: a, work: sleep 60}\n{id: late, needs: [a], work: 'true'}", "Waits")
    day("orchard run --detach")
    day.has(day("orchard logs late"), "not begun")
    day("orchard cancel Waits --yes", None)


def the_readme_says_how_to_install(day: Day) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    day.has(readme, "uvx --from orchard-agents", "uv tool install orchard-agents", "pipx install orchard-agents")


def a_running_job_can_be_looked_at(day: Day) -> None:
    day.run(SLOW, options="--detach")
    day.until("orchard logs api", "written")
    day.has(day("orchard diff api"), "+first")
    day.has(day("orchard path api"), ".worktrees")
    day.has(day("orchard shell api -- cat page.txt"), "first")
    assert list((day.top / ".worktrees" / "by-job").glob("*/api"))
    day("orchard cancel --yes", None)


def tasks_without_a_file(day: Day) -> None:
    day.agent()
    day('orchard do "Fix the flaky test" "Add docs"')
    assert sum(name.startswith("by-agent-") for name in day.repo.files("work")) == 2


def logs_of_a_whole_plan(day: Day) -> None:
    day.run("{id: a, work: 'echo from-a > a.txt; echo out-a'}\n{id: b, work: 'echo from-b > b.txt; echo out-b'}")
    lines = day("orchard logs").splitlines()
    assert any("a" in line.split()[0] and "out-a" in line for line in lines), lines
    assert any("out-b" in line for line in lines), lines
    day.has(day("orchard logs -f"), "out-a")
    assert json.loads(day("orchard events --json").splitlines()[0])


def the_usual_file_and_a_dry_run(day: Day) -> None:
    day.plan(ONE)
    day.has(day("orchard run -n"), "echo a > a.txt", "Nothing was started")
    day("orchard run")


def a_part_of_a_plan(day: Day) -> None:
    jobs = "{id: a, work: 'echo $X ${{ who }} > a.txt'}\n{id: b, work: echo b > b.txt}"
    day.plan(jobs, more="params: {who: you}\n")
    day("orchard run --only a -e X=hello -p who=Ada")
    files = day.repo.files("work")
    assert files["a.txt"] == "hello Ada\n" and "b.txt" not in files


def flaky_work(day: Day) -> None:
    marks = day.shell.desk.folder / "marks"
    marks.mkdir()
    day.shell.desk.open_to_jobs(marks)
    mark = marks / "tried"
    flaky = f"{{id: a, retries: 2, work: 'test -e {mark} || {{ touch {mark}; exit 1; }}; echo a > a.txt'}}"
    day.run(f"{flaky}\n{{id: b, allow_failure: true, work: 'exit 1'}}")
    assert "a.txt" in day.repo.files("work")


def pruning_and_lists(day: Day) -> None:
    day.run(ONE)
    day.run(FAILS, "Bad", code=1)
    day.has(day("orchard list"), "STATUS")
    day.lacks(day("orchard list --status failed --limit 1"), "Day")
    time.sleep(1.1)
    day("orchard prune --older-than 1s --yes")
    assert day.data("list") == []


def a_landing_below_other_commits(day: Day) -> None:
    day.run(ONE)
    day("echo more > more.txt && git add more.txt && git commit -q -m more")
    day("orchard undo --revert")
    files = day.repo.files("work")
    assert "a.txt" not in files and "more.txt" in files


def pull_requests_and_notices(day: Day) -> None:
    day.has(day("orchard pr --help"), "--draft")
    mark = day.shell.desk.folder / "told"
    day.shell.settings(f'[notify]\ncommand = "echo $ORCHARD_EVENT > {mark}"\n')
    day.run(ONE)
    deadline = time.monotonic() + 10
    while not mark.exists():
        assert time.monotonic() < deadline, "no notice"
        time.sleep(0.1)
    assert mark.read_text().strip() == "done"


def attaching(day: Day) -> None:
    day.has(day("orchard attach --help"), "--print")


def parts_of_a_diff(day: Day) -> None:
    day.run("{id: a, work: 'echo a > a.txt; echo b > b.txt'}")
    assert day("orchard diff a --name-only").split() == ["a.txt", "b.txt"]
    day.lacks(day("orchard diff a -- a.txt"), "b.txt")


def verbs_that_others_had(day: Day) -> None:
    day.run("{id: a, approve: true, work: echo a > a.txt}", code=4)
    day('orchard reject a "Not like this"', 1)
    day.has(day("orchard clone"), "echo a > a.txt")


def the_pages_are_there(day: Day) -> None:
    day.has(day("orchard help plan-file"), "changes", "needs")


def the_doctor_knows_signing(day: Day) -> None:
    day.has(day("orchard doctor"), "Ada Tester")
    day("git config commit.gpgsign true && git config gpg.program /bin/false && git config user.signingkey x")
    day.has(day("orchard doctor", None), "sign")


def words_of_other_tools(day: Day) -> None:
    day.shell.write(
        "plan.yaml", "name: x\njobs:\n  - {id: a, depends_on: [b], work: 'true'}\n  - {id: b, run: 'true'}\n"
    )
    said = day("orchard validate", 2)
    day.has(said, "'depends_on'; did you mean 'needs'?", "'run'; did you mean 'work'?")
    day.has(day("orchard --version"), "orchard")
    for word, ours in (("version", "--version"), ("ps", "list"), ("ls", "list"), ("up", "run")):
        day.has(day(f"orchard {word}", 2), f"Did you mean '{ours}'?")


POINTS = (
    Point("B1", "purge after delete takes the plan that was deleted", purge_means_what_was_deleted),
    Point("B2", "cancel JOB cancels that job; verbs that destroy take whole names", cancel_of_a_job_leaves_the_plan),
    Point(
        "B3",
        "the hint about safe.directory helps",
        the_hint_about_another_owner_helps,
        "needs root, to give a folder away",
    ),
    Point("B4", "-q still says why a plan failed", quiet_says_why),
    Point("B5", "every name that is shown for verify is taken", names_of_the_validation_are_taken),
    Point("B6", "edits in the worktree of a failed verify count", edits_after_a_failed_verify_count),
    Point("B7", "undo asks only where something landed, and means the last landing", undo_does_not_ask_in_vain),
    Point("B8", "a duration does not grow after the end", a_duration_does_not_grow),
    Point("B9", "the pages say what happens", pages_say_what_happens),
    Point(
        "B10", "small things", small_things, "the rest: tests/surfaces/test_mended_words.py, test_words_to_act_on.py"
    ),
    Point(
        "M1",
        "how to install",
        the_readme_says_how_to_install,
        "a wheel is installed and run by tests/test_distribution.py",
    ),
    Point("M2", "diff, path and shell of a running job", a_running_job_can_be_looked_at),
    Point("M3", "tasks without a file", tasks_without_a_file),
    Point("M4", "logs and events of a whole plan", logs_of_a_whole_plan),
    Point("M5", "run without a file, and a dry run", the_usual_file_and_a_dry_run),
    Point("M6", "a part of a plan, variables, parameters", a_part_of_a_plan),
    Point("M7", "retries and allow_failure", flaky_work, "there is no matrix and no `if`"),
    Point("M8", "prune, list --status --limit, a header", pruning_and_lists),
    Point("M9", "undo below other commits", a_landing_below_other_commits),
    Point("M10", "pull requests and notices", pull_requests_and_notices, "tests/docs opens one on a scripted forge"),
    Point("M11", "attach to an agent's session", attaching, "needs the agent's own program; there is no best-of-N"),
    Point("M12", "diff of a path, names only", parts_of_a_diff, "pagers: tests/surfaces/test_paging.py"),
    Point("M13", "reject, cancel of a job, clone", verbs_that_others_had),
    Point("M14", "help reads the pages", the_pages_are_there),
    Point("M15", "doctor: identity and signing", the_doctor_knows_signing),
    Point("M16", "words of other tools", words_of_other_tools, "they are no aliases: ours are named"),
    Point("M17", "the web page", None, "tests/web looks at the dashboard in a browser"),
)
