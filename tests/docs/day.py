"""A newcomer's day: a real project, a terminal, and what is typed there."""

import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchard.testing import Repo
from tests.acceptance.program import Desk
from tests.docs.shell import Shell

STAND_IN = {
    "pyproject.toml": '[project]\nname = "small"\nversion = "1"\n',
    "src/small.py": '"""A small project."""\n\n\ndef double(number: int) -> int:\n    return 2 * number\n',
    "tests/test_small.py": "import sys\n\nsys.path.insert(0, 'src')\nimport small\n\nassert small.double(2) == 4\n",
    "README.md": "# small\n\nA project that stands in for a real one.\n",
    ".gitignore": "__pycache__/\n",
}
AGENT = 'cat > /dev/null; echo "$ORCHARD_JOB" > "by-agent-$ORCHARD_JOB.txt"; echo Done.'


class Day:
    """A project on a branch of its own, and a person who types."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell

    @property
    def top(self) -> Path:
        return self.shell.folder

    @property
    def repo(self) -> Repo:
        return self.shell.repo

    def __call__(self, command: str, code: int | None = 0, until: str | None = None) -> str:
        """Type a command on the terminal; its exit code has to be this one, unless None."""
        found, said = self.shell.run(command, until)
        assert code is None or found == code, f"`{command}` exited with {found}, not {code}:\n{said[-1500:]}"
        return said

    def data(self, command: str) -> Any:
        done = self.shell.desk(*command.split(), "--json", cwd=self.top)
        return json.loads(done.out.splitlines()[-1])

    def plan(self, jobs: str, name: str = "Day", more: str = "", file: str = "plan.yaml") -> None:
        rows = "".join(f"  - {row.strip()}\n" for row in jobs.strip().splitlines())
        self.shell.write(file, f"name: {name}\n{more}jobs:\n{rows}")

    def run(self, jobs: str, name: str = "Day", more: str = "", code: int = 0, options: str = "") -> str:
        """Write a plan and run it."""
        self.plan(jobs, name, more)
        return self(f"orchard run {options}", code)

    def has(self, said: str, *words: str) -> None:
        for word in words:
            assert word in said, f"'{word}' is not in:\n{said[-1500:]}"

    def lacks(self, said: str, *words: str) -> None:
        for word in words:
            assert word not in said, f"'{word}' is in:\n{said[-1500:]}"

    def until(self, command: str, words: str, seconds: float = 30.0) -> str:
        """Type a command again and again until it prints these words."""
        deadline = time.monotonic() + seconds
        while words not in (said := self(command, None)):
            assert time.monotonic() < deadline, f"`{command}` does not print '{words}':\n{said}"
            time.sleep(0.2)
        return said

    def agent(self) -> None:
        """An agent that writes a file."""
        self.shell.program("mine", AGENT)
        self.shell.settings('agent = "mine"\n[agents.mine]\ncommand = "mine"\n')


def projects(archives: Path | None, folder: Path) -> dict[str, Path]:
    """A repository of each archive of sources; without any, a small one that stands in for them."""
    found = sorted([*archives.glob("*.tar.gz"), *archives.glob("*.tgz")]) if archives else []
    made = {}
    for archive in found:
        name = archive.name.removesuffix(".tar.gz").removesuffix(".tgz")
        place = folder / "projects" / name
        with tarfile.open(archive) as opened:
            opened.extractall(place, filter="data")
        tops = list(place.iterdir())
        made[name] = _repository(tops[0] if len(tops) == 1 else place)
    if not made:
        place = folder / "projects" / "small"
        for path, text in STAND_IN.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text)
        made["small"] = _repository(place)
    return made


def _repository(place: Path) -> Path:
    identity = ["-c", "user.name=Ada Tester", "-c", "user.email=ada@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "As published"]):
        subprocess.run(["git", "-C", str(place), *words], check=True, capture_output=True)
    return place


@contextmanager
def a_day(project: Path, folder: Path) -> Iterator[Day]:
    """A copy of the project, on the branch `work`, for one story; everything is ended and removed afterwards."""
    folder.mkdir(parents=True)
    copy = folder / "project"
    subprocess.run(["git", "clone", "-q", str(project), str(copy)], check=True, capture_output=True)
    repo = Repo(copy)
    repo("switch", "-q", "-c", "work")
    desk = Desk(folder, repo)
    try:
        yield Day(Shell(desk))
    finally:
        desk.close()
        shutil.rmtree(folder, ignore_errors=True)
