"""Proposing a plan's result: its commit goes to a branch of a remote, and a pull request asks to merge that branch.

    look → intent row → push (compare-and-swap on the remote) → open or update the request → done row

All that can be known beforehand is looked at first: the remote, the forge that its address names, a way to ask it, and
whether it answers whoever asks that way. What goes wrong after the push says which branch is where.
Each step may be done again. A push of what is there already does nothing, and a forge has one open request of a branch
at most, so whatever dies whenever, doing everything once more comes to the same end. Whatever goes wrong is told in one
sentence; the result is under our own refs all the while.
"""

import time
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from orchard.config.layers import Forge
from orchard.core.run import Run
from orchard.core.views.documents import Branch, PlanView, PullRequest
from orchard.core.views.markdown import in_code, plan_markdown
from orchard.core.views.plans import plan_view
from orchard.engine.engine import Engine
from orchard.engine.programs import redacted
from orchard.errors import NeedsPerson, Next, OrchardError, UsageError
from orchard.forge.channel import Channel, channel_to
from orchard.forge.requests import Opened, Wanted, check_access, open_or_update
from orchard.forge.servers import Project, UnknownForge, known_servers, project_at
from orchard.git.remote_branches import push_commit, push_remote, refuse_changed, remote_named
from orchard.git.repository import Repository
from orchard.model.events import plans as events
from orchard.model.statuses import JobStatus, PlanStatus
from orchard.process.failpoint import failpoint
from orchard.text import one_line, without_credentials

KIND = "pr"
"""The kind of hold in which a plan waits whose result could not be proposed."""
DESCRIPTION = 2000


class Proposal(Struct, frozen=True):
    """What is proposed: a commit, by the name of its branch there, for another branch."""

    commit: str
    branch: str
    target: str
    draft: bool = False


class Way(Struct, frozen=True):
    """How it gets there."""

    remote: str
    project: Project
    source: Project
    channel: Channel


class OnlyPushed(OrchardError):
    """The branch is on the remote, and its request is not there, or not renewed."""


def of_snapshot(run: Run, commit: str) -> Proposal:
    """What is proposed of a plan whose result is validated and on no branch."""
    draft = run.pull_asked is not None and run.pull_asked.draft
    return Proposal(commit, f"orchard/{run.id}", target_of(run), draft)


def of_result(run: Run, *, draft: bool) -> Proposal:
    """What can be proposed of a plan that is over; UsageError where there is nothing."""
    made, landed, left = run.pull_request, run.landed, run.unlanded
    if made is not None:
        return Proposal(made.commit, made.branch, made.target, draft)
    if landed is not None and run.undone is not None:
        raise UsageError(
            f"The landing of plan '{run.id}' was undone.", hint=("Land it first: ", Next("land_plan", run.id))
        )
    if landed is not None:
        base = run.pinned.base_branch
        if base is None or base == landed.branch:
            raise UsageError(
                f"Plan '{run.id}' has landed on '{landed.branch}', where it began: there is nothing to propose.",
                hint=f"To push that branch: git push REMOTE {landed.branch}",
            )
        return Proposal(landed.new, landed.branch, base, draft)
    if left is not None and left.branch is not None and left.commit is not None:
        return Proposal(left.commit, left.branch, target_of(run), draft)
    raise UsageError(f"Plan '{run.id}' has no result to propose.", hint=Next("get_plan", run.id))


def target_of(run: Run) -> str:
    """The branch that a result is proposed for: the target; where landing would have made that, the base."""
    pinned = run.pinned
    target = pinned.target_branch if pinned.target_commit is not None else pinned.base_branch
    if target is None:
        raise UsageError(
            f"Plan '{run.id}' did not start from a branch, so there is none to open a pull request for.",
            hint="Name one in the plan: 'target: BRANCH'.",
        )
    return target


async def propose(
    engine: Engine, run: Run, proposed: Callable[[], Proposal]
) -> events.PullRequestOpened | OrchardError:
    """Push and open, or update; what cannot be done is an error in words that hold no secret."""
    try:
        return await _propose(engine, run, proposed())
    except UsageError as error:
        return error
    except OrchardError as error:
        opened = error.message if isinstance(error, OnlyPushed) else f"No pull request was opened. {error.message}"
        return NeedsPerson(redacted(without_credentials(opened), engine.world.hidden_in, run), hint=error.hint)


async def _propose(engine: Engine, run: Run, proposal: Proposal) -> events.PullRequestOpened:
    world = engine.world
    way = await world.in_thread(open_way, world.repo, world.config.forge, world.environment, proposal)
    body = redacted(_body(engine, run, proposal), world.hidden_in, run)
    title = one_line(redacted(run.plan.name, world.hidden_in, run))
    asked = Wanted(way.project, way.source, proposal.branch, proposal.target, title, body, proposal.draft)
    await world.in_thread(check_access, way.channel, asked)
    engine.record(run.id, events.PullRequestIntended(way.remote, proposal.branch, proposal.commit))
    await engine.durable()
    failpoint("pull-request.before-push")
    ours = tuple(run.pull_commits)
    await world.in_thread(push_commit, world.repo, way.remote, proposal.commit, proposal.branch, ours)
    failpoint("pull-request.after-push")
    opened = await world.in_thread(_open_pushed, way, asked)
    failpoint("pull-request.after-open")
    made = events.PullRequestOpened(
        opened.url, opened.number, proposal.branch, proposal.target, proposal.commit, opened.created
    )
    engine.record(run.id, made)
    await engine.durable()
    return made


def _open_pushed(way: Way, asked: Wanted) -> Opened:
    """The request of a branch that is on the remote by now: whoever reads that it failed has to know of the branch."""
    try:
        return open_or_update(way.channel, asked)
    except OrchardError as error:
        where = f"branch '{one_line(asked.branch)}' of the remote '{one_line(way.remote)}'"
        raise OnlyPushed(
            f"The result is pushed to the {where}, but no pull request was opened or updated. {error.message}",
            hint=error.hint,
        ) from None


def open_way(repo: Repository, settings: Forge, env: Mapping[str, str], proposal: Proposal) -> Way:
    """The way, where it is open: nobody has bent it meanwhile, and the forge knows who asks. It blocks."""
    way = find_way(repo, settings, env, proposal)
    refuse_changed(repo)
    way.channel.check_login()
    return way


def find_way(repo: Repository, settings: Forge, env: Mapping[str, str], proposal: Proposal) -> Way:
    """Where the branch goes and where the request is made, as git's own settings say; nothing is done yet."""
    name = push_remote(repo, proposal.target)
    if name == ".":
        name = "origin"
    remote = remote_named(repo, name)
    servers = known_servers(settings.github, settings.gitlab, env)
    source = project_at(remote.push_address, servers, name)
    project = source
    if (upstream := _upstream(repo, proposal.target, name)) is not None:
        project = project_at(remote_named(repo, upstream).address, servers, upstream)
    elif remote.address != remote.push_address:
        project = project_at(remote.address, servers, name)
    if project.server != source.server:
        raise UnknownForge(
            f"The branch would go to {source.server.host} and the pull request to {project.server.host}.",
            hint="Look at 'git remote -v': both have to be on one forge.",
        )
    return Way(name, project, source, channel_to(project.server, env))


def _upstream(repo: Repository, target: str, pushed_to: str) -> str | None:
    """The remote that the target comes from, where what is pushed goes to another one, such as a fork."""
    said = repo.config(r"^(branch\..*\.remote|remote\..*\.url)$")
    upstream = said.get(f"branch.{target}.remote", "origin")
    known = f"remote.{upstream}.url" in said
    return upstream if known and upstream not in (pushed_to, ".") else None


def _body(engine: Engine, run: Run, proposal: Proposal) -> str:
    """The summary of the plan, as it will be when this has been done."""
    about = in_code(run.plan.description, DESCRIPTION)
    page = plan_markdown(
        _as_done(plan_view(run, engine.world.say), proposal),
        run,
        lambda text: redacted(text, engine.world.hidden_in, run),
        time.time(),
    )
    return f"{about}\n\n{page}" if about else page


def _as_done(view: PlanView, proposal: Proposal) -> PlanView:
    """What is being validated has been, once somebody reads this."""
    plan, running = view.plan, JobStatus.RUNNING
    counts = dict(plan.counts)
    counts["succeeded"] = counts.get("succeeded", 0) + counts.pop("running", 0) + counts.pop("scheduled", 0)
    jobs = [replace(job, status=JobStatus.SUCCEEDED) if job.status is running else job for job in view.jobs]
    request = PullRequest("", 0, proposal.branch, proposal.target, proposal.commit)
    status = PlanStatus.SUCCEEDED if plan.status in (PlanStatus.RUNNING, PlanStatus.WAITING) else plan.status
    done = replace(
        plan,
        status=status,
        counts=counts,
        validation=JobStatus.SUCCEEDED,
        result=Branch(proposal.branch, proposal.commit),
        pull_request=request,
        hint=None,
        paused=None,
        waiting=[],
    )
    return replace(view, plan=done, jobs=jobs)
