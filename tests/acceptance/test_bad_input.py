"""Everything a user can get wrong: each row is refused with its exit code and its words, and changes nothing."""

import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import pytest

from orchard.surfaces.cli.start import run_command_line
from tests.acceptance.bad_rows import GOOD, LIMITS, MEANING, PLANS, SETTINGS, STATES, SYNTAX, USAGE, Row, said
from tests.acceptance.hostile_rows import HOSTILE, MISNAMED
from tests.acceptance.program import Desk, Done, desks, until

ROWS = [*SYNTAX, *MEANING, *LIMITS, *USAGE, *HOSTILE]
LATER = [*STATES, *MISNAMED]
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A repository in which nothing has happened yet."""
    yield from desks(tmp_path_factory.mktemp("bad"))


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A repository with a plan in each state in which a plan rests."""
    for desk in desks(tmp_path_factory.mktemp("used")):
        for name, jobs in PLANS.items():
            text = f"name: {name}\ntarget: t-{name}\n{'' if 'jobs:' in jobs else 'jobs:'}\n{jobs}"
            assert desk("run", desk.plan(text)).code == {"failed": 1, "held": 4}.get(name, 0)
        yield desk


def refuse(desk: Desk, row: Row) -> None:
    """Make the mistake; see that it is told, and that nothing came of it."""
    path = desk.folder / row.file
    path.write_bytes(row.text if isinstance(row.text, bytes) else row.text.encode())
    before = desk.fingerprint()

    done = here(desk, [str(path) if word == "FILE" else word for word in row.words], row.stdin, dict(row.env))

    assert done.code == row.code, done.talk
    assert "error: " in done.err
    assert "Traceback" not in done.talk
    assert [words for words in row.says if words not in done.talk] == [], done.talk
    assert UNPRINTABLE.search(done.talk) is None, done.talk
    assert desk.fingerprint() == before


def here(desk: Desk, words: list[str], stdin: bytes, env: dict[str, str]) -> Done:
    """The program in this process: its command line, its code and its streams, in a twentieth of the time."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch, chdir(desk.repo.path):
        for name in os.environ:
            patch.delenv(name)
        for name, value in {**desk.env, **env}.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            code = run_command_line(words)
    for stream in streams:
        stream.seek(0)
    out, err = (stream.read() for stream in streams)
    return Done(code, out, err)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_what_cannot_be_is_refused_and_changes_nothing(desk: Desk, row: Row) -> None:
    refuse(desk, row)


@pytest.mark.parametrize("row", LATER, ids=[row.name for row in LATER])
def test_what_a_plan_cannot_do_now_is_refused(used: Desk, row: Row) -> None:
    refuse(used, row)


def test_the_table_is_long_and_names_each_mistake_once() -> None:
    names = [row.name for row in (*ROWS, *LATER)] + [name for name, *_ in SETTINGS]

    assert len(names) >= 240
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("name", "text", "code", "words"), SETTINGS, ids=[row[0] for row in SETTINGS])
def test_settings_that_cannot_be_are_refused(tmp_path: Path, name: str, text: bytes, code: int, words: str) -> None:
    for desk in desks(tmp_path):
        (desk.repo.path / "orchard.toml").write_bytes(text)
        refuse(desk, said(name, "run FILE", code, words))


@pytest.mark.parametrize("kind", ["loop", "below a file", "long", "closed"])
def test_a_plan_that_cannot_be_read_is_refused(desk: Desk, kind: str) -> None:
    loop = desk.folder / "loop.yaml"
    loop.unlink(missing_ok=True)
    loop.symlink_to("loop.yaml")
    closed = desk.plan(GOOD, "closed.yaml")
    closed.chmod(0)
    place = {"loop": loop, "below a file": desk.plan(GOOD) / "x", "long": desk.folder / ("x" * 300), "closed": closed}[
        kind
    ]
    if os.access(place, os.R_OK):
        pytest.skip("nothing is closed to this user")

    for verb in ("run", "validate", "graph"):
        refuse(desk, Row(kind, 2 if verb != "graph" else 3, (), (verb, str(place))))


def test_a_plan_may_come_through_a_pipe_and_is_judged_like_any_other(desk: Desk) -> None:
    pipe = desk.folder / "pipe.yaml"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("name: x",))
    writer.start()
    before = desk.fingerprint()

    done = here(desk, ["run", str(pipe)], b"", {})

    writer.join(10)
    assert done.code == 2 and "at least one job" in done.err
    assert desk.fingerprint() == before


@pytest.mark.parametrize("words", ["list", "status", "run nofile.yaml", "--help", "schema"])
@pytest.mark.parametrize("streams", ["1", "2", "12", "012"])
def test_closed_streams_are_no_reason_to_fall_over(desk: Desk, words: str, streams: str) -> None:
    closing = " ".join(f"{one}>&-" for one in streams)
    shell = f'exec "$0" -m orchard {words} {closing}'
    expected = {"list": 0, "status": 3, "run nofile.yaml": 2, "--help": 0, "schema": 0}[words]
    before = desk.fingerprint()

    done = subprocess.run(
        ["sh", "-c", shell, sys.executable],
        cwd=desk.repo.path,
        env=desk.env,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert b"Traceback" not in done.stdout + done.stderr
    assert done.returncode == expected, done
    assert desk.fingerprint() == before


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_settings_that_are_no_file_are_refused(tmp_path: Path, kind: str) -> None:
    for desk in desks(tmp_path):
        place = desk.repo.path / "orchard.toml"
        place.mkdir() if kind == "folder" else os.mkfifo(place)
        assert (done := desk("list")).code == 2 and "orchard.toml: is not a file" in done.err


def test_settings_of_the_user_are_checked_as_well(tmp_path: Path) -> None:
    for desk in desks(tmp_path):
        place = Path(desk.env["XDG_CONFIG_HOME"]) / "orchard"
        place.mkdir(parents=True)
        (place / "config.toml").write_text("nope = 1\n")
        refuse(desk, said("user", "list", 2, "config.toml:1 nope: unknown key"))


@pytest.mark.parametrize("words", ["status", "run FILE", "list", "cancel x", "doctor"])
def test_outside_a_repository_the_user_is_told_so(desk: Desk, words: str) -> None:
    path = desk.plan(GOOD)

    done = desk(*words.replace("FILE", str(path)).split(), cwd=desk.folder)

    assert done.code == 2 and "not in a git repository" in done.err


def test_a_repository_without_a_commit_has_nothing_to_start_from(tmp_path: Path) -> None:
    for desk in desks(tmp_path):
        empty = tmp_path / "empty"
        desk.repo("init", "-q", "--initial-branch=main", str(empty))

        done, looked = desk("run", desk.plan(GOOD), cwd=empty), desk("status", cwd=empty)

        assert done.code == 2 and "no commit yet" in done.err and "git commit" in done.err
        assert looked.code == 3


@pytest.mark.parametrize("words", [["status", ""], ["cancel", ""], ["purge", "", "--yes"], ["job", ""], ["retry", ""]])
def test_an_empty_name_means_nothing(tmp_path: Path, words: list[str]) -> None:
    """A script whose variable is empty must not cancel or purge whatever plan happens to be there."""
    for desk in desks(tmp_path):
        desk("run", desk.plan(GOOD), "--start-paused")
        before = desk.fingerprint()

        done = desk(*words)

        assert done.code in (2, 3), done.talk
        assert desk.fingerprint() == before


def test_empty_work_for_a_retry_is_refused_and_not_ignored(used: Desk) -> None:
    refuse(used, Row("empty", 2, ("--work", "must not be empty"), ("retry", "bad", "--plan", "failed", "--work", "")))


def test_work_for_an_agent_is_refused_by_a_retry_as_by_a_run(tmp_path: Path) -> None:
    for desk in desks(tmp_path):
        desk("run", desk.plan(f"name: x\ntarget: t\njobs:\n{PLANS['failed']}"))
        words = ("retry", "bad", "--work", "@agent mend it")
        refuse(desk, Row("agent", 2, ("work for an agent",), words))


def test_a_deleted_plan_cannot_be_resumed(tmp_path: Path) -> None:
    for desk in desks(tmp_path):
        desk("run", desk.plan(GOOD), "--start-paused")
        plan_id = desk.status()["plan"]["id"]
        desk("delete", "--yes")
        refuse(desk, said("deleted", f"resume {plan_id}", 2, "was deleted"))


def test_what_is_done_already_is_said_again_and_not_done_again(tmp_path: Path) -> None:
    for desk in desks(tmp_path):
        desk("run", desk.plan(GOOD))
        undo = f"undo {desk.status()['plan']['id']} --yes"
        codes = [desk(*undo.split()).code for _ in (1, 2)]
        undone = desk.fingerprint()
        again = desk(*undo.split())

        assert codes == [0, 0]
        assert again.code == 0 and desk.fingerprint() == undone
        assert len(desk.events("LandingUndone")) == 1
        assert not desk.repo.exists("refs/heads/goal")


WRONG_WHILE_RUNNING = {
    "retry slow": "'slow' is running",
    "retry next": "only a failed or canceled job",
    "approve slow --yes": "",
    "land": "waits to be landed",
    "land Busy --yes": "nothing to land",
    "undo --yes": "has landed",
    "undo Busy --yes": "has not landed",
    "reshape Busy --remove slow": "has started",
    "purge": "is deleted",
    "cancel Bus": "no plan or job 'Bus'",
    "cancel slo": "no plan or job 'slo'",
    "force-fail slo": "not enough",
    "delete busy --yes": "not enough",
}


def _knows_its_program(desk: Desk) -> bool:
    return bool(desk.events("ProgramStarted"))


def test_a_running_plan_refuses_what_it_cannot_do_and_runs_on(tmp_path: Path) -> None:
    for desk in desks(tmp_path):
        go = tmp_path / "go"
        work = f"echo a > a.txt; touch {tmp_path}/on; until test -e {go}; do sleep 0.05; done"
        jobs = f'jobs:\n  - {{id: slow, work: "{work}"}}\n  - {{id: next, needs: [slow], work: "echo b > b.txt"}}\n'
        owner = desk.start("run", desk.plan(f"name: Busy\ntarget: goal\n{jobs}"))
        until((tmp_path / "on").exists)
        until(partial(_knows_its_program, desk), "the journal to know of the program")
        before = desk.fingerprint()

        refused = {words: desk(*words.split()) for words in WRONG_WHILE_RUNNING}
        after = desk.fingerprint()
        go.touch()

        for words, told in WRONG_WHILE_RUNNING.items():
            assert refused[words].code in (2, 3) and told in refused[words].err, (words, refused[words])
        assert after == before
        assert owner.end().code == 0 and len(desk.events("Landed")) == 1
