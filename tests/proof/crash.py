"""One cell of the crash matrix: a plan, killed at named places, brought to its end by a user, and looked at.

The user is simple: looks at `orchard status`, does what it hints at, and does so again until the plan
is where they wanted it. Each command is a process of its own. As long as there is a kill to come, the
command that makes work go on is armed with it; after the kill the repository is looked at as it lies
there, and everything that no ref holds is thrown away by `git gc --prune=now`.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from orchard.app import open_app
from orchard.core.replay import replay
from orchard.git.refs import keep_ref
from orchard.model.events.plans import Event, Landed, WorkCommitted, WorkSaved
from orchard.model.plan import PlanId
from orchard.process.failpoint import known
from orchard.store.reader import read
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.acceptance.program import Desk, Done, until
from tests.proof.crash_shapes import AGENT, ATTEMPT, BEFORE, HELPER, Goal, Shape
from tests.proof.git_killer import GitKill, arm, has_fired, wrap

COMMANDS = 12
"""More than any plan needs: who has not come to an end by then is stuck."""
EDITED, NOTES, IGNORED = "README.md", "notes.txt", "build.log"
OWN_LOCKS = ("engine.lock", "worktrees.lock", "main.lock")


@dataclass(frozen=True)
class Kill:
    """Where the engine dies: at the `nth` time through a place, while the user is after the goal `stage`."""

    place: str
    nth: int = 1
    stage: int = 0
    certain: bool = True
    """False: whether the place is reached depends on which of two jobs is faster."""

    def __str__(self) -> str:
        return f"{self.place}:{self.nth}" + (f"@{self.stage}" if self.stage else "")


@dataclass
class Cell:
    """A shape on its way through its kills."""

    shape: Shape
    folder: Path
    kills: list[Kill]
    trace: bool = False
    """Note every place that is passed, in place of dying."""
    gap: str | None = None
    """A place at which the user commits to the target while the engine is held up there."""
    git_kill: GitKill | None = None
    """A git command that is hit on the way to the goal `git_stage`, at one of its changes."""
    git_stage: int = 0
    said: list[str] = field(default_factory=list)
    fired: list[Kill] = field(default_factory=list)
    found: set[str] = field(default_factory=set)
    """Blobs that lay in worktrees when the engine died."""
    theirs: str | None = None

    def __post_init__(self) -> None:
        self.marks = self.folder / "marks"
        self.marks.mkdir(parents=True)
        repo = Repo.make(self.folder / "repo", files=BEFORE)
        for branch in ("work", "goal"):
            repo("branch", branch)
        repo("checkout", "-q", self.shape.checkout)
        self.repo, self.before = repo, repo.head()
        # What lies around in the user's checkout has nothing to do with the plan, and stays.
        repo.write({EDITED: "# edited\n", NOTES: "mine\n", IGNORED: "kept\n"})
        self.settings = (repo.path / ".git" / "config").read_bytes()
        self.desk = Desk(self.folder, repo)
        self.desk.open_to_jobs(self.marks)
        (self.marks / "agent.sh").write_text(AGENT)
        (self.marks / "help.py").write_text(HELPER)
        config = self.desk.folder / "config" / "orchard" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(self.shape.config.replace("MARKS", str(self.marks)))
        self.plan = self.desk.plan(self.shape.plan(self.marks), "plan.json")
        self.stage, self.killed = 0, False
        self.gits = wrap(self.folder / "gits") if self.git_kill is not None else None
        self.sweeping, self.over = threading.Lock(), threading.Event()
        if "/asked" in self.plan.read_text():
            threading.Thread(target=self._move_when_asked, daemon=True).start()

    # ------------------------------------------------------------------------------------ the user

    def run(self) -> None:
        """Go after every goal, whatever dies on the way, and check the end."""
        for stage, goal in enumerate(self.shape.goals):
            self.stage = stage
            self._reach(goal)
            self.check(goal)
        missed = [kill for kill in self.kills if kill.certain]
        assert not missed, f"never fired: {', '.join(map(str, missed))}"

    def _reach(self, goal: Goal) -> None:
        for _ in range(COMMANDS):
            words = self._next(goal, self._status())
            if words is None and not self.killed:
                return
            self._act(words or self._next_of_any_kind(goal))
        raise AssertionError(f"stuck: {COMMANDS} commands did not lead to '{goal}'")

    def _next_of_any_kind(self, goal: Goal) -> list[str]:
        """Whoever died at the very end has left something to tidy up, which the next command does."""
        plans = [row[1] for row in self.desk.events()]
        return ["delete", "--yes", plans[-1]] if goal == "deleted" else ["resume", *plans[-1:]]

    def _status(self) -> Any:
        """The plan as the user sees it; None where there is none."""
        plans = [row[1] for row in self.desk.events()]
        if not plans:
            return None
        return to_builtins(open_app(self.repo.path, in_commands).status(plans[-1]))

    def _next(self, goal: Goal, status: Any) -> list[str] | None:
        """What the user types next; None when they have what they want."""
        if status is None:
            return None if goal == "purged" else ["run", str(self.plan)]
        plan = status["plan"]
        if goal in ("deleted", "purged"):
            done = plan["deleted"] and goal == "deleted"
            return None if done and not _folders(status) else [goal.removesuffix("d"), "--yes", plan["id"]]
        if goal == "undone":
            return None if plan["undone"] else ["undo", "--yes"]
        if goal == "canceled":
            return None if plan["status"] == "canceled" else ["cancel", plan["id"]]
        return self._next_to_land(plan)

    def _next_to_land(self, plan: Any) -> list[str] | None:
        state = plan["status"]
        if state == "succeeded" and plan["undone"]:
            return ["land", plan["id"], "--yes"]  # by its name: nobody else means a plan that was undone
        if state == "succeeded":
            assert plan["landed"] or self.shape.goals[self.stage] == "branched", "it succeeded without landing"
            return None
        if state in ("failed", "canceled"):
            return ["retry", *(["--fresh"] if self.shape.fresh else [])]
        if state == "waiting":
            return ["resume"] if "next: orchard resume" in self.said[-1] else ["land", "--yes"]
        if self.shape.changes and not self.events("PlanReshaped"):
            return ["reshape", plan["id"], str(self._changes())]
        return ["resume"]

    def _changes(self) -> Path:
        text = json.dumps(self.shape.changes).replace("MARKS", str(self.marks))
        return self.desk.plan(text, "changes.json")

    def _act(self, words: list[str]) -> None:
        """One command; Ctrl-C when the plan is to be canceled as soon as its job runs."""
        armed = self._armed()
        if self.shape.goals[self.stage] == "landed":
            (self.marks / "go").touch()
        if self.shape.goals[self.stage] == "canceled" and words[0] == "run":
            done = self._interrupted(words, armed)
        elif self.gap is not None and self.theirs is None and words[0] in ("run", "resume", "land"):
            done = self._gapped(words, armed)
        else:
            done = self.desk(*words, ORCHARD_FAILPOINT=armed, PATH=self._path())
        self.said.append(f"$ orchard {' '.join(words)}   [{armed[:200]}] -> {done.code}\n{done.talk}")
        self.killed = done.code == -signal.SIGKILL
        if self.git_kill is not None:
            self._remove_locks(done.talk)
        if self.killed:
            if self.kills:
                self.fired.append(self.kills.pop(0))
            self._look_at_the_ruins()
            if len(self.fired) <= 1:
                looked = self.desk("status")
                assert looked.code in (0, 3), looked.talk
        else:
            assert done.code in (0, 1, 4, 130) or words[0] == "resume", done.talk

    def _path(self) -> str:
        """The PATH, perhaps with the git in front that dies."""
        path = self.desk.env["PATH"]
        if self.git_kill is None or self.gits is None:
            return path
        if self.stage == self.git_stage and not (self.gits / "kill.json").exists():
            arm(self.gits, self.git_kill)
        return f"{self.gits}{os.pathsep}{path}"

    def _remove_locks(self, talk: str) -> None:
        """Do as we are told about locks of a git that died."""
        for lock in re.findall(r"rm '(\S+\.lock)'", talk):
            assert not self.desk.gits()
            Path(lock).unlink(missing_ok=True)

    def git_was_hit(self) -> bool:
        return self.gits is not None and has_fired(self.gits)

    def _armed(self) -> str:
        if self.trace:
            note = f"note={self._notes()}"
            return ",".join(f"{name}:{nth}:{note}" for name in known() for nth in (1, 2))
        if self.kills and self.kills[0].stage <= self.stage:
            return f"{self.kills[0].place}:{self.kills[0].nth}:kill"
        return ""

    def _notes(self) -> Path:
        return self.folder / f"notes-{self.stage}"

    def passed(self, stage: int) -> Counter[str]:
        """How often each place was passed in one command on the way to a goal: once, or twice and more."""
        notes = self.folder / f"notes-{stage}"
        rows = [row.split(":") for row in notes.read_text().splitlines()] if notes.exists() else []
        found: Counter[str] = Counter()
        for name, nth in rows:
            found[name] = max(found[name], int(nth))
        return found

    def _interrupted(self, words: list[str], armed: str) -> Done:
        running = self.desk.start(*words, ORCHARD_FAILPOINT=armed)
        started = self.marks / "started"
        until(lambda: started.exists() or running.process.poll() is not None, "the job to run")
        if running.process.poll() is None:
            running.signal(signal.SIGINT)
        return running.end()

    def _gapped(self, words: list[str], armed: str) -> Done:
        """Hold the engine up at the gap, commit to the target there, and let it go on."""
        here, go = self.folder / "here", self.folder / "go-on"
        held = f"{self.gap}:1:note={here},{self.gap}:1:wait={go}"
        running = self.desk.start(*words, ORCHARD_FAILPOINT=",".join(filter(None, (held, armed))))
        until(lambda: here.exists() or running.process.poll() is not None, f"the gap at {self.gap}")
        if here.exists():
            self.theirs = self._commit_to_target()
        go.touch()
        return running.end()

    def _move_when_asked(self) -> None:
        """Move the target when a job asks for it: a job itself cannot, where a wall stands around it."""
        while not self.over.wait(0.02):
            if (self.marks / "asked").exists():
                with self.sweeping:
                    tree = self.repo("rev-parse", "goal^{tree}").strip()
                    made = self.repo("commit-tree", "-p", "goal", "-m", "theirs", tree).strip()
                    self.repo("update-ref", "refs/heads/goal", made)
                (self.marks / "moving").write_text(made)
                (self.marks / "moving").replace(self.marks / "moved")
                return

    def _commit_to_target(self) -> str:
        """What a user does who knows nothing of the landing that is about to happen."""
        repo, target = self.repo, self.shape.target
        if target == self.shape.checkout:
            (repo.path / "theirs.txt").write_text("theirs\n")
            repo("add", "theirs.txt")
            repo("commit", "-q", "-m", "theirs", "--", "theirs.txt")
            return repo.head()
        blob = repo("hash-object", "-w", "--stdin", stdin=b"theirs\n").strip()
        rows = repo("ls-tree", target) + f"100644 blob {blob}\ttheirs.txt\n"
        tree = repo("mktree", stdin=rows.encode()).strip()
        made = repo("commit-tree", "-p", target, "-m", "theirs", tree).strip()
        repo("update-ref", f"refs/heads/{target}", made)
        return made

    # ------------------------------------------------------------------------- just after a kill

    def _look_at_the_ruins(self) -> None:
        with self.sweeping:
            self._look()

    def _look(self) -> None:
        if self.shape.goals[self.stage] == "canceled":
            for process in self.desk.family():  # the sleeper, which would sleep for minutes: as after a reboot
                process.kill()
        self.desk.check_nothing_runs()
        until(lambda: not self.desk.gits(), "the end of git's own processes")
        self.found |= self._in_worktrees()
        self._check_told()
        if (self.repo.path / ".git" / "HEAD.lock").exists():
            # A landing is under way: git's locks there are ours until the next engine makes the checkout whole.
            self._check_half_way()
            self.repo("prune", "--expire=now")
            return
        self._check_checkout()
        self._sweep("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
        self._sweep("gc", "--quiet", "--prune=now")

    def _sweep(self, *words: str) -> None:
        """Throw away what no ref holds; what a killed git has left may be in the way of that until the next engine."""
        done = self.repo.run(*words)
        left = re.search(rb"(?:refs/orchard/|worktrees/w)\S*\.lock': File exists|bad object worktrees/", done.stderr)
        assert done.status == 0 or (left and self.git_kill is not None), done.stderr.decode()

    def _check_half_way(self) -> None:
        """Every file is the user's, or exactly what one of the two commits of the landing has."""
        repo = self.repo
        notes = list((repo.path / ".git" / "orchard" / "landing").glob("*/intent.json"))
        ends = [json.loads(note.read_text())[end] for note in notes for end in ("old", "new")] or ["HEAD"]
        held = [set(repo.files(end).items()) for end in ends]
        own = {EDITED: "# edited\n", NOTES: "mine\n", IGNORED: "kept\n"}
        shown = {one.relative_to(repo.path).as_posix(): one.read_text() for one in _files(repo.path)}
        assert shown.items() <= set().union(own.items(), *held)
        assert set(shown) >= set.intersection(*({name for name, _ in files} for files in held))
        assert own.items() <= shown.items()

    def _in_worktrees(self) -> set[str]:
        places = (self.repo.path / ".worktrees").glob("w*")
        files = [file for place in places for file in place.rglob("*") if file.is_file()]
        return {_blob(file) for file in files if file.name != ".git" and file.suffix != ".log"}  # logs are ignored

    def _check_told(self) -> None:
        """Whatever the journal tells about is there, under its ref."""
        refs = self.repo.refs()
        for plan, told in self._told():
            if isinstance(told, WorkCommitted) and told.commit != told.base and plan:
                held = refs.get(keep_ref(plan, told.job, told.attempt))
                built_on = held is not None and self._contains(held, told.commit)
                assert built_on, f"the result of {told.job} is not held: {held} is not {told.commit}"
            if isinstance(told, WorkSaved):
                assert refs.get(told.ref) == told.commit, f"saved work is not held: {told.ref}"
            if isinstance(told, Landed):
                contained = self.repo.run("merge-base", "--is-ancestor", told.new, f"refs/heads/{told.branch}")
                undone = "undone" in self.shape.goals
                assert contained.status == 0 or undone, f"'landed' is recorded, but {told.branch} has no {told.new}"

    def _contains(self, commit: str, ancestor: str) -> bool:
        """What an agent mended is built on the result that failed its check."""
        return commit == ancestor or self.repo.run("merge-base", "--is-ancestor", ancestor, commit).status == 0

    def _told(self) -> list[tuple[PlanId, Event]]:
        with read(self.desk.state / "journal.db") as reader:
            gone = {row.id for row in reader.plans() if row.summary.deleted} if self._purges() else set()
            return [(one.plan, one.event) for one in reader.events() if one.plan not in gone]

    def _purges(self) -> bool:
        return self.shape.goals[self.stage] == "purged"

    def events(self, name: str) -> list[tuple[Any, ...]]:
        return self.desk.events(name)

    # ------------------------------------------------------------------------------- at the end

    def check(self, goal: Goal) -> None:
        """What holds whenever the user has what they wanted."""
        self.desk.check_nothing_runs()
        self.desk.check_level()
        self._check_told()
        self._check_checkout()
        self._check_runs()
        self._check_journal()
        self._check_landing(goal)
        if goal != "purged":
            self._check_nothing_lost()
        assert self.repo("fsck", "--full", "--no-dangling", "--no-progress") == ""
        kept = goal == "canceled"
        assert kept or self.repo("worktree", "list", "--porcelain").count("worktree ") == 1
        assert kept or not list((self.repo.path / ".worktrees").glob("*")), "folders are left"
        common = self.repo.path / ".git"
        assert [one.name for one in common.rglob("*.lock") if one.name not in OWN_LOCKS] == []
        if goal == "purged":
            # Folders that the engine held for the next job when it died are saved as nobody's, once more.
            assert [ref for ref in self.repo.refs() if not ref.startswith("refs/orchard/wip/strays/")] == []
            assert self.desk.events() == []

    def _check_landing(self, goal: Goal) -> None:
        shape, repo = self.shape, self.repo
        others = {name: oid for name, oid in repo.refs("refs/heads").items() if name != f"refs/heads/{shape.target}"}
        assert others == {
            f"refs/heads/{name}": self.before for name in ("main", "work", "goal") if name != shape.target
        }
        landings = self.events("Landed")
        wanted = shape.goals[: self.stage + 1].count("landed")
        assert len(landings) == (0 if goal == "purged" else wanted), f"{len(landings)} landings are recorded"
        if goal not in ("landed", "branched"):
            tip = repo.head(shape.target)
            assert tip == self.before, f"{shape.target} is at {tip}, not where it was"
            return
        marked = repo("log", "--first-parent", "--format=%(trailers:key=Orchard-Job,valueonly,separator=%x20)",
                      "--grep=^Orchard-Landing", f"{self.before}..{shape.target}").split()  # fmt: skip
        assert len(marked) == len(set(marked)), f"landed: {marked}"
        assert shape.leaves - shape.empty <= len(marked) <= shape.leaves, f"landed: {marked}"
        self._check_tree(repo.files(shape.target))
        for theirs in (self.theirs, _text(self.marks / "moved")):
            if theirs:
                assert repo.run("merge-base", "--is-ancestor", theirs, shape.target).status == 0, "a commit was lost"

    def _check_tree(self, files: dict[str, str]) -> None:
        wanted = {**BEFORE, **self.shape.files, **({"theirs.txt": "theirs\n"} if self.theirs else {})}
        for name, content in wanted.items():
            if content == ATTEMPT:
                assert files.get(name, "").strip().isdigit(), f"{name}: {files.get(name)!r}"
                wanted[name] = files[name]
        assert files == wanted

    def _check_checkout(self) -> None:
        """Byte for byte what the user has, or what the branch has got."""
        repo = self.repo
        assert repo("symbolic-ref", "HEAD").strip() == f"refs/heads/{self.shape.checkout}"
        own = {EDITED: "# edited\n", NOTES: "mine\n", IGNORED: "kept\n"}
        shown = {one.relative_to(repo.path).as_posix(): one.read_text() for one in _files(repo.path)}
        assert shown == {**repo.files("HEAD"), **own}
        assert repo("status", "--porcelain").splitlines() == [f" M {EDITED}", f"?? {NOTES}"]
        assert (repo.path / ".git" / "config").read_bytes() == self.settings
        for name in ("MERGE_HEAD", "refs/stash", "CHERRY_PICK_HEAD"):
            assert not (repo.path / ".git" / name).exists(), name

    def _check_runs(self) -> None:
        """No program ran twice in one attempt; `verify` does, where the target moved during it."""
        rows = _text(self.marks / "ran").splitlines()
        twice = [row for row, times in Counter(rows).items() if times > 1]
        moves = self.gap is not None or self.shape.name == "moved"
        twice = [row for row in twice if not (moves and row.startswith("verify"))]
        assert twice == [], f"ran twice in one attempt: {twice}"

    def _check_journal(self) -> None:
        path = self.desk.state / "journal.db"
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with read(path) as reader:
            for row in reader.plans():
                run = replay(reader.events(row.id))
                assert str(run.status) == row.status

    def _check_nothing_lost(self) -> None:
        """Everything that lay in a worktree when the engine died is reachable from a ref."""
        if self.found:
            rows = self.repo("rev-list", "--objects", "--all").splitlines()
            lost = self.found - {row.partition(" ")[0] for row in rows} - self._in_worktrees()
            assert not lost, f"lost: {sorted(lost)}"

    # --------------------------------------------------------------------------------- evidence

    def save(self, seed: int, why: str) -> Path:
        """Keep what is needed to look at a failure and to repeat it."""
        name = f"crash-{self.shape.name}-{'-'.join(map(str, self.fired + self.kills)).replace(':', '.') or 'calm'}"
        place = Path(os.environ.get("ORCHARD_EVIDENCE", self.folder)) / name
        place.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.repo.path, place / "repo", symlinks=True, dirs_exist_ok=True)
        head = (
            f"seed {seed}\nshape {self.shape.name}\nfired {self.fired}\nto come {self.kills}\ngap {self.gap}\n\n{why}\n"
        )
        (place / "story.txt").write_text("\n".join([head, *self.said]))
        shutil.copyfile(self.plan, place / "plan.json")
        return place

    def close(self) -> None:
        self.over.set()
        self.desk.close()


def _folders(status: Any) -> list[str]:
    return [job["worktree"] for job in status["jobs"] if job["worktree"]]


def _files(top: Path) -> list[Path]:
    found = []
    for one in top.iterdir():
        if one.name not in (".git", ".worktrees"):
            found += [one] if not one.is_dir() else [file for file in one.rglob("*") if file.is_file()]
    return found


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _blob(file: Path) -> str:
    content = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
