"""Work for an agent: what it is told, in which session it goes on, and what its end means for the phase."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from orchard.agents.definitions.choice import Choice, choose
from orchard.agents.environment import agent_environment
from orchard.agents.prompts.work import (
    CHECK_FAILED,
    Delivered,
    Failure,
    WorkerContext,
    changed_instructions,
    go_on_instructions,
    retry_instructions,
    work_instructions,
)
from orchard.agents.protocol import Agent, Result, Settings
from orchard.config.layers import Config, allowed_env
from orchard.core.records import Attempt, JobRecord
from orchard.engine.context import Context
from orchard.engine.machine.reach import folder_meant
from orchard.engine.outcome import Failed, Held
from orchard.engine.plans.setup import wants_submodules
from orchard.engine.programs import TAIL_LINES, folder_of, limits_of, redacted, shown
from orchard.engine.turns.permissions import for_job
from orchard.engine.turns.scope import offered_name
from orchard.engine.turns.talk import talk
from orchard.engine.turns.turn import Asked, run_turn
from orchard.errors import Hint, Next, OrchardError
from orchard.files import NOT_A_FILE, read_plain
from orchard.git.history import files
from orchard.model.agent_rows import BUILTIN
from orchard.model.limits import Limits
from orchard.model.permissions import ALL, Tools, all_of, narrowed
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, AgentWork, Job, JobId, Work
from orchard.planfile.works import settable
from orchard.store.logs import tail
from orchard.text import shortened

INSTRUCTION_BYTES = 256 * 1024
STAT_FILES = 30
NEEDS = 5
NEED = 300
"""So many needs of the job a subtask is told of, with so many characters of what each delivered."""

_PROGRAMS = frozenset({"timeout", "idle", "output-limit", "spawn-failed", "signal", "health"})
_SEE_AGENT = {
    "not-logged-in": "Log in to it or set its key, then retry. See: ",
    "spawn-failed": "See what is installed and how to install it: ",
}
_RETRY = {
    "rate-limit": "Retry later: ",
    "overloaded": "Retry later: ",
    "network": "Retry when the network is there: ",
}
_HINTS = {
    "max-turns": "Raise 'max_turns' or make the task smaller; a retry goes on in the same session.",
    "refused": "Word the task differently, or give it to another agent or model.",
    "health": "See what it did, and retry; '[health]' in the configuration says when a worker is ended.",
    "denied": "Allow what it needs ('tools', 'allowed_folders', 'allowed_urls'), or change the task.",
}


async def run_agent_work(context: Context, work: AgentWork) -> Failed | Held | None:
    """Have an agent do a work of the plan; None: it says that it is done, which the commit has to prove."""
    phase = context.phase
    folder = folder_of(work, context.place)
    if isinstance(folder, Failed):
        return folder
    try:
        chosen = await chosen_for(context, work.agent, has_model=work.model is not None or work.tier is not None)
        agent = chosen.agent
        settings = with_definition(await settings_of(context, agent, work), chosen)
        sources = for_job(context.world.config, chosen, context.job, work)
        settings = replace(settings, tools=all_of(sources))
        task = _task(context, work)
    except OrchardError as error:
        return Failed("spawn-failed", f"{phase}: {error.message}", hint=error.hint)
    is_work = phase is Phase.WORK
    purpose = "work" if is_work else "check"
    server = offered_name(context, agent, purpose, settings)
    worker = await worker_context(context, task, work, server, settings.tools)
    worker = replace(worker, role=chosen.role)
    told, whole, session = _told(context, worker, agent, resumes=is_work and work.resume_session is not False)
    asked = Asked(
        agent=agent,
        purpose=purpose,
        instructions=told,
        folder=folder,
        env=environment_for(context, agent, work),
        limits=limits_for(context, work),
        settings=settings,
        session=session,
        whole=whole,
        sources=sources,
        work=work,
        definition=chosen.name,
    )
    if not is_work or context.job_id == VALIDATION:
        result = await run_turn(context, asked)
        failed = outcome_of(context, agent, work, result)
        return failed if failed is not None or not worker.is_check else _judged(context, agent, work, result)
    done = await talk(context, asked, interactive=work.interactive)
    if isinstance(done, Held):
        return done
    context.engine.live[context.run.id, context.job_id].listens = not done.ok
    return outcome_of(context, agent, work, done)


WHY = 500
"""Characters of why a check failed that are told; the log has all of it."""


def _judged(context: Context, agent: Agent, work: Work, result: Result) -> Failed | None:
    """What an agent says of the work that it was to check: its last line can say that it does not pass, and why."""
    lines = [line.strip(" \t*_`>") for line in result.text.strip().splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    if not last.upper().startswith(CHECK_FAILED):
        return None
    why = last[len(CHECK_FAILED) :].strip(" *_`") or "it does not say why"
    message = f"{context.phase}: agent '{agent.name}' says that the check failed: {why[:WHY]}"
    advice = work.on_failure
    return Failed(
        "agent",
        redacted(f"{advice.message} ({message})" if advice.message else message, context.world.hidden_in, context.run),
        tail=redacted(tail(context.log, TAIL_LINES), context.world.hidden_in, context.run),
        resume_from=advice.resume_from,
    )


def outcome_of(context: Context, agent: Agent, work: Work, result: Result) -> Failed | Held | None:
    if result.ok:
        return None
    if result.reason == "budget":
        return Held("budget", result.message, context.phase)
    message = f"{context.phase}: agent '{agent.name}' {_word(result)}"
    advice = work.on_failure
    return Failed(
        result.reason if result.reason in _PROGRAMS else "agent",
        f"{advice.message} ({message})" if advice.message else message,
        hint=_hint(context, agent, result.reason),
        exit_code=result.exit_code,
        tail=redacted(tail(context.log, TAIL_LINES), context.world.hidden_in, context.run),
        resume_from=advice.resume_from,
    )


def _hint(context: Context, agent: Agent, reason: str) -> Hint | None:
    if reason in _SEE_AGENT:
        return _SEE_AGENT[reason], Next("list_agents", args={"agent": agent.name})
    if reason in _RETRY:
        return _RETRY[reason], Next("retry_job", context.run.id, context.job_id)
    return _HINTS.get(reason)


def _word(result: Result) -> str:
    said = f": {result.message}" if result.message else "."
    words = {
        "refused": "would not do it",
        "denied": "was not allowed what it needs",
        "max-turns": "has used all of its turns",
        "not-logged-in": "is not logged in",
        "rate-limit": "met a rate limit that did not pass",
        "overloaded": "met an error of the model's service that did not pass",
        "network": "could not reach the model's service",
        "health": "was stopped",
    }
    return f"{words.get(result.reason, 'failed')}{said}"


def environment_for(context: Context, agent: Agent, work: Work) -> dict[str, str]:
    """What an agent sees: an allow-list, what its backend and the user name, and what the plan says."""
    world = context.world
    host = agent_environment(world.environment, (*agent.variables, *world.config.pass_env))
    given = given_to(world.config, agent, {**context.plan.env, **context.job.env, **work.env})
    return {**host, **given, "PWD": str(context.place.folder), **context.place.told}


def given_to(config: Config, agent: Agent, env: Mapping[str, str]) -> dict[str, str]:
    """Of what a plan sets, what an agent gets: nothing that steers it, and none of the variables that are its own."""
    row = config.builtin if agent.name == BUILTIN else config.agents.get(agent.name)
    handed_on = row.pass_env if row is not None else ()
    return settable(env, allowed_env(config, agent.name), {*agent.variables} - {*handed_on})


async def chosen_for(context: Context, name: str | None, *, has_model: bool = False) -> Choice:
    """Who does a work of the job. Definitions are those of the commit that the job began with."""
    world = context.world
    described = partial(world.described_at, context.base or context.run.pinned.base_commit)
    chosen = await world.in_thread(choose, world.agents, name, described, has_model=has_model)
    for note in chosen.notes:
        context.engine.warn(context.run.id, note)
    return chosen


def with_definition(settings: Settings, chosen: Choice) -> Settings:
    """Settings of a work, with what the definition asks for: it takes tools away, and names a model where none is."""
    model = settings.model or chosen.model
    return replace(settings, model=model, tools=narrowed(settings.tools, chosen.tools))


async def helper_of(context: Context, named: str | None) -> Choice:
    """Who heals or resolves: the agent that the configuration names for it, else that of the work, else the default."""
    work = context.job.work
    return await chosen_for(context, work.agent if named is None and isinstance(work, AgentWork) else named)


def limits_for(context: Context, work: Work) -> Limits:
    return limits_of(work, context.job, context.world.config.limits)


async def settings_of(context: Context, agent: Agent, work: AgentWork) -> Settings:
    world = context.world
    model = await world.in_thread(world.agents.model_for, agent.name, work.model, work.tier)
    folders = tuple(folder_meant(world.repo, name) for name in work.allowed_folders)
    if work.tier is not None and work.model is None and model is None and agent.name != BUILTIN:
        context.notes.append(f"'tier: {work.tier}' has no effect: no model of {agent.name} is known to be of that tier")
    return Settings(
        model=model,
        tier=work.tier,
        effort=work.effort,
        max_turns=work.max_turns,
        allowed_folders=folders,
        allowed_urls=work.allowed_urls,
        mcp_servers=world.agents.servers(work.mcp_servers),
    )


def _task(context: Context, work: AgentWork) -> str:
    if work.instructions is not None:
        return work.instructions
    assert work.instructions_file is not None
    top = context.place.folder.resolve()
    place = (top / work.instructions_file).resolve()
    said = f"The instructions '{work.instructions_file}'"
    if not place.is_relative_to(top):
        raise OrchardError(f"{said} lie outside of the repository.", hint="Name a file of the repository.")
    try:
        data = read_plain(place, INSTRUCTION_BYTES + 1)
    except OSError as error:
        if error.strerror == NOT_A_FILE:
            raise OrchardError(f"{said} are not a file.") from None
        raise OrchardError(
            f"{said} cannot be read: {error.strerror}.",
            hint="The file has to be committed in what the job starts from.",
        ) from error
    if len(data) > INSTRUCTION_BYTES:
        raise OrchardError(f"{said} are longer than {INSTRUCTION_BYTES // 1024} KiB.", hint="Make them shorter.")
    return data.decode(errors="replace")


def _told(context: Context, worker: WorkerContext, agent: Agent, *, resumes: bool) -> tuple[str, str, str | None]:
    """What the agent is told, what it is told if its session is lost, and the session it goes on with."""
    session = context.state.sessions.get(f"{agent.name} work") if resumes else None
    known = _heard_in(context.state, session) if session is not None else None
    failure, kept = _last_failure(context), not context.workspace.is_new
    whole = retry_instructions(worker, failure, resumed=False, kept=kept) if failure else work_instructions(worker)
    if known is None:
        return whole, whole, session
    if known.number == context.number:
        return go_on_instructions("it was stopped"), whole, session
    changed = known.job is None or _asks(known.job) != _asks(context.job)
    if failure is not None:
        told = retry_instructions(worker, failure, resumed=True, kept=kept, changed=changed)
    else:
        told = changed_instructions(worker) if changed else go_on_instructions("it was stopped")
    return told, whole, session


def _last_failure(context: Context) -> Failure | None:
    attempts = context.state.attempts
    failure = attempts[-2].failure if len(attempts) > 1 else None
    if failure is None or failure.phase is None:
        return None
    log = context.world.logs.path(context.run.id, context.job_id, failure.attempt, failure.phase)
    return Failure(
        phase=str(failure.phase),
        message=failure.message,
        exit_code=failure.exit_code,
        output=failure.tail,
        log=log if log.exists() else None,
    )


def _heard_in(state: JobRecord, session: str) -> Attempt | None:
    """The last attempt whose task the agent is known to have heard in this session."""
    for attempt in reversed(state.attempts):
        turns = (turn for turn in attempt.turns if turn.purpose == "work" and turn.subtask is None and turn.heard)
        if any(session == (turn.session or turn.resumed) for turn in turns):
            return attempt
    return None


def _asks(job: Job) -> object:
    """What a job asks of its agent. A file can hold other words each time, so it is never the same."""
    work = job.work
    if not isinstance(work, AgentWork):
        return work
    asked = work.instructions if work.instructions is not None else object()
    about = work.agent, work.context_files, work.allowed_folders, work.allowed_urls, work.tools
    return asked, *about, job.postchecks, job.tools


async def worker_context(
    context: Context, task: str, work: Work | None, server: str | None = None, tools: Tools = ALL
) -> WorkerContext:
    plan, job = context.plan, context.job
    needs = [await _delivered(context, need) for need in job.needs] if context.job_id != VALIDATION else []
    agent_work = work if isinstance(work, AgentWork) else None
    checks = tuple(shown(check) for check in job.postchecks)
    for name in agent_work.context_files if agent_work else ():
        if not (context.place.folder / name).exists():
            context.engine.warn(context.run.id, f"There is no '{name}' of 'context_files' here.", context.job_id)
    return WorkerContext(
        task=task,
        folder=context.place.folder,
        plan=plan.name,
        about=plan.description,
        job=context.job_id,
        name=job.name,
        attempt=context.number,
        jobs=len(plan.jobs) - 1,
        needs=tuple(needs),
        needed_by=tuple(one for one in plan.needed_by[context.job_id] if one != VALIDATION),
        checks=checks,
        verify=shown(plan.verify) if plan.verify is not None else None,
        changes="forbidden" if tools.only_reads else job.may_change,
        tools=tools.words if tools != ALL else "",
        context_files=agent_work.context_files if agent_work else (),
        allowed_folders=tuple(Path(name) for name in agent_work.allowed_folders) if agent_work else (),
        allowed_urls=agent_work.allowed_urls if agent_work else (),
        interactive=agent_work.interactive if agent_work else False,
        server=server,
        may_spawn=tools.permits_own("spawn_subtask"),
        may_change=not tools.only_reads,
        is_check=agent_work is not None
        and (context.phase not in (Phase.WORK, Phase.SETUP) or context.job_id == VALIDATION),
        submodules=wants_submodules(plan, context.world) and (context.place.folder / ".gitmodules").exists(),
    )


async def _delivered(context: Context, need: JobId) -> Delivered:
    record, job = context.run.records[need], context.run.job(need)
    committed = record.work_commit
    stat_ = ""
    if committed is not None and committed.commit != committed.base:
        changed = await context.world.in_thread(files, context.world.repo, committed.base, committed.commit)
        rows = [one.shown for one in changed[:STAT_FILES]]
        stat_ = "\n".join([*rows, *([f"and {len(changed) - STAT_FILES} more"] if len(changed) > STAT_FILES else [])])
    return Delivered(need, job.name, summary_of(record), record.commit, stat_)


def summary_of(record: JobRecord) -> str:
    """What a job says that it did: the words of who called it done, its agent's last words, or its evidence."""
    if record.result:
        return record.result
    for attempt in reversed(record.attempts):
        for turn in reversed(attempt.turns):
            if turn.purpose == "work" and turn.text:
                return turn.text
    evidence = record.work_commit.evidence if record.work_commit is not None else None
    return str(evidence["summary"]) if evidence else ""


def intent_of(job: Job) -> str:
    asked = job.work.instructions if isinstance(job.work, AgentWork) else None
    parts = [job.name, job.task, asked or (shown(job.work) if job.work is not None else "")]
    return "\n\n".join(dict.fromkeys(part.strip() for part in parts if part.strip()))


def plan_task(context: Context) -> str:
    """The plan that it is all for, and what the needs of its job delivered, in a few lines."""
    rows = [f"Plan: {context.plan.name}", context.plan.description.strip()]
    for need in context.job.needs[:NEEDS]:
        said = " ".join(summary_of(context.run.records[need]).split())
        rows += [f"Job '{need}' delivered: {shortened(said, NEED)}"] if said else []
    return "\n".join(row for row in rows if row)
