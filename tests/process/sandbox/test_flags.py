"""Every part of the profile is there for a reason: taken out, an attack succeeds that fails otherwise.

The filter of system calls is off here, because it stops some of the same attacks a second time. A part that no attack
misses is named with the reason why it is there.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from msgspec import Struct

from orchard.process.sandbox.bwrap import bwrap_options, bwrap_program
from orchard.process.sandbox.ground import Account, survey
from tests.process.sandbox.corpus.run import ATTACKS, attempt
from tests.process.sandbox.corpus.world import World, lay_placeholders, world
from tests.process.sandbox.walled import BWRAP, ORDINARY, Change

pytestmark = [
    pytest.mark.skipif(bwrap_program() is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="many parts are there because of root"),
]

ARITY = {
    "--ro-bind": 2, "--bind": 2, "--symlink": 2, "--setenv": 2, "--tmpfs": 1, "--remount-ro": 1, "--proc": 1,
    "--dev": 1, "--uid": 1, "--gid": 1, "--cap-drop": 1, "--perms": 1, "--size": 1, "--chdir": 1, "--seccomp": 1,
}  # fmt: skip

Part = tuple[str, ...]


class Mutant(Struct, frozen=True):
    """The attack that succeeds without a part, and what stands in the part's place."""

    attack: str
    instead: Part = ()
    without: tuple[str, ...] = ()
    """Parts that mean nothing without this one."""
    ordinary: bool = False
    """An ordinary user misses it; root does in any case."""


MISSED = {
    "--unshare-user": Mutant("make a user namespace", without=("--disable-userns", "--uid", "--gid")),
    "--unshare-ipc": Mutant("attach shared memory of the host", ordinary=True),
    "--unshare-pid": Mutant("end the engine", ordinary=True),
    "--unshare-net": Mutant("connect to a port of the host", ordinary=True),
    "--disable-userns": Mutant("make a user namespace", ordinary=True),
    "--cap-drop ALL": Mutant("be able to have capabilities"),
    "--new-session": Mutant("type into the terminal", ordinary=True),
    "--uid 65534": Mutant("be called root"),
    "--ro-bind / /": Mutant("write where no place says anything", ("--bind", "/", "/"), ordinary=True),
    "--proc /proc": Mutant("read the command line of another program", ordinary=True),
    "--dev /dev": Mutant("write into another terminal", ("--dev-bind", "/dev", "/dev")),
    "--remount-ro /dev": Mutant("make a file among the devices", ordinary=True),
    "--ro-bind /proc/sys /proc/sys": Mutant("open /proc/sys/kernel/core_pattern to write"),
    "--ro-bind /dev/null /proc/timer_list": Mutant("read the list of timers"),
    "--ro-bind /dev/null /proc/kpageflags": Mutant("read the flags of all memory"),
    "--ro-bind /dev/null /etc/shadow": Mutant("read /etc/shadow"),
    "--ro-bind /dev/null /etc/gshadow": Mutant("read /etc/gshadow"),
    "--tmpfs /etc/ssl/private": Mutant("list private keys of the system"),
    "--tmpfs /sys/firmware": Mutant("read tables of the firmware"),
    "--tmpfs /root": Mutant("list root's home", without=("--remount-ro",)),
    "--bind W/job/tmp /tmp": Mutant("find a file in the system's /tmp", ordinary=True),
    "--tmpfs W/home": Mutant("read ~/.ssh/id_ed25519", without=("--remount-ro",), ordinary=True),
    "--tmpfs W/repo": Mutant(
        "read what is not committed in the user's checkout", without=("--remount-ro",), ordinary=True
    ),
    "--tmpfs W/repo/.git/orchard": Mutant("read the engine's nonce", ordinary=True),
    "--tmpfs W/tmp": Mutant("read another job's pass", ordinary=True),
    "--tmpfs W/run": Mutant("connect to docker", ordinary=True),
    "--tmpfs W/trees": Mutant("read another worktree", without=("--remount-ro",), ordinary=True),
    "--ro-bind W/repo/.git W/repo/.git": Mutant("add a hook", ("--bind", "W/repo/.git", "W/repo/.git"), ordinary=True),
    "--ro-bind W/home/.cargo/bin W/home/.cargo/bin": Mutant(
        "add a program to an exposed toolchain",
        ("--bind", "W/home/.cargo/bin", "W/home/.cargo/bin"),
        ordinary=True,
    ),
    "--ro-bind W/trees/one/.git W/trees/one/.git": Mutant("overwrite the .git file of the worktree", ordinary=True),
    "--ro-bind W/trees/one/.claude W/trees/one/.claude": Mutant("plant settings of claude", ordinary=True),
    "--ro-bind W/trees/one/.mcp.json W/trees/one/.mcp.json": Mutant("plant servers for agents", ordinary=True),
    "--ro-bind W/trees/one/.github/workflows W/trees/one/.github/workflows": Mutant("plant a workflow", ordinary=True),
    "--bind W/trees/one/.github W/trees/one/.github": Mutant(
        "plant a workflow after moving the folder above", ordinary=True
    ),
    **{
        f"--ro-bind W/repo/.git/worktrees/one/{name} W/repo/.git/worktrees/one/{name}": Mutant(attack, ordinary=True)
        for name, attack in (
            ("commondir", "change commondir"),
            ("gitdir", "change gitdir"),
            ("config.worktree", "make config.worktree"),
        )
    },
}

# Parts that let something in, without which a job could not work; and those that only other machines can miss.
NOT_MISSED = {
    "--unshare-uts": "without capabilities the name of the machine cannot be changed anyway",
    "--unshare-cgroup-try": "hides only where in the tree of groups we are",
    "--die-with-parent": "has a test of its own",
    "--remount-ro": "folders above something opened: has a test of its own, for what is written there harms nobody",
    "--gid 65534": "belongs to --uid",
    "--tmpfs /dev/shm": "lets programs share memory with each other",
    "--clearenv": "bubblewrap is started with nothing worth hiding",
    "--setenv": "lets variables in",
    "--chdir": "where the program starts",
    "--bind": "lets a place be written to",
    "--ro-bind W/job/door W/job/door": "lets a socket in",
    "--ro-bind /proc": "bubblewrap may do the same by itself, this kernel may have nothing there",
    "--ro-bind /dev/null": "a secret of this machine or of another kernel",
    "--tmpfs /": "a secret of this machine or of another kernel",
}


def parts(options: tuple[str, ...]) -> Iterator[Part]:
    """Flags with their arguments; what only says how the next one is made belongs to that."""
    at = begin = 0
    while at < len(options):
        flag = options[at]
        at += 1 + ARITY.get(flag, 0)
        if flag not in ("--size", "--perms"):
            yield options[begin:at]
            begin = at


def named(part: Part, top: Path) -> str:
    while part[0] in ("--size", "--perms"):
        part = part[2:]
    return " ".join(part).replace(str(top), "W")


@pytest.fixture(scope="module", params=[None, ORDINARY], ids=["root", "user"])
def attacked(request: pytest.FixtureRequest) -> Iterator[tuple[World, int | None]]:
    with ExitStack() as stack:
        standing = stack.enter_context(world(request.param))
        lay_placeholders(standing, request.param)
        yield standing, request.param


def profile(standing: World, user: int | None) -> list[str]:
    account = Account.own() if user is None else Account(user, frozenset({user}))
    options = bwrap_options(standing.policy, survey(standing.policy, account), standing.env, Path("/"))
    return [named(part, standing.top) for part in parts(options)]


def without(key: str, mutant: Mutant, top: Path) -> Change:
    def change(options: tuple[str, ...]) -> tuple[str, ...]:
        kept: list[str] = []
        for part in parts(options):
            if named(part, top) == key:
                kept += [word.replace("W", str(top), 1) if word.startswith("W/") else word for word in mutant.instead]
            elif part[0] not in mutant.without:
                kept += part
        return tuple(kept)

    return change


def test_every_part_of_the_profile_is_missed_by_an_attack_or_has_a_reason(attacked: tuple[World, int | None]) -> None:
    found = profile(*attacked)

    def explained(part: str) -> bool:
        return part in MISSED or any(part == known or part.startswith(f"{known}") for known in NOT_MISSED)

    assert [part for part in found if not explained(part)] == []


def test_without_the_filter_the_same_attacks_fail(attacked: tuple[World, int | None]) -> None:
    names = {mutant.attack for mutant in MISSED.values()}
    standing, user = attacked

    attacks = [one for one in ATTACKS if one.name in names]
    won, words = attempt(standing, "bwrap", user, attacks=attacks, mutation=lambda options: options)

    assert {name: words[name] for name in won} == {}


@pytest.mark.slow
@pytest.mark.parametrize("key", MISSED)
def test_an_attack_succeeds_when_the_part_is_taken_out(key: str, attacked: tuple[World, int | None]) -> None:
    standing, user = attacked
    mutant = MISSED[key]
    if (user is not None and not mutant.ordinary) or key not in profile(standing, user):
        pytest.skip("this user's wall does not need it, or this machine has no such thing")
    [attack] = [one for one in ATTACKS if one.name == mutant.attack]

    won, words = attempt(standing, "bwrap", user, attacks=[attack], mutation=without(key, mutant, standing.top))

    assert won == {attack.name}, words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "instead", "missed"),
    [
        ("0555", "0755", "mistake the hidden repo for the user's"),
        ("4096", "409600", "fill the memory through a hidden folder"),
    ],
)
def test_how_an_empty_folder_is_made_matters(
    word: str, instead: str, missed: str, attacked: tuple[World, int | None]
) -> None:
    standing, user = attacked
    [attack] = [one for one in ATTACKS if one.name == missed]

    def change(options: tuple[str, ...]) -> tuple[str, ...]:
        kept = (part for part in parts(options) if part[0] != "--remount-ro")  # which would stop it as well
        return tuple(instead if option == word else option for part in kept for option in part)

    assert attempt(standing, "bwrap", user, attacks=[attack], mutation=lambda options: options)[0] == frozenset()
    assert attempt(standing, "bwrap", user, attacks=[attack], mutation=change)[0] == {missed}


@pytest.mark.slow
def test_a_call_that_only_the_filter_stops_succeeds_without_it(attacked: tuple[World, int | None]) -> None:
    standing, user = attacked
    filtered = [one for one in ATTACKS if one.filtered]

    stopped = attempt(standing, "bwrap", user, attacks=filtered)[0]
    unfiltered = attempt(standing, "bwrap", user, attacks=filtered, mutation=lambda options: options)[0]

    assert stopped == frozenset()
    assert "add a key to the keyring" in unfiltered


@pytest.mark.parametrize("held", [True, False], ids=["held", "taken out"])
def test_nothing_stays_when_bubblewrap_is_killed(held: bool) -> None:
    """Without --die-with-parent the program goes on: what is left is the first process of the namespace."""
    flags = ("--unshare-pid", *(("--die-with-parent",) if held else ()))
    outer = subprocess.Popen((str(BWRAP), *flags, "--ro-bind", "/", "/", "--proc", "/proc", "sleep", "60"))
    try:
        inner = _descendants(outer.pid, 2)
        outer.send_signal(signal.SIGKILL)
        outer.wait()
        _, alive = psutil.wait_procs(inner, timeout=10 if held else 0.3)
    finally:
        outer.kill()
    for process in alive:
        process.kill()

    assert bool(alive) is not held


def _descendants(pid: int, count: int) -> list[psutil.Process]:
    end = time.monotonic() + 20
    while len(found := psutil.Process(pid).children(recursive=True)) < count:
        assert time.monotonic() < end
        time.sleep(0.01)
    return found
