"""A small history in which all is well, and a way to spoil it for each rule."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.proof.history import VALIDATION, Commit, Fact, History, Op, Stamp

FIRST, SECOND, GIVEN_UP = "one-aaaaa", "two-bbbbb", "off-ccccc"


class Story:
    """A history as it is being made, a second for each thing that happens."""

    def __init__(self) -> None:
        self.history = History()
        self.now = 0.0

    def fact(self, plan: str, event: str, /, **body: Any) -> None:
        self.now += 1
        self.history.facts.append(Fact(len(self.history.facts) + 1, self.now, plan, event, body))

    def stamp(self, kind: str, plan: str, job: str, attempt: int = 1, note: str = "-") -> None:
        self.now += 1
        self.history.stamps.append(Stamp(kind, self.now, plan, job, attempt, note))

    def asked(self, verb: str, plan: str, since: float, detail: str = "") -> None:
        self.now += 1
        self.history.ops.append(Op(1, verb, plan, since, self.now, "ok", detail))

    def submitted(self, plan: str, region: int) -> None:
        name, began = plan[:3], self.now
        jobs = [{"id": "j0"}]
        self.fact(plan, "PlanSubmitted", plan={"name": name, "jobs": jobs})
        self.history.regions[name] = region
        self.asked("submit", name, began, plan)

    def landed(self, plan: str, region: int, old: str, new: str) -> None:
        """A plan of one job, from its submission to its landing."""
        self.submitted(plan, region)
        self.fact(plan, "JobPicked", job="j0", attempt=1)
        self.fact(plan, "JobStarted", job="j0", attempt=1)
        self.stamp("start", plan, "j0")
        self.stamp("stop", plan, "j0")
        self.fact(plan, "JobSucceeded", job="j0", attempt=1, commit=f"c-{plan}")
        self.stamp("verified", plan, VALIDATION, note=new)
        self.fact(plan, "LandingIntended", landing=f"{plan}.1", branch="goal", old=old, new=new)
        self.fact(plan, "Landed", landing=f"{plan}.1", branch="goal", old=old, new=new)
        self.history.present.add(f"c-{plan}")
        self.history.commits[new] = Commit(new, (old,), f"{plan}.1")

    def given_up(self, plan: str, region: int) -> None:
        """A plan that was canceled while its job ran."""
        self.submitted(plan, region)
        self.fact(plan, "JobPicked", job="j0", attempt=1)
        self.fact(plan, "JobStarted", job="j0", attempt=1)
        self.stamp("start", plan, "j0")
        began = self.now
        self.fact(plan, "PlanCanceled")
        self.fact(plan, "JobCanceled", job="j0")
        self.asked("cancel", plan, began)


def sound() -> History:
    """Two plans that landed with a commit of the user's in between, and one that was canceled."""
    story = Story()
    history = story.history
    history.commits["base"] = Commit("base", ())
    story.landed(FIRST, 1, "base", "new-1")
    history.commits["user"] = Commit("user", ("new-1",))
    history.user_commits = [("goal", "user")]
    story.given_up(GIVEN_UP, 3)
    story.landed(SECOND, 2, "user", "new-2")
    history.tips = {"main": "base", "goal": "new-2"}
    lines = {0: "region 1: -\nregion 2: -\nregion 3: -\n"}
    lines[1] = lines[0].replace("1: -", f"1: {FIRST} j0")
    lines[2] = lines[1].replace("2: -", f"2: {SECOND} j0")
    mine = {f"jobs/{FIRST}/j0.txt": f"{FIRST} j0 1\n"}
    both = {**mine, f"jobs/{SECOND}/j0.txt": f"{SECOND} j0 1\n"}
    history.files = {
        "base": {"shared.txt": lines[0]},
        "new-1": {"shared.txt": lines[1], **mine},
        "new-2": {"shared.txt": lines[2], **both},
    }
    history.refs = ["refs/heads/main", "refs/heads/goal", f"refs/orchard/keep/{FIRST}/j0/1"]
    ends = {FIRST: "succeeded", SECOND: "succeeded", GIVEN_UP: "canceled"}
    history.rows = {plan: {"status": status} for plan, status in ends.items()}
    history.replayed = {plan: dict(row) for plan, row in history.rows.items()}
    return history


Doctor = Callable[[History], None]
DOCTORS: list[tuple[str, Doctor]] = []


def breaks(rule: Callable[..., Any]) -> Callable[[Doctor], Doctor]:
    """Say which rule has to notice what the function does to a sound history."""

    def remember(doctor: Doctor) -> Doctor:
        DOCTORS.append((rule.__name__, doctor))
        return doctor

    return remember


def find(history: History, plan: str, event: str) -> Fact:
    return next(fact for fact in history.facts if (fact.plan, fact.name) == (plan, event))


def drop(history: History, plan: str, event: str) -> None:
    """Take an event away; those after it move up, so that only its absence can be noticed."""
    history.facts.remove(find(history, plan, event))
    history.facts[:] = [replace(fact, seq=number) for number, fact in enumerate(history.facts, 1)]


def add(history: History, after: Fact, plan: str, event: str, /, **body: Any) -> None:
    """Put an event right after another."""
    place = history.facts.index(after) + 1
    history.facts.insert(place, Fact(0, after.at + 0.5, plan, event, body))
    history.facts[:] = [replace(fact, seq=number) for number, fact in enumerate(history.facts, 1)]


def change_op(history: History, verb: str, /, **changes: Any) -> None:
    place = next(number for number, op in enumerate(history.ops) if op.verb == verb)
    history.ops[place] = replace(history.ops[place], **changes)


def change_fact(history: History, plan: str, event: str, /, **body: Any) -> None:
    fact = find(history, plan, event)
    history.facts[history.facts.index(fact)] = replace(fact, body={**fact.body, **body})
