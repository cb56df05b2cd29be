"""The log of Orchard itself: off unless a person asks, in lines with time and component, without what people say."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard import own_log
from tests.acceptance.program import Desk, desks

PLAN = 'name: One\njobs: [{id: a, env: {MY_TOKEN: hush-hush-hush}, work: "echo very-private > a; echo $MY_TOKEN"}]\n'
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d{4} (debug|info|warning) +\[[a-z]+\] \S.*")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / own_log.FOLDER
    own_log.start(None, 0, tmp_path)


def lines_of(folder: Path) -> list[str]:
    return [line for file in folder.rglob("orchard-*.log") for line in file.read_text().splitlines()]


def test_nothing_is_written_unless_someone_asks(desk: Desk, tmp_path: Path) -> None:
    done = desk("run", desk.plan(PLAN))
    assert "[engine]" not in done.talk
    assert lines_of(tmp_path) == []


def test_verbose_says_on_stderr_what_happens_and_leaves_stdout_alone(desk: Desk) -> None:
    done = desk("run", "-v", desk.plan(PLAN))
    told = [line for line in done.err.splitlines() if LINE.fullmatch(line)]
    assert done.code == 0 and "[engine]" not in done.out
    assert any("JobSucceeded job=a" in line for line in told) and any("create_plan: done" in line for line in told)
    assert not any("[git]" in line for line in told)
    assert "[git]" in desk("-vv", "list").err


def test_the_variable_writes_a_private_file_that_holds_no_texts_of_plans(desk: Desk, tmp_path: Path) -> None:
    desk.env[own_log.VARIABLE] = "debug"
    done = desk("run", desk.plan(PLAN))
    found = lines_of(tmp_path)
    assert done.code == 0 and "[engine]" not in done.talk
    assert found and all(LINE.fullmatch(line) for line in found)
    assert {"engine", "operations", "git", "process"} <= {line.split("[")[1].split("]")[0] for line in found}
    assert not [line for line in found if "very-private" in line or "hush" in line]
    for file in tmp_path.rglob("orchard-*.log"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_engine_in_the_background_has_a_file_of_its_own(desk: Desk, tmp_path: Path) -> None:
    desk.env[own_log.VARIABLE] = "info"
    desk("run", "--detach", desk.plan(PLAN))
    desk("wait")
    assert any("JobSucceeded job=a" in line for line in lines_of(tmp_path))


def test_verbose_and_the_variable_have_levels_of_their_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_log.start("debug", 1, folder.parent)
    own_log.debug("git", "status")
    own_log.info("engine", "JobStarted")
    assert len(lines_of(folder)) == 2
    assert "status" not in capsys.readouterr().err


def test_the_file_of_a_process_that_lives_is_kept(folder: Path) -> None:
    folder.mkdir()
    mine = folder / f"orchard-20200101-000000-{os.getpid()}.log"
    mine.touch()
    for number in range(30):
        (folder / f"orchard-2021010{number // 10}-00000{number % 10}-999999999.log").touch()
    own_log.start("info", 0, folder.parent)
    own_log.info("engine", "JobStarted")
    assert mine.exists() and len(list(folder.iterdir())) <= own_log.KEPT_FILES + 2


@pytest.mark.parametrize("wanted", ["loud", "debug:nothing", "debug;git"])
def test_a_word_that_is_no_level_is_refused(desk: Desk, wanted: str) -> None:
    desk.env[own_log.VARIABLE] = wanted
    done = desk("list")
    assert done.code == 2 and "ORCHARD_LOG is a level" in done.err


def test_some_components_can_be_chosen(folder: Path) -> None:
    own_log.start("debug:git", 0, folder.parent)
    own_log.debug("git", "status")
    own_log.info("engine", "JobStarted")
    assert [line.split("] ")[1] for line in lines_of(folder)] == ["status"]


def test_a_file_turns_over_and_old_files_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    for number in range(30):
        (folder / f"orchard-2020010{number // 10}-00000{number % 10}-999999999.log").touch()
    monkeypatch.setattr(own_log, "FILE_BYTES", 500)
    own_log.start("info", 0, folder.parent)
    for number in range(40):
        own_log.info("engine", f"line {number}")
    files = sorted(folder.iterdir())
    assert len(files) <= own_log.KEPT_FILES + 1
    assert all(file.stat().st_size <= 600 for file in files)
    assert any(line.endswith("line 39") for line in lines_of(folder))


def test_control_characters_and_keys_in_addresses_do_not_get_in(folder: Path) -> None:
    own_log.start("info", 0, folder.parent)
    own_log.info("git", "push https://user:secret@host/x\n2020-01-01 forged \x1b[31m")
    (line,) = lines_of(folder)
    assert "secret" not in line and "\x1b" not in line and "https://host/x" in line
