"""Copies of an index, which a job may have replaced by anything."""

import os
from pathlib import Path

import pytest

from orchard.git.scratch import copy_index


def test_an_index_is_copied_with_its_times(tmp_path: Path) -> None:
    index, copy = tmp_path / "index", tmp_path / "copy"
    index.write_bytes(b"DIRC" * 100)
    os.utime(index, ns=(1_000_000_001, 2_000_000_002))

    assert copy_index(index, copy)

    assert copy.read_bytes() == index.read_bytes() and copy.stat().st_mtime_ns == 2_000_000_002


@pytest.mark.parametrize("kind", ["missing", "link", "device", "pipe", "folder", "hollow"])
def test_what_is_no_index_is_not_copied(tmp_path: Path, kind: str) -> None:
    index, copy = tmp_path / "index", tmp_path / "copy"
    if kind == "link":
        (tmp_path / "other").write_bytes(b"secret")
        index.symlink_to(tmp_path / "other")
    elif kind == "device":
        index.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(index)
    elif kind == "folder":
        index.mkdir()
    elif kind == "hollow":
        with index.open("wb") as file:
            file.truncate(4 << 30)

    assert not copy_index(index, copy)

    assert not copy.exists()
