"""The temporary folder of a job behind a wall: one for all its programs, short enough for sockets, gone in the end."""

from pathlib import Path

import pytest

from orchard.process.sandbox.level import walls
from tests.engine.conftest import Orchard, job

pytestmark = pytest.mark.anyio

LEVELS = [finding.level for finding in walls().findings if finding.works]
SOCKET = "import os, socket; socket.socket(1).bind(os.environ['TMPDIR'] + '/' + 's' * 40)"


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ORCHARD_SANDBOX", request.param)
    return str(request.param)


def plan(place: str, work: str) -> str:
    return f"""
name: n
setup: echo one > {place}/one
jobs:
  - id: a
    prechecks: grep one {place}/one && echo two > {place}/two
    work: |
      cat {place}/one {place}/two > said.txt
      {work}
    postchecks: cat {place}/one {place}/two
"""


async def test_all_programs_of_a_job_share_one_temporary_folder_which_goes_with_it(
    orchard: Orchard, level: str
) -> None:
    status = await orchard.run(plan("$TMPDIR", "echo $TMPDIR >> said.txt"))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    one, two, place = orchard.repo.files("work")["said.txt"].splitlines()
    assert (one, two) == ("one", "two") and len(place) < 60
    assert level != "bwrap" or place == "/tmp"
    assert level == "bwrap" or not Path(place).exists()
    assert not list((orchard.repo.path / ".git/orchard/jobs").iterdir())


async def test_a_file_in_tmp_is_handed_from_the_setup_to_the_checks(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    if LEVELS[0] != "bwrap":
        pytest.skip("Landlock has no mounts")
    monkeypatch.setenv("ORCHARD_SANDBOX", "bwrap")

    status = await orchard.run(plan("/tmp", "cat /var/tmp/one >> said.txt"))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert orchard.repo.files("work")["said.txt"] == "one\ntwo\none\n"
    assert not Path("/tmp/one").exists() and not Path("/tmp/two").exists()


@pytest.mark.skipif("bwrap" not in LEVELS, reason="Landlock lets a job without sockets make none")
async def test_a_socket_fits_into_the_temporary_folder(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "bwrap")

    status = await orchard.run(plan("/tmp", f'python3 -c "{SOCKET}"'))

    assert status["plan"]["status"] == "succeeded", job(status, "a")


async def test_a_stranger_s_folder_of_that_name_is_not_used(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from orchard.engine.machine.sandbox import Folders

    folders = Folders(tmp_path / "jobs/one")
    folders.make()
    kept = tmp_path / "kept"
    kept.mkdir()
    assert folders.make_short() == folders.short
    folders.short.rmdir()
    folders.short.symlink_to(kept)
    try:
        assert folders.make_short() == folders.temporary
        folders.remove()
        assert kept.is_dir() and folders.short.is_symlink()
    finally:
        folders.short.unlink()
