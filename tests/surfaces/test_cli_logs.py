"""Logs on their way to the screen: the right lines, redacted, safe, whatever their size."""

from pathlib import Path

import pytest

from orchard.model.phases import Phase
from orchard.store.redact import Redactor
from orchard.surfaces.cli.log_output import BLOCK, LONGEST_LINE, Part, Printer, Reading, last_lines
from orchard.surfaces.cli.terminal import Terminal

Screen = pytest.CaptureFixture[bytes]


@pytest.fixture
def screen(capsysbinary: Screen) -> Screen:
    return capsysbinary


def a_log(folder: Path, data: bytes, phase: Phase = Phase.WORK) -> Part:
    path = folder / f"{phase}.log"
    path.write_bytes(data)
    return Part(1, phase, path)


def shown_of(parts: list[Part], tail: int | None = None, *, raw: bool = False, secrets: tuple[str, ...] = ()) -> None:
    reading = Reading(Printer(Terminal(), lambda: Redactor(secrets), raw=raw), tail)
    reading.take(parts)
    reading.end()


@pytest.mark.parametrize(
    ("data", "lines", "found"),
    [
        (b"a\nb\nc\n", 1, (4, 0)),
        (b"a\nb\nc", 1, (4, 0)),
        (b"a\nb\nc\n", 3, (0, 0)),
        (b"a\nb\nc\n", 5, (0, 2)),
        (b"a\nb\n", 0, (4, 0)),
        (b"", 3, (0, 3)),
        (b"\n\n\n", 2, (1, 0)),
        (b"x" * (BLOCK + 5) + b"\n" + b"y" * BLOCK + b"\nz\n", 2, (BLOCK + 6, 0)),
    ],
)
def test_the_last_lines_of_a_file_are_found_from_its_end(
    tmp_path: Path, data: bytes, lines: int, found: tuple[int, int]
) -> None:
    assert last_lines(a_log(tmp_path, data).path, len(data), lines) == found


def test_a_tail_takes_the_last_lines_over_several_phases(tmp_path: Path, screen: Screen) -> None:
    parts = [a_log(tmp_path, b"1\n2\n3\n", Phase.SETUP), a_log(tmp_path, b"4\n5\n", Phase.WORK)]

    shown_of(parts, 3)

    assert screen.readouterr().out == b"3\n4\n5\n"


def test_a_log_is_made_safe_for_a_screen_unless_raw_is_asked_for(tmp_path: Path, screen: Screen) -> None:
    part = a_log(tmp_path, b"\x1b[2J\x1b[31mred\x1b[0m \xff\n")

    shown_of([part])
    shown_of([part], raw=True)

    assert screen.readouterr().out == "red \ufffd\n".encode() + b"\x1b[2J\x1b[31mred\x1b[0m \xff\n"


@pytest.mark.parametrize("raw", [False, True])
def test_secrets_never_leave_a_log(tmp_path: Path, screen: Screen, raw: bool) -> None:
    part = a_log(tmp_path, b"x" * (BLOCK - 4) + b"hunter2-hunter2\nrest\n")

    shown_of([part], raw=raw, secrets=("hunter2-hunter2",))

    shown = screen.readouterr().out
    assert b"hunter2" not in shown
    assert shown.endswith(b"[redacted]\nrest\n")


def test_a_key_that_begins_before_the_tail_is_hidden_as_well(tmp_path: Path, screen: Screen) -> None:
    body = b"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n"
    name = b"PRIVATE KEY"
    data = b"before\n-----BEGIN " + name + b"-----\n" + body * 5 + b"-----END " + name + b"-----\nafter\n"

    shown_of([a_log(tmp_path, data)], 4)

    shown = screen.readouterr().out
    assert b"MIIEvQ" not in shown
    assert shown.endswith(b"after\n")


def test_a_line_without_end_is_printed_in_bounded_pieces(tmp_path: Path, screen: Screen) -> None:
    length = LONGEST_LINE * 20
    reading = Reading(printer := Printer(Terminal(), Redactor), None)

    reading.take([a_log(tmp_path, b"y" * length)])
    held = len(printer._held)
    reading.end()

    assert held <= LONGEST_LINE
    assert screen.readouterr().out == b"y" * length


def test_what_was_printed_is_not_printed_again_when_the_log_grows(tmp_path: Path, screen: Screen) -> None:
    part = a_log(tmp_path, b"one\n")
    reading = Reading(Printer(Terminal(), Redactor), None)

    reading.take([part])
    with part.path.open("ab") as file:
        file.write(b"two\n")
    reading.take([part])
    reading.end()

    assert screen.readouterr().out == b"one\ntwo\n"


@pytest.mark.parametrize(("tail", "shown"), [(None, b"one\ntwo\n"), (1, b"two\n")])
def test_a_program_that_prints_as_fast_as_we_read_does_not_keep_us(
    tmp_path: Path, screen: Screen, tail: int | None, shown: bytes
) -> None:
    part = a_log(tmp_path, b"one\ntwo\n")

    def grows() -> Redactor:
        with part.path.open("ab") as file:
            file.write(b"more\n")
        return Redactor()

    reading = Reading(Printer(Terminal(), grows), tail)
    reading.take([part])
    reading.end()

    assert screen.readouterr().out == shown
