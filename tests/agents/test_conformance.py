"""The official conformance suite and the official Inspector against our MCP server."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import Desk
from tests.agents.programs import Program, program
from tests.http.daemon import Daemon, served
from tests.mcp.proxy import proxy
from tests.mcp.wires import server

TABLE = tomllib.loads((Path(__file__).parent / "conformance.toml").read_text("utf-8"))
NOT_OURS: Mapping[str, str] = TABLE["scenarios"]
WHOLE_OF = {"server-stateless": 26}
"""Scenarios of which only the checks without a fixture apply: so many have to pass."""
LINE = re.compile(r"^([✓✗]) ([\w.-]+): (\d+) passed, (\d+) failed$")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    try:
        with served(desk) as daemon:
            yield daemon
    finally:
        desk.close()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_scenario_that_applies_passes(daemon: Daemon, tmp_path: Path, revision: str) -> None:
    found = program("conformance")
    with proxy(daemon.said["address"], daemon.said["token_file"]) as address:
        done = _run(found, tmp_path, "server", "--url", f"{address}/mcp?toolsets=all", "--requirements", revision)

    results = {row[2]: (row[1], int(row[3])) for line in done.stdout.splitlines() if (row := LINE.match(line))}
    assert len(results) >= 30, done.stdout + done.stderr
    failed = sorted(name for name, (mark, _) in results.items() if mark == "✗")
    assert [name for name in failed if name not in NOT_OURS] == [], done.stdout
    assert [name for name in NOT_OURS if name in results and name not in failed] == []
    for name, least in WHOLE_OF.items():
        assert results.get(name, ("✗", least))[1] >= least, done.stdout


def test_every_scenario_that_is_left_out_has_a_reason() -> None:
    assert set(NOT_OURS.values()) <= set(TABLE["reasons"])


@pytest.mark.parametrize("wire", ["stdio", "http"])
def test_the_inspector_lists_and_calls_tools(daemon: Daemon, tmp_path: Path, wire: str) -> None:
    found = program("inspector")
    asked = server(daemon.desk)
    env = {**daemon.desk.env, **(asked.env or {})}
    with proxy(daemon.said["address"], daemon.said["token_file"]) as address:
        target = [asked.command, *asked.args] if wire == "stdio" else [f"{address}/mcp"]
        listed = _inspect(found, daemon.desk, env, target, "--method", "tools/list")
        called = _inspect(
            found,
            daemon.desk,
            env,
            target,
            "--method",
            "tools/call",
            "--tool-name",
            "list_plans",
            "--tool-arg",
            "limit=5",
        )

    assert len(listed["tools"]) == 17
    assert called["structuredContent"]["plans"] == []


def _inspect(found: Program, desk: Desk, env: Mapping[str, str], target: list[str], *words: str) -> dict[str, Any]:
    argv = [str(found.path), "--cli", *target, *words, "--format", "json", "-q"]
    done = subprocess.run(
        argv,
        cwd=desk.repo.path,
        env={**env, "PATH": found.search_path},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout[:2000])
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


def _run(found: Program, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PATH": found.search_path, "NO_COLOR": "1"}
    return subprocess.run(
        [str(found.path), *words], cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False
    )
