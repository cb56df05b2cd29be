"""A shell on a terminal, as a reader of the pages has it: its folder and variables stay from command to command."""

import fcntl
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from orchard.testing import Repo
from tests.acceptance.program import Desk

SECONDS = 90.0
QUESTION = re.compile(r"\[y/N\]:? ?$")
SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[=>()][0-9A-B]?|\][^\x07]*\x07)")


class Shell:
    """Runs what a page shows, in a repository of the desk's."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.names: dict[str, str] = {}
        """What stands in a page for something of the reader's own: the id of a plan, an address."""
        self._variables, self._folder = desk.folder / "shell-variables", desk.folder / "shell-folder"
        self._folder.write_text(str(desk.repo.path))
        self._variables.write_text("")
        programs = desk.folder / "bin"
        programs.mkdir()
        _write_program(programs / "orchard", f'exec {shlex.quote(sys.executable)} -m orchard "$@"')
        identity = desk.folder / "gitconfig"
        identity.write_text("[user]\nname = Ada Tester\nemail = ada@example.com\n[init]\ndefaultBranch = main\n")
        desk.env |= {
            "PATH": f"{programs}:{desk.env['PATH']}",
            "PAGER": "cat",
            "TERM": "dumb",
            "GIT_CONFIG_GLOBAL": str(identity),
        }

    @property
    def folder(self) -> Path:
        return Path(self._folder.read_text().strip())

    @property
    def repo(self) -> Repo:
        """The repository that the reader is in."""
        return Repo(self.folder)

    def go(self, folder: Path) -> None:
        self._folder.write_text(str(folder))

    def program(self, name: str, script: str) -> None:
        """Put a program on the reader's path."""
        _write_program(self.desk.folder / "bin" / name, script)

    def write(self, name: str, text: str) -> None:
        """Leave a file where the reader is."""
        (self.folder / name).write_text(text)

    def settings(self, text: str) -> None:
        """The reader's own configuration."""
        place = self.desk.folder / "config" / "orchard" / "config.toml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def run(self, command: str, until: str | None = None) -> tuple[int, str]:
        """Type a command and answer yes to what it asks; with `until`, press ctrl-c after these words."""
        for name, meant in self.names.items():
            command = command.replace(name, meant)
        script = (
            f'set -a; . "{self._variables}"; cd "$(cat "{self._folder}")"\n{command}\n'
            f'code=$?; export -p > "{self._variables}"; pwd > "{self._folder}"; exit $code\n'
        )
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        process = subprocess.Popen(
            ["bash", "-c", script], env=self.desk.env, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )  # fmt: skip
        os.close(theirs)
        try:
            said = _talk(process, ours, until)
        finally:
            if process.poll() is None:
                process.kill()
            code = process.wait(10)
            os.close(ours)
        assert not re.search(r'^  File ".*orchard/.*, line', said, re.MULTILINE), said
        for name, meant in self.names.items():
            said = said.replace(meant, name)
        return code, said


def _write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _talk(process: "subprocess.Popen[bytes]", terminal: int, until: str | None) -> str:
    """Everything that a command prints until it ends."""
    said, answered, deadline = "", 0, time.monotonic() + SECONDS
    while True:
        assert time.monotonic() < deadline, f"no end after {SECONDS:g} s: {said[-3000:]}"
        more = _read(terminal)
        if more is None or (not more and process.poll() is not None):
            return said
        said = SEQUENCE.sub("", said + more).replace("\r\n", "\n")
        if QUESTION.search(said[answered:]):
            os.write(terminal, b"y\n")
            answered = len(said)
        if until is not None and until in said:
            os.write(terminal, b"\x03")
            until = None


def _read(terminal: int) -> str | None:
    """What came within a moment; None if nothing can come any more."""
    if not select.select([terminal], [], [], 0.05)[0]:
        return ""
    try:
        return os.read(terminal, 65536).decode(errors="replace") or None
    except OSError:
        return None
