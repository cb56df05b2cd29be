"""What was done to a repository and what became of it, as plain values; and the rules that must hold between them.

A history is gathered when all is quiet (`history_world`). Nothing here runs anything: a rule looks at the
history and names what is wrong with it, so each rule can be tried on a history that was doctored.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

VALIDATION = "__snapshot-validation__"
REFS = re.compile(
    r"refs/heads/.+|refs/orchard/(?:(?:integration|snapshot)/(?P<line>[^/]+)|"
    r"(?:keep|wip|base|resolutions)/(?P<plan>[^/]+)/.+)"
)


@dataclass(frozen=True)
class Op:
    """One thing that a client asked for, between two moments of its own clock."""

    client: int
    verb: str
    plan: str
    """The id of the plan; the name of it for `submit`."""
    invoked: float
    ended: float
    result: str
    """`ok`: acknowledged; `fail`: refused; `unknown`: nobody can say."""
    detail: str = ""
    """The id that `submit` returned, or the job that was named."""
    said: str = ""


@dataclass(frozen=True)
class Fact:
    """One event of the journal, as it is stored."""

    seq: int
    at: float
    plan: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Stamp:
    """What a job's own program wrote down, outside of the repository."""

    kind: str
    """`start`, `stop`, `overlap` (another attempt at the job was alive) or `verified`."""
    at: float
    plan: str
    job: str
    attempt: int
    note: str = ""


@dataclass(frozen=True)
class Commit:
    """A commit that some ref holds."""

    oid: str
    parents: tuple[str, ...]
    landing: str = ""
    """What its trailer says."""


@dataclass
class History:
    """Everything that the clients, the journal, the jobs and git know, when all is quiet."""

    ops: list[Op] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)
    user_commits: list[tuple[str, str]] = field(default_factory=list)
    """Branch and commit of what the user did there meanwhile."""
    tips: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    """The recorded commits that can be read."""
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    """The files of some commits."""
    refs: list[str] = field(default_factory=list)
    rows: dict[str, Any] = field(default_factory=dict)
    """What lists show of a plan, as it is stored ..."""
    replayed: dict[str, Any] = field(default_factory=dict)
    """... and as its events make it."""
    orphans: list[str] = field(default_factory=list)
    fsck: str = ""
    checkout: str = ""
    regions: dict[str, int] = field(default_factory=dict)
    """Which line of the shared file each plan changes, by the name of the plan."""

    @cached_property
    def plans(self) -> dict[str, list[Fact]]:
        """The events of each plan, in their order."""
        found: dict[str, list[Fact]] = {}
        for fact in self.facts:
            found.setdefault(fact.plan, []).append(fact)
        return found

    def of(self, plan: str, *names: str) -> list[Fact]:
        return [fact for fact in self.plans.get(plan, []) if fact.name in names]

    def name_of(self, plan: str) -> str:
        return str(self.of(plan, "PlanSubmitted")[0].body["plan"]["name"])

    def landed(self, plan: str) -> Fact | None:
        """The landing of a plan that stands."""
        last = self.of(plan, "Landed", "LandingUndone")
        return last[-1] if last and last[-1].name == "Landed" else None

    def ancestors(self, oid: str) -> set[str]:
        """A commit and all that it builds on."""
        if oid not in self._ancestors:
            seen, waiting = set[str](), [oid]
            while waiting:
                one = waiting.pop()
                if one not in seen and one in self.commits:
                    seen.add(one)
                    waiting += self.commits[one].parents
            self._ancestors[oid] = seen
        return self._ancestors[oid]

    @cached_property
    def _ancestors(self) -> dict[str, set[str]]:
        return {}


Rule = Callable[[History], Iterator[str]]
RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    RULES[function.__name__] = function
    return function


def check(history: History) -> list[str]:
    """Everything that is wrong, each with the rule that it breaks."""
    return [f"{name}: {problem}" for name, found in RULES.items() for problem in found(history)]


# ------------------------------------------------------------------------- what was acknowledged


@rule
def every_acknowledged_submit_is_in_the_journal(history: History) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for plan in history.plans:
        names.setdefault(history.name_of(plan), []).append(plan)
    for name, plans in names.items():
        if len(plans) > 1:
            yield f"'{name}' was submitted once and is there as {plans}"
    for op in history.ops:
        found = names.get(op.plan, [])
        if op.verb == "submit" and op.result == "ok" and found != [op.detail]:
            yield f"'{op.plan}' was acknowledged as {op.detail} and is there as {found}"
        if op.verb == "submit" and op.result == "fail" and found:
            yield f"'{op.plan}' was refused and is there as {found}"


def _between(facts: list[Fact], op: Op) -> list[Fact]:
    return [fact for fact in facts if op.invoked <= fact.at <= op.ended]


def _in_force(history: History, op: Op, begins: tuple[str, ...], ends: tuple[str, ...]) -> bool:
    """Whether what was asked for held at some moment of the request."""
    for fact in history.of(op.plan, *begins):
        over = [end.at for end in history.of(op.plan, *ends) if end.seq > fact.seq]
        if fact.at <= op.ended and not any(at < op.invoked for at in over):
            return True
    return False


LEAVES: Mapping[str, Callable[[History, Op], bool]] = {
    "cancel": lambda history, op: _in_force(history, op, ("PlanCanceled",), ("JobRetried",)),
    "pause": lambda history, op: (
        _in_force(history, op, ("PlanPaused",), ("PlanResumed",))
        or bool(history.of(op.plan, "PlanSubmitted")[0].body["plan"].get("start_paused"))
    ),
    "retry": lambda history, op: bool(_between(history.of(op.plan, "JobRetried"), op)),
    "approve": lambda history, op: any(
        fact.body["job"] == op.detail for fact in _between(history.of(op.plan, "HoldReleased"), op)
    ),
    "land": lambda history, op: bool(_between(history.of(op.plan, "HoldReleased", "Landed"), op)),
    "undo": lambda history, op: _in_force(history, op, ("LandingUndone",), ("Landed",)),
    "reshape": lambda history, op: any(
        op.detail in {job["id"] for job in fact.body["plan"]["jobs"]}
        for fact in _between(history.of(op.plan, "PlanReshaped"), op)
    ),
}
"""What an acknowledged request leaves in the journal."""


@rule
def every_acknowledged_request_left_its_event(history: History) -> Iterator[str]:
    for op in history.ops:
        if op.result == "ok" and op.verb in LEAVES and not LEAVES[op.verb](history, op):
            yield f"{op} left nothing in the journal"


@rule
def no_refused_change_is_in_the_graph(history: History) -> Iterator[str]:
    for op in history.ops:
        if op.verb == "reshape" and op.result == "fail":
            for fact in history.of(op.plan, "PlanReshaped"):
                if op.detail in {job["id"] for job in fact.body["plan"]["jobs"]}:
                    yield f"{op} was refused, and event {fact.seq} has the job"


# ------------------------------------------------------------------------------- cancel and pause


def _spans(history: History, plan: str, begins: str, ends: str) -> list[tuple[Fact, Fact | None]]:
    """From each event of one kind to the next of the other."""
    found: list[tuple[Fact, Fact | None]] = []
    for fact in history.of(plan, begins):
        end = next((one for one in history.of(plan, ends) if one.seq > fact.seq), None)
        found.append((fact, end))
    return found


@rule
def nothing_starts_while_a_plan_is_canceled_or_paused(history: History) -> Iterator[str]:
    for plan in history.plans:
        for begins, ends in (("PlanCanceled", "JobRetried"), ("PlanPaused", "PlanResumed")):
            for begin, end in _spans(history, plan, begins, ends):
                for picked in history.of(plan, "JobPicked"):
                    if begin.seq < picked.seq and (end is None or picked.seq < end.seq):
                        yield f"{picked.body['job']} of {plan} was picked by {picked.seq}, after {begins} {begin.seq}"


@rule
def nothing_runs_after_an_acknowledged_cancel(history: History) -> Iterator[str]:
    for op in history.ops:
        if op.verb != "cancel" or op.result != "ok":
            continue
        retried = [fact.at for fact in history.of(op.plan, "JobRetried")]
        mine = [stamp for stamp in history.stamps if stamp.plan == op.plan]
        starts = {(stamp.job, stamp.attempt): stamp.at for stamp in mine if stamp.kind == "start"}
        for stamp in mine:
            if stamp.at <= op.ended:
                continue
            if stamp.kind == "start" and not any(op.invoked <= at <= stamp.at for at in retried):
                yield f"{stamp} started after the cancel that was acknowledged at {op.ended}"
            if stamp.kind == "stop" and starts.get((stamp.job, stamp.attempt), stamp.at) <= op.invoked:
                yield f"{stamp} ran through the cancel that was acknowledged at {op.ended}"


# -------------------------------------------------------------------------------------- landings


@rule
def a_plan_lands_once(history: History) -> Iterator[str]:
    for plan in history.plans:
        moves = [fact.name for fact in history.of(plan, "Landed", "LandingUndone")]
        if moves != [("Landed", "LandingUndone")[number % 2] for number in range(len(moves))]:
            yield f"{plan}: {moves}"
        jobs: dict[str, list[str]] = {}
        for fact in history.of(plan, "Landed"):
            jobs.setdefault(str(fact.body["new"]), []).append(str(fact.seq))
        if len(jobs) > 1:
            yield f"{plan} landed as different commits: {jobs}"


@rule
def the_targets_hold_what_landed_and_nothing_else(history: History) -> Iterator[str]:
    """A landing that stands is one range of commits on its branch, all marked; one that does not is nowhere."""
    marked: dict[str, dict[str, set[str]]] = {}
    for branch, tip in history.tips.items():
        for oid in history.ancestors(tip):
            landing = history.commits[oid].landing
            if landing:
                marked.setdefault(landing.rpartition(".")[0], {}).setdefault(branch, set()).add(oid)
    for plan in history.plans:
        fact, found = history.landed(plan), marked.pop(plan, {})
        if fact is None:
            if found:
                yield f"{plan} has not landed, and its commits are on {found}"
            continue
        branch, old, new = (fact.body[name] for name in ("branch", "old", "new"))
        if new not in history.ancestors(history.tips.get(branch, "")):
            yield f"{plan} landed {new} on '{branch}' by {fact.seq}, and it is not there"
            continue
        expected = {
            oid
            for oid in history.ancestors(new) - (history.ancestors(old) if old else set())
            if history.commits[oid].landing.rpartition(".")[0] == plan
        }
        if found != {branch: expected} or not expected:
            yield f"{plan} landed {expected} on '{branch}', and {found} is there"
        ids = {history.commits[oid].landing for oid in expected}
        if ids != {fact.body["landing"]}:
            yield f"{plan} landed as {fact.body['landing']}, and its commits say {ids}"
    if marked:
        yield f"nobody knows the plans of {marked}"


@rule
def landings_are_in_the_order_of_time(history: History) -> Iterator[str]:
    landings = [fact for fact in history.facts if fact.name == "Landed" and fact is history.landed(fact.plan)]
    for later in landings:
        intents = [fact for fact in history.of(later.plan, "LandingIntended") if fact.seq < later.seq]
        for earlier in landings:
            if earlier.body["branch"] != later.body["branch"] or not intents or earlier.seq > intents[-1].seq:
                continue
            if earlier.body["new"] not in history.ancestors(later.body["old"] or ""):
                yield f"{earlier.plan} landed before {later.plan} began to, and is not below it"


@rule
def what_lands_was_validated(history: History) -> Iterator[str]:
    verified = {(stamp.plan, stamp.note) for stamp in history.stamps if stamp.kind == "verified"}
    for fact in history.facts:
        if fact.name == "Landed" and (fact.plan, fact.body["new"]) not in verified:
            yield f"{fact.plan} landed {fact.body['new']}, which no check has seen"


@rule
def nothing_lands_that_was_canceled_before(history: History) -> Iterator[str]:
    for plan in history.plans:
        for begin, end in _spans(history, plan, "PlanCanceled", "JobRetried"):
            for intent in history.of(plan, "LandingIntended"):
                again = any(fact.seq < intent.seq for fact in history.of(plan, "LandingUndone"))
                if begin.seq < intent.seq and (end is None or intent.seq < end.seq) and not again:
                    yield f"{plan} was canceled by {begin.seq} and began to land by {intent.seq}"


@rule
def every_commit_of_the_user_is_still_there(history: History) -> Iterator[str]:
    for branch, oid in history.user_commits:
        if oid not in history.ancestors(history.tips.get(branch, "")):
            yield f"{oid} was on '{branch}'"


# --------------------------------------------------------------------------------- jobs and files


@rule
def every_recorded_commit_exists(history: History) -> Iterator[str]:
    for fact in history.facts:
        if fact.name in ("WorkCommitted", "JobSucceeded", "WorkSaved") and fact.body["commit"] not in history.present:
            yield f"{fact.name} {fact.seq} of {fact.plan}: {fact.body['commit']} is gone"


def last_plan(history: History, plan: str) -> Mapping[str, Any]:
    """A plan as it was last shaped."""
    body: Mapping[str, Any] = history.of(plan, "PlanSubmitted", "PlanReshaped")[-1].body["plan"]
    return body


@rule
def every_file_of_a_landed_plan_is_on_its_target(history: History) -> Iterator[str]:
    for plan in history.plans:
        fact = history.landed(plan)
        if fact is None:
            for branch, tip in history.tips.items():
                there = [path for path in history.files[tip] if path.startswith(f"jobs/{plan}/")]
                if there:
                    yield f"{plan} has not landed, and {there} are on '{branch}'"
            continue
        for job in last_plan(history, plan)["jobs"]:
            path, words = f"jobs/{plan}/{job['id']}.txt", f"{plan} {job['id']} "
            for oid in (fact.body["new"], history.tips.get(fact.body["branch"], "")):
                if not history.files.get(oid, {}).get(path, "").startswith(words):
                    yield f"{plan} has landed on '{fact.body['branch']}', and {oid} lacks {path}"


@rule
def every_region_of_the_shared_file_is_as_its_plan_left_it(history: History) -> Iterator[str]:
    for plan in history.plans:
        number = history.regions.get(history.name_of(plan))
        if number is None:
            continue
        fact = history.landed(plan)
        for branch, tip in history.tips.items():
            lines = history.files[tip].get("shared.txt", "").splitlines()
            line = next((line for line in lines if line.startswith(f"region {number}:")), "")
            if (plan in line) != (fact is not None and fact.body["branch"] == branch):
                yield f"{plan} {'landed' if fact else 'did not land'}, and '{branch}' has '{line}'"


@rule
def attempts_never_overlap(history: History) -> Iterator[str]:
    seen: set[tuple[str, str, int]] = set()
    for stamp in history.stamps:
        if stamp.kind == "overlap":
            yield f"{stamp} began while another attempt was alive"
        if stamp.kind == "start":
            key = (stamp.plan, stamp.job, stamp.attempt)
            if key in seen:
                yield f"{stamp} is the second start of this attempt"
            seen.add(key)


@rule
def every_start_was_recorded_before_it_happened(history: History) -> Iterator[str]:
    started: dict[tuple[str, str, int], float] = {}
    for fact in history.facts:
        if fact.name == "JobStarted":
            started.setdefault((fact.plan, fact.body["job"], fact.body["attempt"]), fact.at)
    for stamp in history.stamps:
        at = started.get((stamp.plan, stamp.job, stamp.attempt))
        if stamp.kind == "start" and (at is None or at > stamp.at):
            yield f"{stamp} is not in the journal" if at is None else f"{stamp} was recorded later, at {at}"


@rule
def every_success_has_a_program_that_ended(history: History) -> Iterator[str]:
    ended = {(stamp.plan, stamp.job) for stamp in history.stamps if stamp.kind == "stop"}
    for fact in history.facts:
        job = str(fact.body.get("job"))
        if fact.name == "JobSucceeded" and job != VALIDATION and (fact.plan, job) not in ended:
            yield f"{job} of {fact.plan} succeeded by {fact.seq} and never came to its end"


# ------------------------------------------------------------------------------- the whole of it


@rule
def everything_came_to_its_end(history: History) -> Iterator[str]:
    for plan, row in history.rows.items():
        if row["status"] not in ("succeeded", "canceled"):
            yield f"{plan} is {row['status']}: {row.get('error')}"
        if row["status"] == "succeeded" and history.landed(plan) is None and not history.of(plan, "LandingUndone"):
            yield f"{plan} succeeded and has not landed"


@rule
def the_numbers_of_events_are_dense_and_ordered(history: History) -> Iterator[str]:
    numbers = [fact.seq for fact in history.facts]
    if numbers != list(range(1, len(numbers) + 1)):
        gaps = [after for before, after in zip([0, *numbers], numbers, strict=False) if after != before + 1]
        yield f"out of step at {gaps[:5]}"


@rule
def the_stored_view_is_the_replay(history: History) -> Iterator[str]:
    if history.rows.keys() != history.plans.keys():
        yield f"the plans {history.rows.keys() ^ history.plans.keys()} are in one of two places"
    for plan, row in history.rows.items():
        if row != history.replayed.get(plan):
            yield f"{plan}: stored {row}, replayed {history.replayed.get(plan)}"


@rule
def only_documented_refs_exist(history: History) -> Iterator[str]:
    for ref in history.refs:
        match = REFS.fullmatch(ref)
        plan = match and (match["line"] or match["plan"])
        if match is None or (plan is not None and plan not in history.plans and plan != "strays"):
            yield ref
        if ref.startswith("refs/heads/") and ref.removeprefix("refs/heads/") not in history.tips:
            yield f"{ref} is a branch that nobody asked for"


@rule
def git_finds_nothing_wrong(history: History) -> Iterator[str]:
    if history.fsck:
        yield history.fsck
    if history.checkout:
        yield f"the user's checkout is not clean: {history.checkout}"


@rule
def nothing_lives_on(history: History) -> Iterator[str]:
    yield from history.orphans
