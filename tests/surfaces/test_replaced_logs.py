"""A job may put anything in the place of its log: nobody who reads the log follows a link, or waits for a pipe."""

import os
from pathlib import Path

import pytest

from orchard.agents.backends.stream import Complaints
from orchard.store.redact import Redactor
from orchard.surfaces.mcp import resources
from tests.surfaces.test_cli_program import Desk

SECRET = "what no job may have shown"


def replace_log(log: Path, kind: str, secret: Path) -> None:
    log.unlink(missing_ok=True)
    if kind == "link":
        log.symlink_to(secret)
    else:
        os.mkfifo(log)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(f"{SECRET}\n")
    return path


@pytest.mark.parametrize("kind", ["link", "fifo"])
@pytest.mark.parametrize("words", [(), ("--tail", "5"), ("--all", "--raw"), ("--follow",)], ids=str)
def test_orchard_logs_prints_nothing_of_what_a_job_put_in_the_place_of_its_log(
    tmp_path: Path, secret: Path, kind: str, words: tuple[str, ...]
) -> None:
    desk = Desk(tmp_path)
    put = {"link": f"ln -s {secret}", "fifo": "mkfifo"}[kind]
    work = f'rm \\"${{ORCHARD_EVIDENCE%/*}}/work.log\\"; {put} \\"${{ORCHARD_EVIDENCE%/*}}/work.log\\"; echo 1 > one'
    desk("run", desk.plan(f'name: P\ntarget: feature\njobs:\n  - {{id: one, work: "{work}"}}\n'))
    left = next((desk.repo.path / ".git" / "orchard" / "logs").rglob("work.log"))
    assert left.is_symlink() or left.is_fifo()
    assert str(left) not in desk("job", "one", "--json").out

    done = desk("logs", "one", *words)

    assert done.code == 0 and SECRET not in done.out + done.err
    said = " ".join((done.out + done.err).split())
    assert "in the place of its log" in said and "Nothing was printed" not in said


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_the_log_at_an_address_of_mcp_is_a_file_of_its_own_or_nothing(tmp_path: Path, secret: Path, kind: str) -> None:
    log = tmp_path / "work.log"
    replace_log(log, kind, secret)

    assert resources._tail(log, Redactor([]), 1000) == ""


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_the_complaints_of_an_agent_are_read_from_its_log_alone(tmp_path: Path, secret: Path, kind: str) -> None:
    log = tmp_path / "work.log"
    log.touch()
    complaints = Complaints(log)
    replace_log(log, kind, secret)

    assert complaints.read() == ""
