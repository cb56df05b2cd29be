"""Run tests in memory, and those that failed once more, alone: `python tools/run_tests.py -n 4 -m "not slow"`.

A third of the time of the tests is waiting for a disk that syncs. Where memory has room, their folders are there;
`make test-all` runs the same tests on the disk.

Thousands of tests run beside each other on few cores. A few of them wait for programs by the clock, and a machine that
stands still for a minute makes them fail. What fails alone as well has failed; what passes then is named at the end, so
that it is looked into. More than a few failures are no accident, and get no second look.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FAILED = 1
"""Pytest's exit code where tests failed; every other one above 0 says that something else is wrong."""
MOST = 8
MEMORY = Path("/dev/shm")  # noqa: S108: only a folder that nobody else can enter is made there
ROOM = 6 * 1024**3


def main(words: list[str]) -> int:
    """Pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="t-", dir=_roomy(), ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # tests become another user, who has to get to their own folders
        cache = Path(folder) / "cache"
        code = _pytest(folder, cache, words)
        failed = _failed(cache)
        if code != FAILED or not 0 < len(failed) <= MOST:
            return code
        print(f"\nSECOND LOOK: {len(failed)} failed beside others; each now runs alone.", flush=True)
        code = _pytest(folder, cache, failed)
        if code == 0:
            print("PASSED ONLY ALONE:", *failed, sep="\n  ", flush=True)
        return code


def _roomy() -> Path | None:
    """Where memory can be used as a disk that is large enough; None: on the disk."""
    if os.environ.get("ORCHARD_TEST_AGENTS"):
        return None  # programs that make a sandbox of their own have another /dev/shm in it
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free >= ROOM and os.access(MEMORY, os.W_OK) else None
    except OSError:
        return None


def _pytest(folder: str, cache: Path, words: list[str]) -> int:
    # A path that is short: sockets are made below it.
    argv = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", f"--basetemp={folder}/t", *words]
    return subprocess.run(argv, env={**os.environ, "TMPDIR": folder}, check=False).returncode


def _failed(cache: Path) -> list[str]:
    try:
        return sorted(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
