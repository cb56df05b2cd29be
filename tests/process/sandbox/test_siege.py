"""Attacks on the Landlock level, as root and as an ordinary user: none comes through, and each part of the wall is
what stops some of them. The attacks stand in attacker.py; siege.py runs them."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchard.process.sandbox import landlock
from orchard.process.sandbox.landlock import gaps, version
from orchard.process.sandbox.policy import Policy
from tests.process.sandbox.attacker import ATTACKS
from tests.process.sandbox.siege import CANARY

ROOT = Path(__file__).parent.parent.parent.parent
ORDINARY, STRANGER = 12345, 54321
USERS = [0, ORDINARY] if os.geteuid() == 0 else [os.geteuid()]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or version() < 6 or platform.machine() not in ("x86_64", "aarch64"),
    reason="this kernel does not have all of Landlock",
)

Siege = dict[str, Any]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="orchard-siege-")).resolve()
    yield made
    shutil.rmtree(made)


def besiege(folder: Path, user: int, sieges: list[Siege]) -> list[dict[str, str]]:
    """Run sieges as this user, in a folder of his."""
    public = folder / "public"
    public.mkdir()
    shutil.copy(ROOT / "tests/process/sandbox/attacker.py", public)
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        (public / "of-another").write_text(CANARY)
        shutil.copy("/usr/bin/id", public / "setuid-id")
        for path in (folder, public, public / "attacker.py"):
            os.chown(path, user, user)
        os.chown(public / "of-another", STRANGER, STRANGER)
        (public / "of-another").chmod(0o600)
        os.chown(public / "setuid-id", 0 if user else STRANGER, -1)
        (public / "setuid-id").chmod(0o4755)
        as_user = {"user": user, "group": user, "extra_groups": []} if user else {}
    folder.chmod(0o755)
    argv = [python_for(as_user), "-m", "tests.process.sandbox.siege", str(folder), json.dumps(sieges)]
    run = subprocess.run(
        argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=140, check=False, **as_user
    )
    assert run.returncode == 0, run.stderr
    answers: list[dict[str, str]] = json.loads(run.stdout)
    return answers


def environment() -> dict[str, str]:
    paths = [str(ROOT), *(path for path in sys.path if "site-packages" in path or path.endswith("src"))]
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def python_for(as_user: dict[str, Any]) -> str:
    for python in (sys.executable, "/usr/bin/python3"):
        tried = [python, "-c", "import tests.process.sandbox.siege"]
        try:
            done = subprocess.run(tried, cwd=ROOT, env=environment(), capture_output=True, check=False, **as_user)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip("there is no Python here that another user can read")


def through(answers: dict[str, str]) -> set[str]:
    return {name for name, answer in answers.items() if answer == "through"}


UNIX = {
    "connect_unix", "send_unix", "send_unix_from_a_pair", "send_unix_from_a_raw_pair", "heard:stream", "heard:datagram",
}  # fmt: skip
NETWORK = {
    "connect_tcp", "connect_tcp_as_ipv6", "connect_by_sending", "connect_by_sending_a_message", "send_udp",
    "send_udp_as_ipv6", "connect_udp", "bind_tcp", "listen_without_bind", "heard:tcp", "heard:udp",
}  # fmt: skip
POLICIES: list[tuple[Siege, set[str]]] = [
    ({"network": "proxy"}, set()),
    ({"network": "off"}, set()),
    ({"network": "on"}, NETWORK),
    # What `gaps` tells of this policy, and nothing else.
    ({"network": "proxy", "sockets": True}, UNIX | {"listen_without_bind"}),
]


@pytest.mark.parametrize("user", USERS)
def test_no_attack_comes_through_but_what_is_told(folder: Path, user: int) -> None:
    answers = besiege(folder, user, [siege for siege, _ in POLICIES])

    assert len(ATTACKS) > 150
    for (siege, open_ones), told in zip(POLICIES, answers, strict=True):
        assert set(ATTACKS) <= set(told), told
        # A machine without IPv6 has no way through it.
        assert through(told) - open_ones == set(), siege
        assert open_ones - through(told) <= {"connect_tcp_as_ipv6", "send_udp_as_ipv6", "connect_by_sending"}, siege
    policy = Policy(home=folder, temporary=folder, sockets=(folder / "s",), network="proxy", proxy_port=1)
    assert any("Every UNIX socket" in one for one in gaps(policy))
    assert any("wait for connections" in one for one in gaps(policy))


WITHOUT_A_WALL = 100
"""As an ordinary user. The others need rights that this user has not."""


@pytest.mark.skipif(ORDINARY not in USERS, reason="needs root, who becomes an ordinary user")
def test_without_the_wall_the_same_attacks_come_through(folder: Path) -> None:
    (answers,) = besiege(folder, ORDINARY, [{"level": "off"}])

    assert len(through(answers)) > WITHOUT_A_WALL
    assert {"read_ssh_key", "read_environment", "heard:signals", "heard:tcp", "be_traced", "new_user"} <= set(answers)


FILE_RIGHTS = {
    landlock.EXECUTE: "run_from_shared_memory",
    landlock.WRITE_FILE: "append_to_profile",
    landlock.READ_FILE: "read_netrc",
    landlock.READ_DIR: "list_home",
    landlock.REMOVE_DIR: "delete_folder",
    landlock.REMOVE_FILE: "delete_file",
    landlock.MAKE_CHAR: "make_null_device",
    landlock.MAKE_DIR: "make_folder",
    landlock.MAKE_REG: "make_node",
    landlock.MAKE_SOCK: "make_socket",
    landlock.MAKE_FIFO: "make_pipe",
    landlock.MAKE_SYM: "make_link",
    landlock.TRUNCATE: "empty_by_name",
    landlock.IOCTL_DEV: "command_device",
}
CALLS = {
    "ptrace": "be_traced",
    "process_vm_readv": "read_own_memory",
    "process_vm_writev": "write_its_memory",
    "process_madvise": "advise_memory",
    "pidfd_getfd": "take_own_file",
    "kcmp": "compare_processes",
    "setns": "enter_namespace",
    "open_tree": "open_tree",
    "fsconfig": "configure_filesystem",
    "mount_setattr": "change_mount",
    "open_by_handle_at": "open_by_handle",
    "fanotify_init": "watch_files",
    "keyctl": "join_keyring",
    "add_key": "add_key",
    "request_key": "request_key",
    "io_uring_setup": "make_ring",
    "io_uring_enter": "enter_ring",
    "io_uring_register": "register_ring",
    "bpf": "load_bpf",
    "userfaultfd": "handle_faults",
    "perf_event_open": "count_events",
    "clock_settime": "set_clock",
    "clock_adjtime": "ask_other_clock",
    "adjtimex": "ask_clock",
    "quotactl": "set_quota",
    "quotactl_fd": "set_quota_by_file",
    "clone3": "new_user_by_clone3",
    "openat2": "make_setuid_by_openat2",
    "clone": "new_user_by_clone",
    "unshare": "new_user",
    "ioctl": "type_into_terminal",
    "socket": "send_udp",
    "socketpair": "send_unix_from_a_pair",
    "sendto": "connect_by_sending",
    "sendmsg": "connect_by_sending_a_message",
    "listen": "listen_without_bind",
    "prlimit64": "limit_it",
    "openat": "make_setuid_at_once",
    "fchmod": "make_setuid_by_handle",
    "fchmodat2": "make_setuid_by_fchmodat2",
    **({"chmod": "make_setuid"} if platform.machine() == "x86_64" else {"fchmodat": "make_setuid"}),
}
OF_ROOT = {
    "fsopen": "open_filesystem",
    "fspick": "pick_filesystem",
    "fsmount": "mount_filesystem",
    "chroot": "change_root",
    "init_module": "load_module",
    "finit_module": "load_module_file",
    "delete_module": "unload_module",
    "kexec_load": "load_kernel",
    "swapon": "swap_on",
    "swapoff": "swap_off",
    "reboot": "reboot",
    "sethostname": "name_host",
    "setdomainname": "name_domain",
    "settimeofday": "set_time",
    "syslog": "read_log",
    "acct": "account",
    "vhangup": "hang_up",
}
"""Only with capabilities, which root loses as well: both have to be taken out."""
PARTS: list[tuple[Siege, str]] = [
    ({"without": "files"}, "read_ssh_key"),
    ({"without": "policy"}, "read_ssh_key"),
    *(({"without": f"right:{right}"}, name) for right, name in FILE_RIGHTS.items()),
    ({"without": "ports"}, "connect_tcp"),
    ({"without": "ports"}, "bind_tcp"),
    ({"without": "signals"}, "signal_it"),
    ({"without": "signals"}, "signal_by_handle"),
    ({"without": "abstract", "sockets": True}, "connect_abstract"),
    ({"without": "devices"}, "open_terminal_of_another"),
    ({"without": "calls"}, "be_traced"),
    ({"without": "architecture"}, "call_as_32_bit"),
    ({"without": "protocols"}, "connect_mptcp"),
    ({"without": "udp"}, "send_udp"),
    *(({"without": f"call:{call}"}, name) for call, name in CALLS.items()),
]
PARTS_OF_ROOT: list[tuple[Siege, str]] = [
    ({"without": "capabilities"}, "read_file_of_another_user"),
    ({"without": "capabilities"}, "become_another"),
    ({"without": "capabilities"}, "take_file_of_another"),
    ({"without": "secrets"}, "read_shadow"),
    ({"without": "devices"}, "read_disk"),
    *(({"without": f"capabilities+call:{call}"}, name) for call, name in OF_ROOT.items()),
]


@pytest.mark.slow
@pytest.mark.parametrize("user", USERS)
def test_each_part_of_the_wall_stops_something(folder: Path, user: int) -> None:
    parts = PARTS + (PARTS_OF_ROOT if user == 0 else [])
    sieges = [{**siege, "attacks": [name]} for siege, name in parts]

    free, *answers = besiege(folder, user, [{"level": "off"}, *sieges, {"without": "privileges"}])

    # What this kernel does not have at all is stopped by no wall.
    possible = [part for part in zip(parts, answers, strict=False) if part[0][1] in through(free)]
    assert len(possible) > 50
    closed = [(siege, name, told) for (siege, name), told in possible if name not in through(told)]
    assert not closed, "\n".join(map(str, closed))
    # Without this the kernel lets no thread restrict itself: then no program starts at all.
    assert answers[-1] == {"started": "PermissionError: [Errno 1] Operation not permitted"}
