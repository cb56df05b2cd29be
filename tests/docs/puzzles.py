"""What confused a newcomer or looked bad, C1 to C20 and U1 to U11, and what has to be so now."""

import json
import os
import time

from tests.docs.day import Day
from tests.docs.points import ONE, Point

CONFLICT = "{id: a, work: echo one > shared.txt}\n{id: b, work: 'sleep 1; echo two > shared.txt'}"


def nothing_to_do_is_fine(day: Day) -> None:
    day.run("{id: a, work: 'true'}")
    day.run(ONE, "Twice")
    day.run(ONE, "Twice")


def a_conflict_is_resolved_by_hand(day: Day) -> None:
    day.has(day.run(CONFLICT, more="resolver: fail\n", code=1), "orchard resolve b")
    day("orchard resolve b")
    day("orchard shell b -- sh -c 'echo both > shared.txt'")
    day("orchard resolve b --continue")
    assert day.repo.files("work")["shared.txt"] == "both\n"


def no_agent_heals_unasked(day: Day) -> None:
    day.agent()
    day.lacks(day.run("{id: a, work: 'exit 1'}", code=1), "healing")
    day.has(day.run("{id: a, work: 'test -e by-agent-a.txt'}", "Asked", options="--heal"), "healed", "mine")


def a_run_says_what_it_leaves_out(day: Day) -> None:
    day("echo more >> .gitignore; mkdir -p .git/hooks; echo '#!/bin/sh' > .git/hooks/pre-commit; chmod +x .git/hooks/*")
    said = day.run(ONE)
    day.has(said, "not part of this run", "Git hooks do not run (pre-commit)", "Orchard commits as Ada Tester")


def gates_need_a_yes(day: Day) -> None:
    day.run("{id: a, approve: true, work: echo a > a.txt}", code=4)
    for verb in ("approve a", "land", "undo", "delete Day"):
        assert day.shell.run(f"orchard {verb} < /dev/null")[0] != 0, verb
    day("orchard approve a < /dev/null", 4)


def phases_have_words(day: Day) -> None:
    day.lacks(day.run(ONE) + day("orchard attempts a"), "merge-fi", "merge-ri")


def only_written_jobs_are_counted(day: Day) -> None:
    day.has(day.run(ONE), ": 1 done")
    day.has(day.run(ONE, "Unverified", more="verify: exit 1\n", code=1), ": 1 done, validation failed")


def long_work_is_named_by_what_failed(day: Day) -> None:
    day.shell.write("plan.yaml", "name: Long\njobs:\n  - id: a\n    work: |\n      set -e\n      make-nothing\n")
    day.has(day("orchard run", 1), "'make-nothing' exited with 127")


def verbs_mean_the_plan_that_fits(day: Day) -> None:
    day.run("{id: slow, work: sleep 60}", "Slow", options="--detach")
    day.run(ONE, "Newer", more="target: other\n")
    day("orchard pause")
    day.until("orchard list", "paused")
    day("orchard cancel", None)


def validate_knows_agents(day: Day) -> None:
    day.plan("{id: a, work: '@nosuch x'}\n{id: b, work: '@another x'}")
    day.has(day("orchard validate", 2), "nosuch", "another")
    day.agent()
    day.plan("{id: a, work: {instructions_file: tasks/none.md}}")
    day.has(day("orchard validate", 2), "plan.yaml:3:", "'tasks/none.md' is not in commit", "there is no such file")


def closing_the_terminal_leaves_the_plan(day: Day) -> None:
    day.plan("{id: a, work: 'sleep 3; echo a > a.txt'}")
    running, terminal = day.shell.desk.on_a_terminal("run")
    day.until("orchard list", "running")
    os.close(terminal)
    running.process.wait(30)
    day.until("orchard list", "succeeded")


def subjects_name_the_plan(day: Day) -> None:
    day.run(f"{ONE}\n{{id: b, work: echo b > b.txt}}\n{{id: gate, needs: [a, b], work: 'true'}}", "Letters")
    assert day("git log -1 --format=%s").strip() == "Letters"


def the_version_is_ours(day: Day) -> None:
    ours = day("orchard --version").split()[-1]
    day.has(day("orchard agents builtin"), ours)


def an_undone_plan_is_marked(day: Day) -> None:
    day.run(ONE)
    day("orchard undo")
    day.has(day("orchard list"), "undone")


def the_project_file_is_portable(day: Day) -> None:
    made = json.loads(day("orchard mcp install --host claude --print 2> /dev/null"))
    assert made["mcpServers"]["orchard"]["command"] == "orchard", made


def a_failure_is_told_once(day: Day) -> None:
    said = day.run("{id: a, work: 'echo the-last-line; exit 3'}", code=1)
    assert said.count("| the-last-line") == 1, said


def ids_keep_their_letters(day: Day) -> None:
    day.run(ONE, "Ünïcode")
    assert day.data("list")[-1]["id"].startswith("unicode-")


def a_list_fits_a_narrow_screen(day: Day) -> None:
    day.run(ONE, "A plan with a name that is long enough to need more than eighty columns in a list")
    said = day("COLUMNS=80 orchard list")
    day.has(said, "PLAN", "STATUS")


def starting_is_quick(day: Day) -> None:
    day.plan(ONE)
    begun = time.monotonic()
    day("orchard run --detach")
    assert time.monotonic() - begun < 10


VIEW = "tests/surfaces/test_live_view.py and test_drawn.py look at the live view"
PUZZLES = (
    Point("C1", "work with nothing to do succeeds, and a plan runs twice", nothing_to_do_is_fine),
    Point("C2", "a conflict is resolved by hand", a_conflict_is_resolved_by_hand),
    Point("C3", "no agent heals a plan of commands unasked", no_agent_heals_unasked),
    Point("C4", "a run says what it leaves out", a_run_says_what_it_leaves_out),
    Point("C5", "gates need a yes", gates_need_a_yes),
    Point("C6", "phases have words", phases_have_words),
    Point("C7", "the jobs that are counted are those that were written", only_written_jobs_are_counted),
    Point("C8", "long work is not named by its first line", long_work_is_named_by_what_failed),
    Point("C9", "verbs mean the plan that fits", verbs_mean_the_plan_that_fits),
    Point("C10", "a run says which hooks do not run", a_run_says_what_it_leaves_out),
    Point("C11", "a run says whose name it commits under", a_run_says_what_it_leaves_out),
    Point("C12", "validate knows every agent, and files with tasks", validate_knows_agents),
    Point("C13", "closing the terminal leaves the plan", closing_the_terminal_leaves_the_plan),
    Point(
        "C14", "subjects of commits", subjects_name_the_plan, "a job's name is its subject, as the plan file page says"
    ),
    Point("C15", "refs of Orchard in git log --all", None, "docs/troubleshooting.md says how to leave them out"),
    Point("C16", "the file of a repository is portable", the_project_file_is_portable),
    Point("C17", "the built-in agent has the version of Orchard", the_version_is_ours, "its model is not marked"),
    Point("C18", "an undone plan is marked", an_undone_plan_is_marked),
    Point("C19", "send exits with 4 when the agent waits again", None, "meant so: docs/exit-codes.md"),
    Point("C20", "one form of the next step", None, "tests/surfaces/test_next_steps.py"),
    Point("U1", "words are not cut", None, VIEW),
    Point("U2", "status and time stay on narrow screens", None, VIEW),
    Point("U3", "a list has a header", a_list_fits_a_narrow_screen),
    Point("U4", "a failure is told once", a_failure_is_told_once),
    Point("U5", "the dashboard", None, "tests/web"),
    Point("U6", "many jobs", None, VIEW),
    Point("U7", "nothing is left of old frames", None, VIEW),
    Point("U8", "the first turn of the built-in agent", None, "a matter of the bench"),
    Point("U9", "run --detach returns soon", starting_is_quick),
    Point("U10", "ids keep their letters", ids_keep_their_letters),
    Point("U11", "a short README", None, "five rows of figures; the long tables are in docs"),
)
