"""Which resolutions of conflicts a run tells of, also when its journal is of a version that recorded each only once."""

import pytest

from orchard.core.replay import replay
from orchard.core.run import Run
from orchard.core.sides import kept_version
from orchard.model.events.plans import (
    ConflictSettled,
    Event,
    LeafMerged,
    PlanStarted,
    PlanSubmitted,
    Recorded,
    SnapshotStarted,
)
from orchard.model.phases import Phase
from orchard.model.plan import Job, JobId, Plan, PlanId, ShellWork, with_validation
from orchard.model.plan_codec import plan_json

A, B = JobId("a"), JobId("b")


def told(*events: Event) -> Run:
    jobs = {name: Job(id=name, name=name, work=ShellWork(command="true")) for name in (A, B)}
    plan = plan_json(with_validation(Plan(name="x", jobs=jobs)))
    all_events = (PlanSubmitted(plan), PlanStarted("main", "0", "main", "0"), SnapshotStarted(1, "0"), *events)
    return replay(Recorded(number, number, PlanId("x"), event) for number, event in enumerate(all_events, 1))


def settled(by: str, phase: Phase = Phase.MERGE_RI, attempt: int = 1, path: str = "f") -> ConflictSettled:
    return ConflictSettled(B, attempt, phase, by, (path,), "with-a", "of-b", "tree", ("a",), ("b",))


def merged(generation: int, resolver: str | None) -> LeafMerged:
    return LeafMerged(B, generation, "of-b", "line", "tip", ("f",) if resolver else (), resolver)


def test_what_a_thrown_away_snapshot_decided_is_told_no_more_and_what_a_job_starts_from_is() -> None:
    run = told(settled("theirs", Phase.MERGE_FI), settled("theirs"), merged(1, "theirs"), SnapshotStarted(2, "1"))

    assert [one.phase for one in run.resolutions] == [Phase.MERGE_FI]
    assert [one.phase for one in run.superseded] == [Phase.MERGE_RI]


@pytest.mark.parametrize(
    ("before", "resolver", "after"),
    [
        ("theirs", "theirs", ["theirs"]),
        ("theirs", "ours", ["ours"]),
        ("judge", "agent", ["judge"]),
        ("judge", "ours", []),
        ("theirs", "agent", []),
        ("theirs", None, []),
    ],
)
def test_a_journal_that_holds_the_first_of_two_equal_conflicts_tells_how_the_last_was_resolved(
    before: str, resolver: str | None, after: list[str]
) -> None:
    run = told(merged(1, "theirs"), settled(before), SnapshotStarted(2, "1"), merged(2, resolver))

    assert [one.by for one in run.resolutions] == after
    assert all((one.ours_jobs, one.theirs_jobs) == (("a",), ("b",)) for one in run.resolutions)


def test_a_conflict_that_is_recorded_again_is_told_once() -> None:
    run = told(settled("theirs"), merged(1, "theirs"), SnapshotStarted(2, "1"), settled("theirs"), merged(2, "theirs"))

    assert run.resolutions == [settled("theirs")]


def test_a_later_attempt_stands_in_place_of_an_earlier_one_for_the_same_paths_only() -> None:
    first, second = settled("theirs", Phase.MERGE_FI), settled("ours", Phase.MERGE_FI, attempt=2)
    other = settled("theirs", Phase.MERGE_FI, path="g")

    assert told(first, other, second).resolutions == [other, second]


@pytest.mark.parametrize(
    ("by", "ours", "theirs", "words"),
    [
        ("theirs", ["a"], ["b"], "the version of b is kept, that of a is not"),
        ("ours", [], ["b"], "the version of the target 'main' is kept, that of b is not"),
        ("ours", [], [], ""),
        ("judge", ["a"], ["b"], ""),
    ],
)
def test_whose_version_is_kept_is_said_where_a_side_was_taken(
    by: str, ours: list[str], theirs: list[str], words: str
) -> None:
    assert kept_version(by, ours, theirs, "main") == words
