"""A user's repository, the whole program in it, and pictures of all that is the user's.

The program runs in this process (its command line, its exit code, its two streams), which is fast
and turns every warning into an error. Whatever it does, `Desk` checks what must hold always: no
traceback, an exit code that means something, and a message with a hint where a request is refused.
"""

import hashlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from orchard.errors import EXIT_DONE, EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, EXIT_WAITING, OrchardError
from orchard.surfaces.cli.start import run_command_line
from orchard.testing import Repo
from tests.engine.conftest import Json, Orchard, job

LONGEST = 60
NOBODY = 65534
FILE, PROGRAM, LINK = "100644", "100755", "120000"

Tree = dict[bytes, tuple[str, bytes]]
"""A tree, byte by byte: path to mode and content."""


@dataclass(frozen=True)
class Ran:
    """How the program ended and what it said."""

    code: int
    out: str
    err: str
    status: Json
    """The newest plan after it; empty where there is none."""

    @property
    def plan(self) -> Json:
        found: Json = self.status.get("plan", {})
        return found

    def job(self, name: str) -> Json:
        return job(self.status, name)

    @property
    def said(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class Picture:
    """Everything that belongs to the user: files of all their checkouts, refs, index, settings."""

    files: dict[bytes, str]
    refs: dict[str, str]
    head: str
    index: bytes
    settings: dict[str, str]

    def without_branch(self, branch: str) -> "Picture":
        return replace(self, refs={name: oid for name, oid in self.refs.items() if name != f"refs/heads/{branch}"})


class Desk(Orchard):
    """One repository and the program, as a user at a terminal has them."""

    def __init__(self, repo: Repo, folder: Path) -> None:
        super().__init__(repo)
        self.folder = folder
        self._scripts = 0

    # -------------------------------------------------------------------------------- the program

    def __call__(self, *words: str, cwd: Path | None = None) -> Ran:
        """Run `orchard WORDS` in the repository; what must never happen is checked here."""
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
        with _bounded(), redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            code = run_command_line(["-C", str(cwd or self.repo.path), *words])
        out, err = (_text(stream) for stream in streams)
        return checked(code, out, err, self._newest(cwd))

    def run(self, *jobs: Json | str, cwd: Path | None = None, **fields: Any) -> Ran:  # type: ignore[override]
        """Run a plan; a job that is only a command is called after its number (`j1`)."""
        return self("run", str(self.plan(*jobs, **fields)), cwd=cwd)

    def plan(self, *jobs: Json | str, **fields: Any) -> Path:
        """Write a plan beside the repository."""
        rows = [
            {"id": f"j{number}", "work": one} if isinstance(one, str) else one for number, one in enumerate(jobs, 1)
        ]
        path = self.folder / "plan.json"
        path.write_text(json.dumps({"name": "Hazard", "jobs": rows, **fields}))
        return path

    def program(self, *words: str, cwd: Path | None = None, user: int | None = None, **env: str) -> Ran:
        """The same in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "orchard", *words],
            cwd=cwd or self.repo.path,
            env={**os.environ, **env},
            capture_output=True,
            timeout=LONGEST,
            check=False,
            user=user,
        )
        out, err = (text.decode(errors="strict") for text in (done.stdout, done.stderr))
        return checked(done.returncode, out, err, self._newest(cwd))

    def _newest(self, cwd: Path | None) -> Json:
        here = Desk(Repo(cwd), self.folder) if cwd is not None else self
        try:
            return here.status()
        except OrchardError:  # there is no plan, or not even a repository: then there is nothing to show
            return {}

    # ----------------------------------------------------------------------------------- the jobs

    def script(self, body: str) -> str:
        """A command that runs this Python in the job's folder."""
        self._scripts += 1
        path = self.folder / f"job{self._scripts}.py"
        path.write_text(body)
        return f"{shlex.quote(sys.executable)} -I {shlex.quote(str(path))}"

    def writes(self, tree: Mapping[bytes, tuple[str, bytes]], remove: tuple[bytes, ...] = ()) -> str:
        """A command that makes these files, programs and links."""
        return self.script(f"tree, remove = {dict(tree)!r}, {remove!r}\n{_WRITER}")

    # ---------------------------------------------------------------------------------- the user's

    def tree(self, revision: str) -> Tree:
        """A commit, byte by byte."""
        return tree_of(self.repo, revision)

    def picture(self, *checkouts: Path) -> Picture:
        """All that is the user's, in the main checkout and in these."""
        return picture(self.repo, *checkouts)


_WRITER = """
import os
for name in remove:
    os.unlink(name)
for name, (mode, content) in tree.items():
    folder = os.path.dirname(name)
    if folder:
        os.makedirs(folder, exist_ok=True)
    if os.path.lexists(name):
        os.unlink(name)
    if mode == "120000":
        os.symlink(content, name)
    else:
        with open(name, "wb") as file:
            file.write(content)
        os.chmod(name, int(mode[-3:], 8))
"""


def checked(code: int, out: str, err: str, status: Json) -> Ran:
    """What holds for every end of the program."""
    said = out + err
    assert "Traceback" not in said, said
    assert code in (EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_WAITING), said
    if err.startswith("error: ") and not re.search(r"plan\.json:\d+:\d+ ", err):  # a place in the plan is hint enough
        assert "\nhint: " in err, err
    for one in status.get("jobs", []):
        assert "Error: " not in (one["error"] or ""), one  # an exception of Python's in place of a sentence
    return Ran(code, out, err, status)


def is_clear(ran: Ran, code: int, *words: str) -> None:
    """The program refused or waits: this code, these words, and what to do about it."""
    assert ran.code == code, ran.said
    for word in words:
        assert word in ran.said
    assert "hint: " in ran.said or "orchard land" in ran.said or "next: " in ran.said, ran.said


def tree_of(repo: Repo, revision: str) -> Tree:
    """Every path of a commit with its mode and its bytes."""
    rows = [row.split(b"\t", 1) for row in repo.run("ls-tree", "-r", "-z", revision).stdout.split(b"\0") if row]
    found: Tree = {}
    for facts, name in rows:
        mode, kind, oid = facts.decode().split(" ")
        found[name] = (mode, repo.run("cat-file", "blob", oid).stdout if kind == "blob" else oid.encode())
    return found


def picture(repo: Repo, *checkouts: Path) -> Picture:
    common = Path(repo("rev-parse", "--path-format=absolute", "--git-common-dir").removesuffix("\n"))
    refs = repo("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    tops = checkouts if repo("rev-parse", "--is-bare-repository") == "true\n" else (repo.path, *checkouts)
    kept = ("config", "config.worktree", "info/attributes", "hooks", "info/sparse-checkout", "shallow", "MERGE_HEAD")
    return Picture(
        files={os.fsencode(top) + b"/" + name: what for top in tops for name, what in _files(top).items()},
        refs={name: oid for name, oid in (row.split(" ", 1) for row in refs) if not name.startswith("refs/orchard/")},
        head=repo.run("symbolic-ref", "-q", "HEAD").text or repo.run("rev-parse", "HEAD").text,
        index=repo.run("ls-files", "-s", "-v", "-z").stdout,
        settings={name: what for name in kept for what in [_settings(common / name)]},
    )


def _files(top: Path) -> dict[bytes, str]:
    """Every file of a checkout, with kind, mode and content, but not git's own folder."""
    found: dict[bytes, str] = {}
    start = os.fsencode(top)
    for folder, folders, names in os.walk(start):
        links = [one for one in folders if (Path(os.fsdecode(folder)) / os.fsdecode(one)).is_symlink()]
        folders[:] = [one for one in folders if not (folder == start and one in (b".git", b".worktrees"))]
        for name in [*names, *links]:
            if folder == start and name == b".git":
                continue
            place = Path(os.fsdecode(folder + b"/" + name))
            found[os.fsencode(place)[len(start) + 1 :]] = _what(place)
    return found


def _what(place: Path) -> str:
    mode = place.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.fsencode(place.readlink())!r}"
    if not stat.S_ISREG(mode):
        return f"special {mode:o}"
    return f"{mode:o} {hashlib.sha256(place.read_bytes()).hexdigest()}"


def _settings(place: Path) -> str:
    if place.is_dir():
        return repr(sorted((os.fsencode(one), _what(one)) for one in place.iterdir()))
    return _what(place) if place.exists() else "none"


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


class TooLong(BaseException):
    """The program did not end; not an Exception, so that nothing in between makes something of it."""


@contextmanager
def _bounded() -> Iterator[None]:
    def ring(_: int, __: FrameType | None) -> None:
        raise TooLong(f"no end after {LONGEST} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


LINES = "".join(f"{number}\n" for number in range(1, 21))


def make_desk(path: Path, folder: Path, **options: str) -> Desk:
    """A small repository on branch `work`, which is not its default branch."""
    repo = Repo.make(path, files={"README.md": "# small\n", "shared.txt": LINES, "dir/in.txt": "in\n"}, **options)
    repo("checkout", "-q", "-b", "work")
    return Desk(repo, folder)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return make_desk(tmp_path / "repo", tmp_path)


@pytest.fixture
def powerless(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A desk whose user may not do everything: the superuser, for whom no file is closed, becomes somebody else."""
    if os.geteuid() != 0:
        yield desk
        return
    # What is imported late lies where only the superuser may look, so all of it is used once before.
    assert desk.run("echo warm > warm.txt", verify="true").code == 0
    assert desk.run("exit 1").code == 1
    place = Path(tempfile.mkdtemp())
    other = make_desk(place / "repo", place)
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        (place / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(place / name))
    for folder, folders, names in os.walk(place):
        for one in (folder, *(f"{folder}/{name}" for name in [*folders, *names])):
            os.chown(one, NOBODY, NOBODY, follow_symlinks=False)
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, 0)
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield other
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)
        shutil.rmtree(place)
