"""Asking programs and providers about themselves: short questions, in bounded time and memory.

Programs are asked in a folder of their own, all at once; whatever they leave running is ended. What is asked here is
asked of several at a time and waited for, so it belongs into a thread where an event loop is running.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from orchard.model.limits import Limits
from orchard.process.launcher import Launcher
from orchard.process.pipes import Pipes
from orchard.process.program import run_program

SECONDS = 60.0
"""A program written in JavaScript takes seconds to say its version on a machine that is busy."""
MOST_BYTES = 8 * 1024 * 1024


class Question(Struct, frozen=True):
    argv: tuple[str, ...]
    env: Mapping[str, str]
    home: str = ""
    """The variable that names the program's own folder: it gets an empty one, and leaves the user's alone."""


class Answer(Struct, frozen=True):
    text: str
    exit_code: int | None
    """None: it did not end by itself."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


def changed_at(path: str | None) -> int:
    """When a program was put there: one that was replaced has another time, and may answer something else."""
    try:
        return Path(path).stat().st_mtime_ns if path is not None else 0
    except OSError:
        return 0


def ask(questions: Sequence[Question], seconds: float = SECONDS) -> list[Answer]:
    """Ask all of them at once; the answers come in the same order."""
    return asyncio.run(_ask_all(questions, seconds)) if questions else []


async def _ask_all(questions: Sequence[Question], seconds: float) -> list[Answer]:
    with tempfile.TemporaryDirectory(prefix="orchard-ask-", ignore_cleanup_errors=True) as folder:
        asked = [_ask(question, Path(folder) / str(at), seconds) for at, question in enumerate(questions)]
        return list(await asyncio.gather(*asked))


async def _ask(question: Question, folder: Path, seconds: float) -> Answer:
    home = folder.with_suffix(".home")
    folder.mkdir()
    home.mkdir()
    said = bytearray()

    async def hear(pipes: Pipes) -> None:
        pipes.close_input()
        while block := await pipes.read():
            said.extend(block)

    launch = Launcher().launch(
        argv=question.argv,
        folder=folder,
        env={**question.env, **({question.home: str(home)} if question.home else {})},
        log=folder.with_suffix(".log"),
        limits=Limits(wall=seconds, log_bytes=MOST_BYTES, grace=1.0),
        pipes=True,
    )
    ended = await run_program(launch, converse=hear)
    return Answer(said.decode(errors="replace"), ended.exit_code if ended.reason == "exit" else None)


def get_json(url: str, headers: Mapping[str, str], seconds: float = 15.0) -> Any:
    """What an address answers; ValueError says in a few words why there is no answer.

    No redirect is followed: a key would go along with it.
    """
    import httpx2  # slow to import

    try:
        with (
            httpx2.Client(timeout=seconds, follow_redirects=False) as client,
            client.stream("GET", url, headers=dict(headers)) as response,
        ):
            if response.status_code != 200:
                raise ValueError(f"the answer was HTTP {response.status_code}")
            data = bytearray()
            for block in response.iter_bytes():
                data += block
                if len(data) > MOST_BYTES:
                    raise ValueError("the answer is too long")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise ValueError(f"{type(error).__name__} while asking") from None
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError):
        raise ValueError("the answer is no JSON") from None
