"""A program that shows a person what we print, page by page, on the terminal that we have."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import IO


class Pager:
    """A pager that runs; what is written to `pages` is shown."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(list(command), stdin=subprocess.PIPE, env=dict(env))

    @property
    def pages(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def wait(self) -> None:
        self._process.wait()
