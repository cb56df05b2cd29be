"""A short program of the user's that is handed a text, such as the command that tells of a plan's end.

It is no part of a job: it has the user's whole environment, and no wall. What it prints goes nowhere. It stays in our
session: what is in another one, and no family's, is ended as an orphan of a job.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress


def run_errand(argv: Sequence[str], given: bytes, env: Mapping[str, str], seconds: float) -> str | None:
    """Run it to its end, and end it with all that it started when its time is up; the answer says what went wrong.

    It blocks, so it is called in a thread.
    """
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    except (OSError, ValueError) as error:
        return f"cannot be started: {getattr(error, 'strerror', None) or error}"
    assert process.stdin is not None
    try:
        process.communicate(given, seconds)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()
        process.wait()
        return f"did not end within {seconds:g} s, and was killed"
    return None if process.returncode == 0 else f"exited with {process.returncode}"
