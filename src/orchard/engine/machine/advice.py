"""What a person can do about a program that a wall may have stopped, where no path tells it: read in its last words.

As in `refusals`, a kernel tells nobody but the program. What is told here holds for the wall that stands, whatever the
failure came from: a program that finds no server on 127.0.0.1 behind it would never find one of this machine.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Literal

from msgspec import Struct

from orchard.patterns import later
from orchard.process.sandbox.policy import Policy

PREFIX = "The wall around the job may be why: "
OF_GIT = (
    "A job does not change branches, tags or settings of the repository: what it commits, or leaves in its worktree, "
    "is its result."
)
STASH = (
    "The wall around the job keeps git from its stash, which is a ref of the repository. To put changes aside in the "
    'job: git diff HEAD > "$TMPDIR/aside.patch" && git checkout HEAD . and later git apply "$TMPDIR/aside.patch".'
)
LOOPBACK = (
    f"{PREFIX}its loopback is its own, and no server of this machine is there; one that the job starts itself is."
)
NO_PORTS = (
    f"{PREFIX}behind Landlock a program can listen on no port, and connect to none but its proxy's (HTTP_PROXY, "
    "HTTPS_PROXY). Where bubblewrap is installed (package 'bubblewrap'), each job has a loopback of its own."
)
NO_PROXY = (
    f"{PREFIX}programs behind it reach the network by the proxy that HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name, and "
    "what does not use that has no network: direct connections, SSH, UDP, and lookups of names among them."
)
NOT_OPENED = (
    "No line opens a whole home or temporary folder: name a folder in it, or write to the worktree or to $TMPDIR."
)
NO_SOCKET = (
    "Behind Landlock no line opens one socket of this machine; where bubblewrap is installed (package 'bubblewrap'), "
    "sandbox.expose does."
)
USE_TMPDIR = f"{PREFIX}behind Landlock /tmp is closed. The job's own temporary folder is $TMPDIR: write there."
OTHER_GIT = (
    f"{PREFIX}behind Landlock all git in a job writes objects to the job's own folder. In another repository than the "
    "job's, first: unset GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES"
)

_LOCAL_PORT = later(r"""(?:127\.0\.0\.1|localhost|\[?::1\]?)(?::|,? port |["'], )(\d{1,5})""")
_LOCAL = later(r"127\.0\.0\.1|localhost|\[?::1\]?[: ]")
_REFUSED = later("connection refused|ECONNREFUSED|couldn't connect|could not connect|failed to connect", re.IGNORECASE)
_NO_NETWORK = later(
    "network is unreachable|ENETUNREACH|temporary failure in name resolution|name or service not known"
    "|could not resolve (host|proxy)|couldn't resolve host|\\bENOTFOUND|EAI_AGAIN|no route to host"
    "|failed to lookup address|no such host|unable to resolve host|couldn't connect to server|unable to connect to",
    re.IGNORECASE,
)
_NO_SOCKET = later(
    r"(bind|listen|connect)\w*\b.{0,80}(permission denied|EACCES|operation not permitted)"
    r"|(permission denied|EACCES|operation not permitted).{0,80}\b(bind|listen|connect)",
    re.IGNORECASE | re.DOTALL,
)
_NO_TMP = later(r"(?<![\w.])/(?:var/)?tmp/.{0,400}(permission denied|EACCES)", re.IGNORECASE)
_NO_TMP_RAISED = later(r"(permission denied|EACCES).{0,40}(?<![\w.])/(?:var/)?tmp/", re.IGNORECASE)
_NO_PATH = later(r"permission denied\s*$", re.IGNORECASE)
_DENIED, _LISTENS = (
    later("permission denied|EACCES", re.IGNORECASE),
    later(r"\b(bind|listen|create_server)\b"),
)
_SOCKETS = later(r"\b(bind|listen|connect|create_server)\b")
_BROKEN_GIT = later(
    "not a git repository|does not appear to be a git repository|bad object|invalid sha1 pointer|appears to be broken"
    "|not our ref|unable to read (tree|sha1 file)|missing (blob|tree|commit) |did not send all necessary objects"
    "|could not parse object|unpack failed"
)
_STASH = later("cannot save the current (status|index|worktree)|refs/stash", re.IGNORECASE)
_HOST = later(
    r"(?:host(?:name)?:? |ENOTFOUND |EAI_AGAIN |connect to |lookup address information: )'?([\w.-]+\.[\w-]+)'?"
    r"(?:(?: port |:)(\d{1,5}))?",
    re.IGNORECASE,
)
_PAIR = later(r"""["']([\w.-]+\.[\w-]+|[0-9a-f:]*:[0-9a-f:]+)["'], (\d{1,5})\b""")
_NO_INDEX = later(r"could not find a version that satisfies .{0,400}\(from versions: none\)", re.IGNORECASE)
_URL = later(r"https?://([\w.-]+(?::\d{1,5})?)|[\w.-]+@([\w.-]+\.[\w-]+):")
_PROGRAM = later(r"(?:[\w./+-]*/)?([\w.+-]{1,40})(?:\[\d+\])?: ")
_NOBODY = frozenset({"error", "fatal", "warning", "hint", "remote", "note", "info", "caused"})
_RAISED = later(r"(?:[\w.]*\.)?\w*(?:Error|Exception|Warning|Interrupt)")
_BUILT_IN = later(r"cd|echo|export|set|unset|test|true|exit|umask|ulimit|source|eval|\.|:|\[|\w+=.*")
_COMMANDS, _QUOTED = later(r"[;&|\n]+"), later(r"'[^']*'|\"[^\"]*\"|<<.*", re.DOTALL)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_KILLED, _TOO_LARGE = (137, -9), (153, -25)

Limit = Literal["memory", "processes", "files", "disk"]
_LIMITS: tuple[tuple[Limit, re.Pattern[str]], ...] = (
    ("files", later("too many open files|EMFILE", re.IGNORECASE)),
    ("disk", later("file too large|EFBIG|file size limit exceeded", re.IGNORECASE)),
    ("processes", later(r"(fork|clone|thread|spawn).{0,80}(temporarily unavailable|EAGAIN)", re.IGNORECASE)),
    (
        "memory",
        later("cannot allocate memory|ENOMEM|MemoryError|out of memory|memory allocation of|bad_alloc", re.I),
    ),
)


class Failure(Struct, frozen=True):
    """A program that failed behind a wall."""

    said: str
    """Its last words."""
    told: Sequence[str]
    """The words of its command, and what variables of the plan say."""
    code: int | None = None
    """How it exited; a signal is below 0."""

    @property
    def program(self) -> str | None:
        """Who it was, as far as its command tells: none of several, but for Python's, where Python complains."""
        first = PurePath(self.told[0]).name if self.told else ""
        if first not in _SHELLS or len(self.told) < 3:
            return first or None
        ran = dict.fromkeys(filter(None, map(_run_by, _COMMANDS.split(_QUOTED.sub("''", self.told[2])))))
        if "Traceback (most recent call last)" in self.said and any("python" in name for name in ran):
            return next(name for name in ran if "python" in name)
        return next(iter(ran)) if len(ran) == 1 else first if not ran else None


def _run_by(command: str) -> str | None:
    """The program of one simple command of a shell's."""
    words = command.split()
    while words and _BUILT_IN.fullmatch(words[0]):
        if "=" not in words[0]:
            return None
        del words[0]
    return PurePath(words[0]).name if words and re.fullmatch(r"[\w./+-]{1,100}", words[0]) else None


def program_in(line: str) -> str | None:
    """The program that complains in a line: `cat: /x: Permission denied`."""
    found = _PROGRAM.match(line)
    if found is None or found[1].lower() in _NOBODY or _RAISED.fullmatch(found[1]):
        return None
    return found[1]


def limit_reached(failure: Failure, policy: Policy) -> Limit | None:
    """Which of the limits that are set a program seems to have come to."""
    limits = policy.resources
    by_code: dict[Limit, bool] = {"memory": failure.code in _KILLED, "disk": failure.code in _TOO_LARGE}
    for name, words in _LIMITS:
        if getattr(limits, name) is not None and (words.search(failure.said) or by_code.get(name, False)):
            return name
    return None


def missed_network(failure: Failure) -> str | None:
    """The address that a program failed to reach past the proxy, or `the network` where it does not say."""
    if not _NO_NETWORK.search(failure.said) or (_REFUSED.search(failure.said) and _LOCAL.search(failure.said)):
        return None
    return next(_addresses(failure), "the network")


def _addresses(failure: Failure) -> Iterator[str]:
    for host, port in _HOST.findall(failure.said):
        yield f"{host}:{port}" if port else host
    for word in (failure.said, *failure.told):
        yield from (one or other for one, other in _URL.findall(word))
        yield from (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in _PAIR.findall(word))


def missed_index(failure: Failure) -> str | None:
    """What pip looks for packages in, where it found none; without a network that is why."""
    return next(_addresses(failure), "the package index") if _NO_INDEX.search(failure.said) else None


def local_port(failure: Failure) -> int | None:
    """The port of this machine that a program looked for; none that it wanted to listen on."""
    if _DENIED.search(failure.said) and any(_LISTENS.search(text) for text in (failure.said, *failure.told)):
        return None
    return next((int(port) for text in (failure.said, *failure.told) for port in _LOCAL_PORT.findall(text)), None)


def advised(failure: Failure, level: str, policy: Policy) -> str | None:
    """What to do where no setting opens anything."""
    said, local = failure.said, any(_LOCAL.search(text) for text in (failure.said, *failure.told))
    if _STASH.search(said) and any("stash" in word for word in failure.told):
        return STASH
    if level == "landlock":
        if _BROKEN_GIT.search(said):
            return OTHER_GIT
        if _NO_TMP.search(said) or _NO_TMP_RAISED.search(said):
            return USE_TMPDIR
        without = _NO_PATH.search(said) and any(_SOCKETS.search(word) for word in failure.told)
        if _NO_SOCKET.search(said) or without or (_REFUSED.search(said) and local):
            return NO_PORTS
    return LOOPBACK if _REFUSED.search(said) and local else None
