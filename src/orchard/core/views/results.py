"""What became of a plan's result: where it is, and what could not be done with it."""

from orchard.core.run import Run
from orchard.core.views import documents
from orchard.model.events.plans import Pushed


def result_of(run: Run) -> documents.Branch | None:
    if run.landed is not None:
        return documents.Branch(run.landed.branch, run.landed.new)
    if run.pull_request is not None:
        return documents.Branch(run.pull_request.branch, run.pull_request.commit)
    if run.unlanded is not None:
        return documents.Branch(run.unlanded.branch, run.unlanded.commit)
    return None


def pull_request_of(run: Run) -> documents.PullRequest | None:
    made = run.pull_request
    if made is None:
        return None
    return documents.PullRequest(made.url, made.number, made.branch, made.target, made.commit)


def warnings_of(run: Run) -> list[str]:
    unpushed = push_failed(run.pushed) if run.pushed is not None and not run.pushed.ok else None
    # Earlier versions recorded that as a warning as well, which would stay for ever.
    found = [warning.message for warning in run.warnings if warning.message != unpushed]
    return [*found, unpushed] if unpushed is not None and run.undone is None else found


def push_failed(pushed: Pushed) -> str:
    return f"The push of '{pushed.branch}' failed; the landing stands. {pushed.message[-500:]}"
