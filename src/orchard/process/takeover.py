"""Becoming another program: what a person asked for takes our place, with our terminal and our exit code."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from orchard.errors import UsageError


def become(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> NoReturn:
    """Be this program from now on, in that folder."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be entered: {error.strerror}.") from error
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], list(command), dict(env))
    except OSError as error:
        raise UsageError(f"'{command[0]}' cannot be started: {error.strerror}.") from error
