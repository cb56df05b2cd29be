"""One repository, one plan and one fault: what is tried, what is judged, and what is kept for a replay.

A fault strikes while a plan runs or lies interrupted, and is lifted again. Whatever the program says in
between is judged at once: an exit code that means something, the reason in words, no exception of
Python's. Then nothing may be lost, the user's checkout is as it was, and the commands that the program
itself names bring the plan to its one end: exactly the expected tree on the target.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from msgspec import to_builtins

from orchard.app import open_app
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.acceptance.conftest import picture
from tests.acceptance.program import Desk, Done, Running, until

TARGET = "goal"
LINES = "".join(f"{number}\n" for number in range(1, 12))
STEPS = 12
EXCEPTION = re.compile(r"\b[A-Z]\w*(Error|Exception)\b: |Traceback")
"""An exception of Python's where a person expects a sentence."""

# What every job does: say that it is at work, wait while it is held, leave a file and an edit of its own.
WORK = """\
here=$1 name=$2 line=$3 fails=$4
echo "$ORCHARD_PLAN $name $ORCHARD_ATTEMPT" >> "$here/ran"
touch "$here/on.$name"
while test -e "$here/hold"; do sleep 0.03; done
if test -n "$fails" && ! test -e "$here/tried.$name"; then touch "$here/tried.$name"; exit 3; fi
echo "$name" > "$name.txt" || exit 1
sed "s/^$line\\$/$name/" shared.txt > .new && mv .new shared.txt || exit 1
touch "$here/made.$name"
"""


@dataclass(frozen=True)
class Row:
    """A job: the line of the shared file that it edits, and what else is special about it."""

    name: str
    line: int
    needs: tuple[str, ...] = ()
    check: bool = False
    fails_first: bool = False
    again: bool = False


SHAPES: dict[str, tuple[Row, ...]] = {
    "single": (Row("a", 5),),
    "diamond": (Row("a", 5), Row("b", 1, ("a",)), Row("c", 9, ("a",)), Row("d", 11, ("b", "c"))),
    "wide": (
        Row("w1", 1, check=True),
        Row("w2", 4, check=True),
        Row("w3", 7, check=True, fails_first=True),
        Row("w4", 10, check=True, again=True),
    ),
}


class Scene(Desk):
    """A user in the middle of something, a plan of one shape, and the story of what happened to both."""

    def __init__(self, folder: Path, shape: str, seed: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        files = {"README.md": "# small\n", "shared.txt": LINES, "notes.txt": "notes\n"}
        super().__init__(folder, Repo.make(folder / "repo", files=files))
        self.shape, self.seed = SHAPES[shape], seed
        self.target = TARGET
        self.words = ""
        self.codes = {0, 1, 4}
        self.landings = 1
        self.heard: list[int] = []
        self.claimed = False
        """Whether the last thing that was said about the plan is that it is done."""
        self._verbs: dict[int, str] = {}
        self.story: list[str] = []
        self.extra: dict[str, str] = {}
        """What others put on the target meanwhile."""
        self.lost: set[str] = set()
        """Jobs whose uncommitted files the fault itself destroys."""
        self.forgetful = False
        """Whether the fault takes events from the journal that were safe in it."""
        self.marks = folder / "marks"
        """Where jobs and the test tell each other how far they are."""
        self.marks.mkdir()
        self.open_to_jobs(self.marks)
        (self.marks / "work.sh").write_text(WORK)
        (self.marks / "hold").touch()
        self.release()
        self.repo.write({"notes.txt": "notes, half written\n", "mine.txt": "mine\n", "staged.txt": "staged\n"})
        self.repo("add", "staged.txt")
        self.look()

    # ------------------------------------------------------------------------------------ the plan

    @property
    def plan_file(self) -> Path:
        """The plan as it is asked for now."""
        rows = [f"name: Fault\ntarget: {self.target}\nverify: {self._verify()}\nmax_parallel: 2\njobs:"]
        rows += [self._job(row) for row in self.shape]
        return self.plan("\n".join(rows) + "\n")

    def _verify(self) -> str:
        return " && ".join(f"grep -qx {row.name} shared.txt" for row in self.shape)

    def _job(self, row: Row) -> str:
        fails = "fails" if row.fails_first else ""
        command = f"sh {shlex.quote(str(self.marks / 'work.sh'))} {shlex.quote(str(self.marks))} {row.name} {row.line}"
        fields = [f"id: {row.name}", f'work: "{command} {fails}"']
        fields += [f"needs: [{', '.join(row.needs)}]"] if row.needs else []
        fields += [f"postchecks: test -f {row.name}.txt"] if row.check else []
        fields += ["retry_on_interrupt: true"] if row.again else []
        return f"  - {{{', '.join(fields)}}}"

    @property
    def expected(self) -> dict[str, str]:
        """Every file that the target must hold in the end, and no other."""
        edits = {str(row.line): row.name for row in self.shape}
        shared = "".join(f"{edits.get(line, line)}\n" for line in LINES.split())
        base = {"README.md": "# small\n", "shared.txt": shared, "notes.txt": "notes\n"}
        return {**base, **{f"{row.name}.txt": f"{row.name}\n" for row in self.shape}, **self.extra}

    # -------------------------------------------------------------------------------- the commands

    def begin(self, *words: str | Path, through: tuple[str, ...] = (), **env: str) -> Running:
        """Start a command; `through` goes before the program's own words."""
        number = len(self._started)
        out, err = (self.folder / f"{name}-{number}" for name in ("out", "err"))
        argv = [*(through or (sys.executable, "-m", "orchard")), *map(str, words)]
        self.story.append(f"$ orchard {shlex.join(map(str, words))}   # {number} {through or ''} {env or ''}")
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                argv, cwd=self.repo.path, env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=to_out,
                stderr=to_err, start_new_session=True,
            )  # fmt: skip
        self._started.append(Running(process, out, err))
        self._verbs[process.pid] = str(words[0])
        return self._started[-1]

    def ask(self, *words: str | Path, through: tuple[str, ...] = (), **env: str) -> Done:
        """Run a command to its end and judge what it said."""
        return self.hear(self.begin(*words, through=through, **env))

    def hear(self, running: Running) -> Done:
        """The end of a command, judged."""
        code = running.process.wait(60)
        self.heard.append(code)
        if self._verbs[running.pid] in ("run", "resume", "retry", "land"):
            self.claimed = code == 0
        done = Done(code, running.out, running.talk[len(running.out) :])
        self.story.append(f"{done.talk}\n-> {code}")
        self.judge(done)
        return done

    def judge(self, done: Done) -> None:
        """What holds for every answer of the program, whatever is broken."""
        assert not EXCEPTION.search(done.talk), done.talk
        assert done.code in self.codes, f"exit code {done.code}: {done.talk}"
        if done.code != 0:
            own = "|exited with 3" if any(row.fails_first for row in self.shape) else ""
            assert re.search(f"{self.words}{own}", done.talk, re.IGNORECASE), f"no word of {self.words}: {done.talk}"
            assert re.search(r"hint: |next: |orchard \w+", done.talk), f"nothing says what to do: {done.talk}"

    def killed_at(self, place: str) -> None:
        """Run the plan until the engine dies at a failpoint; its lock, socket and address stay behind."""
        running = self.begin("run", self.plan_file, ORCHARD_FAILPOINT=f"{place}:kill")
        assert running.process.wait(60) == -signal.SIGKILL, running.talk
        until(lambda: not self.gits(), "the end of the git commands that were under way")
        self.story.append(f"killed at {place}")

    @contextmanager
    def at_work(self, *, through: tuple[str, ...] = (), **env: str) -> Iterator[Running]:
        """Run the plan; the block happens while its first jobs are at work, then they go on to their end."""
        (self.marks / "hold").touch()
        owner = self.begin("run", self.plan_file, through=through, **env)
        until(lambda: self.first_pid or owner.process.poll() is not None, "the first job at work")
        try:
            yield owner
        finally:
            self.release()
        self.hear(owner)

    def release(self) -> None:
        (self.marks / "hold").unlink(missing_ok=True)

    @property
    def first_pid(self) -> int | None:
        """The shell of a job that is at work, by the number that it has outside of its wall."""
        begun = [path.name.removeprefix("on.") for path in self.marks.glob("on.*")]
        for process in psutil.process_iter(["cmdline"]) if begun else ():
            words = process.info["cmdline"] or []
            if words[1:3] == [str(self.marks / "work.sh"), str(self.marks)] and words[3] in begun:
                return int(process.pid)
        return None

    def first_folder(self) -> Path:
        """The worktree of a job that is at work."""
        assert self.first_pid is not None
        return Path(psutil.Process(self.first_pid).cwd())

    # ------------------------------------------------------------------------------------ the end

    def status(self, plan: str = "") -> Any:
        """What `status --json` shows, or nothing where there is no plan."""
        app = open_app(self.repo.path, in_commands)
        return to_builtins(app.status(plan or None)) if app.plans() else {}

    def bring_to_its_end(self) -> None:
        """Do exactly what the program says is next, until the plan has landed."""
        self.words = ""
        if not self.status() and not self.is_landed:
            self.ask("run", self.plan_file)
        for _ in range(STEPS):
            if self.is_landed and (not self.status() or self.status()["plan"]["status"] == "succeeded"):
                return
            plan = self.status()["plan"]
            assert plan["hint"], plan
            words = shlex.split(plan["hint"])[1:]
            self.ask(*words, *(["--yes"] if words[0] == "land" else []))  # nobody can be asked here
        raise AssertionError(f"no end after {STEPS} steps: {self.status()}")

    @property
    def is_landed(self) -> bool:
        """Whether the target holds exactly what it should, as git says."""
        return self.repo.exists(f"refs/heads/{self.target}") and self.repo.files(self.target) == self.expected

    def look(self) -> None:
        """Remember the user's own things as they are now."""
        self.before = self._users_own()

    def _users_own(self) -> object:
        """All that is the user's; where the checkout follows the target, only what they have not committed."""
        now = picture(self.repo).without_branch(self.target)
        if self.repo("symbolic-ref", "--short", "HEAD").strip() != self.target:
            return now
        edited = {name: (self.repo.path / name).read_text() for name in ("notes.txt", "mine.txt", "staged.txt")}
        return now.refs, now.head, now.settings, edited, self.repo("diff", "--cached")

    def skip_first_failure(self) -> None:
        """Let even a job that fails at first succeed, so that the first run comes as far as landing."""
        for row in self.shape:
            (self.marks / f"tried.{row.name}").touch()

    def check_kept(self) -> None:
        """Nothing is lost, nothing is claimed that is not so, and the user's own things are as they were."""
        assert self._users_own() == self.before
        self.check_nothing_runs()
        ran = (self.marks / "ran").read_text().splitlines() if (self.marks / "ran").exists() else []
        assert self.forgetful or len(ran) == len(set(ran)), f"an attempt ran twice: {ran}"
        assert self.is_landed or not self.claimed, "it said that the plan is done"
        status = self.status()
        if not status:
            return
        assert status["plan"]["status"] == "succeeded" or not self.claimed, status["plan"]
        assert status["plan"]["status"] in ("succeeded", "failed", "paused", "waiting"), status["plan"]
        assert status["plan"]["status"] == "succeeded" or status["plan"]["error"]
        assert status["plan"]["landed"] or status["plan"]["status"] != "succeeded"
        if status["plan"]["landed"]:
            assert self.repo.files(self.target) == self.expected
        for job in status["jobs"]:
            assert not EXCEPTION.search(job["error"] or ""), job
            if job["commit"] is not None and not job["validation"]:
                assert self.repo("for-each-ref", "--contains", job["commit"], "refs/orchard"), job
        for row in self.shape:
            if (self.marks / f"made.{row.name}").exists() and row.name not in self.lost:
                assert self._is_kept(f"{row.name}.txt"), f"the work of {row.name} is lost"

    def _is_kept(self, name: str) -> bool:
        if list((self.repo.path / ".worktrees").glob(f"*/{name}")):
            return True
        refs = [*self.repo.refs(), *self.repo.refs("refs/heads")]
        return any(self.repo.run("cat-file", "-e", f"{ref}:{name}").status == 0 for ref in refs)

    def check_end(self) -> None:
        """The plan has landed once, as a whole, and left nothing behind."""
        self.check_kept()
        self.check_level()
        status = self.status()
        if not self.forgetful:
            assert status["plan"]["landed"], status["plan"]
            assert len(self.events("Landed")) == self.landings
        assert self.is_landed
        assert self.repo("fsck", "--no-dangling", "--no-progress") == ""
        marks = self.repo("log", "--format=%(trailers:key=Orchard-Job,valueonly,separator=%x2C)", self.target).split()
        leaves = {row.name for row in self.shape} - {need for row in self.shape for need in row.needs}
        assert sorted(marks) == sorted(leaves), "landed twice, or in part"

    # ------------------------------------------------------------------------------------ evidence

    def keep_evidence(self, name: str, error: BaseException) -> Path:
        """Put all that is needed to look at a failure, and to repeat it, into one folder."""
        place = Path(os.environ["ORCHARD_EVIDENCE"]) / name if "ORCHARD_EVIDENCE" in os.environ else self.folder
        place.mkdir(parents=True, exist_ok=True)
        chosen = " and ".join(["every_plan", *name.rsplit("-on-", 1)])
        again = f"ORCHARD_SEED={self.seed} pytest tests/proof/test_faults.py -k '{chosen}'"
        text = "\n".join([again, *self.story, f"{type(error).__name__}: {error}"])
        (place / "story.txt").write_text(text)
        if place != self.folder:
            with suppress(OSError, shutil.Error):
                shutil.copytree(self.folder, place / "scene", symlinks=True, dirs_exist_ok=True)
        return place


# ------------------------------------------------------------------------------------- the faults


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong: it strikes a scene, and is lifted again before it returns."""

    name: str
    strike: Callable[[Scene], None]
    words: str
    """One of these must be said where the plan is not done."""
    slow: bool = False
    """Not in the everyday sample: it waits long, or is near to another one."""


FAULTS: dict[str, Fault] = {}


def fault(words: str, *, slow: bool = False) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Enter a function into the table of faults, under its own name."""

    def enter(strike: Callable[[Scene], None]) -> Callable[[Scene], None]:
        name = strike.__name__.strip("_").replace("_", "-")
        assert name not in FAULTS, name
        FAULTS[name] = Fault(name, strike, words, slow)
        return strike

    return enter
