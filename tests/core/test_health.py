"""Whether a worker is well, by the rules alone: every condition at its time, and none where it is only quiet."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.agents.protocol import digest
from orchard.core.health import (
    COMMAND_SECONDS,
    MOST_CALLS,
    RETRY_SECONDS,
    START_SECONDS,
    Activity,
    Call,
    conditions,
    due,
    wants_cpu,
)
from orchard.core.health_replay import APPLY_HEALTH
from orchard.core.records import Attempt, JobRecord, Subtask, Turn
from orchard.core.run import Run
from orchard.model.events.plans import HealthNoted, MessageSent
from orchard.model.health import ALARMS, Health
from orchard.model.phases import Phase
from orchard.model.plan import JobId, PlanId

DEFAULT = Health()


@dataclass
class Fake:
    """A worker, a clock that is set by hand, and somebody who looks whenever the rules say that it is time."""

    health: Health = DEFAULT
    cpu: Callable[[float], float] = lambda now: 0.0
    now: float = 1000.0
    activity: Activity = field(default_factory=lambda: Activity(1000.0, 1000.0))
    found: list[tuple[float, str]] = field(default_factory=list)
    """Each condition when it began to hold, in seconds since the turn began."""
    looks: int = 0
    holds: set[str] = field(default_factory=set)

    def wait(self, seconds: float) -> "Fake":
        """Let time pass, with every look that falls due in it."""
        end = self.now + seconds
        while (at := due(self.activity, self.health, self.now)) is not None and at <= end:
            self.now = at
            self.look()
        self.now = end
        return self.look()

    def look(self) -> "Fake":
        if wants_cpu(self.activity, self.health, self.now):
            self.looks += 1
            self.activity.look(self.now, self.cpu(self.now))
        holds = {one.condition for one in conditions(self.activity, self.health, self.now)}
        self.found += [(self.now - 1000.0, name) for name in sorted(holds - self.holds)]
        self.holds = set(holds)
        return self

    def call(self, tool: str = "read", input: str = "x", *, failed: bool = False) -> "Fake":
        self.activity.called(self.now, Call(tool, input, input))
        if failed:
            self.activity.failed(self.now, tool, input)
        return self.look()

    def says(self, words: str = "hm") -> "Fake":
        self.activity.touch(self.now, "output", words)
        return self.look()

    def traffic(self) -> "Fake":
        self.activity.touch(self.now, "traffic")
        return self.look()

    @property
    def alarms(self) -> list[tuple[float, str]]:
        return [(at, name) for at, name in self.found if name in ALARMS]


# ------------------------------------------------------------------------------ each at its time


def test_a_worker_is_slow_after_its_time_and_once() -> None:
    fake = Fake()
    for _ in range(40):
        fake.wait(20).says()

    assert fake.found == [(300.0, "slow")]


def test_a_worker_is_stuck_when_nothing_was_seen_for_its_time() -> None:
    fake = Fake(Health(slow=None)).wait(100).says().wait(1000)

    assert fake.found == [(400.0, "stuck")]


def test_a_worker_that_acts_again_is_not_stuck_and_can_be_stuck_anew() -> None:
    fake = Fake(Health(slow=None)).says().wait(400).says()
    assert not fake.holds

    fake.wait(400)
    assert fake.found == [(300.0, "stuck"), (700.0, "stuck")]


def test_processes_that_begin_to_work_again_end_it_too() -> None:
    fake = Fake(Health(slow=None), cpu=lambda now: max(0.0, now - 1500.0)).says().wait(1000)

    assert fake.found == [(300.0, "stuck")]
    assert not fake.holds


def test_a_program_that_is_starting_is_not_stuck_and_one_that_never_says_a_word_is_after_a_minute_more() -> None:
    impatient = Health(slow=None, stuck=10)
    assert Fake(impatient).wait(START_SECONDS - 1).says().wait(5).found == []
    assert Fake(impatient).wait(1000).found == [(START_SECONDS + 10, "stuck")]
    assert Fake(impatient).says().wait(1000).found == [(10.0, "stuck")], "from its first word on silence counts"


@pytest.mark.parametrize("kind", ["note", "traffic"])
def test_what_an_agent_tells_before_its_model_answers_does_not_end_its_start(kind: str) -> None:
    fake = Fake(Health(slow=None, stuck=10)).wait(5)
    fake.activity.touch(fake.now, kind)

    assert fake.wait(1000).found == [(START_SECONDS + 10, "stuck")]


@pytest.mark.parametrize("kind", ["output", "call", "answer"])
def test_the_first_answer_of_the_model_does(kind: str) -> None:
    fake = Fake(Health(slow=None, stuck=10)).wait(5)
    fake.activity.touch(fake.now, kind)

    assert fake.wait(1000).found == [(15.0, "stuck")]


def test_the_same_call_five_times_in_a_row_is_a_loop() -> None:
    fake = Fake()
    for _ in range(4):
        fake.call(input="same")
    assert not fake.holds
    fake.call(input="same")
    assert fake.holds == {"looping"}
    assert "same call 5 times in a row: read: same" in conditions(fake.activity, DEFAULT, fake.now)[0].evidence
    fake.call(input="other")
    assert not fake.holds


def test_two_calls_by_turns_are_a_loop() -> None:
    fake = Fake()
    for _ in range(3):
        fake.call(input="a").call(input="b")

    assert fake.found == [(0.0, "looping")]


@pytest.mark.parametrize("inputs", ["abcabcabcabc", "aaaabaaaab", "abacabadabac", "ababacababac"])
def test_calls_that_differ_are_none(inputs: str) -> None:
    fake = Fake()
    for one in inputs:
        fake.call(input=one)

    assert not fake.found


def test_calls_whose_input_is_not_known_are_none() -> None:
    fake = Fake()
    for _ in range(20):
        fake.activity.called(fake.now, Call("edit", "a.py", ""))

    assert not fake.look().holds


@pytest.mark.parametrize("tool", ["await_subtasks", "mcp__orchard__await_subtasks", "orchard/a2a_await_subtasks"])
def test_waiting_for_subtasks_again_and_again_is_none(tool: str) -> None:
    fake = Fake()
    for _ in range(10):
        fake.call(tool, "same")
    for _ in range(10):
        fake.call(tool, "same").call(input="same")

    assert not fake.found


def test_calls_without_input_can_be_a_loop_and_those_whose_input_is_not_known_cannot() -> None:
    assert digest({}) and digest({}) != digest({"a": 1})
    assert digest(None) == digest("") == ""


def test_most_of_the_last_ten_calls_failed() -> None:
    fake = Fake()
    for number in range(9):
        fake.call(input=str(number), failed=True)
    assert not fake.holds, "nine are too few to tell"
    fake.call(input="9")
    assert fake.holds == {"failing"}
    for number in range(10, 15):
        fake.call(input=str(number))
    assert not fake.holds, "half of them is not most"


def test_each_is_off_with_nothing() -> None:
    fake = Fake(Health(idle=None, slow=None, stuck=None, looping=0, failing=0))
    for _ in range(30):
        fake.call(failed=True).wait(10_000)

    assert not fake.found and due(fake.activity, fake.health, fake.now) is None


# ------------------------------------------------------------------------------ quiet, and well


def _thinks(fake: Fake) -> None:
    for _ in range(180):
        fake.wait(20).traffic()


def _tests(fake: Fake) -> None:
    fake.cpu = lambda now: 0.9 * (now - 1000.0)
    fake.call("run_tests").wait(3600)


def _builds(fake: Fake) -> None:
    fake.cpu = lambda now: 0.01 * (now - 1000.0)
    fake.call("build").wait(7200)


def _builds_elsewhere(fake: Fake) -> None:
    fake.call("Bash").wait(COMMAND_SECONDS)


def _works_by_fits(fake: Fake) -> None:
    fake.cpu = lambda now: (now // 200) * 5.0
    fake.wait(3600)


def _is_limited(fake: Fake) -> None:
    for _ in range(10):
        fake.activity.touch(fake.now, "retry")
        fake.wait(RETRY_SECONDS + 200)


def _awaits_subtasks(fake: Fake) -> None:
    fake.call("await_subtasks")
    fake.activity.rest(fake.now)
    fake.wait(20_000)
    fake.activity.go_on(fake.now)
    fake.look().wait(200).says()


def _awaits_a_person(fake: Fake) -> None:
    fake.wait(200)
    for _ in range(3):
        fake.activity.rest(fake.now)
        fake.wait(5000)
        fake.activity.go_on(fake.now)
        fake.look()


def _sleeps(fake: Fake) -> None:
    """The clock stands still while the machine sleeps; where it does not, who comes late forgives the time."""
    fake.wait(250)
    fake.now += 50_000
    fake.activity.forgive(50_000)
    fake.look().says().wait(40)


def _talks(fake: Fake) -> None:
    for _ in range(60):
        fake.wait(60).says()


def _polls(fake: Fake) -> None:
    for number in range(30):
        fake.call("fetch", f"page {number}").wait(120)


def _edits(fake: Fake) -> None:
    for number in range(60):
        fake.call("edit", f"one file, text {number}").wait(5)


def _tries_and_fixes(fake: Fake) -> None:
    for number in range(20):
        fake.call("bash", "make test", failed=number % 2 == 0).wait(30)
        fake.call("edit", f"fix {number}").wait(30)


def _looks_twice(fake: Fake) -> None:
    for number in range(20):
        fake.call("read", f"file {number}").call("read", f"file {number}").wait(1)


def _fails_often_at_first(fake: Fake) -> None:
    for number in range(4):
        fake.call("read", f"guess {number}", failed=True)
    for number in range(20):
        fake.call("read", f"found {number}", failed=number % 5 == 4)


def _says_nothing_until_the_end(fake: Fake) -> None:
    fake.wait(299).says()


def _starts_slowly(fake: Fake) -> None:
    fake.wait(250).traffic().wait(250).call().wait(250).says()


def _reads_for_long_after_a_start_with_words_of_its_own(fake: Fake) -> None:
    """An agent tells of its session at once; its model answers when it has read everything."""
    fake.activity.touch(fake.now, "note", "The session cannot be saved.")
    fake.wait(START_SECONDS + 290).traffic().wait(290).says()


def _lets_a_server_run(fake: Fake) -> None:
    fake.cpu = lambda now: 0.005 * (now - 1000.0)
    for _ in range(20):
        fake.wait(290).says()


def _loses_a_child(fake: Fake) -> None:
    """CPU time shrinks when a process with a past ends: that is activity as well."""
    fake.cpu = lambda now: 500.0 - (now - 1000.0) * 0.1
    fake.wait(3000)


def _goes_on_after_a_rest(fake: Fake) -> None:
    fake.wait(100)
    fake.activity.rest(fake.now)
    fake.wait(10_000)
    fake.activity.go_on(fake.now)
    fake.look().wait(290).says()


QUIET = [
    _thinks, _tests, _builds, _builds_elsewhere, _works_by_fits, _is_limited, _awaits_subtasks, _awaits_a_person,
    _sleeps, _talks, _polls, _edits, _tries_and_fixes, _looks_twice, _fails_often_at_first, _starts_slowly,
    _says_nothing_until_the_end, _lets_a_server_run, _loses_a_child, _goes_on_after_a_rest,
    _reads_for_long_after_a_start_with_words_of_its_own,
]  # fmt: skip


@pytest.mark.parametrize("does", QUIET, ids=lambda one: one.__name__.strip("_"))
def test_a_worker_that_is_only_quiet_is_no_alarm(does: Callable[[Fake], None]) -> None:
    fake = Fake()
    does(fake)

    assert fake.alarms == []


def test_a_rest_and_the_sleep_of_the_machine_do_not_make_a_turn_slow() -> None:
    fake = Fake().wait(250)
    fake.activity.rest(fake.now)
    fake.wait(1000)
    fake.activity.go_on(fake.now)
    fake.look().wait(40).says()
    assert not fake.found

    fake.wait(10)
    assert fake.found == [(1300.0, "slow")]


def test_a_command_that_hangs_for_an_hour_is_stuck_after_all() -> None:
    fake = Fake(Health(slow=None)).call("bash").wait(2 * COMMAND_SECONDS)

    assert fake.found == [(COMMAND_SECONDS + 300, "stuck")]


def test_a_model_that_never_comes_back_is_stuck_after_all() -> None:
    fake = Fake(Health(slow=None))
    fake.activity.touch(fake.now, "retry")
    fake.wait(3600)

    assert fake.found == [(RETRY_SECONDS + 300, "stuck")]


# ------------------------------------------------------------------------------ what it costs


def test_a_silent_worker_is_looked_at_rarely() -> None:
    fake = Fake(cpu=lambda now: now).wait(24 * 3600)

    assert fake.looks <= 24 * 3600 / 300 + 2


@given(
    st.lists(st.tuples(st.sampled_from(["call", "fail", "say", "wait", "rest", "go", "retry"]), st.integers(0, 400)))
)
def test_whatever_happens_memory_is_bounded_and_the_next_look_is_to_come(steps: list[tuple[str, int]]) -> None:
    fake = Fake()
    for kind, number in steps:
        if kind in ("call", "fail"):
            fake.call(str(number % 3), str(number % 7), failed=kind == "fail")
        elif kind == "wait":
            fake.wait(number)
        elif kind == "rest":
            fake.activity.rest(fake.now)
        elif kind == "go" and fake.activity.resting:
            fake.activity.go_on(fake.now)
        else:
            fake.activity.touch(fake.now, "retry" if kind == "retry" else "output", "x" * number)
        at = due(fake.activity, fake.health, fake.now)
        assert at is None or at > fake.now
        assert len(fake.activity.calls) <= MOST_CALLS and len(fake.activity.doing) <= 200
        if fake.activity.resting:
            assert at is None and not conditions(fake.activity, fake.health, fake.now)


# ------------------------------------------------------------------------------------------ idle workers


def test_what_was_said_to_a_worker_is_counted_for_this_worker_alone() -> None:
    job, one = JobId("a"), Subtask("s", 1, "one", "x", "0" * 40, 0.0)
    turn = Turn("one", "subtask", Phase.WORK, 0.0, subtask="s")
    record = JobRecord(attempts=[Attempt(1, 0.0, Phase.WORK, turns=[turn])], subtasks={"s": one})
    record.messages += [MessageSent(job, 1, "To the job."), MessageSent(job, 2, "And again.")]
    one.messages.append(MessageSent(job, 1, "To the subtask.", "s"))
    run = Run(PlanId("p"))
    run.records[job] = record

    APPLY_HEALTH[HealthNoted](run, HealthNoted(job, 1, "idle", "It waits.", "ask", "s"), 1.0)

    assert [mark.messages for mark in turn.marks] == [1]
    assert (record.messages_to(None), record.messages_to("s")) == (2, 1)
