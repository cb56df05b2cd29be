"""Places inside places: whatever is nested in whatever, the deepest one decides, and no renaming changes that.

Random policies over a small tree of folders are built with the real program; the oracle is `Policy.access`.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchard.process.sandbox.bwrap import bwrap_program
from orchard.process.sandbox.ground import make_placeholders, remove_placeholders
from orchard.process.sandbox.policy import Access, Policy
from tests.process.sandbox.walled import ORDINARY, walled

pytestmark = pytest.mark.skipif(bwrap_program() is None, reason="bubblewrap is not installed")

NAMES = ("a", "b")
FOLDERS = ["/".join(names) for depth in range(4) for names in product(NAMES, repeat=depth)]
FILES = [f"{folder}/f".lstrip("/") for folder in FOLDERS]
ABSENT = [f"{folder}/new/deep".lstrip("/") for folder in FOLDERS[:7]]
ACCESSES: tuple[Access, ...] = ("hidden", "exposed", "writable", "protected")

# Reads and opens every file; then moves every folder it can, and puts its own in the place.
PROBE = r"""
import json, os, sys
top, files, folders = sys.argv[1], *map(json.loads, sys.argv[2:])
os.chdir(top)
seen = {}
for name in files:
    try:
        with open(name) as file: can = 'r' if file.read() == name else '-'
    except OSError: can = '-'
    try: open(name, 'r+').close(); can += 'w'
    except OSError: can += '-'
    seen[name] = can
for name in sorted(folders, key=len):
    try: os.rename(name, name + '.moved')
    except OSError: pass
for name in files:
    try: os.makedirs(os.path.dirname(name), exist_ok=True)
    except OSError: pass
    gone = name + '.gone'
    for deed in (lambda: os.unlink(name), lambda: os.rename(name, gone), lambda: open(name, 'w').write('taken')):
        try: deed()
        except OSError: pass
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def ground() -> Iterator[Path]:
    """Not in the folder of pytest: that one is closed to the other user."""
    folder = Path(tempfile.mkdtemp(prefix="nesting-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def plant(top: Path, user: int | None) -> None:
    shutil.rmtree(top, ignore_errors=True)
    for folder in FOLDERS:
        (top / folder).mkdir(exist_ok=True)
    for file in FILES:
        (top / file).write_text(file)
    if user is not None:
        for path in (top, *top.rglob("*")):
            os.chown(path, user, user)


def policy_of(top: Path, marks: Mapping[str, Access]) -> Policy:
    places: dict[Access, list[Path]] = {access: [] for access in ACCESSES}
    for name, access in marks.items():
        places[access].append(top / name)
    return Policy(
        home=top,
        temporary=top,
        hidden=tuple(places["hidden"]),
        exposed=tuple(places["exposed"]),
        writable=tuple(places["writable"]),
        protected=tuple(places["protected"]),
        network="off",
    )


def probe(policy: Policy, top: Path, user: int | None) -> dict[str, str]:
    argv = ("/usr/bin/python3", "-ISc", PROBE, str(top), json.dumps(FILES), json.dumps(FOLDERS[1:]))
    done = walled(policy, argv, Path("/"), user=user)
    assert done.returncode == 0, done.stderr
    seen: dict[str, str] = json.loads(done.stdout)
    return seen


WORDS: Mapping[Access, str] = {"hidden": "--", "exposed": "r-", "writable": "rw", "protected": "r-"}


@settings(
    max_examples=int(os.environ.get("ORCHARD_NESTINGS", "15")), deadline=None, database=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    marks=st.dictionaries(st.sampled_from(FOLDERS[1:] + FILES), st.sampled_from(ACCESSES), max_size=10),
    outermost=st.sampled_from(ACCESSES),
    absent=st.sets(st.sampled_from(ABSENT), max_size=2),
    ordinary=st.booleans(),
)
@example({"a/a/f": "protected"}, "writable", {"new/deep"}, True)
@example({"a": "writable", "a/a": "protected"}, "writable", set(), False)
@example({"a": "hidden", "a/a": "exposed", "a/a/a": "writable", "a/a/a/f": "protected"}, "writable", set(), False)
@example({"a": "hidden", "a/a": "exposed", "a/a/a": "writable", "a/a/a/a": "hidden"}, "exposed", {"a/new/deep"}, True)
def test_the_deepest_place_decides_and_nothing_is_moved_or_left(
    ground: Path, marks: dict[str, Access], outermost: Access, absent: set[str], ordinary: bool
) -> None:
    user = ORDINARY if ordinary and os.geteuid() == 0 else None
    top = ground / "top"
    plant(top, user)
    policy = policy_of(top, {"": outermost, **marks, **dict.fromkeys(absent, "protected")})
    made = make_placeholders(policy)

    seen = probe(policy, top, user)

    assert seen == {file: WORDS[policy.access(top / file)] for file in FILES}
    kept = [file for file in FILES if not policy.may_write(top / file)]
    assert [file for file in kept if (top / file).read_text() != file] == []
    assert not [name for name in absent if (top / name).is_file()]
    remove_placeholders(made)
    assert not [path for path in made if path.exists()]


def test_a_folder_above_a_protected_file_cannot_be_replaced(ground: Path) -> None:
    top = ground / "replaced"
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/f").write_text("mine")
    policy = policy_of(top, {"": "writable", "a/b/f": "protected"})

    done = walled(
        policy, ("/bin/sh", "-c", "mv a x; mv a/b a/y; mv a/b/f a/b/g; echo no > a/b/f; echo ok > a/b/h"), top
    )

    assert done.stderr.count("busy") == 3
    assert {path.name for path in top.rglob("*")} == {"a", "b", "f", "h"}
    assert (top / "a/b/f").read_text() == "mine"


def test_git_sees_nothing_of_a_placeholder(ground: Path) -> None:
    top = ground / "seen"
    top.mkdir()
    subprocess.run(("git", "init", "-q", str(top)), check=True)
    policy = policy_of(top, {"": "writable", ".claude": "protected", ".github/workflows": "protected"})

    made = make_placeholders(policy)

    status = walled(policy, ("git", "status", "--porcelain", "-uall"), top)
    assert (status.returncode, status.stdout, len(made)) == (0, "", 3)
    tried = walled(policy, ("/bin/sh", "-c", "touch .claude/x .github/workflows/x; rmdir .claude; mv .github y"), top)
    assert [line.rsplit(": ", 1)[1] for line in tried.stderr.splitlines()] == [
        "Read-only file system",
        "Read-only file system",
        "Device or resource busy",
        "Device or resource busy",
    ]
