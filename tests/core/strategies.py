"""Any plan: Hypothesis strategies for values that a plan file could have held."""

from typing import Literal, get_args

from hypothesis import strategies as st
from msgspec.structs import replace

from orchard.model.phases import Phase
from orchard.model.plan import (
    AgentWork,
    Budget,
    Effort,
    Job,
    JobId,
    OnFailure,
    Plan,
    ProcessWork,
    Resolver,
    Shell,
    ShellWork,
    Tier,
    Work,
    with_validation,
)

Land = Literal["auto", "ask", "never"]

# Words are few and short on purpose: ids and groups collide, so that groups share their jobs' names.
ids = st.sampled_from(["a", "b", "c", "api", "api.v2", "build_all", "x-1", "0"])
groups = st.none() | st.sampled_from(["a", "g", "g/a", "g/a/b", "web"])

# Every character that can be written as UTF-8, but NUL, which no program could be given.
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(characters, min_size=1, max_size=12).filter(lambda text: bool(text.strip()))
# Text that a program or a terminal could misread; names are one line, everything else may hold this.
hostile = st.sampled_from(["line\nbreak", "\x1b[31mred", "-rf", "$(id)", "a: b", "# no comment", "'\""]) | texts
names = st.sampled_from(["A job", "Ünïcode 🌳", "-rf", "$(id)", "[link](x)", "a: b #c", "null", "12"])
paths = st.sampled_from(["src", "docs/plan.md", "a b/c", "-x"])
environments = st.dictionaries(
    st.sampled_from(["A", "PATH", "_x", "LC_ALL"]), st.text(characters, max_size=6), max_size=2
)
seconds = st.none() | st.sampled_from([0.5, 1.0, 90.0, 3600.0])
few_paths = st.lists(paths, max_size=2).map(tuple)
few_folders = st.lists(st.sampled_from(["../lib", "/opt/data", "a b/c"]), max_size=2).map(tuple)

on_failures = st.builds(
    OnFailure,
    heal=st.none() | st.booleans(),
    message=st.none() | hostile,
    resume_from=st.none() | st.sampled_from(Phase),
)
_shared = {
    "env": environments,
    "cwd": st.none() | paths,
    "timeout": seconds,
    "on_failure": st.just(OnFailure()) | on_failures,
}


def _some(*values: object) -> st.SearchStrategy[object]:
    return st.sampled_from([None, *values])


shell_works = st.builds(ShellWork, command=texts, shell=st.sampled_from(get_args(Shell)), **_shared)
process_works = st.builds(ProcessWork, executable=texts, args=st.lists(hostile, max_size=3).map(tuple), **_shared)
agent_works = st.builds(
    AgentWork,
    instructions=texts,
    agent=_some("claude", "codex"),
    model=_some("small", "large-1"),
    tier=_some(*get_args(Tier)),
    effort=_some(*get_args(Effort)),
    max_turns=_some(1, 50),
    context_files=few_paths,
    allowed_folders=few_folders,
    allowed_urls=st.sampled_from([(), ("https://example.com",)]),
    resume_session=_some(True, False),
    interactive=st.booleans(),
    mcp_servers=st.sampled_from([(), ("search",), ("search", "db")]),
    **_shared,
) | st.builds(AgentWork, instructions_file=paths)

_simple_works: st.SearchStrategy[Work] = st.sampled_from(
    [ShellWork(command="true"), ProcessWork(executable="make", args=("test",)), AgentWork(instructions="Do it")]
)


def works() -> st.SearchStrategy[Work]:
    """Any work; mostly a plain one, so that examples stay small."""
    return _simple_works | shell_works | process_works | agent_works


def checks() -> st.SearchStrategy[Work]:
    """Any work that is not a job's own: nobody can talk to it."""
    return works().map(lambda work: replace(work, interactive=False) if isinstance(work, AgentWork) else work)


@st.composite
def jobs(draw: st.DrawFn, job: JobId, group: str | None, needs: tuple[JobId, ...]) -> Job:
    """Any job with this place in the graph; most of its fields are left alone in most examples."""
    plain = Job(
        id=job,
        name=job.rpartition("/")[2],
        group=group,
        needs=needs,
        work=draw(st.none() | _simple_works),
        priority=draw(st.integers(-2, 2)),
        changes=draw(st.sampled_from([None, "required", "optional", "forbidden"])),
    )
    if draw(st.integers(0, 3)):
        return plain
    few_works = st.lists(checks(), max_size=2).map(tuple)
    return replace(
        plain,
        name=draw(names),
        task=draw(st.just("") | hostile),
        work=draw(st.none() | works()),
        prechecks=draw(few_works),
        postchecks=draw(few_works),
        setup=draw(st.none() | few_works),
        heal=draw(st.none() | st.booleans() | st.integers(0, 100)),
        env=draw(environments),
        timeout=draw(seconds),
        retry_on_interrupt=draw(st.booleans()),
        approve=draw(st.booleans()),
    )


@st.composite
def plans(draw: st.DrawFn, max_jobs: int = 12, min_jobs: int = 1) -> Plan:
    """Any valid plan of so many jobs, besides the validation job.

    A job needs only jobs drawn before it, so there is no cycle; the plan then lists them in any order.
    """
    places = draw(
        st.lists(
            st.tuples(groups, ids | st.integers(0, 99).map(str)), min_size=min_jobs, max_size=max_jobs, unique=True
        )
    )
    made: list[Job] = []
    for group, own in places:
        known = [job.id for job in made]
        needs = draw(st.lists(st.sampled_from(known), max_size=4, unique=True).map(tuple)) if known else ()
        made.append(draw(jobs(JobId(f"{group}/{own}" if group else own), group, needs)))
    ordered = draw(st.permutations(made)) if draw(st.booleans()) else made
    plan = Plan(
        name=draw(names),
        jobs={job.id: job for job in ordered},
        max_parallel=draw(st.none() | st.integers(0, 4)),
        verify=draw(st.none() | _simple_works),
    )
    return with_validation(plan if draw(st.integers(0, 3)) else _with_all_settings(draw, plan))


def _with_all_settings(draw: st.DrawFn, plan: Plan) -> Plan:
    return replace(
        plan,
        base=draw(st.none() | st.just("main")),
        target=draw(st.none() | st.just("feature/x")),
        verify=draw(st.none() | checks()),
        setup=draw(st.none() | st.lists(checks(), max_size=2).map(tuple)),
        env=draw(environments),
        start_paused=draw(st.booleans()),
        after=draw(st.none() | st.just("01ARZ3NDEKTSV4RRFFQ69G5FAV")),
        cleanup=draw(st.booleans()),
        worktree_root=draw(st.none() | st.just(".trees")),
        merge=draw(st.sampled_from(["squash", "merge"])),
        resolver=draw(st.none() | st.sampled_from(get_args(Resolver))),
        land=draw(st.sampled_from(get_args(Land))),
        push=draw(st.booleans()),
        budget=Budget(
            tokens=draw(st.none() | st.integers(1, 10**9)),
            cost=draw(st.none() | st.sampled_from([0.5, 20.0])),
            minutes=draw(st.none() | st.sampled_from([1.0, 30.5])),
        ),
    )
