"""Where an engine and a daemon are found: by who wrote that, and only in the folder that it was written for."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.engine.server.address import Address, read_address, write_address
from orchard.process.families.identity import identify
from orchard.surfaces.http.daemon.address import HttpAddress, read_http_address, write_http_address
from orchard.testing import Repo
from tests.nursery import command


def _engine(state: Path) -> None:
    me = identify(os.getpid())
    assert me is not None
    write_address(state, Address(me.pid, me.started, me.boot, "socket", "nonce"))


def _daemon(state: Path) -> None:
    me = identify(os.getpid())
    assert me is not None
    write_http_address(state, HttpAddress(me.pid, me.started, me.boot, "http://127.0.0.1:1/", "t", [], "0"))


@pytest.mark.parametrize(("write", "read"), [(_engine, read_address), (_daemon, read_http_address)])
def test_a_copy_of_a_repository_has_not_the_engine_of_the_original_and_a_moved_one_keeps_it(
    tmp_path: Path, write: Callable[[Path], None], read: Callable[[Path], object]
) -> None:
    state = tmp_path / "one" / "orchard"
    state.mkdir(parents=True)
    write(state)
    found = read(state)

    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    (tmp_path / "one").rename(tmp_path / "moved")

    assert found is not None
    assert read(tmp_path / "copy" / "orchard") is None
    assert read(tmp_path / "moved" / "orchard") == found


def test_a_copy_never_becomes_an_engine_and_a_moved_or_restored_repository_does(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "one")
    command("run", _plan(tmp_path), cwd=repo.path)
    shutil.copytree(tmp_path / "one", tmp_path / "copy", symlinks=True)

    refused = command("run", _plan(tmp_path), cwd=tmp_path / "copy")
    looked = command("list", cwd=tmp_path / "copy")
    (tmp_path / "one").rename(tmp_path / "moved")
    moved = command("run", _plan(tmp_path), cwd=tmp_path / "moved")
    restored = command("run", _plan(tmp_path), cwd=tmp_path / "copy")

    assert (refused.returncode, looked.returncode) == (1, 0)
    assert f"is a copy of {tmp_path / 'one' / '.git'}" in refused.stderr and f"rm -r {tmp_path}" in refused.stderr
    assert (moved.returncode, restored.returncode) == (0, 0), moved.stderr + restored.stderr


def test_a_copy_begins_anew_without_its_records(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "one")
    command("run", _plan(tmp_path), cwd=repo.path)
    shutil.copytree(tmp_path / "one", tmp_path / "copy", symlinks=True)
    shutil.rmtree(tmp_path / "copy" / ".git" / "orchard")

    assert command("run", _plan(tmp_path), cwd=tmp_path / "copy").returncode == 0


def _plan(folder: Path) -> Path:
    plan = folder / "plan.yaml"
    plan.write_text("name: x\njobs: [{id: a, expects_no_changes: true, work: 'true'}]")
    return plan
