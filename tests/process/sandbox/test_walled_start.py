"""Starting a program behind a wall: it is the program that was asked for, and nothing else is different afterwards."""

import asyncio
import gc
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.model.limits import Limits
from orchard.process.families import family
from orchard.process.families.orphans import adopted, become_subreaper
from orchard.process.families.table import TOKEN_VARIABLE
from orchard.process.program import Launch, run_program
from orchard.process.sandbox.landlock import version
from orchard.process.sandbox.level import Walls, walls
from orchard.process.sandbox.policy import Level, Network, Policy, SandboxError
from orchard.process.sandbox.spawn import popen
from orchard.process.sandbox.wall import Wall

pytestmark = pytest.mark.skipif(sys.platform != "linux" or version() == 0, reason="this kernel has no Landlock")

ENV = {"PATH": "/usr/bin:/bin", "COLOUR": "green", TOKEN_VARIABLE: "family-7"}
LEVELS: list[Level] = ["off", "landlock", "bwrap"]


@pytest.fixture(scope="module")
def found() -> Walls:
    return walls()


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, found: Walls) -> Level:
    wanted: Level = request.param
    if wanted != "off" and not any(one.works for one in found.findings if one.level == wanted):
        pytest.skip(f"{wanted} does not work here")
    return wanted


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[Policy]:
    work = tmp_path / "work"
    hidden = tmp_path / "hidden"
    work.mkdir()
    hidden.mkdir()
    (hidden / "secret").write_text("secret")
    yield Policy(home=work, temporary=work, writable=(work,), hidden=(hidden,), network="off")


def run(policy: Policy, level: Level, *argv: str) -> tuple[int, str, str]:
    process = popen(
        policy, level, argv, cwd=policy.home, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = process.communicate(timeout=30)
    return process.returncode, out.decode(), err.decode()


def test_it_has_its_folder_its_variables_its_output_and_its_status(policy: Policy, level: Level) -> None:
    code, out, err = run(
        policy, level, "/bin/sh", "-c", f"pwd; echo $COLOUR ${TOKEN_VARIABLE}; echo told >&2; echo x > made; exit 7"
    )

    assert (code, out, err) == (7, f"{policy.home}\ngreen family-7\n", "told\n")
    assert (policy.home / "made").read_text() == "x\n"


def test_its_home_is_the_one_of_the_policy(policy: Policy, level: Level) -> None:
    expected = f"{policy.home} {policy.temporary}\n" if level != "off" else "\n"

    assert run(policy, level, "/bin/sh", "-c", "echo $HOME $TMPDIR")[1] == expected


def test_what_is_hidden_is_hidden_and_calls_are_filtered(policy: Policy, level: Level, tmp_path: Path) -> None:
    code, out, _ = run(policy, level, "/bin/cat", str(tmp_path / "hidden/secret"))
    mode = run(policy, level, "/bin/grep", "^Seccomp:", "/proc/self/status")[1].split()[-1]

    assert (code == 0, out == "secret", mode == "0") == ((True,) * 3 if level == "off" else (False,) * 3)


def test_a_shell_may_write_to_its_output_by_name(policy: Policy, level: Level, tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        argv = ["/bin/sh", "-c", "echo one >> /dev/stderr; echo two >> /dev/stdout; echo three > /dev/null"]
        process = popen(policy, level, argv, cwd=policy.home, env=ENV, stdout=log, stderr=log)
        assert process.wait(30) == 0

    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def test_only_descriptors_that_were_passed_are_open(policy: Policy, level: Level) -> None:
    out, into = os.pipe()
    argv = ["/bin/sh", "-c", f"ls /proc/self/fd; echo passed > /proc/self/fd/{into}"]
    process = popen(policy, level, argv, cwd=policy.home, env=ENV, stdout=subprocess.PIPE, pass_fds=(into,))
    os.close(into)
    told = process.communicate(timeout=30)[0].split()

    assert os.read(out, 100) == b"passed\n"
    os.close(out)
    assert len(told) == 5  # with the one that ls lists by
    assert str(into).encode() in told


def program(folder: Path, name: str, text: str, mode: int) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def failure(policy: Policy, level: Level, argv: list[str], cwd: Path | None = None) -> tuple[type, int | None, object]:
    with pytest.raises((OSError, ValueError)) as caught:
        popen(policy, level, argv, cwd=cwd or policy.home, env=ENV, stdin=subprocess.DEVNULL)
    number = caught.value.errno if isinstance(caught.value, OSError) else None
    return type(caught.value), number, getattr(caught.value, "filename", None)


def test_what_cannot_be_started_is_told_as_popen_tells_it(policy: Policy, level: Level) -> None:
    for argv in (
        ["no-such-program"],
        ["./no/such"],
        ["/no/such/program"],
        [str(policy.home)],
        [program(policy.home, "closed", "#!/bin/sh\n", 0o600)],
        ["/bin/echo", "nul\0inside"],
    ):
        assert failure(policy, level, argv) == failure(policy, "off", argv), argv
    gone = policy.home / "gone"
    assert failure(policy, level, ["/bin/true"], gone) == failure(policy, "off", ["/bin/true"], gone)


def test_a_missing_interpreter_is_told_where_no_other_program_stands_between(policy: Policy) -> None:
    argv = [program(policy.home, "odd", "#!/no/such/shell\n", 0o700)]

    assert failure(policy, "landlock", argv) == failure(policy, "off", argv)


def test_a_program_that_is_hidden_is_not_started(policy: Policy, level: Level, tmp_path: Path) -> None:
    if level == "off":
        pytest.skip("nothing is hidden")
    hidden = program(tmp_path / "hidden", "tool", "#!/bin/sh\n", 0o700)

    assert failure(policy, level, [hidden])[0] in (PermissionError, FileNotFoundError)


def test_a_wall_that_cannot_be_built_starts_nothing(policy: Policy) -> None:
    gone = replace(policy, writable=(policy.home / "gone",))

    with pytest.raises(SandboxError):
        popen(gone, "landlock", ["/bin/sh", "-c", "touch started"], cwd=policy.home)

    assert not (policy.home / "started").exists()


def state() -> tuple[list[str], list[str], bool]:
    """Descriptors and threads of this process, and whether it collects garbage."""
    return sorted(os.listdir("/proc/self/fd")), sorted(os.listdir("/proc/self/task")), gc.isenabled()  # noqa: PTH208


def settled(before: tuple[list[str], list[str], bool]) -> tuple[list[str], list[str], bool]:
    """A thread that has been waited for is on the list for a moment longer."""
    deadline = time.monotonic() + 5
    while (now := state()) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    return now


def test_no_descriptor_and_no_thread_is_left(policy: Policy, level: Level) -> None:
    run(policy, level, "/bin/true")
    time.sleep(0.3)
    before = state()

    for _ in range(10):
        run(policy, level, "/bin/true")
        failure(policy, level, ["no-such-program"])

    assert settled(before) == before


def test_the_process_that_starts_it_is_as_free_as_before(policy: Policy, level: Level, tmp_path: Path) -> None:
    def status() -> list[str]:
        kept = ("Cap", "NoNewPrivs", "Seccomp", "Uid")
        return [line for line in Path("/proc/thread-self/status").read_text().splitlines() if line.startswith(kept)]

    before = status()
    run(policy, level, "/bin/true")

    assert status() == before
    assert (tmp_path / "hidden/secret").read_text() == "secret"


def test_many_threads_start_at_once(policy: Policy, level: Level, tmp_path: Path) -> None:
    secret = str(tmp_path / "hidden/secret")
    script = f"cat {secret} 2>/dev/null; echo $0"

    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(lambda number: run(policy, level, "/bin/sh", "-c", script, str(number))[1], range(24)))

    assert told == [f"{'secret' if level == 'off' else ''}{number}\n" for number in range(24)]
    assert gc.isenabled()


@pytest.mark.parametrize("network", ["on", "off"])
def test_it_is_started_from_a_running_loop_and_outlives_the_thread(
    policy: Policy, level: Level, network: Network
) -> None:
    async def start() -> tuple[int, bool]:
        argv = ["/bin/sh", "-c", "sleep 0.3; exit 5"]
        process = popen(replace(policy, network=network), level, argv, cwd=policy.home, env=ENV, start_new_session=True)
        await asyncio.sleep(0.1)
        return await asyncio.to_thread(process.wait, 30), process.pid == os.getpid()

    assert asyncio.run(start()) == (5, False)


ABSTRACT = """
import socket, sys
own, other = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
own.bind("\\0" + sys.argv[1] + "-own"); own.listen(); other.connect("\\0" + sys.argv[1] + "-own")
try: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[1]); print("connected")
except OSError: print("refused")
"""


@pytest.mark.skipif(version() < 6, reason="this kernel cannot keep them apart")
def test_abstract_sockets_of_the_machine_are_out_of_reach_on_its_network(policy: Policy, level: Level) -> None:
    if level == "landlock":
        pytest.skip("no such socket can be made at all, see the siege")
    name = f"orchard-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        argv = (os.path.realpath(sys.executable), "-I", "-S", "-c", ABSTRACT, name)
        told = run(replace(policy, network="on"), level, *argv)

    assert told == (0, "connected\n" if level == "off" else "refused\n", "")


def test_it_can_be_signalled_from_outside(policy: Policy, level: Level) -> None:
    process = popen(policy, level, ["/bin/sleep", "60"], cwd=policy.home, env=ENV, start_new_session=True)

    os.killpg(process.pid, signal.SIGKILL)

    assert process.wait(30) == -signal.SIGKILL


def test_a_busy_thread_does_not_hold_up_the_start(policy: Policy) -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        started = time.perf_counter()
        process = popen(policy, "landlock", ["/bin/true"], cwd=policy.home, env=ENV)
        took = time.perf_counter() - started
        process.wait(30)
    finally:
        stop.set()
        thread.join()

    assert took < 3.0


@pytest.mark.slow
def test_the_wall_costs_milliseconds(policy: Policy) -> None:
    def cost(level: Level) -> float:
        times = []
        for _ in range(100):
            started = time.perf_counter()
            popen(policy, level, ["/bin/true"], cwd=policy.home, env=ENV).wait()
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    plain, walled = cost("off"), cost("landlock")

    # 5 ms on a quiet machine; the tests run on any.
    assert walled - plain < 0.05


@pytest.mark.anyio
async def test_a_program_that_ends_by_itself_leaves_nothing_that_every_process_is_looked_at_for(
    policy: Policy, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bubblewrap ends a moment before the first process inside does, which comes to us as an orphan."""
    assert become_subreaper()
    wall = Wall(level, policy) if level != "off" else None
    looks: list[str] = []

    def look(token: str, *_: object) -> family.Look:
        looks.append(token)
        return family.Look()

    monkeypatch.setattr(family, "look", look)
    monkeypatch.setattr(family, "_LONGEST_DOUBT", 10.0)  # on a busy machine a wall takes its time to go

    ends = [
        await run_program(Launch(("/bin/true",), policy.home, ENV, policy.home / "log", "family-7", Limits(), wall))
        for _ in range(8)
    ]

    assert [(ended.reason, ended.exit_code, ended.leftovers) for ended in ends] == [("exit", 0, 0)] * 8
    assert not looks
    assert adopted(known=()) == []
