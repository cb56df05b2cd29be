"""What people see at 80, 120 and 200 columns, compared with text files in `screens`, letter by letter.

A screen that was changed on purpose is renewed with

    RENEW_SCREENS=1 python -m pytest tests/surfaces/test_screens.py

and read in the diff. Times, ids, commits and folders are replaced by others of the same length.
"""

import fcntl
import os
import pty
import re
import shutil
import struct
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchard.core.replay import replay
from orchard.model.phases import Phase
from orchard.model.plan import JobId
from orchard.store.logs import LogFiles
from orchard.surfaces.cli.render import progress, text
from orchard.surfaces.cli.render.last_lines import LastLines
from orchard.surfaces.cli.render.progress import Beside, LiveTree
from orchard.surfaces.cli.start import run_command_line
from orchard.surfaces.cli.terminal import Terminal
from tests.acceptance.program import Desk, desks
from tests.surfaces.test_cli_render import NOW, PLAN, a_job, a_plan, begun, failing, recorded, running

SCREENS = Path(__file__).parent / "screens"
RENEWED = bool(os.environ.get("RENEW_SCREENS"))
WIDTHS = (80, 120, 200)
HEIGHT = 60
LONG = (
    "a sentence that is longer than a narrow screen and shorter than a wide one, so that it breaks on one of them only"
)
FAILS = f"""
name: Fails
target: goal
jobs:
  - {{id: api, group: back, work: "echo building; echo 'src/api.c:12: error: {LONG}' >&2; exit 3"}}
  - {{id: docs, name: Write the docs, work: "echo docs > docs.txt"}}
  - {{id: tests, needs: [back/api], work: "echo t > t.txt"}}
"""
WORKS = f"""
name: Works
description: {LONG}
target: result
jobs:
  - {{id: api, work: "echo one > api.txt"}}
  - {{id: tests, needs: [api], work: "cat api.txt > tests.txt", postchecks: ["test -s tests.txt"]}}
"""
VIEWS = {
    "help": ["--help"],
    "list": ["list"],
    "status": ["status", "Fails"],
    "job": ["job", "api", "--plan", "Fails", "--no-pager"],
    "dry-run": ["run", "works.yaml", "--dry-run"],
}
REPLACED = (
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d", "2026-01-01 00:00"),
    (r"\btoday \d\d:\d\d\b", "today 00:00"),
    (r"\b\d\d:\d\d:\d\d\b", "00:00:00"),
    (r"(  +)\d\d\.\ds", r"\1 0.0s"),
    (r"\b\d+\.\ds", "0.0s"),
    (r"\b(fails|works)-[a-z0-9]{5}\b", r"\1-xxxxx"),
    (r"/tmp/s[a-z0-9_]{8}\b", "/tmp/s--------"),
    (r"\bw[a-z0-9]{8}\b(?=\s|$)", "wwwwwwwww"),
    (r"\b[0-9a-f]{10}\b", "cccccccccc"),
    (r"\b[0-9a-f]{40}\b", "c" * 40),
)


class Screen:
    """A terminal of some width: as much of one as our pictures need, and no more."""

    TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\r|\n|\x07|[^\x1b\r\n\x07]")

    def __init__(self, width: int) -> None:
        self.width, self.rows = width, [[" "] * width]
        self.x = self.y = 0

    def feed(self, written: str) -> "Screen":
        at = 0
        while at < len(written):
            token = self.TOKEN.match(written, at)
            assert token is not None, f"not known here: {written[at : at + 20]!r}"
            at = token.end()
            if token[2]:
                self._obey(token[1], token[2])
            elif token[0] == "\r":
                self.x = 0
            elif token[0] == "\n":
                self._down()
            elif token[0] != "\x07":
                self._put(token[0])
        return self

    def _obey(self, number: str, letter: str) -> None:
        if letter == "A":
            self.y -= int(number or 1)
        elif letter == "K":
            begin = 0 if number == "2" else self.x
            self.rows[self.y][begin:] = [" "] * (self.width - begin)
        elif letter == "J":
            self.rows[self.y][self.x :] = [" "] * (self.width - self.x)
            del self.rows[self.y + 1 :]
        else:
            assert letter in "mhl", letter

    def _put(self, character: str) -> None:
        if self.x == self.width:
            self.x = 0
            self._down()
        self.rows[self.y][self.x] = character
        self.x += 1

    def _down(self) -> None:
        self.y += 1
        if self.y == len(self.rows):
            self.rows.append([" "] * self.width)

    @property
    def text(self) -> str:
        shown = "\n".join("".join(row).rstrip() for row in self.rows).rstrip("\n") + "\n"
        for pattern, instead in REPLACED:
            shown = re.sub(pattern, instead, shown)
        return "".join(f"{line.rstrip()}\n" for line in shown.splitlines())


def compare(name: str, width: int, shown: str) -> None:
    path = SCREENS / f"{name}-{width}.txt"
    if RENEWED:
        path.write_text(shown)
    assert shown == path.read_text(), f"{path.name} is another screen now; see the top of this file"


@pytest.fixture
def on_screen(monkeypatch: pytest.MonkeyPatch) -> Iterator["Drawing"]:
    drawing = Drawing(monkeypatch)
    yield drawing
    drawing.close()


class Drawing:
    """Lets this process write to a terminal of some width, and reads what is on it then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._ours, theirs = pty.openpty()
        self._stream = os.fdopen(theirs, "r+b", buffering=0)
        self._written = bytearray()

    def begin(self, width: int) -> None:
        size = struct.pack("HHHH", HEIGHT, width, 0, 0)
        fcntl.ioctl(self._stream, termios.TIOCSWINSZ, size)
        for name, value in {"COLUMNS": str(width), "LINES": str(HEIGHT), "TERM": "xterm", "LANG": "C.UTF-8"}.items():
            self._patch.setenv(name, value)
        self._patch.delenv("NO_COLOR", raising=False)
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            stream = os.fdopen(os.dup(self._stream.fileno()), mode, encoding="utf-8")
            self._patch.setattr(sys, name, stream)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self, width: int) -> str:
        for name in ("stdin", "stdout", "stderr"):
            getattr(sys, name).close()
        self._patch.undo()
        self._stream.close()
        self._reader.join(10)
        return Screen(width).feed(self._written.decode()).text

    def _read(self) -> None:
        try:
            while more := os.read(self._ours, 65536):
                self._written += more
        except OSError:  # the last who wrote has closed it
            return

    def close(self) -> None:
        self._stream.close()
        os.close(self._ours)


def prepared() -> Iterator[Desk]:
    """A repository with two plan files, in a folder whose name is always as long."""
    folder = Path(tempfile.mkdtemp(prefix="s", dir="/tmp"))
    try:
        for found in desks(folder):
            for name, plan in {"fails.yaml": FAILS, "works.yaml": WORKS}.items():
                (found.repo.path / name).write_text(plan)
            found.repo("add", ".")
            found.repo("commit", "-qm", "plans")
            found.env["ORCHARD_SANDBOX"] = "off"
            yield found
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def fresh() -> Iterator[Desk]:
    yield from prepared()


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """One in which a plan has failed and another has landed, which no test changes."""
    for found in prepared():
        assert found("run", "fails.yaml").code == 1
        assert found("run", "works.yaml").code == 0
        yield found


def shown_by(desk: Desk, on_screen: Drawing, monkeypatch: pytest.MonkeyPatch, width: int, words: list[str]) -> str:
    on_screen.begin(width)
    for name in [name for name in os.environ if name.startswith(("ORCHARD_", "GIT_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name, value in desk.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(desk.repo.path)
    run_command_line(words)
    return on_screen.end(width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_as_it_was(
    desk: Desk, on_screen: Drawing, monkeypatch: pytest.MonkeyPatch, name: str, width: int
) -> None:
    compare(name, width, shown_by(desk, on_screen, monkeypatch, width, VIEWS[name]))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_end_of_a_failed_run_is_as_it_was(
    fresh: Desk, on_screen: Drawing, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    compare("failed-run", width, shown_by(fresh, on_screen, monkeypatch, width, ["run", "fails.yaml"]))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_picture_of_a_run_under_way_is_as_it_was(
    on_screen: Drawing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int
) -> None:
    plan = a_plan(a_job("api"), a_job("back/tests", "api"), a_job("docs"), a_job("back/more", "docs"))
    run = replay(recorded(*begun(plan), *running("api"), *running("docs"), failing("docs")))
    logs = LogFiles(tmp_path)
    logs.make(logs.path(PLAN, JobId("api"), 1, Phase.WORK)).write_text(f"{LONG}\n")
    on_screen.begin(width)
    monkeypatch.setattr(progress, "time", SimpleNamespace(time=lambda: NOW, monotonic=lambda: 0.0))
    monkeypatch.setattr(Beside, "said", lambda self: LastLines(logs, []).of(run))
    live = LiveTree(Terminal(), run)
    live.footer = [(text.FOOT_OWNER, "dim")]
    with live.live:
        live.draw()

    compare("live", width, on_screen.end(width))


def test_a_screen_in_which_one_word_has_changed_is_noticed() -> None:
    kept = (SCREENS / "status-80.txt").read_text()

    compare("status", 80, kept)
    if not RENEWED:
        with pytest.raises(AssertionError, match="is another screen now"):
            compare("status", 80, kept.replace("blocked", "waiting", 1))


def test_every_screen_that_is_kept_is_one_of_a_test_and_fits_its_width() -> None:
    names = {f"{name}-{width}.txt" for name in (*VIEWS, "failed-run", "live") for width in WIDTHS}

    assert {path.name for path in SCREENS.iterdir()} == names
    for path in SCREENS.iterdir():
        width = int(path.stem.rpartition("-")[2])
        assert max(map(len, path.read_text().splitlines())) <= width, path.name


def test_the_terminal_of_these_tests_breaks_long_lines_and_obeys_what_is_drawn_over() -> None:
    drawn = Screen(10).feed("one two three\r\nfour\r\n\x1b[1A\x1b[2Kfive\r\n\x1b[?25l\x1b[31msix\x1b[0m 12.5s\r\n")

    assert drawn.text == "one two th\nree\nfive\nsix 0.0s\n"
    with pytest.raises(AssertionError, match="not known here"):
        Screen(10).feed("\x1bZ")
