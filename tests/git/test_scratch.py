"""Indexes of our own last for one step, also where the process that made them does not."""

import subprocess
import sys
from pathlib import Path

from orchard.git.repository import find_repository
from orchard.git.scratch import SCRATCH, private_file, sweep
from orchard.testing import Repo


def test_what_a_killed_process_has_left_is_swept_and_what_a_living_one_uses_stays(repo: Repo) -> None:
    place = find_repository(repo.path).state / SCRATCH
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with private_file(find_repository(repo.path)) as index:
        index.touch()
        for name in (f"{ended.pid}-ab", f"{ended.pid}-ab.lock", "notes"):
            (place / name).touch()
        (place / f"{ended.pid}-folder").mkdir()

        sweep(place)

        assert {one.name for one in place.iterdir()} == {index.name, "notes"}
    assert not index.exists()


def test_where_nothing_was_ever_put_nothing_is_swept(tmp_path: Path) -> None:
    sweep(tmp_path / "nowhere")

    assert list(tmp_path.iterdir()) == []
