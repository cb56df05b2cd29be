"""One plan, several terminals: what runs in one can be looked at, steered, stopped and left from all the others."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.acceptance.program import Desk, Running, desks, until

BIG = "end of the log"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def gate(desk: Desk, name: str) -> str:
    """Shell work that says it has begun and goes on when the test opens its gate."""
    return f"touch {desk.folder}/{name}.on; until test -e {desk.folder}/{name}.go; do sleep 0.05; done"


def begun(desk: Desk, name: str) -> None:
    try:
        until((desk.folder / f"{name}.on").exists, f"the start of {name}")
    except AssertionError as error:
        error.add_note(desk("list").talk + desk("status").talk + "\n".join(map(str, desk.events())))
        error.add_note((desk.state / "engine.log").read_text() if (desk.state / "engine.log").exists() else "no log")
        raise


def open_gate(desk: Desk, *names: str) -> None:
    for name in names:
        (desk.folder / f"{name}.go").touch()


def two_in_a_row(desk: Desk, name: str = "Row") -> Path:
    """A plan of a job that waits at its gate, and one after it."""
    text = f"""
name: {name}
target: {name.lower()}
jobs:
  - {{id: first, work: "echo 1 > first.txt; echo first begins; {gate(desk, f"{name}-first")}; echo first ends"}}
  - {{id: second, needs: [first], work: "echo 2 > second.txt"}}
"""
    return desk.plan(text, f"{name}.yaml")


def run_two(desk: Desk) -> Running:
    owner = desk.start("run", two_in_a_row(desk))
    begun(desk, "Row-first")
    return owner


# ---------------------------------------------------------------------------- looking and steering


def test_everything_can_be_looked_at_while_it_runs(desk: Desk) -> None:
    owner = run_two(desk)
    verbs = ("list", "status", "job first", "attempts first", "logs first", "graph", "doctor", "recover")

    shown = {words: desk(*words.split()) for words in verbs}
    timed_out = desk("wait", "--timeout", "0.2")
    open_gate(desk, "Row-first")

    assert {words: done.code for words, done in shown.items()} == dict.fromkeys(verbs, 0)
    assert "running" in shown["status"].out and "running" in shown["list"].out
    assert shown["logs first"].out == "first begins\n"
    assert timed_out.code == 124
    assert owner.end().code == 0


def test_a_paused_plan_finishes_what_runs_starts_nothing_and_goes_on_when_resumed(desk: Desk) -> None:
    owner = run_two(desk)

    paused = desk("pause")
    open_gate(desk, "Row-first")
    stopped = owner.end()
    between = desk.jobs()
    resumed = desk("resume")

    assert paused.code == 0 and stopped.code == 4
    assert between == {"first": "succeeded", "second": "ready"}
    assert resumed.code == 0, resumed.talk
    assert set(desk.repo.files("row")) == {"README.md", "first.txt", "second.txt"}


def test_a_pause_can_be_taken_back_before_anything_was_held_up(desk: Desk) -> None:
    owner = run_two(desk)

    codes = [desk("pause").code, desk("pause").code]
    follower = desk.start("resume")
    until(lambda: desk.events("PlanResumed"))
    open_gate(desk, "Row-first")

    assert codes == [0, 0]
    assert (owner.end().code, follower.end().code) == (0, 0)
    assert len(desk.events("Landed")) == 1


def test_a_cancel_from_elsewhere_ends_the_owner_and_everybody_who_waits(desk: Desk) -> None:
    owner = run_two(desk)
    waiting = desk.start("wait")
    following = desk.start("logs", "first", "-f")
    following.shows("first begins")

    canceled = desk("cancel")

    assert canceled.code == 0, canceled.err
    assert (owner.end().code, waiting.end().code, following.end().code) == (130, 130, 0)
    assert desk.jobs() == {"first": "canceled", "second": "canceled"}
    desk.check_nothing_runs()
    assert not desk.repo.exists("refs/heads/row")


def test_what_was_canceled_can_be_retried_and_lands_once(desk: Desk) -> None:
    owner = run_two(desk)
    desk("cancel")
    owner.end()
    open_gate(desk, "Row-first")

    again = desk("retry")

    assert again.code == 0, again.talk
    assert len(desk.events("Landed")) == 1
    desk.check_sound()


def test_a_failed_job_is_retried_while_others_still_run(desk: Desk) -> None:
    text = f"""
name: Mend
target: mend
jobs:
  - {{id: slow, work: "{gate(desk, "slow")}; echo 1 > slow.txt"}}
  - {{id: weak, work: "test -e {desk.folder}/mended && echo 2 > weak.txt"}}
"""
    owner = desk.start("run", desk.plan(text))
    begun(desk, "slow")
    until(lambda: desk.jobs()["weak"] == "failed")
    (desk.folder / "mended").touch()

    follower = desk.start("retry", "weak")
    until(lambda: desk.jobs()["weak"] == "succeeded")
    still = desk.jobs()["slow"]
    open_gate(desk, "slow")

    assert still == "running"
    assert (owner.end().code, follower.end().code) == (0, 0)
    assert {"slow.txt", "weak.txt"} < set(desk.repo.files("mend"))


def test_a_log_is_followed_to_its_last_line(desk: Desk) -> None:
    text = f"""
name: Talk
target: talk
jobs:
  - {{id: talk, work: "echo hello; {gate(desk, "talk")}; seq 20000; echo {BIG}; echo x > x.txt"}}
"""
    owner = desk.start("run", desk.plan(text))
    begun(desk, "talk")
    follower = desk.start("logs", "talk", "-f")
    follower.shows("hello")

    open_gate(desk, "talk")
    done = follower.end()

    assert done.code == 0
    assert done.out.splitlines() == ["hello", *map(str, range(1, 20001)), BIG]
    assert owner.end().code == 0


def test_a_job_is_approved_while_another_one_runs(desk: Desk) -> None:
    text = f"""
name: Ask
target: ask
jobs:
  - {{id: slow, work: "{gate(desk, "slow")}; echo 1 > slow.txt"}}
  - {{id: asks, approve: true, work: "echo 2 > asks.txt"}}
"""
    owner = desk.start("run", desk.plan(text))
    begun(desk, "slow")
    until(lambda: desk.events("JobHeld"))

    follower = desk.start("approve", "asks", "--yes")
    until(lambda: desk.jobs()["asks"] == "succeeded")
    open_gate(desk, "slow")

    assert (owner.end().code, follower.end().code) == (0, 0)
    assert {"slow.txt", "asks.txt"} < set(desk.repo.files("ask"))


def test_a_job_that_is_failed_by_hand_stops_and_blocks_what_needs_it(desk: Desk) -> None:
    owner = run_two(desk)

    failed = desk("force-fail", "first", "--reason", "it loops")
    ended = owner.end()

    assert failed.code == 0 and ended.code == 1
    assert desk.jobs() == {"first": "failed", "second": "blocked"}
    assert "it loops" in desk("job", "first").out
    desk.check_nothing_runs()


def test_a_running_plan_gets_another_job_and_loses_one(desk: Desk) -> None:
    owner = run_two(desk)
    change = b'[{"op": "add", "job": {"id": "third", "needs": ["first"], "work": "echo 3 > third.txt"}}]'

    shaped = desk("reshape", "Row", "-", "--remove", "second", stdin=change)
    open_gate(desk, "Row-first")

    assert shaped.code == 0, shaped.err
    assert owner.end().code == 0
    assert set(desk.repo.files("row")) == {"README.md", "first.txt", "third.txt"}


# ------------------------------------------------------------------------------- several at once


def test_a_second_run_hands_its_plan_over_and_follows_it(desk: Desk) -> None:
    owner = run_two(desk)
    follower = desk.start("run", two_in_a_row(desk, "Next"))
    begun(desk, "Next-first")
    holder = desk("doctor", "--json").code

    open_gate(desk, "Next-first")
    done = follower.end()
    open_gate(desk, "Row-first")

    assert holder == 0
    assert done.code == 0 and "Landed on next" in done.out and "row" not in done.out
    assert owner.end().code == 0
    assert len(desk.events("Landed")) == 2


def test_many_runs_at_the_same_moment_all_land(desk: Desk) -> None:
    """Whoever comes first is the engine, also when it is about to end as the next one comes."""
    plans = [
        desk.plan(f"name: n{n}\ntarget: tn{n}\njobs: [{{id: a, work: 'echo {n} > n{n}.txt'}}]", f"{n}.yaml")
        for n in range(8)
    ]

    ended = [run.end() for run in [desk.start("run", path) for path in plans]]
    plans_now = desk("list", "--json").json

    assert {plan["status"] for plan in plans_now} == {"succeeded"}
    assert [done.err for done in ended if done.code] == []
    assert len(plans_now) == 8
    assert len(desk.events("Landed")) == len(plans_now)
    assert all(f"{plan['name']}.txt" in desk.repo.files(f"t{plan['name']}") for plan in plans_now)


def test_a_plan_that_is_handed_over_as_the_engine_ends_is_still_run(desk: Desk) -> None:
    """The second plan is being looked at while the first one ends: it must not fall between two engines."""
    git = shutil.which("git")
    slow = f"touch {desk.folder}/asked; until test -e {desk.folder}/answer; do sleep 0.05; done"
    wrapper = desk.folder / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *check-ref-format*late) {slow};; esac\nexec {git} "$@"\n')
    wrapper.chmod(0o755)
    owner = desk.start("run", two_in_a_row(desk), PATH=f"{wrapper.parent}:{desk.env['PATH']}")
    begun(desk, "Row-first")
    late = desk.start(
        "run", desk.plan("name: Late\ntarget: late\njobs: [{id: a, work: 'echo 1 > 1.txt'}]", "late.yaml")
    )
    until((desk.folder / "asked").exists)

    open_gate(desk, "Row-first")
    until(lambda: desk.events("Landed"))
    time.sleep(0.5)  # time for the engine to end too early; without the fault nothing depends on it
    (desk.folder / "answer").touch()

    assert owner.end().code == 0
    assert late.end().code == 0
    assert "1.txt" in desk.repo.files("late")


def test_a_plan_in_the_background_is_waited_for_read_and_canceled(desk: Desk) -> None:
    started = desk("run", two_in_a_row(desk), "--detach")
    begun(desk, "Row-first")
    waiting = desk.start("wait")
    log = desk("logs", "first")
    open_gate(desk, "Row-first")
    landed = waiting.end()
    again = desk("run", two_in_a_row(desk, "Next"), "--detach", "--json").json["plan"]
    begun(desk, "Next-first")
    canceled = desk("cancel", again)

    assert started.code == 0 and "first begins" in log.out
    assert landed.code == 0
    assert canceled.code == 0
    assert desk.status(again)["plan"]["status"] == "canceled"
    desk.check_nothing_runs()


def test_the_engine_in_the_background_ends_when_nobody_needs_it(desk: Desk) -> None:
    desk("run", desk.plan("name: x\ntarget: t\njobs: [{id: a, work: 'echo 1 > 1'}]"), "--detach")
    assert desk("wait").code == 0

    until(lambda: not (desk.state / "daemon.json").exists(), "the end of the engine", 20)

    assert desk.status()["plan"]["landed"]


# ------------------------------------------------------------------------------ leaving and ending


def test_an_owner_ends_quietly_while_others_listen(desk: Desk) -> None:
    owner = run_two(desk)
    follower = desk.start("wait")
    until(lambda: _listens(follower), "the follower's connection")
    open_gate(desk, "Row-first")

    assert owner.end().err == "Orchard commits as Ada Tester <ada@example.com>.\n"
    assert follower.end().code == 0


@pytest.mark.parametrize("words", [["run"], ["run", "--json"]], ids=" ".join)
def test_a_plan_goes_on_when_its_output_cannot_be_written(desk: Desk, words: list[str]) -> None:
    """A full disk behind `> log`, or a reader that ends before the first line, is no reason to stop work."""
    plan = desk.plan("name: x\ntarget: t\njobs: [{id: a, work: 'echo 1 > 1.txt'}]")
    argv = [sys.executable, "-m", "orchard", *words, str(plan)]

    with Path("/dev/full").open("wb") as full:
        onto_full = subprocess.run(
            argv, cwd=desk.repo.path, env=desk.env, stdout=full, stderr=full, timeout=60, check=False
        )
    reading, writing = os.pipe()
    os.close(reading)
    unread = subprocess.run(
        argv, cwd=desk.repo.path, env=desk.env, stdout=writing, stderr=writing, timeout=60, check=False
    )
    os.close(writing)

    # A program that reads JSON must not take half of it for the whole; who stopped reading wants no more.
    assert (onto_full.returncode, unread.returncode) == (1 if "--json" in words else 0, 0)
    assert len(desk.events("PlanSubmitted")) == 2
    assert {plan["status"] for plan in desk("list", "--json").json} == {"succeeded"}


def test_an_answer_that_cannot_be_written_is_an_error(desk: Desk) -> None:
    desk("run", desk.plan("name: x\ntarget: t\njobs: [{id: a, work: 'echo 1; echo 1 > 1.txt'}]"))
    for verb in (["list"], ["status", "--json"], ["logs", "a"], ["diff", "a"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "orchard", *verb],
                cwd=desk.repo.path,
                env=desk.env,
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=60,
                check=False,
            )
        assert (done.returncode, done.stderr) == (1, b"error: The output cannot be written: No space left on device.\n")


def test_ctrl_c_in_a_follower_leaves_and_the_plan_goes_on(desk: Desk) -> None:
    owner = run_two(desk)
    follower = desk.start("run", two_in_a_row(desk, "Next"))
    begun(desk, "Next-first")
    follower.shows("first  work  started")

    follower.signal(signal.SIGINT)
    left = follower.end()
    still = desk.jobs("Next")["first"]
    open_gate(desk, "Row-first", "Next-first")

    assert left.code == 130 and still == "running"
    assert owner.end().code == 0
    assert "second.txt" in desk.repo.files("next")


def test_a_hangup_of_the_owner_takes_no_plan_with_it(desk: Desk) -> None:
    owner = run_two(desk)

    owner.signal(signal.SIGHUP)
    assert desk.jobs()["first"] == "running"
    open_gate(desk, "Row-first")
    done = owner.end()

    assert done.code == 0, done.talk
    assert set(desk.jobs().values()) == {"succeeded"}
    desk.check_nothing_runs()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_a_signal_to_the_owner_cancels_saves_the_work_and_leaves_nothing(desk: Desk, number: signal.Signals) -> None:
    owner = run_two(desk)

    owner.signal(number)
    done = owner.end()

    assert done.code == 130, done.talk
    assert desk.jobs()["first"] == "canceled"
    assert kept(desk, "first.txt") == "1\n"
    desk.check_nothing_runs()
    desk.check_sound()


def kept(desk: Desk, name: str) -> str:
    """A file out of the work that was saved last."""
    saved = desk("recover", "--json").json
    assert saved, "nothing was saved"
    assert desk("recover", saved[-1]["ref"], desk.folder / "rescued").code == 0
    return (desk.folder / "rescued" / name).read_text()


def test_a_second_ctrl_c_skips_the_grace(desk: Desk) -> None:
    stubborn = f"trap '' TERM INT HUP; echo 1 > first.txt; {gate(desk, 'stubborn')}"
    owner = desk.start("run", desk.plan(f"name: x\ntarget: t\njobs:\n  - {{id: a, work: \"{stubborn}\"}}\n"),
                       ORCHARD_GRACE="50")  # fmt: skip
    begun(desk, "stubborn")
    began = time.monotonic()

    owner.signal(signal.SIGINT)
    until(lambda: "Canceling" in owner.talk)
    owner.signal(signal.SIGINT)
    done = owner.end(30)

    assert done.code == 130 and time.monotonic() - began < 30
    assert kept(desk, "first.txt") == "1\n"
    desk.check_nothing_runs()


def test_closing_the_terminal_lets_the_plan_go_on_and_leaves_nothing(desk: Desk) -> None:
    owner, terminal = desk.on_a_terminal("run", two_in_a_row(desk))
    begun(desk, "Row-first")
    read_some(terminal, b"first")

    os.close(terminal)
    assert desk.jobs()["first"] == "running"
    open_gate(desk, "Row-first")
    owner.process.wait(30)

    desk.check_nothing_runs()
    desk.check_sound()
    assert set(desk.jobs().values()) == {"succeeded"}


def test_ctrl_d_gives_the_terminal_back_and_the_plan_goes_on_in_the_background(desk: Desk) -> None:
    owner, terminal = desk.on_a_terminal("run", two_in_a_row(desk))
    begun(desk, "Row-first")
    read_some(terminal, b"ctrl-d leaves")
    engine = json.loads((desk.state / "daemon.json").read_text())["pid"]

    os.write(terminal, b"git status\n")  # what is typed beside it means nothing
    os.write(terminal, b"\x04")
    shown = read_some(terminal, b"orchard watch row")
    assert owner.process.wait(30) == 130, "the shell has its prompt"
    assert f"in process {engine}".encode() in shown and b"git status" not in shown
    os.close(terminal)
    assert desk.jobs()["first"] == "running" and psutil.Process(engine).ppid() != owner.pid
    open_gate(desk, "Row-first")
    assert desk("wait").code == 0
    until(lambda: not psutil.pid_exists(engine), "the end of the engine")

    desk.check_nothing_runs()
    assert set(desk.jobs().values()) == {"succeeded"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda one: one.name)
def test_a_signal_to_who_waits_at_the_terminal_is_one_to_the_engine(desk: Desk, number: signal.Signals) -> None:
    owner, terminal = desk.on_a_terminal("run", two_in_a_row(desk))
    begun(desk, "Row-first")
    engine = json.loads((desk.state / "daemon.json").read_text())["pid"]

    owner.signal(number)
    code = owner.process.wait(30)
    until(lambda: not psutil.pid_exists(engine), "the end of the engine")
    os.close(terminal)

    assert engine != owner.pid and code == (-9 if number == signal.SIGKILL else 130)
    assert number == signal.SIGKILL or desk.jobs()["first"] == "canceled"


def test_ctrl_c_at_a_terminal_is_heard_once_and_cancels(desk: Desk) -> None:
    owner, terminal = desk.on_a_terminal("run", two_in_a_row(desk))
    begun(desk, "Row-first")
    read_some(terminal, b"ctrl-c cancels")

    os.write(terminal, b"\x03")
    shown = b""
    with suppress(OSError):  # it is closed when the command has ended
        while more := os.read(terminal, 65536):
            shown += more
    assert owner.process.wait(30) == 130
    os.close(terminal)

    assert b"Canceling" in shown and b"Stopping at once" not in shown
    assert desk.jobs()["first"] == "canceled"


def read_some(terminal: int, words: bytes) -> bytes:
    """Read a terminal until these words have appeared."""
    shown = b""
    while words not in shown:
        assert select.select([terminal], [], [], 30)[0], shown
        shown += os.read(terminal, 65536)
    return shown


def test_a_plan_is_watched_from_another_terminal_until_q(desk: Desk) -> None:
    owner = run_two(desk)
    watcher, terminal = desk.on_a_terminal("watch")
    read_some(terminal, b"running")

    os.write(terminal, b"q")
    code = watcher.process.wait(30)
    os.close(terminal)
    open_gate(desk, "Row-first")

    assert code == 0
    assert owner.end().code == 0


@pytest.mark.parametrize("words", [["wait"], ["logs", "first", "-f"], ["resume"]], ids=" ".join)
def test_those_who_follow_an_engine_that_is_killed_are_told_and_end(desk: Desk, words: list[str]) -> None:
    owner = run_two(desk)
    named = [desk.status()["plan"]["id"]] if words == ["resume"] else []
    follower = desk.start(*words, *named)
    until(lambda: _listens(follower), "the follower's connection")

    owner.signal(signal.SIGKILL)
    done = follower.end(30)

    assert done.code in (1, 4), done.talk
    assert "resume" in done.talk or "orchard status" in done.talk
    assert desk("wait").code == 4


def _listens(follower: Running) -> bool:
    """Whether the follower has a socket open, besides what every program has."""
    links = []
    for link in Path(f"/proc/{follower.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since the folder was listed
            links.append(str(link.readlink()))
    return len([link for link in links if link.startswith("socket:")]) >= 4
