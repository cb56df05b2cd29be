"""Limits of memory, processes, files and disk: that they hold for a program, and what is said of them."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchard.process.sandbox.level import walls
from orchard.process.sandbox.policy import Level, Policy, Resources
from orchard.process.sandbox.resources import Delegation, InForce, find_delegation, hold, in_force
from orchard.process.sandbox.spawn import popen

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")

MIB = 1 << 20
ALL = Resources(memory=512 * MIB, processes=40, files=64, disk=MIB)
NONE = Delegation(reason="no cgroup is delegated to us (test)")
PYTHON = os.path.realpath(sys.executable)


def limited(level: Level, folder: Path, limits: Resources, code: str) -> str:
    policy = Policy(home=folder, temporary=folder, writable=(folder,), resources=limits)
    waits = "import time; time.sleep(0.2)\n"
    argv = [PYTHON, "-I", "-S", "-c", waits + code]
    process = popen(
        policy, level, argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return process.communicate(timeout=60)[0].decode()


MEMORY = """
import mmap
reserved = mmap.mmap(-1, 8 << 30, prot=0, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
try: bytearray(600 << 20)
except MemoryError: print("refused")
bytearray(100 << 20)
print("kept")
"""
FILES = """
opened = []
try:
    while len(opened) < 500: opened.append(open("/dev/null"))
except OSError: print(len(opened) < 64)
"""
DISK = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = open("big", "wb", 0)
try:
    for _ in range(3): file.write(bytes(1 << 20))
except OSError as error: print(error.errno, file.tell())
"""


@pytest.fixture(params=["off", "landlock", "bwrap"])
def level(request: pytest.FixtureRequest) -> Level:
    wanted: Level = request.param
    if wanted != "off" and not any(one.works for one in walls().findings if one.level == wanted):
        pytest.skip(f"{wanted} does not work here")
    return wanted


def test_a_process_cannot_use_more_memory_but_may_reserve_it(level: Level, tmp_path: Path) -> None:
    assert limited(level, tmp_path, ALL, MEMORY) == "refused\nkept\n"
    assert limited(level, tmp_path, Resources(), MEMORY) == "kept\n"


def test_a_process_cannot_open_more_files(level: Level, tmp_path: Path) -> None:
    assert limited(level, tmp_path, ALL, FILES) == "True\n"


def test_a_process_cannot_write_a_larger_file(level: Level, tmp_path: Path) -> None:
    assert limited(level, tmp_path, ALL, DISK) == f"27 {MIB}\n"


def test_children_have_the_limits_too(level: Level, tmp_path: Path) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', {FILES!r}])"

    assert limited(level, tmp_path, ALL, code) == "True\n"


def test_a_child_that_was_faster_gets_the_limits_as_well() -> None:
    process = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & sleep 60 & wait"], start_new_session=True)
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 10
        while len(children.read_text().split()) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)

        hold(process.pid, Resources(files=50), NONE)

        family = [process.pid, *map(int, children.read_text().split())]
        assert [resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in family] == [(50, 50)] * 3
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_a_program_that_has_ended_is_no_error() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()

    hold(process.pid, ALL, NONE)


def test_no_limit_is_set_above_the_one_that_there_is(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("there is none")
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"

    assert limited("off", tmp_path, Resources(files=hard * 2), code) == f"{(hard, hard)}\n"


def test_the_number_of_processes_is_not_limited_by_counting_those_of_others(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC))"

    assert limited("off", tmp_path, Resources(processes=5), code) == f"{before}\n"


# -------------------------------------------------------------------------------------------- words


def test_what_is_in_force_is_told_in_words() -> None:
    told = in_force(ALL, NONE)

    assert told.by == "process"
    assert told.words == (
        "Memory: at most 512 MiB for each process, not for all together: no cgroup is delegated to us (test).",
        "Processes: not limited to 40: no cgroup is delegated to us (test), and the system's own limit "
        "would count all processes of the user.",
        "Open files: at most 64 for each process.",
        "Disk: no file larger than 1 MiB; the sum of all files is not limited.",
    )
    assert told.weak == told.words[:2]


def test_a_cgroup_is_told_where_there_is_one() -> None:
    where = Delegation(Path("/sys/fs/cgroup/ours"), frozenset({"memory", "pids"}))
    told = in_force(Resources(memory=3 << 30, processes=40), where)

    assert told.by == "cgroup"
    assert told.words[:2] == (
        "Memory: at most 3 GiB for all processes of a program together (cgroup).",
        "Processes: at most 40 (cgroup).",
    )
    assert not told.weak and told.unset == ("Open files", "Disk")


def test_no_limits_are_told_as_none() -> None:
    told = in_force(Resources(), NONE)

    assert told == InForce("nothing", told.words, unset=("Memory", "Processes", "Open files", "Disk"))
    assert all("no limit is set" in word for word in told.words)


# ------------------------------------------------------------------------------------------- cgroups


def test_where_no_group_can_be_made_the_reason_is_told() -> None:
    found = find_delegation(("no-such-controller",))

    assert found.folder is None
    assert found.reason.startswith(("no cgroup is delegated to us (", "this system has no cgroup v2"))


def test_a_program_is_put_into_a_group_of_its_own_that_goes_with_it() -> None:
    where = find_delegation(())
    if where.folder is None:
        pytest.skip(where.reason)
    process = subprocess.Popen(["/bin/sleep", "60"])
    try:
        hold(process.pid, Resources(files=50), where)
        groups = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
        ours = next(line for line in groups if line.startswith("0::"))
        assert f"/orchard-{os.getpid()}-" in ours
        assert list(where.folder.glob(f"orchard-{os.getpid()}-*"))
    finally:
        process.kill()
        process.wait()

    find_delegation(())

    assert not list(where.folder.glob(f"orchard-{os.getpid()}-*"))
