"""The one place that starts git.

Git is run so that nothing around it can change what it does: the environment is built from a list
of allowed names, the repository and its work tree are named outright (a `.git` file that a job
replaced is never read), and settings that would run other people's programs (hooks, fsmonitor,
pager, prompts, gc) are overridden. A git that has to be stopped gets SIGTERM first, because a
killed git leaves its lock files behind.

Everything here is synchronous: a step such as "merge, commit, move two refs" is a few commands in
a row that must not be interrupted half-way, so the engine runs it as a whole in a thread.
"""

import hashlib
import math
import os
import re
import select
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from orchard import own_log
from orchard.errors import RUN_DOCTOR, Next, OrchardError
from orchard.git.pipes import OTHERS, special_notes, waiting_worktrees
from orchard.process.families.identity import identify
from orchard.process.families.marks import unmarked

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

MINIMUM_VERSION = (2, 38)
"""`merge-tree --write-tree` came with 2.38."""

MARK = "ORCHARD_GIT"
"""The variable that tells whose a git is."""
TERMINATE_GRACE = 5.0
LAST_WAIT = 2.0
"""Seconds for a git whose time is up: if it was we who stood still, its answer has been there for long."""
LOOK_AFTER = 1.0
"""Seconds after which a git that is silent may be waiting at a pipe."""
OUTPUT_LIMIT = 256 * 1024 * 1024
"""Bytes that one git may print: no question of ours has a longer answer, and memory is not endless."""
_BLOCK = 256 * 1024
ANSWER_TIMEOUT = 60.0
READ_AT_ONCE = 64 * 1024
"""What a pipe holds. Most answers are one short line, and a buffer that is much larger costs more than reading it."""

# What git may know of the world: who and where the user is, and how to reach a remote.
ALLOWED_ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM",
    "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
    "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GNUPGHOME", "GPG_TTY", "GIT_LFS_SKIP_SMUDGE",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
)  # fmt: skip

FIXED_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ADVICE": "0",
    # Other content in the place of an object: what is checked, shown and written would not be what is committed.
    "GIT_NO_REPLACE_OBJECTS": "1",
    # Progress is written even by commands that were told to be quiet, and its reader may be gone by then.
    "GIT_PROGRESS_DELAY": "1000000",
}

OVERRIDES = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.ignoreStat": "false",
    "core.pager": "cat",
    "core.fsync": "committed",
    "core.filesRefLockTimeout": "5000",
    "core.packedRefsTimeout": "5000",
    "core.untrackedCache": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "safe.bareRepository": "explicit",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
    "color.ui": "false",
    "commit.gpgSign": "false",
    "log.showSignature": "false",
}


class GitError(OrchardError):
    def __init__(self, args: tuple[str, ...], cwd: Path, status: int | None, stderr: str) -> None:
        said = stderr.strip() or "(it said nothing)"
        hint = RUN_DOCTOR
        lock = lock_in_the_way(stderr)
        if lock is not None:
            said = f"{lock} exists."
            hint = f"If no git command is running, remove it: rm '{lock}'"
        ended = "was stopped because it took too long" if status is None else f"ended with status {status}"
        super().__init__(f"'git {' '.join(args)}' in {cwd} {ended}: {said}", hint=hint)
        self.arguments, self.cwd, self.status, self.stderr = args, cwd, status, stderr


def lock_in_the_way(stderr: str) -> str | None:
    found = re.search(r"Unable to create '(.*\.lock)': File exists", stderr)
    return found[1] if found else None


class Blocked(GitError):
    """Git was not started, because it would wait for ever at these places."""

    def __init__(self, folder: Path, names: Iterable[bytes]) -> None:
        self.names = tuple(names)
        shown = ", ".join(os.fsdecode(name).encode("unicode_escape").decode() for name in self.names[:5])
        said = f"git would wait for ever at what is no file: {shown}"
        super().__init__(("status",), folder, None, said)
        self.args = (f"In {folder}, {said}",)
        self.message = f"In {folder}, {said}"
        places = " ".join(shlex.quote(f"{folder}/{os.fsdecode(name)}") for name in self.names[:5])
        self.hint = "A pipe, socket or device lies there. Remove it."
        if places.isprintable():
            self.hint = f"A pipe, socket or device lies there. Remove it: rm {places}"


class TooMuchOutput(OrchardError):
    """Git printed more than the asker can take; it was stopped."""


class GitMissing(OrchardError):
    """There is no usable git program."""


class Output(Struct, frozen=True):
    """What a git command left: paths and contents are bytes, because git's are."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """The answer of a command that prints one line of ASCII (an oid, a ref name)."""
        return self.stdout.decode(errors="surrogateescape").strip()

    @property
    def fields(self) -> list[bytes]:
        """The answer of a command that was asked with `-z`."""
        return self.stdout.split(b"\0")[:-1] if self.stdout else []


class Git(Struct, frozen=True):
    """The git program, pointed at one repository and at most one work tree.

    `git_dir` is the repository's own folder or the one git keeps for a linked worktree;
    `common_dir` is always the former.
    """

    common_dir: Path
    git_dir: Path
    cwd: Path
    work_tree: Path | None = None
    index: Path | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self,
        *args: str | bytes,
        stdin: bytes = b"",
        ok: Container[int] = (0,),
        timeout: float = 60.0,
        limit: int = OUTPUT_LIMIT,
        cut: bool = False,
    ) -> Output:
        """Run `git ARGS`; a status that is not in `ok` raises GitError.

        One that prints more than `limit` bytes is stopped: TooMuchOutput, or with `cut` what it printed so far.
        """
        done = run_git(args, cwd=self.cwd, env=self.env, stdin=stdin, timeout=timeout, limit=limit, cut=cut)
        if done.status not in ok:
            words = tuple(os.fsdecode(arg) for arg in args)
            raise GitError(words, self.cwd, done.status, done.stderr.decode(errors="replace"))
        return done

    @property
    def env(self) -> dict[str, str]:
        env = clean_environment({**OVERRIDES, **self.config})
        env["GIT_DIR"] = str(self.git_dir)
        env["GIT_COMMON_DIR"] = str(self.common_dir)
        env[MARK] = mark_of(self.common_dir)
        if self.work_tree is not None:
            env["GIT_WORK_TREE"] = str(self.work_tree)
        if self.index is not None:
            env["GIT_INDEX_FILE"] = str(self.index)
        return {**env, **self.environment}

    def with_index(self, index: Path) -> "Git":
        return replace(self, index=index)

    def with_config(self, **config: str) -> "Git":
        """The same, with these settings on top; `__` in a name stands for a dot."""
        named = {key.replace("__", "."): value for key, value in config.items()}
        return replace(self, config={**self.config, **named})

    def with_environment(self, **environment: str) -> "Git":
        return replace(self, environment={**self.environment, **environment})


@cache
def mark_of(common_dir: Path) -> str:
    """What a git of ours carries: a repository, and the process that started it. See `leftovers`."""
    me = identify(os.getpid())
    name = hashlib.sha256(os.fsencode(common_dir)).hexdigest()[:16]
    return f"{name}:{os.getpid()}:{me.started if me is not None else 0.0}"


def clean_environment(overrides: Mapping[str, str] = OVERRIDES) -> dict[str, str]:
    """The allowed part of our environment, and the settings that beat those of any config file."""
    env = {name: os.environ[name] for name in ALLOWED_ENVIRONMENT if name in os.environ}
    env.update(FIXED_ENVIRONMENT)
    env["GIT_CONFIG_COUNT"] = str(len(overrides))
    for number, (key, value) in enumerate(overrides.items()):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


@cache
def git_program(path: str) -> str:
    """Where git is on a PATH: looked up once, not by failing to start it in every folder before the right one."""
    for folder in path.split(os.pathsep):
        if not folder.startswith("/"):
            break  # it means something else in every folder: leave it to the system
        place = f"{folder}/git"
        if os.access(place, os.X_OK) and not os.path.isdir(place):  # noqa: PTH112 (hot, and a str)
            return place
    return "git"


def run_git(
    args: tuple[str | bytes, ...],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout: float = 60.0,
    limit: int = OUTPUT_LIMIT,
    cut: bool = False,
) -> Output:
    """Run git to its end in a process group of its own, and stop that group if it takes too long or says too much."""
    began = time.monotonic()
    try:
        with unmarked():
            process = subprocess.Popen(
                [git_program(env.get("PATH", os.defpath)), *args],
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
    except FileNotFoundError as error:
        if not cwd.is_dir():
            raise OrchardError(f"The folder {cwd} is gone.", hint=RUN_DOCTOR) from error
        raise GitMissing("There is no 'git' on the PATH.", hint="Install git 2.38 or newer.") from error
    talk = _Talk(process, stdin, limit)
    with process:
        try:
            talk.finish(timeout, partial(_refuse_waiting, env, args))
        except subprocess.TimeoutExpired:
            _stop(process)
            words = tuple(os.fsdecode(arg) for arg in args)
            raise GitError(words, cwd, None, f"no end after {timeout:g} s") from None
        except BaseException:
            _stop(process)
            raise
        if talk.too_much:
            _stop(process)
    if own_log.wants(own_log.DEBUG, "git"):
        asked = " ".join(os.fsdecode(arg) for arg in args[:6])
        own_log.debug("git", f"{asked}: {process.returncode} after {(time.monotonic() - began) * 1000:.1f} ms in {cwd}")
    if not talk.too_much:
        return Output(process.returncode, bytes(talk.stdout), bytes(talk.stderr))
    if cut:
        return Output(0, bytes(talk.stdout[:limit]), bytes(talk.stderr))
    shown = " ".join(os.fsdecode(arg) for arg in args[:3])
    raise TooMuchOutput(f"'git {shown}' in {cwd} printed more than {limit // (1024 * 1024)} MB and was stopped.")


class _Talk:
    """What is written to git and what it prints, read as it comes and never more than the limit of it."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, limit: int) -> None:
        self._process, self._limit = process, limit
        self._left = memoryview(stdin)
        self.stdout, self.stderr = bytearray(), bytearray()
        self.too_much = False

    def finish(self, timeout: float, look: Callable[[], None]) -> None:
        """Talk until git has ended or has said too much; TimeoutExpired if it does not end, or what `look` raises."""
        deadline, patience = time.monotonic() + timeout, LAST_WAIT
        look_at = time.monotonic() + LOOK_AFTER
        process = self._process
        with selectors.DefaultSelector() as selector:
            for stream, event in ((process.stdout, READ), (process.stderr, READ), (process.stdin, WRITE)):
                if stream is not None:
                    selector.register(stream, event)
            while selector.get_map() and not self.too_much:
                ready = selector.select(max(0.0, min(deadline, look_at) - time.monotonic()))
                if not ready and time.monotonic() >= look_at:
                    look_at = math.inf
                    look()
                if not ready and time.monotonic() >= deadline:
                    if not patience:
                        raise subprocess.TimeoutExpired(process.args, timeout)
                    deadline, patience = time.monotonic() + patience, 0.0
                for key, _ in ready:
                    if self._is_done_with(key):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
        if not self.too_much:
            process.wait(max(LAST_WAIT, deadline - time.monotonic()))

    def _is_done_with(self, key: selectors.SelectorKey) -> bool:
        if key.events == WRITE:
            try:
                self._left = self._left[os.write(key.fd, self._left[: select.PIPE_BUF]) :]
            except BrokenPipeError:
                return True  # it does not want to know the rest
            return not self._left
        heard = self.stdout if key.fileobj is self._process.stdout else self.stderr
        read = os.read(key.fd, _BLOCK)
        heard += read
        self.too_much = len(heard) > self._limit
        return not read


def _refuse_waiting(env: Mapping[str, str], args: tuple[str | bytes, ...]) -> None:
    """Raise `Blocked` if a git that takes its time may wait at a pipe or device."""
    for folder in dict.fromkeys(Path(env[name]) for name in ("GIT_DIR", "GIT_COMMON_DIR") if name in env):
        if found := special_notes(folder, OTHERS):
            raise Blocked(folder, found)
    if args[:1] == ("worktree",) and (names := waiting_worktrees(Path(env["GIT_COMMON_DIR"]))):
        raise Blocked(Path(env["GIT_COMMON_DIR"]), map(os.fsencode, names))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End git and its children: SIGTERM lets git remove its lock files, SIGKILL is for what ignores it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(TERMINATE_GRACE)
        except subprocess.TimeoutExpired:
            continue
        break


# ---------------------------------------------------------------------- a git that stays open


def start_git(
    args: tuple[str | bytes, ...], *, cwd: Path, env: Mapping[str, str], errors: int, unbuffered: bool = False
) -> subprocess.Popen[bytes]:
    """Start a git that answers questions on its standard input until that is closed.

    `errors` is the descriptor its complaints go to. `unbuffered` puts `stdbuf` in front, for commands of
    older gits that keep their answers to themselves.
    """
    git = git_program(env.get("PATH", os.defpath))
    words = ["stdbuf", "-o0", git, *args] if unbuffered else [git, *args]
    with unmarked():
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            process_group=0,
        )


class GitGone(OrchardError):
    """A git process that was kept open ended, or gave no answer in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=("Try again; if it happens again, run '", Next("get_doctor"), "'."))


class LiveGit:
    """A git command that answers on a pipe until it is closed; not thread-safe, one question at a time."""

    def __init__(self, git: Git, *args: str, unbuffered: bool = False) -> None:
        self._name = args[0]
        self._errors = _unnamed_file()
        try:
            self._process = start_git(args, cwd=git.cwd, env=git.env, errors=self._errors, unbuffered=unbuffered)
        except BaseException:
            os.close(self._errors)
            raise
        self._received = bytearray()

    def say(self, question: bytes) -> None:
        """Send a question, which must be short enough for a pipe to take it whole."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question)
        except (BrokenPipeError, ValueError) as error:
            raise self._gone() from error

    def read_until(self, end: bytes, timeout: float = ANSWER_TIMEOUT) -> bytes:
        deadline, searched = time.monotonic() + timeout, 0
        while (found := self._received.find(end, searched)) < 0:
            searched = max(0, len(self._received) - len(end) + 1)
            self._receive(deadline)
        return self._taken(found + len(end))[:found]

    def read_exactly(self, size: int, timeout: float = ANSWER_TIMEOUT) -> bytes:
        deadline = time.monotonic() + timeout
        while len(self._received) < size:
            self._receive(deadline)
        return self._taken(size)

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _receive(self, deadline: float) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        # Not `select`: it fails on descriptors above 1023, which a busy daemon has.
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise GitGone(f"'git {self._name}' gave no answer in time.")
        data = os.read(descriptor, READ_AT_ONCE)
        if not data:
            raise self._gone()
        self._received += data

    def _gone(self) -> GitGone:
        said = os.pread(self._errors, 4096, max(0, os.fstat(self._errors).st_size - 4096))
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        return GitGone(f"'git {self._name}' ended unexpectedly{f': {last}' if last else '.'}")

    def close(self) -> None:
        """End the process: it leaves when its input is closed, and is stopped if it does not."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        os.close(self._errors)
        for stop in (None, process.terminate, process.kill):
            if stop is not None:
                stop()
            with suppress(subprocess.TimeoutExpired):
                process.wait(TERMINATE_GRACE)
                return


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("git-errors", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
