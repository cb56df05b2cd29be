"""The system calls that a program behind a wall may not make: a filter that the kernel runs before each of them.

The filter is a classic BPF program, assembled here by hand, so that no library is needed. It refuses by name and lets
the rest pass: what is refused either changes the machine, looks into other processes, opens the parts of the kernel in
which most holes are found, or goes around something else that the wall forbids. A refused call fails with EPERM. Three
answers differ:

- `clone3` and `openat2` keep their flags in memory, where a filter cannot look. They are answered with ENOSYS, as by an
  older kernel, and every C library falls back to `clone` and `openat`, whose flags are arguments.
- A number that is newer than this table is answered with ENOSYS too: what it would do is not known here.
- A call in the 32-bit convention of the same machine ends the program. Its numbers mean other calls.

Numbers, flags and types are 32 bits wide in the kernel, and only these 32 bits are compared: what a program puts into
the upper half is ignored by the kernel, so it must not make a difference here.
"""

import errno
import platform
import struct
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

Inet = Literal["all", "tcp", "none"]
"""Which sockets for IPv4 and IPv6 can be made: TCP and UDP, TCP alone, or none."""

ALLOW = 0x7FFF0000
KILL = 0x80000000
ERRNO = 0x00050000
REFUSE = ERRNO | errno.EPERM
UNKNOWN = ERRNO | errno.ENOSYS

_LOAD, _AND, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_INSTRUCTION = struct.Struct("<HBBI")

_Instruction = tuple[int, int, int, int]
_Body = list[_Instruction]


class Architecture(Struct, frozen=True):
    audit: int
    """How the kernel names the calling convention."""
    column: int
    """Of the tables below."""


ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(0xC000003E, 0),
    "aarch64": Architecture(0xC00000B7, 1),
}

NEWEST = 469
"""The last number that this table was compared with (Linux 6.18). The x32 numbers lie far above it."""

REFUSED: Mapping[str, tuple[int | None, int | None]] = {
    # into other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # mounts, namespaces and other roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # the parts of the kernel in which most holes are found
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "perf_event_open": (298, 241),
    "lookup_dcookie": (212, 18),
    "uselib": (134, None),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "query_module": (178, None),
    "get_kernel_syms": (177, None),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "nfsservctl": (180, 42),
    "iopl": (172, None),
    "ioperm": (173, None),
    "vhangup": (153, 58),
}

HIDDEN_FLAGS: Mapping[str, tuple[int, int]] = {"clone3": (435, 435), "openat2": (437, 437)}
"""Answered as if they did not exist."""

CHECKED: Mapping[str, tuple[int | None, int | None]] = {
    "openat": (257, 56),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "clone": (56, 220),
    "prctl": (157, 167),
    "timer_create": (222, 107),
    "mq_notify": (244, 184),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    "listen": (50, 201),
    "prlimit64": (302, 261),
    "unshare": (272, 97),
    "open": (2, None),
    "creat": (85, None),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "mknod": (133, None),
    "mknodat": (259, 33),
}
"""Refused for some of their arguments only; the busy ones first."""

_NEW_NAMESPACE = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_NEW_TIME = 0x80
"""CLONE_NEWTIME; a bit of the signal number for `clone`."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_CREATES = 0x40 | 0x400000
"""O_CREAT and O_TMPFILE: without them the mode is not an argument, and may be anything."""
_SET_UID = 0o4000
_GO_ON, _END = 18, 9
"""SIGCONT and SIGKILL. While the engine works in a job's folder, the job's programs are stopped; one that could order
the first beforehand, for when a file is opened or a time has come, would go on behind the engine's back. The second is
the only other signal that a stopped program obeys, and its end wakes others: the kernel lets stopped processes go on
when the last parent that their group has in its session ends, and a session when its terminal is closed."""
_F_SETSIG, _F_SETLEASE, _PDEATHSIG = 10, 1024, 1
_SIGNAL_BITS = 0xFF
"""In the flags of `clone`: the signal that a parent gets when its child ends."""
_FAST_OPEN = 0x20000000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _SEQPACKET = 1, 2, 5
_TYPE_BITS = 0xF
_TCP, _UDP, _ROUTE = 6, 17, 0


def seccomp_filter(*, unix: bool, inet: Inet, listen: bool = True, machine: str | None = None) -> bytes:
    """The program for this machine, as the kernel and `bwrap --seccomp` take it.

    `unix`: sockets for UNIX can be made. Pairs that are connected from the beginning can be made in any case.
    `listen`: sockets can wait for others to connect.
    """
    name = machine or platform.machine()
    if name not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"No filter of system calls is known for the processor {name}")
    here = ARCHITECTURES[name]
    program: _Body = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, here.audit),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_GREATER, 0, 1, NEWEST),
        (_RETURN, 0, 0, UNKNOWN),
    ]
    bodies = _bodies(unix=unix, inet=inet, listen=listen)
    for call, numbers in CHECKED.items():
        program += _when(numbers[here.column], bodies.get(call, []))
    for numbers in HIDDEN_FLAGS.values():
        program += _when(numbers[here.column], [_answer(UNKNOWN)])
    for numbers in REFUSED.values():
        program += _when(numbers[here.column], [_answer(REFUSE)])
    program.append(_answer(ALLOW))
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)


def _bodies(*, unix: bool, inet: Inet, listen: bool) -> dict[str, _Body]:
    """What is looked at for each call whose arguments count; no entry: it passes."""
    bodies = {
        "openat": _unless_plain_file(2, 3),
        "open": _unless_plain_file(1, 2),
        "creat": _refuse_bits(1, _SET_UID),
        "chmod": _refuse_bits(1, _SET_UID),
        "fchmod": _refuse_bits(1, _SET_UID),
        "fchmodat": _refuse_bits(2, _SET_UID),
        "fchmodat2": _refuse_bits(2, _SET_UID),
        "mknod": _refuse_bits(1, _SET_UID),
        "mknodat": _refuse_bits(2, _SET_UID),
        "ioctl": [*_refuse_values(1, (_TIOCSTI, _TIOCLINUX)), _answer(ALLOW)],
        "fcntl": _no_orders(),
        # Many programs want to end with their parent, and that needs an end first.
        "prctl": [_argument(0), *_if_equal(_PDEATHSIG, _refused_signals(1, (_GO_ON,))), _answer(ALLOW)],
        # Which signal a timer sends is written in memory; without that it sends another one.
        "timer_create": _only_null(1),
        "mq_notify": _only_null(1),
        "clone": [
            _argument(0),
            (_AND, 0, 0, _SIGNAL_BITS),
            *_if_equal(_GO_ON, [_answer(REFUSE)]),
            *_if_equal(_END, [_answer(REFUSE)]),
            *_refuse_bits(0, _NEW_NAMESPACE),
        ],
        "unshare": _refuse_bits(0, _NEW_NAMESPACE | _NEW_TIME),
        "prlimit64": _own_limits(),
        "socket": _socket(unix=unix, inet=inet),
        "socketpair": _pair(unix=unix),
    }
    if inet != "all":
        # A connection that begins with its data needs no `connect`, which is where Landlock asks for the port.
        bodies["sendto"] = _refuse_bits(3, _FAST_OPEN)
        bodies["sendmsg"] = _refuse_bits(2, _FAST_OPEN)
        bodies["sendmmsg"] = _refuse_bits(3, _FAST_OPEN)
    if not listen:
        bodies["listen"] = [_answer(REFUSE)]
    return bodies


def _socket(*, unix: bool, inet: Inet) -> _Body:
    family: _Body = [_argument(0), *_if_equal(_UNIX, [_answer(ALLOW if unix else REFUSE)])]
    # Addresses and routes of the machine can be read, and not changed without capabilities. The C library's name lookup
    # does without, but Node's list of network interfaces is an exception then, and programs ask for it when they start.
    route = _if_equal(_NETLINK, [_argument(2), *_if_equal(_ROUTE, [_answer(ALLOW)]), _answer(REFUSE)])
    if inet == "none":
        return [*family, *route, _answer(REFUSE)]
    internet: _Body = [
        _argument(1),
        (_AND, 0, 0, _TYPE_BITS),
        *_if_equal(_STREAM, _protocols((0, _TCP))),
        *_if_equal(_DATAGRAM, _protocols((0, _UDP)) if inet == "all" else [_answer(REFUSE)]),
        _answer(REFUSE),
    ]
    return [*family, *route, (_EQUAL, 2, 0, _INET), (_EQUAL, 1, 0, _INET6), _answer(REFUSE), *internet]


def _protocols(allowed: Iterable[int]) -> _Body:
    """Raw, ping, SCTP, and MPTCP, which is TCP that Landlock does not see."""
    return [_argument(2), *(step for one in allowed for step in _if_equal(one, [_answer(ALLOW)])), _answer(REFUSE)]


def _pair(*, unix: bool) -> _Body:
    if unix:
        return [_argument(0), *_if_equal(_UNIX, [_answer(ALLOW)]), _answer(REFUSE)]
    # One of datagrams can be sent to any other address afterwards; a raw one is one of datagrams by another name.
    types = [step for one in (_STREAM, _SEQPACKET) for step in _if_equal(one, [_answer(ALLOW)])]
    inside = [_argument(1), (_AND, 0, 0, _TYPE_BITS), *types, _answer(REFUSE)]
    return [_argument(0), *_if_equal(_UNIX, inside), _answer(REFUSE)]


def _no_orders() -> _Body:
    """No signal that a stopped program obeys; and no lease, for which whoever opens the file has to wait."""
    return [
        _argument(1),
        *_if_equal(_F_SETLEASE, [_answer(REFUSE)]),
        *_if_equal(_F_SETSIG, _refused_signals(2, (_GO_ON, _END))),
        _answer(ALLOW),
    ]


def _refused_signals(argument: int, signals: Iterable[int]) -> _Body:
    return [*_refuse_values(argument, signals), _answer(ALLOW)]


def _only_null(argument: int) -> _Body:
    """A pointer that is none."""
    half: _Body = [_argument(argument, upper=True), *_if_equal(0, [_answer(ALLOW)]), _answer(REFUSE)]
    return [_argument(argument), *_if_equal(0, half), _answer(REFUSE)]


def _own_limits() -> _Body:
    """The limits of other processes can be read but not set: a CPU limit of a second is an end to any of them."""
    return [
        _argument(0),
        *_if_equal(0, [_answer(ALLOW)]),
        _argument(2),
        (_EQUAL, 0, 3, 0),
        _argument(2, upper=True),
        *_if_equal(0, [_answer(ALLOW)]),
        _answer(REFUSE),
    ]


def _unless_plain_file(flags: int, mode: int) -> _Body:
    return [_argument(flags), (_ANY_BIT, 1, 0, _CREATES), _answer(ALLOW), *_refuse_bits(mode, _SET_UID)]


def _refuse_bits(argument: int, bits: int) -> _Body:
    return [_argument(argument), (_ANY_BIT, 0, 1, bits), _answer(REFUSE), _answer(ALLOW)]


def _refuse_values(argument: int, values: Iterable[int]) -> _Body:
    return [_argument(argument), *(step for one in values for step in _if_equal(one, [_answer(REFUSE)]))]


def _argument(index: int, *, upper: bool = False) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index + (4 if upper else 0))


def _answer(value: int) -> _Instruction:
    return (_RETURN, 0, 0, value)


def _if_equal(value: int, body: _Body) -> _Body:
    """The body must end with an answer: what follows it goes on with the same value."""
    return [(_EQUAL, 0, len(body), value), *body]


def _when(number: int | None, body: _Body) -> _Body:
    return [] if number is None or not body else _if_equal(number, body)
