"""Disks that are full, read-only, broken, or lose files; the journal and the logs with them."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.proof.faults import Scene, fault

NO_SPACE = r"no space|disk (is )?full|out of disk|cannot be (written|saved)"
READ_ONLY = r"read-only"


def try_to_mount(*words: str | Path) -> str:
    """Mount something; returns why that was not possible."""
    done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True, timeout=30, check=False)
    return done.stderr.strip() or "it is not allowed" if done.returncode else ""


def mount(*words: str | Path) -> None:
    """Mount something; loudly skips where that is not allowed."""
    if problem := try_to_mount(*words):
        pytest.skip(f"NOT PROVEN HERE: this fault needs the right to mount: {problem}")


def unmount(place: Path) -> None:
    subprocess.run(["umount", "-l", str(place)], timeout=30, check=True)


@contextmanager
def own_disk(place: Path, options: str) -> Iterator[Path]:
    """Put what lies in a folder on a small disk of its own; afterwards it lies in the folder again."""
    place.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f"{place.name}-aside")
    shutil.copytree(place, aside, symlinks=True)
    mount("-t", "tmpfs", "-o", options, "none", place)
    try:
        shutil.copytree(aside, place, symlinks=True, dirs_exist_ok=True)
        yield place
    finally:  # after a failure as well: what is there is the evidence
        shutil.rmtree(aside)
        shutil.copytree(place, aside, symlinks=True)
        unmount(place)
        shutil.rmtree(place)
        aside.rename(place)


def fill(place: Path) -> Path:
    """Take all the room there is."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Nothing in this folder can be written, not even by root."""
    mount("--bind", place, place)
    while "busy" in try_to_mount("-o", "remount,ro,bind", place):
        unmount(place)  # somebody opened a file through the new way in that very moment
        mount("--bind", place, place)
    try:
        yield
    finally:
        unmount(place)


# ---------------------------------------------------------------------------------------- no room


@fault(NO_SPACE)
def the_disk_is_full_while_jobs_work(scene: Scene) -> None:
    with own_disk(scene.repo.path, "size=8m") as place:
        with scene.at_work():
            filler = fill(place)
        filler.unlink()


@fault(NO_SPACE, slow=True)
def the_disk_is_full_before_the_run(scene: Scene) -> None:
    with own_disk(scene.repo.path, "size=4m") as place:
        filler = fill(place)
        scene.ask("run", scene.plan_file)
        filler.unlink()


@fault(NO_SPACE)
def there_is_no_room_for_git_objects(scene: Scene) -> None:
    with own_disk(scene.repo.path / ".git" / "objects", "size=1m") as place:
        with scene.at_work():
            filler = fill(place)
        filler.unlink()


@fault(NO_SPACE)
def there_is_no_room_for_the_journal(scene: Scene) -> None:
    with own_disk(scene.state, "size=1m") as place:
        with scene.at_work():
            filler = fill(place)
        filler.unlink()


@fault(NO_SPACE)
def there_is_no_room_for_worktrees(scene: Scene) -> None:
    with own_disk(scene.repo.path / ".worktrees", "size=1m") as place:
        filler = fill(place)
        scene.ask("run", scene.plan_file)
        filler.unlink()


@fault(NO_SPACE, slow=True)
def there_are_no_inodes_for_worktrees(scene: Scene) -> None:
    with own_disk(scene.repo.path / ".worktrees", "size=1m,nr_inodes=4"):
        scene.ask("run", scene.plan_file)


@fault(r"too large|signal|disk I/O|status -25|full")
def no_file_may_grow(scene: Scene) -> None:
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40960, 40960)); "
    scene.ask("run", scene.plan_file, through=launcher(scene, limit))


def launcher(scene: Scene, first: str) -> tuple[str, ...]:
    """The program, started after some Python of the fault's own."""
    path = scene.folder / "launch.py"
    path.write_text(f"{first}\nimport sys\nfrom orchard.__main__ import main\nsys.exit(main())\n")
    return (sys.executable, str(path))


# -------------------------------------------------------------------------------------- read-only


@fault(READ_ONLY)
def the_state_folder_becomes_read_only(scene: Scene) -> None:
    with ExitStack() as lifted, scene.at_work():
        lifted.enter_context(read_only(scene.state))


@fault(READ_ONLY)
def the_repository_is_read_only_when_a_plan_is_taken_up_again(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    with read_only(scene.repo.path / ".git"):
        scene.ask("resume")


@fault(READ_ONLY, slow=True)
def git_objects_are_read_only(scene: Scene) -> None:
    scene.killed_at("commit.before:1")
    with read_only(scene.repo.path / ".git" / "objects"):
        scene.ask("resume")


@fault(READ_ONLY, slow=True)
def the_worktree_root_is_read_only(scene: Scene) -> None:
    root = scene.repo.path / ".worktrees"
    root.mkdir()
    with read_only(root):
        scene.ask("run", scene.plan_file)


# ------------------------------------------------------------------------------- files that go away


@fault(r"log|No such file")
def the_log_folder_is_removed(scene: Scene) -> None:
    with scene.at_work():
        shutil.rmtree(scene.state / "logs")


@fault(r"log|not a directory")
def the_log_folder_is_a_file(scene: Scene) -> None:
    scene.state.mkdir()
    logs = scene.state / "logs"
    logs.write_text("")
    scene.ask("run", scene.plan_file)
    logs.unlink()


@fault(r"journal|no such file|gone|ended unexpectedly|interrupted|removed or replaced", slow=True)
def the_state_folder_is_removed(scene: Scene) -> None:
    scene.forgetful = True
    with scene.at_work():
        shutil.rmtree(scene.state)


# ------------------------------------------------------------------------------------- the journal


@fault(r"journal.*(locked|busy)|locked")
def the_journal_is_locked_by_somebody(scene: Scene) -> None:
    scene.killed_at("snapshot.before-publish:1")
    with closing(sqlite3.connect(scene.state / "journal.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        scene.ask("resume")
        other.execute("ROLLBACK")


def damaged(scene: Scene, content: bytes) -> None:
    """Take a plan up while its journal holds something else; afterwards the journal is mended."""
    journal = scene.state / "journal.db"
    good = journal.read_bytes()
    journal.write_bytes(content)
    scene.ask("resume")
    scene.ask("status")
    assert journal.read_bytes() == content, "a damaged journal was written to"
    journal.write_bytes(good)


def folded(scene: Scene) -> bytes:
    """Kill an engine, and bring all of its journal into the one file."""
    scene.killed_at("snapshot.before-publish:1")
    with closing(sqlite3.connect(scene.state / "journal.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return (scene.state / "journal.db").read_bytes()


@fault(r"journal")
def the_journal_is_cut_off(scene: Scene) -> None:
    whole = folded(scene)
    damaged(scene, whole[: len(whole) // 2])


@fault(r"journal", slow=True)
def a_page_of_the_journal_is_garbage(scene: Scene) -> None:
    whole = bytearray(folded(scene))
    whole[4096:8192] = random.Random(scene.seed).randbytes(4096)
    damaged(scene, bytes(whole))


@fault(r"journal", slow=True)
def the_journal_is_garbage(scene: Scene) -> None:
    damaged(scene, random.Random(scene.seed).randbytes(len(folded(scene))))


@fault(r"interrupted|journal|ref ", slow=True)
def the_journal_loses_its_newest_events(scene: Scene) -> None:
    """A disk that lied about its syncs: the write-ahead log ends in the middle of what was acknowledged."""
    scene.killed_at("snapshot.before-publish:1")
    scene.forgetful = True
    log = scene.state / "journal.db-wal"
    os.truncate(log, log.stat().st_size * 2 // 3)
    (scene.state / "journal.db-shm").unlink(missing_ok=True)
    scene.ask("resume")
