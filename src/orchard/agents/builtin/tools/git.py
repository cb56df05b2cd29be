"""Git for the model: in the repository that the folder was in when the toolbox was opened, whatever came since.

A model may have written anything into the repository's settings, and these tools run outside of its sandbox. So
where the repository is and which filters may run is asked once, before the model's first turn; no hook, external
diff or other program of the repository runs; output is read up to a limit.
"""

import asyncio
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from orchard.agents.builtin.tool import (
    Answer,
    Json,
    Tool,
    ToolContext,
    ToolError,
    flag,
    in_thread,
    plain_answer,
    plain_text,
    schema,
    text,
    whole,
)
from orchard.errors import OrchardError
from orchard.git.command import TERMINATE_GRACE, Git, start_git
from orchard.git.filters import block_filters
from orchard.git.objects import quarantine
from orchard.git.repository import LOCK_REASON, Repository, find_repository
from orchard.process.families.stillness import Hold, NotStill
from orchard.process.families.table import TOKEN_VARIABLE

MOST_BYTES = 512 * 1024
"""Of an answer that is shown; lists of files may be longer."""
SECONDS = 60.0
LONGEST_MESSAGE = 64 * 1024

_REVISION = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_./@^~{}+-]{0,250}$|^@[A-Za-z0-9_./@^~{}+-]{0,250}$")
_PLAIN_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "--no-color-moved")


Execute = Callable[[ToolContext, Json], Awaitable[Answer]]


class Told(Struct, frozen=True):
    status: int
    stdout: bytes
    stderr: str
    cut: bool = False


class Checkout(Struct, frozen=True):
    repo: Repository | None
    why_not: str = ""

    def git(self, context: ToolContext) -> Git:
        repo = self.repo
        if repo is None or repo.top is None:
            raise ToolError(self.why_not or f"{context.folder} is not in a checkout of a git repository.")
        _bring_in(repo, context)
        git = Git(
            repo.common_dir, repo.git_dir, cwd=context.folder, work_tree=repo.top, config=dict(repo.filters_at_home)
        )
        git = block_filters(git, repo.filters_at_home)
        name, email = repo.identity()
        return git.with_config(
            diff__ignoreSubmodules="dirty", status__submoduleSummary="false", commit__template=""
        ).with_environment(
            GIT_AUTHOR_NAME=name,
            GIT_AUTHOR_EMAIL=email,
            GIT_COMMITTER_NAME=name,
            GIT_COMMITTER_EMAIL=email,
            GIT_LITERAL_PATHSPECS="1",
            **{TOKEN_VARIABLE: context.launcher.apart().token},
        )

    @property
    def ours(self) -> bool:
        """Whether it is a worktree that the orchestrator made, for one job."""
        if self.repo is None:
            return False
        try:
            return (self.repo.git_dir / "locked").read_text("utf-8", "replace").startswith(LOCK_REASON)
        except OSError:
            return False


_bringing = threading.Lock()


def _bring_in(repo: Repository, context: ToolContext) -> None:
    """Objects that commands behind the wall wrote with their own git: the index or HEAD may name some of them."""
    wall = context.launcher.wall
    folder = quarantine.folder_of(wall, repo) if wall is not None else None
    if folder is None:
        return
    with _bringing:
        brought = quarantine.bring_in(repo, folder)
    if brought.refused is not None:
        raise ToolError(f"What git wrote in your commands is not accepted: {brought.refused}")


@asynccontextmanager
async def still(context: ToolContext) -> AsyncIterator[None]:
    """Inside the `with` no command of the model's runs: it could put a link where git has just looked."""
    hold = Hold(context.launcher.token)
    try:
        if hold.needed:
            await in_thread(hold.stop)
        yield
        hold.check()
    except NotStill as error:
        raise ToolError(error.message) from error
    finally:
        hold.release()


def _held(tool: Execute) -> Execute:
    async def run(context: ToolContext, arguments: Json) -> Answer:
        async with still(context):
            return await tool(context, arguments)

    return run


def find_checkout(folder: Path) -> Checkout:
    """The repository that a folder is in; that there is none is no error before somebody asks git for something."""
    try:
        return Checkout(find_repository(folder))
    except OrchardError as error:
        return Checkout(None, str(error))


async def ask(git: Git, *args: str, ok: Container[int] = (0,), most: int = MOST_BYTES) -> Told:
    """Run git to its end, or until it has said enough; a cancellation ends it at once."""
    asked = _Question(git, args, most)
    running = asyncio.get_running_loop().run_in_executor(None, asked.answer)
    canceled: asyncio.CancelledError | None = None
    late = False
    while not running.done():
        try:
            await asyncio.wait([running], timeout=SECONDS)
            late = late or not running.done()
        except asyncio.CancelledError as error:
            canceled = error
        if not running.done():
            asked.stop()
    if canceled is not None:
        running.exception()
        raise canceled
    told = running.result()
    if late:
        raise ToolError(f"git {args[0]} was stopped: it took longer than {SECONDS:g} s.")
    if told.status not in ok and not told.cut:
        said = told.stderr or plain_text(told.stdout[:4000]).strip() or f"it ended with status {told.status}"
        raise ToolError(f"git {args[0]}: {said}")
    return told


class _Question:
    """One git, started and read in a thread; it can be stopped from another."""

    def __init__(self, git: Git, args: tuple[str, ...], most: int) -> None:
        self._git, self._args, self._most = git, args, most
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def answer(self) -> Told:
        try:
            with tempfile.TemporaryFile() as errors:
                with self._lock:
                    if self._stopped:
                        return Told(-1, b"", "stopped")
                    self._process = start_git(self._args, cwd=self._git.cwd, env=self._git.env, errors=errors.fileno())
                return self._read(self._process, errors.fileno())
        except OSError as error:
            raise ToolError(f"Git cannot be started: {error.strerror}.") from error

    def _read(self, process: subprocess.Popen[bytes], errors: int) -> Told:
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            process.stdin.close()
            parts, size = [], 0
            while size <= self._most and (block := os.read(process.stdout.fileno(), 65536)):
                parts.append(block)
                size += len(block)
            if size > self._most:
                self.stop()
                process.stdout.close()
            status = process.wait()
        said = plain_text(os.pread(errors, 4000, 0)).strip()
        return Told(status, b"".join(parts)[: self._most], said, size > self._most)

    def stop(self) -> None:
        """SIGTERM, which lets git remove its lock files; SIGKILL for what ignores it."""
        with self._lock:
            self._stopped = True
        if self._signal(signal.SIGTERM):
            last = threading.Timer(TERMINATE_GRACE, self._signal, (signal.SIGKILL,))
            last.daemon = True
            last.start()

    def _signal(self, number: signal.Signals) -> bool:
        with self._lock:
            process = self._process
            if process is None or process.returncode is not None:
                return False
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            return True


def git_tools(checkout: Checkout) -> list[Tool]:
    made = _GitTools(checkout)
    path = text("A file or folder, relative to the work folder.", maxLength=4096)
    paths = {"type": "array", "items": path, "minItems": 1, "maxItems": 1000}
    revision = text("A commit, branch or range (HEAD~3, main, main..HEAD).", maxLength=250)
    return [
        Tool(
            "git_status",
            "The branch, and which files are changed, staged, untracked or in conflict.",
            schema(),
            _held(made.status),
            parallel=True,
        ),
        Tool(
            "git_diff",
            "Changes as a patch: of files against what is staged, or with `staged` of what is staged against HEAD, "
            "or against `revision`. New files that are not staged are not part of it.",
            schema(revision=revision, staged=flag("What is staged."), path=path, stat=flag("Only a table of files.")),
            _held(made.diff),
            parallel=True,
        ),
        Tool(
            "git_log",
            "The newest commits.",
            schema(revision=revision, path=path, count=whole("How many; 20 if left out.", 1, 200)),
            _held(made.log),
            parallel=True,
        ),
        Tool(
            "git_add",
            "Stage files or folders for the next commit, removed ones as well.",
            schema(("paths",), paths={**paths, "description": "What to stage; ['.'] is everything here."}),
            _held(made.add),
        ),
        Tool(
            "git_commit",
            "Commit what is staged. No hooks run. Where an orchestrator gave you the folder, it commits what you "
            "leave: commit by yourself only where several commits make sense.",
            schema(
                ("message",),
                message=text("The message: a summary line, and more after an empty one.", minLength=1),
                all=flag("Stage every changed file that git knows first."),
            ),
            _held(made.commit),
        ),
        Tool(
            "git_branch",
            "Branches: `list` them, `create` one at HEAD, or `switch` to one that exists.",
            schema(
                action={"type": "string", "enum": ["list", "create", "switch"], "description": "`list` if left out."},
                name=text("The branch, to create or switch to.", maxLength=250),
            ),
            _held(made.branch),
        ),
    ]


class _GitTools:
    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout

    async def _git(self, context: ToolContext) -> Git:
        try:
            return await in_thread(self._checkout.git, context)
        except OrchardError as error:
            raise ToolError(str(error)) from error

    async def status(self, context: ToolContext, _: Json) -> Answer:
        git = await self._git(context)
        told = await ask(git, "status", "--branch", "--short", "--untracked-files=all", "--ignore-submodules=dirty")
        return _answer(told, "nothing")

    async def diff(self, context: ToolContext, arguments: Json) -> Answer:
        words = ["diff", *_PLAIN_DIFF]
        words += ["--stat=120"] if arguments.get("stat") else ["-p"]
        words += ["--cached"] if arguments.get("staged") else []
        if revision := arguments.get("revision"):
            words.append(_revision(revision))
        git = await self._git(context)
        told = await ask(git, *words, "--", *_inside(context, arguments.get("path")))
        return _answer(told, "No difference.")

    async def log(self, context: ToolContext, arguments: Json) -> Answer:
        shown = "--format=%h %ad %an%d%n    %s"
        words = ["log", "--no-color", "--date=iso-strict", shown, f"-{int(arguments.get('count', 20))}"]
        if revision := arguments.get("revision"):
            words.append(_revision(revision))
        git = await self._git(context)
        told = await ask(git, *words, "--", *_inside(context, arguments.get("path")))
        return _answer(told, "No commits.")

    async def add(self, context: ToolContext, arguments: Json) -> Answer:
        paths = [path for each in arguments["paths"] for path in _inside(context, each)]
        git = await self._git(context)
        await ask(git, "add", "-A", "--", *paths)
        told = await ask(git, "diff", "--cached", "--name-status", *_PLAIN_DIFF, "--", *paths)
        return _answer(told, "Nothing there differs from HEAD: nothing is staged.")

    async def commit(self, context: ToolContext, arguments: Json) -> Answer:
        message = arguments["message"].strip()
        if not message or "\0" in message or len(message.encode(errors="replace")) > LONGEST_MESSAGE:
            raise ToolError(f"A message has 1 to {LONGEST_MESSAGE:,} bytes, none of them NUL.")
        git = await self._git(context)
        words = ["-a"] if arguments.get("all") else []
        await ask(git, "commit", "-q", "--no-verify", "--cleanup=whitespace", *words, "-m", message)
        told = await ask(git, "log", "-1", "--no-color", "--format=%h %s", "--stat=120", *_PLAIN_DIFF)
        return _answer(told, "Committed.")

    async def branch(self, context: ToolContext, arguments: Json) -> Answer:
        action, name = arguments.get("action", "list"), arguments.get("name", "")
        git = await self._git(context)
        if action == "list":
            shown = "--format=%(HEAD) %(refname:short) %(objectname:short) %(contents:subject)"
            return _answer(await ask(git, "branch", "--no-color", "--sort=-committerdate", shown), "No branches.")
        if self._checkout.ours:
            raise ToolError(
                "This folder belongs to the orchestrator, which takes the commits from it: make no branches here."
            )
        if not name or name.startswith(("-", "@")):
            raise ToolError("Give the branch a name that does not begin with '-' or '@'.")
        await ask(git, "check-ref-format", "--branch", name)
        if action == "create":
            await ask(git, "branch", "--no-track", name)
            return Answer(f"Branch '{name}' is made at HEAD; use action 'switch' to work on it.")
        await ask(git, "switch", "--no-guess", "--no-recurse-submodules", name)
        return Answer(f"Now on branch '{name}'.")


def _answer(told: Told, nothing: str) -> Answer:
    more = b"\n[... there is more: ask for less, by a path or 'stat' ...]" if told.cut else b""
    return plain_answer(told.stdout + more, nothing)


def _revision(name: str) -> str:
    if not _REVISION.match(name):
        raise ToolError(f"{name!r} is not a revision: give a commit, a branch or a range such as 'main..HEAD'.")
    return name


def _inside(context: ToolContext, path: str | None) -> list[str]:
    """A path for git, which does not follow links; it has to lie in the work folder by its name."""
    if path is None:
        return []
    folder = os.path.normpath(context.folder)
    place = os.path.normpath(os.path.join(folder, path))  # noqa: PTH118 (the name counts, not the file)
    if "\0" in path or not (place == folder or place.startswith(folder.rstrip("/") + "/")):
        raise ToolError(f"'{path}' is not in the work folder.")
    return [os.path.relpath(place, folder)]
