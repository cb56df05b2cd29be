"""The kernel's list of processes, reduced to what tells families apart.

On Linux it is read from /proc by hand: a scan happens whenever a program ends, so it has to cost a
few milliseconds and import nothing. Elsewhere psutil answers the same questions.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from threading import Thread, get_native_id

from msgspec import Struct

MOST = 1000


def ancestors(of: int | None = None) -> Iterator[int]:
    """Who started this process, or the one of that number, and who started them."""
    stat = read_stat(of) if of is not None else None
    pid = os.getppid() if of is None else stat.parent if stat is not None else 0
    for _ in range(MOST):
        if pid <= 0:
            return
        yield pid
        stat = read_stat(pid)
        pid = stat.parent if stat is not None else 0


def inside_job() -> bool:
    """Whether a job started this process, or one of those above it: all of them carry its token."""
    own = TOKEN_VARIABLE in os.environ or "ORCHARD_JOB" in os.environ
    return own or any(read_token(pid) not in (None, UNKNOWN) for pid in ancestors())


LINUX = sys.platform == "linux"

TOKEN_VARIABLE = "ORCHARD_TOKEN"
UNKNOWN = b""
"""In place of a token that cannot be known yet; a token is never empty."""

# The kernel allows 6 MiB of arguments and environment together.
_ENVIRONMENT_LIMIT = 8 * 1024 * 1024

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PASSES = 3
"""The list is a moment old when it is read: who forked and left in between is found under the new number."""

_KERNEL_PARENTS = (0, 2)
"""Kernel threads, and the one that is their parent, have no arguments either."""

_DEAD_STATES = frozenset("ZXx")
_FIRST_THREAD_ENDED = "S"
"""A process with several threads looks like a zombie once the first has ended; the others go on, and may write."""
_STOPPED_STATES = frozenset("Tt")

_NEVER_AGAIN = 300
"""Numbers up to this one are given only when a machine, or a namespace, starts."""

FileKey = tuple[int, int]
"""Device and inode: what a file is, whatever name it is reached by."""


class Stat(Struct, frozen=True):
    pid: int
    state: str
    parent: int
    group: int
    session: int
    cpu_seconds: float
    """Of the process itself and of the children it has waited for."""
    started: float
    """Clock ticks since boot on Linux, seconds since the epoch elsewhere: only good for comparing."""
    name: bytes = b""
    """Of its program, as the kernel keeps it, or as the process calls itself; empty where it is not told."""
    terminal: int = 0
    """The number of the terminal that its session has, on Linux; 0 for none."""

    @property
    def dead(self) -> bool:
        """A zombie has ended: it only waits for its parent to hear of it."""
        return self.state in _DEAD_STATES

    @property
    def stopped(self) -> bool:
        """Stopped processes hear no signal but SIGKILL until they are continued."""
        return self.state in _STOPPED_STATES


def all_processes(since: float = 0.0) -> Iterator[Stat]:
    """Every process that started at this moment or later, in no promised order; some may be gone by now."""
    if not LINUX:
        yield from _portable_processes(since)
        return
    for pid in all_pids():
        if stat := _stat(pid, since):
            yield stat


def all_pids() -> Iterator[int]:
    """The number of every process, on Linux, in no promised order."""
    seen: set[str] = set()
    for _ in range(_PASSES):
        names = [name for name in os.listdir("/proc") if name not in seen and name.isdecimal()]  # noqa: PTH208
        if not names:
            break
        seen.update(names)
        yield from map(int, names)


class Moment(Struct, frozen=True):
    """A moment in the numbering of processes, by which `began_since` tells who is younger; this one is before them all.

    The kernel gives the next free number after the last one, and begins again below when it has given the largest.
    """

    last: int = 0
    forks: int = 0
    """How many processes and threads the machine had started by then."""
    passed_over: int = 0
    """How many numbers may be passed over because they are taken: by a process, its group or its session."""


def moment() -> Moment:
    if not LINUX:
        return Moment()
    thread = Thread(target=int)
    try:
        thread.start()
    except RuntimeError:  # there may be no more of them now
        return Moment()
    thread.join()
    tasks = _read("/proc/loadavg", 4096).partition(b"/")[2].split()
    return Moment(thread.native_id or 0, _forks(), 3 * int(tasks[0]) if tasks else 0)


def began_since(then: Moment) -> Callable[[int], bool]:
    """Whether the process with a number may have begun after a moment; it has not, where this says no."""
    largest = int(_read("/proc/sys/kernel/pid_max", 4096) or 0)
    given = _forks() - then.forks + then.passed_over
    if not then.last or given >= largest - _NEVER_AGAIN:
        return lambda _: True
    end, below = then.last + given, then.last + given - largest + _NEVER_AGAIN
    return lambda pid: then.last < pid <= end or pid <= below


def _forks() -> int:
    line = _read("/proc/stat", 1024 * 1024).partition(b"\nprocesses ")[2].split(maxsplit=1)
    return int(line[0]) if line else 0


def own_children(*, helpers: bool = True) -> list[int] | None:
    """The pids of our children, orphans that came to us included; None where the kernel does not tell.

    Without `helpers`, those that other threads than this one have started are left out.
    """
    if not LINUX:
        return None
    found: list[int] = []
    try:
        # The main thread's list comes last: orphans are put there, and none must pass us by on its way.
        main = os.getpid()
        tasks = map(int, os.listdir("/proc/self/task")) if helpers else {get_native_id(), main}  # noqa: PTH208
        for task in sorted(tasks, key=main.__eq__):
            with open(f"/proc/self/task/{task}/children", "rb", buffering=0) as file:  # noqa: PTH123 (hot)
                found += map(int, file.read().split())
    except FileNotFoundError:
        return None  # a thread that just ended, or a kernel without these files
    return found


def children_of(pid: int) -> list[int]:
    """The children of the first thread of a process, where the kernel tells."""
    return list(map(int, _read(f"/proc/{pid}/task/{pid}/children", 65536).split())) if LINUX else []


def read_stat(pid: int) -> Stat | None:
    return _stat(pid, 0.0) if LINUX else portable_stat(pid)


def thread_states(pid: int) -> str:
    """A letter for what each thread of a process does now; the process itself shows only that of its first thread."""
    if not LINUX:
        stat = portable_stat(pid)
        return stat.state if stat is not None else ""
    texts = (_read(f"/proc/{pid}/task/{thread}/stat", 4096) for thread in thread_numbers(pid))
    return "".join(chr(text[text.rfind(b")") + 2]) for text in texts if text)


def thread_numbers(pid: int) -> list[int]:
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))  # noqa: PTH208 (hot)
    except OSError:
        return []


def thread_turns(pid: int) -> tuple[bytes, ...]:
    """How often each thread of a process has given up a processor so far: where that is the same, none has run."""
    texts = (_read(f"/proc/{pid}/task/{thread}/status", 8192) for thread in thread_numbers(pid) if LINUX)
    return tuple(text.partition(b"voluntary_ctxt_switches:")[2] for text in texts)


def _stat(pid: int, since: float) -> Stat | None:
    text = _read(f"/proc/{pid}/stat", 4096)
    # The name in the second field is free text, parentheses and newlines included: count from its end.
    fields = text[text.rfind(b")") + 2 :].split(None, 20)
    # Most processes are older than what is looked for, and reading on would triple the cost of a scan.
    if len(fields) < 20 or (started := float(fields[19])) < since:
        return None
    state = fields[0].decode("ascii", "replace")
    if state in _DEAD_STATES and int(fields[17]) > 1:
        state = _FIRST_THREAD_ENDED
    return Stat(
        pid=pid,
        state=state,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu_seconds=(int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / _TICKS_PER_SECOND,
        started=started,
        name=text[text.find(b"(") + 1 : text.rfind(b")")],
        terminal=int(fields[4]),
    )


def read_token(pid: int) -> bytes | None:
    """The family token that the process was started with; None if there is none or we may not look.

    `UNKNOWN` while the process is in the middle of `exec`, when the kernel shows an empty environment.
    """
    if not LINUX:
        return portable_token(pid)
    environment = _read(f"/proc/{pid}/environ", _ENVIRONMENT_LIMIT)
    if not environment:
        return UNKNOWN if _is_becoming(pid) else None
    name = b"\0" + TOKEN_VARIABLE.encode() + b"="
    environment = b"\0" + environment + b"\0"
    at = environment.find(name)
    if at < 0:
        return None
    return environment[at + len(name) : environment.index(b"\0", at + len(name))]


def read_limits(pid: int) -> bytes:
    return _read(f"/proc/{pid}/limits", 4096) if LINUX else b""


def _is_becoming(pid: int) -> bool:
    """Whether the environment was empty only for a moment, rather than unreadable or empty for good."""
    stat = read_stat(pid)
    if stat is None or stat.dead or stat.parent in _KERNEL_PARENTS or not os.access(f"/proc/{pid}/environ", os.R_OK):
        return False
    return not _read(f"/proc/{pid}/cmdline", 1) or bool(_read(f"/proc/{pid}/environ", 1))


def writes_to(pid: int, file: FileKey) -> bool:
    """Whether standard output or standard error of the process is this file."""
    if not LINUX:
        return portable_writes_to(pid, file)
    return any(file_key(f"/proc/{pid}/fd/{number}") == file for number in (1, 2))


def file_key(path: str | os.PathLike[str]) -> FileKey | None:
    """What the file at this path is; None when there is none or we may not look."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path object per descriptor would double the cost of a scan
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _read(path: str, limit: int) -> bytes:
    """What a file of /proc holds; nothing when the process is gone or is not ours to look at."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        # Without descriptors every process would look gone, and a sweep would take that for success.
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return b""
    try:
        data = os.read(fd, 16384)
        if len(data) < 4096:
            return data
        parts = [data]
        while data and sum(map(len, parts)) < limit:
            data = os.read(fd, 1024 * 1024)
            parts.append(data)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _portable_processes(since: float) -> Iterator[Stat]:
    import psutil  # heavy, and not needed on Linux

    for pid in psutil.pids():
        if (stat := portable_stat(pid)) and stat.started >= since:
            yield stat


def portable_stat(pid: int) -> Stat | None:
    import psutil  # heavy, and not needed on Linux

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            status = process.status()
            state = {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X", psutil.STATUS_STOPPED: "T"}.get(status, "S")
            return Stat(
                pid=pid,
                state=state,
                parent=process.ppid(),
                group=os.getpgid(pid),
                session=os.getsid(pid),
                cpu_seconds=0.0 if state == "Z" else sum(process.cpu_times()[:4]),
                started=process.create_time(),
            )
    except (psutil.Error, OSError):
        return None


def portable_token(pid: int) -> bytes | None:
    import psutil  # heavy, and not needed on Linux

    try:
        token = psutil.Process(pid).environ().get(TOKEN_VARIABLE)
    except (psutil.Error, OSError):
        return None
    return None if token is None else os.fsencode(token)


def portable_writes_to(pid: int, file: FileKey) -> bool:
    import psutil  # heavy, and not needed on Linux

    try:
        opened = psutil.Process(pid).open_files()
    except (psutil.Error, OSError):
        return False
    return any(file_key(each.path) == file for each in opened if each.fd in (1, 2))
