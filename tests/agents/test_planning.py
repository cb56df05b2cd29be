"""From a goal to a plan: what is taken for a plan, what is told about mistakes, and where the agent works."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.agents import planner as planning
from orchard.agents.permissions import Holds
from orchard.agents.planner import (
    PLAN_FILE,
    NoPlan,
    Seat,
    check_for_here,
    find_plans,
    make_plan,
    open_desk,
    plan_instructions,
)
from orchard.agents.protocol import Reason, Result, Settings, Task, Watch
from orchard.errors import InvalidInput, OrchardError
from orchard.git.repository import find_repository
from orchard.model import limits
from orchard.model.plan import Plan
from orchard.planfile.parse import parse
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.agents.conftest import Ear

pytestmark = pytest.mark.anyio

GOOD = "name: Good\njobs:\n  - id: one\n    work: echo 1 > one.txt\n"
BAD = "name: Bad\njobs:\n  - id: One\n    needs: [tow]\n    works: true\n"
INNER = """\
name: With code
jobs:
  - id: one
    work:
      instructions: |
        Write this:

        ```yaml
        jobs: [nothing]
        ```
        and stop.
"""


def fenced(text: str, fence: str = "```", language: str = "yaml") -> str:
    return f"{fence}{language}\n{text}{fence}\n"


def check(content: bytes) -> Plan:
    return parse(content, "plan.yaml")


class Asked:
    """Answers one after the other, and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.prompts = list(answers), list[str]()

    async def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self.answers[min(len(self.prompts), len(self.answers)) - 1]


@pytest.mark.parametrize(
    "answer",
    [
        fenced(GOOD),
        f"Here is the plan.\n\n{fenced(GOOD)}\nIt has one job.",
        fenced(GOOD, language=""),
        fenced(GOOD, "~~~~"),
        fenced(GOOD, "`````", "yml"),
        fenced(GOOD).removesuffix("```\n"),
        GOOD,
        f"The plan is:\n\n{GOOD}",
        fenced('{"name": "Good", "jobs": [{"id": "one", "work": "echo 1 > one.txt"}]}\n', language="json"),
        fenced("x = 1\n", language="python") + fenced(GOOD),
        fenced(BAD) + "No, better:\n" + fenced(GOOD),
        fenced(GOOD) + "To run it:\n" + fenced("orchard run plan.yaml\n", language="sh"),
        "1. First\n\n   " + fenced(GOOD).replace("\n", "\n   "),
        fenced(GOOD).replace("\n", "\r\n"),
    ],
    ids=range(14),
)
async def test_a_plan_is_found_however_it_is_wrapped(answer: str) -> None:
    planned = await make_plan("Make one", Asked(answer), check)

    assert planned.plan.name == "Good" and planned.plan.in_order[0] == "one"
    assert parse(planned.text.encode(), "saved.yaml").jobs == planned.plan.jobs
    assert planned.repaired == ()


async def test_blocks_inside_of_a_plan_do_not_end_it() -> None:
    planned = await make_plan("Make one", Asked(f"Look:\n{fenced(INNER)}\nDone."), check)

    assert planned.text == INNER


async def test_the_agent_is_told_the_goal_the_guide_and_what_not_to_do() -> None:
    ask = Asked(fenced(GOOD))

    await make_plan("Make the\n`thing` work", ask, check)

    (prompt,) = ask.prompts
    assert "## The goal\n\nMake the\n`thing` work\n" in prompt
    assert "change nothing in it" in prompt and PLAN_FILE in prompt
    assert "# How to plan" in prompt and "`changes` (" in prompt


async def test_an_agent_that_was_wrong_is_told_everything_and_asked_again() -> None:
    ask = Asked(fenced(BAD), "I would rather not.", fenced(GOOD))

    planned = await make_plan("Make one", ask, check)

    assert planned.plan.name == "Good" and len(planned.repaired) == 2
    for part in ("plan.yaml:3:", "'One'", "'tow'", "'works'"):
        assert part in ask.prompts[1]
        assert any(part in problem for problem in planned.repaired[0])
    assert "there is no plan in the answer" in ask.prompts[2]
    assert "How to plan" not in ask.prompts[1]


async def test_after_three_repairs_all_that_was_wrong_is_told_to_the_user() -> None:
    ask = Asked(fenced(BAD), "no", fenced("name: Two\njobs: []\n"), fenced("name: [\njobs:\n"), fenced(GOOD))

    with pytest.raises(NoPlan) as caught:
        await make_plan("Make one", ask, check)

    assert len(ask.prompts) == 4
    rows = caught.value.message.split("\n")
    assert "in 4 answers" in rows[0]
    assert [any(row.startswith(f"answer {number}: ") for row in rows) for number in (1, 2, 3, 4)] == [True] * 4
    assert caught.value.hint


async def test_a_flood_of_problems_is_cut() -> None:
    jobs = "".join(f"  - id: J{number}\n    x{number}: 1\n" for number in range(500))
    ask = Asked(fenced(f"name: Many\njobs:\n{jobs}"), fenced(GOOD))

    planned = await make_plan("Make one", ask, check)

    assert len(planned.repaired[0]) == planning.PROBLEMS + 1
    assert len(ask.prompts[1]) < 25_000


@given(st.text(alphabet=st.sampled_from('`~ \n\tjobs:{"y-\x1b\x00'), max_size=200))
def test_any_answer_is_looked_through_without_harm(answer: str) -> None:
    for text in find_plans(answer):
        assert len(text) <= len(answer) + 1


def test_a_hostile_answer_takes_no_time() -> None:
    long = limits.PLAN_BYTES
    for answer in (
        "`" * 3_000_000,
        "```\n" * 500_000,
        " " * 3_000_000 + "jobs:",
        "{," * 1_000_000,
        "~~~" + "x" * 10**6,
        "~~~" + " " * long + "`\n",
        "```" + " " * (long // 2) + "x" * (long // 2) + "`\n",
        " " * (long // 2) + "```\n" + " " * (long // 2 - 1) + "```",
        " " * 2000 + "```\n" + (" " * 1999 + "```\n") * (long // 2003),
        " " * 100_000 + "~~~\n" + "jobs:\n" * (long // 8),
        "~" * (long // 2) + "\n" + "~" * (long // 2 - 1),
        "~~~\n" + "~~~ x\n" * (long // 6),
        "{" + "\n" * long,
        ("{" + "\n" * 1000) * (long // 1000),
    ):
        begun = time.monotonic()
        assert len(find_plans(answer)) <= planning.CANDIDATES
        assert time.monotonic() - begun < 3, answer[:20]


@pytest.mark.parametrize(
    ("answer", "blocks"),
    [
        ("```yaml\njobs:\n```\n", ["jobs:\n"]),
        ("~~~~ some words\njobs:\n~~~\n~~~~~ \t\n", ["jobs:\n~~~\n"]),
        ("~~~ `x`\njobs:\n", ["~~~ `x`\njobs:\n"]),
        ("``` a`b\njobs:\n", ["``` a`b\njobs:\n"]),
        ("```\njobs:\n~~~\n``` more\n```\n", ["jobs:\n~~~\n``` more\n"]),
        (" \t```\n \tjobs:\n  ```\n```\n \t```\n", ["jobs:\n  ```\n```\n"]),
        ("``\njobs:\n``\n", ["``\njobs:\n``\n"]),
        ("```\njobs:\n", ["jobs:\n"]),
    ],
)
def test_a_block_ends_at_a_fence_like_the_one_that_opened_it(answer: str, blocks: list[str]) -> None:
    assert find_plans(answer) == blocks


def test_a_plan_that_cannot_run_here_is_refused() -> None:
    text = """\
name: Elsewhere
verify: "@codex Look at all of it"
jobs:
  - {id: a, work: "@claud Do it"}
  - {id: b, work: {instructions_file: tasks/b.md}, postchecks: "@builtin Look"}
  - {id: c, work: "@acp Do it"}
  - {id: d, work: "@agent Do it"}
"""
    with pytest.raises(InvalidInput) as caught:
        check_for_here(check(text.encode()), ["builtin", "codex"])

    told = [str(problem) for problem in caught.value.problems]
    assert len(told) == 3
    assert "job 'a'" in told[0] and "`claud`" in told[0] and "builtin, codex" in told[0]
    assert "job 'b'" in told[1] and "instructions" in told[1]


# ------------------------------------------------------------------------------------ the desk


class Scripted:
    """An agent that does what a function says, and remembers its tasks."""

    name = "scripted"
    variables = ()
    takes_servers, is_within = True, False
    holds: Holds = "calls"

    def __init__(self, *turns: Callable[[Task], Result]) -> None:
        self.turns, self.tasks = turns, list[Task]()

    async def run(self, task: Task, watch: Watch) -> Result:
        self.tasks.append(task)
        return self.turns[min(len(self.tasks), len(self.turns)) - 1](task)


def says(text: str, session: str | None = None) -> Callable[[Task], Result]:
    return lambda task: Result("done", text=text, session=session)


def fails(reason: Reason, session: str | None = None) -> Callable[[Task], Result]:
    return lambda task: Result(reason, "It did not work.", session=session, retry_after=0.01)


def writes(content: str) -> Callable[[Task], Result]:
    def turn(task: Task) -> Result:
        (task.folder / PLAN_FILE).write_text(content)
        return Result("done", text="I wrote the file.")

    return turn


async def planned(repo: Repo, agent: Scripted, ear: Ear) -> str:
    seat = Seat(agent, {"PATH": os.environ["PATH"]}, Settings(model="m"))
    async with open_desk(find_repository(repo.path), seat, ear.watch) as desk:
        return (await make_plan("Make one", desk.ask, check)).text


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo", files={"src/a.py": "a = 1\n", "run.sh": "#!/bin/sh\n"})
    made.write({"src/a.py": "edited\n", "draft.txt": "mine\n"})
    return made


async def test_the_agent_works_on_a_copy_that_is_gone_afterwards(repo: Repo, ear: Ear) -> None:
    seen: dict[str, str] = {}

    def vandal(task: Task) -> Result:
        seen.update({path.name: path.read_text() for path in task.folder.rglob("*") if path.is_file()})
        (task.folder / "src" / "a.py").write_text("vandalised")
        (task.folder / "new.txt").write_text("new")
        return Result("done", text=fenced(GOOD))

    agent = Scripted(vandal)
    await planned(repo, agent, ear)

    assert seen == {"a.py": "a = 1\n", "run.sh": "#!/bin/sh\n"}
    assert repo("status", "--porcelain") == " M src/a.py\n?? draft.txt\n"
    assert (repo.path / "src" / "a.py").read_text() == "edited\n"
    (task,) = agent.tasks
    assert not task.folder.exists() and not task.private.exists()
    assert task.settings.model == "m" and repo.path not in task.folder.parents
    assert repo("worktree", "list").count("\n") == 1


async def test_a_repository_without_commits_can_be_planned_for(tmp_path: Path, ear: Ear) -> None:
    repo = Repo(tmp_path)
    repo("init", "-q")

    assert await planned(repo, Scripted(says(fenced(GOOD))), ear) == GOOD


async def test_a_branch_without_commits_can_be_planned_for(repo: Repo, ear: Ear) -> None:
    repo("checkout", "-q", "--orphan", "new")

    assert await planned(repo, Scripted(says(fenced(GOOD))), ear) == GOOD


async def test_a_plan_may_be_written_to_a_file(repo: Repo, ear: Ear) -> None:
    assert (await planned(repo, Scripted(writes(INNER)), ear)).strip() == INNER.strip()


async def test_a_file_of_before_is_not_taken_for_an_answer(repo: Repo, ear: Ear) -> None:
    repo.commit({PLAN_FILE: GOOD})

    with pytest.raises(NoPlan):
        await planned(repo, Scripted(says("No.")), ear)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
async def test_what_is_no_plain_file_is_not_followed(kind: str, repo: Repo, ear: Ear, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(GOOD.replace("Good", "Stolen"))

    def tricks(task: Task) -> Result:
        place = task.folder / PLAN_FILE
        if kind == "link":
            place.symlink_to(tmp_path / "secret.yaml")
        elif kind == "pipe":
            os.mkfifo(place)
        else:
            place.mkdir()
        return Result("done", text=fenced(GOOD))

    assert await planned(repo, Scripted(tricks), ear) == GOOD


async def test_a_session_goes_on_and_hears_only_what_is_wrong(repo: Repo, ear: Ear) -> None:
    agent = Scripted(says(fenced(BAD), "s1"), says(fenced(GOOD), "s1"))

    await planned(repo, agent, ear)

    first, second = agent.tasks
    assert first.session is None and first.instructions == plan_instructions("Make one")
    assert second.session == "s1" and "How to plan" not in second.instructions and "'tow'" in second.instructions


async def test_an_agent_without_sessions_is_told_everything_again(repo: Repo, ear: Ear) -> None:
    agent = Scripted(says(fenced(BAD)), says(fenced(GOOD)))

    await planned(repo, agent, ear)

    told = agent.tasks[1].instructions
    assert told.startswith(plan_instructions("Make one")) and "'tow'" in told and "needs: [tow]" in told


async def test_a_lost_session_is_begun_again_with_everything(repo: Repo, ear: Ear) -> None:
    agent = Scripted(says(fenced(BAD), "s1"), fails("session-lost"), says(fenced(GOOD), "s2"))

    await planned(repo, agent, ear)

    assert [task.session for task in agent.tasks] == [None, "s1", None]
    assert agent.tasks[2].instructions.startswith(plan_instructions("Make one"))


async def test_what_may_pass_is_tried_again_and_then_told(repo: Repo, ear: Ear) -> None:
    await planned(repo, Scripted(fails("overloaded"), fails("network", "s1"), says(fenced(GOOD), "s1")), ear)

    stubborn = Scripted(fails("rate-limit"))
    with pytest.raises(OrchardError, match=r"rate-limit.*It did not work"):
        await planned(repo, stubborn, ear)
    assert len(stubborn.tasks) == planning.PATIENCE


async def test_an_agent_that_cannot_is_not_asked_again(repo: Repo, ear: Ear) -> None:
    agent = Scripted(fails("not-logged-in"))

    with pytest.raises(OrchardError, match="'scripted' gave no plan") as caught:
        await planned(repo, agent, ear)

    assert len(agent.tasks) == 1 and "orchard agents" in in_commands(caught.value.hint or "")
