"""The last words about a plan: what landed where, what failed, and the command that helps."""

import re
import time
from collections.abc import Collection
from itertools import repeat

from msgspec.structs import replace

from orchard.app import App
from orchard.core.job_names import failed_words, job_word
from orchard.core.records import JobRecord
from orchard.core.run import Run
from orchard.core.views.documents import JobView, PlanView
from orchard.model.events.plans import Landed
from orchard.model.plan import JobId
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe, safe_lines
from orchard.surfaces.cli.render.tree import end_lines, request_line, result_line

FAILURES_SHOWN = 10
TAIL_LINES = 10
SAID_LINES = 40


def summary_lines(app: App, run: Run, document: PlanView) -> list[Line]:
    plan = document.plan
    took = text.elapsed(plan.started_at, plan.ended_at, time.time(), plan.idle_seconds)
    first: Line = [
        text.status_piece(plan.status, str(plan.status).capitalize()),
        (f" after {took}" if took else "", ""),
        (f": {text.counts(plan.counts, plan.validation)}", ""),
    ]
    lines = [first, *_failures(run, document), *_openings(app, run, document), *_idle_workers(document)]
    if plan.landed and run.landed is not None:
        lines.append(_landed_line(app, run, run.landed))
        lines += [request_line(plan.pull_request)] if plan.pull_request is not None else []
    elif (result := result_line(document)) is not None:
        lines.append(result)
    elif plan.status == "failed":
        lines.append([("Nothing landed.", "dim")])
    if plan.status == "canceled":
        lines += saved_lines(run)
    # The failed jobs are named above, so the plan's own sentence about them is left out.
    return [*lines, *end_lines(replace(plan, error=None) if plan.status == "failed" else plan)]


def saved_refs(run: Run) -> dict[str, JobId]:
    """The refs that hold what lay in worktrees of a plan, each with its job."""
    return {saved.ref: job for job, record in run.records.items() for saved in record.saved}


def saved_lines(run: Run, before: Collection[str] = ()) -> list[Line]:
    """What was saved of the work of jobs, other than `before`, and the command that gives it back."""
    new = {ref: job for ref, job in saved_refs(run).items() if ref not in before}
    if not new:
        return []
    jobs = list(dict.fromkeys(map(job_word, new.values(), repeat(run.plan.jobs))))
    whose = f"job '{safe(jobs[0])}'" if len(jobs) == 1 else text.many(len(jobs), "job")
    command = f"orchard recover {next(iter(new))} DIR" if len(new) == 1 else f"orchard recover --plan {run.id}"
    return [text.done(f"What lay in the worktree{'s' * (len(jobs) > 1)} of {whose} is saved: {command}")]


def _landed_line(app: App, run: Run, landed: Landed) -> Line:
    move = f"{text.short(landed.old)}..{text.short(landed.new)}" if landed.old else f"new, at {text.short(landed.new)}"
    checkout = f"; checkout in {safe(landed.checkout)} updated" if landed.checkout else ""
    start = landed.old or (run.started.base_commit if run.started else None)
    facts = _facts(app, start, landed.new) if start else ""
    return [("Landed on ", "good"), (safe(landed.branch), "name"), (f" ({move}){facts}{checkout}", "")]


def _facts(app: App, old: str, new: str) -> str:
    commits = app.repo.git("rev-list", "--count", f"{old}..{new}").stdout
    names = app.repo.git("diff-tree", "-r", "-M", "-z", "--name-only", old, new).stdout
    return f", {text.many(int(commits), 'commit')}, {text.many(names.count(bytes(1)), 'file')}"


def _idle_workers(document: PlanView) -> list[Line]:
    lines: list[Line] = []
    for job in document.jobs:
        worker = job.worker
        if worker is not None and worker.state == "idle" and worker.said:
            lines.append([("  ", ""), (safe(job.id), "name"), (f" says ({safe(worker.agent)}):", "dim")])
            lines += [[("    ", ""), (row, "")] for row in safe_lines(worker.said)[-SAID_LINES:]]
    return lines


def _failures(run: Run, document: PlanView) -> list[Line]:
    failed = [job for job in document.jobs if job.status == "failed"]
    lines: list[Line] = []
    for job in failed[:FAILURES_SHOWN]:
        lines += _failure(run, job)
    if len(failed) > FAILURES_SHOWN:
        lines.append([(f"... and {text.many(len(failed) - FAILURES_SHOWN, 'failed job')} more", "dim")])
    return lines


_SETTING = re.compile(r'(sandbox\.\w+) = \["([^"]*)"\]')


def _openings(app: App, run: Run, document: PlanView) -> list[Line]:
    """Where failed jobs were kept from several things that one key opens: that key once, since a file has it once."""
    found: dict[str, dict[str, set[str]]] = {}
    for job in (JobId(job.id) for job in document.jobs if job.status == "failed"):
        last = run.records[job].last
        for one in last.refused.values() if last is not None else ():
            if (setting := _SETTING.fullmatch(one.setting or "")) is not None:
                found.setdefault(setting[1], {}).setdefault(setting[2], set()).add(job)
    lines: list[Line] = []
    for key, values in found.items():
        if len(values) > 1 and len(set().union(*values.values())) > 1:
            how = app.opening_line(key, ", ".join(f'"{value}"' for value in values))
            lines.append([("  To open what these jobs were kept from: ", "wait"), (safe(how, 2000), "")])
    return lines


def _failure(run: Run, job: JobView) -> list[Line]:
    message: Line = [
        ("  ", ""),
        (f"{safe(failed_words(job.id, job.failed_phase))}: ", "bad"),
        (safe(job.error or "", 2000), ""),
    ]
    lines = [message]
    record = run.records[JobId(job.id)]
    tail = record.failure.tail if record.failure else ""
    lines += [[("    | ", "dim"), (row, "")] for row in safe_lines(tail, 500)[-TAIL_LINES:] if tail.strip()]
    if note := _note(record):
        lines.append([("    note: ", "wait"), (safe(note, 1000), "")])
    if job.hint:
        lines.append([("    hint: ", "wait"), (safe(job.hint, 2000), "")])
    if tail.strip():
        lines.append([(f"    full log: orchard logs {job_word(job.id, run.plan.jobs)} --plan {run.id}", "dim")])
    return lines


def _note(record: JobRecord) -> str:
    """What is noted about the phase that failed, such as why nobody healed it."""
    phases = record.attempts[-1].phases if record.attempts else []
    return phases[-1].note if phases and phases[-1].outcome == "failed" else ""
