"""Whether a worker is well: from what was seen of it so far, which conditions hold now, and when to look again.

`Activity` remembers what a worker does in one turn; everything in it is bounded. Times are seconds of a clock that
stands still while the machine sleeps. Four things are told apart from silence that is a bad sign:

    a rest      the worker waits for somebody else: its subtasks, a person, the next try after a rate limit
    a retry     the agent says that it asks its model again, soon; silence counts again after `RETRY_SECONDS`
    a start     its model has not answered yet: until `START_SECONDS` its program may load, and its model read
    a command   a shell runs for the agent, perhaps a build that prints nothing; it may, for `COMMAND_SECONDS`

CPU is looked at only when everything else is silent: once early in the silence, to have something to compare with, and
once when the time is over. A family that has used some since then is at work.
"""

import re
from collections import deque
from collections.abc import Iterator

from msgspec import Struct, field

from orchard.model.health import Condition, Health

RETRY_SECONDS = 180.0
START_SECONDS = 60.0
COMMAND_SECONDS = 3600.0
FIRST_LOOK = 0.1
"""The part of `stuck` after which CPU is looked at for the first time."""
CPU_SHARE = 0.001
"""A family that uses less of a core than this is waiting: runtimes wake up for their own housekeeping."""
MOST_CALLS = 100
"""Calls that are remembered, by a digest of their input; no setting looks further back."""
ABOUT = 200

_ANSWERS = frozenset({"output", "call", "answer"})
_WAITS = re.compile(r"(?<![A-Za-z])await_subtasks\b")
"""A tool of our own server that waits, whatever an agent puts before its name: it is there to be called again."""
_COMMAND = re.compile(r"bash|shell|exec|command|terminal|^sh$", re.IGNORECASE)


class Call(Struct):
    tool: str
    about: str
    input: str
    """A digest of what it was called with; empty: not known, and equal to no other."""
    failed: bool = False

    @property
    def shown(self) -> str:
        return f"{self.tool}: {self.about}" if self.about else self.tool


class Activity(Struct):
    """What was seen of a worker in its turn."""

    began: float
    active: float
    """When something was seen of it last."""
    kind: str = "turn"
    """What that was: `turn` (its begin), `output`, `call`, `answer`, `note`, `traffic`, `cpu`, or `retry`."""
    answered: bool = False
    """Whether its model has said or done anything. What an agent tells of itself is no answer: some tell at once."""
    doing: str = ""
    """What it does now, as far as it is known: the last call of a tool, or the last words."""
    calls: deque[Call] = field(default_factory=lambda: deque(maxlen=MOST_CALLS))
    command: float | None = None
    """When the command of a shell began that still runs, as far as it is known."""
    resting: int = 0
    """How many of its calls and waits are a rest; while there is one, no time counts."""
    rested: float = 0.0
    since: float = 0.0
    """When the rest began that is under way."""
    cpu: float | None = None
    """Seconds of CPU at the last look."""
    looked: float = 0.0
    """When it was that much, for the first time as far as it is known."""

    def touch(self, now: float, kind: str, doing: str = "") -> None:
        self.active, self.kind, self.cpu = now, kind, None
        if kind != "cpu":
            self.command = None
        if kind in _ANSWERS:
            self.answered = True
        if doing:
            self.doing = doing[:ABOUT]

    def called(self, now: float, call: Call) -> None:
        if _WAITS.search(call.tool):
            call.input = ""
        self.calls.append(call)
        self.touch(now, "call", call.shown)
        if _COMMAND.search(call.tool):
            self.command = now

    def failed(self, now: float, tool: str, about: str) -> None:
        """A call has failed: the newest of that tool about that, or else the newest of that tool."""
        open_ = [one for one in reversed(self.calls) if one.tool == tool and not one.failed]
        found = next((one for one in open_ if one.about == about), open_[0] if open_ else None)
        if found is not None:
            found.failed = True
        self.touch(now, "output")

    def rest(self, now: float) -> None:
        self.resting += 1
        if self.resting == 1:
            self.since = now

    def go_on(self, now: float) -> None:
        self.resting -= 1
        if not self.resting:
            self.rested += now - self.since
            self.touch(now, "traffic")

    def forgive(self, seconds: float) -> None:
        """Leave out a time in which nobody was there to watch."""
        self.began += seconds
        self.active += seconds
        self.looked += seconds
        self.since += seconds
        if self.command is not None:
            self.command += seconds

    def look(self, now: float, cpu: float) -> None:
        """Take in how much CPU its processes have used by now: more, or less because one has left, is activity."""
        first = self.cpu is None
        if not first and abs(cpu - (self.cpu or 0.0)) > CPU_SHARE * (now - self.looked):
            self.touch(now, "cpu")
        if self.cpu is None:
            self.cpu, self.looked = cpu, now

    @property
    def silence_counts_from(self) -> float:
        if self.command is not None:
            return max(self.active, self.command + COMMAND_SECONDS)
        counts = self.active + (RETRY_SECONDS if self.kind == "retry" else 0.0)
        return counts if self.answered else max(counts, self.began + START_SECONDS)

    def stuck_at(self, seconds: float) -> float | None:
        """When it has been silent for so long, its CPU looked at nearly all the time; None: nobody has looked yet."""
        if self.cpu is None:
            return None
        return max(self.silence_counts_from, self.looked - FIRST_LOOK * seconds) + seconds


class Found(Struct, frozen=True):
    condition: Condition
    evidence: str


def conditions(activity: Activity, health: Health, now: float) -> list[Found]:
    """Those that hold now; CPU has been looked at where `wants_cpu` said so."""
    if activity.resting:
        return []
    by_time = [*_slow(activity, health, now), *_stuck(activity, health, now)]
    return [*by_time, *_looping(activity, health), *_failing(activity, health)]


def wants_cpu(activity: Activity, health: Health, now: float) -> bool:
    """Whether it has been silent for so long that its processes have to be looked at."""
    if activity.resting or not health.stuck:
        return False
    at = activity.stuck_at(health.stuck)
    return now >= (activity.silence_counts_from + FIRST_LOOK * health.stuck if at is None else at)


def due(activity: Activity, health: Health, now: float) -> float | None:
    """When a condition can begin or end next by time alone, or CPU has to be looked at; None: not before it acts."""
    if activity.resting:
        return None
    times: list[float] = []
    if health.slow:
        times.append(activity.began + activity.rested + health.slow)
    if health.stuck:
        at = activity.stuck_at(health.stuck)
        first = activity.silence_counts_from + FIRST_LOOK * health.stuck
        times.append(first if at is None else at if at > now else now + health.stuck)
    return min((at for at in times if at > now), default=None)


def idle_evidence(health: Health, said: str) -> str:
    words = f' Its last words: "{_one_line(said)}"' if said else ""
    return f"It has waited {_time(health.idle or 0.0)} for a message.{words}"


def _slow(activity: Activity, health: Health, now: float) -> Iterator[Found]:
    at_work = now - activity.began - activity.rested
    if health.slow and at_work >= health.slow:
        yield Found("slow", f"Its turn has taken {_time(at_work)} so far{_now(activity)}.")


def _stuck(activity: Activity, health: Health, now: float) -> Iterator[Found]:
    at = activity.stuck_at(health.stuck) if health.stuck else None
    if at is not None and now >= at:
        silent = _time(now - activity.active)
        yield Found("stuck", f"For {silent} there was no output, no call, no traffic and no CPU use{_now(activity)}.")


def _looping(activity: Activity, health: Health) -> Iterator[Found]:
    many = min(health.looping, MOST_CALLS)
    if many < 2:
        return
    last = list(activity.calls)[-many - 1 :]
    same = last[-many:]
    if len(same) == many and _equal(same):
        yield Found("looping", f"It has made the same call {_row(activity)} times in a row: {same[-1].shown}.")
        return
    if len(last) > many and _equal(last[0::2]) and _equal(last[1::2]):
        both = f"{last[-2].shown}, and {last[-1].shown}"
        yield Found("looping", f"It has made two calls by turns, the last {many + 1} times: {both}.")


def _row(activity: Activity) -> int:
    last, count = activity.calls[-1], 0
    for call in reversed(activity.calls):
        if (call.tool, call.input) != (last.tool, last.input):
            break
        count += 1
    return count


def _equal(calls: list[Call]) -> bool:
    first = calls[0]
    return bool(first.input) and all((one.tool, one.input) == (first.tool, first.input) for one in calls)


def _failing(activity: Activity, health: Health) -> Iterator[Found]:
    many = min(health.failing, MOST_CALLS)
    last = list(activity.calls)[-many:] if many else []
    failed = [one for one in last if one.failed]
    if many and len(last) == many and 2 * len(failed) > many:
        yield Found("failing", f"{len(failed)} of its last {many} calls failed, the last of them {failed[-1].shown}.")


def _now(activity: Activity) -> str:
    return f" (last: {_one_line(activity.doing)})" if activity.doing else ""


def _one_line(text: str) -> str:
    shown = " ".join(text.split())
    return shown if len(shown) <= ABOUT else shown[: ABOUT - 1] + "…"


def _time(seconds: float) -> str:
    if seconds < 120:
        return "1 second" if round(seconds) == 1 else f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
