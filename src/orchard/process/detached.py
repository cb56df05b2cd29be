"""Starting a program that outlives us: in its own session, with its output in a file."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


def start_detached(argv: list[str], log: Path, env: Mapping[str, str]) -> str:
    """Start a program in the background and wait until it says that it is ready, or why it is not.

    It finds in ORCHARD_READY the number of a descriptor: closing it says "ready", and what it writes
    there before is the reason why it is not. The answer is empty when it is ready.
    """
    heard, said = os.pipe()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    output = os.open(log, flags, 0o600)
    try:
        # Not waited for on purpose: it is to live on, and its end concerns no code here.
        subprocess.Popen(
            argv,
            env={**env, "ORCHARD_READY": str(said)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(said,),
            cwd="/",
        ).returncode = 0
    finally:
        os.close(said)
        os.close(output)
    with os.fdopen(heard, "rb") as file:
        return file.read(64 * 1024).decode(errors="replace")
