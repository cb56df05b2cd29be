"""`orchard bench` measures in copies: it says what it found, and leaves the user's repository as it was."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchard.bench import floors, own
from orchard.bench.parts import merge_leaves
from orchard.bench.place import git, open_bench
from orchard.bench.rounds import Row
from orchard.errors import NotFound, OrchardError
from orchard.git.repository import find_repository
from orchard.surfaces.cli.commands.machine import bench as benching
from orchard.surfaces.cli.commands.machine.bench import meaning
from orchard.surfaces.cli.start import run_command_line
from orchard.testing import Repo

SECONDS = 180
FLOORS = not floors.missing(*floors.PROGRAMS)


def contents(folder: Path) -> dict[str, str]:
    """A hash of every file below a folder, git's own included."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def make_users_repository(folder: Path) -> Repo:
    """A repository in the middle of work, which ignores whatever it does not know."""
    repo = Repo.make(folder)
    repo.commit({".gitignore": "*\n!.gitignore\n"})
    repo.write({"README.md": "# Edited\n", "untracked.txt": "mine\n", "staged.txt": "mine\n"})
    repo("add", "-f", "staged.txt")
    return repo


def environment(scratch: Path) -> dict[str, str]:
    scratch.mkdir()
    return {**os.environ, "TMPDIR": str(scratch)}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, Path, bool]:
    """One small run: its document, its talk, its scratch folder, and whether the user's files are the same."""
    folder = tmp_path_factory.mktemp("bench")
    repo = make_users_repository(folder / "mine")
    before = contents(repo.path)
    names = benching.NAMES if FLOORS else ("worktrees", "journal", "start")
    words = ["bench", *names, "--jobs", "2", "--parallel", "2", "--rounds", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "orchard", *words],
        cwd=repo.path,
        env=environment(folder / "tmp"),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr, folder / "tmp", contents(repo.path) == before


def test_everything_is_measured_beside_a_floor(measured: tuple[dict[str, Any], str, Path, bool]) -> None:
    document, _, _, _ = measured

    assert {row["measure"] for row in document["rows"]} == set(document["samples"])
    assert all(row["ours"] > 0 for row in document["rows"])
    bare = [row["what"] for row in document["rows"] if row["floor"] is None]
    assert bare == (["a plan of one such job"] if FLOORS else [])
    assert (document["jobs"], document["parallel"], document["rounds"], document["files"]) == (2, 2, 1, 2)
    assert document["cores"] and document["file_system"] and document["git"]


def test_the_users_repository_is_as_it_was(measured: tuple[dict[str, Any], str, Path, bool]) -> None:
    assert measured[3]


def test_nothing_is_left_of_measuring(measured: tuple[dict[str, Any], str, Path, bool]) -> None:
    assert list(measured[2].iterdir()) == []


def test_progress_is_told_beside_the_answer(measured: tuple[dict[str, Any], str, Path, bool]) -> None:
    assert "round 1 of 1" in measured[1] and "scratch copies" in measured[1]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["ctrl-c", "terminated"]
)
@pytest.mark.slow
def test_whoever_stops_it_finds_nothing_left(tmp_path: Path, number: signal.Signals) -> None:
    repo = make_users_repository(tmp_path / "mine")
    before = contents(repo.path)
    scratch = tmp_path / "tmp"
    words = ["bench", "journal" if not FLOORS else "jobs", "--jobs", "1000", "--parallel", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "orchard", *words],
        cwd=repo.path,
        env=environment(scratch),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        until_measuring(scratch, process)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()

    assert process.returncode == 130
    assert "scratch copies are removed" in said
    assert list(scratch.iterdir()) == []
    assert contents(repo.path) == before
    assert alive_with(scratch) == []


def alive_with(scratch: Path) -> list[str]:
    """Every process that was started with this folder as its temporary one."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(scratch):
                found.append(f"{process.pid} {process.status()} {process.cmdline()}")
    return found


def until_measuring(scratch: Path, process: "subprocess.Popen[str]") -> None:
    """Wait until a side has begun: its repository is there and has a script or a database in it."""
    deadline = time.monotonic() + 60
    while not [*scratch.glob("orchard-bench-*/copy-*/copy/.git/*.sh"), *scratch.glob("orchard-bench-*/*/*.db")]:
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --------------------------------------------------------------------------------------- the words


def test_the_names_on_the_command_line_are_those_that_can_be_measured() -> None:
    assert tuple(own.MEASURES) == benching.NAMES


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["speed"], "speed"),
        (["--jobs", "0"], "--jobs"),
        (["--jobs", "1001"], "--jobs"),
        (["--parallel", "17"], "--parallel"),
        (["--rounds", "many"], "--rounds"),
        (["--rounds", "-1"], "--rounds"),
        (["--folder", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--faster"], "--faster"),
    ],
)
def test_bad_usage_measures_nothing(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["bench", *words]) == 2

    said = capsys.readouterr()
    assert said.out == "" and message in said.err and "hint: " in said.err


def test_outside_of_a_repository_there_is_nothing_to_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["-C", str(tmp_path), "bench", "start"]) in (2, 3)
    assert "repository" in capsys.readouterr().err


def test_a_repository_without_commits_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(tmp_path, "init", "-q", str(tmp_path / "new"))

    assert run_command_line(["-C", str(tmp_path / "new"), "bench", "start"]) == 3
    assert "Commit something" in capsys.readouterr().err


def test_without_the_programs_of_the_scripts_the_rest_can_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert run_command_line(["-C", str(tmp_path), "bench"]) == 1
    said = capsys.readouterr().err
    assert "flock" in said and "orchard bench worktrees journal start" in said


def test_a_disk_that_is_too_small_is_told_before_anything_begins(tmp_path: Path) -> None:
    source = own.Source(find_repository(Repo.make(tmp_path / "mine").path), "0" * 40, 1, 10**18)

    with pytest.raises(OrchardError, match="MB are free"):
        own.check_room(tmp_path, source, 4)


def test_every_measure_is_explained_in_words() -> None:
    for name in own.MEASURES:
        rows = [Row(name, "what", 2.0, 1.0, "ms", 0.5, "", ok=True)] * 2
        assert all(sentence.endswith(".") for sentence in meaning(rows))
        assert meaning(rows) != meaning([Row("start", "what", 2.0, 1.0, "ms", 0.5, "", ok=True)] * 2) or name == "start"


# ---------------------------------------------------------------------------------------- the copies


def checked_out(repo: Repo, tmp_path: Path, state: str) -> Path:
    """A repository of the user's in some state; where the user stands."""
    repo.commit({"a.txt": "a\n"})
    if state == "detached":
        repo("checkout", "-q", "--detach", "HEAD~1")
    if state == "linked worktree":
        repo("worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"), "HEAD~1")
        return tmp_path / "linked"
    if state in ("shallow", "bare"):
        option = "--bare" if state == "bare" else "--depth=1"
        git(tmp_path, "clone", "-q", option, f"file://{repo.path}", str(tmp_path / "clone"))
        return tmp_path / "clone"
    return repo.path


@pytest.mark.parametrize("state", ["plain", "detached", "linked worktree", "shallow", "bare", "sha256"])
def test_a_copy_holds_the_commit_that_the_user_stands_on(tmp_path: Path, state: str) -> None:
    form = "sha256" if state == "sha256" else "sha1"
    place = checked_out(Repo.make(tmp_path / "mine", object_format=form), tmp_path, state)
    head = git(place, "rev-parse", "HEAD")
    before = contents(place)

    with open_bench(quick=True) as bench:
        source = own.find_source(find_repository(place))
        copy = own.make_copy(bench, source, leaves=2)

        assert git(copy, "rev-parse", "main~1") == head == source.commit
        assert git(copy, "diff", "--name-only", "main~1", "main") == ".gitignore"
        assert git(copy, "diff", "--name-only", "main", "leaf/1") == "leaf1.txt"
        assert git(copy, "fsck", "--connectivity-only", "--no-dangling") == ""
        assert merge_leaves(copy, 2) > 0
    assert contents(place) == before


def test_an_unborn_branch_is_no_source(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", str(tmp_path / "new"))

    with pytest.raises(NotFound):
        own.find_source(find_repository(tmp_path / "new"))


def test_what_an_installed_program_measures_with_is_installed_with_it(tmp_path: Path) -> None:
    code = "import sys, orchard.bench.own, orchard.surfaces.cli.commands.machine.bench; print('bench' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "False"
