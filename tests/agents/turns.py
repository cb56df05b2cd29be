"""What tests of real programs share: running a turn, cancelling it, and looking at what is left."""

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import psutil
import pytest

from orchard.agents.environment import agent_environment
from orchard.agents.protocol import Agent, Result, Task
from orchard.process.families.table import TOKEN_VARIABLE
from tests.agents.conftest import Ear
from tests.agents.llm import ScriptedLlm
from tests.agents.programs import program

CANARIES = {"CANARY": "yellow", "AWS_SECRET_ACCESS_KEY": "yellow", "GITHUB_TOKEN": "yellow", "GIT_DIR": "yellow"}
"""Variables of the user's that no agent may see."""


async def run(agent: Agent, task: Task, ear: Ear) -> Result:
    """One turn; when it has ended, so has every process of it."""
    result = await agent.run(task, ear.watch)
    assert alive(task.launcher.token) == []
    return result


def alive(token: str) -> list[str]:
    """The command lines of all processes that carry a token."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN_VARIABLE) == token and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


async def cancel_while(agent: Agent, task: Task, ear: Ear, waits: Callable[[], bool]) -> None:
    """Begin a turn, and cancel it once something holds; then nothing of it may be running."""
    turn = asyncio.ensure_future(agent.run(task, ear.watch))
    until = time.monotonic() + 90
    try:
        while not waits():
            assert not turn.done(), f"the turn ended by itself: {turn.result()}"
            assert time.monotonic() < until, "what should happen in the turn did not"
            await anyio.sleep(0.05)
    finally:
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
    assert alive(task.launcher.token) == []


async def cancel_while_hanging(agent: Agent, task: Task, ear: Ear, llm: ScriptedLlm) -> None:
    """Begin a turn, and cancel it while it waits for the model, which then goes on."""
    await cancel_while(agent, task, ear, llm.hanging.is_set)
    llm.release()


def seen_by(agent: Agent, env: dict[str, str]) -> dict[str, str]:
    """What an agent sees of a user who has these variables, and some that are nobody's business."""
    return agent_environment({**CANARIES, **env}, agent.variables)


def files(folder: Path) -> set[str]:
    """Every file in a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


@contextmanager
def everything_at_an_address() -> Iterator[str]:
    """The MCP server that has everything, on a port of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = program("server-everything")
    env = {"PATH": found.search_path, "PORT": str(port), "ORCHARD_PLANTED": "seen by the server"}
    argv = (str(found.path), "streamableHttp")
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + 60
            while not _answers(port):
                assert time.monotonic() < until, "the server did not start"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
