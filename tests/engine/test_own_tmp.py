"""The temporary folder of a job behind a wall: one for all its programs, short enough for sockets, gone in the end."""

import shutil
from pathlib import Path

import pytest

from orchard.engine.machine.sandbox import Folders, _remove_stale
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


async def test_the_short_link_is_ours_or_not_used_and_stale_ones_go(tmp_path: Path) -> None:
    folders, gone = Folders(tmp_path / "jobs/one"), Folders(tmp_path / "jobs/two")
    for one in (folders, gone):
        one.make()
    assert gone.make_short() == gone.short
    assert (gone.short / "x").write_text("x") and (gone.temporary / "x").exists()
    shutil.rmtree(gone.top)
    _remove_stale.cache_clear()
    kept = tmp_path / "kept"
    kept.mkdir()

    assert folders.make_short() == folders.make_short() == folders.short
    assert not gone.short.is_symlink()

    folders.short.unlink()
    folders.short.symlink_to(kept)
    try:
        assert folders.make_short() == folders.temporary
        folders.remove()
        assert kept.is_dir() and folders.short.is_symlink() and not folders.top.exists()
    finally:
        folders.short.unlink()


async def test_a_complaint_about_the_own_folder_opens_nothing(orchard: Orchard, level: str) -> None:
    status = await orchard.run(plan("$TMPDIR", "mkdir $TMPDIR/own; echo $TMPDIR/own Permission denied; exit 1"))

    assert job(status, "a")["status"] == "failed" and "sandbox." not in str(job(status, "a")["hint"])


NESTS = "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(3000)]"


async def test_folders_nested_deeper_than_the_stack_end_no_engine_and_go_with_the_job(
    orchard: Orchard, level: str
) -> None:
    status = await orchard.run(plan("$TMPDIR", f'cd $TMPDIR && python3 -c "{NESTS}"'))

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert not list((orchard.repo.path / ".git/orchard/jobs").iterdir())


@pytest.mark.parametrize("mode", ["0777", "0"])
async def test_a_temporary_folder_goes_whatever_mode_the_job_gave_it_and_is_never_advised_to_be_opened(
    orchard: Orchard, level: str, mode: str
) -> None:
    changed = f"mkdir $TMPDIR/own && chmod {mode} $TMPDIR/own $TMPDIR/. && echo $TMPDIR"
    said = "ls $TMPDIR; ls /tmp; touch $TMPDIR/x /tmp/x; cd $TMPDIR; echo ls: /tmp: Permission denied >&2; exit 1"

    status = await orchard.run(
        f"name: n\nsetup: {changed}\njobs:\n  - id: a\n    heal: false\n    work: |\n      {said}\n"
    )

    failed = job(status, "a")
    assert failed["status"] == "failed" and "sandbox." not in str(failed["hint"]), failed
    await orchard.ask("delete_plan")
    assert not list((orchard.repo.path / ".git/orchard/jobs").iterdir())


async def test_a_result_that_is_nested_deeper_than_the_stack_is_committed(orchard: Orchard) -> None:
    nests = NESTS.replace("3000", "1200")

    status = await orchard.run(
        f"name: n\ntarget: other\njobs:\n  - id: a\n    work: |\n      python3 -c \"{nests}; open('f', 'w')\"\n"
    )

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert [name for name in orchard.repo.files("other") if name.count("/") == 1200]
