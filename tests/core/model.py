"""The rules of a plan's life, written again in the plainest way: an oracle for `core`.

Nothing of the code under test is used here. Jobs are looked up by walking the whole graph, queues are
sorted lists, and everything that can be computed is computed from scratch, each time it is asked for.
"""

from collections import Counter
from copy import copy
from dataclasses import dataclass, field

VALIDATION = "__snapshot-validation__"
PHASES = ("merge-fi", "setup", "prechecks", "work", "commit", "postchecks", "merge-ri")
PROGRAMS = ("setup", "prechecks", "work", "postchecks")
UNDER_WAY = ("scheduled", "running")


class NotAllowed(Exception):
    """What the rules of a plan's life forbid."""


@dataclass(slots=True)
class Try:
    """An attempt at a job."""

    number: int
    first: str
    outcome: str = "running"
    reason: str | None = None
    resumed: str | None = None
    """Where it began when it was started again."""
    at: str | None = None
    """The phase it entered last, since it was started last."""
    result: str | None = None
    """How that phase ended, if it did."""
    idle: bool = False
    """Whether its agent waits for a message, since it entered that phase."""

    @property
    def phase(self) -> str | None:
        return self.at if self.result is None else None

    @property
    def where(self) -> str:
        """Where it goes on after a crash: at what has not passed, never before the phase it began at."""
        if self.at in (None, "merge-fi"):
            return self.resumed or self.first
        assert self.at is not None
        return PHASES[min(PHASES.index(self.at) + 1, 6)] if self.result == "passed" else self.at

    @property
    def next(self) -> str:
        """The phase it enters now: gathering comes first, whatever else is skipped."""
        if self.at is None:
            return "merge-fi"
        first = PHASES.index(self.resumed or self.first)
        return PHASES[max(first, PHASES.index(self.at) + 1)]


@dataclass(slots=True)
class Task:
    """A job as the model knows it."""

    id: str
    needs: list[str]
    work: str | None = None
    group: str | None = None
    priority: int = 0
    approve: bool = False
    again: bool = False
    """Whether it says `retry_on_interrupt`."""
    given: str | None = None
    """The work that a retry gave it."""
    state: str = "pending"
    tries: list[Try] = field(default_factory=list)
    commit: str | None = None
    hold: str | None = None
    released: str | None = None
    goes_on: bool = False
    fresh: bool = False
    resume: str | None = None
    deployed: bool = False

    @property
    def does(self) -> str | None:
        return self.given or self.work

    @property
    def began(self) -> bool:
        return self.state != "pending" or bool(self.tries)

    @property
    def number(self) -> int:
        """The number of the attempt under way, or of the next one."""
        if self.state == "running" or self.goes_on:
            return self.tries[-1].number
        return len(self.tries) + 1

    def twin(self) -> "Task":
        other = copy(self)
        other.needs, other.tries = list(self.needs), [copy(one) for one in self.tries]
        return other


@dataclass(slots=True)
class Work:
    """A plan under way, as the model knows it; what happens to it are the methods below."""

    id: str
    limit: int | None
    tasks: dict[str, Task]
    scaffolding: bool = False
    started: bool = False
    paused: str | None = None
    """`paused`, or `waiting` when a person is needed."""
    canceled: bool = False
    deleted: bool = False
    merged: list[str] = field(default_factory=list)
    intent: str | None = None
    landed: str | None = None
    undone: bool = False
    seconds: float = 0.0
    last: float = 0.0
    alive: float = 0.0
    """When an engine was last known to work on it."""
    manual: bool = False
    """Whether its jobs have to be deployed."""

    def twin(self) -> "Work":
        other = copy(self)
        other.tasks = {name: task.twin() for name, task in self.tasks.items()}
        other.merged = list(self.merged)
        return other

    # ------------------------------------------------------------------------------------ asking

    def after(self, name: str) -> list[str]:
        return [task.id for task in self.tasks.values() if name in task.needs]

    @property
    def statuses(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self.tasks:
            self._find_status(name, found)
        return {name: found[name] for name in self.tasks}

    def _find_status(self, name: str, found: dict[str, str]) -> str:
        task = self.tasks[name]
        if name not in found:
            below = [self._find_status(need, found) for need in task.needs]
            if task.state != "pending":
                found[name] = task.state
            elif any(status in ("failed", "canceled", "blocked") for status in below):
                found[name] = "blocked"
            elif all(status == "succeeded" for status in below) and task.hold is None and not self.waits(task):
                found[name] = "ready"
            else:
                found[name] = "pending"
        return found[name]

    def waits(self, task: Task) -> bool:
        """Whether somebody has to deploy it first."""
        return self.manual and task.id != VALIDATION and not task.deployed

    @property
    def active(self) -> list[str]:
        return [task.id for task in self.tasks.values() if task.state in UNDER_WAY]

    @property
    def plan_status(self) -> str:
        statuses = self.statuses
        seen = Counter(statuses.values())
        active, holds = bool(self.active), any(task.hold for task in self.tasks.values())
        holds = holds or any(self.waits(task) and statuses[task.id] == "pending" for task in self.tasks.values())
        if self.canceled and self.landed is None:  # a landing stands, whatever was canceled meanwhile
            return "running" if active else "canceled"
        if self.scaffolding:
            return "scaffolding"
        if self.tasks[VALIDATION].state == "succeeded":
            return "succeeded"
        if self.paused and (active or seen["ready"] or holds or not self.started):
            return self.paused
        if not self.started:
            return "pending"
        if active or seen["ready"]:
            return "running"
        if holds:
            return "waiting"
        return "failed" if seen["failed"] else "canceled"

    @property
    def may_start(self) -> bool:
        return self.started and not (self.scaffolding or self.paused or self.canceled or self.deleted)

    def path(self, name: str) -> int:
        return 1 + max((self.path(other) for other in self.after(name)), default=0)

    def queue(self) -> list[str]:
        """The ready jobs, best first."""
        places, statuses = list(self.tasks), self.statuses

        def rank(name: str) -> tuple[int, int, int, int]:
            return -self.tasks[name].priority, -self.path(name), -len(self.after(name)), places.index(name)

        return sorted((name for name in places if statuses[name] == "ready"), key=rank)

    def room(self, default: int) -> int:
        limit = default if self.limit is None else self.limit
        used = sum(self.tasks[name].does is not None for name in self.active)
        return limit - used if limit else 1000

    @property
    def groups(self) -> dict[str, str]:
        paths = {task.group for task in self.tasks.values() if task.group}
        for path in list(paths):
            while "/" in path:
                path = path.rpartition("/")[0]
                paths.add(path)
        statuses = self.statuses
        return {path: self._group(path, paths, statuses) for path in paths}

    def _group(self, path: str, paths: set[str], statuses: dict[str, str]) -> str:
        inner = [one for one in paths if one.rpartition("/")[0] == path]
        shown = [statuses[task.id] for task in self.tasks.values() if task.group == path]
        shown += [self._group(one, paths, statuses) for one in inner]
        if "running" in shown or "scheduled" in shown:
            return "running"
        for status in ("failed", "blocked"):
            if status in shown:
                return status
        if all(status == "succeeded" for status in shown):
            return "succeeded"
        return "canceled" if "canceled" in shown else "pending"

    # ------------------------------------------------------------------------------- what happens

    def _leave(self, name: str, *states: str) -> Task:
        task = self.tasks[name]
        if task.state not in states:
            raise NotAllowed(f"{name} is {task.state}")
        return task

    def pick(self, name: str) -> None:
        self._leave(name, "pending").state = "scheduled"

    def start(self, name: str, number: int, first: str) -> None:
        task = self._leave(name, "scheduled")
        if task.goes_on:
            attempt = task.tries[-1]
            attempt.outcome, attempt.resumed, attempt.at, attempt.result = "running", first, None, None
        else:
            task.tries.append(Try(number, first))
        task.state, task.goes_on, task.fresh, task.resume = "running", False, False, None

    def enter(self, name: str, phase: str) -> None:
        attempt = self.tasks[name].tries[-1]
        attempt.at, attempt.result, attempt.idle = phase, None, False

    def leave(self, name: str, result: str) -> None:
        self.tasks[name].tries[-1].result = result

    def _stop(self, task: Task, outcome: str) -> None:
        if task.state == "running":
            attempt = task.tries[-1]
            attempt.outcome, attempt.result = outcome, attempt.result or outcome

    def succeed(self, name: str, commit: str) -> None:
        task = self._leave(name, "running")
        self._stop(task, "succeeded")
        task.state, task.commit = "succeeded", commit

    def fail(self, name: str, number: int, phase: str | None, reason: str, resume: str | None = None) -> None:
        task = self._leave(name, "pending", "scheduled", "running")
        if task.state != "running" and not task.goes_on:
            task.tries.append(Try(number, phase or "merge-fi"))
        self._stop(task, "failed")
        task.tries[-1].outcome, task.tries[-1].reason = "failed", reason
        task.state, task.hold, task.goes_on, task.resume = "failed", None, False, resume or phase

    def cancel(self, name: str, phase: str | None) -> None:
        task = self._leave(name, "pending", "scheduled", "running")
        self._stop(task, "canceled")
        task.state, task.hold, task.goes_on, task.resume = "canceled", None, False, phase

    def held(self, name: str, kind: str, resume: str) -> None:
        task = self._leave(name, "running")
        self._stop(task, "held")
        task.state, task.hold, task.goes_on, task.resume = "pending", kind, True, resume

    def release(self, name: str) -> None:
        task = self.tasks[name]
        task.released, task.hold = task.hold, None

    def carry_on(self, name: str, resume: str) -> None:
        task = self._leave(name, "scheduled", "running")
        task.goes_on = task.goes_on or task.state == "running"
        self._stop(task, "interrupted")
        task.state, task.resume = "pending", resume

    def retry(self, name: str, first: str | None, fresh: bool, work: str | None) -> None:
        task = self._leave(name, "failed", "canceled")
        task.state, task.commit, task.released = "pending", None, None
        task.goes_on, task.fresh, task.resume = False, fresh, first or task.resume
        task.given = work or task.given
        self.canceled = False

    def merge_leaf(self, name: str) -> None:
        if name not in self.merged:
            self.merged.append(name)

    def land(self) -> None:
        self.landed, self.intent, self.undone = self.intent, None, False

    def take(self, tasks: dict[str, Task]) -> None:
        """Go on with another graph; what was to land is not what will."""
        self.tasks = tasks
        last = tasks[VALIDATION]
        last.hold = last.released = last.resume = None
        last.goes_on = False


@dataclass(slots=True)
class Model:
    """Every plan of a user, and who has waited longest."""

    slots: int
    default: int
    works: dict[str, Work] = field(default_factory=dict)
    stamps: dict[str, int] = field(default_factory=dict)
    clock: int = 0

    def twin(self) -> "Model":
        works = {name: work.twin() for name, work in self.works.items()}
        return Model(self.slots, self.default, works, dict(self.stamps), self.clock)

    def stamp(self, plan: str) -> None:
        self.clock += 1
        self.stamps[plan] = self.clock

    @property
    def free(self) -> int:
        works = self.works.values()
        return self.slots - sum(work.tasks[name].does is not None for work in works for name in work.active)

    def choose(self) -> list[tuple[str, str, bool]]:
        """What is to start now: (plan, job, takes a slot), in order."""
        waiting = {plan: work.queue() for plan, work in self.works.items() if work.may_start}
        order = sorted(waiting, key=lambda plan: self.stamps[plan])
        chosen = [(plan, job, False) for plan in order for job in waiting[plan] if not self.works[plan].tasks[job].does]
        wanting = {plan: [job for job in waiting[plan] if self.works[plan].tasks[job].does] for plan in order}
        wanting = {plan: jobs[: max(0, self.works[plan].room(self.default))] for plan, jobs in wanting.items()}
        rounds = [(plan, jobs[turn], True) for turn in range(20) for plan, jobs in wanting.items() if turn < len(jobs)]
        return chosen + rounds[: max(0, self.free)]


# -------------------------------------------------------------------------------------- the graph


def follow(tasks: dict[str, Task]) -> dict[str, Task]:
    """These jobs with the validation job, which needs whatever nothing else needs, last."""
    own = {name: task for name, task in tasks.items() if name != VALIDATION}
    needed = [need for task in own.values() for need in task.needs]
    last = tasks[VALIDATION].twin() if VALIDATION in tasks else Task(VALIDATION, [])
    last.needs = [name for name in own if name not in needed]
    return {**own, VALIDATION: last}


def circular(tasks: dict[str, Task]) -> bool:
    left = {name: set(task.needs) for name, task in tasks.items()}
    while free := [name for name, needs in left.items() if not needs]:
        for name in free:
            del left[name]
        for needs in left.values():
            needs.difference_update(free)
    return bool(left)


def reshaped(tasks: dict[str, Task], changes: list[tuple[str, str, Task | None, list[str]]]) -> dict[str, Task] | None:
    """The graph after these changes (what, whom, new job, new needs); None if they are not allowed."""
    jobs = {name: task.twin() for name, task in tasks.items() if name != VALIDATION}
    for what, whom, new, needs in changes:
        if (what != "add" and whom not in jobs) or (new is not None and not _addable(jobs, new)):
            return None
        dependents = [task for task in jobs.values() if whom in task.needs] if what in ("remove", "add_after") else []
        fixed = jobs[whom].began if what not in ("add", "add_after") else False
        if fixed or any(task.began for task in dependents):
            return None
        if what == "set_needs":
            if any(need not in jobs for need in needs):
                return None
            jobs[whom].needs = _once(needs)
        elif what == "remove":
            gone = jobs.pop(whom)
            for task in dependents:
                task.needs = _once([one for need in task.needs for one in (gone.needs if need == whom else [need])])
        elif new is not None:
            new = jobs[new.id] = new.twin()
            if what == "add_before":
                new.needs = _once(jobs[whom].needs + new.needs)
                jobs[whom].needs = [new.id]
            elif what == "add_after":
                for task in dependents:
                    task.needs = _once([new.id if need == whom else need for need in task.needs])
                new.needs = _once([whom, *new.needs])
    if not jobs or any(need not in jobs for task in jobs.values() for need in task.needs) or circular(jobs):
        return None
    return follow({**jobs, VALIDATION: tasks[VALIDATION]})


def _addable(jobs: dict[str, Task], new: Task) -> bool:
    return new.id not in jobs and all(need in jobs for need in new.needs)


def _once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))
