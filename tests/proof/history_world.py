"""Clients that ask for anything at any time, a nemesis that breaks what it can, and how all of it is brought to rest.

Clients are threads that use the real program, a process for each request. What a client is told goes
into its log. When the time is over the nemesis stops, everything is resumed or retried to its end, and
the history is gathered: from the clients' logs, the jobs' own notes, the journal and git.
"""

import json
import os
import random
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from orchard.core.replay import replay
from orchard.core.views.plans import plan_summary
from orchard.model.events.plans import Recorded, decode
from orchard.model.plan import PlanId
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.acceptance.program import Desk, Done, until
from tests.proof.history import Commit, Fact, History, Op, Stamp

JOB = Path(__file__).with_name("history_job.py")
TARGETS = ("work", "goal", "made")
"""Checked out; not checked out; not there until something lands."""
REGIONS = 600
ROUNDS = 20
REFUSED = (2, 3, 4)
LISTED = ("id", "name", "status", "landed", "undone", "deleted", "target", "result", "counts", "after")


class World:
    """One repository, everybody who works in it, and what they know."""

    def __init__(self, folder: Path, seed: int) -> None:
        shared = "".join(f"region {number}: -\n\n\n\n" for number in range(1, REGIONS + 1))
        repo = Repo.make(folder / "repo", files={"README.md": "# many hands\n", "shared.txt": shared})
        repo("checkout", "-q", "-b", "work")
        repo("branch", "goal")
        self.desk, self.repo, self.seed = Desk(folder, repo), repo, seed
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.desk.open_to_jobs(self.notes)
        self.job = shutil.copy(JOB, self.notes)  # which lies where jobs cannot look, if they stand behind a wall
        self.over = threading.Event()
        self.history = History()
        self.known: list[str] = []
        """The plans whose submission was acknowledged, by id."""
        self.approving: dict[str, list[str]] = {}
        self.nemesis = Nemesis(self)
        self._numbers = 0
        self._lock = threading.Lock()

    def number(self) -> int:
        with self._lock:
            self._numbers += 1
            return self._numbers

    def record(self, op: Op) -> None:
        with self._lock:
            self.history.ops.append(op)

    def run(self, seconds: float, clients: int = 3) -> History:
        """Disturb, bring to rest, gather."""
        hands: list[Client | Nemesis] = [*(Client(self, number) for number in range(1, clients + 1)), self.nemesis]
        threads = [threading.Thread(target=_kept, args=(hand,)) for hand in hands]
        for thread in threads:
            thread.start()
        self.over.wait(seconds)
        self.over.set()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "a client did not come back"
        for hand in hands:
            if hand.broken is not None:
                raise hand.broken
        bring_to_rest(self)
        # An engine whose plans are over still takes folders away, and git must not be asked in the midst of that.
        until(lambda: not holders(self.desk.state / "engine.lock"), "the end of the last engine")
        self.nemesis.collect()  # what no ref holds is gone now, and nobody may miss it
        gather(self)
        return self.history

    def work(self, chance: random.Random, region: int = 0) -> str:
        """A command for a job."""
        hold = chance.choice((0.0, 0.1, 0.5, 1.0))
        fails, child = chance.choice((0, 0, 0, 2)), int(chance.random() < 0.3)
        words = [
            sys.executable,
            "-I",
            "-S",
            str(self.job),
            str(self.notes),
            f"{hold}",
            f"{fails}",
            f"{region}",
            f"{child}",
        ]
        return shlex.join(words)


def _kept(hand: "Client | Nemesis") -> None:
    try:
        hand.go_on()
    except BaseException as error:
        hand.broken = error


# ------------------------------------------------------------------------------------- the clients


class Client:
    """Somebody who asks for things, one after the other, and writes down what the answer was."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.me = world, number
        self.chance = random.Random(f"{world.seed}/{number}")
        self.broken: BaseException | None = None

    def go_on(self) -> None:
        verbs = {"submit": 6, "cancel": 3, "retry": 4, "resume": 3, "pause": 2, "reshape": 2, "approve": 2,
                 "land": 3, "undo": 2, "look": 1}  # fmt: skip
        self.submit()
        while not self.world.over.is_set():
            verb = self.chance.choices(list(verbs), list(verbs.values()))[0]
            if verb == "submit":
                self.submit()
            else:
                self.act(verb)

    def submit(self) -> None:
        name, region = f"plan-{self.me}-{self.world.number()}", self.world.number()
        plan = self.plan(name, region)
        self.world.history.regions[name] = region
        path = self.world.desk.plan(json.dumps(plan), f"{name}.json")
        stays = self.chance.random() < 0.2
        began = time.time()
        done = self.ask("run", path, "--json", *(() if stays else ("--detach",)))
        named = (row.get("plan_id") or row.get("plan") for row in _rows(done.out))
        found = next((str(one) for one in named if one), "")
        result = "ok" if found else "fail" if done.code in REFUSED else "unknown"
        self.world.record(Op(self.me, "submit", name, began, time.time(), result, found, done.err[-300:]))
        if found:
            self.world.approving[found] = [job["id"] for job in plan["jobs"] if job.get("approve")]
            self.world.known.append(found)

    def plan(self, name: str, region: int) -> dict[str, Any]:
        chance, count = self.chance, self.chance.randint(1, 4)
        jobs: list[dict[str, Any]] = []
        for number in range(count):
            earlier = [job["id"] for job in jobs]
            jobs.append({
                "id": f"j{number}",
                "needs": chance.sample(earlier, min(len(earlier), chance.choice((0, 1, 1, 2)))),
                "work": self.world.work(chance, region if number == 0 else 0),
                "retry_on_interrupt": chance.random() < 0.5,
                "approve": chance.random() < 0.1,
                **({"postchecks": "true"} if chance.random() < 0.3 else {}),
            })  # fmt: skip
        return {
            "name": name,
            "base": "main",
            "target": chance.choice(TARGETS),
            "land": chance.choice(("auto", "auto", "auto", "ask")),
            "merge": chance.choice(("squash", "squash", "merge")),
            "start_paused": chance.random() < 0.1,
            "max_parallel": chance.randint(1, 3),
            "verify": shlex.join([sys.executable, "-I", "-S", str(self.world.job), str(self.world.notes), "verify"]),
            "jobs": jobs,
        }

    def act(self, verb: str) -> None:
        known = self.world.known[-8:]
        if not known:
            return
        plan = self.chance.choice(known)
        words, detail = self.words(verb, plan)
        began = time.time()
        done = self.ask(*words)
        result = "ok" if done.code == 0 else "fail" if done.code in REFUSED else "unknown"
        if verb != "look":
            self.world.record(Op(self.me, verb, plan, began, time.time(), result, detail, done.err[-300:]))

    def words(self, verb: str, plan: str) -> tuple[list[str], str]:
        """The command line for a request, and the job that it names."""
        chance = self.chance
        if verb == "look":
            return [chance.choice(("list", "status")), "--json"], ""
        if verb == "reshape":
            job = f"extra-{self.world.number()}"
            change = [{"op": "add", "job": {"id": job, "work": self.world.work(chance)}}]
            path = self.world.desk.plan(json.dumps(change), f"{job}.json")
            return ["reshape", plan, str(path)], job
        if verb == "approve":
            jobs = self.world.approving.get(plan) or ["j0"]
            job = chance.choice(jobs)
            return ["approve", job, "--plan", plan, "--yes", "--detach"], job
        extra = {"undo": ["--yes"], "land": ["--yes", "--detach"], "cancel": [], "pause": []}.get(verb, ["--detach"])
        if verb == "retry" and chance.random() < 0.3:
            extra.append("--fresh")
        return [verb, plan, *extra], ""

    def ask(self, *words: str | Path) -> Done:
        try:
            return self.world.desk(*words)
        except subprocess.TimeoutExpired as late:
            return Done(-1, (late.stdout or b"").decode(errors="replace"), "no answer in time")


def _rows(out: str) -> Iterator[dict[str, Any]]:
    for line in out.splitlines():
        with suppress(ValueError):  # the last line of a program that was killed
            row = json.loads(line)
            if isinstance(row, dict):
                yield row


# ------------------------------------------------------------------------------------- the nemesis


class Nemesis:
    """Whoever and whatever works against everybody."""

    def __init__(self, world: World) -> None:
        self.world, self.repo = world, world.repo
        self.chance = random.Random(f"{world.seed}/nemesis")
        self.broken: BaseException | None = None
        self.done: Counter[str] = Counter()

    def go_on(self) -> None:
        harms = {self.kill: 5, self.collect: 2, self.prune: 1, self.pack: 1, self.commit: 4, self.remove: 1}
        while not self.world.over.wait(self.chance.uniform(0.1, 1.2)):
            harm = self.chance.choices(list(harms), list(harms.values()))[0]
            harm()
            self.done[harm.__name__] += 1

    def kill(self) -> None:
        """End the engine without a word, be it ready or still recovering, with or without a job at work."""
        stamps, deadline = self.world.notes / "stamps", time.monotonic() + self.chance.choice((0.0, 2.0))
        before = _size(stamps)
        while time.monotonic() < deadline and _size(stamps) == before:
            time.sleep(0.01)
        for pid in holders(self.world.desk.state / "engine.lock"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.done["hit"] += 1

    def collect(self) -> None:
        self.repo.run("reflog", "expire", "--expire=now", "--all")
        self.repo.run("gc", "-q", "--prune=now")

    def prune(self) -> None:
        self.repo.run("worktree", "prune", "--expire=now")

    def pack(self) -> None:
        self.repo.run("pack-refs", "--all")

    def remove(self) -> None:
        folders = sorted((self.repo.path / ".worktrees").glob("*"))
        if folders:
            shutil.rmtree(self.chance.choice(folders), ignore_errors=True)

    def commit(self) -> None:
        """Commit on a target as its user does: in the checkout, or from somewhere else."""
        branch, number = self.chance.choice(TARGETS), self.world.number()
        made = self._in_checkout(number) if branch == "work" else self._beside(branch, number)
        if made is not None:
            self.world.history.user_commits.append((branch, made))

    def _in_checkout(self, number: int) -> str | None:
        name = f"user-{number}.txt"
        self.repo.write({name: "mine\n"})
        for _ in range(50):  # a landing may hold the index for a moment
            if self.repo.run("add", name).status == 0 and self.repo.run("commit", "-q", "-m", name, name).status == 0:
                return self.repo("log", "-1", "--format=%H", "--", name).strip()
            time.sleep(0.05)
        raise AssertionError("the user could not commit")

    def _beside(self, branch: str, number: int) -> str | None:
        repo = self.repo
        tip = repo.run("rev-parse", "-q", "--verify", f"refs/heads/{branch}").text
        if not tip:
            return None
        blob = repo("hash-object", "-w", "--stdin", stdin=b"mine\n").strip()
        listed = f"{repo('ls-tree', tip)}100644 blob {blob}\tuser-{number}.txt\n"
        tree = repo("mktree", stdin=listed.encode()).strip()
        made = repo("commit-tree", tree, "-p", tip, "-m", f"user-{number}").strip()
        moved = repo.run("update-ref", f"refs/heads/{branch}", made, tip).status == 0
        return made if moved else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def holders(lock: Path) -> list[int]:
    """Which processes hold a lock on a file; where the system does not tell, the one that left its address."""
    table = Path("/proc/locks")
    if not table.exists():
        with suppress(OSError, ValueError, KeyError):
            return [int(json.loads(lock.with_name("daemon.json").read_text())["pid"])]
        return []
    try:
        inode = str(lock.stat().st_ino)
    except OSError:
        return []
    rows = [row.split() for row in table.read_text().splitlines() if " FLOCK " in row and "->" not in row]
    return [int(row[4]) for row in rows if row[5].rpartition(":")[2] == inode]


# ---------------------------------------------------------------------------------------- the rest


def bring_to_rest(world: World) -> None:
    """Do for each plan what the program says is next, until nothing is left to do."""
    desk = world.desk
    for number in range(ROUNDS):
        todo = [one for one in desk("list", "--json").json if one["status"] not in ("succeeded", "canceled")]
        if not todo:
            return
        for plan in todo:
            for words in _next(world, plan, fresh=number % 2 == 1):
                desk(*words, "--detach")
        for plan in todo:
            desk("wait", plan["id"], "--timeout", "30")


def _next(world: World, plan: dict[str, Any], *, fresh: bool) -> Iterator[list[str]]:
    status, name = plan["status"], plan["id"]
    if status == "failed":
        branch = plan["target"]["branch"]
        if not world.repo.exists(f"refs/heads/{branch}") and "does not exist any more" in (plan["error"] or ""):
            world.repo("branch", branch, "main")  # an undo took it away under a plan that was on its way there
        yield ["retry", name, *(["--fresh"] if fresh else [])]
    elif plan["waiting"]:
        for one in plan["waiting"]:
            yield (
                ["land", name, "--yes"]
                if one["kind"] == "landing"
                else ["approve", one["job"], "--plan", name, "--yes"]
            )
    else:
        yield ["resume", name]


def gather(world: World) -> None:
    """Ask everybody who knows something."""
    world.desk.check_level()
    history, repo, desk = world.history, world.repo, world.desk
    with closing(sqlite3.connect(f"{(desk.state / 'journal.db').as_uri()}?mode=ro", uri=True)) as db:
        events = db.execute("SELECT seq, at, plan, name, body FROM events ORDER BY seq").fetchall()
        rows = db.execute("SELECT id, summary FROM plans").fetchall()
    history.facts = [Fact(seq, at, plan, name, json.loads(body)) for seq, at, plan, name, body in events]
    history.rows = {plan: _listed(json.loads(summary)) for plan, summary in rows}
    for plan in history.rows:
        mine = [
            Recorded(seq, at, PlanId(one), decode(name, body)) for seq, at, one, name, body in events if one == plan
        ]
        history.replayed[plan] = _listed(to_builtins(plan_summary(replay(mine), in_commands)))
    history.stamps = list(_stamps(world.notes / "stamps"))
    history.orphans = [str(process) for process in _outliving(desk)]
    _gather_git(history, repo)


def _listed(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: summary.get(name) for name in LISTED}


def _stamps(path: Path) -> Iterator[Stamp]:
    for line in path.read_text().splitlines() if path.exists() else ():
        kind, at, plan, job, attempt, note = line.split(" ", 5)
        yield Stamp(kind, float(at), plan, job, int(attempt), note)


def _outliving(desk: Desk) -> list[Any]:
    """Processes of jobs that are still there after the time that is promised."""
    deadline = time.monotonic() + 10
    while (alive := desk.family()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive


def _gather_git(history: History, repo: Repo) -> None:
    refs = dict(row.split(" ") for row in repo("for-each-ref", "--format=%(refname) %(objectname)").splitlines())
    history.refs = list(refs)
    wanted = {"main", *TARGETS}
    history.tips = {ref[11:]: oid for ref, oid in refs.items() if ref.startswith("refs/heads/") and ref[11:] in wanted}
    form = "%H%x09%P%x09%(trailers:key=Orchard-Landing,valueonly,separator=%x20)"
    for row in repo("log", "--all", f"--format={form}").splitlines():
        oid, parents, landing = row.split("\t")
        history.commits[oid] = Commit(oid, tuple(parents.split()), landing.strip())
    told = {str(fact.body["commit"]) for fact in history.facts if fact.body.get("commit")}
    checked = repo("cat-file", "--batch-check", stdin="\n".join(sorted(told)).encode()).splitlines()
    history.present = {row.split()[0] for row in checked if row.split()[1] == "commit"}
    landed = {str(fact.body["new"]) for fact in history.facts if fact.name == "Landed"}
    for oid in {*history.tips.values(), *(oid for oid in landed if oid in history.commits)}:
        history.files[oid] = _files(repo, oid)
    history.fsck = repo("fsck", "--no-dangling", "--no-progress")
    history.checkout = repo("status", "--porcelain")


def _files(repo: Repo, oid: str) -> dict[str, str]:
    """The files of a commit; one process for all of them."""
    rows = [row.split("\t") for row in repo("ls-tree", "-r", oid).splitlines()]
    names = {name: facts.split()[2] for facts, name in rows}
    found = repo.run("cat-file", "--batch", stdin="\n".join(names.values()).encode()).stdout
    files, at = {}, 0
    for name in names:
        head, at = found[at : found.index(b"\n", at)], found.index(b"\n", at) + 1
        size = int(head.split()[2])
        files[name], at = found[at : at + size].decode(), at + size + 1
    return files


def save(world: World, problems: list[str], folder: Path) -> Path:
    """Keep what is needed to see what happened: the clients' logs, the journal, the stamps, the refs."""
    place = folder / f"history-{world.seed}"
    place.mkdir(parents=True, exist_ok=True)
    ops = [json.dumps(asdict(op)) for op in world.history.ops]
    (place / "clients.jsonl").write_text("\n".join(ops) + "\n")
    (place / "problems.txt").write_text(f"seed {world.seed}\n" + "\n".join(problems) + "\n")
    (place / "refs.txt").write_text("\n".join(world.history.refs) + "\n")
    facts = [f"{one.seq} {one.at:.3f} {one.plan} {one.name} {json.dumps(one.body)}" for one in world.history.facts]
    (place / "journal.txt").write_text("\n".join(facts) + "\n")
    for path in (*world.desk.state.glob("journal.db*"), world.notes / "stamps", world.desk.state / "engine.log"):
        if path.exists():
            shutil.copy(path, place)
    return place
