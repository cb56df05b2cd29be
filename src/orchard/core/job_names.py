"""Which job of a plan a name means, the one place where every surface asks; and what is said of one that failed."""

import re
from collections.abc import Collection, Mapping

from orchard.core.records import JobRecord
from orchard.errors import Next, NotFound
from orchard.model.phases import Phase, shown_phase
from orchard.model.plan import VALIDATION, Job, JobId
from orchard.text import did_you_mean

VALIDATION_NAMES = ("verify", "validation", "(validation)", VALIDATION)
"""What the validation job answers to, unless another job of the plan has that name."""

VALIDATION_FAILED: Mapping[Phase, str] = {
    Phase.MERGE_FI: "merging the results failed",
    Phase.PRECHECKS: "merging onto the target failed",
    Phase.SETUP: "setup for verify failed",
    Phase.WORK: "verify failed",
    Phase.COMMIT: "verify failed",
    Phase.POSTCHECKS: "looking at the target before landing failed",
    Phase.MERGE_RI: "landing failed",
}
"""What the phases of the validation job do: only one of them runs `verify`."""

SHOWN = 8


def job_word(job: str, jobs: Mapping[JobId, Job]) -> str:
    """What people call a job, here and in commands: its id, and `verify` for the one that every plan has.

    Where another of the `jobs` is called so, by id or by name, the validation job has its whole id only.
    """
    return "verify" if job == VALIDATION and jobs_called(jobs, "verify") == [VALIDATION] else job


def jobs_called(jobs: Mapping[JobId, Job], name: str) -> list[JobId]:
    """The jobs with exactly this full id, else this bare id, else this name."""
    if JobId(name) in jobs:
        return [JobId(name)]
    bare = [job for job in jobs if job.rpartition("/")[2] == name]
    return (
        bare
        or [job.id for job in jobs.values() if job.name == name]
        or ([VALIDATION] if name in VALIDATION_NAMES and VALIDATION in jobs else [])
    )


def jobs_in_group(jobs: Mapping[JobId, Job], group: str) -> list[JobId]:
    """The jobs of the group with exactly this path, and of the groups in it."""
    return [job.id for job in jobs.values() if job.group and f"{job.group}/".startswith(f"{group.strip('/')}/")]


def find_job(plan: str, jobs: Mapping[JobId, Job], name: str, *, exact: bool = False) -> JobId:
    """The job that is meant: by full id, unique bare id or unique name; by a unique beginning unless `exact`."""
    if JobId(name) in jobs:  # the common case must not cost a look at every job
        return JobId(name)
    begun = [job for job in jobs if job.startswith(name) or job.rpartition("/")[2].startswith(name)]
    found = jobs_called(jobs, name) or ([] if exact else begun)
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"'{name}' could be any of these jobs: {_listed(found, jobs)}", hint="Give the full id.")
    if begun:
        raise NotFound(
            f"Plan '{plan}' has no job '{name}', and the beginning of a name is not enough here.",
            hint=f"Give the whole id: {_listed(begun, jobs)}",
        )
    named = [*(job_word(job, jobs) for job in jobs), *(job.name for job in jobs.values() if job.id != VALIDATION)]
    raise NotFound(f"Plan '{plan}' has no job '{name}'{did_you_mean(name, named)}", hint=Next("get_plan", plan))


_SUBTASK = re.compile(r"(?:(?P<job>.+)/)?(?P<subtask>subtask-[a-z2-7]{0,5})")


def find_worker(
    plan: str, jobs: Mapping[JobId, Job], records: Mapping[JobId, JobRecord], name: str, *, exact: bool = False
) -> tuple[JobId, str | None]:
    """The job whose agent is meant, or the subtask of it: `JOB/subtask-xxxxx`; the job may be left out."""
    match = _SUBTASK.fullmatch(name)
    if match is None or jobs_called(jobs, name):
        return find_job(plan, jobs, name, exact=exact), None
    job = find_job(plan, jobs, match["job"], exact=exact) if match["job"] is not None else None
    among = [job] if job is not None else list(records)
    known = {id: one for one in among for id in records[one].subtasks}
    found = [id for id in known if id == match["subtask"]]
    if not found and not exact:
        found = [id for id in known if id.startswith(match["subtask"])]
    if len(found) == 1:
        return known[found[0]], found[0]
    whose = f"Job '{job_word(job, jobs)}'" if job is not None else f"Plan '{plan}'"
    if found:
        raise NotFound(f"'{name}' could be any of these subtasks: {_listed(found, jobs)}", hint="Give the full id.")
    hint = Next("get_job", plan, job) if job is not None else Next("get_plan", plan)
    raise NotFound(f"{whose} has no subtask '{match['subtask']}'{did_you_mean(match['subtask'], known)}", hint=hint)


def worker_name(job: str, subtask: str | None) -> JobId:
    """What the agent of a job, or of one of its subtasks, is called in requests."""
    return JobId(job if subtask is None else f"{job}/{subtask}")


def _listed(found: Collection[str], jobs: Mapping[JobId, Job]) -> str:
    names = [job_word(job, jobs) for job in found]
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def failed_words(job: str, phase: str | None) -> str:
    """That a job failed, and where: the subject and the verb of a sentence."""
    if job == VALIDATION:
        return VALIDATION_FAILED[Phase(phase) if phase else Phase.WORK]
    return f"Job '{job}' failed{f' in {shown_phase(phase)}' if phase else ''}"
