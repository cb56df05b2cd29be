"""Programs that cannot be started say why, in words; and how those that can are started."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.process.families.identity import Identity, identify
from orchard.process.program import Ended, Launch, run_program
from tests.process.zoo import nap, shell, survivors

pytestmark = pytest.mark.anyio


def script_file(folder: Path, text: str, mode: int) -> str:
    path = folder / "script"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def make_pipe(launch: Launch) -> Launch:
    os.mkfifo(launch.log)
    return launch


def link_log(launch: Launch) -> Launch:
    launch.log.symlink_to(launch.cwd / "elsewhere")
    return launch


CASES: dict[str, tuple[Callable[[Launch], Launch], str]] = {
    "missing program": (lambda launch: replace(launch, argv=("no-such-program",)), "There is no program 'no-such-"),
    "missing path": (lambda launch: replace(launch, argv=("./no/such",)), "There is no program './no/such'"),
    "missing folder": (lambda launch: replace(launch, cwd=launch.cwd / "gone"), "that folder does not exist"),
    "folder is a file": (lambda launch: replace(launch, cwd=Path("/etc/passwd")), "that folder does not exist"),
    "is a folder": (lambda launch: replace(launch, argv=(str(launch.cwd),)), "Permission denied (EACCES)"),
    "not executable": (
        lambda launch: replace(launch, argv=(script_file(launch.cwd, "#!/bin/sh\n", 0o600),)),
        "Permission denied (EACCES)",
    ),
    "no interpreter": (
        lambda launch: replace(launch, argv=(script_file(launch.cwd, "#!/no/such/sh\n", 0o700),)),
        "the interpreter that its first line names does not exist",
    ),
    "not a program": (
        lambda launch: replace(launch, argv=(script_file(launch.cwd, "\x01\x02", 0o700),)),
        "Exec format error (ENOEXEC)",
    ),
    "too many arguments": (
        lambda launch: replace(launch, argv=("echo", *("x" * 100_000 for _ in range(100)))),
        "Argument list too long (E2BIG)",
    ),
    "nothing": (lambda launch: replace(launch, argv=()), "the command is empty"),
    "NUL in an argument": (lambda launch: replace(launch, argv=("echo", "a\0b")), "embedded null byte"),
    "bad variable name": (lambda launch: replace(launch, env={"A=B": "c"}), "illegal environment variable name"),
    "lone surrogate": (lambda launch: replace(launch, argv=("echo", "\ud800")), "'echo' cannot be started"),
    "log in a missing folder": (
        lambda launch: replace(launch, log=launch.cwd / "gone" / "log"),
        "cannot be opened: No such file or directory",
    ),
    "log is a link": (link_log, "cannot be opened: Too many levels of symbolic links"),
    "log is a pipe": (make_pipe, "cannot be opened"),
    "escape sequences": (lambda launch: replace(launch, argv=("\x1b[31m\nred",)), "There is no program ' [31m red'"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_cannot_be_started_says_why(case: tuple[Callable[[Launch], Launch], str], tmp_path: Path) -> None:
    change, message = case

    ended = await run_program(change(shell(tmp_path, ":")))

    assert (ended.reason, ended.exit_code, ended.signal, ended.ok) == ("spawn-failed", None, None, False)
    assert message in ended.message
    assert not (tmp_path / "elsewhere").exists()


async def test_no_descriptor_is_leaked_by_programs_that_run_or_fail(tmp_path: Path) -> None:
    await run_program(shell(tmp_path, ":"))
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208

    for _ in range(3):
        await run_program(shell(tmp_path, "sleep 60 & exit 1"))
        await run_program(replace(shell(tmp_path, ":"), argv=("no-such-program",)))

    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


async def test_a_program_has_its_own_session_no_input_and_no_other_descriptors(tmp_path: Path) -> None:
    launch = shell(tmp_path, 'readlink /proc/$$/fd/0; cut -d" " -f6 /proc/$$/stat; echo $$; exec ls /proc/self/fd')

    ended = await run_program(launch)

    stdin, session, pid, *descriptors = launch.log.read_text().split()
    assert ended.ok
    assert (stdin, session) == ("/dev/null", pid)
    # The fourth is the folder that `ls` reads.
    assert descriptors == ["0", "1", "2", "3"]


async def test_the_log_is_private_and_appended_to(tmp_path: Path) -> None:
    launch = shell(tmp_path, "echo again")

    await run_program(replace(launch, argv=("echo", "once")))
    await run_program(launch)

    assert launch.log.read_bytes() == b"once\nagain\n"
    assert stat.S_IMODE(launch.log.stat().st_mode) == 0o600


async def test_the_environment_is_what_was_given_and_the_token(tmp_path: Path) -> None:
    launch = replace(shell(tmp_path, ""), argv=("env",), env={"PATH": os.environ["PATH"], "A": "b\nc"})

    await run_program(launch)

    assert set(launch.log.read_text().split("\n")) == {
        f"PATH={os.environ['PATH']}", "A=b", "c", f"ORCHARD_TOKEN={launch.token}", "",
    }  # fmt: skip


async def test_the_start_is_told_with_the_identity_while_the_program_is_there(tmp_path: Path) -> None:
    told: list[Identity | None] = []

    async def note(identity: Identity) -> None:
        told.extend([identity, identify(identity.pid)])

    await run_program(shell(tmp_path, "echo $$"), on_start=note)

    assert told[0] is not None
    assert told[0] == told[1]


async def test_cpu_time_is_counted_with_children(tmp_path: Path) -> None:
    ended = await run_program(shell(tmp_path, "timeout 0.5 sh -c 'while :; do :; done'; :"))

    assert ended.cpu_seconds is not None
    assert 0.05 < ended.cpu_seconds < 5


async def test_a_hundred_programs_at_once_end_well(tmp_path: Path) -> None:
    launches = [shell(tmp_path, f"echo {number}; exit {number % 3}") for number in range(100)]

    ended: list[Ended] = await asyncio.gather(*(run_program(launch) for launch in launches))

    assert [each.exit_code for each in ended] == [number % 3 for number in range(100)]
    assert [launch.log.read_text() for launch in launches] == [f"{number}\n" for number in range(100)]


INTERRUPTED = """
import asyncio, sys
from pathlib import Path
from orchard.model.limits import Limits
from orchard.process.program import Launch, run_program

script = "trap '' TERM; setsid sleep $NAP & sleep $NAP & echo; wait; sleep $NAP"
async def start():
    launch = Launch(("sh", "-c", script), Path(sys.argv[1]), {"PATH": sys.argv[3], "NAP": sys.argv[2]},
                    Path(sys.argv[1]) / "log", "interrupted", Limits(grace=0.3))
    running = asyncio.ensure_future(run_program(launch))
    while not launch.log.exists() or not launch.log.read_bytes():
        await asyncio.sleep(0.01)
    return running

with asyncio.Runner() as runner:
    runner.run(start())
"""


def test_an_event_loop_that_is_torn_down_takes_the_family_along(tmp_path: Path) -> None:
    number = nap()

    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path), number, os.environ["PATH"]],
        timeout=30, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert survivors(number) == []
