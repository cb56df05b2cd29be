"""Every work of a plan with the place where its file has it: what is wrong with one is said there.

A plan looks harmless that only gives tasks to agents, and a model can write one. With a variable that decides where an
agent's keys go, or which programs run, it would still send the user's keys to an address of its own, or start a program
of its own with them. So a plan may not set such a variable for agent work.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from orchard.model.agent_rows import BACKENDS
from orchard.model.plan import VALIDATION, AgentWork, Job, JobId, Plan, Work
from orchard.planfile.places import Finding, Path

Paths = Mapping[JobId, Path]
"""Where the jobs of a plan stand in its file."""


def named(plan: Plan) -> Paths:
    """Ways to the jobs of a plan that came by no file: they go by their names."""
    return {job: (f"job '{job}'",) for job in plan.jobs}


def spoken(path: Path) -> str:
    """Such a way in words: `job 'a'.postchecks[0].env.PATH`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def works_of(plan: Plan, paths: Paths) -> Iterator[tuple[Path, Work, bool]]:
    """Each work, where it stands, and whether it is the work of a job: not a check, a setup or the plan's `verify`."""
    for number, work in enumerate(plan.setup or ()):
        yield ("setup", number), work, False
    if plan.verify is not None:
        yield ("verify",), plan.verify, False
    for job in plan.jobs.values():
        if job.id == VALIDATION:
            continue
        path = paths.get(job.id, ())
        if job.work is not None:
            yield (*path, "work"), job.work, True
        for name, works in (("setup", job.setup), ("prechecks", job.prechecks), ("postchecks", job.postchecks)):
            for number, work in enumerate(works or ()):
                yield (*path, name, number), work, False


def interactive_findings(plan: Plan, paths: Paths) -> list[Finding]:
    """Works that nobody could talk to: what is not the work of a job decides by itself."""
    return [
        Finding((*path, "interactive"), "a check or a setup is interactive; only the work of a job can be")
        for path, work, own in works_of(plan, paths)
        if not own and isinstance(work, AgentWork) and work.interactive
    ]


Refuses = Callable[[str | None, str], bool]
"""The name of an agent, or None for the default one, and a variable -> whether plans may not set that for it."""

_HARMLESS = frozenset(
    {
        "NODE_ENV", "NODE_DEBUG", "NODE_NO_WARNINGS",
        "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUTF8", "PYTHONIOENCODING",
        "PYTHONFAULTHANDLER", "PYTHONASYNCIODEBUG",
    }
)  # fmt: skip
"""They begin like those that load code, and only say how it runs."""

_RESERVED = (  # compiled when it is first asked for: most plans set nothing for an agent
    # which programs are found, and what a shell or a loader runs before anything else
    r"PATH|HOME|USER|LOGNAME|SHELL|IFS|CDPATH|ENV|BASH_ENV|BASH_FUNC_.*|BASHOPTS|SHELLOPTS|PS4|PROMPT_COMMAND|ZDOTDIR|FPATH"
    r"|EDITOR|VISUAL|PAGER|MANPAGER|BROWSER|LESSOPEN|LESSCLOSE|TMPDIR|TMP|TEMP"
    r"|(LD|DYLD|GLIBC|MALLOC)_.*|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|RESOLV_HOST_CONF|LOCALDOMAIN"
    # what interpreters load, and where package managers fetch
    r"|(NODE|NPM|BUN|DENO|YARN|PNPM|COREPACK)_.*|(PYTHON|PERL5|RUBY).*|PERLLIB|PERL_.*|(PIP|UV|GEM|BUNDLE|LUA|PHP|CARGO)_.*"
    r"|PHPRC|RUSTC.*|RUSTFLAGS|GOFLAGS|GOPROXY|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|.*_LD_PRELOAD"
    # git and the ways to servers
    r"|(GIT|SSH|GPG|GNUPG)_.*|GNUPGHOME|SSH.*ASKPASS.*"
    # where requests go, and whom they believe
    r"|.*_(BASE_URL|API_URL|API_BASE|API_HOST|ENDPOINT|ENDPOINT_URL|PROXY|PROXY_URL|CA_BUNDLE|CA_CERTS|CAINFO|CERT_FILE)"
    r"|SSL_.*|OPENSSL_.*|SSLKEYLOGFILE|KRB5.*"
    # what belongs to agents, their models and the tools that hold logins
    rf"|({'|'.join(BACKENDS).upper()})_.*"
    r"|(ANTHROPIC|OPENAI|GOOGLE|GCLOUD|CLOUDSDK|DASHSCOPE|OPENROUTER|XAI|GROQ"
    r"|MISTRAL|DEEPSEEK|OLLAMA|LITELLM|AIDER|VERTEX|BEDROCK|AZURE|AWS|GH|GITHUB|XDG|ORCHARD)_.*"
    r"|CLAUDECODE|IS_SANDBOX|SANDBOX|CLOUD_ML_REGION|DISABLE_AUTOUPDATER|DOCKER_.*|KUBECONFIG"
)


def reserved(name: str) -> bool:
    """Whether a plan may not set a variable for an agent, unless the user's own configuration allows it."""
    upper = name.upper()
    return upper not in _HARMLESS and re.fullmatch(_RESERVED, upper) is not None


def settable(env: Mapping[str, str], allowed: Collection[str], own: Collection[str] = ()) -> dict[str, str]:
    """Of what a plan sets, what an agent gets; `own` are variables of the user's that are this agent's.

    A plan is refused that sets more for an agent's own work. One that heals, resolves or helps works beside what others
    were given: a command's PATH is not an agent's.
    """
    return {name: value for name, value in env.items() if name in allowed or not (reserved(name) or name in own)}


def reserved_findings(plan: Plan, refuses: Refuses, paths: Paths) -> list[Finding]:
    """Every variable that a plan sets for agent work and may not, with where it stands."""
    found: dict[Path, Finding] = {}
    for job in plan.jobs.values():
        own = paths.get(job.id, ())
        for where, work in _agent_works(plan, job, own):
            for place, names in ((("env",), plan.env), ((*own, "env"), job.env), ((*where, "env"), work.env)):
                for name in names:
                    if (path := (*place, name)) not in found and refuses(work.agent, name):
                        found[path] = Finding(path, refusal(name, work.agent))
    return list(found.values())


def refusal(name: str, agent: str | None) -> str:
    """Why a variable cannot be set, and what would allow it."""
    row = agent if agent is not None and ":" not in agent else "NAME"
    return (
        f"a plan may not set '{name}' for an agent: it decides where keys go or which programs run; "
        f"'allow_env' of [agents.{row}] in your own configuration would allow it"
    )


def _agent_works(plan: Plan, job: Job, own: Path) -> Iterator[tuple[Path, AgentWork]]:
    """What agents do with the variables of a job: what sets its worktree up has them as well."""
    setup = ((*own, "setup"), job.setup) if job.setup is not None else (("setup",), plan.setup or ())
    if isinstance(job.work, AgentWork):
        yield ("verify",) if job.id == VALIDATION else (*own, "work"), job.work
    for path, works in (setup, ((*own, "prechecks"), job.prechecks), ((*own, "postchecks"), job.postchecks)):
        yield from (((*path, number), work) for number, work in enumerate(works) if isinstance(work, AgentWork))
