"""Which places each plan of the crash matrix passes: `*` marks those that one command passes twice or more.

A place that is not in a row cannot be reached there, and is not tried. `test_the_table_is_true` runs every
plan in peace, compares what it passes with its row, and prints the row that would be right.
"""

from collections.abc import Mapping

REACHED: Mapping[str, str] = {
    "single@0": """
        attempt.after-end* attempt.before-end* attempt.started* checkout.after checkout.after-rename
        checkout.before checkout.before-rename checkout.intended checkout.locked checkout.placed
        checkout.published checkout.settled checkout.staged checkout.swapped commit.after commit.before
        hold.before-read-back journal.after-commit* journal.before-commit* journal.half-written* keep.after-hold
        keep.before-hold landing.after-done landing.after-move landing.before-intent landing.before-move
        plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn process.before-sweep
        program.after-end program.before-start recovery.done ref.after-update* ref.before-update*
        request.after-durable request.before request.checking* snapshot.after-publish snapshot.after-start
        snapshot.before-publish snapshot.before-start store.after-name* store.before-name* trash.before-empty*
        validation.before-settle wip.after-save wip.before-save worktree.after-register worktree.after-release
        worktree.after-remove worktree.after-rename worktree.after-take worktree.before-release
        worktree.before-remove worktree.before-take
    """,
    "chain@0": """
        attempt.after-end* attempt.before-end* attempt.started* branch.after-swap branch.before-swap commit.after*
        commit.before* hold.before-read-back* journal.after-commit* journal.before-commit* journal.half-written*
        keep.after-hold* keep.before-hold* landing.after-done landing.after-move landing.before-intent
        landing.before-move plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn*
        process.before-sweep* program.after-end* program.before-start* recovery.done ref.after-update*
        ref.before-update* request.after-durable request.before request.checking*
        snapshot.after-publish snapshot.after-start
        snapshot.before-publish snapshot.before-start store.after-name* store.before-name* trash.before-empty*
        validation.before-settle wip.after-save* wip.before-save* worktree.after-register worktree.after-release*
        worktree.after-remove worktree.after-rename worktree.after-reset* worktree.after-take*
        worktree.before-release* worktree.before-remove worktree.before-reset* worktree.before-take*
    """,
    "diamond@0": """
        attempt.after-end* attempt.before-end* attempt.started* branch.after-swap branch.before-swap commit.after*
        commit.before* gather.after-hold gather.before-hold hold.before-read-back* journal.after-commit*
        journal.before-commit* journal.half-written* keep.after-hold* keep.before-hold* landing.after-done
        landing.after-move landing.before-intent landing.before-move plan.before-pin plan.started plan.submitted
        pool.before-close process.after-spawn* process.before-sweep* program.after-end* program.before-start*
        recovery.done ref.after-update* ref.before-update* request.after-durable request.before request.checking*
        snapshot.after-publish
        snapshot.after-start snapshot.before-publish snapshot.before-start store.after-name* store.before-name*
        trash.before-empty* validation.before-settle wip.after-save* wip.before-save* worktree.after-register*
        worktree.after-release* worktree.after-remove* worktree.after-rename* worktree.after-reset*
        worktree.after-take* worktree.before-release* worktree.before-remove* worktree.before-reset*
        worktree.before-take*
    """,
    "wide@0": """
        attempt.after-end* attempt.before-end* attempt.started* checkout.after checkout.after-rename*
        checkout.before checkout.before-rename* checkout.intended checkout.locked checkout.placed
        checkout.published checkout.settled checkout.staged checkout.swapped commit.after* commit.before*
        hold.before-read-back* journal.after-commit* journal.before-commit* journal.half-written*
        keep.after-hold* keep.before-hold* landing.after-done landing.after-move landing.before-intent
        landing.before-move plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn*
        process.before-sweep* program.after-end* program.before-start* recovery.done ref.after-update*
        ref.before-update* request.after-durable request.before request.checking* snapshot.after-publish*
        snapshot.after-start snapshot.before-publish* snapshot.before-start store.after-name* store.before-name*
        trash.before-empty* validation.after-verify validation.before-settle validation.before-verify
        wip.after-save* wip.before-save* worktree.after-register* worktree.after-release* worktree.after-remove*
        worktree.after-rename* worktree.after-reset* worktree.after-take* worktree.before-release*
        worktree.before-remove* worktree.before-reset* worktree.before-take*
    """,
    "joins@0": """
        attempt.after-end* attempt.before-end* attempt.started* checkout.after checkout.after-rename*
        checkout.before checkout.before-rename* checkout.intended checkout.locked checkout.placed
        checkout.published checkout.settled checkout.staged checkout.swapped commit.after* commit.before*
        gather.after-hold* gather.before-hold* hold.before-read-back* journal.after-commit*
        journal.before-commit* journal.half-written* keep.after-hold* keep.before-hold* landing.after-done
        landing.after-move landing.before-intent landing.before-move plan.before-pin plan.started plan.submitted
        pool.before-close process.after-spawn* process.before-sweep* program.after-end* program.before-start*
        recovery.done ref.after-update* ref.before-update* request.after-durable request.before
        request.checking* snapshot.after-publish* snapshot.after-start snapshot.before-publish*
        snapshot.before-start store.after-name* store.before-name* trash.before-empty* validation.before-settle
        wip.after-save* wip.before-save* worktree.after-register* worktree.after-release* worktree.after-remove*
        worktree.after-rename* worktree.after-reset* worktree.after-take* worktree.before-release*
        worktree.before-remove* worktree.before-reset* worktree.before-take*
    """,
    "checks@0": """
        attempt.after-end* attempt.before-end* attempt.started* checkout.after checkout.after-rename*
        checkout.before checkout.before-rename* checkout.intended checkout.locked checkout.placed
        checkout.published checkout.settled checkout.staged checkout.swapped commit.after* commit.before*
        hold.before-read-back* journal.after-commit* journal.before-commit* journal.half-written*
        keep.after-hold* keep.before-hold* landing.after-done landing.after-move landing.before-intent
        landing.before-move plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn*
        process.before-sweep* program.after-end* program.before-start* recovery.done ref.after-update*
        ref.before-update* request.after-durable request.before request.checking* snapshot.after-publish*
        snapshot.after-start snapshot.before-publish* snapshot.before-start store.after-name* store.before-name*
        trash.before-empty* validation.after-verify validation.before-settle validation.before-verify
        wip.after-save* wip.before-hold wip.before-save* worktree.after-register* worktree.after-release*
        worktree.after-remove* worktree.after-rename* worktree.after-reset* worktree.after-take*
        worktree.before-release* worktree.before-remove* worktree.before-reset* worktree.before-take*
    """,
    "flaky@0": """
        attempt.after-end* attempt.before-end* attempt.started* checkout.after checkout.after-rename*
        checkout.before checkout.before-rename* checkout.intended checkout.locked checkout.placed checkout.published
        checkout.settled checkout.staged checkout.swapped command.recorded commit.after commit.before
        hold.before-read-back* journal.after-commit* journal.before-commit* journal.half-written* keep.after-hold
        keep.before-hold landing.after-done landing.after-move landing.before-intent landing.before-move
        plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn* process.before-sweep*
        program.after-end* program.before-start* recovery.done ref.after-update* ref.before-update*
        request.after-durable request.before request.checking* snapshot.after-publish snapshot.after-start
        snapshot.before-publish snapshot.before-start store.after-name* store.before-name* trash.before-empty*
        validation.before-settle wip.after-save* wip.before-hold wip.before-save* worktree.after-register
        worktree.after-release* worktree.after-remove worktree.after-rename worktree.after-reset
        worktree.after-take* worktree.before-release* worktree.before-remove worktree.before-reset
        worktree.before-take*
    """,
    "groups@0": """
        attempt.after-end* attempt.before-end* attempt.started* checkout.after checkout.after-rename*
        checkout.before checkout.before-rename* checkout.intended checkout.locked checkout.placed checkout.published
        checkout.settled checkout.staged checkout.swapped command.recorded commit.after* commit.before*
        gather.after-hold* gather.before-hold* hold.before-read-back* journal.after-commit* journal.before-commit*
        journal.half-written* keep.after-hold* keep.before-hold* landing.after-done landing.after-move
        landing.before-intent landing.before-move plan.before-pin plan.started plan.submitted pool.before-close
        process.after-spawn* process.before-sweep* program.after-end* program.before-start* recovery.done
        ref.after-update* ref.before-update* request.after-durable request.before request.checking*
        snapshot.after-publish snapshot.after-start snapshot.before-publish snapshot.before-start store.after-name*
        store.before-name* trash.before-empty* validation.before-settle wip.after-save* wip.before-save*
        worktree.after-register* worktree.after-release* worktree.after-remove* worktree.after-rename*
        worktree.after-reset worktree.after-take* worktree.before-release* worktree.before-remove*
        worktree.before-reset worktree.before-take*
    """,
    "moved@0": """
        attempt.after-end* attempt.before-end* attempt.started* branch.after-swap branch.before-swap commit.after*
        commit.before* hold.before-read-back* journal.after-commit* journal.before-commit* journal.half-written*
        keep.after-hold* keep.before-hold* landing.after-done landing.after-move landing.before-intent
        landing.before-move plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn*
        process.before-sweep* program.after-end* program.before-start* recovery.done ref.after-update*
        ref.before-update* request.after-durable request.before request.checking*
        snapshot.after-publish* snapshot.after-start*
        snapshot.before-publish* snapshot.before-start* store.after-name* store.before-name* trash.before-empty*
        validation.after-verify* validation.before-settle* validation.before-verify* wip.after-save* wip.before-save*
        worktree.after-register* worktree.after-release* worktree.after-remove* worktree.after-rename*
        worktree.after-reset* worktree.after-take* worktree.before-release* worktree.before-remove*
        worktree.before-reset* worktree.before-take*
    """,
    "undo@0": """
        attempt.after-end* attempt.before-end* attempt.started* checkout.after checkout.after-rename*
        checkout.before checkout.before-rename* checkout.intended checkout.locked checkout.placed
        checkout.published checkout.settled checkout.staged checkout.swapped commit.after commit.before
        hold.before-read-back journal.after-commit* journal.before-commit* journal.half-written* keep.after-hold
        keep.before-hold landing.after-done landing.after-move landing.before-intent landing.before-move
        plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn process.before-sweep
        program.after-end program.before-start recovery.done ref.after-update* ref.before-update*
        request.after-durable request.before request.checking* snapshot.after-publish snapshot.after-start
        snapshot.before-publish snapshot.before-start store.after-name* store.before-name* trash.before-empty*
        validation.before-settle wip.after-save wip.before-save worktree.after-register worktree.after-release
        worktree.after-remove worktree.after-rename worktree.after-take worktree.before-release
        worktree.before-remove worktree.before-take
    """,
    "undo@1": """
        checkout.after checkout.after-rename* checkout.before checkout.before-rename* checkout.intended
        checkout.locked checkout.placed checkout.published checkout.settled checkout.staged checkout.swapped
        journal.after-commit* journal.before-commit* journal.half-written* recovery.done ref.after-update
        ref.before-update request.after-durable request.before trash.before-empty undo.after-done
        undo.after-move undo.before-intent undo.before-move
    """,
    "undo@2": """
        checkout.after checkout.after-rename* checkout.before checkout.before-rename* checkout.intended
        checkout.locked checkout.placed checkout.published checkout.settled checkout.staged checkout.swapped
        journal.after-commit* journal.before-commit* journal.half-written* recovery.done ref.after-update
        ref.before-update request.after-durable request.before trash.before-empty
    """,
    "apart@0": """
        attempt.after-end* attempt.before-end* attempt.started* branch.after-swap branch.before-swap commit.after
        commit.before hold.before-read-back journal.after-commit* journal.before-commit* journal.half-written*
        keep.after-hold keep.before-hold landing.after-done landing.after-move landing.before-intent
        landing.before-move plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn
        process.before-sweep program.after-end program.before-start recovery.done ref.after-update* ref.before-update*
        request.after-durable request.before request.checking*
        snapshot.after-publish snapshot.after-start snapshot.before-publish
        snapshot.before-start store.after-name* store.before-name* trash.before-empty* validation.before-settle
        wip.after-save wip.before-save worktree.after-register worktree.after-release worktree.after-remove
        worktree.after-rename worktree.after-take worktree.before-release worktree.before-remove worktree.before-take
    """,
    "apart@1": """
        branch.after-swap branch.before-swap journal.after-commit* journal.before-commit* journal.half-written*
        recovery.done ref.after-update ref.before-update request.after-durable request.before trash.before-empty
        undo.after-done undo.after-move undo.before-intent undo.before-move
    """,
    "apart@2": """
        command.recorded delete.after-folders delete.recorded journal.after-commit journal.before-commit
        journal.half-written recovery.done request.after-durable request.before trash.before-empty
    """,
    "apart@3": """
        delete.after-folders delete.recorded journal.after-commit journal.before-commit journal.half-written
        purge.after-forget purge.after-refs purge.before-forget purge.before-refs recovery.done ref.after-update
        ref.before-update request.after-durable request.before trash.before-empty
    """,
    "never@0": """
        attempt.after-end* attempt.before-end* attempt.started* commit.after commit.before hold.before-read-back
        journal.after-commit* journal.before-commit* journal.half-written* keep.after-hold keep.before-hold
        landing.after-branch plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn
        process.before-sweep program.after-end program.before-start recovery.done ref.after-update* ref.before-update*
        request.after-durable request.before request.checking*
        snapshot.after-publish snapshot.after-start snapshot.before-publish
        snapshot.before-start store.after-name* store.before-name* trash.before-empty* validation.before-settle
        wip.after-save wip.before-save worktree.after-register worktree.after-release worktree.after-remove
        worktree.after-rename worktree.after-take worktree.before-release worktree.before-remove worktree.before-take
    """,
    "cancel@0": """
        attempt.after-end attempt.before-end attempt.started* cancel.after-stop cancel.before-stop command.recorded
        commit.after commit.before hold.before-read-back* journal.after-commit* journal.before-commit*
        journal.half-written* keep.after-hold keep.before-hold plan.before-pin plan.started plan.submitted
        pool.before-close process.after-spawn* process.before-sweep program.after-end program.before-start*
        recovery.done ref.after-update* ref.before-update* request.after-durable* request.before*
        snapshot.after-start snapshot.before-start store.after-name* store.before-name* trash.before-empty*
        wip.after-save* wip.before-hold wip.before-save* worktree.after-register worktree.after-release
        worktree.after-reset worktree.after-take* worktree.before-release worktree.before-reset
        worktree.before-take*
    """,
    "cancel@1": """
        attempt.after-end* attempt.before-end* attempt.started* checkout.after checkout.after-rename*
        checkout.before checkout.before-rename* checkout.intended checkout.locked checkout.placed checkout.published
        checkout.settled checkout.staged checkout.swapped command.recorded commit.after commit.before
        hold.before-read-back* journal.after-commit* journal.before-commit* journal.half-written* keep.after-hold
        keep.before-hold landing.after-done landing.after-move landing.before-intent landing.before-move
        pool.before-close process.after-spawn process.before-sweep program.after-end program.before-start
        recovery.done ref.after-update* ref.before-update* request.after-durable request.before
        snapshot.after-publish snapshot.before-publish trash.before-empty* validation.before-settle wip.after-save*
        wip.before-hold wip.before-save* worktree.after-release* worktree.after-remove worktree.after-rename
        worktree.after-reset worktree.after-take worktree.before-release* worktree.before-remove
        worktree.before-reset worktree.before-take
    """,
    "delete@0": """
        attempt.after-end attempt.before-end attempt.started* cancel.after-stop cancel.before-stop command.recorded
        commit.after commit.before hold.before-read-back* journal.after-commit* journal.before-commit*
        journal.half-written* keep.after-hold keep.before-hold plan.before-pin plan.started plan.submitted
        pool.before-close process.after-spawn* process.before-sweep program.after-end program.before-start*
        recovery.done ref.after-update* ref.before-update* request.after-durable* request.before*
        snapshot.after-start snapshot.before-start store.after-name* store.before-name* trash.before-empty*
        wip.after-save* wip.before-hold wip.before-save* worktree.after-register worktree.after-release
        worktree.after-reset worktree.after-take* worktree.before-release worktree.before-reset
        worktree.before-take*
    """,
    "delete@1": """
        command.recorded delete.after-folders delete.recorded hold.before-read-back journal.after-commit*
        journal.before-commit* journal.half-written* pool.before-close recovery.done ref.after-update
        ref.before-update request.after-durable request.before trash.before-empty* wip.after-save wip.before-hold
        wip.before-save worktree.after-release worktree.after-remove worktree.after-rename worktree.before-release
        worktree.before-remove
    """,
    "delete@2": """
        delete.after-folders delete.recorded journal.after-commit journal.before-commit journal.half-written
        purge.after-forget purge.after-refs purge.before-forget purge.before-refs recovery.done ref.after-update
        ref.before-update request.after-durable request.before trash.before-empty
    """,
    "reshape@0": """
        attempt.after-end* attempt.before-end* attempt.started* checkout.after checkout.after-rename*
        checkout.before checkout.before-rename* checkout.intended checkout.locked checkout.placed
        checkout.published checkout.settled checkout.staged checkout.swapped commit.after* commit.before*
        hold.before-read-back* journal.after-commit* journal.before-commit* journal.half-written*
        keep.after-hold* keep.before-hold* landing.after-done landing.after-move landing.before-intent
        landing.before-move plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn*
        process.before-sweep* program.after-end* program.before-start* recovery.done ref.after-update*
        ref.before-update* request.after-durable request.before request.checking* command.recorded
        snapshot.after-publish snapshot.after-start snapshot.before-publish snapshot.before-start
        store.after-name* store.before-name* trash.before-empty* validation.before-settle wip.after-save*
        wip.before-save* worktree.after-register worktree.after-release* worktree.after-remove
        worktree.after-rename worktree.after-reset worktree.after-take* worktree.before-release*
        worktree.before-remove worktree.before-reset worktree.before-take*
    """,
    "agents@0": """
        agent.after-turn* agent.before-turn* attempt.after-end* attempt.before-end* attempt.started*
        checkout.after checkout.after-rename* checkout.before checkout.before-rename* checkout.intended
        checkout.locked checkout.placed checkout.published checkout.settled checkout.staged checkout.swapped
        commit.after* commit.before* hold.before-read-back* journal.after-commit* journal.before-commit*
        journal.half-written* keep.after-hold* keep.before-hold* landing.after-done landing.after-move
        landing.before-intent landing.before-move mending.before-merge plan.before-pin plan.started
        plan.submitted pool.before-close process.after-spawn* process.before-sweep* program.after-end*
        program.before-start* recovery.done ref.after-update* ref.before-update* request.after-durable
        request.before request.checking* resolve.remembered snapshot.after-publish* snapshot.after-start
        snapshot.before-publish* snapshot.before-start store.after-name* store.before-name* trash.before-empty*
        validation.after-verify* validation.before-settle validation.before-verify* wip.after-save*
        wip.before-save* worktree.after-register* worktree.after-release* worktree.after-remove*
        worktree.after-rename* worktree.after-reset* worktree.after-take* worktree.before-release*
        worktree.before-remove* worktree.before-reset* worktree.before-take*
    """,
    "subtasks@0": """
        agent.after-turn* agent.before-turn* attempt.after-end* attempt.before-end* attempt.started* checkout.after
        checkout.after-rename* checkout.before checkout.before-rename* checkout.intended checkout.locked
        checkout.placed checkout.published checkout.settled checkout.staged checkout.swapped commit.after*
        commit.before* hold.before-read-back* journal.after-commit* journal.before-commit* journal.half-written*
        keep.after-hold* keep.before-hold* landing.after-done landing.after-move landing.before-intent
        landing.before-move plan.before-pin plan.started plan.submitted pool.before-close process.after-spawn*
        process.before-sweep* program.after-end program.before-start recovery.done ref.after-update*
        ref.before-update* request.after-durable* request.before* snapshot.after-publish snapshot.after-start
        snapshot.before-publish snapshot.before-start store.after-name* store.before-name* subtask.after-pull
        subtask.before-pull subtask.spawned trash.before-empty* validation.before-settle wip.after-save*
        wip.before-hold* wip.before-save* worktree.after-register* worktree.after-release* worktree.after-remove*
        worktree.after-rename* worktree.after-take* worktree.before-release* worktree.before-remove*
        worktree.before-take*
    """,
}
"""By shape and stage, the number of the goal that the user is after."""


def by_chance(place: str) -> bool:
    """How many folders are made and removed depends on the pace of the machine; whether one is given on does not."""
    if place == "request.checking":  # also where remotes are fetched, by whoever goes on
        return True
    return place.startswith("worktree.") and place.endswith(("-remove", "-rename", "-register"))


def reached(key: str) -> dict[str, int]:
    """The places of one row, each with how often it is passed: once, or twice and more."""
    return {word.rstrip("*"): 2 if word.endswith("*") else 1 for word in REACHED[key].split()}


def row(passed: Mapping[str, int]) -> str:
    """What was passed, as it stands in the table."""
    return " ".join(f"{name}*" if times > 1 else name for name, times in sorted(passed.items()))
