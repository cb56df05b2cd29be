"""The list of repositories that a user has worked in."""

import os
import stat
import time
from pathlib import Path

import pytest

from orchard.store.repositories import FOLDER, FORGET_SECONDS, known_repositories, note_repository


def repositories(folder: Path, *names: str) -> list[Path]:
    found = [folder / name for name in names]
    for place in found:
        (place / ".git").mkdir(parents=True)
    return found


def test_what_was_used_last_comes_first_and_nothing_comes_twice(tmp_path: Path) -> None:
    state = tmp_path / "state"
    one, two = repositories(tmp_path, "one", "two")
    for place in (one, two, one):
        note_repository(state, place / ".git", place)
    files = sorted((state / FOLDER).iterdir())
    for number, path in enumerate(files):
        os.utime(path, (time.time() + number, time.time() + number))

    found = known_repositories(state)

    assert set(found) == {one, two} and len(files) == 2
    assert str(found[0]) in files[1].read_text()
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)


def test_a_repository_without_a_checkout_is_known_by_its_own_folder(tmp_path: Path) -> None:
    (bare,) = repositories(tmp_path, "bare.git")

    note_repository(tmp_path / "state", bare, None)

    assert known_repositories(tmp_path / "state") == [bare]


def test_what_is_gone_is_passed_over_and_after_some_weeks_forgotten(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (one,) = repositories(tmp_path, "one")
    note_repository(state, one / ".git", one)
    one.rename(tmp_path / "elsewhere")
    (file,) = (state / FOLDER).iterdir()

    assert known_repositories(state) == [] and file.exists()

    os.utime(file, (time.time() - FORGET_SECONDS - 1,) * 2)
    assert known_repositories(state) == [] and not file.exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "7", '{"path": 7}', '{"path": "relative"}', "{}", '{"path": "\\u0000"}']
)
def test_a_file_that_is_not_ours_is_passed_over(tmp_path: Path, content: str) -> None:
    state = tmp_path / "state"
    (one,) = repositories(tmp_path, "one")
    note_repository(state, one / ".git", one)
    (state / FOLDER / "zz.json").write_text(content)

    assert known_repositories(state) == [one]


def test_a_list_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("a file in the way")

    note_repository(state, tmp_path, tmp_path)

    assert known_repositories(state) == []
