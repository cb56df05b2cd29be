"""Rows that the user names: `[agents.NAME]` and `[mcp_servers.NAME]`.

    row_key     what a row may hold under a name; an unknown one is a problem, as everywhere
    make_rows   values by dotted key -> rows; what is wrong with a row as a whole is told beside them

A row is put together field by field, as all settings are: the user's file may name a model, and the repository's
the arguments.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from msgspec import Struct

from orchard.config.keys import ROWS, Key
from orchard.config.kinds import (
    ROW_NAME,
    address,
    command,
    endpoint,
    flag,
    found_instead,
    like,
    list_of,
    one_of,
    seconds,
    table_of,
    text_of,
    tool_names,
    tool_set,
    variable,
    whole,
)
from orchard.model.agent_rows import ACP, AGENTS, AgentRow, BuiltinRow, Home, Keeper, Permitted, ServerRow
from orchard.model.permissions import Tools
from orchard.text import did_you_mean, quoted

MOST = 100
INSTRUCTION_BYTES = 64 * 1024
SERVERS_VARIABLE = "ORCHARD_MCP_SERVERS"
DAY = 86_400.0
RESERVED = "agent"
"""`@agent TEXT` is work for the default agent, so no agent can have this name."""


# ---------------------------------------------------------------------------------- rules for texts


def _argument(text: str) -> str | None:
    return "must not hold a NUL" if "\0" in text else None


def _word(text: str) -> str | None:
    fits = re.fullmatch(r"[!-~]{1,200}", text) and not text.startswith("-")
    return None if fits else "must be a name without spaces"


def _written(text: str) -> str | None:
    if len(text.encode(errors="replace")) > INSTRUCTION_BYTES:
        return f"must have at most {INSTRUCTION_BYTES // 1024} KiB"
    return None if text.strip() else "must not be empty"


def _word_or_command(text: str) -> str | None:
    return _argument(text) if text.startswith(ACP) and text != ACP else _word(text)


_header = like(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}", "must be the name of a header")
_header_value = like(r"[\t -~\x80-\xff]*", "must not hold control characters")


def _pattern(text: str) -> str | None:
    fits = re.fullmatch(r"[^\x00-\x1f/][^\x00-\x1f]{0,199}", text) and ".." not in text.split("/")
    return None if fits and text.strip("*/") else "must be a path in the worktree, in which '*' stands for anything"


# --------------------------------------------------------------------------------------- the fields

_ALLOW_ENV = "variables that a plan may set for it, though they decide where keys go or which programs run"
_VARIABLES = table_of(variable, _argument)
_PERMITTED = (
    Key("tools", tool_set(), "what it may use: `read-only`, `edit`, `all`, `ask`, or a list of tools"),
    Key("deny_tools", tool_names(), "tools that it does not get; `github_*` stands for all that begin so"),
    Key("ask_tools", tool_names(), "tools before each use of which a person is asked"),
)

AGENT_FIELDS = (
    Key("command", text_of(command), "the program; for an agent of your own a command line with `{prompt}` in it"),
    Key("args", list_of(_argument), "arguments, put before those that are added"),
    Key("model", text_of(_word), "the model of works that name none"),
    Key("env", _VARIABLES, "variables that it gets"),
    Key("pass_env", list_of(variable), "your variables that it may see, beside those it needs anyway"),
    Key("allow_env", list_of(variable), _ALLOW_ENV),
    Key("droppings", list_of(_pattern), "paths of files that it leaves for itself, such as `.mine/` or `.mine*`"),
    Key("home", one_of(*get_args(Home)), "where it keeps settings and sessions: with the job, or in your own place"),
    Key("key", one_of(*get_args(Keeper)), "who has its key behind a wall: our proxy, or its own environment"),
    Key("endpoints", list_of(endpoint), "hosts that it needs behind a wall: its model, and where its login is renewed"),
    Key("instructions", text_of(_written), "makes the row a definition: how an agent that you have is to work"),
    Key("description", text_of(_argument), "of a definition: what it is for"),
    Key("agent", text_of(_word_or_command), "of a definition: the agent that works by it"),
    *_PERMITTED,
)
BUILTIN_FIELDS = (
    Key("provider", one_of("anthropic", "openai"), "who is asked: `openai` is any compatible endpoint"),
    Key("base_url", text_of(address), "the address of the endpoint"),
    Key("api_key_env", text_of(variable), "the variable that holds the key"),
    Key("model", text_of(_word), "the model of works that name none"),
    Key("max_iterations", whole(1, 10_000), "calls of the model in one turn"),
    Key("max_tokens", whole(1, 1_000_000), "tokens of one answer"),
    Key("max_messages", whole(4, 10_000), "messages that are kept of a conversation"),
    Key("compact", flag(), "whether the middle of a long conversation is summarised"),
    Key("compact_threshold", whole(4, 10_000), "messages from which on it is"),
    Key("compact_keep_recent", whole(1, 10_000), "newest messages that stay as they are"),
    Key("bash_seconds", seconds(DAY), "seconds that a command has where the model does not ask for more"),
    Key("bash_max_seconds", seconds(DAY), "the most seconds that it can ask for"),
    Key("env", _VARIABLES, "variables that its commands get"),
    Key("pass_env", list_of(variable), "your variables that its commands may see"),
    Key("allow_env", list_of(variable), _ALLOW_ENV),
    *_PERMITTED,
)
SERVER_FIELDS = (
    Key("command", text_of(command), "the program to start, which speaks over standard input and output"),
    Key("args", list_of(_argument), "its arguments"),
    Key("env", _VARIABLES, "variables that it gets; `${NAME}` in a value stands for a variable of yours"),
    Key("url", text_of(address), "the address, instead of a command"),
    Key("headers", table_of(_header, _header_value), "sent with each request; `${NAME}` as in `env`"),
    Key("always", flag(), "whether every agent in a job gets it, also where the work does not name it"),
)


def fields_of(table: str, row: str) -> Mapping[str, Key]:
    found = SERVER_FIELDS if table == "mcp_servers" else BUILTIN_FIELDS if row == "builtin" else AGENT_FIELDS
    return {key.name: key for key in found}


def row_key(name: str) -> Key | str | None:
    """The key of a field by its dotted name, the words of a problem, or None where the name is of no row."""
    table, _, rest = name.partition(".")
    if table not in ROWS or not rest:
        return None
    row, _, field = rest.partition(".")
    known = fields_of(table, row)
    return known.get(field) or f"unknown key{did_you_mean(field, known)}"


def row_variables() -> Mapping[str, tuple[str, Key]]:
    """The environment variables that set fields of known agents, such as `ORCHARD_AGENTS_BUILTIN_MAX_ITERATIONS`.

    Tables have none, and neither have agents of the user's own: a variable could not make a row whole.
    """
    return {
        f"ORCHARD_AGENTS_{row}_{name}".upper().replace("-", "_"): (row, key)
        for row in AGENTS
        for name, key in fields_of("agents", row).items()
        if key.kind is not _VARIABLES
    }


def server_rows(text: str) -> object:
    """Rows of `[mcp_servers]` as a variable holds them: JSON, by name or as a list of objects with a `name`."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return "text that is not JSON"
    named = isinstance(given, list) and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in given)
    if not named:
        return given
    return {one["name"]: {field: value for field, value in one.items() if field != "name"} for one in given}


def row_leaves(table: str, rows: Mapping[str, object]) -> Iterator[tuple[str, object, str | None]]:
    """Every value of a table of rows by its dotted name, with what is wrong where no row can be so."""
    if len(rows) > MOST:
        yield table, rows, f"must hold at most {MOST} rows, not {len(rows)}"
        return
    for row, values in rows.items():
        if not re.fullmatch(ROW_NAME, row):
            wrong = "must be named with lowercase letters, digits, '-' and '_', at most 32 of them"
            yield f"{table}.{quoted(row)}", values, wrong
        elif table == "agents" and row == RESERVED:
            yield f"{table}.{row}", values, "cannot be used: '@agent' is the default agent; choose another name"
        elif not isinstance(values, dict):
            yield f"{table}.{row}", values, f"must be a table, [{table}.{row}], {found_instead(values)}"
        elif not values and (
            empty := _wrong_server(ServerRow()) if table != "agents" else _wrong_agent(row, AgentRow())
        ):
            yield f"{table}.{row}", values, empty
        else:
            yield from ((f"{table}.{row}.{field}", value, None) for field, value in values.items())


# ------------------------------------------------------------------------ what a repository may say

NARROWING = tuple(key.name for key in _PERMITTED)
"""Fields of an agent's row that a repository's own file can set without consent: they only ever take away."""


def narrows(name: str) -> bool:
    """Whether a dotted name is such a field."""
    table, _, rest = name.partition(".")
    return table == "agents" and rest.partition(".")[2] in NARROWING


def without_narrowing(values: Mapping[str, object]) -> dict[str, object]:
    """The tables of a file without these fields, and without rows that hold nothing else."""
    agents = values.get("agents")
    if not isinstance(agents, dict):
        return dict(values)
    rows = {name: _others(row) for name, row in agents.items()}
    left = {name: row for name, row in rows.items() if row or not agents[name]}
    return {name: value for name, value in {**values, "agents": left}.items() if name != "agents" or left}


def _others(row: object) -> object:
    if not isinstance(row, dict):
        return row
    return {field: value for field, value in row.items() if field not in NARROWING}


def narrowing(said: Mapping[str, Any]) -> dict[str, Tools]:
    """By the names of agents, what values by dotted name take away."""
    rows: dict[str, dict[str, Any]] = {}
    for name, value in said.items():
        _, row, field = name.split(".", 2)
        rows.setdefault(row, {})[field] = value
    return {row: Permitted(**fields).permissions for row, fields in rows.items()}


# ----------------------------------------------------------------------------------------- the rows


class Rows(Struct, frozen=True):
    agents: Mapping[str, AgentRow]
    builtin: BuiltinRow
    mcp_servers: Mapping[str, ServerRow]


def make_rows(values: Mapping[str, object]) -> tuple[Rows, dict[str, str]]:
    """The rows that values by dotted name make, and what is wrong with some of them, by the name of the row."""
    tables: dict[str, dict[str, dict[str, Any]]] = {table: {} for table in ROWS}
    for name, value in values.items():
        table, _, rest = name.partition(".")
        row, _, field = rest.partition(".")
        if table in ROWS and field:
            tables[table].setdefault(row, {})[field] = value
    builtin = BuiltinRow(**tables["agents"].pop("builtin", {}))
    agents = {name: AgentRow(**row) for name, row in tables["agents"].items()}
    servers = {name: ServerRow(**row) for name, row in tables["mcp_servers"].items()}
    wrong = {
        **{f"agents.{name}": problem for name, row in agents.items() if (problem := _wrong_agent(name, row))},
        **{f"mcp_servers.{name}": problem for name, row in servers.items() if (problem := _wrong_server(row, name))},
    }
    if builtin.compact and builtin.compact_keep_recent >= builtin.compact_threshold:
        wrong["agents.builtin.compact_keep_recent"] = "must be less than compact_threshold"
    if not 0 < builtin.bash_seconds <= builtin.bash_max_seconds:
        wrong["agents.builtin.bash_seconds"] = "must be more than 0, and at most bash_max_seconds"
    return Rows(agents, builtin, servers), wrong


def _wrong_agent(name: str, row: AgentRow) -> str | None:
    if row.instructions is not None:
        return _wrong_definition(name, row)
    if row.description is not None or row.agent is not None:
        return "'description' and 'agent' are of a definition, which has 'instructions'"
    if name in AGENTS or row.command is not None:
        return None
    return f"needs 'command' or 'instructions': there is no agent of this name{did_you_mean(name, AGENTS)}"


def _wrong_definition(name: str, row: AgentRow) -> str | None:
    if name in AGENTS:
        return "is an agent: give the definition ('instructions') another name, and name this one as its 'agent'"
    other = AgentRow(instructions=row.instructions, description=row.description, agent=row.agent, model=row.model)
    for field in ("command", "args", "env", "pass_env", "allow_env", "droppings", "home", "key", "endpoints"):
        if getattr(row, field) != getattr(other, field):
            return f"'{field}' is of a program, and a row with 'instructions' is none; its 'agent' names one"
    return None


def _wrong_server(row: ServerRow, name: str = "") -> str | None:
    if "__" in name or name.endswith("_"):
        return "must have no '__' in its name, and no '_' at its end: its tools could be taken for another server's"
    if (row.command is None) == (row.url is None):
        return "needs 'command' or 'url', and not both"
    if row.url is not None and (row.args or row.env):
        return "'args' and 'env' are for a 'command'; a 'url' has 'headers'"
    return "'headers' are for a 'url'; a 'command' has 'env'" if row.command is not None and row.headers else None
