"""A landing or an undo of many files in the user's checkout, disturbed at any moment, and what must hold afterwards.

The plan is run once, up to the landing (or to the undo); each moment works on a copy of all that. A moment says who is
hit (the engine, the git that it runs, both, or a stop and go), after how much of the usual time, and what the user does
beside it. Then the program is called again, as a user would, and looked at with git alone.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from orchard.testing import Repo
from tests.acceptance.program import Desk, Running, until

WHO = ("engine", "git", "both", "stop", "error")
BESIDE = ("nothing", "status", "commit", "switch", "stash", "gc", "edit")
PLACES = (
    "checkout.locked", "checkout.staged", "checkout.intended", "checkout.before-rename", "checkout.after-rename",
    "checkout.placed", "checkout.swapped", "checkout.published", "checkout.settled",
)  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """Who is hit, when (as a part of the usual time), what the user does meanwhile, and a number for all else."""

    verb: str
    who: str
    part: float
    beside: str
    seed: int

    def __str__(self) -> str:
        return f"{self.verb}-{self.who}-{self.part:.3f}-{self.beside}"


def moments(seed: int, count: int, verbs: tuple[str, ...] = ("land", "undo")) -> Iterator[Moment]:
    """So many moments by chance, the verbs and whoever is hit in turn."""
    chance = random.Random(seed)
    for number in range(count):
        verb, who = verbs[number % len(verbs)], WHO[number // len(verbs) % len(WHO)]
        yield Moment(verb, who, chance.random() * 1.05, chance.choice(BESIDE), chance.randrange(1 << 30))


class Ground:
    """A repository with a plan that waits for its landing, and the same after it: copied for every moment."""

    def __init__(self, folder: Path, files: int, *, slow: float = 0.0) -> None:
        self.folder, self.files = folder, files
        self.desk = Desk(folder / "live")
        self.usual: dict[str, float] = {}
        repo = self.desk.repo
        repo("checkout", "-q", "-b", "work")
        (repo.path / "d").mkdir()
        for number in range(files):
            (repo.path / f"d/f{number}.big").write_text(f"old {number}\n")
        repo.write({"mine.txt": "mine\n"})
        if slow:
            script = folder / "smudge"
            script.write_text(f"#!/bin/sh\nsleep {slow}\nexec cat\n")
            script.chmod(0o755)
            repo.write({".gitattributes": "*.big filter=slow\n"})
            repo("config", "filter.slow.smudge", str(script))
            repo("config", "filter.slow.clean", "cat")
        self.old = repo.commit()
        third = files // 3
        work = (
            f"for i in $(seq 0 {third}); do echo new $i > d/f$i.big; done; "
            f"for i in $(seq {third + 1} {2 * third}); do rm d/f$i.big; done; "
            f"mkdir n; for i in $(seq 0 {third}); do echo n $i > n/f$i.big; done"
        )
        plan = f"name: Many\nbase: work\ntarget: work\nland: ask\njobs:\n  - id: a\n    work: {work!r}\n"
        ran = self.desk("run", self.desk.plan(plan))
        assert ran.code == 4, ran.talk
        self._save("land")
        self.plan = self.desk.status()["plan"]["id"]
        self.usual["land"] = self._time("land")
        self.new = repo.head("work")
        self._save("undo")
        self.usual["undo"] = self._time("undo")

    def _time(self, verb: str) -> float:
        """How long the part of it takes in which anything can be hit."""
        running = self.begin(verb)
        began = time.monotonic()
        ended = running.end()
        assert ended.code == 0, ended.talk
        return time.monotonic() - began

    def begin(self, verb: str, armed: str = "") -> Running:
        """Start the command, and go on when it comes to the checkout."""
        note = self.desk.folder / f"there-{time.monotonic_ns()}"
        places = ",".join(one for one in (f"checkout.before:1:note={note}", armed) if one)
        running = self.desk.start(verb, self.plan if self.usual else "Many", "--yes", ORCHARD_FAILPOINT=places)
        until(lambda: note.exists() or running.process.poll() is not None, "the checkout")
        return running

    def _save(self, name: str) -> None:
        subprocess.run(["cp", "-a", self.desk.folder, self.folder / name], check=True, timeout=120)

    def again(self, verb: str) -> None:
        """Everything as it was before that verb."""
        for one in self.desk.family():
            with suppress(psutil.NoSuchProcess):
                one.kill()
        shutil.rmtree(self.desk.folder)
        subprocess.run(["cp", "-a", self.folder / verb, self.desk.folder], check=True, timeout=120)
        self.desk.repo("update-index", "-q", "--refresh")

    def close(self) -> None:
        for one in self.desk.family():
            with suppress(psutil.NoSuchProcess):
                one.kill()
        shutil.rmtree(self.desk.runtime, ignore_errors=True)


# ------------------------------------------------------------------------------------ one moment


def disturb(ground: Ground, moment: Moment) -> str:
    """Do it, call the program again, and say what is wrong; nothing is the right answer."""
    ground.again(moment.verb)
    user = User(ground.desk.repo, moment.beside)
    chance = random.Random(moment.seed)
    armed = ""
    if moment.who == "error":
        place = chance.choice(PLACES)
        nth = chance.randrange(1, ground.files) if place.endswith("-rename") else 1
        armed = f"{place}:{nth}:error"
    running = ground.begin(moment.verb, armed)
    user.act()
    deadline = time.monotonic() + ground.usual[moment.verb] * moment.part
    while time.monotonic() < deadline and running.process.poll() is None:
        time.sleep(0.001)
    _hit(running, moment.who, user)
    running.process.wait(120)
    user.act_again()
    again = ground.desk("status", ground.plan)
    told = [running.talk, again.talk]
    for words in (("resume", ground.plan), (moment.verb, ground.plan, "--yes")):
        if ground.desk("status", ground.plan, "--json").json["plan"]["landed"] == (moment.verb == "land"):
            break
        told.append(ground.desk(*words).talk)
    wrong = judge(ground, moment, user)
    return "\n".join([*wrong, *told]) if wrong else ""


def _hit(running: Running, who: str, user: "User") -> None:
    if who in ("git", "both"):
        for child in _gits(running.pid):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    if who in ("engine", "both"):
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGKILL)
    if who == "stop" and running.process.poll() is None:
        os.kill(running.pid, signal.SIGSTOP)
        user.act()
        time.sleep(0.2)
        os.kill(running.pid, signal.SIGCONT)


def _gits(pid: int) -> list[psutil.Process]:
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [child for child in children if _name(child) == "git"]


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


class User:
    """What somebody does in the checkout meanwhile; whatever git refuses is refused."""

    def __init__(self, repo: Repo, what: str) -> None:
        self.repo, self.what = repo, what
        self.commits: list[str] = []
        self.edits: dict[str, str] = {}
        self._acts: dict[str, Callable[[], None]] = {
            "status": lambda: self._git("status"),
            "commit": self._commit,
            "switch": self._switch,
            "stash": self._stash,
            "gc": lambda: self._git("gc", "-q"),
            "edit": self._edit,
        }

    def act(self) -> None:
        self._acts.get(self.what, lambda: None)()

    def act_again(self) -> None:
        """After the blow, before anybody has put anything right: only what needs no lock that we hold."""
        if self.what in ("status", "edit"):
            self.act()

    def _git(self, *words: str) -> None:
        self.repo.run(*words)

    def _commit(self) -> None:
        self.repo.write({f"own-{len(self.commits)}.txt": "own\n"})
        name = f"own-{len(self.commits)}.txt"
        if self.repo.run("add", name).status == 0 and self.repo.run("commit", "-q", "-m", "own", name).status == 0:
            self.commits.append(self.repo.head())
        self.edits[name] = "own\n"

    def _switch(self) -> None:
        self.repo.run("switch", "-q", "-c", "aside")
        self.repo.run("switch", "-q", "work")

    def _stash(self) -> None:
        """An edit is put aside and taken out again, or stays where it is."""
        self.repo.write({"mine.txt": "mine, edited\n"})
        self.edits["mine.txt"] = "mine, edited\n"
        if self.repo.run("stash", "-q").status == 0:
            deadline = time.monotonic() + 20
            while self.repo.run("stash", "pop", "-q").status != 0 and time.monotonic() < deadline:
                time.sleep(0.1)

    def _edit(self) -> None:
        self.repo.write({"mine.txt": "mine, edited\n", "untracked.txt": "new\n"})
        self.edits |= {"mine.txt": "mine, edited\n", "untracked.txt": "new\n"}


# ------------------------------------------------------------------------------------ the judgement


def judge(ground: Ground, moment: Moment, user: User) -> list[str]:
    """What is not as it should be."""
    repo, wrong = ground.desk.repo, []
    git_dir = repo.path / ".git"
    wrong += [f"{lock.name} is left" for lock in git_dir.rglob("*.lock") if _is_gits(lock.relative_to(git_dir))]
    for name, content in user.edits.items():
        now = repo.path / name
        if not now.is_file() or now.read_text() != content:
            wrong.append(f"{name} of the user's is lost")
    branch = repo("symbolic-ref", "--short", "HEAD").strip()
    wrong += [f"commit {one} is lost" for one in user.commits if not _has(repo, one, branch)]
    shown = [row for row in repo("status", "--porcelain").splitlines() if row[3:] not in user.edits]
    if shown:
        wrong.append(f"the checkout of {branch} shows {len(shown)} changes that nobody made: {shown[:5]}")
    plan = ground.desk("status", ground.plan, "--json").json["plan"]
    landed = _has(repo, ground.new, "work") or "Orchard-Landing" in repo("log", "-5", "--format=%B", "work")
    if plan["landed"] != landed:
        wrong.append(f"status says landed: {plan['landed']}, git says {landed}")
    if repo.run("fsck", "--connectivity-only").status != 0:
        wrong.append("git fsck complains")
    if (git_dir / "orchard/landing/main").exists():
        wrong.append("notes about a landing are left")
    return wrong


def _is_gits(lock: Path) -> bool:
    return lock.parts[0] != "orchard"


def _has(repo: Repo, commit: str, branch: str) -> bool:
    return repo.run("merge-base", "--is-ancestor", commit, branch).status == 0
