"""A git command that answers on a pipe until it is closed."""

import contextlib
import os
import select
import subprocess
import tempfile
import time

from orchard.errors import Next, OrchardError
from orchard.git.command import TERMINATE_GRACE, Git, start_git

ANSWER_TIMEOUT = 60.0
READ_AT_ONCE = 64 * 1024
"""What a pipe holds. Most answers are one short line, and a buffer that is much larger costs more than reading it."""


class GitGone(OrchardError):
    """A git process that was kept open ended, or gave no answer in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=("Try again; if it happens again, run '", Next("get_doctor"), "'."))


class LiveGit:
    """A git command that stays open; not thread-safe, one question at a time."""

    def __init__(self, git: Git, *args: str, unbuffered: bool = False) -> None:
        self._name = args[0]
        self._errors = _unnamed_file()
        try:
            self._process = start_git(args, cwd=git.cwd, env=git.env, errors=self._errors, unbuffered=unbuffered)
        except BaseException:
            os.close(self._errors)
            raise
        self._received = bytearray()

    def say(self, question: bytes) -> None:
        """Send a question, which must be short enough for a pipe to take it whole."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question)
        except (BrokenPipeError, ValueError) as error:
            raise self._gone() from error

    def read_until(self, end: bytes, timeout: float = ANSWER_TIMEOUT) -> bytes:
        deadline, searched = time.monotonic() + timeout, 0
        while (found := self._received.find(end, searched)) < 0:
            searched = max(0, len(self._received) - len(end) + 1)
            self._receive(deadline)
        answer = bytes(self._received[:found])
        del self._received[: found + len(end)]
        return answer

    def read_exactly(self, size: int, timeout: float = ANSWER_TIMEOUT) -> bytes:
        deadline = time.monotonic() + timeout
        while len(self._received) < size:
            self._receive(deadline)
        answer = bytes(self._received[:size])
        del self._received[:size]
        return answer

    def _receive(self, deadline: float) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        # Not `select`: it fails on descriptors above 1023, which a busy daemon has.
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise GitGone(f"'git {self._name}' gave no answer in time.")
        data = os.read(descriptor, READ_AT_ONCE)
        if not data:
            raise self._gone()
        self._received += data

    def _gone(self) -> GitGone:
        """Why it ended, in its own last words."""
        said = os.pread(self._errors, 4096, max(0, os.fstat(self._errors).st_size - 4096))
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        return GitGone(f"'git {self._name}' ended unexpectedly{f': {last}' if last else '.'}")

    def close(self) -> None:
        """End the process: it leaves when its input is closed, and is stopped if it does not."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        os.close(self._errors)
        for stop in (None, process.terminate, process.kill):
            if stop is not None:
                stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TERMINATE_GRACE)
                return


def _unnamed_file() -> int:
    """A file that goes away with its last user."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("git-errors", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
