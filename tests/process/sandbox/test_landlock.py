"""What the rules of Landlock are for a policy, and what is told of what they do not stop."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchard.process.sandbox.landlock import (
    ALL,
    CONNECT_TCP,
    DEVICES,
    EXECUTE,
    IOCTL_DEV,
    MAKE_REG,
    READ,
    REFER,
    TRUNCATE,
    WRITE,
    gaps,
    grants,
    known_rights,
    on_the_ground,
    system_grants,
    version,
)
from orchard.process.sandbox.policy import Policy
from orchard.process.sandbox.secrets import secrets_of_the_system

pytestmark = pytest.mark.skipif(sys.platform != "linux" or version() == 0, reason="this kernel has no Landlock")


def policy_of(folder: Path, **more: object) -> Policy:
    return Policy(**{"home": folder, "temporary": folder, **more})  # type: ignore[arg-type]


def rules(policy: Policy) -> dict[str, int]:
    return {grant.path: grant.rights for grant in grants(policy, on_the_ground(policy))}


def allowed(policy: Policy, path: Path) -> int:
    return granted(rules(policy), path)


def granted(found: Mapping[str, int], path: Path) -> int:
    rights = 0
    for place in (path, *path.parents):
        rights |= found.get(str(place), 0)
    return rights


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("home/.ssh", "home/tool/bin", "home/tool/secret", "home/job/src", "other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("text")
    return tmp_path


def test_what_is_hidden_has_no_rule_and_its_neighbours_have_one_each(tree: Path) -> None:
    policy = policy_of(tree, hidden=(tree / "home",))

    assert allowed(policy, tree / "home/.ssh/file") == 0
    assert allowed(policy, tree / "other/file") == READ
    assert str(tree) not in rules(policy)
    assert "/" not in rules(policy)


def test_the_deepest_place_decides(tree: Path) -> None:
    home = tree / "home"
    policy = policy_of(tree, hidden=(home, home / "tool/secret"), exposed=(home / "tool",), writable=(home / "job",))

    assert allowed(policy, home / "tool/bin/file") == READ
    assert allowed(policy, home / "tool/secret/file") == 0
    assert allowed(policy, home / "job/src/file") == WRITE
    assert allowed(policy, home / ".ssh/file") == 0


def test_what_is_hidden_before_it_exists_is_hidden_when_it_does(tree: Path) -> None:
    found = rules(policy_of(tree, hidden=(tree / "other/later",)))

    (tree / "other/later").mkdir()

    assert granted(found, tree / "other/later") == 0
    assert granted(found, tree / "other/file") == READ


def test_a_link_to_a_hidden_place_opens_nothing(tree: Path) -> None:
    (tree / "other/link").symlink_to(tree / "home")
    hidden = policy_of(tree, hidden=(tree / "other/link",))

    assert allowed(hidden, tree / "home/.ssh/file") == 0
    assert str(tree / "other/link") not in rules(policy_of(tree, hidden=(tree / "other/file",)))


def test_of_the_devices_only_harmless_ones_are_there() -> None:
    found = rules(policy_of(Path("/tmp")))

    devices = {path for path in found if path.startswith("/dev")}
    assert devices == set(DEVICES)
    assert not any(found[path] & EXECUTE for path in devices)
    hidden = rules(policy_of(Path("/tmp"), hidden=(Path("/dev/shm"),)))
    assert "/dev/shm" not in hidden


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns them")
def test_root_does_not_see_what_only_root_may_read() -> None:
    secrets = [str(path) for path in secrets_of_the_system(0, frozenset({0}))]
    found = {grant.path: grant.rights for grant in system_grants(secrets)}

    assert granted(found, Path("/etc/shadow")) == 0
    assert granted(found, Path("/etc/passwd")) == ALL
    assert granted(found, Path("/sys/kernel/debug")) == 0
    assert granted(found, Path("/proc/self/status")) == ALL


def test_the_policy_may_hide_what_is_a_secret_anyway() -> None:
    policy = policy_of(Path("/tmp"), hidden=(Path("/etc"),), exposed=(Path("/etc/passwd"),))

    assert allowed(policy, Path("/etc/shadow")) == 0
    assert allowed(policy, Path("/etc/group")) == 0
    assert allowed(policy, Path("/etc/passwd")) == READ


def test_an_older_kernel_is_asked_for_what_it_knows() -> None:
    assert known_rights(1) == (1 << 13) - 1
    assert known_rights(2) == known_rights(1) | REFER
    assert known_rights(4) == known_rights(3) == known_rights(2) | TRUNCATE
    assert known_rights(7) == known_rights(5) == known_rights(4) | IOCTL_DEV
    assert known_rights(0) == 0
    assert WRITE & known_rights(1) & MAKE_REG
    assert CONNECT_TCP == 2


def test_what_is_not_stopped_is_told(tmp_path: Path) -> None:
    plain = policy_of(tmp_path, writable=(tmp_path,))
    told = " ".join(gaps(plain))
    assert "Modes, times" in told
    assert "command lines" in told
    assert "Protected files" not in told
    assert "UNIX socket" not in told

    inside = policy_of(tmp_path, writable=(tmp_path,), protected=(tmp_path / ".git",), exposed=(tmp_path / "notes",))
    told = " ".join(gaps(inside))
    assert "can be changed: .git." in told
    assert str(tmp_path / "notes") in told

    assert "Every UNIX socket" in " ".join(gaps(policy_of(tmp_path, sockets=(tmp_path / "s",))))


def test_an_older_kernel_stops_less_and_that_is_told(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, network="proxy", proxy_port=3128, sockets=(tmp_path / "s",))
    told = {abi: len(gaps(policy, abi)) for abi in range(8)}

    assert told[7] == told[6] == told[5] - 2 == told[4] - 3 == told[3] - 4 == told[2] - 5 == told[1] - 6
    assert "TCP address" in " ".join(gaps(policy, 3))
    assert "TCP address" not in " ".join(gaps(policy_of(tmp_path, network="off"), 3))
