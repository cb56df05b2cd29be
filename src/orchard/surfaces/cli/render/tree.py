"""A plan as a picture of lines: its jobs below their groups, and what each is doing.

The same lines serve `status`, the live tree and `watch`. They are made from the documents of
`core.views`, and from nothing else.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.core.sides import kept_version, nothing_to_land
from orchard.core.views.documents import AgentAtWork, HealedJob, JobView, PlanSummary, PlanView, PullRequest, Resolution
from orchard.model.phases import shown_phase
from orchard.model.plan import VALIDATION, JobId
from orchard.model.statuses import JobStatus
from orchard.surfaces.cli.render import health, text
from orchard.surfaces.cli.render.lines import Line, Piece, cells, cut, padded, plain, safe, safe_lines
from orchard.surfaces.cli.terminal import speaks_utf8

NAME_COLUMNS = 44
LEAST_NAME = 12
"""Columns that the name of a plan has at least, whatever else has no room then."""
VALIDATION_LABEL = "(validation)"
SHOWN_OF_MANY = 5
ABOUT = 160
"""Characters of what a plan is for."""


class Look(Struct, frozen=True):
    now: float
    marks: Mapping[str, str] = field(default_factory=lambda: text.MARKS)
    details: bool = False
    """Whether errors are shown with their hints, below the job."""
    said: Mapping[JobId, str] = field(default_factory=dict)
    """What running jobs printed last."""
    columns: int | None = None
    """How wide the screen is, where a line that is longer loses its end; None: it is wrapped."""


class Row(Struct, frozen=True):
    """A job, or a group of them, at its place in the tree."""

    depth: int
    label: str
    status: str
    job: JobView | None = None
    inside: int = 0
    """How many jobs of a group have no line of their own."""
    path: str = ""
    """The id of the job, or the whole name of the group."""


Fold = Callable[[str, JobStatus], bool]
"""Whether a group, by its whole name and its status, has one line for all its jobs."""


def header(plan: PlanSummary, look: Look) -> Line:
    base, target = plan.base.branch, plan.target.branch
    took = text.elapsed(plan.started_at, plan.ended_at or plan.idle_since, look.now, plan.idle_seconds)
    # What changes comes first: a narrow screen cuts the end off.
    line: Line = [("  ", ""), text.status_piece(plan.status)]
    line += [("  ", ""), text.wall(plan.sandbox)] if plan.sandbox == "off" else []
    line += [(f"  {took}", "dim")] if took else []
    room = NAME_COLUMNS * 2 if look.columns is None else max(LEAST_NAME, look.columns - cells(plain(line)))
    line = [(cut(safe(plan.name, 80), room), "name"), *line]
    line.append((f"  {safe(plan.id)}", "dim"))
    if base or target:
        line.append((f"  {safe(base or text.short(plan.base.commit), 60)} -> {safe(target or '?', 80)}", "dim"))
    if plan.sandbox not in (None, "off"):
        line += [("  ", ""), text.wall(plan.sandbox or "", shown="dim")]
    return line


QUIET = (JobStatus.SUCCEEDED, JobStatus.PENDING, JobStatus.READY, JobStatus.BLOCKED, JobStatus.CANCELED)
"""Statuses of groups in which nothing happens now."""


def tree(plan: PlanSummary, jobs: Sequence[JobView], look: Look, *, folded: bool = False) -> list[Line]:
    """Jobs below their groups, in the order of the plan; `folded`: groups in which nothing happens have one line."""
    return _draw(tree_rows(plan, jobs, lambda _, status: folded and status in QUIET), look)


def tree_rows(plan: PlanSummary, jobs: Sequence[JobView], fold: Fold) -> list[Row]:
    """The places of the tree, from the top to the bottom."""
    return list(_rows(_nested(jobs), plan.groups, 0, fold=fold))


def flat(jobs: Sequence[JobView], look: Look) -> list[Line]:
    """Jobs by their full ids: what is shown of a plan that is longer than the screen."""
    return _draw([_job_row(job, 0, job.id) for job in jobs], look)


def _job_row(job: JobView, depth: int, label: str) -> Row:
    status = "waiting" if job.waiting else str(job.status)
    return Row(depth, VALIDATION_LABEL if job.validation else safe(label), status, job, path=job.id)


def _nested(jobs: Sequence[JobView]) -> dict[str, object]:
    """Groups as dictionaries, jobs as values; a group stands where its first job stands."""
    top: dict[str, object] = {}
    for job in jobs:
        level = top
        for part in (job.group or "").split("/") if job.group else ():
            below = level.setdefault(f"{part}/", {})
            assert isinstance(below, dict)
            level = below
        level[job.id] = job
    return top


def _rows(
    level: Mapping[str, object], groups: Mapping[str, JobStatus], depth: int, path: str = "", *, fold: Fold
) -> Iterator[Row]:
    for name, inside in level.items():
        if isinstance(inside, JobView):
            yield _job_row(inside, depth, inside.id.rpartition("/")[2])
        elif isinstance(inside, dict):
            full = f"{path}{name}"
            status = groups.get(full.rstrip("/"), JobStatus.PENDING)
            is_folded = fold(full.rstrip("/"), status)
            yield Row(depth, safe(name), status, inside=_jobs_in(inside) if is_folded else 0, path=full.rstrip("/"))
            if not is_folded:
                yield from _rows(inside, groups, depth + 1, full, fold=fold)


def _jobs_in(level: Mapping[str, object]) -> int:
    return sum(_jobs_in(inside) if isinstance(inside, dict) else 1 for inside in level.values())


def _draw(rows: Sequence[Row], look: Look) -> list[Line]:
    width = name_width(rows)
    lines: list[Line] = []
    for row in rows:
        lines.append(row_line(row, width, look))
        if row.job is not None and look.details:
            lines += _detail_lines(row.job, "  " * row.depth + "    ")
    return lines


def name_width(rows: Sequence[Row]) -> int:
    """The columns that the names of these rows take."""
    return min(NAME_COLUMNS, max((2 * row.depth + cells(row.label) for row in rows), default=0))


def row_line(row: Row, width: int, look: Look) -> Line:
    mark, meaning = look.marks.get(row.status, " "), text.MEANING.get(row.status, "")
    name: Piece = (padded("  " * row.depth + row.label, width), "" if row.job else "name")
    line: Line = [(f"{mark} ", meaning), name, ("  ", "")]
    if row.job is None:
        return [*line, (row.status, meaning), (f"  {text.many(row.inside, 'job')}" if row.inside else "", "dim")]
    job, now = row.job, look.now
    took = text.elapsed(job.started_at, job.ended_at, now, job.idle_seconds) if _has_run(job) else ""
    line += [(padded(_word(row), 20), meaning), (" ", ""), (f"{took:>7}", "dim")]
    conditions = job.agent.health if job.agent is not None else ()
    said = look.said.get(JobId(job.id), "")
    extras = f"{_extras(job, now)}{f'  {said}' if said else ''}"
    return [*line, *health.badges(conditions), (extras, "dim")]


def _has_run(job: JobView) -> bool:
    return bool(job.attempts) and job.status not in ("pending", "ready", "blocked", "scheduled")


def _word(row: Row) -> str:
    job = row.job
    if job is None:
        return row.status
    if row.status == "running" and job.phase:
        return f"running {shown_phase(job.phase)}"
    if job.waiting is not None:
        return f"waiting: {safe(job.waiting.kind, 20)}"
    if row.status == "failed" and job.failed_phase and not (job.validation and job.failed_phase == "work"):
        return f"failed: {shown_phase(job.failed_phase)}{' (allowed)' if job.allowed else ''}"
    if row.status == "pending" and job.result is not None:
        return "called done"
    if row.status == "pending" and not job.deployed:
        return "not deployed"
    return row.status


def _extras(job: JobView, now: float) -> str:
    found = [_at_work(job.agent)] if job.agent else []
    found += [shown] if job.agent and (shown := health.active(job.agent.activity, now)) else []
    helpers = sum(one.status in ("waiting", "running") for one in job.subtasks)
    found += [text.many(helpers, "subtask")] if helpers else []
    found += [safe(job.progress.message, 60)] if job.progress and job.status == "running" else []
    found += [f"attempt {job.attempts}"] if job.attempts > 1 else []
    found += [f"{job.usage.tokens:,} tokens"] if job.usage.tokens else []
    found += [text.changes(job.summary)] if text.changes(job.summary) else []
    own = job.id.rpartition("/")[2]
    found += [safe(job.name, 60)] if job.name != own and not job.validation else []
    return f"  {'  '.join(found)}" if found else ""


def _at_work(agent: AgentAtWork) -> str:
    doing = {"heal": " heals", "resolve": " resolves a conflict"}.get(agent.doing, "")
    return f"{safe(agent.name, 40)}{doing}"


def _detail_lines(job: JobView, indent: str) -> list[Line]:
    lines = health.evidence_lines(job.agent.health, indent) if job.agent is not None else []
    for one in job.subtasks:
        lines += health.evidence_lines(one.health, f"{indent}{safe(one.id, 40)} ")
    reason = job.error or (job.waiting.reason if job.waiting else _called_done(job))
    for row in safe_lines(reason)[:20] if reason else []:
        lines.append([(indent, ""), (row, "bad" if job.error else "wait")])
    if job.conflict:
        lines.append([(indent, ""), ("being resolved in ", "wait"), (safe(job.conflict, 4000), "")])
    elif job.hint:
        lines.append([(indent, ""), ("hint: ", "wait"), (safe(job.hint, 2000), "")])
    return lines


def _called_done(job: JobView) -> str | None:
    """Of a job that was called done before it began: that it runs nothing, and waits for what it needs."""
    if job.status != "pending" or job.result is None:
        return None
    needs = [need for need in job.needs if need != VALIDATION]
    after = f", after {', '.join(needs)}" if needs else ""
    return f"It was called done, and runs nothing{after}{f': {job.result}' if job.result else '.'}"


BAR_CELLS = 20


def bar(plan: PlanSummary, left: float | None, *, ascii_only: bool) -> Line:
    """How much of a plan under way is done, and how long the rest takes as far as that is known."""
    written = text.jobs_written(plan.counts, plan.validation)
    total, done = written.get("total", 0), written.get("succeeded", 0)
    full, rest = ("#", "-") if ascii_only else ("━", "─")
    cells_done = BAR_CELLS * done // total if total else 0
    line: Line = [
        (full * cells_done, "good"),
        (rest * (BAR_CELLS - cells_done), "dim"),
        (f" {done}/{total}  ", "strong"),
    ]
    return [*line, (f"about {text.duration(max(1.0, left))} left  ", "dim")] if left is not None else line


def counts_line(plan: PlanSummary, capacity: int | None = None) -> Line:
    line: Line = [(text.counts(plan.counts, plan.validation), "strong")]
    return [*line, (f"  (at most {capacity} at once)", "dim")] if capacity else line


def end_lines(plan: PlanSummary) -> list[Line]:
    """What is wrong with the plan as a whole, what to know of it, and what to do next."""
    lines: list[Line] = []
    if plan.error:
        lines += [[(row, "bad" if plan.status == "failed" else "wait")] for row in safe_lines(plan.error)[:10]]
    elif plan.paused:
        lines.append([(f"Paused: {safe(plan.paused, 2000)}", "wait")])
    lines += [*_healed_lines(plan.healed), *_resolved_lines(plan.resolutions, plan.target.branch)]
    lines += [text.warning(warning) for warning in plan.warnings[-10:]]
    if plan.hint:
        lines.append(text.next_command(plan.hint))
    return lines


def _healed_lines(healed: list[HealedJob]) -> Iterator[Line]:
    """Which jobs needed an agent to pass, and which agent changed their files."""
    by_agent: dict[str, dict[str, list[str]]] = {}
    for one in healed:
        by_agent.setdefault(one.agent, {}).setdefault(one.job, []).append(shown_phase(one.phase))
    for agent, jobs in by_agent.items():
        named = [f"{safe(job)} ({', '.join(phases)})" for job, phases in jobs.items()]
        more = f" and {len(named) - SHOWN_OF_MANY} more" if len(named) > SHOWN_OF_MANY else ""
        many = f"{text.many(len(named), 'job')} {'was' if len(named) == 1 else 'were'} healed by {safe(agent)}: "
        yield [(many, "wait"), (", ".join(named[:SHOWN_OF_MANY]) + more, "")]


def _resolved_lines(resolutions: list[Resolution], target: str | None) -> Iterator[Line]:
    """Where two jobs, or a job and the target, changed the same lines, who decided, and whose version is dropped."""
    for one in resolutions[:SHOWN_OF_MANY]:
        paths = ", ".join(safe(path) for path in one.paths[:3])
        more = f" and {len(one.paths) - 3} more" if len(one.paths) > 3 else ""
        kept = safe(kept_version(one.by, one.ours, one.theirs, target), 500)
        where = f"by {safe(one.by)} in {safe(one.job)} ({shown_phase(one.phase)}): {paths}{more}"
        yield [("conflict resolved ", "wait"), (where + (f", {kept}" if kept else ""), "")]
    if len(resolutions) > SHOWN_OF_MANY:
        yield [(f"... and {len(resolutions) - SHOWN_OF_MANY} more conflicts were resolved", "wait")]


def result_line(document: PlanView) -> Line | None:
    """Where the merged result of a plan is, by its whole document."""
    plan = document.plan
    result = plan.result
    if result is None:
        return None
    where = f"{safe(result.branch or '')} at {text.short(result.commit)}"
    if plan.undone:
        return [("undone: ", "wait"), (f"the landing on {where} was taken back", "")]
    if plan.landed:
        return [("landed: ", "good"), (where, "")]
    if plan.pull_request is not None:
        return request_line(plan.pull_request)
    if result.commit is None:
        changed = any(text.changes(job.summary) for job in document.jobs if not job.validation)
        why = nothing_to_land(changed=changed, resolvers=[one.by for one in plan.resolutions])
        return [("nothing to land: ", "dim"), (why, "")]
    return [("not landed: ", "wait"), (f"the result is {where}", "")]


def request_line(request: PullRequest) -> Line:
    way = f" ({safe(request.branch)} into {safe(request.target)})"
    return [("pull request: ", "good"), (safe(request.url), "strong"), (way, "")]


def status_lines(document: PlanView, jobs: Sequence[JobView]) -> list[Line]:
    """A plan with these of its jobs, and everything that a person asks next."""
    plan, look = document.plan, look_now(details=True)
    about: list[Line] = [[(safe(plan.description, ABOUT), "dim")]] if plan.description else []
    held: list[Line] = [[("limit: ", "dim"), (safe(one, 300), "dim")] for one in plan.limits]
    lines = [header(plan, look), *about, *tree(plan, jobs, look), counts_line(plan), *held]
    result = result_line(document)
    if plan.pull_request is not None and (plan.landed or plan.undone):
        lines.append(request_line(plan.pull_request))
    told = (plan.status == "waiting" and any(job.waiting for job in jobs)) or (
        plan.status == "failed" and any(job.status == "failed" and job.error for job in jobs)
    )  # under the job, above
    return [*lines, *([result] if result else []), *end_lines(replace(plan, error=None) if told else plan)]


def look_now(*, details: bool = False) -> Look:
    return Look(time.time(), text.MARKS if speaks_utf8(sys.stdout) else text.ASCII_MARKS, details)
