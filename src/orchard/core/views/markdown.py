"""A plan's end as Markdown, for the page of a CI run or a pull request: the result, jobs, changes, failures and usage.

Names, messages and output come from plans and programs. They stand in code, where Markdown obeys nothing and mentions
no one: a stranger's text can neither end its row nor add a heading, a link or a picture.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import UNSET

from orchard.core.job_names import failed_words
from orchard.core.run import Run
from orchard.core.views import words
from orchard.core.views.documents import JobView, PlanSummary, PlanView, PullRequest, WholePlan
from orchard.core.views.figures import AgentUsage
from orchard.model.phases import shown_phase
from orchard.model.plan import JobId
from orchard.text import fence, safe, safe_lines

Hide = Callable[[str], str]
"""Takes secrets out of a words."""

JOBS_SHOWN = 500
FAILURES_SHOWN = 20
TAIL_LINES = 40
MARKS = {"succeeded": "✅", "failed": "❌", "waiting": "✋", "canceled": "🚫"}
FIRST = ("failed", "waiting", "running", "canceled", "blocked")
"""What is worth a row where there are more jobs than rows."""


def plan_markdown(document: PlanView, run: Run, hide: Hide, now: float) -> str:
    """The whole of it, ending with an empty line: more may be appended."""
    plan = document.plan
    rows = [
        f"## {_marked(plan.status)}{in_code(hide(plan.name))}",
        "",
        *_result(document, hide, now),
        "",
        *_jobs(document, hide, now),
        "",
        *_failures(document.jobs, run, hide),
        *_usage(plan),
    ]
    return "\n".join(rows).rstrip("\n") + "\n\n"


def _marked(status: str) -> str:
    return f"{MARKS[status]} " if status in MARKS else ""


def _result(document: PlanView, hide: Hide, now: float) -> Iterator[str]:
    plan = document.plan
    took = words.elapsed(plan.started_at, plan.ended_at, now, plan.idle_seconds)
    counted = words.counts(plan.counts, plan.validation)
    yield f"**{str(plan.status).capitalize()}**{f' after {took}' if took else ''}: {counted}."
    yield f"Plan {in_code(plan.id)}. {_landing(plan, hide)}{_changes(plan)}"
    told = [plan.error, plan.paused] if plan.status != "failed" else []  # then the failures below say it
    for sentence in [*filter(None, told), *plan.warnings[-10:]]:
        yield f"- {in_code(hide(sentence), 2000)}"
    for one in plan.waiting:
        yield f"- {in_code(one.job)} waits ({one.kind}): {in_code(hide(one.reason), 2000)}"
    for healed in plan.healed:
        yield f"- {in_code(healed.job)} was healed by {in_code(healed.agent)} in {in_code(shown_phase(healed.phase))}"
    for conflict in plan.resolutions[:10]:
        paths = ", ".join(in_code(path) for path in conflict.paths[:3])
        yield f"- A conflict was resolved by {in_code(conflict.by)}: {paths}"
    if plan.hint:
        yield f"- Next: {in_code(hide(plan.hint), 2000)}"


def _landing(plan: PlanSummary, hide: Hide) -> str:
    result = plan.result
    if result is None or result.commit is None:
        return "Nothing landed."
    if plan.pull_request is not None and not plan.landed and not plan.undone:
        return _proposed(plan.pull_request, hide)
    where = f"{in_code(hide(result.branch or ''))} at {in_code(words.short(result.commit))}"
    if plan.undone:
        return f"The landing on {where} was undone."
    return f"Landed on {where}." if plan.landed else f"Not landed: the result is {where}."


def _proposed(request: PullRequest, hide: Hide) -> str:
    """Of a pull request that is being made there is no address yet."""
    where = f"{in_code(hide(request.branch))} at {in_code(words.short(request.commit))}"
    by = f" by {in_code(request.url)}" if request.url else ""
    return f"Proposed for {in_code(hide(request.target))}{by}: {where}."


def _changes(plan: WholePlan) -> str:
    made = plan.summary
    if made is None or not words.changes(made):
        return ""
    files = ", ".join(
        f"{count} {word}"
        for word, count in (("added", made.added), ("modified", made.modified), ("deleted", made.deleted))
        if count
    )
    return f" {words.many(made.added + made.modified + made.deleted, 'file')} changed ({files})."


def _jobs(document: PlanView, hide: Hide, now: float) -> Iterator[str]:
    jobs = document.jobs
    spent = any(job.usage.tokens for job in jobs)
    yield f"| job | status | time | changes |{' tokens | cost |' if spent else ''}"
    yield f"| --- | --- | ---: | --- |{' ---: | ---: |' if spent else ''}"
    shown = jobs
    if len(jobs) > JOBS_SHOWN:
        wanted = sorted(range(len(jobs)), key=lambda at: (_word(jobs[at]) not in FIRST, at))[:JOBS_SHOWN]
        shown = [jobs[at] for at in sorted(wanted)]
    for job in shown:
        took = words.elapsed(job.started_at, job.ended_at, now, job.idle_seconds) if job.attempts else ""
        name = "validation" if job.validation else in_code(hide(job.id))
        row = f"| {name} | {_status(job)} | {took} | {words.changes(job.summary)} |"
        yield row + (f" {_tokens(job.usage)} | {_cost(job.usage)} |" if spent else "")
    if len(jobs) > len(shown):
        yield ""
        yield f"{words.many(len(jobs) - len(shown), 'more job')} not shown."


def _word(job: JobView) -> str:
    return "waiting" if job.waiting else str(job.status)


def _status(job: JobView) -> str:
    word = _word(job)
    more = f" in {shown_phase(job.failed_phase)}" if job.failed_phase and word == "failed" else ""
    more += " (allowed)" if job.allowed else ""
    more += f", attempt {job.attempts}" if job.attempts > 1 else ""
    return f"{_marked(word)}{word}{more}"


def _failures(jobs: Sequence[JobView], run: Run, hide: Hide) -> Iterator[str]:
    failed = [job for job in jobs if job.status == "failed"]
    for job in failed[:FAILURES_SHOWN]:
        yield f"### ❌ {in_code(hide(failed_words(job.id, job.failed_phase)))}"
        yield ""
        if job.error:
            yield in_code(hide(job.error), 2000)
            yield ""
        if rows := tail_of(run, job, hide)[-TAIL_LINES:]:
            yield from (*_fenced(rows), "")
        if job.hint:
            yield f"Hint: {in_code(hide(job.hint), 2000)}"
            yield ""
    if len(failed) > FAILURES_SHOWN:
        yield f"{words.many(len(failed) - FAILURES_SHOWN, 'more failed job')} not shown."
        yield ""


def tail_of(run: Run, job: JobView, hide: Hide) -> list[str]:
    """The last lines that a failed job printed."""
    failure = run.records[JobId(job.id)].failure
    return safe_lines(hide(failure.tail), 500) if failure is not None and failure.tail.strip() else []


def _usage(plan: PlanSummary) -> Iterator[str]:
    if plan.usage.tokens:
        cost = f", {_cost(plan.usage)}" if _cost(plan.usage) else ""
        yield f"Agents used {_tokens(plan.usage)} tokens{cost}."


def _tokens(usage: AgentUsage) -> str:
    return words.amount(usage.tokens) if usage.tokens is not UNSET and usage.tokens else ""


def _cost(usage: AgentUsage) -> str:
    return words.money(usage.cost) if usage.cost is not UNSET and usage.cost is not None else ""


def in_code(text: object, most: int = 300) -> str:
    """A stranger's text as code within a line, or within a cell of a table."""
    shown = safe(text, most)
    if not shown:
        return ""
    if "|" in shown:  # it ends a cell even in code; a reference is plain text to every reader of Markdown
        return "<code>" + re.sub(r"[^\w\s]", lambda mark: f"&#{ord(mark[0])};", shown) + "</code>"
    ticks = fence(shown, 1)
    return f"{ticks} {shown} {ticks}" if "`" in shown else f"{ticks}{shown}{ticks}"


def _fenced(rows: Sequence[str]) -> list[str]:
    ticks = fence("\n".join(rows), 3)
    return [f"{ticks}text", *rows, ticks]
