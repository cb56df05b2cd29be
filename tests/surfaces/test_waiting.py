"""`orchard waiting`: whatever needs a person is named, and the command that is named answers it."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, Done, desks

ASK = """
name: Ask first
target: main
land: ask
jobs:
  - {id: a, work: "echo a > a.txt"}
"""
APPROVE = """
name: Approve it
target: result
jobs:
  - {id: a, group: back, approve: true, work: "echo a > a.txt"}
  - {id: b, needs: [back/a], work: "echo b > b.txt"}
"""
BUDGET = """
name: Little time
target: result
budget: {minutes: 0.01}
jobs:
  - {id: a, work: "echo a > a.txt; sleep 1.5"}
  - {id: b, needs: [a], work: "echo b > b.txt"}
"""
REFUSED = """
name: In the way
target: main
jobs:
  - {id: a, work: "echo changed > README.md"}
"""


@dataclass(frozen=True)
class Case:
    """One thing that needs a person."""

    plan: str
    kind: str
    job: str | None
    verb: str
    words: tuple[str, ...] = ()
    """What a person adds to the command."""
    before: Callable[[Desk], object] = lambda desk: None
    mend: Callable[[Desk], object] = lambda desk: None
    why: str = ""


def edit(desk: Desk) -> None:
    (desk.repo.path / "README.md").write_text("the user is typing\n")


def take_back(desk: Desk) -> None:
    desk.repo("checkout", "-q", "README.md")


CASES = {
    "land: ask": Case(
        ASK, "landing", "__snapshot-validation__", "land", ("--yes",), why="waits for you to land it on 'main'"
    ),
    "approve: true": Case(APPROVE, "approval", "back/a", "approve", ("--yes",), why=""),
    "a budget": Case(BUDGET, "plan", None, "resume", ("--budget", "minutes=60"), why="The budget of 0.01 minutes"),
    "a refused landing": Case(
        REFUSED, "landing", "__snapshot-validation__", "land", ("--yes",), before=edit, mend=take_back, why="README.md"
    ),
}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def started(desk: Desk, plan: str, *, detach: bool) -> Done:
    """A plan that waits: in an engine that goes on, or after its engine has ended."""
    done = desk("run", desk.plan(plan), *(["--detach"] if detach else []))
    return desk("wait", "--json") if detach else done


@pytest.mark.parametrize("detach", [False, True], ids=["no engine", "a daemon"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_waits_is_named_and_answered_by_the_command_that_is_named(desk: Desk, case: Case, detach: bool) -> None:
    case.before(desk)
    waits = started(desk, case.plan, detach=detach)
    assert waits.code == 4, waits.talk
    engine = (desk.state / "daemon.json").exists()

    shown, document = desk("waiting"), desk("waiting", "--json")
    listed, status = desk("list", "--json").json, desk.status()
    case.mend(desk)
    (asked,) = document.json
    answered = desk(*shlex.split(asked["command"])[1:], *case.words)
    after = desk("waiting")

    assert engine is detach
    assert (shown.code, document.code) == (4, 4)
    assert (asked["kind"], asked["job"], asked["answer"]) == (case.kind, case.job, case.verb)
    assert asked["command"].startswith(f"orchard {case.verb} ") and case.why in asked["reason"]
    assert asked["command"] in shown.out and asked["plan"] in shown.out
    assert listed[-1]["status"] == status["plan"]["status"] == "waiting"
    assert status["plan"]["hint"] == asked["command"]
    assert answered.code == 0, answered.talk
    assert desk.status()["plan"]["landed"]
    assert (after.code, after.out) == (0, "Nothing waits for you.\n")


def test_everything_that_waits_is_listed_the_oldest_first(desk: Desk) -> None:
    plans = [desk("run", desk.plan(plan, "plan.yaml"), "--detach", "--json").json["plan"] for plan in (ASK, APPROVE)]
    for plan in plans:
        desk("wait", plan)

    found = desk("waiting", "--json").json
    rows = desk("waiting").out.splitlines()

    assert [one["plan"] for one in found] == plans
    assert [row for row in rows if not row.startswith(" ")] == [
        row for row in rows if any(row.startswith(plan) for plan in plans)
    ]
    assert all(one["since"] for one in found)
    assert sum("next: orchard " in row for row in rows) == 2


def test_one_plan_can_need_several_answers(desk: Desk) -> None:
    both = BUDGET.replace("- {id: a, work:", "- {id: c, approve: true, work: 'echo c > c.txt'}\n  - {id: a, work:")
    first = desk("run", desk.plan(both))

    found = {one["kind"]: one["command"] for one in desk("waiting", "--json").json}
    half = desk(*shlex.split(found["approval"])[1:], "--yes")
    left = [one["kind"] for one in desk("waiting", "--json").json]
    done = desk(*shlex.split(found["plan"])[1:], "--budget", "minutes=60")

    assert (first.code, half.code) == (4, 4)
    assert set(found) == {"approval", "plan"} and left == ["plan"]
    assert done.code == 0, done.talk


def test_where_nothing_waits_it_says_so_and_exits_0(desk: Desk) -> None:
    fresh, document, quiet = desk("waiting"), desk("waiting", "--json"), desk("waiting", "--quiet")

    assert (fresh.code, fresh.out) == (0, "Nothing waits for you.\n")
    assert (document.code, document.json) == (0, [])
    assert (quiet.code, quiet.talk) == (0, "")
    assert not desk.state.exists(), "looking leaves no trace"


def test_what_is_over_or_deleted_no_longer_waits(desk: Desk) -> None:
    desk("run", desk.plan(ASK))
    desk("cancel")
    canceled = desk("waiting")
    desk("run", desk.plan(APPROVE))
    desk("delete", "Approve it", "--yes")

    assert (canceled.code, desk("waiting").code) == (0, 0)


def test_names_of_strangers_are_shown_as_plain_text(desk: Desk) -> None:
    desk("run", desk.plan(ASK.replace("Ask first", '"Ask \\e[2J me"')))

    assert "\x1b" not in desk("waiting").out
