"""All attacks in one start behind a wall, and which of them succeeded."""

import json
import os
import pty
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from orchard.process.sandbox.ground import forget
from orchard.process.sandbox.policy import Level
from orchard.process.sandbox.spawn import popen
from tests.process.sandbox.corpus.attack import Attack
from tests.process.sandbox.corpus.files import FILES
from tests.process.sandbox.corpus.kernel import KERNEL
from tests.process.sandbox.corpus.metadata import METADATA
from tests.process.sandbox.corpus.orders import ORDERS
from tests.process.sandbox.corpus.processes import PROCESSES
from tests.process.sandbox.corpus.sockets import SOCKETS
from tests.process.sandbox.corpus.world import PYTHON, World, lay_placeholders, world
from tests.process.sandbox.walled import Change, walled

# What spoils the world comes after what needs it whole.
ATTACKS: tuple[Attack, ...] = (*SOCKETS, *PROCESSES, *ORDERS, *KERNEL, *FILES, *METADATA)

Words = Mapping[str, str]
"""What each attack printed, by its name."""


def succeeded(level: Level, user: int | None) -> tuple[frozenset[str], Words]:
    """The names of all that did what they should not have been able to, and what they said."""
    with world(user) as attacked:
        if level != "off":
            lay_placeholders(attacked, user)
        return attempt(attacked, level, user)


def attempt(
    attacked: World,
    level: Level,
    user: int | None,
    *,
    attacks: Iterable[Attack] = ATTACKS,
    mutation: Change | None = None,
) -> tuple[frozenset[str], Words]:
    """One start in a world that stands already; what earlier starts have done to it does not count.

    A mutation is made in the profile of bubblewrap, and then no system call is filtered."""
    attacks = tuple(attacks)
    lost = {one.lost: _state(attacked, one.lost) for one in attacks if one.lost}
    marked = _marked(attacked)
    with _terminal() as (stdin, name):
        argv = _orders(attacked, attacks, name)
        printed, complaint = _start(attacked, level, argv, user, stdin, mutation)
    words = dict(json.loads(line) for line in printed.splitlines())
    if len(words) != len(attacks):
        raise NotStarted(complaint[-500:])
    marked = _marked(attacked) - marked
    won = {
        one.name
        for one in attacks
        if attacked.secret in words[one.name]
        or "WON" in words[one.name].split()
        or one.name in marked
        or (one.lost and _state(attacked, one.lost) != lost[one.lost])
    }
    if _end_orphans(attacked.facts["orphan"]):
        won.add("stay after the end")
    return frozenset(won), words


class NotStarted(Exception):
    """The wall could not be built, so nothing was attacked."""


def _orders(attacked: World, attacks: Iterable[Attack], terminal: str) -> tuple[str, ...]:
    folder = attacked.top / "job/home"
    facts = {**attacked.facts, "terminal": terminal}
    orders = {"world": facts, "attacks": [(one.name, one.code) for one in attacks]}
    (folder / "orders.json").write_text(json.dumps(orders))
    shutil.copy(Path(__file__).with_name("driver.py"), folder)
    return (PYTHON, "-IS", str(folder / "driver.py"), str(folder / "orders.json"))


def _start(
    attacked: World, level: Level, argv: tuple[str, ...], user: int | None, stdin: int, mutation: Change | None
) -> tuple[str, str]:
    """What it printed and complained about. It has a terminal, as a program has that was started from one."""
    argv = ("setsid", "--ctty", "--wait", *argv)
    if mutation is not None:
        done = walled(
            attacked.policy, argv[3:], Path(attacked.facts["wt"]), user=user, env=attacked.env, change=mutation,
            before=argv[:3], stdin=stdin, filtered=False,
        )  # fmt: skip
        return done.stdout, done.stderr
    if level == "off" and user is None and os.geteuid() == 0:
        argv = ("unshare", "--mount", "--propagation", "private", *argv)  # mounts of an attack are not the machine's
    with TemporaryFile() as stdout, TemporaryFile() as stderr:
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                status = _as(attacked, level, argv, user, (stdin, stdout.fileno(), stderr.fileno()))
            except BaseException as error:
                os.write(stderr.fileno(), repr(error).encode())
            os._exit(status)
        os.waitpid(pid, 0)
        texts = [os.pread(file.fileno(), 1 << 22, 0).decode(errors="replace") for file in (stdout, stderr)]
    return texts[0], texts[1]


def _as(attacked: World, level: Level, argv: tuple[str, ...], user: int | None, streams: tuple[int, int, int]) -> int:
    """Become the user, as whom the engine would run, and start the program as the engine does."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    forget()
    process = popen(
        attacked.policy, level, argv, cwd=attacked.facts["wt"], env=attacked.env, start_new_session=True,
        stdin=streams[0], stdout=streams[1], stderr=streams[2],
    )  # fmt: skip
    try:
        return process.wait(120)
    finally:
        process.kill()


@contextmanager
def _terminal() -> Iterator[tuple[int, str]]:
    master, slave = pty.openpty()
    try:
        os.fchmod(slave, 0o666)
        yield slave, os.ttyname(slave)
    finally:
        os.close(slave)
        os.close(master)


def _marked(attacked: World) -> frozenset[str]:
    """The attacks whose mark stands in a file that the job may not write."""
    found: set[str] = set()
    for folder, _, files in os.walk(attacked.top):
        for name in files:
            path = Path(folder, name)
            if attacked.policy.may_write(path) or path.is_symlink():
                continue
            with suppress(OSError):
                found |= {mark.decode() for mark in re.findall(rb"PWNED:([^\n]+)\n", path.read_bytes())}
    return frozenset(found)


def _state(attacked: World, lost: str) -> object:
    """What is there: of a process whether it lives, of a file everything that matters."""
    if lost.startswith("!"):
        return attacked.victims[lost[1:]].poll()
    path = Path(attacked.facts[lost[1:]]) if lost.startswith("@") else attacked.top / lost
    try:
        status = path.lstat()
        return (status.st_ino, status.st_mode, status.st_mtime_ns, path.read_bytes())
    except OSError:
        return None


def _end_orphans(word: str) -> bool:
    """Whether a process of that name has outlived its wall; it is ended."""
    found = False
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), 9)
                    found = True
    return found
