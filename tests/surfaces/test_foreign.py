"""Files of other programs, by themselves: what is refused, what is shown, and what happens beside us."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.errors import OrchardError, UsageError
from orchard.surfaces.cli.external.files import Change, carry_out, diff_lines, look
from orchard.surfaces.cli.render.lines import plain


def change(file: Path, after: str | None, *, private: bool = False) -> Change:
    return Change(file, look(file, file.parent, private=private), after)


def leftovers(folder: Path) -> list[str]:
    """What is left of files that were about to take another's place."""
    return [path.name for path in folder.iterdir() if ".orchard-" in path.name and "backup" not in path.name]


def _folder(file: Path) -> None:
    file.mkdir(parents=True)


def _pipe(file: Path) -> None:
    file.parent.mkdir()
    os.mkfifo(file)


def _in_the_way(file: Path) -> None:
    file.parent.write_text("x")


def _odd_bytes(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"{\xff}")


@pytest.mark.parametrize("make", [_folder, _pipe, _in_the_way, _odd_bytes])
def test_what_is_no_file_of_text_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    file = tmp_path / "folder" / "mcp.json"
    make(file)

    with pytest.raises(UsageError, match=r"mcp\.json"):
        look(file, tmp_path, private=False)


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.touch()
    os.truncate(file, 64 * 1024 * 1024)

    with pytest.raises(UsageError, match="longer than"):
        look(file, tmp_path, private=False)


def test_a_file_that_changes_in_the_meantime_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("old")
    wanted = change(file, "ours")
    file.write_text("newer")

    with pytest.raises(OrchardError, match="has changed"):
        carry_out(wanted)

    assert file.read_text() == "newer" and leftovers(tmp_path) == []


def test_a_file_that_appears_in_the_meantime_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x"
    wanted = change(file, "ours")
    file.write_text("mine")

    with pytest.raises(OrchardError, match="has changed"):
        carry_out(wanted)

    assert file.read_text() == "mine" and leftovers(tmp_path) == []


def test_a_file_that_is_to_be_removed_stays_if_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("old")
    wanted = change(file, None)
    file.write_text("newer")

    with pytest.raises(OrchardError, match="has changed"):
        carry_out(wanted)

    assert file.read_text() == "newer"


def test_a_link_put_where_the_new_file_is_written_is_not_followed(tmp_path: Path) -> None:
    file, victim = tmp_path / "x", tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".x.orchard-{os.getpid()}").symlink_to(victim)

    with pytest.raises(OrchardError):
        carry_out(change(file, "ours"))

    assert victim.read_text() == "precious"


def test_a_link_with_the_name_of_a_copy_is_not_followed(tmp_path: Path) -> None:
    file, victim = tmp_path / "x", tmp_path / "victim"
    file.write_text("old")
    (tmp_path / "x.orchard-backup").symlink_to(victim)

    kept = carry_out(change(file, "ours"))

    assert kept == tmp_path / "x.orchard-backup-2" and kept.read_text() == "old"
    assert not victim.exists()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o755])
def test_the_mode_stays_for_the_file_and_its_copy(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "x"
    file.write_text("old")
    file.chmod(mode)

    kept = carry_out(change(file, "ours"))

    assert kept is not None
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, kept)] == [mode, mode]


def test_what_is_shown_is_bounded_and_cannot_command_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("a\x1b[2J" * 100_000)

    rows = [plain(line) for line in diff_lines(change(file, "b\n" * 5000))]

    assert len(rows) < 300 and max(map(len, rows)) <= 300
    assert "\x1b" not in "".join(rows)


@pytest.mark.parametrize(
    "row",
    [
        '"MY_TOKEN": "hunter2"',
        "MY_TOKEN = 'hunter2'",
        '  "api-key":"hunter2",',
        '"env": {"API_KEY": "hunter2"}',
        'env = { PASSWORD = "hunter2" }',
    ],
)
def test_secrets_that_stand_near_the_change_are_not_shown(tmp_path: Path, row: str) -> None:
    file = tmp_path / "x"
    file.write_text(f"before\n{row}\n")

    rows = [plain(line) for line in diff_lines(change(file, f"after\n{row}\n"))]

    assert "-before" in rows and "hunter2" not in "".join(rows)
