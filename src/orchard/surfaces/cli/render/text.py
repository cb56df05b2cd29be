"""What the command line says to people: words, durations, and sentences.

Everything here takes plain values and returns text or lines; nothing is printed. Text that came from
a plan or a job goes through `safe` before it is put into a sentence.
"""

from collections.abc import Mapping
from datetime import datetime

from orchard.core.views.words import changes as changes
from orchard.core.views.words import counts as counts
from orchard.core.views.words import duration as duration
from orchard.core.views.words import elapsed as elapsed
from orchard.core.views.words import jobs_written as jobs_written
from orchard.core.views.words import many as many
from orchard.core.views.words import moment as moment
from orchard.core.views.words import short as short
from orchard.surfaces.cli.render.lines import Line, Meaning, Piece, safe

MEANING: Mapping[str, Meaning] = {
    "succeeded": "good",
    "passed": "good",
    "failed": "bad",
    "running": "busy",
    "scheduled": "busy",
    "waiting": "wait",
    "held": "wait",
    "paused": "wait",
    "blocked": "wait",
    "interrupted": "wait",
    "canceled": "dim",
    "skipped": "dim",
    "pending": "dim",
    "ready": "dim",
    "scaffolding": "dim",
}

_MARKS = {
    "succeeded": "✔+",
    "failed": "✖x",
    "running": "▶>",
    "scheduled": "▷>",
    "waiting": "◆?",
    "paused": "‖=",
    "blocked": "◌-",
    "canceled": "⊘/",
    "ready": "·.",
    "pending": "·.",
}
MARKS: Mapping[str, str] = {status: mark[0] for status, mark in _MARKS.items()}
ASCII_MARKS: Mapping[str, str] = {status: mark[1] for status, mark in _MARKS.items()}

EXIT_CODES: Mapping[str, int] = {"succeeded": 0, "failed": 1, "canceled": 130}
"""The exit code that a plan's status becomes; every other status waits for somebody: 4."""

DETACHED = "Detached: the plan goes on in the engine that runs it."
LEFT = "The plan goes on in the background, in process {pid}."
FOOT_OWNER = "ctrl-c cancels the plan  ctrl-d leaves; the plan goes on in the background"
FOOT_FOLLOWER = "ctrl-c or ctrl-d leaves; the plan goes on"
CANCELING = "Canceling: Orchard stops the jobs and saves their work. Press ctrl-c again to stop at once."
HURRYING = "Stopping at once."
SUBTASKS_RUN = "This plan is waiting, but its subtasks are still running. Press ctrl-c to cancel it."
OTHER_PLANS_WAITING = (
    "This plan is waiting; other plans are still running in this engine. Press ctrl-c to cancel them all."
)
OTHER_PLANS = "This plan is done; other plans are still running in this engine. Press ctrl-c to cancel them."
NO_PLANS = "There is no plan yet. Start one with 'orchard run plan.yaml', or see 'orchard demo'."
NOTHING_SAVED = "There is no saved work."
NOTHING_CHANGED = "Nothing was changed."
NO_OUTPUT = "Nothing was printed."
LOG_REPLACED = "The job put something else in the place of its log {path}, which is not shown."
NOT_BEGUN = "Job '{job}' has not begun; it is {status}."
ASK_TRUST = "Do you agree to these settings?"
LEAVE_WATCH = "q quits; the plan goes on"
LEAVE_ENDED = "q quits; nothing is running"
NOTHING_TO_TRUST = "There is nothing to agree to: no setting of this repository waits for you."
TRUSTED = "Agreed. A change of these settings needs a new agreement."


# ---------------------------------------------------------------------------------------- words


def clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")


def day(at: str | None) -> str:
    """A moment for a list: the day and the minute."""
    return "" if at is None else datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")


def when(at: str | None, now: float) -> str:
    """A moment as people say it: the time today, the day this week, the date before that."""
    if at is None:
        return ""
    then, today = datetime.fromisoformat(at).astimezone(), datetime.fromtimestamp(now).astimezone()
    days = (today.date() - then.date()).days
    if days in (0, 1):
        return f"{'today' if days == 0 else 'yesterday'} {then:%H:%M}"
    if 1 < days < 7:
        return f"{then:%a %H:%M}"
    return f"{then.day} {then:%b}" if then.year == today.year and days > 0 else f"{then:%Y-%m-%d}"


def status_piece(status: str, word: str | None = None) -> Piece:
    return word or status, MEANING.get(status, "")


def bytes_text(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


# ------------------------------------------------------------------------------------ sentences


def see_help(command: str) -> str:
    return f"Run '{command} --help'."


def next_command(hint: str) -> Line:
    return [("next: ", "wait"), (safe(hint), "strong")]


def wall(level: str, shown: Meaning = "") -> Piece:
    """The wall around a plan's programs: in red where there is none, and the weaker one is called so."""
    if level == "off":
        return "sandbox off", "bad"
    if level == "landlock":
        return "sandbox landlock (weaker: see 'orchard doctor')", shown
    return f"sandbox {safe(level)}", shown


def warning(message: object) -> Line:
    return [("warning: ", "wait"), (safe(message, 2000), "")]


def done(sentence: str) -> Line:
    return [(safe(sentence), "")]


def raw(row: str) -> Line:
    """Text that is safe already, as it is."""
    return [(row, "")]


def next_retry(plan: str, job: str | None = None) -> Line:
    return next_command(f"orchard retry {job} --plan {plan}" if job else f"orchard retry {plan}")
