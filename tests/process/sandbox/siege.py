"""Attacks on the Landlock level: a world with victims in it, and the wall as it is or with one part taken out.

Run as a program by the user who is to be attacked, since a wall is built by who starts the program: `python -m
tests.process.sandbox.siege FOLDER SIEGES`. It prints for each siege what became of each attack.
"""

import json
import os
import pty
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from orchard.process.sandbox import ground, landlock, seccomp, spawn
from orchard.process.sandbox.policy import Network, Policy

CANARY = "canary-3f1c-of-the-user"
HERE = Path(__file__).parent
EFFECTS = ("signals", "stream", "datagram", "abstract", "tcp", "udp")
"""What victims heard."""

VICTIM = """
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: open(sys.argv[1], "a").write("x"))
print("ready", flush=True)
while True: time.sleep(60)
"""


class World:
    """Victims, and places for canaries, in a folder of the user's."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.home, self.state, self.work, self.public = (folder / name for name in ("home", "state", "work", "public"))
        self.heard: dict[str, int] = dict.fromkeys(EFFECTS, 0)
        self._stack = stack
        (folder / "run").mkdir()
        self.allowed = self._serve(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), "allowed").getsockname()[1]
        self.tcp = self._serve(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), "tcp").getsockname()[1]
        self.udp = self._serve(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0), "udp").getsockname()[1]
        self.stream, self.datagram = str(folder / "run/stream"), str(folder / "run/datagram")
        self._serve(socket.AF_UNIX, socket.SOCK_STREAM, self.stream, "stream")
        self._serve(socket.AF_UNIX, socket.SOCK_DGRAM, self.datagram, "datagram")
        self.abstract = f"orchard-siege-{os.getpid()}"
        self._serve(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.abstract, "abstract")
        self.victim = self._start(None)
        self.stranger = self._start(54321) if os.geteuid() == 0 else 0
        (self.master, self.terminal), (_, other) = pty.openpty(), pty.openpty()
        self.other_terminal = os.ttyname(other)

    def _serve(self, family: int, kind: int, address: Any, name: str) -> socket.socket:
        server = self._stack.enter_context(socket.socket(family, kind))
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen(50)
        threading.Thread(target=self._hear, args=(server, kind, name), daemon=True).start()
        return server

    def _hear(self, server: socket.socket, kind: int, name: str) -> None:
        while True:
            try:
                server.accept()[0].close() if kind == socket.SOCK_STREAM else server.recv(100)
            except OSError:
                return
            self.heard[name] = self.heard.get(name, 0) + 1

    def _start(self, user: int | None) -> int:
        argv = [sys.executable, "-c", VICTIM, str(self.folder / "signals")]
        if user is not None:
            argv = ["/bin/sleep", "600"]
        env = {**os.environ, "SECRET": CANARY}
        process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, start_new_session=True, user=user)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        if user is None and process.stdout is not None:
            process.stdout.readline()
        return process.pid

    def furnish(self) -> None:
        """Put every canary where it belongs; attacks of the siege before may have taken some."""
        for name in (".ssh", ".aws", "remove-me"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        for name in (".ssh/id_ed25519", ".netrc", ".aws/credentials", ".bashrc", "empty-me", "delete-me", "rename-me"):
            (self.home / name).write_text(CANARY)
        (self.home / "take-me").write_text(CANARY)
        shutil.copy("/bin/echo", self.home / "tool")
        for name in ("new", "link", "pipe", "node", "socket", "renamed"):
            (self.home / name).unlink(missing_ok=True)
        if (self.home / "folder").is_dir():
            (self.home / "folder").rmdir()
        for folder in (self.state, self.work, self.public):
            folder.mkdir(exist_ok=True)
        for path in (self.state / "token", self.public / "readme", self.public / "delete-me"):
            path.write_text(CANARY)
        (self.folder / "signals").unlink(missing_ok=True)
        self.heard.update(dict.fromkeys(EFFECTS, 0))

    def policy(self, network: Network, *, sockets: bool) -> Policy:
        return Policy(
            home=self.work,
            temporary=self.work,
            writable=(self.work,),
            hidden=(self.folder, Path("/run")),
            exposed=(self.public,),
            sockets=(Path(self.stream),) if sockets else (),
            network=network,
            proxy_port=self.allowed if network == "proxy" else None,
        )

    def told(self) -> dict[str, Any]:
        column = seccomp.ARCHITECTURES[os.uname().machine].column
        tables = {**seccomp.REFUSED, **seccomp.HIDDEN_FLAGS, **seccomp.CHECKED}
        disks = [str(path) for path in Path("/dev").iterdir() if stat.S_ISBLK(path.lstat().st_mode)]
        places = {name: str(getattr(self, name)) for name in ("home", "state", "work", "public", "stream", "datagram")}
        return {
            **places,
            **{name: getattr(self, name) for name in ("tcp", "udp", "abstract", "victim", "stranger")},
            "canary": CANARY,
            "terminal": self.other_terminal,
            "disks": disks,
            "numbers": {name: row[column] for name, row in tables.items()},
        }


def besiege(world: World, siege: dict[str, Any]) -> dict[str, str]:
    """Let the hostile program try; what it says of each attack, and what the victims say."""
    world.furnish()
    described = world.public / "world.json"
    described.write_text(json.dumps(world.told()))
    policy = world.policy(siege.get("network", "proxy"), sockets=siege.get("sockets", False))
    argv = [os.path.realpath(sys.executable), "-I", "-S", str(world.public / "attacker.py"), str(described)]
    with without(siege.get("without", "")):
        try:
            process = spawn.popen(
                policy,
                siege.get("level", "landlock"),
                [*argv, *siege.get("attacks", ())],
                cwd=world.work,
                stdin=world.terminal,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return {"started": f"{type(error).__name__}: {error}"}
        said, words = process.communicate(timeout=100)
    if process.returncode != 0:
        return {"ended": f"{process.returncode}: {words.decode(errors='replace')}"}
    results: dict[str, str] = json.loads(said)
    if (world.folder / "signals").exists():
        world.heard["signals"] += 1
    os.kill(world.victim, 0)
    return results | {f"heard:{name}": "through" for name in EFFECTS if world.heard[name]}


# ---------------------------------------------------------------------------------------- mutants


@contextmanager
def without(part: str) -> Iterator[None]:
    """The wall with a part taken out, or two: `capabilities+call:reboot`."""
    with ExitStack() as stack:
        for one in part.split("+"):
            kind, _, name = one.partition(":")
            for module, attribute, value in _changes(kind, name):
                stack.callback(setattr, module, attribute, getattr(module, attribute))
                setattr(module, attribute, value)
        spawn._filter.cache_clear()
        stack.callback(spawn._filter.cache_clear)
        yield


def _changes(kind: str, name: str) -> list[tuple[Any, str, Any]]:
    nothing: list[tuple[Any, str, Any]] = []
    return {
        "": nothing,
        "files": [(landlock, "known_rights", lambda abi: landlock.MAKE_CHAR)],
        "policy": [(landlock, "grants", lambda policy, ground: [landlock.Grant("/", landlock.ALL)])],
        "right": [(landlock, "RIGHTS_SINCE", [(1, ((1 << 16) - 1) & ~int(name if name.isdigit() else 0))])],
        "ports": [(landlock, "NETWORK_SINCE", 99)],
        "signals": [(landlock, "SIGNALS", 0)],
        "abstract": [(landlock, "ABSTRACT_SOCKETS", 0)],
        "capabilities": [(landlock, "drop_capabilities", lambda: None)],
        "privileges": [(landlock, "gain_no_privileges", lambda: None)],
        "secrets": [(module, "secrets_of_the_system", lambda user, groups: ()) for module in (ground, landlock)],
        "devices": [(landlock, "DEVICES", {"/dev": landlock.WRITE | landlock.IOCTL_DEV})],
        "calls": [(spawn, "filter_calls", lambda program: None)],
        "call": [(seccomp, table, _less(getattr(seccomp, table), name)) for table in ("REFUSED", "CHECKED")]
        + [(seccomp, "HIDDEN_FLAGS", _less(seccomp.HIDDEN_FLAGS, name))],
        "newest": [(seccomp, "NEWEST", 0xFFFFFFFE)],
        "architecture": [(seccomp, "KILL", seccomp.ALLOW)],
        "protocols": [(seccomp, "_protocols", lambda allowed: [(6, 0, 0, seccomp.ALLOW)])],
        "udp": [(spawn, "_INET", {"on": "all", "proxy": "all", "off": "none"})],
    }[kind]


def _less(table: Any, name: str) -> Any:
    return {key: value for key, value in table.items() if key != name}


def main(folder: Path, sieges: list[dict[str, Any]]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with ExitStack() as stack:
        world = World(folder, stack)
        print(json.dumps([besiege(world, siege) for siege in sieges]))
        stack.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
