"""The machine that is measured on: what it is, and whether it does something else meanwhile."""

import os
import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import psutil
from msgspec import Struct, field

from orchard.bench.place import git

LOOK = 0.5
"""Seconds for which the processors are watched before something is measured."""

BUSY = 20.0
"""Per cent of all processors that others may use before a machine is not quiet."""


class Watch(Struct):
    """The facts of one run of measuring: taken when it begins, before each measure, and when it ends."""

    folder: Path
    look: float = LOOK
    begun: float = field(default_factory=time.monotonic)
    load_before: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))
    busiest: float = 0.0

    def glance(self) -> None:
        if self.look:
            self.busiest = max(self.busiest, psutil.cpu_percent(self.look))

    @property
    def quiet(self) -> bool:
        return self.busiest <= BUSY

    def facts(self) -> dict[str, object]:
        return {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "system": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count() or 1,
            "file_system": file_system(self.folder),
            "git": git(self.folder, "--version").removeprefix("git version "),
            "python": platform.python_version(),
            "load_before": self.load_before,
            "load_after": round(os.getloadavg()[0], 1),
            "busy_percent": round(self.busiest),
            "quiet": self.quiet,
            "seconds": round(time.monotonic() - self.begun, 1),
        }


def file_system(folder: Path) -> str:
    place = str(folder.resolve())
    mounts = [part for part in psutil.disk_partitions(all=True) if _holds(part.mountpoint, place)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"


def _holds(mount: str, place: str) -> bool:
    return place == mount or place.startswith(mount.rstrip("/") + "/")


def described(facts: Mapping[str, object]) -> str:
    return (
        f"{facts['date']}, {facts['system']}, {facts['cores']} cores, {facts['file_system']}, git {facts['git']}, "
        f"Python {facts['python']}, load {facts['load_before']} before and {facts['load_after']} after."
    )


def caution(facts: Mapping[str, object]) -> str | None:
    if facts["quiet"]:
        return None
    return (
        f"The machine was not quiet: others used up to {facts['busy_percent']} % of its processors. "
        "Trust the ratios more than the times, and measure again when it is."
    )
