"""Long answers on a terminal are shown in the user's pager, and only there."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from orchard.surfaces.cli.pager import pager_of
from orchard.testing import Repo
from tests.nursery import command

MARKS = "sed s/^/paged:/"
SECONDS = 60


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo", files={"a": "a\n"})
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: Long\njobs: [{id: a, work: 'seq 100 > a; seq 60000'}]\n")
    assert command("run", str(plan), cwd=made.path).returncode == 0
    return made


def seen(repo: Repo, *words: str, **env: str) -> tuple[int, str]:
    """What a person sees of a command, and how it ended."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "orchard", *words]
    around = {**os.environ, "TERM": "xterm", "PAGER": MARKS, **env}
    running = subprocess.Popen(argv, cwd=repo.path, env=around, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], SECONDS)[0] and (part := os.read(ours, 65536)):
            shown += part
    except OSError:  # the other end was closed
        pass
    os.close(ours)
    return running.wait(SECONDS), shown.decode(errors="replace")


@pytest.mark.parametrize("verb", [("job", "a"), ("logs", "a"), ("logs",), ("diff", "a")], ids=" ".join)
def test_a_long_answer_is_shown_in_the_pager_unless_that_is_not_wanted(repo: Repo, verb: tuple[str, ...]) -> None:
    code, shown = seen(repo, *verb)
    assert code == 0 and "paged:" in shown
    assert "paged:" not in seen(repo, *verb, "--no-pager")[1]
    assert "paged:" not in seen(repo, *verb, PAGER="cat")[1]
    assert "paged:" not in command(*verb, cwd=repo.path, env={**os.environ, "PAGER": MARKS}).stdout


def test_logs_that_are_followed_or_raw_are_not_paged(repo: Repo) -> None:
    assert "paged:" not in seen(repo, "logs", "a", "-f")[1]
    assert "paged:" not in seen(repo, "logs", "a", "--raw")[1]


def test_whoever_quits_the_pager_has_seen_enough(repo: Repo) -> None:
    code, shown = seen(repo, "logs", "a", PAGER="head -n 2")

    assert code == 0 and "Traceback" not in shown and "rror" not in shown
    assert len(shown.splitlines()) <= 3


def test_a_pager_that_is_not_there_is_done_without(repo: Repo) -> None:
    code, shown = seen(repo, "logs", "a", PAGER="no-such-pager --x")

    assert code == 0 and "60000" in shown


def test_a_diff_is_shown_in_gits_pager() -> None:
    here = {"PATH": os.environ["PATH"], "GIT_PAGER": "sed x", "PAGER": "head"}

    assert pager_of(here, of_git=lambda: "tail") == ["sed", "x"] and pager_of(here) == ["head"]
    assert pager_of({**here, "GIT_PAGER": ""}, of_git=lambda: "tail") is None
    assert pager_of({**here, "PAGER": "'unfinished"}) is None
    del here["GIT_PAGER"]
    assert pager_of(here, of_git=lambda: "tail -n 3") == ["tail", "-n", "3"]
    assert pager_of(here, of_git=lambda: None) == ["head"]


def test_the_pager_that_is_named_for_orchard_comes_first() -> None:
    here = {"PATH": os.environ["PATH"], "ORCHARD_PAGER": "tail", "GIT_PAGER": "sed x", "PAGER": "head"}

    assert pager_of(here) == pager_of(here, of_git=lambda: "cat") == ["tail"]
    assert pager_of({**here, "ORCHARD_PAGER": "cat"}) is None


def test_a_diff_is_shown_in_the_pager_of_the_users_git_settings_and_never_in_one_that_a_job_may_have_named(
    repo: Repo, tmp_path: Path
) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text("[core]\n\tpager = sed s/^/mine:/\n")
    repo("config", "core.pager", "sed s/^/theirs:/")

    shown = seen(repo, "diff", "a", GIT_CONFIG_GLOBAL=str(settings))[1]

    assert "mine:" in shown and "theirs:" not in shown and "paged:" not in shown
