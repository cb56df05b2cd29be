"""From a plan to a landed branch: what jobs leave, and what of it arrives."""

import pytest

from orchard.engine.server.session import Session
from orchard.model.events.plans import Landed, LeafMerged, PhaseEnded, SnapshotStarted
from orchard.model.plan import PlanId
from tests.engine.conftest import Orchard, job, statuses, until

pytestmark = pytest.mark.anyio


async def test_a_chain_lands_one_commit_that_holds_everything(orchard: Orchard) -> None:
    before = orchard.repo.head("work")

    done = await orchard.run("""
        name: A chain
        jobs:
          - {id: a, work: echo a > a.txt}
          - {id: b, needs: [a], work: cat a.txt > b.txt}
          - {id: c, needs: [b], work: cat b.txt > c.txt}
    """)

    assert done["plan"]["status"] == "succeeded"
    assert done["plan"]["landed"] is True
    assert (orchard.repo.path / "c.txt").read_text() == "a\n"
    assert orchard.repo("rev-list", "--count", f"{before}..work").strip() == "1"
    assert orchard.repo("status", "--porcelain") == ""


async def test_leaves_that_edit_the_file_of_a_shared_ancestor_do_not_conflict(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Diamond
        jobs:
          - {id: top, work: sed -i s/5/five/ shared.txt}
          - {id: left, needs: [top], work: sed -i s/1/one/ shared.txt}
          - {id: right, needs: [top], work: sed -i s/9/nine/ shared.txt}
    """)

    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["shared.txt"] == "one\n2\n3\n4\nfive\n6\n7\n8\nnine\n"


async def test_a_fan_in_of_many_holds_all_of_them(orchard: Orchard) -> None:
    jobs = "\n".join(f"          - {{id: j{number}, work: echo {number} > f{number}.txt}}" for number in range(12))
    needs = ", ".join(f"j{number}" for number in range(12))

    done = await orchard.run(f"""
        name: Fan-in
        jobs:
{jobs}
          - {{id: all, needs: [{needs}], work: ls f*.txt | wc -l > count.txt}}
    """)

    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["count.txt"].strip() == "12"


async def test_a_job_that_only_gathers_hands_on_the_merge_of_its_needs(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Gather
        jobs:
          - {id: a, work: echo a > a.txt}
          - {id: b, work: echo b > b.txt}
          - {id: both, needs: [a, b]}
          - {id: c, needs: [both], work: cat a.txt b.txt > c.txt}
    """)

    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["c.txt"] == "a\nb\n"
    assert job(done, "both")["worktree"] is None


async def test_conflicting_leaves_fail_with_the_paths_and_land_nothing(orchard: Orchard) -> None:
    before = orchard.repo.head("work")

    done = await orchard.run("""
        name: Conflict
        resolver: fail
        max_parallel: 1
        jobs:
          - {id: a, work: echo from a > shared.txt}
          - {id: b, work: echo from b > shared.txt}
    """)

    assert done["plan"]["status"] == "failed"
    failed = job(done, "b")
    assert (failed["status"], failed["failed_phase"], failed["reason"]) == ("failed", "merge-ri", "conflict")
    assert "shared.txt" in failed["error"]
    assert orchard.repo.head("work") == before


@pytest.mark.parametrize(("resolver", "winner"), [("ours", "from a\n"), ("theirs", "from b\n")])
async def test_a_preferred_side_resolves_a_conflict_and_is_recorded(
    orchard: Orchard, resolver: str, winner: str
) -> None:
    done = await orchard.run(f"""
        name: Conflict
        resolver: {resolver}
        max_parallel: 1
        jobs:
          - {{id: a, work: echo from a > shared.txt}}
          - {{id: b, work: echo from b > shared.txt}}
    """)

    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["shared.txt"] == winner
    merged = orchard.events(LeafMerged)[-1]
    assert (merged.resolved, merged.resolver) == (("shared.txt",), resolver)


async def test_work_that_has_to_change_something_and_does_not_fails_and_says_what_to_do(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Nothing
        jobs: [{id: a, work: "true", changes: required}]
    """)
    failed = job(done, "a")
    assert (failed["status"], failed["reason"], failed["failed_phase"]) == ("failed", "no-changes", "commit")
    assert "changes: optional" in failed["hint"]


EMPTY_COMMITS = (
    "git commit -q --allow-empty -m nothing",
    "echo x > x && git add x && git commit -qm add && git rm -q x && git commit -qm remove",
)


@pytest.mark.parametrize("work", EMPTY_COMMITS)
async def test_commits_of_a_job_that_leave_every_file_as_it_was_change_nothing(orchard: Orchard, work: str) -> None:
    done = await orchard.run(f"""
        name: Empty
        jobs:
          - {{id: must, work: "{work}", changes: required}}
          - {{id: may, work: "{work}"}}
          - {{id: must-not, work: "{work}", changes: forbidden}}
    """)

    assert statuses(done) == {"must": "failed", "may": "succeeded", "must-not": "succeeded"}
    assert job(done, "must")["reason"] == "no-changes"


async def test_a_program_with_nothing_to_do_succeeds_and_its_plan_can_be_run_twice(orchard: Orchard) -> None:
    plan = """
        name: Codemod
        jobs:
          - {id: here, work: "echo new > here.txt"}
          - {id: there, needs: [here], work: "true", postchecks: "grep new here.txt"}
    """
    first, second = await orchard.run(plan), await orchard.run(plan)

    assert (first["plan"]["status"], first["plan"]["landed"]) == ("succeeded", True)
    assert (second["plan"]["status"], second["plan"]["landed"]) == ("succeeded", False)
    assert statuses(second) == {"here": "succeeded", "there": "succeeded"}
    assert job(second, "there")["commit"] == second["plan"]["base"]["commit"]


async def test_a_check_job_passes_without_changes_and_fails_with_them(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Checks
        jobs:
          - {id: good, work: "true", expects_no_changes: true}
          - {id: bad, work: echo x > x.txt, expects_no_changes: true}
    """)
    assert statuses(done) == {"good": "succeeded", "bad": "failed"}
    assert "x.txt" in job(done, "bad")["error"]
    assert job(done, "good")["commit"] == done["plan"]["base"]["commit"]


async def test_evidence_stands_for_work_that_changed_no_file(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Evidence
        jobs:
          - id: told
            env: {TOLD: '{"summary": "called it", "type": "external_effect", "outcome": {"id": 7}}'}
            work: echo "$TOLD" > "$ORCHARD_EVIDENCE"
          - id: mumbled
            changes: required
            env: {TOLD: '{"summary": ""}'}
            work: echo "$TOLD" > "$ORCHARD_EVIDENCE"
    """)
    assert job(done, "told")["status"] == "succeeded"
    assert job(done, "told")["evidence"]["outcome"] == {"id": 7}
    assert job(done, "mumbled")["status"] == "failed"
    assert "summary" in job(done, "mumbled")["error"]


async def test_a_plan_whose_jobs_change_nothing_succeeds_with_nothing_to_land(orchard: Orchard) -> None:
    before = orchard.repo.head("work")
    done = await orchard.run("""
        name: Lint only
        jobs: [{id: lint, work: "true", expects_no_changes: true}]
    """)
    assert (done["plan"]["status"], done["plan"]["landed"]) == ("succeeded", False)
    assert orchard.repo.head("work") == before


async def test_commits_that_a_job_makes_itself_are_its_result_with_what_it_left_over(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Own commits
        merge: merge
        jobs:
          - id: a
            work: |
              echo 1 > one.txt && git add one.txt && git -c user.name=J -c user.email=j@x commit -qm "by the job"
              echo 2 > two.txt
    """)
    assert done["plan"]["status"] == "succeeded"
    assert {"one.txt", "two.txt"} <= set(orchard.repo.files("work"))
    assert "by the job" in orchard.repo("log", "--format=%s", "work")
    assert job(done, "a")["summary"]["commits"] == 2


async def test_merge_mode_lands_the_whole_history(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: History
        merge: merge
        jobs:
          - {id: a, work: echo a > a.txt}
          - {id: b, work: echo b > b.txt}
    """)
    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo("rev-list", "--merges", "--count", "work").strip() == "2"
    subjects = orchard.repo("log", "--format=%s", "work").splitlines()
    assert {'Merge "a"', 'Merge "b"', "a", "b"} <= set(subjects), subjects


async def test_work_that_comes_in_with_a_leaf_that_only_checks_is_named_after_the_plan(orchard: Orchard) -> None:
    work = "{id: a, work: echo a > a.txt}, {id: b, work: echo b > b.txt}, {id: gate, needs: [a, b], work: 'true'}"
    await orchard.run(f"name: Add letters\njobs: [{work}]")
    alone = orchard.repo("log", "-1", "--format=%s%n%b", "work")
    more = work.replace("a.txt", "c.txt").replace("b.txt", "d.txt")
    await orchard.run(f"name: More letters\njobs: [{more}, {{id: z, work: echo z > z.txt}}]")

    assert alone.startswith("Add letters\n") and "- a\n- b" in alone, alone
    assert "More letters: a and 1 more" in orchard.repo("log", "-2", "--format=%s", "work").splitlines()


async def test_a_failed_check_names_phase_code_and_output_and_blocks_what_follows(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Checks
        jobs:
          - {id: pre, prechecks: "echo not ready; exit 3", work: echo x > x.txt}
          - {id: post, work: echo y > y.txt, postchecks: ["true", "echo wrong >&2; exit 4"]}
          - {id: after, needs: [pre], work: echo z > z.txt}
          - {id: free, work: echo f > f.txt}
    """)
    assert statuses(done) == {"pre": "failed", "post": "failed", "after": "blocked", "free": "succeeded"}
    assert (job(done, "pre")["failed_phase"], job(done, "pre")["exit_code"]) == ("prechecks", 3)
    assert (job(done, "post")["failed_phase"], job(done, "post")["exit_code"]) == ("postchecks", 4)
    assert orchard.attempts("post", None)[0]["failure"]["tail"].strip() == "wrong"
    assert done["plan"]["landed"] is False


async def test_what_postchecks_change_is_reported_and_not_kept(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Litter
        jobs: [{id: a, work: echo a > a.txt, postchecks: echo b > litter.txt}]
    """)
    assert done["plan"]["status"] == "succeeded"
    assert "litter.txt" not in orchard.repo.files("work")
    notes = [event.note for event in orchard.events(PhaseEnded) if event.phase == "postchecks" and event.job == "a"]
    assert "litter.txt" in notes[0]


async def test_a_failing_verify_lands_nothing(orchard: Orchard) -> None:
    before = orchard.repo.head("work")
    done = await orchard.run("""
        name: Verified
        verify: test -f missing.txt
        jobs: [{id: a, work: echo a > a.txt}]
    """)
    assert done["plan"]["status"] == "failed"
    assert orchard.repo.head("work") == before
    assert "a.txt" not in orchard.repo.files("work")


async def test_verify_sees_the_merged_result_of_all_leaves(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Verified
        verify: cat a.txt b.txt
        jobs: [{id: a, work: echo a > a.txt}, {id: b, work: echo b > b.txt}]
    """)
    assert done["plan"]["status"] == "succeeded"


async def test_without_a_target_the_default_branch_is_left_alone(orchard: Orchard) -> None:
    orchard.repo("checkout", "-q", "main")
    before = orchard.repo.head("main")

    done = await orchard.run("""
        name: Add login!
        jobs: [{id: a, work: echo a > a.txt}]
    """)

    assert done["plan"]["target"]["branch"] == "orchard/add-login"
    assert orchard.repo.head("main") == before
    assert "a.txt" in orchard.repo.files("orchard/add-login")
    assert not (orchard.repo.path / "a.txt").exists()


async def test_no_worktree_and_no_process_is_left_after_success(orchard: Orchard) -> None:
    await orchard.run("""
        name: Clean
        verify: "true"
        jobs: [{id: a, work: echo a > a.txt}, {id: b, needs: [a], work: echo b > b.txt}]
    """)
    assert orchard.repo("worktree", "list", "--porcelain").count("worktree ") == 1
    assert not (orchard.repo.path / ".worktrees").exists()
    assert orchard.repo("status", "--porcelain", "--ignored") == ""


async def test_cleanup_false_keeps_the_folders_of_successful_jobs(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Keep
        cleanup: false
        jobs: [{id: a, work: echo a > a.txt}]
    """)
    assert done["plan"]["status"] == "succeeded"
    assert job(done, "a")["worktree"] is not None


async def test_results_survive_gc_with_everything_unreachable_pruned(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Kept
        land: never
        jobs: [{id: a, work: echo a > a.txt}, {id: b, needs: [a], work: exit 1}]
    """)
    commit = job(done, "a")["commit"]

    orchard.repo("reflog", "expire", "--expire=now", "--all")
    orchard.repo("gc", "-q", "--prune=now")

    assert orchard.repo("cat-file", "-t", commit).strip() == "commit"
    assert orchard.repo.files(commit)["a.txt"] == "a\n"


async def test_a_job_result_that_reaches_outside_is_refused(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Escape
        jobs:
          - {id: link, work: ln -s /etc/passwd out}
          - {id: nested, work: git init -q sub && touch sub/x}
    """)
    assert {job(done, name)["reason"] for name in ("link", "nested")} == {"refused"}


async def test_a_commit_is_named_after_who_did_the_work_and_names_all_who_took_part(orchard: Orchard) -> None:
    await orchard.run("""
        name: Names
        jobs:
          - {id: base, name: Lay the ground, task: "Dig first.", work: echo a > a.txt}
          - {id: top, name: Build on it, needs: [base], work: echo b > b.txt}
          - {id: lint, name: Lint, needs: [base], work: "sleep 1", expects_no_changes: true}
    """)
    log = orchard.repo("log", "--format=%s%n%b", "main..work")
    assert log.startswith("Build on it\n- Lay the ground\n- Build on it\n")
    assert "Lint" not in log


async def test_a_check_that_is_merged_first_lands_the_work_it_checked_under_its_own_name(orchard: Orchard) -> None:
    await orchard.run("""
        name: Names
        jobs:
          - {id: base, name: Lay the ground, task: "Dig first.", work: echo a > a.txt}
          - {id: top, name: Build on it, needs: [base], work: "sleep 1; echo b > b.txt"}
          - {id: lint, name: Lint, needs: [base], work: "true", expects_no_changes: true}
    """)
    assert orchard.repo("log", "--format=%s", "main..work").split("\n")[:2] == ["Build on it", "Lay the ground"]


async def test_a_leaf_tells_its_own_work_apart_from_all_it_brings_with_it(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Counts
        jobs: [{id: a, work: echo a > a.txt}, {id: b, needs: [a], work: echo b > b.txt}]
    """)
    leaf = orchard.job("b", None)
    assert (leaf["summary"]["added"], leaf["aggregated"]["added"]) == (1, 2)
    assert done["plan"]["summary"]["added"] == 2


async def test_the_first_snapshot_is_the_first_generation_and_a_moved_target_begins_the_second(
    orchard: Orchard,
) -> None:
    where = orchard.repo.path.parent / "running"

    async def move(session: Session, plan: PlanId) -> None:
        await until(where.exists)
        orchard.repo.commit({"users.txt": "mine"})

    await orchard.run("name: one\njobs: [{id: a, work: 'echo a > a.txt'}]\n")
    first = [one.generation for one in orchard.events(SnapshotStarted)], orchard.events(Landed)[0].landing
    await orchard.run(f"name: two\njobs: [{{id: b, work: 'echo b > b.txt; touch {where}; sleep 1'}}]\n", move)
    second = [one.generation for one in orchard.events(SnapshotStarted)], orchard.events(Landed)[0].landing

    assert first[0] == [1] and first[1].endswith(".1")
    assert second[0] == [1, 2] and second[1].endswith(".2")
