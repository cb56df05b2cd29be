"""A small world to attack: a user with a home, a repository, an engine, other jobs, and one job behind a wall."""

import ctypes
import os
import selectors
import shutil
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from orchard.process.sandbox.ground import make_placeholders
from orchard.process.sandbox.policy import Policy
from tests.process.sandbox.corpus.files import HOME_SECRETS
from tests.process.sandbox.corpus.sockets import DOORS

LIBC = ctypes.CDLL(None, use_errno=True)
PYTHON = "/usr/bin/python3"

SLEEPERS = ("seen", "root", "cwd", "environ", "traced", "term", "number", "group", "pidfd", "queue", "slow", "limit")
TALKERS: Mapping[str, str] = {
    "memory": "import ctypes as c, os; b = c.create_string_buffer(os.read(0, 99)); print(c.addressof(b), flush=True)",
    "open": "import os, sys; print(os.open(os.read(0, 999).decode(), os.O_RDONLY), flush=True)",
    "cmdline": "import os; os.read(0, 99); print(0, flush=True)",
}


class World(Struct, frozen=True):
    top: Path
    secret: str
    policy: Policy
    facts: dict[str, Any]
    """What an attacker may know: where everything is, but not the secret."""
    victims: Mapping[str, "subprocess.Popen[bytes]"]

    @property
    def env(self) -> dict[str, str]:
        """What a job is started with: its objects go to a folder of its own."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "GIT_OBJECT_DIRECTORY": self.facts["objects"],
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{self.facts['git']}/objects",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
            "HOME": self.facts["jobhome"],
        }  # fmt: skip


@contextmanager
def world(user: int | None) -> Iterator[World]:
    """Everything belongs to the user; None is who runs the tests."""
    with ExitStack() as stack:
        top = Path(tempfile.mkdtemp(prefix="orchard-world-", dir="/var/tmp")).resolve()
        stack.callback(shutil.rmtree, top, ignore_errors=True)
        top.chmod(0o755)
        secret = f"SECRET-{uuid.uuid4().hex}"
        facts: dict[str, Any] = {name: str(path) for name, path in _places(top).items()} | {
            "top": str(top),
            "orphan": uuid.uuid4().hex,
        }
        _home(top, secret)
        facts |= _repository(top, secret)
        facts |= {"shm": str(_shared_file(stack, secret)), "handle": _handle(top / "home/.netrc"), "user": user or 0}
        facts |= _segments(stack, secret)
        _own(top, user)
        _privileged(top)
        facts |= _listeners(stack, top, secret)
        victims = _victims(stack, top, secret, user)
        facts |= {name: int(_told(victims[f"victim-{victim}"])) for name, victim in
                  (("address", "memory"), ("descriptor", "open"), ("named", "cmdline"))}  # fmt: skip
        facts["pids"] = {name: victim.pid for name, victim in victims.items()}
        facts["interfaces"] = [name for _, name in socket.if_nameindex()]
        yield World(top, secret, _policy(top), facts, victims)


def lay_placeholders(attacked: World, user: int | None) -> None:
    for path in make_placeholders(attacked.policy):
        if user is not None:
            os.chown(path, user, user)


def _places(top: Path) -> dict[str, Path]:
    names = {
        "home": "home", "repo": "repo", "git": "repo/.git", "state": "repo/.git/orchard", "tmp": "tmp", "run": "run",
        "admin": "repo/.git/worktrees/one", "wt": "trees/one", "other": "trees/two", "jobhome": "job/home",
        "jobtmp": "job/tmp", "objects": "job/objects", "tool": "home/.cargo/bin", "suid": "suid-id", "door": "job/door",
    }  # fmt: skip
    return {name: top / path for name, path in names.items()}


def _policy(top: Path) -> Policy:
    """As a job has it."""
    at = _places(top)
    return Policy(
        home=at["jobhome"],
        temporary=at["jobtmp"],
        writable=(at["wt"], at["jobhome"], at["jobtmp"], at["objects"], at["admin"]),
        protected=(
            *(at["wt"] / name for name in (".git", ".claude", ".mcp.json", ".github/workflows")),
            *(at["admin"] / name for name in ("commondir", "gitdir", "config.worktree")),
        ),
        hidden=(at["home"], at["repo"], at["state"], at["tmp"], at["run"], top / "trees", Path("/root"), Path("/tmp")),
        exposed=(at["git"], at["tool"]),
        sockets=(at["door"],),
        network="off",
    )


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def _home(top: Path, secret: str) -> None:
    for name in HOME_SECRETS:
        _put(top / "home" / name, secret)
    for name in (".local/bin/x", ".bashrc", "Documents/one", "Documents/two", ".cargo/bin/tool", ".cargo/bin/linked",
                 ".cargo/bin/mine-5"):  # fmt: skip
        _put(top / "home" / name, "mine")
    for name in ("mine-3", "mine-4", "mine-6", "mine-7"):
        _put(top / name, "mine")
    _put(top / "visible", secret)
    _put(top / "tmp/orchard-agent-two/orchard-pass.json", secret)
    _put(top / "run/orchard/http/token", secret)
    for name in ("home", "tmp", "objects"):
        (top / "job" / name).mkdir(parents=True)


def _repository(top: Path, secret: str) -> dict[str, str]:
    repo, git = top / "repo", top / "repo/.git"
    _put(repo / "README", "read me")
    _put(repo / ".github/workflows/ci.yml", "on: push")
    env = {**_COMMITTER, "PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    said = subprocess.run(
        ("/bin/sh", "-c", _HISTORY, "sh", str(repo)), env=env, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    _put(repo / ".env", secret)
    _put(repo / "mine-1", "mine")
    _put(repo / "mine-2", "mine")
    for name in ("daemon.json", "logs/two.log", "journal", "mine"):
        _put(git / "orchard" / name, secret)
    _put(top / "trees/two/secret.txt", secret)
    _put(top / "trees/two/mine-8", "mine")
    _put(git / "worktrees/one/config.worktree", "")
    loose = [str(git / "objects" / name[:2] / name[2:]) for name in (said[1], said[2], said[4])]
    return {"pack": str(repo / said[0]), "garbage": loose[0], "loose": loose[1], "loose2": loose[2]}


_HISTORY = """set -e; cd "$1"; git init -q -b main; git add .; git commit -qm 1
git repack -qad; git commit -qm 2 --allow-empty
for n in one two three four; do git worktree add -q --detach ../trees/$n; done
for n in 1 2 3 5; do git update-ref refs/heads/victim-$n HEAD; done; git tag victim-4
ls .git/objects/pack/*.pack; echo garbage | git hash-object -w --stdin
git rev-parse HEAD HEAD~1; git commit-tree -m 3 HEAD^{tree}"""
_COMMITTER = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}


def _own(top: Path, user: int | None) -> None:
    if user is not None:
        for folder, folders, files in os.walk(top):
            for name in (".", *folders, *files):
                os.chown(Path(folder, name), user, user, follow_symlinks=False)


def _privileged(top: Path) -> None:
    """What only root can lay out; without it a few attacks have nothing to try."""
    if os.geteuid() == 0:
        shutil.copy("/usr/bin/id", top / "suid-id")
        os.chown(top / "suid-id", 0, 0)
        (top / "suid-id").chmod(0o4755)
        os.mknod(top / "trees/one/node", 0o20666, os.makedev(1, 3))
        (top / "trees/one/node").chmod(0o666)


def _handle(path: Path) -> str:
    buffer = ctypes.create_string_buffer((120).to_bytes(4, "little"), 128)
    mount = ctypes.c_int()
    if LIBC.name_to_handle_at(-100, os.fsencode(path), buffer, ctypes.byref(mount), 0) != 0:
        return ""
    return buffer.raw[: 8 + int.from_bytes(buffer.raw[:4], "little")].hex()


def _shared_file(stack: ExitStack, secret: str) -> Path:
    path = Path("/dev/shm", f"orchard-world-{uuid.uuid4().hex}")
    path.write_text(secret)
    path.chmod(0o644)
    stack.callback(path.unlink, missing_ok=True)
    return path


def _segments(stack: ExitStack, secret: str) -> dict[str, int]:
    """Memory, a queue and a semaphore that every process of the host can open."""
    key = uuid.uuid4().int & 0x7FFFFFFF
    create = 0o1000 | 0o666
    LIBC.shmat.restype = ctypes.c_void_p
    segment = LIBC.shmget(key, 4096, create)
    address = LIBC.shmat(segment, None, 0)
    ctypes.memmove(address, secret.encode() + b"\0", len(secret) + 1)
    LIBC.shmdt(ctypes.c_void_p(address))
    queue, semaphore = LIBC.msgget(key, create), LIBC.semget(key, 1, create)
    stack.callback(LIBC.shmctl, segment, 0, None)
    stack.callback(LIBC.msgctl, queue, 0, None)
    stack.callback(LIBC.semctl, semaphore, 0, 0)
    return {"shm_key": key, "queue_key": key, "semaphore_key": key}


def _listeners(stack: ExitStack, top: Path, secret: str) -> dict[str, Any]:
    """Doors that tell the secret to all who come."""
    selector = stack.enter_context(selectors.DefaultSelector())
    opened: list[socket.socket] = []

    def listen(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> Any:
        door = stack.enter_context(socket.socket(family, kind))
        door.bind(address)
        if kind == socket.SOCK_STREAM:
            door.listen(64)
        door.setblocking(False)
        selector.register(door, selectors.EVENT_READ)
        opened.append(door)
        return door.getsockname()

    for path in (*(_places(top)[place] / name for _, place, name in DOORS), top / "job/door"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o755)
        listen(socket.AF_UNIX, _short(stack, path))
        path.chmod(0o666)
    abstract = f"orchard-{uuid.uuid4().hex}"
    listen(socket.AF_UNIX, f"\0{abstract}")
    port = listen(socket.AF_INET, ("127.0.0.1", 0))[1]
    udp = listen(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)[1]
    facts = {"abstract": abstract, "port": port, "udp": udp, "port_hex": f":{port:04X} ", "port6": 1}
    with suppress(OSError):
        facts["port6"] = listen(socket.AF_INET6, ("::1", 0))[1]
    ended = threading.Event()
    answering = threading.Thread(target=_answer, args=(selector, secret.encode(), ended))
    answering.start()
    stack.callback(answering.join)
    stack.callback(ended.set)
    return facts


def _short(stack: ExitStack, path: Path) -> str:
    """The name of a socket may have 107 letters; by a descriptor of its folder it is short."""
    folder = os.open(path.parent, os.O_RDONLY)
    stack.callback(os.close, folder)
    return f"/proc/self/fd/{folder}/{path.name}"


def _answer(selector: selectors.BaseSelector, secret: bytes, ended: threading.Event) -> None:
    while not ended.is_set():
        for key, _ in selector.select(0.05):
            door = key.fileobj
            assert isinstance(door, socket.socket)
            with suppress(OSError):
                if door.type == socket.SOCK_DGRAM:
                    door.sendto(secret, door.recvfrom(4096)[1])
                else:
                    with door.accept()[0] as caller:
                        caller.sendall(secret)


def _victims(stack: ExitStack, top: Path, secret: str, user: int | None) -> dict[str, "subprocess.Popen[bytes]"]:
    def start(argv: tuple[str, ...], executable: str, folder: str = "/") -> "subprocess.Popen[bytes]":
        victim = subprocess.Popen(
            argv, executable=executable, cwd=top / folder, env={"TOKEN": secret}, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            user=user, group=user, extra_groups=None if user is None else [],
        )  # fmt: skip
        stack.callback(_end, victim)
        return victim

    victims = {
        name: start((name, "600"), "/bin/sleep", "home" if name == "victim-cwd" else ".")
        for name in (f"victim-{victim}" for victim in SLEEPERS)
    }
    for talker, code in TALKERS.items():
        name = f"victim-{talker}"
        argv = (PYTHON, "-ISc", f"{code}; import time; time.sleep(600)", name, secret if talker == "cmdline" else "x")
        victims[name] = start(argv, PYTHON)
    for name, word in (("memory", secret), ("open", str(top / "repo/.git/orchard/daemon.json")), ("cmdline", "x")):
        stdin = victims[f"victim-{name}"].stdin
        assert stdin is not None
        stdin.write(word.encode())
        stdin.close()
    return victims


def _told(victim: "subprocess.Popen[bytes]") -> bytes:
    assert victim.stdout is not None
    return victim.stdout.readline()


def _end(victim: "subprocess.Popen[bytes]") -> None:
    victim.kill()
    victim.wait()
    for stream in (victim.stdin, victim.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
