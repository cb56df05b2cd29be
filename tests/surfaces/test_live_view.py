"""What the live view adds to a plan's events: what jobs print, how much is done, how long it still takes."""

import os
import pty
import sys
import termios
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.core.forecast import seconds_left, seconds_taken
from orchard.core.replay import replay
from orchard.core.run import Run
from orchard.model.events.plans import JobSucceeded, Recorded
from orchard.model.phases import Phase
from orchard.model.plan import JobId
from orchard.store.logs import LogFiles
from orchard.surfaces.cli.render.last_lines import LONGEST, READ_AT_ONCE, LastLines
from orchard.surfaces.cli.render.progress import LiveTree, picture
from orchard.surfaces.cli.terminal import Terminal
from tests.surfaces.test_cli_render import LOOK, OID, PLAN, a_job, a_plan, begun, drawn, recorded, running

SECRET = "hunter2-hunter2-hunter2"


def a_run(*names: str) -> Run:
    return replay(recorded(*begun(a_plan(*[a_job(name) for name in names])), *[e for n in names for e in running(n)]))


def log_of(logs: LogFiles, name: str) -> Path:
    return logs.make(logs.path(PLAN, JobId(name), 1, Phase.WORK))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"", ""),
        (b"one\ntwo\n", "two"),
        (b"one\nhalf of a li", "one"),
        (b"one\n\n   \n", "one"),
        (b"10%\r50%\r90%\n", "90%"),
        (b"\x1b[31mred\x1b[0m \x1b]0;owned\x07\x1b[2J\n", "red"),
        (f"the key is {SECRET}\n".encode(), "the key is [redacted]"),
        (b"x" * 5000 + b"\n", ""),
        (b"y" * 20_000 + b"\nafter\n", "after"),
        (b"-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n", ""),
        (b"z" * 300 + b"\n", "z" * (LONGEST - 1) + "…"),
    ],
)
def test_the_last_whole_line_of_a_running_job_is_shown_as_text_without_secrets(
    tmp_path: Path, written: bytes, shown: str
) -> None:
    logs = LogFiles(tmp_path)
    log_of(logs, "a").write_bytes(written)

    found = LastLines(logs, [SECRET]).of(a_run("a"))

    assert {name: line.replace("***", "[redacted]") for name, line in found.items()} == {"a": shown}


def test_of_many_logs_that_grow_at_once_a_few_are_read_and_none_is_forgotten(tmp_path: Path) -> None:
    logs, names = LogFiles(tmp_path), [f"j{number}" for number in range(3 * READ_AT_ONCE)]
    run, lines = a_run(*names), LastLines(logs, [])
    for name in names:
        log_of(logs, name).write_bytes(b"one\n")
    read = [sum(bool(line) for line in lines.of(run).values()) for _ in range(3)]
    assert read == [READ_AT_ONCE, 2 * READ_AT_ONCE, 3 * READ_AT_ONCE]

    log_of(logs, "j5").write_bytes(b"one\ntwo\n")
    assert lines.of(run)[JobId("j5")] == "two", "what has not grown is not in the way"


def test_a_log_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    logs = LogFiles(tmp_path)
    path = log_of(logs, "a")
    path.unlink()
    os.mkfifo(path)
    began = time.monotonic()

    assert LastLines(logs, []).of(a_run("a")) == {"a": ""}
    assert time.monotonic() - began < 5


# ---------------------------------------------------------------------------------- how long it takes


def ended(*names: str) -> list[JobSucceeded]:
    return [JobSucceeded(JobId(name), 1, OID) for name in names]


def at(run: Run, seconds: float) -> float:
    return max(record.attempts[-1].started for record in run.records.values() if record.attempts) + seconds


def test_what_is_left_follows_the_needs_and_the_slots() -> None:
    jobs = [a_job("a"), a_job("b", "a"), a_job("c", "b"), *[a_job(f"x{number}") for number in range(8)]]
    run = replay(recorded(*begun(a_plan(*jobs)), *running("a")))
    before = dict.fromkeys(run.plan.jobs, 10.0)

    # Four at once: a and three x, then b and three x, then c, two x until 30, and the validation.
    assert seconds_left(run, before, at(run, 4)) == pytest.approx(40)
    less = {**before, **{job: 1.0 for job in before if job.startswith("x")}}
    assert seconds_left(run, less, at(run, 4)) == pytest.approx(6 + 10 + 10 + 10), "the chain decides"
    assert seconds_left(run, less, at(run, 400)) == pytest.approx(100 + 30), "a job that is late goes on for a while"


def test_without_a_past_the_jobs_that_ended_tell_and_before_that_nobody_does() -> None:
    plan = a_plan(*[a_job(name) for name in "abcd"])
    events = [*begun(plan), *[event for name in "abc" for event in running(name)]]
    assert seconds_left(replay(recorded(*events, *ended("a", "b"))), {}, 0) is None

    rows = [*recorded(*events, *ended("a", "b", "c"))]
    rows[-3:] = [Recorded(row.seq, rows[-1].at + 50, PLAN, row.event) for row in rows[-3:]]
    run = replay(rows)

    taken = seconds_taken(run).values()
    assert max(taken) == pytest.approx(60, abs=12)
    assert seconds_left(run, {}, rows[-1].at) == pytest.approx(2 * sum(taken) / 3)


def test_a_long_name_leaves_room_for_the_status_and_the_time() -> None:
    run = replay(recorded(*begun(a_plan(a_job("a"), name="long " * 30)), *running("a")))

    narrow = drawn(picture(run, replace(LOOK, columns=60), 20)).splitlines()[0]

    assert len(narrow[: narrow.index(PLAN)].rstrip()) == 60 and "~  running  " in narrow, narrow


def test_the_foot_of_a_plan_under_way_says_how_much_is_done_and_how_long_the_rest_takes() -> None:
    done = [event for name in "abc" for event in (*running(name), *ended(name))]
    run = replay(recorded(*begun(a_plan(*[a_job(name) for name in "abcde"])), *done, *running("d")))

    foot = drawn(picture(run, LOOK, 20))

    assert "############-------- 3/5  about " in foot and " left  1 running, 3 done, 1 waiting" in foot


def test_groups_in_which_nothing_happens_are_folded_where_the_screen_is_short() -> None:
    names = [f"{group}/j{number}" for group in ("old", "now", "next") for number in range(6)]
    done = [event for name in names[:6] for event in (*running(name), *ended(name))]
    run = replay(recorded(*begun(a_plan(*[a_job(name) for name in names])), *done, *running("now/j0")))

    tall, short, tiny = (drawn(picture(run, LOOK, height)) for height in (40, 14, 8))

    assert "old/" in tall and tall.count("succeeded") == 7
    assert "succeeded  6 jobs" in short and "6 jobs" in short.split("next/")[1] and "> now/" in short
    assert "running work" in short
    assert "now/j0" in tiny and "more jobs" in tiny


@pytest.mark.anyio
async def test_what_is_typed_is_not_written_into_the_picture_and_the_terminal_is_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "r") as keyboard:
        monkeypatch.setattr(sys, "stdin", keyboard)

        def echoes() -> bool:
            return bool(termios.tcgetattr(keyboard)[3] & termios.ECHO)

        assert echoes()
        with LiveTree(Terminal(), a_run("a")):
            assert not echoes()
        assert echoes()
    os.close(master)
