"""What running jobs printed last, for whoever looks at a plan while it runs."""

from collections.abc import Iterable
from pathlib import Path

from orchard.core.run import Run
from orchard.model.plan import JobId
from orchard.store.logs import LogFiles, log_size, read
from orchard.store.redact import KEY_LENGTH, Redactor
from orchard.text import for_screen, one_line

WINDOW = 4096
"""Bytes from the end of a log. A line that does not begin in it is not shown: a secret could be cut through."""
LONGEST = 200
READ_AT_ONCE = 8
"""Logs, the longest unread first: what many jobs print at once costs no more than what a few print."""


class LastLines:
    """The last whole line of each log, read again only where the log has grown."""

    def __init__(self, logs: LogFiles, secrets: Iterable[str]) -> None:
        self._logs = logs
        self._redactor = Redactor(secrets)
        self._known: dict[Path, tuple[int | None, str]] = {}

    def of(self, run: Run) -> dict[JobId, str]:
        logs: dict[JobId, Path] = {}
        for job in run.active:
            attempt = run.records[job].attempts[-1] if run.records[job].attempts else None
            # Of an agent its activity is told.
            if attempt is not None and attempt.phases and all(turn.ended is not None for turn in attempt.turns):
                logs[job] = self._logs.path(run.id, job, attempt.number, attempt.phases[-1].phase)
        self._known = {path: self._known.get(path, (None, "")) for path in self._in_turn(logs.values())}
        grown = [path for path, (size, _) in self._known.items() if log_size(path) != size]
        for path in grown[:READ_AT_ONCE]:
            del self._known[path]
            self._known[path] = self._read(path)
        return {job: self._known[path][1] for job, path in logs.items()}

    def _in_turn(self, paths: Iterable[Path]) -> list[Path]:
        wanted = set(paths)
        return [*(path for path in self._known if path in wanted), *(wanted - self._known.keys())]

    def _read(self, path: Path) -> tuple[int | None, str]:
        size = log_size(path)
        data = read(path, max(0, (size or 0) - KEY_LENGTH), KEY_LENGTH).data
        if b"PRIVATE KEY" in data:
            return size, ""
        if len(data) > WINDOW:
            data = data[-WINDOW:].partition(b"\n")[2]
        whole = self._redactor.whole(data.rpartition(b"\n")[0])
        rows = for_screen(whole.decode(errors="replace")).split("\n")
        return size, next((one_line(row.strip(), LONGEST) for row in reversed(rows) if row.strip()), "")
