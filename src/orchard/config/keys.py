"""The table of settings: every key that exists, what it may hold, and what it means.

Files, the environment and flags are all checked against `KEYS`, and the names of the environment
variables follow from it. A key that is in the table has an effect; every other key is a problem.
"""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from msgspec import Struct

from orchard.config.kinds import (
    Kind,
    address,
    agent,
    command,
    endpoint,
    flag,
    flag_or,
    link,
    list_of,
    maybe,
    one_of,
    outside,
    pattern,
    place,
    seconds,
    seconds_or_none,
    server,
    size_or_none,
    text_of,
    told,
    variable,
    whole,
    whole_or_none,
    works,
)
from orchard.model import health, limits, sandbox
from orchard.model.names import Resolver


class Key(Struct, frozen=True):
    name: str
    kind: Kind
    meaning: str
    needs_trust: bool = False
    """It runs programs or loosens safety, so a repository's own file is believed only after `orchard trust`."""
    loosens: Callable[[Any, Any], bool] | None = None
    """Whether a value is looser than another: a repository's own file may only be stricter than the user, or needs
    `orchard trust` as well. None: no value is looser than another, or all need it."""
    stays_inside: bool = False
    """A repository's own file may only name a path inside that repository."""
    nothing: int | str = 0
    """What a file writes for None."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it; the second, where there is one, is the short form."""
        full = "ORCHARD_" + self.name.upper().replace(".", "_")
        section, _, rest = self.name.partition(".")
        short = {"limits": f"ORCHARD_{rest.upper()}", "capacity": "ORCHARD_CAPACITY"}.get(section)
        if SHORT.get(section) == self.name:
            short = f"ORCHARD_{section.upper()}"
        return (full,) if short is None or not rest else (full, short)


def _more(value: float, other: float) -> bool:
    return value > other


def _heals_more(value: bool | None, other: bool | None) -> bool:
    rank = {False: 0, None: 1, True: 2}
    return rank[value] > rank[other]


def _more_or_endless(value: float | None, other: float | None) -> bool:
    """As `_more`, for limits where nothing, or 0, is no limit at all."""
    return bool(other) and (not value or value > (other or 0))


def _keeps_more(value: int | None, other: int | None) -> bool:
    return (value or 0) > (other or 0)


def _less_careful(value: str, other: str) -> bool:
    """A conflict that nobody resolves is the careful end; a side that wins unseen is the other one."""
    care = {"fail": 0, "agent": 1}
    return value != other and care.get(value, 2) >= care.get(other, 2)


def _sooner(value: float | None, other: float | None) -> bool:
    """A condition that is found sooner than the user wants may end work that the user would have let go on."""
    return bool(value) and (not other or (value or 0) < other)


def _more_drastic(value: str, other: str) -> bool:
    return health.ACTIONS.index(value) > health.ACTIONS.index(other)


def _on(condition: str, meaning: str) -> Key:
    said = f"what is done about a worker that {meaning}: `tell`, `ask` it, `interrupt` its turn, or `fail` the attempt"
    return Key(f"health.on_{condition}", one_of(*health.ACTIONS), said, loosens=_more_drastic)


def _weaker(value: sandbox.Level, other: sandbox.Level) -> bool:
    return sandbox.LEVELS.index(value) < sandbox.LEVELS.index(other)


SLOTS = whole(0, limits.MAX_PARALLEL)
MONTH = 30 * 86_400.0

_TABLE = (
    Key("max_parallel", SLOTS, "jobs of one plan at once; 0: as many as the global limit allows"),
    Key("agent", agent(), "the agent of works that name none; empty: the first that is usable", nothing=""),
    Key(
        "resolver",
        one_of(*get_args(Resolver)),
        "who resolves a conflict; `agent` is `fail` where none is usable",
        loosens=_less_careful,
    ),
    Key("resolver_agent", agent(), "the agent that resolves conflicts; empty: the one that did the work", nothing=""),
    Key(
        "agent_tools",
        flag(),
        "whether agents in jobs get Orchard's own MCP server: their plan to read, and subtasks",
        loosens=_more,
    ),
    Key("push", flag(), "whether the target of a plan that does not say is pushed after it lands", loosens=_more),
    Key("worktree_root", text_of(place), "folder that holds the jobs' worktrees", stays_inside=True),
    Key(
        "setup",
        works(),
        "works that set a worktree up for a job, if it is not set up just so already",
        needs_trust=True,
    ),
    Key("pass_env", list_of(variable), "variables that reach the work although they look secret", needs_trust=True),
    Key(
        "heal.enabled",
        flag_or("auto"),
        "whether an agent heals failed checks; `auto`: where the plan has work for agents, or `heal.agent` is set",
        loosens=_heals_more,
        nothing="auto",
    ),
    Key("heal.attempts", whole(0, 100), "how often it tries, per phase", loosens=_more),
    Key("heal.agent", agent(), "the agent that heals; empty: the one that did the work", nothing=""),
    Key(
        "worktree.include",
        list_of(pattern),
        "ignored files of the checkout that are copied into worktrees",
        needs_trust=True,
    ),
    Key(
        "worktree.copy",
        list_of(link),
        "folders of the checkout, ignored by git, that worktrees get a copy of (`node_modules`); others: a warning",
        needs_trust=True,
    ),
    Key(
        "worktree.link",
        list_of(link),
        "folders of the checkout, ignored by git, that worktrees share by a link; others are warned about",
        needs_trust=True,
    ),
    Key(
        "worktree.keep",
        list_of(pattern),
        "ignored paths that a warm worktree keeps for its next job, while one engine runs",
    ),
    Key("worktree.pool", SLOTS, "warm worktrees that are kept, while an engine runs and after; 0: none", loosens=_more),
    Key(
        "worktree.keep_size",
        size_or_none(2**50),
        "disk space of large worktrees that wait for the next run: bytes, or as `4GiB`; 0: none is kept",
        loosens=_keeps_more,
    ),
    Key(
        "worktree.submodules",
        flag(),
        "whether the worktrees of a plan that does not say have their submodules, and jobs may move those",
        loosens=_more,
    ),
    Key(
        "capacity.global",
        SLOTS,
        "jobs at once over all repositories of the user; 0: no limit",
        loosens=_more_or_endless,
    ),
    Key("limits.grace", seconds(3600), "seconds between asking a program to stop and killing it", loosens=_more),
    Key("limits.log_bytes", whole(1024, 2**50), "size of a phase's log at which its work is stopped", loosens=_more),
    Key(
        "limits.idle",
        seconds_or_none(MONTH),
        "seconds without output and CPU use before a stop; 0: no limit",
        loosens=_more_or_endless,
    ),
    Key(
        "limits.wall",
        seconds_or_none(MONTH),
        "seconds for a work that has no `timeout`; 0: no limit",
        loosens=_more_or_endless,
    ),
    Key(
        "limits.interactive",
        seconds_or_none(MONTH),
        "seconds that an idle agent waits for a message; 0: no limit",
        loosens=_more_or_endless,
    ),
    Key(
        "limits.ask",
        seconds_or_none(MONTH),
        "seconds that a call of an agent waits for a person's word before it is refused; 0: no limit",
        loosens=_more_or_endless,
    ),
    Key("limits.subtasks_per_job", whole(0, 1000), "subtasks of one attempt at a job; 0: none", loosens=_more),
    Key("limits.subtasks_per_plan", whole(0, 10_000), "subtasks of one plan, all in all; 0: none", loosens=_more),
    Key(
        "health.idle",
        seconds_or_none(MONTH),
        "seconds after which an idle worker is told of; 0: never",
        loosens=_sooner,
    ),
    Key("health.slow", seconds_or_none(MONTH), "seconds of a turn after which it is slow; 0: never", loosens=_sooner),
    Key(
        "health.stuck",
        seconds_or_none(MONTH),
        "seconds without output, calls, traffic of the model and CPU use after which a worker is stuck; 0: never",
        loosens=_sooner,
    ),
    Key("health.looping", whole(0, 100), "equal calls in a row with which a worker loops; 0: never", loosens=_sooner),
    Key(
        "health.failing",
        whole(0, 100),
        "calls of which more than half fail where a worker fails at what it does; 0: never",
        loosens=_sooner,
    ),
    _on("idle", "is idle"),
    _on("slow", "is slow"),
    _on("stuck", "is stuck"),
    _on("looping", "loops"),
    _on("failing", "fails at most calls"),
    Key(
        "sandbox.level",
        one_of(*sandbox.LEVELS),
        'the wall around every program of a job: `auto` is the strictest that works here; or `sandbox = "auto"`',
        loosens=_weaker,
    ),
    Key(
        "sandbox.network",
        one_of(*sandbox.NETWORKS),
        "whether programs behind the wall that are no agents reach the network; never this machine's own ports",
        loosens=lambda value, other: value == "on" and other == "off",
    ),
    Key(
        "sandbox.expose",
        list_of(outside),
        "folders and files that programs may read behind the wall, although they are below the home folder",
        needs_trust=True,
    ),
    Key(
        "sandbox.write",
        list_of(outside),
        "folders beside the worktree that programs may write to behind the wall, such as caches",
        needs_trust=True,
    ),
    Key(
        "sandbox.allow",
        list_of(endpoint),
        "what every job may reach behind the wall (`host`, `host:port`, `*.host`); a name leads to public addresses "
        "only, and a private one is reached where the address itself stands here (`10.0.0.5:443`)",
        needs_trust=True,
    ),
    Key(
        "sandbox.memory",
        size_or_none(2**50),
        "memory per program behind the wall: bytes, or a size such as `512MB`; 0: no limit",
        loosens=_more_or_endless,
    ),
    Key(
        "sandbox.processes",
        whole_or_none(2**22),
        "processes of a job behind the wall; 0: no limit",
        loosens=_more_or_endless,
    ),
    Key(
        "sandbox.files",
        whole_or_none(2**22),
        "open files per program behind the wall; 0: no limit",
        loosens=_more_or_endless,
    ),
    Key(
        "sandbox.disk",
        size_or_none(2**50),
        "size of a file that a program writes behind the wall: bytes, or as `1GiB`; 0: no limit",
        loosens=_more_or_endless,
    ),
    Key("notify.bell", flag(), "whether a command that has followed a plan to its end rings the bell", loosens=_more),
    Key(
        "notify.desktop", flag(), "whether plans are told of on the desktop (`notify-send`, `osascript`)", loosens=_more
    ),
    Key(
        "notify.command",
        maybe(command),
        "a command line that runs for each notice, with JSON on its standard input",
        needs_trust=True,
        nothing="",
    ),
    Key("notify.webhook", maybe(address), "where each notice is posted, as JSON", needs_trust=True, nothing=""),
    Key(
        "notify.secret_env",
        maybe(variable),
        "the variable with the secret by which webhooks are signed",
        needs_trust=True,
        nothing="",
    ),
    Key("notify.on", list_of(told), "what is told of: `done`, `waiting`, `failed`", needs_trust=True),
    Key(
        "forge.github",
        list_of(server),
        "hosts of yours that are GitHub Enterprise servers: pull requests may go there, with your token",
        needs_trust=True,
    ),
    Key(
        "forge.gitlab",
        list_of(server),
        "hosts of yours that are GitLab servers, in the same way",
        needs_trust=True,
    ),
    Key("tracing.endpoint", maybe(address), "where traces go, as OTLP over HTTP", needs_trust=True, nothing=""),
    Key("tracing.headers_env", maybe(variable), "the variable with headers for it", needs_trust=True, nothing=""),
)

KEYS: Mapping[str, Key] = {key.name: key for key in _TABLE}
NAMES_AGENT: tuple[str, ...] = ("agent", "resolver_agent", "heal.agent")
"""Keys that name an agent: a repository's own file may name one, but not a command to be one."""
ROWS = ("agents", "mcp_servers")
"""Tables of rows that the user names: `[agents.NAME]`, `[mcp_servers.NAME]`; `configrows` says what is in them."""
NEEDS_TRUST: tuple[str, ...] = (*(key.name for key in _TABLE if key.needs_trust), *ROWS)

SHORT: Mapping[str, str] = {"sandbox": "sandbox.level"}
"""Tables that may also be written as one value, and the key that it is then."""

# Set by the engine for its jobs, by tests for the engine, or by a person for one terminal (LOG, PAGER): an Orchard
# inside a job inherits them.
NOT_SETTINGS = frozenset(
    f"ORCHARD_{name}"
    for name in (
        "PLAN",
        "JOB",
        "ATTEMPT",
        "WORKTREE",
        "BASE",
        "TARGET",
        "EVIDENCE",
        "TOKEN",
        "FAILPOINT",
        "LOG",
        "PAGER",
        "EVENT",
        "MESSAGE",
        "PORT",
    )
)
