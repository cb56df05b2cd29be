"""What is drawn of a plan: trees, lines in a pipe, JSON lines; synthetic events, no engine."""

import asyncio
import io
import json
import sys

import pytest

from orchard.core.replay import apply, replay
from orchard.core.run import Run
from orchard.core.views.plans import plan_view
from orchard.model.events.plans import (
    Event,
    JobFailed,
    JobHeld,
    JobPicked,
    JobRetried,
    JobStarted,
    JobSucceeded,
    Landed,
    PhaseStarted,
    PlanStarted,
    PlanSubmitted,
    Recorded,
    SnapshotStarted,
    Warned,
    WorkCommitted,
)
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, Job, JobId, Plan, PlanId, ShellWork, with_validation
from orchard.model.plan_codec import plan_json
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.event_lines import Chronicle
from orchard.surfaces.cli.render.lines import Line, cells, colored, cut, padded, plain, safe, safe_lines, table, wrapped
from orchard.surfaces.cli.render.progress import LiveTree, event_row, interesting, picture
from orchard.surfaces.cli.render.tree import Look, counts_line, end_lines, header, tree
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands

PLAN = PlanId("3f2a9c")
OID = "a" * 40
NOW = 1_000_100.0
EVIL = "x\x1b[2J\x1b]0;owned\x07\n\u202ey [bold]z"
LOOK = Look(NOW, text.ASCII_MARKS, details=True)


def a_job(full: str, *needs: str, name: str | None = None) -> Job:
    group, _, own = full.rpartition("/")
    wanted = tuple(JobId(need) for need in needs)
    return Job(id=JobId(full), name=name or own, group=group or None, needs=wanted, work=ShellWork(command="true"))


def a_plan(*jobs: Job, name: str = "Add login") -> Plan:
    return with_validation(Plan(name=name, jobs={job.id: job for job in jobs}, max_parallel=4))


def recorded(*events: Event) -> list[Recorded]:
    return [Recorded(number, 1_000_000.0 + number, PLAN, event) for number, event in enumerate(events, start=1)]


def begun(plan: Plan) -> list[Event]:
    started = PlanStarted("main", OID, "feature/login", None)
    return [PlanSubmitted(plan_json(plan)), started, SnapshotStarted(1, OID)]


def running(job: str, phase: Phase = Phase.WORK) -> list[Event]:
    return [JobPicked(JobId(job), 1), JobStarted(JobId(job), 1), PhaseStarted(JobId(job), 1, phase)]


def failing(job: str) -> JobFailed:
    return JobFailed(JobId(job), 1, Phase.WORK, "exit", f"make {EVIL}", "Run it.", 2, None, f"one\n{EVIL}\n")


def drawn(lines: list[Line]) -> str:
    return "\n".join(plain(line) for line in lines)


def lines_of(events: list[Recorded]) -> str:
    run, shown = Run(PLAN), list[Line]()
    told = Chronicle(run)
    for event in events:
        apply(run, event)
        shown += told.lines(event)
    return drawn(shown)


def status_text(run: Run) -> str:
    view = plan_view(run, in_commands)
    plan = view.plan
    return drawn([header(plan, LOOK), *tree(plan, view.jobs, LOOK), counts_line(plan), *end_lines(plan)])


# ------------------------------------------------------------------------------------------ lines


def test_text_of_a_stranger_becomes_one_bounded_line_without_controls() -> None:
    assert safe(EVIL) == "x y [bold]z"
    assert len(safe("n" * 10_000)) == 500


def test_several_lines_stay_lines_but_carry_no_controls() -> None:
    assert safe_lines("a\n\x1b[31mb\x1b[0m\n\n") == ["a", "b"]


def test_columns_line_up_with_wide_and_combining_characters() -> None:
    assert [cells(word) for word in ("abc", "日本", "e\u0301")] == [3, 4, 1]
    assert cut("日本語", 4) == "日~"
    assert [cells(padded(word, 6)) for word in ("日本語の", "a", "abcdefghi")] == [6, 6, 6]


def test_a_table_pads_all_columns_but_the_last() -> None:
    rows = table([[("a", ""), ("b", "")], [("longer", ""), ("c", "")]])

    assert [plain(row) for row in rows] == ["a       b", "longer  c"]


def test_colors_mark_meaning_and_leave_nothing_open() -> None:
    assert colored([("failed", "bad"), (" x", "")]) == "\x1b[31mfailed\x1b[0m x"


# ------------------------------------------------------------------------------------------- tree


def test_the_tree_shows_groups_phases_failures_hints_and_counts() -> None:
    plan = a_plan(a_job("models"), a_job("back/api", "models"), a_job("back/db", "models"), a_job("docs", "back/api"))
    committed = WorkCommitted(
        JobId("models"), 1, OID, OID, {"added": 2, "modified": 1, "lines_added": 1200, "lines_deleted": 3}
    )
    done = [*running("models"), committed, JobSucceeded(JobId("models"), 1, OID)]
    events = [*begun(plan), *done, *running("back/api"), failing("back/api"), *running("back/db", Phase.SETUP)]

    shown = status_text(replay(recorded(*events)))

    assert "Add login  running  1m38s  3f2a9c  main -> feature/login" in shown
    assert "+ models" in shown and "3 files +1,200 -3" in shown
    assert "> back/" in shown and "running setup" in shown
    assert "failed: work" in shown and "hint: Run it." in shown
    assert "- docs" in shown and "blocked" in shown
    assert "1 running, 1 done, 1 failed, 1 blocked" in shown


def test_hostile_names_and_messages_cannot_reach_the_terminal() -> None:
    plan = a_plan(a_job("models", name=EVIL), name=EVIL)
    events = recorded(*begun(plan), *running("models"), failing("models"), Warned(EVIL))

    shown = status_text(replay(events)) + lines_of(events)

    assert "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown
    assert "x y [bold]z" in shown


def test_a_job_that_waits_for_a_person_says_for_what() -> None:
    plan = a_plan(a_job("models"))
    held = JobHeld(JobId("models"), 1, "approval", "2 files to look at", Phase.MERGE_RI)

    shown = status_text(replay(recorded(*begun(plan), *running("models"), held)))

    assert "waiting: approval" in shown
    assert "next: orchard approve models --plan 3f2a9c" in shown


def test_a_plan_longer_than_the_screen_shows_what_runs_and_what_failed() -> None:
    plan = a_plan(*[a_job(f"j{number}") for number in range(500)])
    run = replay(recorded(*begun(plan), *running("j7"), *running("j9"), failing("j9")))

    lines = picture(run, LOOK, 10)

    assert len(lines) <= 10
    assert interesting(run, 2) == ["j7", "j9"]
    assert interesting(run, 4) == ["j0", "j1", "j7", "j9"], "what comes next, in the room that is left"
    assert "j7" in drawn(lines) and "j9" in drawn(lines) and "... and 495 more jobs" in drawn(lines)


def test_a_long_plan_that_is_over_fills_the_screen_with_what_ended_last() -> None:
    plan = a_plan(*[a_job(f"j{number}") for number in range(50)])
    ends = [event for n in range(50) for event in (*running(f"j{n}"), JobSucceeded(JobId(f"j{n}"), 1, OID))]
    run = replay(recorded(*begun(plan), *ends))

    lines = picture(run, LOOK, 24)

    assert len(lines) in (23, 24)
    assert "j49" in drawn(lines) and "j48" in drawn(lines)


def test_a_short_screen_never_gets_more_lines_than_it_has() -> None:
    plan = a_plan(*[a_job(f"j{number}") for number in range(30)])
    events = begun(plan) + [event for number in range(30) for event in running(f"j{number}")]
    run = replay(recorded(*events))

    assert all(len(picture(run, LOOK, height)) <= height for height in range(4, 50))


def test_talk_is_wrapped_between_words_and_commands_stay_whole() -> None:
    talk: Line = [("  warning: ", "wait"), ("one two three four", ""), (" fünf ", "dim"), ("x" * 30, "")]

    rows = wrapped(talk, 20)

    assert [plain(row) for row in rows] == ["  warning: one two", "  three four fünf", "  " + "x" * 30]
    assert ("fünf", "dim") in rows[1]
    assert wrapped([("next: orchard retry a-very-long-name --plan x", "")], 20) == [
        [("next: orchard retry a-very-long-name --plan x", "")]
    ]
    assert wrapped([], 20) == [[]] and wrapped([("short", "")], 20) == [[("short", "")]]


# ------------------------------------------------------------------------------------------ lines in a pipe


def test_a_pipe_gets_one_line_for_what_matters_and_the_cause_of_a_failure_where_the_job_is_tried_again() -> None:
    plan = a_plan(a_job("build"))
    landed = Landed("l", "feature/login", OID, "b" * 40)
    retried = JobRetried(JobId("build"))

    shown = lines_of(recorded(*begun(plan), *running("build"), failing("build"), landed, retried)).splitlines()

    assert [line[9:] for line in shown[:2]] == [
        "plan  started  from main aaaaaaaaaa for feature/login",
        "build  work  started",
    ]
    assert shown[2][9:] == "build  failed in work  2.0s"
    assert shown[3].endswith("plan  landed  feature/login aaaaaaaaaa..bbbbbbbbbb")
    assert shown[4][9:] == "build  retried"
    assert [line.strip() for line in shown[5:]] == ["it had failed: make x y [bold]z", "| one", "| x", "| y [bold]z"]


def test_an_event_for_programs_has_its_place_its_name_and_its_fields() -> None:
    document = event_row(Recorded(7, 0.0, PLAN, JobStarted(VALIDATION, 2, Phase.WORK)))

    assert document == {
        "type": "event",
        "seq": 7,
        "at": "1970-01-01T00:00:00.000+00:00",
        "plan_id": "3f2a9c",
        "event": "JobStarted",
        "job": VALIDATION,
        "attempt": 2,
        "first_phase": "work",
    }
    assert json.dumps(document)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0s"), (-3, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.6, "1m00s"), (3599.7, "1h00m"), (90_000, "25h00m")],
)
def test_durations_are_short(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


# ----------------------------------------------------------------------------------------- the live tree


@pytest.mark.anyio
async def test_the_live_tree_draws_what_happened_and_reads_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    run = Run(PLAN)
    with LiveTree(Terminal(), run) as live:
        live.console.file = screen
        live.take(recorded(*begun(a_plan(a_job("build", name="[red]x"))), *running("build")))
        drawing = asyncio.get_running_loop().create_task(live.keep_drawing())
        await asyncio.wait({drawing}, timeout=0.05)
        drawing.cancel()
    assert "running work" in screen.getvalue()
    assert "[red]x" in screen.getvalue()
