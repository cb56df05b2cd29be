"""Which jobs belong to a group, and which group a caller means."""

from orchard.core.run import Run
from orchard.core.scheduler import group_statuses
from orchard.errors import NotFound
from orchard.model.plan import JobId
from orchard.text import did_you_mean, quoted


def known_group(run: Run, name: str) -> str:
    """The path of a group, or of the only one whose last part is this."""
    paths = list(group_statuses(run))
    path = name.strip().strip("/")
    if path in paths:
        return path
    same = [one for one in paths if one.rpartition("/")[2] == path]
    if len(same) == 1:
        return same[0]
    near = did_you_mean(path, paths) or (
        f"; there is {', '.join(sorted(paths)[:10])}" if paths else "; it has no groups"
    )
    raise NotFound(f"Plan '{run.id}' has no group {quoted(name)}{near}")


def jobs_in(run: Run, group: str) -> list[JobId]:
    """The jobs of a group and of the groups in it."""
    path = known_group(run, group)
    return [job.id for job in run.plan.jobs.values() if job.group and f"{job.group}/".startswith(f"{path}/")]
