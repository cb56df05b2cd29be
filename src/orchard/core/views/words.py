"""Figures and times in words, the same wherever people read them."""

from collections.abc import Mapping
from datetime import datetime

from orchard.core.views.documents import Changes, FileCounts


def duration(seconds: float) -> str:
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def moment(at: str | None) -> float | None:
    """The seconds since the epoch that a document's time means."""
    return None if at is None else datetime.fromisoformat(at).timestamp()


def elapsed(started: str | None, ended: str | None, now: float, idle: float = 0.0) -> str:
    """How long something took, or has taken up to now, without the time for which nobody worked on it."""
    begin, end = moment(started), moment(ended)
    return "" if begin is None else duration((now if end is None else end) - begin - idle)


def many(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def short(commit: str | None) -> str:
    return "(none)" if commit is None else commit[:10]


def changes(summary: FileCounts) -> str:
    """How many files a result changes, and how many lines of them, where that is known."""
    files = summary.added + summary.modified + summary.deleted
    if not files:
        return ""
    lines = ""
    if isinstance(summary, Changes) and (summary.lines_added or summary.lines_deleted):
        lines = f" +{summary.lines_added or 0:,} -{summary.lines_deleted or 0:,}"
    return f"{many(files, 'file')}{lines}"


VALIDATION_WORDS = {"running": "validating", "scheduled": "validating", "failed": "validation failed"}


def jobs_written(numbers: Mapping[str, int], validation: str | None) -> Mapping[str, int]:
    """Counts without the validation job, which Orchard adds; `validation`: its status, None where that is not known."""
    if validation is None or not numbers.get(validation):
        return numbers
    return {name: count - (name in (validation, "total")) for name, count in numbers.items()}


def counts(numbers: Mapping[str, int], validation: str | None) -> str:
    """`3 running, 5 done, 1 failed, 12 waiting`, of the jobs that the plan's author wrote."""
    numbers = jobs_written(numbers, validation)
    shown = {
        "running": numbers.get("running", 0) + numbers.get("scheduled", 0),
        "done": numbers.get("succeeded", 0),
        "failed": numbers.get("failed", 0),
        "blocked": numbers.get("blocked", 0),
        "canceled": numbers.get("canceled", 0),
        "waiting": numbers.get("pending", 0) + numbers.get("ready", 0),
    }
    told = [f"{count:,} {word}" for word, count in shown.items() if count] or ["no jobs"]
    return ", ".join([*told, *filter(None, [VALIDATION_WORDS.get(validation or "")])])


def amount(count: int) -> str:
    if not count:
        return "-"
    if count < 10_000:
        return f"{count:,}"
    value = float(count)
    for unit in ("k", "M", "G"):
        value /= 1000
        if value < 999.5:
            return f"{value:.3g}{unit}"
    return f"{value:,.0f}G"


def money(cost: float | None) -> str:
    """A cost, with as many digits as it needs to be seen."""
    if cost is None:
        return "-"
    return f"${cost:,.2f}" if cost >= 0.1 or not cost else f"${cost:.4f}"
