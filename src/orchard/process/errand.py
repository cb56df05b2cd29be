"""A short program of the user's that is handed a text, such as the command that tells of a plan's end.

It is no part of a job: it has the user's whole environment, and no wall. What it prints goes nowhere,
unless it was asked something. It stays in our
session: what is in another one, and no family's, is ended as an orphan of a job.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from msgspec import Struct


def run_errand(
    argv: Sequence[str],
    given: bytes,
    env: Mapping[str, str],
    seconds: float,
    output: IO[bytes] | int = subprocess.DEVNULL,
    complaint: IO[bytes] | int = subprocess.DEVNULL,
) -> str | None:
    """Run it to its end, and end it with all that it started when its time is up; the answer says what went wrong.

    It blocks, so it is called in a thread.
    """
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=complaint,
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


class Asked(Struct, frozen=True):
    """What a program left that was asked something."""

    output: bytes
    complaint: bytes
    """What it printed on its standard error."""
    problem: str
    """What went wrong; empty: nothing."""


def ask_errand(argv: Sequence[str], given: bytes, env: Mapping[str, str], seconds: float, most: int) -> Asked:
    """As `run_errand`, for a program that answers: with at most so many bytes, kept in files that have no name."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaint:
        problem = run_errand(argv, given, env, seconds, output, complaint) or ""
        answers = []
        for file in (output, complaint):
            file.seek(0)
            answers.append(file.read(most + 1))
    if len(answers[0]) > most:
        return Asked(b"", answers[1], f"printed more than {most:,} bytes")
    return Asked(answers[0], answers[1], problem)
