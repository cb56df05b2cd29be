"""What holds for every file that we keep: sizes, links, locks, and no trace of the machine it was written on."""

import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-dev.lock", "requirements-web.lock")

FILE_BYTES = 200 * 1024
MODULE_LINES = 500
TEST_LINES = 600

# A path with a person's or a machine's name in it. Built from parts, so that this file passes its own test.
MACHINE_PATHS = re.compile(r"(?<![\w.$}~/-])/(?:" + "|".join(("work", "root", "home", "Users")) + r")/[\w.-]+")
# Paths that stand for any machine.
EXAMPLES = re.compile(r"/(?:home|Users)/(?:me|you|ada|user|someone|x)\b")


@cache
def kept_files() -> tuple[Path, ...]:
    """What is or would be committed; a copy without a repository has only what was packed into it."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, timeout=60, check=False
    )
    if listed.returncode != 0:
        pytest.skip("this is not a git checkout")
    names = [name for name in listed.stdout.split(b"\0") if name]
    files = [ROOT / os.fsdecode(name) for name in names]
    return tuple(path for path in files if path.is_file() and not path.is_symlink())


@cache
def texts() -> dict[str, str]:
    found = {}
    for path in kept_files():
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
    return found


def registry_hosts() -> set[str]:
    """The hosts that pip and its relatives know by themselves: they are asked, not written down here."""
    program = "from pip._internal.models.index import PyPI, TestPyPI; print(PyPI.url, TestPyPI.url)"
    asked = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    attributes = "from pip._internal.models.index import PyPI; print(PyPI.file_storage_domain)"
    stored = subprocess.run(
        [sys.executable, "-c", attributes], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    return {host for host in (*(urlsplit(url).hostname for url in asked), *stored) if host}


def test_no_file_is_large() -> None:
    large = {path.name: path.stat().st_size for path in kept_files() if path.stat().st_size > FILE_BYTES}

    assert not large


def test_no_module_is_long() -> None:
    lengths = {name: text.count("\n") for name, text in texts().items() if name.endswith(".py")}

    long = {name: lines for name, lines in lengths.items() if lines > _most_lines(name)}

    assert not long


def _most_lines(name: str) -> int:
    """Tests are lists of claims, and are read one by one."""
    return TEST_LINES if name.startswith("tests/") else MODULE_LINES


def test_no_package_registry_is_named() -> None:
    hosts = registry_hosts()
    assert len(hosts) >= 2

    naming = [(name, host) for name, text in texts().items() for host in hosts if host in text]

    assert not naming


def test_no_path_of_a_machine_is_named() -> None:
    found = [
        (name, match[0])
        for name, text in texts().items()
        for match in MACHINE_PATHS.finditer(text)
        if not EXAMPLES.match(match[0])
    ]

    assert not found


def test_the_search_for_machine_paths_finds_one() -> None:
    bad = f"see /{'home'}/alice/project and /{'root'}/.cache"

    assert len(MACHINE_PATHS.findall(bad)) == 2


MARKDOWN_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def test_every_link_to_a_local_file_resolves() -> None:
    broken = []
    for name, text in texts().items():
        if not name.endswith(".md"):
            continue
        for match in MARKDOWN_LINK.finditer(CODE.sub("", text)):
            target = (match[1] or match[2]).partition("#")[0]
            if target and not urlsplit(target).scheme and not (ROOT / name).parent.joinpath(target).exists():
                broken.append((name, target))

    assert not broken


# ------------------------------------------------------------------------------------------ locks


def pins(lock: str) -> dict[str, str]:
    """The packages of a lock file with their versions; what follows a marker is cut off."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)", (ROOT / lock).read_text("utf-8"), re.MULTILINE)
    return {name.lower().replace("_", "-").replace(".", "-"): version for name, version in found}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text("utf-8")
    entries = re.split(r"(?m)^(?=\S)", text)[1:]

    assert entries
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert all(re.match(r"[A-Za-z0-9._-]+==", entry) for entry in entries)
    assert "://" not in text
    assert "--index" not in text


def test_the_locks_agree_with_each_other() -> None:
    first, second, third = (pins(lock) for lock in LOCKS[:3])

    assert {name: third[name] for name in first} == first
    assert {name: version for name, version in second.items() if third.get(name, version) != version} == {}


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    asked = {
        "requirements.lock": project["project"]["dependencies"],
        "requirements-build.lock": project["build-system"]["requires"],
        "requirements-dev.lock": project["dependency-groups"]["dev"],
        "requirements-web.lock": project["dependency-groups"]["web"],
    }

    for lock, wanted in asked.items():
        names = {re.split(r"[<>=!~ \[;]", line)[0].lower().replace(".", "-").replace("_", "-") for line in wanted}
        assert names <= pins(lock).keys(), lock


def test_there_is_no_other_lock() -> None:
    assert not (ROOT / "uv.lock").exists()


def test_the_lock_of_the_dashboard_has_hashes_and_no_address() -> None:
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text("utf-8"))
    packages = {name: one for name, one in lock["packages"].items() if name}

    assert len(packages) > 50
    assert all(one["integrity"].startswith("sha512-") and "resolved" not in one for one in packages.values())


def test_the_dashboard_can_be_built_on_other_machines() -> None:
    """A lock that was made here could lack the programs of another kind of machine."""
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text("utf-8"))["packages"]

    for machine in ("linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"):
        assert f"node_modules/@esbuild/{machine}" in packages
        assert f"node_modules/@typescript/typescript-{machine}" in packages


@pytest.mark.parametrize("script", [".ci/run", "tools/lock.sh"])
def test_scripts_can_be_run_and_stop_at_the_first_error(script: str) -> None:
    path = ROOT / script

    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text("utf-8")
