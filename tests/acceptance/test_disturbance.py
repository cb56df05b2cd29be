"""Bad luck around a plan: kills, other people's git, full and broken disks. What was promised holds, or it is said."""

import json
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from orchard.model.events.plans import PlanPaused
from orchard.model.plan import PlanId
from orchard.process import failpoint
from orchard.store.journal import Journal
from orchard.testing import Repo
from tests.acceptance.program import Desk, Done, Running, desks, until

MIB = 1024 * 1024


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def fan(jobs: int, work: str = "", mark: str = "f") -> str:
    """A plan of jobs that each write a file of their own, in three chains."""
    rows = ["name: Fan", "target: goal", "verify: 'true'", "jobs:"]
    for number in range(jobs):
        needs = f", needs: [j{number - 3}]" if number >= 3 else ""
        rows.append(f"  - {{id: j{number}{needs}, work: '{work}echo {number} > {mark}{number}.txt'}}")
    return "\n".join(rows) + "\n"


SMALL = "name: Small\ntarget: goal\njobs: [{id: a, work: 'echo a > a.txt'}]\n"


def held_open(desk: Desk, before: str = "echo half > half.txt") -> Running:
    """A plan whose one job runs until it is told to go on."""
    work = f"{before}; touch {desk.folder}/on; until test -e {desk.folder}/go; do sleep 0.05; done"
    owner = desk.start("run", desk.plan(f'name: Held\ntarget: goal\njobs: [{{id: a, work: "{work}"}}]\n'))
    until((desk.folder / "on").exists)
    return owner


def bring_to_its_end(desk: Desk, plan: Path) -> None:
    """Do what the program itself says is next, until the plan has landed."""
    if not desk("list", "--json").json:
        desk("run", plan)
    for _ in range(12):
        status = desk.status()["plan"]
        if status["landed"]:
            return
        verb = "retry" if status["status"] in ("failed", "canceled") else "resume"
        assert desk(verb).code in (0, 1)
    raise AssertionError(desk("status").out)


def check_landed_once(desk: Desk, files: set[str]) -> None:
    landed = desk.events("Landed")
    assert len(landed) == 1
    assert files <= set(desk.repo.files("goal"))
    desk.check_sound()
    desk.check_nothing_runs()
    for ref in desk.repo.refs():
        assert desk.repo.exists(ref)


# ----------------------------------------------------------------------------------------- kill -9


def killed_at(desk: Desk, plan: Path, seconds: float) -> int:
    """Run a plan and kill the engine after so long; the plan's own programs live on."""
    owner = desk.start("run", plan)
    until(lambda: desk.events() or owner.process.poll() is not None, "the first event")
    time.sleep(seconds)  # the random moment itself, not a synchronisation
    owner.process.kill()
    code = owner.process.wait(10)
    until(lambda: not desk.gits(), "the end of the git commands that were under way")
    return code


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))])
def test_an_engine_killed_at_any_moment_loses_nothing_and_lands_once(desk: Desk, seed: int) -> None:
    plan = desk.plan(fan(6, "sleep 0.05; "))
    moment = random.Random(seed).uniform(0.0, 1.6)
    print(f"seed {seed}: killed {moment:.3f} s after the first event")

    code = killed_at(desk, plan, moment)
    before = desk.git_bytes() if code == -signal.SIGKILL else {}
    looked = [desk("status").code, desk("list").code, desk("recover").code]
    after = desk.git_bytes() if code == -signal.SIGKILL else {}
    bring_to_its_end(desk, plan)

    assert code in (0, -signal.SIGKILL)
    assert looked == [0, 0, 0]
    assert {name for name in before | after if before.get(name) != after.get(name)} == set()
    check_landed_once(desk, {f"f{n}.txt" for n in range(6)})


def test_an_engine_killed_again_and_again_lands_once(desk: Desk) -> None:
    plan = desk.plan(fan(6, "sleep 0.05; "))
    moments = random.Random(7)
    killed_at(desk, plan, 0.3)

    for _ in range(4):
        again = desk.start("retry" if desk.status()["plan"]["status"] == "failed" else "resume")
        time.sleep(moments.uniform(0.2, 0.9))  # the random moment itself
        again.process.kill()
        again.process.wait(10)
    bring_to_its_end(desk, plan)

    check_landed_once(desk, {f"f{n}.txt" for n in range(6)})


def test_grandchildren_in_sessions_of_their_own_end_when_the_plan_is_taken_up_again(desk: Desk) -> None:
    forks = f"setsid sh -c 'echo $$ > {desk.folder}/far; exec sleep 300' & sh -c 'exec sleep 301' & wait"
    text = f'name: Far\ntarget: goal\njobs:\n  - {{id: a, work: "echo half > half.txt; {forks}"}}\n'
    owner = desk.start("run", desk.plan(text))
    far = desk.folder / "far"
    until(lambda: far.exists() and far.read_text().strip())
    owner.process.kill()
    owner.process.wait(10)
    assert psutil.pid_exists(int(far.read_text()))

    resumed = desk("resume")

    assert resumed.code == 1 and "interrupted" in resumed.out
    desk.check_nothing_runs()
    assert Path(desk.status()["jobs"][0]["worktree"], "half.txt").read_text() == "half\n"


# ------------------------------------------------------------------------- somebody else's git


@contextmanager
def over_and_over(action: Callable[[], object]) -> Iterator[list[object]]:
    """Do something in a loop beside the block; the list tells how often it was done."""
    done: list[object] = []
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            done.append(action())

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join(60)


def tidy(repo: Repo) -> None:
    for words in (
        ("reflog", "expire", "--expire=now", "--all"),
        ("worktree", "prune", "--expire=now"),
        ("repack", "-adq"),
        ("gc", "-q", "--prune=now"),
    ):
        repo.run(*words)  # two of them at once may refuse each other


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_repository_that_is_tidied_all_the_time_loses_nothing(desk: Desk, rounds: int) -> None:
    for number in range(rounds):
        with over_and_over(lambda: tidy(desk.repo)) as times:
            done = desk("run", desk.plan(fan(20, mark=f"r{number}-")))
        assert done.code == 0, done.talk
        assert times
    tidy(desk.repo)
    desk.check_sound()
    assert {f"r{number}-{n}.txt" for number in range(rounds) for n in range(20)} <= set(desk.repo.files("goal"))


def test_a_result_outlives_its_failed_and_deleted_plan_until_that_is_purged(desk: Desk) -> None:
    jobs = "[{id: a, work: 'echo a > a.txt'}, {id: b, needs: [a], work: 'exit 3'}]"
    desk("run", desk.plan(f"name: Half\ntarget: goal\njobs: {jobs}\n"))
    plan, result = desk.status()["plan"]["id"], desk.status()["jobs"][0]["commit"]

    deleted = desk("delete", plan, "--yes")
    tidy(desk.repo)
    kept = desk.repo.exists(result) and desk.repo.files(result)
    purged = desk("purge", plan, "--yes")
    tidy(desk.repo)

    assert (deleted.code, purged.code) == (0, 0)
    assert kept and kept["a.txt"] == "a\n"
    assert not desk.repo.exists(result) and desk.repo.refs() == {}


def test_a_target_that_others_move_meanwhile_gets_the_result_on_top(desk: Desk) -> None:
    repo = desk.repo
    repo("branch", "goal")
    others: list[str] = []

    def move() -> None:
        """Commit on the target from nowhere near it, each time the plan checks its result."""
        looks = len([body for *_, name, body in desk.events() if name == "ProgramStarted" and "__snapshot" in body])
        if len(others) < min(3, looks):
            tip = repo.head("goal")
            blob = repo("hash-object", "-w", "--stdin", stdin=b"theirs\n").strip()
            listed = f"{repo('ls-tree', tip)}100644 blob {blob}\ttheirs-{len(others)}.txt\n"
            tree = repo("mktree", stdin=listed.encode()).strip()
            others.append(repo("commit-tree", tree, "-p", tip, "-m", "theirs").strip())
            repo("update-ref", "refs/heads/goal", others[-1], tip)

    with over_and_over(move):
        done = desk("run", desk.plan(fan(4).replace("'true'", "sleep 0.5")))

    assert done.code == 0, done.talk
    assert len(others) == 3
    assert repo.run("merge-base", "--is-ancestor", others[-1], "goal").status == 0
    check_landed_once(desk, {*(f"f{n}.txt" for n in range(4)), *(f"theirs-{n}.txt" for n in range(3))})


def test_a_worktree_that_is_removed_by_hand_fails_its_job_and_no_other(desk: Desk) -> None:
    owner = held_open(desk)
    folder = Path(desk.status()["jobs"][0]["worktree"])

    shutil.rmtree(folder)
    (desk.folder / "go").touch()
    failed = owner.end()
    again = desk("retry", "--fresh")

    assert failed.code == 1 and "a  failed" in failed.out, failed.talk
    assert again.code == 0, again.talk
    check_landed_once(desk, {"half.txt"})


# ------------------------------------------------------------------------------------ broken disks


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[None]:
    """A file system of its own at a place; skips where we may not mount."""
    place.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(["mount", *options, str(place)], capture_output=True, timeout=30, check=False)
    if made.returncode != 0:
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], timeout=30, check=True)


def test_a_full_disk_is_said_and_the_plan_goes_on_when_there_is_room(tmp_path: Path) -> None:
    small = tmp_path / "small"
    with mounted(small, "-t", "tmpfs", "-o", "size=6m", "none"):
        for desk in desks(small):
            (tmp_path / "fill").touch()
            filler = f"test -e {tmp_path}/fill && dd if=/dev/zero of={small}/filler bs=64k count=1000; "
            plan = desk.plan(fan(4, filler))
            full = desk("run", plan)
            looked = desk("status")
            for file in (tmp_path / "fill", small / "filler"):
                file.unlink()
            bring_to_its_end(desk, plan)

            assert full.code == 1, full.talk
            assert "no space" in full.talk.lower()
            assert looked.code in (0, 3)
            check_landed_once(desk, {f"f{n}.txt" for n in range(4)})


def test_those_who_wait_for_the_next_event_are_told_when_there_will_be_none(tmp_path: Path) -> None:
    told = threading.Event()
    failpoint.rearm("journal.before-commit:1:error")
    try:
        journal = Journal.open(tmp_path / "journal.db")
        journal.on_commit(lambda _: told.set())
        journal.append(PlanId("p"), PlanPaused("full"), 1.0)

        assert told.wait(10)
        assert journal.failure is not None
        journal.close()
    finally:
        failpoint.rearm(None)


@pytest.mark.parametrize("nth", [2, 5, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4, 6, 7, 8, 9, 10))])
def test_a_journal_that_fails_ends_the_run_and_the_plan_can_go_on(desk: Desk, nth: int) -> None:
    plan = desk.plan(fan(3))

    done = desk("run", plan, ORCHARD_FAILPOINT=f"journal.before-commit:{nth}:error")
    bring_to_its_end(desk, plan)

    assert done.code in (0, 1)
    assert done.code == 0 or "can record nothing any more" in done.err
    check_landed_once(desk, {f"f{n}.txt" for n in range(3)})


def test_a_state_folder_that_cannot_be_written_is_said(desk: Desk) -> None:
    desk("run", desk.plan(SMALL))
    state = desk.state
    with mounted(state, "--bind", str(state)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(state)], check=True, timeout=30)
        refused = [desk("run", desk.plan(SMALL)), desk("undo", "--yes"), desk("run", desk.plan(SMALL), "--detach")]
        looked = [desk("status").code, desk("list").code, desk("logs", "a").code]

    assert [done.code for done in refused] == [1, 1, 1], refused
    assert all("ead-only" in done.err for done in refused), refused
    assert looked == [0, 0, 0]
    assert len(desk.events("PlanSubmitted")) == 1


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(40_000))


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 : len(data)] = random.Random(2).randbytes(len(data) - 4096)
    path.write_bytes(data)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE songs (name TEXT)")


@pytest.mark.parametrize("damage", [garbage, torn, scribbled, emptied, folder, newer, foreign])
def test_a_journal_that_cannot_be_used_is_said_and_left_as_it_is(desk: Desk, damage: Callable[[Path], None]) -> None:
    desk("run", desk.plan(SMALL))
    journal = desk.state / "journal.db"
    for beside in ("-wal", "-shm"):
        journal.with_name(journal.name + beside).unlink(missing_ok=True)
    damage(journal)
    before = desk.git_bytes()

    told = [desk("status"), desk("list"), desk("run", desk.plan(SMALL)), desk("undo", "--yes"), desk("undo", "--yes")]
    checked = desk("doctor")

    assert [done.code for done in told] == [1] * 5, told
    assert all(str(journal) in done.err for done in told)
    assert ("newer" in told[0].err) == (damage is newer)
    assert checked.code in (0, 1) and "journal" in checked.talk
    assert changed(before, desk.git_bytes()) == set()


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """The files that differ, but for those that say who is at work."""
    moving = ("engine.lock", "engine.log", "daemon.json", "place.json")
    return {name for name in before | after if before.get(name) != after.get(name) and not name.endswith(moving)}


STALE = {"pid": 1, "started": 1.0, "boot": "x", "socket": "/nowhere", "nonce": "0"}


BAD_ADDRESSES = ["", "{", "null", '{"pid": "x"}', json.dumps(STALE), json.dumps({**STALE, "pid": -1}), "\xff" * 9]


@pytest.mark.parametrize("text", BAD_ADDRESSES)
def test_an_address_that_leads_nowhere_stops_nobody(desk: Desk, text: str) -> None:
    desk.state.mkdir()
    (desk.state / "daemon.json").write_bytes(text.encode("latin-1"))

    done = desk("run", desk.plan(SMALL))

    assert done.code == 0, done.talk
    assert not (desk.state / "daemon.json").exists()


@pytest.mark.parametrize("mode", [None, 0o777])
def test_a_folder_for_sockets_that_others_can_enter_is_not_used(desk: Desk, mode: int | None) -> None:
    place = desk.runtime / "orchard"
    if mode is None:
        place.write_text("not a folder")
    else:
        place.mkdir()
        place.chmod(mode)

    done = desk("run", desk.plan(SMALL))

    assert done.code == 1, done.talk
    assert str(place) in done.err and ("XDG_RUNTIME_DIR" in done.err or "File exists" in done.err)
    assert desk.events() == []


@pytest.mark.parametrize("missing", ["HOME", "TERM", "LANG", "XDG_RUNTIME_DIR"])
def test_a_variable_that_is_not_set_stops_nothing(desk: Desk, missing: str) -> None:
    done = desk("run", desk.plan(SMALL), **{missing: None})  # type: ignore[arg-type]

    assert done.code == 0, done.talk


# ------------------------------------------------------------------------------------------ bounds


def test_two_repositories_share_the_slots_of_their_user(desk: Desk) -> None:
    log = desk.folder / "slots"
    work = f"echo + >> {log}; sleep 0.15; echo - >> {log}; "
    other = desk.beside("other")
    plans = [one.plan(fan(6, work)) for one in (desk, other)]

    runs = [one.start("run", plan, ORCHARD_CAPACITY="2") for one, plan in zip((desk, other), plans, strict=True)]
    codes = [run.end().code for run in runs]

    level, highest = 0, 0
    for sign in log.read_text().split():
        level += 1 if sign == "+" else -1
        highest = max(highest, level)
    assert codes == [0, 0]
    assert (level, highest) == (0, 2)


def test_a_log_of_200_mb_costs_the_engine_no_memory_and_its_end_is_found_at_once(desk: Desk) -> None:
    owner = held_open(
        desk, "head -c 200000000 /dev/zero | tr '\\\\000' x | fold -w 99; echo; echo the end; echo a > a.txt"
    )
    memory = psutil.Process(owner.pid).memory_info().rss
    follower = desk.start("logs", "a", "-f", "--tail", "1")
    follower.shows("the end")
    began = time.monotonic()
    tail = desk("logs", "a", "--tail", "3")
    took = time.monotonic() - began
    (desk.folder / "go").touch()
    highest = max(memory, most_memory(owner))
    done: Done = owner.end()

    assert done.code == 0, done.talk
    assert tail.out.splitlines()[-1] == "the end"
    assert len(tail.out.splitlines()) == 3
    assert highest - baseline(desk) < 50 * MIB
    assert took < 5, took


def most_memory(running: Running) -> int:
    """The most that a program holds, looked at until it ends."""
    most = 0

    def ended() -> bool:
        nonlocal most
        most = max(most, rss(running))
        return running.process.poll() is not None

    until(ended)
    return most


def rss(running: Running) -> int:
    try:
        found: int = psutil.Process(running.pid).memory_info().rss
    except psutil.Error:
        return 0
    return found


def baseline(desk: Desk) -> int:
    """What an engine takes for the smallest plan of all, at its most."""
    text = "name: Idle\ntarget: idle\njobs: [{id: a, work: 'sleep 0.3; echo i > i.txt'}]\n"
    return most_memory(desk.start("run", desk.plan(text)))
