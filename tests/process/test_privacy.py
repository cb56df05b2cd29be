"""What a job can see of the engine that runs it, tried as an ordinary user."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.engine.server.address import read_address
from orchard.process.families.exits import wait_exit
from orchard.process.families.identity import identify
from orchard.testing import Repo

USER = 54_321
"""Nobody's number: a test that runs as root becomes this user, since root may read everything."""
SECRET = "engine-secret-7741"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="orchard-privacy-")).resolve()
    Repo.make(folder / "repo")
    (folder / "run").mkdir(mode=0o700)
    for path in [folder, *folder.rglob("*")] if os.getuid() == 0 else ():
        os.chown(path, USER, USER, follow_symlinks=False)
    yield folder
    address = read_address(folder / "repo" / ".git" / "orchard")
    if address is not None and (engine := identify(address.pid)) is not None:
        os.kill(engine.pid, signal.SIGTERM)
        assert wait_exit(engine, 30)
    shutil.rmtree(folder)


def as_user(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python as an ordinary user who owns `home`."""
    become: list[str] = []
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything, and there is no setpriv")
        become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    env = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "ORCHARD_SANDBOX") if name in os.environ}
    env |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "MYAPP_TOKEN": SECRET}
    env |= {f"XDG_{name}_HOME": str(home / name) for name in ("STATE", "CONFIG", "CACHE")}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if "site-packages" in path or path.endswith("src"))
    again = "import orchard.app, subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    for python in (sys.executable, "/usr/bin/python3"):
        tried = [*become, python, "-c", again]
        if subprocess.run(tried, check=False, env=env, cwd=home, capture_output=True).returncode == 0:
            argv, cwd = [*become, python, *words], home / "repo"
            return subprocess.run(argv, check=False, capture_output=True, text=True, env=env, cwd=cwd, timeout=120)
    pytest.skip("there is no Python here that another user can read")


LOOKS = """
name: Looks
jobs:
  - id: a
    work: |
      engine=$(python3 -c 'import json; print(json.load(open("{state}/daemon.json"))["pid"])')
      for pid in $PPID $engine; do
        cat /proc/$pid/environ; ls -l /proc/$pid/fd; head -c 100 /proc/$pid/mem; echo "looked at $pid"
      done > {said} 2>&1
      cat /proc/$$/environ > {own}
      touch made
"""


@pytest.mark.parametrize("detached", [False, True])
def test_a_job_cannot_read_the_environment_or_the_memory_of_the_engine(home: Path, detached: bool) -> None:
    said, own = home / "said", home / "own"
    (home / "plan.yaml").write_text(LOOKS.format(state=home / "repo/.git/orchard", said=said, own=own))
    orchard = ("-m", "orchard")

    done = as_user(home, *orchard, "run", str(home / "plan.yaml"), *(["--detach"] if detached else []))
    assert done.returncode == 0, done.stderr
    if detached:
        done = as_user(home, *orchard, "wait", "Looks")

    assert done.returncode == 0, done.stderr
    seen = said.read_text(errors="replace")
    assert "looked at" in seen and "Permission denied" in seen
    assert SECRET not in seen
    assert "ORCHARD_TOKEN=" in own.read_text(), "what a job starts can be read as ever: by that it is found and ended"


def test_a_process_that_hides_its_memory_can_still_be_signalled_and_starts_readable_children(home: Path) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        "from orchard.process.privacy import hide_memory\n"
        "from orchard.process.families.table import own_children, read_stat\n"
        "assert hide_memory()\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "while read_stat(child.pid).state == 'R' or not os.access(f'/proc/{child.pid}/environ', os.R_OK):\n"
        "    time.sleep(0.01)\n"
        "assert b'MYAPP_TOKEN' in open(f'/proc/{child.pid}/environ', 'rb').read()\n"
        "assert child.pid in (own_children() or [child.pid]) and read_stat(os.getpid()) is not None\n"
        "look = f'cat /proc/{os.getpid()}/environ; kill -0 {os.getpid()} && echo signalled'\n"
        "print(subprocess.run(['sh', '-c', look], capture_output=True, text=True).stdout)\n"
        "child.kill()\n"
    )

    done = as_user(home, "-c", script)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["signalled"]
