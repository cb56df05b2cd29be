"""How several sources of settings become one configuration.

    Layer          one source: a file, one variable, one flag
    merge_layers   layers, weakest first -> the configuration, and where each value comes from

Defaults stand in the fields of `Config`; a test holds those equal to the table in `configkeys`. All
problems of all layers are reported at once, since a person who corrects one wants to see the next.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.config.keys import KEYS, NOT_SETTINGS, ROWS, SHORT
from orchard.config.kinds import RawWork, checked_text, found_instead, stays_inside
from orchard.config.rows import (
    SERVERS_VARIABLE,
    Rows,
    make_rows,
    narrowing,
    narrows,
    row_key,
    row_leaves,
    row_variables,
    server_rows,
)
from orchard.errors import InvalidInput, Next, Problem
from orchard.model.agent_rows import AGENTS, BUILTIN, AgentRow, BuiltinRow, ServerRow
from orchard.model.health import Health
from orchard.model.limits import Limits
from orchard.model.names import Resolver
from orchard.model.permissions import ALL, Tools, narrowed
from orchard.model.sandbox import Sandbox
from orchard.text import did_you_mean, nearest, quoted

DEFAULT = "default"

PROBLEMS_SHOWN = 100


# ------------------------------------------------------------------------------------- the values


class Heal(Struct, frozen=True):
    enabled: bool | None = None
    """None: in plans that give work to an agent, or where `agent` names who heals."""
    attempts: int = 4
    agent: str | None = None
    """Who does it; None: who did the work, else the default."""


class Worktree(Struct, frozen=True):
    """How a job's worktree is filled, and what of it is kept for the next job."""

    include: tuple[str, ...] = ()
    copy: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    pool: int = 4
    keep_size: int | None = 4 << 30
    """Bytes; None: no worktree outlives its engine."""
    submodules: bool = False


class Capacity(Struct, frozen=True):
    """What all engines of a user share."""

    global_: int = 16


class WorkLimits(Limits, frozen=True):
    """What a job may take: each of its programs, and its agents."""

    interactive: float | None = 86400.0
    ask: float | None = 3600.0
    subtasks_per_job: int = 20
    subtasks_per_plan: int = 200


class Traces(Struct, frozen=True):
    """Where traces of plans are sent; None: where the standard OTEL_* variables say, if they do."""

    endpoint: str | None = None
    headers_env: str | None = None
    """The variable that holds the headers, among which a key may be."""


class Notify(Struct, frozen=True):
    """How people are told that a plan is done, failed or waits for them."""

    bell: bool = False
    desktop: bool = False
    command: str | None = None
    webhook: str | None = None
    secret_env: str | None = None
    """The variable that holds the secret by which webhooks are signed."""
    on: tuple[str, ...] = ("done", "waiting", "failed")


class Forge(Struct, frozen=True):
    """Servers of the user's own that take pull requests, beside github.com and gitlab.com."""

    github: tuple[str, ...] = ()
    gitlab: tuple[str, ...] = ()


class Config(Struct, frozen=True):
    """Every setting, with the value that holds where nobody says otherwise."""

    max_parallel: int = 4
    agent: str | None = None
    """Of works that name none; None: the first that is usable."""
    resolver: Resolver = "agent"
    resolver_agent: str | None = None
    agent_tools: bool = True
    push: bool = False
    worktree_root: str = ".worktrees"
    setup: tuple[RawWork, ...] = ()
    pass_env: tuple[str, ...] = ()
    heal: Heal = Heal()
    worktree: Worktree = Worktree()
    capacity: Capacity = Capacity()
    limits: WorkLimits = WorkLimits()
    health: Health = Health()
    tracing: Traces = Traces()
    notify: Notify = Notify()
    forge: Forge = Forge()
    sandbox: Sandbox = Sandbox()
    agents: Mapping[str, AgentRow] = field(default_factory=dict)
    """The rows of `[agents.NAME]`, without `[agents.builtin]`."""
    builtin: BuiltinRow = field(default_factory=BuiltinRow)
    mcp_servers: Mapping[str, ServerRow] = field(default_factory=dict)
    narrowing: Mapping[str, Tools] = field(default_factory=dict)
    """By the names of agents, what the repository's own file takes from the tools that the user gives them."""


def tools_of(config: Config, agent: str) -> Tools:
    """What an agent may use by the configuration alone: its row, and what the repository's file takes away."""
    row = config.builtin if agent == BUILTIN else config.agents.get(agent)
    return narrowed(row.permissions if row is not None else ALL, config.narrowing.get(agent, ALL))


def allowed_env(config: Config, agent: str | None) -> tuple[str, ...]:
    """The variables that plans may set for an agent although they steer it; None: the default one."""
    name = agent or config.agent
    if name == "builtin":
        return config.builtin.allow_env
    row = config.agents.get(name) if name is not None else None
    return row.allow_env if row is not None else ()


SECTIONS: Mapping[str, type[Heal | Worktree | Capacity | WorkLimits | Health | Traces | Notify | Forge | Sandbox]] = {
    "heal": Heal,
    "worktree": Worktree,
    "capacity": Capacity,
    "limits": WorkLimits,
    "health": Health,
    "tracing": Traces,
    "notify": Notify,
    "forge": Forge,
    "sandbox": Sandbox,
}


# ------------------------------------------------------------------------------------- the layers


class Layer(Struct, frozen=True):
    """One source of settings: nested tables, as TOML gives them."""

    origin: str
    values: Mapping[str, object]
    file: str | None = None
    """The name that problems give the file; None: the origin itself says where (a variable, a flag)."""
    text: str = ""
    repository: bool = False
    """Written by whoever wrote the repository, who need not be the user."""
    ignored: frozenset[str] = frozenset()
    """Keys that are checked, but not believed."""


class Resolved(Struct, frozen=True):
    config: Config
    origins: Mapping[str, str] = field(default_factory=dict)


def merge_layers(layers: Sequence[Layer]) -> Resolved:
    """Put layers on top of each other, weakest first; a list replaces the list below it."""
    problems: list[Problem] = []
    values: dict[str, object] = {}
    taken: dict[str, object] = {}
    origins = dict.fromkeys(KEYS, DEFAULT)
    for layer in layers:
        for name, value in _settings(layer, problems):
            if layer.repository and narrows(name):
                # Whoever wrote the repository cannot give an agent more than the user does, agreed to or not.
                taken[name] = value
                origins[name] = f"{origins[name]}, narrowed by {layer.origin}" if name in origins else layer.origin
            elif name not in layer.ignored and name.partition(".")[0] not in layer.ignored:
                values[name], origins[name] = value, layer.origin
    rows, wrong = make_rows(values)
    wrong |= {f"agents.{name}": why for name, why in _strangers(taken, rows, layers).items()}
    problems += [_problem_of_row(layers, name, message) for name, message in wrong.items()]
    if problems:
        raise InvalidInput("configuration", _bounded(problems), ("Run '", Next("get_config"), "' to see every key."))
    config = _config({name: value for name, value in values.items() if name in KEYS})
    found = replace(config, agents=rows.agents, builtin=rows.builtin, mcp_servers=rows.mcp_servers)
    return Resolved(replace(found, narrowing=narrowing(taken)), origins)


def _strangers(taken: Iterable[str], rows: Rows, layers: Sequence[Layer]) -> dict[str, str]:
    """Rows that take tools from agents that nobody knows; an agent that is described there may yet be agreed to."""
    named = dict.fromkeys(name.split(".", 2)[1] for name in taken)
    agents = [one for layer in layers for one in _agents(layer)]
    described = {row for row, held in agents if isinstance(held, dict) and "command" in held}
    known = (*AGENTS, *rows.agents, *described)
    return {name: f"there is no agent of this name{did_you_mean(name, known)}" for name in named if name not in known}


def _agents(layer: Layer) -> Iterable[tuple[str, object]]:
    found = layer.values.get("agents")
    return found.items() if isinstance(found, dict) else ()


def variables_of(config: Config) -> dict[str, str]:
    """Every variable and header that rows of the configuration set, by its name: some of them are secrets."""
    found = dict(config.builtin.env)
    for agent in config.agents.values():
        found |= agent.env
    for server in config.mcp_servers.values():
        found |= {**server.env, **server.headers}
    return found


def flatten(config: Config, names: Iterable[str] = KEYS) -> dict[str, object]:
    """Every value by its dotted key; those of rows where `names` (the keys that have an origin) holds them."""
    return {name: _attribute(config, name) for name in names}


def environment_layers(env: Mapping[str, str]) -> tuple[list[Layer], list[str]]:
    """With a warning for each that is no setting. An empty one counts as not set: so a shell takes one back."""
    names = {variable: key for key in KEYS.values() for variable in reversed(key.variables)}
    # The short form first, so that the full one wins where both are set.
    known = sorted((name for name in names if env.get(name)), key=lambda name: name == names[name].variables[0])
    layers = [Layer(name, nested({names[name].name: names[name].kind.read(env[name].strip())})) for name in known]
    rows = row_variables() if any(name.startswith("ORCHARD_AGENTS_") for name in env) else {}
    for name in sorted(rows.keys() & env.keys()):
        row, key = rows[name]
        if env[name]:
            layers.append(Layer(name, {"agents": {row: {key.name: key.kind.read(env[name].strip())}}}))
    if env.get(SERVERS_VARIABLE):
        layers.append(Layer(SERVERS_VARIABLE, {"mcp_servers": server_rows(env[SERVERS_VARIABLE])}))
    settings = {*names, *rows, SERVERS_VARIABLE} | NOT_SETTINGS
    strangers = sorted(name for name in env if name.startswith("ORCHARD_") and name not in settings)
    return layers, [_stranger(name, (*names, *rows)) for name in strangers[:PROBLEMS_SHOWN]]


def flag_layers(flags: Mapping[str, object]) -> list[Layer]:
    """Settings given on the command line by their dotted keys; None means that the flag was not given."""
    given = {name: value for name, value in flags.items() if value is not None}
    return [Layer("--" + re.sub(r"[._]", "-", name), nested({name: value})) for name, value in given.items()]


def nested(values: Mapping[str, object]) -> dict[str, object]:
    """Dotted keys as the tables that a file would hold."""
    tables: dict[str, Any] = {}
    for name, value in values.items():
        section, dot, rest = name.partition(".")
        if dot:
            tables.setdefault(section, {})[rest] = value
        else:
            tables[name] = value
    return tables


def lookup(values: Mapping[str, object], name: str) -> object | None:
    """What the tables of a file hold under a dotted key."""
    section, dot, rest = name.partition(".")
    found = values.get(section)
    if not dot or (SHORT.get(section) == name and isinstance(found, str)):
        return found
    return found.get(rest) if isinstance(found, dict) else None


def _settings(layer: Layer, problems: list[Problem]) -> Iterator[tuple[str, object]]:
    """The good values of a layer by dotted key; what is wrong is added to `problems`."""
    for name, given in _leaves(layer, problems):
        if len(problems) > PROBLEMS_SHOWN:
            return
        key = KEYS.get(name) or row_key(name) or _unknown(name)
        if isinstance(key, str):
            problems.append(_problem(layer, name, key))
            continue
        try:
            value = key.kind.check(given)
            if layer.repository and key.stays_inside and isinstance(value, str):
                checked_text(value, stays_inside)
        except ValueError as wrong:
            problems.append(_problem(layer, name, str(wrong)))
        else:
            yield name, value


def _leaves(layer: Layer, problems: list[Problem]) -> Iterator[tuple[str, object]]:
    for name, value in layer.values.items():
        if name in ROWS and isinstance(value, dict):
            for leaf, given, wrong in row_leaves(name, value):
                if wrong is None:
                    yield leaf, given
                else:
                    problems.append(_problem(layer, leaf, wrong))
        elif name in ROWS:
            problems.append(_problem(layer, name, f"must be a table of rows, [{name}.NAME], {found_instead(value)}"))
        elif name not in SECTIONS:
            # A dot inside a quoted key must not pass for a table and its key.
            yield (name if "." not in name else quoted(name)), value
        elif name in SHORT and isinstance(value, str):
            yield SHORT[name], value
        elif isinstance(value, dict):
            yield from ((f"{name}.{rest}", given) for rest, given in value.items())
        else:
            problems.append(_problem(layer, name, f"must be a table, [{name}], {found_instead(value)}"))


def _unknown(name: str) -> str:
    near = did_you_mean(name, (*KEYS, *SECTIONS, *ROWS))
    if not near:
        # The right key in the wrong table, or in none.
        leaves = {key.rpartition(".")[2]: key for key in KEYS}
        found = nearest(name.rpartition(".")[2], leaves)
        near = f"; did you mean '{leaves[found]}'?" if found is not None else ""
    return f"unknown key{near}"


def _stranger(name: str, known: Sequence[str]) -> str:
    return f"{_plain(name)} is not a setting and is ignored{did_you_mean(name, known)}"


def _plain(name: str) -> str:
    """A name from outside as it stands where that is safe to print, else in quotes."""
    return name if re.fullmatch(r"[\w.'-]{1,60}", name) else quoted(name)


def _problem(layer: Layer, name: str, message: str) -> Problem:
    if layer.file is None:
        return Problem(message, path=layer.origin)
    return Problem(message, path=_plain(name), file=layer.file, line=_line_of(layer.text, name))


def _problem_of_row(layers: Sequence[Layer], name: str, message: str) -> Problem:
    """A problem of a row as a whole, at the strongest layer that has something to say about it."""
    table, row = name.split(".")[:2]
    tables = [(layer, layer.values.get(table)) for layer in layers]
    naming = [layer for layer, rows in tables if isinstance(rows, dict) and row in rows]
    return _problem([*naming, *(layer for layer in naming if table not in layer.ignored)][-1], name, message)


def _line_of(text: str, name: str) -> int | None:
    """The line where a key stands, or the inline table that holds it; None where it is not found by its looks."""
    from orchard.planfile.document import locate_toml  # only a file with problems pays for it

    places = locate_toml(text)
    keys = {".".join(map(str, path)): place[0] for path, place in places.keys.items()}
    lines = {".".join(map(str, path)): place[0] for path, place in places.values.items()} | keys
    wanted = name.replace("'", "")
    if wanted in lines:
        return lines[wanted]
    above = wanted.split(".")[:-1]
    return next((keys[key] for n in range(len(above), 0, -1) if (key := ".".join(above[:n])) in keys), None)


def _bounded(problems: list[Problem]) -> list[Problem]:
    if len(problems) <= PROBLEMS_SHOWN:
        return problems
    return [*problems[:PROBLEMS_SHOWN], Problem("... and more")]


def _config(values: Mapping[str, object]) -> Config:
    tables: dict[str, Any] = nested(values)
    for name, section in SECTIONS.items():
        given = {_python_name(key): value for key, value in tables.get(name, {}).items()}
        tables[name] = section(**given)
    return Config(**tables)


def _python_name(key: str) -> str:
    return "global_" if key == "global" else key


def _attribute(config: Config, name: str) -> object:
    if narrows(name):
        return _in_force(config, name)
    if name.startswith("agents.builtin."):
        return getattr(config.builtin, name.rpartition(".")[2])
    if name not in KEYS:
        table, row, rest = name.split(".", 2)
        return getattr(getattr(config, table)[row], rest)
    section, dot, rest = name.partition(".")
    value: object = getattr(config, section)
    return getattr(value, _python_name(rest)) if dot else value


def _in_force(config: Config, name: str) -> object:
    """What a field about tools comes to, with what the repository's file takes away."""
    _, agent, field = name.split(".", 2)
    tools = tools_of(config, agent)
    if field != "tools":
        return tools.deny if field == "deny_tools" else tools.ask
    said = [each[0] if len(each) == 1 else each for each in tools.lists]
    return " and only ".join(one if isinstance(one, str) else ", ".join(one) or "none" for one in said) or "all"
