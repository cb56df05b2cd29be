"""The scheduler's machine with jobs that are deployed by hand, and agents that wait for a message in their work."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from orchard.model.events import plans
from orchard.model.phases import Phase
from orchard.model.plan import JobId
from tests.core.machine import SchedulerMachine, depths, numbers
from tests.core.model import PHASES, VALIDATION, Task, Work


class WorkerMachine(SchedulerMachine):
    """All that can happen to plans, and to the agents that work on their jobs."""

    @rule(n=numbers, whole=st.booleans(), far=depths)
    def deploy(self, n: int, whole: bool, far: int) -> None:
        """Let one job run, or all of its plan, of those that wait for somebody to say so."""
        self.begin_step()
        works = [work for work in self.model.works.values() if any(map(work.waits, work.tasks.values()))]
        if not works:
            return self.go_on(1)
        work = works[n % len(works)]
        waiting = [task.id for task in work.tasks.values() if work.waits(task)]
        for job in waiting if whole else [waiting[n % len(waiting)]]:
            self.deploy_one(work.id, job)
        if n & 3 == 3:  # what was deployed stays so when the graph changes
            self.reshape(list(self.model.works).index(work.id), ["add"], n)
        return self.proceed(far)

    @rule(n=numbers, far=depths)
    def talk(self, n: int, far: int) -> None:
        """Somebody says that the work of an idle agent is done; or an agent ends its turn, and waits for that."""
        self.begin_step()
        idle = [(work, task) for work, task in self.jobs() if task.hold == "worker"]
        working = [(work, task) for work, task in self.jobs() if task.state == "running" and task.id != VALIDATION]
        if idle:
            work, task = idle[n % len(idle)]
            completed = plans.WorkerCompleted(JobId(task.id), task.number)
            self.do(work.id, completed, lambda work: setattr(work.tasks[task.id], "resume", "commit"))
            self.release(work.id, task.id)
            return self.proceed(far)
        return self.go_idle(*working[n % len(working)]) if working else self.go_on(1)

    def jobs(self) -> list[tuple[Work, Task]]:
        return [(work, task) for work in self.model.works.values() for task in work.tasks.values()]

    def go_idle(self, work: Work, task: Task) -> None:
        while task.tries[-1].at is None or PHASES.index(task.tries[-1].at) < PHASES.index("work"):
            self.next_phase(work, task.id)
        if task.tries[-1].phase != "work":
            return self.succeed(work, task)
        idle = plans.WorkerIdle(JobId(task.id), task.number)
        self.do(work.id, idle, lambda work: setattr(work.tasks[task.id].tries[-1], "idle", True))
        self.leave_phase(work, task.id, "held")
        return self.hold_worker(work, task)

    def hold_worker(self, work: Work, task: Task) -> None:
        event = plans.JobHeld(JobId(task.id), task.number, "worker", "say more", Phase.WORK)
        self.do(work.id, event, lambda work: work.held(task.id, "worker", "work"))

    def settle(self, work: Work, task: Task) -> None:
        attempt = task.tries[-1]
        if attempt.idle and attempt.at == "work" == attempt.where:
            return self.hold_worker(work, task)
        return super().settle(work, task)
