"""A plan as people decide about it: the graph as rows, and every command that it would run, in full."""

from collections.abc import Iterator, Mapping

from orchard.core.views.graph import columns
from orchard.model.limits import STRING_BYTES
from orchard.model.permissions import ALL
from orchard.model.plan import VALIDATION, AgentWork, Job, JobId, Plan, ProcessWork, ShellWork, Work
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Piece, safe, safe_lines, table

TASK_LINES = 6
"""Of a task for an agent so many lines are shown; of a command all are."""


def proposal_lines(plan: Plan, agents: Mapping[JobId, str] | None = None) -> list[Line]:
    """`agents`: who would do the work of jobs that an agent does, where that is known."""
    step = columns(plan)
    count = len(plan.jobs) - 1
    steps = text.many(max(step[job] for job in plan.jobs if job != VALIDATION) + 1, "step")
    lines: list[Line] = [[(safe(plan.name), "name"), (f"  {text.many(count, 'job')} in {steps}", "dim")], []]
    lines += table([_row(job, step, (agents or {}).get(job.id, "")) for job in _by_step(plan, step)], 60)
    for job in _by_step(plan, step):
        lines += [[], [(safe(job.id), "strong"), (f"  {safe(job.task)}" if job.task else "", "dim")]]
        if job.env:
            lines.append([("  env: ", "dim"), (safe(_environment(job.env), STRING_BYTES), "wait")])
        lines += [line for word, work in _works(job) for line in _work(word, work)]
    around = [line for word, work in _around(plan) for line in _work(word, work)]
    around += [[(f"  {word}: ", "dim"), (safe(value, STRING_BYTES), "")] for word, value in _settings(plan)]
    if around:
        lines += [[], [("the whole plan", "strong")], *around]
    return lines


def _by_step(plan: Plan, step: Mapping[JobId, int]) -> list[Job]:
    jobs = [job for job in plan.jobs.values() if job.id != VALIDATION]
    return sorted(jobs, key=lambda job: step[job.id])


def _row(job: Job, step: Mapping[JobId, int], agent: str) -> list[Piece]:
    after = f"after {', '.join(safe(need) for need in job.needs)}" if job.needs else ""
    by = f"by {safe(agent)}" if agent else ""
    return [(f"  {step[job.id] + 1}", "dim"), (safe(job.id), "name"), (by, "busy"), (after, "dim")]


def _works(job: Job) -> Iterator[tuple[str, Work]]:
    yield from (("setup", work) for work in job.setup or ())
    yield from (("precheck", work) for work in job.prechecks)
    if job.work is not None:
        yield "work", job.work
    yield from (("postcheck", work) for work in job.postchecks)


def _around(plan: Plan) -> Iterator[tuple[str, Work]]:
    yield from (("setup", work) for work in plan.setup or ())
    if plan.verify is not None:
        yield "verify", plan.verify


def _settings(plan: Plan) -> Iterator[tuple[str, object]]:
    """What else a plan decides that its reader would want to know."""
    if plan.description:
        yield "description", plan.description
    for word in ("base", "target", "after", "resolver", "worktree_root", "sandbox", "network"):
        if (value := getattr(plan, word)) is not None:
            yield word, value
    if plan.land != "auto":
        yield "land", plan.land
    if plan.push:
        yield "push", "yes, after landing"
    if plan.submodules:
        yield "submodules", "yes, in every worktree"
    if plan.params:
        yield "params", _environment(plan.params)
    if plan.env:
        yield "env", _environment(plan.env)


def _environment(env: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in env.items())


def _conditions(work: Work) -> Iterator[tuple[str, str]]:
    """What decides where a work runs and what it may reach."""
    if work.cwd is not None:
        yield "in", work.cwd
    if work.env:
        yield "env", _environment(work.env)
    if isinstance(work, AgentWork):
        for word in ("allowed_folders", "allowed_urls", "mcp_servers"):
            if values := getattr(work, word):
                yield word, ", ".join(values)
        if work.tools != ALL:
            yield "may use", work.tools.words


def _work(word: str, work: Work) -> list[Line]:
    kind, rows, most = _content(work)
    shown = rows if most is None or len(rows) <= most else rows[:most]
    lines: list[Line] = [[(f"  {word}: ", "dim"), (kind, "busy"), (shown[0], "")]]
    lines += [[(" " * (len(word) + 4), ""), (row, "")] for row in shown[1:]]
    if len(rows) > len(shown):
        lines.append([(f"    ... {text.many(len(rows) - len(shown), 'more line')}", "dim")])
    lines += [[(f"    {name}: ", "dim"), (safe(value, STRING_BYTES), "wait")] for name, value in _conditions(work)]
    return lines


def _content(work: Work) -> tuple[str, list[str], int | None]:
    if isinstance(work, ShellWork):
        return "", safe_lines(work.command, STRING_BYTES), None
    if isinstance(work, ProcessWork):
        return "", [" ".join(repr(safe(word, STRING_BYTES)) for word in (work.executable, *work.args))], None
    assert isinstance(work, AgentWork)
    who = f"@{safe(work.agent or 'agent')} "
    return who, safe_lines((work.instructions or f"(in the file {work.instructions_file})").strip(), 200), TASK_LINES
