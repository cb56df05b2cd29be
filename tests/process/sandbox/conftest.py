"""The folders of these tests are on a disk: a wall has shared memory of its own, where everyday tests have theirs."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DISK = Path("/tmp")  # noqa: S108: a folder of its own is made there


@pytest.fixture(autouse=True)
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(DISK))
    monkeypatch.setattr(tempfile, "tempdir", str(DISK))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="orchard-test-", dir=DISK)).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
