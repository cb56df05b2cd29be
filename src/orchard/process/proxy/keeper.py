"""The keeper of network namespaces: a program of its own, which `nets.py` starts as a file, without other modules.

For each `+` on its socket it forks a child that moves into a user and a network namespace of its own, brings its
loopback up and listens there; the listener goes back over the socket. A child does nothing more: its namespaces live as
long as it does. The number of the child is the answer, or else what went wrong. `-PID` ends one. When the other end of
the socket is closed, by whatever death of the engine, all end.

The first job behind a wall waits for this program's start, so it imports no more than it has to: no JSON, no `pathlib`.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys

PORT = 3128
BACKLOG = 128
_NEWUSER = 0x10000000
_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_PR_SET_PDEATHSIG = 1


def main() -> None:
    engine = socket.socket(fileno=int(sys.argv[1]))
    alive, held = os.pipe()
    children: set[int] = set()
    libc = ctypes.CDLL(None, use_errno=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the engine's end is ours
    while asked := engine.recv(64):
        if asked == b"+":
            try:
                begun = _begin(libc, alive, held, engine)
            except OSError as error:  # no more processes or descriptors: the others must not end for it
                begun = f"child: {error.strerror}"
            if isinstance(begun, str):
                engine.sendall(begun.encode())
            else:
                child, listener = begun
                children.add(child)
                socket.send_fds(engine, [b"%d" % child], [listener])
                os.close(listener)
        elif (pid := int(asked[1:])) in children:
            children.discard(pid)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _begin(libc: ctypes.CDLL, alive: int, held: int, engine: socket.socket) -> tuple[int, int] | str:
    """A child in its namespaces, and its listener; or why there is none."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    maps = {name: _read(f"/proc/self/{name}") for name in ("uid_map", "gid_map")}
    pid = os.fork()
    if not pid:
        try:
            os.close(held)
            ours.close()
            engine.close()
            _live(libc, alive, its, maps)
        finally:
            os._exit(1)
    its.close()
    with ours:
        said = ours.recv(256)
        if said == b"unshared":
            problem = _map(pid, maps)
            ours.sendall(problem.encode() or b"mapped")
            said, fds, _, _ = socket.recv_fds(ours, 256, 1)
            if fds:
                return pid, fds[0]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return said.decode() or "the child ended"


def _live(libc: ctypes.CDLL, alive: int, keeper: socket.socket, maps: dict[str, str]) -> None:
    """The life of a child."""
    if libc.unshare(_NEWUSER | _NEWNET) != 0:
        keeper.sendall(f"unshare: {os.strerror(ctypes.get_errno())}".encode())
        return
    keeper.sendall(b"unshared")
    said = keeper.recv(256)
    if said != b"mapped":
        keeper.sendall(said)
        return
    # After the change of namespaces: the kernel forgets it there.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            row = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
            flags = struct.unpack("16sH14x", row)[1] | _IFF_UP
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags))
        listener = socket.create_server(("127.0.0.1", PORT), backlog=BACKLOG)
    except OSError as error:
        keeper.sendall(f"loopback: {error.strerror}".encode())
        return
    socket.send_fds(keeper, [b"listening"], [listener.fileno()])
    listener.close()
    keeper.close()
    os.read(alive, 1)  # ends with the keeper, however that ends


def _map(pid: int, maps: dict[str, str]) -> str:
    """Make users in the namespace be those outside: all that we have as root, else only ourselves."""
    rows = {name: "".join(_same(line) for line in text.splitlines()) for name, text in maps.items()}
    if os.geteuid() != 0:
        rows = {"uid_map": f"{os.geteuid()} {os.geteuid()} 1", "gid_map": f"{os.getegid()} {os.getegid()} 1"}
    try:
        if os.geteuid() != 0:
            _write(f"/proc/{pid}/setgroups", "deny")
        for name, text in rows.items():
            _write(f"/proc/{pid}/{name}", text)
    except OSError as error:
        return f"map of users: {error.strerror}"
    return ""


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123 — see above
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123 — see above
        file.write(text)


def _same(line: str) -> str:
    inside, _, count = line.split()
    return f"{inside} {inside} {count}\n"


if __name__ == "__main__":
    main()
