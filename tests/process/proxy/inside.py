"""A small engine with two jobs in namespaces of their own, as a program: tests start it as the users they are about.

It prints what each attempt of a job came to, as JSON. With `die`, it prints the pids of its keepers and is killed.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from orchard.process.proxy.allowed import Allowed
from orchard.process.proxy.doors import Door, Proxy
from orchard.process.proxy.nets import DOOR_PORT, Nets, NoNets, Slot

BWRAP = (
    "bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--disable-userns",
    "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--ro-bind", "/", "/",
    "--proc", "/proc", "--dev", "/dev", "--",
)  # fmt: skip
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable

TRY = """
import socket, sys
kind, *where = sys.argv[1:]
try:
    if kind == "tcp":
        socket.create_connection((where[0], int(where[1])), timeout=2).close()
    elif kind == "udp":
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (where[0], int(where[1])))
    elif kind == "abstract":
        socket.socket(socket.AF_UNIX).connect("\\0" + where[0])
    elif kind == "raw":
        socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    elif kind == "packet":
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    elif kind == "listen":
        heard = socket.create_server(("127.0.0.1", int(where[0])))
        print("listening", flush=True)
        heard.accept()
    print("reached")
except OSError as error:
    print(type(error).__name__, error.errno)
"""


async def run(slot: Slot, env: dict[str, str], *argv: str) -> str:
    """What a program of the job says in the end."""
    command = (*slot.enter, *BWRAP, *argv)
    program = await asyncio.create_subprocess_exec(
        *command,
        env={"PATH": os.environ["PATH"], **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(30):
        said, _ = await program.communicate()
    return said.decode().strip()


async def attempt(slot: Slot, *what: str) -> str:
    return await run(slot, {}, PYTHON, "-c", TRY, *what)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def names(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def own_address() -> str:
    """An address of this machine that is not loopback; loopback where there is no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


async def main() -> dict[str, object]:
    nets, proxy = Nets(), Proxy(names)
    serving = await asyncio.start_server(answer, "0.0.0.0", 0)
    port = serving.sockets[0].getsockname()[1]
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0orchard-test-{os.getpid()}")
    abstract.listen()
    refused: list[str] = []
    try:
        first, second = await nets.take(), await nets.take()
        allowed = Allowed.of("listed", (f"good.example:{port}",), (f"127.0.0.1:{port}",))
        door = Door(proxy, first.door_listener(), allowed, refused=lambda one: refused.append(one.host))
        other = Door(proxy, second.door_listener(), Allowed("nothing"))
        door.open()
        other.open()
        env = door.environment()
        curl = ("curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}/%{http_connect}")
        found: dict[str, object] = {
            "user": await run(first, {}, "id", "-u"),
            "host-loopback": await attempt(first, "tcp", "127.0.0.1", str(port)),
            "host-address": await attempt(first, "tcp", own_address(), str(port)),
            "outside": await attempt(first, "tcp", "192.0.2.1", "80"),
            "datagram": await attempt(first, "udp", "192.0.2.1", "53"),
            "abstract": await attempt(first, "abstract", f"orchard-test-{os.getpid()}"),
            "raw": await attempt(first, "raw"),
            "packet": await attempt(first, "packet"),
            "plain": await run(first, env, *curl, f"http://good.example:{port}/"),
            "tunnel": await run(first, env, *curl, "-p", f"http://good.example:{port}/"),
            "not-listed": await run(first, env, *curl, "http://evil.example/"),
            "nothing": await run(second, env, *curl, f"http://good.example:{port}/"),
        }
        listening = await asyncio.create_subprocess_exec(
            *first.enter, *BWRAP, PYTHON, "-c", TRY, "listen", "9999", stdout=asyncio.subprocess.PIPE
        )
        assert listening.stdout is not None
        await listening.stdout.readline()
        found["other-job"] = await attempt(second, "tcp", "127.0.0.1", "9999")
        found["own-loopback"] = await attempt(first, "tcp", "127.0.0.1", "9999")
        await listening.wait()
        await door.close()
        found["after-the-end"] = await stale(first, nets, proxy, port)
        found["refused"] = refused
        await other.close()
        found["left"] = await pids_left(nets, (first.pid, second.pid))
        return found
    except NoNets as error:
        return {"problem": str(error)}
    finally:
        abstract.close()
        serving.close()
        proxy.close()
        await nets.close()


async def stale(slot: Slot, nets: Nets, proxy: Proxy, port: int) -> object:
    """A request that waits on the listener when a job has ended must not be answered under the name of the next one."""
    say = f"""
import socket
waiting = socket.create_connection(("127.0.0.1", {DOOR_PORT}))
waiting.sendall(b"GET http://good.example:{port}/ HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
print("sent", flush=True)
waiting.settimeout(10)
try:
    print(len(waiting.recv(1000)))
except ConnectionError:
    print(0)
"""
    program = await asyncio.create_subprocess_exec(
        *slot.enter, *BWRAP, PYTHON, "-c", say, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    await program.stdout.readline()
    nets.give_back(slot)
    again = await nets.take()
    allowed = Allowed.of("listed", (f"good.example:{port}",), (f"127.0.0.1:{port}",))
    door = Door(proxy, again.door_listener(), allowed)
    door.open()
    said = (await program.communicate())[0].decode().strip()
    fresh = await run(again, door.environment(), "curl", "-s", "-m", "10", f"http://good.example:{port}/")
    await door.close()
    return [again.pid == slot.pid, said, fresh]


def alive(pid: int) -> bool:
    """Not a zombie either: whoever runs the tests may have adopted it, and waits for nobody."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def pids_left(nets: Nets, pids: Sequence[int]) -> list[int]:
    await nets.close()
    left: list[int] = []
    for _ in range(100):
        left = [pid for pid in pids if alive(pid)]
        if not left:
            break
        await asyncio.sleep(0.05)
    return left


async def die() -> None:
    nets = Nets()
    slots = [await nets.take(), await nets.take()]
    keeper = Path(f"/proc/{slots[0].pid}/stat").read_text().split()[3]
    print(json.dumps([int(keeper), *(slot.pid for slot in slots)]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[1:] == ["die"]:
        asyncio.run(die())
    else:
        print(json.dumps(asyncio.run(main())))
