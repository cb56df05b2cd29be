"""From a work of the plan to a program that runs in the job's worktree, and back to an outcome."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orchard.core.run import Run
from orchard.engine.outcome import Failed
from orchard.model.limits import Limits
from orchard.model.plan import AgentWork, Job, Plan, ProcessWork, ShellWork, Work
from orchard.model.secrets import looks_secret, secrets_in
from orchard.patterns import later
from orchard.process.program import Ended
from orchard.store.redact import redact_text
from orchard.text import for_screen

SHELLS: Mapping[str, tuple[str, ...]] = {
    "sh": ("sh", "-c"),
    "bash": ("bash", "-c"),
    "zsh": ("zsh", "-c"),
    "pwsh": ("pwsh", "-NoProfile", "-NonInteractive", "-Command"),
}

# Git variables that would point a job's own git at another repository, index or object store. Who
# the user is and which proxy they use may pass.
_GITS_OWN = later(
    r"^GIT_(DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|PREFIX|NAMESPACE"
    r"|CEILING_DIRECTORIES|CONFIG|CONFIG_COUNT|CONFIG_PARAMETERS|CONFIG_(KEY|VALUE)_\d+|EXEC_PATH|TEMPLATE_DIR"
    r"|GRAFT_FILE|SHALLOW_FILE|IMPLICIT_WORK_TREE|INTERNAL_.*|QUARANTINE_PATH|REPLACE_REF_BASE|TRACE.*"
    r"|DISCOVERY_ACROSS_FILESYSTEM|NO_REPLACE_OBJECTS|REFLOG_ACTION|LITERAL_PATHSPECS|GLOB_PATHSPECS)$"
)
_OURS = later(r"^ORCHARD_")

TAIL_LINES = 40
PORT = "ORCHARD_PORT"
"""The variable with the first of a job's own ports."""


class Place(Struct, frozen=True):
    """Where a job's programs run, and what they are told about it."""

    folder: Path
    plan: str
    job: str
    attempt: int
    base: str
    target: str
    evidence: Path
    port: int | None = None
    """The first of the ports that are the job's alone while it runs."""

    @property
    def told(self) -> dict[str, str]:
        ports = {} if self.port is None else {PORT: str(self.port)}
        return {
            "ORCHARD_PLAN": self.plan,
            "ORCHARD_JOB": self.job,
            "ORCHARD_ATTEMPT": str(self.attempt),
            "ORCHARD_WORKTREE": str(self.folder),
            "ORCHARD_BASE": self.base,
            "ORCHARD_TARGET": self.target,
            "ORCHARD_EVIDENCE": str(self.evidence),
            **ports,
        }


def host_environment(host: Mapping[str, str], pass_env: tuple[str, ...]) -> dict[str, str]:
    """What of our own environment the plan's programs see: not git's own, not what looks like a secret."""
    return {
        name: value
        for name, value in host.items()
        if not _GITS_OWN.match(name) and not _OURS.match(name) and (name in pass_env or not looks_secret(name, value))
    }


def environment(host: Mapping[str, str], plan: Plan, job: Job, work: Work, place: Place) -> dict[str, str]:
    """The whole environment of one program: host, then plan, job and work, then what we tell it."""
    return {**host, **plan.env, **job.env, **work.env, "PWD": str(place.folder), **place.told}


def command_line(work: Work) -> tuple[str, ...]:
    if isinstance(work, ShellWork):
        return (*SHELLS[work.shell], work.command)
    if isinstance(work, ProcessWork):
        return (work.executable, *work.args)
    raise TypeError(f"{type(work).__name__} is not a program")


def shown(work: Work) -> str:
    """A work as a person knows it: of a script, the first line that does something."""
    if isinstance(work, ShellWork):
        text = work.command
    elif isinstance(work, ProcessWork):
        text = " ".join((work.executable, *work.args))
    else:
        text = f"@{work.agent or 'agent'}" if isinstance(work, AgentWork) else type(work).__name__
    lines = [line.strip() for line in for_screen(text).split("\n") if line.strip()]
    telling = [line for line in lines if not line.startswith(("#", "set -", "set +"))] or lines or [""]
    first = telling[0] if len(telling) == 1 else f"{telling[0]} …"
    return first if len(first) <= 100 else f"{first[:99]}…"


def folder_of(work: Work, place: Place) -> Path | Failed:
    """Where the work runs: inside the job's worktree, links followed."""
    top = place.folder.resolve()
    folder = (top / (work.cwd or ".")).resolve()
    if not folder.is_relative_to(top):
        return Failed("spawn-failed", f"The folder '{work.cwd}' of the work lies outside the job's worktree.")
    if not folder.is_dir():
        return Failed(
            "spawn-failed",
            f"The folder '{work.cwd}' of the work does not exist in the job's worktree.",
            hint="'cwd' is relative to the top of the repository, as the job finds it.",
        )
    return folder


def limits_of(work: Work, job: Job, limits: Limits) -> Limits:
    wall = work.timeout if work.timeout is not None else job.timeout if job.timeout is not None else limits.wall
    return replace(limits, wall=wall)


def failure(ended: Ended, work: Work, tail: str) -> Failed:
    command = shown(work)
    if ended.reason == "exit":
        message = f"'{command}' exited with {ended.exit_code}."
    elif ended.reason == "signal":
        message = f"'{command}' was ended by signal {ended.signal}."
    else:
        message = ended.message
    advice = work.on_failure
    return Failed(
        ended.reason,
        f"{advice.message} ({message})" if advice.message else message,
        exit_code=ended.exit_code,
        signal=ended.signal,
        tail=tail,
        resume_from=advice.resume_from,
        may_heal=advice.heal is not False,
        command=" ".join(command_line(work)) if isinstance(work, ProcessWork) else getattr(work, "command", ""),
        advice=advice.message,
    )


def redacted(text: str, host: Mapping[str, str], run: Run) -> str:
    return redact_text(text, secrets_in(host, run.plan, run.past_secrets))
