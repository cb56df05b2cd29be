"""A git whose engine was killed is ended by the next one; others are left alone."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from orchard.git.leftovers import end_leftovers, left_behind
from orchard.git.repository import find_repository
from orchard.testing import Repo

STARTER = """
import sys
from pathlib import Path
from orchard.git.repository import find_repository
repo = find_repository(Path(sys.argv[1]))
repo.git("hash-object", "--", sys.argv[2], timeout=600)
"""


def start(repo: Repo, pipe: Path) -> subprocess.Popen[bytes]:
    """A process whose git waits for ever."""
    return subprocess.Popen([sys.executable, "-c", STARTER, str(repo.path), str(pipe)])


def waits(pid: int) -> list[int]:
    """The gits that a process has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for child in found.read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):  # a git of before it, which has just ended
                if Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1:2] == [b"hash-object"]:
                    return [int(child)]
        time.sleep(0.05)
    raise AssertionError("no git was started")


def test_a_git_whose_starter_was_killed_is_ended_and_one_that_is_waited_for_is_not(repo: Repo, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    common = find_repository(repo.path).common_dir
    killed, alive = start(repo, pipe), start(repo, pipe)
    try:
        [orphan], [wanted] = waits(killed.pid), waits(alive.pid)
        assert left_behind(common) == []
        killed.send_signal(signal.SIGKILL)
        killed.wait()

        assert [one.pid for one in left_behind(common)] == [orphan]
        assert left_behind(tmp_path) == []
        assert end_leftovers(common) == 1

        assert left_behind(common) == []
        assert Path(f"/proc/{wanted}").exists() and alive.poll() is None
    finally:
        for process in (killed, alive):
            process.kill()
            process.wait()
        end_leftovers(common)
