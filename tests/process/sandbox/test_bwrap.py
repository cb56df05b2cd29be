"""What a job behind bubblewrap can do, and what it is started with."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.process.sandbox.bwrap import bwrap_argv, bwrap_options, bwrap_program, packed
from orchard.process.sandbox.ground import Ground
from orchard.process.sandbox.policy import Mount, Policy, Resources
from orchard.process.sandbox.toolchains import toolchains
from tests.process.sandbox.corpus.world import PYTHON, World, lay_placeholders, world
from tests.process.sandbox.walled import BWRAP, ORDINARY, PATH, walled

pytestmark = pytest.mark.skipif(bwrap_program() is None, reason="bubblewrap is not installed")

USERS = {"root": None, "user": ORDINARY} if os.geteuid() == 0 else {"user": None}
NOTHING = Ground(places=())


@pytest.fixture(scope="module", params=USERS)
def job(request: pytest.FixtureRequest) -> Iterator[tuple[World, int | None]]:
    user = USERS[request.param]
    with world(user) as standing:
        lay_placeholders(standing, user)
        yield standing, user


def said(job: tuple[World, int | None], line: str) -> tuple[str, str]:
    standing, user = job
    done = walled(standing.policy, ("/bin/sh", "-c", line), Path(standing.facts["wt"]), user=user, env=standing.env)
    return done.stdout.strip(), done.stderr.strip()


def test_git_commits_into_a_quarantine_and_says_what_changed(job: tuple[World, int | None]) -> None:
    line = "echo x > new; git add new && git commit -qm work && git log --format=%s -1 && git status --porcelain -uno"

    assert said(job, line) == ("work", "")
    assert any(path.is_file() for path in Path(job[0].facts["objects"]).rglob("*"))


def test_programs_of_the_system_and_of_an_exposed_toolchain_can_be_used(job: tuple[World, int | None]) -> None:
    assert said(job, f"cat {job[0].facts['tool']}/tool; python3 -c 'print(6 * 7)'") == ("mine\n42", "")


def test_home_and_temporary_folder_are_the_job_s_own_and_writable(job: tuple[World, int | None]) -> None:
    facts = job[0].facts

    assert said(job, 'echo "$HOME $TMPDIR"; touch "$HOME/x" "$TMPDIR/x"') == (f"{facts['jobhome']} /tmp", "")
    assert Path(facts["jobtmp"], "x").exists()


def test_programs_inside_share_memory_and_semaphores(job: tuple[World, int | None]) -> None:
    line = (
        f'{PYTHON} -c "import multiprocessing as m; m.Lock(); m.shared_memory" ; {PYTHON} -c "import os; os.openpty()"'
    )

    assert said(job, line.replace("m.shared_memory", "m.Queue()")) == ("", "")


def test_a_policy_that_hides_the_host_s_shared_memory_leaves_the_job_its_own(tmp_path: Path) -> None:
    secret = Path("/dev/shm", f"orchard-{os.getpid()}-{time.time_ns()}")
    secret.touch()
    policy = Policy(
        home=tmp_path, temporary=tmp_path, hidden=tuple(map(Path, ("/dev/shm", "/dev/pts", "/proc", "/dev")))
    )
    line = f'test -e {secret} || {PYTHON} -c "import multiprocessing as m, os; m.Lock(); os.openpty(); print(1)"'
    try:
        done = walled(policy, ("/bin/sh", "-c", line), Path("/"))
    finally:
        secret.unlink()

    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_socket_of_the_policy_s_can_be_connected_to(job: tuple[World, int | None]) -> None:
    standing, user = job
    code = "import socket, sys; s = socket.socket(1); s.connect(sys.argv[1]); print(s.recv(99).decode())"
    argv = (PYTHON, "-ISc", code, standing.facts["door"])

    assert walled(standing.policy, argv, Path("/"), user=user).stdout.strip() == standing.secret


def test_variables_of_the_job_do_nothing_outside_of_the_wall(job: tuple[World, int | None]) -> None:
    """The loader writes where a variable says: of bubblewrap itself that would be a file of the host's."""
    standing, user = job
    outside = standing.top / "tmp/loader"
    env = {**PATH, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(outside), "WORD": "kept"}

    done = walled(standing.policy, ("/bin/sh", "-c", "echo $WORD"), Path("/"), user=user, env=env)

    assert done.stdout.endswith("kept\n")
    assert not list(outside.parent.glob("loader*"))
    subprocess.run(("/bin/true",), env=env, check=True, timeout=30)
    assert list(outside.parent.glob("loader*"))


def test_no_variable_stands_where_every_user_can_read_it() -> None:
    policy = Policy(home=Path("/h"), temporary=Path("/t"))
    options = bwrap_options(policy, NOTHING, {"KEY": "sk-1"}, Path("/"))

    assert "sk-1" not in " ".join(bwrap_argv(BWRAP, policy, 7))
    assert b"\0--setenv\0KEY\0sk-1\0" in packed(options)


@pytest.mark.parametrize(
    ("network", "keeper", "entered", "alone"),
    [("on", None, False, False), ("off", None, False, True), ("proxy", None, False, True), ("proxy", 7, True, False)],
)
def test_without_a_keeper_there_is_no_network_and_with_one_it_is_the_keeper_s(
    network: str, keeper: int | None, entered: bool, alone: bool
) -> None:
    policy = Policy(home=Path("/h"), temporary=Path("/t"), network=network, netns=keeper)  # type: ignore[arg-type]

    argv = bwrap_argv(BWRAP, policy, 5, nsenter=Path("/usr/bin/nsenter"))

    assert ("--unshare-net" in bwrap_options(policy, NOTHING, {}, Path("/"))) is alone
    assert (argv[:7] == ("/usr/bin/nsenter", "--preserve-credentials", "--user", "--net", "-t", "7", "--")) is entered
    assert argv[-4:] == (str(BWRAP), "--args", "5", "--")


@pytest.mark.skipif(shutil.which("nsenter") is None, reason="util-linux is not installed")
def test_a_job_is_put_into_the_network_of_its_keeper_and_behind_the_same_wall(tmp_path: Path) -> None:
    argv = ("unshare", "--user", "--map-current-user", "--net", "sh", "-c", "echo ready; exec sleep 60")
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as keeper:
        try:
            assert keeper.stdout is not None
            keeper.stdout.readline()
            policy = Policy(home=tmp_path, temporary=tmp_path, writable=(tmp_path,), network="proxy", netns=keeper.pid)
            line = "readlink /proc/self/ns/net; touch x; touch /x 2>&1; unshare -U true 2>&1; grep -c . /proc/net/dev"

            said = walled(policy, ("/bin/sh", "-c", line), tmp_path).stdout.splitlines()

            assert said[0] == os.readlink(f"/proc/{keeper.pid}/ns/net")  # noqa: PTH115 — not a path, a name of a space
            assert said[0] != os.readlink("/proc/self/ns/net")  # noqa: PTH115
            assert (tmp_path / "x").exists()
            assert (len(said), said[-1]) == (4, "3")
            assert "Read-only file system" in said[1]
            assert "unshare failed" in said[2]
        finally:
            keeper.kill()


def test_shared_memory_is_as_large_as_the_job_s_memory() -> None:
    policy = Policy(home=Path("/h"), temporary=Path("/t"), resources=Resources(memory=1 << 20))

    done = walled(policy, ("df", "--output=size", "-B1", "/dev/shm"), Path("/"), env=PATH)

    assert done.stdout.split()[-1] == str(1 << 20)


@pytest.mark.parametrize("mounted", [False, True], ids=["exposed", "at another path"])
def test_folders_above_something_opened_in_a_hidden_place_refuse_what_is_written(tmp_path: Path, mounted: bool) -> None:
    """bubblewrap makes them in memory: what a job wrote there would be lost, and the job would not be told."""
    home, own = tmp_path / "home", tmp_path / "own"
    for folder in (home / "data/deep", own):
        folder.mkdir(parents=True)
    (home / "data/deep/x.txt").write_text("x")
    opened = Policy(
        home=own,
        temporary=own,
        writable=(own,),
        hidden=(home,),
        exposed=() if mounted else (home / "data/deep/x.txt",),
        mounts=(Mount(own, home / "data/deep/own", True),) if mounted else (),
    )
    folders = ("", "data/", "data/deep/")
    line = "; ".join(
        f"chmod 777 {home}/{name} 2>/dev/null; echo lost > {home}/{name}new; mkdir {home}/{name}dir" for name in folders
    )

    done = walled(opened, ("/bin/sh", "-c", f"{line}; ls -R {home}; touch {own}/works"), own)

    assert "new" not in done.stdout and "dir" not in done.stdout and (own / "works").exists()
    assert done.stderr.count("Read-only file system") == 2 * len(folders), done.stderr


@pytest.mark.skipif(not toolchains(Path.home(), os.environ), reason="no toolchain is installed in this home")
def test_toolchains_of_a_hidden_home_work(tmp_path: Path) -> None:
    home = Path.home()
    found = toolchains(home, os.environ)
    policy = Policy(
        home=tmp_path,
        temporary=tmp_path,
        writable=(tmp_path,),
        hidden=(home,),
        exposed=tuple(path for chain in found for path in chain.paths),
    )
    variables = {name: value for chain in found for name, value in chain.variables.items()}

    shown = walled(policy, ("ls", "-A", str(home)), tmp_path, env={**PATH, **variables})

    names = {path.relative_to(home).parts[0] for chain in found for path in chain.paths if path.is_relative_to(home)}
    assert set(shown.stdout.split()) == names
