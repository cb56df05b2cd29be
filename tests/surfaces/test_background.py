"""`--detach`: whatever happens to the engine there is, the work goes on in the background and never in the command."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchard.app import App
from orchard.engine.server.address import read_address
from orchard.git.worktree import transfer
from orchard.process.families.identity import identify, is_alive
from orchard.surfaces.cli.start import run_command_line
from orchard.testing import Repo


def test_a_plan_given_to_an_engine_that_just_ends_is_run_by_another_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = Repo.make(tmp_path / "repo")
    gate = tmp_path / "go"
    (tmp_path / "plan.yaml").write_text(
        f"name: x\ntarget: t\njobs: [{{id: a, work: 'until test -e {gate}; do sleep 0.05; done; echo 1 > 1'}}]"
    )
    monkeypatch.chdir(repo.path)
    seen_alive, detach = [], App.detach

    def find_a_dying_one(app: App) -> None:
        """The first look finds an engine that has ended when it is asked."""
        seen_alive.append(app)
        if len(seen_alive) > 1:
            detach(app)

    monkeypatch.setattr(App, "detach", find_a_dying_one)
    monkeypatch.setattr("orchard.engine.server.start.OwnEngine.wait_idle", _never)

    assert run_command_line(["run", str(tmp_path / "plan.yaml"), "--detach"]) == 0
    engine = read_address(repo.path / ".git" / "orchard")
    gate.touch()

    assert engine is not None and engine.pid != os.getpid()
    assert run_command_line(["wait"]) == 0
    assert "1" in repo.files("t")
    _until(lambda: read_address(repo.path / ".git" / "orchard") is None)


def test_a_background_engine_that_is_asked_to_end_stops_its_jobs_and_their_work_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = Repo.make(tmp_path / "repo")
    number = tmp_path / "number"
    work = f"echo half > half.txt; echo $$ > {number}.new; mv {number}.new {number}; sleep 60; :"
    (tmp_path / "plan.yaml").write_text(f"name: x\ntarget: t\njobs: [{{id: a, work: '{work}'}}]")
    monkeypatch.chdir(repo.path)
    assert run_command_line(["run", str(tmp_path / "plan.yaml"), "--detach"]) == 0
    engine = read_address(repo.path / ".git" / "orchard")
    assert engine is not None
    _until(number.exists)
    job = identify(int(number.read_text()))
    assert job is not None

    os.kill(engine.pid, signal.SIGTERM)

    _until(lambda: read_address(repo.path / ".git" / "orchard") is None)
    assert not is_alive(job)
    assert run_command_line(["resume", "x"]) == 1
    assert "interrupted" in capsys.readouterr().out
    assert any(repo.files(ref).get("half.txt") == "half\n" for ref in repo.refs("refs/orchard/wip"))


def test_without_an_engine_what_a_killed_one_left_running_stands_still_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = Repo.make(tmp_path / "repo")
    number = tmp_path / "number"
    work = f"echo half > half.txt; echo $$ > {number}.new; mv {number}.new {number}; while :; do :; done"
    (tmp_path / "plan.yaml").write_text(f"name: x\ntarget: t\njobs: [{{id: a, work: '{work}'}}]")
    monkeypatch.chdir(repo.path)
    assert run_command_line(["run", str(tmp_path / "plan.yaml"), "--detach"]) == 0
    engine = read_address(repo.path / ".git" / "orchard")
    assert engine is not None
    _until(number.exists)
    stat, states, look = Path(f"/proc/{int(number.read_text())}/stat"), [], transfer.tree_now

    def looks(*args: Any) -> str:
        states.append(stat.read_text().rpartition(")")[2].split()[0])
        return look(*args)

    monkeypatch.setattr(transfer, "tree_now", looks)
    os.kill(engine.pid, signal.SIGKILL)
    _until(lambda: read_address(repo.path / ".git" / "orchard") is None)

    try:
        assert run_command_line(["diff", "a"]) == 0
        assert states == ["T"] and "+half" in capsys.readouterr().out
        assert stat.read_text().rpartition(")")[2].split()[0] != "T"
    finally:
        os.kill(int(number.read_text()), signal.SIGKILL)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


async def _never(_: object) -> None:
    raise AssertionError("this process became the engine")
