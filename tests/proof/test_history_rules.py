"""The checker of histories can fail: each rule notices at least one history that was doctored."""

from dataclasses import replace

import pytest

from tests.proof import history as rules
from tests.proof.history import RULES, VALIDATION, Commit, Fact, History, Op, Stamp, check
from tests.proof.history_doctored import (
    DOCTORS,
    FIRST,
    GIVEN_UP,
    SECOND,
    Doctor,
    add,
    breaks,
    change_fact,
    change_op,
    drop,
    find,
    sound,
)


@breaks(rules.every_acknowledged_submit_is_in_the_journal)
def an_acknowledged_plan_is_lost(history: History) -> None:
    history.ops.append(Op(2, "submit", "six", 1.0, 2.0, "ok", "six-fffff"))


@breaks(rules.every_acknowledged_submit_is_in_the_journal)
def a_refused_plan_is_there(history: History) -> None:
    change_op(history, "submit", result="fail")


@breaks(rules.every_acknowledged_submit_is_in_the_journal)
def a_plan_was_submitted_twice(history: History) -> None:
    body = find(history, FIRST, "PlanSubmitted").body
    history.facts.append(Fact(len(history.facts) + 1, 99.0, "one-zzzzz", "PlanSubmitted", body))


@breaks(rules.every_acknowledged_request_left_its_event)
def an_acknowledged_cancel_is_lost(history: History) -> None:
    drop(history, GIVEN_UP, "PlanCanceled")


@breaks(rules.every_acknowledged_request_left_its_event)
def a_cancel_was_over_before_it_was_acknowledged(history: History) -> None:
    op = next(op for op in history.ops if op.verb == "cancel")
    add(history, find(history, GIVEN_UP, "PlanCanceled"), GIVEN_UP, "JobRetried", job="j0")
    change_op(history, "cancel", invoked=op.ended)


@breaks(rules.every_acknowledged_request_left_its_event)
def acknowledged_retries_pauses_approvals_landings_and_undos_are_lost(history: History) -> None:
    for verb in ("retry", "pause", "approve", "land", "undo", "reshape"):
        history.ops.append(Op(2, verb, GIVEN_UP, 90.0, 91.0, "ok", "j0"))


@breaks(rules.no_refused_change_is_in_the_graph)
def a_refused_job_is_in_the_graph(history: History) -> None:
    plan = {"name": "off", "jobs": [{"id": "j0"}, {"id": "extra"}]}
    add(history, find(history, GIVEN_UP, "PlanSubmitted"), GIVEN_UP, "PlanReshaped", plan=plan)
    history.ops.append(Op(2, "reshape", GIVEN_UP, 1.0, 2.0, "fail", "extra"))


@breaks(rules.nothing_starts_while_a_plan_is_canceled_or_paused)
def a_canceled_plan_starts_a_job(history: History) -> None:
    add(history, find(history, GIVEN_UP, "PlanCanceled"), GIVEN_UP, "JobPicked", job="j0", attempt=2)


@breaks(rules.nothing_starts_while_a_plan_is_canceled_or_paused)
def a_paused_plan_starts_a_job(history: History) -> None:
    add(history, find(history, FIRST, "PlanSubmitted"), FIRST, "PlanPaused")


@breaks(rules.nothing_runs_after_an_acknowledged_cancel)
def a_job_starts_after_the_cancel(history: History) -> None:
    history.stamps.append(Stamp("start", 99.0, GIVEN_UP, "j0", 2))


@breaks(rules.nothing_runs_after_an_acknowledged_cancel)
def a_job_runs_through_the_cancel(history: History) -> None:
    history.stamps.append(Stamp("stop", 99.0, GIVEN_UP, "j0", 1))


@breaks(rules.a_plan_lands_once)
def a_landing_is_recorded_twice(history: History) -> None:
    fact = find(history, FIRST, "Landed")
    add(history, fact, FIRST, "Landed", **fact.body)


@breaks(rules.a_plan_lands_once)
def a_plan_lands_as_something_else_after_its_undo(history: History) -> None:
    fact = find(history, FIRST, "Landed")
    add(history, fact, FIRST, "Landed", **{**fact.body, "new": "new-2"})
    add(history, fact, FIRST, "LandingUndone")


@breaks(rules.the_targets_hold_what_landed_and_nothing_else)
def a_landing_is_lost(history: History) -> None:
    history.commits["user"] = Commit("user", ("base",))


@breaks(rules.the_targets_hold_what_landed_and_nothing_else)
def a_landing_is_there_twice(history: History) -> None:
    history.commits["again"] = Commit("again", ("new-2",), f"{FIRST}.2")
    history.tips["goal"] = "again"
    history.files["again"] = history.files["new-2"]


@breaks(rules.the_targets_hold_what_landed_and_nothing_else)
def a_landing_is_on_another_branch_too(history: History) -> None:
    history.tips["main"] = "new-1"


@breaks(rules.the_targets_hold_what_landed_and_nothing_else)
def a_landing_is_there_and_not_in_the_journal(history: History) -> None:
    drop(history, SECOND, "Landed")


@breaks(rules.the_targets_hold_what_landed_and_nothing_else)
def an_undone_landing_is_still_there(history: History) -> None:
    add(history, find(history, SECOND, "Landed"), SECOND, "LandingUndone")


@breaks(rules.the_targets_hold_what_landed_and_nothing_else)
def a_landing_of_an_older_snapshot_is_there(history: History) -> None:
    change_fact(history, FIRST, "Landed", landing=f"{FIRST}.2")


@breaks(rules.the_targets_hold_what_landed_and_nothing_else)
def a_landing_of_nobody_is_there(history: History) -> None:
    history.commits["user"] = replace(history.commits["user"], landing="nobody-00000.1")


@breaks(rules.landings_are_in_the_order_of_time)
def a_later_landing_is_not_above_an_earlier_one(history: History) -> None:
    change_fact(history, SECOND, "Landed", old="base")


@breaks(rules.what_lands_was_validated)
def something_else_landed_than_was_checked(history: History) -> None:
    history.stamps[:] = [replace(one, note="other") if one.job == VALIDATION else one for one in history.stamps]


@breaks(rules.nothing_lands_that_was_canceled_before)
def a_canceled_plan_lands(history: History) -> None:
    add(history, find(history, SECOND, "JobSucceeded"), SECOND, "PlanCanceled")


@breaks(rules.every_commit_of_the_user_is_still_there)
def a_commit_of_the_user_is_gone(history: History) -> None:
    history.commits["new-2"] = replace(history.commits["new-2"], parents=("new-1",))


@breaks(rules.every_recorded_commit_exists)
def a_result_was_collected_as_garbage(history: History) -> None:
    history.present.discard(f"c-{FIRST}")


@breaks(rules.every_file_of_a_landed_plan_is_on_its_target)
def a_file_was_lost_in_a_merge(history: History) -> None:
    del history.files["new-2"][f"jobs/{FIRST}/j0.txt"]


@breaks(rules.every_file_of_a_landed_plan_is_on_its_target)
def a_file_of_a_canceled_plan_is_there(history: History) -> None:
    history.files["new-2"][f"jobs/{GIVEN_UP}/j0.txt"] = "x"


@breaks(rules.every_region_of_the_shared_file_is_as_its_plan_left_it)
def a_region_was_lost_in_a_merge(history: History) -> None:
    files = history.files["new-2"]
    files["shared.txt"] = files["shared.txt"].replace(f"1: {FIRST} j0", "1: -")


@breaks(rules.attempts_never_overlap)
def two_attempts_are_alive(history: History) -> None:
    history.stamps.append(Stamp("overlap", 99.0, FIRST, "j0", 2))


@breaks(rules.attempts_never_overlap)
def an_attempt_starts_twice(history: History) -> None:
    history.stamps.append(next(stamp for stamp in history.stamps if stamp.kind == "start"))


@breaks(rules.every_start_was_recorded_before_it_happened)
def an_attempt_is_not_in_the_journal(history: History) -> None:
    drop(history, FIRST, "JobStarted")


@breaks(rules.every_start_was_recorded_before_it_happened)
def an_attempt_was_recorded_too_late(history: History) -> None:
    place = history.facts.index(find(history, FIRST, "JobStarted"))
    history.facts[place] = replace(history.facts[place], at=99.0)


@breaks(rules.every_success_has_a_program_that_ended)
def a_job_succeeded_whose_program_did_not_end(history: History) -> None:
    history.stamps[:] = [stamp for stamp in history.stamps if stamp.kind != "stop"]


@breaks(rules.everything_came_to_its_end)
def a_plan_is_stuck(history: History) -> None:
    history.rows[FIRST] = history.replayed[FIRST] = {"status": "running"}


@breaks(rules.everything_came_to_its_end)
def a_plan_succeeded_without_landing(history: History) -> None:
    drop(history, FIRST, "Landed")


@breaks(rules.the_numbers_of_events_are_dense_and_ordered)
def an_event_is_missing(history: History) -> None:
    history.facts.remove(find(history, GIVEN_UP, "JobCanceled"))


@breaks(rules.the_numbers_of_events_are_dense_and_ordered)
def two_events_changed_places(history: History) -> None:
    history.facts[3], history.facts[4] = history.facts[4], history.facts[3]


@breaks(rules.the_stored_view_is_the_replay)
def a_list_shows_something_else(history: History) -> None:
    history.replayed[FIRST] = {"status": "failed"}


@breaks(rules.the_stored_view_is_the_replay)
def a_plan_is_in_no_list(history: History) -> None:
    del history.rows[GIVEN_UP]


@breaks(rules.only_documented_refs_exist)
def a_ref_of_an_unknown_kind_exists(history: History) -> None:
    history.refs.append(f"refs/orchard/other/{FIRST}")


@breaks(rules.only_documented_refs_exist)
def a_ref_of_an_unknown_plan_exists(history: History) -> None:
    history.refs.append("refs/orchard/keep/nobody-00000/j0/1")


@breaks(rules.only_documented_refs_exist)
def a_branch_exists_that_nobody_asked_for(history: History) -> None:
    history.refs.append("refs/heads/orchard/one")


@breaks(rules.git_finds_nothing_wrong)
def an_object_is_missing(history: History) -> None:
    history.fsck = "missing blob 1234"


@breaks(rules.git_finds_nothing_wrong)
def the_checkout_is_dirty(history: History) -> None:
    history.checkout = " M shared.txt"


@breaks(rules.nothing_lives_on)
def a_process_lives_on(history: History) -> None:
    history.orphans = ["sleep 300"]


def test_nothing_is_wrong_with_a_sound_history() -> None:
    assert check(sound()) == []


@pytest.mark.parametrize(("name", "doctor"), DOCTORS, ids=[doctor.__name__ for _, doctor in DOCTORS])
def test_a_doctored_history_is_noticed_by_its_rule(name: str, doctor: Doctor) -> None:
    history = sound()

    doctor(history)

    assert [problem for problem in check(history) if problem.startswith(f"{name}: ")]


def test_every_rule_was_seen_to_fail() -> None:
    assert {name for name, _ in DOCTORS} == set(RULES)
