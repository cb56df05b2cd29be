"""Runs attacks, each in a process of its own, and prints what they printed. It is started behind the wall.

It knows nothing of the project: the system's own Python runs it, with a file of orders.
"""

# Paths are as short as an attacker writes them.
# ruff: noqa: PTH123, PTH208

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

PATIENCE = 4.0
LIBC = ctypes.CDLL(None, use_errno=True)


def call(number: int | tuple[int, int], *arguments: Any) -> int:
    """A system call by its number on x86_64 and aarch64: a pair, or one number for both."""
    number = number[os.uname().machine == "aarch64"] if isinstance(number, tuple) else number
    wide = (ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    result: int = LIBC.syscall(ctypes.c_long(number), *wide)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def allowed(number: int | tuple[int, int], *arguments: Any) -> bool:
    """Whether a call was refused for want of rights, or for its wrong arguments."""
    try:
        call(number, *arguments)
    except OSError as error:
        if error.errno in (1, 13, 38):
            raise
    return True


class Names(dict[str, Any]):
    """What the code of an attack can use."""

    def __init__(self, world: dict[str, Any], name: str) -> None:
        super().__init__(
            W=world, NAME=name, MARK=f"PWNED:{name}", os=os, sys=sys, socket=socket, subprocess=subprocess, json=json,
            ctypes=ctypes, time=time, signal=signal, call=call, allowed=allowed, LIBC=LIBC,
            leak=print, won=lambda: print("WON"), read=self.read, write=self.write, pid_of=self.pid_of, ask=self.ask,
            sh=self.sh, mount=self.mount,
        )  # fmt: skip

    def read(self, path: str) -> None:
        with open(path, "rb") as file:
            print(file.read(65536).decode(errors="replace"))

    def write(self, path: str, like: str | None = None) -> None:
        """Leave the mark, at the end of what is there or of a copy, so that the marks of others stay."""
        held = b""
        if like:
            with open(like, "rb") as file:
                held = file.read()
        with open(path, "ab") as file:
            file.write(held + self["MARK"].encode() + b"\n")

    def pid_of(self, word: str) -> int:
        """A process of the host's, found by what it was started with."""
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    with open(f"/proc/{name}/cmdline", "rb") as file:
                        words = file.read().split(b"\0")
                except OSError:
                    continue
                if word.encode() in words:
                    return int(name)
        return int(self["W"]["pids"][word])  # or by its number, which may mean another process here

    def ask(self, address: Any, family: int = socket.AF_UNIX, kind: int = socket.SOCK_STREAM) -> None:
        with socket.socket(family, kind) as asking:
            asking.settimeout(1.5)
            asking.connect(address)
            if kind == socket.SOCK_DGRAM:
                asking.send(self["MARK"].encode())
            print(asking.recv(4096).decode())

    def sh(self, line: str) -> int:
        done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=3, check=False)
        print(done.stdout)
        print(done.stderr, file=sys.stderr)
        return done.returncode

    def mount(self, source: str, target: str, kind: str | None, flags: int) -> None:
        if LIBC.mount(source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run(world: dict[str, Any], name: str, code: str) -> str:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.dup2(write, 1)
        os.dup2(write, 2)
        try:
            os.chdir(world["wt"])
            exec(compile(code, name, "exec"), Names(world, name))
        except BaseException as error:
            print(type(error).__name__, error)
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    said, end = b"", time.monotonic() + PATIENCE
    while time.monotonic() < end and select.select([read], [], [], max(0, end - time.monotonic()))[0]:
        part = os.read(read, 65536)
        if not part:
            break
        said += part
    os.close(read)
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return said.decode(errors="replace")


def main() -> None:
    with open(sys.argv[1]) as file:
        orders = json.load(file)
    for name, code in orders["attacks"]:
        print(json.dumps([name, run(orders["world"], name, code)]), flush=True)


if __name__ == "__main__":
    main()
