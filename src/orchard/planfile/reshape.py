"""Changing the graph of a plan that is not finished: one list of changes, all of them or none.

The list is applied in order to a copy and the result is checked as a whole graph, so that changes
may pass through states that would be wrong by themselves. Only jobs that were never started may
change; the validation job follows by itself.

    {"op": "add", "job": {...}}                       a new job, with needs of its own
    {"op": "remove", "id": "x"}                       what needed x now needs what x needed
    {"op": "set_needs", "id": "x", "needs": [...]}
    {"op": "add_before", "id": "x", "job": {...}}     the new job takes over x's needs, x needs only it
    {"op": "add_after", "id": "x", "job": {...}}      the new job needs x; what needed x now needs it
    {"op": "update", "id": "x", "set": {...}}         other fields of a job that has not started
    {"op": "update_plan", "set": {...}}               fields of the plan itself
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from orchard.errors import InvalidInput, Problem, UsageError
from orchard.model import limits
from orchard.model.plan import VALIDATION, Job, JobId, Plan, graph_problems, with_validation
from orchard.text import did_you_mean

FIELDS: Mapping[str, frozenset[str]] = {
    "add": frozenset({"op", "job"}),
    "remove": frozenset({"op", "id"}),
    "set_needs": frozenset({"op", "id", "needs"}),
    "add_before": frozenset({"op", "id", "job"}),
    "add_after": frozenset({"op", "id", "job"}),
    "update": frozenset({"op", "id", "set"}),
    "update_plan": frozenset({"op", "set"}),
}


def reshape(plan: Plan, started: Collection[JobId], changes: Sequence[Any], *, pinned: bool = True) -> Plan:
    """The plan after these changes; every problem with them is reported at once, and then nothing changes."""
    if not isinstance(changes, list | tuple) or not changes:
        raise UsageError(
            "A reshape is a list of at least one change.", hint='For example: [{"op": "remove", "id": "x"}]'
        )
    if len(changes) > limits.RESHAPE_CHANGES:
        raise UsageError(f"A reshape holds at most {limits.RESHAPE_CHANGES} changes, not {len(changes)}.")
    graph = _Graph(plan, frozenset(started), pinned)
    for number, change in enumerate(changes):
        graph.change(change, f"changes[{number}]")
    return graph.checked()


class _Graph:
    def __init__(self, plan: Plan, started: frozenset[JobId], pinned: bool) -> None:
        self.plan = plan
        self.started = started
        self.pinned = pinned
        """Whether base and target are decided."""
        self.jobs = {job.id: job for job in plan.jobs.values() if job.id != VALIDATION}
        self.problems: list[Problem] = []

    def problem(self, path: str, message: str) -> None:
        self.problems.append(Problem(message, path=path))

    def change(self, change: Any, path: str) -> None:
        if not isinstance(change, dict):
            return self.problem(path, "must be an object with 'op'")
        op = change.get("op")
        if not isinstance(op, str) or op not in FIELDS:
            guess = did_you_mean(str(op), FIELDS) if op is not None else ""
            return self.problem(f"{path}.op", f"must be one of {', '.join(FIELDS)}{guess}")
        for name in sorted(FIELDS[op] - set(change), key=str):
            self.problem(path, f"'{op}' needs the field '{name}'")
        for name in [name for name in change if name not in FIELDS[op]]:
            self.problem(f"{path}.{name}", f"unknown field '{name}'{did_you_mean(str(name), FIELDS[op])}")
        if set(change) != FIELDS[op]:
            return None
        return getattr(self, f"_{op}")(change, path)  # type: ignore[no-any-return]

    def _add(self, change: Mapping[str, Any], path: str) -> None:
        job = self._new_job(change, path)
        if job is not None:
            self.jobs[job.id] = job

    def _remove(self, change: Mapping[str, Any], path: str) -> None:
        job = self._changeable(change["id"], f"{path}.id")
        if job is None:
            return
        if not self._dependents_may_change(job.id, path):
            return
        del self.jobs[job.id]
        for other in list(self.jobs.values()):
            if job.id in other.needs:
                self.jobs[other.id] = replace(other, needs=_bridged(other.needs, job.id, job.needs))

    def _set_needs(self, change: Mapping[str, Any], path: str) -> None:
        job = self._changeable(change["id"], f"{path}.id")
        needs = change["needs"]
        if job is None:
            return
        if not isinstance(needs, list | tuple) or not all(isinstance(need, str) for need in needs):
            self.problem(f"{path}.needs", "must be a list of job ids")
            return
        if len(needs) > limits.NEEDS_PER_JOB:
            self.problem(f"{path}.needs", f"a job needs at most {limits.NEEDS_PER_JOB} others")
            return
        found = [self._known(need, f"{path}.needs[{number}]", job.group) for number, need in enumerate(needs)]
        self.jobs[job.id] = replace(job, needs=tuple(dict.fromkeys(need for need in found if need is not None)))

    def _add_before(self, change: Mapping[str, Any], path: str) -> None:
        existing = self._changeable(change["id"], f"{path}.id")
        job = self._new_job(change, path)
        if existing is None or job is None:
            return
        self.jobs[job.id] = replace(job, needs=tuple(dict.fromkeys((*existing.needs, *job.needs))))
        self.jobs[existing.id] = replace(existing, needs=(job.id,))

    def _add_after(self, change: Mapping[str, Any], path: str) -> None:
        existing = self._known(change["id"], f"{path}.id")
        job = self._new_job(change, path)
        if existing is None or job is None or not self._dependents_may_change(existing, path):
            return
        for other in list(self.jobs.values()):
            if existing in other.needs:
                self.jobs[other.id] = replace(other, needs=_bridged(other.needs, existing, (job.id,)))
        self.jobs[job.id] = replace(job, needs=tuple(dict.fromkeys((existing, *job.needs))))

    def _update(self, change: Mapping[str, Any], path: str) -> None:
        from orchard.planfile.parse import parse_job_update

        job = self._changeable(change["id"], f"{path}.id")
        if job is None:
            return
        try:
            self.jobs[job.id] = parse_job_update(change["set"], job, frozenset(self.jobs), f"{path}.set")
        except InvalidInput as invalid:
            self.problems += invalid.problems

    def _update_plan(self, change: Mapping[str, Any], path: str) -> None:
        from orchard.planfile.parse import parse_plan_update

        try:
            self.plan = parse_plan_update(change["set"], self.plan, self.pinned, f"{path}.set")
        except InvalidInput as invalid:
            self.problems += invalid.problems

    def _new_job(self, change: Mapping[str, Any], path: str) -> Job | None:
        # A plan that is only replayed never needs the parser.
        from orchard.planfile.parse import parse_jobs

        try:
            return parse_jobs([change["job"]], frozenset(self.jobs), f"{path}.job")[0]
        except InvalidInput as invalid:
            # It is read as a list of one, but the change holds one job.
            own = [replace(one, path=one.path.replace(f"{path}.job[0]", f"{path}.job", 1)) for one in invalid.problems]
            self.problems += own
            return None

    def _known(self, name: Any, path: str, group: str | None = None) -> JobId | None:
        if isinstance(name, str):
            for candidate in ([f"{group}/{name}"] if group else []) + [name]:
                if JobId(candidate) in self.jobs:
                    return JobId(candidate)
        if name == VALIDATION:
            self.problem(path, "the validation job follows the others by itself and cannot be changed")
        else:
            self.problem(path, f"there is no job '{name}'{did_you_mean(str(name), self.jobs)}")
        return None

    def _changeable(self, name: Any, path: str) -> Job | None:
        known = self._known(name, path)
        if known is None:
            return None
        if known in self.started:
            self.problem(path, f"job '{known}' has started and can no longer be changed")
            return None
        return self.jobs[known]

    def _dependents_may_change(self, job_id: JobId, path: str) -> bool:
        late = [job.id for job in self.jobs.values() if job_id in job.needs and job.id in self.started]
        for dependent in late:
            self.problem(path, f"job '{dependent}' needs '{job_id}' and has started")
        return not late

    def checked(self) -> Plan:
        if not self.jobs:
            self.problem("changes", "a plan needs at least one job; nothing would be left")
        if len(self.jobs) > limits.JOBS:
            self.problem("changes", f"a plan has at most {limits.JOBS} jobs")
        unknown = {need for job in self.jobs.values() for need in job.needs} - set(self.jobs)
        for need in sorted(unknown):
            self.problem("changes", f"there is no job '{need}' any more, but it is needed")
        if not unknown:
            self.problems += graph_problems(self.jobs.values())
        if self.problems:
            raise InvalidInput("reshape", self.problems, hint="Nothing was changed.")
        return with_validation(replace(self.plan, jobs={**self.jobs, VALIDATION: self.plan.jobs[VALIDATION]}))


def _bridged(needs: tuple[JobId, ...], gone: JobId, instead: tuple[JobId, ...]) -> tuple[JobId, ...]:
    """These needs with one replaced by others, in its place and without repeats."""
    return tuple(dict.fromkeys(new for need in needs for new in (instead if need == gone else (need,))))
