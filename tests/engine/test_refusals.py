"""Which line opens what a program behind a wall complains about."""

from pathlib import Path

import pytest

from orchard.engine.machine.refusals import kept_from
from orchard.process.sandbox.policy import Policy


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/.cache/tool").mkdir(parents=True)
    (tmp_path / "home/.cache/tool/stamp").write_text("old")
    (tmp_path / "work").mkdir()
    return tmp_path / "home"


def policy(home: Path) -> Policy:
    work = home.parent / "work"
    return Policy(home=work, temporary=work, writable=(work,), hidden=(home,))


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("cat: {home}/.cache/tool/stamp: No such file or directory", 'sandbox.expose = ["~/.cache/tool/stamp"]'),
        ("sh: 1: cannot create {home}/.cache/tool/stamp: Directory nonexistent", 'sandbox.write = ["~/.cache/tool"]'),
        ("touch: cannot touch '{home}/.cache/tool/new': Permission denied", 'sandbox.write = ["~/.cache/tool"]'),
    ],
)
def test_the_line_opens_for_reading_or_for_writing_as_the_program_wanted(home: Path, said: str, line: str) -> None:
    (kept,) = kept_from(said.format(home=home), policy(home), {})

    assert str(kept.line(home)) == line


def test_no_line_opens_the_whole_disk(home: Path) -> None:
    assert kept_from("PermissionError: [Errno 13] Permission denied: '/psm_21467'", policy(home), {}) == ()
