"""The filter of system calls: every number against a list of what is meant, and real calls in a child."""

import itertools
import platform
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from orchard.process.sandbox.seccomp import (
    ARCHITECTURES,
    CHECKED,
    HIDDEN_FLAGS,
    NEWEST,
    REFUSED,
    Inet,
    seccomp_filter,
)
from tests.process.sandbox.bpf import AARCH64, ALLOW, ARM, ENOSYS, EPERM, I386, KILL, X86_64, endings, evaluate

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")

# What is refused whatever its arguments are, by the numbers of each machine, not by the table under test.
ALWAYS = {
    "x86_64": {
        101, 310, 311, 440, 438, 312, 165, 166, 430, 431, 432, 433, 429, 428, 467, 442, 155, 161, 308, 304, 300, 248,
        249, 250, 321, 323, 425, 426, 427, 298, 212, 134, 246, 320, 175, 313, 176, 174, 178, 177, 167, 168, 169, 170,
        171, 164, 227, 305, 159, 103, 179, 443, 163, 180, 172, 173, 153,
    },
    "aarch64": {
        117, 270, 271, 440, 438, 272, 40, 39, 430, 431, 432, 433, 429, 428, 467, 442, 41, 51, 268, 265, 262, 217, 218,
        219, 280, 282, 425, 426, 427, 241, 18, 104, 294, 105, 273, 106, 224, 225, 142, 161, 162, 170, 112, 266, 171,
        116, 60, 443, 89, 42, 58,
    },
}  # fmt: skip
CODES = {"x86_64": X86_64, "aarch64": AARCH64}
OPTIONS = list(itertools.product((True, False), get_args(Inet), (True, False)))

NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
FLAGS = (0, 9, 17, 18, 0x80, 0x1200012, 0x3D0F00, *NAMESPACES, 0x10000000 | 17, 1 << 40, 0x10000000 | 1 << 40)
MODES = (0, 0o644, 0o755, 0o2755, 0o1777, 0o4755, 0o6755, 0o4000, 0o100644, 0o104755, 0o4755 | 1 << 33)
OPENS = (0, 1, 0x41, 0x40, 0x80000, 0x410002, 0x241, 0x41 | 1 << 35)
FAMILIES = (0, 1, 2, 3, 10, 15, 16, 17, 29, 31, 38, 40, 43, 44, 2 | 1 << 32, 1 | 1 << 34)
TYPES = (1, 2, 3, 4, 5, 6, 10, 1 | 0x80000, 2 | 0x800, 3 | 0x80800, 2 | 1 << 36)
PROTOCOLS = (0, 1, 6, 17, 58, 132, 136, 255, 256, 262, 6 | 1 << 32)
COMMANDS = (0, 0x5401, 0x5412, 0x541C, 0x5413, 0x5412 | 1 << 32, 0x541C | 7 << 40)


def low(value: int) -> int:
    return value & 0xFFFFFFFF


def meant(call: str, a: tuple[int, ...], unix: bool, inet: str, listen: bool) -> bool:
    """Whether a call with these arguments shall pass."""
    match call:
        case "clone":
            return not any(low(a[0]) & flag for flag in NAMESPACES) and a[0] & 0xFF not in (9, 18)
        case "fcntl":
            return low(a[1]) != 1024 and (low(a[1]), low(a[2])) not in ((10, 9), (10, 18))
        case "prctl":
            return (low(a[0]), low(a[1])) != (1, 18)
        case "timer_create" | "mq_notify":
            return a[1] == 0
        case "unshare":
            return not any(low(a[0]) & flag for flag in (*NAMESPACES, 0x80))
        case "ioctl":
            return low(a[1]) not in (0x5412, 0x541C)
        case "chmod" | "fchmod" | "creat" | "mknod":
            return not a[1] & 0o4000
        case "fchmodat" | "fchmodat2" | "mknodat":
            return not a[2] & 0o4000
        case "open":
            return not (a[1] & 0x400040 and a[2] & 0o4000)
        case "openat":
            return not (a[2] & 0x400040 and a[3] & 0o4000)
        case "prlimit64":
            return low(a[0]) == 0 or a[2] == 0
        case "sendto" | "sendmmsg":
            return inet == "all" or not low(a[3]) & 0x20000000
        case "sendmsg":
            return inet == "all" or not low(a[2]) & 0x20000000
        case "listen":
            return listen
        case "socketpair":
            return low(a[0]) == 1 and (unix or a[1] & 15 in (1, 5))
        case "socket":
            return socket_meant(low(a[0]), a[1] & 15, low(a[2]), unix, inet)
    raise AssertionError(call)


def socket_meant(family: int, kind: int, protocol: int, unix: bool, inet: str) -> bool:
    if family == 1:
        return unix
    if family == 16:
        return protocol == 0
    if family not in (2, 10) or inet == "none":
        return False
    return (kind == 1 and protocol in (0, 6)) or (inet == "all" and kind == 2 and protocol in (0, 17))


def samples(call: str) -> list[tuple[int, ...]]:
    match call:
        case "clone" | "unshare":
            return [(flags,) for flags in FLAGS]
        case "fcntl":
            commands = (0, 2, 10, 1024, 1026, 1031, 10 | 1 << 32)
            return [(3, command, value) for command in commands for value in (0, 9, 10, 18, 29, 18 | 1 << 40)]
        case "prctl":
            return [(option, value) for option in (1, 2, 15, 38, 1 | 1 << 33) for value in (0, 9, 18, 18 | 1 << 40)]
        case "timer_create" | "mq_notify":
            return [(1, pointer, 2) for pointer in (0, 1, 0x7FFF00001000, 1 << 32)]
        case "ioctl":
            return [(3, command) for command in COMMANDS]
        case "chmod" | "fchmod" | "creat" | "mknod":
            return [(5, mode) for mode in MODES]
        case "fchmodat" | "fchmodat2" | "mknodat":
            return [(0o4000, 0o4000, mode) for mode in MODES]
        case "open":
            return [(9, flags, mode) for flags in OPENS for mode in MODES]
        case "openat":
            return [(-100, 9, flags, mode) for flags in OPENS for mode in MODES]
        case "prlimit64":
            return [(pid, 7, new, 1) for pid in (0, 1, 4242, 1 << 32) for new in (0, 1, 1 << 32, 0x7FFF00001000)]
        case "sendto" | "sendmmsg":
            return [(3, 1, 2, flags) for flags in (0, 0x4000, 0x20000000, 0x20004000 | 1 << 40)]
        case "sendmsg":
            return [(3, 1, flags) for flags in (0, 0x4000, 0x20000000)]
        case "listen":
            return [(3, 5)]
    return list(itertools.product(FAMILIES, TYPES, PROTOCOLS))


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_number_is_answered_as_the_list_says(machine: str) -> None:
    program = seccomp_filter(unix=True, inet="all", machine=machine)
    column = ARCHITECTURES[machine].column
    checked = {numbers[column] for numbers in CHECKED.values()}

    for number in [*range(700), 2**30, 2**30 + 101, 2**31 - 1, 2**31, 2**32 - 1, -1, 0x40000000 | 41]:
        answer = evaluate(program, CODES[machine], number, 2, 1, 0)
        if low(number) > NEWEST or number in (435, 437):
            assert answer == ENOSYS, number
        elif number in ALWAYS[machine]:
            assert answer == EPERM, number
        elif number not in checked:
            assert answer == ALLOW, number


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(("unix", "inet", "listen"), OPTIONS)
def test_calls_are_refused_for_the_arguments_that_matter(machine: str, unix: bool, inet: Inet, listen: bool) -> None:
    program = seccomp_filter(unix=unix, inet=inet, listen=listen, machine=machine)
    column = ARCHITECTURES[machine].column

    for call, numbers in CHECKED.items():
        number = numbers[column]
        if number is None:
            continue
        for arguments in samples(call):
            expected = ALLOW if meant(call, arguments, unix, inet, listen) else EPERM
            assert evaluate(program, CODES[machine], number, *arguments) == expected, (call, arguments)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_call_in_another_convention_ends_the_program(machine: str) -> None:
    program = seccomp_filter(unix=True, inet="all", machine=machine)

    for foreign in {X86_64, AARCH64, I386, ARM, 0, 0xFFFFFFFF} - {CODES[machine]}:
        assert {evaluate(program, foreign, number) for number in range(500)} == {KILL}


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_program_is_one_that_the_kernel_takes(machine: str) -> None:
    for unix, inet, listen in OPTIONS:
        program = seccomp_filter(unix=unix, inet=inet, listen=listen, machine=machine)
        length = len(program) // 8

        assert length <= 4096
        assert max(endings(program)) < length
        assert struct.unpack_from("<H", program, len(program) - 8) == (0x06,)


def test_a_processor_without_a_table_is_refused_in_words() -> None:
    with pytest.raises(OSError, match="processor riscv64"):
        seccomp_filter(unix=True, inet="all", machine="riscv64")


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("no kernel headers are installed")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)[ \t]+(\d+)\n", HEADERS[machine].read_text()))
    column = ARCHITECTURES[machine].column
    tables = {**REFUSED, **HIDDEN_FLAGS, **CHECKED}

    wrong = {name: row for name, row in tables.items() if name in found and str(row[column]) != found[name]}
    absent = {name for name, row in tables.items() if name not in found and row[column] is not None}

    assert not wrong
    assert absent <= {"open_tree_attr", "fchmodat2"}


REAL = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
program = bytes.fromhex(sys.argv[1])
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, program)), 0, 0) == 0
for words in sys.argv[2:]:
    ctypes.set_errno(0)
    number, *arguments = (int(word) for word in words.split())
    done = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(one) for one in arguments))
    print(errno.errorcode.get(ctypes.get_errno(), "ok") if done < 0 else "ok")
"""


def real(calls: list[tuple[int, ...]], *, unix: bool = False, inet: Inet = "tcp", listen: bool = True) -> list[str]:
    program = seccomp_filter(unix=unix, inet=inet, listen=listen)
    words = [" ".join(map(str, call)) for call in calls]
    child = subprocess.run(
        [sys.executable, "-c", REAL, program.hex(), *words], capture_output=True, text=True, timeout=60, check=True
    )
    return child.stdout.split()


@linux
def test_the_kernel_refuses_each_of_the_listed_calls() -> None:
    column = ARCHITECTURES[platform.machine()].column
    numbers = [row[column] for row in REFUSED.values()]

    assert set(real([(number, -1, -1, -1, -1, -1, -1) for number in numbers if number is not None])) == {"EPERM"}


@linux
def test_the_kernel_looks_at_the_arguments_of_the_others() -> None:
    column = ARCHITECTURES[platform.machine()].column
    number = {name: row[column] or 0 for name, row in {**CHECKED, **HIDDEN_FLAGS}.items()}
    cases: list[tuple[tuple[int, ...], str]] = [
        ((number["clone3"], 0, 0), "ENOSYS"),
        ((number["openat2"], -100, 0, 0, 0), "ENOSYS"),
        ((470, 0), "ENOSYS"),
        ((0x40000000 | 39,), "ENOSYS"),
        ((number["unshare"], 0x10000000), "EPERM"),
        ((number["unshare"], 0x400), "ok"),
        ((number["clone"], 0x10000000 | 17, 0, 0, 0, 0), "EPERM"),
        ((number["clone"], 9, 0, 0, 0, 0), "EPERM"),
        ((number["ioctl"], 0, 0x5412, 0), "EPERM"),
        ((number["ioctl"], 0, 0x5412 | 1 << 32, 0), "EPERM"),
        ((number["ioctl"], 0, 0x5413, 0), "ENOTTY"),
        ((number["socket"], 1, 1, 0), "EPERM"),
        ((number["socket"], 2, 1, 0), "ok"),
        ((number["socket"], 10, 1, 6), "ok"),
        ((number["socket"], 2, 2, 0), "EPERM"),
        ((number["socket"], 2, 1, 262), "EPERM"),
        ((number["socket"], 17, 3, 0), "EPERM"),
        ((number["socket"], 16, 3, 0), "ok"),
        ((number["socket"], 16, 3, 9), "EPERM"),
        ((number["prlimit64"], 1, 7, 4096, 0), "EPERM"),
        ((number["fchmod"], 0, 0o4755), "EPERM"),
        ((number["fcntl"], 0, 10, 18), "EPERM"),
        ((number["fcntl"], 0, 10, 9), "EPERM"),
        ((number["fcntl"], 0, 10, 29), "ok"),
        ((number["fcntl"], 0, 1024, 0), "EPERM"),
        ((number["prctl"], 1, 18), "EPERM"),
        ((number["prctl"], 1, 9), "ok"),
        ((number["timer_create"], 1, 4096, 0), "EPERM"),
        ((number["timer_create"], 1, 0, 0), "EFAULT"),
    ]

    assert real([call for call, _ in cases]) == [answer for _, answer in cases]


@linux
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instruction is one of x86")
def test_a_32_bit_call_on_a_64_bit_kernel_ends_the_program() -> None:
    # mov eax, 20 (getpid); int 0x80; ret
    code = """
import mmap
place = mmap.mmap(-1, 4096, prot=7)
place.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))
address = ctypes.addressof(ctypes.c_char.from_buffer(place))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)() == os.getpid())
"""
    program = seccomp_filter(unix=True, inet="all").hex()
    free = subprocess.run(
        [sys.executable, "-c", "import ctypes, os" + code], capture_output=True, text=True, check=False, timeout=60
    )
    if free.stdout != "True\n":
        pytest.skip("this kernel has no 32-bit calls")

    held = subprocess.run([sys.executable, "-c", REAL + code, program], capture_output=True, check=False, timeout=60)

    assert held.returncode == -31  # SIGSYS


LIFE = """
import asyncio, multiprocessing.connection, os, socket, subprocess, tempfile, threading
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
assert subprocess.run(["/bin/sh", "-c", "echo a | cat"], capture_output=True).stdout == b"a\\n"
assert asyncio.run(asyncio.sleep(0, 7)) == 7
one, two = socket.socketpair(); one.send(b"x"); assert two.recv(1) == b"x"
with tempfile.NamedTemporaryFile() as file: os.chmod(file.name, 0o755)
try: socket.getaddrinfo("localhost", 80)
except socket.gaierror: pass
socket.if_nameindex()
print("lived")
"""


@linux
def test_an_ordinary_program_lives_behind_the_filter() -> None:
    program = seccomp_filter(unix=False, inet="tcp").hex()

    child = subprocess.run(
        [sys.executable, "-c", REAL + LIFE, program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (child.stdout, child.stderr) == ("lived\n", "")
