"""A machine that runs out of processes and descriptors, stops, loses programs, or changes its clock."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.acceptance.program import until
from tests.proof.faults import Scene, fault
from tests.proof.faults_disk import launcher

PIDS = Path("/sys/fs/cgroup/pids")
TOOLS = ("sh", "sed", "cat", "mv", "rm", "touch", "sleep", "test", "grep", "stdbuf", "true", "env", "bwrap", "nsenter")


# ------------------------------------------------------------------------------- scarce resources


@fault(r"too many open files|descriptor")
def descriptors_run_out_while_jobs_work(scene: Scene) -> None:
    with scene.at_work() as owner:
        engine = psutil.Process(owner.pid)
        engine.rlimit(psutil.RLIMIT_NOFILE, (engine.num_fds(), engine.num_fds()))


@fault(r"too many open files|descriptor", slow=True)
def there_are_few_descriptors(scene: Scene) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14))"
    scene.ask("run", scene.plan_file, through=launcher(scene, limit))


@contextmanager
def no_more_processes(scene: Scene, pid: int) -> Iterator[None]:
    """Let a process start nothing any more: a group of its own that is full."""
    group = PIDS / f"orchard-proof-{os.getpid()}-{scene.folder.parent.name}"
    try:
        group.mkdir()
        for thread in Path(f"/proc/{pid}/task").iterdir():
            (group / "tasks").write_text(thread.name)
        (group / "pids.max").write_text((group / "pids.current").read_text())
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"NOT PROVEN HERE: this fault needs a cgroup of its own for processes: {error}")
    try:
        yield
    finally:
        (group / "pids.max").write_text("max")
        until(lambda: not (group / "tasks").read_text().strip(), "the end of the group's processes", 20)
        group.rmdir()


@fault(r"resource temporarily unavailable|can't start|cannot start")
def no_process_can_be_started(scene: Scene) -> None:
    with ExitStack() as lifted, scene.at_work() as owner:
        lifted.enter_context(no_more_processes(scene, owner.pid))


# -------------------------------------------------------------------------------------- standstill


def stand_still(scene: Scene, seconds: float) -> None:
    with scene.at_work() as owner:
        owner.signal(signal.SIGSTOP)
        scene.release()
        time.sleep(seconds)  # the standstill itself
        owner.signal(signal.SIGCONT)


@fault("stopped")
def the_engine_stands_still(scene: Scene) -> None:
    stand_still(scene, 5.0)


@fault("stopped", slow=True)
def the_engine_stands_still_for_minutes(scene: Scene) -> None:
    stand_still(scene, 120.0)


@fault("stopped")
def a_job_stands_still(scene: Scene) -> None:
    with scene.at_work():
        pid = scene.first_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        scene.release()
        time.sleep(2.0)  # the standstill itself
        os.kill(pid, signal.SIGCONT)


@fault("signal 9|exited with 137")
def the_work_is_killed_for_its_memory(scene: Scene) -> None:
    with scene.at_work():
        pid = scene.first_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


# ------------------------------------------------------------------------------------- the clock


CLOCK = """
import time
real = time.time
shift = open({path!r})
def jumped():
    shift.seek(0)
    return real() + float(shift.read() or 0)
time.time = jumped
"""


def with_clock(scene: Scene, days: float) -> None:
    """Run a plan whose engine sees the clock jump while jobs work."""
    shift = scene.folder / "shift"
    shift.write_text("0")
    with scene.at_work(through=launcher(scene, CLOCK.format(path=str(shift)))):
        shift.write_text(str(days * 86400))


@fault("clock")
def the_clock_jumps_a_year_forward(scene: Scene) -> None:
    with_clock(scene, 365)


@fault("clock", slow=True)
def the_clock_jumps_ten_years_back(scene: Scene) -> None:
    with_clock(scene, -3650)


@fault("clock", slow=True)
def the_clock_is_before_1970(scene: Scene) -> None:
    with_clock(scene, -40000)


# ------------------------------------------------------------------------------- missing programs


def tools(scene: Scene, *without: str) -> Path:
    """A folder with the programs that a run needs, but for these."""
    place = scene.folder / "bin"
    place.mkdir(exist_ok=True)
    for name in (*TOOLS, "git"):
        found = shutil.which(name)
        if found and name not in without:
            (place / name).symlink_to(found)
    return place


@fault("no 'git'", slow=True)
def git_is_not_there(scene: Scene) -> None:
    scene.ask("run", scene.plan_file, PATH=str(tools(scene, "git")))


@fault("'git'|git")
def git_goes_away_while_jobs_work(scene: Scene) -> None:
    place = tools(scene)
    with scene.at_work(PATH=str(place)):
        (place / "git").unlink()


@fault("'sh'|sh")
def the_shell_is_missing(scene: Scene) -> None:
    scene.ask("run", scene.plan_file, PATH=str(tools(scene, "sh")))


FAILING_GIT = """#!/bin/sh
number=$(cat "{here}/calls" 2>/dev/null || echo 0)
number=$((number + 1))
echo $number > "{here}/calls"
if test -e "{here}/failing" && test $((number % {every})) -eq {first}; then {action}; fi
exec {git} "$@"
"""


def with_failing_git(scene: Scene, action: str, every: int) -> None:
    """Run a plan with a git that fails now and then."""
    place = tools(scene, "git")
    git = shutil.which("git")
    first = scene.seed % every
    text = FAILING_GIT.format(here=scene.folder, every=every, first=first, action=action, git=git)
    (place / "git").write_text(text)
    (place / "git").chmod(0o755)
    with scene.at_work(PATH=str(place)):
        (scene.folder / "failing").touch()


@fault("input/output error|git")
def git_fails_now_and_then(scene: Scene) -> None:
    with_failing_git(scene, "echo 'fatal: unable to read: Input/output error' >&2; exit 128", 5)


@fault("git")
def git_is_killed_now_and_then(scene: Scene) -> None:
    with_failing_git(scene, "kill -9 $$", 7)


@fault("input/output error|git", slow=True)
def git_fails_always(scene: Scene) -> None:
    with_failing_git(scene, "echo 'fatal: unable to read: Input/output error' >&2; exit 128", 1)


@fault("git")
def git_helpers_are_killed_for_their_memory(scene: Scene) -> None:
    with scene.at_work() as owner:
        for process in psutil.Process(owner.pid).children(recursive=True):
            with suppress(psutil.Error):
                if process.name() == "git":
                    process.kill()


# ------------------------------------------------------------------------------ folders of the user


@fault("/proc/1/nowhere")
def the_home_cannot_be_written(scene: Scene) -> None:
    nowhere = "/proc/1/nowhere"
    scene.ask(
        "run", scene.plan_file, HOME=nowhere, XDG_STATE_HOME=nowhere, XDG_CONFIG_HOME=nowhere, XDG_CACHE_HOME=nowhere
    )


@fault("nowhere")
def the_folder_for_temporary_files_is_missing(scene: Scene) -> None:
    scene.ask("run", scene.plan_file, TMPDIR=str(scene.folder / "nowhere"))


@fault("socket|runtime|exist")
def the_folder_for_sockets_is_removed(scene: Scene) -> None:
    with scene.at_work():
        shutil.rmtree(scene.runtime)
    scene.runtime.mkdir(mode=0o700, exist_ok=True)


@fault("slots", slow=True)
def the_list_of_slots_is_garbage(scene: Scene) -> None:
    place = Path(scene.env["XDG_STATE_HOME"]) / "orchard"
    place.mkdir(parents=True)
    (place / "slots.db").write_bytes(os.urandom(8192))
    scene.ask("run", scene.plan_file)
    (place / "slots.db").unlink()


@fault("terminal|output|No space")
def nobody_can_read_the_output(scene: Scene) -> None:
    scene.skip_first_failure()
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    scene.ask("run", scene.plan_file, through=launcher(scene, full))
