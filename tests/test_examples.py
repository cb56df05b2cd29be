"""The examples do what their first lines say: each is run by the real program in a scratch repository."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchard.planfile.parse import parse
from orchard.testing import Repo
from tests.nursery import command

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SECONDS = 120


@dataclass(frozen=True)
class Place:
    """A scratch repository, and the program run in it by a user who has no settings."""

    repo: Repo
    env: dict[str, str]

    def orchard(self, *words: str | Path, code: int = 0) -> Any:
        """Run a command with `--json` and return its last document."""
        done = command(*words, "--json", cwd=self.repo.path, env=self.env, seconds=SECONDS)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None

    def files(self, branch: str) -> dict[str, str]:
        return self.repo.files(branch)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "ORCHARD_SANDBOX") if name in os.environ}
    env = {
        **kept,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    return Place(Repo.make(tmp_path / "repo"), env)


def run_example(place: Place, name: str, code: int = 0) -> Any:
    return place.orchard("run", ROOT / "examples" / f"{name}.yaml", code=code)


def fan_out(place: Place) -> None:
    result = run_example(place, "fan-out")

    assert result["plan"]["landed"] and result["plan"]["target"]["branch"] == "orchard/fan-out"
    assert place.files("orchard/fan-out")["fan-out/index.txt"] == "parts:\nred\ngreen\nblue\n"
    assert place.repo("rev-list", "--count", "main").strip() == "1"


def groups(place: Place) -> None:
    run_example(place, "groups")

    assert {name for name in place.files("orchard/groups") if name.startswith("groups/")} == {
        "groups/backend/schema.sql",
        "groups/backend/api.txt",
        "groups/frontend/types.txt",
        "groups/frontend/pages/home.txt",
        "groups/frontend/pages/users.txt",
    }


def checks(place: Place) -> None:
    result = run_example(place, "checks")

    by_id = {job["id"]: job for job in result["jobs"]}
    assert by_id["look"]["commit"] == by_id["write"]["commit"]
    assert place.files("orchard/checks")["checks/numbers.txt"] == "1\n2\n3\n"


def approval(place: Place) -> None:
    waiting = run_example(place, "approval", code=4)
    assert waiting["plan"]["waiting"][0]["kind"] == "approval"

    asked = place.orchard("approve", "release-notes", "--yes", code=4)
    assert asked["plan"]["waiting"][0]["kind"] == "landing"
    assert not place.repo.exists("orchard/approval")

    landed = place.orchard("land", "--yes")
    assert landed["plan"]["landed"]
    assert place.files("orchard/approval")["approval/mail.txt"].endswith("Nothing was broken.\n")


def conflict(place: Place) -> None:
    run_example(place, "conflict")

    files = place.files("orchard/conflict")
    assert files["conflict/settings.txt"] in ("colour = red\n", "colour = blue\n")
    assert files["conflict/red.txt"] == "red\n" and files["conflict/blue.txt"] == "blue\n"


def evidence(place: Place) -> None:
    run_example(place, "evidence")

    assert place.orchard("job", "count")["evidence"]["outcome"] == {"files": 1}
    assert "evidence/files.txt" in place.files("orchard/evidence")


def process(place: Place) -> None:
    run_example(place, "process")

    assert place.files("orchard/process")["process/hello.txt"] == "hello, a name with 'quotes' and $dollars\n"


def retry(place: Place) -> None:
    failed = run_example(place, "retry", code=1)
    by_id = {job["id"]: job for job in failed["jobs"]}
    assert (by_id["flaky"]["status"], by_id["flaky"]["exit_code"]) == ("failed", 7)
    assert by_id["after"]["status"] == "blocked" and "Wait a minute" in by_id["flaky"]["error"]

    passed = place.orchard("retry", "flaky")
    assert {job["id"]: job["attempts"] for job in passed["jobs"]}["steady"] == 1
    assert place.files("orchard/retry")["retry/both.txt"] == "steady\nattempt 2\n"


def review(place: Place) -> None:
    result = run_example(place, "review")

    assert not result["plan"]["landed"] and result["plan"]["result"]["branch"] == "orchard/review"
    assert int(place.repo("rev-list", "--merges", "--count", "orchard/review")) >= 1


def chain(place: Place) -> None:
    header = (ROOT / "examples" / "chain-second.yaml").read_text("utf-8")
    commands = re.findall(r"^#   (.*)$", header, re.MULTILINE)
    orchard = f"orchard() {{ '{sys.executable}' -m orchard \"$@\"; }}"
    script = "\n".join(["set -e", orchard, *commands]).replace("examples/", f"{ROOT}/examples/")
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=place.repo.path,
        env=place.env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    files = place.files("orchard-chain")
    assert (files["chain/ground.txt"], files["chain/house.txt"]) == ("ground\n", "house\n")


RUNS: dict[str, Callable[[Place], None]] = {
    "approval": approval,
    "chain-first": chain,
    "chain-second": chain,
    "checks": checks,
    "conflict": conflict,
    "evidence": evidence,
    "fan-out": fan_out,
    "groups": groups,
    "process": process,
    "retry": retry,
    "review": review,
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid_explained_and_listed(path: Path) -> None:
    plan = parse(path.read_bytes(), path.name)
    readme = (ROOT / "examples" / "README.md").read_text("utf-8")

    assert plan.jobs
    assert path.read_text("utf-8").startswith("# ")
    assert f"examples/{path.name}" in path.read_text("utf-8") and "orchard run" in path.read_text("utf-8")
    assert f"({path.name})" in readme


def test_every_example_is_run() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(RUNS)


@pytest.mark.parametrize("name", sorted({run.__name__ for run in RUNS.values()}))
def test_the_example_does_what_it_says(name: str, place: Place) -> None:
    next(run for run in RUNS.values() if run.__name__ == name)(place)

    assert place.repo("status", "--porcelain") == ""


def test_the_plan_of_the_readme_runs(place: Place) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    text = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0]
    plan = place.repo.path.parent / "plan.yaml"
    plan.write_text(text)

    result = place.orchard("run", plan)

    assert place.files(result["plan"]["target"]["branch"])["GREETING.md"] == "# Greeting\n\nhello, you\n"


def test_the_starter_that_init_writes_runs(place: Place) -> None:
    written = place.orchard("init")
    place.repo.commit(message="a plan")

    result = place.orchard("run", "plan.yaml")

    assert Path(written["file"]).name == "plan.yaml"
    assert place.files(result["plan"]["target"]["branch"])["shout.txt"] == "HELLO\n"
    place.orchard("init", code=2)
