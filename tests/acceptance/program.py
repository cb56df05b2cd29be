"""The real program as a user has it: some terminals, a repository, and everything that can go wrong around them."""

import hashlib
import json
import os
import pty
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from orchard.testing import Repo
from tests.nursery import nursery

SECONDS = 60.0
MOVING = ("engine.lock", "daemon.json", "engine.log", "place.json", "info/exclude")
"""Files of ours that a verb which acts may touch without anything having happened."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def talk(self) -> str:
        return self.out + self.err


def until(condition: Callable[[], Any], what: str = "", seconds: float = SECONDS) -> Any:
    """Wait for something that other processes do; what the condition found is the answer."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not happen in {seconds:g} s: {what or condition}"
        time.sleep(0.02)
    return found


class Running:
    """A command that runs in a terminal of its own, with its output in files, so that no pipe can fill up."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: Path, err: Path) -> None:
        self.process, self._out, self._err = process, out, err

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def talk(self) -> str:
        return self.out + self._err.read_text(errors="replace")

    def shows(self, words: str) -> None:
        """Wait until it has printed these words."""
        until(lambda: words in self.out or self.process.poll() is not None, words)
        assert words in self.out, self._err.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = SECONDS) -> Done:
        """Wait for its end."""
        code = self.process.wait(seconds)
        done = Done(code, self.out, self._err.read_text(errors="replace"))
        assert "Traceback" not in done.err, done.err
        return done


class Desk:
    """A user with a repository, folders that are nobody else's, and as many terminals as wanted."""

    def __init__(self, folder: Path, repo: Repo | None = None, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.repo = repo or Repo.make(folder / "repo")
        self.env = env or self._environment()
        self._started: list[Running] = []

    def _environment(self) -> dict[str, str]:
        kept = {
            name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "ORCHARD_SANDBOX") if name in os.environ
        }
        # Short, because the path of a socket is.
        self.runtime = Path(tempfile.mkdtemp(prefix="orchard-"))
        places = {f"XDG_{name}_HOME": str(self.folder / name.lower()) for name in ("STATE", "CONFIG", "CACHE")}
        git = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        return {
            **kept, **places, **git, "HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.runtime), "TERM": "xterm",
        }  # fmt: skip

    def beside(self, name: str) -> "Desk":
        """Another repository of the same user."""
        return Desk(self.folder / name, Repo.make(self.folder / name / "repo"), self.env)

    @property
    def state(self) -> Path:
        return self.repo.path / ".git" / "orchard"

    def open_to_jobs(self, folder: Path) -> None:
        """Let jobs write there, behind whatever wall the tests run."""
        self.env["ORCHARD_SANDBOX_WRITE"] = str(folder)

    def plan(self, text: str, name: str = "plan.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    # ------------------------------------------------------------------------------- commands

    def start(self, *words: str | Path, terminal: int | None = None, **env: str) -> Running:
        """Begin a command and go on; with `terminal` it has that terminal, and it alone."""
        number = len(self._started)
        out, err = (self.folder / f"{name}-{number}" for name in ("out", "err"))
        argv = [sys.executable, "-m", "orchard", *map(str, words)]
        with out.open("wb") as to_out, err.open("wb") as to_err:
            ends: list[Any] = [subprocess.DEVNULL, to_out, to_err] if terminal is None else [terminal] * 3
            process = subprocess.Popen(
                argv, cwd=self.repo.path, env={**self.env, **env}, stdin=ends[0], stdout=ends[1], stderr=ends[2],
                start_new_session=True, preexec_fn=None if terminal is None else _take_terminal,  # noqa: PLW1509
            )  # fmt: skip
        self._started.append(Running(process, out, err))
        return self._started[-1]

    def on_a_terminal(self, *words: str | Path) -> tuple[Running, int]:
        """Begin a command on a terminal; the number is our end of it."""
        ours, theirs = pty.openpty()
        running = self.start(*words, terminal=theirs)
        os.close(theirs)
        return running, ours

    def __call__(self, *words: str | Path, cwd: Path | None = None, stdin: bytes = b"", **env: str | None) -> Done:
        """Run a command to its end; a variable that is None is not there."""
        given = {name: value for name, value in {**self.env, **env}.items() if value is not None}
        code, out, err = nursery().run([*map(str, words)], cwd or self.repo.path, given, stdin, SECONDS)
        said = Done(code, out.decode(errors="replace"), err.decode(errors="replace"))
        assert "Traceback" not in said.err, said.err
        return said

    def status(self, plan: str = "") -> Any:
        done = self("status", *([plan] if plan else []), "--json")
        assert done.code == 0, done.err
        return done.json

    def jobs(self, plan: str = "") -> dict[str, str]:
        """The status of every job of the plan's own."""
        return {job["id"]: job["status"] for job in self.status(plan)["jobs"] if not job["validation"]}

    # ---------------------------------------------------------------------------- what is there

    def events(self, name: str | None = None) -> list[tuple[Any, ...]]:
        """What the journal holds, read by nothing of ours."""
        path = self.state / "journal.db"
        if not path.is_file():
            return []
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute("SELECT seq, plan, name, body FROM events ORDER BY seq").fetchall()
        return [row for row in rows if name is None or row[2] == name]

    def fingerprint(self) -> tuple[str, list[tuple[Any, ...]]]:
        """Everything in the repository and its state that could have changed."""
        digest = hashlib.sha256()
        for path in sorted(self.repo.path.rglob("*")):
            name = str(path.relative_to(self.repo.path))
            if name.endswith(MOVING) or "journal.db" in path.name:
                continue
            if path.is_symlink() or path.is_file():  # an empty folder of ours is not a trace
                digest.update(os.fsencode(name))
                digest.update(os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes())
        return digest.hexdigest(), self.events()

    def git_bytes(self) -> dict[str, str]:
        """A hash of every file below .git, without those that SQLite shares between its readers."""
        found = {}
        for path in sorted((self.repo.path / ".git").rglob("*")):
            if path.is_file() and not path.name.endswith(("-shm", "-wal")):
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def family(self) -> list[psutil.Process]:
        """Every living process that works for a plan of this repository."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and self._is_ours(process):
                    found.append(process)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        env = process.environ()
        here = str(self.repo.path)
        return "ORCHARD_TOKEN" in env and env.get("ORCHARD_WORKTREE", "").startswith(here)

    def gits(self) -> list[psutil.Process]:
        """The git commands that are at work in this repository."""
        found = []
        for process in psutil.process_iter(["name"]):
            with suppress(psutil.Error):
                if process.name() == "git" and str(self.repo.path) in f"{process.cwd()} {process.environ()}":
                    found.append(process)
        return found

    def check_nothing_runs(self, seconds: float = 10.0) -> None:
        """P8: nothing of any job lives on."""
        until(lambda: not self.family(), f"the end of {self.family()}", seconds)

    def check_level(self) -> None:
        """The programs of every plan stood behind the wall that was asked for."""
        found = {json.loads(row[3])["sandbox"] for row in self.events("PlanStarted")}
        assert found <= {self.env["ORCHARD_SANDBOX"]}, found

    def check_sound(self) -> None:
        """Git finds everything, the checkout is as it was, and every commit that was told of exists."""
        assert self.repo("fsck", "--no-dangling", "--no-progress") == ""
        assert self.repo("status", "--porcelain") == ""
        for job in self.status()["jobs"]:
            if job["commit"] is not None:
                assert self.repo.exists(job["commit"]), job

    def close(self) -> None:
        """End whatever a failed test left."""
        for running in self._started:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait(10)
        with suppress(OSError, ValueError, TypeError, KeyError):
            os.kill(json.loads((self.state / "daemon.json").read_text())["pid"], signal.SIGKILL)
        for process in self.family():
            with suppress(psutil.Error):
                process.kill()
        if hasattr(self, "runtime"):
            shutil.rmtree(self.runtime, ignore_errors=True)


def _take_terminal() -> None:
    """Make stdin the controlling terminal, so that closing it hangs this process up."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def desks(folder: Path) -> Iterator[Desk]:
    """A desk that is cleared afterwards: the body of a fixture."""
    desk = Desk(folder)
    yield desk
    desk.close()
