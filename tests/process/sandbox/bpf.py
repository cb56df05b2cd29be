"""A small machine for classic BPF programs, as the kernel runs them on a system call."""

import struct

ALLOW, KILL, EPERM, ENOSYS = "allow", "kill", "EPERM", "ENOSYS"
ANSWERS = {0x7FFF0000: ALLOW, 0x80000000: KILL, 0x00050001: EPERM, 0x00050026: ENOSYS}
X86_64, AARCH64, I386, ARM = 0xC000003E, 0xC00000B7, 0x40000003, 0x40000028


def evaluate(program: bytes, architecture: int, number: int, *arguments: int) -> str:
    """What the program answers to one call."""
    words = [one & 0xFFFFFFFFFFFFFFFF for one in (*arguments, *[0] * 6)][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, architecture, 0x7F0000001000, *words)
    steps = list(struct.iter_unpack("<HBBI", program))
    at, value = 0, 0
    while True:
        code, yes, no, k = steps[at]
        at += 1
        match code:
            case 0x20:
                assert k % 4 == 0
                (value,) = struct.unpack_from("<I", data, k)
            case 0x54:
                value &= k
            case 0x15:
                at += yes if value == k else no
            case 0x25:
                at += yes if value > k else no
            case 0x45:
                at += yes if value & k else no
            case 0x06:
                return ANSWERS[k]
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


def endings(program: bytes) -> set[int]:
    """Every place that a jump or a step can reach, to see that none lies outside."""
    steps = list(struct.iter_unpack("<HBBI", program))
    reached: set[int] = set()
    for at, (code, yes, no, _) in enumerate(steps):
        if code in (0x15, 0x25, 0x45):
            reached |= {at + 1 + yes, at + 1 + no}
        elif code != 0x06:
            reached.add(at + 1)
    return reached
