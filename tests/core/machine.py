"""What an engine, a person or a crash could do to plans, done to the core and to the model at once.

Each step compares all that people can see. At the end of every example all that is left is run to its
end: whatever happened before, nothing may be stuck.
"""

from collections import Counter
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchard.errors import InvalidInput
from orchard.model.events import plans as e
from orchard.model.phases import Phase as Step
from orchard.model.plan import JobId, Plan
from orchard.model.plan_codec import plan_json
from tests.core.model import PHASES, PROGRAMS, VALIDATION, Model, NotAllowed, Task, Work, follow, reshaped
from tests.core.planted import REAL, Core
from tests.core.simulation import PaperEngine, change_json, compare, facts, happenings, job_of, known_of

FOUND = (e.WorkSaved, e.Warned, e.LandingVoided, e.SubtaskEnded, e.SubtaskFolderGone, e.WorktreeGone, e.ConflictClosed)
"""What an engine may record before it says what became of a job while there was no engine."""

MOST_PLANS = 3
MOST_JOBS = 9
DEFAULT_LIMIT = 2

CHANGES = ("add", "add_before", "add_after", "remove", "set_needs", "replace")
"""`replace`: remove a job and add another under its id."""

numbers = st.integers(0, 2**16 - 1)
depths = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5])
firsts = st.sampled_from([None, None, *PHASES])
FAN = [0, 0, 1 << 9, 1 << 10, 1 << 12]
"""Two jobs of which the second is needed by more others; few numbers make that by chance."""
shapes = st.lists(numbers, min_size=1, max_size=6).map(lambda shape: FAN if shape[0] % 8 == 7 else shape)


class SchedulerMachine(RuleBasedStateMachine):
    """The core beside the model."""

    core: Core = REAL

    def __init__(self) -> None:
        super().__init__()
        self.engine = PaperEngine(self.core)
        self.model = Model(slots=2, default=DEFAULT_LIMIT)
        self.past: dict[str, list[tuple[int, Work | None]]] = {}
        """The model of each plan after each event that may not be durable yet."""
        self.durable = 0
        self.asked: int | None = None
        """How long the journal was when the last request was answered."""
        self.changed: set[str] = set()
        self.passed_over: dict[str, Counter[str]] = {}
        self.made = 0
        self.busy = False

    # ---------------------------------------------------------------------------------- helpers

    def begin_step(self, *, crash: bool = False) -> None:
        """An answer that was given is durable; only a crash right after the question may come before it."""
        self.busy = True
        if self.asked is not None and not crash:
            self.durable, self.asked = self.asked, None
            self.past = {plan: past[-1:] for plan, past in self.past.items()}

    def answered(self) -> None:
        self.asked = len(self.engine.journal)

    def do(self, plan: str, event: e.Event, change: Callable[[Work], object]) -> None:
        """Let something happen to the core and to the model."""
        at = self.engine.record(plan, event)
        work = self.model.works[plan]
        found = isinstance(event, e.JobContinued) or getattr(event, "reason", None) == "interrupted"
        if work.active:  # while no engine was there nobody worked on it
            work.seconds += (work.alive if found else at) - work.last
        work.last = at
        if found or not isinstance(event, FOUND):
            work.alive = at
        change(work)
        self.past[plan].append((len(self.engine.journal), work.twin()))
        self.changed.add(plan)

    def any_plan(self, n: int) -> Work:
        works = list(self.model.works.values())
        return works[n % len(works)]

    def any_job(self, n: int, *states: str) -> tuple[Work, Task] | None:
        found = [
            (work, task) for work in self.model.works.values() for task in work.tasks.values() if task.state in states
        ]
        return found[n % len(found)] if found else None

    def new_task(self, n: int, others: list[str]) -> Task:
        """A job whose properties follow from the bits of a number."""
        self.made += 1
        group = (None, "g", "g", "g/h")[n & 3]
        name = f"j{self.made}" if group is None else f"{group}/j{self.made}"
        needs = [other for place, other in enumerate(reversed(others)) if n >> (9 + place) & 1]
        work = None if n & 12 == 12 else f"make {self.made}"
        return Task(name, needs, work, group, (0, 0, 1, -1)[n >> 4 & 3], bool(n & 64), bool(n & 128))

    def proceed(self, far: int) -> None:
        """What an engine goes on to do right after something was asked: nothing yet, or some of its next steps."""
        self.answered()
        if far > 0:
            self.begin_step()
            self.schedule()
        if far > 1:
            self.begin_all()
        for work in self.model.works.values() if far > 2 else ():
            for name in work.active:
                for _ in range(far - 2):
                    self.next_phase(work, name)

    # ------------------------------------------------------------------------- plans and people

    @initialize(slots=st.integers(1, 4), shape=shapes, n=numbers)
    def begin(self, slots: int, shape: list[int], n: int) -> None:
        self.model.slots = slots
        self.submit(shape, n & ~7)
        self.start_plan(0, n & 7 != 0)

    @rule(shape=shapes, n=numbers)
    def submit(self, shape: list[int], n: int) -> None:
        self.begin_step()
        if len(self.model.works) == MOST_PLANS:
            return self.go_on(1)
        plan, tasks = f"p{len(self.model.works)}", dict[str, Task]()
        for bits in shape:
            task = self.new_task(bits, list(tasks))
            tasks[task.id] = task
        scaffolding, paused, limit = n & 1 == 1, n & 6 == 6, (None, 0, 1, 2, 3)[n // 8 % 5]
        made = self.model.works[plan] = Work(plan, limit, follow(tasks), scaffolding, manual=n // 64 % 8 == 7)
        made.paused = "paused" if paused else None
        self.model.stamp(plan)
        self.past[plan] = [(0, None)]
        asked = Plan(
            name=plan, jobs={JobId(name): job_of(task) for name, task in tasks.items()}, max_parallel=limit,
            start_paused=paused, deploy="manual" if made.manual else "auto",
        )  # fmt: skip
        self.do(plan, e.PlanSubmitted(plan_json(asked), scaffolding), lambda work: None)
        return self.answered()

    @rule(n=numbers, whole=st.booleans())
    def start_plan(self, n: int, whole: bool) -> None:
        self.begin_step()
        work = self.any_plan(n)
        if work.scaffolding:
            self.do(work.id, e.PlanFinalized(), lambda work: setattr(work, "scaffolding", False))
            self.answered()
        elif not (work.started or work.paused or work.canceled or work.deleted):
            self.do(work.id, e.PlanStarted("main", "base", "work", "base"), lambda work: setattr(work, "started", True))
            if whole:  # a crash may come between the two
                self.do(work.id, e.SnapshotStarted(1, "base"), lambda work: None)

    @rule(n=numbers, waiting=st.booleans())
    def pause(self, n: int, waiting: bool) -> None:
        self.begin_step()
        work = self.any_plan(n)
        if work.paused is None and work.plan_status not in ("succeeded", "failed", "canceled"):
            word = "waiting" if waiting else "paused"
            self.do(work.id, e.PlanPaused("why", waiting), lambda work: setattr(work, "paused", word))
            self.answered()

    @rule(n=numbers, far=depths)
    def resume(self, n: int, far: int) -> None:
        self.begin_step()
        paused = [work for work in self.model.works.values() if work.paused and not work.scaffolding]
        if not paused:
            return self.go_on(1)
        plan = paused[n % len(paused)].id
        self.do(plan, e.PlanResumed(), lambda work: setattr(work, "paused", None))
        return self.proceed(far)

    @rule(n=numbers, delete=st.integers(0, 5), stopped=st.booleans())
    def cancel_plan(self, n: int, delete: int, stopped: bool) -> None:
        """Everything stops, in the order in which an engine does it; programs may take their time."""
        self.begin_step()
        work = self.any_plan(n)
        if work.plan_status in ("succeeded", "canceled") or work.landed:
            return
        if not work.canceled:
            self.do(work.id, e.PlanCanceled("enough"), lambda work: setattr(work, "canceled", True))
            for name in [task.id for task in work.tasks.values() if task.state == "pending"]:
                self.cancel(work.id, name)
        for name in work.active if stopped else ():
            self.cancel(work.id, name)
        if delete == 0 and not work.active and len(self.model.works) > 1:
            self.do(work.id, e.PlanDeleted(), lambda work: setattr(work, "deleted", True))
        self.answered()

    @rule(n=numbers)
    def cancel_job(self, n: int) -> None:
        self.begin_step()
        if found := self.any_job(n, "pending", "scheduled", "running"):
            self.cancel(found[0].id, found[1].id)
            self.answered()

    def cancel(self, plan: str, job: str) -> None:
        task = self.model.works[plan].tasks[job]
        phase = task.tries[-1].phase if task.state == "running" else None
        event = e.JobCanceled(JobId(job), "enough", Step(phase) if phase else None)
        self.do(plan, event, lambda work: work.cancel(job, phase))

    @rule(n=numbers)
    def force_fail(self, n: int) -> None:
        self.begin_step()
        if found := self.any_job(n, "pending", "scheduled", "running"):
            self.fail(*found, "forced")
            self.answered()

    def fail(self, work: Work, task: Task, reason: str, resume: str | None = None, phase: str | None = None) -> None:
        number = self.number(work, task)
        phase = task.tries[-1].phase or phase if task.state == "running" else None
        step, later = Step(phase) if phase else None, Step(resume) if resume else None
        event = e.JobFailed(JobId(task.id), number, step, reason, "it failed", resume_from=later)
        self.do(work.id, event, lambda work: work.fail(task.id, number, phase, reason, resume))

    def number(self, work: Work, task: Task) -> int:
        """The number an engine gives the attempt."""
        number: int = self.engine.runs[work.id].records[task.id].number
        assert number == task.number, f"{task.id}: attempt {number} instead of {task.number}"
        return number

    @rule(n=numbers, whole=st.booleans(), new=st.integers(0, 3), first=firsts, far=depths)
    def retry(self, n: int, whole: bool, new: int, first: str | None, far: int) -> None:
        self.begin_step()
        found = self.any_job(n, "failed", "canceled")
        if found is None or found[0].deleted:
            return self.go_on(1)
        work, chosen = found
        jobs = [task for task in work.tasks.values() if task.state in ("failed", "canceled")] if whole else [chosen]
        for task in jobs:
            given = f"other {n}" if new == 0 else None
            self.retry_one(work.id, task.id, first, new == 1, given)
        if work.paused == "paused":
            self.do(work.id, e.PlanResumed(), lambda work: setattr(work, "paused", None))
        return self.proceed(far)

    def retry_one(
        self, plan: str, job: str, first: str | None = None, fresh: bool = False, given: str | None = None
    ) -> None:
        body = {"type": "shell", "command": given} if given else None
        event = e.JobRetried(JobId(job), Step(first) if first else None, fresh, body)
        self.do(plan, event, lambda work: work.retry(job, first, fresh, given))

    @rule(n=numbers, far=depths)
    def approve(self, n: int, far: int) -> None:
        self.begin_step()
        held = [(work.id, task.id) for work in self.model.works.values() for task in work.tasks.values() if task.hold]
        if not held:
            return self.go_on(1)
        plan, job = held[n % len(held)]
        self.release(plan, job)
        self.proceed(far)
        task = self.model.works[plan].tasks[job]
        if far > 2 and task.state == "running":
            self.fail(self.model.works[plan], task, "exit")
            self.retry_one(plan, job)
        return None

    def deploy_one(self, plan: str, job: str) -> None:
        self.do(plan, e.JobDeployed(JobId(job)), lambda work: setattr(work.tasks[job], "deployed", True))

    def release(self, plan: str, job: str) -> None:
        self.do(plan, e.HoldReleased(JobId(job)), lambda work: work.release(job))

    @rule(n=numbers, kinds=st.lists(st.sampled_from(CHANGES), min_size=1, max_size=2), bits=numbers)
    def reshape(self, n: int, kinds: list[str], bits: int) -> None:
        """Change a graph: the core and the model allow the same, and make the same of it."""
        self.begin_step()
        work = self.any_plan(n)
        if work.tasks[VALIDATION].state in ("scheduled", "running", "succeeded") or work.deleted:
            return
        names = [name for name in work.tasks if name != VALIDATION]
        open_ = [name for name in names if not work.tasks[name].began] or names
        if "replace" in kinds and not work.tasks[open_[-1]].began:  # give it a past that the new job must not have
            self.cancel(work.id, open_[-1])
            self.retry_one(work.id, open_[-1], "work", fresh=True)
        known = [name for name in open_ if (task := work.tasks[name]).given or task.fresh or task.resume] or open_
        if bits & 4 and work.tasks[VALIDATION].state == "pending":
            self.cancel(work.id, VALIDATION)
            self.retry_one(work.id, VALIDATION, "merge-ri")
        changes = []
        for place, kind in enumerate(kinds):
            some = known if kind == "replace" else (names, open_, known)[(bits >> 2 * place) % 3]
            whom = some[(bits >> place) % len(some)]
            new = self.new_task(bits, [name for name in names if name != whom]) if kind != "set_needs" else None
            if kind == "replace":  # another job under the id of one that goes
                assert new is not None
                new.id, new.group, new.needs = whom, work.tasks[whom].group, []
                changes += [("remove", whom, None, list[str]()), ("add", "", new, list[str]())]
            else:
                needs = [name for spot, name in enumerate(names) if bits >> (spot + 3) & 1]
                changes.append((kind, whom, None if kind == "remove" else new, needs))
        expected = reshaped(work.tasks, changes)
        if expected is not None and len(expected) > MOST_JOBS:
            return
        started = {name for name, record in self.engine.runs[work.id].records.items() if record.started}
        asked = [change_json(*change) for change in changes]
        try:
            shaped = self.core.reshape.reshape(self.engine.runs[work.id].plan, started - {VALIDATION}, asked)
        except InvalidInput as refused:
            assert expected is None, f"refused {asked}: {refused}"
            return
        assert expected is not None, f"allowed {asked}"
        self.do(work.id, e.PlanReshaped(tuple(asked), plan_json(shaped)), lambda work: work.take(expected))
        self.answered()

    # -------------------------------------------------------------------------------- the engine

    @rule(begin=st.booleans())
    def turn(self, begin: bool) -> None:
        self.begin_step()
        self.schedule()
        if begin:
            self.begin_all()

    def schedule(self) -> None:
        """Start what may start: exactly what the model says, in its order."""
        expected, free = self.model.choose(), self.model.free
        wanting = {plan for plan, work in self.model.works.items() if work.may_start and self.wants(work)}
        picked = self.engine.pick(free, DEFAULT_LIMIT)
        assert picked == expected, f"picked {picked} instead of {expected}"
        for plan, job, with_slot in picked:
            number = self.number(self.model.works[plan], self.model.works[plan].tasks[job])
            self.take(plan, job, number)
            if with_slot:
                self.model.stamp(plan)
        self.check_fairness(wanting, [plan for plan, _, with_slot in picked if with_slot])
        assert not [plan for plan in wanting if self.model.free > 0 and self.wants(self.model.works[plan])]

    def take(self, plan: str, job: str, number: int) -> None:
        self.do(plan, e.JobPicked(JobId(job), number), lambda work: work.pick(job))

    def wants(self, work: Work) -> bool:
        return work.room(DEFAULT_LIMIT) > 0 and any(work.tasks[name].does for name in work.queue())

    def check_fairness(self, wanting: set[str], served: list[str]) -> None:
        """No plan is served twice while another, which could go on, is passed over."""
        for plan in self.model.works:
            if plan not in wanting or plan in served:
                self.passed_over.pop(plan, None)
            else:
                seen = self.passed_over.setdefault(plan, Counter())
                seen.update(served)
                assert max(seen.values(), default=0) <= 1, f"{plan} was passed over: {seen}"

    def begin_all(self) -> None:
        while found := self.any_job(0, "scheduled"):
            self.start_job(*found)

    @rule(n=numbers)
    def begin_one(self, n: int) -> None:
        self.begin_step()
        if found := self.any_job(n, "scheduled"):
            self.start_job(*found)

    def start_job(self, work: Work, task: Task) -> None:
        number, first = (
            self.number(work, task),
            str(self.engine.runs[work.id].records[task.id].resume_from or "merge-fi"),
        )
        assert first == (task.resume or "merge-fi")
        event = e.JobStarted(JobId(task.id), number, Step(first))
        self.do(work.id, event, lambda work: work.start(task.id, number, first))

    @rule(n=numbers, count=st.integers(1, 5))
    def advance(self, n: int, count: int) -> None:
        """Let a running job go through some of its phases."""
        self.begin_step()
        found = self.any_job(n, "running")
        if found is None:
            return self.go_on(1)
        work, task = found
        for _ in range(count):
            self.next_phase(work, task.id)
        if self.model.works[work.id].tasks[task.id].tries[-1].phase in PROGRAMS:
            self.answered()  # before a program starts, everything is durable
        return None

    def next_phase(self, work: Work, job: str) -> None:
        attempt, name = work.tasks[job].tries[-1], JobId(job)
        if attempt.at == PHASES[-1]:
            return
        self.leave_phase(work, job, "passed")
        phase = attempt.next
        self.do(work.id, e.PhaseStarted(name, attempt.number, Step(phase)), lambda work: work.enter(job, phase))
        for fact in facts(name, attempt.number, phase):
            self.do(work.id, fact, lambda work: None)

    def leave_phase(self, work: Work, job: str, result: str) -> None:
        attempt = work.tasks[job].tries[-1]
        if attempt.phase is not None:
            ended = e.PhaseEnded(JobId(job), attempt.number, Step(attempt.phase), result)
            self.do(work.id, ended, lambda work: work.leave(job, result))
            if result != "passed":  # the next event says more, but a crash may come between the two
                compare(self.core, self.engine.runs[work.id], work)

    @rule(n=numbers, luck=st.integers(0, 9), back=st.sampled_from([None, None, "prechecks"]))
    def finish(self, n: int, luck: int, back: str | None) -> None:
        self.begin_step()
        found = self.any_job(n, "running")
        if found is None:
            return self.go_on(1)
        work, task = found
        if luck < 5 and task.released:  # what was granted once is not granted to the next attempt
            luck = 0
        if luck < 3:
            for _ in range(luck + 2):
                self.next_phase(work, task.id)
            phase = task.tries[-1].phase
            self.leave_phase(work, task.id, "failed")
            self.fail(work, task, "exit", back, phase)
        elif luck < 6 and task.id == VALIDATION:
            self.hold(work, task)
        elif luck < 8 and task.id == VALIDATION:
            self.intend(work.id, f"landing-{len(self.engine.journal)}")
        else:
            self.succeed(work, task)
        return None

    def hold(self, work: Work, task: Task) -> None:
        kind = "landing" if task.id == VALIDATION else "approval"
        while task.tries[-1].at not in ("merge-ri", None if kind == "landing" else "postchecks"):
            self.next_phase(work, task.id)
        self.leave_phase(work, task.id, "held")
        event = e.JobHeld(JobId(task.id), task.number, kind, "look at it", Step.MERGE_RI)
        return self.do(work.id, event, lambda work: work.held(task.id, kind, "merge-ri"))

    def succeed(self, work: Work, task: Task) -> None:
        name, job = JobId(task.id), task.id
        if task.approve and task.released is None:
            return self.hold(work, task)
        if job == VALIDATION and (work.landed is None or work.undone):
            landing = f"landing-{len(self.engine.journal)}"
            self.land(work.id, landing)
        elif job in work.tasks[VALIDATION].needs:
            merged = e.LeafMerged(name, 1, f"commit-of-{job}", "integration", f"tip-{job}")
            self.do(work.id, merged, lambda work: work.merge_leaf(job))
        commit = f"commit-of-{job}-{task.number}"
        return self.do(work.id, e.JobSucceeded(name, task.number, commit), lambda work: work.succeed(job, commit))

    def intend(self, plan: str, landing: str) -> None:
        intent = e.LandingIntended(landing, "main", "base", "tip")
        self.do(plan, intent, lambda work: setattr(work, "intent", landing))

    def land(self, plan: str, landing: str) -> None:
        self.intend(plan, landing)
        self.do(plan, e.Landed(landing, "main", "base", "tip"), lambda work: work.land())

    @rule(n=numbers)
    def undo_or_land_again(self, n: int) -> None:
        self.begin_step()
        work = self.any_plan(n)
        if work.landed is None:
            return self.go_on(2)
        if work.undone:
            self.land(work.id, work.landed)
        else:
            self.do(work.id, e.UndoIntended(work.landed, "main", "base", "tip"), lambda work: None)
            undone = e.LandingUndone(work.landed, "main", "base")
            self.do(work.id, undone, lambda work: setattr(work, "undone", True))
        return self.answered()

    @rule(count=st.integers(1, 4))
    def go_on(self, count: int) -> None:
        """What mostly happens: jobs start, and succeed."""
        self.begin_step()
        for _ in range(count):
            self.schedule()
            self.begin_all()
            if found := self.any_job(0, "running"):
                if count in (2, 3) and found[1].id == VALIDATION and found[0].intent is None:
                    return self.intend(found[0].id, f"landing-{len(self.engine.journal)}")
                asks = count == 4 and found[1].id == VALIDATION and not found[1].released
                (self.hold if asks else self.succeed)(*found)
        return None

    @rule(n=numbers)
    def try_what_is_illegal(self, n: int) -> None:
        """What may not happen to a job raises, and changes nothing."""
        self.begin_step()
        work = self.any_plan(n)
        name = list(work.tasks)[(n >> 4) % len(work.tasks)]
        for event, happen in happenings(name):
            try:
                happen(work.twin())
            except NotAllowed:
                self.refuse(work, event)

    def refuse(self, work: Work, event: e.JobEvent) -> None:
        self.changed.add(work.id)
        try:
            self.engine.record(work.id, event)
        except self.core.states.IllegalTransition:
            return
        raise AssertionError(f"{event} happened to a job that is {work.tasks[event.job].state}")

    # ---------------------------------------------------------------------------------- crashes

    @rule(lost=st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 8]), picked=st.booleans(), far=depths)
    def crash(self, lost: int, picked: bool, far: int) -> None:
        """The engine dies with what had not reached the disk; the next one replays the rest and settles it."""
        self.begin_step(crash=True)
        if picked:  # a job that has a slot, best one that was just retried
            if running := self.any_job(far, "running"):
                self.fail(*running, "exit")
            if (found := self.any_job(lost, "failed")) and not found[0].deleted:
                self.retry_one(found[0].id, found[1].id)
            self.schedule()
        kept = max(self.durable, len(self.engine.journal) - lost)
        before, whole = self.engine.runs, kept == len(self.engine.journal)
        self.engine.crash(kept)
        self.passed_over.clear()
        works = {plan: [work for length, work in past if length <= kept][-1] for plan, past in self.past.items()}
        self.model.works = {plan: work.twin() for plan, work in works.items() if work is not None}
        self.past = {plan: [(kept, work.twin())] for plan, work in self.model.works.items()}
        self.durable, self.asked = kept, None
        assert list(self.engine.runs) == list(self.model.works)
        again = self.engine.replayed()
        for plan, run in self.engine.runs.items():
            self.model.stamp(plan)
            compare(self.core, run, self.model.works[plan])
            assert known_of(again[plan]) == known_of(run)
            assert not whole or known_of(before[plan]) == known_of(run)
        for plan in list(self.model.works):
            self.recover(self.model.works[plan])
        if not self.model.works:
            self.submit([0], 0)
        self.proceed(far)

    def recover(self, work: Work) -> None:
        """What was under way goes on, or is reported as interrupted."""
        for name in work.active:
            task = work.tasks[name]
            if work.canceled:
                self.cancel(work.id, name)
            elif task.state == "scheduled":
                self.carry_on(work.id, name, self.number(work, task), task.resume or "merge-fi")
            else:
                self.settle(work, task)
        for name in [task.id for task in work.tasks.values() if task.state == "pending" and work.canceled]:
            self.cancel(work.id, name)

    def settle(self, work: Work, task: Task) -> None:
        """A program of the plan's may have run where the attempt was, or not."""
        attempt = task.tries[-1]
        if attempt.at == "postchecks" and attempt.result == "held":
            self.hold(work, task)
        elif attempt.at == attempt.where and attempt.at in (("setup", "work") if task.id == VALIDATION else PROGRAMS):
            self.fail(work, task, "interrupted", None, attempt.where)
            if task.again:
                self.retry_one(work.id, task.id)
        else:
            self.carry_on(work.id, task.id, task.number, attempt.where)

    def carry_on(self, plan: str, job: str, number: int, phase: str) -> None:
        event = e.JobContinued(JobId(job), number, Step(phase))
        self.do(plan, event, lambda work: work.carry_on(job, phase))

    # ------------------------------------------------------------------------------- what holds

    @invariant()
    def the_core_shows_what_the_model_says(self) -> None:
        for plan in self.changed:
            compare(self.core, self.engine.runs[plan], self.model.works[plan])
        self.changed.clear()
        runs = self.engine.runs.values()
        assert sum(run.slots_used for run in runs) <= self.model.slots
        assert all(run.slots_used <= (run.plan.max_parallel or 99) for run in runs if run.plan.max_parallel is not None)
        self.busy = False

    def teardown(self) -> None:
        """Whatever happened, nothing is stuck: with a person's help every plan comes to its end."""
        if self.busy or not self.model.works:
            return
        for work in [work for work in self.model.works.values() if not work.deleted]:
            if work.scaffolding:
                self.do(work.id, e.PlanFinalized(), lambda work: setattr(work, "scaffolding", False))
            if work.paused:
                self.do(work.id, e.PlanResumed(), lambda work: setattr(work, "paused", None))
            for task in [task for task in work.tasks.values() if task.state in ("failed", "canceled")]:
                self.retry_one(work.id, task.id)
            if not work.started and not work.canceled:
                self.do(work.id, e.PlanStarted("m", "b", "w", "b"), lambda work: setattr(work, "started", True))
                self.do(work.id, e.SnapshotStarted(1, "base"), lambda work: None)
        for _ in range(2 * MOST_PLANS * (MOST_JOBS + 1)):
            for work in list(self.model.works.values()):
                for task in [task for task in work.tasks.values() if task.hold]:
                    self.release(work.id, task.id)
                for task in [task for task in work.tasks.values() if work.waits(task)]:
                    self.deploy_one(work.id, task.id)
            self.go_on(1)
        self.the_core_shows_what_the_model_says()
        for plan, run in self.engine.runs.items():
            assert run.deleted or run.status == "succeeded", f"{plan} is stuck: {run.status}, {run.counts}"
