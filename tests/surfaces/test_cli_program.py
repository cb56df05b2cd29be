"""The real program in real repositories: what it prints, what it changes, and how it exits."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchard.testing import Repo
from tests.nursery import command

SECONDS = 60
HEAVY = ("pydantic", "rich", "ruamel", "psutil")
EVIL = r"\033]0;owned\007\033[2Jred"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        return [json.loads(row) for row in self.out.splitlines()]


class Desk:
    """A repository, and a user's folders that are nobody else's."""

    def __init__(self, folder: Path) -> None:
        self.repo = Repo.make(folder / "repo")
        self.folder = folder
        kept = {
            name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "ORCHARD_SANDBOX") if name in os.environ
        }
        self.env = {
            **kept,
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "TERM": "xterm",
        }
        (folder / "run").mkdir(mode=0o700)

    def plan(self, text: str, name: str = "plan.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, *words: str | Path, **options: Any) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "orchard", *map(str, words)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(argv, cwd=self.repo.path, env=self.env, text=True, **pipes)

    def python(self, *words: str, cwd: Path | None = None, stdin: str = "", **env: str) -> Done:
        """Run Python as this user, in the repository or elsewhere."""
        done = subprocess.run(
            [sys.executable, *words],
            cwd=cwd or self.repo.path,
            env={**self.env, **env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def __call__(self, *words: str | Path, stdin: str = "", **env: str) -> Done:
        done = command(*words, cwd=self.repo.path, env={**self.env, **env}, stdin=stdin, seconds=SECONDS)
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def end_engine(self) -> None:
        """End an engine that was started in the background."""
        address = self.repo.path / ".git" / "orchard" / "daemon.json"
        if address.exists():
            os.kill(json.loads(address.read_text())["pid"], signal.SIGTERM)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.end_engine()


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A repository with one landed plan, for those who only look."""
    desk = Desk(tmp_path_factory.mktemp("landed"))
    done = desk("run", desk.plan(TWO_JOBS))
    assert done.code == 0, done.err
    return desk


TWO_JOBS = f"""
name: "Two [bold]jobs"
target: feature
jobs:
  - {{id: one, work: "echo 1 > one.txt; printf '{EVIL.replace(chr(92), chr(92) * 2)}\\n'"}}
  - {{id: two, group: back, needs: [one], name: "The [red]second", work: "echo 2 > two.txt"}}
"""
FAILS = """
name: Fails
target: feature
jobs:
  - {id: good, work: "echo 1 > one.txt"}
  - {id: bad, needs: [good], work: "echo about to fail; exit 7"}
  - {id: after, needs: [bad], work: "echo 3 > three.txt"}
"""
SLOW = """
name: Slow
target: feature
jobs:
  - {id: slow, work: "echo kept > kept.txt; sleep 50"}
"""


# ---------------------------------------------------------------------------------------- running


def test_a_run_prints_plain_lines_in_a_pipe_lands_and_exits_0(desk: Desk) -> None:
    done = desk("run", desk.plan(TWO_JOBS))

    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    assert "one  work  started" in done.out and "back/two  succeeded" in done.out
    assert "Landed on feature" in done.out and "2 files" in done.out
    assert set(desk.repo.files("feature")) == {"README.md", "one.txt", "two.txt"}
    assert desk.repo("status", "--porcelain") == ""


def test_a_run_in_json_is_a_line_per_event_and_the_status_document_last(desk: Desk) -> None:
    done = desk("--json", "run", "-", stdin=TWO_JOBS)

    *events, result = done.rows
    assert done.code == 0
    assert {row["type"] for row in events} == {"event"}
    assert [row["seq"] for row in events] == sorted(row["seq"] for row in events)
    assert {"PlanSubmitted", "JobSucceeded", "Landed"} <= {row["event"] for row in events}
    assert result["type"] == "result" and result["plan"]["status"] == "succeeded" and result["plan"]["landed"]
    assert [job["id"] for job in result["jobs"]] == ["one", "back/two", "__snapshot-validation__"]


def test_a_failed_run_exits_1_and_the_command_it_names_mends_it(desk: Desk) -> None:
    failed = desk("run", desk.plan(FAILS))
    (hint,) = [row.removeprefix("next: orchard ") for row in failed.out.splitlines() if row.startswith("next: ")]
    again = desk(*hint.split(), "--work", "echo 2 > two.txt")

    assert failed.code == 1
    assert "bad  failed in work" in failed.out
    assert again.code == 0, again.err
    assert "attempt 2" in again.out and "good  " not in again.out
    assert set(desk.repo.files("feature")) == {"README.md", "one.txt", "two.txt", "three.txt"}


@pytest.mark.parametrize("verb", ["run", "status"])
def test_a_failure_is_told_once_with_its_last_lines_and_one_next_step(desk: Desk, verb: str) -> None:
    failed = desk("run", desk.plan(FAILS))
    told = failed.out if verb == "run" else desk("status").out

    assert told.count("'echo about to fail; exit 7' exited with 7.") == 1, told
    assert told.count("| about to fail\n") == (1 if verb == "run" else 0)
    assert told.count("orchard retry") == 1 and told.splitlines()[-1].startswith("next: orchard retry")


def test_quiet_prints_the_plan_and_why_it_failed(desk: Desk) -> None:
    done = desk("-q", "run", desk.plan(FAILS))

    assert done.code == 1 and done.out.startswith("fails-") and len(done.out.splitlines()) == 1
    assert "bad" in done.err and "orchard retry" in done.err


def test_a_bad_plan_reports_all_its_problems_and_makes_nothing(desk: Desk) -> None:
    plan = desk.plan("name: x\njobs:\n  - {id: A B, wrok: 'true'}\n  - {id: c, needs: [d]}\n")

    done, document = desk("run", plan), desk("run", plan, "--json").json

    assert done.code == 2
    assert len([row for row in done.err.splitlines() if row.startswith("error: ")]) >= 3
    assert "'work'" in done.err
    assert len(document["error"]["problems"]) >= 3 and document["error"]["exit_code"] == 2
    assert not (desk.repo.path / ".git" / "orchard" / "journal.db").exists()


def test_a_plan_that_asks_before_landing_waits_with_4_then_lands_and_can_be_undone(desk: Desk) -> None:
    before = desk.repo.head("main")
    waits = desk("run", desk.plan(TWO_JOBS), "--land", "ask", "--target", "main")
    lands = desk("land", "--yes")
    landed = desk.repo.head("main")
    undone = desk("undo", "--json", "--yes")

    assert waits.code == 4 and "next: orchard land" in waits.out
    assert lands.code == 0, lands.err
    assert landed != before
    assert undone.code == 0 and undone.json["branch"] == "main" and undone.json["commit"] == before
    assert desk.repo.head("main") == before


def test_a_job_that_wants_approval_goes_on_when_it_is_approved(desk: Desk) -> None:
    plan = desk.plan("name: A\ntarget: t\njobs:\n  - {id: a, approve: true, work: 'echo a > a.txt'}\n")

    waits, approved = desk("run", plan), desk("approve", "a", "--yes")

    assert waits.code == 4 and "orchard approve a" in waits.out
    assert "a.txt" in approved.err, "what is approved is shown"
    assert approved.code == 0 and "a.txt" in desk.repo.files("t")


def test_a_plan_that_starts_paused_waits_for_resume(desk: Desk) -> None:
    paused, resumed = desk("run", desk.plan(TWO_JOBS), "--start-paused"), desk("resume")

    assert paused.code == 4 and "next: orchard resume" in paused.out
    assert resumed.code == 0 and "Landed on feature" in resumed.out


def test_the_plan_goes_on_when_nobody_reads_any_more(desk: Desk) -> None:
    running = desk.start("run", desk.plan(TWO_JOBS))
    assert running.stdout is not None and running.stderr is not None
    running.stdout.readline()
    running.stdout.close()

    code = running.wait(SECONDS)

    said = running.stderr.read()
    running.stderr.close()
    assert (code, said) == (0, "Orchard commits as Ada Tester <ada@example.com>.\n")
    assert "two.txt" in desk.repo.files("feature")


def test_ctrl_c_cancels_saves_the_work_and_exits_130(desk: Desk) -> None:
    running = desk.start("run", desk.plan(SLOW))
    assert running.stdout is not None
    while "slow  work  started" not in (line := running.stdout.readline()):
        assert line, running.communicate()
    while not any(path.read_text() for path in desk.repo.path.glob(".worktrees/*/kept.txt")):
        assert running.poll() is None

    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=SECONDS)
    listed = desk("recover", "--json").json
    desk("recover", listed[0]["ref"], desk.folder / "rescued")

    assert running.returncode == 130
    assert "Canceling" in err and "Traceback" not in err
    assert "Canceled after" in out
    assert (desk.folder / "rescued" / "kept.txt").read_text() == "kept\n"


def test_a_plan_in_the_background_can_be_waited_for_looked_at_and_canceled(desk: Desk) -> None:
    started = desk("run", desk.plan(SLOW), "--detach", "--json")
    plan = started.json["plan"]
    timed_out = desk("wait", plan, "--timeout", "0.2")
    watching = desk("watch", plan)
    following = desk.start("wait", plan)
    canceled = desk("cancel", plan)
    following.communicate(timeout=SECONDS)

    assert started.code == 0
    assert timed_out.code == 124 and "still running" in timed_out.err
    assert watching.code == 2
    assert canceled.code == 0, canceled.err
    assert following.returncode == 130
    assert desk("status", "--json").json["plan"]["status"] == "canceled"


# ---------------------------------------------------------------------------------------- looking


def test_the_status_document_has_the_promised_keys(landed: Desk) -> None:
    document = landed("status", "--json").json

    promised = {
        "id",
        "name",
        "status",
        "base",
        "target",
        "landed",
        "counts",
        "usage",
        "started_at",
        "ended_at",
        "error",
    }
    assert promised <= set(document["plan"])
    assert {"id", "needs", "status", "phase", "attempts", "commit", "summary"} <= set(document["jobs"][0])


def test_status_shows_what_changed_since_an_event(landed: Desk) -> None:
    document = landed("status", "--json").json
    first, last = (landed("status", "--since", str(number), "--json").json for number in (0, document["seq"]))

    assert (first["jobs"], first["plan"], first["seq"]) == (document["jobs"], document["plan"], document["seq"])
    assert (last["jobs"], last["removed"], last["since"]) == ([], [], document["seq"])
    shown = landed("status", "--since", str(document["seq"]))
    assert shown.code == 0 and "The [red]second" not in shown.out and "landed" in shown.out
    refused = landed("status", "--since", "999999")
    assert refused.code == 2 and "there was no event 999999 yet" in refused.err


def test_looking_shows_names_as_they_are_and_no_control_sequence(landed: Desk) -> None:
    shown = [landed(*words) for words in (["list"], ["status"], ["job", "two"], ["attempts", "one"], ["logs", "one"])]

    assert [one.code for one in shown] == [0] * 5
    assert "\x1b" not in "".join(one.out for one in shown)
    assert "Two [bold]jobs" in shown[0].out and "The [red]second" in shown[1].out
    assert shown[4].out == "red\n"
    assert "\x1b[2Jred" in landed("logs", "one", "--raw").out


def test_a_diff_in_a_pipe_can_be_applied(landed: Desk) -> None:
    diff = landed("diff")

    assert landed.repo.run("apply", "--check", "-", stdin=diff.out.encode()).status == 0
    assert "two.txt" in landed("diff", "back/two", "--stat").out
    assert landed("diff", "one", "--json").json["job"] == "one"


@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["list"]])
def test_looking_imports_nothing_heavy(landed: Desk, words: list[str]) -> None:
    code = f"import sys; from orchard.surfaces.cli.start import run_command_line as run; run({words!r})"
    code += f"; print('loaded', [name for name in {HEAVY!r} if name in sys.modules])"

    done = landed.python("-c", code)

    assert done.out.splitlines()[-1] == "loaded []", done.err


def test_options_stand_before_or_after_the_verb_and_name_the_repository(landed: Desk, tmp_path: Path) -> None:
    words = (["-C", str(landed.repo.path), "--json", "list"], ["list", "--json", "--repo", str(landed.repo.path)])

    found = [landed.python("-m", "orchard", *given, cwd=tmp_path) for given in words]

    assert found[0].out == found[1].out
    assert found[0].json[0]["name"] == "Two [bold]jobs"


@pytest.mark.parametrize(
    "words", [["status", "nope"], ["logs", "nope"], ["cancel", "nope"], ["logs", "one", "--attempt", "9"]]
)
def test_what_does_not_exist_is_exit_3(landed: Desk, words: list[str]) -> None:
    done = landed(*words)

    assert done.code == 3 and done.out == ""
    assert done.err.startswith("error: ")


def test_plans_and_jobs_complete_from_the_journal(landed: Desk) -> None:
    plan = landed("list", "--json").json[0]["id"]

    def completed(words: str, at: int) -> str:
        env = {"_ORCHARD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        return landed(**env).out

    assert completed("orchard status ", 2) == f"plain,{plan}\n"
    assert completed("orchard logs back/", 2) == "plain,back/two\n"
    assert completed(f"orchard -C {landed.folder} logs o", 4).strip() == ""


def test_a_plan_under_way_is_drawn_with_its_jobs(landed: Desk) -> None:
    assert "second" in landed("graph").out
    assert "digraph" in landed("graph", landed.plan(TWO_JOBS, "other.yaml"), "--format", "dot").out


# ----------------------------------------------------------------------------------------- acting


def test_purge_needs_a_yes_where_nobody_can_be_asked(desk: Desk) -> None:
    desk("run", desk.plan(TWO_JOBS))

    plan = desk("list", "--json").json[0]["id"]
    refused, purged = desk("purge", plan), desk("purge", plan, "--yes")

    assert refused.code == 4 and f"orchard purge {plan} --yes" in refused.err
    assert purged.code == 0
    assert desk("list", "--json").json == [] and desk.repo.refs() == {}


def test_a_plan_is_reshaped_before_it_starts(desk: Desk) -> None:
    desk("run", desk.plan(FAILS), "--start-paused")
    changes = '[{"op": "add", "job": {"id": "extra", "work": "echo x > x.txt"}}]'

    shaped = desk("reshape", "Fails", "-", "--remove", "bad", "--set-needs", "after=good,extra", stdin=changes)
    done = desk("resume")

    assert shaped.code == 0, shaped.err
    assert done.code == 0
    assert set(desk.repo.files("feature")) == {"README.md", "one.txt", "three.txt", "x.txt"}


def test_what_a_repository_would_run_needs_trust_first(desk: Desk) -> None:
    desk.repo.commit({"orchard.toml": 'setup = ["echo set up > /dev/null"]\n'})
    plan = desk.plan(TWO_JOBS)

    refused = desk("run", plan)
    shown = desk("trust", "--show")
    still = desk("run", plan)
    desk("trust", "--yes", desk("trust", "--show", "--json").json["digest"])
    done = desk("run", plan)

    assert refused.code == 4 and "orchard trust" in refused.err
    assert "echo set up > /dev/null" in shown.out
    assert still.code == 4
    assert done.code == 0, done.err


# --------------------------------------------------------------------------------------- terminal


def on_a_terminal(desk: Desk, *words: str | Path, keys: tuple[str, bytes] | None = None, **env: str) -> tuple[int, str]:
    """Run the program with a terminal on all three streams; keys are pressed once a text has appeared."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "orchard", *map(str, words)]
    running = subprocess.Popen(
        argv, cwd=desk.repo.path, env={**desk.env, **env}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], SECONDS)[0]:
            shown += os.read(ours, 65536)
            if keys is not None and keys[0].encode() in shown:
                os.write(ours, keys[1])
                keys = None
    except OSError:  # the other end was closed
        pass
    os.close(ours)
    return running.wait(SECONDS), shown.decode(errors="replace")


def test_colors_appear_on_a_terminal_unless_they_are_not_wanted(landed: Desk) -> None:
    assert "\x1b[32m" in on_a_terminal(landed, "status")[1]
    assert "\x1b" not in on_a_terminal(landed, "status", NO_COLOR="1")[1]
    assert "\x1b" not in on_a_terminal(landed, "status", "--no-color")[1]


def test_the_tree_moves_on_a_terminal_and_ends_with_the_summary(desk: Desk) -> None:
    code, shown = on_a_terminal(desk, "run", desk.plan(TWO_JOBS.replace("echo 2", "sleep 1; echo 2")))

    assert code == 0
    assert "running work" in shown and "back/" in shown and "[red]" in shown
    assert "Landed on" in shown


def test_a_destructive_verb_asks_and_takes_no_for_an_answer(desk: Desk) -> None:
    desk("run", desk.plan(TWO_JOBS))

    kept = on_a_terminal(desk, "delete", keys=("[y/N]", b"n\n"))
    listed = desk("list", "--json").json
    gone = on_a_terminal(desk, "delete", keys=("[y/N]", b"y\n"))

    assert kept[0] == 4 and "[y/N]" in kept[1] and len(listed) == 1
    assert gone[0] == 0 and desk("list", "--json").json == []


def test_a_person_is_asked_once_for_trust_and_shown_everything(desk: Desk) -> None:
    desk.repo.commit({"orchard.toml": 'setup = ["echo set up > /dev/null"]\n'})
    plan = desk.plan(TWO_JOBS)

    declined = on_a_terminal(desk, "run", plan, keys=("[y/N]", b"n\n"))
    agreed = on_a_terminal(desk, "run", plan, keys=("[y/N]", b"y\n"))
    again = desk("run", plan)

    assert declined[0] == 4 and "echo set up > /dev/null" in declined[1]
    assert agreed[0] == 0 and again.code == 0


def test_watching_fills_the_screen_until_q(landed: Desk) -> None:
    code, shown = on_a_terminal(landed, "watch", keys=("q quits", b"q"))

    assert code == 0
    assert "\x1b[?1049h" in shown and "\x1b[?1049l" in shown, "the alternate screen is entered and left"
    assert "succeeded" in shown
