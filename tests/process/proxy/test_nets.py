"""Network namespaces: a job has one door, reaches nothing beside it, and nothing is left when the engine is gone."""

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from orchard.process.proxy.nets import Nets, NoNets

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
ORDINARY = 12345
ENV = {
    "PATH": "/usr/bin:/bin",
    "PYTHONPATH": f"{ROOT / 'src'}:{Path(msgspec.__file__).parent.parent}",
    "PYTHONDONTWRITEBYTECODE": "1",
}

needs = pytest.mark.skipif(
    not (sys.platform == "linux" and all(map(shutil.which, ("bwrap", "nsenter", "curl")))),
    reason="needs bwrap and curl",
)


def engine(user: int, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The small engine, started as a user. Its Python is one that this user may start."""
    python = sys.executable if user == os.geteuid() else shutil.which("python3", path="/usr/bin") or sys.executable
    who = {} if user == os.geteuid() else {"user": user, "group": user, "extra_groups": []}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [python, str(HERE / "inside.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd="/",
        env=ENV,
        **who,
    )


@pytest.fixture(params=["ourselves", "ordinary"])
def user(request: pytest.FixtureRequest) -> int:
    if request.param == "ourselves":
        return os.geteuid()
    if os.geteuid() != 0:
        pytest.skip("only root can start a program as another user")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if not Path(f"/usr/bin/python{version}").exists():
        pytest.skip("there is no Python here that every user may start")
    return ORDINARY


@needs
def test_a_job_reaches_its_door_and_nothing_else(user: int) -> None:
    done = engine(user)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if "no user namespace" in found.get("problem", ""):
        pytest.skip(found["problem"])

    assert found.pop("user") == str(user)
    assert found.pop("plain") == "200/000"
    assert found.pop("tunnel") == "200/200"
    assert found.pop("not-listed") == "403/000"
    assert found.pop("nothing") == "403/000"
    assert found.pop("refused") == ["evil.example"]
    assert found.pop("own-loopback") == "reached"
    assert found.pop("other-job").startswith("ConnectionRefusedError")
    assert found.pop("after-the-end") == [True, "0", "hi"]
    assert found.pop("left") == []
    assert found.pop("host-loopback").startswith("ConnectionRefusedError")
    assert found.keys() == {"host-address", "outside", "datagram", "abstract", "raw", "packet"}
    assert not [name for name, came_to in found.items() if "Error" not in came_to], found


@needs
def test_an_engine_that_is_killed_leaves_no_keeper(user: int) -> None:
    done = engine(user, "die")
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = json.loads(done.stdout)

    deadline = time.monotonic() + 10
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def has_ended(pid: int) -> None:
    for _ in range(1000):
        if not is_alive(pid):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(pid)


@needs
@pytest.mark.anyio
async def test_a_killed_keeper_is_told_and_the_next_job_has_a_new_one() -> None:
    nets = Nets()
    try:
        first = await nets.take()
        keeper = int(Path(f"/proc/{first.pid}/stat").read_text().split()[3])
        os.kill(keeper, signal.SIGKILL)
        await has_ended(first.pid)  # it ends with its keeper
        second = await nets.take()
        assert second.pid != first.pid
        assert is_alive(second.pid)
        nets.discard(second)
        await has_ended(second.pid)
        assert (await nets.take()).pid != second.pid
    except NoNets as error:
        pytest.skip(str(error))
    finally:
        await nets.close()


@needs
@pytest.mark.anyio
async def test_who_waits_no_more_for_a_slot_leaves_it_to_the_next() -> None:
    nets = Nets()
    try:
        first = await nets.take()
        waiting = asyncio.create_task(nets.take())
        await asyncio.sleep(0)
        waiting.cancel()
        second, third = await nets.take(), await nets.take()
        assert len({first.pid, second.pid, third.pid}) == 3
    except NoNets as error:
        pytest.skip(str(error))
    finally:
        await nets.close()


@needs
@pytest.mark.anyio
async def test_a_namespace_that_cannot_be_made_takes_none_of_the_others_along() -> None:
    nets = Nets()
    try:
        first = await nets.take()
        keeper = int(Path(f"/proc/{first.pid}/stat").read_text().split()[3])
        soft, hard = resource.prlimit(keeper, resource.RLIMIT_NOFILE)
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, (1, hard))
        with pytest.raises(NoNets, match="Too many open files"):
            await nets.take()
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, (soft, hard))
        assert is_alive(first.pid)
        assert (await nets.take()).pid != first.pid
    except NoNets as error:
        pytest.skip(str(error))
    finally:
        await nets.close()


@pytest.mark.anyio
async def test_where_there_is_no_nsenter_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoNets, match="nsenter"):
        await Nets().take()


@needs
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the right to make namespaces away")
def test_where_no_user_namespace_can_be_made_the_reason_is_told() -> None:
    """In a namespace of its own, in which no more may be made."""
    program = (
        "from pathlib import Path; Path('/proc/sys/user/max_user_namespaces').write_text('0');"
        f"import runpy, sys; sys.argv = ['x']; runpy.run_path({str(HERE / 'inside.py')!r}, run_name='__main__')"
    )
    done = subprocess.run(
        ["unshare", "-Ur", sys.executable, "-c", program],
        capture_output=True, text=True, timeout=60, check=False, env=ENV,
    )  # fmt: skip
    assert json.loads(done.stdout) == {
        "problem": "This system lets root make no user namespace (unshare: No space left on device)."
    }, done.stderr
