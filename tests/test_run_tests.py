"""The tool that runs the tests: in memory where there is room, with a second look at what failed beside others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "run_tests.py"
ONCE = """
from pathlib import Path
def test_fails_once():
    mark = Path(__file__).with_suffix(".mark")
    seen, _ = mark.exists(), mark.touch()
    assert seen
"""


def looked(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    argv = [sys.executable, str(TOOL), "-q", "test_it.py"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take a second to import
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_what_fails_only_beside_others_passes_and_is_named(tmp_path: Path) -> None:
    done = looked(tmp_path, ONCE)

    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("PASSED ONLY ALONE:\n  test_it.py::test_fails_once\n")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def test_a(): assert False", 1),
        ("\n".join(f"def test_{n}():\n    from pathlib import Path\n    p = Path(f'm{n}')\n"
                   "    seen, _ = p.exists(), p.touch()\n    assert seen" for n in range(9)), 1),
        ("import nowhere_at_all", 2),
        ("", 5),
    ],
    ids=["fails twice", "too many fail", "cannot be read", "no test"],
)  # fmt: skip
def test_what_is_wrong_stays_wrong(tmp_path: Path, text: str, code: int) -> None:
    assert looked(tmp_path, text).returncode == code


def test_what_passes_is_run_once(tmp_path: Path) -> None:
    done = looked(tmp_path, "def test_a(): pass")

    assert done.returncode == 0
    assert "SECOND LOOK" not in done.stdout
