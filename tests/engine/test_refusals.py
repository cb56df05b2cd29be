"""Which line opens what a program behind a wall complains about."""

import socket
import tempfile
from pathlib import Path

import pytest

from orchard.engine.machine.advice import NO_PORTS, USE_TMPDIR, Failure, advised, local_port, missed_network
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


RAISED = """Traceback (most recent call last):
  File "s.py", line 2, in <module>
    {source}
    ^^^^^^
{error}: '{path}'
"""
ABSENT, DENIED = (
    "FileNotFoundError: [Errno 2] No such file or directory",
    "PermissionError: [Errno 13] Permission denied",
)
READ_ONLY = "OSError: [Errno 30] Read-only file system"


@pytest.mark.parametrize(
    ("name", "error", "source", "line"),
    [
        ("tool/stamp", ABSENT, "open(p)", 'sandbox.expose = ["~/.cache/tool/stamp"]'),
        ("tool/stamp", ABSENT, 'open(p, "a")', 'sandbox.write = ["~/.cache/tool"]'),
        ("tool/stamp", DENIED, "open(p, mode='wb')", 'sandbox.write = ["~/.cache/tool"]'),
        ("tool/stamp", READ_ONLY, "f(p)", 'sandbox.write = ["~/.cache/tool"]'),
        ("tool/new", READ_ONLY, "f(p)", 'sandbox.write = ["~/.cache/tool"]'),
        ("tool/new", ABSENT, "p.write_text('x')", 'sandbox.write = ["~/.cache/tool"]'),
        ("tool/new", ABSENT, "open(p)", 'sandbox.expose = ["~/.cache/tool"]'),
        ("gone/new", ABSENT, "open(p)", None),
    ],
)
@pytest.mark.parametrize("script", [True, False], ids=["script", "command"])
def test_an_error_of_pythons_names_the_path_and_what_its_text_wanted(
    home: Path, name: str, error: str, source: str, line: str | None, script: bool
) -> None:
    path = home / ".cache" / name
    said = RAISED.format(source=source, error=error, path=path) if script else f"{error}: '{path}'"
    failure = Failure(said, ("/bin/sh", "-c", "python3 s.py" if script else f"python3 -c '{source}'"))
    kept = kept_from(said, policy(home), {"HOME": str(home)}, failure.told)

    assert [str(one.line(home)) for one in kept] == ([] if line is None else [line])
    assert all((one.program or failure.program) == "python3" for one in kept), "and not the error"
    assert missed_network(failure) is None


def test_where_it_cannot_be_told_whether_a_hidden_file_was_to_be_read_both_lines_are_known(home: Path) -> None:
    (kept,) = kept_from(f"{ABSENT}: '{home}/.cache/tool/stamp'", policy(home), {})

    assert str(kept.line(home)) == 'sandbox.expose = ["~/.cache/tool/stamp"]'
    assert str(kept.line_to_write(home)) == 'sandbox.write = ["~/.cache/tool"]'


@pytest.mark.parametrize("said", ["bash: line 1: {}: No such file or directory", "tee: {}: No such file or directory"])
def test_a_redirection_to_a_hidden_file_is_a_write(home: Path, said: str) -> None:
    path = home / ".cache/tool/stamp"
    (kept,) = kept_from(said.format(path), policy(home), {}, ("/bin/bash", "-c", f"echo x > {path}"))

    assert str(kept.line(home)) == 'sandbox.write = ["~/.cache/tool"]'


def test_no_line_opens_the_whole_home_or_the_machines_temporary_folder(home: Path) -> None:
    (kept,) = kept_from(f"sh: 1: cannot create {home}/report: Read-only file system", policy(home), {})
    assert (kept.path, kept.line(home)) == (home / "report", None)
    closed = Policy(home=home, temporary=home, writable=(home.parent / "work",), hidden=(Path("/tmp"),))
    for line in (
        "sh: 1: cannot create /tmp/x: Permission denied",
        "PermissionError: [Errno 13] Permission denied: '/tmp/x'",
    ):
        assert [one.line(home) for one in kept_from(line, closed, {})] in ([], [None])
        assert advised(Failure(line, ()), "landlock", closed) == USE_TMPDIR


@pytest.mark.parametrize(
    "said",
    [
        "dial unix {}: connect: no such file or directory",
        "Cannot connect to the daemon at unix://{}. Is it running?",
        'Traceback (most recent call last):\n  File "s.py", line 1, in <module>\n    s.connect("{}")\n'
        "FileNotFoundError: [Errno 2] No such file or directory",
        'Traceback (most recent call last):\n  File "s.py", line 1, in <module>\n    s.connect("{}")\n'
        "PermissionError: [Errno 13] Permission denied",
    ],
)
def test_a_socket_of_this_machine_is_told_as_the_path_that_it_is(said: str, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as server:
        door = Path(short, "d.sock")
        server.bind(str(door))
        closed = Policy(home=tmp_path, temporary=tmp_path, writable=(tmp_path,), hidden=(Path(short),))
        (kept,) = kept_from(said.format(door), closed, {})

        assert kept.is_socket and str(kept.line(tmp_path)) == f'sandbox.expose = ["{door}"]'
        assert kept.line_to_write(tmp_path) is None


def test_a_program_that_may_not_bind_is_told_of_ports_behind_landlock(home: Path) -> None:
    told = ("/bin/sh", "-c", "python3 -c 's.bind((\"127.0.0.1\", 80))'")
    assert (
        advised(Failure("PermissionError: [Errno 13] Permission denied\n", told), "landlock", policy(home)) == NO_PORTS
    )
    assert local_port(Failure("PermissionError: [Errno 13] Permission denied\n", told)) is None, (
        "no line lets it listen"
    )


def test_no_line_opens_the_whole_disk(home: Path) -> None:
    assert kept_from("PermissionError: [Errno 13] Permission denied: '/psm_21467'", policy(home), {}) == ()
