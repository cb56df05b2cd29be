"""The machine is held awake by the first, let go by the last, and never at the price of an error."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchard.process.awake import WARNING, Release, Wakefulness, by_systemd, keep_awake


def test_the_first_takes_hold_and_the_last_lets_go() -> None:
    story: list[str] = []

    def way() -> Release:
        story.append("held")
        return lambda: story.append("let go")

    wakefulness = Wakefulness([lambda: None, way])
    with wakefulness.hold() as first, wakefulness.hold() as second:
        story.append("both")
    with wakefulness.hold():
        pass

    assert (first, second) == (None, None)
    assert story == ["held", "both", "let go", "held", "let go"]


def test_no_way_to_hold_is_a_warning() -> None:
    with Wakefulness([lambda: None]).hold() as warning:
        assert warning == WARNING


def test_the_real_thing_never_raises() -> None:
    with keep_awake() as warning, keep_awake():
        assert warning in (None, WARNING)


def fake_inhibit(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    program = folder / "systemd-inhibit"
    program.write_text("#!/bin/sh\n" + text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


WORKS = 'echo $$ > "$0.pid"; while [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'


def test_systemd_is_asked_and_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_inhibit(tmp_path, monkeypatch, WORKS)

    release = by_systemd()

    assert release is not None
    pid = int((tmp_path / "systemd-inhibit.pid").read_text())
    assert Path(f"/proc/{pid}").exists()
    release()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("text", ["exit 1\n", "exec cat >/dev/null </dev/null\n"])
def test_a_systemd_that_refuses_is_no_way(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_inhibit(tmp_path, monkeypatch, text)

    assert by_systemd() is None


def test_the_hold_ends_when_we_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_inhibit(tmp_path, monkeypatch, WORKS)
    script = "import os\nfrom orchard.process.awake import by_systemd\nassert by_systemd()\nos.kill(os.getpid(), 9)"

    done = subprocess.run([sys.executable, "-c", script], timeout=20, check=False)

    assert done.returncode == -9
    pid = int((tmp_path / "systemd-inhibit.pid").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/fd/0").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
