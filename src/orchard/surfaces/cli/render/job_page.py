"""One job on one page: what it is, what it did, why it failed, and where its things are."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from orchard.core.views.documents import AttemptView, Failure, JobDetails, SubtaskView, TurnView
from orchard.core.views.sandbox import RefusalView
from orchard.git.worktree.job_links import named_worktree
from orchard.model.phases import shown_phase
from orchard.model.plan import VALIDATION
from orchard.operations.queries.subtasks import SubtaskDetails
from orchard.surfaces.cli.render import health, text
from orchard.surfaces.cli.render.lines import Line, Meaning, cells, padded, safe, safe_lines
from orchard.surfaces.cli.render.tree import Look

LABEL_COLUMNS = 12
ASKED = "would do"
LONG = (ASKED, "says", "called done", "outcome", "error", "commits", "limits")
"""What may take several lines."""
SHOWN_ABOVE = ("id", "name", "group", "needs", "task", "tools", "deny_tools", "ask_tools")


def job_lines(job: JobDetails, look: Look) -> list[Line]:
    mark = look.marks.get(job.status, " ")
    first: Line = [
        (f"{mark} ", text.MEANING.get(job.status, "")),
        (safe(job.id), "name"),
        (f"  {safe(job.name)}" if job.name != job.id.rpartition("/")[2] else "", ""),
        ("  ", ""),
        text.status_piece(job.status),
        (f" {shown_phase(job.phase)}" if job.phase else "", "busy"),
    ]
    attempts = job.attempts_detail
    lines = [first, *_facts(job)]
    if attempts:
        last = attempts[-1]
        shown = replace(last, worktree=None) if last.worktree == job.worktree else last  # it is named above
        lines += attempt_lines(shown, look, works=_is_other(last, job.configuration))
    if len(attempts) > 1:
        earlier = text.many(len(attempts) - 1, "earlier attempt")
        lines.append([(f"{earlier}: orchard attempts {job.id} --plan {job.plan}", "dim")])
    return lines + list(_process_lines(job)) + list(_log_lines(job))


def _fact(label: str, value: object, meaning: Meaning = "") -> Line:
    return [(f"  {padded(label, LABEL_COLUMNS)}", "dim"), (safe(value, 2000), meaning)]


def _facts(job: JobDetails) -> Iterator[Line]:
    for label, value, meaning in _rows(job):
        if value:
            yield from _several(label, value, meaning) if label in LONG else [_fact(label, value, meaning)]
    for name, held in job.configuration.items():
        if name == "env":  # the values may be secrets
            yield _fact("env", ", ".join(held), "dim")
        elif name not in SHOWN_ABOVE:
            yield from _several(name.replace("_", " "), _compact(held), "dim")


def _rows(job: JobDetails) -> Iterator[tuple[str, str | None, Meaning]]:
    """What is known of a job, by its label; what is empty is not shown."""
    waiting, worker, progress, used, evidence = job.waiting, job.worker, job.progress, job.usage, job.evidence
    yield "task", job.task, ""
    yield "needs", ", ".join(job.needs), ""
    yield "needed by", ", ".join("validation" if one == VALIDATION else one for one in job.needed_by), ""
    yield "waits for", f"{waiting.kind}: {waiting.reason}" if waiting else "", "wait"
    yield ASKED, (waiting.input or "") if waiting else "", "wait"
    yield "waits for", "" if job.deployed else "a person or an agent to deploy it", "wait"
    if worker:
        told = f", {text.many(worker.queued, 'message')} to be told" if worker.queued else ""
        role = f" as {worker.definition}" if worker.definition else ""
        yield "worker", f"{worker.agent or 'agent'}{role} {worker.state}{told}", ""
        yield "now", health.active(worker.activity, time.time(), 300), ""
        for one in worker.health:
            yield "health", f"{one.condition}: {one.evidence}", health.meaning(one.condition)
        yield "says", worker.said if worker.state == "idle" else "", ""
    if (may := job.permissions) is not None and may.sources:
        yield "may use", may.tools, ""
        yield "because of", "; ".join(f"{one.origin}: {one.tools}" for one in may.sources), ""
    if progress:
        far = f"{progress.percent:.0f} %  " if progress.percent is not None else ""
        yield "progress", f"{far}{progress.message}", ""
    yield "base", job.base_commit, ""
    yield "commit", job.commit, "good"
    if changed := text.changes(job.summary):
        yield "changes", f"{changed}, {text.many(job.summary.commits, 'commit')}", ""
    if job.aggregated and job.aggregated != job.summary and (brought := text.changes(job.aggregated)):
        yield "with needs", f"{brought}, {text.many(job.aggregated.commits, 'commit')}", ""
    yield "commits", "\n".join(f"{text.short(one.commit)} {one.subject}" for one in job.commits), ""
    if used.tokens:
        cost = f", ${used.cost:.4f} ({used.cost_source})" if used.cost is not None else ""
        premium = f", {used.premium_requests:g} premium requests" if used.premium_requests else ""
        yield "used", f"{used.tokens:,} tokens in {text.many(used.requests or 0, 'request')}{premium}{cost}", ""
    yield "healed", ", ".join(f"{shown_phase(one.phase)} by {one.agent}" for one in job.healed), "wait"
    yield "worktree", job.worktree and str(named_worktree(Path(job.worktree), job.plan, job.id)), ""
    if job.sandbox is not None:
        said, meaning = text.wall(job.sandbox)
        yield "sandbox", said.removeprefix("sandbox "), meaning
    yield "limits", "\n".join(job.limits), ""
    yield "called done", "yes, and nothing was said about it" if job.result == "" else job.result, ""
    if evidence:
        yield "evidence", f"{evidence.get('type', '')}: {evidence.get('summary', '')}", ""
        yield "outcome", _compact(evidence.get("outcome") or ""), ""
    yield "error", job.error, "bad"
    yield "resolved in", job.conflict, "wait"
    yield "hint", None if job.conflict else job.hint, "wait"


def _several(label: str, value: object, meaning: Meaning) -> Iterator[Line]:
    if len(label) > LABEL_COLUMNS:  # the label has a line of its own rather than being cut
        yield [(f"  {label}", "dim")]
        label = ""
    # What a person is asked about is shown whole.
    rows = safe_lines(value, 1_000_000) if label == ASKED else safe_lines(value)[:20]
    for number, row in enumerate(rows):
        yield [(f"  {padded(label if number == 0 else '', LABEL_COLUMNS)}", "dim"), (row, meaning)]


def _compact(value: object) -> str:
    """A value as people write it; several works, one on each line."""
    if isinstance(value, list | tuple):
        return "\n".join(_compact(inner) for inner in value)
    if isinstance(value, Mapping):
        return str(value.get("command") or ", ".join(f"{name}: {_inside(inner)}" for name, inner in value.items()))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _inside(value: object) -> str:
    """A value within another: no form of ours is shown, and lists and objects are told apart."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_inside(inner) for inner in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_inside(inner)}" for name, inner in value.items()) + "}"
    return "none" if value is None else _compact(value)


def _is_other(attempt: AttemptView, configuration: Mapping[str, object]) -> bool:
    now = (configuration.get("work"), configuration.get("prechecks") or [], configuration.get("postchecks") or [])
    return (attempt.work, attempt.prechecks, attempt.postchecks) != now


def _work_lines(attempt: AttemptView) -> Iterator[Line]:
    for name in ("work", "prechecks", "postchecks"):
        if ran := getattr(attempt, name):
            for number, row in enumerate(safe_lines(_compact(ran))[:20]):
                yield [(f"    {padded(name if number == 0 else '', LABEL_COLUMNS)}", "dim"), (row, "dim")]


def attempt_lines(attempt: AttemptView, look: Look, *, works: bool = True) -> list[Line]:
    took = text.elapsed(attempt.started_at, attempt.ended_at, look.now, attempt.idle_seconds)
    lines: list[Line] = [
        [
            (f"  attempt {attempt.number} ", "name"),
            text.status_piece(attempt.outcome),
            (f"  {took}  {text.day(attempt.started_at)}", "dim"),
        ]
    ]
    if attempt.base_commit:
        where = f" in {safe(attempt.worktree)}" if attempt.worktree else ""
        lines.append([(f"    from {text.short(attempt.base_commit)}{where}", "dim")])
    lines += _work_lines(attempt) if works else ()
    for phase in attempt.phases:
        spent = text.elapsed(phase.started_at, phase.ended_at, look.now)
        outcome = phase.outcome or "running"
        note = f"  {safe(phase.note)}" if phase.note else ""
        shown = text.status_piece(outcome, padded(outcome, 11))
        lines.append([(f"    {padded(shown_phase(phase.phase), 12)}", ""), shown, (f"{spent:>7}{note}", "dim")])
    turns = [turn for turn in attempt.turns if not turn.subtask]
    lines += [line for turn in turns for line in _turn_lines(turn, look)]
    lines += [line for subtask in attempt.subtasks for line in _subtask_lines(subtask, look)]
    lines += [_refusal_line(refusal) for refusal in attempt.refused]
    return lines + _failure_lines(attempt.failure)


def _refusal_line(refusal: RefusalView) -> Line:
    how = refusal.how or refusal.setting
    opens = f"; to open it: {safe(how, 500)}" if how else ""
    times = f", {refusal.count} times or more" if refusal.count > 1 else ""
    program = f", {safe(refusal.program, 40)}" if refusal.program else ""
    told = f"{safe(refusal.name, 300)} ({safe(refusal.reason)}{program}{times}){opens}"
    return [("    kept from ", "wait"), (told, "dim")]


def _turn_lines(turn: TurnView, look: Look) -> Iterator[Line]:
    spent = text.elapsed(turn.started_at, turn.ended_at, look.now)
    outcome = turn.healed or turn.outcome or "running"
    used = turn.usage
    facts = [turn.model or "", f"{used.tokens:,} tokens" if used.models else "", turn.message]
    more = "  ".join(safe(fact) for fact in facts if fact)
    who = f"{turn.agent}{f' as {turn.definition}' if turn.definition else ''} {turn.trigger}"
    good = outcome in ("done", "passed")
    yield [
        (f"    {padded(who, max(20, cells(who) + 2))}", "name"),
        (padded(outcome, 11), "good" if good else "wait"),
        (f"{spent:>7}  {more}", "dim"),
    ]
    for note in turn.notes:
        yield [(f"      {safe(note.kind)}: ", "wait"), (safe(note.message, 500), "dim")]
    yield from health.evidence_lines([one for one in turn.health if one.ended_at or turn.ended_at], "      was ")


def _subtask_lines(subtask: SubtaskView, look: Look) -> Iterator[Line]:
    """Work that the agent handed to another: who, what, how it ended, and whether it was taken over."""
    spent = text.elapsed(subtask.started_at, subtask.ended_at, look.now) if subtask.started_at else ""
    used = subtask.usage
    facts = [
        subtask.definition or subtask.agent,
        f"{used.tokens:,} tokens" if used.models else "",
        text.changes(subtask.changes),
        "pulled" if subtask.pulled else "",
        safe(subtask.name, 200) if subtask.name != subtask.id else "",
    ]
    more = "  ".join(safe(fact) for fact in facts if fact)
    status = subtask.status
    meaning: Meaning = {"completed": "good", "failed": "bad", "running": "busy"}.get(status, "wait")  # type: ignore[assignment]
    indent = "      " if subtask.parent else "    "
    yield [
        (f"{indent}{padded(subtask.id, 26 - len(indent))}", "name"),
        (padded(status, 12), meaning),
        (f"{spent:>6}  {more}", "dim"),
    ]
    yield from health.evidence_lines(subtask.health, f"{indent}  ")
    if shown := health.active(subtask.activity, look.now, 300):
        yield [(f"{indent}  {shown}", "dim")]
    told = subtask.message or subtask.summary or (subtask.progress.message if subtask.progress else None)
    for row in safe_lines(told, 500)[:5] if told else []:
        yield [(f"{indent}  {row}", "dim")]


def subtask_page(found: SubtaskDetails, result: str, look: Look) -> list[Line]:
    """A subtask by itself: what was asked of it, how it stands, and everything that it came to."""
    one = found.subtask
    lines: list[Line] = [*_subtask_lines(one, look), [], [("asked", "dim")]]
    lines += [[(f"  {row}", "")] for row in safe_lines(one.instructions, 500)[:20]]
    if result:
        lines += [[], [("result", "dim")]]
        lines += [[(f"  {row}", "")] for row in safe_lines(result, 10_000)]
    return lines


def _failure_lines(failure: Failure | None) -> list[Line]:
    if failure is None:
        return []
    how = f" ({failure.reason}{_ended(failure)})"
    lines: list[Line] = [[("    ", ""), (safe(failure.message, 2000), "bad"), (how, "dim")]]
    if failure.tail:
        lines += [[("    | ", "dim"), (row, "")] for row in safe_lines(failure.tail, 500)[-40:]]
    if failure.hint:
        lines.append([("    hint: ", "wait"), (safe(failure.hint, 2000), "")])
    return lines


def _ended(failure: Failure) -> str:
    if failure.exit_code is not None:
        return f", exit code {failure.exit_code}"
    return f", signal {failure.signal}" if failure.signal is not None else ""


def _process_lines(job: JobDetails) -> Iterator[Line]:
    for process in job.processes:
        share = f"{process.cpu_percent:.0f} % of a core, " if process.cpu_percent is not None else ""
        used = f"{share}{process.cpu_seconds:.1f} s, {text.bytes_text(process.rss)}"
        yield [
            ("  process     ", "dim"),
            (f"{process.pid}  {used}  {safe(process.command or process.name, 200)}", ""),
        ]


def _log_lines(job: JobDetails) -> Iterator[Line]:
    for log in job.logs:
        if log.attempt == job.attempts:
            where = f"{safe(log.path)}  {text.bytes_text(log.size)}"
            yield [(f"  log {padded(shown_phase(log.phase), 12)}", "dim"), (where, "dim")]
    for subtask in job.subtasks:
        if subtask.log:
            yield [(f"  log {padded(subtask.id, 14)}", "dim"), (safe(subtask.log), "dim")]
    for saved in job.saved:
        yield _fact("saved work", f"{saved.ref}  {saved.why}")
