"""The few system calls that Python has no name for. Each holds for the calling thread and for what it starts.

Nothing here can be taken back: a thread that gave something up ends without it.

The calls are made without letting other threads run Python meanwhile (`PyDLL`): there are hundreds of them at a start,
each takes microseconds, and a busy thread would give the turn back milliseconds later each time.
"""

import ctypes
import errno
import os
import struct
from functools import cache
from typing import Any

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER, _DROP_FROM_BOUND, _AMBIENT, _CLEAR_ALL = 38, 22, 2, 24, 47, 4
_CAPABILITIES_VERSION = 0x20080522


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


@cache
def _libc() -> Any:
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    libc.open.argtypes = (ctypes.c_char_p, ctypes.c_int)
    libc.close.argtypes = (ctypes.c_int,)
    return libc


@cache
def _landlock(*kinds: type[Any]) -> Any:
    """The call with arguments of these types; said once, since there are hundreds of calls at each start."""
    call = ctypes.PyDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, *kinds)
    return call


def create_ruleset(attributes: bytes | None, flags: int = 0) -> int:
    """A descriptor for rules of Landlock; without attributes and with flag 1 the version of it."""
    call = _landlock(ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint)
    return _checked(call(444, attributes, len(attributes or b""), flags))


def allow_place(rules: int, path: str, rights: int, *, folder: bool) -> None:
    """Allow something with a file, or with all below a folder; what is not there, or is a link, gets nothing."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_DIRECTORY if folder else 0)
    place = _libc().open(os.fsencode(path), flags)
    if place >= 0:
        try:
            allow_file(rules, place, rights)
        finally:
            _libc().close(place)


def allow_file(rules: int, file: int, rights: int) -> None:
    _add_rule(rules, 1, struct.pack("=Qi", rights, file))


def allow_port(rules: int, port: int, rights: int) -> None:
    _add_rule(rules, 2, struct.pack("=QQ", rights, port))


def _add_rule(rules: int, kind: int, attributes: bytes) -> None:
    _checked(_landlock(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)(445, rules, kind, attributes, 0))


def keep_rules(rules: int) -> None:
    """What the rules do not allow is refused from now on."""
    _checked(_landlock(ctypes.c_int, ctypes.c_uint)(446, rules, 0))


def gain_no_privileges() -> None:
    """Programs that would run as another user or with capabilities run as what we are."""
    _control(_NO_NEW_PRIVILEGES, 1)


def filter_calls(program: bytes) -> None:
    """Let the kernel ask this program before each system call."""
    described = _Program(len(program) // 8, program)
    _checked(_libc().prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(described), 0, 0))


def drop_capabilities() -> None:
    """Root is an account like others afterwards: what it does not own is closed to it."""
    try:
        for capability in range(64):
            _control(_DROP_FROM_BOUND, capability)
    except OSError as error:
        # There is no such capability any more, or there is nothing that could be dropped.
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise
    try:
        _control(_AMBIENT, _CLEAR_ALL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITIES_VERSION, 0))
    _checked(_libc().capset(header, ctypes.create_string_buffer(24)))


def _control(option: int, *arguments: int) -> None:
    _checked(_libc().prctl(option, *(*arguments, 0, 0, 0, 0)[:4]))


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
